//! How many bytes each key may bring in a day. What was spent fades evenly, so that nobody waits
//! for midnight.

use std::hash::Hash;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::clock::Mono;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A small event costs a row in each index, too: as much as one of so many bytes.
const PER_EVENT: u64 = 1024;

#[derive(Debug, Clone, Copy)]
struct Spent {
    bytes: f64,
    at: Mono,
}

/// What at most `capacity` keys have spent; 56 bytes each.
#[derive(Debug)]
pub struct ByteQuota<K> {
    per_day: u64,
    capacity: usize,
    spent: FxHashMap<K, Spent>,
}

impl<K: Hash + Eq> ByteQuota<K> {
    /// Zero bytes a day mean no limit.
    pub fn new(per_day: u64, capacity: usize) -> Self {
        Self {
            per_day,
            capacity,
            spent: FxHashMap::default(),
        }
    }

    /// Whether an event of so many bytes is within what is left of the day.
    pub fn allows(&self, key: &K, bytes: usize, now: Mono) -> bool {
        let spent = self
            .spent
            .get(key)
            .map_or(0.0, |spent| self.left_of(spent, now));
        self.per_day == 0 || spent + cost(bytes) <= self.per_day as f64
    }

    pub fn spend(&mut self, key: K, bytes: usize, now: Mono) {
        if self.per_day == 0 || !self.has_space_for(&key, now) {
            return;
        }
        let before = self.spent.get(&key);
        let before = before.map_or(0.0, |spent| self.left_of(spent, now));
        let bytes = before + cost(bytes);
        self.spent.insert(key, Spent { bytes, at: now });
    }

    /// Where there is no space, those that have spent little are forgotten. If all have spent much,
    /// newcomers are not counted: many keys must not keep one more from being heard.
    fn has_space_for(&mut self, key: &K, now: Mono) -> bool {
        if self.spent.len() < self.capacity || self.spent.contains_key(key) {
            return true;
        }
        let little = self.per_day as f64 / 16.0;
        let per_day = self.per_day;
        self.spent
            .retain(|_, spent| faded(spent, per_day, now) > little);
        self.spent.len() < self.capacity
    }

    fn left_of(&self, spent: &Spent, now: Mono) -> f64 {
        faded(spent, self.per_day, now)
    }
}

fn faded(spent: &Spent, per_day: u64, now: Mono) -> f64 {
    let share = now.since(spent.at).as_secs_f64() / DAY.as_secs_f64();
    (spent.bytes - share * per_day as f64).max(0.0)
}

fn cost(bytes: usize) -> f64 {
    (bytes as u64).saturating_add(PER_EVENT) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    #[test]
    fn a_day_brings_back_what_was_spent() {
        let mut quota = ByteQuota::new(24 * 2_048, 10);
        let start = Mono::default();
        for _ in 0..24 {
            assert!(quota.allows(&'a', 1_024, start));
            quota.spend('a', 1_024, start);
        }
        assert!(!quota.allows(&'a', 1_024, start));
        assert!(quota.allows(&'b', 1_024, start));
        assert!(quota.allows(&'a', 1_024, start + HOUR));
        assert!(!quota.allows(&'a', 4_096, start + HOUR));
    }

    #[test]
    fn zero_is_no_limit_and_many_keys_keep_nobody_out() {
        let start = Mono::default();
        let mut quota = ByteQuota::new(0, 10);
        quota.spend(1, usize::MAX, start);
        assert!(quota.allows(&1, usize::MAX, start));
        let mut quota = ByteQuota::new(100_000, 2);
        for key in 0..100 {
            assert!(quota.allows(&key, 50_000, start));
            quota.spend(key, 50_000, start);
        }
        assert_eq!(quota.spent.len(), 2);
    }
}
