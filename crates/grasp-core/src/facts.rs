//! The few point reads of the store that the rules need. The store implements them, and so does
//! the simulator.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::event::{Address, Event, Kind};
use crate::id::{EventId, Pubkey};
use crate::nip34::{PullRequest, Rank, RepoId, Target};

/// An event's place in the order of commits. A query that saw everything below `n` and a live
/// stream that starts at `n` miss nothing and repeat nothing.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Seq(pub u64);

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

/// The state whose refs a repository has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    pub rank: Rank,
    /// When the repository had refs for the first time.
    pub since: Timestamp,
}

impl Applied {
    /// A rank only rises, and what was first stays so.
    #[must_use]
    pub fn rise(self, rank: Rank) -> Self {
        Self {
            rank: self.rank.max(rank),
            since: self.since,
        }
    }
}

/// A stored issue, patch, pull request or update, as far as an index knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RootRow {
    pub created_at: Timestamp,
    pub id: EventId,
    pub kind: Kind,
}

/// Where a walk through rows goes on: behind this one, with older ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RootCursor {
    pub created_at: Timestamp,
    pub id: EventId,
}

/// Some rows, the newest first, and where the next page begins. A page may be empty and yet not be
/// the last: rows of events that are gone count, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootPage {
    pub rows: Vec<RootRow>,
    pub next: Option<RootCursor>,
}

/// What a stored pull request or update says of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestRow {
    pub author: Pubkey,
    pub says: PullRequest,
}

/// What is stored, and so served. A store that cannot say does not answer: what is not here is
/// put away and taken down.
///
/// The core asks on the one thread that decides, so that almost every question is answered from
/// small rows, in microseconds. [`Facts::event`] and [`Facts::newest`] parse: a large event takes a
/// millisecond, and whoever asks for several of them bounds how many.
pub trait Facts {
    fn kind_of(&self, id: &EventId) -> Option<Kind>;

    /// Who signed a stored event.
    fn author_of(&self, id: &EventId) -> Option<Pubkey>;

    /// Parses.
    fn event(&self, id: &EventId) -> Option<Arc<Event>>;

    /// The version of a replaceable or addressable event that stands. Parses.
    fn newest(&self, address: &Address) -> Option<Arc<Event>>;

    /// Which version stands at an address.
    fn rank_at(&self, address: &Address) -> Option<Rank>;

    /// `None` for what is not stored, and for other kinds.
    fn pull_request(&self, id: &EventId) -> Option<PullRequestRow>;

    /// The state that a repository has, or had when it was announced last.
    fn applied(&self, repo: &RepoId) -> Option<Applied>;

    /// Stored events of these kinds that name this repository, updates of pull requests perhaps
    /// only through their root. A bounded number of each kind, the newest.
    fn roots(&self, repo: &RepoId, kinds: &[Kind]) -> Vec<RootRow>;

    /// Stored updates of this pull request. A bounded number of them, the newest.
    fn updates(&self, pull_request: &EventId) -> Vec<RootRow>;

    /// Stored events of one kind that name the target themselves, page by page: all of them, however
    /// many. Each row that is looked at takes one of `left`, whether or not its event stands.
    fn naming(
        &self,
        target: &Target,
        kind: Kind,
        after: Option<RootCursor>,
        left: &mut usize,
    ) -> RootPage;

    /// A stored event names this one, by id or address, through `a A e E q`.
    fn is_named(&self, event: &Event) -> bool;

    /// What the store would say to this event now, if not that it is stored.
    fn foresee(&self, event: &Event) -> Option<StoreOutcome>;
}
