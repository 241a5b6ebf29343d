//! What the operator can watch of the one thread that decides.

use std::time::Duration;

use prometheus::{Error, Gauge, Histogram};

use super::{LATENCY, Maker};

pub struct DriverMetrics {
    turn_seconds: Histogram,
    longest: Gauge,
}

impl DriverMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, Error> {
        Ok(Self {
            turn_seconds: make.histogram(
                "ngit_driver_turn_seconds",
                "Duration of a turn of the driver, which decides about everything",
                &LATENCY,
            )?,
            longest: make.ratio(
                "ngit_driver_longest_turn_seconds",
                "The longest turn of the driver since the start",
            )?,
        })
    }

    /// The driver alone says so.
    pub fn turned(&self, took: Duration) {
        let took = took.as_secs_f64();
        self.turn_seconds.observe(took);
        if took > self.longest.get() {
            self.longest.set(took);
        }
    }

    pub fn longest_turn(&self) -> Duration {
        Duration::try_from_secs_f64(self.longest.get()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_turn_is_remembered() {
        let metrics = DriverMetrics::new(&Maker::default()).unwrap();
        for millis in [3, 250, 4] {
            metrics.turned(Duration::from_millis(millis));
        }
        assert_eq!(metrics.longest_turn(), Duration::from_millis(250));
        assert_eq!(metrics.turn_seconds.get_sample_count(), 3);
    }
}
