//! How much happened lately: counters that only grow, remembered for a minute.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use grasp_core::Mono;
use grasp_core::sync::Status;
use rustc_hash::FxHashMap;
use serde::Serialize;

const WINDOW: Duration = Duration::from_secs(60);

/// What happened in the last minute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Lately {
    /// New events, whoever brought them.
    pub events: u64,
    pub pushes: u64,
    pub clones: u64,
    /// New events by the relay that brought them; those that brought none are left out.
    pub relays: BTreeMap<String, u64>,
}

/// Looked at every few seconds: a relay costs thirteen pairs of numbers, two thousand of them
/// less than half a megabyte.
#[derive(Debug, Default)]
pub struct Pace {
    events: Trail,
    pushes: Trail,
    clones: Trail,
    relays: FxHashMap<String, Trail>,
}

/// A counter at several moments, the oldest first.
#[derive(Debug, Default)]
struct Trail(VecDeque<(Mono, u64)>);

impl Pace {
    pub fn note(&mut self, sync: &Status, pushes: u64, clones: u64, now: Mono) {
        self.events.note(all(sync), now);
        self.pushes.note(pushes, now);
        self.clones.note(clones, now);
        let mut before = std::mem::take(&mut self.relays);
        for relay in &sync.relays {
            let mut trail = before.remove(&relay.url).unwrap_or_default();
            trail.note(brought(relay), now);
            self.relays.insert(relay.url.clone(), trail);
        }
    }

    pub fn lately(&self, sync: &Status, pushes: u64, clones: u64) -> Lately {
        let relays = sync.relays.iter().filter_map(|relay| {
            let trail = self.relays.get(&relay.url)?;
            let count = trail.lately(brought(relay));
            (count > 0).then(|| (relay.url.clone(), count))
        });
        Lately {
            events: self.events.lately(all(sync)),
            pushes: self.pushes.lately(pushes),
            clones: self.clones.lately(clones),
            relays: relays.collect(),
        }
    }
}

fn all(sync: &Status) -> u64 {
    let events = &sync.events;
    events.direct + events.live + events.catchup + events.daily
}

fn brought(relay: &grasp_core::sync::status::RelayStatus) -> u64 {
    relay.record.live + relay.record.catch_up + relay.record.daily
}

impl Trail {
    fn note(&mut self, count: u64, now: Mono) {
        self.0.push_back((now, count));
        // One that is older stays, so that the window is never cut short.
        while self
            .0
            .get(1)
            .is_some_and(|(at, _)| now.since(*at) >= WINDOW)
        {
            self.0.pop_front();
        }
    }

    fn lately(&self, count: u64) -> u64 {
        let first = self.0.front().map_or(count, |(_, first)| *first);
        count.saturating_sub(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Mono {
        Mono(Duration::from_secs(secs))
    }

    #[test]
    fn what_happened_a_minute_ago_is_forgotten() {
        let mut trail = Trail::default();
        assert_eq!(trail.lately(7), 0, "nobody has looked yet");
        trail.note(5, at(0));
        assert_eq!(trail.lately(8), 3);
        trail.note(8, at(30));
        trail.note(8, at(60));
        assert_eq!(trail.lately(9), 4);
        trail.note(9, at(90));
        assert_eq!(trail.lately(9), 1);
        for secs in 2..40 {
            trail.note(9, at(secs * 60));
        }
        assert_eq!(trail.lately(9), 0);
        assert!(trail.0.len() <= 2, "{trail:?}");
    }
}
