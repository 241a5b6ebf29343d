//! The hands on one side, a relay that says what a test wants on the other.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use grasp_core::sync::io::{End, FromRelay, ToRelay};
use grasp_core::{ConnNo, Event, Filter, Limits, RelayNo, RelayUrl, SubNo};
use grasp_store::Store;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::config::AuthKey;
use crate::driver::{self, Heard, Inbox, Submission};
use crate::identity::Identity;
use crate::ingest::Ingest;
use crate::metrics::Metrics;
use crate::remote::auth::Signer;
use crate::remote::guard::Reach;
use crate::remote::{Options, Remotes};

const PATIENCE: Duration = Duration::from_secs(20);
pub const INSTANCE: &str = "this very process";
pub const RELAY: RelayNo = RelayNo(3);
const CONN: ConnNo = ConnNo(5);

pub struct Stage {
    pub runtime: Runtime,
    pub remotes: Remotes,
    pub store: Arc<Store>,
    inbox: Inbox,
    listener: TcpListener,
}

pub fn options() -> Options {
    let owner = Identity::present(Some(&"07".repeat(32)), Path::new("nowhere")).unwrap();
    Options {
        reach: Reach {
            allow_private: true,
            ..Reach::default()
        },
        connect_timeout: PATIENCE,
        beat: PATIENCE,
        signer: Signer::new(AuthKey::Service, &owner),
        instance: INSTANCE.to_owned(),
    }
}

impl Stage {
    pub fn new() -> Self {
        Self::with(options())
    }

    pub fn with(options: Options) -> Self {
        Self::within(options, Limits::default())
    }

    pub fn within(options: Options, limits: Limits) -> Self {
        let runtime = Runtime::new().unwrap();
        let _inside = runtime.enter();
        let (driver, inbox) = driver::channel();
        let (store, metrics) = (
            Arc::new(Store::in_memory()),
            Arc::new(Metrics::new().unwrap()),
        );
        let (ingest, _) =
            Ingest::start(1, limits.ingest_shares(), &store, &driver, &metrics).unwrap();
        let remotes = Remotes::start(options, limits, &store, ingest, driver, &metrics).unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        drop(_inside);
        Self {
            runtime,
            remotes,
            store,
            inbox,
            listener,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Waits, but not for ever.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let patient = async { tokio::time::timeout(PATIENCE, future).await };
        self.runtime.block_on(patient).expect("it takes too long")
    }

    pub fn ask(&self, ask: ToRelay) {
        self.remotes.perform(RELAY, CONN, ask);
    }

    pub fn dial(&self, url: &str) {
        let url = RelayUrl::parse(url).unwrap();
        let trusted = false;
        self.ask(ToRelay::Dial { url, trusted });
    }

    pub fn dial_here(&self) {
        self.dial(&format!("ws://{}", self.address()));
    }

    /// The next TCP connection.
    pub fn accept(&self) -> TcpStream {
        self.wait(self.listener.accept()).unwrap().0
    }

    /// An open connection, and the relay at its other end.
    pub fn connected(&self) -> Peer {
        self.dial_here();
        let stream = self.accept();
        let socket = self.wait(tokio_tungstenite::accept_async(stream)).unwrap();
        assert_eq!(self.word(), FromRelay::Up);
        Peer { socket }
    }

    pub fn subscribe(&self, sub: u32, filter: &str, most: Option<u32>) {
        let filters = [Filter::parse(filter).unwrap()].into();
        let sub = SubNo(sub);
        self.ask(ToRelay::Subscribe { sub, filters, most });
    }

    /// The request, as the relay hears it.
    pub fn subscribed(&self, peer: &mut Peer, sub: u32, filter: &str, most: Option<u32>) -> Value {
        self.subscribe(sub, filter, most);
        self.hear(peer)
    }

    fn heard(&self, patience: Duration) -> Option<Heard> {
        self.inbox.next(patience)
    }

    pub fn word(&self) -> FromRelay {
        match self.heard(PATIENCE).expect("a word") {
            Heard::Remote(relay, _, word) => {
                assert_eq!(relay, RELAY);
                word
            }
            Heard::Submitted(submission) => panic!("{:?} instead of a word", submission.event),
        }
    }

    pub fn submitted(&self) -> Submission {
        match self.heard(PATIENCE).expect("an event") {
            Heard::Submitted(submission) => *submission,
            Heard::Remote(_, _, word) => panic!("{word:?} instead of an event"),
        }
    }

    /// A subscription's EOSE, and all events that came before it, in whatever order.
    pub fn until_eose(&self) -> (Vec<Arc<Event>>, FromRelay) {
        let (mut events, mut eose, mut expected) = (Vec::new(), None, usize::MAX);
        while events.len() < expected {
            match self.heard(PATIENCE).expect("an event or the EOSE") {
                Heard::Submitted(submission) => events.push(submission.event),
                Heard::Remote(_, _, word) => {
                    if let FromRelay::Eose { sent, .. } = &word {
                        expected = *sent as usize;
                    }
                    assert!(eose.replace(word).is_none(), "one word is expected");
                }
            }
        }
        (events, eose.expect("an EOSE"))
    }

    /// What comes soon, if anything does.
    pub fn next_word(&self) -> Option<FromRelay> {
        match self.heard(Duration::from_millis(50))? {
            Heard::Remote(_, _, word) => Some(word),
            Heard::Submitted(_) => None,
        }
    }

    /// Nothing comes for a while.
    pub fn is_quiet(&self) -> bool {
        self.heard(Duration::from_millis(200)).is_none()
    }

    pub fn ends_with(&self, end: End) {
        assert_eq!(self.word(), FromRelay::Down(end));
    }

    pub fn say(&self, peer: &mut Peer, frame: Value) {
        let message = Message::Text(frame.to_string().into());
        self.wait(peer.socket.send(message)).unwrap();
    }

    /// As a relay sends an event of a subscription.
    pub fn deliver(&self, peer: &mut Peer, sub: &str, event: &Event) {
        let frame = format!(r#"["EVENT","{sub}",{}]"#, event.json());
        self.wait(peer.socket.send(Message::Text(frame.into())))
            .unwrap();
    }

    /// The next message that the relay gets; `Null` when the connection is closed.
    pub fn hear(&self, peer: &mut Peer) -> Value {
        loop {
            match self.wait(peer.socket.next()) {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Value::Null,
                Some(Ok(_)) => {}
            }
        }
    }

    /// Reads a request's head and answers it with this, whatever it was.
    pub fn answer_http(&self, mut stream: TcpStream, answer: &str) -> String {
        self.wait(async {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(head).unwrap()
        })
    }
}

/// The relay's end.
pub struct Peer {
    pub socket: WebSocketStream<TcpStream>,
}
