//! How many may do a thing at once, and who is next: networks take turns, so that a crowd of one
//! delays another by one of its requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use grasp_core::Network;
use grasp_core::fair_queue::FairQueue;
use tokio::sync::oneshot;

#[derive(Debug)]
pub struct FairSlots {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// None are free while anybody waits.
    free: usize,
    queue: FairQueue<oneshot::Sender<Permit>>,
}

/// One slot is taken until this is dropped. It belongs into the closure that does the work: whoever
/// waits for it may be gone long before its thread is free.
#[derive(Debug)]
pub struct Permit {
    slots: Option<Arc<FairSlots>>,
}

/// Too many wait.
#[derive(Debug)]
pub struct Full;

impl FairSlots {
    pub fn new(slots: usize, max_waiting: usize) -> Arc<Self> {
        let state = State {
            free: slots,
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
                Err(mut permit) => permit.slots = None,
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
            // Those that were given up while they waited are still in it.
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
    fn of(slots: &Arc<FairSlots>) -> Self {
        Self {
            slots: Some(Arc::clone(slots)),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.take() {
            slots.pass_on();
        }
    }
}
