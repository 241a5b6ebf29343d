//! The fetches that are under way, and which of them makes way when there is no slot left: readers
//! may take an hour over one answer, so neither a few networks with many of them nor many with one
//! slow one each may close a repository, or the server, to the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use grasp_core::shares::Shares;
use grasp_core::{Network, RepoId};
use tokio::sync::Notify;

use super::push_slots::Scope;

/// While slots are scarce, a client that has been waited for so long in all and was slower than this
/// makes way: the pace that is asked of other git servers, too.
const GRACE: Duration = Duration::from_secs(10);
const BYTES_PER_SECOND: u64 = 64 * 1024;

#[derive(Debug)]
struct Slot {
    repo: RepoId,
    network: Option<Network>,
    /// Bytes of the request that came and of the answer that went.
    passed: u64,
    /// How long its client has been waited for: not the time that git takes.
    waited: Duration,
    waiting_since: Option<Instant>,
    evicted: Arc<Notify>,
}

impl Slot {
    fn waited(&self, now: Instant) -> Duration {
        let current = self.waiting_since.map(|since| now - since);
        self.waited + current.unwrap_or_default()
    }

    /// Bytes per second of waiting.
    fn pace(&self, now: Instant) -> u64 {
        let millis = u64::try_from(self.waited(now).as_millis()).unwrap_or(u64::MAX);
        let bytes = self.passed.saturating_mul(1_000);
        bytes.checked_div(millis).unwrap_or(u64::MAX)
    }

    fn is_slow(&self, now: Instant) -> bool {
        self.waited(now) >= GRACE && self.pace(now) < BYTES_PER_SECOND
    }
}

/// By the order in which they came: as many as there are slots, 64 by default, so they are counted
/// when somebody asks.
#[derive(Debug, Default)]
pub struct FetchSlots {
    slots: BTreeMap<u64, Slot>,
    next: u64,
}

impl FetchSlots {
    pub fn insert(&mut self, repo: RepoId, network: Option<Network>) -> u64 {
        let id = self.next;
        self.next += 1;
        let slot = Slot {
            repo,
            network,
            passed: 0,
            waited: Duration::ZERO,
            waiting_since: None,
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

    pub fn count(&self, scope: Scope<'_>) -> usize {
        let slots = self.slots.values();
        slots.filter(|slot| scope.holds(&slot.repo)).count()
    }

    /// It waits for its client from now on, if it does not already.
    pub fn wait_for_client(&mut self, id: u64, now: Instant) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.waiting_since.get_or_insert(now);
        }
    }

    /// The client has sent or taken so much.
    pub fn client_took(&mut self, id: u64, bytes: u64, now: Instant) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.waited = slot.waited(now);
            slot.waiting_since = None;
            slot.passed += bytes;
        }
    }

    /// Who makes way for a newcomer: of the network that holds most, if it holds more than the
    /// newcomer will, the one with the slowest client; else the slowest of those who hold more than
    /// the newcomer does, if it is slow. This machine's own never go.
    pub fn victim(&self, scope: Scope<'_>, newcomer: Option<Network>, now: Instant) -> Option<u64> {
        let held = || {
            let slots = self.slots.iter();
            let slots = slots.filter(|(_, slot)| scope.holds(&slot.repo));
            slots.filter_map(|(id, slot)| Some((*id, slot, slot.network?.widest())))
        };
        let mut shares = Shares::default();
        for (_, _, holder) in held() {
            shares.add(holder, 1);
        }
        let own = newcomer.map_or(0, |network| shares.held_by(&network.widest()));
        let (largest, most) = shares.largest()?;
        let may_go = |slot: &Slot, holder: Network| match most > own + 1 {
            true => holder == largest,
            false => slot.is_slow(now) && shares.held_by(&holder) > own,
        };
        let candidates = held().filter(|(_, slot, holder)| may_go(slot, *holder));
        let slowest = candidates.min_by_key(|(_, slot, _)| slot.pace(now));
        slowest.map(|(id, ..)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::{Identifier, Pubkey};

    fn repo(n: u8) -> RepoId {
        RepoId::new(Pubkey([n; 32]), Identifier::parse("r").unwrap())
    }

    fn network(n: u8) -> Option<Network> {
        Some(Network::of([203, 0, 113, n].into()))
    }

    #[test]
    fn the_slowest_reader_of_whoever_holds_most_makes_way() {
        let start = Instant::now();
        let mut fetches = FetchSlots::default();
        let quick = fetches.insert(repo(1), network(1));
        let slow = fetches.insert(repo(1), network(1));
        let alone = fetches.insert(repo(2), network(2));
        for (id, bytes) in [(quick, 9_000), (slow, 8_000), (alone, 7_000)] {
            fetches.wait_for_client(id, start);
            fetches.client_took(id, bytes, start + Duration::from_secs(1));
        }
        let now = start + Duration::from_secs(1);
        let victim = |newcomer, scope| fetches.victim(scope, newcomer, now);
        assert_eq!(victim(network(3), Scope::Server), Some(slow));
        let other = repo(2);
        let elsewhere = Scope::Repository(&other);
        assert_eq!(victim(network(3), elsewhere), None, "one each is fair");
        assert_eq!(victim(network(1), Scope::Server), None, "its own");
    }

    #[test]
    fn a_reader_that_takes_next_to_nothing_makes_way_for_anybody() {
        let start = Instant::now();
        let mut fetches = FetchSlots::default();
        let stalled = fetches.insert(repo(1), network(1));
        // Git works on the answer, nobody waits for the reader.
        let _in_work = fetches.insert(repo(1), network(2));
        fetches.wait_for_client(stalled, start);
        let victim = |after| {
            let now = start + Duration::from_secs(after);
            fetches.victim(Scope::Server, network(3), now)
        };
        assert_eq!(victim(9), None);
        assert_eq!(victim(10), Some(stalled));
        let now = start + Duration::from_secs(60);
        let for_equal = fetches.victim(Scope::Server, network(2), now);
        assert_eq!(for_equal, None, "who has one already");
    }
}
