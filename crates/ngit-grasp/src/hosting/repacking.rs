//! Small packs are rolled up, one repository at a time, whoever brought them: a push, a fetch, or
//! another repository that shared its objects.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use grasp_core::{Pubkey, RepoId};
use grasp_git::{GitError, Repo};
use tokio::sync::Notify;

use super::Repositories;

/// Of one repack.
const DEADLINE: Duration = Duration::from_secs(60 * 60);
/// After a repack that failed: it may have taken an hour, and the next would fail as well.
const PAUSE: Duration = Duration::from_secs(60 * 60);

/// Repositories to which something came.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: Mutex<FairQueue>,
    came: Notify,
}

/// No repository is in it twice, so it is no longer than their list. The maps have keyed hashes: names
/// of repositories are chosen by strangers.
#[derive(Debug, Default)]
struct FairQueue {
    /// Who has something waiting, the next one first.
    owners: VecDeque<Pubkey>,
    by_owner: HashMap<Pubkey, VecDeque<RepoId>>,
    waiting: HashSet<RepoId>,
    /// Repositories whose repack failed, and until when they are left alone.
    paused: HashMap<RepoId, Instant>,
}

impl FairQueue {
    /// False if it waits already or is left alone.
    fn add(&mut self, repo: &RepoId, now: Instant) -> bool {
        let paused = self.paused.get(repo).is_some_and(|until| now < *until);
        if paused || !self.waiting.insert(repo.clone()) {
            return false;
        }
        let repos = self.by_owner.entry(repo.owner).or_default();
        if repos.is_empty() {
            self.owners.push_back(repo.owner);
        }
        repos.push_back(repo.clone());
        true
    }

    /// One of each owner in turn: whoever has many repositories, or one to which something comes all
    /// the time, does not keep the others waiting.
    fn take(&mut self) -> Option<RepoId> {
        let owner = self.owners.pop_front()?;
        let repos = self.by_owner.get_mut(&owner)?;
        let repo = repos.pop_front()?;
        match repos.is_empty() {
            true => drop(self.by_owner.remove(&owner)),
            false => self.owners.push_back(owner),
        }
        self.waiting.take(&repo)
    }

    fn pause(&mut self, repo: &RepoId, now: Instant) {
        self.paused.retain(|_, until| now < *until);
        self.paused.insert(repo.clone(), now + PAUSE);
    }
}

impl Waiting {
    fn add(&self, repo: &RepoId) {
        if self.lock().add(repo, Instant::now()) {
            self.came.notify_one();
        }
    }

    async fn next(&self) -> RepoId {
        loop {
            let next = self.lock().take();
            if let Some(next) = next {
                return next;
            }
            self.came.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, FairQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Repositories {
    /// Packs came to this repository.
    pub fn look_after(&self, repo: &RepoId) {
        self.waiting.add(repo);
    }

    /// Looks after repositories for as long as it is polled.
    pub async fn repack_in_turn(&self) {
        loop {
            let repo = self.waiting.next().await;
            self.repack_if_needed(&repo).await;
        }
    }

    async fn repack_if_needed(&self, id: &RepoId) {
        let dir = self.dir(id);
        let looked = tokio::task::spawn_blocking(move || {
            let repo = Repo::open(&dir)?;
            Ok::<_, GitError>(repo.needs_repack()?.then_some(repo))
        });
        let repo = match looked.await {
            Ok(Ok(Some(repo))) => repo,
            Ok(Err(error)) if !error.is_not_found() => {
                return tracing::warn!(repo = %id, %error, "looking at packs failed");
            }
            _ => return,
        };
        match repo.repack(DEADLINE).await {
            Ok(()) => tracing::debug!(repo = %id, "repacked"),
            Err(error) if error.is_busy() => {}
            Err(error) => {
                self.waiting.lock().pause(id, Instant::now());
                tracing::warn!(repo = %id, %error, "repacking failed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::Identifier;

    fn repo(owner: u8, name: &str) -> RepoId {
        RepoId::new(Pubkey([owner; 32]), Identifier::parse(name).unwrap())
    }

    #[tokio::test]
    async fn each_repository_has_its_turn_once() {
        let waiting = Waiting::default();
        for owner in [2, 1, 2, 3, 1] {
            waiting.add(&repo(owner, "a"));
        }
        assert_eq!(waiting.next().await, repo(2, "a"));
        waiting.add(&repo(2, "a"));
        assert_eq!(waiting.next().await, repo(1, "a"));
        assert_eq!(waiting.next().await, repo(3, "a"));
        assert_eq!(waiting.next().await, repo(2, "a"));
        assert_eq!(waiting.lock().take(), None);
    }

    #[tokio::test]
    async fn an_owner_of_many_repositories_has_one_turn_in_each_round() {
        let waiting = Waiting::default();
        for n in 0..100 {
            waiting.add(&repo(1, &format!("r{n}")));
        }
        waiting.add(&repo(2, "a"));
        waiting.add(&repo(2, "b"));
        for expected in [repo(1, "r0"), repo(2, "a"), repo(1, "r1"), repo(2, "b")] {
            assert_eq!(waiting.next().await, expected);
        }
        assert_eq!(waiting.next().await, repo(1, "r2"));
        assert_eq!(waiting.next().await, repo(1, "r3"));
    }

    #[test]
    fn what_failed_is_left_alone_for_a_while() {
        let mut queue = FairQueue::default();
        let now = Instant::now();
        queue.pause(&repo(1, "a"), now);
        assert!(!queue.add(&repo(1, "a"), now + PAUSE / 2));
        assert!(queue.add(&repo(1, "b"), now));
        assert!(queue.add(&repo(1, "a"), now + PAUSE));
        queue.pause(&repo(1, "c"), now + PAUSE);
        assert_eq!(queue.paused.len(), 1, "those that are over are forgotten");
    }
}
