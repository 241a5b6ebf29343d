//! What the operator can watch of the store, and of the disks that it and the git data are on.

use grasp_store::Stats;
use prometheus::{Error, Histogram, IntCounter, IntGauge, IntGaugeVec};

use super::{LATENCY, Label, Maker, number};
use crate::disk::Disk;

/// What is on a disk; both may be on the same.
pub const GIT_DISK: &str = "git";
pub const RELAY_DISK: &str = "relay";

const BATCH: [f64; 7] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0];

pub struct StoreMetrics {
    pub failures: IntCounter,
    pub commit_seconds: Histogram,
    pub commit_events: Histogram,
    events: IntGauge,
    garbage: IntGauge,
    bytes: IntGauge,
    disk_free: IntGaugeVec,
    disk_least: IntGauge,
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
            garbage: make.gauge(
                "ngit_store_garbage_events",
                "Events deleted or replaced, hidden from readers, whose index rows are still to be removed",
            )?,
            bytes: make.gauge("ngit_store_bytes", "Size of the store on disk")?,
            // Not at zero from the start: that would be a full disk.
            disk_free: make.open_gauges(
                "ngit_disk_free_bytes",
                "Room on the disk of the git data and on that of the store",
                &[Label::closed("disk", &[GIT_DISK, RELAY_DISK])],
            )?,
            disk_least: make.gauge(
                "ngit_disk_least_bytes",
                "With less room than this, pushes are refused and nothing is fetched",
            )?,
        })
    }

    pub fn show(&self, stats: Stats) {
        self.events.set(number(stats.events));
        self.garbage.set(number(stats.garbage));
        self.bytes.set(number(stats.disk_bytes));
    }

    pub fn show_disk(&self, name: &'static str, disk: &Disk) {
        let free = self.disk_free.with_label_values(&[name]);
        free.set(number(disk.free));
        self.disk_least.set(number(disk.least));
    }
}
