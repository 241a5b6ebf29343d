//! `cargo run --release -p bench -- relay`: figures next to their limits, taken in one run
//! against the real binary. Machines are noisy: trust ratios, not single numbers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod load;
mod process;
mod relay;
mod report;
mod synth;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo run --release -p bench -- relay [--quick]

  relay    ingest, queries, fan-out, NIP-77, memory and start of the relay
  --quick  a tenth of the events, to try the benchmark itself";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    match args.first().map(String::as_str) {
        Some("relay") => {
            let report = relay::run(if quick { 10 } else { 1 });
            println!("{}", report.table());
            println!("{}", report.json());
            if report.is_within() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        _ => {
            println!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
