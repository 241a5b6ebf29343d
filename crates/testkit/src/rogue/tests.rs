use grasp_core::Filter;
use negentropy::{Negentropy, NegentropyStorageVector};
use serde_json::json;
use tokio::time::Instant;

use super::conversation::{NEG_FRAME, OVERSIZED, from_hex};
use super::*;
use crate::author::Author;
use crate::client::Client;

fn note(n: u64) -> Event {
    Author::new(1).event(1, 100 + n, &[&["t", "x"]], &n.to_string())
}

async fn with_notes(count: u64, faults: &[Fault]) -> (Rogue, Client) {
    let rogue = Rogue::start(faults).await;
    for n in 0..count {
        rogue.publish(&note(n));
    }
    let client = Client::connect(&rogue.ws_url()).await;
    (rogue, client)
}

fn contents(events: &[Value]) -> Vec<&str> {
    let contents = events.iter().map(|event| event["content"].as_str());
    contents.map(Option::unwrap_or_default).collect()
}

#[tokio::test]
async fn an_honest_relay_answers_by_filter_newest_first_and_goes_on_live() {
    let (rogue, mut client) = with_notes(5, &[]).await;
    let filter = json!({"kinds": [1], "until": 103, "limit": 2});
    let found = client.request("a", &[filter]).await;
    assert_eq!(contents(&found), ["3", "2"]);
    client.request("b", &[json!({"kinds": [7]})]).await;
    rogue.publish(&note(2));
    rogue.publish(&note(1_000));
    rogue.publish(&Author::new(1).event(7, 50, &[], "+"));
    let live = client.expect("EVENT").await;
    assert_eq!((&live[1], &live[2]["content"]), (&json!("b"), &json!("+")));
    client.send(&json!(["CLOSE", "b"])).await;
    let mine = note(2_000);
    assert!(client.publish(&mine).await.0);
    assert!(rogue.has(&mine));
    let seen = rogue.wait("all of it", |seen| seen.asked.len() == 4).await;
    assert_eq!((seen.reqs(), seen.events_sent, seen.open), (2, 3, 1));
}

#[tokio::test]
async fn an_honest_relay_compares_sets() {
    let (_rogue, mut client) = with_notes(30, &[]).await;
    let mut items = NegentropyStorageVector::new();
    items.seal().unwrap();
    let mut side = Negentropy::borrowed(&items, NEG_FRAME).unwrap();
    let frame = grasp_core::id::to_hex(&side.initiate().unwrap());
    client
        .send(&json!(["NEG-OPEN", "n", {"kinds": [1]}, frame]))
        .await;
    let reply = client.expect("NEG-MSG").await;
    let reply = from_hex(reply[2].as_str().unwrap()).unwrap();
    let (mut have, mut need) = (Vec::new(), Vec::new());
    let more = side.reconcile_with_ids(&reply, &mut have, &mut need);
    assert_eq!(more.unwrap(), None);
    assert_eq!((have.len(), need.len()), (0, 30));
}

#[tokio::test]
async fn faults_in_what_is_sent() {
    let all = [json!({"kinds": [1]})];
    let (_rogue, mut client) = with_notes(5, &[Fault::SilentCap(2)]).await;
    assert_eq!(contents(&client.request("a", &all).await), ["4", "3"]);
    let (_rogue, mut client) = with_notes(2, &[Fault::Repeats]).await;
    assert_eq!(
        contents(&client.request("a", &all).await),
        ["1", "1", "0", "0"]
    );
    let (_rogue, mut client) = with_notes(1, &[Fault::OffFilter]).await;
    assert_eq!(
        contents(&client.request("a", &all).await),
        ["0", "nobody asked"]
    );
    let (_rogue, mut client) = with_notes(1, &[Fault::BadSignatures]).await;
    let forged = client.request("a", &all).await;
    assert_eq!(forged[0]["sig"], "0".repeat(128));
    assert_eq!(forged[0]["id"], note(0).id.to_string());
}

#[tokio::test]
async fn faults_in_how_an_answer_ends() {
    let ask = json!(["REQ", "a", {"kinds": [1]}]);
    let (_rogue, mut client) = with_notes(0, &[Fault::EoseTwice]).await;
    client.send(&ask).await;
    client.expect("EOSE").await;
    client.expect("EOSE").await;
    let late = Duration::from_millis(50);
    let (_rogue, mut client) = with_notes(0, &[Fault::EoseLate(late)]).await;
    let asked = Instant::now();
    client.send(&ask).await;
    client.expect("EOSE").await;
    assert!(asked.elapsed() >= late);
    for fault in [Fault::EoseNever, Fault::Mute] {
        let (rogue, mut client) = with_notes(0, &[fault]).await;
        client.send(&ask).await;
        rogue.wait("the request", |seen| seen.reqs() == 1).await;
        assert_eq!(client.try_next(late).await, None);
    }
    let (_rogue, mut client) = with_notes(0, &[Fault::Oversized]).await;
    client.send(&ask).await;
    assert!(client.next().await.to_string().len() > OVERSIZED);
}

#[tokio::test]
async fn an_endless_answer_fits_and_ends_with_a_close() {
    let (rogue, mut client) = with_notes(0, &[Fault::Endless]).await;
    let filter = json!({"kinds": [1621], "#t": ["x"], "until": 1_000});
    client.send(&json!(["REQ", "a", filter])).await;
    let filter = Filter::parse(&filter.to_string()).unwrap();
    for _ in 0..50 {
        let event = client.expect("EVENT").await;
        let event = Event::from_stored(&event[2].to_string()).unwrap();
        assert!(filter.matches(&event));
    }
    client.send(&json!(["CLOSE", "a"])).await;
    client.send(&json!(["PING"])).await;
    client.expect_skipping("NOTICE", &["EVENT"]).await;
    assert_eq!(rogue.seen().count("CLOSE"), 1);
}

#[tokio::test]
async fn refusals() {
    let ask = |sub: &str| json!(["REQ", sub, {"kinds": [1]}]);
    let (_rogue, mut client) = with_notes(0, &[Fault::RateLimited]).await;
    client.send(&ask("a")).await;
    assert!(client.closed_reason().await.starts_with("rate-limited:"));
    let (_rogue, mut client) = with_notes(0, &[Fault::TooManyReqs(1)]).await;
    client.send(&ask("a")).await;
    client.expect("EOSE").await;
    client.send(&ask("b")).await;
    let notice = client.expect("NOTICE").await;
    assert_eq!(notice[1], "ERROR: too many concurrent REQs");
    client.send(&json!(["CLOSE", "a"])).await;
    client.send(&ask("b")).await;
    client.expect("EOSE").await;
    let (_rogue, mut client) = with_notes(0, &[Fault::DemandsAuth]).await;
    client.await_challenge().await;
    client.send(&ask("a")).await;
    assert!(client.closed_reason().await.starts_with("auth-required:"));
    client.send(&json!(["AUTH", {"id": "1"}])).await;
    client.expect("OK").await;
    client.send(&ask("a")).await;
    client.expect("EOSE").await;
    let (_rogue, mut client) = with_notes(0, &[Fault::NoNegentropy]).await;
    client.send(&json!(["NEG-OPEN", "n", {}, "61"])).await;
    client.expect("NOTICE").await;
    let (rogue, mut client) = with_notes(3, &[Fault::DropsAfter(2)]).await;
    client.send(&ask("a")).await;
    client.expect("EVENT").await;
    client.expect("EVENT").await;
    client.disconnected().await;
    rogue.wait("the end", |seen| seen.open == 0).await;
}
