//! What the operator can watch. Every label set is closed or bounded, so that strangers cannot
//! grow it.

mod git;
mod hunt;
mod make;
pub mod reference;
mod relay;
mod store;
mod sync;

use prometheus::{Error, IntCounter, IntGauge, Registry, TextEncoder};

pub use self::git::{ACCEPTED, GitMetrics, SERVED};
pub use self::hunt::{Ended, HuntMetrics};
use self::make::Maker;
pub use self::make::{Description, Kind};
pub use self::relay::RelayMetrics;
pub use self::store::StoreMetrics;
pub use self::sync::SyncMetrics;

const LATENCY: [f64; 12] = [
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0,
];

pub struct Metrics {
    registry: Registry,
    descriptions: Vec<Description>,
    pub relay: RelayMetrics,
    pub git: GitMetrics,
    pub store: StoreMetrics,
    pub hunt: HuntMetrics,
    pub sync: SyncMetrics,
    pub git_running: IntGauge,
    pub git_looking: IntGauge,
    pub git_bytes_in: IntCounter,
    pub git_bytes_out: IntCounter,
}

impl Metrics {
    pub fn new() -> Result<Self, Error> {
        let make = Maker::default();
        let build = make.gauges(
            "ngit_build_info",
            "Always 1; the labels say what runs",
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let git = GitMetrics::new(&make)?;
        Ok(Self {
            relay: RelayMetrics::new(&make)?,
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
        self.git.count_processes();
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap_or_else(|error| format!("# {error}\n"))
    }
}

fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
