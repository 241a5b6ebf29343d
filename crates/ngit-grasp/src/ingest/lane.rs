//! Order within one connection. Several threads check signatures, and a state must not overtake
//! the announcement that was sent just before it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::driver::Submission;

/// One submitter's events.
#[derive(Default)]
pub struct Lane {
    next: u64,
    shared: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    due: u64,
    /// Checked before those in front of them; bounded by what one submitter may have in flight.
    early: BTreeMap<u64, Option<Submission>>,
}

/// One event's place in its lane.
#[derive(Clone)]
pub(super) struct Turn {
    number: u64,
    shared: Arc<Mutex<Waiting>>,
}

impl Lane {
    pub(super) fn next(&mut self) -> Turn {
        let number = self.next;
        self.next += 1;
        Turn {
            number,
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Turn {
    /// Lets through everything whose turn has come.
    pub(super) fn done(self, checked: Option<Submission>, mut pass: impl FnMut(Submission)) {
        let mut waiting = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.early.insert(self.number, checked);
        loop {
            let due = waiting.due;
            let Some(checked) = waiting.early.remove(&due) else {
                return;
            };
            waiting.due += 1;
            if let Some(submission) = checked {
                pass(submission);
            }
        }
    }
}
