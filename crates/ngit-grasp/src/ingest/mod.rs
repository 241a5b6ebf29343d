//! From a parsed event to a verified one: known ids are answered before any signature is
//! checked, the rest is checked on a pool of threads of its own, and the result goes to the
//! driver.

mod lane;
pub mod signature;

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
use grasp_core::event::{EventError, Unverified};
use grasp_core::shares::ShareLimits;
use grasp_core::sync::io::{Fault, FromRelay};
use grasp_core::{Answer, Delivery, Event, EventId, Origin};
use grasp_store::Store;

use self::lane::{Pass, Turn};
use crate::driver::{self, Submission};
use crate::metrics::Metrics;
use crate::quota::{Account, Holder, Permit, Quota};

/// One submitter's events, in their order.
pub type Lane = lane::Lane<Submission>;

/// Room is counted in this unit, so that any size fits a `u32`.
const UNIT: usize = 1024;

/// Where an answer goes. Dropping it without a word would leave a client waiting, so every
/// path through ingest and driver ends in [`Reply::send`].
pub trait Reply: Send {
    fn send(self: Box<Self>, id: EventId, word: Word);
}

/// What a submitter is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    Answer(Answer),
    Unverifiable(EventError),
}

/// Holds a share of the memory that ingest may take, until the answer is out.
#[derive(Debug)]
pub struct Room {
    _permit: Permit,
}

/// A submitter's part of the memory that ingest may take.
#[derive(Debug, Clone)]
pub struct Share(Account);

impl Share {
    /// Room for an event, if there is some at once.
    pub fn try_room(&self, event: &Unverified) -> Option<Room> {
        let permit = self.0.take(self.0.at_most(units(event))).ok()?;
        Some(Room { _permit: permit })
    }

    /// Waits for room.
    pub fn room(&self, event: &Unverified) -> impl Future<Output = Room> + Send + use<> {
        let (account, units) = (self.0.clone(), units(event));
        async move {
            let permit = account.wait(units).await;
            Room { _permit: permit }
        }
    }
}

fn units(event: &Unverified) -> usize {
    event.memory().div_ceil(UNIT)
}

struct Job {
    turn: Turn<Submission>,
    event: Unverified,
    origin: Origin,
    reply: Box<dyn Reply>,
    room: Room,
}

/// Cheap to clone; the pool ends when the last clone is gone.
#[derive(Clone)]
pub struct Ingest {
    jobs: Sender<Job>,
    pass: Pass<Submission>,
    room: Arc<Quota>,
}

impl Ingest {
    /// Starts `threads` checkers. Queues are unbounded in type and bounded by `bytes`: nothing
    /// enters without room.
    pub fn start(
        threads: usize,
        bytes: ShareLimits,
        store: &Arc<Store>,
        driver: &driver::Handle,
        metrics: &Arc<Metrics>,
    ) -> std::io::Result<(Self, Vec<JoinHandle<()>>)> {
        let (jobs, queue) = unbounded();
        let mut pool = Vec::with_capacity(threads);
        for n in 0..threads {
            let checker = Checker {
                queue: queue.clone(),
                store: Arc::clone(store),
                driver: driver.clone(),
                metrics: Arc::clone(metrics),
            };
            let name = format!("verify-{n}");
            pool.push(
                thread::Builder::new()
                    .name(name)
                    .spawn(move || checker.run())?,
            );
        }
        let units = |bytes: u64| (bytes / UNIT as u64).max(1);
        let room = Arc::new(Quota::new(ShareLimits {
            in_all: units(bytes.in_all),
            per_network: units(bytes.per_network),
        }));
        let driver = driver.clone();
        let ingest = Self {
            jobs,
            pass: Arc::new(move |submission| driver.submit(submission)),
            room,
        };
        Ok((ingest, pool))
    }

    /// Whose share it is that a submitter's events take; `None` has no share of its own.
    pub fn share(&self, holder: Option<Holder>) -> Share {
        Share(self.room.account(holder))
    }

    /// Events of one lane are judged in the order in which they were submitted.
    pub fn submit(
        &self,
        lane: &mut Lane,
        event: Unverified,
        origin: Origin,
        reply: Box<dyn Reply>,
        room: Room,
    ) {
        let job = Job {
            turn: lane.next(&self.pass),
            event,
            origin,
            reply,
            room,
        };
        // The queue closes only after the last handle is gone, and we hold one.
        let _ = self.jobs.send(job);
    }
}

struct Checker {
    queue: Receiver<Job>,
    store: Arc<Store>,
    driver: driver::Handle,
    metrics: Arc<Metrics>,
}

impl Checker {
    fn run(self) {
        for job in &self.queue {
            self.check(job);
        }
    }

    fn check(&self, job: Job) {
        let Job {
            turn,
            event,
            origin,
            reply,
            room,
        } = job;
        let checked = match &origin {
            Origin::Sync(delivery) => self.verify_synced(event, *delivery, reply),
            Origin::Client { .. } | Origin::Import => self.verify(event, reply),
        };
        let submission = checked.map(|(event, reply)| Submission {
            event,
            origin,
            reply,
            room,
        });
        turn.done(submission);
    }

    /// `None` when the submitter has its answer already.
    fn verify(
        &self,
        event: Unverified,
        reply: Box<dyn Reply>,
    ) -> Option<(Arc<Event>, Box<dyn Reply>)> {
        let id = event.id();
        // A store that cannot say lets the event through: the writer will know.
        if self.store.contains(&id).unwrap_or(false) {
            self.metrics.relay.events_duplicate.inc();
            reply.send(id, Word::Answer(Answer::Duplicate));
            return None;
        }
        match event.verify(signature::is_valid) {
            Ok(event) => Some((Arc::new(event), reply)),
            Err(error) => {
                self.metrics.relay.refused("signature");
                reply.send(id, Word::Unverifiable(error));
                None
            }
        }
    }

    /// `None` when the core hears from us what became of it. The reply is dropped when it has,
    /// which is all that another relay's connection waits for.
    fn verify_synced(
        &self,
        event: Unverified,
        delivery: Delivery,
        reply: Box<dyn Reply>,
    ) -> Option<(Arc<Event>, Box<dyn Reply>)> {
        let Delivery { relay, conn, sub } = delivery;
        let (id, at) = (event.id(), event.claim().created_at);
        let word = if self.store.contains(&id).unwrap_or(false) {
            FromRelay::Known { sub, id, at }
        } else {
            let fault = match event.verify(signature::is_valid) {
                Ok(event) => return Some((Arc::new(event), reply)),
                Err(EventError::WrongId) => Fault::WrongId,
                Err(_) => Fault::WrongSignature,
            };
            FromRelay::Bad {
                sub: Some(sub),
                id: Some(id),
                fault,
            }
        };
        let turn = driver::Turn::Event { _reply: reply };
        self.driver.remote(relay, conn, word, turn);
        None
    }
}
