//! The one thread that writes the store. Whatever waits goes into one commit, so that the
//! disk's latency is shared.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use grasp_core::event::Kind;
use grasp_core::{Change, Event, Failed, Job, StoreOutcome, Ticket, Timestamp};
use grasp_store::Store;

use crate::metrics::Metrics;
use crate::{crash, driver};

/// Orders in one commit; a larger one would only keep the first submitter waiting.
const MAX_COMMIT: usize = 2_000;
/// Tags in one commit. Each is a row of up to 250 bytes until it is in the store: 25 MB.
const MAX_COMMIT_TAGS: usize = 100_000;
/// A deletion writes for each target its own tag, a tombstone, and two rows that hide the target.
const ROWS_OF_TARGET: usize = 4;
/// Expired events removed in one commit; the store bounds the rows, too.
const MAX_SWEEP: usize = 500;

/// What becomes durable as a whole.
pub struct Order {
    of: For,
    changes: Vec<Change>,
}

#[derive(Clone, Copy)]
enum For {
    Ticket(Ticket),
    Job(Job),
}

impl Order {
    pub fn event(ticket: Ticket, event: Arc<Event>) -> Self {
        Self {
            of: For::Ticket(ticket),
            changes: vec![Change::Store(event)],
        }
    }

    pub fn changes(job: Job, changes: Vec<Change>) -> Self {
        Self {
            of: For::Job(job),
            changes,
        }
    }
}

enum Work {
    Write(Vec<Order>),
    Sweep(Timestamp),
}

/// Unbounded in type, bounded by the room that every event in it holds.
#[derive(Clone)]
pub struct Handle {
    work: Sender<Work>,
}

impl Handle {
    pub fn write(&self, orders: Vec<Order>) {
        // The writer outlives the driver, its only caller.
        let _ = self.work.send(Work::Write(orders));
    }

    pub fn sweep(&self, until: Timestamp) {
        let _ = self.work.send(Work::Sweep(until));
    }
}

/// Ends when the last handle is gone.
pub fn start(
    store: Arc<Store>,
    driver: driver::Handle,
    metrics: Arc<Metrics>,
) -> std::io::Result<(Handle, JoinHandle<()>)> {
    let (work, queue) = unbounded();
    let writer = Writer {
        queue,
        store,
        driver,
        metrics,
    };
    let thread = thread::Builder::new()
        .name("writer".to_owned())
        .spawn(move || writer.run())?;
    Ok((Handle { work }, thread))
}

struct Writer {
    queue: Receiver<Work>,
    store: Arc<Store>,
    driver: driver::Handle,
    metrics: Arc<Metrics>,
}

impl Writer {
    fn run(self) {
        for work in &self.queue {
            match work {
                Work::Write(orders) => self.write(orders),
                Work::Sweep(until) => self.sweep(until),
            }
        }
    }

    fn write(&self, mut orders: Vec<Order>) {
        let mut sweep = None;
        while orders.len() < MAX_COMMIT {
            match self.queue.try_recv() {
                Ok(Work::Write(more)) => orders.extend(more),
                Ok(Work::Sweep(until)) => sweep = Some(until),
                Err(_) => break,
            }
        }
        while !orders.is_empty() {
            let rest = orders.split_off(one_commit(&orders));
            self.commit(&std::mem::replace(&mut orders, rest));
        }
        if let Some(until) = sweep {
            self.sweep(until);
        }
    }

    fn commit(&self, orders: &[Order]) {
        crash::before("commit");
        let started = Instant::now();
        let result = self
            .store
            .commit(orders.iter().map(|order| order.changes.as_slice()));
        crash::after("commit");
        let metrics = &self.metrics.store;
        let took = started.elapsed().as_secs_f64();
        metrics.commit_seconds.observe(took);
        metrics.commit_events.observe(orders.len() as f64);
        match result {
            Ok(words) => {
                for (order, words) in orders.iter().zip(words) {
                    self.tell(order.of, Ok(words));
                }
            }
            Err(error) => {
                tracing::error!(%error, orders = orders.len(), full = error.is_full(), "commit failed");
                metrics.failures.inc();
                for order in orders {
                    self.tell(order.of, Err(Failed));
                }
            }
        }
    }

    fn tell(&self, of: For, words: Result<Vec<StoreOutcome>, Failed>) {
        match of {
            For::Ticket(ticket) => {
                let word = words.ok().and_then(|words| words.first().copied());
                self.driver
                    .committed(ticket, word.unwrap_or(StoreOutcome::Failed));
            }
            For::Job(job) => self.driver.written(job, words),
        }
    }

    fn sweep(&self, until: Timestamp) {
        let more = match self.store.sweep(until, MAX_SWEEP) {
            Ok(swept) => {
                if swept.removed > 0 {
                    tracing::debug!(removed = swept.removed, "expired events removed");
                }
                swept.more
            }
            Err(error) => {
                tracing::error!(%error, "removing expired and deleted events failed");
                false
            }
        };
        self.driver.swept(more);
    }
}

/// How many orders fit one commit; at least one.
fn one_commit(orders: &[Order]) -> usize {
    let mut tags = 0;
    let fits = |order: &&Order| {
        tags += order.changes.iter().map(tags_of).sum::<usize>();
        tags <= MAX_COMMIT_TAGS
    };
    orders
        .iter()
        .take(MAX_COMMIT)
        .take_while(fits)
        .count()
        .max(1)
}

fn tags_of(change: &Change) -> usize {
    match change {
        Change::Store(event) if event.kind == Kind::DELETION => event.tags.len() * ROWS_OF_TARGET,
        Change::Store(event) => event.tags.len(),
        Change::Hold { .. }
        | Change::Unhold(_)
        | Change::Applied { .. }
        | Change::Hide(_)
        | Change::Show(_)
        | Change::Relay(_)
        | Change::ForgetRelay(_)
        | Change::Dismiss(_)
        | Change::Recall(_) => 1,
    }
}
