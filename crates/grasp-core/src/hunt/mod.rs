//! The hunt for git data that held events wait for: which repository is tried when, which server
//! is asked for which objects, and how often. No sockets: [`io`] says what is asked of whoever
//! fetches, and what comes back.

mod attempt;
mod audit;
mod domain;
mod ending;
mod flight;
pub mod io;
mod line;
mod memory;
mod note;
mod queue;
pub mod status;
mod throttle;
mod turn;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use self::attempt::{MAX_BESIDE, MAX_CUTS, MAX_FLIGHTS, MAX_SERVERS, MAX_WANTS};
use self::domain::Domains;
use self::flight::Flights;
use self::io::{FetchAsk, Fetched};
use self::line::{Line, Turn};
use self::memory::Memory;
pub use self::note::HuntNote;
use self::queue::{Expected, SyncQueue};
pub use self::status::HuntStatus;
use crate::clock::Mono;
use crate::clone_url::{CloneUrl, Domain};
use crate::git::ObjectId;
use crate::id::EventId;
use crate::limits::HuntLimits;
use crate::nip34::RepoId;
use crate::push::Backing;
use crate::ticket::FetchNo;

/// What is lacking, as whoever holds the events knows it.
pub trait Grounds {
    /// Nothing, if nothing waits for data of this repository.
    fn needs(&self, repo: &RepoId) -> Vec<Need>;

    /// Its announcement is stored: some of its data has come before.
    fn is_served(&self, repo: &RepoId) -> bool;
}

/// One event that waits for git data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    pub event: EventId,
    /// Only those that are not here.
    pub objects: Vec<ObjectId>,
    /// What a maintainer says is fetched before and apart from what anybody asks for, so that no
    /// pull request spoils it.
    pub backing: Backing,
    /// Who may have them, the best first.
    pub servers: Vec<CloneUrl>,
}

/// Where an event came from, which says how soon its data is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From its author, whose push is expected.
    User,
    /// From another relay, in a burst.
    Synced,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    Fetch(FetchNo, FetchAsk),
    /// It is answered all the same.
    Stop(FetchNo),
    /// Nobody waits for data of this repository any more: what came of it in part may go.
    Leave(RepoId),
}

/// The part of the core that looks for git data elsewhere. Called like the core itself: say what
/// happened, then take the orders and notes; call again when the next deadline has passed.
///
/// - What is needed is asked of [`Grounds`] whenever an attempt begins and a fetch ends. Nothing
///   is kept here but when, whom, and how it went: a restart begins anew.
/// - A repository is tried after a delay, and again after longer and longer waits. In an attempt
///   its servers are asked for an object one after the other; a second one beside a first that is
///   too slow. What one does not bring may be asked of others meanwhile.
/// - A server whose domain is at its limits, or rests, is left to the queue of that domain, and
///   the attempt goes on without it. A domain takes the repositories in its queue in turns, each
///   with one server at a time, as soon as it may be asked again.
/// - Every order to fetch is answered by [`Hunt::on_fetched`] once, also after a stop; until then
///   it counts against the limits of its domain.
#[derive(Debug)]
pub struct Hunt {
    limits: HuntLimits,
    queue: SyncQueue,
    domains: Domains,
    flights: Flights,
    line: Line,
    /// Whoever has nothing to ask for but what anybody may have fetched, while that has all its
    /// places.
    aside_unserved: Line,
    aside_requests: Line,
    /// Domains that may be asked when a fetch from their host ends.
    host_queues: BTreeMap<Box<str>, BTreeSet<Domain>>,
    memory: Memory,
    /// Our disk is nearly full: nothing is fetched before then.
    paused: Option<Mono>,
    /// There are more repositories than are taken in, and it was said.
    crowded: bool,
    stopping: bool,
    orders: VecDeque<Order>,
    notes: VecDeque<HuntNote>,
}

impl Hunt {
    pub fn new(limits: HuntLimits) -> Self {
        Self {
            limits,
            queue: SyncQueue::default(),
            domains: Domains::default(),
            flights: Flights::default(),
            line: Line::default(),
            aside_unserved: Line::default(),
            aside_requests: Line::default(),
            host_queues: BTreeMap::new(),
            memory: Memory::default(),
            paused: None,
            crowded: false,
            stopping: false,
            orders: VecDeque::new(),
            notes: VecDeque::new(),
        }
    }

    /// An event waits for data of this repository.
    pub fn expect(&mut self, repo: &RepoId, source: Source, now: Mono) {
        if !self.is_on() {
            return;
        }
        let delay = match source {
            Source::User => self.limits.user_delay,
            Source::Synced => self.limits.synced_delay,
        };
        let most = self.limits.repositories;
        match self.queue.expect(repo, now + delay, now, most) {
            Expected::New => {
                let repo = repo.clone();
                self.notes.push_back(HuntNote::Expected { repo, delay });
            }
            Expected::Refused if !self.crowded => {
                self.crowded = true;
                self.notes.push_back(HuntNote::TooMany);
            }
            Expected::Known | Expected::Refused => {}
        }
    }

    /// Some were refused because there were too many, and now there is room again: whoever waits
    /// is to be expected once more.
    pub fn take_room(&mut self) -> bool {
        let enough = self.limits.repositories / 4 * 3;
        let room = self.crowded && self.queue.len() <= enough;
        self.crowded &= !room;
        room
    }

    /// After a start: whoever was asked shortly before it is not asked as much again at once.
    pub fn begin_slowly(&mut self, now: Mono) {
        self.domains.begin_slowly(now);
    }

    /// Data of this repository is looked for.
    pub fn is_after(&self, repo: &RepoId) -> bool {
        self.queue.get(repo).is_some()
    }

    /// Something was pushed, released, deleted or has expired.
    pub fn on_change(&mut self, repo: &RepoId, now: Mono, grounds: &dyn Grounds) {
        if self.is_on() && self.queue.get(repo).is_some() {
            self.review(repo, grounds);
            self.pump(now, grounds);
        }
    }

    /// The repository is gone.
    pub fn forget(&mut self, repo: &RepoId) {
        self.leave(repo);
    }

    pub fn handle_timeout(&mut self, now: Mono, grounds: &dyn Grounds) {
        if !self.is_on() {
            return;
        }
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
        }
        while let Some(repo) = self.queue.take_due(now) {
            self.line.join(Turn::Repo(repo));
        }
        while let Some(no) = self.flights.take_late(now) {
            if let Some(repo) = self.flights.get(no).map(|flight| flight.repo.clone()) {
                self.make_way(&repo, no);
                self.wake(&repo, now);
            }
        }
        // Whoever waits is looked for below.
        while self.flights.take_yield(now) {}
        while let Some(domain) = self.domains.take_wake(now) {
            self.settle(&domain, now);
        }
        self.pump(now, grounds);
    }

    /// A pack has begun to come, or so many bytes of it: nobody need be asked beside it for now.
    pub fn on_flowing(&mut self, fetch: FetchNo, bytes: u64, now: Mono) {
        self.flights.flows(fetch, bytes, now);
    }

    /// Everything has come, and what is left is our own work: the server is not slow.
    pub fn on_arrived(&mut self, fetch: FetchNo, now: Mono) {
        self.flights.arrived(fetch, now);
    }

    /// The repository that was fetched for, unless the number is nobody's.
    pub fn on_fetched(
        &mut self,
        fetch: FetchNo,
        fetched: &Fetched,
        now: Mono,
        grounds: &dyn Grounds,
    ) -> Option<RepoId> {
        let flight = self.flights.end(fetch)?;
        let fetched = &flight.as_it_was(fetched);
        self.judge(&flight, fetched, now);
        self.conclude(fetch, &flight, fetched, now);
        if self.is_on() {
            self.review(&flight.repo, grounds);
            self.wake(&flight.repo, now);
            self.settle_host(flight.url.domain(), now);
            self.pump(now, grounds);
        }
        Some(flight.repo)
    }

    pub fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    pub fn poll_note(&mut self) -> Option<HuntNote> {
        self.notes.pop_front()
    }

    pub fn poll_timeout(&self) -> Option<Mono> {
        if !self.is_on() {
            return None;
        }
        let deadlines = [
            self.paused,
            self.queue.next_due(),
            self.flights.next_hedge(),
            self.flights.next_yield(),
            self.domains.next_wake(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Repositories that lack data.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.len() == 0
    }

    /// Stops every fetch; nothing is begun any more.
    pub fn wind_down(&mut self) {
        self.stopping = true;
        let all: Vec<FetchNo> = self.flights.iter().map(|(no, _)| no).collect();
        all.into_iter().for_each(|no| self.stop(no));
    }

    fn is_on(&self) -> bool {
        self.limits.enabled && !self.stopping
    }

    fn stop(&mut self, no: FetchNo) {
        if self.flights.stop(no) {
            self.orders.push_back(Order::Stop(no));
        }
    }

    /// Nothing more is done for it; what is under way for it is stopped.
    fn leave(&mut self, repo: &RepoId) {
        let Some(quarry) = self.queue.remove(repo) else {
            return;
        };
        for (domain, place) in quarry.places {
            self.vacate(&domain, place);
        }
        let flights = quarry.flights.into_iter();
        flights.for_each(|no| self.stop(no));
        self.orders.push_back(Order::Leave(repo.clone()));
        let (repo, came) = (repo.clone(), quarry.came);
        self.notes.push_back(HuntNote::Over { repo, came });
    }
}
