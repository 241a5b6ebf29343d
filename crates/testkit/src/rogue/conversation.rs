//! One connection of a relay with faults: what it hears, and what it answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures_util::{SinkExt as _, StreamExt as _};
use grasp_core::{Event, Filter};
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::{Fault, Shared};
use crate::author::{Author, now};

/// More than a relay may send in one frame.
pub(super) const OVERSIZED: usize = 3 * 1024 * 1024;
pub(super) const NEG_FRAME: u64 = 60_000;

/// The connection is over.
pub(super) struct Over;

pub(super) struct Conversation {
    socket: WebSocketStream<TcpStream>,
    shared: Arc<Shared>,
    live: mpsc::UnboundedReceiver<(usize, Arc<Event>)>,
    /// With the number of the first event that is live.
    subs: BTreeMap<String, (Vec<Filter>, usize)>,
    sessions: BTreeMap<String, NegentropyStorageVector>,
    late: VecDeque<(Instant, String)>,
    endless: Option<(String, Filter, u64)>,
    frames: usize,
    knows_us: bool,
}

impl Conversation {
    pub(super) fn new(socket: WebSocketStream<TcpStream>, shared: Arc<Shared>) -> Self {
        let (sender, live) = mpsc::unbounded_channel();
        shared.lock().live.push(sender);
        Self {
            socket,
            knows_us: !shared.has(Fault::DemandsAuth),
            shared,
            live,
            subs: BTreeMap::new(),
            sessions: BTreeMap::new(),
            late: VecDeque::new(),
            endless: None,
            frames: 0,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), Over> {
        if !self.knows_us {
            self.say(json!(["AUTH", "who-are-you"])).await?;
        }
        loop {
            let late = self.late.front().map(|(at, _)| *at);
            let late_at = late.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                frame = self.socket.next() => match frame {
                    Some(Ok(Message::Text(text))) => self.hear(&text).await?,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Over),
                    Some(Ok(_)) => {}
                },
                Some((number, event)) = self.live.recv() => self.deliver(number, &event).await?,
                () = sleep_until(late_at), if late.is_some() => {
                    if let Some((_, sub)) = self.late.pop_front() {
                        self.say(json!(["EOSE", sub])).await?;
                    }
                }
                () = std::future::ready(()), if self.endless.is_some() => self.invent().await?,
            }
        }
    }

    async fn hear(&mut self, text: &str) -> Result<(), Over> {
        let Ok(message) = serde_json::from_str::<Value>(text) else {
            return self.say(json!(["NOTICE", "not JSON"])).await;
        };
        self.shared.see(|seen| seen.asked.push(message.clone()));
        if self.shared.has(Fault::Mute) {
            return Ok(());
        }
        let sub = message[1].as_str().unwrap_or_default().to_owned();
        match message[0].as_str().unwrap_or_default() {
            "REQ" => self.request(sub, &message).await,
            "CLOSE" => {
                self.subs.remove(&sub);
                self.endless.take_if(|(found, ..)| *found == sub);
                Ok(())
            }
            "EVENT" => {
                let event = Event::from_stored(&message[1].to_string());
                let id = message[1]["id"].clone();
                let kept = event.map(|event| self.shared.keep(event)).is_ok();
                self.say(json!(["OK", id, kept, ""])).await
            }
            "AUTH" => {
                self.knows_us = true;
                self.say(json!(["OK", message[1]["id"], true, ""])).await
            }
            "NEG-OPEN" => self.reconcile(sub, &message[2], &message[3]).await,
            "NEG-MSG" => self.go_on(&sub, &message[2]).await,
            "NEG-CLOSE" => {
                self.sessions.remove(&sub);
                Ok(())
            }
            verb => {
                let text = format!("unknown message {verb}");
                self.say(json!(["NOTICE", text])).await
            }
        }
    }

    async fn request(&mut self, sub: String, message: &Value) -> Result<(), Over> {
        let filters = message.as_array().into_iter().flatten().skip(2);
        let filters: Result<Vec<Filter>, _> = filters
            .map(|filter| Filter::parse(&filter.to_string()))
            .collect();
        let Ok(filters) = filters else {
            return self.close(&sub, "invalid: not a filter").await;
        };
        if !self.knows_us {
            return self.close(&sub, "auth-required: say who you are").await;
        }
        if self.shared.has(Fault::RateLimited) {
            return self.close(&sub, "rate-limited: slow down").await;
        }
        let most = self.shared.find(|fault| match fault {
            Fault::TooManyReqs(most) => Some(*most),
            _ => None,
        });
        if most.is_some_and(|most| self.subs.len() >= most) && !self.subs.contains_key(&sub) {
            return self
                .say(json!(["NOTICE", "ERROR: too many concurrent REQs"]))
                .await;
        }
        let (found, first_live) = self.shared.query(&filters);
        for event in found {
            self.send(&sub, event.json()).await?;
        }
        if self.shared.has(Fault::OffFilter) {
            let stray = Author::new(0xbad).event(1, 1, &[], "nobody asked");
            self.send(&sub, stray.json()).await?;
        }
        if self.shared.has(Fault::Endless) {
            let filter = filters.first().cloned().unwrap_or_default();
            self.endless = Some((sub.clone(), filter, 0));
        }
        self.subs.insert(sub.clone(), (filters, first_live));
        self.end_of_stored(sub).await
    }

    async fn end_of_stored(&mut self, sub: String) -> Result<(), Over> {
        if self.shared.has(Fault::EoseNever) || self.endless.is_some() {
            return Ok(());
        }
        if self.shared.has(Fault::Oversized) {
            let text = "x".repeat(OVERSIZED);
            return self.say(json!(["NOTICE", text])).await;
        }
        let late = self.shared.find(|fault| match fault {
            Fault::EoseLate(delay) => Some(*delay),
            _ => None,
        });
        if let Some(delay) = late {
            self.late.push_back((Instant::now() + delay, sub));
            return Ok(());
        }
        if self.shared.has(Fault::EoseTwice) {
            self.say(json!(["EOSE", sub])).await?;
        }
        self.say(json!(["EOSE", sub])).await
    }

    async fn deliver(&mut self, number: usize, event: &Event) -> Result<(), Over> {
        let watches = |(filters, first): &(Vec<Filter>, usize)| {
            number >= *first && filters.iter().any(|filter| filter.matches(event))
        };
        let subs = self.subs.iter().filter(|(_, watched)| watches(watched));
        let subs: Vec<String> = subs.map(|(sub, _)| sub.clone()).collect();
        for sub in subs {
            self.send(&sub, event.json()).await?;
        }
        Ok(())
    }

    /// One more event that fits.
    async fn invent(&mut self) -> Result<(), Over> {
        let Some((sub, filter, number)) = self.endless.as_mut() else {
            return Ok(());
        };
        *number += 1;
        let kind = filter.kinds.as_ref().and_then(|kinds| kinds.first());
        let until = filter.until.map_or_else(now, |until| until.0);
        let since = filter.since.map_or(0, |since| since.0);
        let tags = filter.tags.iter().map(|(letter, values)| {
            let value = values.first().cloned().unwrap_or_default();
            vec![char::from(*letter).to_string(), value]
        });
        let event = Author::new(0xbad).event_tags(
            kind.map_or(1111, |kind| kind.0),
            until.saturating_sub(*number).max(since),
            tags.collect(),
            &number.to_string(),
        );
        let sub = sub.clone();
        self.send(&sub, event.json()).await
    }

    async fn reconcile(&mut self, sub: String, filter: &Value, frame: &Value) -> Result<(), Over> {
        if self.shared.has(Fault::NoNegentropy) {
            let text = "ERROR: bad msg: negentropy disabled";
            return self.say(json!(["NOTICE", text])).await;
        }
        let Ok(mut filter) = Filter::parse(&filter.to_string()) else {
            return self.say(json!(["NEG-ERR", sub, "invalid: filter"])).await;
        };
        filter.limit = None;
        let mut items = NegentropyStorageVector::new();
        for event in self.shared.query(&[filter]).0 {
            let id = Id::from_byte_array(event.id.0);
            items
                .insert(event.created_at.0, id)
                .expect("not sealed yet");
        }
        items.seal().expect("sealed once");
        self.sessions.insert(sub.clone(), items);
        self.go_on(&sub, frame).await
    }

    async fn go_on(&mut self, sub: &str, frame: &Value) -> Result<(), Over> {
        let items = self.sessions.get(sub);
        let frame = frame.as_str().and_then(from_hex);
        let (Some(items), Some(frame)) = (items, frame) else {
            return self
                .say(json!(["NEG-ERR", sub, "closed: no such session"]))
                .await;
        };
        let mut side = Negentropy::borrowed(items, NEG_FRAME).expect("a fair frame size");
        let reply = match side.reconcile(&frame) {
            Ok(reply) => json!(["NEG-MSG", sub, grasp_core::id::to_hex(&reply)]),
            Err(error) => json!(["NEG-ERR", sub, format!("invalid: {error}")]),
        };
        self.say(reply).await
    }

    async fn close(&mut self, sub: &str, why: &str) -> Result<(), Over> {
        self.say(json!(["CLOSED", sub, why])).await
    }

    async fn send(&mut self, sub: &str, event: &str) -> Result<(), Over> {
        let mut event = event.to_owned();
        if self.shared.has(Fault::BadSignatures) {
            let mut forged: Value = serde_json::from_str(&event).expect("an event is JSON");
            forged["sig"] = Value::String("0".repeat(128));
            event = forged.to_string();
        }
        let times = if self.shared.has(Fault::Repeats) {
            2
        } else {
            1
        };
        for _ in 0..times {
            self.shared.see(|seen| seen.events_sent += 1);
            self.write(format!(r#"["EVENT",{},{event}]"#, json!(sub)))
                .await?;
        }
        Ok(())
    }

    async fn say(&mut self, message: Value) -> Result<(), Over> {
        self.write(message.to_string()).await
    }

    async fn write(&mut self, text: String) -> Result<(), Over> {
        if self.shared.has(Fault::DropsAfter(self.frames)) {
            return Err(Over);
        }
        self.frames += 1;
        let sent = self.socket.send(Message::text(text)).await;
        sent.map_err(|_| Over)
    }
}

pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|digit| digit.to_digit(16).map(|digit| digit as u8))
        .collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(
        digits
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect(),
    )
}
