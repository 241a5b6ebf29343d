use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::routing::get;
use futures_util::StreamExt as _;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::DuplexStream;
use tokio::time::Instant;
use tokio_tungstenite::{WebSocketStream, client_async};
use tungstenite::Message as Said;

use super::*;
use crate::driver;
use crate::relay::tests::silent;

/// A relay on which nobody checks events: answers never come.
struct Silent {
    relay: Arc<Relay>,
    phase: watch::Sender<Phase>,
    _inbox: driver::Inbox,
}

impl Silent {
    fn new() -> Self {
        let (phase, watching) = watch::channel(Phase::Running);
        let (relay, inbox) = silent(watching);
        Self {
            relay: Arc::new(relay),
            phase,
            _inbox: inbox,
        }
    }

    async fn connect(&self) -> WebSocketStream<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let relay = Arc::clone(&self.relay);
        let peer = Peer { network: None };
        let accept = async move |upgrade: WebSocketUpgrade| {
            upgrade.on_upgrade(move |ws| Connection::new(relay, peer, ws).run())
        };
        let service = TowerToHyperService::new(Router::new().route("/", get(accept)));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(ours), service);
        tokio::spawn(connection.with_upgrades());
        client_async("ws://a.example/", theirs).await.unwrap().0
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_keeps_nobody_from_saying_goodbye() {
    let silent = Silent::new();
    let mut client = silent.connect().await;
    let event = testkit::Author::new(1).event(1, testkit::now(), &[], "unanswered");
    let text = format!(r#"["EVENT",{}]"#, event.json());
    client.send(Said::text(text)).await.unwrap();
    while silent.relay.metrics.relay.events_received.get() == 0 {
        tokio::task::yield_now().await;
    }
    silent.phase.send(Phase::Stopping).unwrap();
    let began = Instant::now();
    let Some(Ok(Said::Close(Some(frame)))) = client.next().await else {
        panic!("no close frame");
    };
    assert_eq!(u16::from(frame.code), close_code::AWAY);
    assert_eq!(began.elapsed().as_secs(), DRAIN.as_secs());
}
