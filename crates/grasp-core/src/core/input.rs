//! Everything that can happen to us.

use std::sync::Arc;

use crate::admit::Origin;
use crate::event::Event;

/// Names one submission from its arrival to its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// An event's place in the order of commits. A query that saw everything below `n` and a live
/// stream that starts at `n` miss nothing and repeat nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

#[derive(Debug, Clone)]
pub enum Input {
    /// An event whose id and signature are right.
    Event {
        ticket: Ticket,
        event: Arc<Event>,
        origin: Origin,
    },
    /// What became of an [`crate::Effect::Store`]: it is on disk, or it never will be.
    Committed {
        ticket: Ticket,
        outcome: StoreOutcome,
    },
    /// A sweep ended; `more` when it stopped at its bound.
    Swept { more: bool },
}

/// The store's word on one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreOutcome {
    Stored(Seq),
    Duplicate,
    /// A newer version, or one of the same second with a lower id, is here or was.
    Replaced,
    Deleted,
    Vanished,
    /// The disk refused; nothing was stored.
    Failed,
}
