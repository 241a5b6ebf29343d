//! One websocket connection: a task that reads messages, writes what its outbox holds, and
//! never waits for anything else. Queries run in tasks of their own and end with it.

mod sessions;
mod subscriptions;
mod values;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use futures_util::SinkExt as _;
use futures_util::future::BoxFuture;
use grasp_core::admit::Refusal;
use grasp_core::event::Unverified;
use grasp_core::{EventId, Network, Origin, Pubkey, auth};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite;

use self::sessions::Sessions;
use self::subscriptions::Subscriptions;
use super::live::ConnId;
use super::message::{self, ClientMessage, Rejected};
use super::outbox::{Out, Outbox};
use super::{Relay, query};
use crate::clock::unix_now;
use crate::evicting_quota::{QuotaMember, QuotaPermit};
use crate::eviction::{Eviction, Scarce};
use crate::ingest::{Lane, Reply, Room, Share, Word, signature};
use crate::phase::{Phase, reached};

/// Frames put together into one write.
const MAX_GATHERED: usize = 256;
/// How long a connection that is being dropped may take to hear why, and to say that it did.
const LAST_WORD: Duration = Duration::from_secs(1);
/// How long answers may be on their way when the server stops; then there is still time to say so.
const DRAIN: Duration = Duration::from_secs(4);

/// Who is at the other end.
#[derive(Debug, Clone, Default)]
pub struct Peer {
    /// `None` is not counted: loopback and trusted proxies.
    pub network: Option<Network>,
    /// Says when the connection has to make way.
    pub eviction: Eviction,
}

/// Why a connection ends.
#[derive(Debug)]
enum End {
    Gone,
    Idle,
    /// A write took too long.
    TooSlow,
    /// Others needed what it held.
    Evicted(Scarce),
    TooLarge,
    Shutdown,
}

/// What is written in one go, and what it holds until it is.
#[derive(Default)]
struct Batch {
    frames: Vec<Utf8Bytes>,
    windows: Vec<OwnedSemaphorePermit>,
    held: Vec<QuotaPermit>,
}

pub struct Connection {
    relay: Arc<Relay>,
    id: ConnId,
    peer: Peer,
    ws: WebSocket,
    outbox: Outbox,
    queue: mpsc::UnboundedReceiver<Out>,
    subs: Subscriptions,
    sessions: Sessions,
    /// Of the events in sessions and counts.
    items: Arc<QuotaMember>,
    counts: tokio::task::JoinSet<()>,
    /// `None` when the system gave no randomness: then nobody can authenticate.
    challenge: Option<String>,
    /// The challenge was sent.
    challenged: bool,
    authenticated: Vec<Pubkey>,
    in_flight: usize,
    lane: Lane,
    share: Share,
    /// An event that waits for room; nothing is read meanwhile.
    parked: Option<(Unverified, BoxFuture<'static, Room>)>,
    last_heard: Instant,
    ticks: Interval,
    phase: watch::Receiver<Phase>,
    /// Since the server stops: until when answers are waited for.
    closing: Option<tokio::time::Instant>,
}

impl Connection {
    pub fn new(relay: Arc<Relay>, peer: Peer, ws: WebSocket) -> Self {
        let limits = &relay.limits;
        let (outbox, queue) = Outbox::new(limits, peer.network, &peer.eviction, &relay.outboxes);
        let items = relay.session_items.join(peer.network, &peer.eviction);
        let values = relay.filter_values.join(peer.network, &peer.eviction);
        let id = relay.next_conn();
        relay.live.join(id, peer.network, outbox.clone());
        let mut ticks = interval(
            limits
                .ping_interval
                .min(limits.neg_idle)
                .max(Duration::from_millis(10)),
        );
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        relay.metrics.relay.connections.inc();
        Self {
            id,
            ws,
            queue,
            subs: Subscriptions::new(Arc::clone(&relay), id, values, outbox.clone()),
            sessions: Sessions::new(Arc::clone(&relay), outbox.clone(), Arc::clone(&items)),
            items,
            counts: tokio::task::JoinSet::new(),
            challenge: challenge(),
            challenged: false,
            authenticated: Vec::new(),
            in_flight: 0,
            lane: Lane::default(),
            share: relay.ingest.share(peer.network.map(Into::into)),
            peer,
            parked: None,
            last_heard: Instant::now(),
            ticks,
            phase: relay.phase.clone(),
            closing: None,
            outbox,
            relay,
        }
    }

    pub async fn run(mut self) {
        let end = loop {
            if let Err(end) = self.step().await {
                break end;
            }
        };
        tracing::debug!(network = ?self.peer.network, ?end, "connection ends");
        if matches!(end, End::TooSlow | End::Evicted(_)) {
            // What this reader did not take makes room for others at once.
            self.queue.close();
            while self.queue.try_recv().is_ok() {}
        }
        self.last_word(&end).await;
    }

    async fn step(&mut self) -> Result<(), End> {
        if let Some(until) = self.closing
            && (self.is_drained() || until.elapsed() > Duration::ZERO)
        {
            return Err(End::Shutdown);
        }
        let may_read = self.closing.is_none()
            && self.parked.is_none()
            && self.in_flight < self.relay.limits.events_in_flight;
        tokio::select! {
            biased;
            scarce = self.peer.eviction.evicted() => Err(End::Evicted(scarce)),
            Some(out) = self.queue.recv() => self.deliver(out).await,
            room = wait_for_room(&mut self.parked), if self.parked.is_some() => {
                self.unpark(room);
                Ok(())
            }
            _ = self.ticks.tick() => self.tick().await,
            () = reached(&mut self.phase, Phase::Stopping), if self.closing.is_none() => {
                self.closing = Some(tokio::time::Instant::now() + DRAIN);
                Ok(())
            }
            () = wait_until(self.closing), if self.closing.is_some() => Err(End::Shutdown),
            received = self.ws.recv(), if may_read => self.receive(received),
        }
    }

    fn is_drained(&self) -> bool {
        self.in_flight == 0 && self.parked.is_none() && self.queue.is_empty()
    }

    fn say(&self, frame: Utf8Bytes) {
        self.outbox.send(Out::Text(frame));
    }

    // Reading

    fn receive(&mut self, received: Option<Result<Message, axum::Error>>) -> Result<(), End> {
        let message = match received {
            Some(Ok(message)) => message,
            Some(Err(error)) => {
                return Err(if is_too_large(error) {
                    End::TooLarge
                } else {
                    End::Gone
                });
            }
            None => return Err(End::Gone),
        };
        self.last_heard = Instant::now();
        match message {
            Message::Text(text) => self.on_text(&text),
            Message::Binary(_) => self.say(message::notice("invalid: messages are text")),
            Message::Close(_) => return Err(End::Gone),
            Message::Ping(_) | Message::Pong(_) => {}
        }
        Ok(())
    }

    fn on_text(&mut self, text: &str) {
        match message::parse(text, &self.relay.limits) {
            Ok(message) => {
                self.relay.metrics.relay.message(message.label());
                self.on_message(message);
            }
            Err(rejected) => {
                self.relay.metrics.relay.message("invalid");
                self.on_rejected(&rejected);
            }
        }
    }

    /// A refusal that ends something also ends what had the same name before.
    fn on_rejected(&mut self, rejected: &Rejected) {
        match rejected {
            Rejected::Notice(_) => {}
            Rejected::Closed { sub, .. } => self.subs.close(sub),
            Rejected::NegErr { sub, .. } => self.sessions.close(sub),
        }
        self.say(rejected.frame());
    }

    fn on_message(&mut self, message: ClientMessage<'_>) {
        let refused = match message {
            ClientMessage::Event(json) => {
                self.on_event(json);
                None
            }
            ClientMessage::Auth(json) => {
                self.on_auth(json);
                None
            }
            ClientMessage::Req { sub, filters } => self.subs.open(sub, filters).err(),
            ClientMessage::Count { sub, filters } => self.on_count(sub, filters),
            ClientMessage::Close { sub } => {
                self.subs.close(&sub);
                None
            }
            ClientMessage::NegOpen { sub, filter, frame } => {
                self.sessions.open(sub, *filter, frame).err()
            }
            ClientMessage::NegMsg { sub, frame } => self.sessions.step(sub, frame).err(),
            ClientMessage::NegClose { sub } => {
                self.sessions.close(&sub);
                None
            }
        };
        if let Some(rejected) = refused {
            self.on_rejected(&rejected);
        }
    }

    fn on_event(&mut self, json: &str) {
        self.relay.metrics.relay.events_received.inc();
        let event = match Unverified::parse(json, &self.relay.limits) {
            Ok(event) => event,
            Err(error) => {
                self.relay.metrics.relay.refused("malformed");
                return self.say(match message::claimed_id(json) {
                    Some(id) => message::ok_error(&id, &error),
                    None => message::notice(&error.to_string()),
                });
            }
        };
        if !self.relay.may_publish(self.peer.network) {
            let refusal = Refusal::AddressRate(self.relay.limits.events_per_minute_per_ip);
            self.relay.metrics.relay.refused(refusal.label());
            return self.say(message::ok_text(&event.id(), false, &refusal.to_string()));
        }
        if event.claim().is_protected() {
            self.ask_who_it_is();
        }
        match self.share.try_room(&event) {
            Some(room) => self.submit(event, room),
            None => {
                let room = Box::pin(self.share.room(&event));
                self.parked = Some((event, room));
            }
        }
    }

    /// Only where the answer matters: some clients take a challenge for a closed door.
    fn ask_who_it_is(&mut self) {
        if let (false, Some(challenge)) = (self.challenged, &self.challenge) {
            self.say(message::auth(challenge));
            self.challenged = true;
        }
    }

    fn submit(&mut self, event: Unverified, room: Room) {
        self.in_flight += 1;
        let origin = Origin::Client {
            authenticated: self.authenticated.clone(),
            network: self.peer.network,
        };
        let reply = Box::new(ClientReply(self.outbox.clone()));
        let ingest = &self.relay.ingest;
        ingest.submit(&mut self.lane, event, origin, reply, room);
    }

    fn unpark(&mut self, room: Room) {
        if let Some((event, _)) = self.parked.take() {
            self.submit(event, room);
        }
    }

    /// NIP-42. The signature, the expensive part, is checked last: who does not know the challenge
    /// of this connection does not get that far.
    fn on_auth(&mut self, json: &str) {
        let event = match Unverified::parse(json, &self.relay.limits) {
            Ok(event) => event,
            Err(error) => {
                return self.say(match message::claimed_id(json) {
                    Some(id) => message::ok_error(&id, &error),
                    None => message::notice(&error.to_string()),
                });
            }
        };
        let id = event.id();
        let frame = match self.authenticate(event) {
            Ok(()) => message::ok_text(&id, true, ""),
            Err(reason) => message::ok_text(&id, false, &reason),
        };
        self.say(frame);
    }

    fn authenticate(&mut self, event: Unverified) -> Result<(), String> {
        let challenge = self.challenge.as_deref().unwrap_or_default();
        let most = self.relay.limits.authenticated_keys;
        let key = auth::check(event.claim(), challenge, &self.relay.service, unix_now())
            .map_err(|error| error.to_string())?;
        if self.authenticated.contains(&key) {
            return Ok(());
        }
        if self.authenticated.len() >= most {
            return Err(format!("blocked: more than {most} keys on one connection"));
        }
        if !self.relay.may_publish(self.peer.network) {
            let rate = self.relay.limits.events_per_minute_per_ip;
            return Err(Refusal::AddressRate(rate).to_string());
        }
        event
            .verify(signature::is_valid)
            .map_err(|error| error.to_string())?;
        self.authenticated.push(key);
        Ok(())
    }

    fn on_count(&mut self, sub: String, filters: Vec<grasp_core::Filter>) -> Option<Rejected> {
        while self.counts.try_join_next().is_some() {}
        let most = self.relay.limits.counts;
        if self.counts.len() >= most {
            let reason = format!("rate-limited: more than {most} COUNTs at once");
            return Some(Rejected::Closed { sub, reason });
        }
        let values = match self.subs.values().take(&filters) {
            Ok(values) => values,
            Err(reason) => return Some(Rejected::Closed { sub, reason }),
        };
        let name = message::quote(&sub).into();
        let count = query::count(
            Arc::clone(&self.relay),
            self.outbox.clone(),
            Arc::clone(&self.items),
            name,
            filters,
        );
        self.counts.spawn(async move {
            count.await;
            drop(values);
        });
        None
    }

    // Writing

    /// Writes what waits, as much as there is, in one go.
    async fn deliver(&mut self, first: Out) -> Result<(), End> {
        let mut batch = Batch::default();
        let mut next = Some(first);
        while let Some(out) = next {
            self.unfold(out, &mut batch);
            next = (batch.frames.len() < MAX_GATHERED)
                .then(|| self.queue.try_recv().ok())
                .flatten();
        }
        let write = async {
            for frame in batch.frames {
                self.ws.feed(Message::Text(frame)).await?;
            }
            self.ws.flush().await
        };
        tokio::select! {
            biased;
            scarce = self.peer.eviction.evicted() => Err(End::Evicted(scarce)),
            written = timeout(self.relay.limits.write_timeout, write) => match written {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => Err(End::Gone),
                Err(_) => Err(End::TooSlow),
            },
        }
    }

    /// Turns one entry of the outbox into the frames that it means now.
    fn unfold(&mut self, out: Out, batch: &mut Batch) {
        let Batch {
            frames,
            windows,
            held,
        } = batch;
        match out {
            Out::Text(frame) => frames.push(frame),
            Out::Answer(frame) => {
                self.in_flight = self.in_flight.saturating_sub(1);
                frames.push(frame);
            }
            Out::Stored {
                sub,
                frames: stored,
                window,
            } => {
                if self.subs.is_open(sub) {
                    frames.extend(stored);
                    let (own, of_all) = window.into_held();
                    windows.push(own);
                    held.push(of_all);
                }
            }
            Out::QueryDone { sub, result } => self.subs.query_done(sub, result, batch),
            Out::Live(live) => self.subs.live(live, batch),
            Out::NegOpened { session, result } => {
                frames.extend(self.sessions.opened(session, result))
            }
            Out::NegReply { session, result } => {
                frames.extend(self.sessions.replied(session, result))
            }
        }
    }

    async fn tick(&mut self) -> Result<(), End> {
        for frame in self.sessions.close_idle() {
            self.say(frame);
        }
        let silent = self.last_heard.elapsed();
        if silent > self.relay.limits.websocket_idle {
            return Err(End::Idle);
        }
        if silent >= self.relay.limits.ping_interval / 2 {
            let ping = self.ws.send(Message::Ping(bytes::Bytes::new()));
            return match timeout(self.relay.limits.write_timeout, ping).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => Err(End::Gone),
                Err(_) => Err(End::TooSlow),
            };
        }
        Ok(())
    }

    /// Says why, if the other side still listens.
    async fn last_word(mut self, end: &End) {
        let limits = &self.relay.limits;
        let (code, reason) = match end {
            End::Gone => (close_code::NORMAL, String::new()),
            End::Idle => (close_code::AWAY, "idle for too long".to_owned()),
            End::TooSlow | End::Evicted(Scarce::Outbox) => {
                self.relay.metrics.relay.slow_readers.inc();
                (close_code::POLICY, Scarce::Outbox.reason().to_owned())
            }
            End::Evicted(scarce) => {
                self.relay.metrics.connection_refused("evicted");
                (close_code::POLICY, scarce.reason().to_owned())
            }
            End::TooLarge => {
                let reason = format!("message is larger than {} bytes", limits.message_bytes);
                (close_code::SIZE, reason)
            }
            End::Shutdown => (close_code::AWAY, "the relay is shutting down".to_owned()),
        };
        let farewell = async {
            if !matches!(end, End::Gone | End::Shutdown) {
                self.ws
                    .feed(Message::Text(message::notice(&format!("error: {reason}"))))
                    .await?;
            }
            let reason = reason.into();
            self.ws
                .send(Message::Close(Some(CloseFrame { code, reason })))
                .await?;
            // Closed with something of theirs unread, the system would take back what is still on
            // its way to them: answers, and this.
            while !matches!(end, End::Gone) && matches!(self.ws.recv().await, Some(Ok(_))) {}
            Ok::<_, axum::Error>(())
        };
        let _ = timeout(LAST_WORD, farewell).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.relay.live.leave(self.id);
        self.relay.metrics.relay.connections.dec();
    }
}

async fn wait_for_room(parked: &mut Option<(Unverified, BoxFuture<'static, Room>)>) -> Room {
    match parked {
        Some((_, room)) => room.await,
        None => std::future::pending().await,
    }
}

async fn wait_until(then: Option<tokio::time::Instant>) {
    match then {
        Some(then) => tokio::time::sleep_until(then).await,
        None => std::future::pending().await,
    }
}

fn is_too_large(error: axum::Error) -> bool {
    let inner = error.into_inner();
    matches!(
        inner.downcast_ref::<tungstenite::Error>(),
        Some(tungstenite::Error::Capacity(_))
    )
}

/// 128 bits that nobody can guess.
fn challenge() -> Option<String> {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Some(grasp_core::id::to_hex(&bytes)),
        Err(error) => {
            tracing::error!(%error, "no randomness: AUTH is off for this connection");
            None
        }
    }
}

struct ClientReply(Outbox);

impl Reply for ClientReply {
    fn send(self: Box<Self>, id: EventId, word: Word) {
        self.0.send(Out::Answer(message::ok(&id, &word)));
    }
}

#[cfg(test)]
mod tests;
