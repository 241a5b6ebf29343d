//! How much happened lately: counters that only grow, remembered for a minute, and failures for
//! an hour.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use grasp_core::Mono;
use grasp_core::sync::Status;
use rustc_hash::FxHashMap;
use serde::Serialize;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// What happened in the last minute, and what failed in the last hour.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Lately {
    /// New events, whoever brought them.
    pub events: u64,
    pub pushes: u64,
    pub clones: u64,
    pub store_failures: u64,
    pub git_failures: u64,
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
    store_failures: Trail,
    git_failures: Trail,
    relays: FxHashMap<String, Trail>,
}

/// What the server itself counts, beside the core.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub pushes: u64,
    pub clones: u64,
    pub store_failures: u64,
    pub git_failures: u64,
}

/// A counter at several moments, the oldest first.
#[derive(Debug, Default)]
struct Trail(VecDeque<(Mono, u64)>);

impl Pace {
    pub fn note(&mut self, sync: &Status, counts: Counts, now: Mono) {
        self.events.note(all(sync), now, MINUTE);
        self.pushes.note(counts.pushes, now, MINUTE);
        self.clones.note(counts.clones, now, MINUTE);
        self.store_failures.note(counts.store_failures, now, HOUR);
        self.git_failures.note(counts.git_failures, now, HOUR);
        let mut before = std::mem::take(&mut self.relays);
        for relay in &sync.relays {
            let mut trail = before.remove(&relay.url).unwrap_or_default();
            trail.note(brought(relay), now, MINUTE);
            self.relays.insert(relay.url.clone(), trail);
        }
    }

    pub fn lately(&self, sync: &Status, counts: Counts) -> Lately {
        let relays = sync.relays.iter().filter_map(|relay| {
            let trail = self.relays.get(&relay.url)?;
            let count = trail.lately(brought(relay));
            (count > 0).then(|| (relay.url.clone(), count))
        });
        Lately {
            events: self.events.lately(all(sync)),
            pushes: self.pushes.lately(counts.pushes),
            clones: self.clones.lately(counts.clones),
            store_failures: self.store_failures.lately(counts.store_failures),
            git_failures: self.git_failures.lately(counts.git_failures),
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
    /// Twelve steps or a few more, however long the window is.
    fn note(&mut self, count: u64, now: Mono, window: Duration) {
        let step = self.0.back().map(|(at, _)| now.since(*at));
        if step.is_some_and(|step| step < window / 15) {
            return;
        }
        self.0.push_back((now, count));
        // One that is older stays, so that the window is never cut short.
        while self
            .0
            .get(1)
            .is_some_and(|(at, _)| now.since(*at) >= window)
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
        trail.note(5, at(0), MINUTE);
        assert_eq!(trail.lately(8), 3);
        trail.note(8, at(30), MINUTE);
        trail.note(8, at(60), MINUTE);
        assert_eq!(trail.lately(9), 4);
        trail.note(9, at(90), MINUTE);
        assert_eq!(trail.lately(9), 1);
        for secs in 2..40 {
            trail.note(9, at(secs * 60), MINUTE);
        }
        assert_eq!(trail.lately(9), 0);
        assert!(trail.0.len() <= 2, "{trail:?}");
    }

    #[test]
    fn an_hour_is_kept_in_few_steps() {
        let mut trail = Trail::default();
        for secs in 0..20_000 {
            trail.note(secs, at(secs), HOUR);
            assert!(trail.0.len() <= 17, "{}", trail.0.len());
        }
        assert!((3_599..=3_900).contains(&trail.lately(20_000)), "{trail:?}");
    }
}
