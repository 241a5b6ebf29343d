//! What these tests share beyond the testkit: servers that several tests use, a websocket with
//! headers of its own, and an HTTP client that sends exactly what it is told.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use grasp_core::Event;
use testkit::{Author, Client, Server, Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// Far beyond any answer of a healthy server, also on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// Between two looks at a condition that nobody announces.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub fn bin() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ngit-grasp"))
}

pub fn start(env: &[(&str, &str)]) -> Server {
    Server::start(bin(), env)
}

/// Says that a test could not be run here, past the harness, which keeps to itself what tests that
/// pass have printed. `.ci/run` looks for these lines.
pub fn skipped(what: &str) {
    writeln!(std::io::stderr(), "skipped: {what}").expect("stderr");
}

/// A command of the binary, in a directory of a server.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub fn run(args: &[&str], env: &[(&str, &str)], dir: &Path) -> Ran {
    let output = Server::run(bin(), args, env, dir);
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// One server for all tests that run at the same time. It ends with the last of them, which a
/// plain static would not.
pub struct Shared {
    server: Mutex<Weak<Server>>,
    env: &'static [(&'static str, &'static str)],
}

impl Shared {
    pub const fn new(env: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            server: Mutex::new(Weak::new()),
            env,
        }
    }

    pub fn get(&self) -> Arc<Server> {
        let mut running = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        running.upgrade().unwrap_or_else(|| {
            let server = Arc::new(start(self.env));
            *running = Arc::downgrade(&server);
            server
        })
    }
}

static RELAY: Shared = Shared::new(&[("NGIT_EVENTS_PER_MINUTE_PER_KEY", "0")]);

/// A server with the default limits, but for the rate of one author.
pub fn relay() -> Arc<Server> {
    RELAY.get()
}

pub async fn client(server: &Server) -> Client {
    Client::connect(&server.ws_url()).await
}

/// An author whom no other test has.
pub fn author() -> Author {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Author::new(NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn to_json(event: &Event) -> Value {
    serde_json::from_str(event.json()).expect("an event is JSON")
}

pub fn by(author: &Author) -> Value {
    json!({"authors": [author.pubkey()]})
}

pub fn id_of(event: &Value) -> String {
    event["id"].as_str().expect("an event has an id").to_owned()
}

pub fn ids_of(events: &[Value]) -> Vec<String> {
    events.iter().map(id_of).collect()
}

pub fn ids(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| event.id.to_string()).collect()
}

pub fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

pub async fn accept(client: &mut Client, event: &Event) {
    assert_eq!(client.publish(event).await, (true, String::new()));
}

pub async fn accept_all(client: &mut Client, events: &[Event]) {
    for event in events {
        accept(client, event).await;
    }
}

pub async fn refuse(client: &mut Client, event: &Event, prefix: &str) -> String {
    let (accepted, text) = client.publish(event).await;
    assert!(
        !accepted && text.starts_with(prefix),
        "{accepted} {text:?} for {event:?}"
    );
    text
}

/// The connection still answers.
pub async fn assert_alive(client: &mut Client) {
    client
        .send(&json!(["COUNT", "alive", {"kinds": [7]}]))
        .await;
    assert_eq!(client.expect("COUNT").await[1], "alive");
}

/// What is stored, under an id that is used once: nothing live is mixed in, now or later.
pub async fn stored(client: &mut Client, filters: &[Value]) -> Vec<Value> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let sub = format!("stored {}", NEXT.fetch_add(1, Ordering::Relaxed));
    let events = client.request(&sub, filters).await;
    client.send(&json!(["CLOSE", sub])).await;
    events
}

/// Looks until the condition holds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = Instant::now() + DEADLINE;
    let mut looks = tokio::time::interval(LOOK_AGAIN);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        looks.tick().await;
    }
}

/// SIGTERM, without waiting for the end.
pub fn ask_to_stop(server: &Server) {
    let pid = server.pid().to_string();
    let sent = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(sent.expect("run kill").success());
}

/// The value of a metric with its labels, zero if it has none yet.
pub fn metric(server: &Server, name: &str) -> f64 {
    let text = get(server.addr(), "/metrics").body;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().expect("a number"))
}

/// A program that sets a limit of the shell and becomes the server.
pub fn limited(dir: &Path, limit: &str) -> PathBuf {
    let text = format!("ulimit {limit}\nexec '{}'\n", bin().display());
    script(dir, "limited.sh", &text)
}

/// A program of the shell.
pub fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    // Written by a child: a file that this process has open for writing, and so each child that
    // another test forks meanwhile, could not be executed.
    let written = Command::new("sh")
        .args(["-c", r#"printf '%s' "$1" > "$0" && chmod 755 "$0""#])
        .arg(&path)
        .arg(format!("#!/bin/sh\n{text}"))
        .status();
    assert!(written.expect("run sh").success());
    path
}

/// A websocket whose handshake carries headers of the test's choice.
pub struct Socket(WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>);

/// What a server says at last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Farewell {
    pub code: u16,
    pub reason: String,
}

impl Socket {
    pub async fn connect(server: &Server, headers: &[(&'static str, &str)]) -> Self {
        Self::try_connect(server, headers)
            .await
            .unwrap_or_else(|status| panic!("refused with status {status}"))
    }

    /// The HTTP status of a refusal, if it is one.
    pub async fn try_connect(
        server: &Server,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, u16> {
        let mut request = server.ws_url().into_client_request().expect("a URL");
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).expect("a header value");
            let name = HeaderName::from_static(name);
            request.headers_mut().append(name, value);
        }
        let connected = timeout(DEADLINE, connect_async(request)).await;
        match connected.expect("an answer to the handshake in time") {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("connect: {error}"),
        }
    }

    pub async fn from(server: &Server, ip: &str) -> Self {
        Self::connect(server, &[("x-forwarded-for", ip)]).await
    }

    pub async fn send(&mut self, message: Message) {
        self.try_send(message).await.expect("send");
    }

    pub async fn try_send(&mut self, message: Message) -> Result<(), tungstenite::Error> {
        let sent = timeout(DEADLINE, self.0.send(message)).await;
        sent.expect("the server reads")
    }

    /// The next text that is no challenge, or what the server said when it closed.
    pub async fn next(&mut self) -> Result<Value, Option<Farewell>> {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            let frame = tokio::time::timeout_at(deadline, self.0.next()).await;
            match frame.expect("a message in time") {
                Some(Ok(Message::Text(text))) => {
                    let message: Value = serde_json::from_str(&text).expect("JSON");
                    if message[0] != "AUTH" {
                        return Ok(message);
                    }
                }
                Some(Ok(Message::Close(frame))) => {
                    return Err(frame.map(|frame| Farewell {
                        code: frame.code.into(),
                        reason: frame.reason.to_string(),
                    }));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    pub async fn publish(&mut self, event: &Event) -> (bool, String) {
        let text = format!(r#"["EVENT",{}]"#, event.json());
        self.send(Message::text(text)).await;
        let ok = self.next().await.expect("an OK");
        assert_eq!((&ok[0], &ok[1]), (&json!("OK"), &json!(event.id)));
        (
            ok[2].as_bool().expect("a verdict"),
            ok[3].as_str().expect("a text").to_owned(),
        )
    }

    pub async fn close(mut self) {
        let _ = self.0.close(None).await;
        while self.next().await.is_ok() {}
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1);
        let mut headers = lines.filter_map(|line| line.split_once(':'));
        headers
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }

    pub fn assert_cors(&self) {
        assert_eq!(
            self.header("access-control-allow-origin"),
            Some("*"),
            "{self:?}"
        );
        assert_eq!(
            self.header("access-control-allow-methods"),
            Some("GET, POST, OPTIONS"),
            "{self:?}"
        );
        let allowed = self.header("access-control-allow-headers").unwrap_or("");
        for name in [
            "Content-Type",
            "Authorization",
            "Accept",
            "Git-Protocol",
            "Content-Encoding",
            "X-Requested-With",
        ] {
            assert!(
                allowed.split(", ").any(|found| found == name),
                "{name}: {self:?}"
            );
        }
    }
}

pub fn tcp(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("connect");
    stream
        .set_read_timeout(Some(DEADLINE))
        .expect("a read timeout");
    stream
}

pub fn get(addr: SocketAddr, path: &str) -> Reply {
    request(addr, "GET", path, &[])
}

pub fn request(addr: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
    exchange(
        addr,
        &head(
            method,
            path,
            &[headers, &[("Connection", "close")]].concat(),
        ),
    )
}

pub fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head + "\r\n"
}

/// Sends a text on a connection of its own and reads one response. One to HEAD ends with the
/// connection.
pub fn exchange(addr: SocketAddr, text: &str) -> Reply {
    let mut stream = tcp(addr);
    // A server that turns us away does not wait for the request.
    let _ = stream.write_all(text.as_bytes());
    read_reply(&mut stream)
}

pub fn read_reply(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            // A signal, such as the end of a process.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // It may close with something of ours unread.
            Err(error) if error.kind() == ErrorKind::ConnectionReset && !bytes.is_empty() => break,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
        }
        if is_whole(&bytes) {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text.as_str(), ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Reply {
        status: status.unwrap_or_else(|| panic!("no HTTP response: {text:?}")),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, _)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>())
    });
    match length {
        Some(length) => bytes.len() >= head.len() + 4 + length.expect("a length"),
        None => head.starts_with("HTTP/1.1 101"),
    }
}

/// What comes on a connection until the server ends it, within the deadline.
pub fn read_until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        // Ended while something of ours was unread.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("not closed: {error}"),
    }
}

pub const HANDSHAKE: [(&str, &str); 4] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];
