//! A token bucket per key whose methods take the time.

use std::hash::Hash;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::clock::Mono;

/// How much is allowed: a burst, refilled evenly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    pub burst: u32,
    pub per_minute: u32,
}

impl Rate {
    /// `n` in any minute on average, and `n` at once.
    pub fn per_minute(n: u32) -> Self {
        Self {
            burst: n,
            per_minute: n,
        }
    }

    fn per_second(self) -> f64 {
        f64::from(self.per_minute) / 60.0
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    refilled: Mono,
}

/// Buckets for at most `capacity` keys; 56 bytes each.
#[derive(Debug)]
pub struct Limiter<K> {
    rate: Rate,
    capacity: usize,
    buckets: FxHashMap<K, Bucket>,
}

impl<K: Hash + Eq> Limiter<K> {
    pub fn new(rate: Rate, capacity: usize) -> Self {
        Self {
            rate,
            capacity,
            buckets: FxHashMap::default(),
        }
    }

    /// Takes one token; false when there is none. A rate of zero means no limit.
    #[must_use]
    pub fn allow(&mut self, key: K, now: Mono) -> bool {
        self.allow_share(key, 1, now)
    }

    /// As if the key had so many times the rate.
    #[must_use]
    pub fn allow_share(&mut self, key: K, shares: u64, now: Mono) -> bool {
        if self.rate.per_minute == 0 {
            return true;
        }
        if self.buckets.len() >= self.capacity && !self.buckets.contains_key(&key) {
            self.forget_full(now);
            // Still full of busy keys: a newcomer is refused rather than a limit forgotten.
            if self.buckets.len() >= self.capacity {
                return false;
            }
        }
        let rate = self.rate;
        let bucket = self.buckets.entry(key).or_insert(Bucket {
            tokens: f64::from(rate.burst),
            refilled: now,
        });
        bucket.refill(rate, now);
        let price = 1.0 / shares as f64;
        if bucket.tokens < price {
            return false;
        }
        bucket.tokens -= price;
        true
    }

    /// Drops the buckets that have refilled: they say nothing that a new one would not.
    pub fn forget_full(&mut self, now: Mono) {
        let rate = self.rate;
        self.buckets.retain(|_, bucket| {
            bucket.refill(rate, now);
            bucket.tokens < f64::from(rate.burst)
        });
    }

    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The time after which an untouched bucket has refilled.
    pub fn refill_time(&self) -> Duration {
        if self.rate.per_minute == 0 {
            return Duration::MAX;
        }
        Duration::from_secs_f64(f64::from(self.rate.burst) / self.rate.per_second())
    }
}

impl Bucket {
    fn refill(&mut self, rate: Rate, now: Mono) {
        let earned = now.since(self.refilled).as_secs_f64() * rate.per_second();
        self.tokens = (self.tokens + earned).min(f64::from(rate.burst));
        self.refilled = self.refilled.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    #[test]
    fn a_burst_then_the_rate() {
        let mut limiter = Limiter::new(Rate::per_minute(60), 10);
        for _ in 0..60 {
            assert!(limiter.allow("a", at(0)));
        }
        assert!(!limiter.allow("a", at(0)));
        assert!(limiter.allow("b", at(0)), "one key never spends another's");
        assert!(limiter.allow("a", at(1)));
        assert!(!limiter.allow("a", at(1)));
        for _ in 0..60 {
            assert!(limiter.allow("a", at(3600)));
        }
        assert!(
            !limiter.allow("a", at(3600)),
            "tokens never pile up past the burst"
        );
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_earns_nothing() {
        let mut limiter = Limiter::new(Rate::per_minute(1), 10);
        assert!(limiter.allow("a", at(100)));
        assert!(!limiter.allow("a", at(40)));
        assert!(!limiter.allow("a", at(100)));
        assert!(limiter.allow("a", at(160)));
    }

    #[test]
    fn many_keys_are_bounded_and_idle_ones_forgotten() {
        let mut limiter = Limiter::new(Rate::per_minute(60), 2);
        assert!(limiter.allow(1, at(0)));
        assert!(limiter.allow(2, at(0)));
        assert!(!limiter.allow(3, at(0)));
        assert!(
            limiter.allow(3, at(2)),
            "1 and 2 have refilled and make room"
        );
        assert_eq!(limiter.len(), 1);
    }

    #[test]
    fn a_key_of_several_shares_has_several_times_the_rate() {
        let mut limiter = Limiter::new(Rate::per_minute(60), 10);
        assert!((0..240).all(|_| limiter.allow_share("a", 4, at(0))));
        assert!(!limiter.allow_share("a", 4, at(0)));
        assert!((0..4).all(|_| limiter.allow_share("a", 4, at(1))));
        assert!(!limiter.allow_share("a", 4, at(1)));
    }

    #[test]
    fn zero_means_unlimited() {
        let mut limiter = Limiter::new(Rate::per_minute(0), 1);
        assert!((0..1000).all(|key| limiter.allow(key, at(0))));
        assert!(limiter.is_empty());
    }
}
