//! The real server as a process, and a real client beside it: what the wire says is what counts.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "also outside of test functions, a panic with a clear text is the verdict"
)]

mod browser;
mod cli;
mod crash;
mod dashboards;
mod demo;
mod differential;
mod doctor;
mod documents;
mod fetch;
mod floods;
mod git_clients;
mod git_crash;
mod git_limits;
mod git_load;
mod git_lost;
mod git_slow;
mod git_upkeep;
mod hosted;
mod hostile;
mod hosting;
mod http;
mod lifecycle;
mod limits;
mod live_cost;
mod mirror;
mod network;
mod ngit_client;
mod nip01;
mod nip77;
mod nips;
mod owner;
mod packaging;
mod pages;
mod purge;
mod query_load;
mod repair;
mod shares;
mod shown;
mod status;
mod status_page;
mod support;
mod sync;
mod sync_faults;
mod transfer;
mod wire;
