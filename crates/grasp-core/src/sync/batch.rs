//! History to be fetched: what for, in which steps, and what is in doubt again.

use std::collections::{BTreeMap, VecDeque};

use super::filters::{Chunk, Layer};
use super::items::Items;
use super::note::Source;
use crate::clock::{Mono, Timestamp};
use crate::nip34::RepoId;

/// Groups of doubtful items that are told apart at one relay.
const MAX_DOUBTS: usize = 8;

/// Why history is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// It never was.
    First,
    /// The line was down, or the relay did not let us watch.
    CatchUp,
    /// It cannot be watched, and is compared from time to time.
    Turn,
    /// Everything is compared every day.
    Daily,
}

impl Via {
    pub fn source(self) -> Source {
        match self {
            Via::First | Via::CatchUp | Via::Turn => Source::CatchUp,
            Via::Daily => Source::Daily,
        }
    }

    /// What it finds should have come live.
    pub fn shows_gaps(self) -> bool {
        matches!(self, Via::CatchUp | Via::Daily)
    }
}

/// Items whose history was here, as far as up to a time perhaps.
#[derive(Debug, Clone, PartialEq)]
pub struct Doubt {
    pub items: Items,
    /// Everything before it is here.
    pub since: Option<Timestamp>,
    pub via: Via,
}

/// Each item is in one group at most: the one that reaches back furthest.
#[derive(Debug, Default)]
pub struct Doubts(Vec<Doubt>);

impl Doubts {
    pub fn add(&mut self, mut doubt: Doubt) {
        for other in &mut self.0 {
            if other.since <= doubt.since {
                doubt.items.remove(&other.items);
            } else {
                other.items.remove(&doubt.items);
            }
        }
        let same = |other: &&mut Doubt| other.since == doubt.since && other.via == doubt.via;
        match self.0.iter_mut().find(same) {
            Some(other) => other.items.add(&doubt.items),
            None => self.0.push(doubt),
        }
        self.0.retain(|doubt| !doubt.items.is_empty());
        while self.0.len() > MAX_DOUBTS {
            self.merge_last();
        }
    }

    fn merge_last(&mut self) {
        if let (Some(one), Some(other)) = (self.0.pop(), self.0.last_mut()) {
            other.items.add(&one.items);
            other.since = other.since.min(one.since);
        }
    }

    /// Their history is here, or they are wanted no longer.
    pub fn settle(&mut self, items: &Items) {
        for doubt in &mut self.0 {
            doubt.items.remove(items);
        }
        self.0.retain(|doubt| !doubt.items.is_empty());
    }

    pub fn forget_repo(&mut self, repo: u32) {
        for doubt in &mut self.0 {
            doubt.items.repos.remove(repo);
        }
        self.0.retain(|doubt| !doubt.items.is_empty());
    }

    /// All of it is looked at from then on, or earlier.
    pub fn reach_back(&mut self, since: Timestamp) {
        for doubt in &mut self.0 {
            doubt.since = doubt.since.map(|known| known.min(since));
        }
    }

    pub fn take_any(&mut self) -> Option<Doubt> {
        self.0.pop()
    }

    /// All items that are in doubt.
    pub fn items(&self) -> Items {
        let mut items = Items::default();
        self.0.iter().for_each(|doubt| items.add(&doubt.items));
        items
    }

    /// The first group that has some of these.
    pub fn next(&self, among: &Items) -> Option<Doubt> {
        self.0.iter().find_map(|doubt| {
            let mut doubt = doubt.clone();
            doubt.items.keep(among);
            (!doubt.items.is_empty()).then_some(doubt)
        })
    }

    /// The oldest time from which something is in doubt; `Some(None)` is the beginning.
    pub fn oldest(&self) -> Option<Option<Timestamp>> {
        self.0.iter().map(|doubt| doubt.since).min()
    }
}

/// How a piece of history is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// NIP-77.
    Compare,
    /// REQ with `until`, page by page.
    Pages,
    /// The same, and it could not be compared.
    OnlyPages,
}

/// One filter over one stretch of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub chunk: Chunk,
    pub letter: u8,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub how: How,
    pub tries: u8,
}

impl Step {
    /// One for each letter of the chunk.
    pub fn all(chunk: &Chunk, since: Option<Timestamp>, how: How) -> Vec<Step> {
        let letters = match chunk.layer.letters() {
            [] => &[0][..],
            letters => letters,
        };
        let step = |letter: &u8| Step {
            chunk: chunk.clone(),
            letter: *letter,
            since,
            until: None,
            how,
            tries: 0,
        };
        letters.iter().map(step).collect()
    }
}

/// Items whose history is in flight; the entry of a PendingSyncIndex.
#[derive(Debug)]
pub struct Batch {
    pub items: Items,
    /// Of these, what no relay has given us yet: others wait for it.
    pub leads: Items,
    /// Since when they wait.
    pub began: Mono,
    pub via: Via,
    /// Requests for what was missed, each with several filters.
    pub catch_ups: VecDeque<(Vec<Chunk>, Option<Timestamp>)>,
    /// Not begun yet.
    pub steps: VecDeque<Step>,
    /// What runs.
    phase: Option<(Layer, u8)>,
    /// Requests that are open for it.
    pub running: usize,
    /// Something of it could not be had: it must be asked for again.
    pub failed: bool,
    /// It found more than there is room for.
    pub overflowed: bool,
    /// It is one request that goes on to watch.
    pub small: bool,
    /// Events that we have and the relay has not.
    pub lacks: BTreeMap<Option<RepoId>, u32>,
    pub compared: u64,
}

impl Batch {
    pub fn new(items: Items, via: Via, now: Mono) -> Self {
        Self {
            items,
            leads: Items::default(),
            began: now,
            via,
            catch_ups: VecDeque::new(),
            steps: VecDeque::new(),
            phase: None,
            running: 0,
            failed: false,
            overflowed: false,
            small: false,
            lacks: BTreeMap::new(),
            compared: 0,
        }
    }

    /// Letter after letter, so that the later ones find little that is new.
    pub fn add_steps(&mut self, chunks: &[Chunk], since: Option<Timestamp>, how: How) {
        let mut steps: Vec<Step> = chunks
            .iter()
            .flat_map(|chunk| Step::all(chunk, since, how))
            .collect();
        let place = |step: &Step| {
            let letters = step.chunk.layer.letters();
            let at = letters.iter().position(|letter| *letter == step.letter);
            (step.chunk.layer, at)
        };
        steps.sort_by_key(place);
        self.steps.extend(steps);
    }

    /// Nothing of it is left to ask for.
    pub fn is_asked(&self) -> bool {
        self.catch_ups.is_empty() && self.steps.is_empty() && self.running == 0
    }

    /// The next step, if it need not wait for those that run.
    pub fn next_step(&mut self, open_wants: usize) -> Option<Step> {
        let next = self.steps.front()?;
        let alone = self.running == 0 && open_wants == 0;
        let same = self.phase == Some((next.chunk.layer, next.letter));
        if !alone && !same {
            return None;
        }
        self.phase = Some((next.chunk.layer, next.letter));
        self.steps.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(list: &[u32]) -> Items {
        Items {
            roots: list.iter().copied().collect(),
            ..Items::default()
        }
    }

    fn doubt(list: &[u32], since: Option<u64>) -> Doubt {
        Doubt {
            items: roots(list),
            since: since.map(Timestamp),
            via: Via::CatchUp,
        }
    }

    #[test]
    fn an_item_is_in_doubt_from_the_oldest_time_that_was_said() {
        let mut doubts = Doubts::default();
        doubts.add(doubt(&[1, 2], Some(100)));
        doubts.add(doubt(&[2, 3], Some(50)));
        doubts.add(doubt(&[3], Some(70)));
        assert_eq!(doubts.next(&roots(&[1])), Some(doubt(&[1], Some(100))));
        assert_eq!(doubts.next(&roots(&[2, 3])), Some(doubt(&[2, 3], Some(50))));
        assert_eq!(doubts.oldest(), Some(Some(Timestamp(50))));
        doubts.add(doubt(&[1, 2, 3], None));
        assert_eq!(doubts.next(&roots(&[1, 3])), Some(doubt(&[1, 3], None)));
        doubts.settle(&roots(&[1, 2]));
        assert_eq!(doubts.next(&roots(&[1, 2])), None);
        assert_eq!(doubts.oldest(), Some(None));
    }

    #[test]
    fn there_are_few_groups_and_none_forgets_its_oldest_time() {
        let mut doubts = Doubts::default();
        for n in 0..100 {
            doubts.add(doubt(&[n], Some(1_000 - u64::from(n))));
        }
        assert!(doubts.0.len() <= MAX_DOUBTS);
        for n in 0..100 {
            let found = doubts.next(&roots(&[n])).unwrap();
            assert!(found.since <= Some(Timestamp(1_000 - u64::from(n))), "{n}");
        }
    }
}
