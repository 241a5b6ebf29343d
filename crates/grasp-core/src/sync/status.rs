//! How sync stands, for the operator: plain data, in the words of the API.

use serde::Serialize;

use super::capabilities::Capabilities;
use super::health::RelayHealth;
use super::memory::Record;
use crate::clock::Timestamp;

#[derive(Debug, Clone, Default, Serialize)]
pub struct Status {
    pub enabled: bool,
    pub repositories: usize,
    pub roots: usize,
    pub relays_tracked: usize,
    pub relays_connected: usize,
    pub relays_dead: usize,
    /// Relays that were not taken in, because there are enough.
    pub relays_over_limit: u64,
    /// Pieces of history that are being fetched.
    pub pending: usize,
    /// Events that are known to be missing.
    pub wanted: usize,
    /// Events that need not be fetched again: refused for good, and for now.
    pub dismissed: usize,
    pub early: usize,
    pub events: BySource,
    pub relays: Vec<RelayStatus>,
}

/// New events by how they were found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BySource {
    pub direct: u64,
    pub live: u64,
    pub catchup: u64,
    pub daily: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct RelayStatus {
    pub url: String,
    pub bootstrap: bool,
    pub state: State,
    /// Why it is not connected.
    pub why: Option<&'static str>,
    /// In this state since.
    pub since: Timestamp,
    pub health: RelayHealth,
    pub capabilities: Capabilities,
    pub repositories: u64,
    pub roots: u64,
    /// Items that are watched, and those for which it has no room.
    pub live: u64,
    pub not_live: u64,
    pub open_filters: usize,
    /// Items whose history came by pages, by comparison, and is still to come.
    pub paged: u64,
    pub reconciled: u64,
    pub missing: u64,
    /// Everything that it had before this is known.
    pub covered: Option<Timestamp>,
    /// Milliseconds from the date of a live event to its arrival, lately.
    pub lag_ms: Option<u64>,
    pub record: Record,
    /// The share of our events that it has too, at the last full comparison.
    pub coverage: Option<f64>,
    /// The share of the time in which it was connected.
    pub uptime: Option<f64>,
    pub next: Next,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Disconnected,
    Connecting,
    /// Connected, and history is being fetched.
    Syncing,
    /// Connected, and nothing is missing.
    Connected,
}

/// What happens next by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Next {
    pub what: &'static str,
    pub at: Option<Timestamp>,
    pub why: &'static str,
}
