//! The dashboard and the alert rules: what they ask for exists, and no metric is forgotten.

mod promql;

use std::collections::{BTreeMap, BTreeSet};

use ngit_grasp::metrics::{Description, Kind, Metrics};
use testkit::Value;

use self::promql::Labels;
use crate::support::{get, start};

const DASHBOARD: &str = include_str!("../../../../packaging/grafana/ngit-grasp.json");
const ALERTS: &str = include_str!("../../../../packaging/prometheus/alerts.yml");
/// What stands before the metrics that no rule watches.
const NO_RULE: &str = "# Without a rule, and why:";

fn exported() -> promql::Metrics {
    let metrics = Metrics::new().unwrap();
    let described = metrics.descriptions().iter();
    described.map(|of| (of.name.clone(), of.clone())).collect()
}

/// With what Prometheus itself knows of each server.
fn known() -> promql::Metrics {
    let up = Description {
        name: "up".to_owned(),
        kind: Kind::Gauge,
        help: String::new(),
        labels: Vec::new(),
    };
    let mut known = exported();
    known.insert(up.name.clone(), up);
    known
}

/// What is asked for, and the text that is written of each answer.
struct Asked {
    expression: String,
    text: String,
}

/// What the panels ask for.
fn panels() -> Vec<Asked> {
    let dashboard: Value = DASHBOARD.parse().unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array());
    let targets = targets.flatten();
    targets
        .map(|target| Asked {
            expression: target["expr"].as_str().unwrap().to_owned(),
            text: target["legendFormat"].as_str().unwrap().to_owned(),
        })
        .collect()
}

struct Rule {
    name: String,
    asked: Asked,
}

fn rules() -> Vec<Rule> {
    let rules = ALERTS.split("- alert: ").skip(1);
    rules
        .map(|rule| {
            let mut lines = rule.lines();
            let name = lines.next().unwrap().to_owned();
            let expression = lines.next().unwrap().trim().strip_prefix("expr: ");
            let expression = expression.unwrap_or_else(|| panic!("{name} asks nothing"));
            let asked = Asked {
                expression: expression.to_owned(),
                text: lines.collect(),
            };
            Rule { name, asked }
        })
        .collect()
}

/// The metrics that no rule watches, each with the reason.
fn excused() -> BTreeMap<&'static str, &'static str> {
    let (_, list) = ALERTS.split_once(NO_RULE).unwrap();
    let lines = list
        .lines()
        .skip(1)
        .map_while(|line| line.strip_prefix('#'));
    lines
        .map(|line| line.trim().split_once(": ").unwrap())
        .collect()
}

/// The names in `{{name}}` and `{{ $labels.name }}`.
fn written(text: &str) -> Labels {
    let parts = text.split("{{").skip(1);
    parts
        .map(|part| part.split("}}").next().unwrap().trim())
        .map(|name| name.strip_prefix("$labels.").unwrap_or(name).to_owned())
        .collect()
}

/// The metrics that are asked for.
fn check(asked: &Asked, known: &promql::Metrics) -> BTreeSet<String> {
    let read = promql::read(&asked.expression, known);
    for label in written(&asked.text) {
        let found = read.labels.contains(&label);
        assert!(found, "no {label} in what {} gives", asked.expression);
    }
    read.metrics
}

#[test]
fn every_metric_is_on_the_dashboard_and_what_is_on_it_exists() {
    let exported = exported();
    let shown = panels()
        .iter()
        .flat_map(|asked| check(asked, &exported))
        .collect();
    let all: BTreeSet<String> = exported.into_keys().collect();
    let missing: Vec<_> = all.difference(&shown).collect();
    assert!(missing.is_empty(), "not on the dashboard: {missing:?}");
}

#[test]
fn what_a_dashboard_can_be_narrowed_to_exists() {
    let dashboard: Value = DASHBOARD.parse().unwrap();
    let known = exported();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let mut narrowed = Labels::new();
    for variable in variables.iter().filter(|of| of["type"] == "query") {
        let query = variable["query"]["query"].as_str().unwrap();
        let asked = query.strip_prefix("label_values(").unwrap();
        let (series, label) = asked.strip_suffix(')').unwrap().rsplit_once(", ").unwrap();
        assert!(
            promql::read(series, &known).labels.contains(label),
            "{query}"
        );
        narrowed.insert(variable["name"].as_str().unwrap().to_owned());
    }
    for Asked { expression, .. } in panels() {
        for name in &narrowed {
            let used = expression.contains(&format!("{name}=~\"${name}\""));
            assert!(used, "not narrowed by {name}: {expression}");
        }
    }
}

#[test]
fn every_metric_has_a_rule_or_a_reason_to_have_none() {
    let known = known();
    let mut watched = BTreeSet::new();
    let mut names = BTreeSet::new();
    for Rule { name, asked } in rules() {
        watched.extend(check(&asked, &known));
        for part in ["severity: ", "summary: ", "description: "] {
            assert!(asked.text.contains(part), "{name} has no {part}");
        }
        assert!(names.insert(name.clone()), "twice: {name}");
    }
    watched.remove("up");
    let excused = excused();
    let all = exported();
    for name in all.keys() {
        let (ruled, excused) = (watched.contains(name), excused.contains_key(name.as_str()));
        assert_ne!(ruled, excused, "{name}: rule {ruled}, excuse {excused}");
    }
    for (name, reason) in excused {
        assert!(all.contains_key(name), "no metric is called {name}");
        assert!(!reason.is_empty(), "{name} has no rule and no reason");
    }
}

#[test]
fn what_prometheus_would_refuse_or_never_match_is_found() {
    let known = known();
    let fails = |text: &str| std::panic::catch_unwind(|| promql::read(text, &known)).is_err();
    assert!(!fails("sum by (result) (rate(ngit_pushes_total[5m])) > 0"));
    for wrong in [
        "sum by (result) (rate(ngit_pushes_total[5m]) > 0",
        "sum by (reason) (rate(ngit_pushes_total[5m])) > 0",
        "sum(rate(ngit_pushes[5m])) > 0",
        "rate(ngit_pushes_total) > 0",
        "rate(ngit_connections[5m]) > 0",
        "rat(ngit_pushes_total[5m]) > 0",
        "ngit_pushes_total{reason=\"failed\"} > 0",
        "ngit_pushes_total{result=\"faild\"} > 0",
        "ngit_pushes_total{result=~\"failed|faild\"} > 0",
        "ngit_git_seconds > 0",
        "ngit_disk_free_bytes < ngit_disk_least_bytes",
    ] {
        assert!(fails(wrong), "{wrong}");
    }
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

fn value(page: &str, series: &str) -> f64 {
    let found = page.lines().find_map(|line| line.strip_prefix(series));
    let found = found.unwrap_or_else(|| panic!("no {series}: {page}"));
    found.trim().parse().unwrap()
}

#[test]
fn the_first_scrape_tells_the_room_on_the_disks_and_since_when_the_server_runs() {
    let server = start(&[("NGIT_MIN_FREE_BYTES", "1000000")]);
    let page = get(server.addr(), "/metrics").body;
    assert!(value(&page, "ngit_disk_free_bytes{disk=\"git\"}") > 0.0);
    assert!(value(&page, "ngit_disk_free_bytes{disk=\"relay\"}") > 0.0);
    assert_eq!(value(&page, "ngit_disk_least_bytes"), 1e6);
    assert!(value(&page, "ngit_store_bytes") > 0.0);
    assert_eq!(value(&page, "ngit_sync_coverage_ratio"), 1.0);
    let age = testkit::now() as f64 - value(&page, "process_start_time_seconds");
    assert!((0.0..60.0).contains(&age), "{age}");
}
