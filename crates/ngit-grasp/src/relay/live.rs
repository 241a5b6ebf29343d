//! Live delivery: who wants this event? One thread owns the index of all subscriptions; an
//! event costs what it matches, not the number of subscriptions.

mod index;

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
use grasp_core::{Event, Filter, Seq};
use rustc_hash::FxHashMap;
use tokio::sync::OwnedSemaphorePermit;

pub use self::index::{Index, SubRef};
use super::outbox::{LiveEvent, Outbox, SubKey};
use crate::ingest::Room;
use crate::metrics::Metrics;

/// Names a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId(pub u64);

enum Command {
    Join {
        conn: ConnId,
        outbox: Outbox,
    },
    Subscribe {
        conn: ConnId,
        sub: SubKey,
        filters: Vec<Filter>,
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
        room: Option<Room>,
    },
}

/// Unbounded in type; every event in it holds its room, every subscription a permit of its
/// connection.
///
/// Commands take effect in the order in which they were given. So a subscription made before a
/// query begins sees every event that is committed after the query's view was taken.
#[derive(Clone)]
pub struct Handle {
    commands: Sender<Command>,
}

impl Handle {
    pub fn join(&self, conn: ConnId, outbox: Outbox) {
        self.send(Command::Join { conn, outbox });
    }

    pub fn subscribe(
        &self,
        conn: ConnId,
        sub: SubKey,
        filters: Vec<Filter>,
        opening: OwnedSemaphorePermit,
    ) {
        self.send(Command::Subscribe {
            conn,
            sub,
            filters,
            opening,
        });
    }

    pub fn unsubscribe(&self, conn: ConnId, sub: SubKey) {
        self.send(Command::Unsubscribe { conn, sub });
    }

    pub fn leave(&self, conn: ConnId) {
        self.send(Command::Leave { conn });
    }

    pub fn announce(&self, event: Arc<Event>, seq: Option<Seq>, room: Option<Room>) {
        self.send(Command::Announce { event, seq, room });
    }

    fn send(&self, command: Command) {
        // The thread ends only after every handle is gone.
        let _ = self.commands.send(command);
    }
}

/// Ends when the last handle is gone.
pub fn start(metrics: Arc<Metrics>) -> std::io::Result<(Handle, JoinHandle<()>)> {
    let (commands, queue) = unbounded();
    let delivery = Delivery {
        index: Index::default(),
        connections: FxHashMap::default(),
        metrics,
    };
    let thread = thread::Builder::new()
        .name("live".to_owned())
        .spawn(move || delivery.run(&queue))?;
    Ok((Handle { commands }, thread))
}

struct Delivery {
    index: Index<(ConnId, SubKey)>,
    connections: FxHashMap<ConnId, Reader>,
    metrics: Arc<Metrics>,
}

struct Reader {
    outbox: Outbox,
    subs: FxHashMap<SubKey, SubRef>,
}

impl Delivery {
    fn run(mut self, queue: &Receiver<Command>) {
        for command in queue {
            match command {
                Command::Join { conn, outbox } => {
                    let subs = FxHashMap::default();
                    self.connections.insert(conn, Reader { outbox, subs });
                }
                Command::Subscribe {
                    conn,
                    sub,
                    filters,
                    opening,
                } => {
                    self.subscribe(conn, sub, filters);
                    drop(opening);
                }
                Command::Unsubscribe { conn, sub } => self.unsubscribe(conn, sub),
                Command::Leave { conn } => self.leave(conn),
                Command::Announce { event, seq, room } => {
                    self.announce(&event, seq);
                    drop(room);
                }
            }
        }
    }

    fn subscribe(&mut self, conn: ConnId, sub: SubKey, filters: Vec<Filter>) {
        if let Some(reader) = self.connections.get_mut(&conn) {
            let entry = self.index.insert((conn, sub), filters);
            reader.subs.insert(sub, entry);
            self.metrics.relay.subscriptions.inc();
        }
    }

    fn unsubscribe(&mut self, conn: ConnId, sub: SubKey) {
        let reader = self.connections.get_mut(&conn);
        if let Some(entry) = reader.and_then(|reader| reader.subs.remove(&sub)) {
            self.index.remove(entry);
            self.metrics.relay.subscriptions.dec();
        }
    }

    fn leave(&mut self, conn: ConnId) {
        let Some(reader) = self.connections.remove(&conn) else {
            return;
        };
        for entry in reader.subs.into_values() {
            self.index.remove(entry);
            self.metrics.relay.subscriptions.dec();
        }
    }

    fn announce(&mut self, event: &Arc<Event>, seq: Option<Seq>) {
        let mut too_slow = Vec::new();
        for (conn, sub) in self.index.matches(event) {
            let Some(reader) = self.connections.get(conn) else {
                continue;
            };
            let live = LiveEvent {
                sub: *sub,
                event: Arc::clone(event),
                seq,
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
