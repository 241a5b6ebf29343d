//! RepoSyncIndex: which repositories there are to sync, at which relays each is, and which root
//! events belong to it.

use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;

use super::items::{RepoIx, RootIx};
use crate::clock::Timestamp;
use crate::id::{EventId, Pubkey};
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

/// One owner's repositories have this part of all roots at most.
const SHARES: usize = 8;
/// And so many in a small room.
const MIN_SHARE: usize = 64;

/// Where a root event is kept in mind; about 140 bytes each with its bits at five relays.
#[derive(Debug, Default)]
struct Roots {
    known: FxHashMap<RootIx, Root>,
    by_id: FxHashMap<EventId, RootIx>,
    /// Numbers are never used again: requests on their way still name them.
    next: u32,
    /// How many each owner's repositories have, each in each.
    of_owner: FxHashMap<Pubkey, usize>,
}

#[derive(Debug)]
struct Root {
    id: EventId,
    /// When something last happened about it.
    active: Timestamp,
    /// Repositories that it belongs to.
    repos: u32,
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
        self.roots.leave(&needs);
        Some(needs)
    }

    pub fn roots(&self) -> usize {
        self.roots.known.len()
    }

    pub fn root(&self, ix: RootIx) -> Option<&EventId> {
        self.roots.known.get(&ix).map(|root| &root.id)
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
        let ix = RootIx(self.roots.next);
        self.roots.next += 1;
        let (active, repos) = (at, 0);
        let root = Root { id, active, repos };
        self.roots.known.insert(ix, root);
        self.roots.by_id.insert(id, ix);
        ix
    }

    /// There is room for one more root in a repository of that owner.
    pub fn has_room(&self, owner: &Pubkey, most: usize) -> bool {
        let own = self.roots.of_owner.get(owner).copied();
        own.unwrap_or_default() < (most / SHARES).max(MIN_SHARE)
    }

    /// The root belongs to the repository, until that leaves. False if it did already.
    pub fn put_root(&mut self, root: RootIx, ix: RepoIx) -> bool {
        let needs = self.repos.get_mut(ix.0 as usize).and_then(Option::as_mut);
        let Some(needs) = needs else {
            return false;
        };
        let is_new = needs.roots.insert(root.0);
        if is_new {
            let owner = needs.repo.owner;
            *self.roots.of_owner.entry(owner).or_default() += 1;
            if let Some(root) = self.roots.known.get_mut(&root) {
                root.repos += 1;
            }
        }
        is_new
    }

    /// Something happened about it.
    pub fn touch(&mut self, ix: RootIx, at: Timestamp) {
        if let Some(root) = self.roots.known.get_mut(&ix) {
            root.active = at.max(root.active);
        }
    }

    pub fn active(&self, ix: RootIx) -> Timestamp {
        let root = self.roots.known.get(&ix);
        root.map_or(Timestamp(0), |root| root.active)
    }

    pub fn audit(&self) -> Result<(), String> {
        let mut of_owner: FxHashMap<Pubkey, usize> = FxHashMap::default();
        let mut repos: FxHashMap<RootIx, u32> = FxHashMap::default();
        for (_, needs) in self.iter().filter(|(_, needs)| !needs.roots.is_empty()) {
            *of_owner.entry(needs.repo.owner).or_default() += needs.roots.len() as usize;
            for root in &needs.roots {
                *repos.entry(RootIx(root)).or_default() += 1;
            }
        }
        let known = self.roots.known.iter();
        let known: FxHashMap<_, _> = known.map(|(ix, root)| (*ix, root.repos)).collect();
        let found = |root: &Root| self.roots.by_id.contains_key(&root.id);
        let all_found = self.roots.known.values().all(found);
        if of_owner != self.roots.of_owner || repos != known || !all_found {
            return Err("roots are miscounted".to_owned());
        }
        Ok(())
    }
}

impl Roots {
    /// What belonged to this repository alone is forgotten.
    fn leave(&mut self, needs: &RepoSyncNeeds) {
        for ix in needs.roots.iter().map(RootIx) {
            let Some(root) = self.known.get_mut(&ix) else {
                continue;
            };
            root.repos -= 1;
            if root.repos == 0 {
                self.by_id.remove(&root.id);
                self.known.remove(&ix);
            }
        }
        if let Some(count) = self.of_owner.get_mut(&needs.repo.owner) {
            *count -= needs.roots.len() as usize;
            if *count == 0 {
                self.of_owner.remove(&needs.repo.owner);
            }
        }
    }
}
