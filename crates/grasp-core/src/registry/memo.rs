//! Answers about maintainers that were given before, as long as nothing that they rest on changes.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::id::Pubkey;
use crate::nip34::{Identifier, RepoId};

/// Answers that are kept, in all: with 64 members and 321 keys that it looked at, one takes 12 kB
/// at most, and all of them 50 MB. Those of a usual repository take 200 bytes.
const MAX_KEPT: usize = 4_096;

/// Who may sign for a repository, and on whose word.
#[derive(Debug)]
pub struct Walk {
    pub members: Arc<[Pubkey]>,
    /// Keys whose announcements it looked at or looked for, sorted.
    pub read: Vec<Pubkey>,
    /// How often the list of one key was looked into for another.
    #[cfg(test)]
    pub compared: usize,
}

#[derive(Debug, Default)]
struct Answers {
    walks: FxHashMap<Pubkey, Walk>,
    /// For a key: the repositories that it maintains.
    maintained: FxHashMap<Pubkey, Vec<RepoId>>,
}

#[derive(Debug, Default)]
pub struct Memo {
    answers: FxHashMap<Identifier, Answers>,
    kept: usize,
    #[cfg(test)]
    walked: u64,
}

impl Answers {
    fn len(&self) -> usize {
        self.walks.len() + self.maintained.len()
    }
}

impl Memo {
    pub fn members(&self, repo: &RepoId) -> Option<Arc<[Pubkey]>> {
        let walk = self.answers.get(&repo.identifier)?.walks.get(&repo.owner)?;
        Some(Arc::clone(&walk.members))
    }

    pub fn keep_walk(&mut self, repo: &RepoId, walk: Walk) {
        #[cfg(test)]
        {
            self.walked += 1;
        }
        self.room_for(&repo.identifier)
            .walks
            .insert(repo.owner, walk);
    }

    pub fn maintained(&self, key: &Pubkey, identifier: &Identifier) -> Option<&Vec<RepoId>> {
        self.answers.get(identifier)?.maintained.get(key)
    }

    pub fn keep_maintained(&mut self, key: Pubkey, identifier: &Identifier, repos: Vec<RepoId>) {
        self.room_for(identifier).maintained.insert(key, repos);
    }

    /// An announcement came, went, or stands elsewhere: a repository may be hosted that was not.
    pub fn forget_maintained(&mut self, identifier: &Identifier) {
        self.forget(identifier, |_| false);
    }

    /// Somebody lists others than before.
    pub fn forget_walks_past(&mut self, repo: &RepoId) {
        let rests_on = |walk: &Walk| walk.read.binary_search(&repo.owner).is_ok();
        self.forget(&repo.identifier, rests_on);
    }

    fn forget(&mut self, identifier: &Identifier, is_outdated: impl Fn(&Walk) -> bool) {
        let Some(answers) = self.answers.get_mut(identifier) else {
            return;
        };
        self.kept -= answers.len();
        answers.maintained.clear();
        answers.walks.retain(|_, walk| !is_outdated(walk));
        self.kept += answers.len();
        if answers.len() == 0 {
            self.answers.remove(identifier);
        }
    }

    /// For one answer more that is not here.
    fn room_for(&mut self, identifier: &Identifier) -> &mut Answers {
        if self.kept >= MAX_KEPT {
            self.answers.clear();
            self.kept = 0;
        }
        self.kept += 1;
        self.answers.entry(identifier.clone()).or_default()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        let counted: usize = self.answers.values().map(Answers::len).sum();
        assert_eq!(counted, self.kept);
        counted
    }

    #[cfg(test)]
    pub fn walked(&self) -> u64 {
        self.walked
    }
}
