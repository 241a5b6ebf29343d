//! The disk of a scene, seen through somebody who counts the events that are read whole. A large one
//! takes a millisecond to parse: what the core decides on its one thread must not rest on many.

use std::cell::Cell;
use std::sync::Arc;

use grasp_core::event::Address;
use grasp_core::facts::{Applied, PullRequestRow, RootCursor, RootPage, RootRow};
use grasp_core::nip34::{Rank, Target};
use grasp_core::{Event, EventId, Facts, Kind, Pubkey, RepoId, StoreOutcome};
use grasp_sim::disk::Disk;

/// Events that were read whole for one input, and the most that any input took; how often one was
/// looked for at all; and rows of all kinds.
#[derive(Debug, Default)]
pub struct Reads {
    now: Cell<usize>,
    most: Cell<usize>,
    looked_for: Cell<usize>,
    most_looked_for: Cell<usize>,
    rows: Cell<usize>,
    most_rows: Cell<usize>,
}

impl Reads {
    pub fn of_one_input<'a>(&'a self, disk: &'a Disk) -> Counted<'a> {
        self.now.set(0);
        self.looked_for.set(0);
        self.rows.set(0);
        Counted { disk, reads: self }
    }

    /// The most since this was asked last.
    pub fn take_most(&self) -> usize {
        self.most.take()
    }

    /// The most that one input looked for since this was asked last.
    pub fn take_most_looked_for(&self) -> usize {
        self.most_looked_for.take()
    }

    /// The most rows of any kind that one input took since this was asked last.
    pub fn take_most_rows(&self) -> usize {
        self.most_rows.take()
    }

    fn count_rows(&self, rows: usize) {
        self.rows.set(self.rows.get() + rows);
        self.most_rows
            .set(self.most_rows.get().max(self.rows.get()));
    }

    fn count_look(&self) {
        self.count_rows(1);
        self.looked_for.set(self.looked_for.get() + 1);
        let most = self.most_looked_for.get().max(self.looked_for.get());
        self.most_looked_for.set(most);
    }

    fn count(&self, events: usize) {
        self.now.set(self.now.get() + events);
        self.most.set(self.most.get().max(self.now.get()));
    }
}

pub struct Counted<'a> {
    disk: &'a Disk,
    reads: &'a Reads,
}

impl Facts for Counted<'_> {
    fn kind_of(&self, id: &EventId) -> Option<Kind> {
        self.reads.count_look();
        self.disk.kind_of(id)
    }

    fn author_of(&self, id: &EventId) -> Option<Pubkey> {
        self.reads.count_rows(1);
        self.disk.author_of(id)
    }

    fn event(&self, id: &EventId) -> Option<Arc<Event>> {
        self.reads.count(1);
        self.disk.event(id)
    }

    fn newest(&self, address: &Address) -> Option<Arc<Event>> {
        self.reads.count(1);
        self.disk.newest(address)
    }

    fn applied(&self, repo: &RepoId) -> Option<Applied> {
        self.disk.applied(repo)
    }

    fn rank_at(&self, address: &Address) -> Option<Rank> {
        self.reads.count_rows(1);
        self.disk.rank_at(address)
    }

    fn pull_request(&self, id: &EventId) -> Option<PullRequestRow> {
        self.reads.count_rows(1);
        self.disk.pull_request(id)
    }

    fn roots(&self, repo: &RepoId, kinds: &[Kind]) -> Vec<RootRow> {
        let found = self.disk.roots(repo, kinds);
        self.reads.count_rows(1 + found.len());
        found
    }

    fn updates(&self, pull_request: &EventId) -> Vec<RootRow> {
        let found = self.disk.updates(pull_request);
        self.reads.count_rows(1 + found.len());
        found
    }

    fn naming(
        &self,
        target: &Target,
        kind: Kind,
        after: Option<RootCursor>,
        left: &mut usize,
    ) -> RootPage {
        let page = self.disk.naming(target, kind, after, left);
        self.reads.count_rows(1 + page.rows.len());
        page
    }

    fn is_named(&self, event: &Event) -> bool {
        self.disk.is_named(event)
    }

    fn foresee(&self, event: &Event) -> Option<StoreOutcome> {
        self.disk.foresee(event)
    }
}
