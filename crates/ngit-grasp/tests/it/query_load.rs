//! Heavy queries of one address, and somebody at another who asks meanwhile.

use std::time::{Duration, Instant};

use testkit::{Author, Client, FROM_ELSEWHERE, Value, json, now};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::support::start;

const CROWD: &str = "203.0.113.5";
const BYSTANDER: &str = "198.51.100.7";
/// Of one address, each with a query that is asked again and again.
const CONNECTIONS: usize = 32;
/// In the queue behind all of them a bystander waits for half a minute and more.
const LONGEST: Duration = Duration::from_secs(5);

/// Lists of servers, which everybody may have stored, with 200 kB of tags each.
async fn store_wide_events(url: &str) -> Vec<String> {
    let padding = "x".repeat(90);
    let tags: Vec<[&str; 2]> = vec![["t", &padding]; 2_000];
    let tags: Vec<&[&str]> = tags.iter().map(<[&str; 2]>::as_slice).collect();
    let mut client = Client::connect_from(url, CROWD).await;
    let mut ids = Vec::new();
    for key in 0..40 {
        let event = Author::new(8_800_000 + key).event(10317, now(), &tags, "");
        let (accepted, text) = client.publish(&event).await;
        assert!(accepted, "{text}");
        ids.push(event.id.to_string());
    }
    ids
}

async fn ask_without_end(url: String, filter: Value, answered: mpsc::UnboundedSender<()>) {
    let mut client = Client::connect_from(&url, CROWD).await;
    for round in 0.. {
        let sub = round.to_string();
        client.send(&json!(["REQ", sub, filter])).await;
        while client
            .try_next(Duration::from_secs(120))
            .await
            .is_some_and(|said| said[0] != "EOSE")
        {}
        let _ = answered.send(());
        client.send(&json!(["CLOSE", sub])).await;
    }
}

#[tokio::test]
async fn heavy_queries_of_one_address_do_not_delay_anothers() {
    let server = start(&[FROM_ELSEWHERE]);
    let url = server.ws_url();
    let ids = store_wide_events(&url).await;
    let filter = json!({"ids": ids, "#t": ["absent"]});
    let (answered, mut answers) = mpsc::unbounded_channel();
    let mut crowd = JoinSet::new();
    for _ in 0..CONNECTIONS {
        crowd.spawn(ask_without_end(
            url.clone(),
            filter.clone(),
            answered.clone(),
        ));
    }
    answers.recv().await.expect("an answer to the crowd");
    let mut client = Client::connect_from(&url, BYSTANDER).await;
    for n in 0..10 {
        let began = Instant::now();
        client
            .request(&n.to_string(), &[json!({"kinds": [1621]})])
            .await;
        let waited = began.elapsed();
        assert!(waited < LONGEST, "a bystander waits {waited:?}");
    }
    crowd.shutdown().await;
}
