//! What is due when. An entry is a reminder, no order: whoever is reminded looks whether it is
//! still so.

use std::collections::BTreeSet;

use crate::clock::Mono;
use crate::ticket::RelayNo;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// News are to be acted upon.
    Gathered,
    /// A relay is to be dialled, has not answered, or has fallen silent.
    Link(RelayNo),
    /// Relays are to be left that nobody names any more.
    Empty,
}

#[derive(Debug, Default)]
pub struct Agenda {
    due: BTreeSet<(Mono, Timer)>,
}

impl Agenda {
    pub fn add(&mut self, at: Mono, timer: Timer) {
        self.due.insert((at, timer));
    }

    pub fn next(&self) -> Option<(Mono, Timer)> {
        self.due.first().copied()
    }

    pub fn take(&mut self, now: Mono) -> Option<Timer> {
        self.next().filter(|(at, _)| *at <= now)?;
        self.due.pop_first().map(|(_, timer)| timer)
    }
}
