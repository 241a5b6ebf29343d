//! One connection to another relay: a task that hears, judges nothing, and hands on. It reads
//! only as fast as the rest of us works: a relay that floods waits in its own TCP window.

mod hearing;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use grasp_core::event::Unverified;
use grasp_core::sync::io::{End, Fault, FromRelay, ToRelay};
use grasp_core::{ConnNo, Delivery, EventId, Filter, Origin, RelayNo, RelayUrl, SubNo};
use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::tungstenite::{self, Message};

#[cfg(test)]
pub(super) use self::hearing::{LATE, STRAYS};
use self::requests::Comparisons;
use super::dial::{Socket, of_websocket};
use super::guard::Target;
use super::nip11::Document;
use super::oversize::Skipped;
use super::{Place, Shared};
use crate::driver::Turn;
use crate::ingest::{Lane, Reply, Room, Share, Word};
use crate::quota::Holder;

/// Frames of one connection that were read and whose consequences are not over.
pub(super) const UNANSWERED: usize = 256;
/// Beats from ping to ping.
const PING_EVERY: u32 = 3;
/// A write that made no progress for so long ends the connection.
const WRITE: Duration = Duration::from_secs(30);
/// How long a relay that we leave may take to be told.
const FAREWELL: Duration = Duration::from_millis(250);

/// Which connection to which relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    pub relay: RelayNo,
    pub conn: ConnNo,
}

/// Dials, and serves what is asked until one side ends it.
pub async fn run(
    shared: Arc<Shared>,
    line: Line,
    url: RelayUrl,
    trusted: bool,
    mut asks: mpsc::UnboundedReceiver<ToRelay>,
) -> End {
    let opened = tokio::select! {
        opened = open(&shared, &url, trusted) => opened,
        () = hung_up(&mut asks) => return End::Closed,
    };
    match opened {
        Ok((socket, skipped, place)) => {
            let connection = Connection::new(shared, line, url, place, asks, (socket, skipped));
            connection.run().await
        }
        Err(end) => end,
    }
}

async fn open(
    shared: &Shared,
    url: &RelayUrl,
    trusted: bool,
) -> Result<(Socket, Skipped, Place), End> {
    let (patience, dialer) = (shared.connect_timeout, &shared.dialer);
    let late = |_| End::TimedOut;
    let target = Target::parse(url.as_str()).ok_or(End::Blocked)?;
    // A name may have to wait until others are looked up; that is no fault of the relay.
    let found = timeout(patience, shared.guard.resolve(&target, trusted)).await;
    let found = found.map_err(late)??;
    let opened = timeout(patience, dialer.websocket(url.as_str(), &target, &found)).await;
    let (socket, skipped, address) = opened.map_err(late)??;
    Ok((socket, skipped, Place { target, address }))
}

/// While there is no connection, nothing else can be asked of it.
async fn hung_up(asks: &mut mpsc::UnboundedReceiver<ToRelay>) {
    while let Some(ask) = asks.recv().await {
        if ask == ToRelay::HangUp {
            return;
        }
    }
}

struct Connection {
    shared: Arc<Shared>,
    line: Line,
    url: RelayUrl,
    place: Place,
    asks: mpsc::UnboundedReceiver<ToRelay>,
    frames: SplitStream<Socket>,
    /// Messages that were too large to be read.
    skipped: Skipped,
    /// Events too large to be taken whose signatures were checked all the same.
    oversized: u32,
    outgoing: mpsc::UnboundedSender<Message>,
    /// Apart, so that a relay that does not read is still heard, and both cannot wait for the
    /// other.
    writer: JoinSet<End>,
    describing: JoinSet<Option<Document>>,
    comparisons: Comparisons,
    subs: FxHashMap<SubNo, Watch>,
    newest: Option<SubNo>,
    strays: u32,
    late: u32,
    /// The answer to a challenge that the relay has not judged yet.
    proof: Option<EventId>,
    unanswered: Arc<Semaphore>,
    /// For the next frame; without it none is read.
    turn: Option<OwnedSemaphorePermit>,
    lane: Lane,
    share: Share,
    /// An event that waits for room; nothing is read meanwhile.
    parked: Option<(Unverified, SubNo, BoxFuture<'static, Room>)>,
    heard: bool,
    ticks: Interval,
    ticked: u32,
}

/// An open subscription.
struct Watch {
    filters: Arc<[Filter]>,
    most: Option<u32>,
    sent: u32,
    /// Its EOSE has come.
    live: bool,
}

impl Connection {
    fn new(
        shared: Arc<Shared>,
        line: Line,
        url: RelayUrl,
        place: Place,
        asks: mpsc::UnboundedReceiver<ToRelay>,
        (socket, skipped): (Socket, Skipped),
    ) -> Self {
        let (sink, frames) = socket.split();
        let (outgoing, queue) = mpsc::unbounded_channel();
        let mut writer = JoinSet::new();
        writer.spawn(write(sink, queue));
        let mut ticks = interval_at(Instant::now() + shared.beat, shared.beat);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            comparisons: Comparisons::new(Arc::clone(&shared.desk), place.address.ip()),
            share: shared.ingest.share(Some(Holder::Relay(line.relay))),
            shared,
            line,
            url,
            place,
            asks,
            frames,
            skipped,
            oversized: 0,
            outgoing,
            writer,
            describing: JoinSet::new(),
            subs: FxHashMap::default(),
            newest: None,
            strays: 0,
            late: 0,
            proof: None,
            unanswered: Arc::new(Semaphore::new(UNANSWERED)),
            turn: None,
            lane: Lane::default(),
            parked: None,
            heard: false,
            ticks,
            ticked: 0,
        }
    }

    async fn run(mut self) -> End {
        self.note(FromRelay::Up);
        let end = loop {
            if let Err(end) = self.step().await {
                break end;
            }
        };
        tracing::debug!(url = %self.url, ?end, "connection to a relay ends");
        // The writer closes when there is nothing more to come.
        drop(self.outgoing);
        let _ = timeout(FAREWELL, self.writer.join_next()).await;
        end
    }

    async fn step(&mut self) -> Result<(), End> {
        let may_read = self.turn.is_some() && self.parked.is_none();
        tokio::select! {
            biased;
            ask = self.asks.recv() => self.on_ask(ask),
            Some(ended) = self.writer.join_next() => Err(ended.unwrap_or(End::Failed)),
            (sub, step) = self.comparisons.next() => {
                self.on_step(sub, step);
                Ok(())
            }
            Some(document) = self.describing.join_next() => self.on_described(document.ok().flatten()),
            room = wait_for_room(&mut self.parked), if self.parked.is_some() => {
                self.unpark(room);
                Ok(())
            }
            _ = self.ticks.tick() => {
                self.tick();
                Ok(())
            }
            turn = Arc::clone(&self.unanswered).acquire_owned(), if self.turn.is_none() => {
                self.turn = turn.ok();
                Ok(())
            }
            received = self.frames.next(), if may_read => self.receive(received),
        }
    }

    fn note(&self, word: FromRelay) {
        let Line { relay, conn } = self.line;
        self.shared.driver.remote(relay, conn, word, Turn::None);
    }

    /// What a frame means. Its turn goes with it, and comes back when the core has heard this.
    fn tell(&mut self, word: FromRelay) {
        let Line { relay, conn } = self.line;
        let turn = match self.turn.take() {
            Some(permit) => Turn::Frame { _permit: permit },
            None => Turn::None,
        };
        self.shared.driver.remote(relay, conn, word, turn);
    }

    fn send(&self, frame: String) {
        // A writer that is gone ends the connection at the next step.
        let _ = self.outgoing.send(Message::Text(frame.into()));
    }

    fn tick(&mut self) {
        // While we do not read it is not the relay's fault that it is not heard.
        let waits_for_us = self.parked.is_some() || self.unanswered.available_permits() == 0;
        if std::mem::take(&mut self.heard) || waits_for_us {
            self.note(FromRelay::Heard);
        }
        self.ticked = self.ticked.wrapping_add(1);
        if self.ticked.is_multiple_of(PING_EVERY) {
            let _ = self.outgoing.send(Message::Ping(bytes::Bytes::new()));
        }
    }

    // Hearing

    fn receive(
        &mut self,
        received: Option<Result<Message, tungstenite::Error>>,
    ) -> Result<(), End> {
        let message = match received {
            Some(Ok(message)) => message,
            Some(Err(error)) => return Err(of_websocket(&error)),
            None => return Err(End::Closed),
        };
        self.heard = true;
        let received = &self.shared.metrics.sync.received_bytes;
        received.inc_by(message.len() as u64);
        match message {
            Message::Text(text) => self.on_text(&text),
            Message::Binary(_) => self.bad(None, None, Fault::Malformed),
            Message::Close(_) => return Err(End::Closed),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
        for _ in 0..self.skipped.take() {
            self.bad(None, None, Fault::TooLarge);
        }
        Ok(())
    }

    // Handing on

    fn take(&mut self, event: Unverified, sub: SubNo) {
        match self.share.try_room(&event) {
            Some(room) => self.submit(event, sub, room),
            None => {
                let room = Box::pin(self.share.room(&event));
                self.parked = Some((event, sub, room));
            }
        }
    }

    fn submit(&mut self, event: Unverified, sub: SubNo, room: Room) {
        let Line { relay, conn } = self.line;
        let origin = Origin::Sync(Delivery { relay, conn, sub });
        let reply = Box::new(Answered(self.turn.take()));
        let ingest = &self.shared.ingest;
        ingest.submit(&mut self.lane, event, origin, reply, room);
    }

    fn unpark(&mut self, room: Room) {
        if let Some((event, sub, _)) = self.parked.take() {
            self.submit(event, sub, room);
        }
    }
}

/// Lets the connection read another frame.
struct Answered(Option<OwnedSemaphorePermit>);

impl Reply for Answered {
    fn send(self: Box<Self>, _: EventId, _: Word) {
        drop(self.0);
    }
}

async fn wait_for_room(parked: &mut Option<(Unverified, SubNo, BoxFuture<'static, Room>)>) -> Room {
    match parked {
        Some((_, _, room)) => room.await,
        None => std::future::pending().await,
    }
}

/// Writes what is to be said, as much as there is in one go, and closes when nothing more comes.
async fn write(
    mut sink: SplitSink<Socket, Message>,
    mut queue: mpsc::UnboundedReceiver<Message>,
) -> End {
    while let Some(first) = queue.recv().await {
        let write = async {
            sink.feed(first).await?;
            while let Ok(next) = queue.try_recv() {
                sink.feed(next).await?;
            }
            sink.flush().await
        };
        match timeout(WRITE, write).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return of_websocket(&error),
            Err(_) => return End::Silent,
        }
    }
    let _ = timeout(FAREWELL, sink.close()).await;
    End::Closed
}
