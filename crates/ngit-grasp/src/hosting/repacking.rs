//! Small packs are rolled up, one repository at a time, whoever brought them: a push, a fetch, or
//! another repository that shared its objects.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use grasp_core::RepoId;
use grasp_git::{GitError, Repo};
use tokio::sync::Notify;

use super::Repositories;

/// Of one repack.
const DEADLINE: Duration = Duration::from_secs(60 * 60);

/// Repositories to which something came. None is in it twice, so it is no longer than their list.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    repos: Mutex<BTreeSet<RepoId>>,
    came: Notify,
}

impl Waiting {
    fn add(&self, repo: &RepoId) {
        if self.lock().insert(repo.clone()) {
            self.came.notify_one();
        }
    }

    /// In turn: one to which something comes all the time does not keep the others waiting.
    async fn after(&self, last: Option<&RepoId>) -> RepoId {
        loop {
            if let Some(next) = self.take_after(last) {
                return next;
            }
            self.came.notified().await;
        }
    }

    fn take_after(&self, last: Option<&RepoId>) -> Option<RepoId> {
        let mut repos = self.lock();
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = repos.range((from, Bound::Unbounded)).next();
        let next = next.or_else(|| repos.first()).cloned()?;
        repos.take(&next)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<RepoId>> {
        self.repos.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Repositories {
    /// Packs came to this repository.
    pub fn look_after(&self, repo: &RepoId) {
        self.waiting.add(repo);
    }

    /// Looks after repositories for as long as it is polled.
    pub async fn repack_in_turn(&self) {
        let mut last = None;
        loop {
            let repo = self.waiting.after(last.as_ref()).await;
            self.repack_if_needed(&repo).await;
            last = Some(repo);
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
            Err(error) => tracing::warn!(repo = %id, %error, "repacking failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::{Identifier, Pubkey};

    fn repo(n: u8) -> RepoId {
        RepoId::new(Pubkey([n; 32]), Identifier::parse("a").unwrap())
    }

    #[tokio::test]
    async fn each_repository_has_its_turn_once() {
        let waiting = Waiting::default();
        for n in [2, 1, 2, 3, 1] {
            waiting.add(&repo(n));
        }
        assert_eq!(waiting.after(None).await, repo(1));
        waiting.add(&repo(1));
        assert_eq!(waiting.after(Some(&repo(1))).await, repo(2));
        assert_eq!(waiting.after(Some(&repo(2))).await, repo(3));
        assert_eq!(waiting.after(Some(&repo(3))).await, repo(1));
        assert_eq!(waiting.take_after(Some(&repo(1))), None);
    }
}
