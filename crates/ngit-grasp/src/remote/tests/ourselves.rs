//! Both sides are ours: what the hands say, our own relay understands, and the other way round.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::routing::get;
use grasp_core::sync::io::{FromRelay, ToRelay};
use grasp_core::{Event, Filter, Limits, Service, SubNo, Timestamp};
use grasp_store::Store;
use testkit::Author;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::stage::Stage;
use crate::clock::Clock;
use crate::driver;
use crate::ingest::Ingest;
use crate::metrics::Metrics;
use crate::phase::Phase;
use crate::relay::connection::{Connection, Peer};
use crate::relay::{Relay, live};

const KINDS: &str = r#"{"kinds":[1]}"#;

/// Our relay with these events; its address. It ends with the stage's runtime, once the sender
/// is dropped.
fn serve(stage: &Stage, events: &[Event]) -> (String, watch::Sender<Phase>) {
    let (phase, watching) = watch::channel(Phase::Running);
    let store = Arc::new(Store::in_memory());
    store.apply(events).unwrap();
    let (metrics, limits) = (Arc::new(Metrics::new().unwrap()), Limits::default());
    let (driver, _) = driver::channel();
    let (ingest, _) = Ingest::start(1, limits.ingest_shares(), &store, &driver, &metrics).unwrap();
    let (live, _) = live::start(Arc::clone(&metrics)).unwrap();
    let listener = stage.wait(TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    let service = Service::of_host("127.0.0.1", Some(port));
    let clock = Clock::start();
    let relay = Relay::new(
        store, ingest, live, limits, metrics, clock, service, watching,
    );
    let relay = Arc::new(relay);
    let upgrade = move |upgrade: WebSocketUpgrade| async move {
        let peer = Peer::default();
        upgrade.on_upgrade(move |socket| Connection::new(relay, peer, socket).run())
    };
    let router: Router = Router::new().route("/", get(upgrade));
    stage
        .runtime
        .spawn(async move { axum::serve(listener, router).await });
    (format!("ws://127.0.0.1:{port}"), phase)
}

fn notes(count: u64) -> Vec<Event> {
    let author = Author::new(1);
    let note = |n: u64| author.event(1, 1_000 + n / 3, &[], &n.to_string());
    (0..count).map(note).collect()
}

#[test]
fn our_own_relay_is_asked_and_compared() {
    let stage = Stage::new();
    let events = notes(2_000);
    let (url, _phase) = serve(&stage, &events[100..]);
    stage.store.apply(&events[..1_900]).unwrap();
    stage.dial(&url);
    assert_eq!(stage.word(), FromRelay::Up);
    let filter = Filter::parse(KINDS).unwrap();
    stage.ask(ToRelay::Reconcile {
        sub: SubNo(1),
        filter: Box::new(filter),
        aside: [].into(),
        most: 20_000,
    });
    let mut needs = BTreeSet::new();
    let from = loop {
        match stage.word() {
            FromRelay::Needs { ids, .. } => needs.extend(ids),
            FromRelay::Reconciled { from, lacks, .. } => {
                assert_eq!(lacks, 100);
                break from;
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(from, Timestamp(0));
    let missing: BTreeSet<_> = events[1_900..].iter().map(|event| event.id).collect();
    assert_eq!(needs, missing);

    let ids = Filter {
        ids: Some(needs.into_iter().collect()),
        ..Filter::default()
    };
    stage.ask(ToRelay::Subscribe {
        sub: SubNo(2),
        filters: [ids].into(),
        most: Some(100),
    });
    let (brought, eose) = stage.until_eose();
    let brought: BTreeSet<_> = brought.iter().map(|event| event.id).collect();
    assert_eq!(brought, missing);
    let complete = FromRelay::Eose {
        sub: SubNo(2),
        sent: 100,
        complete: true,
    };
    assert_eq!(eose, complete);
}
