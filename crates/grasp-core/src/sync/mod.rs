//! Proactive sync (GRASP-02): which relays each repository has, what is to be watched and fetched
//! there, and what is missing. No sockets: [`io`] says what is asked of other relays and heard of
//! them.

pub mod filters;
mod gather;
mod health;
mod index;
pub mod io;
mod items;
mod relays;
mod targets;

pub use self::gather::{Gathered, News};
pub use self::health::{Health, RelayHealth};
pub use self::index::{RepoSyncIndex, RepoSyncNeeds, Stage};
pub use self::items::{Items, RepoIx, RootIx};
pub use self::relays::{Relay, RelaySyncIndex};
pub use self::targets::Targets;
