//! What is open on one connection. Watches at rest are many: what is asked about the others must
//! not cost a look at each of them.

use std::collections::{BTreeMap, BTreeSet};

use super::batch::Step;
use super::downloads::BatchNo;
use super::filters::Chunk;
use super::items::Items;
use super::paging::Paging;
use crate::clock::{Mono, Timestamp};
use crate::id::EventId;
use crate::ticket::SubNo;

/// Times that the deadline of an answered request is put off.
const MAX_PATIENCE: u8 = 10;

/// What a subscription or comparison is for.
#[derive(Debug)]
pub enum Purpose {
    /// Watches; what is stored already belongs to the batch, if there is one.
    Live {
        chunks: Vec<Chunk>,
        batch: Option<BatchNo>,
    },
    /// What was missed, in one request.
    CatchUp {
        batch: BatchNo,
        chunks: Vec<Chunk>,
        since: Option<Timestamp>,
    },
    Page {
        batch: BatchNo,
        step: Step,
        paging: Paging,
    },
    Compare {
        batch: BatchNo,
        step: Step,
    },
    Fetch {
        asked: Vec<EventId>,
        /// Of these, what has not come.
        ids: BTreeSet<EventId>,
    },
}

#[derive(Debug)]
pub struct Sub {
    pub purpose: Purpose,
    /// EVENT frames before its EOSE, once that came.
    pub sent: Option<u32>,
    /// Frames that have become something.
    pub settled: u32,
    /// The relay says that nothing older is there.
    pub complete: bool,
    /// It was taken as answered without an EOSE, or something of the answer may have been left out
    /// unread: there may be more.
    pub unsure: bool,
    /// Without a word until then it has failed. None once what it was opened for is done, and it
    /// goes on to watch.
    deadline: Option<Mono>,
    /// How often its deadline was put off because we were slow to judge.
    pub patience: u8,
}

impl Sub {
    pub fn new(purpose: Purpose, deadline: Mono) -> Self {
        Self {
            purpose,
            sent: None,
            settled: 0,
            complete: false,
            unsure: false,
            deadline: Some(deadline),
            patience: MAX_PATIENCE,
        }
    }

    pub fn deadline(&self) -> Option<Mono> {
        self.deadline
    }

    /// What it was opened for is done.
    pub fn is_over(&self) -> bool {
        self.deadline.is_none()
    }

    /// It has more time, unless it is over.
    pub fn put_off(&mut self, deadline: Mono) {
        self.deadline = self.deadline.map(|_| deadline);
    }

    /// Everything that came before its EOSE has found its place.
    pub fn is_settled(&self) -> bool {
        self.sent.is_some_and(|sent| self.settled >= sent)
    }

    pub fn is_live(&self) -> bool {
        matches!(self.purpose, Purpose::Live { .. })
    }

    pub fn batch(&self) -> Option<BatchNo> {
        match &self.purpose {
            Purpose::Live { batch, .. } => *batch,
            Purpose::CatchUp { batch, .. }
            | Purpose::Page { batch, .. }
            | Purpose::Compare { batch, .. } => Some(*batch),
            Purpose::Fetch { .. } => None,
        }
    }

    /// What it watches.
    pub fn watched(&self) -> Items {
        let mut items = Items::default();
        if let Purpose::Live { chunks, .. } = &self.purpose {
            chunks.iter().for_each(|chunk| items.add(&chunk.items()));
        }
        items
    }

    pub fn filters(&self) -> usize {
        match &self.purpose {
            Purpose::Live { chunks, .. } | Purpose::CatchUp { chunks, .. } => filters_of(chunks),
            _ => 1,
        }
    }
}

pub fn filters_of(chunks: &[Chunk]) -> usize {
    let count = |chunk: &Chunk| chunk.layer.letters().len().max(1);
    chunks.iter().map(count).sum()
}

#[derive(Debug, Default)]
pub struct Subs {
    all: BTreeMap<SubNo, Sub>,
    next: u32,
    /// Those that are not over.
    busy: BTreeSet<SubNo>,
    /// Those that watch, with how much.
    watches: BTreeSet<(u64, SubNo)>,
    /// Filters of those that watch.
    filters: usize,
}

impl Subs {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn get(&self, no: SubNo) -> Option<&Sub> {
        self.all.get(&no)
    }

    pub fn get_mut(&mut self, no: SubNo) -> Option<&mut Sub> {
        self.all.get_mut(&no)
    }

    /// The number of the one that is opened next.
    pub fn next(&self) -> SubNo {
        SubNo(self.next)
    }

    pub fn open(&mut self, sub: Sub) -> SubNo {
        let no = self.next();
        self.next += 1;
        if sub.is_live() {
            self.watches.insert((sub.watched().len(), no));
            self.filters += sub.filters();
        }
        self.busy.insert(no);
        self.all.insert(no, sub);
        no
    }

    pub fn close(&mut self, no: SubNo) -> Option<Sub> {
        let sub = self.all.remove(&no)?;
        self.busy.remove(&no);
        if sub.is_live() {
            self.watches.remove(&(sub.watched().len(), no));
            self.filters -= sub.filters();
        }
        Some(sub)
    }

    /// What it was opened for is done: it goes on to watch.
    pub fn end(&mut self, no: SubNo) -> Option<&Sub> {
        let sub = self.all.get_mut(&no)?;
        sub.deadline = None;
        self.busy.remove(&no);
        Some(sub)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (SubNo, &Sub)> {
        self.all.iter().map(|(no, sub)| (*no, sub))
    }

    /// Those that are not over.
    pub fn busy(&self) -> impl DoubleEndedIterator<Item = (SubNo, &Sub)> {
        let busy = self.busy.iter();
        busy.filter_map(|no| Some((*no, self.all.get(no)?)))
    }

    /// Any answer that is not over may be longer than it seems.
    pub fn doubt_all(&mut self) {
        for no in &self.busy {
            if let Some(sub) = self.all.get_mut(no) {
                sub.unsure = true;
            }
        }
    }

    pub fn watches(&self) -> usize {
        self.watches.len()
    }

    /// Filters of all that watch.
    pub fn filters(&self) -> usize {
        self.filters
    }

    /// Watches of fewer items than this.
    pub fn smaller_than(&self, most: u64) -> impl Iterator<Item = (SubNo, &Sub)> {
        let small = self.watches.range(..(most, SubNo(0)));
        small.filter_map(|(_, no)| Some((*no, self.all.get(no)?)))
    }

    /// A repository is gone, and its number may soon be another's.
    pub fn forget_repo(&mut self, repo: u32) {
        for (no, sub) in &mut self.all {
            let before = sub.watched().len();
            let Purpose::Live { chunks, .. } = &mut sub.purpose else {
                continue;
            };
            for chunk in chunks.iter_mut().filter(|chunk| chunk.is_of_repositories()) {
                chunk.members.remove(repo);
            }
            if self.watches.remove(&(before, *no)) {
                self.watches.insert((sub.watched().len(), *no));
            }
        }
    }
}
