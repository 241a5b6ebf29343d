//! Collects figures with their limits and prints them for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
}

struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    limit: Option<Limit>,
}

#[derive(Debug, Clone, Copy)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    fn allows(self, value: f64) -> bool {
        match self {
            Limit::AtMost(most) => value <= most,
            Limit::AtLeast(least) => value >= least,
        }
    }

    fn bound(self) -> f64 {
        let (Limit::AtMost(bound) | Limit::AtLeast(bound)) = self;
        bound
    }
}

impl Report {
    /// A figure without a limit.
    pub fn note(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.push(name.into(), value, unit, None);
    }

    /// A figure that must not be larger than its limit.
    pub fn at_most(&mut self, name: impl Into<String>, value: f64, unit: &'static str, limit: f64) {
        self.push(name.into(), value, unit, Some(Limit::AtMost(limit)));
    }

    /// A figure that must not be smaller than its limit.
    pub fn at_least(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        limit: f64,
    ) {
        self.push(name.into(), value, unit, Some(Limit::AtLeast(limit)));
    }

    fn push(&mut self, name: String, value: f64, unit: &'static str, limit: Option<Limit>) {
        eprintln!("  {name}: {value:.2} {unit}");
        self.rows.push(Row {
            name,
            value,
            unit,
            limit,
        });
    }

    /// No figure is over its limit.
    pub fn is_within(&self) -> bool {
        self.rows
            .iter()
            .all(|row| row.limit.is_none_or(|limit| limit.allows(row.value)))
    }

    pub fn table(&self) -> String {
        let width = self
            .rows
            .iter()
            .map(|row| row.name.len())
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for row in &self.rows {
            let verdict = match row.limit {
                Some(limit) if limit.allows(row.value) => format!("within {}", limit.bound()),
                Some(limit) => format!("MISSES {}", limit.bound()),
                None => String::new(),
            };
            let _ = writeln!(
                text,
                "{:width$}  {:>12.2} {:9} {verdict}",
                row.name, row.value, row.unit
            );
        }
        text
    }

    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({"name": row.name, "value": row.value, "unit": row.unit, "limit": row.limit.map(Limit::bound)})
        });
        Value::Array(rows.collect())
    }
}

/// The value below which a share of the samples lies.
pub fn percentile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let index = ((samples.len() as f64 - 1.0) * share).round() as usize;
    samples[index]
}
