//! The order of modules inside the core: left may not use right.

use std::fs;
use std::path::Path;

/// From the bottom up; modules on one rung do not use each other's betters.
const ORDER: [&[&str]; 10] = [
    &["id", "clock", "network"],
    &[
        "backoff",
        "byte_quota",
        "clone_url",
        "git",
        "limiter",
        "relay_url",
        "shares",
    ],
    &["limits", "service"],
    &["event", "filter"],
    &["facts", "ticket", "auth", "nip34"],
    &["registry"],
    &["admit"],
    &["purgatory", "push"],
    &["hunt", "sync"],
    &["core"],
];

pub fn order(root: &Path) -> Vec<String> {
    let source = root.join("crates/grasp-core/src");
    let mut problems = Vec::new();
    for file in rust_files(&source) {
        let relative = file
            .strip_prefix(&source)
            .unwrap_or(&file)
            .to_string_lossy()
            .into_owned();
        let module = relative
            .split(['/', '.'])
            .next()
            .unwrap_or_default()
            .to_owned();
        if module == "lib" {
            continue;
        }
        let Some(rung) = rung(&module) else {
            problems.push(format!("{relative}: {module} has no place in the order"));
            continue;
        };
        let text = fs::read_to_string(&file).unwrap_or_default();
        for used in used_modules(&text) {
            if rung_above(&used, rung) {
                problems.push(format!("{relative}: {module} uses {used}"));
            }
        }
    }
    problems
}

fn rung(module: &str) -> Option<usize> {
    ORDER.iter().position(|rung| rung.contains(&module))
}

fn rung_above(used: &str, rung_of_user: usize) -> bool {
    rung(used).is_some_and(|used| used > rung_of_user)
}

/// The module after every `crate::`, or the modules in the braces after it.
fn used_modules(text: &str) -> Vec<String> {
    let mut used = Vec::new();
    for rest in text.split("crate::").skip(1) {
        let group = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split('}').next());
        let paths = group.map_or(vec![rest], |group| group.split(',').collect());
        used.extend(paths.into_iter().map(|path| first_name(path.trim())));
    }
    used
}

fn first_name(path: &str) -> String {
    path.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

fn rust_files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
