//! What the operator can watch. Every label set is closed or bounded, so that strangers cannot
//! grow it.

mod hunt;
pub mod reference;
mod sync;

use std::cell::RefCell;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};

pub use self::hunt::{Ended, HuntMetrics};
pub use self::sync::SyncMetrics;
use crate::status::GitTraffic;

/// The results of a push and of a fetch that went well.
pub const ACCEPTED: &str = "accepted";
pub const SERVED: &str = "served";

pub struct Metrics {
    registry: Registry,
    descriptions: Vec<Description>,
    pub hunt: HuntMetrics,
    pub sync: SyncMetrics,
    pub connections: IntGauge,
    pub subscriptions: IntGauge,
    pub neg_sessions: IntGauge,
    pub events_received: IntCounter,
    pub events_stored: IntCounter,
    pub events_duplicate: IntCounter,
    pub events_held: IntCounter,
    pub releases: IntCounter,
    pub leftovers: IntCounter,
    pub git_failures: IntCounter,
    pub pruned_bytes: IntCounter,
    pub git_running: IntGauge,
    git_processes: IntGauge,
    pub git_looking: IntGauge,
    pub git_bytes_in: IntCounter,
    pub git_bytes_out: IntCounter,
    pub live_deliveries: IntCounter,
    pub slow_readers: IntCounter,
    pub store_events: IntGauge,
    pub store_bytes: IntGauge,
    pub store_failures: IntCounter,
    pub commit_seconds: Histogram,
    pub commit_events: Histogram,
    messages: IntCounterVec,
    refused: IntCounterVec,
    connections_refused: IntCounterVec,
    query_seconds: HistogramVec,
    held: prometheus::IntGaugeVec,
    held_oldest: prometheus::IntGaugeVec,
    repositories: prometheus::IntGaugeVec,
    pushes: IntCounterVec,
    fetches: IntCounterVec,
    repairs: IntCounterVec,
    git_seconds: HistogramVec,
    git_task_seconds: HistogramVec,
}

const LATENCY: [f64; 12] = [
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0,
];
const BATCH: [f64; 7] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0];

impl Metrics {
    pub fn new() -> Result<Self, prometheus::Error> {
        let make = Maker::default();
        let build = make.gauges(
            "ngit_build_info",
            "Always 1; the labels say what runs",
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Ok(Self {
            hunt: HuntMetrics::new(&make)?,
            sync: SyncMetrics::new(&make)?,
            connections: make.gauge("ngit_connections", "Open websocket connections")?,
            subscriptions: make.gauge("ngit_subscriptions", "Open subscriptions")?,
            neg_sessions: make.gauge("ngit_neg_sessions", "Open NIP-77 sessions")?,
            events_received: make
                .counter("ngit_events_received_total", "EVENT messages received")?,
            events_stored: make.counter("ngit_events_stored_total", "Events accepted")?,
            events_duplicate: make.counter(
                "ngit_events_duplicate_total",
                "Events that were here already",
            )?,
            events_held: make.counter(
                "ngit_events_held_total",
                "Events taken to wait for their git data",
            )?,
            releases: make.counter(
                "ngit_releases_total",
                "Held events that were stored because their git data came",
            )?,
            leftovers: make.counter(
                "ngit_leftovers_cleared_total",
                "Repositories in which something of a killed process was cleared",
            )?,
            git_failures: make.counter(
                "ngit_git_failures_total",
                "Work on repositories that failed",
            )?,
            pruned_bytes: make.counter(
                "ngit_pruned_bytes_total",
                "Bytes of objects that nobody needed and that were dropped",
            )?,
            git_running: make.gauge("ngit_git_running", "Fetches and pushes under way")?,
            git_looking: make.gauge("ngit_git_looking", "Lists of refs and pages being made")?,
            git_processes: make.gauge("ngit_git_processes", "Git processes running")?,
            git_bytes_in: make.counter("ngit_git_received_bytes_total", "Bytes of pushed packs")?,
            git_bytes_out: make.counter("ngit_git_sent_bytes_total", "Bytes sent to fetches")?,
            live_deliveries: make.counter(
                "ngit_live_deliveries_total",
                "Events handed to live subscriptions",
            )?,
            slow_readers: make.counter(
                "ngit_slow_readers_dropped_total",
                "Connections dropped because they did not read",
            )?,
            store_events: make.gauge("ngit_store_events", "Events in the store")?,
            store_bytes: make.gauge("ngit_store_bytes", "Size of the store on disk")?,
            store_failures: make.counter("ngit_store_failures_total", "Commits that failed")?,
            commit_seconds: make.histogram(
                "ngit_commit_seconds",
                "Duration of a commit",
                &LATENCY,
            )?,
            commit_events: make.histogram("ngit_commit_events", "Events in a commit", &BATCH)?,
            messages: make.counters("ngit_messages_total", "Client messages by type", &["type"])?,
            refused: make.counters(
                "ngit_events_refused_total",
                "Events refused, by reason",
                &["reason"],
            )?,
            connections_refused: make.counters(
                "ngit_connections_refused_total",
                "Connections refused, by reason",
                &["reason"],
            )?,
            query_seconds: make.histograms(
                "ngit_query_seconds",
                "From question to last answer",
                &["type"],
            )?,
            held: make.gauges(
                "ngit_held_events",
                "Events that wait for their git data, by kind",
                &["kind"],
            )?,
            held_oldest: make.gauges(
                "ngit_held_oldest_seconds",
                "How long the oldest event of a kind has waited for its git data",
                &["kind"],
            )?,
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
            git_seconds: make.histograms(
                "ngit_git_seconds",
                "Duration of fetches and pushes",
                &["service"],
            )?,
            git_task_seconds: make.histograms(
                "ngit_git_task_seconds",
                "Duration of work on refs and objects",
                &["task"],
            )?,
            registry: make.registry,
            descriptions: make.descriptions.into_inner(),
        })
    }

    pub fn refused(&self, reason: &'static str) {
        self.refused.with_label_values(&[reason]).inc();
    }

    pub fn message(&self, kind: &'static str) {
        self.messages.with_label_values(&[kind]).inc();
    }

    pub fn connection_refused(&self, reason: &'static str) {
        self.connections_refused.with_label_values(&[reason]).inc();
    }

    pub fn query(&self, kind: &'static str, seconds: f64) {
        self.query_seconds
            .with_label_values(&[kind])
            .observe(seconds);
    }

    pub fn set_held(&self, kind: &'static str, count: usize, oldest: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.held.with_label_values(&[kind]).set(count);
        let oldest = i64::try_from(oldest).unwrap_or(i64::MAX);
        self.held_oldest.with_label_values(&[kind]).set(oldest);
    }

    pub fn set_repositories(&self, standing: &'static str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.repositories.with_label_values(&[standing]).set(count);
    }

    pub fn push(&self, result: &'static str) {
        self.pushes.with_label_values(&[result]).inc();
    }

    pub fn fetch(&self, result: &'static str) {
        self.fetches.with_label_values(&[result]).inc();
    }

    pub fn repaired(&self, what: &str) {
        self.repairs.with_label_values(&[what]).inc();
    }

    pub fn git(&self, service: &'static str, seconds: f64) {
        self.git_seconds
            .with_label_values(&[service])
            .observe(seconds);
    }

    pub fn git_task(&self, task: &'static str, seconds: f64) {
        self.git_task_seconds
            .with_label_values(&[task])
            .observe(seconds);
    }

    /// What git brought and took since the start.
    pub fn git_traffic(&self) -> GitTraffic {
        let pushes = self.pushes.with_label_values(&[ACCEPTED]).get();
        let all: f64 = self.pushes.collect().iter().map(sum).sum();
        GitTraffic {
            running: self.git_running.get().unsigned_abs(),
            pushes,
            pushes_refused: (all as u64).saturating_sub(pushes),
            clones: self.fetches.with_label_values(&[SERVED]).get(),
            received_bytes: self.git_bytes_in.get(),
            sent_bytes: self.git_bytes_out.get(),
        }
    }

    /// Every metric, in the order of its making; also those that have no series yet.
    pub fn descriptions(&self) -> &[Description] {
        &self.descriptions
    }

    /// The Prometheus text format.
    pub fn render(&self) -> String {
        self.write(|_| true)
    }

    /// Without what names other relays and git servers.
    pub fn summary(&self) -> String {
        self.write(|family| !names_others(family))
    }

    fn write(&self, told: impl Fn(&prometheus::proto::MetricFamily) -> bool) -> String {
        let processes = i64::try_from(grasp_git::processes());
        self.git_processes.set(processes.unwrap_or(i64::MAX));
        let mut families = self.registry.gather();
        families.retain(told);
        TextEncoder::new()
            .encode_to_string(&families)
            .unwrap_or_else(|error| format!("# {error}\n"))
    }
}

fn names_others(family: &prometheus::proto::MetricFamily) -> bool {
    let first = family.get_metric().first();
    let labels = first.map_or(&[][..], |series| series.get_label());
    let mut names = labels.iter().map(|label| label.name());
    names.any(|name| matches!(name, "relay" | "domain"))
}

/// Of all series.
fn sum(family: &prometheus::proto::MetricFamily) -> f64 {
    let series = family.get_metric().iter();
    series.map(|one| one.get_counter().get_value()).sum()
}

fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// What a metric is called and says, for the documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub name: String,
    pub kind: Kind,
    pub help: String,
    pub labels: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Makes a metric, registers it and keeps its description.
#[derive(Default)]
struct Maker {
    registry: Registry,
    descriptions: RefCell<Vec<Description>>,
}

impl Maker {
    fn register<M: Collector + Clone + 'static>(
        &self,
        kind: Kind,
        metric: M,
    ) -> Result<M, prometheus::Error> {
        self.registry.register(Box::new(metric.clone()))?;
        let described = metric.desc().into_iter().map(|of| Description {
            name: of.fq_name.clone(),
            kind,
            help: of.help.clone(),
            labels: of.variable_labels.clone(),
        });
        self.descriptions.borrow_mut().extend(described);
        Ok(metric)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.register(Kind::Gauge, IntGauge::new(name, help)?)
    }

    fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<prometheus::IntGaugeVec, prometheus::Error> {
        let opts = Opts::new(name, help);
        self.register(Kind::Gauge, prometheus::IntGaugeVec::new(opts, labels)?)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.register(Kind::Counter, IntCounter::new(name, help)?)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, prometheus::Error> {
        let opts = Opts::new(name, help);
        self.register(Kind::Counter, IntCounterVec::new(opts, labels)?)
    }

    fn histogram(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
    ) -> Result<Histogram, prometheus::Error> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(Kind::Histogram, Histogram::with_opts(opts)?)
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<HistogramVec, prometheus::Error> {
        let opts = HistogramOpts::new(name, help).buckets(LATENCY.to_vec());
        self.register(Kind::Histogram, HistogramVec::new(opts, labels)?)
    }
}
