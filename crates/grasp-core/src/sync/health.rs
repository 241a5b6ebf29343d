//! How well a relay is: what failed, since when, and when it is tried again. Kept in unix time,
//! because it outlives the process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::limits::SyncLimits;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    #[default]
    Healthy,
    Degraded,
    /// It has failed for a day: one attempt a day remains.
    Dead,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayHealth {
    pub health: Health,
    /// Failures in a row.
    pub failures: u32,
    pub failing_since: Option<Timestamp>,
    pub last_success: Option<Timestamp>,
    pub next_try: Option<Timestamp>,
}

impl RelayHealth {
    pub fn success(&mut self, now: Timestamp) {
        *self = Self {
            last_success: Some(now),
            ..Self::default()
        };
    }

    /// How long to wait before the next attempt.
    pub fn failure(&mut self, now: Timestamp, limits: &SyncLimits) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let since = *self.failing_since.get_or_insert(now);
        let failing = Duration::from_secs(now.0.saturating_sub(since.0));
        let wait = if failing >= limits.dead_after {
            self.health = Health::Dead;
            limits.dead_retry
        } else {
            self.health = Health::Degraded;
            limits.backoff.delay(self.failures)
        };
        self.next_try = Some(now.saturating_add(wait));
        wait
    }

    /// How long it must still be left alone.
    pub fn wait(&self, now: Timestamp) -> Duration {
        let next = self.next_try.unwrap_or_default();
        Duration::from_secs(next.0.saturating_sub(now.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E14: backoff doubles to an hour; dead after a day, then one attempt a day.
    #[test]
    fn backoff_doubles_to_an_hour_and_a_day_of_failures_is_death() {
        let limits = SyncLimits::default();
        let mut health = RelayHealth::default();
        let mut now = Timestamp(1_000_000);
        let mut waits = Vec::new();
        for _ in 0..60 {
            let wait = health.failure(now, &limits);
            waits.push(wait.as_secs());
            now = now.saturating_add(wait);
            if health.health == Health::Dead {
                break;
            }
        }
        assert_eq!(
            waits.get(..12).unwrap(),
            [5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600]
        );
        assert_eq!(waits.last(), Some(&86_400));
        assert_eq!(health.wait(now), Duration::ZERO);
        assert_eq!(health.failure(now, &limits).as_secs(), 86_400);
        health.success(now);
        assert_eq!(health.health, Health::Healthy);
        assert_eq!(health.failure(now, &limits).as_secs(), 5);
    }
}
