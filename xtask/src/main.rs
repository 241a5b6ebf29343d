//! `cargo xtask check` proves what the documents claim: the direction of the crates, the purity
//! of the core, the order of its modules, links that lead somewhere, references that were
//! generated. `cargo xtask docs` writes the generated ones, `cargo xtask dist` what packages bring.

#![allow(clippy::print_stdout)]

mod crates;
mod docs;
mod modules;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

type Check = fn(&Path) -> Vec<String>;

const CHECKS: [(&str, Check); 6] = [
    (
        "crates depend in the documented direction",
        crates::direction,
    ),
    ("grasp-core is pure", crates::purity),
    (
        "modules of grasp-core use only those before them",
        modules::order,
    ),
    ("links in documents lead somewhere", docs::links),
    ("generated documents are current", docs::generated),
    ("every decision record is listed", docs::decisions),
];

fn main() -> ExitCode {
    let root = root();
    match std::env::args().nth(1).as_deref() {
        Some("check") => check(&root),
        Some("docs") => written(docs::write_generated(&root)),
        Some("dist") => written(docs::write_dist(&root)),
        _ => {
            println!("usage: cargo xtask check | docs | dist");
            ExitCode::from(2)
        }
    }
}

fn written(done: std::io::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn check(root: &Path) -> ExitCode {
    let mut failed = 0;
    for (claim, check) in CHECKS {
        let problems = check(root);
        println!(
            "{} ... {claim}",
            if problems.is_empty() { "ok" } else { "FAILED" }
        );
        for problem in &problems {
            println!("    {problem}");
        }
        failed += usize::from(!problems.is_empty());
    }
    println!("xtask: {} passed, {failed} failed", CHECKS.len() - failed);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
