//! The event heap, the clock and the steps: whatever happens, happens here, in one order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use grasp_core::admit::Refusal;
use grasp_core::{
    Answer, Core, Effect, Event, Input, Limits, Mono, Now, Origin, Policy, Ticket, Timestamp,
};

use crate::checkers::Checkers;
use crate::climate::Climate;
use crate::disk::{Commit, Disk};
use crate::model::Model;
use crate::trace::Trace;
use crate::workload::{self, Intent};

const EPOCH: u64 = 1_700_000_000;
/// A user who heard nothing tries again.
const PATIENCE: Duration = Duration::from_secs(30);
/// After the storm everything must come right within this time.
const CALM: Duration = Duration::from_secs(15 * 60);

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub steps: u64,
    pub published: u64,
    pub crashes: u64,
    pub stored: usize,
}

/// Why a run is wrong, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub seed: u64,
    pub at: Duration,
    pub what: String,
}

/// Runs one world from its seed to the end of its calm.
pub fn run(seed: u64, trace: &mut Trace) -> Result<Summary, Failure> {
    let mut world = World::new(seed, trace);
    world.play().map_err(|what| Failure {
        seed,
        at: world.now,
        what,
    })
}

enum Happening {
    Publish {
        user: usize,
    },
    /// A user looks whether its event was answered.
    Retry {
        event: Arc<Event>,
    },
    CommitDone {
        life: u64,
        commit: u64,
    },
    SweepDone {
        life: u64,
        until: Timestamp,
    },
    Crash,
    Calm,
}

struct World<'t> {
    rng: Rng,
    climate: Climate,
    now: Duration,
    calm: bool,
    heap: BinaryHeap<Reverse<(Duration, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    next: u64,

    core: Core,
    /// How often the process was started; what an earlier life began comes to nothing.
    life: u64,
    disk: Disk,
    commits: BTreeMap<u64, Commit>,
    checkers: Checkers,
    model: Model,
    /// Events whose users wait for an answer.
    unanswered: BTreeMap<grasp_core::EventId, Arc<Event>>,
    tickets: BTreeMap<Ticket, Arc<Event>>,
    next_ticket: u64,
    summary: Summary,
    trace: &'t mut Trace,
}

impl<'t> World<'t> {
    fn new(seed: u64, trace: &'t mut Trace) -> Self {
        let mut rng = Rng::with_seed(seed);
        let climate = Climate::draw(&mut rng);
        trace.note(Duration::ZERO, format_args!("seed {seed}: {climate:?}"));
        Self {
            core: new_core(rng.u64(..)),
            rng,
            climate,
            now: Duration::ZERO,
            calm: false,
            heap: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            next: 0,
            life: 0,
            disk: Disk::default(),
            commits: BTreeMap::new(),
            checkers: Checkers::default(),
            model: Model::default(),
            unanswered: BTreeMap::new(),
            tickets: BTreeMap::new(),
            next_ticket: 0,
            summary: Summary::default(),
            trace,
        }
    }

    fn play(&mut self) -> Result<Summary, String> {
        for user in 0..self.climate.users {
            self.after_about(self.climate.pace, Happening::Publish { user });
        }
        if !self.climate.crashes.is_zero() {
            self.after_about(self.climate.crashes, Happening::Crash);
        }
        self.after(self.climate.storm, Happening::Calm);
        let end = self.climate.storm + CALM;
        while self.now < end && self.step()? {}
        if let Some(id) = self.unanswered.keys().next() {
            return Err(format!("{id} never got its answer"));
        }
        self.model.compare(&self.disk)?;
        self.summary.stored = self.disk.ids().count();
        Ok(self.summary)
    }

    /// The next thing on the heap or the core's own deadline, whichever is first.
    fn step(&mut self) -> Result<bool, String> {
        let next = self.heap.peek().map(|Reverse((at, _))| *at);
        let deadline = self.core.poll_timeout().map(|(at, _)| at.0.max(self.now));
        self.summary.steps += 1;
        match (next, deadline) {
            (None, None) => return Ok(false),
            (next, Some(deadline)) if next.is_none_or(|next| deadline <= next) => {
                self.now = deadline;
                self.core.handle_timeout(self.clock());
                self.perform()?;
            }
            _ => {
                let Some(Reverse((at, key))) = self.heap.pop() else {
                    return Ok(false);
                };
                self.now = at;
                if let Some(happening) = self.happenings.remove(&key) {
                    self.happen(happening)?;
                }
            }
        }
        self.checkers.nothing_is_stuck(&self.core)?;
        Ok(true)
    }

    fn happen(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::Publish { user } => self.publish(user),
            Happening::Retry { event } if self.unanswered.contains_key(&event.id) => {
                self.note(format_args!("retry {}", short(&event)));
                self.submit(event)
            }
            Happening::Retry { .. } => Ok(()),
            Happening::CommitDone { life, commit } => self.commit_done(life, commit),
            Happening::SweepDone { life, until } => self.sweep_done(life, until),
            Happening::Crash => {
                self.crash();
                Ok(())
            }
            Happening::Calm => {
                self.note(format_args!("calm"));
                self.calm = true;
                Ok(())
            }
        }
    }

    fn publish(&mut self, user: usize) -> Result<(), String> {
        if self.calm {
            return Ok(());
        }
        self.after_about(self.climate.pace, Happening::Publish { user });
        let intent = Intent::draw(&mut self.rng, self.climate.mischief);
        let unix = self.clock().unix;
        let event = workload::event(&mut self.rng, user, intent, unix);
        self.note(format_args!(
            "user {user} publishes {} ({intent:?})",
            short(&event)
        ));
        self.model.published(&event, intent);
        self.unanswered.insert(event.id, Arc::clone(&event));
        self.summary.published += 1;
        if self.rng.u32(0..100) < self.climate.impatience {
            self.submit(Arc::clone(&event))?;
        }
        self.submit(event)
    }

    fn submit(&mut self, event: Arc<Event>) -> Result<(), String> {
        self.after(
            PATIENCE,
            Happening::Retry {
                event: Arc::clone(&event),
            },
        );
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.checkers.submitted(ticket, event.id);
        self.tickets.insert(ticket, Arc::clone(&event));
        let origin = Origin::anonymous();
        self.feed(Input::Event {
            ticket,
            event,
            origin,
        })
    }

    fn commit_done(&mut self, life: u64, commit: u64) -> Result<(), String> {
        let Some(commit) = self.commits.remove(&commit).filter(|_| life == self.life) else {
            return Ok(());
        };
        for (ticket, outcome) in self.disk.finish(commit) {
            self.note(format_args!("commit {ticket:?}: {outcome:?}"));
            self.checkers.committed(ticket);
            self.feed(Input::Committed { ticket, outcome })?;
        }
        Ok(())
    }

    fn sweep_done(&mut self, life: u64, until: Timestamp) -> Result<(), String> {
        if life != self.life {
            return Ok(());
        }
        self.disk.sweep(until);
        self.checkers.sweeps -= 1;
        let more = self.rng.u8(0..10) == 0;
        self.feed(Input::Swept { more })
    }

    /// The process dies; some of what it was writing reached the disk, nobody knows which.
    fn crash(&mut self) {
        if self.calm {
            return;
        }
        self.after_about(self.climate.crashes, Happening::Crash);
        self.note(format_args!("crash"));
        for commit in std::mem::take(&mut self.commits).into_values() {
            if self.rng.bool() {
                self.disk.finish(commit);
            }
        }
        self.life += 1;
        self.summary.crashes += 1;
        self.checkers = Checkers::default();
        self.tickets.clear();
        self.core = new_core(self.rng.u64(..));
    }

    fn feed(&mut self, input: Input) -> Result<(), String> {
        self.core.handle(input, self.clock());
        self.perform()
    }

    fn perform(&mut self) -> Result<(), String> {
        while let Some(effect) = self.core.poll_effect() {
            self.checkers.effect(&effect, &self.disk, &self.model)?;
            match effect {
                Effect::Store { ticket, event } => self.start_commit(ticket, event),
                Effect::Answer { ticket, answer } => self.answered(ticket, &answer),
                Effect::Announce { event, .. } => {
                    self.note(format_args!("announce {}", short(&event)))
                }
                Effect::Sweep { until } => {
                    let life = self.life;
                    self.after_about(self.climate.slow_disk, Happening::SweepDone { life, until });
                }
            }
        }
        Ok(())
    }

    fn start_commit(&mut self, ticket: Ticket, event: Arc<Event>) {
        let fails = !self.calm && self.rng.u32(0..1_000) < self.climate.full_disk;
        let (life, commit) = (self.life, self.next);
        let events = vec![(ticket, event)];
        self.commits.insert(commit, Commit { events, fails });
        self.after_about(
            self.climate.slow_disk,
            Happening::CommitDone { life, commit },
        );
    }

    fn answered(&mut self, ticket: Ticket, answer: &Answer) {
        let Some(event) = self.tickets.remove(&ticket) else {
            return;
        };
        self.note(format_args!("answer {}: {answer:?}", short(&event)));
        // A user who is told to try later does so.
        let later = matches!(
            answer,
            Answer::Refused(Refusal::StoreFailed | Refusal::KeyRate(_))
        );
        if !later {
            self.unanswered.remove(&event.id);
        }
    }

    fn after(&mut self, delay: Duration, happening: Happening) {
        let key = self.next;
        self.next += 1;
        self.heap.push(Reverse((self.now + delay, key)));
        self.happenings.insert(key, happening);
    }

    fn after_about(&mut self, mean: Duration, happening: Happening) {
        let micros = u64::try_from(mean.as_micros()).unwrap_or(u64::MAX / 2);
        let delay = Duration::from_micros(self.rng.u64(0..=micros * 2));
        self.after(delay, happening);
    }

    fn clock(&self) -> Now {
        Now {
            mono: Mono(self.now),
            unix: Timestamp(EPOCH + self.now.as_secs()),
        }
    }

    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.now, what);
    }
}

fn new_core(seed: u64) -> Core {
    let policy = Policy {
        relay_url: "wss://relay.example".to_owned(),
        limits: Limits {
            events_per_minute_per_key: 60,
            ..Limits::default()
        },
    };
    Core::new(policy, seed)
}

fn short(event: &Event) -> String {
    event.id.to_string().chars().take(8).collect()
}
