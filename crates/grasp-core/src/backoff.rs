//! How long to wait before something is tried again.

use std::time::Duration;

/// Twice as long after each failure, up to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub base: Duration,
    pub max: Duration,
}

impl Backoff {
    /// Nothing failed: no wait.
    pub fn delay(self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_its_bound() {
        let backoff = Backoff {
            base: Duration::from_secs(5),
            max: Duration::from_secs(3_600),
        };
        let seconds = |failures| backoff.delay(failures).as_secs();
        let expected = [
            0, 5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600,
        ];
        let found: Vec<u64> = (0..13).map(seconds).collect();
        assert_eq!(found, expected);
        assert_eq!(seconds(u32::MAX), 3_600);
    }
}
