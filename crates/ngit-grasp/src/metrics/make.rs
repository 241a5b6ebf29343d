//! Makes metrics, registers them and keeps their descriptions.

use std::cell::RefCell;

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{
    Error, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

/// What a metric is called and says, for the documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub name: String,
    pub kind: Kind,
    pub help: String,
    pub labels: Vec<Label>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub name: &'static str,
    /// All that it can be; nothing here if others choose it.
    pub values: Vec<&'static str>,
}

impl Label {
    pub fn closed(name: &'static str, values: &[&'static str]) -> Self {
        let values = values.to_vec();
        Self { name, values }
    }

    pub fn open(name: &'static str) -> Self {
        Self::closed(name, &[])
    }
}

/// Series of one closed label. All are there from the start: one that begins at one has not risen,
/// as Prometheus sees it.
pub struct Closed<V> {
    of: V,
    values: Vec<&'static str>,
}

impl<B: MetricVecBuilder> Closed<MetricVec<B>> {
    fn new(of: MetricVec<B>, label: Label) -> Self {
        let values = label.values;
        for value in &values {
            of.with_label_values(&[value]);
        }
        Self { of, values }
    }

    pub fn at(&self, value: &'static str) -> B::M {
        debug_assert!(self.values.contains(&value), "{value} is not on the list");
        self.of.with_label_values(&[value])
    }

    pub fn all(&self) -> Vec<B::M> {
        let values = self.values.iter();
        values
            .map(|value| self.of.with_label_values(&[value]))
            .collect()
    }
}

#[derive(Default)]
pub struct Maker {
    pub registry: Registry,
    pub descriptions: RefCell<Vec<Description>>,
}

impl Maker {
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.register(Kind::Gauge, IntGauge::new(name, help)?, &[])
    }

    pub fn ratio(&self, name: &str, help: &str) -> Result<Gauge, Error> {
        self.register(Kind::Gauge, Gauge::new(name, help)?, &[])
    }

    pub fn gauges(
        &self,
        name: &str,
        help: &str,
        label: Label,
    ) -> Result<Closed<IntGaugeVec>, Error> {
        let gauges = self.open_gauges(name, help, std::slice::from_ref(&label))?;
        Ok(Closed::new(gauges, label))
    }

    pub fn open_gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[Label],
    ) -> Result<IntGaugeVec, Error> {
        let gauges = IntGaugeVec::new(Opts::new(name, help), &names(labels))?;
        self.register(Kind::Gauge, gauges, labels)
    }

    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, Error> {
        self.register(Kind::Counter, IntCounter::new(name, help)?, &[])
    }

    pub fn counters(
        &self,
        name: &str,
        help: &str,
        label: Label,
    ) -> Result<Closed<IntCounterVec>, Error> {
        let counters = self.open_counters(name, help, std::slice::from_ref(&label))?;
        Ok(Closed::new(counters, label))
    }

    pub fn open_counters(
        &self,
        name: &str,
        help: &str,
        labels: &[Label],
    ) -> Result<IntCounterVec, Error> {
        let counters = IntCounterVec::new(Opts::new(name, help), &names(labels))?;
        self.register(Kind::Counter, counters, labels)
    }

    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(Kind::Histogram, Histogram::with_opts(opts)?, &[])
    }

    pub fn histograms(
        &self,
        name: &str,
        help: &str,
        label: Label,
        buckets: &[f64],
    ) -> Result<Closed<HistogramVec>, Error> {
        let labels = std::slice::from_ref(&label);
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let histograms = HistogramVec::new(opts, &names(labels))?;
        let histograms = self.register(Kind::Histogram, histograms, labels)?;
        Ok(Closed::new(histograms, label))
    }

    fn register<M: Collector + Clone + 'static>(
        &self,
        kind: Kind,
        metric: M,
        labels: &[Label],
    ) -> Result<M, Error> {
        self.registry.register(Box::new(metric.clone()))?;
        let described = metric.desc().into_iter().map(|of| Description {
            name: of.fq_name.clone(),
            kind,
            help: of.help.clone(),
            labels: labels.to_vec(),
        });
        self.descriptions.borrow_mut().extend(described);
        Ok(metric)
    }
}

fn names(labels: &[Label]) -> Vec<&'static str> {
    labels.iter().map(|label| label.name).collect()
}
