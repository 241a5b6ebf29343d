//! The rules of a GRASP server, and nothing else.
//!
//! [`Core`] takes what happened ([`Input`]) together with the time ([`Now`]) and says what
//! to do about it ([`Effect`]). It has no clock, no sockets, no files, no locks and no async:
//! the `ngit-grasp` binary carries bytes to it and carries out what it asks for, and
//! `grasp-sim` does the same in virtual time.
//!
//! Modules are ordered; a module uses only those before it:
//! `id, clock, network → backoff, byte_quota, clone_url, git, limiter, relay_url, shares → limits,
//! service → event, filter → facts, ticket, auth, nip34 → registry → admit → purgatory, push → hunt, sync →
//! core`.

pub mod admit;
pub mod auth;
pub mod backoff;
pub mod byte_quota;
pub mod clock;
pub mod clone_url;
pub mod core;
pub mod event;
pub mod facts;
pub mod filter;
pub mod git;
pub mod hunt;
pub mod id;
pub mod limiter;
pub mod limits;
pub mod network;
pub mod nip34;
pub mod purgatory;
pub mod push;
pub mod registry;
pub mod relay_url;
pub mod service;
pub mod shares;
pub mod sync;
pub mod ticket;

pub use crate::clock::{Mono, Now, Timestamp};
pub use crate::core::{
    Answer, Change, Core, Effect, Facts, Failed, GitDone, GitTask, Input, Job, Lists, Origin,
    Policy, PushId, Repair, RepoPattern, Restore, Seq, StoreOutcome, Ticket, Wake,
};
pub use crate::event::{Event, Kind};
pub use crate::filter::Filter;
pub use crate::id::{EventId, Pubkey, Signature};
pub use crate::limits::{DomainLimits, HuntLimits, Limits, SyncLimits};
pub use crate::network::Network;
pub use crate::nip34::{Identifier, RepoId};
pub use crate::registry::MaintainerRule;
pub use crate::relay_url::RelayUrl;
pub use crate::service::Service;
pub use crate::ticket::{ConnNo, Delivery, FetchNo, RelayNo, SubNo};
