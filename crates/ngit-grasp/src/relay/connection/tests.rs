use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::routing::get;
use futures_util::StreamExt as _;
use grasp_core::Limits;
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
    inbox: driver::Inbox,
}

impl Silent {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        Self::checking(limits, 0)
    }

    /// With threads that check events, which then wait for a driver that answers none.
    fn checking(limits: Limits, threads: usize) -> Self {
        let (phase, watching) = watch::channel(Phase::Running);
        let (relay, inbox) = silent(limits, threads, watching);
        Self {
            relay: Arc::new(relay),
            phase,
            inbox,
        }
    }

    async fn connect(&self) -> WebSocketStream<DuplexStream> {
        self.connect_from(None).await
    }

    async fn connect_from(&self, ip: Option<&str>) -> WebSocketStream<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let relay = Arc::clone(&self.relay);
        let network = ip.map(|ip| Network::of(ip.parse().unwrap()));
        let peer = Peer {
            network,
            ..Peer::default()
        };
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

/// COUNTs and queries wait and are never worked on.
fn nothing_is_worked_on() -> Limits {
    Limits {
        queries_at_once: 0,
        ..Limits::default()
    }
}

async fn count(client: &mut WebSocketStream<DuplexStream>, name: usize, values: usize) {
    let values: Vec<String> = (0..values).map(|n| format!("\"{n}\"")).collect();
    let values = values.join(",");
    let text = format!(r##"["COUNT","{name}",{{"#t":[{values}]}}]"##);
    client.send(Said::text(text)).await.unwrap();
}

async fn answer(client: &mut WebSocketStream<DuplexStream>) -> String {
    match client.next().await {
        Some(Ok(Said::Text(text))) => text.to_string(),
        other => panic!("no answer but {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn sixteen_counts_wait_and_no_more() {
    let silent = Silent::with(nothing_is_worked_on());
    let mut client = silent.connect().await;
    for name in 0..=16 {
        count(&mut client, name, 1).await;
    }
    assert_eq!(
        answer(&mut client).await,
        r#"["CLOSED","16","rate-limited: more than 16 COUNTs at once"]"#
    );
}

#[tokio::test(start_paused = true)]
async fn what_waiting_counts_name_is_counted_with_subscriptions() {
    let limits = Limits {
        connection_values: 10,
        ..nothing_is_worked_on()
    };
    let silent = Silent::with(limits);
    let mut client = silent.connect().await;
    count(&mut client, 0, 6).await;
    count(&mut client, 1, 6).await;
    let refused = answer(&mut client).await;
    assert!(
        refused.contains("blocked: more than 10 filter values"),
        "{refused}"
    );
    let text = r##"["REQ","2",{"#t":["1","2","3","4","5"]}]"##;
    client.send(Said::text(text)).await.unwrap();
    let refused = answer(&mut client).await;
    assert!(
        refused.starts_with(r#"["CLOSED","2","blocked: "#),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_filters_of_one_address_do_not_take_the_place_of_another_ones() {
    let limits = Limits {
        connection_values: 10,
        filter_values_total: 100,
        ..nothing_is_worked_on()
    };
    let silent = Silent::with(limits);
    let mut hostile = Vec::new();
    for n in 0..3 {
        let mut client = silent.connect_from(Some("203.0.113.9")).await;
        count(&mut client, n, 8).await;
        hostile.push(client);
    }
    let mut last = hostile.pop().unwrap();
    let refused = answer(&mut last).await;
    let says = "rate-limited: more than 20 filter values from your address";
    assert!(refused.contains(says), "{refused}");
    let mut other = silent.connect_from(Some("198.51.100.20")).await;
    count(&mut other, 0, 8).await;
    count(&mut other, 1, 8).await;
    let refused = answer(&mut other).await;
    assert!(
        refused.contains("blocked: more than 10"),
        "the second one: {refused}"
    );
}

#[tokio::test]
async fn the_events_of_one_address_do_not_take_the_memory_of_all() {
    let limits = Limits {
        event_bytes: 4 * 1024,
        ingest_bytes: 64 * 1024,
        ..Limits::default()
    };
    let silent = Silent::checking(limits, 1);
    let author = testkit::Author::new(1);
    let large = |n: u64| author.event(1, testkit::now() - n, &[], &"x".repeat(3_000));
    let mut hostile = silent.connect_from(Some("203.0.113.9")).await;
    for n in 0..30 {
        let text = format!(r#"["EVENT",{}]"#, large(n).json());
        hostile.send(Said::text(text)).await.unwrap();
    }
    let patience = Duration::from_secs(10);
    let submitted = async || loop {
        // The connection's task needs this thread.
        tokio::task::yield_now().await;
        match silent.inbox.next(Duration::from_millis(1)) {
            Some(driver::Heard::Submitted(submission)) => break submission,
            _ => continue,
        }
    };
    let mut held = vec![timeout(patience, submitted()).await.expect("one of many")];
    let other = large(1_000);
    let mut bystander = silent.connect_from(Some("198.51.100.20")).await;
    let text = format!(r#"["EVENT",{}]"#, other.json());
    bystander.send(Said::text(text)).await.unwrap();
    while held.last().is_some_and(|last| last.event.id != other.id) {
        held.push(
            timeout(patience, submitted())
                .await
                .expect("the bystander's"),
        );
    }
    assert!(held.len() <= 4, "{} of one address before it", held.len());
}

#[tokio::test]
async fn the_sessions_of_one_address_do_not_take_the_room_of_all() {
    let limits = Limits {
        neg_items_total: 32,
        ..Limits::default()
    };
    let silent = Silent::with(limits);
    let author = testkit::Author::new(1);
    for n in 1..=3 {
        let event = author.event(1, n, &[], "");
        silent.relay.store.apply([&event]).unwrap();
    }
    let open = |name: usize| Said::text(format!(r#"["NEG-OPEN","{name}",{{}},"61"]"#));
    let mut hostile = silent.connect_from(Some("203.0.113.9")).await;
    hostile.send(open(0)).await.unwrap();
    assert!(answer(&mut hostile).await.starts_with(r#"["NEG-MSG","0""#));
    hostile.send(open(1)).await.unwrap();
    let refused = answer(&mut hostile).await;
    let says = "rate-limited: more than 4 events in open sessions and counts from your address";
    assert!(refused.contains(says), "{refused}");
    let mut bystander = silent.connect_from(Some("198.51.100.20")).await;
    bystander.send(open(0)).await.unwrap();
    assert!(
        answer(&mut bystander)
            .await
            .starts_with(r#"["NEG-MSG","0""#)
    );
    let more = [4, 5].map(|n| author.event(1, n, &[], ""));
    for event in more {
        silent.relay.store.apply([&event]).unwrap();
    }
    bystander.send(open(1)).await.unwrap();
    let refused = answer(&mut bystander).await;
    assert!(
        refused.contains("blocked: more than 4 events match"),
        "{refused}"
    );
}
