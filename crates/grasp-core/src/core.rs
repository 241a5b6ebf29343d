//! The one state machine. Rules live in the modules before it; here they are put in order.

mod effect;
mod input;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

pub use self::effect::{Answer, Effect};
pub use self::input::{Input, Seq, StoreOutcome, Ticket};
use crate::admit::{self, Refusal, Verdict};
pub use crate::admit::{Origin, Policy};
use crate::clock::{Mono, Now};
use crate::event::Event;
use crate::id::Pubkey;
use crate::limiter::{Limiter, Rate};

/// Expired events are hidden from readers at once; the sweep only gives their space back.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// So that machines started together do not all sweep in the same second.
const SWEEP_JITTER: Duration = Duration::from_secs(10);
/// Keys with a rate bucket: 200,000 x 72 bytes = 15 MB.
const MAX_RATED_KEYS: usize = 200_000;

/// What the next deadline is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    SweepExpired,
}

/// Decides; does nothing.
///
/// The contract:
/// - Call [`Core::handle`] for everything that happens and [`Core::handle_timeout`] when the
///   deadline of [`Core::poll_timeout`] has passed. Time never goes back between calls.
/// - After each call, drain [`Core::poll_effect`] until it returns `None` and carry the
///   effects out in that order.
/// - Every `Store` and `Sweep` is answered by exactly one `Committed` or `Swept`. Every
///   `Input::Event` leads to exactly one `Answer`.
/// - A restart is a new `Core`: what was not answered may be submitted again.
#[derive(Debug)]
pub struct Core {
    policy: Policy,
    rng: fastrand::Rng,
    effects: VecDeque<Effect>,
    /// Bounded by the submitters: each has a bounded number of unanswered events.
    storing: FxHashMap<Ticket, Arc<Event>>,
    keys: Limiter<Pubkey>,
    sweep: Sweep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    /// Before the first call we do not know the time.
    Unscheduled,
    At(Mono),
    Running,
}

impl Core {
    pub fn new(policy: Policy, seed: u64) -> Self {
        let rate = Rate::per_minute(policy.limits.events_per_minute_per_key);
        Self {
            policy,
            rng: fastrand::Rng::with_seed(seed),
            effects: VecDeque::new(),
            storing: FxHashMap::default(),
            keys: Limiter::new(rate, MAX_RATED_KEYS),
            sweep: Sweep::Unscheduled,
        }
    }

    pub fn handle(&mut self, input: Input, now: Now) {
        self.schedule_first_sweep(now);
        match input {
            Input::Event {
                ticket,
                event,
                origin,
            } => self.on_event(ticket, event, &origin, now),
            Input::Committed { ticket, outcome } => self.on_committed(ticket, outcome),
            Input::Swept { more } => self.on_swept(more, now),
        }
    }

    pub fn handle_timeout(&mut self, now: Now) {
        self.schedule_first_sweep(now);
        if matches!(self.sweep, Sweep::At(deadline) if deadline <= now.mono) {
            self.keys.forget_full(now.mono);
            self.sweep = Sweep::Running;
            self.effects.push_back(Effect::Sweep { until: now.unix });
        }
    }

    #[must_use]
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to call [`Core::handle_timeout`] next, and what for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Mono, Wake)> {
        match self.sweep {
            Sweep::Unscheduled => Some((Mono::default(), Wake::SweepExpired)),
            Sweep::At(deadline) => Some((deadline, Wake::SweepExpired)),
            Sweep::Running => None,
        }
    }

    /// Submissions that wait for the store.
    pub fn storing(&self) -> usize {
        self.storing.len()
    }

    fn on_event(&mut self, ticket: Ticket, event: Arc<Event>, origin: &Origin, now: Now) {
        let limited = matches!(origin, Origin::Client { .. });
        if limited && !self.keys.allow(event.pubkey, now.mono) {
            let rate = self.policy.limits.events_per_minute_per_key;
            return self.answer(ticket, Answer::Refused(Refusal::KeyRate(rate)));
        }
        match admit::judge(&event, origin, &self.policy, now.unix) {
            Verdict::Drop(refusal) => self.answer(ticket, Answer::Refused(refusal)),
            Verdict::Store if event.kind.is_ephemeral() => {
                self.answer(ticket, Answer::Accepted);
                self.effects
                    .push_back(Effect::Announce { event, seq: None });
            }
            Verdict::Store => {
                self.storing.insert(ticket, Arc::clone(&event));
                self.effects.push_back(Effect::Store { ticket, event });
            }
        }
    }

    fn on_committed(&mut self, ticket: Ticket, outcome: StoreOutcome) {
        // A second word on the same ticket has nobody to tell.
        let Some(event) = self.storing.remove(&ticket) else {
            return;
        };
        let refused = |refusal| Answer::Refused(refusal);
        let answer = match outcome {
            StoreOutcome::Stored(_) => Answer::Accepted,
            StoreOutcome::Duplicate => Answer::Duplicate,
            StoreOutcome::Replaced => refused(Refusal::Replaced),
            StoreOutcome::Deleted => refused(Refusal::Deleted),
            StoreOutcome::Vanished => refused(Refusal::Vanished),
            StoreOutcome::Failed => refused(Refusal::StoreFailed),
        };
        self.answer(ticket, answer);
        if let StoreOutcome::Stored(seq) = outcome {
            let seq = Some(seq);
            self.effects.push_back(Effect::Announce { event, seq });
        }
    }

    fn on_swept(&mut self, more: bool, now: Now) {
        let pause = if more {
            Duration::from_millis(100)
        } else {
            SWEEP_INTERVAL + self.jitter()
        };
        self.sweep = Sweep::At(now.mono + pause);
    }

    fn schedule_first_sweep(&mut self, now: Now) {
        if self.sweep == Sweep::Unscheduled {
            self.sweep = Sweep::At(now.mono + self.jitter());
        }
    }

    fn jitter(&mut self) -> Duration {
        Duration::from_millis(self.rng.u64(..SWEEP_JITTER.as_millis() as u64))
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.effects.push_back(Effect::Answer { ticket, answer });
    }
}
