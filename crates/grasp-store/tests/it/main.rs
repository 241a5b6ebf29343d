//! The store as its users see it, on disk and in memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "clippy.toml allows these in test functions, but not in what they share"
)]

mod backup;
mod child;
mod differential;
mod durability;
mod held;
mod queries;
mod relations;
mod relays;
mod removal;
mod rules;
mod support;
mod tail;
mod world;
