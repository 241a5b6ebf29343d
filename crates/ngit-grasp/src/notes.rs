//! What sync has to tell becomes lines of the log and metrics. A relay that gives cause for many
//! lines gets a few in a minute, then one that counts the rest.

mod hunt;

use std::sync::Arc;
use std::time::{Duration, Instant};

use grasp_core::sync::io::{Complaint, Fault};
use grasp_core::sync::{Note, Source, Status};
use grasp_core::{EventId, RelayUrl, SyncLimits};
use rustc_hash::{FxHashMap, FxHashSet};

pub use self::hunt::HuntNotes;
use crate::metrics::Metrics;

/// Lines on one matter of one relay.
const LINES: u32 = 10;
/// In this time.
const PERIOD: Duration = Duration::from_secs(60);

pub struct Notes {
    metrics: Arc<Metrics>,
    consolidate_at: usize,
    stale_after: Duration,
    told: FxHashMap<(RelayUrl, Matter), Told>,
    /// Relays that have labels.
    labelled: FxHashSet<String>,
}

/// What a line is about, where there may be too many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Matter {
    Gap,
    SustainedGap,
    Lack,
    Misbehaviour,
    Refusal,
}

impl Matter {
    fn summary(self) -> &'static str {
        match self {
            Matter::Gap => "more sync gaps were found during catchup",
            Matter::SustainedGap => "more sustained sync gaps were found during daily catchup",
            Matter::Lack => "more repositories of which the relay is missing events",
            Matter::Misbehaviour => "more wrong things came from the relay",
            Matter::Refusal => "more requests were refused by the relay",
        }
    }
}

struct Told {
    since: Instant,
    lines: u32,
    untold: u64,
}

impl Notes {
    pub fn new(metrics: Arc<Metrics>, limits: &SyncLimits) -> Self {
        Self {
            metrics,
            consolidate_at: limits.consolidate_at,
            stale_after: limits.stale_after,
            told: FxHashMap::default(),
            labelled: FxHashSet::default(),
        }
    }

    pub fn take(&mut self, note: Note, now: Instant) {
        match note {
            Note::Connected { relay } => {
                self.attempted(&relay, true);
                tracing::info!(%relay, "connected");
            }
            Note::ConnectFailed {
                relay,
                end,
                attempt,
                retry_secs,
            } => {
                self.attempted(&relay, false);
                tracing::warn!(%relay, why = ?end, attempt, retry_secs, "connection failed");
            }
            Note::Lost { relay, end } => tracing::info!(%relay, why = ?end, "connection lost"),
            Note::Dead {
                relay,
                failing_secs,
            } => tracing::error!(%relay, failing_secs, "relay is dead"),
            Note::GaveWay { relay } => {
                tracing::info!("Disconnecting relay {relay} (its place is wanted by others)");
            }
            Note::Left { relay } => tracing::info!("Disconnecting relay {relay} (no repos)"),
            Note::Stale { relay } => {
                let minutes = self.stale_after.as_secs() / 60;
                tracing::info!(
                    "Reconnect after >{minutes}min for {relay}, clearing state for fresh sync"
                );
            }
            Note::Daily { relay } => tracing::info!("Daily sync triggered for {relay}"),
            Note::Consolidating { relay, filters } => {
                let most = self.consolidate_at;
                tracing::info!(
                    filters,
                    "Consolidating filters for {relay} (count > {most})"
                );
            }
            Note::Found {
                relay,
                id,
                source,
                gap,
            } => self.found(relay, id, source, gap, now),
            Note::NoNegentropy { relay } => {
                tracing::warn!(%relay, "no NIP-77 there: its history is read page by page");
            }
            Note::Lacks { relay, repo, count } => {
                let repo = repo.map_or_else(|| "-".to_owned(), |repo| repo.to_string());
                if self.may_tell(&relay, Matter::Lack, now) {
                    tracing::warn!(%relay, repo, count, "relay is missing events that are here");
                }
            }
            Note::Refused {
                relay,
                why,
                retry_secs,
            } => self.refused(&relay, why, retry_secs, now),
            Note::Misbehaved { relay, fault } => self.misbehaved(&relay, fault, now),
            Note::Shunned { relay } => {
                tracing::warn!(%relay, "hung up on a relay that misbehaves");
            }
            Note::SecondTooFull { relay, at } => {
                let second = at.0;
                tracing::warn!(%relay, second, "more events in one second than the relay gives");
            }
            Note::TooManyRelays => {
                tracing::warn!("more relays are named than are taken in");
            }
            Note::TooManyRoots => {
                tracing::warn!("more issues, patches and pull requests than are watched");
            }
        }
    }

    fn refused(&mut self, relay: &RelayUrl, why: Complaint, retry_secs: u64, now: Instant) {
        self.metrics.sync.refused(why.label());
        if self.may_tell(relay, Matter::Refusal, now) {
            tracing::warn!(%relay, ?why, retry_secs, "refused by the relay");
        }
    }

    fn misbehaved(&mut self, relay: &RelayUrl, fault: Fault, now: Instant) {
        self.metrics.sync.misbehaved(fault.label());
        if self.may_tell(relay, Matter::Misbehaviour, now) {
            tracing::warn!(%relay, ?fault, "the relay misbehaves");
        }
    }

    fn found(&mut self, relay: RelayUrl, id: EventId, source: Source, gap: bool, now: Instant) {
        self.metrics.sync.event(source);
        if !gap {
            return tracing::debug!(%relay, event_id = %id, source = source.label(), "event found");
        }
        self.metrics.sync.gap(relay.as_str());
        self.labelled.insert(relay.to_string());
        if source == Source::Daily {
            if self.may_tell(&relay, Matter::SustainedGap, now) {
                tracing::error!(
                    %relay,
                    event_id = %id,
                    "Sustained sync gap: event found during daily catchup"
                );
            }
        } else if self.may_tell(&relay, Matter::Gap, now) {
            tracing::warn!(%relay, event_id = %id, "Sync gap detected: event found during catchup");
        }
    }

    fn attempted(&mut self, relay: &RelayUrl, succeeded: bool) {
        self.metrics.sync.attempt(relay.as_str(), succeeded);
        self.labelled.insert(relay.to_string());
    }

    fn may_tell(&mut self, relay: &RelayUrl, matter: Matter, now: Instant) -> bool {
        let told = self.told.entry((relay.clone(), matter)).or_insert(Told {
            since: now,
            lines: 0,
            untold: 0,
        });
        let may = told.lines < LINES;
        if may {
            told.lines += 1;
        } else {
            told.untold += 1;
        }
        may
    }

    /// Counts what was not told, and shows how sync stands.
    pub fn show(&mut self, status: &Status, now: Instant) {
        self.told.retain(|(relay, matter), told| {
            let over = now.duration_since(told.since) >= PERIOD;
            if over && told.untold > 0 {
                tracing::warn!(%relay, count = told.untold, "{}", matter.summary());
            }
            !over
        });
        self.metrics.sync.show(status);
        let known: FxHashSet<String> = status.relays.iter().map(|r| r.url.clone()).collect();
        for gone in self.labelled.difference(&known) {
            self.metrics.sync.forget(gone);
        }
        self.labelled = known;
    }
}

#[cfg(test)]
mod tests;
