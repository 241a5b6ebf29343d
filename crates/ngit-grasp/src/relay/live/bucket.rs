//! The filters that are filed under one value, and how many of them each reader has there.

use grasp_core::Network;
use grasp_core::limits::{FILED_PER_CONNECTION, FILED_PER_NETWORK};
use rustc_hash::{FxHashMap, FxHashSet};

use super::ConnId;

/// Up to here nobody is counted.
pub const FEW: usize = 16;

/// Whose filters they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    pub conn: ConnId,
    /// `None` is not counted.
    pub network: Option<Network>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Share {
    Connection(ConnId),
    Network(Network),
}

impl Holder {
    /// What this holder counts for, and how many filters each may have.
    fn shares(self) -> impl Iterator<Item = (Share, u32)> {
        let levels = self.network.into_iter().flat_map(Network::levels);
        let networks = levels.map(|(level, shares)| {
            let shares = u32::try_from(shares).unwrap_or(u32::MAX);
            (
                Share::Network(level),
                FILED_PER_NETWORK.saturating_mul(shares),
            )
        });
        let own = (Share::Connection(self.conn), FILED_PER_CONNECTION);
        std::iter::once(own).chain(networks)
    }
}

#[derive(Debug)]
pub enum Bucket {
    Few(Vec<u32>),
    Crowd(Box<Crowd>),
}

#[derive(Debug, Default)]
pub struct Crowd {
    filters: FxHashSet<u32>,
    held: FxHashMap<Share, u32>,
}

impl Default for Bucket {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Bucket {
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Few(filters) => filters.is_empty(),
            Self::Crowd(crowd) => crowd.filters.is_empty(),
        }
    }

    pub fn filters(&self) -> impl Iterator<Item = u32> {
        let (few, many) = match self {
            Self::Few(filters) => (filters.as_slice(), None),
            Self::Crowd(crowd) => (&[][..], Some(&crowd.filters)),
        };
        few.iter().chain(many.into_iter().flatten()).copied()
    }

    /// How much of what it may have here a holder has, in parts of [`FILED_PER_CONNECTION`].
    pub fn load(&self, holder: Holder) -> u32 {
        let Self::Crowd(crowd) = self else {
            return 0;
        };
        let part = |(share, most): (Share, u32)| {
            let held = crowd.held.get(&share).copied().unwrap_or(0);
            u64::from(held) * u64::from(FILED_PER_CONNECTION) / u64::from(most)
        };
        let largest = holder.shares().map(part).max().unwrap_or(0);
        u32::try_from(largest).unwrap_or(u32::MAX)
    }

    /// `holder_of` tells whose those are that are here already.
    pub fn insert(
        &mut self,
        filter: u32,
        holder: Holder,
        holder_of: impl Fn(u32) -> Option<Holder>,
    ) {
        match self {
            Self::Few(filters) if filters.len() < FEW => {
                if !filters.contains(&filter) {
                    filters.push(filter);
                }
            }
            Self::Few(filters) => {
                let mut crowd = Box::<Crowd>::default();
                for filter in std::mem::take(filters) {
                    if let Some(holder) = holder_of(filter) {
                        crowd.insert(filter, holder);
                    }
                }
                crowd.insert(filter, holder);
                *self = Self::Crowd(crowd);
            }
            Self::Crowd(crowd) => crowd.insert(filter, holder),
        }
    }

    pub fn remove(&mut self, filter: u32, holder: Holder) {
        match self {
            Self::Few(filters) => filters.retain(|found| *found != filter),
            Self::Crowd(crowd) => crowd.remove(filter, holder),
        }
    }
}

impl Crowd {
    fn insert(&mut self, filter: u32, holder: Holder) {
        if self.filters.insert(filter) {
            for (share, _) in holder.shares() {
                *self.held.entry(share).or_default() += 1;
            }
        }
    }

    fn remove(&mut self, filter: u32, holder: Holder) {
        if !self.filters.remove(&filter) {
            return;
        }
        for (share, _) in holder.shares() {
            if let Some(held) = self.held.get_mut(&share) {
                *held -= 1;
                if *held == 0 {
                    self.held.remove(&share);
                }
            }
        }
    }
}
