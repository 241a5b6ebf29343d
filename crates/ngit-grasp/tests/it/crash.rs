//! The promise of an OK: the process is killed at random moments under load, and whatever it
//! acknowledged is there when it starts again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{SinkExt as _, StreamExt as _};
use grasp_core::Event;
use testkit::{Author, Server, Value, json, now};
use tokio::sync::Notify;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{DEADLINE, client, start, stored, to_json};

const ROUNDS: usize = 50;
const CONNECTIONS: usize = 4;
const EACH: usize = 60;

/// What all connections of a round have been told.
#[derive(Default)]
struct Round {
    acknowledged: AtomicUsize,
    /// At so many OKs the process is killed.
    kill_at: usize,
    enough: Notify,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_kill_at_any_moment() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut server = start(&[
        ("NGIT_EVENTS_PER_MINUTE_PER_KEY", "0"),
        ("NGIT_MAX_QUERY_RESULTS", "2000"),
        ("NGIT_LOG_LEVEL", "warn,ngit_grasp=info"),
    ]);
    let author = Author::new(seed);
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        let bursts: Vec<Vec<Event>> = (0..CONNECTIONS)
            .map(|n| burst(&author, &mut dice, round, n))
            .collect();
        let state = Arc::new(Round {
            kill_at: dice.usize(0..CONNECTIONS * EACH),
            ..Round::default()
        });
        let writers: Vec<_> = bursts
            .into_iter()
            .map(|burst| tokio::spawn(publish(server.ws_url(), burst, Arc::clone(&state))))
            .collect();
        if state.kill_at > 0 {
            let enough = tokio::time::timeout(DEADLINE, state.enough.notified()).await;
            enough.unwrap_or_else(|_| panic!("seed {seed}, round {round}: no OKs"));
        }
        // The next commit is under way by now, and not at the same place each time.
        server.kill9();
        let mut told = Vec::new();
        for writer in writers {
            told.extend(writer.await.unwrap());
        }
        server.restart();
        assert_there(&server, &told, &format!("seed {seed}, round {round}")).await;
        all.extend(told);
    }
    assert_there(&server, &all, &format!("seed {seed}, at the end")).await;
    assert!(all.len() > ROUNDS * 10, "{} events", all.len());
}

/// Events of several sizes, so that commits end at odd places of a page.
fn burst(author: &Author, dice: &mut fastrand::Rng, round: usize, n: usize) -> Vec<Event> {
    (0..EACH)
        .map(|m| {
            let content = format!("{round}/{n}/{m} {}", "x".repeat(dice.usize(0..3_000)));
            author.event(1, now(), &[&["t", &format!("{}", m % 7)]], &content)
        })
        .collect()
}

/// Publishes without waiting, and returns what got an OK before the end.
async fn publish(url: String, events: Vec<Event>, round: Arc<Round>) -> Vec<Event> {
    let Ok((socket, _)) = connect_async(url).await else {
        return Vec::new();
    };
    let (mut sink, mut stream) = socket.split();
    let texts: Vec<Message> = events
        .iter()
        .map(|event| Message::text(format!(r#"["EVENT",{}]"#, event.json())))
        .collect();
    let sending = tokio::spawn(async move {
        for text in texts {
            if sink.send(text).await.is_err() {
                break;
            }
        }
        sink
    });
    let mut told = Vec::new();
    while told.len() < events.len() {
        let Some(Ok(message)) = stream.next().await else {
            break;
        };
        let message: Value = match &message {
            Message::Text(text) => serde_json::from_str(text).unwrap(),
            _ => continue,
        };
        if message[0] == "OK" {
            assert_eq!(message[2], true, "{message}");
            let id = message[1].as_str().unwrap();
            let event = events.iter().find(|event| event.id.to_string() == id);
            told.push(event.unwrap().clone());
            let before = round.acknowledged.fetch_add(1, Ordering::Relaxed);
            if before + 1 >= round.kill_at {
                round.enough.notify_one();
            }
        }
    }
    let _ = sending.await;
    told
}

async fn assert_there(server: &Server, told: &[Event], when: &str) {
    let mut client = client(server).await;
    for events in told.chunks(1_000) {
        let ids: Vec<_> = events.iter().map(|event| event.id).collect();
        let found = stored(&mut client, &[json!({"ids": ids})]).await;
        for event in events {
            assert!(found.contains(&to_json(event)), "{when}: {event:?}");
        }
    }
}
