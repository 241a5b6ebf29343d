//! A disk that takes its time, runs full and forgets what it had not finished.

use std::collections::BTreeMap;
use std::sync::Arc;

use grasp_core::{Event, EventId, Seq, StoreOutcome, Ticket, Timestamp};

#[derive(Default)]
pub(crate) struct Disk {
    durable: BTreeMap<EventId, Arc<Event>>,
    next_seq: u64,
}

/// One commit under way.
pub(crate) struct Commit {
    pub(crate) events: Vec<(Ticket, Arc<Event>)>,
    pub(crate) fails: bool,
}

impl Disk {
    /// The commit reaches the platter, or does not.
    pub(crate) fn finish(&mut self, commit: Commit) -> Vec<(Ticket, StoreOutcome)> {
        let fails = commit.fails;
        let outcome = |(ticket, event): (Ticket, Arc<Event>)| {
            let outcome = if fails {
                StoreOutcome::Failed
            } else {
                self.insert(event)
            };
            (ticket, outcome)
        };
        commit.events.into_iter().map(outcome).collect()
    }

    fn insert(&mut self, event: Arc<Event>) -> StoreOutcome {
        if self.durable.contains_key(&event.id) {
            return StoreOutcome::Duplicate;
        }
        self.durable.insert(event.id, event);
        let seq = Seq(self.next_seq);
        self.next_seq += 1;
        StoreOutcome::Stored(seq)
    }

    pub(crate) fn sweep(&mut self, until: Timestamp) {
        self.durable.retain(|_, event| !event.is_expired(until));
    }

    pub(crate) fn holds(&self, id: &EventId) -> bool {
        self.durable.contains_key(id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &EventId> {
        self.durable.keys()
    }
}
