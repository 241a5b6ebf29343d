//! The figures of the hunt: how soon what is pushed at one server is served by another, and what
//! becomes of a thousand repositories whose data is at hosts of which half are dead.

mod many;
mod mirror;

use tokio::runtime::Runtime;

use crate::process::build_server;
use crate::report::Report;

pub fn run(scale: usize) -> Report {
    let runtime = Runtime::new().expect("a runtime");
    let bin = build_server();
    let mut report = Report::default();
    mirror::measure(&runtime, &bin, scale, &mut report);
    many::measure(&runtime, &bin, scale, &mut report);
    report
}

const MAIN: &str = "refs/heads/main";
