//! What outlives a restart: how each relay has fared, and which events need not be fetched again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::capabilities::Capabilities;
use super::health::RelayHealth;
use crate::clock::Timestamp;
use crate::facts::Seq;
use crate::id::EventId;
use crate::relay_url::RelayUrl;

/// Events that are not taken for a reason that may change are left alone for so long.
pub const REST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayMemory {
    pub url: RelayUrl,
    pub health: RelayHealth,
    pub capabilities: Capabilities,
    /// Everything that the relay had before this is known.
    pub covered: Option<Timestamp>,
    /// What was stored up to here has its history from this relay.
    pub settled: Option<Seq>,
    /// When everything is compared again.
    pub next_full: Option<Timestamp>,
    pub record: Record,
}

/// Sums over the life of a relay's acquaintance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    pub attempts: u64,
    pub failures: u64,
    pub up_secs: u64,
    pub down_secs: u64,
    /// New events, by how they were found.
    pub live: u64,
    pub catch_up: u64,
    pub daily: u64,
    /// Of these, what should have come live.
    pub gaps: u64,
    pub refused: u64,
    pub bad: u64,
    /// Since the last full comparison: events that we have and it has not, and all that were
    /// compared.
    pub lacks: u64,
    pub compared: u64,
}

/// An event that came and was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dismissed {
    pub id: EventId,
    pub at: Timestamp,
    /// An announcement or a state: everybody's come by, not only those of our repositories.
    pub announcement: bool,
    pub fate: Fate,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It never will be.
    ForGood,
    /// It will be when one of these has come: marks of causes.
    Early(Vec<u64>),
    /// It waited for its git data in vain, and is left alone until then or until one of these has
    /// come.
    Rests(Timestamp, Vec<u64>),
}
