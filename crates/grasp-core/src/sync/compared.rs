//! What comes of a comparison: what is missing here, what is missing there, or that it must be
//! made otherwise.

use super::batch::{How, Step};
use super::capabilities::Reconciles;
use super::downloads::BatchNo;
use super::io::Complaint;
use super::note::Note;
use super::subs::{Purpose, Sub};
use super::work::AHEAD;
use super::{Here, Sync};
use crate::clock::{Now, Timestamp};
use crate::id::EventId;
use crate::ticket::{RelayNo, SubNo};

/// Cuts of a comparison: from fifty years to a few days.
const MAX_CUTS: u8 = 12;

/// A comparison that ended.
pub(super) struct Compared {
    pub from: Timestamp,
    pub compared: u32,
    pub lacks: u32,
    pub some: Vec<EventId>,
}

impl Sync {
    pub(super) fn on_needs(
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
        sub.put_off(deadline);
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

    pub(super) fn on_compared(
        &mut self,
        relay: RelayNo,
        no: SubNo,
        end: Compared,
        now: Now,
        here: &dyn Here,
    ) {
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

    pub(super) fn on_not_compared(&mut self, relay: RelayNo, no: SubNo, why: Complaint, now: Now) {
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

    /// A comparison that is too large is cut in time; a relay that does not compare is asked for
    /// pages.
    pub(super) fn compare_otherwise(
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

/// Missing events whose repository is looked up: each is read whole, a millisecond if it is large.
const MAX_LOOKED_UP: usize = 8;

fn count_lacks(batch: &mut super::batch::Batch, end: &Compared, here: &dyn Here) {
    let mut named = 0;
    for id in end.some.iter().take(MAX_LOOKED_UP) {
        *batch.lacks.entry(here.repository_of(id)).or_default() += 1;
        named += 1;
    }
    let rest = end.lacks.saturating_sub(named);
    if rest > 0 {
        *batch.lacks.entry(None).or_default() += rest;
    }
}
