//! `cargo run --release -p bench -- relay`, or `git`, `sync`, `planner`, `hunt`, `hostile`: figures next to their limits,
//! taken in one run, against the real binary where there is one. Machines are noisy: trust ratios,
//! not single numbers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod cgi;
mod git;
mod hostile;
mod hunt;
mod load;
mod planner;
mod process;
mod relay;
mod report;
mod sync;
mod synth;

use std::process::ExitCode;

const USAGE: &str =
    "usage: cargo run --release -p bench -- (relay | git | sync | planner | hunt | hostile) [--quick]

  relay    ingest, queries, fan-out, NIP-77, memory and start of the relay
  git      clones, pushes and questions about refs, next to git http-backend
  sync     from nothing to everything of three other relays, live, and after a restart
  planner  what a new issue costs, and the memory of repositories and issues, in process
  hunt     git data from another server, and of 1,000 repositories from hosts of which half are dead
  hostile  what a bystander waits while one address after the other attacks the server
  --quick  a tenth of the work, to try the benchmark itself";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let scale = if quick { 10 } else { 1 };
    let report = match args.first().map(String::as_str) {
        Some("relay") => relay::run(scale),
        Some("git") => git::run(scale),
        Some("sync") => sync::run(scale),
        Some("planner") => planner::run(scale),
        Some("hunt") => hunt::run(scale),
        Some("hostile") => hostile::run(scale),
        _ => {
            println!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    println!("{}", report.table());
    println!("{}", report.json());
    if report.is_within() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
