//! The hands of the hunt: fetches of git data from other servers, one task each, begun and ended
//! as the core asks. Whom to ask for what is not decided here.

mod owners;
mod pool;
#[cfg(test)]
mod tests;
mod tidy;
mod web;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use grasp_core::clone_url::Domain;
use grasp_core::hunt::io::{FetchAsk, FetchEnd, Fetched};
use grasp_core::{FetchNo, RepoId};
use grasp_git::fetch::{Extent, FetchLimits};
use tokio::sync::mpsc;

use self::owners::{Owners, RECOUNT};
use self::pool::{Order, Pool, Shared};
use self::web::Net;
use crate::hosting::Repositories;
use crate::hosting::room::Rooms;
use crate::remote::dial::Dialer;
use crate::remote::guard::{Guard, Reach};

/// How long fetches may take to end.
const STOP: Duration = Duration::from_secs(1);

/// How other git servers are reached.
#[derive(Debug, Clone)]
pub struct Options {
    pub reach: Reach,
    /// Servers that the operator names may be anywhere.
    pub trusted: Vec<Domain>,
    /// From the look-up of the name to the open connection.
    pub connect_timeout: Duration,
    pub limits: FetchLimits,
    /// All repositories of one owner together; without it each only has its own bound.
    pub max_owner_bytes: Option<u64>,
}

/// What is said of a fetch while it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Its pack has begun to come, or another part of it: so many bytes so far.
    Flowing(u64),
    /// All of it has come, and we are at work on it.
    Arrived,
    /// The last word, and there is always one.
    Done(Fetched),
}

pub type Tell = Arc<dyn Fn(FetchNo, Word) + Send + Sync>;

/// Carries out what the core asks of other git servers. Cheap to clone.
#[derive(Clone)]
pub struct Fetcher {
    orders: mpsc::UnboundedSender<Order>,
    tell: Tell,
}

impl Fetcher {
    /// Needs a runtime to run on. `tell` is called from its threads and must not wait.
    pub fn new(
        options: Options,
        repositories: Arc<Repositories>,
        rooms: Arc<Rooms>,
        tell: Tell,
    ) -> std::io::Result<Self> {
        let shared = share(options, repositories, rooms, Arc::clone(&tell))?;
        let (orders, queue) = mpsc::unbounded_channel();
        tokio::spawn(Pool::new(shared).run(queue));
        Ok(Self { orders, tell })
    }

    /// For work that no other server has a part in: every fetch is stopped before it begins.
    pub fn none(tell: Tell) -> Self {
        let (orders, _) = mpsc::unbounded_channel();
        Self { orders, tell }
    }

    /// Never waits.
    pub fn start(&self, fetch: FetchNo, ask: FetchAsk) {
        if self.orders.send(Order::Start(fetch, ask)).is_err() {
            (self.tell)(fetch, Word::Done(nothing(FetchEnd::Stopped)));
        }
    }

    /// It is done soon, one way or the other. One that is done already is not known any more.
    pub fn stop(&self, fetch: FetchNo) {
        let _ = self.orders.send(Order::Stop(fetch));
    }

    /// Nothing is wanted for this repository any more: what has come in part goes.
    pub fn leave(&self, repo: RepoId) {
        let _ = self.orders.send(Order::Leave(repo));
    }

    /// Ends every fetch; after that nothing is told any more but of those that are started
    /// later. Waits, but not long.
    pub fn shut_down(&self) {
        let began = Instant::now();
        let (done, ended) = bounded(1);
        if self.orders.send(Order::End(done)).is_ok() && ended.recv_timeout(STOP).is_err() {
            let waited = began.elapsed();
            tracing::warn!(?waited, "fetches from other servers did not end in order");
        }
    }
}

/// Brings back all that a disk has lost, for work on a server that is stopped: one fetch at a time,
/// and whoever asks keeps the limits of the other servers.
pub struct Restorer {
    shared: Arc<Shared>,
}

impl Restorer {
    pub fn new(
        options: Options,
        repositories: Arc<Repositories>,
        rooms: Arc<Rooms>,
    ) -> std::io::Result<Self> {
        let nobody: Tell = Arc::new(|_, _| {});
        let shared = share(options, repositories, rooms, nobody)?;
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Everything that the wanted objects reach, though some of it may be here.
    pub async fn fetch(&self, ask: &FetchAsk) -> Fetched {
        pool::bring(&self.shared, FetchNo(0), ask, Extent::Everything).await
    }
}

fn share(
    options: Options,
    repositories: Arc<Repositories>,
    rooms: Arc<Rooms>,
    tell: Tell,
) -> std::io::Result<Shared> {
    let dialer = Dialer::new(options.connect_timeout).map_err(std::io::Error::other)?;
    let guard = Guard::new(options.reach);
    let net = Net::new(guard, dialer, options.connect_timeout);
    Ok(Shared {
        net: Arc::new(net),
        trusted: options.trusted,
        repositories,
        rooms,
        limits: options.limits,
        owners: Owners::new(options.max_owner_bytes, RECOUNT),
        tell,
    })
}

/// The answer to a fetch that never was, or was stopped somewhere on its way.
fn nothing(end: FetchEnd) -> Fetched {
    Fetched {
        got: Vec::new(),
        here: Vec::new(),
        lacking: Vec::new(),
        bytes: 0,
        requests: u32::from(end == FetchEnd::Stopped),
        end,
    }
}
