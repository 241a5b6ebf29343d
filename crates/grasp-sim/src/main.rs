//! `cargo run --release -p grasp-sim -- --seeds 0..1000`, or `--seed 7 --trace` for one story.

#![allow(clippy::print_stdout)]

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use grasp_sim::{Company, Failure, Trace, run};
use indicatif::{ProgressBar, ProgressStyle};

const USAGE: &str = "usage: grasp-sim --seeds A..B [COMPANY] | --seed N [COMPANY] [--trace]

  --seeds A..B  run these seeds and say which fail
  --seed N      run one seed
COMPANY is one of these; without it there are other relays and git servers:
  --alone       there is nobody else: no other relays, no other git servers
  --hosts       there are other git servers and no other relays
  --hostile     there are both, and clients who flood us from a few addresses
  --trace       print the story of the run in virtual time";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut flag = |name: &str| {
        let before = args.len();
        args.retain(|arg| *arg != name);
        args.len() < before
    };
    let company = match (flag("--alone"), flag("--hosts"), flag("--hostile")) {
        (true, _, _) => Company::Alone,
        (false, true, _) => Company::Hosts,
        (false, false, true) => Company::Hostile,
        (false, false, false) => Company::Relays,
    };
    let readable = flag("--trace");
    match args.as_slice() {
        ["--seeds", range] if !readable => match parse_range(range) {
            Some(range) => run_all(range, company),
            None => usage(),
        },
        ["--seed", seed] => match seed.parse() {
            Ok(seed) if readable => tell(seed, company, Trace::readable()),
            Ok(seed) => tell(seed, company, Trace::default()),
            Err(_) => usage(),
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

fn tell(seed: u64, company: Company, mut trace: Trace) -> ExitCode {
    let result = run(seed, company, &mut trace);
    for line in trace.lines() {
        println!("{line}");
    }
    match result {
        Ok(summary) => {
            println!("seed {seed}: {summary:?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{}", told(&failure));
            ExitCode::FAILURE
        }
    }
}

fn told(failure: &Failure) -> String {
    let Failure { seed, at, what } = failure;
    format!("seed {seed} FAILED at {:.3} s: {what}", at.as_secs_f64())
}

fn run_all(seeds: Range<u64>, company: Company) -> ExitCode {
    let bar = ProgressBar::new(seeds.end.saturating_sub(seeds.start));
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {msg}, {eta} left")
    {
        bar.set_style(style);
    }
    let next = AtomicU64::new(seeds.start);
    let failed = AtomicU64::new(0);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if let Err(failure) = run(seed, company, &mut Trace::default()) {
                failed.fetch_add(1, Ordering::Relaxed);
                bar.suspend(|| println!("{}", told(&failure)));
            }
            bar.set_message(format!("{} failed", failed.load(Ordering::Relaxed)));
            bar.inc(1);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let failed = failed.into_inner();
    let passed = seeds.end.saturating_sub(seeds.start) - failed;
    println!("simulator: {passed} passed, {failed} failed");
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
