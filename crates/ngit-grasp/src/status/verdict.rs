//! Is it well? What an operator should look at, in words that give nothing away.

use grasp_core::sync::Health;

use super::Snapshot;
use crate::disk::Room;

/// Something to look at, and the part of the page that says more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    pub text: String,
    pub part: &'static str,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Nothing here means that all is well.
    pub troubles: Vec<Point>,
    /// What is worth knowing, and takes care of itself.
    pub notes: Vec<Point>,
}

impl Verdict {
    pub fn is_well(&self) -> bool {
        self.troubles.is_empty()
    }

    pub fn of(snapshot: &Snapshot) -> Self {
        let mut verdict = Self::default();
        verdict.disk(snapshot);
        verdict.relays(snapshot);
        verdict.failures(snapshot);
        verdict.notes(snapshot);
        verdict
    }

    fn trouble(&mut self, part: &'static str, text: impl Into<String>) {
        let text = text.into();
        self.troubles.push(Point { text, part });
    }

    fn note(&mut self, part: &'static str, text: impl Into<String>) {
        let text = text.into();
        self.notes.push(Point { text, part });
    }

    fn disk(&mut self, snapshot: &Snapshot) {
        match snapshot.machine.room {
            Room::Enough => {}
            Room::Little => self.trouble("disk", "the disk is getting full"),
            Room::None => self.trouble("disk", "the disk is full: pushes are refused"),
        }
    }

    fn relays(&mut self, snapshot: &Snapshot) {
        let sync = &snapshot.report.sync;
        if !sync.enabled {
            self.note("network", "sync with other relays is switched off");
            return;
        }
        let own = sync.relays.iter().filter(|relay| relay.bootstrap);
        let failing = own
            .filter(|relay| relay.health.health != Health::Healthy)
            .count();
        if failing > 0 {
            let what = plural(failing, "bootstrap relay does", "bootstrap relays do");
            self.trouble("network", format!("{what} not answer"));
        }
        let alive = sync.relays_tracked.saturating_sub(sync.relays_dead);
        if alive > 0 && sync.relays_connected == 0 {
            self.trouble("network", "no other relay is connected");
        } else if 2 * sync.relays_connected < alive {
            self.trouble("network", "fewer than half of the relays are connected");
        }
        if sync.relays_over_limit > 0 {
            let most = "some relays are not taken in, because there are enough";
            self.trouble("network", most);
        }
    }

    fn failures(&mut self, snapshot: &Snapshot) {
        let machine = &snapshot.machine;
        if machine.store_failures > 0 {
            let what = "events could not be written since the start: the log says why";
            self.trouble("disk", what);
        }
        if machine.git_failures > 0 {
            let what = "work on repositories failed since the start: the log says why";
            self.trouble("git", what);
        }
    }

    fn notes(&mut self, snapshot: &Snapshot) {
        let report = &snapshot.report;
        let (sync, hunt) = (&report.sync, &report.hunt);
        if sync.relays_dead > 0 {
            let what = plural(sync.relays_dead, "relay has", "relays have");
            self.note("network", format!("{what} been silent for a day or more"));
        }
        if report.coverage.have < report.coverage.known {
            self.note("network", "history is being fetched");
        }
        if hunt.events_held > 0 {
            let what = plural(hunt.events_held, "event waits", "events wait");
            self.note("held", format!("{what} for git data"));
        }
        if !hunt.enabled {
            self.note("hunts", "the hunt for git data is switched off");
        } else if hunt.domains_resting > 0 {
            let what = plural(hunt.domains_resting, "git server rests", "git servers rest");
            self.note("hunts", format!("{what} after failures"));
        }
    }
}

pub fn plural(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::fresh;

    fn texts(points: &[Point]) -> Vec<&str> {
        points.iter().map(|point| point.text.as_str()).collect()
    }

    #[test]
    fn a_server_without_company_is_well() {
        assert!(Verdict::of(&fresh()).is_well());
    }

    #[test]
    fn what_an_operator_must_look_at_is_said() {
        let mut snapshot = fresh();
        snapshot.machine.room = Room::None;
        snapshot.machine.git_failures = 2;
        snapshot.report.sync.enabled = true;
        snapshot.report.sync.relays_tracked = 3;
        snapshot.report.sync.relays_dead = 1;
        let verdict = Verdict::of(&snapshot);
        let expected = [
            "the disk is full: pushes are refused",
            "no other relay is connected",
            "work on repositories failed since the start: the log says why",
        ];
        assert_eq!(texts(&verdict.troubles), expected);
        let note = "1 relay has been silent for a day or more";
        assert!(texts(&verdict.notes).contains(&note), "{verdict:?}");
    }

    #[test]
    fn relays_that_died_long_ago_do_not_make_it_ill() {
        let mut snapshot = fresh();
        let sync = &mut snapshot.report.sync;
        sync.enabled = true;
        (sync.relays_tracked, sync.relays_dead) = (10, 8);
        sync.relays_connected = 1;
        assert!(Verdict::of(&snapshot).is_well());
        snapshot.report.sync.relays_tracked = 12;
        assert!(!Verdict::of(&snapshot).is_well());
    }
}
