//! The tasks: one for each fetch, and one that owns them. Whatever becomes of a fetch, its last
//! word is said here, once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use grasp_core::clone_url::Domain;
use grasp_core::hunt::io::{FetchAsk, FetchEnd, Fetched, PART};
use grasp_core::push::Backing;
use grasp_core::{FetchNo, RepoId};
use grasp_git::fetch::{Extent, FetchLimits, Watch, fetch};
use grasp_git::{GitError, PackFault, Repo};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use super::owners::{Owners, Part};
use super::tidy::Tidying;
use super::web::{Net, Web};
use super::{Tell, Word, nothing};
use crate::hosting::Repositories;
use crate::hosting::room::{Full, Room, Rooms};

/// What all fetches share.
pub(super) struct Shared {
    pub net: Arc<Net>,
    pub trusted: Vec<Domain>,
    pub repositories: Arc<Repositories>,
    pub rooms: Arc<Rooms>,
    pub limits: FetchLimits,
    pub owners: Owners,
    pub tell: Tell,
}

pub(super) enum Order {
    Start(FetchNo, FetchAsk),
    Stop(FetchNo),
    /// Nothing more is wanted for this repository.
    Leave(RepoId),
    /// Whoever asks hears when all fetches have ended.
    End(crossbeam_channel::Sender<()>),
}

pub(super) struct Pool {
    shared: Arc<Shared>,
    fetches: JoinSet<Fetched>,
    numbers: FxHashMap<Id, (FetchNo, RepoId)>,
    running: FxHashMap<FetchNo, AbortHandle>,
    /// Repositories for which nothing more is wanted, and whose last fetch has not ended.
    leaving: FxHashSet<RepoId>,
    tidying: Tidying,
}

impl Pool {
    pub fn new(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
            fetches: JoinSet::new(),
            numbers: FxHashMap::default(),
            running: FxHashMap::default(),
            leaving: FxHashSet::default(),
            tidying: Tidying::new(),
        }
    }

    pub async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let done = loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Start(fetch, ask)) => self.start(fetch, ask),
                    Some(Order::Stop(fetch)) => self.stop(fetch),
                    Some(Order::Leave(repo)) => self.leave(repo),
                    Some(Order::End(done)) => break Some(done),
                    None => break None,
                },
                Some(ended) = self.fetches.join_next_with_id() => self.ended(ended),
                Some(()) = self.tidying.next_done() => {}
            }
        };
        orders.close();
        while let Ok(order) = orders.try_recv() {
            if let Order::Start(fetch, _) = order {
                (self.shared.tell)(fetch, Word::Done(nothing(FetchEnd::Stopped)));
            }
        }
        self.fetches.abort_all();
        self.tidying.abort();
        while let Some(ended) = self.fetches.join_next_with_id().await {
            self.ended(ended);
        }
        if let Some(done) = done {
            let _ = done.send(());
        }
    }

    fn start(&mut self, number: FetchNo, ask: FetchAsk) {
        let repo = ask.repo.clone();
        self.leaving.remove(&repo);
        let shared = Arc::clone(&self.shared);
        let task = self.fetches.spawn(carry_out(shared, number, ask));
        self.numbers.insert(task.id(), (number, repo));
        self.running.insert(number, task);
    }

    fn stop(&mut self, number: FetchNo) {
        if let Some(task) = self.running.get(&number) {
            task.abort();
        }
    }

    /// Parts of histories that nobody waits for any more go, once nobody adds to them.
    fn leave(&mut self, repo: RepoId) {
        if self.numbers.values().any(|(_, other)| *other == repo) {
            self.leaving.insert(repo);
            return;
        }
        self.leaving.remove(&repo);
        self.tidying.clear(repo, &self.shared.repositories);
    }

    fn ended(&mut self, ended: Result<(Id, Fetched), JoinError>) {
        let (id, fetched) = match ended {
            Ok(ended) => ended,
            Err(error) if error.is_cancelled() => (error.id(), nothing(FetchEnd::Stopped)),
            Err(error) => (error.id(), nothing(FetchEnd::Ours)),
        };
        let Some((number, repo)) = self.numbers.remove(&id) else {
            return;
        };
        self.running.remove(&number);
        if fetched.bytes > 0 && !fetched.got.is_empty() {
            self.shared.repositories.look_after(&repo);
        }
        if self.leaving.contains(&repo) {
            self.leave(repo);
        }
        (self.shared.tell)(number, Word::Done(fetched));
    }
}

async fn carry_out(shared: Arc<Shared>, number: FetchNo, ask: FetchAsk) -> Fetched {
    let extent = Extent::Missing(&ask.url, ask.backing);
    bring(&shared, number, &ask, extent).await
}

pub(super) async fn bring(
    shared: &Arc<Shared>,
    number: FetchNo,
    ask: &FetchAsk,
    extent: Extent<'_>,
) -> Fetched {
    let (repo, room, part) = match enter(shared, &ask.repo, ask.backing).await {
        Ok(entered) => entered,
        Err(end) => return nothing(end),
    };
    let url = ask.url.as_str();
    let trusted = shared.trusted.contains(ask.url.domain());
    let mut web = Web::new(Arc::clone(&shared.net), url, trusted);
    let onlooker = Onlooker {
        number,
        flows: AtomicBool::new(false),
        came: AtomicU64::new(0),
        room,
        part,
        problem: Mutex::default(),
        tell: &shared.tell,
    };
    let limits = shared.limits;
    let mut fetched = fetch(&repo, extent, &ask.wants, &mut web, &onlooker, &limits).await;
    let problem = onlooker.problem.lock();
    fetched.problem = problem.unwrap_or_else(PoisonError::into_inner).take();
    if fetched.end == FetchEnd::Ours {
        tracing::error!(repo = %ask.repo, url, "a fetch failed, and not by the server's fault");
    }
    // What has come is on the disk now.
    let kept = !fetched.got.is_empty() || fetched.end == FetchEnd::Cut { kept: true };
    if kept {
        onlooker.room.keep();
        onlooker.part.keep();
    }
    fetched
}

/// The repository, its part of what it may still grow by, less for what anybody's pull request
/// asks for, and that of what its owner may have.
async fn enter(
    shared: &Arc<Shared>,
    id: &RepoId,
    backing: Backing,
) -> Result<(Repo, Room, Part), FetchEnd> {
    let (shared, id) = (Arc::clone(shared), id.clone());
    let looking = tokio::task::spawn_blocking(move || {
        let repo = shared.repositories.open(&id)?;
        let room = shared.rooms.enter(&id, repo.size()?, backing, None);
        let part = shared.owners.enter(&id.owner, &shared.repositories)?;
        Ok::<_, GitError>(match (room, part) {
            (Ok(room), Ok(part)) => Ok((repo, room, part)),
            (Err(full), _) => Err(end_of(full)),
            (_, Err(end)) => Err(end),
        })
    });
    match looking.await {
        Ok(Ok(entered)) => entered,
        Ok(Err(error)) => {
            tracing::error!(%error, "a fetch finds no repository to bring anything to");
            Err(FetchEnd::Ours)
        }
        Err(_) => Err(FetchEnd::Ours),
    }
}

struct Onlooker<'a> {
    number: FetchNo,
    /// One fetch may bring several packs.
    flows: AtomicBool,
    /// Bytes of all of them.
    came: AtomicU64,
    room: Room,
    part: Part,
    /// The first fault of a pack.
    problem: Mutex<Option<Arc<str>>>,
    tell: &'a Tell,
}

impl Watch for Onlooker<'_> {
    fn flowing(&self) {
        if !self.flows.swap(true, Ordering::Relaxed) {
            let came = self.came.load(Ordering::Relaxed);
            (self.tell)(self.number, Word::Flowing(came));
        }
    }

    fn took(&self, bytes: u64) -> Result<(), FetchEnd> {
        self.part.take(bytes)?;
        let before = self.came.fetch_add(bytes, Ordering::Relaxed);
        let came = before.saturating_add(bytes);
        if came / PART > before / PART {
            (self.tell)(self.number, Word::Flowing(came));
        }
        self.room.take(bytes).map_err(end_of)
    }

    fn refused(&self, fault: &PackFault) {
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        problem.get_or_insert_with(|| fault.to_string().into());
    }

    fn arrived(&self) {
        // The next pack says anew that it comes.
        if self.flows.swap(false, Ordering::Relaxed) {
            (self.tell)(self.number, Word::Arrived);
        }
    }

    fn copies(&self, bytes: u64) -> Result<(), FetchEnd> {
        self.room.copy(bytes).map_err(end_of)
    }
}

fn end_of(full: Full) -> FetchEnd {
    match full {
        Full::Disk | Full::Network => FetchEnd::DiskLow,
        Full::Repository | Full::PullRequests | Full::Unsigned => FetchEnd::Full,
    }
}
