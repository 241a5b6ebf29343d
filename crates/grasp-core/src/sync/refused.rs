//! What a relay refuses, does wrong, or does not answer in time.

use super::Sync;
use super::batch::Step;
use super::downloads::BatchNo;
use super::io::{Complaint, Fault, ToRelay};
use super::note::Note;
use super::session::Auth;
use super::subs::{Purpose, Sub};
use crate::clock::Now;
use crate::ticket::{RelayNo, SubNo};

/// A step that was refused so often for what it is, and not for the moment, is left out.
const MAX_TRIES: u8 = 3;
/// Answers without an EOSE after which no more is waited for one.
const NO_EOSE: u32 = 2;

impl Sync {
    /// A relay names no subscription: which it means must be guessed.
    pub(super) fn on_notice(&mut self, relay: RelayNo, why: Complaint, now: Now) {
        let session = self.peers.get(&relay).and_then(|peer| peer.session());
        let Some((no, compares)) = session.and_then(|session| {
            let no = session.refused_by(why)?;
            let sub = session.subs.get(no)?;
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

    pub(super) fn on_refused(&mut self, relay: RelayNo, no: SubNo, why: Complaint, now: Now) {
        if let Some(session) = self.session_mut(relay)
            && session.subs.get(no).is_some()
        {
            self.refuse(relay, no, why, now);
        }
    }

    /// A request is refused: what it was for is asked again, differently or later.
    pub(super) fn refuse(&mut self, relay: RelayNo, no: SubNo, why: Complaint, now: Now) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        peer.record.refused += 1;
        let open = peer.session().map_or(0, |session| session.subs.len());
        let session = peer.session_mut();
        let Some(sub) = session.and_then(|session| session.close(no)) else {
            return;
        };
        let learned = match &sub.purpose {
            Purpose::Fetch { asked, .. } if peer.capabilities.teach_ids(why, asked.len()) => true,
            _ => peer.capabilities.teach(why, open as u32),
        };
        let waits = self.take_back(relay, sub, why, learned, now);
        if why == Complaint::AuthRequired {
            self.authenticate(relay);
        }
        if waits && !learned {
            self.pause(relay, why, now);
            if let Some(peer) = self.peers.get_mut(&relay) {
                peer.silent = false;
            }
        }
    }

    /// Puts back what a request was for. True if the relay should be left alone for a while.
    fn take_back(
        &mut self,
        relay: RelayNo,
        sub: Sub,
        why: Complaint,
        learned: bool,
        now: Now,
    ) -> bool {
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
            // Fewer at once may come.
            Purpose::Fetch { ids, .. } if learned => {
                self.downloads.put_off(relay, ids);
                self.after_downloads(Vec::new(), now);
                true
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

    pub(super) fn on_challenge(&mut self, relay: RelayNo, challenge: String) {
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
    pub(super) fn authenticate(&mut self, relay: RelayNo) {
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

    pub(super) fn on_bad(&mut self, relay: RelayNo, no: Option<SubNo>, fault: Fault, now: Now) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        peer.record.bad += 1;
        peer.dirty = true;
        let Some(session) = peer.session_mut() else {
            return;
        };
        let first = match (fault, no) {
            (Fault::TooLarge, None) => session.note_unread(),
            _ => session.note_fault(fault, now.mono),
        };
        let exceeded = session.exceeded_fault_budget();
        if first {
            self.tell(relay, |relay| Note::Misbehaved { relay, fault });
        }
        if exceeded {
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
        let late = session.subs.busy();
        let late = late.filter(|(_, sub)| sub.deadline().is_some_and(|at| at <= now.mono));
        let late: Vec<SubNo> = late.map(|(no, _)| no).collect();
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
        let Some(sub) = session.subs.get_mut(no) else {
            return;
        };
        if sub.sent.is_some() && sub.patience > 0 {
            // It has said all; we have not judged all of it yet.
            sub.put_off(now.mono + patience);
            sub.patience -= 1;
            return;
        }
        // Without a word since the last frame, nobody knows what is still to come.
        let speaks = sub.deadline().is_some_and(|at| heard + patience > at);
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
        if let Some(peer) = self.peers.get_mut(&relay) {
            peer.silent = true;
        }
    }

    /// It may watch all the same; what was stored before must be asked for again.
    fn watch_without_answer(&mut self, relay: RelayNo, no: SubNo, now: Now) {
        let session = self.session_mut(relay);
        let Some(sub) = session.and_then(|session| session.subs.end(no)) else {
            return;
        };
        let batch = sub.batch();
        self.replaced_in_silence(relay, no, now);
        if let Some(no) = batch
            && let Some(batch) = self.batch_mut(relay, no)
        {
            batch.running -= 1;
            self.fail(relay, no, now);
        }
    }
}
