//! How bad the weather is: drawn from the seed once, so that some runs are all crashes and some
//! are all duplicates.

use std::time::Duration;

use fastrand::Rng;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Climate {
    /// How long the storm lasts.
    pub(crate) storm: Duration,
    pub(crate) users: usize,
    /// Mean time between two events of one user.
    pub(crate) pace: Duration,
    /// Longest commit.
    pub(crate) slow_disk: Duration,
    /// Of 1,000 commits, how many fail.
    pub(crate) full_disk: u32,
    /// Mean time between crashes; none if zero.
    pub(crate) crashes: Duration,
    /// Of 100 events, how many are sent again before they are answered.
    pub(crate) impatience: u32,
    /// Of 100 events, how many break a rule.
    pub(crate) mischief: u32,
}

impl Climate {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let millis = |rng: &mut Rng, low, high| Duration::from_millis(rng.u64(low..high));
        Self {
            storm: millis(rng, 60_000, 600_000),
            users: rng.usize(1..20),
            pace: millis(rng, 1_000, 20_000),
            slow_disk: millis(rng, 1, 5_000),
            full_disk: if rng.bool() { rng.u32(0..300) } else { 0 },
            crashes: if rng.bool() {
                millis(rng, 2_000, 60_000)
            } else {
                Duration::ZERO
            },
            impatience: rng.u32(0..50),
            mischief: rng.u32(0..50),
        }
    }
}
