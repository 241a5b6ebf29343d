//! Repositories that are to be made and are not there yet. Their owner may have heard that the
//! announcement is taken, so whoever asks for one waits for it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use grasp_core::RepoId;
use tokio::sync::Notify;

/// Each is in the queue of the workers as well, which the held announcements bound.
#[derive(Debug, Default)]
pub struct Creating {
    asked: Mutex<HashMap<RepoId, usize>>,
    done: Notify,
}

impl Creating {
    pub fn begin(&self, repo: &RepoId) {
        *self.lock().entry(repo.clone()).or_default() += 1;
    }

    pub fn end(&self, repo: &RepoId) {
        let mut asked = self.lock();
        if let Some(times) = asked.get_mut(repo) {
            *times -= 1;
            if *times == 0 {
                asked.remove(repo);
            }
        }
        drop(asked);
        self.done.notify_waiters();
    }

    /// Waits until it is made, or could not be, at most so long. False if nobody makes it.
    pub async fn wait(&self, repo: &RepoId, timeout: Duration) -> bool {
        if !self.lock().contains_key(repo) {
            return false;
        }
        let made = async {
            loop {
                // Listening begins before the look, so that no end is missed between them.
                let done = self.done.notified();
                if !self.lock().contains_key(repo) {
                    return;
                }
                done.await;
            }
        };
        // Whoever asks looks at the disk again in either case.
        let _ = tokio::time::timeout(timeout, made).await;
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RepoId, usize>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::{Identifier, Pubkey};

    fn repo(name: &str) -> RepoId {
        RepoId::new(Pubkey([7; 32]), Identifier::parse(name).unwrap())
    }

    #[tokio::test]
    async fn whoever_asks_for_a_repository_waits_until_it_is_made() {
        let creating = Creating::default();
        creating.begin(&repo("a"));
        creating.begin(&repo("a"));
        let long = Duration::from_secs(60);
        assert!(!creating.wait(&repo("b"), long).await, "nobody makes it");
        let a = repo("a");
        let waits = creating.wait(&a, long);
        let makes = async {
            creating.end(&repo("a"));
            tokio::task::yield_now().await;
            creating.end(&repo("a"));
        };
        let (waited, ()) = tokio::join!(waits, makes);
        assert!(waited);
        assert!(!creating.wait(&a, long).await, "it is made");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let creating = Creating::default();
        creating.begin(&repo("a"));
        assert!(creating.wait(&repo("a"), Duration::from_secs(5)).await);
    }
}
