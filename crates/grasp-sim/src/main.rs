//! `cargo run --release -p grasp-sim -- --seeds 0..1000`, or `--seed 7 --trace` for one story.

#![allow(clippy::print_stdout)]

use std::ops::Range;
use std::process::ExitCode;

use grasp_sim::{Trace, run};

const USAGE: &str = "usage: grasp-sim --seeds A..B | --seed N [--trace]

  --seeds A..B  run these seeds and say which fail
  --seed N      run one seed
  --trace       print the story of the run in virtual time";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["--seeds", range] => match parse_range(range) {
            Some(range) => run_all(range),
            None => usage(),
        },
        ["--seed", seed, rest @ ..] => match (seed.parse(), rest) {
            (Ok(seed), []) => tell(seed, Trace::default()),
            (Ok(seed), ["--trace"]) => tell(seed, Trace::readable()),
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    println!("{USAGE}");
    ExitCode::from(2)
}

fn parse_range(text: &str) -> Option<Range<u64>> {
    let (from, to) = text.split_once("..")?;
    Some(from.parse().ok()?..to.parse().ok()?)
}

fn tell(seed: u64, mut trace: Trace) -> ExitCode {
    let result = run(seed, &mut trace);
    for line in trace.lines() {
        println!("{line}");
    }
    match result {
        Ok(summary) => {
            println!("seed {seed}: {summary:?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!(
                "seed {seed} FAILED at {:.3} s: {}",
                failure.at.as_secs_f64(),
                failure.what
            );
            ExitCode::FAILURE
        }
    }
}

fn run_all(seeds: Range<u64>) -> ExitCode {
    let (mut passed, mut failed) = (0_u64, 0_u64);
    for seed in seeds {
        match run(seed, &mut Trace::default()) {
            Ok(_) => passed += 1,
            Err(failure) => {
                failed += 1;
                println!(
                    "seed {seed} FAILED at {:.3} s: {}",
                    failure.at.as_secs_f64(),
                    failure.what
                );
            }
        }
    }
    println!("simulator: {passed} passed, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
