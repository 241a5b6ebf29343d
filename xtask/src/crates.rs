//! Who may depend on whom, and what may never be below the core.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What each product crate may use of this workspace.
const ALLOWED: [(&str, &[&str]); 5] = [
    ("grasp-core", &[]),
    ("grasp-store", &["grasp-core"]),
    ("grasp-git", &["grasp-core"]),
    ("grasp-sim", &["grasp-core"]),
    ("ngit-grasp", &["grasp-core", "grasp-git", "grasp-store"]),
];

/// Crates that bring a runtime, a clock, sockets or chance of their own.
const IMPURE: [&str; 12] = [
    "async-std",
    "chrono",
    "futures",
    "getrandom",
    "hyper",
    "mio",
    "parking_lot",
    "rand",
    "rustix",
    "smol",
    "time",
    "tokio",
];

pub fn direction(root: &Path) -> Vec<String> {
    let metadata = match cargo_metadata(root) {
        Ok(metadata) => metadata,
        Err(problem) => return vec![problem],
    };
    let packages = metadata
        .get("packages")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let names: Vec<&str> = packages.iter().filter_map(name).collect();
    let mut problems = Vec::new();
    for package in &packages {
        let Some((crate_name, allowed)) = ALLOWED
            .iter()
            .find(|(known, _)| name(package) == Some(known))
        else {
            continue;
        };
        let dependencies = package
            .get("dependencies")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        for dependency in dependencies
            .iter()
            .filter(|dependency| dependency.get("kind") == Some(&Value::Null))
        {
            let used = name(dependency).unwrap_or_default();
            if names.contains(&used) && !allowed.contains(&used) {
                problems.push(format!("{crate_name} uses {used}"));
            }
        }
    }
    problems
}

pub fn purity(root: &Path) -> Vec<String> {
    let args = [
        "tree",
        "-p",
        "grasp-core",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    let tree = match cargo(root, &args) {
        Ok(tree) => tree,
        Err(problem) => return vec![problem],
    };
    let impure = |line: &str| {
        line.split(' ')
            .next()
            .is_some_and(|name| IMPURE.contains(&name))
    };
    let mut found: Vec<String> = tree
        .lines()
        .filter(|line| impure(line))
        .map(str::to_owned)
        .collect();
    found.dedup();
    found
}

fn name(value: &Value) -> Option<&str> {
    value.get("name").and_then(Value::as_str)
}

fn cargo_metadata(root: &Path) -> Result<Value, String> {
    let text = cargo(root, &["metadata", "--no-deps", "--format-version", "1"])?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

fn cargo(root: &Path, args: &[&str]) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(args).current_dir(root).output();
    match output {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}
