//! Clients that cost little themselves: messages are made beforehand, answers only counted.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Instant;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// Events on their way without an answer, per connection.
const PIPELINE: usize = 512;

pub struct Wire {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub sent: usize,
    pub received: usize,
}

impl Wire {
    pub async fn connect(url: &str) -> Self {
        let (socket, _) = connect_async(url).await.expect("the server answers");
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_nodelay(true).expect("a TCP option");
        }
        Self {
            socket,
            sent: 0,
            received: 0,
        }
    }

    pub async fn send(&mut self, text: String) {
        self.sent += text.len();
        self.socket
            .send(Message::text(text))
            .await
            .expect("the server reads");
    }

    /// The next text message.
    pub async fn next(&mut self) -> String {
        loop {
            let message = self
                .socket
                .next()
                .await
                .expect("the server talks")
                .expect("valid frames");
            if let Message::Text(text) = message {
                self.received += text.len();
                return text.to_string();
            }
        }
    }

    /// The next message of that type.
    pub async fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let text = self.next().await;
            if text.starts_with(&format!("[\"{kind}\"")) {
                return serde_json::from_str(&text).expect("JSON");
            }
        }
    }

    /// Publishes all messages with a bounded pipeline; every one must be accepted.
    pub async fn publish(&mut self, messages: Vec<String>) {
        let mut waiting = 0;
        for message in messages {
            self.sent += message.len();
            self.socket
                .feed(Message::text(message))
                .await
                .expect("the server reads");
            waiting += 1;
            if waiting == PIPELINE {
                self.socket.flush().await.expect("the server reads");
                while waiting > PIPELINE / 2 {
                    self.accepted().await;
                    waiting -= 1;
                }
            }
        }
        self.socket.flush().await.expect("the server reads");
        for _ in 0..waiting {
            self.accepted().await;
        }
    }

    async fn accepted(&mut self) {
        loop {
            let text = self.next().await;
            if text.starts_with("[\"OK\"") {
                assert!(text.contains(",true,"), "{text}");
                return;
            }
        }
    }

    /// Runs one query; returns its duration in milliseconds and the number of events.
    pub async fn query(&mut self, filter: &Value) -> (f64, usize) {
        let request = format!(r#"["REQ","q",{filter}]"#);
        let started = Instant::now();
        self.send(request).await;
        let mut events = 0;
        loop {
            let text = self.next().await;
            if text.starts_with("[\"EVENT\"") {
                events += 1;
            } else if text.starts_with("[\"EOSE\"") {
                return (started.elapsed().as_secs_f64() * 1e3, events);
            }
        }
    }
}

/// The body of a page.
pub fn get(addr: SocketAddr, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(addr).expect("the server listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let body = answer.split_once("\r\n\r\n").expect("a head and a body").1;
    body.to_owned()
}
