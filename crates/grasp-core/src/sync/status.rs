//! How sync stands, for the operator: plain data, in the words of the API.

use serde::Serialize;

use super::Sync;
use super::capabilities::{Capabilities, Reconciles};
use super::health::{Health, RelayHealth};
use super::link::Link;
use super::memory::Record;
use super::note::Source;
use super::peer::Peer;
use super::relays::Relay;
use crate::clock::{Mono, Now, Timestamp};
use crate::ticket::RelayNo;

#[derive(Debug, Clone, Default, Serialize)]
pub struct Status {
    pub enabled: bool,
    pub repositories: usize,
    pub roots: usize,
    pub relays_tracked: usize,
    pub relays_connected: usize,
    pub relays_dead: usize,
    /// Places in the lists of repositories whose relay was not taken in, because there are enough.
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
    /// Items whose history was read to its end, now or before the line was lost.
    pub read: u64,
    /// Everything that it had before this is known.
    pub covered: Option<Timestamp>,
    /// Milliseconds from the date of a live event to its arrival, lately.
    pub lag_ms: Option<u64>,
    pub record: Record,
    /// The share of our events that it has too, since the last full comparison.
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

impl BySource {
    pub fn add(&mut self, source: Source) {
        let count = match source {
            Source::Direct => &mut self.direct,
            Source::Live => &mut self.live,
            Source::CatchUp => &mut self.catchup,
            Source::Daily => &mut self.daily,
        };
        *count += 1;
    }
}

impl Sync {
    /// How it stands.
    pub fn status(&self, now: Now) -> Status {
        let oldest = self.oldest_arrivals();
        let relays = self.targets.relays.iter();
        let relays: Vec<RelayStatus> = relays
            .filter_map(|(no, relay)| {
                let oldest = oldest.get(&no).copied();
                self.relay_status(no, relay, oldest, now)
            })
            .collect();
        let dead = |relay: &&RelayStatus| relay.health.health == Health::Dead;
        Status {
            enabled: self.limits.enabled,
            repositories: self.targets.repos.len(),
            roots: self.targets.repos.roots(),
            relays_tracked: self.targets.relays.len(),
            relays_connected: self.peers.values().filter(|peer| peer.link.is_up()).count(),
            relays_dead: relays.iter().filter(dead).count(),
            relays_over_limit: self.targets.over_limit,
            pending: self.batches.len(),
            wanted: self.downloads.len(),
            dismissed: self.memo.len() - self.memo.early(),
            early: self.memo.early(),
            events: self.totals,
            relays,
        }
    }

    /// `oldest` is when the oldest of its events came that is not judged yet.
    fn relay_status(
        &self,
        no: RelayNo,
        relay: &Relay,
        oldest: Option<Timestamp>,
        now: Now,
    ) -> Option<RelayStatus> {
        let peer = self.peers.get(&no)?;
        let session = peer.session();
        let live = session.map_or(0, |session| session.live.shared(&relay.target));
        let memory = peer.memory(&relay.url, oldest, now, &self.limits);
        let record = memory.record;
        let compares = peer.capabilities.reconciles == Reconciles::Yes;
        let here = relay.confirmed.len();
        Some(RelayStatus {
            url: relay.url.to_string(),
            bootstrap: relay.bootstrap,
            state: match &peer.link {
                Link::Down { .. } => State::Disconnected,
                Link::Connecting { .. } => State::Connecting,
                Link::Up(_) if self.is_in_step(no) => State::Connected,
                Link::Up(_) => State::Syncing,
            },
            why: match &peer.link {
                Link::Down { why, .. } => Some(why.label()),
                Link::Connecting { .. } | Link::Up(_) => None,
            },
            since: peer.since,
            health: peer.health,
            capabilities: peer.capabilities.clone(),
            repositories: relay.target.repos.len(),
            roots: relay.target.roots.len(),
            live,
            not_live: relay.target.len() - live,
            open_filters: session.map_or(0, |session| session.live_filters()),
            paged: if compares { 0 } else { here },
            reconciled: if compares { here } else { 0 },
            missing: relay.missing().len() + relay.pending.len(),
            read: relay.read.len(),
            covered: memory.covered,
            lag_ms: peer.lag_ms,
            coverage: share(
                record.compared.saturating_sub(record.lacks),
                record.compared,
            ),
            uptime: share(record.up_secs, record.up_secs + record.down_secs),
            record,
            next: self.next(no, peer, now),
        })
    }

    /// What happens next by itself, and why.
    fn next(&self, no: RelayNo, peer: &Peer, now: Now) -> Next {
        let at = |mono: Mono| {
            let wait = mono.0.saturating_sub(now.mono.0).as_secs();
            Some(Timestamp(now.unix.0.saturating_add(wait)))
        };
        let next = |what, at, why| Next { what, at, why };
        match &peer.link {
            Link::Down {
                retry: Some(retry),
                why,
            } => next("dial", at(*retry), why.label()),
            Link::Down { why, .. } => next("nothing", None, why.label()),
            Link::Connecting { deadline, .. } => next("give up", at(*deadline), "no answer yet"),
            Link::Up(_) => match peer.paused.filter(|until| *until > now.mono) {
                Some(until) => next("ask again", at(until), "it refused a request"),
                None if !self.is_in_step(no) => next("fetch", None, "history is missing"),
                None => next("compare all", peer.next_full, "once a day"),
            },
        }
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
