//! Hosted repositories: what is announced, who maintains it, and which state was applied last.

mod clones;
mod maintainers;
mod memo;

use std::cell::RefCell;
use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

pub use self::maintainers::MAX_MEMBERS;
use self::memo::Memo;
use crate::clock::Timestamp;
use crate::id::{EventId, Pubkey};
use crate::nip34::{Announcement, Identifier, Rank, RepoId};

/// When a listed key has authority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MaintainerRule {
    /// Once its own announcement names a member.
    #[default]
    Reciprocal,
    /// At once.
    Listed,
}

/// How far a repository has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Expired without git data, kept in mind in case that a state comes late. Not served by git.
    Remembered,
    /// Served by git, not by the relay.
    Held,
    /// The announcement is stored.
    Served,
}

#[derive(Debug, Clone)]
struct Entry {
    announcement: Announcement,
    standing: Standing,
    /// The state whose refs the repository has. It outlives its event and its author's
    /// membership, so that nothing older ever moves a ref.
    applied: Option<Applied>,
    /// The keys that the announcement lists, to look one up.
    listed: FxHashSet<Pubkey>,
}

#[derive(Debug, Clone, Copy)]
struct Applied {
    rank: Rank,
    /// When the repository had refs for the first time.
    since: Timestamp,
}

impl Applied {
    /// A rank only rises, and what was first stays so.
    fn rise(self, rank: Rank) -> Self {
        Self {
            rank: self.rank.max(rank),
            since: self.since,
        }
    }
}

/// The newest announcement of each author and identifier, and what follows from all of them.
#[derive(Debug, Default)]
pub struct Registry {
    rule: MaintainerRule,
    entries: FxHashMap<RepoId, Entry>,
    /// For a key and identifier: whose announcements list it.
    listed_by: FxHashMap<RepoId, Vec<Pubkey>>,
    by_event: FxHashMap<EventId, RepoId>,
    /// States of repositories that are not announced now, in case they come back.
    applied_before: FxHashMap<RepoId, Applied>,
    /// Maintainer sets are asked for often.
    memo: RefCell<Memo>,
    /// Announcements or standings that have changed since somebody looked.
    changed: BTreeSet<RepoId>,
}

impl Registry {
    pub fn new(rule: MaintainerRule) -> Self {
        Self {
            rule,
            ..Self::default()
        }
    }

    /// Takes an announcement in place of the one it replaces; an older one changes nothing.
    pub fn announce(&mut self, announcement: Announcement, standing: Standing) {
        let repo = announcement.repo.clone();
        let applied = match self.entries.get_mut(&repo) {
            Some(entry) if entry.announcement.rank > announcement.rank => return,
            Some(entry) if entry.announcement.listed == announcement.listed => {
                // Nobody gains or loses a word by it.
                self.memo.get_mut().forget_maintained(&repo.identifier);
                self.by_event.remove(&entry.announcement.rank.id);
                self.by_event.insert(announcement.rank.id, repo.clone());
                self.changed.insert(repo);
                entry.announcement = announcement;
                entry.standing = standing;
                return;
            }
            Some(entry) => entry.applied,
            None => self.applied_before.get(&repo).copied(),
        };
        self.forget(&repo);
        for key in &announcement.listed {
            let listed = RepoId::new(*key, repo.identifier.clone());
            self.listed_by.entry(listed).or_default().push(repo.owner);
        }
        self.applied_before.remove(&repo);
        self.by_event.insert(announcement.rank.id, repo.clone());
        self.memo.get_mut().forget_walks_past(&repo);
        let entry = Entry {
            listed: announcement.listed.iter().copied().collect(),
            announcement,
            standing,
            applied,
        };
        self.changed.insert(repo.clone());
        self.entries.insert(repo, entry);
    }

    /// Repositories whose announcement or standing has changed since this was asked last.
    pub fn take_changed(&mut self) -> BTreeSet<RepoId> {
        std::mem::take(&mut self.changed)
    }

    /// The announcement is gone: deleted, vanished or forgotten. Its rank is kept in mind.
    pub fn forget(&mut self, repo: &RepoId) {
        let Some(entry) = self.entries.remove(repo) else {
            return;
        };
        self.changed.insert(repo.clone());
        self.memo.get_mut().forget_walks_past(repo);
        self.by_event.remove(&entry.announcement.rank.id);
        for key in &entry.announcement.listed {
            let listed = RepoId::new(*key, repo.identifier.clone());
            if let Some(authors) = self.listed_by.get_mut(&listed) {
                authors.retain(|author| *author != repo.owner);
                if authors.is_empty() {
                    self.listed_by.remove(&listed);
                }
            }
        }
        if let Some(applied) = entry.applied {
            self.applied_before.insert(repo.clone(), applied);
        }
    }

    /// The repository has the refs of that state, and some refs since then, if it had none before.
    pub fn set_applied(&mut self, repo: &RepoId, rank: Rank, since: Timestamp) {
        let before = self.last_applied(repo).unwrap_or(Applied { rank, since });
        let applied = before.rise(rank);
        match self.entries.get_mut(repo) {
            Some(entry) => entry.applied = Some(applied),
            None => {
                self.applied_before.insert(repo.clone(), applied);
            }
        }
    }

    pub fn applied(&self, repo: &RepoId) -> Option<Rank> {
        self.last_applied(repo).map(|applied| applied.rank)
    }

    /// When a repository had refs for the first time.
    pub fn refs_since(&self, repo: &RepoId) -> Option<Timestamp> {
        self.last_applied(repo).map(|applied| applied.since)
    }

    fn last_applied(&self, repo: &RepoId) -> Option<Applied> {
        match self.entries.get(repo) {
            Some(entry) => entry.applied,
            None => self.applied_before.get(repo).copied(),
        }
    }

    pub fn set_standing(&mut self, repo: &RepoId, standing: Standing) {
        if let Some(entry) = self.entries.get_mut(repo) {
            entry.standing = standing;
            self.changed.insert(repo.clone());
            self.memo.get_mut().forget_maintained(&repo.identifier);
        }
    }

    pub fn announcement(&self, repo: &RepoId) -> Option<&Announcement> {
        self.entries.get(repo).map(|entry| &entry.announcement)
    }

    /// The repository that this event announces.
    pub fn repo_of(&self, announcement: &EventId) -> Option<&RepoId> {
        self.by_event.get(announcement)
    }

    /// Every announcement of one author; looks at all of them.
    pub fn owned_by(&self, owner: &Pubkey) -> Vec<RepoId> {
        let owned = self.entries.keys().filter(|repo| repo.owner == *owner);
        owned.cloned().collect()
    }

    /// The standing of a repository of ours: announced with us in its lists.
    pub fn hosting(&self, repo: &RepoId) -> Option<Standing> {
        let entry = self.entries.get(repo)?;
        entry.announcement.lists_us.then_some(entry.standing)
    }

    /// Git answers for it.
    pub fn is_hosted(&self, repo: &RepoId) -> bool {
        self.hosting(repo) >= Some(Standing::Held)
    }

    /// Any announcement, also of a maintainer who does not host here.
    pub fn standing(&self, repo: &RepoId) -> Option<Standing> {
        self.entries.get(repo).map(|entry| entry.standing)
    }

    /// Repositories of ours, in no order.
    pub fn hosted(&self) -> impl Iterator<Item = (&RepoId, Standing)> {
        self.entries
            .iter()
            .filter(|(_, entry)| entry.announcement.lists_us)
            .map(|(repo, entry)| (repo, entry.standing))
    }

    /// Announcements that have ended; looks at all of them.
    pub fn expired(&self, now: Timestamp) -> Vec<(RepoId, EventId)> {
        let ended = |entry: &Entry| entry.announcement.expires.is_some_and(|at| at <= now);
        let ended = self.entries.iter().filter(|(_, entry)| ended(entry));
        let mut ended: Vec<_> = ended
            .map(|(repo, entry)| (repo.clone(), entry.announcement.rank.id))
            .collect();
        ended.sort_unstable();
        ended
    }

    fn entry(&self, author: &Pubkey, identifier: &Identifier) -> Option<&Entry> {
        self.entries.get(&RepoId::new(*author, identifier.clone()))
    }

    fn listers(&self, key: &Pubkey, identifier: &Identifier) -> &[Pubkey] {
        self.listed_by
            .get(&RepoId::new(*key, identifier.clone()))
            .map_or(&[], Vec::as_slice)
    }
}
