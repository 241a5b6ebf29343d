//! A core on a stage: tells it what happens at which second and shows every effect.

use std::sync::Arc;
use std::time::Duration;

use grasp_core::{
    Core, Effect, Event, Input, Kind, Limits, Mono, Now, Origin, Policy, Pubkey, StoreOutcome,
    Ticket, Timestamp,
};
use grasp_sim::disk::Disk;
use grasp_sim::forge;

pub const NOON: u64 = 1_700_000_000;
pub const ALICE: Pubkey = Pubkey([1; 32]);
pub const BOB: Pubkey = Pubkey([2; 32]);

pub struct Stage {
    pub core: Core,
    /// Nothing is ever on it: these stories answer for the store themselves.
    disk: Disk,
    second: u64,
    /// Seconds by which the wall clock is wrong.
    pub clock_off: i64,
    next_ticket: u64,
}

impl Stage {
    pub fn new() -> Self {
        Self::with(Limits::default())
    }

    /// A general relay, so that notes of all kinds may play.
    pub fn with(limits: Limits) -> Self {
        let policy = Policy {
            takes_unrelated: true,
            ..grasp_sim::policy(limits)
        };
        let mut stage = Self {
            core: Core::new(policy, 7),
            disk: Disk::default(),
            second: 0,
            clock_off: 0,
            next_ticket: 0,
        };
        stage.core.handle_timeout(stage.now(), &stage.disk);
        stage
    }

    /// Moves the clock to that second.
    pub fn at(&mut self, second: u64) -> &mut Self {
        self.second = second;
        self
    }

    pub fn now(&self) -> Now {
        Now {
            mono: Mono(Duration::from_secs(self.second)),
            unix: Timestamp((NOON + self.second).saturating_add_signed(self.clock_off)),
        }
    }

    pub fn submit(&mut self, event: &Arc<Event>) -> Vec<Effect> {
        self.submit_from(event, Origin::anonymous())
    }

    pub fn submit_from(&mut self, event: &Arc<Event>, origin: Origin) -> Vec<Effect> {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let event = Arc::clone(event);
        self.feed(Input::Event {
            ticket,
            event,
            origin,
        })
    }

    pub fn commit(&mut self, ticket: u64, outcome: StoreOutcome) -> Vec<Effect> {
        let ticket = Ticket(ticket);
        self.feed(Input::Committed { ticket, outcome })
    }

    pub fn feed(&mut self, input: Input) -> Vec<Effect> {
        self.core.handle(input, self.now(), &self.disk);
        self.effects()
    }

    pub fn timeout(&mut self) -> Vec<Effect> {
        self.core.handle_timeout(self.now(), &self.disk);
        self.effects()
    }

    fn effects(&mut self) -> Vec<Effect> {
        std::iter::from_fn(|| self.core.poll_effect()).collect()
    }
}

pub fn note(author: Pubkey, created_at: u64) -> Arc<Event> {
    event(author, 1, created_at, &[])
}

pub fn event(pubkey: Pubkey, kind: u16, created_at: u64, tags: &[&[&str]]) -> Arc<Event> {
    let tags = tags.iter().map(|tag| forge::tag(tag)).collect();
    forge::event(pubkey, Kind(kind), created_at, tags)
}
