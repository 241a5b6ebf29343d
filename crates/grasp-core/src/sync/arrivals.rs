//! Events that other relays bring, from their arrival to the verdict on them, and what the verdict
//! means for sync.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::batch::Via;
use super::downloads::NOBODY;
use super::io::{Fault, ToRelay};
use super::memo::Holder;
use super::memory::{Dismissed, Fate};
use super::note::{Note, Source};
use super::subs::{Purpose, Sub};
use super::{Here, Sync, SyncEffect, Timer};
use crate::clock::{Mono, Now, Timestamp};
use crate::event::{Event, Kind};
use crate::facts::Seq;
use crate::id::EventId;
use crate::limits::SyncLimits;
use crate::shares::Shares;
use crate::ticket::{Delivery, RelayNo, Ticket};

/// Events that are asked for again later, about 250 bytes each: 2.5 MB. Beyond it the daily
/// comparison finds them.
const MAX_LATER: usize = 10_000;
/// Early events that are asked for when one that they waited for has come.
const MAX_RECALLED: usize = 1_000;
/// Relays that are asked for an event of which nobody knows who has it.
const ASKED: usize = 4;
/// Live events of one relay in a minute that are not taken: each costs a signature and a commit, and
/// no request of ours has a limit for it. Whatever is busy on honest relays is a hundredth of it.
pub(super) const REFUSED_PER_MINUTE: u32 = 6_000;
/// How much one live event weighs in the average of their lag.
const LAG_WEIGHT: u64 = 8;

#[derive(Debug)]
pub struct Arrival {
    pub event: Arc<Event>,
    pub from: Delivery,
    pub at: Timestamp,
    /// Why it was asked for; none for a live one.
    via: Option<Via>,
}

/// The verdict on an event that another relay brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Stored or held, and new.
    New,
    Known,
    Dismissed(Fate),
    /// It could not be taken for a reason that passes.
    NotNow,
}

/// Events that could not be taken, or not be asked for, for a reason that passes; with the relay
/// that brought them.
#[derive(Debug, Default)]
pub struct Later {
    due: BTreeMap<(Mono, EventId), Holder>,
    by_holder: BTreeSet<(Holder, Mono, EventId)>,
    holders: Shares<Holder>,
    tries: FxHashMap<EventId, u32>,
    /// Those that there was no room for in this turn.
    unasked: Vec<EventId>,
}

impl Later {
    fn add(&mut self, id: EventId, relay: Holder, now: Mono, limits: &SyncLimits) -> Mono {
        if self.tries.len() >= MAX_LATER {
            self.tries.clear();
        }
        let tries = self.tries.entry(id).or_default();
        *tries += 1;
        let at = now + limits.refusal.delay(*tries);
        self.remove(at, id);
        self.due.insert((at, id), relay);
        self.by_holder.insert((relay, at, id));
        self.holders.add(relay, 1);
        if self.due.len() > MAX_LATER {
            self.evict();
        }
        at
    }

    /// Of whoever has most, the one that would be asked for last makes way.
    fn evict(&mut self) {
        let Some((largest, _)) = self.holders.largest() else {
            return;
        };
        let last = (largest, Mono(Duration::MAX), EventId([255; 32]));
        if let Some((_, at, id)) = self.by_holder.range(..=last).next_back().copied() {
            self.remove(at, id);
            self.tries.remove(&id);
        }
    }

    fn remove(&mut self, at: Mono, id: EventId) -> Option<Holder> {
        let relay = self.due.remove(&(at, id))?;
        self.by_holder.remove(&(relay, at, id));
        self.holders.remove(relay, 1);
        Some(relay)
    }

    fn next(&self) -> Option<Mono> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    fn take(&mut self, now: Mono) -> Option<(EventId, Holder)> {
        let ((at, id), _) = self.due.first_key_value()?;
        let (at, id) = (*at, *id);
        match at > now {
            true => None,
            false => Some((id, self.remove(at, id)?)),
        }
    }

    fn forget(&mut self, id: &EventId) {
        self.tries.remove(id);
    }
}

impl Sync {
    /// An event came from another relay and is about to be judged.
    pub fn arrived(&mut self, ticket: Ticket, event: Arc<Event>, from: Delivery, now: Timestamp) {
        if self.is_on() {
            let via = self.via(&event.id, from);
            let arrival = Arrival {
                event,
                from,
                at: now,
                via,
            };
            self.arrivals.insert(ticket, arrival);
        }
    }

    /// The event of a ticket, if another relay brought it.
    pub fn arrival(&self, ticket: Ticket) -> Option<&Arc<Event>> {
        self.arrivals.get(&ticket).map(|arrival| &arrival.event)
    }

    /// It is judged; acted upon at the end of the turn.
    pub fn judged(&mut self, ticket: Ticket, outcome: Outcome) {
        if let Some(arrival) = self.arrivals.remove(&ticket) {
            self.judged.push_back((arrival, outcome));
        }
    }

    /// When the oldest event of a relay came that is not judged yet.
    pub(super) fn oldest_arrival(&self, relay: RelayNo) -> Option<Timestamp> {
        let of_relay = self.arrivals.values();
        let of_relay = of_relay.filter(|arrival| arrival.from.relay == relay);
        of_relay.map(|arrival| arrival.at).min()
    }

    /// The same for all relays at once.
    pub(super) fn oldest_arrivals(&self) -> FxHashMap<RelayNo, Timestamp> {
        let mut oldest: FxHashMap<RelayNo, Timestamp> = FxHashMap::default();
        for arrival in self.arrivals.values() {
            let at = oldest.entry(arrival.from.relay).or_insert(arrival.at);
            *at = arrival.at.min(*at);
        }
        oldest
    }

    pub(super) fn on_judged(&mut self, arrival: &Arrival, outcome: Outcome, now: Now) {
        let (event, from) = (&arrival.event, arrival.from);
        let is_open = self
            .peers
            .get(&from.relay)
            .is_some_and(|peer| peer.link.conn() == Some(from.conn));
        let refused = match outcome {
            Outcome::Dismissed(_) => true,
            Outcome::Known => self.memo.get(&event.id).is_some(),
            Outcome::New | Outcome::NotNow => false,
        };
        match outcome {
            Outcome::New => self.count(arrival, now),
            Outcome::Known => self.memo.note_shown(event.id, from.relay),
            Outcome::Dismissed(fate) => {
                let (at, kind, relay) = (event.created_at, event.kind, Some(from.relay));
                self.dismiss_row(event.id, at, kind, fate, relay);
                self.memo.note_shown(event.id, from.relay);
            }
            Outcome::NotNow => {
                self.put_off(event.id, Some(from.relay), now);
            }
        }
        self.came(&event.id, now);
        if is_open {
            let (id, at) = (event.id, event.created_at);
            self.took(from.relay, from.sub, id, at, now);
            self.again.insert(from.relay);
            if refused && arrival.via.is_none() {
                self.count_refused(from, now);
            }
        }
    }

    /// A live event was not taken. Too many of them are a flood, whoever publishes them there.
    fn count_refused(&mut self, from: Delivery, now: Now) {
        if self.refused_live.allow(from.relay, now.mono) {
            return;
        }
        // What was sent before it is closed may still be on its way afterwards.
        let watches = |sub: &mut Sub| sub.is_live() && sub.is_over();
        if self.sub(from.relay, from.sub).is_some_and(watches) {
            self.ask(from.relay, from.conn, ToRelay::Unsubscribe(from.sub));
            self.on_bad(from.relay, Some(from.sub), Fault::Flood, now);
        }
    }

    /// A new event: how it was found, and whether it should have come live.
    fn count(&mut self, arrival: &Arrival, now: Now) {
        let (event, from, via) = (&arrival.event, arrival.from, arrival.via);
        let source = via.map_or(Source::Live, Via::source);
        let gap = via.is_some_and(Via::shows_gaps);
        self.totals.add(source);
        let Some(peer) = self.peers.get_mut(&from.relay) else {
            return;
        };
        match source {
            Source::Daily => peer.record.daily += 1,
            Source::CatchUp => peer.record.catch_up += 1,
            Source::Live | Source::Direct => {
                peer.record.live += 1;
                let lag = now.unix.0.saturating_sub(event.created_at.0) * 1_000;
                let before = peer.lag_ms.unwrap_or(lag);
                peer.lag_ms = Some((before * (LAG_WEIGHT - 1) + lag) / LAG_WEIGHT);
            }
        }
        peer.record.gaps += u64::from(gap);
        peer.dirty = true;
        let id = event.id;
        self.tell(from.relay, |relay| Note::Found {
            relay,
            id,
            source,
            gap,
        });
    }

    /// Why the request was made that brought an event; none for a live one.
    fn via(&self, id: &EventId, from: Delivery) -> Option<Via> {
        let session = self.peers.get(&from.relay)?.session()?;
        let sub = session.subs.get(from.sub)?;
        let batch = match &sub.purpose {
            Purpose::Live { .. } if sub.is_over() => return None,
            Purpose::Live { batch: None, .. } => return Some(Via::First),
            Purpose::Fetch { .. } => self.downloads.waiting(id).next(),
            _ => sub.batch(),
        };
        let via = batch.and_then(|batch| self.batches.get(&batch));
        Some(via.map_or(Via::First, |(_, via)| *via))
    }

    /// It came before, and need not come again.
    pub fn dismisses(&self, id: &EventId, now: Timestamp) -> bool {
        self.memo.dismisses(id, now)
    }

    /// Keeps in mind that an event need not be fetched again.
    pub fn dismiss(&mut self, event: &Event, fate: Fate) {
        if self.is_on() {
            self.dismiss_row(event.id, event.created_at, event.kind, fate, None);
        }
    }

    pub(super) fn dismiss_row(
        &mut self,
        id: EventId,
        at: Timestamp,
        kind: Kind,
        fate: Fate,
        holder: Holder,
    ) {
        let row = Dismissed {
            id,
            at,
            announcement: matches!(kind, Kind::ANNOUNCEMENT | Kind::STATE),
            fate,
        };
        if self.memo.get(&id) == Some(&row) {
            return;
        }
        for gone in self.memo.dismiss(row.clone(), holder) {
            self.effects.push_back(SyncEffect::Recall(gone));
        }
        self.effects.push_back(SyncEffect::Dismiss(row));
    }

    /// An event is stored or held: nobody need wait for it, and what waited for it is asked for
    /// again.
    pub fn accepted(&mut self, id: &EventId, causes: &[u64], named: &[EventId], now: Now) {
        if !self.is_on() {
            return;
        }
        self.came(id, now);
        self.later.forget(id);
        self.sought.accepted(id);
        if self.memo.recall(id) {
            self.effects.push_back(SyncEffect::Recall(*id));
        }
        if self.memo.early() == 0 {
            return;
        }
        let mut ids = self.memo.waiting_for(causes);
        ids.extend(named.iter().filter(|id| self.memo.get(id).is_some()));
        self.recall_all(ids, now);
    }

    /// Some events wait for others.
    pub fn expects_early(&self) -> bool {
        self.is_on() && self.memo.early() > 0
    }

    /// Something has changed that others may have waited for.
    pub fn look_again(&mut self, causes: &[u64], now: Now) {
        if self.expects_early() {
            let ids = self.memo.waiting_for(causes);
            self.recall_all(ids, now);
        }
    }

    /// Somebody speaks of an event that was left alone.
    pub fn look_for(&mut self, id: EventId, now: Now) {
        if self.is_on() {
            self.recall(id, true, now);
        }
    }

    fn recall_all(&mut self, ids: BTreeSet<EventId>, now: Now) {
        for (n, id) in ids.into_iter().enumerate() {
            self.recall(id, n < MAX_RECALLED, now);
        }
    }

    /// An event that came too early may come now. Those that are not asked for are found when all
    /// is compared.
    fn recall(&mut self, id: EventId, ask: bool, now: Now) {
        let row = self.memo.get(&id).cloned();
        let Some(row) = row.filter(|row| row.fate != Fate::ForGood) else {
            return;
        };
        let shown_by = self.memo.shown_by(&id);
        self.memo.recall(&id);
        self.effects.push_back(SyncEffect::Recall(id));
        if !ask {
            return;
        }
        let is_up = |relay: &RelayNo| self.peers.get(relay).is_some_and(|peer| peer.link.is_up());
        match shown_by.filter(is_up) {
            Some(relay) => {
                if row.announcement {
                    self.sought.add(id, relay, row.at);
                }
                if self.downloads.need(relay, NOBODY, id) {
                    self.again.insert(relay);
                }
                // If it does not deliver, others may.
                self.ask_around(id);
                self.note_unasked(id);
            }
            None if row.announcement => self.look_everywhere_for(id, row.at, now),
            None => {
                self.ask_around(id);
                self.note_unasked(id);
            }
        }
    }

    fn note_unasked(&mut self, id: EventId) {
        if !self.downloads.is_wanted(&id) && self.later.unasked.len() < MAX_RECALLED {
            self.later.unasked.push(id);
        }
    }

    /// At the end of a turn: what there was no room for is asked for later.
    pub(super) fn put_off_unasked(&mut self, now: Now) {
        for id in std::mem::take(&mut self.later.unasked) {
            self.put_off(id, None, now);
        }
    }

    /// An event of that relay could not be kept.
    pub fn ask_again_later(&mut self, id: EventId, relay: RelayNo, now: Now) {
        if self.is_on() {
            self.put_off(id, Some(relay), now);
        }
    }

    fn put_off(&mut self, id: EventId, relay: Option<RelayNo>, now: Now) {
        let at = self.later.add(id, relay, now.mono, &self.limits);
        self.agenda.add(at, Timer::Later);
    }

    /// Something was said about these.
    pub fn touch(&mut self, roots: impl Iterator<Item = EventId>, at: Timestamp) {
        for id in roots {
            if let Some(root) = self.targets.repos.find_root(&id) {
                self.targets.repos.touch(root, at);
            }
        }
    }

    pub fn stored(&mut self, seq: Seq) {
        self.latest = self.latest.max(Some(seq));
    }

    /// A user brought a new event.
    pub fn count_direct(&mut self) {
        self.totals.add(Source::Direct);
    }

    /// Asks a few relays in turn for an event, without knowing who has it.
    fn ask_around(&mut self, id: EventId) {
        let up = self.peers.iter().filter(|(_, peer)| peer.link.is_up());
        let up: Vec<RelayNo> = up.map(|(relay, _)| *relay).take(ASKED).collect();
        for relay in up {
            if self.downloads.need(relay, NOBODY, id) {
                self.again.insert(relay);
            }
        }
    }

    /// A request for it is still open.
    fn is_fetched(&self, id: &EventId) -> bool {
        let mut sessions = self.peers.values().filter_map(|peer| peer.session());
        sessions.any(|session| session.fetches_event(id))
    }

    pub(super) fn ask_later(&mut self, now: Now, here: &dyn Here) {
        while let Some((id, relay)) = self.later.take(now.mono) {
            if here.has(&id) {
                self.later.forget(&id);
                continue;
            }
            if self.is_fetched(&id) {
                self.put_off(id, relay, now);
                continue;
            }
            let is_up =
                |relay: &RelayNo| self.peers.get(relay).is_some_and(|peer| peer.link.is_up());
            if let Some(relay) = relay.filter(is_up)
                && self.downloads.need(relay, NOBODY, id)
            {
                self.again.insert(relay);
            }
            // If it does not deliver, others may.
            self.ask_around(id);
            if !self.downloads.is_wanted(&id) {
                self.put_off(id, relay, now);
            }
        }
        if let Some(at) = self.later.next() {
            self.agenda.add(at, Timer::Later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u32) -> EventId {
        let mut id = [0; 32];
        id[..4].copy_from_slice(&n.to_be_bytes());
        EventId(id)
    }

    #[test]
    fn what_one_relay_has_us_put_off_displaces_nobody_elses() {
        let mut later = Later::default();
        let limits = SyncLimits::default();
        let start = Mono(Duration::ZERO);
        for n in 0..2 * MAX_LATER as u32 {
            later.add(id(n), Some(RelayNo(1)), start, &limits);
        }
        let other = later.add(id(999_999), Some(RelayNo(2)), start, &limits);
        assert_eq!(later.due.len(), MAX_LATER);
        assert_eq!(later.by_holder.len(), MAX_LATER);
        assert!(later.due.contains_key(&(other, id(999_999))));
        let mut taken = 0;
        while later.take(other).is_some() {
            taken += 1;
        }
        assert_eq!((taken, later.holders.holders()), (MAX_LATER, 0));
    }
}
