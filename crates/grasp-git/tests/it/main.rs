//! Repositories, packs and adverts against the real git binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "clippy.toml allows these in test functions, but not in what they share"
)]

mod adverts;
mod fetch;
mod http;
mod maintenance;
mod packs;
mod pruning;
mod push_heads;
mod refs;
mod repos;
mod sharing;
mod support;
