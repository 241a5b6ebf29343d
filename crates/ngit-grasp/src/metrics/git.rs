//! What the operator can watch of repositories: what people push and fetch, and the work on them.

use prometheus::core::Collector as _;
use prometheus::proto::MetricFamily;
use prometheus::{Error, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{LATENCY, Maker, number};
use crate::status::GitTraffic;

/// The results of a push and of a fetch that went well.
pub const ACCEPTED: &str = "accepted";
pub const SERVED: &str = "served";

pub struct GitMetrics {
    pub running: IntGauge,
    pub looking: IntGauge,
    pub bytes_in: IntCounter,
    pub bytes_out: IntCounter,
    pub failures: IntCounter,
    pub leftovers: IntCounter,
    pub pruned_bytes: IntCounter,
    processes: IntGauge,
    repositories: IntGaugeVec,
    pushes: IntCounterVec,
    fetches: IntCounterVec,
    repairs: IntCounterVec,
    seconds: HistogramVec,
    task_seconds: HistogramVec,
}

impl GitMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, Error> {
        Ok(Self {
            running: make.gauge("ngit_git_running", "Fetches and pushes under way")?,
            looking: make.gauge("ngit_git_looking", "Lists of refs and pages being made")?,
            bytes_in: make.counter("ngit_git_received_bytes_total", "Bytes of pushed packs")?,
            bytes_out: make.counter("ngit_git_sent_bytes_total", "Bytes sent to fetches")?,
            failures: make.counter(
                "ngit_git_failures_total",
                "Work on repositories that failed",
            )?,
            leftovers: make.counter(
                "ngit_leftovers_cleared_total",
                "Repositories in which something of a killed process was cleared",
            )?,
            pruned_bytes: make.counter(
                "ngit_pruned_bytes_total",
                "Bytes of objects that nobody needed and that were dropped",
            )?,
            processes: make.gauge("ngit_git_processes", "Git processes running")?,
            repositories: make.gauges(
                "ngit_repositories",
                "Repositories announced for this server, by standing",
                &["standing"],
            )?,
            pushes: make.counters("ngit_pushes_total", "Pushes by result", &["result"])?,
            fetches: make.counters("ngit_fetches_total", "Fetches by result", &["result"])?,
            repairs: make.counters(
                "ngit_repairs_total",
                "Times that disk and store did not agree, by what was done",
                &["what"],
            )?,
            seconds: make.histograms(
                "ngit_git_seconds",
                "Duration of fetches and pushes",
                &["service"],
                &LATENCY,
            )?,
            task_seconds: make.histograms(
                "ngit_git_task_seconds",
                "Duration of work on refs and objects",
                &["task"],
                &LATENCY,
            )?,
        })
    }

    pub fn push(&self, result: &'static str) {
        self.pushes.with_label_values(&[result]).inc();
    }

    pub fn fetch(&self, result: &'static str) {
        self.fetches.with_label_values(&[result]).inc();
    }

    pub fn repaired(&self, what: &'static str) {
        self.repairs.with_label_values(&[what]).inc();
    }

    pub fn took(&self, service: &'static str, seconds: f64) {
        self.seconds.with_label_values(&[service]).observe(seconds);
    }

    pub fn task(&self, task: &'static str, seconds: f64) {
        self.task_seconds
            .with_label_values(&[task])
            .observe(seconds);
    }

    pub fn set_repositories(&self, standing: &'static str, count: usize) {
        let repositories = self.repositories.with_label_values(&[standing]);
        repositories.set(number(count));
    }

    /// What git brought and took since the start.
    pub fn traffic(&self) -> GitTraffic {
        let pushes = self.pushes.with_label_values(&[ACCEPTED]).get();
        let all: f64 = self.pushes.collect().iter().map(sum).sum();
        GitTraffic {
            running: self.running.get().unsigned_abs(),
            pushes,
            pushes_refused: (all as u64).saturating_sub(pushes),
            clones: self.fetches.with_label_values(&[SERVED]).get(),
            received_bytes: self.bytes_in.get(),
            sent_bytes: self.bytes_out.get(),
        }
    }

    pub(super) fn count_processes(&self) {
        self.processes.set(number(grasp_git::processes()));
    }
}

/// Of all series.
fn sum(family: &MetricFamily) -> f64 {
    let series = family.get_metric().iter();
    series.map(|one| one.get_counter().get_value()).sum()
}
