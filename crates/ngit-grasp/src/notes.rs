//! What sync has to tell becomes lines of the log and metrics.

mod hunt;
pub(crate) mod ration;

use std::sync::Arc;
use std::time::{Duration, Instant};

use grasp_core::sync::io::{Complaint, Fault};
use grasp_core::sync::{Note, Source, Status};
use grasp_core::{EventId, RelayUrl, SyncLimits};
use rustc_hash::FxHashSet;

pub use self::hunt::HuntNotes;
use self::ration::{Ration, Untold, Whose};
use crate::metrics::Metrics;

pub struct Notes {
    metrics: Arc<Metrics>,
    consolidate_at: usize,
    stale_after: Duration,
    ration: Ration<Matter, RelayUrl>,
    /// Relays that have labels.
    labelled: FxHashSet<String>,
}

/// What a line is about, where there may be too many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Matter {
    /// Connections that come and go.
    Line,
    Failure,
    Death,
    History,
    Gap,
    SustainedGap,
    Lack,
    Misbehaviour,
    Shunned,
    Refusal,
}

impl Matter {
    fn summary(self) -> &'static str {
        match self {
            Matter::Line => "more connections came and went",
            Matter::Failure => "more connections failed",
            Matter::Death => "more relays are dead",
            Matter::History => "more histories are read anew or in another way",
            Matter::Gap => "more sync gaps were found during catchup",
            Matter::SustainedGap => "more sustained sync gaps were found during daily catchup",
            Matter::Lack => "more repositories of which the relay is missing events",
            Matter::Misbehaviour => "more wrong things came from the relay",
            Matter::Shunned => "more relays that misbehave were hung up on",
            Matter::Refusal => "more requests were refused by the relay",
        }
    }
}

impl Notes {
    pub fn new(metrics: Arc<Metrics>, limits: &SyncLimits) -> Self {
        Self {
            metrics,
            consolidate_at: limits.consolidate_at,
            stale_after: limits.stale_after,
            ration: Ration::new(),
            labelled: FxHashSet::default(),
        }
    }

    pub fn take(&mut self, note: Note, now: Instant) {
        match note {
            Note::Connected { .. }
            | Note::ConnectFailed { .. }
            | Note::Lost { .. }
            | Note::Dead { .. }
            | Note::GaveWay { .. }
            | Note::Left { .. } => self.on_line(note, now),
            Note::Stale { .. }
            | Note::Daily { .. }
            | Note::Consolidating { .. }
            | Note::NoNegentropy { .. }
            | Note::SecondTooFull { .. } => self.on_history(&note, now),
            Note::Found {
                relay,
                id,
                source,
                gap,
            } => self.found(relay, id, source, gap, now),
            Note::Lacks { .. }
            | Note::Refused { .. }
            | Note::Misbehaved { .. }
            | Note::Shunned { .. }
            | Note::TooManyRelays
            | Note::TooManyRoots => self.on_trouble(note, now),
        }
    }

    /// Connections that come and go.
    fn on_line(&mut self, note: Note, now: Instant) {
        match note {
            Note::Connected { relay } => {
                self.attempted(&relay, true);
                if self.may_tell(&relay, Matter::Line, now) {
                    tracing::info!(%relay, "connected");
                }
            }
            Note::ConnectFailed {
                relay,
                end,
                attempt,
                retry_secs,
            } => {
                self.attempted(&relay, false);
                if self.may_tell(&relay, Matter::Failure, now) {
                    tracing::warn!(%relay, why = ?end, attempt, retry_secs, "connection failed");
                }
            }
            Note::Lost { relay, end } if self.may_tell(&relay, Matter::Line, now) => {
                tracing::info!(%relay, why = ?end, "connection lost");
            }
            Note::Dead {
                relay,
                failing_secs,
            } if self.may_tell(&relay, Matter::Death, now) => {
                tracing::error!(%relay, failing_secs, "relay is dead");
            }
            Note::GaveWay { relay } if self.may_tell(&relay, Matter::Line, now) => {
                tracing::info!("Disconnecting relay {relay} (its place is wanted by others)");
            }
            Note::Left { relay } if self.may_tell(&relay, Matter::Line, now) => {
                tracing::info!("Disconnecting relay {relay} (no repos)");
            }
            _ => {}
        }
    }

    /// How what a relay has is read.
    fn on_history(&mut self, note: &Note, now: Instant) {
        let (Note::Stale { relay }
        | Note::Daily { relay }
        | Note::Consolidating { relay, .. }
        | Note::NoNegentropy { relay }
        | Note::SecondTooFull { relay, .. }) = note
        else {
            return;
        };
        if !self.may_tell(relay, Matter::History, now) {
            return;
        }
        match note {
            Note::Stale { .. } => {
                let minutes = self.stale_after.as_secs() / 60;
                tracing::info!(
                    "Reconnect after >{minutes}min for {relay}, clearing state for fresh sync"
                );
            }
            Note::Daily { .. } => tracing::info!("Daily sync triggered for {relay}"),
            Note::Consolidating { filters, .. } => {
                let most = self.consolidate_at;
                tracing::info!(
                    filters,
                    "Consolidating filters for {relay} (count > {most})"
                );
            }
            Note::NoNegentropy { .. } => {
                tracing::warn!(%relay, "no NIP-77 there: its history is read page by page");
            }
            Note::SecondTooFull { at, .. } => {
                let second = at.0;
                tracing::warn!(%relay, second, "more events in one second than the relay gives");
            }
            _ => {}
        }
    }

    /// What an operator may want to look into.
    fn on_trouble(&mut self, note: Note, now: Instant) {
        match note {
            Note::Lacks { relay, repo, count } if self.may_tell(&relay, Matter::Lack, now) => {
                let repo = repo.map_or_else(|| "-".to_owned(), |repo| repo.to_string());
                tracing::warn!(%relay, repo, count, "relay is missing events that are here");
            }
            Note::Refused {
                relay,
                why,
                retry_secs,
            } => self.refused(&relay, why, retry_secs, now),
            Note::Misbehaved { relay, fault } => self.misbehaved(&relay, fault, now),
            Note::Shunned { relay } if self.may_tell(&relay, Matter::Shunned, now) => {
                tracing::warn!(%relay, "hung up on a relay that misbehaves");
            }
            Note::TooManyRelays => tracing::warn!("more relays are named than are taken in"),
            Note::TooManyRoots => {
                tracing::warn!("more issues, patches and pull requests than are watched");
            }
            _ => {}
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
        self.ration.may_tell(matter, Some(relay), now)
    }

    /// Counts what was not told, and shows how sync stands.
    pub fn show(&mut self, status: &Status, now: Instant) {
        for untold in self.ration.untold(now) {
            count_untold(&untold);
        }
        self.metrics.sync.show(status);
        let known: FxHashSet<String> = status.relays.iter().map(|r| r.url.clone()).collect();
        for gone in self.labelled.difference(&known) {
            self.metrics.sync.forget(gone);
        }
        self.labelled = known;
    }
}

fn count_untold(untold: &Untold<Matter, RelayUrl>) {
    let (count, summary) = (untold.count, untold.matter.summary());
    let relay = match &untold.whose {
        Whose::One(relay) => Some(tracing::field::display(relay)),
        Whose::Many | Whose::Nobody => None,
    };
    match untold.matter {
        Matter::Line | Matter::History => tracing::info!(relay, count, "{summary}"),
        _ => tracing::warn!(relay, count, "{summary}"),
    }
}

#[cfg(test)]
mod tests;
