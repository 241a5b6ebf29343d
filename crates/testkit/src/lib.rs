//! What the tests of all crates share: authors that really sign, a naive model of a relay's
//! store, seeded random events and filters, a websocket client, the real server
//! process, other relays and git servers with faults, and a line to them that can be cut.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "this crate runs in tests only, where a panic with a clear text is the verdict"
)]

pub mod author;
pub mod browser;
pub mod bystander;
pub mod client;
pub mod git;
pub mod git_host;
pub mod grasp;
pub mod libgit;
pub mod naive;
pub mod pack;
pub mod proxy;
pub mod random;
pub mod rogue;
pub mod server;

/// For crates whose tests need JSON and nothing else of serde.
pub use serde_json::{Value, json};

pub use crate::author::{Author, now, unsigned};
pub use crate::bystander::{Bystander, Waits};
pub use crate::client::{Client, FROM_ELSEWHERE};
pub use crate::git::WorkTree;
pub use crate::git_host::{GitFault, GitHost, GitSeen};
pub use crate::grasp::Project;
pub use crate::naive::{Model, Verdict};
pub use crate::proxy::Proxy;
pub use crate::rogue::{Fault, Rogue};
pub use crate::server::Server;
