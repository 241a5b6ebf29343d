//! The running server: opens the store, starts the engine and the listener, and ends them in
//! order, so that nothing that was acknowledged or is on its way is lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use grasp_git::{Git, GitError, Version};
use grasp_store::{Completed, RemovalLimits, Store, StoreError, TailLimits};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::config::{Config, DatabaseBackend};
use crate::disk::Floor;
use crate::driver;
use crate::engine::{Engine, EngineError, Outside};
use crate::hosting::Repositories;
use crate::hosting::room::Rooms;
use crate::http::git::GitSite;
use crate::http::{self, Site};
use crate::identity::{Identity, IdentityError, Origin};
use crate::measure::Measure;
use crate::metrics::Metrics;
use crate::owner;
use crate::phase::Phase;
use crate::relay::Relay;
use crate::remote;
use crate::remote::auth::Signer;
use crate::status::{Lookout, Watch};

/// How long connections may take to end before they are cut. With one second for the cut, three
/// for the last commit and one for the runtime, an operator waits ten seconds at most.
const CLOSE_CONNECTIONS: Duration = Duration::from_secs(5);
/// What is not committed by then was not acknowledged either.
const LAST_COMMIT: Duration = Duration::from_secs(3);

/// The oldest git that the tests run with.
const OLDEST_GIT: (u32, u32) = (2, 39);
/// Between two lines of the log while an older store is completed.
const COMPLETION_LOG_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Git(#[from] GitTrouble),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: std::net::SocketAddr,
        source: std::io::Error,
    },
    #[error("cannot create {}: {source}", .path.display())]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("cannot start metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Why no repository could be hosted.
#[derive(Debug, thiserror::Error)]
pub enum GitTrouble {
    #[error("git does not run ({0}): install git {need}, and have it in PATH", need = needed_git())]
    Missing(GitError),
    #[error("git {0} is too old: install git {need}", need = needed_git())]
    Old(Version),
}

fn needed_git() -> String {
    let (major, minor) = OLDEST_GIT;
    format!("{major}.{minor} or newer")
}

/// The git that will be used.
pub fn usable_git() -> Result<Version, GitTrouble> {
    let version = Git.version().map_err(GitTrouble::Missing)?;
    match (version.major, version.minor) < OLDEST_GIT {
        true => Err(GitTrouble::Old(version)),
        false => Ok(version),
    }
}

pub fn open_store(config: &Config) -> Result<Store, StoreError> {
    match config.database_backend {
        DatabaseBackend::Lmdb => open_on_disk(&config.relay_data_path),
        DatabaseBackend::Memory => Ok(Store::in_memory()),
    }
}

/// One of an older version is completed first, which may take a minute and is told.
fn open_on_disk(path: &Path) -> Result<Store, StoreError> {
    let mut told = Instant::now();
    let mut tell = |Completed { done, all }| {
        if done == all || told.elapsed() >= COMPLETION_LOG_INTERVAL {
            told = Instant::now();
            tracing::info!(done, all, "adding new index rows to the store");
        }
    };
    Store::open_telling(
        path,
        TailLimits::default(),
        RemovalLimits::default(),
        &mut tell,
    )
}

/// Serves until SIGTERM or SIGINT.
pub fn run(config: Config) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(serve(config));
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn serve(mut config: Config) -> Result<(), StartError> {
    let clock = Clock::start();
    let git_version = usable_git()?;
    warn_of_other_owner(&config);
    // The directory's lock is the first thing: two servers must not even race for the port.
    let store = Arc::new(open_store(&config)?);
    let secret = config
        .relay_owner_nsec
        .as_ref()
        .map(|secret| secret.reveal().to_owned());
    let identity = Identity::load(secret.as_deref(), &config.relay_data_path)?;
    create_git_dir(&config)?;
    // Before anybody can know that we run: a signal must never find us without an answer.
    let stop_signal = StopSignal::expect()?;
    let listener = listen(&mut config).await?;
    log_start(&config, &store, &identity, git_version);

    let metrics = Arc::new(Metrics::new()?);
    let repositories = Arc::new(repositories(&config)?);
    let instance = instance();
    let rooms = Arc::new(Rooms::of(&config));
    let outside = Outside {
        relays: remote_options(&config, &identity, &instance),
        git: config.fetch_options(),
        rooms: Arc::clone(&rooms),
    };
    let policy = config.policy();
    let engine = Engine::start(
        policy,
        &store,
        &repositories,
        &metrics,
        clock,
        Some(outside),
    )?;
    let (phase, watching) = watch::channel(Phase::Running);
    let relay = Arc::new(Relay::new(
        Arc::clone(&store),
        engine.ingest.clone(),
        engine.live.clone(),
        config.limits(),
        Arc::clone(&metrics),
        clock,
        config.service(),
        watching.clone(),
    ));
    let measure = Measure::new(&config, Arc::clone(&store), Arc::clone(&metrics));
    // The first scrape shall find it.
    measure.measure();
    let measuring = tokio::spawn(Arc::new(measure).keep_measuring());
    let watching_disk = watch_disk(&config, engine.driver.clone());
    let kept_tidy = Arc::clone(&repositories);
    let repacking = tokio::spawn(async move { kept_tidy.repack_in_turn().await });
    let watch = Watch::new(&config, Arc::clone(&store), Arc::clone(&metrics));
    let lookout = Arc::new(Lookout::new(engine.driver.clone(), watch));
    let git = Arc::new(GitSite::new(
        &config,
        repositories,
        rooms,
        engine.driver.clone(),
        metrics,
    ));
    let site = Arc::new(Site::new(
        &config,
        &identity,
        &instance,
        relay,
        git,
        engine.driver.clone(),
        lookout,
    ));
    let server = http::Server::start(listener, site, &config, watching);

    stop_signal.received().await;
    tracing::info!("stopping: no new connections, answers on their way are sent");
    server.finish(&phase, CLOSE_CONNECTIONS).await;
    for task in [measuring, repacking, watching_disk] {
        task.abort();
        let _ = task.await;
    }
    let ended = tokio::task::spawn_blocking(move || engine.stop());
    if !matches!(tokio::time::timeout(LAST_COMMIT, ended).await, Ok(Ok(()))) {
        tracing::error!("the engine did not end in order");
    }
    tracing::info!("stopped");
    Ok(())
}

/// A name of this process, so that it knows itself when it meets itself.
fn instance() -> String {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => grasp_core::id::to_hex(&bytes),
        Err(_) => String::new(),
    }
}

fn remote_options(config: &Config, identity: &Identity, instance: &str) -> remote::Options {
    remote::Options {
        reach: config.reach(),
        connect_timeout: config.sync_connect_timeout,
        beat: remote::BEAT,
        signer: Signer::new(config.sync_auth, identity),
        instance: instance.to_owned(),
    }
}

fn create_git_dir(config: &Config) -> Result<(), StartError> {
    let path = &config.git_data_path;
    std::fs::create_dir_all(path).map_err(|source| StartError::Directory {
        path: path.clone(),
        source,
    })
}

/// As a start finds them, without what is nobody's any more.
fn repositories(config: &Config) -> std::io::Result<Repositories> {
    let (keep_for, max_bytes) = (config.retired_for(), config.retired_max_bytes.as_u64());
    let repositories = Repositories::new(config.git_data_path.clone());
    let repositories = repositories
        .keeping_retired(keep_for, max_bytes)
        .pruned_after(config.prune_grace)
        .leaving_free(config.min_free_bytes.as_u64());
    repositories.clear_abandoned()?;
    repositories.clear_retired(keep_for, max_bytes)?;
    Ok(repositories)
}

/// Binds, and learns the port if the system chose it.
async fn listen(config: &mut Config) -> Result<TcpListener, StartError> {
    let address = config.bind_address;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })?;
    config.bind_address = listener.local_addr()?;
    Ok(listener)
}

/// Whatever root makes there, the usual user of the server cannot use afterwards.
fn warn_of_other_owner(config: &Config) {
    match owner::other(&[&config.relay_data_path, &config.git_data_path]) {
        Ok(Some((path, owner))) => tracing::warn!(
            path = %path.display(),
            user = owner.uid,
            "root serves data of another user, to whom new files will not belong"
        ),
        Ok(None) => {}
        Err(error) => tracing::warn!("{error}"),
    }
}

/// Keeps the core told whether the disk of the events has space.
fn watch_disk(config: &Config, driver: driver::Handle) -> JoinHandle<()> {
    let (path, least) = (&config.relay_data_path, config.min_free_bytes.as_u64());
    let floor = Floor::new(path.clone(), least);
    tokio::spawn(floor.watch(move |low| {
        log_disk(low);
        driver.disk_low(low);
    }))
}

fn log_disk(low: bool) {
    match low {
        true => tracing::error!(
            "the disk of the events is nearly full: only deletions and events of maintainers are stored"
        ),
        false => tracing::info!("the disk of the events has space again"),
    }
}

fn log_start(config: &Config, store: &Store, identity: &Identity, git: Version) {
    let version = env!("CARGO_PKG_VERSION");
    let npub = identity.pubkey.npub();
    tracing::info!(version, %npub, "ngit-grasp");
    match &identity.origin {
        Origin::Setting => {}
        Origin::File(path) => tracing::debug!(file = %path.display(), "owner key read"),
        Origin::Created(path) => tracing::info!(
            file = %path.display(),
            "made a new owner key; keep this file, it is the identity of this server"
        ),
    }
    tracing::info!(version = %git, "git found");
    if let Ok(stats) = store.stats() {
        let backend = config.database_backend;
        tracing::info!(events = stats.events, ?backend, path = %config.relay_data_path.display(), "store open");
    }
    if config.hunt_enabled {
        let (at_once, per_minute) = (config.sync_domain_concurrent, config.sync_domain_rate_limit);
        tracing::info!(
            at_once,
            per_minute,
            "git data that events wait for is fetched from other servers"
        );
    }
    tracing::info!("public address {}", config.public_ws_url());
    tracing::info!("listening on http://{}", config.bind_address);
}

/// SIGTERM or SIGINT, heard from the moment this exists.
struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    fn expect() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn received(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
