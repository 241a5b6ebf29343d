//! Makes metrics, registers them and keeps their descriptions.

use std::cell::RefCell;

use prometheus::core::Collector;
use prometheus::{
    Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

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

#[derive(Default)]
pub struct Maker {
    pub registry: Registry,
    pub descriptions: RefCell<Vec<Description>>,
}

impl Maker {
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.register(Kind::Gauge, IntGauge::new(name, help)?)
    }

    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, Error> {
        let opts = Opts::new(name, help);
        self.register(Kind::Gauge, IntGaugeVec::new(opts, labels)?)
    }

    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, Error> {
        self.register(Kind::Counter, IntCounter::new(name, help)?)
    }

    pub fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, Error> {
        let opts = Opts::new(name, help);
        self.register(Kind::Counter, IntCounterVec::new(opts, labels)?)
    }

    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(Kind::Histogram, Histogram::with_opts(opts)?)
    }

    pub fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, Error> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(Kind::Histogram, HistogramVec::new(opts, labels)?)
    }

    fn register<M: Collector + Clone + 'static>(&self, kind: Kind, metric: M) -> Result<M, Error> {
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
}
