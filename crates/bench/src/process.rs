//! The server under test: built, started on a prepared directory, and watched from outside.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use grasp_core::Event;
use grasp_store::Store;
use testkit::Server;

/// Builds the server as it is released and says where it is.
pub fn build_server() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--quiet", "-p", "ngit-grasp"])
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the server does not build");
    let here = std::env::current_exe().expect("own path");
    here.with_file_name("ngit-grasp")
}

/// No limit that the benchmark itself would run into.
pub fn start(bin: &Path) -> Server {
    Server::start(bin, &unlimited())
}

pub fn unlimited() -> [(&'static str, &'static str); 6] {
    [
        ("NGIT_EVENT_BYTES_PER_DAY_PER_KEY", "0"),
        ("NGIT_EVENT_BYTES_PER_DAY_PER_IP", "0"),
        ("NGIT_EVENTS_PER_MINUTE_PER_KEY", "0"),
        ("NGIT_EVENTS_PER_MINUTE_PER_IP", "0"),
        ("NGIT_MAX_CONNECTIONS", "5000"),
        ("NGIT_LOG_LEVEL", "info"),
    ]
}

/// Puts events into the store of a stopped server.
pub fn fill(data_dir: &Path, events: impl IntoIterator<Item = Event>) {
    let store = Store::open(data_dir).expect("the store opens");
    let mut batch = Vec::new();
    for event in events {
        batch.push(Arc::new(event));
        if batch.len() == 2_000 {
            store
                .apply(batch.iter().map(|event| &**event))
                .expect("events are stored");
            batch.clear();
        }
    }
    store
        .apply(batch.iter().map(|event| &**event))
        .expect("events are stored");
}

/// User and system time of a process, in seconds.
pub fn cpu_seconds(pid: u32) -> f64 {
    ticks(pid, [11, 12]) / 100.0
}

/// User and system time of those that a process started and that have ended, in seconds.
pub fn cpu_of_children(pid: u32) -> f64 {
    ticks(pid, [13, 14]) / 100.0
}

/// Fields of `/proc/PID/stat`, counted from the one after the name, together.
fn ticks(pid: u32, which: [usize; 2]) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let after_name = stat.rsplit_once(')').expect("a name in brackets").1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = which.map(|n| fields[n].parse::<f64>().expect("a number"));
    ticks.iter().sum()
}

/// A line of `/proc/PID/status`, in megabytes.
pub fn memory_mb(pid: u32, line: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let value = status
        .lines()
        .find_map(|text| text.strip_prefix(line))
        .expect("the line");
    value
        .trim_start_matches(':')
        .trim()
        .trim_end_matches(" kB")
        .parse::<f64>()
        .expect("a number")
        / 1024.0
}

/// Cost of one signature check on this machine, now, in microseconds, with that many threads at
/// it: cores that share a physical one slow each other down.
pub fn verification_us(events: &[Event], threads: usize) -> f64 {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| assert!(events.iter().all(ngit_grasp::ingest::signature::is_valid)));
        }
    });
    started.elapsed().as_secs_f64() * 1e6 / events.len() as f64
}
