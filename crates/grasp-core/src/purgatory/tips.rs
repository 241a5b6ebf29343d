//! Tips of pull requests that were pushed before their event came.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::clock::Timestamp;
use crate::git::ObjectId;
use crate::id::EventId;
use crate::limits::EARLY_TIPS as MAX_TIPS;
use crate::network::Network;
use crate::nip34::RepoId;
use crate::shares::{Exceeded, NetworkShares, ShareLimits, Shares};

/// Of one repository: all of them are in every answer to `ls-remote`.
const MAX_PER_REPO: usize = 256;
/// What one network may hold: a sixteenth of all, and a quarter of a repository, which is what one
/// push may bring.
const LIMITS: ShareLimits = ShareLimits {
    in_all: MAX_TIPS as u64,
    per_network: MAX_TIPS as u64 / 16,
};
const REPO_LIMITS: ShareLimits = ShareLimits {
    in_all: MAX_PER_REPO as u64,
    per_network: MAX_PER_REPO as u64 / 4,
};

#[derive(Debug, Default)]
pub struct EarlyTips {
    tips: FxHashMap<EventId, Vec<Early>>,
    deadlines: BTreeSet<(Timestamp, EventId, RepoId)>,
    in_repo: FxHashMap<RepoId, InRepo>,
    shares: NetworkShares,
    holders: Holders,
}

/// Everybody with whom they are counted: a network with all around it that one customer may hold,
/// or this machine and whoever came before the start.
type Holder = Option<Network>;

fn holder(network: Option<Network>) -> Holder {
    network.map(Network::widest)
}

#[derive(Debug, Default)]
struct InRepo {
    shares: NetworkShares,
    holders: Holders,
}

/// What each holder has, the oldest first.
#[derive(Debug, Default)]
struct Holders {
    amounts: Shares<Holder>,
    tips: BTreeMap<Holder, BTreeSet<(Timestamp, EventId, RepoId)>>,
}

impl Holders {
    fn insert(&mut self, early: &Early, event: EventId) {
        let holder = holder(early.network);
        self.amounts.add(holder, 1);
        let tips = self.tips.entry(holder).or_default();
        tips.insert((early.until, event, early.repo.clone()));
    }

    fn remove(&mut self, early: &Early, event: EventId) {
        let holder = holder(early.network);
        self.amounts.remove(holder, 1);
        if let Some(tips) = self.tips.get_mut(&holder) {
            tips.remove(&(early.until, event, early.repo.clone()));
            if tips.is_empty() {
                self.tips.remove(&holder);
            }
        }
    }

    fn shift(&mut self, by: i64) {
        for tips in self.tips.values_mut() {
            let before = std::mem::take(tips).into_iter();
            tips.extend(before.map(|(until, event, repo)| (until.shifted(by), event, repo)));
        }
    }

    /// The oldest tip of whoever holds most, if that is more than the newcomer does.
    fn first_to_go(&self, newcomer: Option<Network>) -> Option<(RepoId, EventId)> {
        let (largest, most) = self.amounts.largest()?;
        if most <= self.amounts.held_by(&holder(newcomer)) {
            return None;
        }
        let (_, event, repo) = self.tips.get(&largest)?.first()?;
        Some((repo.clone(), *event))
    }
}

#[derive(Debug)]
pub struct Early {
    pub repo: RepoId,
    pub tip: ObjectId,
    pub until: Timestamp,
    /// Where it was pushed from. `None` is not counted: this machine, or before the start.
    pub network: Option<Network>,
}

/// What stands between a push and its tips.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Room {
    Enough,
    /// This tip has to make way first.
    After(RepoId, EventId),
    None,
}

impl EarlyTips {
    pub fn len(&self) -> usize {
        self.deadlines.len()
    }

    pub fn is_empty(&self) -> bool {
        self.deadlines.is_empty()
    }

    /// Whether so many more fit. Where it is full the oldest of whoever holds most makes way.
    pub fn room(&self, repo: &RepoId, network: Option<Network>, more: usize) -> Room {
        if more == 0 {
            return Room::Enough;
        }
        let no_holders = Holders::default();
        let in_repo = self.in_repo.get(repo);
        let repo_holders = in_repo.map_or(&no_holders, |found| &found.holders);
        let no_shares = NetworkShares::default();
        let repo_shares = in_repo.map_or(&no_shares, |found| &found.shares);
        let more = more as u64;
        for (shares, holders, limits) in [
            (repo_shares, repo_holders, REPO_LIMITS),
            (&self.shares, &self.holders, LIMITS),
        ] {
            match shares.check(network, more, limits) {
                Ok(()) => {}
                Err(Exceeded::Network) => return Room::None,
                Err(Exceeded::InAll) => {
                    let first = holders.first_to_go(network);
                    return first.map_or(Room::None, |(repo, event)| Room::After(repo, event));
                }
            }
        }
        Room::Enough
    }

    /// One that is pushed again, at whatever commit and by whomever, has no more time than before,
    /// and is counted where it was.
    pub fn insert(&mut self, event: EventId, mut early: Early) {
        if let Some(before) = self.remove(&early.repo, &event) {
            (early.until, early.network) = (before.until, before.network);
        }
        self.deadlines
            .insert((early.until, event, early.repo.clone()));
        self.shares.add(early.network, 1);
        self.holders.insert(&early, event);
        let in_repo = self.in_repo.entry(early.repo.clone()).or_default();
        in_repo.shares.add(early.network, 1);
        in_repo.holders.insert(&early, event);
        self.tips.entry(event).or_default().push(early);
    }

    pub fn contains(&self, repo: &RepoId, event: &EventId) -> bool {
        let mut early = self.tips.get(event).into_iter().flatten();
        early.any(|early| early.repo == *repo)
    }

    /// The tips that wait for that event, no longer kept.
    pub fn take(&mut self, event: &EventId) -> Vec<Early> {
        let early = self.tips.remove(event).unwrap_or_default();
        for early in &early {
            self.uncount(early, *event);
        }
        early
    }

    /// The repository is gone, and its refs with it.
    pub fn forget(&mut self, repo: &RepoId) {
        let tips = self.in_repo.get(repo).into_iter();
        let tips = tips.flat_map(|found| found.holders.tips.values().flatten());
        let events: Vec<EventId> = tips.map(|(_, event, _)| *event).collect();
        for event in events {
            self.remove(repo, &event);
        }
    }

    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(until, ..)| *until)
    }

    /// One tip whose time has come, no longer kept.
    pub fn take_expired(&mut self, now: Timestamp) -> Option<(RepoId, EventId)> {
        let (until, event, repo) = self.deadlines.first()?.clone();
        if until > now {
            return None;
        }
        self.remove(&repo, &event);
        Some((repo, event))
    }

    /// The time that deadlines are written in has moved.
    pub fn shift(&mut self, by: i64) {
        for early in self.tips.values_mut().flatten() {
            early.until = early.until.shifted(by);
        }
        let before = std::mem::take(&mut self.deadlines);
        let moved = before.into_iter();
        self.deadlines = moved
            .map(|(until, event, repo)| (until.shifted(by), event, repo))
            .collect();
        self.holders.shift(by);
        for in_repo in self.in_repo.values_mut() {
            in_repo.holders.shift(by);
        }
    }

    /// It is no longer kept.
    pub fn remove(&mut self, repo: &RepoId, event: &EventId) -> Option<Early> {
        let early = self.tips.get_mut(event)?;
        let at = early.iter().position(|early| early.repo == *repo);
        let removed = at.map(|at| early.swap_remove(at));
        if early.is_empty() {
            self.tips.remove(event);
        }
        let removed = removed?;
        self.uncount(&removed, *event);
        Some(removed)
    }

    fn uncount(&mut self, early: &Early, event: EventId) {
        self.deadlines
            .remove(&(early.until, event, early.repo.clone()));
        self.shares.give_back(early.network, 1);
        self.holders.remove(early, event);
        if let Some(in_repo) = self.in_repo.get_mut(&early.repo) {
            in_repo.shares.give_back(early.network, 1);
            in_repo.holders.remove(early, event);
            if in_repo.shares.total() == 0 {
                self.in_repo.remove(&early.repo);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Pubkey;
    use crate::nip34::Identifier;

    const COMMIT: ObjectId = ObjectId([1; 20]);

    fn repo(owner: u8) -> RepoId {
        RepoId::new(Pubkey([owner; 32]), Identifier::parse("r").unwrap())
    }

    fn early(owner: u8, network: Option<Network>) -> Early {
        Early {
            repo: repo(owner),
            tip: COMMIT,
            until: Timestamp(9),
            network,
        }
    }

    fn event(n: usize) -> EventId {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&n.to_be_bytes());
        EventId(id)
    }

    fn network(ip: &str) -> Option<Network> {
        Some(Network::of(ip.parse().unwrap()))
    }

    #[test]
    fn a_repository_takes_its_own_tips_with_it() {
        let mut tips = EarlyTips::default();
        for n in 0..4 {
            tips.insert(event(n), early(1, network("192.0.2.1")));
        }
        tips.insert(event(3), early(2, None));
        tips.forget(&repo(1));
        assert_eq!(tips.len(), 1);
        assert!(tips.contains(&repo(2), &event(3)));
        assert_eq!(tips.room(&repo(1), None, MAX_PER_REPO), Room::Enough);
        assert_eq!(tips.take(&event(3)).len(), 1);
        assert!(tips.tips.is_empty() && tips.in_repo.is_empty() && tips.is_empty());
        assert_eq!((tips.shares.total(), tips.holders.tips.len()), (0, 0));
    }

    #[test]
    fn tips_make_way_after_the_clock_was_set() {
        let mut tips = EarlyTips::default();
        for n in 0..MAX_PER_REPO {
            tips.insert(event(n), early(1, network(&format!("192.0.2.{}", n % 4))));
        }
        tips.shift(86_400);
        let newcomer = network("198.51.100.1");
        let mut gone = 0;
        while let Room::After(at, id) = tips.room(&repo(1), newcomer, 2) {
            assert!(tips.remove(&at, &id).is_some(), "{gone} have made way");
            gone += 1;
        }
        assert_eq!(gone, 2);
        assert_eq!(tips.room(&repo(1), newcomer, 2), Room::Enough);
    }

    #[test]
    fn one_customer_with_many_prefixes_makes_way_for_somebody_else() {
        let mut tips = EarlyTips::default();
        let mut taken = 0;
        let mut fill = |tips: &mut EarlyTips, prefix: &str| {
            while tips.room(&repo(1), network(prefix), 1) == Room::Enough {
                tips.insert(event(taken), early(1, network(prefix)));
                taken += 1;
            }
            taken
        };
        for n in 0..10 {
            fill(&mut tips, &format!("2001:db8:0:{n}00::1"));
        }
        let of_two = fill(&mut tips, "203.0.113.1");
        assert_eq!(of_two, MAX_PER_REPO * 3 / 4, "half is a /48's");
        let all = fill(&mut tips, "203.0.113.2");
        assert_eq!(all, MAX_PER_REPO);
        let newcomer = network("192.0.2.1");
        let room = tips.room(&repo(1), newcomer, 1);
        assert_eq!(room, Room::After(repo(1), event(0)));
    }

    #[test]
    fn a_network_has_a_sixteenth_of_all_repositories() {
        let mut tips = EarlyTips::default();
        let mut taken = 0;
        for owner in 0..100 {
            while tips.room(&repo(owner), network("192.0.2.1"), 1) == Room::Enough {
                tips.insert(event(taken), early(owner, network("192.0.2.1")));
                taken += 1;
            }
        }
        assert_eq!(taken, MAX_TIPS / 16);
        assert_eq!(tips.room(&repo(0), network("192.0.2.2"), 1), Room::Enough);
    }
}
