//! What a relay's frames mean: each becomes one word to the core, one event for ingest, or nothing.

use std::sync::Arc;

use grasp_core::event::{EventError, Unverified};
use grasp_core::sync::io::{Complaint, Fault, FromRelay};
use grasp_core::{EventId, Filter, Limits, SubNo};

use super::{Connection, Watch};
use crate::ingest::signature;
use crate::relay::message;
use crate::remote::codec::{self, Said, Sub};
use crate::remote::dial::MAX_MESSAGE;
use crate::remote::reconcile::Step;

/// Frames for subscriptions that never were; so many are a fault.
pub const STRAYS: u32 = 64;
/// Frames for subscriptions that we have closed: they may have been on their way for a while. And
/// those that mean nothing to us.
pub const LATE: u32 = 10_000;

/// Events too large for us that one connection may have us check: what is planted at a relay comes a
/// few at a time. They are checked where other connections wait: 64 x 8 ms = half a second in all.
const MAX_PROVEN: u32 = 64;

impl Connection {
    pub(super) fn on_text(&mut self, text: &str) {
        let Some(said) = codec::parse(text) else {
            return self.bad(None, None, Fault::Malformed);
        };
        match said {
            Said::Event { sub, json } => self.on_event(sub, json),
            Said::Eose { sub, complete } => self.on_eose(sub, complete),
            Said::Closed { sub, reason } => self.on_closed(sub, &reason),
            Said::Notice(reason) => self.tell(FromRelay::Notice(Complaint::read(&reason))),
            Said::Ok { id, accepted } => match self.proof.take_if(|proof| *proof == id) {
                Some(_) => self.tell(FromRelay::Authenticated(accepted)),
                None => self.useless(),
            },
            Said::Auth(challenge) => self.tell(FromRelay::Challenge(challenge)),
            Said::NegMsg { sub, frame } => self.on_neg_msg(sub, frame),
            Said::NegErr { sub, reason } => self.compared_not(sub, &reason),
            Said::Unknown => self.useless(),
        }
    }

    fn on_neg_msg(&mut self, sub: Sub, frame: Vec<u8>) {
        match sub {
            Sub::Ours(sub) if self.comparisons.is_open(sub) => {
                if !self.comparisons.heard(sub, frame) {
                    // It speaks without waiting for us.
                    self.on_step(sub, Step::Failed(Complaint::Invalid));
                }
            }
            sub => self.stray(sub),
        }
    }

    fn on_event(&mut self, sub: Sub, json: &str) {
        let Some((sub, watch)) = self.watch(sub) else {
            return self.stray(sub);
        };
        watch.sent = watch.sent.saturating_add(1);
        if !watch.live && watch.most.is_some_and(|most| watch.sent > most) {
            self.subs.remove(&sub);
            self.send(codec::close(sub));
            return self.bad(Some(sub), message::claimed_id(json), Fault::Flood);
        }
        let filters = Arc::clone(&watch.filters);
        match expected(json, &filters, &self.shared.limits) {
            Ok(event) => self.take(event, sub),
            Err((id, Fault::TooLarge)) => self.too_large(sub, id, json, &filters),
            Err((id, fault)) => self.bad(Some(sub), id, fault),
        }
    }

    /// Proven to be what was asked for, it need never come again. A claim alone proves nothing:
    /// by it a relay could keep us from anybody's event.
    fn too_large(&mut self, sub: SubNo, id: Option<EventId>, json: &str, filters: &[Filter]) {
        self.oversized += 1;
        let proven = (self.oversized <= MAX_PROVEN)
            .then(|| expected(json, filters, &any_size()).ok())
            .flatten()
            .and_then(|event| event.verify(signature::is_valid).ok());
        match proven {
            Some(event) => self.tell(FromRelay::TooLarge {
                sub,
                id: event.id,
                at: event.created_at,
                kind: event.kind,
            }),
            None => self.bad(Some(sub), id, Fault::TooLarge),
        }
    }

    fn on_eose(&mut self, sub: Sub, complete: bool) {
        let Some((sub, watch)) = self.watch(sub) else {
            return self.stray(sub);
        };
        watch.live = true;
        let sent = watch.sent;
        self.tell(FromRelay::Eose {
            sub,
            sent,
            complete,
        });
    }

    fn on_closed(&mut self, sub: Sub, reason: &str) {
        let Some((sub, watch)) = self.watch(sub) else {
            // Some refuse a NEG-OPEN so.
            return self.compared_not(sub, reason);
        };
        let sent = watch.sent;
        self.subs.remove(&sub);
        let why = Complaint::read(reason);
        self.tell(FromRelay::Closed { sub, sent, why });
    }

    fn compared_not(&mut self, sub: Sub, reason: &str) {
        if let Sub::Ours(sub) = sub
            && self.comparisons.forget(sub)
        {
            let why = Complaint::read(reason);
            return self.tell(FromRelay::Unreconciled { sub, why });
        }
        self.stray(sub);
    }

    fn watch(&mut self, sub: Sub) -> Option<(SubNo, &mut Watch)> {
        match sub {
            Sub::Ours(sub) => Some((sub, self.subs.get_mut(&sub)?)),
            Sub::Foreign => None,
        }
    }

    fn stray(&mut self, sub: Sub) {
        let was_ours = matches!(sub, Sub::Ours(sub) if Some(sub) <= self.newest);
        if was_ours {
            return self.useless();
        }
        self.strays += 1;
        if self.strays == STRAYS {
            self.strays = 0;
            self.bad(None, None, Fault::UnknownSubscription);
        }
    }

    /// What means nothing to us costs time all the same.
    fn useless(&mut self) {
        self.late += 1;
        if self.late == LATE {
            self.late = 0;
            self.bad(None, None, Fault::UnknownSubscription);
        }
    }

    pub(super) fn bad(&mut self, sub: Option<SubNo>, id: Option<EventId>, fault: Fault) {
        self.tell(FromRelay::Bad { sub, id, fault });
    }
}

/// As large as messages may be.
fn any_size() -> Limits {
    Limits {
        event_bytes: MAX_MESSAGE,
        content_bytes: MAX_MESSAGE,
        tags: usize::MAX,
        tag_values: usize::MAX,
        ..Limits::default()
    }
}

/// An event that was asked for. Nothing is proven yet.
fn expected(
    json: &str,
    filters: &[Filter],
    limits: &Limits,
) -> Result<Unverified, (Option<EventId>, Fault)> {
    let event = Unverified::parse(json, limits).map_err(|error| {
        let fault = match error {
            EventError::TooLarge(_)
            | EventError::ContentTooLarge(_)
            | EventError::TooManyTags(_)
            | EventError::TooManyTagValues(_) => Fault::TooLarge,
            EventError::Malformed(_) | EventError::WrongId | EventError::WrongSignature => {
                Fault::Malformed
            }
        };
        (message::claimed_id(json), fault)
    })?;
    if filters.iter().any(|filter| filter.matches(event.claim())) {
        Ok(event)
    } else {
        Err((Some(event.id()), Fault::OffFilter))
    }
}
