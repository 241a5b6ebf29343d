//! Another relay, as good or as bad as a test wants it: it answers honestly from a set of events
//! but for the faults that it was given, and remembers what it was asked.

mod conversation;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use grasp_core::{Event, Filter};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use self::conversation::Conversation;

/// Far beyond anything that a healthy server takes, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

/// One thing that a relay does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Never more than so many events to one filter, whatever its limit.
    SilentCap(usize),
    EoseTwice,
    EoseLate(Duration),
    EoseNever,
    /// Every event twice.
    Repeats,
    /// One event in each answer that nobody asked for.
    OffFilter,
    BadSignatures,
    /// Events that fit, and no end of them.
    Endless,
    /// Every REQ is closed.
    RateLimited,
    /// With more subscriptions open, a NOTICE that names none of them.
    TooManyReqs(usize),
    /// The connection ends after so many frames.
    DropsAfter(usize),
    /// Connected, and not a word.
    Mute,
    /// A frame of 3 MiB instead of every EOSE.
    Oversized,
    /// Nothing for those who have not said who they are.
    DemandsAuth,
    /// A NOTICE to every NEG-OPEN.
    NoNegentropy,
}

/// What a relay has seen so far.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Connections ever made, and those that are open.
    pub connections: usize,
    pub open: usize,
    /// Every message, in order.
    pub asked: Vec<Value>,
    pub events_sent: u64,
}

impl Seen {
    pub fn count(&self, verb: &str) -> usize {
        let of_verb = self.asked.iter().filter(|message| message[0] == verb);
        of_verb.count()
    }

    pub fn reqs(&self) -> usize {
        self.count("REQ")
    }
}

/// Ends, with all its connections, when it is dropped.
#[derive(Debug)]
pub struct Rogue {
    addr: SocketAddr,
    shared: Arc<Shared>,
    serving: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    faults: Vec<Fault>,
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// In the order in which they came.
    events: Vec<Arc<Event>>,
    live: Vec<mpsc::UnboundedSender<(usize, Arc<Event>)>>,
    seen: Seen,
}

impl Rogue {
    pub async fn honest() -> Self {
        Self::start(&[]).await
    }

    pub async fn start(faults: &[Fault]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            faults: faults.to_vec(),
            inner: Mutex::default(),
            changed: Notify::new(),
        });
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self {
            addr,
            shared,
            serving: serving.abort_handle(),
        }
    }

    pub fn ws_url(&self) -> String {
        format!("ws://{}", self.addr)
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Keeps the event and sends it to whoever watches.
    pub fn publish(&self, event: &Event) {
        self.shared.keep(event.clone());
    }

    pub fn has(&self, event: &Event) -> bool {
        let inner = self.shared.lock();
        inner.events.iter().any(|found| found.id == event.id)
    }

    pub fn seen(&self) -> Seen {
        self.shared.lock().seen.clone()
    }

    /// Waits until what was seen is enough.
    pub async fn wait(&self, purpose: &str, enough: impl Fn(&Seen) -> bool) -> Seen {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                let seen = self.seen();
                if enough(&seen) {
                    return seen;
                }
                changed.await;
            }
        };
        match timeout(DEADLINE, waiting).await {
            Ok(seen) => seen,
            Err(_) => panic!("waited {DEADLINE:?} for {purpose}; seen: {:?}", self.seen()),
        }
    }
}

impl Drop for Rogue {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.lock().seen);
        self.changed.notify_waiters();
    }

    fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    fn find<T>(&self, look: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        self.faults.iter().find_map(look)
    }

    fn keep(&self, event: Event) {
        let mut inner = self.lock();
        if inner.events.iter().any(|found| found.id == event.id) {
            return;
        }
        let (event, number) = (Arc::new(event), inner.events.len());
        inner.events.push(Arc::clone(&event));
        inner
            .live
            .retain(|live| live.send((number, Arc::clone(&event))).is_ok());
    }

    /// Newest first, in one second the lowest id first; and how many events there are in all.
    fn query(&self, filters: &[Filter]) -> (Vec<Arc<Event>>, usize) {
        let inner = self.lock();
        let mut all = inner.events.clone();
        all.sort_by_key(|event| (std::cmp::Reverse(event.created_at), event.id));
        let cap = self.find(|fault| match fault {
            Fault::SilentCap(most) => Some(*most),
            _ => None,
        });
        let mut found: Vec<Arc<Event>> = Vec::new();
        for filter in filters {
            let most = filter.limit.unwrap_or(usize::MAX);
            let most = most.min(cap.unwrap_or(usize::MAX));
            let fits = all.iter().filter(|event| filter.matches(event));
            for event in fits.take(most) {
                if !found.iter().any(|known| known.id == event.id) {
                    found.push(Arc::clone(event));
                }
            }
        }
        (found, inner.events.len())
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Its tasks end with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let Ok(socket) = tokio_tungstenite::accept_async(stream).await else {
                return;
            };
            shared.see(|seen| {
                seen.connections += 1;
                seen.open += 1;
            });
            // The other side may be gone at any moment.
            let _ = Conversation::new(socket, Arc::clone(&shared)).run().await;
            shared.see(|seen| seen.open -= 1);
        });
    }
}

#[cfg(test)]
mod tests;
