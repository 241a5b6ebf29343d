//! The one thread that writes the store. Whatever waits goes into one commit, so that the
//! disk's latency is shared.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use grasp_core::{Event, StoreOutcome, Ticket, Timestamp};
use grasp_store::Store;

use crate::driver;
use crate::metrics::Metrics;

/// Events in one commit; a larger one would only keep the first submitter waiting.
const MAX_COMMIT: usize = 2_000;
/// Tags in one commit. Each is a row of up to 250 bytes until it is in the store: 25 MB.
const MAX_COMMIT_TAGS: usize = 100_000;
/// Expired events removed in one commit.
const MAX_SWEEP: usize = 500;

enum Job {
    Store(Vec<(Ticket, Arc<Event>)>),
    Sweep(Timestamp),
}

/// Unbounded in type, bounded by the room that every event in it holds.
#[derive(Clone)]
pub struct Handle {
    jobs: Sender<Job>,
}

impl Handle {
    pub fn store(&self, batch: Vec<(Ticket, Arc<Event>)>) {
        // The writer outlives the driver, its only caller.
        let _ = self.jobs.send(Job::Store(batch));
    }

    pub fn sweep(&self, until: Timestamp) {
        let _ = self.jobs.send(Job::Sweep(until));
    }
}

/// Ends when the last handle is gone.
pub fn start(
    store: Arc<Store>,
    driver: driver::Handle,
    metrics: Arc<Metrics>,
) -> std::io::Result<(Handle, JoinHandle<()>)> {
    let (jobs, queue) = unbounded();
    let writer = Writer {
        queue,
        store,
        driver,
        metrics,
    };
    let thread = thread::Builder::new()
        .name("writer".to_owned())
        .spawn(move || writer.run())?;
    Ok((Handle { jobs }, thread))
}

struct Writer {
    queue: Receiver<Job>,
    store: Arc<Store>,
    driver: driver::Handle,
    metrics: Arc<Metrics>,
}

impl Writer {
    fn run(self) {
        for job in &self.queue {
            match job {
                Job::Store(batch) => self.store(batch),
                Job::Sweep(until) => self.sweep(until),
            }
        }
    }

    fn store(&self, mut batch: Vec<(Ticket, Arc<Event>)>) {
        let mut sweep = None;
        while batch.len() < MAX_COMMIT {
            match self.queue.try_recv() {
                Ok(Job::Store(more)) => batch.extend(more),
                Ok(Job::Sweep(until)) => sweep = Some(until),
                Err(_) => break,
            }
        }
        while !batch.is_empty() {
            let rest = batch.split_off(one_commit(&batch));
            self.commit(std::mem::replace(&mut batch, rest));
        }
        if let Some(until) = sweep {
            self.sweep(until);
        }
    }

    fn commit(&self, batch: Vec<(Ticket, Arc<Event>)>) {
        let started = Instant::now();
        let result = self.store.apply(batch.iter().map(|(_, event)| &**event));
        self.metrics
            .commit_seconds
            .observe(started.elapsed().as_secs_f64());
        self.metrics.commit_events.observe(batch.len() as f64);
        let outcomes = result.unwrap_or_else(|error| {
            tracing::error!(%error, events = batch.len(), full = error.is_full(), "commit failed");
            self.metrics.store_failures.inc();
            vec![StoreOutcome::Failed; batch.len()]
        });
        let tickets = batch.into_iter().map(|(ticket, _)| ticket);
        self.driver.committed(tickets.zip(outcomes).collect());
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
                tracing::error!(%error, "removing expired events failed");
                false
            }
        };
        self.driver.swept(more);
    }
}

/// How many events of a batch fit one commit; at least one.
fn one_commit(batch: &[(Ticket, Arc<Event>)]) -> usize {
    let mut tags = 0;
    let fits = |(_, event): &&(Ticket, Arc<Event>)| {
        tags += event.tags.len();
        tags <= MAX_COMMIT_TAGS
    };
    batch
        .iter()
        .take(MAX_COMMIT)
        .take_while(fits)
        .count()
        .max(1)
}
