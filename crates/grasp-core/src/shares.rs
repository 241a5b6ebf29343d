//! Who holds how much of a bounded thing, so that no single holder has all of it: per key, or per
//! network with the networks around it.

use std::collections::BTreeSet;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::network::Network;

/// What each holder has. The largest is found at once.
#[derive(Debug, Clone)]
pub struct Shares<K> {
    held: FxHashMap<K, u64>,
    by_amount: BTreeSet<(u64, K)>,
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self {
            held: FxHashMap::default(),
            by_amount: BTreeSet::new(),
        }
    }
}

impl<K: Copy + Ord + Hash> Shares<K> {
    pub fn held_by(&self, holder: &K) -> u64 {
        self.held.get(holder).copied().unwrap_or(0)
    }

    /// Whoever holds most; of equals the last in order.
    pub fn largest(&self) -> Option<(K, u64)> {
        self.by_amount
            .last()
            .map(|(amount, holder)| (*holder, *amount))
    }

    /// The largest first.
    pub fn descending(&self) -> impl Iterator<Item = (K, u64)> {
        let held = self.by_amount.iter().rev();
        held.map(|(amount, holder)| (*holder, *amount))
    }

    pub fn holders(&self) -> usize {
        self.held.len()
    }

    pub fn add(&mut self, holder: K, amount: u64) {
        let before = self.held_by(&holder);
        self.set(holder, before, before.saturating_add(amount));
    }

    pub fn remove(&mut self, holder: K, amount: u64) {
        let before = self.held_by(&holder);
        debug_assert!(before >= amount, "more is given back than was taken");
        self.set(holder, before, before.saturating_sub(amount));
    }

    fn set(&mut self, holder: K, before: u64, after: u64) {
        self.by_amount.remove(&(before, holder));
        if after == 0 {
            self.held.remove(&holder);
        } else {
            self.held.insert(holder, after);
            self.by_amount.insert((after, holder));
        }
    }
}

/// How much there is, and how much one network may hold of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareLimits {
    pub in_all: u64,
    pub per_network: u64,
}

impl ShareLimits {
    /// What a wider network may hold, which has so many shares: half of all at most, unless a
    /// narrow one may have more.
    pub fn of_shares(self, shares: u64) -> u64 {
        let half = (self.in_all / 2).max(self.per_network);
        self.per_network.saturating_mul(shares).min(half)
    }
}

/// Why there is nothing to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exceeded {
    InAll,
    Network,
}

/// A bounded thing that networks share. Holders without a network (this machine, a trusted
/// proxy's own requests) count in all only.
#[derive(Debug, Clone, Default)]
pub struct NetworkShares {
    total: u64,
    networks: Shares<Network>,
}

impl NetworkShares {
    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn held_by(&self, network: Network) -> u64 {
        self.networks.held_by(&network)
    }

    /// Whether so much more is within the bounds.
    pub fn check(
        &self,
        network: Option<Network>,
        amount: u64,
        limits: ShareLimits,
    ) -> Result<(), Exceeded> {
        let exceeds = |(level, shares): (Network, u64)| {
            let held = self.networks.held_by(&level).saturating_add(amount);
            held > limits.of_shares(shares)
        };
        if network.is_some_and(|network| network.levels().any(exceeds)) {
            return Err(Exceeded::Network);
        }
        match self.total.saturating_add(amount) > limits.in_all {
            true => Err(Exceeded::InAll),
            false => Ok(()),
        }
    }

    /// Takes so much, or nothing.
    pub fn take(
        &mut self,
        network: Option<Network>,
        amount: u64,
        limits: ShareLimits,
    ) -> Result<(), Exceeded> {
        self.check(network, amount, limits)?;
        self.add(network, amount);
        Ok(())
    }

    /// Counts what is held whatever the bounds say.
    pub fn add(&mut self, network: Option<Network>, amount: u64) {
        self.total = self.total.saturating_add(amount);
        for (level, _) in network.into_iter().flat_map(Network::levels) {
            self.networks.add(level, amount);
        }
    }

    pub fn give_back(&mut self, network: Option<Network>, amount: u64) {
        self.total = self.total.saturating_sub(amount);
        for (level, _) in network.into_iter().flat_map(Network::levels) {
            self.networks.remove(level, amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ShareLimits = ShareLimits {
        in_all: 20,
        per_network: 4,
    };

    fn network(ip: &str) -> Option<Network> {
        Some(Network::of(ip.parse().unwrap()))
    }

    #[test]
    fn a_network_has_its_share_and_no_more() {
        let mut shares = NetworkShares::default();
        assert_eq!(shares.take(network("192.0.2.1"), 4, LIMITS), Ok(()));
        let more = shares.take(network("192.0.2.1"), 1, LIMITS);
        assert_eq!(more, Err(Exceeded::Network));
        assert_eq!(shares.take(network("192.0.2.2"), 4, LIMITS), Ok(()));
        shares.give_back(network("192.0.2.1"), 4);
        assert_eq!(shares.take(network("192.0.2.1"), 4, LIMITS), Ok(()));
        assert_eq!(shares.take(None, 12, LIMITS), Ok(()));
        let beyond = shares.take(network("192.0.2.3"), 1, LIMITS);
        assert_eq!(beyond, Err(Exceeded::InAll));
    }

    #[test]
    fn many_prefixes_of_one_customer_have_few_shares() {
        let mut shares = NetworkShares::default();
        let limits = ShareLimits {
            in_all: 100,
            ..LIMITS
        };
        let taken = |shares: &mut NetworkShares, prefixes: &[&str]| {
            let mut taken = 0;
            for prefix in prefixes {
                while shares.take(network(prefix), 1, limits).is_ok() {
                    taken += 1;
                }
            }
            taken
        };
        // Three /64 of one /56 have two shares, and all of a /48 four.
        let of_one_56 = ["2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:2::1"];
        assert_eq!(taken(&mut shares, &of_one_56), 8);
        let of_the_48 = [
            "2001:db8:0:100::1",
            "2001:db8:0:200::1",
            "2001:db8:0:300::1",
        ];
        assert_eq!(taken(&mut shares, &of_the_48), 8);
        assert_eq!(taken(&mut shares, &["2001:db8:1::1"]), 4, "somebody else");
    }

    #[test]
    fn all_prefixes_of_one_customer_leave_half_to_others() {
        let limits = ShareLimits {
            in_all: 8,
            per_network: 2,
        };
        let mut shares = NetworkShares::default();
        let mut take = |n: u32| shares.take(network(&format!("2001:db8:0:{n:x}00::1")), 1, limits);
        let taken = (0..16).filter(|n| take(*n).is_ok()).count();
        assert_eq!(taken, 4);
    }

    #[test]
    fn the_largest_holder_is_known() {
        let mut shares = Shares::default();
        shares.add('a', 5);
        shares.add('b', 7);
        assert_eq!(shares.largest(), Some(('b', 7)));
        shares.remove('b', 3);
        assert_eq!(shares.largest(), Some(('a', 5)));
        shares.remove('a', 5);
        shares.remove('b', 4);
        assert_eq!((shares.largest(), shares.holders()), (None, 0));
    }
}
