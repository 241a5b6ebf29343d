//! Bytes on their way to all readers, stored and live. A network has a share of them: beyond it its
//! own queries wait. When all of it is held, the reader that holds most, of the network that holds
//! most, makes way; somebody else's query never waits for a slow reader.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use grasp_core::Network;
use grasp_core::shares::{Exceeded, NetworkShares, ShareLimits, Shares};
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

pub struct Windows {
    limits: ShareLimits,
    state: Mutex<State>,
    /// For queries of the network that holds most: they wait for all the others.
    full: Notify,
}

#[derive(Default)]
struct State {
    next: u64,
    shares: NetworkShares,
    groups: Shares<Option<Network>>,
    queues: FxHashMap<Option<Network>, Weak<Notify>>,
    readers: FxHashMap<u64, Reader>,
}

struct Reader {
    network: Option<Network>,
    group: Option<Network>,
    held: u64,
    verdict: Arc<Verdict>,
}

/// Whether a reader is dropped.
#[derive(Default)]
struct Verdict {
    too_slow: AtomicBool,
    told: Notify,
}

impl Verdict {
    fn drop_reader(&self) {
        self.too_slow.store(true, Ordering::Relaxed);
        self.told.notify_one();
    }
}

/// One reader's part.
pub struct Window {
    all: Arc<Windows>,
    number: u64,
    network: Option<Network>,
    group: Option<Network>,
    /// Wakes queries of the same group.
    queue: Arc<Notify>,
    verdict: Arc<Verdict>,
}

/// So many bytes wait until this is dropped.
pub struct Held {
    bytes: usize,
    window: Arc<Window>,
}

/// The widest network around a reader: whose readers make way for others.
fn group_of(network: Option<Network>) -> Option<Network> {
    network.and_then(|network| network.levels().last().map(|(widest, _)| widest))
}

impl Windows {
    pub fn new(limits: ShareLimits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
            full: Notify::new(),
        }
    }

    pub fn join(self: &Arc<Self>, network: Option<Network>) -> Arc<Window> {
        let group = group_of(network);
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let queue = state.queues.get(&group).and_then(Weak::upgrade);
        let queue = queue.unwrap_or_default();
        state.queues.insert(group, Arc::downgrade(&queue));
        let verdict = Arc::<Verdict>::default();
        let reader = Reader {
            network,
            group,
            held: 0,
            verdict: Arc::clone(&verdict),
        };
        state.readers.insert(number, reader);
        Arc::new(Window {
            all: Arc::clone(self),
            number,
            network,
            group,
            queue,
            verdict,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, number: u64, bytes: u64) {
        // Whoever has been dropped is not counted any more.
        if let Some(reader) = self.readers.get_mut(&number) {
            reader.held += bytes;
            self.shares.add(reader.network, bytes);
            self.groups.add(reader.group, bytes);
        }
    }

    fn remove(&mut self, number: u64, bytes: u64) {
        if let Some(reader) = self.readers.get_mut(&number) {
            reader.held -= bytes;
            self.shares.give_back(reader.network, bytes);
            self.groups.remove(reader.group, bytes);
        }
    }

    /// Drops the one of these readers that holds most, and counts what it held as given back.
    fn drop_largest(&mut self, of: impl Fn(&Reader) -> bool) -> bool {
        let readers = self.readers.iter();
        let readers = readers.filter(|(_, reader)| reader.held > 0 && of(reader));
        let largest = readers.max_by_key(|(_, reader)| reader.held);
        let Some((number, held)) = largest.map(|(number, reader)| (*number, reader.held)) else {
            return false;
        };
        self.remove(number, held);
        if let Some(reader) = self.readers.remove(&number) {
            reader.verdict.drop_reader();
        }
        true
    }

    /// Makes way for so much of one group; `false` when that group itself holds most.
    fn make_way(&mut self, bytes: u64, limits: ShareLimits, group: Option<Network>) -> bool {
        while self.shares.total().saturating_add(bytes) > limits.in_all {
            match self.groups.largest() {
                Some((largest, _)) if largest != group => {
                    if !self.drop_largest(|reader| reader.group == largest) {
                        return false;
                    }
                }
                _ => return false,
            }
        }
        true
    }
}

impl Window {
    /// Waits until so much more may be on its way.
    pub async fn wait(self: &Arc<Self>, bytes: usize) -> Held {
        loop {
            // Before the look, so that what is given back after it is heard of.
            let mut own = pin!(self.queue.notified());
            own.as_mut().enable();
            match self.take(bytes) {
                Ok(held) => return held,
                Err(Exceeded::Network) => {
                    // It may have been woken in place of one whose network has something left.
                    self.all.full.notify_one();
                    own.await;
                }
                Err(Exceeded::InAll) => self.all.full.notified().await,
            }
        }
    }

    fn take(self: &Arc<Self>, bytes: usize) -> Result<Held, Exceeded> {
        let amount = bytes as u64;
        let limits = self.all.limits;
        let mut state = self.all.state();
        match state.shares.check(self.network, amount, limits) {
            Err(Exceeded::Network) => return Err(Exceeded::Network),
            Err(Exceeded::InAll) if !state.make_way(amount, limits, self.group) => {
                return Err(Exceeded::InAll);
            }
            _ => state.add(self.number, amount),
        }
        Ok(self.held(bytes))
    }

    /// Counts what is here already and waits for nobody: beyond a bound the largest makes way, also
    /// when that is this reader.
    pub fn add(self: &Arc<Self>, bytes: usize) -> Held {
        let limits = self.all.limits;
        let mut state = self.all.state();
        state.add(self.number, bytes as u64);
        while let Err(exceeded) = state.shares.check(self.network, 0, limits) {
            let largest = state.groups.largest().and_then(|(largest, _)| largest);
            let dropped = state.drop_largest(|reader| match exceeded {
                Exceeded::InAll => reader.group == largest,
                Exceeded::Network => reader.network == self.network,
            });
            if !dropped {
                break;
            }
        }
        drop(state);
        self.held(bytes)
    }

    fn held(self: &Arc<Self>, bytes: usize) -> Held {
        Held {
            bytes,
            window: Arc::clone(self),
        }
    }

    fn give_back(&self, bytes: usize) {
        self.all.state().remove(self.number, bytes as u64);
        // All of them: prefixes of one customer wait together, and some may still be full.
        self.queue.notify_waiters();
        self.all.full.notify_one();
    }

    /// The connection ends, and says why.
    pub fn drop_reader(&self) {
        self.verdict.drop_reader();
    }

    pub fn is_too_slow(&self) -> bool {
        self.verdict.too_slow.load(Ordering::Relaxed)
    }

    /// Completes when the reader has become too slow.
    pub async fn too_slow(&self) {
        while !self.is_too_slow() {
            self.verdict.told.notified().await;
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let mut state = self.all.state();
        state.readers.remove(&self.number);
        if Arc::strong_count(&self.queue) == 1 {
            state.queues.remove(&self.group);
        }
    }
}

impl Held {
    /// It has turned out to be so much.
    pub fn resize(&mut self, bytes: usize) {
        if bytes > self.bytes {
            let mut more = self.window.add(bytes - self.bytes);
            more.bytes = 0;
        } else {
            self.window.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.window.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests;
