//! A bounded thing that is held for moments only. Each network and each other relay has a share of
//! it, so that none holds all; whoever waits for more, waits for its own share first.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use grasp_core::shares::{Exceeded, ShareLimits};
use grasp_core::{Network, RelayNo};
use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Holders that are gone are forgotten when there are so many.
const MAX_HOLDERS: usize = 8_192;

/// To whom it is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holder {
    Network(Network),
    Relay(RelayNo),
}

impl Holder {
    fn levels(self) -> impl Iterator<Item = (Holder, u64)> {
        let (network, relay) = match self {
            Self::Network(network) => (Some(network), None),
            Self::Relay(_) => (None, Some((self, 1))),
        };
        let levels = network.into_iter().flat_map(Network::levels);
        let levels = levels.map(|(level, shares)| (Self::Network(level), shares));
        levels.chain(relay)
    }
}

impl From<Network> for Holder {
    fn from(network: Network) -> Self {
        Self::Network(network)
    }
}

#[derive(Debug)]
pub struct Quota {
    limits: ShareLimits,
    in_all: Arc<Semaphore>,
    holders: Mutex<FxHashMap<Holder, Weak<Semaphore>>>,
}

/// What one holder draws on. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Account {
    /// From the narrowest bound to the one in all.
    levels: Arc<[Arc<Semaphore>]>,
    most: u32,
}

/// So much is held until this is dropped.
#[derive(Debug)]
#[must_use = "it is given back when it is dropped"]
pub struct Permit {
    parts: Vec<OwnedSemaphorePermit>,
}

impl Quota {
    pub fn new(limits: ShareLimits) -> Self {
        Self {
            limits,
            in_all: Arc::new(Semaphore::new(permits(limits.in_all))),
            holders: Mutex::default(),
        }
    }

    /// `None` counts in all only.
    pub fn account(&self, holder: Option<Holder>) -> Account {
        let holders = self.holders.lock();
        let mut holders = holders.unwrap_or_else(PoisonError::into_inner);
        if holders.len() > MAX_HOLDERS {
            holders.retain(|_, share| share.strong_count() > 0);
        }
        let levels = holder.into_iter().flat_map(Holder::levels);
        let shares = levels.map(|(level, shares)| {
            let known = holders.get(&level).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let most = permits(self.limits.of_shares(shares));
                let share = Arc::new(Semaphore::new(most));
                holders.insert(level, Arc::downgrade(&share));
                share
            })
        });
        let in_all = std::iter::once(Arc::clone(&self.in_all));
        let most = match holder {
            Some(_) => self.limits.per_network.min(self.limits.in_all),
            None => self.limits.in_all,
        };
        Account {
            levels: shares.chain(in_all).collect(),
            most: u32::try_from(most).unwrap_or(u32::MAX),
        }
    }
}

impl Account {
    /// Takes so much at once, or nothing.
    pub fn take(&self, amount: usize) -> Result<Permit, Exceeded> {
        let mut parts = Vec::with_capacity(self.levels.len());
        for (n, level) in self.levels.iter().enumerate() {
            let exceeded = match n + 1 == self.levels.len() {
                true => Exceeded::InAll,
                false => Exceeded::Network,
            };
            let amount = u32::try_from(amount).map_err(|_| exceeded)?;
            let taken = Arc::clone(level).try_acquire_many_owned(amount);
            parts.push(taken.map_err(|_| exceeded)?);
        }
        Ok(Permit { parts })
    }

    /// Waits until there is so much. What is more than the holder may ever have counts as all that
    /// it may have.
    pub async fn wait(&self, amount: usize) -> Permit {
        let amount = u32::try_from(self.at_most(amount)).unwrap_or(self.most);
        let mut parts = Vec::with_capacity(self.levels.len());
        for level in &*self.levels {
            // These semaphores are never closed.
            parts.extend(Arc::clone(level).acquire_many_owned(amount).await.ok());
        }
        Permit { parts }
    }

    pub fn at_most(&self, amount: usize) -> usize {
        amount.min(self.most as usize)
    }
}

impl Permit {
    /// Gives back all but so much.
    pub fn shrink_to(&mut self, amount: usize) {
        for part in &mut self.parts {
            let surplus = part.num_permits().saturating_sub(amount);
            drop(part.split(surplus));
        }
    }
}

fn permits(most: u64) -> usize {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    most.clamp(1, Semaphore::MAX_PERMITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ShareLimits = ShareLimits {
        in_all: 10,
        per_network: 4,
    };

    fn account(quota: &Quota, ip: &str) -> Account {
        quota.account(Some(Network::of(ip.parse().unwrap()).into()))
    }

    #[test]
    fn a_network_has_its_share_and_no_more() {
        let quota = Quota::new(LIMITS);
        let one = account(&quota, "192.0.2.1");
        let mut held = vec![one.take(3).unwrap()];
        assert_eq!(one.take(2).unwrap_err(), Exceeded::Network);
        held.push(account(&quota, "192.0.2.1").take(1).unwrap());
        assert_eq!(one.take(1).unwrap_err(), Exceeded::Network);
        let other = account(&quota, "192.0.2.2").take(4);
        let relay = quota.account(Some(Holder::Relay(RelayNo(1)))).take(2);
        assert!(other.is_ok() && relay.is_ok());
        let last = account(&quota, "192.0.2.3").take(1);
        assert_eq!(last.unwrap_err(), Exceeded::InAll);
        drop(held);
        assert!(one.take(4).is_ok() && quota.account(None).take(4).is_ok());
    }

    #[test]
    fn what_is_not_needed_is_given_back_to_everybody() {
        let quota = Quota::new(LIMITS);
        let one = account(&quota, "192.0.2.1");
        let mut held = one.take(4).unwrap();
        held.shrink_to(1);
        held.shrink_to(3);
        let others = [one.take(3), account(&quota, "192.0.2.2").take(4)];
        assert!(others.iter().all(Result::is_ok));
        assert!(quota.account(None).take(2).is_ok());
    }

    #[test]
    fn many_prefixes_of_one_customer_have_few_shares() {
        let quota = Quota::new(ShareLimits {
            in_all: 100,
            ..LIMITS
        });
        let take = |n: u32| account(&quota, &format!("2001:db8:0:{n:x}::1")).take(4);
        let taken: Vec<_> = (0..9).map(take).collect();
        assert_eq!(taken.iter().filter(|taken| taken.is_ok()).count(), 2);
    }

    #[tokio::test]
    async fn whoever_waits_for_its_own_share_keeps_nobody_waiting() {
        let quota = Quota::new(LIMITS);
        let one = account(&quota, "192.0.2.1");
        let held = one.wait(100).await;
        let waiting = tokio::spawn({
            let one = one.clone();
            async move { one.wait(1).await }
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        assert!(account(&quota, "192.0.2.2").take(4).is_ok());
        drop(held);
        drop(waiting.await.unwrap());
    }
}
