//! Who may connect: a number in all and a number per network. When all are taken, the newest
//! connection of the network that has most makes way for somebody who has fewer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use grasp_core::Network;
use grasp_core::shares::{Exceeded, NetworkShares, ShareLimits, Shares};

use crate::eviction::{Eviction, Scarce};

pub(super) struct Gate {
    limits: ShareLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    shares: NetworkShares,
    groups: Shares<Network>,
    /// By the order in which they came.
    connections: BTreeMap<u64, Open>,
    next: u64,
}

struct Open {
    network: Option<Network>,
    eviction: Eviction,
}

/// One connection's place, given back when dropped.
pub(crate) struct Slot {
    gate: Arc<Gate>,
    number: u64,
    eviction: Eviction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    InAll,
    PerNetwork,
}

impl Gate {
    pub(super) fn new(in_all: usize, per_network: usize) -> Arc<Self> {
        Arc::new(Self {
            limits: ShareLimits {
                in_all: in_all as u64,
                per_network: per_network as u64,
            },
            state: Mutex::default(),
        })
    }

    /// A place for a connection; without a network it counts in all only.
    pub(super) fn enter(self: &Arc<Self>, network: Option<Network>) -> Result<Slot, Full> {
        let mut state = self.state();
        match state.shares.check(network, 1, self.limits) {
            Ok(()) => {}
            Err(Exceeded::Network) => return Err(Full::PerNetwork),
            Err(Exceeded::InAll) => state.evict_for(network).ok_or(Full::InAll)?,
        }
        let number = state.next;
        state.next += 1;
        let eviction = Eviction::default();
        state.count(network);
        let open = Open {
            network,
            eviction: eviction.clone(),
        };
        state.connections.insert(number, open);
        drop(state);
        Ok(Slot {
            gate: Arc::clone(self),
            number,
            eviction,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, network: Option<Network>) {
        self.shares.add(network, 1);
        if let Some(network) = network {
            self.groups.add(network.widest(), 1);
        }
    }

    /// Nothing for one that has made way.
    fn remove(&mut self, number: u64) -> Option<Open> {
        let open = self.connections.remove(&number)?;
        self.shares.give_back(open.network, 1);
        if let Some(network) = open.network {
            self.groups.remove(network.widest(), 1);
        }
        Some(open)
    }

    /// Somebody who has more than the newcomer will makes way for it.
    fn evict_for(&mut self, newcomer: Option<Network>) -> Option<()> {
        let own = newcomer.map_or(0, |network| self.groups.held_by(&network.widest()));
        let (largest, held) = self.groups.largest()?;
        if held <= own + 1 {
            return None;
        }
        let of_largest = |open: &Open| open.network.is_some_and(|is| is.widest() == largest);
        let mut newest_first = self.connections.iter().rev();
        let (number, _) = newest_first.find(|(_, open)| of_largest(open))?;
        let open = self.remove(*number)?;
        open.eviction.evict(Scarce::Connections);
        Some(())
    }
}

impl Slot {
    /// Says when the connection has to make way.
    pub(super) fn eviction(&self) -> &Eviction {
        &self.eviction
    }

    /// Behind a proxy it is known late whose it is.
    pub(super) fn count_for(&self, network: Network) -> Result<(), Full> {
        let mut state = self.gate.state();
        // Made way meanwhile, it has nothing to count.
        let open = state.remove(self.number).ok_or(Full::InAll)?;
        let checked = state.shares.check(Some(network), 1, self.gate.limits);
        let network = match checked {
            Ok(()) => Some(network),
            Err(_) => open.network,
        };
        state.count(network);
        let open = Open { network, ..open };
        state.connections.insert(self.number, open);
        checked.map_err(|exceeded| match exceeded {
            Exceeded::InAll => Full::InAll,
            Exceeded::Network => Full::PerNetwork,
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.gate.state().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(ip: &str) -> Option<Network> {
        Some(Network::of(ip.parse().unwrap()))
    }

    #[test]
    fn places_are_counted_and_given_back() {
        let gate = Gate::new(3, 2);
        let (a, b) = (network("192.0.2.1"), network("192.0.2.2"));
        let first = gate.enter(a).unwrap();
        let _second = gate.enter(a).unwrap();
        assert_eq!(gate.enter(a).err(), Some(Full::PerNetwork));
        let behind_a_proxy = gate.enter(None).unwrap();
        let counted = behind_a_proxy.count_for(a.unwrap());
        assert_eq!(counted, Err(Full::PerNetwork));
        assert_eq!(behind_a_proxy.count_for(b.unwrap()), Ok(()));
        drop(first);
        assert!(gate.enter(a).is_ok());
        drop((_second, behind_a_proxy));
        assert_eq!(gate.state().shares.total(), 0);
    }

    #[test]
    fn the_newest_of_the_network_with_most_makes_way_for_somebody_who_has_fewer() {
        let gate = Gate::new(6, 4);
        let (a, b, c) = (
            network("192.0.2.1"),
            network("192.0.2.2"),
            network("192.0.2.3"),
        );
        let of_a: Vec<Slot> = (0..4).map(|_| gate.enter(a).unwrap()).collect();
        let of_b: Vec<Slot> = (0..2).map(|_| gate.enter(b).unwrap()).collect();
        let of_c: Vec<Slot> = (0..2).map(|_| gate.enter(c).unwrap()).collect();
        let made_way = |slots: &[Slot]| -> Vec<bool> {
            let evictions = slots.iter().map(|slot| slot.eviction().is_evicted());
            evictions.collect()
        };
        assert_eq!(made_way(&of_a), [false, false, true, true]);
        assert_eq!(gate.enter(c).err(), Some(Full::InAll), "two each is fair");
        assert_eq!(made_way(&of_b), [false; 2]);
        assert_eq!(made_way(&of_c), [false; 2]);
        drop((of_a, of_b, of_c));
        assert_eq!(gate.state().shares.total(), 0);
    }

    #[test]
    fn one_customer_with_many_prefixes_does_not_fill_the_server() {
        let gate = Gate::new(1_000, 2);
        let of_one_customer = (0..100).map(|n| format!("2001:db8:0:{n:x}00::1"));
        let open: Vec<Slot> = of_one_customer
            .filter_map(|ip| gate.enter(network(&ip)).ok())
            .collect();
        assert_eq!(open.len(), 8, "four shares of two connections");
        assert!(gate.enter(network("2001:db8:1::1")).is_ok());
    }
}
