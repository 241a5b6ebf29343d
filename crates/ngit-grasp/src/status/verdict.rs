//! Is it well? What an operator should look at, in words that give nothing away.

use grasp_core::Timestamp;
use grasp_core::sync::Health;
use grasp_core::sync::status::{RelayStatus, State};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::{Machine, Report};
use crate::disk::Room;

/// A relay of the operator that has failed for so long is his business.
const SOON: u64 = 5 * 60;

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

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let texts = |points: &[Point]| -> Vec<String> {
            points.iter().map(|point| point.text.clone()).collect()
        };
        let mut fields = to.serialize_struct("Verdict", 3)?;
        fields.serialize_field("well", &self.is_well())?;
        fields.serialize_field("troubles", &texts(&self.troubles))?;
        fields.serialize_field("notes", &texts(&self.notes))?;
        fields.end()
    }
}

impl Verdict {
    pub fn is_well(&self) -> bool {
        self.troubles.is_empty()
    }

    pub fn of(report: &Report, machine: &Machine) -> Self {
        let mut verdict = Self::default();
        verdict.disk(machine);
        verdict.relays(report);
        verdict.failures(report);
        verdict.notes(report);
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

    fn disk(&mut self, machine: &Machine) {
        match machine.room {
            Room::Enough => {}
            Room::Little => self.trouble("disk", "the disk is getting full"),
            Room::None => self.trouble("disk", "the disk is full: pushes are refused"),
        }
    }

    /// Strangers name relays that never were. Only one that has answered, or that the operator
    /// named, can be missed.
    fn relays(&mut self, report: &Report) {
        let sync = &report.sync;
        if !sync.enabled {
            self.note("network", "sync with other relays is switched off");
            return;
        }
        let own = sync.relays.iter().filter(|relay| relay.bootstrap);
        let failing = own
            .filter(|relay| fails_for_long(relay, report.now))
            .count();
        if failing > 0 {
            let what = plural(failing, "bootstrap relay does", "bootstrap relays do");
            self.trouble("network", format!("{what} not answer"));
        }
        let known = sync.relays.iter().filter(|relay| can_be_missed(relay));
        let (up, all) = known.fold((0, 0), |(up, all), relay| {
            (up + usize::from(is_up(relay)), all + 1)
        });
        if all > 0 && up == 0 {
            self.trouble("network", "no other relay is connected");
        } else if 2 * up < all {
            self.trouble("network", "fewer than half of the relays are connected");
        }
    }

    fn failures(&mut self, report: &Report) {
        if report.lately.store_failures > 0 {
            let what = "events could not be written in the last hour: the log says why";
            self.trouble("disk", what);
        }
        if report.lately.git_failures > 0 {
            let what = "work on repositories failed in the last hour: the log says why";
            self.trouble("git", what);
        }
    }

    fn notes(&mut self, report: &Report) {
        let (sync, hunt) = (&report.sync, &report.hunt);
        if sync.relays_dead > 0 {
            let what = plural(sync.relays_dead, "relay has", "relays have");
            self.note("network", format!("{what} been silent for a day or more"));
        }
        if sync.relays_over_limit > 0 {
            let most = "some relays are not taken in, because there are enough";
            self.note("network", most);
        }
        if sync.pending > 0 {
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

fn fails_for_long(relay: &RelayStatus, now: Timestamp) -> bool {
    let since = relay.health.failing_since;
    since.is_some_and(|since| now.0.saturating_sub(since.0) >= SOON)
}

fn can_be_missed(relay: &RelayStatus) -> bool {
    let answered = relay.record.up_secs > 0 || is_up(relay);
    relay.health.health != Health::Dead && answered
}

fn is_up(relay: &RelayStatus) -> bool {
    matches!(relay.state, State::Connected | State::Syncing)
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
    use crate::status::snapshot::{Snapshot, fresh};

    fn texts(points: &[Point]) -> Vec<&str> {
        points.iter().map(|point| point.text.as_str()).collect()
    }

    fn verdict(snapshot: &Snapshot) -> Verdict {
        Verdict::of(&snapshot.report, &snapshot.machine)
    }

    fn relay(up: bool, answered: bool) -> RelayStatus {
        let mut relay = crate::status::snapshot::relay("wss://a.example");
        relay.record.up_secs = u64::from(answered);
        if up {
            relay.state = State::Connected;
        }
        relay
    }

    #[test]
    fn a_server_without_company_is_well() {
        let snapshot = fresh();
        assert!(verdict(&snapshot).is_well());
        let json = serde_json::to_value(&snapshot.verdict).unwrap();
        assert_eq!(json["well"], true);
        assert_eq!(json["troubles"], serde_json::json!([]));
    }

    #[test]
    fn what_an_operator_must_look_at_is_said() {
        let mut snapshot = fresh();
        snapshot.machine.room = Room::None;
        snapshot.report.lately.git_failures = 2;
        let sync = &mut snapshot.report.sync;
        sync.enabled = true;
        sync.relays = vec![relay(false, true)];
        sync.relays_dead = 1;
        let verdict = verdict(&snapshot);
        let expected = [
            "the disk is full: pushes are refused",
            "no other relay is connected",
            "work on repositories failed in the last hour: the log says why",
        ];
        assert_eq!(texts(&verdict.troubles), expected);
        let note = "1 relay has been silent for a day or more";
        assert!(texts(&verdict.notes).contains(&note), "{verdict:?}");
    }

    #[test]
    fn relays_that_never_answered_or_died_long_ago_do_not_make_it_ill() {
        let mut snapshot = fresh();
        let sync = &mut snapshot.report.sync;
        sync.enabled = true;
        let mut dead = relay(false, true);
        dead.health.health = Health::Dead;
        sync.relays = vec![relay(true, true), dead.clone(), dead];
        sync.relays.extend((0..10).map(|_| relay(false, false)));
        assert!(verdict(&snapshot).is_well());
        let sync = &mut snapshot.report.sync;
        sync.relays.extend([relay(false, true), relay(false, true)]);
        assert!(!verdict(&snapshot).is_well());
    }

    #[test]
    fn a_relay_of_the_operators_that_fails_for_minutes_is_told() {
        let mut snapshot = fresh();
        let mut own = relay(false, false);
        own.bootstrap = true;
        own.health.failing_since = Some(Timestamp(1_000));
        snapshot.report.sync.enabled = true;
        snapshot.report.sync.relays = vec![own];
        snapshot.report.now = Timestamp(1_000 + SOON - 1);
        assert!(verdict(&snapshot).is_well(), "it may be starting anew");
        snapshot.report.now = Timestamp(1_000 + SOON);
        let expected = ["1 bootstrap relay does not answer"];
        assert_eq!(texts(&verdict(&snapshot).troubles), expected);
    }
}
