//! Who holds how much of purgatory beside the authors: a key costs nothing, so what waits is also
//! charged to the network or the relay that it came from. When there is no room left, the largest
//! holder loses what it has kept waiting longest.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::Guest;
use crate::admit::Origin;
use crate::clock::Timestamp;
use crate::id::EventId;
use crate::limits::{Limits, Load};
use crate::network::Network;
use crate::shares::Shares;
use crate::ticket::RelayNo;

/// Where a held event came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    Network(Network),
    Relay(RelayNo),
    /// Whoever brought it before the process was started.
    Restored,
}

impl Holder {
    /// `None` is not counted: this machine, the operator's file.
    pub fn of(origin: &Origin) -> Option<Self> {
        match origin {
            Origin::Client { network, .. } => network.map(Holder::Network),
            Origin::Sync(delivery) => Some(Holder::Relay(delivery.relay)),
            Origin::Import => None,
        }
    }

    /// Itself and the networks around it, each with the number of shares it may hold.
    fn levels(self) -> impl Iterator<Item = (Holder, u64)> {
        let (network, relay) = match self {
            Holder::Network(network) => (Some(network), None),
            Holder::Relay(_) | Holder::Restored => (None, Some((self, 1))),
        };
        let levels = network.into_iter().flat_map(Network::levels);
        let levels = levels.map(|(level, shares)| (Holder::Network(level), shares));
        levels.chain(relay)
    }

    /// What it may hold whoever else is there. A relay brings everybody's events and has no bound
    /// of its own, nor has what was here before; they are the first to lose some.
    fn limit(self, limits: &Limits) -> Option<Load> {
        match self {
            Holder::Network(_) => Some(limits.held_of_network()),
            Holder::Relay(_) | Holder::Restored => None,
        }
    }
}

/// One event that is held.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    pub guest: Guest,
    pub until: Timestamp,
    pub id: EventId,
}

#[derive(Debug, Default)]
pub struct Holders {
    loads: FxHashMap<Holder, Load>,
    /// Costs, divided by the shares of a prefix, so that a /48 is compared with an address.
    costs: Shares<Holder>,
    /// Of each guest those first that have waited longest.
    ids: BTreeSet<(Holder, Guest, Timestamp, EventId)>,
}

impl Holders {
    pub fn add(&mut self, holder: Holder, waits: Waits, bytes: usize) {
        let Waits { guest, until, id } = waits;
        for (level, shares) in holder.levels() {
            self.loads.entry(level).or_default().add(bytes);
            self.costs.add(level, cost(bytes) / shares);
            self.ids.insert((level, guest, until, id));
        }
    }

    pub fn remove(&mut self, holder: Holder, waits: Waits, bytes: usize) {
        let Waits { guest, until, id } = waits;
        for (level, shares) in holder.levels() {
            if let Some(load) = self.loads.get_mut(&level) {
                load.remove(bytes);
                if load.events == 0 {
                    self.loads.remove(&level);
                }
            }
            self.costs.remove(level, cost(bytes) / shares);
            self.ids.remove(&(level, guest, until, id));
        }
    }

    /// Whether one more event is within what the holder may have.
    pub fn fits(&self, holder: Holder, bytes: usize, limits: &Limits) -> bool {
        holder.levels().all(|(level, shares)| {
            let load = self.loads.get(&level).copied().unwrap_or_default();
            let limit = level.limit(limits);
            limit.is_none_or(|limit| load.with(bytes).fits(limit.times(shares)))
        })
    }

    /// A guest's events of those who have more than this one would have with so many bytes more: of
    /// the largest holder first, and of each the oldest first. What was here before the start comes
    /// last, however little it is: whose it was is not known, and it may be the largest's.
    pub fn larger_than(
        &self,
        holder: Option<Holder>,
        bytes: usize,
        guest: Guest,
    ) -> impl Iterator<Item = EventId> {
        let levels = holder.into_iter().flat_map(Holder::levels);
        let own = levels.map(|(level, shares)| self.costs.held_by(&level) + cost(bytes) / shares);
        let own = own.max().unwrap_or(0);
        let larger = self.costs.descending();
        let larger = larger.take_while(move |(_, held)| *held > own);
        let restored = (Holder::Restored, self.costs.held_by(&Holder::Restored));
        let restored = Some(restored).filter(|(_, held)| *held <= own);
        let larger = larger.chain(restored);
        larger.flat_map(move |(larger, _)| {
            let first = (larger, guest, Timestamp(0), EventId([0; 32]));
            let ids = self.ids.range(first..);
            ids.take_while(move |(holder, of, _, _)| (*holder, *of) == (larger, guest))
                .map(|(.., id)| *id)
        })
    }
}

/// An event takes its bytes and one of so many places: both count the same in all.
fn cost(bytes: usize) -> u64 {
    const PLACE: u64 = 64 * 1024 * 1024 / 20_000;
    bytes as u64 + PLACE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(ip: &str) -> Holder {
        Holder::Network(Network::of(ip.parse().unwrap()))
    }

    fn id(n: u8) -> EventId {
        EventId([n; 32])
    }

    fn waits(n: u8, until: u64) -> Waits {
        Waits {
            guest: Guest::Anybody,
            until: Timestamp(until),
            id: id(n),
        }
    }

    fn evicted(holders: &Holders, newcomer: Option<Holder>) -> Vec<EventId> {
        holders.larger_than(newcomer, 100, Guest::Anybody).collect()
    }

    #[test]
    fn the_largest_holder_loses_its_oldest_event_and_nobody_to_an_equal() {
        let (one, other) = (network("192.0.2.1"), network("192.0.2.2"));
        let mut holders = Holders::default();
        for (n, until) in [(1, 50), (2, 40), (3, 60)] {
            holders.add(one, waits(n, until), 100);
        }
        holders.add(other, waits(9, 1), 100);
        assert_eq!(evicted(&holders, Some(other)), [id(2), id(1), id(3)]);
        assert_eq!(evicted(&holders, Some(one)), []);
        assert_eq!(evicted(&holders, None), [id(2), id(1), id(3), id(9)]);
        holders.remove(one, waits(2, 40), 100);
        assert_eq!(evicted(&holders, Some(other)), [], "it would have as much");
    }

    #[test]
    fn what_nobody_is_known_to_have_brought_makes_way_for_anybody() {
        let mut holders = Holders::default();
        holders.add(network("192.0.2.1"), waits(1, 50), 100);
        holders.add(Holder::Restored, waits(2, 50), 100);
        let newcomer = Some(network("192.0.2.2"));
        assert_eq!(evicted(&holders, newcomer), [id(2)]);
    }

    #[test]
    fn a_customer_with_many_prefixes_is_one_holder() {
        let mut holders = Holders::default();
        for n in 1..=12 {
            let holder = network(&format!("2001:db8:0:{n}00::1"));
            holders.add(holder, waits(n, n.into()), 100);
        }
        let two = network("192.0.2.1");
        holders.add(two, waits(50, 0), 100);
        holders.add(two, waits(51, 0), 100);
        let newcomer = Some(network("192.0.2.9"));
        assert_eq!(evicted(&holders, newcomer).len(), 12 + 2);
        assert_eq!(evicted(&holders, newcomer).first(), Some(&id(1)));
    }

    #[test]
    fn a_network_has_a_share_and_a_relay_what_is_free() {
        let limits = Limits {
            held_events: 32,
            ..Limits::default()
        };
        let (one, relay) = (network("192.0.2.1"), Holder::Relay(RelayNo(1)));
        let mut holders = Holders::default();
        for n in 0..2 {
            for holder in [one, relay] {
                assert!(holders.fits(holder, 100, &limits));
                holders.add(holder, waits(n, 1), 100);
            }
        }
        assert!(!holders.fits(one, 100, &limits));
        assert!(holders.fits(relay, 100, &limits));
        assert!(holders.fits(network("192.0.2.2"), 100, &limits));
        assert!(!holders.fits(network("192.0.2.2"), 5 * 1024 * 1024, &limits));
    }
}
