//! Writes `docs/reference/metrics.md` from the metrics themselves.

use super::{Description, Kind, Label, Metrics};

const INTRO: &str = "\
# Metrics

<!-- Generated from the metrics in the code; edits here are overwritten. -->

`GET /metrics` tells these in the text format of Prometheus, unless `NGIT_METRICS_ENABLED` is
`false`. It is open to everybody who reaches the server; a proxy can close it. In
[packaging/](../../packaging/README.md) are a dashboard for Grafana that draws all of them, and alert
rules for Prometheus: a metric has a rule, or the file says why it needs none.

Labels are closed lists or bounded in number. Of a histogram, Prometheus sees `_bucket`, `_sum` and
`_count`. Where all values of a label are known, each has a series from the start; what is named
after a relay or a git server appears with it.

| metric | type | labels | says |
|---|---|---|---|
";

/// The whole page, in the order of the names.
pub fn markdown() -> Result<String, prometheus::Error> {
    let metrics = Metrics::new()?;
    let mut rows: Vec<String> = metrics.descriptions().iter().map(row).collect();
    rows.sort();
    Ok(format!("{INTRO}{}", rows.concat()))
}

fn row(of: &Description) -> String {
    let kind = match of.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let labels: Vec<String> = of.labels.iter().map(label).collect();
    let (name, help, labels) = (&of.name, &of.help, labels.join("; "));
    format!("| `{name}` | {kind} | {labels} | {help} |\n")
}

/// Its name, and its values if they are known.
fn label(label: &Label) -> String {
    match label.values.join(", ") {
        values if values.is_empty() => format!("`{}`", label.name),
        values => format!("`{}`: {values}", label.name),
    }
}
