//! What the operator can watch. Every label set is closed, so that strangers cannot grow it.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};

pub struct Metrics {
    registry: Registry,
    pub connections: IntGauge,
    pub subscriptions: IntGauge,
    pub neg_sessions: IntGauge,
    pub events_received: IntCounter,
    pub events_stored: IntCounter,
    pub events_duplicate: IntCounter,
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
}

const LATENCY: [f64; 12] = [
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0,
];
const BATCH: [f64; 7] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0];

impl Metrics {
    pub fn new() -> Result<Self, prometheus::Error> {
        let make = Maker(Registry::new());
        let build = make.gauges(
            "ngit_build_info",
            "Always 1; the labels say what runs",
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Ok(Self {
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
            registry: make.0,
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

    /// The Prometheus text format.
    pub fn render(&self) -> String {
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap_or_else(|error| format!("# {error}\n"))
    }
}

/// Makes a metric and registers it.
struct Maker(Registry);

impl Maker {
    fn register<M: prometheus::core::Collector + Clone + 'static>(
        &self,
        metric: M,
    ) -> Result<M, prometheus::Error> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.register(IntGauge::new(name, help)?)
    }

    fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<prometheus::IntGaugeVec, prometheus::Error> {
        self.register(prometheus::IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.register(IntCounter::new(name, help)?)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.register(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    fn histogram(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
    ) -> Result<Histogram, prometheus::Error> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(Histogram::with_opts(opts)?)
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<HistogramVec, prometheus::Error> {
        let opts = HistogramOpts::new(name, help).buckets(LATENCY.to_vec());
        self.register(HistogramVec::new(opts, labels)?)
    }
}
