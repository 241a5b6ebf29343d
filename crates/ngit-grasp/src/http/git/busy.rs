//! How much git work at once: in all, per repository, per address. Whoever finds no place is told
//! to come back, unless somebody who holds more makes way: `push_slots` and `fetch_slots` say who.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use axum::response::IntoResponse;
use grasp_core::push::Backing;
use grasp_core::shares::{Exceeded, NetworkShares, ShareLimits};
use grasp_core::{Network, RepoId};
use prometheus::IntGauge;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use super::fetch_slots::FetchSlots;
use super::push_slots::{PushSlots, Scope};

const RETRY_AFTER_SECS: &str = "5";

pub struct Turnstile {
    places: Places,
    running: IntGauge,
    inside: Mutex<Inside>,
}

#[derive(Debug, Clone, Copy)]
pub struct Places {
    pub in_all: usize,
    pub per_repo: usize,
    pub per_network: usize,
}

impl Places {
    fn of(self, scope: Scope<'_>) -> usize {
        match scope {
            Scope::Server => self.in_all,
            Scope::Repository(_) => self.per_repo,
        }
    }

    fn shares(self) -> ShareLimits {
        ShareLimits {
            in_all: self.in_all as u64,
            per_network: self.per_network as u64,
        }
    }

    pub fn times(self, factor: usize) -> Self {
        Self {
            in_all: self.in_all.saturating_mul(factor),
            per_repo: self.per_repo.saturating_mul(factor),
            per_network: self.per_network.saturating_mul(factor),
        }
    }
}

#[derive(Default)]
struct Inside {
    shares: NetworkShares,
    repos: FxHashMap<RepoId, usize>,
    /// Those of them that push, and those that fetch.
    pushes: PushSlots,
    fetches: FetchSlots,
}

/// What a slot is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Its number among the pushes.
    Push(u64),
    /// Its number among the fetches.
    Fetch(u64),
    Other,
}

impl Inside {
    fn is_full(&self, places: Places, scope: Scope<'_>) -> bool {
        let held = match scope {
            Scope::Repository(repo) => self.repos.get(repo).copied().unwrap_or(0),
            Scope::Server => usize::try_from(self.shares.total()).unwrap_or(usize::MAX),
        };
        held >= places.of(scope)
    }

    /// Readers are many and may be slow, pushes wait for what they bring: neither has the quarter
    /// that is kept for the other.
    fn is_full_for(&self, of_its_kind: usize, places: Places, scope: Scope<'_>) -> bool {
        let slots = places.of(scope);
        of_its_kind >= slots - slots / 4 || self.is_full(places, scope)
    }

    fn take(
        &mut self,
        places: Places,
        repo: &RepoId,
        network: Option<Network>,
    ) -> Result<(), Busy> {
        for scope in [Scope::Server, Scope::Repository(repo)] {
            if self.is_full(places, scope) {
                return Err(scope.busy());
            }
        }
        let taken = self.shares.take(network, 1, places.shares());
        taken.map_err(Busy::from)?;
        *self.repos.entry(repo.clone()).or_default() += 1;
        Ok(())
    }

    fn give_back(&mut self, repo: &RepoId, network: Option<Network>) {
        self.shares.give_back(network, 1);
        leave(&mut self.repos, repo);
    }

    /// Takes a push's slot away at once; what it still does, it does without one.
    fn evict(&mut self, push: u64) {
        if let Some((repo, network)) = self.pushes.evict(push) {
            self.give_back(&repo, network);
        }
    }

    fn evict_fetch(&mut self, fetch: u64) {
        if let Some((repo, network)) = self.fetches.evict(fetch) {
            self.give_back(&repo, network);
        }
    }

    /// Told when the slot is taken away.
    fn evicted(&self, work: Work) -> Evicted {
        let told = match work {
            Work::Push(push) => self.pushes.evicted(push),
            Work::Fetch(fetch) => self.fetches.evicted(fetch),
            Work::Other => return Evicted::Never,
        };
        told.map_or(Evicted::Already, Evicted::When)
    }
}

enum Evicted {
    Never,
    Already,
    When(Arc<Notify>),
}

/// One place, given back when the last of its clones is dropped: whoever asked may be gone while a
/// thread still works for it.
#[derive(Clone)]
pub struct Turn {
    place: Arc<Place>,
}

struct Place {
    turnstile: Arc<Turnstile>,
    repo: RepoId,
    network: Option<Network>,
    work: Work,
}

/// What is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    Server,
    Repository,
    Address,
}

impl Turnstile {
    pub fn new(places: Places, running: IntGauge) -> Arc<Self> {
        Arc::new(Self {
            places,
            running,
            inside: Mutex::default(),
        })
    }

    pub fn enter(self: &Arc<Self>, repo: &RepoId, network: Option<Network>) -> Result<Turn, Busy> {
        self.inside().take(self.places, repo, network)?;
        Ok(self.turn(repo, network, Work::Other))
    }

    /// For a fetch. Where there is no slot left, another one may have to make way.
    pub fn enter_fetch(
        self: &Arc<Self>,
        repo: &RepoId,
        network: Option<Network>,
    ) -> Result<Turn, Busy> {
        let now = Instant::now();
        let mut inside = self.inside();
        self.check_share(&inside, network)?;
        let mut scopes = [Scope::Repository(repo), Scope::Server].into_iter();
        let is_full = |scope: &Scope<'_>| {
            inside.is_full_for(inside.fetches.count(*scope), self.places, *scope)
        };
        // One of the repository is one of the server, too.
        if let Some(scope) = scopes.find(is_full) {
            let victim = inside.fetches.victim(scope, network, now);
            inside.evict_fetch(victim.ok_or(scope.busy())?);
        }
        inside.take(self.places, repo, network)?;
        let fetch = inside.fetches.insert(repo.clone(), network);
        drop(inside);
        Ok(self.turn(repo, network, Work::Fetch(fetch)))
    }

    /// For a push whose commands are to be read. Where there is no room, another one that is no
    /// further may have to make way.
    pub fn enter_push(
        self: &Arc<Self>,
        repo: &RepoId,
        network: Option<Network>,
    ) -> Result<Turn, Busy> {
        let now = Instant::now();
        let mut inside = self.inside();
        self.check_share(&inside, network)?;
        // One for the repository, one for the server.
        for _ in 0..2 {
            let pushes = &inside.pushes;
            let is_full =
                |scope: Scope<'_>| inside.is_full_for(pushes.count_in(scope), self.places, scope);
            match pushes.makes_way(self.places, repo, network, is_full, now)? {
                Some(push) => inside.evict(push),
                None => break,
            }
        }
        inside.take(self.places, repo, network)?;
        let push = inside.pushes.insert(repo.clone(), network, now);
        drop(inside);
        Ok(self.turn(repo, network, Work::Push(push)))
    }

    /// Nobody makes way for a network that has its share.
    fn check_share(&self, inside: &Inside, network: Option<Network>) -> Result<(), Busy> {
        match inside.shares.check(network, 1, self.places.shares()) {
            Err(Exceeded::Network) => Err(Busy::Address),
            Ok(()) | Err(Exceeded::InAll) => Ok(()),
        }
    }

    fn turn(self: &Arc<Self>, repo: &RepoId, network: Option<Network>, work: Work) -> Turn {
        self.running.inc();
        let place = Place {
            turnstile: Arc::clone(self),
            repo: repo.clone(),
            network,
            work,
        };
        Turn {
            place: Arc::new(place),
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// The commands of this push are judged. Whoever holds more of its class may have to make way.
    pub fn judged(&self, backing: Backing) -> Result<(), Busy> {
        let Work::Push(push) = self.place.work else {
            return Ok(());
        };
        let turnstile = &self.place.turnstile;
        let mut inside = turnstile.inside();
        if let Some(push) = inside.pushes.judge(push, backing, turnstile.places)? {
            inside.evict(push);
        }
        Ok(())
    }

    /// What this push was waited for has come: its commands, or its pack. Nobody takes its slot
    /// away while it waits for us.
    pub fn received(&self) {
        if let Work::Push(push) = self.place.work {
            self.place.turnstile.inside().pushes.received(push);
        }
    }

    /// This fetch waits for its client, to send more of the request or to take more of the answer.
    pub fn wait_for_client(&self) {
        if let Work::Fetch(fetch) = self.place.work {
            let mut inside = self.place.turnstile.inside();
            inside.fetches.wait_for_client(fetch, Instant::now());
        }
    }

    /// The client has sent or taken so much.
    pub fn client_took(&self, bytes: usize) {
        if let Work::Fetch(fetch) = self.place.work {
            let mut inside = self.place.turnstile.inside();
            inside
                .fetches
                .client_took(fetch, bytes as u64, Instant::now());
        }
    }

    /// Ends when the slot of this push or fetch is taken away.
    pub fn evicted(&self) -> impl Future<Output = ()> + Send + use<> {
        let evicted = self.place.turnstile.inside().evicted(self.place.work);
        async move {
            match evicted {
                Evicted::When(told) => told.notified().await,
                Evicted::Already => {}
                Evicted::Never => std::future::pending().await,
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.turnstile.inside();
        let holds = match self.work {
            Work::Push(push) => inside.pushes.remove(push),
            Work::Fetch(fetch) => inside.fetches.remove(fetch),
            Work::Other => true,
        };
        if holds {
            inside.give_back(&self.repo, self.network);
        }
        self.turnstile.running.dec();
    }
}

fn leave<K: Hash + Eq>(counts: &mut FxHashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl From<Exceeded> for Busy {
    fn from(exceeded: Exceeded) -> Self {
        match exceeded {
            Exceeded::InAll => Busy::Server,
            Exceeded::Network => Busy::Address,
        }
    }
}

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self {
            Busy::Server => "this server",
            Busy::Repository => "this repository",
            Busy::Address => "your address",
        };
        write!(
            f,
            "too much git work for {what} at once, try again in a moment"
        )
    }
}

impl std::error::Error for Busy {}

impl IntoResponse for Busy {
    fn into_response(self) -> Response<Body> {
        let text = format!("{self}\n");
        let retry = [(header::RETRY_AFTER, RETRY_AFTER_SECS)];
        (StatusCode::SERVICE_UNAVAILABLE, retry, text).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::{Identifier, Pubkey};

    #[test]
    fn places_are_counted_in_three_ways_and_given_back() {
        let gauge = IntGauge::new("g", "g").unwrap();
        let places = Places {
            in_all: 3,
            per_repo: 2,
            per_network: 1,
        };
        let turnstile = Turnstile::new(places, gauge.clone());
        let repo = |n: u8| RepoId::new(Pubkey([n; 32]), Identifier::parse("r").unwrap());
        let enter = |n, network| turnstile.enter(&repo(n), network);
        let address = Some(Network::of("192.0.2.1".parse().unwrap()));
        let first = enter(1, address).ok().unwrap();
        assert_eq!(enter(2, address).err(), Some(Busy::Address));
        let _second = enter(1, None).ok().unwrap();
        assert_eq!(enter(1, None).err(), Some(Busy::Repository));
        let _third = enter(2, None).ok().unwrap();
        assert_eq!(enter(3, None).err(), Some(Busy::Server));
        assert_eq!(gauge.get(), 3);
        drop(first);
        assert!(enter(3, address).is_ok());
    }

    #[test]
    fn fetches_leave_places_to_pushes() {
        let places = Places {
            in_all: 8,
            per_repo: 4,
            per_network: 8,
        };
        let turnstile = Turnstile::new(places, IntGauge::new("g", "g").unwrap());
        let repo = |n: u8| RepoId::new(Pubkey([n; 32]), Identifier::parse("r").unwrap());
        let fetch = |n| turnstile.enter_fetch(&repo(n), None);
        let mut fetches: Vec<Turn> = (0..3).map(|_| fetch(1).ok().unwrap()).collect();
        assert_eq!(fetch(1).err(), Some(Busy::Repository));
        let _push = turnstile.enter_push(&repo(1), None).ok().unwrap();
        fetches.extend((0..3).map(|_| fetch(2).ok().unwrap()));
        assert_eq!(fetch(3).err(), Some(Busy::Server));
        assert!(turnstile.enter_push(&repo(3), None).is_ok());
    }

    #[test]
    fn pushes_of_signed_states_leave_slots_to_fetches() {
        let turnstile = turnstile();
        let mut pushes = Vec::new();
        // Everybody may sign states for repositories of his own.
        for n in 0..64 {
            if let Ok(push) = turnstile.enter_push(&repo(n), network(n)) {
                push.received();
                assert_eq!(push.judged(Backing::State), Ok(()));
                push.received();
                pushes.push(push);
            }
        }
        assert_eq!(pushes.len(), 48);
        let fetches = (100..116).map(|n| turnstile.enter_fetch(&repo(n), network(n)));
        assert!(fetches.collect::<Vec<_>>().iter().all(Result::is_ok));
    }

    #[tokio::test]
    async fn readers_of_a_few_networks_do_not_close_it_to_others() {
        let turnstile = turnstile();
        let slow: Vec<Turn> = (0..48)
            .map(|n| turnstile.enter_fetch(&repo(n), network(n % 3)).unwrap())
            .collect();
        let _newcomer = turnstile.enter_fetch(&repo(99), network(9)).unwrap();
        let evicted = slow.iter().map(|turn| Box::pin(turn.evicted()));
        futures_util::future::select_all(evicted).await;
        assert_eq!(turnstile.inside().shares.total(), 48);
        drop(slow);
        assert_eq!(turnstile.inside().shares.total(), 1);
    }

    const PLACES: Places = Places {
        in_all: 64,
        per_repo: 32,
        per_network: 16,
    };

    fn turnstile() -> Arc<Turnstile> {
        Turnstile::new(PLACES, IntGauge::new("g", "g").unwrap())
    }

    fn repo(n: u8) -> RepoId {
        RepoId::new(Pubkey([n; 32]), Identifier::parse("r").unwrap())
    }

    fn network(n: u8) -> Option<Network> {
        Some(Network::of([203, 0, 113, n].into()))
    }

    /// Every stranger begins as many pushes as he may, and they get as far as they may.
    fn drips(turnstile: &Arc<Turnstile>, addresses: u8, backing: Option<Backing>) -> Vec<Turn> {
        let mut turns = Vec::new();
        for n in 0..addresses {
            for _ in 0..16 {
                let Ok(turn) = turnstile.enter_push(&repo(1), network(n)) else {
                    continue;
                };
                if backing.is_none_or(|backing| turn.judged(backing).is_ok()) {
                    turns.push(turn);
                }
            }
        }
        turns
    }

    #[test]
    fn strangers_pushes_leave_half_of_a_repository_to_its_maintainers() {
        for backing in [None, Some(Backing::None), Some(Backing::PullRequests)] {
            let turnstile = turnstile();
            let drips = drips(&turnstile, 8, backing);
            let mut pushes = Vec::new();
            for n in 100..108 {
                let push = turnstile.enter_push(&repo(1), network(n)).unwrap();
                assert_eq!(push.judged(Backing::State), Ok(()), "{backing:?}");
                pushes.push(push);
            }
            // And to readers what they had.
            for n in 100..108 {
                pushes.push(turnstile.enter_fetch(&repo(2), network(n)).unwrap());
            }
            assert!(drips.len() >= 4, "{backing:?}");
        }
    }

    #[test]
    fn unsigned_pushes_have_an_eighth_and_those_of_pull_requests_a_quarter() {
        for (backing, in_repo, of_one) in [(Backing::None, 4, 2), (Backing::PullRequests, 8, 4)] {
            let turnstile = turnstile();
            let one = drips(&turnstile, 1, Some(backing));
            assert_eq!(one.len(), of_one, "{backing:?}");
            let all = drips(&turnstile, 20, Some(backing));
            let inside = turnstile.inside();
            assert_eq!(inside.shares.total(), in_repo, "{} were begun", all.len());
        }
    }

    #[tokio::test]
    async fn whoever_holds_most_makes_way_and_hears_of_it() {
        let turnstile = turnstile();
        let first = drips(&turnstile, 2, Some(Backing::PullRequests));
        assert_eq!(first.len(), 8);
        let newcomer = turnstile.enter_push(&repo(1), network(9)).unwrap();
        assert_eq!(newcomer.judged(Backing::PullRequests), Ok(()));
        let evicted = first.iter().map(|turn| Box::pin(turn.evicted()));
        futures_util::future::select_all(evicted).await;
        // Those who have everything here stay, and of equals nobody goes.
        for turn in &first {
            turn.received();
        }
        let next = turnstile.enter_push(&repo(1), network(10)).unwrap();
        assert_eq!(next.judged(Backing::PullRequests), Err(Busy::Repository));
        assert_eq!(turnstile.inside().shares.total(), 9);
        drop((first, newcomer, next));
        assert_eq!(turnstile.inside().shares.total(), 0);
        assert!(turnstile.inside().repos.is_empty());
    }

    #[test]
    fn one_network_does_not_close_a_repository_with_what_a_maintainer_signed() {
        let turnstile = turnstile();
        let drips = drips(&turnstile, 2, Some(Backing::State));
        assert_eq!(drips.len(), 8);
        assert!(turnstile.enter_push(&repo(1), network(9)).is_ok());
    }
}
