//! What came in part goes when nobody waits for it.

use std::sync::Arc;
use std::time::SystemTime;

use grasp_core::RepoId;
use grasp_git::fetch::clear_slices;
use tokio::task::JoinSet;

use crate::hosting::Repositories;

pub(super) struct Tidying {
    tasks: JoinSet<()>,
}

impl Tidying {
    pub fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
        }
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
