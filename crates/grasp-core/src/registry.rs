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
use crate::facts::Applied;
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

/// The newest announcement of each author and identifier, and what follows from all of them.
#[derive(Debug, Default)]
pub struct Registry {
    rule: MaintainerRule,
    entries: FxHashMap<RepoId, Entry>,
    /// For a key and identifier: whose announcements list it.
    listed_by: FxHashMap<RepoId, Vec<Pubkey>>,
    by_event: FxHashMap<EventId, RepoId>,
    /// States that are not written down, because the disk would not: the store knows the others,
    /// also those of repositories that are not announced now.
    unrecorded: FxHashMap<RepoId, Applied>,
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
    /// `recorded` is what the store knows of the repository, in case it is back.
    pub fn announce(
        &mut self,
        announcement: Announcement,
        standing: Standing,
        recorded: Option<Applied>,
    ) {
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
            None => match (self.unrecorded.get(&repo).copied(), recorded) {
                (Some(unrecorded), Some(recorded)) => Some(recorded.rise(unrecorded.rank)),
                (unrecorded, recorded) => unrecorded.or(recorded),
            },
        };
        self.forget(&repo);
        for key in &announcement.listed {
            let listed = RepoId::new(*key, repo.identifier.clone());
            self.listed_by.entry(listed).or_default().push(repo.owner);
        }
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

    /// The announcement is gone: deleted, vanished or forgotten.
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
    }

    /// The repository has the refs of that state, and some refs since then, if it had none before.
    /// The store knows, and so nobody else need to while it is not announced.
    pub fn set_applied(&mut self, repo: &RepoId, rank: Rank, since: Timestamp) {
        let unrecorded = self.unrecorded.get(repo);
        if unrecorded.is_some_and(|unrecorded| unrecorded.rank <= rank) {
            self.unrecorded.remove(repo);
        }
        if let Some(entry) = self.entries.get_mut(repo) {
            let before = entry.applied.unwrap_or(Applied { rank, since });
            entry.applied = Some(before.rise(rank));
        }
    }

    /// The same, where the store knows only what is recorded.
    pub fn set_unrecorded(&mut self, repo: &RepoId, now: Applied, recorded: Option<Applied>) {
        let before = self.last_applied(repo).or(recorded).unwrap_or(now);
        let applied = before.rise(now.rank);
        self.unrecorded.insert(repo.clone(), applied);
        if let Some(entry) = self.entries.get_mut(repo) {
            entry.applied = Some(applied);
        }
    }

    /// The state of an announced repository, or one that the store does not know.
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
            None => self.unrecorded.get(repo).copied(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement() -> Announcement {
        Announcement {
            repo: RepoId::new(Pubkey([1; 32]), Identifier::parse("r").unwrap()),
            rank: rank(1),
            listed: vec![Pubkey([2; 32])],
            lists_us: true,
            expires: None,
            relays: Vec::new(),
            clones: Vec::new(),
        }
    }

    fn rank(second: u64) -> Rank {
        Rank {
            created_at: Timestamp(second),
            id: EventId([9; 32]),
        }
    }

    fn applied(second: u64, since: u64) -> Applied {
        Applied {
            rank: rank(second),
            since: Timestamp(since),
        }
    }

    #[test]
    fn a_rank_survives_the_announcement_in_the_store_alone() {
        let (mut registry, repo) = (Registry::default(), announcement().repo);
        registry.announce(announcement(), Standing::Served, None);
        registry.set_applied(&repo, rank(9), Timestamp(5));
        registry.forget(&repo);
        registry.set_applied(&repo, rank(9), Timestamp(5));
        assert_eq!(registry.applied(&repo), None);
        assert!(registry.entries.is_empty() && registry.unrecorded.is_empty());
        assert!(registry.by_event.is_empty() && registry.listed_by.is_empty());
        registry.announce(announcement(), Standing::Served, Some(applied(9, 5)));
        registry.set_applied(&repo, rank(8), Timestamp(6));
        assert_eq!(registry.last_applied(&repo), Some(applied(9, 5)));
    }

    #[test]
    fn what_the_disk_would_not_write_is_known_until_it_does() {
        let (mut registry, repo) = (Registry::default(), announcement().repo);
        registry.announce(announcement(), Standing::Served, Some(applied(3, 2)));
        registry.set_unrecorded(&repo, applied(5, 5), Some(applied(3, 2)));
        assert_eq!(registry.last_applied(&repo), Some(applied(5, 2)));
        registry.forget(&repo);
        registry.set_unrecorded(&repo, applied(7, 7), Some(applied(3, 2)));
        assert_eq!(registry.last_applied(&repo), Some(applied(7, 2)));
        registry.set_applied(&repo, rank(5), Timestamp(2));
        assert_eq!(registry.applied(&repo), Some(rank(7)), "a later one came");
        registry.announce(announcement(), Standing::Served, Some(applied(5, 2)));
        assert_eq!(registry.last_applied(&repo), Some(applied(7, 2)));
        registry.forget(&repo);
        registry.set_applied(&repo, rank(8), Timestamp(2));
        assert!(registry.unrecorded.is_empty());
    }
}
