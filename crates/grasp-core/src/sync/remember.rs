//! What is written down from time to time, and how it is taken up after a restart: the difference
//! is fetched then, not the history.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::batch::{Doubt, Via};
use super::gather::News;
use super::items::Items;
use super::link::{Link, Why};
use super::memory::{Dismissed, RelayMemory};
use super::peer::Peer;
use super::{Phase, Sync, SyncEffect, Timer};
use crate::clock::Now;
use crate::facts::Seq;
use crate::id::EventId;
use crate::nip34::RepoId;
use crate::ticket::RelayNo;

/// What is known of relays is written down this often.
const SAVE: Duration = Duration::from_secs(60);

/// What a start is told, until it is complete.
#[derive(Debug, Default)]
pub struct Restored {
    repos: FxHashMap<RepoId, Seq>,
    roots: FxHashMap<EventId, Seq>,
    relays: Vec<Arc<RelayMemory>>,
}

impl Sync {
    /// What was stored before the start, in its place in the order of commits.
    pub fn restore(&mut self, news: News, seq: Seq) {
        if !self.limits.enabled {
            return;
        }
        match &news {
            News::Announced { repo, .. } => {
                self.restored.repos.insert(repo.clone(), seq);
            }
            News::Root { id, .. } => {
                self.restored.roots.insert(*id, seq);
            }
            News::Gone(_) => {}
        }
        self.stored(seq);
        self.apply(news);
    }

    pub fn restore_relay(&mut self, memory: Arc<RelayMemory>) {
        if self.limits.enabled {
            self.restored.relays.push(memory);
        }
    }

    pub fn restore_dismissed(&mut self, row: Dismissed) {
        if self.limits.enabled {
            for gone in self.memo.dismiss(row, None) {
                self.effects.push_back(SyncEffect::Recall(gone));
            }
        }
    }

    /// The start is complete: what was known of relays is put in its place. Those that nobody
    /// names any more are forgotten.
    pub(super) fn recollect(&mut self, now: Now) {
        let restored = std::mem::take(&mut self.restored);
        for memory in &restored.relays {
            match self.targets.relays.find(&memory.url) {
                Some(relay) => self.recollect_one(relay, memory, &restored, now),
                None => {
                    let url = memory.url.clone();
                    self.effects.push_back(SyncEffect::Forget(url));
                }
            }
        }
        let all: Vec<RelayNo> = self.targets.relays.iter().map(|(no, _)| no).collect();
        let delay = self.limits.startup_delay;
        for relay in all {
            let limits = &self.limits;
            let new = || Peer::new(limits, now.unix);
            let peer = self.peers.entry(relay).or_insert_with(new);
            if let Link::Down { retry, .. } = &mut peer.link
                && retry.is_none()
                && !delay.is_zero()
            {
                *retry = Some(now.mono + delay);
            }
            self.look_at(relay, now);
        }
    }

    fn recollect_one(
        &mut self,
        relay: RelayNo,
        memory: &RelayMemory,
        restored: &Restored,
        now: Now,
    ) {
        let limits = &self.limits;
        let peer = self
            .peers
            .entry(relay)
            .or_insert_with(|| Peer::new(limits, now.unix));
        peer.health = memory.health;
        peer.capabilities = memory.capabilities.clone();
        peer.settled = memory.settled;
        peer.next_full = memory.next_full;
        peer.record = memory.record;
        peer.restored = true;
        let wait = memory.health.wait(now.unix).min(limits.dead_retry);
        if !wait.is_zero() {
            peer.link = Link::Down {
                retry: Some(now.mono + wait),
                why: Why::Failing,
            };
        }
        let (Some(covered), Some(settled)) = (memory.covered, memory.settled) else {
            return;
        };
        let items = self.settled_items(relay, settled, restored);
        let Some(known) = self.targets.relays.get_mut(relay) else {
            return;
        };
        known.restore(&items);
        let items = known.doubt(&items);
        self.known.add(&items);
        let covered = covered.min(now.unix);
        if let Some(peer) = self.peers.get_mut(&relay) {
            peer.doubts.add(Doubt {
                items,
                since: Some(covered.saturating_sub(self.limits.overlap)),
                via: Via::CatchUp,
            });
        }
    }

    /// What was wanted of the relay and stored when it had settled.
    fn settled_items(&self, relay: RelayNo, settled: Seq, restored: &Restored) -> Items {
        let mut items = Items::announcements();
        let Some(known) = self.targets.relays.get(relay) else {
            return items;
        };
        for (ix, needs) in self.targets.repos.iter() {
            let here = known.target.repos.contains(ix.0);
            let seq = restored.repos.get(&needs.repo);
            if !here || seq.is_none_or(|seq| *seq > settled) {
                continue;
            }
            items.repos.insert(ix.0);
            for root in &needs.roots {
                let id = self.targets.repos.root(super::RootIx(root));
                let seq = id.and_then(|id| restored.roots.get(id));
                if seq.is_some_and(|seq| *seq <= settled) {
                    items.roots.insert(root);
                }
            }
        }
        items
    }

    pub(super) fn remind_to_save(&mut self, now: Now) {
        let timer = Timer::Save;
        if !self.agenda.has(timer) && self.peers.values().any(|peer| peer.dirty) {
            self.agenda.add(now.mono + SAVE, timer);
        }
    }

    pub(super) fn save(&mut self, now: Now) {
        let dirty = self.peers.iter().filter(|(_, peer)| {
            // What is covered moves on with every word.
            peer.dirty || peer.link.is_up()
        });
        let dirty: Vec<RelayNo> = dirty.map(|(relay, _)| *relay).collect();
        let oldest = self.oldest_arrivals();
        for relay in dirty {
            let oldest = oldest.get(&relay).copied();
            let Some(known) = self.targets.relays.get(relay) else {
                continue;
            };
            let Some(peer) = self.peers.get_mut(&relay) else {
                continue;
            };
            peer.dirty = false;
            let memory = peer.memory(&known.url, oldest, now, &self.limits);
            self.effects
                .push_back(SyncEffect::Remember(Arc::new(memory)));
        }
        if self.peers.values().any(|peer| peer.link.is_up()) && self.phase != Phase::Stopping {
            self.agenda.add(now.mono + SAVE, Timer::Save);
        }
    }

    /// A relay is left: what is known of it is of no use.
    pub(super) fn write_off(&mut self, relay: RelayNo) {
        if let Some(known) = self.targets.relays.get(relay) {
            let url = known.url.clone();
            self.effects.push_back(SyncEffect::Forget(url));
        }
    }
}
