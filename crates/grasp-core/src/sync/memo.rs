//! Events that came and were not taken, so that they are not fetched every day: those that never
//! will be, and those that will be when something else has come.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::memory::{Dismissed, Fate};
use crate::clock::Timestamp;
use crate::id::EventId;
use crate::ticket::RelayNo;

#[derive(Debug, Default)]
pub struct Memo {
    rows: FxHashMap<EventId, Row>,
    /// The oldest goes first when there are too many.
    order: BTreeMap<u64, EventId>,
    next: u64,
    by_mark: BTreeSet<(u64, EventId)>,
    /// Announcements and states by time, with the end of their rest: they are set aside when that
    /// layer is compared.
    announcements: BTreeMap<(Timestamp, EventId), Timestamp>,
    /// So many of them were wanted again.
    recalled: u64,
    early: usize,
    /// Which relay brought it first, in this life.
    shown_by: FxHashMap<EventId, RelayNo>,
    max: usize,
}

#[derive(Debug)]
struct Row {
    dismissed: Dismissed,
    /// Its place in the order.
    place: u64,
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
        self.remove(&row.id);
        for mark in marks(&row.fate) {
            self.by_mark.insert((*mark, row.id));
        }
        if row.announcement {
            self.announcements.insert((row.at, row.id), end(&row.fate));
        }
        self.early += usize::from(row.fate != Fate::ForGood);
        let place = self.next;
        self.next += 1;
        self.order.insert(place, row.id);
        let dismissed = row;
        self.rows.insert(dismissed.id, Row { dismissed, place });
        let mut gone = Vec::new();
        while self.rows.len() > self.max {
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            let forgotten = self.remove(&oldest);
            self.count_recalled(forgotten.as_ref());
            gone.push(oldest);
        }
        gone
    }

    /// It may be fetched again. True if it was here.
    pub fn recall(&mut self, id: &EventId) -> bool {
        let row = self.remove(id);
        self.count_recalled(row.as_ref());
        row.is_some()
    }

    /// What is refused for good is not wanted, also when it is forgotten.
    fn count_recalled(&mut self, row: Option<&Dismissed>) {
        let wanted = |row: &Dismissed| row.announcement && row.fate != Fate::ForGood;
        self.recalled += u64::from(row.is_some_and(wanted));
    }

    fn remove(&mut self, id: &EventId) -> Option<Dismissed> {
        let Row { dismissed, place } = self.rows.remove(id)?;
        for mark in marks(&dismissed.fate) {
            self.by_mark.remove(&(*mark, *id));
        }
        self.order.remove(&place);
        self.announcements.remove(&(dismissed.at, *id));
        self.shown_by.remove(id);
        self.early -= usize::from(dismissed.fate != Fate::ForGood);
        Some(dismissed)
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
        self.rows.get(id).map(|row| &row.dismissed)
    }

    /// It need not be fetched now.
    pub fn dismisses(&self, id: &EventId, now: Timestamp) -> bool {
        self.get(id).is_some_and(|row| end(&row.fate) > now)
    }

    /// Those that one of these may have changed.
    pub fn waiting_for(&self, marks: &[u64]) -> BTreeSet<EventId> {
        let of = |mark: &u64| {
            let (first, last) = (EventId([0; 32]), EventId([255; 32]));
            self.by_mark.range((*mark, first)..=(*mark, last))
        };
        marks.iter().flat_map(of).map(|(_, id)| *id).collect()
    }

    /// Dismissed announcements and states, by time.
    pub fn aside(&self, now: Timestamp) -> Vec<(Timestamp, EventId)> {
        let rows = self.announcements.iter();
        let rows = rows.filter(|(_, until)| **until > now);
        rows.map(|(place, _)| *place).collect()
    }

    /// Grows when one of these is wanted again.
    pub fn recalled(&self) -> u64 {
        self.recalled
    }
}

/// Until then it need not be fetched.
fn end(fate: &Fate) -> Timestamp {
    match fate {
        Fate::ForGood | Fate::Early(_) => Timestamp(u64::MAX),
        Fate::Rests(until, _) => *until,
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
        assert_eq!(memo.aside(Timestamp(99)).len(), 1);
        assert!(!memo.dismisses(&id(2), Timestamp(100)));
        assert_eq!(memo.aside(Timestamp(100)).len(), 0);
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
        assert_eq!((memo.order.len(), memo.by_mark.len()), (3, 3));
        assert_eq!(memo.aside(Timestamp(0)), [(Timestamp(198), id(198))]);
    }

    #[test]
    fn one_that_is_dismissed_again_is_the_newest() {
        let mut memo = Memo::new(2);
        memo.dismiss(row(1, Fate::ForGood));
        memo.dismiss(row(2, Fate::ForGood));
        memo.dismiss(row(1, Fate::ForGood));
        assert_eq!(memo.dismiss(row(3, Fate::ForGood)), [id(2)]);
        assert!(memo.get(&id(1)).is_some());
    }

    #[test]
    fn only_what_is_wanted_again_counts_as_recalled() {
        let mut memo = Memo::new(2);
        for n in [2, 4, 4] {
            memo.dismiss(row(n, Fate::ForGood));
        }
        memo.dismiss(row(6, Fate::Early(vec![1])));
        memo.dismiss(row(7, Fate::Early(vec![1])));
        assert_eq!(memo.recalled(), 0, "what is refused for good is not");
        assert!(memo.recall(&id(7)) && !memo.recall(&id(2)));
        assert_eq!(memo.recalled(), 0, "no announcement, or not here");
        assert!(memo.recall(&id(6)));
        assert_eq!(memo.recalled(), 1);
        for n in [8, 9, 11] {
            memo.dismiss(row(n, Fate::Early(vec![1])));
        }
        assert_eq!(
            memo.recalled(),
            2,
            "forgotten: its causes do not bring it back"
        );
    }
}
