//! Drops what nobody needs. Of objects: getting ready takes long and happens here, beside the
//! other work on the repository; the drop itself is a task among its others. Repositories that
//! were put aside long enough go from here as well.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use grasp_core::git::ObjectId;
use grasp_core::{Failed, GitDone, Job, RepoId};
use grasp_git::{GitError, PreparedPrune, PruneLimits};
use rustc_hash::FxHashMap;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::Repositories;
use crate::driver;
use crate::metrics::Metrics;

/// Of the largest repositories; there is no hurry.
const DEADLINE: Duration = Duration::from_secs(60 * 60);
/// Between two looks at what was put aside; each walks through all of it.
const TIDY_EVERY: Duration = Duration::from_secs(60 * 60);

struct Order {
    job: Job,
    repo: RepoId,
    keep: Arc<[ObjectId]>,
}

/// What is ready to be dropped. The core asks for one repository at a time.
type Ready = Arc<Mutex<FxHashMap<RepoId, PreparedPrune>>>;

pub struct Handle {
    orders: Sender<Order>,
    ready: Ready,
    /// Its end ends what is being prepared.
    _until: oneshot::Sender<()>,
}

/// For those who drop, or drop it after all.
#[derive(Clone)]
pub struct Desk {
    ready: Ready,
    metrics: Arc<Metrics>,
}

impl Handle {
    pub fn prepare(&self, job: Job, repo: RepoId, keep: Arc<[ObjectId]>) {
        // The caretaker outlives the driver, its only caller.
        let _ = self.orders.send(Order { job, repo, keep });
    }

    pub fn desk(&self, metrics: &Arc<Metrics>) -> Desk {
        Desk {
            ready: Arc::clone(&self.ready),
            metrics: Arc::clone(metrics),
        }
    }
}

impl Desk {
    /// Nothing is ready when there was nothing to drop.
    pub fn prune(&self, repo: &RepoId) -> Result<(), GitError> {
        let ready = self.take(repo);
        let Some(ready) = ready else {
            return Ok(());
        };
        let freed = ready.drop_old()?.freed;
        self.metrics.git.pruned_bytes.inc_by(freed);
        tracing::info!(%repo, freed, "objects that nobody needs dropped");
        Ok(())
    }

    pub fn take(&self, repo: &RepoId) -> Option<PreparedPrune> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.remove(repo)
    }
}

struct Caretaker {
    orders: Receiver<Order>,
    ready: Ready,
    repositories: Arc<Repositories>,
    driver: driver::Handle,
}

/// The thread ends when the handle is gone.
pub fn start(
    repositories: &Arc<Repositories>,
    driver: &driver::Handle,
) -> std::io::Result<(Handle, JoinHandle<()>)> {
    let (queue, orders) = unbounded();
    let (until, end) = oneshot::channel();
    let ready = Ready::default();
    let caretaker = Caretaker {
        orders,
        ready: Arc::clone(&ready),
        repositories: Arc::clone(repositories),
        driver: driver.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let thread = thread::Builder::new()
        .name("caretaker".to_owned())
        .spawn(move || {
            caretaker.run(&runtime, end);
            // Nobody waits for a look through a repository to end.
            runtime.shutdown_background();
        })?;
    let handle = Handle {
        orders: queue,
        ready,
        _until: until,
    };
    Ok((handle, thread))
}

impl Caretaker {
    fn run(self, runtime: &Runtime, mut end: oneshot::Receiver<()>) {
        // A start has looked already.
        let mut tidy_at = Instant::now() + TIDY_EVERY;
        loop {
            let goes_on = match self.orders.recv_deadline(tidy_at) {
                Ok(order) => self.carry_out(runtime, order, &mut end),
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => false,
            };
            if !goes_on {
                return;
            }
            if Instant::now() >= tidy_at {
                tidy_at = Instant::now() + TIDY_EVERY;
                let repositories = Arc::clone(&self.repositories);
                runtime.spawn_blocking(move || {
                    repositories.clear_old_retired();
                    repositories.clear_old_slices();
                });
            }
        }
    }

    /// False when the end has come first.
    fn carry_out(&self, runtime: &Runtime, order: Order, end: &mut oneshot::Receiver<()>) -> bool {
        let Order { job, repo, keep } = order;
        let prepared = runtime.block_on(async {
            tokio::select! {
                _ = end => None,
                prepared = self.prepare(&repo, &keep) => Some(prepared),
            }
        });
        let in_time = prepared.is_some();
        if let Some(prepared) = prepared {
            self.driver.git(job, prepared.map(|()| GitDone::Done));
        }
        in_time
    }

    async fn prepare(&self, repo: &RepoId, keep: &[ObjectId]) -> Result<(), Failed> {
        let failed = |error: GitError| {
            if error.is_no_space() {
                tracing::warn!(%repo, %error, "no room on the disk to drop objects, trying later");
            } else if !error.is_busy() {
                tracing::warn!(%repo, %error, "preparing to drop objects failed");
            }
            Failed
        };
        let opened = self.repositories.open(repo).map_err(failed)?;
        let prepared = opened.prepare_prune(keep, self.limits());
        if let Some(prepared) = prepared.await.map_err(failed)? {
            let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            ready.insert(repo.clone(), prepared);
        }
        Ok(())
    }

    fn limits(&self) -> PruneLimits {
        PruneLimits {
            grace: self.repositories.prune_grace,
            deadline: DEADLINE,
            min_free: self.repositories.min_free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::{Identifier, Pubkey};
    use grasp_git::Repo;

    /// Its refs are a pipe into which nobody writes.
    #[test]
    fn an_end_does_not_wait_for_a_disk_that_does_not_answer() {
        let folder = tempfile::tempdir().unwrap();
        let repositories = Arc::new(Repositories::new(folder.path().to_owned()));
        let id = RepoId::new(Pubkey([7; 32]), Identifier::parse("a").unwrap());
        let (repo, _) = Repo::create(&repositories.dir(&id)).unwrap();
        let pipe = repo.dir().join("packed-refs");
        let _ = std::fs::remove_file(&pipe);
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());

        let (driver, _inbox) = driver::channel();
        let (handle, thread) = start(&repositories, &driver).unwrap();
        handle.prepare(Job(1), id, Arc::from([]));
        let writer = await_some(|| open_for_writing(&pipe));
        drop(handle);
        await_some(|| thread.is_finished().then_some(()));
        drop(writer);
    }

    /// Succeeds once somebody reads.
    fn open_for_writing(pipe: &std::path::Path) -> Option<std::os::fd::OwnedFd> {
        use rustix::fs::{Mode, OFlags, open};
        open(pipe, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok()
    }

    fn await_some<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(began.elapsed() < Duration::from_secs(20));
            thread::yield_now();
        }
    }
}
