//! How many slices of reading run at once, and whose is next: networks take turns, so that a crowd
//! of one delays another by a slice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use grasp_core::Network;
use grasp_core::fair_queue::FairQueue;
use tokio::sync::oneshot;

pub struct Readers {
    state: Mutex<State>,
}

struct State {
    /// None are free while anybody waits.
    free: usize,
    queue: FairQueue<oneshot::Sender<Permit>>,
}

/// One slice may run, until this is dropped. It belongs into the closure that runs: whoever waits
/// for the slice may be gone long before its thread is free.
pub struct Permit {
    readers: Option<Arc<Readers>>,
}

/// Too many slices wait.
#[derive(Debug)]
pub struct Full;

impl Readers {
    pub fn new(permits: usize, max_waiting: usize) -> Arc<Self> {
        let state = State {
            free: permits,
            queue: FairQueue::new(max_waiting),
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    pub async fn acquire(self: &Arc<Self>, network: Option<Network>) -> Result<Permit, Full> {
        let next = {
            let mut state = self.state();
            if state.free > 0 {
                state.free -= 1;
                return Ok(Permit::of(self));
            }
            state.enqueue(network)?
        };
        next.await.map_err(|_| Full)
    }

    /// Gives a permit that came free to whoever is next.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state();
                let Some(next) = state.queue.pop(is_wanted) else {
                    state.free += 1;
                    return;
                };
                next
            };
            // Sent without the lock: what nobody takes is dropped here, and would need it.
            match next.send(Permit::of(self)) {
                Ok(()) => return,
                Err(mut permit) => permit.readers = None,
            }
        }
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.state().queue.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enqueue(&mut self, network: Option<Network>) -> Result<oneshot::Receiver<Permit>, Full> {
        let (permit, next) = oneshot::channel();
        if let Err(permit) = self.queue.push(network, permit) {
            // Queries that were closed while they waited are still in it.
            self.queue.retain(is_wanted);
            self.queue.push(network, permit).map_err(|_| Full)?;
        }
        Ok(next)
    }
}

fn is_wanted(waiting: &oneshot::Sender<Permit>) -> bool {
    !waiting.is_closed()
}

impl Permit {
    fn of(readers: &Arc<Readers>) -> Self {
        Self {
            readers: Some(Arc::clone(readers)),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(readers) = self.readers.take() {
            readers.pass_on();
        }
    }
}
