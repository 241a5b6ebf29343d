//! What the pushes that are under way are worth: whoever has a maintainer's signature behind it is
//! not kept out by those who have not, and of those the one who holds most makes way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use grasp_core::push::Backing;
use grasp_core::shares::{Exceeded, NetworkShares, ShareLimits, Shares};
use grasp_core::{Network, RepoId};
use tokio::sync::Notify;

use super::busy::{Busy, Places};

/// A list of commands comes with the head of its request, whatever the line. While slots are
/// scarce, one that takes longer makes way.
const HEAD_PATIENCE: Duration = Duration::from_millis(250);

/// What is known of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Its commands are not judged yet.
    Unjudged,
    Judged(Backing),
}

impl Class {
    fn has_state(self) -> bool {
        self == Class::Judged(Backing::State)
    }

    /// Brings objects, and no maintainer has signed for them.
    fn is_open(self) -> bool {
        matches!(self, Class::Judged(backing) if backing < Backing::State)
    }
}

#[derive(Debug)]
struct Slot {
    repo: RepoId,
    network: Option<Network>,
    class: Class,
    since: Instant,
    /// The client is waited for. When it is not, the push may go on in peace.
    awaited: bool,
    evicted: Arc<Notify>,
}

/// The pushes that hold slots, by the order in which they came: as many as `Places` has, 64 by
/// default, so they are counted when somebody asks.
#[derive(Debug, Default)]
pub struct PushSlots {
    slots: BTreeMap<u64, Slot>,
    next: u64,
}

/// Where slots are scarce.
#[derive(Debug, Clone, Copy)]
pub enum Scope<'a> {
    Server,
    Repository(&'a RepoId),
}

impl Scope<'_> {
    pub fn holds(self, of: &RepoId) -> bool {
        match self {
            Scope::Server => true,
            Scope::Repository(repo) => of == repo,
        }
    }

    pub fn busy(self) -> Busy {
        match self {
            Scope::Server => Busy::Server,
            Scope::Repository(_) => Busy::Repository,
        }
    }
}

/// One of the parts into which slots are divided, which is never empty.
fn part(slots: usize, divisor: usize) -> usize {
    (slots / divisor).max(1)
}

impl PushSlots {
    /// The push that has to make way so that another one may show its commands; none if there is
    /// room. Half of the slots is for those that a state backs: the others have half at most,
    /// together with those that are not judged yet.
    pub fn makes_way(
        &self,
        places: Places,
        repo: &RepoId,
        network: Option<Network>,
        is_full: impl Fn(Scope<'_>) -> bool,
        now: Instant,
    ) -> Result<Option<u64>, Busy> {
        let scopes = [
            (Scope::Repository(repo), places.per_repo),
            (Scope::Server, places.in_all),
        ];
        for (scope, slots) in scopes {
            let unbacked = self.count(|slot| scope.holds(&slot.repo) && !slot.class.has_state());
            if unbacked < part(slots, 2) && !is_full(scope) {
                continue;
            }
            let heads = |slot: &Slot| scope.holds(&slot.repo) && slot.class == Class::Unjudged;
            let victim = self.victim(heads, network, Some(now));
            // Signed states are cheap, too: whoever holds most of a full server makes way.
            let is_full = matches!(scope, Scope::Server) && is_full(scope);
            let largest = || is_full.then(|| self.victim(|_| true, network, None))?;
            return victim.or_else(largest).map(Some).ok_or(scope.busy());
        }
        Ok(None)
    }

    pub fn insert(&mut self, repo: RepoId, network: Option<Network>, now: Instant) -> u64 {
        let id = self.next;
        self.next += 1;
        let slot = Slot {
            repo,
            network,
            class: Class::Unjudged,
            since: now,
            awaited: true,
            evicted: Arc::default(),
        };
        self.slots.insert(id, slot);
        id
    }

    /// False for one that has made way.
    pub fn remove(&mut self, id: u64) -> bool {
        self.slots.remove(&id).is_some()
    }

    /// Whose slot it was. It hears of it.
    pub fn evict(&mut self, id: u64) -> Option<(RepoId, Option<Network>)> {
        let slot = self.slots.remove(&id)?;
        slot.evicted.notify_one();
        Some((slot.repo, slot.network))
    }

    /// Told when the slot is taken away.
    pub fn evicted(&self, id: u64) -> Option<Arc<Notify>> {
        self.slots.get(&id).map(|slot| Arc::clone(&slot.evicted))
    }

    /// What was waited for has come.
    pub fn received(&mut self, id: u64) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.awaited = false;
        }
    }

    /// Its commands are judged: it stays if its class has room, or if another one makes way,
    /// which is returned.
    pub fn judge(
        &mut self,
        id: u64,
        backing: Backing,
        places: Places,
    ) -> Result<Option<u64>, Busy> {
        let slot = self.slots.get(&id).ok_or(Busy::Server)?;
        let (repo, network) = (slot.repo.clone(), slot.network);
        let victim = match backing {
            Backing::State => self.check_state(&repo, network, places).map(|()| None),
            Backing::PullRequests => {
                let class = |slot: &Slot| slot.class.is_open();
                self.check_open(class, 4, &repo, network, places)
            }
            Backing::None => {
                let class = |slot: &Slot| slot.class == Class::Judged(Backing::None);
                match self.check_open(class, 8, &repo, network, places)? {
                    Some(victim) => Ok(Some(victim)),
                    None => {
                        let class = |slot: &Slot| slot.class.is_open();
                        self.check_open(class, 4, &repo, network, places)
                    }
                }
            }
        }?;
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.class = Class::Judged(backing);
            slot.awaited = true;
        }
        Ok(victim)
    }

    /// Anybody may push what a maintainer has signed: one network has an eighth of the repository
    /// for it.
    fn check_state(
        &self,
        repo: &RepoId,
        network: Option<Network>,
        places: Places,
    ) -> Result<(), Busy> {
        let limits = ShareLimits {
            in_all: u64::MAX,
            per_network: part(places.per_repo, 8) as u64,
        };
        let shares = self.shares(|slot| slot.repo == *repo && slot.class.has_state());
        let taken = shares.check(network, 1, limits);
        taken.map_err(|_| Busy::Address)
    }

    /// So many parts of the slots are for that class, in all, in a repository and of a network.
    fn check_open(
        &self,
        class: impl Fn(&Slot) -> bool,
        divisor: usize,
        repo: &RepoId,
        network: Option<Network>,
        places: Places,
    ) -> Result<Option<u64>, Busy> {
        let limits = ShareLimits {
            in_all: u64::MAX,
            per_network: part(places.per_network, divisor) as u64,
        };
        let taken = self.shares(&class).check(network, 1, limits);
        taken.map_err(|exceeded| match exceeded {
            Exceeded::InAll => Busy::Server,
            Exceeded::Network => Busy::Address,
        })?;
        let scopes = [
            (Scope::Repository(repo), places.per_repo),
            (Scope::Server, places.in_all),
        ];
        for (scope, slots) in scopes {
            let of_class = |slot: &Slot| scope.holds(&slot.repo) && class(slot);
            if self.count(of_class) < part(slots, divisor) {
                continue;
            }
            let victim = self.victim(of_class, network, None);
            return victim.map(Some).ok_or(scope.busy());
        }
        Ok(None)
    }

    pub fn count_in(&self, scope: Scope<'_>) -> usize {
        self.count(|slot| scope.holds(&slot.repo))
    }

    fn count(&self, of: impl Fn(&Slot) -> bool) -> usize {
        self.slots.values().filter(|slot| of(slot)).count()
    }

    fn shares(&self, of: impl Fn(&Slot) -> bool) -> NetworkShares {
        let mut shares = NetworkShares::default();
        for slot in self.slots.values().filter(|slot| of(slot)) {
            shares.add(slot.network, 1);
        }
        shares
    }

    /// The oldest of the network that holds most, if it holds more than the newcomer will. With
    /// `now`, also the oldest of all, if it had time enough. This machine's own never go.
    fn victim(
        &self,
        of: impl Fn(&Slot) -> bool,
        newcomer: Option<Network>,
        now: Option<Instant>,
    ) -> Option<u64> {
        let held = || {
            let slots = self.slots.iter();
            let slots = slots.filter(|(_, slot)| slot.awaited && of(slot));
            slots.filter_map(|(id, slot)| Some((*id, slot, slot.network?.widest())))
        };
        let mut shares = Shares::default();
        for (_, _, holder) in held() {
            shares.add(holder, 1);
        }
        let own = newcomer.map_or(0, |network| shares.held_by(&network.widest()));
        let (largest, most) = shares.largest()?;
        if most > own + 1 {
            let oldest = held().find(|(_, _, holder)| *holder == largest);
            return oldest.map(|(id, ..)| id);
        }
        let had_time = |slot: &Slot| now.is_some_and(|now| now - slot.since >= HEAD_PATIENCE);
        let oldest = held().find(|(_, slot, _)| had_time(slot));
        oldest.map(|(id, ..)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::{Identifier, Pubkey};

    const PLACES: Places = Places {
        in_all: 64,
        per_repo: 32,
        per_network: 16,
    };

    #[test]
    fn of_many_who_show_no_commands_the_oldest_makes_way() {
        let repo = RepoId::new(Pubkey([1; 32]), Identifier::parse("r").unwrap());
        let network = |n: u8| Some(Network::of([203, 0, 113, n].into()));
        let mut pushes = PushSlots::default();
        let start = Instant::now();
        let ask = |pushes: &PushSlots, after: Duration| {
            pushes.makes_way(PLACES, &repo, network(99), |_| false, start + after)
        };
        let ids: Vec<u64> = (0..16)
            .map(|n| {
                assert_eq!(ask(&pushes, Duration::ZERO), Ok(None), "{n}");
                pushes.insert(repo.clone(), network(n), start)
            })
            .collect();
        assert_eq!(ask(&pushes, Duration::ZERO), Err(Busy::Repository));
        assert_eq!(ask(&pushes, HEAD_PATIENCE), Ok(Some(ids[0])));
        // This one waits for us, not for its client.
        pushes.received(ids[0]);
        assert_eq!(ask(&pushes, HEAD_PATIENCE), Ok(Some(ids[1])));
    }
}
