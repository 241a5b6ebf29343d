//! The dashboard and the alert rules: every metric in them exists, and every metric is in them.

use std::collections::{BTreeMap, BTreeSet};

use ngit_grasp::metrics::{Description, Kind, Metrics};
use testkit::Value;

use crate::support::{get, start};

const DASHBOARD: &str = include_str!("../../../../packaging/grafana/ngit-grasp.json");
const ALERTS: &str = include_str!("../../../../packaging/prometheus/alerts.yml");

fn exported() -> BTreeMap<String, Description> {
    let metrics = Metrics::new().unwrap();
    let described = metrics.descriptions().iter();
    described.map(|of| (of.name.clone(), of.clone())).collect()
}

/// What stands as `"expr"` or as the query of a variable, wherever it is.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_str() {
                    Some(text) if name == "expr" || name == "query" => found.push(text.to_owned()),
                    _ => expressions(field, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

fn dashboard() -> Vec<String> {
    let dashboard: Value = DASHBOARD.parse().unwrap();
    let mut found = Vec::new();
    expressions(&dashboard, &mut found);
    found
}

fn alerts() -> Vec<String> {
    let lines = ALERTS.lines().map(str::trim);
    let found: Vec<String> = lines
        .filter_map(|line| line.strip_prefix("expr: "))
        .map(str::to_owned)
        .collect();
    assert_eq!(found.len(), ALERTS.matches("- alert: ").count());
    found
}

/// The names of metrics in an expression, each with what follows it.
fn named(expression: &str) -> Vec<(&str, &str)> {
    let starts = expression.match_indices("ngit_").map(|(at, _)| at);
    let of = |at: usize| {
        let rest = &expression[at..];
        let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        rest.split_at(end.unwrap_or(rest.len()))
    };
    starts.map(of).collect()
}

/// The metric that a series belongs to.
fn metric<'m>(name: &str, all: &'m BTreeMap<String, Description>) -> &'m Description {
    let base = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| {
        let metric = all.get(name.strip_suffix(part)?)?;
        (metric.kind == Kind::Histogram).then_some(metric)
    });
    let plain = all.get(name).filter(|of| of.kind != Kind::Histogram);
    base.or(plain)
        .unwrap_or_else(|| panic!("no series is called {name}"))
}

/// The names before `=` in the braces after a metric.
fn matched(after: &str) -> Vec<&str> {
    let braces = after
        .strip_prefix('{')
        .and_then(|rest| rest.split('}').next());
    let parts = braces.into_iter().flat_map(|braces| braces.split(','));
    parts
        .filter_map(|part| part.split(['=', '!']).next())
        .collect()
}

/// The names in `by (...)`.
fn grouped(expression: &str) -> Vec<&str> {
    let groups = expression.split("by (").skip(1);
    let groups = groups.filter_map(|rest| rest.split(')').next());
    groups
        .flat_map(|group| group.split(',').map(str::trim))
        .collect()
}

#[test]
fn every_series_that_is_asked_for_exists_with_its_labels() {
    let all = exported();
    let everywhere = ["job", "instance", "le"];
    for expression in dashboard().iter().chain(&alerts()) {
        let mut labels: BTreeSet<&str> = everywhere.into();
        for (name, after) in named(expression) {
            let metric = metric(name, &all);
            let own: BTreeSet<&str> = metric.labels.iter().map(|label| label.name).collect();
            for label in matched(after) {
                let known = own.contains(label) || everywhere.contains(&label);
                assert!(known, "{name} has no label {label}: {expression}");
            }
            labels.extend(own);
        }
        for label in grouped(expression) {
            assert!(labels.contains(label), "no label {label}: {expression}");
        }
    }
}

#[test]
fn every_metric_is_on_the_dashboard() {
    let all = exported();
    let asked = dashboard();
    let shown: BTreeSet<&str> = asked
        .iter()
        .flat_map(|expression| named(expression))
        .map(|(name, _)| metric(name, &all).name.as_str())
        .collect();
    let missing: Vec<&String> = all
        .keys()
        .filter(|name| !shown.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "not on the dashboard: {missing:?}");
}

#[test]
fn panels_do_not_overlap_and_say_what_they_show() {
    let dashboard: Value = DASHBOARD.parse().unwrap();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let is_row = panel["type"] == "row";
        assert!(is_row || panel["description"].is_string(), "{panel}");
        let side = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for x in side("x")..side("x") + side("w") {
            for y in side("y")..side("y") + side("h") {
                assert!(x < 24 && taken.insert((x, y)), "{}", panel["title"]);
            }
        }
    }
}

#[test]
fn what_a_server_exports_is_what_is_described() {
    let all = exported();
    let server = start(&[]);
    let page = get(server.addr(), "/metrics").body;
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let types: BTreeMap<&str, &str> = types.filter_map(|line| line.split_once(' ')).collect();
    for (name, kind) in &types {
        let expected = format!("{:?}", all[*name].kind).to_lowercase();
        assert_eq!(*kind, expected, "{name}");
    }
    for (name, described) in &all {
        // There is no other relay yet.
        let waits = described.labels.iter().any(|label| label.name == "relay");
        assert_eq!(types.contains_key(name.as_str()), !waits, "{name}");
    }
}
