//! What is kept in mind about servers after their repository needs nothing more.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::backoff::Backoff;
use crate::clock::Mono;
use crate::clone_url::CloneUrl;
use crate::nip34::RepoId;

/// Two generations of so many, with about 150 bytes each: 3 MB.
const MAX_HAD: usize = 10_000;
/// About 100 bytes each: 1 MB.
const MAX_RESTING: usize = 10_000;
/// Names that lead where we do not go are asked for their address again after so long.
const FORBIDDEN_FOR: Duration = Duration::from_secs(60 * 60);

/// So many useless packs in a row are chance: a history that was cut comes in parts from then on.
const CHANCE: u32 = 1;

#[derive(Debug, Default)]
pub struct Memory {
    /// Who had the data of a repository the last time: lately, and before that.
    lately: FxHashMap<RepoId, CloneUrl>,
    before: FxHashMap<RepoId, CloneUrl>,
    /// Addresses that are left alone, or were lately.
    resting: FxHashMap<CloneUrl, Resting>,
}

#[derive(Debug, Clone, Copy)]
struct Resting {
    until: Mono,
    /// Packs in a row that were of no use.
    failures: u32,
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

    /// It leads where we do not go.
    pub fn forbid(&mut self, url: &CloneUrl, now: Mono) {
        let until = now + FORBIDDEN_FOR;
        self.set(url, Resting { until, failures: 0 }, now);
    }

    /// What came from there was of no use, which may be the repository's fault and not the
    /// server's: it rests alone, longer each time.
    pub fn spoiled(&mut self, url: &CloneUrl, rest: Backoff, now: Mono) {
        let before = self.resting.get(url);
        let failures = before.map_or(0, |before| before.failures).saturating_add(1);
        let until = now + rest.delay(failures.saturating_sub(CHANCE));
        self.set(url, Resting { until, failures }, now);
    }

    pub fn useful(&mut self, url: &CloneUrl) {
        self.resting.remove(url);
    }

    pub fn is_resting(&self, url: &CloneUrl, now: Mono) -> bool {
        self.resting.get(url).is_some_and(|rest| rest.until > now)
    }

    fn set(&mut self, url: &CloneUrl, rest: Resting, now: Mono) {
        if self.resting.len() >= MAX_RESTING {
            self.resting.retain(|_, rest| rest.until > now);
        }
        if self.resting.len() < MAX_RESTING || self.resting.contains_key(url) {
            self.resting.insert(url.clone(), rest);
        }
    }
}
