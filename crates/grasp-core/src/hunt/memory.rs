//! What is kept in mind about servers after their repository needs nothing more.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::clock::Mono;
use crate::clone_url::CloneUrl;
use crate::nip34::RepoId;

/// Two generations of so many, with about 150 bytes each: 3 MB.
const MAX_HAD: usize = 10_000;
/// About 80 bytes each: 0.8 MB.
const MAX_FORBIDDEN: usize = 10_000;
/// Names that lead where we do not go are asked for their address again after so long.
const FORBIDDEN_FOR: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Default)]
pub struct Memory {
    /// Who had the data of a repository the last time: lately, and before that.
    lately: FxHashMap<RepoId, CloneUrl>,
    before: FxHashMap<RepoId, CloneUrl>,
    forbidden: FxHashMap<CloneUrl, Mono>,
}

impl Memory {
    pub fn had(&mut self, repo: &RepoId, url: &CloneUrl) {
        if self.lately.len() >= MAX_HAD {
            self.before = std::mem::take(&mut self.lately);
        }
        self.lately.insert(repo.clone(), url.clone());
    }

    pub fn who_had(&self, repo: &RepoId) -> Option<&CloneUrl> {
        self.lately.get(repo).or_else(|| self.before.get(repo))
    }

    pub fn forbid(&mut self, url: &CloneUrl, now: Mono) {
        if self.forbidden.len() >= MAX_FORBIDDEN {
            self.forbidden.retain(|_, until| *until > now);
        }
        if self.forbidden.len() < MAX_FORBIDDEN {
            self.forbidden.insert(url.clone(), now + FORBIDDEN_FOR);
        }
    }

    pub fn is_forbidden(&self, url: &CloneUrl, now: Mono) -> bool {
        self.forbidden.get(url).is_some_and(|until| *until > now)
    }
}
