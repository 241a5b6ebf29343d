//! Live delivery: who wants this event? One thread owns the index of all subscriptions; an
//! event costs what it matches, and a bounded part of what each reader has filed beside it.

mod bucket;
mod index;
mod prepared;

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
use grasp_core::{Event, Filter, Network, Seq};
use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::bucket::Holder;
use self::index::{Index, SubRef};
use self::prepared::{Keyed, Prepared};
use super::outbox::{LiveEvent, Out, Outbox, SubKey};
use crate::evicting_quota::QuotaPermit;
use crate::ingest::Room;
use crate::metrics::Metrics;

/// Events that wait for delivery and hold no room in ingest any more, in KiB: 32 MiB. Beyond it an
/// event keeps its room until it is delivered, so that this queue has a bound whatever happens.
const QUEUE_KIB: usize = 32 * 1024;

/// Names a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId(pub u64);

enum Command {
    Join {
        conn: ConnId,
        network: Option<Network>,
        outbox: Outbox,
    },
    Subscribe {
        conn: ConnId,
        sub: SubKey,
        filters: Vec<Prepared>,
        values: Option<QuotaPermit>,
        opening: OwnedSemaphorePermit,
    },
    Unsubscribe {
        conn: ConnId,
        sub: SubKey,
    },
    Leave {
        conn: ConnId,
    },
    Announce {
        event: Arc<Event>,
        seq: Option<Seq>,
        _held: Held,
    },
}

/// What an event on its way holds.
enum Held {
    Queue(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit),
    Ingest(#[expect(dead_code, reason = "held")] Option<Room>),
}

/// Unbounded in type; every event in it holds a part of the queue or its room, every subscription
/// a permit of its connection.
///
/// Commands take effect in the order in which they were given. So a subscription made before a
/// query begins sees every event that is committed after the query's view was taken.
#[derive(Clone)]
pub struct Handle {
    commands: Sender<Command>,
    queue: Arc<Semaphore>,
    keyed: Keyed,
}

impl Handle {
    pub fn join(&self, conn: ConnId, network: Option<Network>, outbox: Outbox) {
        self.send(Command::Join {
            conn,
            network,
            outbox,
        });
    }

    /// Holds the values until the index has forgotten them. A subscription that the index has no
    /// place for is told so through the outbox. Hashing is the caller's work: it takes as long as
    /// the values are many.
    pub fn subscribe(
        &self,
        conn: ConnId,
        sub: SubKey,
        filters: Vec<Filter>,
        values: Option<QuotaPermit>,
        opening: OwnedSemaphorePermit,
    ) {
        let filters = filters.into_iter();
        self.send(Command::Subscribe {
            conn,
            sub,
            filters: filters.map(|filter| self.keyed.prepare(filter)).collect(),
            values,
            opening,
        });
    }

    pub fn unsubscribe(&self, conn: ConnId, sub: SubKey) {
        self.send(Command::Unsubscribe { conn, sub });
    }

    pub fn leave(&self, conn: ConnId) {
        self.send(Command::Leave { conn });
    }

    /// Gives the room back at once: delivery that takes long must not keep events from coming in.
    pub fn announce(&self, event: Arc<Event>, seq: Option<Seq>, room: Option<Room>) {
        let kib = event.json().len().div_ceil(1024).min(QUEUE_KIB);
        let kib = u32::try_from(kib).unwrap_or(u32::MAX);
        let held = match Arc::clone(&self.queue).try_acquire_many_owned(kib) {
            Ok(queue) => Held::Queue(queue),
            Err(_) => Held::Ingest(room),
        };
        self.send(Command::Announce {
            event,
            seq,
            _held: held,
        });
    }

    fn send(&self, command: Command) {
        // The thread ends only after every handle is gone.
        let _ = self.commands.send(command);
    }
}

/// Ends when the last handle is gone.
pub fn start(metrics: Arc<Metrics>) -> std::io::Result<(Handle, JoinHandle<()>)> {
    let (handle, commands) = channel();
    let delivery = Delivery {
        index: Index::default(),
        connections: FxHashMap::default(),
        keyed: handle.keyed.clone(),
        metrics,
    };
    let thread = thread::Builder::new()
        .name("live".to_owned())
        .spawn(move || delivery.run(&commands))?;
    Ok((handle, thread))
}

fn channel() -> (Handle, Receiver<Command>) {
    let (commands, receiver) = unbounded();
    let handle = Handle {
        commands,
        queue: Arc::new(Semaphore::new(QUEUE_KIB)),
        keyed: Keyed::default(),
    };
    (handle, receiver)
}

struct Delivery {
    index: Index<(ConnId, SubKey)>,
    connections: FxHashMap<ConnId, Reader>,
    keyed: Keyed,
    metrics: Arc<Metrics>,
}

struct Reader {
    network: Option<Network>,
    outbox: Outbox,
    subs: FxHashMap<SubKey, (SubRef, Option<QuotaPermit>)>,
}

impl Delivery {
    fn run(mut self, queue: &Receiver<Command>) {
        for command in queue {
            match command {
                Command::Join {
                    conn,
                    network,
                    outbox,
                } => {
                    let reader = Reader {
                        network,
                        outbox,
                        subs: FxHashMap::default(),
                    };
                    self.connections.insert(conn, reader);
                }
                Command::Subscribe {
                    conn,
                    sub,
                    filters,
                    values,
                    opening,
                } => {
                    self.subscribe(conn, sub, filters, values);
                    drop(opening);
                }
                Command::Unsubscribe { conn, sub } => self.unsubscribe(conn, sub),
                Command::Leave { conn } => self.leave(conn),
                Command::Announce { event, seq, _held } => self.announce(&event, seq),
            }
        }
    }

    fn subscribe(
        &mut self,
        conn: ConnId,
        sub: SubKey,
        filters: Vec<Prepared>,
        values: Option<QuotaPermit>,
    ) {
        let Some(reader) = self.connections.get_mut(&conn) else {
            return;
        };
        let holder = Holder {
            conn,
            network: reader.network,
        };
        match self.index.insert((conn, sub), holder, filters) {
            Ok(entry) => {
                reader.subs.insert(sub, (entry, values));
                self.metrics.relay.subscriptions.inc();
            }
            Err(crowded) => reader.outbox.send(Out::QueryDone {
                sub,
                result: Err(crowded.to_string()),
            }),
        }
    }

    fn unsubscribe(&mut self, conn: ConnId, sub: SubKey) {
        let reader = self.connections.get_mut(&conn);
        if let Some((entry, _)) = reader.and_then(|reader| reader.subs.remove(&sub)) {
            self.index.remove(entry);
            self.metrics.relay.subscriptions.dec();
        }
    }

    fn leave(&mut self, conn: ConnId) {
        let Some(reader) = self.connections.remove(&conn) else {
            return;
        };
        for (entry, _) in reader.subs.into_values() {
            self.index.remove(entry);
            self.metrics.relay.subscriptions.dec();
        }
    }

    fn announce(&mut self, event: &Arc<Event>, seq: Option<Seq>) {
        let mut too_slow = Vec::new();
        let probe = self.keyed.probe(event);
        let found = self.index.matches(&probe);
        tracing::trace!(id = %event.id, compared = found.compared, "looked up who wants an event");
        for (conn, sub) in found.owners {
            let Some(reader) = self.connections.get(conn) else {
                continue;
            };
            let live = LiveEvent {
                sub: *sub,
                event: Arc::clone(event),
                seq,
                held: None,
            };
            match reader.outbox.live(live) {
                Ok(()) => self.metrics.relay.live_deliveries.inc(),
                Err(_) => too_slow.push(*conn),
            }
        }
        for conn in too_slow {
            self.leave(conn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver;
    use crate::ingest::Ingest;
    use grasp_core::event::Unverified;
    use grasp_store::Store;

    #[test]
    fn an_event_gives_its_room_back_before_it_is_delivered() {
        let store = Arc::new(Store::in_memory());
        let metrics = Arc::new(Metrics::new().unwrap());
        let (driver, _inbox) = driver::channel();
        let one = grasp_core::Limits {
            ingest_bytes: 1024,
            ..Default::default()
        };
        let shares = one.ingest_shares();
        let (ingest, _) = Ingest::start(0, shares, &store, &driver, &metrics).unwrap();
        let ingest = ingest.share(None);
        let event = testkit::Author::new(1).event(1, 1, &[], "");
        let unverified = || Unverified::parse(event.json(), &Default::default()).unwrap();
        let room = ingest.try_room(&unverified());
        assert!(room.is_some() && ingest.try_room(&unverified()).is_none());
        let (handle, nobody_delivers) = channel();
        handle.announce(Arc::new(event.clone()), None, room);
        assert!(ingest.try_room(&unverified()).is_some());
        assert_eq!(nobody_delivers.len(), 1);
        // Until the queue itself is full.
        let full = Arc::clone(&handle.queue).try_acquire_many_owned(32 * 1024 - 1);
        let room = ingest.try_room(&unverified());
        handle.announce(Arc::new(event.clone()), None, room);
        assert!(ingest.try_room(&unverified()).is_none());
        drop(full);
    }
}
