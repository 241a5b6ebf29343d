//! Events that are known to be somewhere and not here. Each is asked of one relay at a time: the
//! others that have it wait, and the next one is asked when the first does not deliver.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::id::EventId;
use crate::ticket::RelayNo;

/// Relays that are remembered to have one event, and how often it is asked for at all.
const MAX_CANDIDATES: usize = 4;
/// Times that an event is asked for though it is refused.
const MAX_REFUSALS: u8 = 4;
/// What one relay names takes this part of the room at most.
const SHARES: usize = 8;
/// A larger share than that of a small room; and in a large one, what each relay may name though
/// others have filled it.
const MIN_SHARE: usize = 64;

/// No batch waits for what is asked for by itself.
pub const NOBODY: BatchNo = BatchNo(0);

/// A piece of history that is not complete before its events are here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchNo(pub u64);

#[derive(Debug)]
struct Want {
    /// Whose share it is counted in.
    named_by: RelayNo,
    /// How often a relay would not say.
    refusals: u8,
    asked: Option<RelayNo>,
    /// Others that have it, in the order in which they said so.
    candidates: VecDeque<RelayNo>,
    /// Those that were asked in vain.
    failed: Vec<RelayNo>,
    /// Batches, and the relays whose they are.
    waiting: BTreeMap<BatchNo, RelayNo>,
}

#[derive(Debug, Default)]
pub struct Downloads {
    wants: FxHashMap<EventId, Want>,
    queued: BTreeMap<RelayNo, VecDeque<EventId>>,
    /// What each relay is asked for, or would be.
    of_relay: FxHashMap<RelayNo, BTreeSet<EventId>>,
    /// Events that each batch still waits for.
    open: FxHashMap<BatchNo, BTreeSet<EventId>>,
    /// How many each relay named first.
    named: FxHashMap<RelayNo, usize>,
    /// Batches that something was given up of.
    spoiled: BTreeSet<BatchNo>,
    /// What was asked for by itself, and nobody delivered.
    vain: Vec<EventId>,
    max: usize,
}

impl Want {
    fn new(named_by: RelayNo) -> Self {
        Self {
            named_by,
            refusals: 0,
            asked: None,
            candidates: VecDeque::new(),
            failed: Vec::new(),
            waiting: BTreeMap::new(),
        }
    }
}

impl Downloads {
    pub fn new(max: usize) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    pub fn len(&self) -> usize {
        self.wants.len()
    }

    pub fn is_empty(&self) -> bool {
        self.wants.is_empty()
    }

    /// It is asked for, or will be.
    pub fn is_wanted(&self, id: &EventId) -> bool {
        self.wants.contains_key(id)
    }

    /// More of this relay would not be taken: no relay fills the place of all.
    pub fn is_full(&self, relay: RelayNo) -> bool {
        let named = self.named.get(&relay).copied().unwrap_or_default();
        let share = self.max / SHARES;
        match self.wants.len() < self.max {
            true => named >= share.max(MIN_SHARE),
            false => named >= share.clamp(1, MIN_SHARE),
        }
    }

    /// The relay has an event that is not here. False if there is no room for it: the batch cannot
    /// be complete then.
    #[must_use]
    pub fn need(&mut self, relay: RelayNo, batch: BatchNo, id: EventId) -> bool {
        if !self.wants.contains_key(&id) {
            if self.is_full(relay) {
                return false;
            }
            *self.named.entry(relay).or_default() += 1;
        }
        let want = self.wants.entry(id).or_insert_with(|| Want::new(relay));
        if want.waiting.insert(batch, relay).is_none() {
            self.open.entry(batch).or_default().insert(id);
        }
        let known = want.asked == Some(relay)
            || want.candidates.contains(&relay)
            || want.failed.contains(&relay);
        let busy = want.asked.is_some() || !want.candidates.is_empty();
        let tried = want.candidates.len() + want.failed.len();
        if known || tried >= MAX_CANDIDATES {
            return true;
        }
        want.candidates.push_back(relay);
        self.of_relay.entry(relay).or_default().insert(id);
        if !busy {
            self.queued.entry(relay).or_default().push_back(id);
        }
        true
    }

    /// The next events to ask this relay for.
    pub fn next(&mut self, relay: RelayNo, most: usize) -> Vec<EventId> {
        let mut ids = Vec::new();
        let Some(queue) = self.queued.get_mut(&relay) else {
            return ids;
        };
        while ids.len() < most {
            let Some(id) = queue.pop_front() else {
                self.queued.remove(&relay);
                break;
            };
            if let Some(want) = self.wants.get_mut(&id)
                && want.asked.is_none()
                && want.candidates.front() == Some(&relay)
            {
                want.candidates.pop_front();
                want.asked = Some(relay);
                ids.push(id);
            }
        }
        ids
    }

    /// It is here, from wherever, or is known never to be wanted. Batches that wait for nothing
    /// more.
    #[must_use]
    pub fn came(&mut self, id: &EventId) -> Vec<BatchNo> {
        let waiting = self.drop_want(id).map(|want| want.waiting);
        waiting
            .unwrap_or_default()
            .into_keys()
            .filter(|batch| self.one_less(*batch, id))
            .collect()
    }

    fn drop_want(&mut self, id: &EventId) -> Option<Want> {
        let want = self.wants.remove(id)?;
        self.uncount(want.named_by);
        for relay in want.asked.iter().chain(&want.candidates) {
            forget_in(&mut self.of_relay, relay, id);
        }
        Some(want)
    }

    /// A relay was asked and did not deliver: the next that has it is. Batches that wait for
    /// nothing more, because nobody has what they waited for.
    #[must_use]
    pub fn missed(&mut self, relay: RelayNo, ids: &[EventId]) -> Vec<BatchNo> {
        let mut ended = Vec::new();
        for id in ids {
            let Some(want) = self.wants.get_mut(id) else {
                continue;
            };
            if want.asked != Some(relay) {
                continue;
            }
            want.asked = None;
            want.failed.push(relay);
            forget_in(&mut self.of_relay, &relay, id);
            match want.candidates.front() {
                Some(next) => self.queued.entry(*next).or_default().push_back(*id),
                None => ended.extend(self.end_in_vain(id)),
            }
        }
        ended
    }

    /// Nobody is left to ask. A batch whose own relay was never asked is not complete by it.
    fn end_in_vain(&mut self, id: &EventId) -> Vec<BatchNo> {
        if let Some(want) = self.wants.get(id) {
            let waiting = want.waiting.iter();
            let unasked = waiting.filter(|(_, relay)| !want.failed.contains(relay));
            self.spoiled.extend(unasked.map(|(batch, _)| *batch));
            if want.waiting.contains_key(&NOBODY) {
                self.vain.push(*id);
            }
        }
        self.came(id)
    }

    /// Whether something of the batch was given up without its relay having been asked.
    pub fn take_spoiled(&mut self, batch: BatchNo) -> bool {
        self.spoiled.remove(&batch)
    }

    /// What was asked for by itself in vain since this was asked last.
    pub fn take_vain(&mut self) -> Vec<EventId> {
        std::mem::take(&mut self.vain)
    }

    fn uncount(&mut self, relay: RelayNo) {
        if let Some(named) = self.named.get_mut(&relay) {
            *named -= 1;
            if *named == 0 {
                self.named.remove(&relay);
            }
        }
    }

    /// A relay refused to say. What it refuses again and again it does not have.
    #[must_use]
    pub fn refused(
        &mut self,
        relay: RelayNo,
        ids: impl IntoIterator<Item = EventId>,
    ) -> Vec<BatchNo> {
        let (mut later, mut never) = (Vec::new(), Vec::new());
        for id in ids {
            let Some(want) = self.wants.get_mut(&id) else {
                continue;
            };
            want.refusals = want.refusals.saturating_add(1);
            match want.refusals < MAX_REFUSALS {
                true => later.push(id),
                false => never.push(id),
            }
        }
        self.put_off(relay, later);
        let mut ended = Vec::new();
        for id in &never {
            let Some(want) = self
                .wants
                .get_mut(id)
                .filter(|want| want.asked == Some(relay))
            else {
                continue;
            };
            want.asked = None;
            forget_in(&mut self.of_relay, &relay, id);
            match want.candidates.front() {
                Some(next) => self.queued.entry(*next).or_default().push_back(*id),
                None => ended.extend(self.end_in_vain(id)),
            }
        }
        ended
    }

    /// A relay would not say, for now: others that have it come first, then it is asked again.
    pub fn put_off(&mut self, relay: RelayNo, ids: impl IntoIterator<Item = EventId>) {
        for id in ids {
            let Some(want) = self.wants.get_mut(&id) else {
                continue;
            };
            if want.asked == Some(relay) {
                want.asked = None;
                want.candidates.push_back(relay);
                if let Some(next) = want.candidates.front() {
                    self.queued.entry(*next).or_default().push_back(id);
                }
            }
        }
    }

    /// This relay said that it has it.
    pub fn is_named_by(&self, relay: RelayNo, id: &EventId) -> bool {
        let waiting = self.wants.get(id).map(|want| &want.waiting);
        let mut batches = waiting.into_iter().flatten();
        batches.any(|(batch, of)| *batch != NOBODY && *of == relay)
    }

    /// The batches that wait for it.
    pub fn waiting(&self, id: &EventId) -> impl Iterator<Item = BatchNo> {
        let want = self.wants.get(id);
        want.into_iter()
            .flat_map(|want| want.waiting.keys().copied())
    }

    /// Relays that there is something to ask of.
    pub fn relays(&self) -> Vec<RelayNo> {
        self.queued.keys().copied().collect()
    }

    /// The line to a relay is gone: whatever was to come over it comes from others, or not at all.
    #[must_use]
    pub fn lost(&mut self, relay: RelayNo) -> Vec<BatchNo> {
        self.queued.remove(&relay);
        let mut gone = Vec::new();
        for id in self.of_relay.remove(&relay).unwrap_or_default() {
            let Some(want) = self.wants.get_mut(&id) else {
                continue;
            };
            let was_next = want.asked.is_none() && want.candidates.front() == Some(&relay);
            want.candidates.retain(|other| *other != relay);
            if want.asked == Some(relay) {
                want.asked = None;
            } else if !was_next {
                continue;
            }
            match want.candidates.front() {
                Some(next) => self.queued.entry(*next).or_default().push_back(id),
                None => gone.push(id),
            }
        }
        gone.iter().flat_map(|id| self.end_in_vain(id)).collect()
    }

    /// Nobody waits for this batch any more; what was asked for may still come.
    pub fn forget(&mut self, batch: BatchNo) {
        self.spoiled.remove(&batch);
        for id in self.open.remove(&batch).unwrap_or_default() {
            let Some(want) = self.wants.get_mut(&id) else {
                continue;
            };
            want.waiting.remove(&batch);
            if want.waiting.is_empty() && want.asked.is_none() {
                self.drop_want(&id);
            }
        }
    }

    pub fn open(&self, batch: BatchNo) -> usize {
        self.open.get(&batch).map_or(0, BTreeSet::len)
    }

    /// True when that was the last.
    fn one_less(&mut self, batch: BatchNo, id: &EventId) -> bool {
        self.open.contains_key(&batch) && {
            forget_in(&mut self.open, &batch, id);
            !self.open.contains_key(&batch)
        }
    }

    /// Sums that are kept up, against sums made anew.
    pub fn audit(&self) -> Result<(), String> {
        let mut open: FxHashMap<BatchNo, BTreeSet<EventId>> = FxHashMap::default();
        let mut of_relay: FxHashMap<RelayNo, BTreeSet<EventId>> = FxHashMap::default();
        for (id, want) in &self.wants {
            for batch in want.waiting.keys() {
                open.entry(*batch).or_default().insert(*id);
            }
            for relay in want.asked.iter().chain(&want.candidates) {
                of_relay.entry(*relay).or_default().insert(*id);
            }
            if want.asked.is_none() && want.candidates.is_empty() {
                return Err("an event is wanted and nobody has it".to_owned());
            }
        }
        let named: usize = self.named.values().sum();
        let most = self.max + self.named.len() * MIN_SHARE;
        if open != self.open || self.wants.len() > most || named != self.wants.len() {
            return Err("wanted events are miscounted".to_owned());
        }
        if of_relay != self.of_relay {
            return Err("what relays are asked for is miscounted".to_owned());
        }
        for (id, want) in &self.wants {
            let next = want.candidates.front().filter(|_| want.asked.is_none());
            let is_queued = |relay: &RelayNo| {
                let queue = self.queued.get(relay);
                queue.is_some_and(|queue| queue.contains(id))
            };
            if next.is_some_and(|relay| !is_queued(relay)) {
                return Err(format!("{id} is wanted and never asked for"));
            }
        }
        Ok(())
    }
}

fn forget_in<K: Hash + Eq>(sets: &mut FxHashMap<K, BTreeSet<EventId>>, key: &K, id: &EventId) {
    if let Some(ids) = sets.get_mut(key) {
        ids.remove(id);
        if ids.is_empty() {
            sets.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: RelayNo = RelayNo(1);
    const TWO: RelayNo = RelayNo(2);
    const A: BatchNo = BatchNo(1);
    const B: BatchNo = BatchNo(2);

    fn id(n: u8) -> EventId {
        EventId([n; 32])
    }

    #[test]
    fn an_event_is_asked_of_one_relay_at_a_time() {
        let mut downloads = Downloads::new(10);
        assert!(downloads.need(ONE, A, id(1)));
        assert!(downloads.need(TWO, B, id(1)));
        assert_eq!(downloads.next(TWO, 9), []);
        assert_eq!(downloads.next(ONE, 9), [id(1)]);
        assert!(downloads.need(TWO, B, id(1)), "said again");
        assert_eq!(downloads.next(TWO, 9), [], "while the first is asked");
        assert_eq!(downloads.came(&id(1)), [A, B], "both waited for it");
        downloads.audit().unwrap();
    }

    #[test]
    fn what_one_relay_fails_to_deliver_the_next_is_asked_for() {
        let mut downloads = Downloads::new(10);
        assert!(downloads.need(ONE, A, id(1)) && downloads.need(TWO, B, id(1)));
        assert_eq!(downloads.next(ONE, 9), [id(1)]);
        assert_eq!(downloads.missed(ONE, &[id(1)]), []);
        assert!(downloads.need(ONE, A, id(1)), "it says so again, in vain");
        assert_eq!(downloads.next(ONE, 9), []);
        assert_eq!(downloads.next(TWO, 9), [id(1)]);
        assert_eq!(downloads.missed(TWO, &[id(1)]), [A, B], "nobody has it");
        assert!(downloads.is_empty());
    }

    #[test]
    fn a_lost_line_hands_its_events_to_the_others() {
        let mut downloads = Downloads::new(10);
        for n in 1..=4 {
            assert!(downloads.need(ONE, A, id(n)));
        }
        assert!(downloads.need(TWO, B, id(1)) && downloads.need(TWO, B, id(3)));
        assert_eq!(downloads.next(ONE, 2), [id(1), id(2)]);
        assert_eq!(downloads.lost(ONE), []);
        downloads.audit().unwrap();
        assert_eq!(downloads.next(TWO, 9), [id(1), id(3)]);
        assert_eq!((downloads.open(A), downloads.open(B)), (2, 2));
    }

    #[test]
    fn a_lost_line_touches_nothing_of_others() {
        let mut downloads = Downloads::new(100);
        for n in [9, 3, 7] {
            assert!(downloads.need(ONE, A, id(n)));
        }
        assert!(downloads.need(TWO, B, id(1)));
        assert_eq!(downloads.lost(TWO), [B]);
        assert_eq!(downloads.next(ONE, 9), [id(9), id(3), id(7)]);
        downloads.forget(A);
        assert!(downloads.open.is_empty());
        downloads.audit().unwrap();
    }

    #[test]
    fn no_relay_fills_the_room_of_all() {
        let mut downloads = Downloads::new(160);
        let named = |n: u32| {
            let mut id = [0; 32];
            id[..4].copy_from_slice(&n.to_be_bytes());
            EventId(id)
        };
        let taken = (0..160).filter(|n| downloads.need(ONE, A, named(*n)));
        assert_eq!(taken.count(), MIN_SHARE);
        assert!(downloads.need(TWO, B, named(999)));
        downloads.audit().unwrap();
        // Nor do many of one owner together.
        for n in 1_000..1_200 {
            let _ = downloads.need(RelayNo(n % 8), B, named(n));
        }
        assert!(downloads.len() >= 160);
        assert!(downloads.need(RelayNo(99), A, named(2_000)));
        downloads.audit().unwrap();
    }

    #[test]
    fn what_a_relay_refuses_again_and_again_it_does_not_have() {
        let mut downloads = Downloads::new(10);
        assert!(downloads.need(ONE, A, id(1)));
        for _ in 1..MAX_REFUSALS {
            assert_eq!(downloads.next(ONE, 9), [id(1)]);
            assert_eq!(downloads.refused(ONE, [id(1)]), []);
        }
        assert_eq!(downloads.next(ONE, 9), [id(1)]);
        assert_eq!(downloads.refused(ONE, [id(1)]), [A]);
        assert!(downloads.is_empty());
    }

    #[test]
    fn there_are_no_more_wants_than_allowed() {
        let mut downloads = Downloads::new(2);
        assert!(downloads.need(ONE, A, id(1)) && downloads.need(ONE, A, id(2)));
        assert!(!downloads.need(ONE, A, id(3)));
        assert!(downloads.need(TWO, B, id(2)), "known ones cost nothing");
        downloads.audit().unwrap();
    }

    #[test]
    fn whatever_happens_each_event_is_asked_once_at_a_time_and_every_batch_ends() {
        for seed in 0..500 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut downloads = Downloads::new(30);
            let mut asked: BTreeMap<EventId, RelayNo> = BTreeMap::new();
            for _ in 0..200 {
                let (relay, n) = (RelayNo(rng.u32(0..4)), rng.u8(0..40));
                match rng.u8(0..8) {
                    0..=2 => {
                        let _ = downloads.need(relay, BatchNo(rng.u64(0..6)), id(n));
                    }
                    3 | 4 => {
                        for id in downloads.next(relay, rng.usize(1..5)) {
                            assert_eq!(asked.insert(id, relay), None, "asked twice");
                        }
                    }
                    5 => {
                        let _ = downloads.came(&id(n));
                        asked.remove(&id(n));
                    }
                    6 => {
                        let of_relay = asked.iter().filter(|(_, at)| **at == relay);
                        let ids: Vec<EventId> = of_relay.map(|(id, _)| *id).collect();
                        asked.retain(|_, at| *at != relay);
                        let _ = downloads.missed(relay, &ids);
                    }
                    _ => {
                        asked.retain(|_, at| *at != relay);
                        let _ = downloads.lost(relay);
                    }
                }
                downloads.audit().unwrap();
            }
            for relay in (0..4).map(RelayNo) {
                let _ = downloads.lost(relay);
            }
            assert!(downloads.is_empty() && downloads.open.is_empty(), "{seed}");
        }
    }
}
