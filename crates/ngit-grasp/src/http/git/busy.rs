//! How much git work at once: in all, per repository, per address. Whoever finds no place is told
//! to come back.

use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use axum::response::IntoResponse;
use grasp_core::shares::{Exceeded, NetworkShares, ShareLimits};
use grasp_core::{Network, RepoId};
use prometheus::IntGauge;
use rustc_hash::FxHashMap;

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
    /// A quarter is left to others, whoever they come from.
    fn but_a_quarter(self) -> Self {
        Self {
            in_all: self.in_all - self.in_all / 4,
            per_repo: self.per_repo - self.per_repo / 4,
            ..self
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
}

/// One place, given back when the last of its clones is dropped: whoever asked may be gone while a
/// thread still works for it.
#[derive(Clone)]
pub struct Turn {
    _place: Arc<Place>,
}

struct Place {
    turnstile: Arc<Turnstile>,
    repo: RepoId,
    network: Option<Network>,
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
        self.enter_within(self.places, repo, network)
    }

    /// For fetches: readers are many and may be slow, and must not keep maintainers from pushing.
    pub fn enter_behind(
        self: &Arc<Self>,
        repo: &RepoId,
        network: Option<Network>,
    ) -> Result<Turn, Busy> {
        self.enter_within(self.places.but_a_quarter(), repo, network)
    }

    fn enter_within(
        self: &Arc<Self>,
        places: Places,
        repo: &RepoId,
        network: Option<Network>,
    ) -> Result<Turn, Busy> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if inside.shares.total() >= places.in_all as u64 {
            return Err(Busy::Server);
        }
        let of_repo = inside.repos.get(repo).copied().unwrap_or(0);
        if of_repo >= places.per_repo {
            return Err(Busy::Repository);
        }
        let limits = ShareLimits {
            in_all: places.in_all as u64,
            per_network: places.per_network as u64,
        };
        let taken = inside.shares.take(network, 1, limits);
        taken.map_err(|exceeded| match exceeded {
            Exceeded::InAll => Busy::Server,
            Exceeded::Network => Busy::Address,
        })?;
        *inside.repos.entry(repo.clone()).or_default() += 1;
        self.running.inc();
        let place = Place {
            turnstile: Arc::clone(self),
            repo: repo.clone(),
            network,
        };
        Ok(Turn {
            _place: Arc::new(place),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let inside = &self.turnstile.inside;
        let mut inside = inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.shares.give_back(self.network, 1);
        leave(&mut inside.repos, &self.repo);
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

impl IntoResponse for Busy {
    fn into_response(self) -> Response<Body> {
        let what = match self {
            Busy::Server => "this server",
            Busy::Repository => "this repository",
            Busy::Address => "your address",
        };
        let text = format!("too much git work for {what} at once, try again in a moment\n");
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
        let fetch = |n| turnstile.enter_behind(&repo(n), None);
        let mut fetches: Vec<Turn> = (0..3).map(|_| fetch(1).ok().unwrap()).collect();
        assert_eq!(fetch(1).err(), Some(Busy::Repository));
        let _push = turnstile.enter(&repo(1), None).ok().unwrap();
        fetches.extend((0..2).map(|_| fetch(2).ok().unwrap()));
        assert_eq!(fetch(3).err(), Some(Busy::Server));
        assert!(turnstile.enter(&repo(3), None).is_ok());
    }
}
