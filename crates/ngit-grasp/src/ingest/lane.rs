//! Order within one connection. Several threads check signatures, and a state must not overtake
//! the announcement that was sent just before it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// One submitter's events.
pub struct Lane<T> {
    next: u64,
    shared: Arc<Mutex<Waiting<T>>>,
}

struct Waiting<T> {
    due: u64,
    /// Checked before those in front of them; bounded by what one submitter may have in flight.
    early: BTreeMap<u64, Option<T>>,
}

/// Where that goes whose turn has come.
pub(super) type Pass<T> = Arc<dyn Fn(T) + Send + Sync>;

/// One event's place in its lane. Dropped, however that comes about, it lets through everything
/// whose turn has come: those behind it must not wait for an event that nobody checks any more.
pub(super) struct Turn<T> {
    number: u64,
    shared: Arc<Mutex<Waiting<T>>>,
    pass: Pass<T>,
    checked: Option<T>,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        let waiting = Waiting {
            due: 0,
            early: BTreeMap::new(),
        };
        Self {
            next: 0,
            shared: Arc::new(Mutex::new(waiting)),
        }
    }
}

impl<T> Lane<T> {
    pub(super) fn next(&mut self, pass: &Pass<T>) -> Turn<T> {
        let number = self.next;
        self.next += 1;
        Turn {
            number,
            shared: Arc::clone(&self.shared),
            pass: Arc::clone(pass),
            checked: None,
        }
    }
}

impl<T> Turn<T> {
    /// `None` if there is nothing to hand on.
    pub(super) fn done(mut self, checked: Option<T>) {
        self.checked = checked;
    }
}

impl<T> Drop for Turn<T> {
    fn drop(&mut self) {
        let mut waiting = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.early.insert(self.number, self.checked.take());
        loop {
            let due = waiting.due;
            let Some(checked) = waiting.early.remove(&due) else {
                return;
            };
            waiting.due += 1;
            if let Some(checked) = checked {
                (self.pass)(checked);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collecting() -> (Pass<u32>, Arc<Mutex<Vec<u32>>>) {
        let passed = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&passed);
        (Arc::new(move |n| sink.lock().unwrap().push(n)), passed)
    }

    #[test]
    fn what_is_checked_early_waits_for_those_before_it() {
        let (pass, passed) = collecting();
        let mut lane = Lane::default();
        let [one, two, three] = [1, 2, 3].map(|_| lane.next(&pass));
        three.done(Some(3));
        one.done(Some(1));
        assert_eq!(*passed.lock().unwrap(), [1]);
        two.done(None);
        assert_eq!(*passed.lock().unwrap(), [1, 3]);
    }

    #[test]
    fn a_check_that_panics_keeps_nobody_waiting() {
        let (pass, passed) = collecting();
        let mut lane = Lane::default();
        let (lost, next) = (lane.next(&pass), lane.next(&pass));
        next.done(Some(2));
        let panicked = std::thread::spawn(move || {
            let _turn = lost;
            std::panic::resume_unwind(Box::new("a check"));
        });
        assert!(panicked.join().is_err());
        assert_eq!(*passed.lock().unwrap(), [2]);
    }
}
