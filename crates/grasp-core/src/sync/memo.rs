//! Events that came and were not taken, so that they are not fetched every day: those that never
//! will be, and those that will be when something else has come.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::memory::{Dismissed, Fate};
use crate::clock::Timestamp;
use crate::id::EventId;
use crate::shares::Shares;
use crate::ticket::RelayNo;

/// The relay that brought it in this life.
pub type Holder = Option<RelayNo>;

#[derive(Debug, Default)]
pub struct Memo {
    rows: FxHashMap<EventId, Row>,
    /// The oldest of whoever has most goes first when there are too many.
    order: BTreeMap<(Holder, u64), EventId>,
    holders: Shares<Holder>,
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
    place: (Holder, u64),
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
    pub fn dismiss(&mut self, row: Dismissed, holder: Holder) -> Vec<EventId> {
        self.remove(&row.id);
        for mark in marks(&row.fate) {
            self.by_mark.insert((*mark, row.id));
        }
        if row.announcement {
            self.announcements.insert((row.at, row.id), end(&row.fate));
        }
        self.early += usize::from(row.fate != Fate::ForGood);
        let place = (holder, self.next);
        self.next += 1;
        self.order.insert(place, row.id);
        self.holders.add(holder, 1);
        let dismissed = row;
        self.rows.insert(dismissed.id, Row { dismissed, place });
        let mut gone = Vec::new();
        while self.rows.len() > self.max {
            let Some(oldest) = self.oldest_of_largest() else {
                break;
            };
            let forgotten = self.remove(&oldest);
            self.count_recalled(forgotten.as_ref());
            gone.push(oldest);
        }
        gone
    }

    /// What one relay brings does not take the place of what the others brought.
    fn oldest_of_largest(&self) -> Option<EventId> {
        let (largest, _) = self.holders.largest()?;
        let mut of_largest = self.order.range((largest, 0)..=(largest, u64::MAX));
        of_largest.next().map(|(_, id)| *id)
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
        self.holders.remove(place.0, 1);
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
        memo.dismiss(row(1, Fate::Early(vec![7, 8])), None);
        memo.dismiss(row(2, Fate::Early(vec![8])), None);
        memo.dismiss(row(3, Fate::ForGood), None);
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
        memo.dismiss(row(2, Fate::Rests(Timestamp(100), vec![])), None);
        assert!(memo.dismisses(&id(2), Timestamp(99)));
        assert_eq!(memo.aside(Timestamp(99)).len(), 1);
        assert!(!memo.dismisses(&id(2), Timestamp(100)));
        assert_eq!(memo.aside(Timestamp(100)).len(), 0);
    }

    #[test]
    fn the_oldest_make_room() {
        let mut memo = Memo::new(3);
        for n in 0..200 {
            memo.dismiss(row(n, Fate::Early(vec![u64::from(n)])), None);
            memo.dismiss(row(n, Fate::Early(vec![u64::from(n)])), None);
        }
        assert_eq!((memo.len(), memo.early()), (3, 3));
        assert!(memo.dismisses(&id(199), Timestamp(0)) && !memo.dismisses(&id(1), Timestamp(0)));
        assert_eq!((memo.order.len(), memo.by_mark.len()), (3, 3));
        assert_eq!(memo.aside(Timestamp(0)), [(Timestamp(198), id(198))]);
    }

    #[test]
    fn one_relays_rows_displace_nobody_elses() {
        let mut memo = Memo::new(10);
        for (n, relay) in [(1, None), (2, Some(RelayNo(1))), (3, Some(RelayNo(2)))] {
            memo.dismiss(row(n, Fate::ForGood), relay);
        }
        for n in 10..200 {
            memo.dismiss(row(n, Fate::ForGood), Some(RelayNo(9)));
        }
        assert_eq!(memo.len(), 10);
        for n in [1, 2, 3, 193, 199] {
            assert!(memo.get(&id(n)).is_some(), "{n}");
        }
        // Whoever comes later has his share.
        for n in 201..=205 {
            memo.dismiss(row(n, Fate::ForGood), Some(RelayNo(3)));
        }
        let held = |relay| memo.holders.held_by(&Some(RelayNo(relay)));
        assert_eq!([held(1), held(2), held(3), held(9)], [1, 1, 4, 3]);
    }

    #[test]
    fn one_that_is_dismissed_again_is_the_newest() {
        let mut memo = Memo::new(2);
        memo.dismiss(row(1, Fate::ForGood), None);
        memo.dismiss(row(2, Fate::ForGood), None);
        memo.dismiss(row(1, Fate::ForGood), None);
        assert_eq!(memo.dismiss(row(3, Fate::ForGood), None), [id(2)]);
        assert!(memo.get(&id(1)).is_some());
    }

    #[test]
    fn only_what_is_wanted_again_counts_as_recalled() {
        let mut memo = Memo::new(2);
        for n in [2, 4, 4] {
            memo.dismiss(row(n, Fate::ForGood), None);
        }
        memo.dismiss(row(6, Fate::Early(vec![1])), None);
        memo.dismiss(row(7, Fate::Early(vec![1])), None);
        assert_eq!(memo.recalled(), 0, "what is refused for good is not");
        assert!(memo.recall(&id(7)) && !memo.recall(&id(2)));
        assert_eq!(memo.recalled(), 0, "no announcement, or not here");
        assert!(memo.recall(&id(6)));
        assert_eq!(memo.recalled(), 1);
        for n in [8, 9, 11] {
            memo.dismiss(row(n, Fate::Early(vec![1])), None);
        }
        assert_eq!(
            memo.recalled(),
            2,
            "forgotten: its causes do not bring it back"
        );
    }
}
