//! What is due when. An entry is a reminder, no order: whoever is reminded looks whether it is
//! still so.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Mono;
use crate::ticket::RelayNo;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// News are to be acted upon.
    Gathered,
    /// A relay is to be dialled, has not answered, or has fallen silent.
    Link(RelayNo),
    /// A request was not answered, or a pause is over.
    Work(RelayNo),
    /// Others wait for what a relay brings: does it still bring something?
    Lead(RelayNo),
    /// Everything is to be compared again.
    Full(RelayNo),
    /// What is not watched is to be compared.
    Turn(RelayNo),
    /// Events that could not be taken are to be asked for again.
    Later,
    /// Announcements that nobody delivered are to be looked for everywhere.
    Announcements,
    /// Relays are to be left that nobody names any more.
    Empty,
    /// What is known is to be written down.
    Save,
}

/// One reminder for each timer, the earliest: whoever is reminded too early asks again.
#[derive(Debug, Default)]
pub struct Agenda {
    due: BTreeSet<(Mono, Timer)>,
    at: BTreeMap<Timer, Mono>,
}

impl Agenda {
    pub fn add(&mut self, at: Mono, timer: Timer) {
        match self.at.get(&timer) {
            Some(earlier) if *earlier <= at => return,
            Some(later) => {
                self.due.remove(&(*later, timer));
            }
            None => {}
        }
        self.at.insert(timer, at);
        self.due.insert((at, timer));
    }

    pub fn next(&self) -> Option<(Mono, Timer)> {
        self.due.first().copied()
    }

    pub fn take(&mut self, now: Mono) -> Option<Timer> {
        self.next().filter(|(at, _)| *at <= now)?;
        let (_, timer) = self.due.pop_first()?;
        self.at.remove(&timer);
        Some(timer)
    }

    pub fn has(&self, timer: Timer) -> bool {
        self.at.contains_key(&timer)
    }

    pub fn clear(&mut self) {
        self.due.clear();
        self.at.clear();
    }
}
