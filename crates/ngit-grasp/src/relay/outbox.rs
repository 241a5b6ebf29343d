//! What waits to be written to one connection. Three kinds of traffic, each with its own bound:
//! answers by the events in flight, query results by a window that the query waits for, and
//! live events by bytes, beyond which the reader is too slow and is dropped. Those of the last two
//! kinds have a bound over all connections, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::ws::Utf8Bytes;
use grasp_core::{Event, Limits, Network, Seq};
use grasp_store::Completeness;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::negentropy::Opened;
use crate::evicting_quota::{EvictingQuota, QuotaMember, QuotaPermit};
use crate::eviction::{Eviction, Scarce};

/// Names one subscription or session of one connection, also after its id was used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubKey(pub u64);

pub enum Out {
    Text(Utf8Bytes),
    /// The OK of an event that was in flight.
    Answer(Utf8Bytes),
    /// Stored events of a query.
    Stored {
        sub: SubKey,
        frames: Vec<Utf8Bytes>,
        window: Reserved,
    },
    /// The query of a subscription ended; it saw everything below `bound`.
    QueryDone {
        sub: SubKey,
        result: Result<(Seq, Completeness), String>,
    },
    Live(LiveEvent),
    NegOpened {
        session: SubKey,
        result: Result<Opened, String>,
    },
    NegReply {
        session: SubKey,
        result: Result<Vec<u8>, String>,
    },
}

pub struct LiveEvent {
    pub sub: SubKey,
    pub event: Arc<Event>,
    /// `None`: not stored, so no query can have sent it.
    pub seq: Option<Seq>,
    /// Until it is written.
    pub held: Option<QuotaPermit>,
}

impl LiveEvent {
    /// Counted as if the event were not shared with other readers.
    pub fn bytes(&self) -> usize {
        self.event.json().len() + 128
    }
}

/// A part of the window, taken before a slice is read, so that nobody reads what cannot be sent.
pub struct Reserved {
    own: OwnedSemaphorePermit,
    held: QuotaPermit,
}

impl Reserved {
    /// Of all readers' windows, for what is being written.
    pub fn into_held(self) -> (OwnedSemaphorePermit, QuotaPermit) {
        (self.own, self.held)
    }
}

/// What a slice is expected to bring at most: the largest event. What it brings beyond is counted
/// when it is there, and keeps the next one waiting.
const SLICE_BYTES: usize = 256 * 1024;

/// The reader does not keep up.
#[derive(Debug)]
pub struct TooSlow;

#[derive(Clone)]
pub struct Outbox {
    queue: mpsc::UnboundedSender<Out>,
    window: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    shared: Arc<Shared>,
    /// Of what is on its way to all readers.
    part: Arc<QuotaMember>,
    eviction: Eviction,
    network: Option<Network>,
}

struct Shared {
    live_bytes: AtomicUsize,
    live_limit: usize,
    window_bytes: usize,
}

impl Outbox {
    pub fn new(
        limits: &Limits,
        network: Option<Network>,
        eviction: &Eviction,
        quota: &Arc<EvictingQuota>,
    ) -> (Self, mpsc::UnboundedReceiver<Out>) {
        let window_bytes = limits.query_window_bytes;
        let (queue, receiver) = mpsc::unbounded_channel();
        let shared = Shared {
            live_bytes: AtomicUsize::new(0),
            live_limit: limits.outbox_bytes,
            window_bytes,
        };
        let outbox = Self {
            queue,
            window: Arc::new(Semaphore::new(window_bytes)),
            turns: Arc::new(Semaphore::new(limits.queries_at_once)),
            shared: Arc::new(shared),
            part: quota.join(network, eviction),
            eviction: eviction.clone(),
            network,
        };
        (outbox, receiver)
    }

    /// Never waits. A closed connection takes nothing and loses nothing.
    pub fn send(&self, out: Out) {
        let _ = self.queue.send(out);
    }

    /// Waits until this connection may have one more query worked on; `None` never comes.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turns).acquire_owned().await.ok()
    }

    /// Who reads; `None` is not counted.
    pub fn network(&self) -> Option<Network> {
        self.network
    }

    /// Waits until the reader has taken enough of what its queries sent before, and its network of
    /// what they sent to all its readers. `None` never comes.
    pub async fn reserve(&self) -> Option<Reserved> {
        let bytes = SLICE_BYTES.min(self.shared.window_bytes);
        let share = u32::try_from(bytes).unwrap_or(u32::MAX);
        let own = Arc::clone(&self.window).acquire_many_owned(share).await;
        let own = own.ok()?;
        let held = self.part.wait(bytes).await;
        Some(Reserved { own, held })
    }

    /// Never waits: the frames are in memory either way.
    pub fn stored(&self, sub: SubKey, frames: Vec<Utf8Bytes>, mut window: Reserved) {
        let bytes: usize = frames.iter().map(|frame| frame.as_str().len()).sum();
        let reserved = window.own.num_permits();
        if bytes < reserved {
            drop(window.own.split(reserved - bytes));
        } else if let Ok(more) = u32::try_from(bytes - reserved)
            && let Ok(more) = Arc::clone(&self.window).try_acquire_many_owned(more)
        {
            window.own.merge(more);
        }
        window.held.resize(bytes);
        self.send(Out::Stored {
            sub,
            frames,
            window,
        });
    }

    pub fn live(&self, mut live: LiveEvent) -> Result<(), TooSlow> {
        let bytes = live.bytes();
        let before = self.shared.live_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.shared.live_limit {
            self.eviction.evict(Scarce::Outbox);
            return Err(TooSlow);
        }
        live.held = Some(self.part.add(bytes));
        if self.is_evicted() {
            return Err(TooSlow);
        }
        self.send(Out::Live(live));
        Ok(())
    }

    /// A live event was written or is not wanted any more.
    pub fn live_done(&self, bytes: usize) {
        self.shared.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The connection has to go, for whatever reason.
    pub fn is_evicted(&self) -> bool {
        self.eviction.is_evicted()
    }
}
