//! A websocket client for tests: says what it waited for when an answer does not come.
//! Messages that belong to something else are kept for the next reader, never lost.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use grasp_core::Event;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// Far beyond any answer of a healthy server, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

pub const FORWARDED_FOR: &str = "x-forwarded-for";
/// A setting under which clients on this machine are taken for those whose address they name.
pub const FROM_ELSEWHERE: (&str, &str) = ("NGIT_TRUSTED_PROXIES", "127.0.0.1");

#[derive(Debug)]
pub struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// The latest NIP-42 challenge.
    pub challenge: Option<String>,
    /// Read while waiting for something else.
    backlog: VecDeque<Value>,
}

enum Received {
    Message(Value),
    /// With code and reason, if the server said any.
    Ended(Option<(u16, String)>),
    Nothing,
}

impl Client {
    pub async fn connect(url: &str) -> Self {
        let request = url.into_client_request();
        Self::open(url, request.expect("a URL")).await
    }

    /// As a client at another address, by the word of the proxy that this machine is to servers
    /// which trust it ([`FROM_ELSEWHERE`]).
    pub async fn connect_from(url: &str, address: &str) -> Self {
        let mut request = url.into_client_request().expect("a URL");
        let address = HeaderValue::from_str(address).expect("an address");
        request.headers_mut().insert(FORWARDED_FOR, address);
        Self::open(url, request).await
    }

    async fn open(url: &str, request: Request) -> Self {
        let connected = timeout_at(Instant::now() + DEADLINE, connect_async(request))
            .await
            .unwrap_or_else(|_| panic!("no connection to {url} within {DEADLINE:?}"));
        let (socket, _) = connected.unwrap_or_else(|error| panic!("connect to {url}: {error}"));
        Self::over(socket)
    }

    /// For tests whose server may be gone.
    pub async fn try_connect(url: &str) -> Option<Self> {
        let connected = timeout_at(Instant::now() + DEADLINE, connect_async(url)).await;
        let (socket, _) = connected.ok()?.ok()?;
        Some(Self::over(socket))
    }

    fn over(socket: WebSocketStream<MaybeTlsStream<TcpStream>>) -> Self {
        Self {
            socket,
            challenge: None,
            backlog: VecDeque::new(),
        }
    }

    pub async fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string()).await;
    }

    pub async fn send_text(&mut self, text: &str) {
        let sent = self.socket.send(Message::text(text));
        timeout_at(Instant::now() + DEADLINE, sent)
            .await
            .unwrap_or_else(|_| panic!("the server did not read within {DEADLINE:?}"))
            .unwrap_or_else(|error| panic!("send: {error}"));
    }

    /// The next message that is not a challenge.
    pub async fn next(&mut self) -> Value {
        self.next_for("a message").await
    }

    /// The next message that is not a challenge, if one comes in time.
    pub async fn try_next(&mut self, patience: Duration) -> Option<Value> {
        if let Some(message) = self.backlog.pop_front() {
            return Some(message);
        }
        let deadline = Instant::now() + patience;
        loop {
            match self.receive(deadline).await {
                Received::Message(message) if self.is_challenge(&message) => {}
                Received::Message(message) => return Some(message),
                Received::Ended(why) => panic!("the server closed the connection: {why:?}"),
                Received::Nothing => return None,
            }
        }
    }

    /// The next message, which must be of that type.
    pub async fn expect(&mut self, wanted: &str) -> Value {
        self.expect_skipping(wanted, &[]).await
    }

    /// The next message of that type; only messages of the types to skip may come before it.
    pub async fn expect_skipping(&mut self, wanted: &str, skip: &[&str]) -> Value {
        loop {
            let message = self.next_for(wanted).await;
            let found = type_of(&message);
            if found == wanted {
                return message;
            }
            assert!(skip.contains(&found), "not {wanted} but {message}");
        }
    }

    /// Sends an event and returns its OK: accepted or not, and the text.
    pub async fn publish(&mut self, event: &Event) -> (bool, String) {
        self.send_text(&format!(r#"["EVENT",{}]"#, event.json()))
            .await;
        let id = event.id.to_string();
        let ok = self
            .find("the event's OK", |message| {
                type_of(message) == "OK" && message[1] == id.as_str()
            })
            .await;
        let accepted = ok[2].as_bool();
        let text = ok[3].as_str();
        match (accepted, text) {
            (Some(accepted), Some(text)) => (accepted, text.to_owned()),
            _ => panic!("not an OK message: {ok}"),
        }
    }

    /// The OK of an event, if the server lives long enough to send it. For connections that do
    /// nothing else.
    pub async fn try_publish(&mut self, event: &Event) -> Option<(bool, String)> {
        let text = format!(r#"["EVENT",{}]"#, event.json());
        self.socket.send(Message::text(text)).await.ok()?;
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.receive(deadline).await {
                Received::Message(ok) if type_of(&ok) == "OK" => {
                    return Some((ok[2].as_bool()?, ok[3].as_str()?.to_owned()));
                }
                Received::Message(_) => {}
                Received::Ended(_) => return None,
                Received::Nothing => panic!("no OK within {DEADLINE:?}"),
            }
        }
    }

    /// Opens a subscription and returns the events that are sent before EOSE.
    pub async fn request(&mut self, sub: &str, filters: &[Value]) -> Vec<Value> {
        let mut message = vec![json!("REQ"), json!(sub)];
        message.extend_from_slice(filters);
        self.send(&Value::Array(message)).await;
        let mut events = Vec::new();
        loop {
            let answer = self
                .find("an EVENT or EOSE", |message| {
                    message[1] == sub && matches!(type_of(message), "EVENT" | "EOSE" | "CLOSED")
                })
                .await;
            match type_of(&answer) {
                "EVENT" => events.push(answer[2].clone()),
                "EOSE" => return events,
                _ => panic!("the subscription was refused: {answer}"),
            }
        }
    }

    /// The reason in the next message, which must be a CLOSED.
    pub async fn closed_reason(&mut self) -> String {
        let closed = self.expect("CLOSED").await;
        match closed[2].as_str() {
            Some(reason) => reason.to_owned(),
            None => panic!("a CLOSED without a reason: {closed}"),
        }
    }

    /// Waits for the challenge that a server sends on its own.
    pub async fn await_challenge(&mut self) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(challenge) = &self.challenge {
                return challenge.clone();
            }
            match self.receive(deadline).await {
                Received::Message(message) if self.is_challenge(&message) => {}
                Received::Message(message) => self.backlog.push_back(message),
                Received::Ended(why) => panic!("the server closed the connection: {why:?}"),
                Received::Nothing => panic!("no AUTH challenge within {DEADLINE:?}"),
            }
        }
    }

    /// Waits until the server ends the connection; its close code and reason, if it said any.
    pub async fn disconnected(&mut self) -> Option<(u16, String)> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.receive(deadline).await {
                Received::Message(_) => {}
                Received::Ended(why) => return why,
                Received::Nothing => panic!("still connected after {DEADLINE:?}"),
            }
        }
    }

    /// Says goodbye and waits for the server's.
    pub async fn close(mut self) {
        // A connection that is gone already is closed.
        let _ = self.socket.close(None).await;
        self.disconnected().await;
    }

    async fn next_for(&mut self, purpose: &str) -> Value {
        match self.try_next(DEADLINE).await {
            Some(message) => message,
            None => panic!("waited {DEADLINE:?} for {purpose}, nothing came"),
        }
    }

    /// The first message that fits; those before it stay for later readers.
    async fn find(&mut self, purpose: &str, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(index) = self.backlog.iter().position(&fits) {
            return self.backlog.remove(index).expect("the index was found");
        }
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.receive(deadline).await {
                Received::Message(message) if self.is_challenge(&message) => {}
                Received::Message(message) if fits(&message) => return message,
                Received::Message(message) => self.backlog.push_back(message),
                Received::Ended(why) => panic!("closed while waiting for {purpose}: {why:?}"),
                Received::Nothing => panic!(
                    "waited {DEADLINE:?} for {purpose}, other messages: {:?}",
                    self.backlog
                ),
            }
        }
    }

    fn is_challenge(&mut self, message: &Value) -> bool {
        let challenge = match type_of(message) {
            "AUTH" => message[1].as_str(),
            _ => return false,
        };
        self.challenge = challenge.map(str::to_owned);
        true
    }

    async fn receive(&mut self, deadline: Instant) -> Received {
        loop {
            let frame = match timeout_at(deadline, self.socket.next()).await {
                Err(_) => return Received::Nothing,
                Ok(None | Some(Err(_))) => return Received::Ended(None),
                Ok(Some(Ok(frame))) => frame,
            };
            match frame {
                Message::Text(text) => return Received::Message(parse(&text)),
                Message::Close(why) => {
                    let why = why.map(|frame| (frame.code.into(), frame.reason.to_string()));
                    return Received::Ended(why);
                }
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("relays send texts, not {other:?}"),
            }
        }
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"))
}

fn type_of(message: &Value) -> &str {
    message[0].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::author::Author;

    /// A server of one connection: greets with a challenge, then answers each text with a list
    /// of texts.
    async fn scripted(script: Vec<Vec<String>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
            socket
                .send(Message::text(r#"["AUTH","challenge"]"#))
                .await
                .unwrap();
            for answers in script {
                socket.next().await.unwrap().unwrap();
                for answer in answers {
                    socket.send(Message::text(answer)).await.unwrap();
                }
            }
            while let Some(Ok(_)) = socket.next().await {}
        });
        url
    }

    #[tokio::test]
    async fn a_publish_keeps_what_is_not_its_answer() {
        let event = Author::new(1).event(1, 1, &[], "");
        let live = r#"["EVENT","live",{}]"#.to_owned();
        let ok = format!(r#"["OK","{}",false,"blocked: no"]"#, event.id);
        let mut client = Client::connect(&scripted(vec![vec![live, ok]]).await).await;
        assert_eq!(
            client.publish(&event).await,
            (false, "blocked: no".to_owned())
        );
        assert_eq!(client.challenge.as_deref(), Some("challenge"));
        assert_eq!(client.expect("EVENT").await[1], "live");
        client.close().await;
    }

    #[tokio::test]
    async fn a_request_collects_its_own_events() {
        let answers = [
            r#"["EVENT","other",{"id":"x"}]"#,
            r#"["EVENT","sub",{"id":"a"}]"#,
            r#"["EVENT","sub",{"id":"b"}]"#,
            r#"["EOSE","sub"]"#,
        ];
        let script = vec![answers.map(str::to_owned).to_vec()];
        let mut client = Client::connect(&scripted(script).await).await;
        let events = client.request("sub", &[json!({"kinds": [1]})]).await;
        assert_eq!(events, [json!({"id": "a"}), json!({"id": "b"})]);
        assert_eq!(client.next().await[1], "other");
        assert_eq!(client.try_next(Duration::ZERO).await, None);
    }

    #[tokio::test]
    async fn a_challenge_can_be_awaited() {
        let mut client = Client::connect(&scripted(Vec::new()).await).await;
        assert_eq!(client.await_challenge().await, "challenge");
    }
}
