//! What waits to be written to one connection. Three kinds of traffic, each with its own bound:
//! answers by the events in flight, query results by a window that the query waits for, and
//! live events by bytes, beyond which the reader is too slow and is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::extract::ws::Utf8Bytes;
use grasp_core::{Event, Limits, Network, Seq};
use grasp_store::Completeness;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use super::negentropy::Opened;

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
        window: OwnedSemaphorePermit,
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
}

impl LiveEvent {
    /// Counted as if the event were not shared with other readers.
    pub fn bytes(&self) -> usize {
        self.event.json().len() + 128
    }
}

/// The reader does not keep up.
#[derive(Debug)]
pub struct TooSlow;

#[derive(Clone)]
pub struct Outbox {
    network: Option<Network>,
    queue: mpsc::UnboundedSender<Out>,
    window: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    shared: Arc<Shared>,
}

struct Shared {
    live_bytes: AtomicUsize,
    live_limit: usize,
    window_bytes: usize,
    too_slow: AtomicBool,
    dropped: Notify,
}

impl Outbox {
    pub fn new(limits: &Limits, network: Option<Network>) -> (Self, mpsc::UnboundedReceiver<Out>) {
        let window_bytes = limits.query_window_bytes;
        let (queue, receiver) = mpsc::unbounded_channel();
        let shared = Shared {
            live_bytes: AtomicUsize::new(0),
            live_limit: limits.outbox_bytes,
            window_bytes,
            too_slow: AtomicBool::new(false),
            dropped: Notify::new(),
        };
        let outbox = Self {
            network,
            queue,
            window: Arc::new(Semaphore::new(window_bytes)),
            turns: Arc::new(Semaphore::new(limits.queries_at_once)),
            shared: Arc::new(shared),
        };
        (outbox, receiver)
    }

    /// To whom is charged what is read for this connection.
    pub fn network(&self) -> Option<Network> {
        self.network
    }

    /// Never waits. A closed connection takes nothing and loses nothing.
    pub fn send(&self, out: Out) {
        let _ = self.queue.send(out);
    }

    /// Waits until this connection may have one more query worked on; `None` never comes.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turns).acquire_owned().await.ok()
    }

    /// Waits until the reader has taken enough of what the query sent before.
    pub async fn stored(&self, sub: SubKey, frames: Vec<Utf8Bytes>) {
        let bytes: usize = frames.iter().map(|frame| frame.as_str().len()).sum();
        let share = u32::try_from(bytes.min(self.shared.window_bytes)).unwrap_or(u32::MAX);
        let window = Arc::clone(&self.window);
        if let Ok(window) = window.acquire_many_owned(share).await {
            self.send(Out::Stored {
                sub,
                frames,
                window,
            });
        }
    }

    pub fn live(&self, live: LiveEvent) -> Result<(), TooSlow> {
        let bytes = live.bytes();
        let before = self.shared.live_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.shared.live_limit {
            self.shared.too_slow.store(true, Ordering::Relaxed);
            self.shared.dropped.notify_one();
            return Err(TooSlow);
        }
        self.send(Out::Live(live));
        Ok(())
    }

    /// A live event was written or is not wanted any more.
    pub fn live_done(&self, bytes: usize) {
        self.shared.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub fn is_too_slow(&self) -> bool {
        self.shared.too_slow.load(Ordering::Relaxed)
    }

    /// Completes when the reader has become too slow.
    pub async fn too_slow(&self) {
        while !self.is_too_slow() {
            self.shared.dropped.notified().await;
        }
    }
}
