//! The only caller of the core. One thread owns it, feeds it what happened with the time, and
//! hands every effect to [`Performer`].

use std::iter;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use grasp_core::git::Refs;
use grasp_core::push::{Command, Decision, PushRefusal};
use grasp_core::sync::io::FromRelay;
use grasp_core::{
    ConnNo, Core, Event, Failed, GitDone, Input, Job, Mono, Network, Now, Origin, PushId, RelayNo,
    RepoId, Restore, StoreOutcome, Ticket,
};
use grasp_store::{Store, StoreError};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::clock::Clock;
use crate::fetch::{self, Word};
use crate::ingest::{Reply, Room};
use crate::perform::Performer;
use crate::status::{RepoSync, Report};

/// Inputs handled between two hand-overs to the writer.
const TURN: usize = 1_024;
/// And for how long, however much waits: what is decided goes out before others' work is begun.
const TURN_BUDGET: Duration = Duration::from_millis(5);
/// Between two looks at what is held, for the metrics; each walks through all of it.
const SHOW_INTERVAL: Duration = Duration::from_secs(5);

/// A verified event on its way to an answer.
pub struct Submission {
    pub event: Arc<Event>,
    pub origin: Origin,
    pub reply: Box<dyn Reply>,
    pub room: Room,
}

/// A push that has shown its commands.
pub struct PushRequest {
    pub repo: RepoId,
    pub commands: Vec<Command>,
    pub present: Refs,
    /// `None` is not counted.
    pub network: Option<Network>,
    pub reply: PushReply,
}

/// Where the words on a push go.
pub struct PushReply {
    pub decision: Option<oneshot::Sender<(Awaited, Decision)>>,
    pub report: oneshot::Sender<Result<(), PushRefusal>>,
    pub driver: Handle,
}

/// A push whose objects the core waits for. Dropped without a word, also on the way to a sender
/// who is gone, it says that they will not come.
pub struct Awaited {
    push: PushId,
    taken: Result<(), String>,
    driver: Handle,
}

impl Awaited {
    pub fn new(push: PushId, driver: Handle) -> Self {
        Self {
            push,
            taken: Err("their sender is gone".to_owned()),
            driver,
        }
    }

    pub fn taken(mut self, taken: Result<(), String>) {
        self.taken = taken;
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let taken = std::mem::replace(&mut self.taken, Ok(()));
        self.driver.push_taken(self.push, taken);
    }
}

/// What another relay's connection waits for before it reads on.
pub enum Turn {
    None,
    Frame { _permit: OwnedSemaphorePermit },
    Event { _reply: Box<dyn Reply> },
}

enum Message {
    Submit(Box<Submission>),
    Push(Box<PushRequest>),
    /// An answer of the store, of git, or of a push's sender.
    Answer(Input),
    /// What another relay said. Its connection may read on when this is dropped.
    Remote(Box<Input>, Turn),
    /// Whoever asks hears when nothing is under way.
    Idle(Sender<()>),
    WindDown,
    Status(oneshot::Sender<Report>),
    Repository(RepoId, oneshot::Sender<RepoSync>),
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

    pub fn push(&self, request: PushRequest) {
        self.send(Message::Push(Box::new(request)));
    }

    fn push_taken(&self, push: PushId, taken: Result<(), String>) {
        self.send(Message::Answer(Input::PushTaken { push, taken }));
    }

    pub fn committed(&self, ticket: Ticket, outcome: StoreOutcome) {
        self.send(Message::Answer(Input::Committed { ticket, outcome }));
    }

    pub fn written(&self, job: Job, outcomes: Result<Vec<StoreOutcome>, Failed>) {
        self.send(Message::Answer(Input::Written { job, outcomes }));
    }

    pub fn git(&self, job: Job, outcome: Result<GitDone, Failed>) {
        self.send(Message::Answer(Input::Git { job, outcome }));
    }

    /// Whether less than what must stay free is left on the disk of the events.
    pub fn disk_low(&self, low: bool) {
        self.send(Message::Answer(Input::DiskLow(low)));
    }

    pub fn swept(&self, more: bool) {
        self.send(Message::Answer(Input::Swept { more }));
    }

    /// `turn` is let go when the core has heard it.
    pub fn remote(&self, relay: RelayNo, conn: ConnNo, word: FromRelay, turn: Turn) {
        let input = Input::Remote { relay, conn, word };
        self.send(Message::Remote(Box::new(input), turn));
    }

    /// For whoever fetches from other git servers.
    pub fn fetches(self) -> fetch::Tell {
        Arc::new(move |fetch, word| {
            let input = match word {
                Word::Flowing(bytes) => Input::Flowing { fetch, bytes },
                Word::Arrived => Input::Arrived(fetch),
                Word::Done(fetched) => Input::Fetched { fetch, fetched },
            };
            self.send(Message::Answer(input));
        })
    }

    /// Speaks when nothing is under way.
    pub fn idle(&self) -> Receiver<()> {
        let (sender, receiver) = bounded(1);
        self.send(Message::Idle(sender));
        receiver
    }

    /// The end is near: nothing new is begun.
    pub fn wind_down(&self) {
        self.send(Message::WindDown);
    }

    /// How everything stands.
    pub fn status(&self) -> oneshot::Receiver<Report> {
        let (sender, receiver) = oneshot::channel();
        self.send(Message::Status(sender));
        receiver
    }

    /// How sync stands with one repository.
    pub fn repository(&self, repo: RepoId) -> oneshot::Receiver<RepoSync> {
        let (sender, receiver) = oneshot::channel();
        self.send(Message::Repository(repo, sender));
        receiver
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

/// Tells the core what the store kept, then drives it on a thread of its own.
pub fn start(
    inbox: Inbox,
    core: Core,
    performer: Performer,
    store: Arc<Store>,
    found: Vec<RepoId>,
    clock: Clock,
) -> Result<JoinHandle<()>, StoreError> {
    let mut driver = Driver {
        inbox: inbox.0,
        core,
        performer,
        store,
        clock,
        next_ticket: 0,
        next_push: 0,
        asked_idle: Vec::new(),
        next_show: Mono::default(),
        stopping: false,
    };
    driver.restore(found)?;
    let spawned = thread::Builder::new()
        .name("driver".to_owned())
        .spawn(move || driver.run());
    spawned.map_err(|source| StoreError::Io {
        path: "the driver".into(),
        source,
    })
}

struct Driver {
    inbox: Receiver<Message>,
    core: Core,
    performer: Performer,
    store: Arc<Store>,
    clock: Clock,
    next_ticket: u64,
    next_push: u64,
    asked_idle: Vec<Sender<()>>,
    next_show: Mono,
    stopping: bool,
}

impl Driver {
    fn restore(&mut self, found: Vec<RepoId>) -> Result<(), StoreError> {
        let now = self.clock.now();
        let (store, core) = (&*self.store, &mut self.core);
        store.kept(|restore| core.handle(Input::Restore(restore), now, store))?;
        for repo in found {
            core.handle(Input::Restore(Restore::Repository(repo)), now, store);
        }
        self.feed(Input::Restored, now);
        self.performer.flush();
        Ok(())
    }

    fn run(mut self) {
        while !(self.stopping && self.core.under_way() == 0) {
            let heard = self.wait();
            let began = Instant::now();
            match heard {
                Ok(first) => self.turn(first, began),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.keep_deadlines();
            self.performer.flush();
            self.show();
            self.performer.note_turn(began.elapsed());
            if self.core.under_way() == 0 {
                for asked in self.asked_idle.drain(..) {
                    let _ = asked.send(());
                }
            }
        }
    }

    fn show(&mut self) {
        let now = self.clock.now();
        if now.mono >= self.next_show {
            self.next_show = now.mono + SHOW_INTERVAL;
            self.performer.show(&self.core, now);
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
            self.core.handle_timeout(now, &*self.store);
            self.perform();
        }
    }

    fn wait(&self) -> Result<Message, RecvTimeoutError> {
        let deadline = self.core.poll_timeout().map(|(deadline, _)| deadline);
        let next = deadline.unwrap_or(self.next_show).min(self.next_show);
        self.inbox.recv_deadline(self.clock.instant(next))
    }

    /// Takes what has piled up, so that a busy moment becomes one commit.
    fn turn(&mut self, first: Message, began: Instant) {
        let now = self.clock.now();
        let inbox = self.inbox.clone();
        let waiting = iter::once(first).chain(inbox.try_iter());
        for message in within_budget(waiting, || began.elapsed()) {
            self.handle(message, now);
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
            Message::Push(request) => {
                let PushRequest {
                    repo,
                    commands,
                    present,
                    network,
                    reply,
                } = *request;
                let push = PushId(self.next_push);
                self.next_push += 1;
                self.performer.expect_push(push, reply);
                let input = Input::Push {
                    push,
                    repo,
                    commands,
                    present,
                    network,
                };
                self.feed(input, now);
            }
            Message::Answer(input) => {
                if let Input::Written {
                    outcomes: Ok(outcomes),
                    ..
                } = &input
                {
                    self.performer.note_written(outcomes);
                }
                self.feed(input, now);
            }
            Message::Remote(input, _turn) => self.feed(*input, now),
            Message::Idle(asked) => self.asked_idle.push(asked),
            Message::WindDown => self.wind_down(),
            // Whoever is gone does not want to know.
            Message::Status(asked) if asked.is_closed() => {}
            Message::Repository(_, asked) if asked.is_closed() => {}
            Message::Status(asked) => {
                let lately = |sync: &_| self.performer.lately(sync);
                let _ = asked.send(Report::of(&self.core, lately, now));
            }
            Message::Repository(repo, asked) => {
                let _ = asked.send(RepoSync::of(&self.core, &repo, self.core.believed()));
            }
            Message::Stop => {
                self.wind_down();
                self.stopping = true;
            }
        }
    }

    fn wind_down(&mut self) {
        self.core.wind_down();
        self.perform();
    }

    fn feed(&mut self, input: Input, now: Now) {
        self.core.handle(input, now, &*self.store);
        self.perform();
    }

    fn perform(&mut self) {
        while let Some(effect) = self.core.poll_effect() {
            self.performer.perform(effect);
        }
    }
}

/// The first, and others as long as neither their number nor the time is used up. What is not taken
/// stays where it is.
fn within_budget<T>(
    waiting: impl Iterator<Item = T>,
    elapsed: impl Fn() -> Duration,
) -> impl Iterator<Item = T> {
    let mut waiting = waiting.take(TURN);
    let mut is_first = true;
    iter::from_fn(move || {
        let in_time = std::mem::take(&mut is_first) || elapsed() < TURN_BUDGET;
        in_time.then(|| waiting.next()).flatten()
    })
}

/// What came in, for tests of those who speak with the driver.
#[cfg(test)]
pub enum Heard {
    Submitted(Box<Submission>),
    Remote(RelayNo, ConnNo, FromRelay),
}

#[cfg(test)]
impl Inbox {
    /// The next thing heard of other relays.
    pub fn next(&self, patience: Duration) -> Option<Heard> {
        match self.0.recv_timeout(patience).ok()? {
            Message::Submit(submission) => Some(Heard::Submitted(submission)),
            Message::Remote(input, _turn) => match *input {
                Input::Remote { relay, conn, word } => Some(Heard::Remote(relay, conn, word)),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(inbox: &Inbox) -> Result<(), String> {
        match inbox.0.try_recv() {
            Ok(Message::Answer(Input::PushTaken { push, taken })) => {
                assert_eq!(push, PushId(7));
                taken
            }
            _ => panic!("the core hears nothing"),
        }
    }

    #[test]
    fn a_turn_ends_when_its_time_is_used_up() {
        let (sender, inbox) = unbounded();
        for n in 0..10_000 {
            sender.send(n).unwrap();
        }
        let spent = std::cell::Cell::new(Duration::ZERO);
        let turn = |cost: Duration| {
            spent.set(Duration::ZERO);
            let taken = within_budget(inbox.try_iter(), || spent.get());
            taken.inspect(|_| spent.set(spent.get() + cost)).count()
        };
        assert_eq!(turn(Duration::from_millis(1)), 5);
        assert_eq!(turn(Duration::from_secs(1)), 1, "at least one");
        assert_eq!(turn(Duration::from_nanos(1)), TURN);
        assert_eq!(inbox.len(), 10_000 - 5 - 1 - TURN, "nothing is lost");
    }

    #[test]
    fn a_push_that_is_dropped_does_not_stay_under_way() {
        let (handle, inbox) = channel();
        let (sender, receiver) = oneshot::channel();
        drop(receiver);
        let refused = sender.send(Awaited::new(PushId(7), handle.clone()));
        drop(refused);
        assert!(heard(&inbox).is_err());
        Awaited::new(PushId(7), handle).taken(Ok(()));
        assert_eq!(heard(&inbox), Ok(()));
        assert!(inbox.0.is_empty());
    }
}
