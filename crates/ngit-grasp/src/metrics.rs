//! What the operator can watch. Every label set is closed or bounded, so that strangers cannot
//! grow it.

mod driver;
mod git;
mod hunt;
mod make;
pub mod reference;
mod relay;
mod store;
mod sync;

use prometheus::proto::MetricFamily;
use prometheus::{Error, IntCounter, IntGauge, Registry, TextEncoder};

pub use self::driver::DriverMetrics;
pub use self::git::{ACCEPTED, GitMetrics, SERVED};
pub use self::hunt::{Ended, HuntMetrics};
use self::make::Closed;
use self::make::Maker;
pub use self::make::{Description, Kind, Label};
pub use self::relay::RelayMetrics;
pub use self::store::{GIT_DISK, RELAY_DISK, StoreMetrics};
pub use self::sync::SyncMetrics;
use crate::clock::unix_now;

/// Of what is done here.
const LATENCY: [f64; 12] = [
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0,
];
/// Of transfers: from an answer at once to the longest that a clone may take by default.
const SECONDS: [f64; 14] = [
    0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0,
];

pub struct Metrics {
    registry: Registry,
    descriptions: Vec<Description>,
    pub relay: RelayMetrics,
    pub driver: DriverMetrics,
    pub git: GitMetrics,
    pub store: StoreMetrics,
    pub hunt: HuntMetrics,
    pub sync: SyncMetrics,
    // What is counted where HTTP comes in has short names, here and below.
    pub git_running: IntGauge,
    pub git_looking: IntGauge,
    pub git_bytes_in: IntCounter,
    pub git_bytes_out: IntCounter,
}

impl Metrics {
    pub fn new() -> Result<Self, Error> {
        let make = Maker::default();
        let build = make.open_gauges(
            "ngit_build_info",
            "Always 1; the labels say what runs",
            &[Label::open("version")],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let started = make.gauge(
            "process_start_time_seconds",
            "When the server was started, in seconds since 1970",
        )?;
        started.set(number(unix_now().0));
        let git = GitMetrics::new(&make)?;
        Ok(Self {
            relay: RelayMetrics::new(&make)?,
            driver: DriverMetrics::new(&make)?,
            store: StoreMetrics::new(&make)?,
            hunt: HuntMetrics::new(&make)?,
            sync: SyncMetrics::new(&make)?,
            git_running: git.running.clone(),
            git_looking: git.looking.clone(),
            git_bytes_in: git.bytes_in.clone(),
            git_bytes_out: git.bytes_out.clone(),
            git,
            registry: make.registry,
            descriptions: make.descriptions.into_inner(),
        })
    }

    pub fn connection_refused(&self, reason: &'static str) {
        self.relay.connection_refused(reason);
    }

    pub fn push(&self, result: &'static str) {
        self.git.push(result);
    }

    pub fn fetch(&self, result: &'static str) {
        self.git.fetch(result);
    }

    pub fn git(&self, service: &'static str, seconds: f64) {
        self.git.took(service, seconds);
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

    fn write(&self, told: impl Fn(&MetricFamily) -> bool) -> String {
        self.git.count_processes();
        let mut families = self.registry.gather();
        families.retain(told);
        TextEncoder::new()
            .encode_to_string(&families)
            .unwrap_or_else(|error| format!("# {error}\n"))
    }
}

fn names_others(family: &MetricFamily) -> bool {
    let first = family.get_metric().first();
    let labels = first.map_or(&[][..], |series| series.get_label());
    let mut names = labels.iter().map(|label| label.name());
    names.any(|name| matches!(name, "relay" | "domain"))
}

fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A series that begins at one has not risen, as Prometheus sees it.
    #[test]
    fn what_can_be_counted_is_there_from_the_start() {
        let text = Metrics::new().unwrap().render();
        for series in [
            "ngit_connections_refused_total{reason=\"per_ip\"} 0",
            "ngit_events_refused_total{reason=\"signature\"} 0",
            "ngit_messages_total{type=\"invalid\"} 0",
            "ngit_query_seconds_count{type=\"COUNT\"} 0",
            "ngit_held_events{kind=\"state\"} 0",
            "ngit_repositories{standing=\"served\"} 0",
            "ngit_pushes_total{result=\"failed\"} 0",
            "ngit_fetches_total{result=\"aborted\"} 0",
            "ngit_repairs_total{what=\"hidden\"} 0",
            "ngit_git_task_seconds_count{task=\"apply\"} 0",
            "ngit_hunt_fetches_total{end=\"ours\"} 0",
            "ngit_hunt_rests_total{why=\"busy\"} 0",
            "ngit_sync_events_total{source=\"daily\"} 0",
            "ngit_sync_misbehaviour_total{fault=\"flood\"} 0",
            "ngit_sync_refusals_total{reason=\"ours\"} 0",
        ] {
            assert!(text.contains(series), "{series}");
        }
    }

    #[test]
    fn a_clone_of_half_an_hour_is_told_from_one_of_a_minute() {
        let metrics = Metrics::new().unwrap();
        metrics.git.took("fetch", 50.0);
        metrics.git.took("fetch", 1700.0);
        let text = metrics.render();
        for (most, count) in [("30", 0), ("60", 1), ("600", 1), ("1800", 2)] {
            let bucket = r#"ngit_git_seconds_bucket{service="fetch",le="#;
            let bucket = format!("{bucket}\"{most}\"}} {count}");
            assert!(text.contains(&bucket), "{bucket}");
        }
    }

    #[test]
    #[should_panic(expected = "is not on the list")]
    fn a_word_that_is_missing_on_a_list_is_found_by_tests() {
        Metrics::new().unwrap().git.push("strange");
    }
}
