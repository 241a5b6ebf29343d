//! The threads between a submitted event and its answer: verify pool → driver → writer →
//! driver → answer and live delivery. The server and `import` run the same engine.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use grasp_core::{Core, Policy};
use grasp_store::{Store, StoreError};

use crate::clock::Clock;
use crate::driver;
use crate::fetch::{self, Fetcher};
use crate::hosting::room::Rooms;
use crate::hosting::{Repositories, worker};
use crate::ingest::Ingest;
use crate::metrics::Metrics;
use crate::perform::Performer;
use crate::relay::live;
use crate::remote::{self, Remotes};
use crate::writer;

/// How other servers are reached.
pub struct Outside {
    pub relays: remote::Options,
    pub git: fetch::Options,
    pub rooms: Arc<Rooms>,
}

pub struct Engine {
    pub ingest: Ingest,
    pub live: live::Handle,
    pub driver: driver::Handle,
    remotes: Remotes,
    fetcher: Fetcher,
    verifiers: Vec<JoinHandle<()>>,
    driver_thread: JoinHandle<()>,
    writer_thread: JoinHandle<()>,
    live_thread: JoinHandle<()>,
    git_threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Without an outside no other server is reached: nothing is synced, and no git data looked
    /// for. With it a runtime is needed.
    pub fn start(
        mut policy: Policy,
        store: &Arc<Store>,
        repositories: &Arc<Repositories>,
        metrics: &Arc<Metrics>,
        clock: Clock,
        outside: Option<Outside>,
    ) -> Result<Self, EngineError> {
        policy.limits.sync.enabled &= outside.is_some();
        policy.limits.hunt.enabled &= outside.is_some();
        let limits = policy.limits.clone();
        let core = Core::new(policy, seed()?);
        let (driver, inbox) = driver::channel();
        let (live, live_thread) = live::start(Arc::clone(metrics))?;
        let (writer, writer_thread) =
            writer::start(Arc::clone(store), driver.clone(), Arc::clone(metrics))?;
        let (git, git_threads) = worker::start(repositories, &driver, metrics)?;
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let (ingest, verifiers) =
            Ingest::start(cores, limits.ingest_shares(), store, &driver, metrics)?;
        let tell = driver.clone().fetches();
        let (remotes, fetcher) = match outside {
            Some(outside) => (
                Remotes::start(
                    outside.relays,
                    limits.clone(),
                    store,
                    ingest.clone(),
                    driver.clone(),
                    metrics,
                )?,
                Fetcher::new(outside.git, Arc::clone(repositories), outside.rooms, tell)?,
            ),
            None => (Remotes::none(driver.clone()), Fetcher::none(tell)),
        };
        let performer = Performer::new(
            writer,
            live.clone(),
            git,
            remotes.clone(),
            fetcher.clone(),
            Arc::clone(metrics),
            &limits,
        );
        let found = repositories.list()?;
        let driver_thread = driver::start(inbox, core, performer, Arc::clone(store), found, clock)?;
        Ok(Self {
            ingest,
            live,
            driver,
            remotes,
            fetcher,
            verifiers,
            driver_thread,
            writer_thread,
            live_thread,
            git_threads,
        })
    }

    /// Waits until nothing is under way that was before; false if that takes too long.
    pub fn settle(&self, patience: Duration) -> bool {
        self.driver.idle().recv_timeout(patience).is_ok()
    }

    /// Finishes what was submitted, in the order of the stages, and ends every thread. All
    /// clones of `ingest` and `live` must be gone, or the stages would wait for more.
    pub fn stop(self) {
        self.driver.wind_down();
        self.remotes.stop();
        self.fetcher.shut_down();
        drop(self.ingest);
        drop(self.live);
        for verifier in self.verifiers {
            join(verifier);
        }
        self.driver.stop();
        join(self.driver_thread);
        for thread in self.git_threads {
            join(thread);
        }
        join(self.writer_thread);
        join(self.live_thread);
    }
}

fn join(thread: JoinHandle<()>) {
    let name = thread.thread().name().unwrap_or_default().to_owned();
    if thread.join().is_err() {
        tracing::error!(thread = name, "a thread panicked");
    }
}

fn seed() -> std::io::Result<u64> {
    getrandom::u64().map_err(std::io::Error::other)
}
