//! What a relay says to what was asked of it, and what has settled of it.

use super::batch::{How, Step};
use super::capabilities::{Capabilities, Reconciles};
use super::compared::Compared;
use super::downloads::BatchNo;
use super::io::{Complaint, Fault, FromRelay, ToRelay};
use super::memory::Fate;
use super::note::Note;
use super::paging::{PageEnd, Paged, Paging};
use super::session::{Auth, Session};
use super::subs::{Purpose, Sub};
use super::{Here, Sync};
use crate::clock::{Now, Timestamp};
use crate::id::EventId;
use crate::ticket::{RelayNo, SubNo};

/// No relay gives fewer events than this at once.
const NO_FEW: usize = 20;

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
            FromRelay::Closed { sub, why, .. } => self.on_closed(relay, sub, why, now),
            FromRelay::Notice(why) => self.on_notice(relay, why, now),
            FromRelay::Known { sub, id, at } => {
                self.took(relay, sub, id, at, now);
                self.came(&id, now);
            }
            FromRelay::TooLarge { sub, id, at, kind } => {
                self.dismiss_row(id, at, kind, Fate::ForGood, Some(relay));
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

    pub(super) fn sub(&mut self, relay: RelayNo, no: SubNo) -> Option<&mut Sub> {
        self.session_mut(relay)?.subs.get_mut(no)
    }

    /// A frame of a subscription has become something.
    pub(super) fn took(&mut self, relay: RelayNo, no: SubNo, id: EventId, at: Timestamp, now: Now) {
        let deadline = now.mono + self.limits.request_timeout;
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        session.progress = now.mono;
        let Some(sub) = session.subs.get_mut(no) else {
            return;
        };
        sub.settled = sub.settled.saturating_add(1);
        sub.put_off(deadline);
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
        self.sought.came(id);
        for batch in self.downloads.came(id) {
            self.try_finish(batch, now);
        }
    }

    fn on_eose(&mut self, relay: RelayNo, no: SubNo, sent: u32, complete: bool, now: Now) {
        self.answered(relay, no);
        let deadline = now.mono + self.limits.request_timeout;
        let is_open = |sub: &&mut Sub| sub.sent.is_none() && !sub.is_over();
        let Some(sub) = self.sub(relay, no).filter(is_open) else {
            return;
        };
        sub.sent = Some(sent);
        sub.complete = complete;
        sub.put_off(deadline);
        if let Some(session) = self.session_mut(relay) {
            session.says_eose = true;
        }
        if let Some(peer) = self.peers.get_mut(&relay) {
            peer.answered();
        }
        self.settle(relay, no, now);
    }

    /// After its EOSE a request for what is stored is answered, and some relays end it then by
    /// themselves. Before it, or on a live subscription, a CLOSED is a refusal.
    fn on_closed(&mut self, relay: RelayNo, no: SubNo, why: Complaint, now: Now) {
        let is_answered = |sub: &mut Sub| sub.sent.is_some() && !sub.is_live();
        if !self.sub(relay, no).is_some_and(is_answered) {
            self.on_refused(relay, no, why, now);
        }
    }

    pub(super) fn settle(&mut self, relay: RelayNo, no: SubNo, now: Now) {
        if let Some(sub) = self.sub(relay, no)
            && sub.is_settled()
            && !sub.is_over()
        {
            self.on_settled(relay, no, now);
        }
    }

    /// What a request was for is here.
    pub(super) fn on_settled(&mut self, relay: RelayNo, no: SubNo, now: Now) {
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
            Purpose::Fetch { asked, ids } => {
                let missing: Vec<EventId> = ids.into_iter().collect();
                self.on_fetched(relay, asked.len() - missing.len(), missing, now);
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
        let session = self.session_mut(relay);
        let Some(sub) = session.and_then(|session| session.subs.end(no)) else {
            return;
        };
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

    fn on_fetched(&mut self, relay: RelayNo, got: usize, missing: Vec<EventId>, now: Now) {
        if let Some(peer) = self.peers.get_mut(&relay) {
            let got = u32::try_from(got).unwrap_or(u32::MAX);
            peer.capabilities.prove(got, u32::MAX);
        }
        if got > 0 {
            // It may have cut its answer.
            return self.downloads.put_off(relay, missing);
        }
        let named = |id: &EventId| self.downloads.is_named_by(relay, id);
        let shown = |id: &EventId| self.sought.is_shown_by(id, relay);
        let (named, shown) = (missing.iter().any(named), missing.iter().any(shown));
        let ended = self.downloads.missed(relay, &missing);
        self.after_downloads(ended, now);
        let blames = |session: &mut Session| named || shown && session.may_blame_shown(now.mono);
        if self.session_mut(relay).is_some_and(blames) {
            self.on_bad(relay, None, Fault::Hollow, now);
        }
    }

    /// Batches that wait for nothing more, and relays that are asked in place of others.
    pub(super) fn after_downloads(&mut self, ended: Vec<BatchNo>, now: Now) {
        for batch in ended {
            self.try_finish(batch, now);
        }
        self.after_vain(now);
        self.again.extend(self.downloads.relays());
    }

    /// Ends a subscription that has done its work.
    pub(super) fn close(&mut self, relay: RelayNo, no: SubNo) -> Option<Sub> {
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
            | FromRelay::TooLarge { .. }
            | FromRelay::Needs { .. }
            | FromRelay::Reconciled { .. }
    )
}
