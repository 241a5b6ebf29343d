//! Many small fetches leave many small packs: they are rolled up, one repository at a time. And
//! what came in part goes when nobody waits for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use grasp_core::RepoId;
use grasp_git::fetch::clear_slices;
use rustc_hash::FxHashSet;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::hosting::Repositories;

/// Of one repack.
const DEADLINE: Duration = Duration::from_secs(3_600);

pub(super) struct Tidying {
    tasks: JoinSet<()>,
    /// Repositories whose turn has not come; none is in line twice.
    waiting: Arc<Mutex<FxHashSet<RepoId>>>,
    one: Arc<Semaphore>,
}

impl Tidying {
    pub fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            waiting: Arc::default(),
            one: Arc::new(Semaphore::new(1)),
        }
    }

    /// Something came to this repository.
    pub fn look_after(&mut self, repo: RepoId, repositories: &Arc<Repositories>) {
        if !lock(&self.waiting).insert(repo.clone()) {
            return;
        }
        let (waiting, one) = (Arc::clone(&self.waiting), Arc::clone(&self.one));
        let repositories = Arc::clone(repositories);
        self.tasks.spawn(async move {
            let turn = one.acquire().await;
            // What comes from now on may be too late for this look.
            lock(&waiting).remove(&repo);
            if turn.is_ok() {
                roll_up(repositories, repo).await;
            }
        });
    }

    /// Nobody waits for what has come to this repository in part.
    pub fn clear(&mut self, repo: RepoId, repositories: &Arc<Repositories>) {
        let repositories = Arc::clone(repositories);
        self.tasks.spawn_blocking(move || {
            let opened = repositories.open(&repo);
            let cleared = opened.and_then(|opened| clear_slices(&opened, SystemTime::now()));
            match cleared {
                Ok(true) => tracing::debug!(%repo, "parts of a history that never came dropped"),
                Ok(false) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => tracing::warn!(%repo, %error, "dropping slices failed"),
            }
        });
    }

    /// `None` when nothing is under way.
    pub async fn next_done(&mut self) -> Option<()> {
        self.tasks.join_next().await.map(|_| ())
    }

    pub fn abort(&mut self) {
        self.tasks.abort_all();
    }
}

fn lock(waiting: &Mutex<FxHashSet<RepoId>>) -> std::sync::MutexGuard<'_, FxHashSet<RepoId>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn roll_up(repositories: Arc<Repositories>, id: RepoId) {
    let Ok(repo) = repositories.open(&id) else {
        return;
    };
    let looked_at = repo.clone();
    let wanted = tokio::task::spawn_blocking(move || looked_at.needs_repack()).await;
    if !matches!(wanted, Ok(Ok(true))) {
        return;
    }
    match repo.repack(DEADLINE).await {
        Ok(()) => tracing::debug!(repo = %id, "repacked"),
        Err(error) if error.is_busy() => {}
        Err(error) => tracing::warn!(repo = %id, %error, "repacking failed"),
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
    async fn a_repository_waits_for_its_turn_once() {
        let folder = tempfile::tempdir().unwrap();
        let repositories = Arc::new(Repositories::new(folder.path().to_owned()));
        let mut tidying = Tidying::new();
        let one = Arc::clone(&tidying.one);
        let turn = one.acquire().await.unwrap();
        for n in [1, 1, 2, 1, 2] {
            tidying.look_after(repo(n), &repositories);
        }
        assert_eq!(tidying.tasks.len(), 2);
        drop(turn);
        for _ in 0..2 {
            tidying.next_done().await.unwrap();
        }
        assert!(lock(&tidying.waiting).is_empty());
        tidying.look_after(repo(1), &repositories);
        assert_eq!(
            tidying.tasks.len(),
            1,
            "its turn has been, and it may come again"
        );
    }
}
