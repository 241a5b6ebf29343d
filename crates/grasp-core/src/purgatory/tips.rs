//! Tips of pull requests that were pushed before their event came.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::clock::Timestamp;
use crate::git::ObjectId;
use crate::id::EventId;
use crate::nip34::RepoId;

/// About 300 bytes each: 6 MB.
const MAX_TIPS: usize = 20_000;
/// Of one repository: all of them are in every answer to `ls-remote`.
const MAX_PER_REPO: usize = 256;

#[derive(Debug, Default)]
pub struct EarlyTips {
    tips: FxHashMap<EventId, Vec<Early>>,
    deadlines: BTreeSet<(Timestamp, EventId, RepoId)>,
    in_repo: FxHashMap<RepoId, BTreeSet<EventId>>,
}

#[derive(Debug)]
pub struct Early {
    pub repo: RepoId,
    pub tip: ObjectId,
    pub until: Timestamp,
}

impl EarlyTips {
    pub fn len(&self) -> usize {
        self.deadlines.len()
    }

    pub fn is_empty(&self) -> bool {
        self.deadlines.is_empty()
    }

    pub fn has_room(&self, repo: &RepoId, more: usize) -> bool {
        let in_repo = self.in_repo.get(repo).map_or(0, BTreeSet::len);
        more == 0 || self.len() + more <= MAX_TIPS && in_repo + more <= MAX_PER_REPO
    }

    /// One that is pushed again, at whatever commit, has no more time than before.
    pub fn insert(&mut self, repo: RepoId, event: EventId, tip: ObjectId, until: Timestamp) {
        let until = self.remove(&repo, &event).unwrap_or(until);
        self.deadlines.insert((until, event, repo.clone()));
        let in_repo = self.in_repo.entry(repo.clone()).or_default();
        in_repo.insert(event);
        let early = Early { repo, tip, until };
        self.tips.entry(event).or_default().push(early);
    }

    pub fn contains(&self, repo: &RepoId, event: &EventId) -> bool {
        let mut early = self.tips.get(event).into_iter().flatten();
        early.any(|early| early.repo == *repo)
    }

    /// The tips that wait for that event, no longer kept.
    pub fn take(&mut self, event: &EventId) -> Vec<Early> {
        let early = self.tips.remove(event).unwrap_or_default();
        for early in &early {
            self.forget_deadline(early.until, event, &early.repo);
        }
        early
    }

    /// The repository is gone, and its refs with it.
    pub fn forget(&mut self, repo: &RepoId) {
        for event in self.in_repo.get(repo).cloned().unwrap_or_default() {
            self.remove(repo, &event);
        }
    }

    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(until, ..)| *until)
    }

    /// One tip whose time has come, no longer kept.
    pub fn take_expired(&mut self, now: Timestamp) -> Option<(RepoId, EventId)> {
        let (until, event, repo) = self.deadlines.first()?.clone();
        if until > now {
            return None;
        }
        self.remove(&repo, &event);
        Some((repo, event))
    }

    /// The time that deadlines are written in has moved.
    pub fn shift(&mut self, by: i64) {
        for early in self.tips.values_mut().flatten() {
            early.until = early.until.shifted(by);
        }
        let before = std::mem::take(&mut self.deadlines);
        let moved = before.into_iter();
        self.deadlines = moved
            .map(|(until, event, repo)| (until.shifted(by), event, repo))
            .collect();
    }

    /// Until when it was kept.
    fn remove(&mut self, repo: &RepoId, event: &EventId) -> Option<Timestamp> {
        let early = self.tips.get_mut(event)?;
        let at = early.iter().position(|early| early.repo == *repo);
        let removed = at.map(|at| early.swap_remove(at));
        if early.is_empty() {
            self.tips.remove(event);
        }
        let until = removed?.until;
        self.forget_deadline(until, event, repo);
        Some(until)
    }

    fn forget_deadline(&mut self, until: Timestamp, event: &EventId, repo: &RepoId) {
        self.deadlines.remove(&(until, *event, repo.clone()));
        if let Some(events) = self.in_repo.get_mut(repo) {
            events.remove(event);
            if events.is_empty() {
                self.in_repo.remove(repo);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Pubkey;
    use crate::nip34::Identifier;

    #[test]
    fn a_repository_takes_its_own_tips_with_it() {
        let repo = |owner: u8| RepoId::new(Pubkey([owner; 32]), Identifier::parse("r").unwrap());
        let commit = ObjectId::from_hex(&"01".repeat(20)).unwrap();
        let mut tips = EarlyTips::default();
        for n in 0..4 {
            tips.insert(repo(1), EventId([n; 32]), commit, Timestamp(9));
        }
        tips.insert(repo(2), EventId([3; 32]), commit, Timestamp(9));
        tips.forget(&repo(1));
        assert_eq!(tips.len(), 1);
        assert!(tips.contains(&repo(2), &EventId([3; 32])));
        assert!(tips.has_room(&repo(1), MAX_PER_REPO));
        assert_eq!(tips.take(&EventId([3; 32])).len(), 1);
        assert!(tips.tips.is_empty() && tips.in_repo.is_empty() && tips.is_empty());
    }
}
