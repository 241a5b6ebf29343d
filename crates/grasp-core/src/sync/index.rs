//! RepoSyncIndex: which repositories there are to sync, at which relays each is, and which root
//! events belong to it.

use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;

use super::items::{RepoIx, RootIx};
use crate::clock::Timestamp;
use crate::id::EventId;
use crate::nip34::RepoId;
use crate::ticket::RelayNo;

/// How much of a repository is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It waits for its git data: its relays are known, and asked for announcements and states.
    Announced,
    /// It is served: everything that belongs to it is wanted.
    Served,
}

#[derive(Debug)]
pub struct RepoSyncNeeds {
    pub repo: RepoId,
    pub stage: Stage,
    /// Sorted.
    pub relays: Vec<RelayNo>,
    /// Relays that it names and that were not taken in.
    pub left_out: u32,
    pub roots: RoaringBitmap,
}

/// Where a root event is kept in mind; about 100 bytes each with its bits at five relays.
#[derive(Debug, Default)]
struct Roots {
    ids: Vec<EventId>,
    by_id: FxHashMap<EventId, RootIx>,
    /// When something last happened about it, in unix seconds.
    active: Vec<u64>,
}

#[derive(Debug, Default)]
pub struct RepoSyncIndex {
    by_id: FxHashMap<RepoId, RepoIx>,
    repos: Vec<Option<RepoSyncNeeds>>,
    free: Vec<RepoIx>,
    roots: Roots,
}

impl RepoSyncIndex {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub fn find(&self, repo: &RepoId) -> Option<RepoIx> {
        self.by_id.get(repo).copied()
    }

    pub fn get(&self, ix: RepoIx) -> Option<&RepoSyncNeeds> {
        self.repos.get(ix.0 as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, ix: RepoIx) -> Option<&mut RepoSyncNeeds> {
        self.repos.get_mut(ix.0 as usize)?.as_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = (RepoIx, &RepoSyncNeeds)> {
        let all = self.repos.iter().enumerate();
        all.filter_map(|(ix, needs)| Some((RepoIx(ix as u32), needs.as_ref()?)))
    }

    /// The repository's number, a new one if it is new.
    pub fn enter(&mut self, repo: &RepoId) -> RepoIx {
        if let Some(ix) = self.find(repo) {
            return ix;
        }
        let needs = RepoSyncNeeds {
            repo: repo.clone(),
            stage: Stage::Announced,
            relays: Vec::new(),
            left_out: 0,
            roots: RoaringBitmap::new(),
        };
        let ix = match self.free.pop() {
            Some(ix) => ix,
            None => {
                self.repos.push(None);
                RepoIx(self.repos.len() as u32 - 1)
            }
        };
        if let Some(slot) = self.repos.get_mut(ix.0 as usize) {
            *slot = Some(needs);
        }
        self.by_id.insert(repo.clone(), ix);
        ix
    }

    /// Its number is free from now on: no relay may have its bit any more.
    pub fn leave(&mut self, ix: RepoIx) -> Option<RepoSyncNeeds> {
        let needs = self.repos.get_mut(ix.0 as usize)?.take()?;
        self.by_id.remove(&needs.repo);
        self.free.push(ix);
        Some(needs)
    }

    pub fn roots(&self) -> usize {
        self.roots.ids.len()
    }

    pub fn root(&self, ix: RootIx) -> Option<&EventId> {
        self.roots.ids.get(ix.0 as usize)
    }

    pub fn find_root(&self, id: &EventId) -> Option<RootIx> {
        self.roots.by_id.get(id).copied()
    }

    /// The root's number, a new one if it is new.
    pub fn enter_root(&mut self, id: EventId, at: Timestamp) -> RootIx {
        if let Some(ix) = self.find_root(&id) {
            self.touch(ix, at);
            return ix;
        }
        let ix = RootIx(self.roots.ids.len() as u32);
        self.roots.ids.push(id);
        self.roots.active.push(at.0);
        self.roots.by_id.insert(id, ix);
        ix
    }

    /// Something happened about it.
    pub fn touch(&mut self, ix: RootIx, at: Timestamp) {
        if let Some(active) = self.roots.active.get_mut(ix.0 as usize) {
            *active = at.0.max(*active);
        }
    }

    pub fn active(&self, ix: RootIx) -> Timestamp {
        let active = self.roots.active.get(ix.0 as usize);
        Timestamp(active.copied().unwrap_or_default())
    }
}
