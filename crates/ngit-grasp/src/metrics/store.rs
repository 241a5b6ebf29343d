//! What the operator can watch of the store.

use grasp_store::Stats;
use prometheus::{Error, Histogram, IntCounter, IntGauge};

use super::{LATENCY, Maker, number};

const BATCH: [f64; 7] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0];

pub struct StoreMetrics {
    pub failures: IntCounter,
    pub commit_seconds: Histogram,
    pub commit_events: Histogram,
    events: IntGauge,
    bytes: IntGauge,
}

impl StoreMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, Error> {
        Ok(Self {
            failures: make.counter("ngit_store_failures_total", "Commits that failed")?,
            commit_seconds: make.histogram(
                "ngit_commit_seconds",
                "Duration of a commit",
                &LATENCY,
            )?,
            commit_events: make.histogram("ngit_commit_events", "Events in a commit", &BATCH)?,
            events: make.gauge("ngit_store_events", "Events in the store")?,
            bytes: make.gauge("ngit_store_bytes", "Size of the store on disk")?,
        })
    }

    pub fn show(&self, stats: Stats) {
        self.events.set(number(stats.events));
        self.bytes.set(number(stats.disk_bytes));
    }
}
