//! One look at everything, kept for a moment and told to all who ask meanwhile: to the operator
//! all of it, to everybody else what helps nobody to attack.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::machine::{Machine, Watch};
use super::{PATIENCE, Report};
use crate::driver;

/// One look serves everybody who asks within this time: strangers cost the driver no more than
/// four answers in a second.
const FRESH: Duration = Duration::from_millis(250);

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    Public,
    Operator,
}

#[derive(Debug, Serialize)]
pub struct Snapshot {
    #[serde(flatten)]
    pub report: Report,
    pub machine: Machine,
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

/// The last snapshot.
pub struct Lookout {
    driver: driver::Handle,
    watch: Arc<Watch>,
    last: Mutex<Option<(Instant, Arc<Snapshot>)>>,
}

impl Lookout {
    pub fn new(driver: driver::Handle, watch: Watch) -> Self {
        Self {
            driver,
            watch: Arc::new(watch),
            last: Mutex::new(None),
        }
    }

    /// `None` when the driver has ended or is stuck.
    pub async fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let mut last = self.last.lock().await;
        if let Some((at, snapshot)) = &*last
            && at.elapsed() < FRESH
        {
            return Some(Arc::clone(snapshot));
        }
        let report = tokio::time::timeout(PATIENCE, self.driver.status()).await;
        let report = report.ok()?.ok()?;
        let watch = Arc::clone(&self.watch);
        let machine = tokio::task::spawn_blocking(move || watch.look()).await;
        let snapshot = Arc::new(Snapshot::new(report, machine.ok()?));
        *last = Some((Instant::now(), Arc::clone(&snapshot)));
        Some(snapshot)
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
            let told = summary.pointer(&path).unwrap();
            assert!(!told.is_array(), "{path}");
        }
    }
}
