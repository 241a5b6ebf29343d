//! What a relay says to what was asked of it.

use super::batch::{How, Step};
use super::capabilities::{Capabilities, Reconciles};
use super::downloads::BatchNo;
use super::io::{Complaint, Fault, FromRelay, ToRelay};
use super::note::Note;
use super::paging::{PageEnd, Paged, Paging};
use super::session::{Auth, Purpose, Sub};
use super::work::AHEAD;
use super::{Here, Sync};
use crate::clock::{Now, Timestamp};
use crate::id::EventId;
use crate::ticket::{RelayNo, SubNo};

/// A step that was refused so often for what it is, and not for the moment, is left out.
const MAX_TRIES: u8 = 3;
/// Cuts of a comparison: from fifty years to a few days.
const MAX_CUTS: u8 = 12;
/// Answers without an EOSE after which no more is waited for one.
const NO_EOSE: u32 = 2;

/// No relay gives fewer events than this at once.
const NO_FEW: usize = 20;

/// A comparison that ended.
struct Compared {
    from: Timestamp,
    compared: u32,
    lacks: u32,
    some: Vec<EventId>,
}

impl Sync {
    pub(super) fn on_word(&mut self, relay: RelayNo, word: FromRelay, now: Now, here: &dyn Here) {
        if let Some(session) = self.session_mut(relay)
            && brings_on(&word)
        {
            session.progress = now.mono;
        }
        match word {
            // Whoever calls has dealt with the line itself.
            FromRelay::Up | FromRelay::Down(_) | FromRelay::Heard => {}
            FromRelay::Described(said) => {
                if let Some(peer) = self.peers.get_mut(&relay) {
                    peer.described = Some(now.unix);
                    if let Some(said) = said {
                        peer.capabilities.learn(&said, &self.limits);
                    }
                    peer.dirty = true;
                }
            }
            FromRelay::Eose {
                sub,
                sent,
                complete,
            } => self.on_eose(relay, sub, sent, complete, now),
            FromRelay::Closed { sub, why, .. } => self.on_refused(relay, sub, why, now),
            FromRelay::Notice(why) => self.on_notice(relay, why, now),
            FromRelay::Known { sub, id, at } => {
                self.took(relay, sub, id, at, now);
                self.came(&id, now);
            }
            FromRelay::Bad { sub, fault, .. } => self.on_bad(relay, sub, fault, now),
            FromRelay::Challenge(challenge) => self.on_challenge(relay, challenge),
            FromRelay::Authenticated(true) => {
                if let Some(peer) = self.peers.get_mut(&relay) {
                    peer.paused = None;
                    peer.refusals = 0;
                    if let Some(session) = peer.session_mut() {
                        session.auth = Auth::Done;
                        session.refused_watches = 0;
                        session.unwatched = true;
                    }
                }
            }
            FromRelay::Authenticated(false) => {
                self.pause(relay, Complaint::AuthRequired, now);
            }
            FromRelay::Needs { sub, ids } => self.on_needs(relay, sub, ids, now, here),
            FromRelay::Reconciled {
                sub,
                from,
                compared,
                lacks,
                some,
            } => {
                let compared = Compared {
                    from,
                    compared,
                    lacks,
                    some,
                };
                self.on_compared(relay, sub, compared, now, here);
            }
            FromRelay::Unreconciled { sub, why } => self.on_not_compared(relay, sub, why, now),
        }
        self.again.insert(relay);
    }

    fn sub(&mut self, relay: RelayNo, no: SubNo) -> Option<&mut Sub> {
        self.session_mut(relay)?.subs.get_mut(&no)
    }

    /// A frame of a subscription has become something.
    pub(super) fn took(&mut self, relay: RelayNo, no: SubNo, id: EventId, at: Timestamp, now: Now) {
        let deadline = now.mono + self.limits.request_timeout;
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        session.progress = now.mono;
        let Some(sub) = session.subs.get_mut(&no) else {
            return;
        };
        sub.settled = sub.settled.saturating_add(1);
        if sub.deadline.is_some() {
            sub.deadline = Some(deadline);
        }
        match &mut sub.purpose {
            Purpose::Page { paging, .. } => paging.took(id, at),
            Purpose::Fetch { ids, .. } => {
                ids.remove(&id);
            }
            Purpose::Live { .. } | Purpose::CatchUp { .. } | Purpose::Compare { .. } => {}
        }
        self.settle(relay, no, now);
    }

    /// It is here, or need not be: whoever waits for it waits no longer.
    pub(super) fn came(&mut self, id: &EventId, now: Now) {
        for batch in self.downloads.came(id) {
            self.try_finish(batch, now);
        }
    }

    fn on_eose(&mut self, relay: RelayNo, no: SubNo, sent: u32, complete: bool, now: Now) {
        let deadline = now.mono + self.limits.request_timeout;
        let is_open = |sub: &&mut Sub| sub.sent.is_none() && !sub.ended;
        let Some(sub) = self.sub(relay, no).filter(is_open) else {
            return;
        };
        sub.sent = Some(sent);
        sub.complete = complete;
        sub.deadline = Some(deadline);
        if let Some(session) = self.session_mut(relay) {
            session.says_eose = true;
        }
        if let Some(peer) = self.peers.get_mut(&relay) {
            peer.answered();
        }
        self.settle(relay, no, now);
    }

    fn settle(&mut self, relay: RelayNo, no: SubNo, now: Now) {
        if let Some(sub) = self.sub(relay, no)
            && sub.is_settled()
            && !sub.ended
        {
            self.on_settled(relay, no, now);
        }
    }

    /// What a request was for is here.
    fn on_settled(&mut self, relay: RelayNo, no: SubNo, now: Now) {
        let Some(sub) = self.sub(relay, no) else {
            return;
        };
        let (sent, complete) = (sub.sent.unwrap_or_default(), sub.complete);
        let unsure = sub.unsure && sent > 0;
        let cut = unsure || self.may_be_cut(relay, sent, complete);
        if self.sub(relay, no).is_some_and(|sub| sub.is_live()) {
            return self.on_watching(relay, no, cut, now);
        }
        let Some(sub) = self.close(relay, no) else {
            return;
        };
        match sub.purpose {
            Purpose::CatchUp {
                batch,
                chunks,
                since,
            } => {
                if cut && let Some(batch) = self.batch_mut(relay, batch) {
                    batch.add_steps(&chunks, since, How::Pages);
                }
                self.try_finish(batch, now);
            }
            Purpose::Page {
                batch,
                step,
                paging,
            } => {
                let end = PageEnd { complete, unsure };
                self.on_page(relay, batch, step, paging, end, now);
            }
            Purpose::Fetch { ids, .. } => {
                self.on_fetched(relay, sent, ids.into_iter().collect(), now)
            }
            Purpose::Live { .. } | Purpose::Compare { .. } => {}
        }
    }

    fn may_be_cut(&self, relay: RelayNo, sent: u32, complete: bool) -> bool {
        let peer = self.peers.get(&relay);
        let cut = |known: &Capabilities| known.may_be_cut(sent, known.limit);
        !complete && peer.is_some_and(|peer| cut(&peer.capabilities))
    }

    /// It goes on to watch; what was stored before has come.
    fn on_watching(&mut self, relay: RelayNo, no: SubNo, cut: bool, now: Now) {
        let Some(sub) = self.sub(relay, no) else {
            return;
        };
        sub.ended = true;
        sub.deadline = None;
        let stored = match &sub.purpose {
            Purpose::Live {
                chunks,
                batch: Some(batch),
            } => Some((chunks.clone(), *batch)),
            _ => None,
        };
        self.answered(relay, no);
        let Some((chunks, no)) = stored else {
            return;
        };
        if let Some(batch) = self.batch_mut(relay, no) {
            batch.running -= 1;
            if cut {
                batch.add_steps(&chunks, None, How::Pages);
            }
        }
        self.try_finish(no, now);
    }

    fn on_page(
        &mut self,
        relay: RelayNo,
        batch: BatchNo,
        step: Step,
        mut paging: Paging,
        end: PageEnd,
        now: Now,
    ) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        match paging.end(end, &mut peer.capabilities) {
            Paged::Done => return self.try_finish(batch, now),
            Paged::More => {}
            Paged::FullSecond(at, known) => self.split_second(relay, batch, &step, at, known),
        }
        self.page(relay, batch, step, paging, now);
    }

    /// A second with more than the relay gives at once is asked for in halves.
    fn split_second(
        &mut self,
        relay: RelayNo,
        batch: BatchNo,
        step: &Step,
        at: Timestamp,
        known: usize,
    ) {
        let alone = step.since == Some(at) && step.until == Some(at);
        let known_as = self.peers.get(&relay).map(|peer| &peer.capabilities);
        let compares = known_as.is_some_and(|known| known.reconciles == Reconciles::Yes);
        let mut how = step.how;
        let parts = match step.chunk.halves() {
            Some(halves) => halves.to_vec(),
            // By itself it may be asked for with a higher limit.
            None if !alone => vec![step.chunk.clone()],
            None if compares && how == How::Pages => {
                how = How::Compare;
                vec![step.chunk.clone()]
            }
            None => {
                // A few events are all there are, almost certainly.
                if known >= NO_FEW {
                    self.tell(relay, |relay| Note::SecondTooFull { relay, at });
                }
                return;
            }
        };
        if let Some(batch) = self.batch_mut(relay, batch) {
            for chunk in parts {
                batch.steps.push_front(Step {
                    chunk,
                    since: Some(at),
                    until: Some(at),
                    how,
                    tries: 0,
                    letter: step.letter,
                });
            }
        }
    }

    fn on_fetched(&mut self, relay: RelayNo, sent: u32, missing: Vec<EventId>, now: Now) {
        if let Some(peer) = self.peers.get_mut(&relay) {
            peer.capabilities.prove(sent, u32::MAX);
        }
        if sent > 0 {
            // It may have cut its answer.
            return self.downloads.put_off(relay, missing);
        }
        let ended = self.downloads.missed(relay, &missing);
        self.after_downloads(ended, now);
    }

    /// Batches that wait for nothing more, and relays that are asked in place of others.
    pub(super) fn after_downloads(&mut self, ended: Vec<BatchNo>, now: Now) {
        for batch in ended {
            self.try_finish(batch, now);
        }
        self.again.extend(self.downloads.relays());
    }

    fn on_needs(
        &mut self,
        relay: RelayNo,
        no: SubNo,
        ids: Vec<EventId>,
        now: Now,
        here: &dyn Here,
    ) {
        let deadline = now.mono + self.limits.request_timeout;
        let Some(sub) = self.sub(relay, no) else {
            return;
        };
        sub.deadline = Some(deadline);
        let Purpose::Compare { batch, .. } = sub.purpose else {
            return;
        };
        for id in ids {
            if here.has(&id) || self.memo.dismisses(&id, now.unix) {
                continue;
            }
            if !self.downloads.need(relay, batch, id)
                && let Some(batch) = self.batch_mut(relay, batch)
            {
                batch.failed = true;
                batch.overflowed = true;
            }
        }
    }

    fn on_compared(&mut self, relay: RelayNo, no: SubNo, end: Compared, now: Now, here: &dyn Here) {
        let compares = |sub: &mut Sub| matches!(sub.purpose, Purpose::Compare { .. });
        if !self.sub(relay, no).is_some_and(compares) {
            return;
        }
        let sub = self
            .session_mut(relay)
            .and_then(|session| session.close(no));
        let Some(Purpose::Compare { batch, mut step }) = sub.map(|sub| sub.purpose) else {
            return;
        };
        if let Some(peer) = self.peers.get_mut(&relay) {
            peer.capabilities.reconciles = Reconciles::Yes;
            peer.answered();
        }
        let oldest = step.since.unwrap_or_default();
        if let Some(batch) = self.batch_mut(relay, batch) {
            batch.compared += u64::from(end.compared);
            count_lacks(batch, &end, here);
            if end.from > oldest {
                step.until = Some(Timestamp(end.from.0 - 1));
                step.tries = 0;
                batch.steps.push_front(step);
            }
        }
        self.try_finish(batch, now);
    }

    fn on_not_compared(&mut self, relay: RelayNo, no: SubNo, why: Complaint, now: Now) {
        match self.sub(relay, no) {
            Some(_) if why == Complaint::Ours => self.compare_later(relay, no, now),
            Some(_) => self.refuse(relay, no, why, now),
            None => {}
        }
    }

    /// We have no room for it: a large batch is asked for again later, a small one costs little by
    /// pages. None of it is the relay's fault.
    fn compare_later(&mut self, relay: RelayNo, no: SubNo, now: Now) {
        let sub = self
            .session_mut(relay)
            .and_then(|session| session.close(no));
        let Some(Purpose::Compare { batch: no, step }) = sub.map(|sub| sub.purpose) else {
            return;
        };
        if let Some(batch) = self.batch_mut(relay, no) {
            if batch.small {
                let how = How::Pages;
                batch.steps.push_front(Step { how, ..step });
            } else {
                batch.failed = true;
                batch.overflowed = true;
            }
        }
        self.try_finish(no, now);
    }

    /// A relay that names no subscription means the newest one.
    fn on_notice(&mut self, relay: RelayNo, why: Complaint, now: Now) {
        let newest = self.peers.get(&relay).and_then(|peer| peer.session());
        let Some((no, compares)) = newest.and_then(|session| {
            let no = session.newest_unanswered()?;
            let sub = session.subs.get(&no)?;
            Some((no, matches!(sub.purpose, Purpose::Compare { .. })))
        }) else {
            return;
        };
        // Words that mean nothing to us are no refusal.
        if why == Complaint::Other {
            return;
        }
        let end = match compares {
            true => ToRelay::EndReconcile(no),
            false => ToRelay::Unsubscribe(no),
        };
        if let Some(session) = self.session_mut(relay) {
            let conn = session.conn;
            self.ask(relay, conn, end);
        }
        self.on_refused(relay, no, why, now);
    }

    fn on_refused(&mut self, relay: RelayNo, no: SubNo, why: Complaint, now: Now) {
        if let Some(session) = self.session_mut(relay)
            && session.subs.contains_key(&no)
        {
            self.refuse(relay, no, why, now);
        }
    }

    /// A request is refused: what it was for is asked again, differently or later.
    fn refuse(&mut self, relay: RelayNo, no: SubNo, why: Complaint, now: Now) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        peer.record.refused += 1;
        let open = peer.session().map_or(0, |session| session.subs.len());
        let learned = peer.capabilities.teach(why, open as u32);
        let sub = self
            .session_mut(relay)
            .and_then(|session| session.close(no));
        let Some(sub) = sub else {
            return;
        };
        let waits = self.take_back(relay, sub, why, now);
        if why == Complaint::AuthRequired {
            self.authenticate(relay);
        }
        if waits && !learned {
            self.pause(relay, why, now);
        }
    }

    /// Puts back what a request was for. True if the relay should be left alone for a while.
    fn take_back(&mut self, relay: RelayNo, sub: Sub, why: Complaint, now: Now) -> bool {
        match sub.purpose {
            Purpose::Live { .. } => {
                if let Some(session) = self.session_mut(relay) {
                    session.unwatched = true;
                    session.refused_watches += 1;
                }
                self.on_unwatched(relay, sub, now);
                true
            }
            Purpose::CatchUp { batch, .. } => {
                self.fail(relay, batch, now);
                true
            }
            Purpose::Page {
                batch,
                mut step,
                paging,
            } => {
                // It goes on where it was: a relay that lets us ask so often would never end.
                step.until = Some(paging.until());
                self.put_back(relay, batch, step, why, now)
            }
            Purpose::Compare { batch, step } => {
                self.compare_otherwise(relay, batch, step, why, now)
            }
            Purpose::Fetch { ids, .. } => {
                let ended = self.downloads.refused(relay, ids);
                self.after_downloads(ended, now);
                true
            }
        }
    }

    pub(super) fn fail(&mut self, relay: RelayNo, no: BatchNo, now: Now) {
        if let Some(batch) = self.batch_mut(relay, no) {
            batch.failed = true;
        }
        self.try_finish(no, now);
    }

    /// A page is asked for again; one that is refused for what it is, only so often.
    fn put_back(
        &mut self,
        relay: RelayNo,
        no: BatchNo,
        mut step: Step,
        why: Complaint,
        now: Now,
    ) -> bool {
        let for_itself = matches!(why, Complaint::Invalid | Complaint::Unsupported);
        step.tries = step.tries.saturating_add(u8::from(for_itself));
        let hopeless = step.tries >= MAX_TRIES;
        if let Some(batch) = self.batch_mut(relay, no)
            && !hopeless
        {
            batch.steps.push_front(step);
        }
        self.try_finish(no, now);
        !hopeless
    }

    /// A comparison that is too large is cut in time; a relay that does not compare is asked for
    /// pages.
    fn compare_otherwise(
        &mut self,
        relay: RelayNo,
        no: BatchNo,
        mut step: Step,
        why: Complaint,
        now: Now,
    ) -> bool {
        let mut steps = Vec::new();
        let waits = match why {
            Complaint::TooManyEvents => {
                steps = halved(step, now);
                false
            }
            Complaint::RateLimited
            | Complaint::TooManySubscriptions
            | Complaint::AuthRequired
            | Complaint::Restricted
            | Complaint::Ours => {
                steps.push(step);
                true
            }
            Complaint::TooManyFilters
            | Complaint::TooLarge
            | Complaint::Invalid
            | Complaint::Unsupported
            | Complaint::Other => {
                step.how = How::OnlyPages;
                step.tries = 0;
                steps.push(step);
                self.do_without_comparison(relay, no, why);
                false
            }
        };
        if let Some(batch) = self.batch_mut(relay, no) {
            for step in steps {
                batch.steps.push_front(step);
            }
        }
        waits
    }

    /// One that has compared before does not for once; one that never has, does not at all.
    fn do_without_comparison(&mut self, relay: RelayNo, no: BatchNo, why: Complaint) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        let gone = why == Complaint::Unsupported;
        if peer.capabilities.reconciles == Reconciles::Yes && !gone {
            return;
        }
        peer.capabilities.reconciles = Reconciles::No;
        peer.dirty = true;
        let first = !std::mem::replace(&mut peer.warned, true);
        if let Some(batch) = peer.batch_mut(no) {
            for step in &mut batch.steps {
                step.how = How::OnlyPages;
            }
        }
        if first {
            self.tell(relay, |relay| Note::NoNegentropy { relay });
        }
    }

    pub(super) fn pause(&mut self, relay: RelayNo, why: Complaint, now: Now) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        let retry_secs = peer.pause(now.mono, &self.limits).as_secs();
        self.give_up_lead(relay);
        self.tell(relay, |relay| Note::Refused {
            relay,
            why,
            retry_secs,
        });
        self.remind_of_work(relay);
    }

    fn on_challenge(&mut self, relay: RelayNo, challenge: String) {
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        let wanted = session.auth == Auth::Wanted;
        session.auth = Auth::Challenged(challenge);
        if wanted {
            self.authenticate(relay);
        }
    }

    /// Only for a relay that has refused something for it, and once for each challenge.
    fn authenticate(&mut self, relay: RelayNo) {
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        match std::mem::replace(&mut session.auth, Auth::Sent) {
            Auth::Challenged(challenge) => {
                let conn = session.conn;
                self.ask(relay, conn, ToRelay::Authenticate { challenge });
            }
            Auth::NotAsked | Auth::Wanted => session.auth = Auth::Wanted,
            Auth::Sent | Auth::Done => {}
        }
    }

    fn on_bad(&mut self, relay: RelayNo, no: Option<SubNo>, fault: Fault, now: Now) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        peer.record.bad += 1;
        peer.dirty = true;
        let Some(session) = peer.session_mut() else {
            return;
        };
        let first = session.note_fault(fault);
        let unbearable = session.is_unbearable();
        if first {
            self.tell(relay, |relay| Note::Misbehaved { relay, fault });
        }
        if unbearable {
            return self.shun(relay, now);
        }
        let Some(no) = no else {
            return;
        };
        if fault == Fault::Flood && self.sub(relay, no).is_some_and(|sub| sub.is_live()) {
            // Nobody listens to it any more.
            return self.refuse(relay, no, Complaint::RateLimited, now);
        }
        if let Some(sub) = self.sub(relay, no) {
            sub.settled = sub.settled.saturating_add(1);
            if fault == Fault::Flood {
                // What it sent so far is all that we take.
                let settled = sub.settled;
                sub.sent.get_or_insert(settled);
                sub.unsure = true;
            }
        }
        self.settle(relay, no, now);
    }

    /// Requests that were not answered in time.
    pub(super) fn look_at_work(&mut self, relay: RelayNo, now: Now) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        peer.paused = peer.paused.filter(|until| *until > now.mono);
        peer.not_before = peer.not_before.filter(|at| *at > now.mono);
        let Some(session) = peer.session() else {
            return;
        };
        let late = session.subs.iter();
        let late = late.filter(|(_, sub)| sub.deadline.is_some_and(|at| at <= now.mono));
        let late: Vec<SubNo> = late.map(|(no, _)| *no).collect();
        for no in late {
            self.on_late(relay, no, now);
        }
        self.again.insert(relay);
    }

    /// A relay that speaks and never says EOSE is taken at what it sent; any other has failed.
    fn on_late(&mut self, relay: RelayNo, no: SubNo, now: Now) {
        let patience = self.limits.request_timeout;
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        let (conn, heard) = (session.conn, session.heard);
        let (says_eose, without_eose) = (session.says_eose, session.without_eose);
        let Some(sub) = session.subs.get_mut(&no) else {
            return;
        };
        if sub.sent.is_some() && sub.patience > 0 {
            // It has said all; we have not judged all of it yet.
            sub.deadline = Some(now.mono + patience);
            sub.patience -= 1;
            return;
        }
        // Without a word since the last frame, nobody knows what is still to come.
        let speaks = sub.deadline.is_some_and(|at| heard + patience > at);
        let compares = matches!(sub.purpose, Purpose::Compare { .. });
        if sub.is_live() && !speaks {
            return self.watch_without_answer(relay, no, now);
        }
        let taken = sub.settled > 0 || without_eose >= NO_EOSE || sub.is_live();
        if speaks && !says_eose && !compares && taken {
            sub.sent = Some(sub.settled);
            sub.unsure = true;
            session.without_eose += 1;
            return self.on_settled(relay, no, now);
        }
        session.without_eose += u32::from(speaks && !compares);
        let (end, why) = match compares {
            // Silence is how some answer what they do not know.
            true if speaks => (ToRelay::EndReconcile(no), Complaint::Other),
            true => (ToRelay::EndReconcile(no), Complaint::RateLimited),
            false => (ToRelay::Unsubscribe(no), Complaint::RateLimited),
        };
        self.ask(relay, conn, end);
        self.refuse(relay, no, why, now);
    }

    /// It may watch all the same; what was stored before must be asked for again.
    fn watch_without_answer(&mut self, relay: RelayNo, no: SubNo, now: Now) {
        let Some(sub) = self.sub(relay, no) else {
            return;
        };
        sub.ended = true;
        sub.deadline = None;
        let batch = sub.batch();
        self.answered(relay, no);
        if let Some(no) = batch
            && let Some(batch) = self.batch_mut(relay, no)
        {
            batch.running -= 1;
            self.fail(relay, no, now);
        }
    }

    /// Ends a subscription that has done its work.
    fn close(&mut self, relay: RelayNo, no: SubNo) -> Option<Sub> {
        let session = self.session_mut(relay)?;
        let conn = session.conn;
        let sub = session.close(no)?;
        self.ask(relay, conn, ToRelay::Unsubscribe(no));
        Some(sub)
    }
}

/// An answer, or part of one.
fn brings_on(word: &FromRelay) -> bool {
    matches!(
        word,
        FromRelay::Eose { .. }
            | FromRelay::Known { .. }
            | FromRelay::Needs { .. }
            | FromRelay::Reconciled { .. }
    )
}

/// The same in two parts of time, the newer first; a stretch that is too much after many cuts goes
/// by pages.
fn halved(mut step: Step, now: Now) -> Vec<Step> {
    let first = step.since.unwrap_or_default();
    let last = step
        .until
        .unwrap_or(Timestamp(now.unix.0.saturating_add(AHEAD)));
    step.tries = step.tries.saturating_add(1);
    if last <= first || step.tries > MAX_CUTS {
        return vec![Step {
            how: How::OnlyPages,
            tries: 0,
            ..step
        }];
    }
    let middle = Timestamp(first.0 + (last.0 - first.0) / 2);
    let newer = Step {
        since: Some(Timestamp(middle.0 + 1)),
        ..step.clone()
    };
    let older = Step {
        until: Some(middle),
        ..step
    };
    vec![older, newer]
}

fn count_lacks(batch: &mut super::batch::Batch, end: &Compared, here: &dyn Here) {
    let mut named = 0;
    for id in &end.some {
        *batch.lacks.entry(here.repository_of(id)).or_default() += 1;
        named += 1;
    }
    let rest = end.lacks.saturating_sub(named);
    if rest > 0 {
        *batch.lacks.entry(None).or_default() += rest;
    }
}
