//! Events that came and were not taken, so that they are not fetched every day: those that never
//! will be, and those that will be when something else has come.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use super::memory::{Dismissed, Fate};
use crate::clock::Timestamp;
use crate::id::EventId;
use crate::ticket::RelayNo;

#[derive(Debug, Default)]
pub struct Memo {
    rows: FxHashMap<EventId, Dismissed>,
    /// The oldest goes first when there are too many.
    order: VecDeque<EventId>,
    by_mark: BTreeSet<(u64, EventId)>,
    /// Announcements and states by time: they are set aside when that layer is compared.
    announcements: BTreeSet<(Timestamp, EventId)>,
    early: usize,
    /// Which relay brought it last, in this life.
    shown_by: FxHashMap<EventId, RelayNo>,
    max: usize,
}

impl Memo {
    pub fn new(max: usize) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Of these, how many may still be taken.
    pub fn early(&self) -> usize {
        self.early
    }

    /// Takes a row; those that make room for it.
    pub fn dismiss(&mut self, row: Dismissed) -> Vec<EventId> {
        self.recall(&row.id);
        for mark in marks(&row.fate) {
            self.by_mark.insert((*mark, row.id));
        }
        if row.announcement {
            self.announcements.insert((row.at, row.id));
        }
        self.early += usize::from(row.fate != Fate::ForGood);
        self.order.push_back(row.id);
        self.rows.insert(row.id, row);
        let mut gone = Vec::new();
        while self.rows.len() > self.max {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            if self.recall(&oldest) {
                gone.push(oldest);
            }
        }
        // Entries of rows that are gone are swept when they are most of it.
        if self.order.len() > 2 * self.rows.len() + 64 {
            let rows = &self.rows;
            let mut seen = BTreeSet::new();
            self.order
                .retain(|id| rows.contains_key(id) && seen.insert(*id));
        }
        gone
    }

    /// It may be fetched again. True if it was here.
    pub fn recall(&mut self, id: &EventId) -> bool {
        let Some(row) = self.rows.remove(id) else {
            return false;
        };
        for mark in marks(&row.fate) {
            self.by_mark.remove(&(*mark, *id));
        }
        self.announcements.remove(&(row.at, row.id));
        self.shown_by.remove(id);
        self.early -= usize::from(row.fate != Fate::ForGood);
        true
    }

    /// A relay has it.
    pub fn note_shown(&mut self, id: EventId, relay: RelayNo) {
        if self.rows.contains_key(&id) {
            self.shown_by.insert(id, relay);
        }
    }

    pub fn shown_by(&self, id: &EventId) -> Option<RelayNo> {
        self.shown_by.get(id).copied()
    }

    pub fn get(&self, id: &EventId) -> Option<&Dismissed> {
        self.rows.get(id)
    }

    /// It need not be fetched now.
    pub fn dismisses(&self, id: &EventId, now: Timestamp) -> bool {
        match self.rows.get(id).map(|row| &row.fate) {
            Some(Fate::ForGood | Fate::Early(_)) => true,
            Some(Fate::Rests(until, _)) => *until > now,
            None => false,
        }
    }

    /// Those that one of these may have changed.
    pub fn waiting_for(&self, marks: &[u64]) -> BTreeSet<EventId> {
        let of = |mark: &u64| {
            let (first, last) = (EventId([0; 32]), EventId([255; 32]));
            self.by_mark.range((*mark, first)..=(*mark, last))
        };
        marks.iter().flat_map(of).map(|(_, id)| *id).collect()
    }

    /// Dismissed announcements and states of a stretch of time.
    pub fn aside(
        &self,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> Vec<(Timestamp, EventId)> {
        let first = (since.unwrap_or_default(), EventId([0; 32]));
        let last = (until.unwrap_or(Timestamp(u64::MAX)), EventId([255; 32]));
        let rows = self.announcements.range(first..=last);
        rows.filter(|(_, id)| self.dismisses(id, now))
            .copied()
            .collect()
    }
}

fn marks(fate: &Fate) -> &[u64] {
    match fate {
        Fate::ForGood => &[],
        Fate::Early(marks) | Fate::Rests(_, marks) => marks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: u8, fate: Fate) -> Dismissed {
        Dismissed {
            id: EventId([n; 32]),
            at: Timestamp(u64::from(n)),
            announcement: n.is_multiple_of(2),
            fate,
        }
    }

    fn id(n: u8) -> EventId {
        EventId([n; 32])
    }

    #[test]
    fn what_waits_is_found_by_what_it_waits_for() {
        let mut memo = Memo::new(10);
        memo.dismiss(row(1, Fate::Early(vec![7, 8])));
        memo.dismiss(row(2, Fate::Early(vec![8])));
        memo.dismiss(row(3, Fate::ForGood));
        assert_eq!((memo.len(), memo.early()), (3, 2));
        let found: Vec<EventId> = memo.waiting_for(&[8, 9]).into_iter().collect();
        assert_eq!(found, [id(1), id(2)]);
        assert!(memo.recall(&id(1)));
        assert!(!memo.dismisses(&id(1), Timestamp(0)));
        assert_eq!(memo.waiting_for(&[7]).len(), 0);
    }

    #[test]
    fn a_rest_has_an_end() {
        let mut memo = Memo::new(10);
        memo.dismiss(row(2, Fate::Rests(Timestamp(100), vec![])));
        assert!(memo.dismisses(&id(2), Timestamp(99)));
        assert_eq!(memo.aside(None, None, Timestamp(99)).len(), 1);
        assert!(!memo.dismisses(&id(2), Timestamp(100)));
        assert_eq!(memo.aside(None, None, Timestamp(100)).len(), 0);
    }

    #[test]
    fn the_oldest_make_room() {
        let mut memo = Memo::new(3);
        for n in 0..200 {
            memo.dismiss(row(n, Fate::Early(vec![u64::from(n)])));
            memo.dismiss(row(n, Fate::Early(vec![u64::from(n)])));
        }
        assert_eq!((memo.len(), memo.early()), (3, 3));
        assert!(memo.dismisses(&id(199), Timestamp(0)) && !memo.dismisses(&id(1), Timestamp(0)));
        assert!(memo.order.len() < 80 && memo.by_mark.len() == 3);
        let aside = memo.aside(Some(Timestamp(198)), Some(Timestamp(198)), Timestamp(0));
        assert_eq!(aside, [(Timestamp(198), id(198))]);
    }
}
