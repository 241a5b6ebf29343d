//! What the operator can watch of repositories: what people push and fetch, and the work on them.

use grasp_core::Repair;
use grasp_core::push::PushRefusal;
use prometheus::{Error, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{Closed, LATENCY, Label, Maker, SECONDS, number};
use crate::hosting::worker;
use crate::perform::STANDINGS;
use crate::status::GitTraffic;

/// The results of a push and of a fetch that went well.
pub const ACCEPTED: &str = "accepted";
pub const SERVED: &str = "served";

const FETCHES: [&str; 7] = [
    SERVED,
    "refs",
    "refused",
    "malformed",
    "failed",
    "aborted",
    "evicted",
];

pub struct GitMetrics {
    pub running: IntGauge,
    pub looking: IntGauge,
    pub bytes_in: IntCounter,
    pub bytes_out: IntCounter,
    pub failures: IntCounter,
    pub leftovers: IntCounter,
    pub pruned_bytes: IntCounter,
    processes: IntGauge,
    repositories: Closed<IntGaugeVec>,
    pushes: Closed<IntCounterVec>,
    fetches: Closed<IntCounterVec>,
    repairs: Closed<IntCounterVec>,
    seconds: Closed<HistogramVec>,
    task_seconds: Closed<HistogramVec>,
}

impl GitMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, Error> {
        let pushes = [&[ACCEPTED, "lost", "busy"], &PushRefusal::LABELS[..]].concat();
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
                Label::closed("standing", &STANDINGS.map(|(_, name)| name)),
            )?,
            pushes: make.counters(
                "ngit_pushes_total",
                "Pushes by result",
                Label::closed("result", &pushes),
            )?,
            fetches: make.counters(
                "ngit_fetches_total",
                "Fetches by result",
                Label::closed("result", &FETCHES),
            )?,
            repairs: make.counters(
                "ngit_repairs_total",
                "Times that disk and store did not agree, by what was done",
                Label::closed("what", &Repair::LABELS),
            )?,
            seconds: make.histograms(
                "ngit_git_seconds",
                "Duration of fetches and pushes",
                Label::closed("service", &["fetch", "push"]),
                &SECONDS,
            )?,
            task_seconds: make.histograms(
                "ngit_git_task_seconds",
                "Duration of work on refs and objects",
                Label::closed("task", &worker::NAMES),
                &LATENCY,
            )?,
        })
    }

    pub fn push(&self, result: &'static str) {
        self.pushes.at(result).inc();
    }

    pub fn fetch(&self, result: &'static str) {
        self.fetches.at(result).inc();
    }

    pub fn repaired(&self, what: &'static str) {
        self.repairs.at(what).inc();
    }

    pub fn took(&self, service: &'static str, seconds: f64) {
        self.seconds.at(service).observe(seconds);
    }

    pub fn task(&self, task: &'static str, seconds: f64) {
        self.task_seconds.at(task).observe(seconds);
    }

    pub fn set_repositories(&self, standing: &'static str, count: usize) {
        let repositories = self.repositories.at(standing);
        repositories.set(number(count));
    }

    /// What git brought and took since the start.
    pub fn traffic(&self) -> GitTraffic {
        let pushes = self.pushes.at(ACCEPTED).get();
        let all: u64 = self.pushes.all().iter().map(IntCounter::get).sum();
        GitTraffic {
            running: self.running.get().unsigned_abs(),
            pushes,
            pushes_refused: all.saturating_sub(pushes),
            clones: self.fetches.at(SERVED).get(),
            received_bytes: self.bytes_in.get(),
            sent_bytes: self.bytes_out.get(),
        }
    }

    pub(super) fn count_processes(&self) {
        self.processes.set(number(grasp_git::processes()));
    }
}
