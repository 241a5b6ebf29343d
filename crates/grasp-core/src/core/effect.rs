//! Everything we may ask of the world.

use std::sync::Arc;

use super::input::{Seq, Ticket};
use crate::admit::Refusal;
use crate::clock::Timestamp;
use crate::event::Event;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Make the event durable; answered by `Input::Committed`.
    Store { ticket: Ticket, event: Arc<Event> },
    /// Tell the submitter; the ticket is spent.
    Answer { ticket: Ticket, answer: Answer },
    /// Deliver to live subscriptions. `None` for an event that is not stored.
    Announce { event: Arc<Event>, seq: Option<Seq> },
    /// Remove what expired up to `until`; answered by `Input::Swept`.
    Sweep { until: Timestamp },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    Duplicate,
    Refused(Refusal),
}
