//! The only caller of the core. One thread owns it, feeds it what happened with the time, and
//! hands every effect to [`Performer`].

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use grasp_core::{Core, Event, Input, Now, Origin, StoreOutcome, Ticket};

use crate::clock::Clock;
use crate::ingest::{Reply, Room};
use crate::perform::Performer;

/// Inputs handled between two hand-overs to the writer.
const TURN: usize = 1_024;

/// A verified event on its way to an answer.
pub struct Submission {
    pub event: Arc<Event>,
    pub origin: Origin,
    pub reply: Box<dyn Reply>,
    pub room: Room,
}

enum Message {
    Submit(Box<Submission>),
    Committed(Vec<(Ticket, StoreOutcome)>),
    Swept { more: bool },
    Stop,
}

/// Unbounded in type, bounded by the room that every submission holds.
#[derive(Clone)]
pub struct Handle {
    inbox: Sender<Message>,
}

/// The driver's end of its inbox, made before the threads that write to it.
pub struct Inbox(Receiver<Message>);

pub fn channel() -> (Handle, Inbox) {
    let (inbox, messages) = unbounded();
    (Handle { inbox }, Inbox(messages))
}

impl Handle {
    pub fn submit(&self, submission: Submission) {
        self.send(Message::Submit(Box::new(submission)));
    }

    pub fn committed(&self, outcomes: Vec<(Ticket, StoreOutcome)>) {
        self.send(Message::Committed(outcomes));
    }

    pub fn swept(&self, more: bool) {
        self.send(Message::Swept { more });
    }

    /// Ends the driver once everything submitted before has its answer.
    pub fn stop(&self) {
        self.send(Message::Stop);
    }

    fn send(&self, message: Message) {
        // After the driver's end there is nobody left to tell.
        let _ = self.inbox.send(message);
    }
}

pub fn start(
    inbox: Inbox,
    core: Core,
    performer: Performer,
    clock: Clock,
) -> std::io::Result<JoinHandle<()>> {
    let driver = Driver {
        inbox: inbox.0,
        core,
        performer,
        clock,
        next_ticket: 0,
        stopping: false,
    };
    thread::Builder::new()
        .name("driver".to_owned())
        .spawn(move || driver.run())
}

struct Driver {
    inbox: Receiver<Message>,
    core: Core,
    performer: Performer,
    clock: Clock,
    next_ticket: u64,
    stopping: bool,
}

impl Driver {
    fn run(mut self) {
        while !(self.stopping && self.core.storing() == 0) {
            match self.wait() {
                Ok(first) => self.turn(first),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.keep_deadlines();
            self.performer.flush();
        }
    }

    /// Also when the inbox never runs dry.
    fn keep_deadlines(&mut self) {
        let now = self.clock.now();
        if self
            .core
            .poll_timeout()
            .is_some_and(|(deadline, _)| deadline <= now.mono)
        {
            self.core.handle_timeout(now);
            self.perform();
        }
    }

    fn wait(&self) -> Result<Message, RecvTimeoutError> {
        match self.core.poll_timeout() {
            Some((deadline, _)) => self.inbox.recv_deadline(self.clock.instant(deadline)),
            None => self
                .inbox
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    /// Takes what has piled up, so that a busy moment becomes one commit.
    fn turn(&mut self, first: Message) {
        let now = self.clock.now();
        self.handle(first, now);
        for _ in 1..TURN {
            match self.inbox.try_recv() {
                Ok(message) => self.handle(message, now),
                Err(_) => break,
            }
        }
    }

    fn handle(&mut self, message: Message, now: Now) {
        match message {
            Message::Submit(submission) => {
                let Submission {
                    event,
                    origin,
                    reply,
                    room,
                } = *submission;
                let ticket = Ticket(self.next_ticket);
                self.next_ticket += 1;
                self.performer.expect(ticket, event.id, reply, room);
                let input = Input::Event {
                    ticket,
                    event,
                    origin,
                };
                self.feed(input, now);
            }
            Message::Committed(outcomes) => {
                for (ticket, outcome) in outcomes {
                    self.feed(Input::Committed { ticket, outcome }, now);
                }
            }
            Message::Swept { more } => self.feed(Input::Swept { more }, now),
            Message::Stop => self.stopping = true,
        }
    }

    fn feed(&mut self, input: Input, now: Now) {
        self.core.handle(input, now);
        self.perform();
    }

    fn perform(&mut self) {
        while let Some(effect) = self.core.poll_effect() {
            self.performer.perform(effect);
        }
    }
}
