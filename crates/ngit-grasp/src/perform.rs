//! Carries out what the core asks for: one match on `Effect`, nothing else decides here.

use std::sync::Arc;

use grasp_core::{Answer, Effect, Event, EventId, Ticket};
use rustc_hash::FxHashMap;

use crate::ingest::{Reply, Room, Word};
use crate::metrics::Metrics;
use crate::relay::live;
use crate::writer;

pub struct Performer {
    writer: writer::Handle,
    live: live::Handle,
    metrics: Arc<Metrics>,
    waiting: FxHashMap<Ticket, Waiting>,
    /// The room of the event that was answered last: its announcement follows.
    answered: Option<(EventId, Room)>,
    /// Handed to the writer at the end of the turn.
    batch: Vec<(Ticket, Arc<Event>)>,
}

struct Waiting {
    id: EventId,
    reply: Box<dyn Reply>,
    room: Room,
}

impl Performer {
    pub fn new(writer: writer::Handle, live: live::Handle, metrics: Arc<Metrics>) -> Self {
        Self {
            writer,
            live,
            metrics,
            waiting: FxHashMap::default(),
            answered: None,
            batch: Vec::new(),
        }
    }

    /// Remembers whom to answer.
    pub fn expect(&mut self, ticket: Ticket, id: EventId, reply: Box<dyn Reply>, room: Room) {
        self.waiting.insert(ticket, Waiting { id, reply, room });
    }

    pub fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Store { ticket, event } => self.batch.push((ticket, event)),
            Effect::Answer { ticket, answer } => self.answer(ticket, answer),
            Effect::Announce { event, seq } => {
                let answered = self.answered.take().filter(|(id, _)| *id == event.id);
                let room = answered.map(|(_, room)| room);
                self.live.announce(event, seq, room);
            }
            Effect::Sweep { until } => self.writer.sweep(until),
        }
    }

    pub fn flush(&mut self) {
        self.answered = None;
        if !self.batch.is_empty() {
            self.writer.store(std::mem::take(&mut self.batch));
        }
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        match &answer {
            Answer::Accepted => self.metrics.events_stored.inc(),
            Answer::Duplicate => self.metrics.events_duplicate.inc(),
            Answer::Refused(refusal) => self.metrics.refused(refusal.label()),
        }
        if let Some(waiting) = self.waiting.remove(&ticket) {
            waiting.reply.send(waiting.id, Word::Answer(answer));
            self.answered = Some((waiting.id, waiting.room));
        }
    }
}
