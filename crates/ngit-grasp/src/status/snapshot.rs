//! One look at everything, kept for a moment and told to all who ask meanwhile: to the operator
//! all of it, to everybody else what helps nobody to attack.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::machine::{Machine, Watch};
use super::verdict::Verdict;
use super::{PATIENCE, Report};
use crate::driver;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    Public,
    Operator,
}

impl Audience {
    /// How old a look may be. Strangers cost the driver no more than one answer in a second.
    fn bears(self) -> Duration {
        match self {
            Audience::Public => Duration::from_secs(1),
            Audience::Operator => Duration::from_millis(250),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Snapshot {
    #[serde(flatten)]
    pub report: Report,
    pub machine: Machine,
    pub verdict: Verdict,
    #[serde(skip)]
    written: [OnceLock<Arc<str>>; 4],
}

/// What a snapshot is written as; each at most once for each audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Json,
    Page,
}

impl Snapshot {
    pub fn new(report: Report, machine: Machine) -> Self {
        Self {
            verdict: Verdict::of(&report, &machine),
            report,
            machine,
            written: Default::default(),
        }
    }

    /// However many ask, it is written once.
    pub fn written(
        &self,
        form: Form,
        audience: Audience,
        write: impl FnOnce(&Self) -> String,
    ) -> Arc<str> {
        let [json, summary, page, public] = &self.written;
        let place = match (form, audience) {
            (Form::Json, Audience::Operator) => json,
            (Form::Json, Audience::Public) => summary,
            (Form::Page, Audience::Operator) => page,
            (Form::Page, Audience::Public) => public,
        };
        Arc::clone(place.get_or_init(|| write(self).into()))
    }

    pub fn json(&self, audience: Audience) -> Arc<str> {
        self.written(Form::Json, audience, |snapshot| match audience {
            Audience::Operator => serde_json::to_string(snapshot).unwrap_or_default(),
            Audience::Public => snapshot.summary().to_string(),
        })
    }

    /// Named one by one: what is added to a snapshot stays the operator's until it is named here.
    fn summary(&self) -> Value {
        let (report, machine) = (&self.report, &self.machine);
        let (sync, hunt) = (&report.sync, &report.hunt);
        json!({
            "version": report.version,
            "uptime_secs": report.uptime_secs,
            "now": report.now,
            "held": report.held,
            "repositories": report.repositories,
            "coverage": report.coverage,
            "verdict": self.verdict,
            "sync": {
                "enabled": sync.enabled,
                "repositories": sync.repositories,
                "roots": sync.roots,
                "relays_tracked": sync.relays_tracked,
                "relays_connected": sync.relays_connected,
                "relays_dead": sync.relays_dead,
                "wanted": sync.wanted,
                "events": sync.events,
            },
            "hunt": {
                "enabled": hunt.enabled,
                "in_flight": hunt.in_flight,
                "events_held": hunt.events_held,
                "repositories_waiting": hunt.repositories_waiting,
            },
            "lately": {
                "events": report.lately.events,
                "pushes": report.lately.pushes,
                "clones": report.lately.clones,
            },
            "machine": {"events": machine.events, "git": machine.git, "room": machine.room},
        })
    }
}

/// Where everybody looks.
pub struct Lookout {
    driver: driver::Handle,
    watch: Arc<Watch>,
    last: Mutex<Option<Look>>,
}

struct Look {
    at: Instant,
    /// `None` if nobody answered in time.
    seen: Option<Arc<Snapshot>>,
}

impl Lookout {
    pub fn new(driver: driver::Handle, watch: Watch) -> Self {
        Self {
            driver,
            watch: Arc::new(watch),
            last: Mutex::new(None),
        }
    }

    /// `None` when the driver or the disk is stuck. Whoever comes while one looks gets what that
    /// one sees, be it nothing.
    pub async fn snapshot(&self, audience: Audience) -> Option<Arc<Snapshot>> {
        let mut last = self.last.lock().await;
        if let Some(look) = &*last
            && look.at.elapsed() < audience.bears()
        {
            return look.seen.clone();
        }
        let looked = tokio::time::timeout(PATIENCE, self.look()).await;
        let seen = looked.ok().flatten().map(Arc::new);
        *last = Some(Look {
            at: Instant::now(),
            seen: seen.clone(),
        });
        seen
    }

    async fn look(&self) -> Option<Snapshot> {
        let report = self.driver.status().await.ok()?;
        let watch = Arc::clone(&self.watch);
        let machine = tokio::task::spawn_blocking(move || watch.look()).await;
        Some(Snapshot::new(report, machine.ok()??))
    }
}

/// Of a server that has just begun, for tests.
#[cfg(test)]
pub fn fresh() -> Snapshot {
    use grasp_core::{Core, Limits, Lists, MaintainerRule, Now, Policy, Service};

    let policy = Policy {
        service: Service::of_host("git.test", None),
        rule: MaintainerRule::Reciprocal,
        lists: Lists::default(),
        takes_unrelated: false,
        bootstrap: Vec::new(),
        limits: Limits::default(),
    };
    let core = Core::new(policy, 1);
    let lately = |_: &_| super::Lately::default();
    let report = Report::of(&core, lately, Now::default());
    Snapshot::new(report, Machine::default())
}

/// A relay that nobody has reached yet, for tests.
#[cfg(test)]
pub fn relay(url: &str) -> grasp_core::sync::status::RelayStatus {
    use grasp_core::sync::status::{Next, RelayStatus, State};
    use grasp_core::sync::{Capabilities, Record, RelayHealth};
    use grasp_core::{SyncLimits, Timestamp};

    RelayStatus {
        url: url.to_owned(),
        bootstrap: false,
        state: State::Disconnected,
        why: None,
        since: Timestamp(0),
        health: RelayHealth::default(),
        capabilities: Capabilities::unknown(&SyncLimits::default()),
        repositories: 1,
        roots: 2,
        live: 0,
        not_live: 3,
        open_filters: 0,
        paged: 0,
        reconciled: 0,
        missing: 3,
        read: 0,
        covered: None,
        lag_ms: None,
        record: Record::default(),
        coverage: None,
        uptime: None,
        next: Next::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(value: &Value, path: &str, into: &mut Vec<String>) {
        for (key, inner) in value.as_object().into_iter().flatten() {
            into.push(format!("{path}/{key}"));
            keys(inner, &format!("{path}/{key}"), into);
        }
    }

    /// Programs that read the whole read the summary, too.
    #[test]
    fn the_summary_is_a_part_of_the_whole_and_lists_nothing() {
        let snapshot = fresh();
        let whole: Value = serde_json::from_str(&snapshot.json(Audience::Operator)).unwrap();
        let summary: Value = serde_json::from_str(&snapshot.json(Audience::Public)).unwrap();
        let mut paths = Vec::new();
        keys(&summary, "", &mut paths);
        assert!(paths.len() > 20, "{paths:?}");
        for path in paths {
            assert!(whole.pointer(&path).is_some(), "{path}");
            // A verdict is words of ours.
            let told = summary.pointer(&path).unwrap();
            assert!(!told.is_array() || path.starts_with("/verdict"), "{path}");
        }
    }
}
