//! What is watched live at a relay: new items as they come, packed anew when the subscriptions
//! have become many, the recently active ones where there is no room for all.

use std::collections::BTreeSet;
use std::time::Duration;

use super::batch::{Doubt, Via};
use super::downloads::BatchNo;
use super::filters::{Chunk, chunks};
use super::io::ToRelay;
use super::items::{Items, RootIx};
use super::note::Note;
use super::session::{Outgoing, Session};
use super::subs::{Purpose, Sub, filters_of};
use super::work::{FLOOD, is_void};
use super::{Sync, Timer};
use crate::clock::{Now, Timestamp};
use crate::filter::Filter;
use crate::ticket::{RelayNo, SubNo};

/// Subscriptions are packed anew at most this often.
const REPACK: Duration = Duration::from_secs(60);

/// Watches that go, and what is opened in their place.
struct Packed {
    old: BTreeSet<SubNo>,
    requests: Vec<Vec<Chunk>>,
    /// What is opened watches all that goes.
    covers: bool,
}

impl Sync {
    /// Watches these from now on. With a batch, what is stored already is wanted too, all in the
    /// same requests. False if there is no room for all of it.
    pub(super) fn watch(
        &mut self,
        relay: RelayNo,
        items: &Items,
        batch: Option<BatchNo>,
        now: Now,
    ) -> bool {
        let Some(peer) = self.peers.get(&relay) else {
            return false;
        };
        let Some(session) = peer.session() else {
            return false;
        };
        let new = items.without(&session.live);
        let whole = batch.is_none() || new == *items;
        if new.is_empty() || !whole {
            return whole;
        }
        let requests = self.pack(relay, &new);
        let mut covered = Items::default();
        for chunk in requests.iter().flatten() {
            covered.add(&chunk.items());
        }
        let room = match peer.capabilities.may_watch(session.live.len() + new.len()) {
            true => session.room_to_watch(&peer.capabilities),
            false => 0,
        };
        let filters: usize = requests.iter().map(|request| filters_of(request)).sum();
        let many = session.live_filters() + filters > self.limits.consolidate_at;
        let full = requests.len() > room;
        if (full || many) && self.repack(relay, &requests, full, now) {
            return batch.is_none();
        }
        let fits = requests.len() <= room && covered == new;
        if batch.is_some() && !fits {
            return false;
        }
        for request in requests.into_iter().take(room) {
            self.open_watch(relay, request, batch, now);
        }
        if !fits {
            self.expect_turn(relay, now);
        }
        fits
    }

    /// Chunks that fit the relay's requests. Without room for a filter of each letter, only
    /// announcements can be watched.
    fn pack(&self, relay: RelayNo, items: &Items) -> Vec<Vec<Chunk>> {
        let Some(peer) = self.peers.get(&relay) else {
            return Vec::new();
        };
        let index = &self.targets.repos;
        let mut chunks = chunks(items, index, peer.capabilities.cut(&self.limits));
        if peer.capabilities.filters < 3 {
            chunks.retain(|chunk| chunk.layer.letters().is_empty());
        }
        peer.capabilities.pack(chunks, index)
    }

    fn open_watch(&mut self, relay: RelayNo, chunks: Vec<Chunk>, batch: Option<BatchNo>, now: Now) {
        let index = &self.targets.repos;
        let filters = chunks.iter().flat_map(|chunk| chunk.filters(index, None));
        let filters = filters.filter(|filter| !is_void(filter));
        // Whatever is published from now on, however it is dated; of the past next to nothing,
        // unless that is wanted too.
        let limit = match batch {
            Some(_) => self.limit_of(relay),
            None => Some(1),
        };
        let filters: Vec<Filter> = filters.map(|filter| Filter { limit, ..filter }).collect();
        if !filters.is_empty() {
            let purpose = Purpose::Live { chunks, batch };
            let most = limit.unwrap_or_default() * filters.len() * 2;
            let most = u32::try_from(most).unwrap_or(u32::MAX).max(FLOOD);
            self.subscribe(relay, purpose, filters, Some(most), now);
        }
    }

    /// Puts what is watched into fewer requests. False if nothing would be gained by it.
    fn repack(&mut self, relay: RelayNo, new: &[Vec<Chunk>], full: bool, now: Now) -> bool {
        if !self.may_repack(relay, full, now) {
            return false;
        }
        let merged = self.merge_small(relay, new);
        let packed = merged.or_else(|| self.displace(relay, full, now));
        let Some(packed) = packed else {
            return false;
        };
        self.replace(relay, packed, new, now);
        true
    }

    fn may_repack(&mut self, relay: RelayNo, full: bool, now: Now) -> bool {
        let Some(session) = self.session_mut(relay) else {
            return false;
        };
        let lately = session.looked.is_some_and(|at| now.mono < at + REPACK);
        let unanswered = session.subs.busy().any(|(_, sub)| sub.is_live());
        if lately && !full || unanswered || session.outgoing.is_some() {
            return false;
        }
        session.looked = Some(now.mono);
        true
    }

    /// The small ones among themselves: each item is moved a few times, until its request is full.
    fn merge_small(&self, relay: RelayNo, new: &[Vec<Chunk>]) -> Option<Packed> {
        let peer = self.peers.get(&relay)?;
        let session = peer.session()?;
        let most = self.limits.tags_per_filter as u64;
        let (mut old, mut items) = (BTreeSet::new(), Items::default());
        for (no, sub) in session.small(most) {
            old.insert(no);
            items.add(&sub.watched());
        }
        for chunk in new.iter().flatten() {
            items.add(&chunk.items());
        }
        let requests = self.pack(relay, &items);
        let room = old.len() + session.room_to_watch(&peer.capabilities);
        let fits = requests.len() < old.len() + new.len() && requests.len() <= room;
        let covers = true;
        (fits && !requests.is_empty()).then_some(Packed {
            old,
            requests,
            covers,
        })
    }

    /// Where no room is left, others take the place of those that were watched, now and then.
    fn displace(&self, relay: RelayNo, full: bool, now: Now) -> Option<Packed> {
        let (peer, known) = (self.peers.get(&relay)?, self.targets.relays.get(relay)?);
        let session = peer.session()?;
        let lately = now.mono.0.saturating_sub(self.limits.reconcile_every);
        if !full || session.repacked.is_some_and(|at| at.0 > lately) {
            return None;
        }
        let room = session.room_to_watch(&peer.capabilities) + session.live_subs();
        let requests = self.most_active(relay, known.target.clone(), room);
        let old = session.live().map(|(no, _)| no).collect();
        let covers = false;
        (!requests.is_empty()).then_some(Packed {
            old,
            requests,
            covers,
        })
    }

    /// The old ones are closed when the new ones have been answered, where the relay has room for
    /// both.
    fn replace(&mut self, relay: RelayNo, packed: Packed, new: &[Vec<Chunk>], now: Now) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        let allowed = peer.capabilities.subscriptions as usize;
        let Some(session) = peer.session_mut() else {
            return;
        };
        session.repacked = Some(now.mono);
        let filters = session.live_filters();
        let has_room = session.subs.len() + packed.requests.len() <= allowed;
        // Bitmaps of all that is watched: not for each new root.
        let mut asked = (!packed.covers).then(|| session.live.clone());
        self.tell(relay, |relay| Note::Consolidating { relay, filters });
        match has_room {
            true => self.open_beside(relay, packed, now),
            false => self.open_instead(relay, packed, now),
        }
        if let Some(asked) = &mut asked {
            for chunk in new.iter().flatten() {
                asked.add(&chunk.items());
            }
            self.on_watched(relay, asked);
            self.expect_turn_if_needed(relay, now);
        }
    }

    fn open_beside(&mut self, relay: RelayNo, packed: Packed, now: Now) {
        let before = self.next_sub(relay);
        for request in packed.requests {
            self.open_watch(relay, request, None, now);
        }
        if let Some(session) = self.session_mut(relay) {
            let opened = session.subs.busy().map(|(no, _)| no);
            session.outgoing = Some(Outgoing {
                awaited: opened.filter(|no| *no >= before).collect(),
                old: packed.old,
                covered: packed.covers,
            });
        }
        self.retire(relay, now);
    }

    fn open_instead(&mut self, relay: RelayNo, packed: Packed, now: Now) {
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        let mut moved = Items::default();
        for sub in packed.old.iter().filter_map(|no| session.subs.get(*no)) {
            moved.add(&sub.watched());
        }
        session.close_watches(&packed.old);
        session.fail(&moved);
        self.unsubscribe(relay, &packed.old);
        for request in packed.requests {
            self.open_watch(relay, request, None, now);
        }
        self.doubt(relay, &moved, now);
    }

    /// It goes on to watch: those in whose place it was opened may go.
    pub(super) fn answered(&mut self, relay: RelayNo, no: SubNo) {
        if let Some(session) = self.session_mut(relay) {
            session.answered(no);
            self.again.insert(relay);
        }
    }

    /// It was opened in the place of others and is not answered: those go all the same, and what
    /// was on its way for them is caught up with.
    pub(super) fn replaced_in_silence(&mut self, relay: RelayNo, no: SubNo, now: Now) {
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        let outgoing = session.outgoing.as_ref();
        if !outgoing.is_some_and(|outgoing| outgoing.awaited.contains(&no)) {
            return;
        }
        let items = session.subs.get(no).map(Sub::watched).unwrap_or_default();
        session.fail(&items);
        self.answered(relay, no);
        self.doubt(relay, &items, now);
    }

    /// Closes the watches whose successors have been answered.
    fn retire(&mut self, relay: RelayNo, now: Now) {
        let retired = self.session_mut(relay).and_then(Session::retire);
        let Some(retired) = retired else {
            return;
        };
        self.unsubscribe(relay, &retired.old);
        if !retired.covered {
            self.expect_turn_if_needed(relay, now);
        }
    }

    fn next_sub(&self, relay: RelayNo) -> SubNo {
        let session = self.peers.get(&relay).and_then(|peer| peer.session());
        session.map_or(SubNo(0), |session| session.subs.next())
    }

    fn expect_turn_if_needed(&mut self, relay: RelayNo, now: Now) {
        if !self.unwatched(relay).is_empty() {
            self.expect_turn(relay, now);
        }
    }

    /// As many of the items as fit so many requests: the roots that something happened to lately.
    fn most_active(&self, relay: RelayNo, mut items: Items, room: usize) -> Vec<Vec<Chunk>> {
        loop {
            let requests = self.pack(relay, &items);
            let peer = self.peers.get(&relay);
            let allowed = peer.is_none_or(|peer| peer.capabilities.may_watch(items.len()));
            if allowed && requests.len() <= room || items.roots.is_empty() {
                return requests.into_iter().take(room).collect();
            }
            let all = items.roots.len() as usize;
            let keep = (all * room / requests.len().max(1)).min(all - 1 - all / 10);
            let mut roots: Vec<u32> = items.roots.iter().collect();
            let index = &self.targets.repos;
            roots.sort_by_key(|root| std::cmp::Reverse(index.active(RootIx(*root))));
            roots.truncate(keep);
            items.roots = roots.into_iter().collect();
        }
    }

    fn unsubscribe(&mut self, relay: RelayNo, subs: &BTreeSet<SubNo>) {
        let Some(conn) = self.session_mut(relay).map(|session| session.conn) else {
            return;
        };
        for no in subs {
            self.ask(relay, conn, ToRelay::Unsubscribe(*no));
        }
    }

    /// Opens again what the relay ended, and closes what it has no room for any more.
    pub(super) fn mend_watches(&mut self, relay: RelayNo, now: Now) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        if peer.is_paused(now.mono) {
            return;
        }
        let capabilities = peer.capabilities.clone();
        let Some(session) = peer.session_mut() else {
            return;
        };
        let excess = session.live_subs();
        let excess = excess.saturating_sub(session.watch_slots(&capabilities));
        let newest = session.live().rev().take(excess);
        let excess: Vec<SubNo> = newest.map(|(no, _)| no).collect();
        let unwatched = std::mem::take(&mut session.unwatched);
        for no in excess {
            self.end_watch(relay, no, now);
        }
        self.retire(relay, now);
        if unwatched {
            self.watch_more(relay, now);
        }
    }

    /// Watches what is not watched, as far as there is room.
    fn watch_more(&mut self, relay: RelayNo, now: Now) {
        let unwatched = self.unwatched(relay);
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        let before = session.live.clone();
        self.watch(relay, &unwatched, None, now);
        self.on_watched(relay, &before);
    }

    /// What is watched beyond this was not so far: since the last turn nobody has looked at it.
    fn on_watched(&mut self, relay: RelayNo, before: &Items) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        let since = peer.turned.saturating_sub(self.limits.overlap);
        let Some(session) = peer.session_mut() else {
            return;
        };
        let newly = session.live.without(before);
        session.fail(&newly);
        self.doubt_since(relay, &newly, since, Via::Turn);
    }

    fn end_watch(&mut self, relay: RelayNo, no: SubNo, now: Now) {
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        let conn = session.conn;
        let Some(sub) = session.close(no) else {
            return;
        };
        self.ask(relay, conn, ToRelay::Unsubscribe(no));
        self.on_unwatched(relay, sub, now);
    }

    /// A watch has ended: what it was for is caught up with, and what is on its way for it is
    /// looked at again.
    pub(super) fn on_unwatched(&mut self, relay: RelayNo, sub: Sub, now: Now) {
        let Purpose::Live { chunks, batch } = &sub.purpose else {
            return;
        };
        for chunk in chunks {
            self.doubt(relay, &chunk.items(), now);
        }
        self.expect_turn(relay, now);
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        // Where nothing can be watched, turns look back far enough.
        if !session.is_unwatchable() {
            for chunk in chunks {
                session.fail(&chunk.items());
            }
        }
        if let Some(no) = batch.filter(|_| !sub.is_over()) {
            self.fail(relay, no, now);
        }
    }

    /// These were not watched for a moment: what came meanwhile is to be caught up with.
    pub(super) fn doubt(&mut self, relay: RelayNo, items: &Items, now: Now) {
        let since = now.unix.saturating_sub(self.limits.overlap);
        self.doubt_since(relay, items, since, Via::CatchUp);
    }

    pub(super) fn doubt_since(
        &mut self,
        relay: RelayNo,
        items: &Items,
        since: Timestamp,
        via: Via,
    ) {
        let known = self.targets.relays.get_mut(relay);
        let (Some(known), Some(peer)) = (known, self.peers.get_mut(&relay)) else {
            return;
        };
        // Those that are in doubt already may be so from a later time on.
        let mut doubted = peer.doubts.items();
        doubted.keep(items);
        let mut items = known.doubt(items);
        items.add(&doubted);
        if !items.is_empty() {
            let since = Some(since);
            peer.doubts.add(Doubt { items, since, via });
        }
    }

    /// What is wanted and not watched.
    pub(super) fn unwatched(&self, relay: RelayNo) -> Items {
        let known = self.targets.relays.get(relay);
        let session = self.peers.get(&relay).and_then(|peer| peer.session());
        match (known, session) {
            (Some(known), Some(session)) => known.target.without(&session.live),
            _ => Items::default(),
        }
    }

    pub(super) fn expect_turn(&mut self, relay: RelayNo, now: Now) {
        let at = now.mono + self.limits.reconcile_every;
        if let Some(peer) = self.peers.get_mut(&relay)
            && peer.next_turn.is_none()
        {
            peer.next_turn = Some(at);
            peer.turned = now.unix;
            self.agenda.add(at, Timer::Turn(relay));
        }
    }

    /// Watches what there is room for now, and compares the rest.
    pub(super) fn take_turn(&mut self, relay: RelayNo, now: Now) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        if let Some(at) = peer.next_turn.filter(|at| *at > now.mono) {
            return self.agenda.add(at, Timer::Turn(relay));
        }
        peer.next_turn = None;
        let since = peer.turned.saturating_sub(self.limits.overlap);
        let unwatched = self.unwatched(relay);
        if unwatched.is_empty() {
            return;
        }
        self.watch_more(relay, now);
        self.doubt_since(relay, &unwatched, since, Via::Turn);
        let pending = self.targets.relays.get(relay);
        let pending = pending.is_some_and(|known| known.pending.overlaps(&unwatched));
        let turned = self.peers.get(&relay).map(|peer| peer.turned);
        if !self.unwatched(relay).is_empty() {
            self.expect_turn(relay, now);
        }
        // What is on its way was not looked at: the next turn reaches back as far.
        if let (Some(peer), Some(turned), true) = (self.peers.get_mut(&relay), turned, pending) {
            peer.turned = turned;
        }
        self.again.insert(relay);
    }
}
