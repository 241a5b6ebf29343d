//! The only place that reads the clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use grasp_core::{Mono, Now, Timestamp};

#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    pub fn now(&self) -> Now {
        Now {
            mono: self.mono(),
            unix: unix_now(),
        }
    }

    pub fn mono(&self) -> Mono {
        Mono(self.started.elapsed())
    }

    /// The moment of a deadline on this clock.
    pub fn instant(&self, at: Mono) -> Instant {
        self.started + at.0
    }
}

pub fn unix_now() -> Timestamp {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(since_epoch.as_secs())
}
