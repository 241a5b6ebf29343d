//! A bounded thing that connections share. A network has a share of it. When all of it is held, the
//! connection that holds most, of the network that holds most, makes way: nobody waits for somebody
//! who holds more.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use grasp_core::Network;
use grasp_core::shares::{Exceeded, NetworkShares, ShareLimits, Shares};
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use crate::eviction::{Eviction, Scarce};

#[derive(Debug)]
pub struct EvictingQuota {
    limits: ShareLimits,
    what: Scarce,
    state: Mutex<State>,
    /// For those of the network that holds most: they wait for all the others.
    full: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    shares: NetworkShares,
    groups: Shares<Option<Network>>,
    queues: FxHashMap<Option<Network>, Weak<Notify>>,
    holders: FxHashMap<u64, Holder>,
}

#[derive(Debug)]
struct Holder {
    network: Option<Network>,
    /// The widest network around it: whose connections make way for others.
    group: Option<Network>,
    held: u64,
    eviction: Eviction,
}

/// One connection's part.
#[derive(Debug)]
pub struct QuotaMember {
    quota: Arc<EvictingQuota>,
    number: u64,
    network: Option<Network>,
    group: Option<Network>,
    /// Wakes those of the same group that wait.
    queue: Arc<Notify>,
}

/// So much is held until this is dropped.
#[derive(Debug)]
#[must_use = "it is given back when it is dropped"]
pub struct QuotaPermit {
    amount: usize,
    part: Arc<QuotaMember>,
}

impl EvictingQuota {
    pub fn new(limits: ShareLimits, what: Scarce) -> Arc<Self> {
        Arc::new(Self {
            limits,
            what,
            state: Mutex::default(),
            full: Notify::new(),
        })
    }

    pub fn join(
        self: &Arc<Self>,
        network: Option<Network>,
        eviction: &Eviction,
    ) -> Arc<QuotaMember> {
        let group = network.map(Network::widest);
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let queue = state.queues.get(&group).and_then(Weak::upgrade);
        let queue = queue.unwrap_or_default();
        state.queues.insert(group, Arc::downgrade(&queue));
        let holder = Holder {
            network,
            group,
            held: 0,
            eviction: eviction.clone(),
        };
        state.holders.insert(number, holder);
        Arc::new(QuotaMember {
            quota: Arc::clone(self),
            number,
            network,
            group,
            queue,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, number: u64, amount: u64) {
        // Whoever has been evicted is not counted any more.
        if let Some(holder) = self.holders.get_mut(&number) {
            holder.held += amount;
            self.shares.add(holder.network, amount);
            self.groups.add(holder.group, amount);
        }
    }

    fn remove(&mut self, number: u64, amount: u64) {
        if let Some(holder) = self.holders.get_mut(&number) {
            holder.held -= amount;
            self.shares.give_back(holder.network, amount);
            self.groups.remove(holder.group, amount);
        }
    }

    /// The one of these that holds most.
    fn largest(&self, of: impl Fn(u64, &Holder) -> bool) -> Option<(u64, u64)> {
        let holders = self.holders.iter();
        let holders = holders.filter(|(number, holder)| holder.held > 0 && of(**number, holder));
        let largest = holders.max_by_key(|(_, holder)| holder.held);
        largest.map(|(number, holder)| (*number, holder.held))
    }

    /// What it held counts as given back.
    fn evict(&mut self, number: u64, what: Scarce) {
        let held = self.holders.get(&number).map_or(0, |holder| holder.held);
        self.remove(number, held);
        if let Some(holder) = self.holders.remove(&number) {
            holder.eviction.evict(what);
        }
    }

    /// Frees so much for one group; `false`, and nobody goes, when that would take from somebody
    /// who holds no more than it would then.
    fn evict_for(&mut self, amount: u64, quota: &EvictingQuota, group: Option<Network>) -> bool {
        let excess = self.shares.total().saturating_add(amount);
        let mut excess = excess.saturating_sub(quota.limits.in_all);
        let own = self.groups.held_by(&group).saturating_add(amount);
        let (mut groups, mut victims) = (self.groups.clone(), BTreeSet::new());
        while excess > 0 {
            let largest = groups.largest().filter(|(_, held)| *held > own);
            let victim = largest.and_then(|(largest, _)| {
                self.largest(|number, holder| holder.group == largest && !victims.contains(&number))
            });
            let (Some((largest, _)), Some((number, held))) = (largest, victim) else {
                return false;
            };
            groups.remove(largest, held);
            victims.insert(number);
            excess = excess.saturating_sub(held);
        }
        for number in victims {
            self.evict(number, quota.what);
        }
        true
    }
}

impl QuotaMember {
    /// Waits until there is so much more.
    pub async fn wait(self: &Arc<Self>, amount: usize) -> QuotaPermit {
        loop {
            // Before the look, so that what is given back after it is heard of.
            let mut own = pin!(self.queue.notified());
            own.as_mut().enable();
            match self.take(amount) {
                Ok(held) => return held,
                Err(Exceeded::Network) => {
                    // It may have been woken in place of one whose network has something left.
                    self.quota.full.notify_one();
                    own.await;
                }
                Err(Exceeded::InAll) => self.quota.full.notified().await,
            }
        }
    }

    /// Takes so much at once, or nothing.
    pub fn take(self: &Arc<Self>, amount: usize) -> Result<QuotaPermit, Exceeded> {
        let limits = self.quota.limits;
        let mut state = self.quota.state();
        match state.shares.check(self.network, amount as u64, limits) {
            Err(Exceeded::Network) => return Err(Exceeded::Network),
            Err(Exceeded::InAll) if !state.evict_for(amount as u64, &self.quota, self.group) => {
                return Err(Exceeded::InAll);
            }
            _ => state.add(self.number, amount as u64),
        }
        drop(state);
        Ok(self.held(amount))
    }

    /// Counts what is here already and waits for nobody: beyond a bound the largest makes way, also
    /// when that is this connection.
    pub fn add(self: &Arc<Self>, amount: usize) -> QuotaPermit {
        let (limits, what) = (self.quota.limits, self.quota.what);
        let mut state = self.quota.state();
        state.add(self.number, amount as u64);
        while let Err(exceeded) = state.shares.check(self.network, 0, limits) {
            let largest = state.groups.largest().and_then(|(largest, _)| largest);
            let victim = state.largest(|_, holder| match exceeded {
                Exceeded::InAll => holder.group == largest,
                Exceeded::Network => holder.network == self.network,
            });
            match victim {
                Some((number, _)) => state.evict(number, what),
                None => break,
            }
        }
        drop(state);
        self.held(amount)
    }

    fn held(self: &Arc<Self>, amount: usize) -> QuotaPermit {
        QuotaPermit {
            amount,
            part: Arc::clone(self),
        }
    }

    fn give_back(&self, amount: usize) {
        self.quota.state().remove(self.number, amount as u64);
        // All of them: prefixes of one customer wait together, and some may still be full.
        self.queue.notify_waiters();
        self.quota.full.notify_one();
    }
}

impl Drop for QuotaMember {
    fn drop(&mut self) {
        let mut state = self.quota.state();
        state.holders.remove(&self.number);
        if Arc::strong_count(&self.queue) == 1 {
            state.queues.remove(&self.group);
        }
    }
}

impl QuotaPermit {
    /// It has turned out to be so much.
    pub fn resize(&mut self, amount: usize) {
        if amount > self.amount {
            let more = self.part.add(amount - self.amount);
            self.join(more);
        } else {
            self.part.give_back(self.amount - amount);
            self.amount = amount;
        }
    }

    /// One guard for both, of the same part.
    pub fn join(&mut self, mut more: QuotaPermit) {
        debug_assert!(Arc::ptr_eq(&self.part, &more.part), "of one part");
        self.amount += std::mem::take(&mut more.amount);
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.part.give_back(self.amount);
        }
    }
}

#[cfg(test)]
mod tests;
