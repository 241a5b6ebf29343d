//! What is asked of a relay that is connected: what is missing becomes batches, batches become
//! requests, as many at once as the relay allows.

use std::sync::Arc;
use std::time::Duration;

use super::batch::{Batch, Doubt, How, Step, Via};
use super::downloads::BatchNo;
use super::filters::{Layer, chunks};
use super::io::ToRelay;
use super::items::Items;
use super::note::Note;
use super::paging::Paging;
use super::peer::Peer;
use super::subs::{Purpose, Sub};
use super::{Here, Sync, Timer};
use crate::clock::{Now, Timestamp};
use crate::filter::Filter;
use crate::id::EventId;
use crate::ticket::{RelayNo, SubNo};

/// Items of one batch: several relays share a large backlog.
const BATCH: usize = 500;
/// So few new roots are asked for in one request that goes on to watch them.
const SMALL: u64 = 20;
/// Events before the EOSE of a request without a limit; more is a flood.
pub(super) const FLOOD: u32 = 10_000;
/// How long others wait for a relay that brings nothing.
const LEAD: Duration = Duration::from_secs(5);
/// And for one that brings something, however little.
const LONGEST_LEAD: Duration = Duration::from_secs(30);
/// How far ahead events may be dated that a page asks for.
pub(super) const AHEAD: u64 = 24 * 60 * 60;
/// Requests by id that are open on one relay at once.
const FETCHES: usize = 2;

/// What is asked next.
enum Todo {
    Fetch(Vec<EventId>),
    CatchUp(BatchNo, Vec<super::filters::Chunk>, Option<Timestamp>),
    Step(BatchNo, Step),
}

impl Sync {
    /// Begins what can be begun with a relay, and is reminded of what must be looked at later.
    pub(super) fn work(&mut self, relay: RelayNo, now: Now, here: &dyn Here) {
        self.mend_watches(relay, now);
        self.watch_led(relay, now);
        self.watch_silent(relay, now);
        while let Some(plan) = self.next_plan(relay, now) {
            self.begin(relay, plan, now);
        }
        while let Some(todo) = self.next_todo(relay, now) {
            match todo {
                Todo::Fetch(ids) => self.fetch(relay, ids, now),
                Todo::CatchUp(batch, chunks, since) => {
                    self.catch_up(relay, batch, chunks, since, now);
                }
                Todo::Step(batch, step) => self.start_step(relay, batch, step, now, here),
            }
        }
        self.rest(relay);
        self.remind_of_work(relay);
    }

    /// What another relay fetches first is watched here meanwhile.
    fn watch_led(&mut self, relay: RelayNo, now: Now) {
        let Some(known) = self.targets.relays.get(relay) else {
            return;
        };
        if !known.missing().overlaps(&self.leading) {
            return;
        }
        let mut led = known.missing().clone();
        led.keep(&self.leading);
        let paused = self
            .peers
            .get(&relay)
            .is_some_and(|peer| peer.is_paused(now.mono));
        if let Some(session) = self.session_mut(relay).filter(|_| !paused) {
            led.remove(&session.live);
            if !led.is_empty() {
                self.watch(relay, &led, None, now);
            }
        }
    }

    /// A relay that does not answer may bring what is new all the same.
    fn watch_silent(&mut self, relay: RelayNo, now: Now) {
        let Some(peer) = self.peers.get(&relay) else {
            return;
        };
        let Some(session) = peer.session() else {
            return;
        };
        if !peer.silent || !peer.is_paused(now.mono) || session.is_unwatchable() {
            return;
        }
        let known = self.targets.relays.get(relay);
        let new = known.map(|known| known.missing().without(&session.live));
        if let Some(new) = new.filter(|new| !new.is_empty()) {
            self.watch(relay, &new, None, now);
        }
    }

    /// Items that should be fetched now, with what is known of them.
    fn next_plan(&mut self, relay: RelayNo, now: Now) -> Option<Doubt> {
        let peer = self.peers.get(&relay)?;
        let session = peer.session().filter(|_| !peer.is_paused(now.mono))?;
        let known = self.targets.relays.get(relay)?;
        if known.missing().is_empty() {
            return None;
        }
        let mut missing = known.missing().clone();
        if missing.overlaps(&self.leading) {
            self.waiting.insert(relay);
            missing.remove(&self.leading);
        }
        let fresh = Doubt {
            items: missing.without(&peer.doubts.items()),
            since: None,
            via: Via::First,
        };
        if is_small(&fresh.items) {
            return Some(fresh);
        }
        let waits = peer.not_before.is_some_and(|at| at > now.mono);
        if waits || session.batches.values().any(|batch| !batch.small) {
            return None;
        }
        let mut plan = peer.doubts.next(&missing).unwrap_or(fresh);
        plan.items = plan.items.take(BATCH);
        (!plan.items.is_empty()).then_some(plan)
    }

    fn begin(&mut self, relay: RelayNo, plan: Doubt, now: Now) {
        let no = BatchNo(self.next_batch);
        self.next_batch += 1;
        if let Some(known) = self.targets.relays.get_mut(relay) {
            known.begin(&plan.items);
        }
        let mut batch = Batch::new(plan.items.clone(), plan.via, now.mono);
        batch.small = plan.via == Via::First && is_small(&plan.items);
        if plan.via == Via::First && !batch.small {
            batch.leads = plan.items.without(&self.known);
            self.leading.add(&batch.leads);
            self.agenda.add(now.mono + LEAD, Timer::Lead(relay));
        }
        let small = batch.small;
        self.batches.insert(no, (relay, plan.via));
        if let Some(session) = self.session_mut(relay) {
            session.batches.insert(no, batch);
        }
        if small && self.watch(relay, &plan.items, Some(no), now) {
            return;
        }
        self.watch(relay, &plan.items, None, now);
        self.divide(relay, no, &plan);
    }

    /// Into requests.
    fn divide(&mut self, relay: RelayNo, no: BatchNo, plan: &Doubt) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        let index = &self.targets.repos;
        let chunks = chunks(&plan.items, index, peer.capabilities.cut(&self.limits));
        let how = match peer.compares(&self.limits) {
            true => How::Compare,
            false => How::Pages,
        };
        // A filter of each letter goes into one request, if the relay takes so many.
        let together = plan.via == Via::CatchUp && plan.since.is_some();
        let packed = match together && peer.capabilities.filters >= 3 {
            true => peer.capabilities.pack(chunks.clone(), index),
            false => Vec::new(),
        };
        let Some(batch) = peer.batch_mut(no) else {
            return;
        };
        if packed.is_empty() {
            batch.add_steps(&chunks, plan.since, how);
        }
        for request in packed {
            batch.catch_ups.push_back((request, plan.since));
        }
    }

    fn next_todo(&mut self, relay: RelayNo, now: Now) -> Option<Todo> {
        let full = self.downloads.is_full(relay);
        let peer = self.peers.get_mut(&relay)?;
        if peer.is_paused(now.mono) {
            return None;
        }
        let capabilities = peer.capabilities.clone();
        let session = peer.session_mut()?;
        if !session.has_room_to_work(&capabilities) {
            return None;
        }
        if session.fetches() < FETCHES {
            let most = capabilities.ids_at_once(&self.limits);
            let ids = self.downloads.next(relay, most);
            // One that is being fetched still, though nobody waited for it any more.
            let (busy, ids): (Vec<_>, Vec<_>) =
                ids.into_iter().partition(|id| session.fetches_event(id));
            self.downloads.put_off(relay, busy);
            if !ids.is_empty() {
                return Some(Todo::Fetch(ids));
            }
        }
        for (no, batch) in &mut session.batches {
            if let Some((chunks, since)) = batch.catch_ups.pop_front() {
                return Some(Todo::CatchUp(*no, chunks, since));
            }
            // What it would find could not be asked for.
            if full {
                self.blocked.insert(relay);
                continue;
            }
            if let Some(step) = batch.next_step(self.downloads.open(*no)) {
                return Some(Todo::Step(*no, step));
            }
        }
        None
    }

    fn fetch(&mut self, relay: RelayNo, mut ids: Vec<EventId>, now: Now) {
        // Lists of a filter are sorted.
        ids.sort_unstable();
        let filter = Filter {
            ids: Some(ids.clone()),
            ..Filter::default()
        };
        let most = 2 * ids.len() as u32 + 10;
        let purpose = Purpose::Fetch {
            ids: ids.iter().copied().collect(),
            asked: ids,
        };
        self.subscribe(relay, purpose, vec![filter], Some(most), now);
    }

    fn catch_up(
        &mut self,
        relay: RelayNo,
        batch: BatchNo,
        chunks: Vec<super::filters::Chunk>,
        since: Option<Timestamp>,
        now: Now,
    ) {
        let index = &self.targets.repos;
        let limit = self.limit_of(relay);
        let filters = chunks.iter().flat_map(|chunk| chunk.filters(index, since));
        let filters = filters.filter(|filter| !is_void(filter));
        let filters: Vec<Filter> = filters.map(|filter| Filter { limit, ..filter }).collect();
        if filters.is_empty() {
            return self.try_finish(batch, now);
        }
        let purpose = Purpose::CatchUp {
            batch,
            chunks,
            since,
        };
        let most = limit.unwrap_or_default() * filters.len() * 2;
        let most = u32::try_from(most).unwrap_or(u32::MAX).max(FLOOD);
        self.subscribe(relay, purpose, filters, Some(most), now);
    }

    /// Always named: relays give fewer events to a filter that names none.
    pub(super) fn limit_of(&self, relay: RelayNo) -> Option<usize> {
        let peer = self.peers.get(&relay)?;
        Some(peer.capabilities.limit as usize)
    }

    fn start_step(
        &mut self,
        relay: RelayNo,
        batch: BatchNo,
        step: Step,
        now: Now,
        here: &dyn Here,
    ) {
        match step.how {
            How::Compare => self.compare(relay, batch, step, now, here),
            How::Pages | How::OnlyPages => {
                let until = Timestamp(now.unix.0.saturating_add(AHEAD));
                let paging = Paging::new(step.until.unwrap_or(until));
                self.page(relay, batch, step, paging, now);
            }
        }
    }

    fn compare(&mut self, relay: RelayNo, batch: BatchNo, step: Step, now: Now, here: &dyn Here) {
        let index = &self.targets.repos;
        let mut filter = step.chunk.filter(step.letter, index, step.since);
        filter.until = step.until;
        if is_void(&filter) {
            return self.try_finish(batch, now);
        }
        let aside = match step.chunk.layer == Layer::Announcements {
            true => self.aside(now, here),
            false => Arc::default(),
        };
        let most = self.limits.reconcile_items;
        let deadline = now.mono + self.limits.request_timeout;
        let sub = Sub::new(Purpose::Compare { batch, step }, deadline);
        self.open(relay, sub, |sub| ToRelay::Reconcile {
            sub,
            filter: Box::new(filter),
            aside,
            most,
        });
    }

    pub(super) fn page(
        &mut self,
        relay: RelayNo,
        batch: BatchNo,
        step: Step,
        mut paging: Paging,
        now: Now,
    ) {
        let Some(peer) = self.peers.get(&relay) else {
            return;
        };
        let alone = step.since.is_some() && step.since == step.until;
        let limit = match alone {
            true => peer.capabilities.highest_limit(),
            false => peer.capabilities.limit,
        };
        let index = &self.targets.repos;
        let mut filter = step.chunk.filter(step.letter, index, step.since);
        filter.until = Some(paging.until());
        filter.limit = Some(limit as usize);
        paging.ask(limit);
        let past = step.since.is_some_and(|since| since > paging.until());
        if is_void(&filter) || past {
            return self.try_finish(batch, now);
        }
        let purpose = Purpose::Page {
            batch,
            step,
            paging,
        };
        let most = limit.saturating_mul(4).max(FLOOD);
        self.subscribe(relay, purpose, vec![filter], Some(most), now);
    }

    pub(super) fn subscribe(
        &mut self,
        relay: RelayNo,
        purpose: Purpose,
        filters: Vec<Filter>,
        most: Option<u32>,
        now: Now,
    ) {
        let sub = Sub::new(purpose, now.mono + self.limits.request_timeout);
        let filters: Arc<[Filter]> = filters.into();
        self.open(relay, sub, |sub| ToRelay::Subscribe { sub, filters, most });
    }

    fn open(&mut self, relay: RelayNo, sub: Sub, ask: impl FnOnce(SubNo) -> ToRelay) {
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        let conn = session.conn;
        let no = session.open(sub);
        self.ask(relay, conn, ask(no));
    }

    /// A batch is over when nothing of it is left to ask for and all that it found is here.
    pub(super) fn try_finish(&mut self, no: BatchNo, now: Now) {
        let Some((relay, via)) = self.batches.get(&no).copied() else {
            return;
        };
        // Its next step may have waited for this.
        self.again.insert(relay);
        let wants = self.downloads.open(no);
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        let asked = session.batches.get(&no).is_some_and(Batch::is_asked);
        if !asked || wants > 0 {
            return;
        }
        let Some(mut batch) = session.batches.remove(&no) else {
            return;
        };
        self.batches.remove(&no);
        batch.failed |= self.downloads.take_spoiled(no);
        self.downloads.forget(no);
        self.end_lead(&batch.leads);
        let Some(known) = self.targets.relays.get_mut(relay) else {
            return;
        };
        if batch.failed {
            known.give_back(&batch.items);
        } else {
            known.confirm(&batch.items);
            self.known.add(&batch.items);
            if let Some(peer) = self.peers.get_mut(&relay) {
                peer.doubts.settle(&batch.items);
                peer.dirty = true;
            }
        }
        if batch.items.announcements {
            self.doubt_stale(relay);
        }
        if let Some(peer) = self.peers.get_mut(&relay)
            && !batch.small
        {
            peer.end_batch(batch.overflowed, now.mono, &self.limits);
        }
        self.tell_lacks(relay, via, &batch);
    }

    fn tell_lacks(&mut self, relay: RelayNo, via: Via, batch: &Batch) {
        let lacks: u32 = batch.lacks.values().sum();
        if let Some(peer) = self.peers.get_mut(&relay)
            && via != Via::Turn
        {
            peer.record.compared += batch.compared;
            peer.record.lacks += u64::from(lacks);
        }
        for (repo, count) in batch.lacks.clone() {
            self.tell(relay, |relay| Note::Lacks { relay, repo, count });
        }
    }

    /// A relay that brings nothing for a while keeps nobody waiting.
    pub(super) fn look_at_lead(&mut self, relay: RelayNo, now: Now) {
        let Some(session) = self.peers.get(&relay).and_then(Peer::session) else {
            return;
        };
        let leading = session.batches.values();
        let leading = leading.filter(|batch| !batch.leads.is_empty());
        let Some(began) = leading.map(|batch| batch.began).min() else {
            return;
        };
        let until = (session.progress + LEAD).min(began + LONGEST_LEAD);
        if until > now.mono {
            return self.agenda.add(until, Timer::Lead(relay));
        }
        self.give_up_lead(relay);
    }

    pub(super) fn give_up_lead(&mut self, relay: RelayNo) {
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        let mut leads = Items::default();
        for batch in session.batches.values_mut() {
            leads.add(&std::mem::take(&mut batch.leads));
        }
        self.end_lead(&leads);
    }

    /// Nobody leads with these any more: others may begin.
    pub(super) fn end_lead(&mut self, items: &Items) {
        if items.is_empty() {
            return;
        }
        self.leading.remove(items);
        self.again.append(&mut self.waiting);
    }

    /// Nothing is missing: what is stored up to here has its history from this relay.
    fn rest(&mut self, relay: RelayNo) {
        let in_step = self.is_in_step(relay) && self.gathered.is_empty();
        let latest = self.latest;
        if let Some(peer) = self.peers.get_mut(&relay)
            && in_step
            && peer.settled != latest
        {
            peer.settled = latest;
            peer.dirty = true;
        }
    }

    /// Connected, and nothing is missing or on its way.
    pub(super) fn is_in_step(&self, relay: RelayNo) -> bool {
        let known = self.targets.relays.get(relay);
        let session = self.peers.get(&relay).and_then(|peer| peer.session());
        match (known, session) {
            (Some(known), Some(session)) => {
                known.missing().is_empty() && session.batches.is_empty()
            }
            _ => false,
        }
    }

    pub(super) fn remind_of_work(&mut self, relay: RelayNo) {
        let Some(peer) = self.peers.get(&relay) else {
            return;
        };
        let Some(session) = peer.session() else {
            return;
        };
        let pauses = peer.paused.into_iter().chain(peer.not_before);
        for at in session.next_deadline().into_iter().chain(pauses) {
            self.agenda.add(at, Timer::Work(relay));
        }
    }
}

fn is_small(items: &Items) -> bool {
    let few = items.roots.len() <= SMALL && items.repos.is_empty() && !items.announcements;
    few && !items.is_empty()
}

/// It names nothing: what it was for is gone.
pub(super) fn is_void(filter: &Filter) -> bool {
    filter.tags.iter().any(|(_, values)| values.is_empty())
}
