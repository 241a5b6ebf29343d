//! NIP-77: both sides learn the difference, and a client that breaks the rules hurts only its own
//! session.

use grasp_core::Event;
use grasp_core::id::{hex_to_vec, to_hex};
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use testkit::{Author, Client, Value, json, now};

use crate::support::{
    accept, accept_all, assert_alive, author, by, client, ids, relay, sorted, start,
};

#[derive(Debug, Default)]
pub struct Difference {
    /// What only the client has.
    pub have: Vec<String>,
    /// What only the server has.
    pub need: Vec<String>,
    rounds: usize,
}

/// Plays the client until both sides know.
pub async fn difference(client: &mut Client, filter: &Value, local: &[Event]) -> Difference {
    let mut items = NegentropyStorageVector::new();
    for event in local {
        let id = Id::from_byte_array(event.id.0);
        items.insert(event.created_at.0, id).unwrap();
    }
    items.seal().unwrap();
    let mut side = Negentropy::owned(items, 0).unwrap();
    let (mut have, mut need) = (Vec::new(), Vec::new());
    let first = to_hex(&side.initiate().unwrap());
    client
        .send(&json!(["NEG-OPEN", "neg", filter, first]))
        .await;
    let mut rounds = 0;
    loop {
        let answer = client.expect("NEG-MSG").await;
        assert_eq!(answer[1], "neg");
        rounds += 1;
        let frame = hex_to_vec(answer[2].as_str().expect("a frame")).expect("hex");
        let next = side.reconcile_with_ids(&frame, &mut have, &mut need);
        match next.expect("a negentropy message") {
            Some(next) => client.send(&json!(["NEG-MSG", "neg", to_hex(&next)])).await,
            None => break,
        }
    }
    client.send(&json!(["NEG-CLOSE", "neg"])).await;
    let hex = |ids: Vec<Id>| sorted(ids.iter().map(|id| to_hex(&id.to_bytes())).collect());
    Difference {
        have: hex(have),
        need: hex(need),
        rounds,
    }
}

/// A first message that is well-formed and says nothing.
const NOTHING: &str = "61";

fn notes(author: &Author, count: u64) -> Vec<Event> {
    let time = now() - 1_000;
    (0..count)
        .map(|n| author.event(1, time + n / 3, &[], &n.to_string()))
        .collect()
}

#[tokio::test]
async fn both_sides_learn_what_the_other_has() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let events = notes(&author, 300);
    let (stored, rest) = events.split_at(250);
    accept_all(&mut client, stored).await;
    let mut local = stored[30..].to_vec();
    local.extend_from_slice(rest);
    let found = difference(&mut client, &by(&author), &local).await;
    assert_eq!(found.have, sorted(ids(rest)));
    assert_eq!(found.need, sorted(ids(&stored[..30])));
    assert!(found.rounds > 1, "enough events for several rounds");

    let same = difference(&mut client, &by(&author), stored).await;
    assert!(same.have.is_empty() && same.need.is_empty(), "{same:?}");
    let all = difference(&mut client, &by(&author), &[]).await;
    assert_eq!(all.need, sorted(ids(stored)));
    let other_kind = json!({"authors": [author.pubkey()], "kinds": [7]});
    let none = difference(&mut client, &other_kind, &local).await;
    assert!(none.need.is_empty());
    assert_eq!(none.have, sorted(ids(&local)));
}

#[tokio::test]
async fn a_large_difference_comes_in_bounded_frames() {
    let server = start(&[
        ("NGIT_MAX_NEG_FRAME_BYTES", "4KiB"),
        ("NGIT_EVENTS_PER_MINUTE_PER_KEY", "0"),
    ]);
    let author = author();
    let mut client = client(&server).await;
    let events = notes(&author, 600);
    accept_all(&mut client, &events).await;
    let found = difference(&mut client, &by(&author), &[]).await;
    assert_eq!(found.need, sorted(ids(&events)));
    assert!(found.rounds >= 600 * 32 / 4096, "{} rounds", found.rounds);
}

#[tokio::test]
async fn a_limit_in_the_filter_takes_the_newest() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let mut events = notes(&author, 30);
    accept_all(&mut client, &events).await;
    events.sort_by_key(|event| (std::cmp::Reverse(event.created_at), event.id));
    let newest = json!({"authors": [author.pubkey()], "limit": 10});
    let found = difference(&mut client, &newest, &[]).await;
    assert_eq!(found.need, sorted(ids(&events[..10])));
}

async fn neg_error(client: &mut Client, sub: &str) -> String {
    let error = client.expect("NEG-ERR").await;
    assert_eq!(error[1], sub);
    error[2].as_str().expect("a reason").to_owned()
}

#[tokio::test]
async fn a_malformed_reconciliation_gets_an_error_and_the_connection_lives_on() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    accept_all(&mut client, &notes(&author, 3)).await;
    let bad_frames = [
        json!("zz"),
        json!("6"),
        json!("6G"),
        json!("6A"),
        json!(7),
        json!(""),
        json!("00"),
        json!("610000ff"),
        json!("61000002ffffffffffffffff7f"),
        json!(format!("610021{}00", "ff".repeat(33))),
        json!("6100000100"),
    ];
    for frame in bad_frames {
        client
            .send(&json!(["NEG-OPEN", "bad", by(&author), frame]))
            .await;
        let reason = neg_error(&mut client, "bad").await;
        assert!(reason.starts_with("invalid: "), "{frame}: {reason}");
    }
    for filter in [
        json!({"ids": ["A".repeat(64)]}),
        json!([by(&author)]),
        json!("x"),
    ] {
        client
            .send(&json!(["NEG-OPEN", "bad", filter, NOTHING]))
            .await;
        assert!(neg_error(&mut client, "bad").await.starts_with("invalid: "));
    }
    client
        .send(&json!(["NEG-OPEN", "bad", {"search": "x"}, NOTHING]))
        .await;
    assert!(
        neg_error(&mut client, "bad")
            .await
            .starts_with("unsupported: ")
    );
    client.send(&json!(["NEG-OPEN", "bad"])).await;
    neg_error(&mut client, "bad").await;
    client.send(&json!(["NEG-OPEN", "bad", by(&author)])).await;
    neg_error(&mut client, "bad").await;
    client
        .send(&json!(["NEG-OPEN", "x".repeat(65), by(&author), NOTHING]))
        .await;
    neg_error(&mut client, &"x".repeat(65)).await;
    let all = difference(&mut client, &by(&author), &[]).await;
    assert_eq!(all.need.len(), 3);
}

#[tokio::test]
async fn a_message_for_a_session_that_is_not_open_is_an_error() {
    let server = relay();
    let mut client = client(&server).await;
    client.send(&json!(["NEG-MSG", "never", NOTHING])).await;
    let reason = neg_error(&mut client, "never").await;
    assert!(reason.starts_with("closed: "), "{reason}");
    client
        .send(&json!(["NEG-OPEN", "once", {"kinds": [7]}, NOTHING]))
        .await;
    client.expect("NEG-MSG").await;
    client.send(&json!(["NEG-CLOSE", "once"])).await;
    client.send(&json!(["NEG-MSG", "once", NOTHING])).await;
    neg_error(&mut client, "once").await;
    client.send(&json!(["NEG-CLOSE", "once"])).await;
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn a_protocol_version_of_the_future_is_answered_with_ours() {
    let server = relay();
    let mut client = client(&server).await;
    client
        .send(&json!(["NEG-OPEN", "new", {"kinds": [7]}, "62"]))
        .await;
    assert_eq!(
        client.expect("NEG-MSG").await,
        json!(["NEG-MSG", "new", "61"])
    );
}

#[tokio::test]
async fn a_reopened_session_replaces_the_old_one() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let events = notes(&author, 2);
    accept(&mut client, &events[0]).await;
    for _ in 0..20 {
        client
            .send(&json!(["NEG-OPEN", "neg", {"kinds": [7]}, NOTHING]))
            .await;
        client.expect("NEG-MSG").await;
    }
    accept(&mut client, &events[1]).await;
    let found = difference(&mut client, &by(&author), &[]).await;
    assert_eq!(found.need, sorted(ids(&events)), "of the view taken last");
}

#[tokio::test]
async fn sessions_and_subscriptions_do_not_share_their_ids() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    client.request("neg", &[by(&author)]).await;
    let found = difference(&mut client, &by(&author), &[]).await;
    assert!(found.need.is_empty());
    let event = author.event(1, now(), &[], "");
    accept(&mut client, &event).await;
    assert_eq!(client.expect("EVENT").await[1], "neg");
    client
        .send(&json!(["NEG-OPEN", "neg", by(&author), NOTHING]))
        .await;
    client.expect("NEG-MSG").await;
    client.send(&json!(["CLOSE", "neg"])).await;
    client.send(&json!(["NEG-MSG", "neg", NOTHING])).await;
    client.expect("NEG-MSG").await;
}

#[tokio::test]
async fn an_idle_session_is_closed_and_one_in_use_is_not() {
    let server = start(&[("NGIT_NEG_IDLE_SECS", "1")]);
    let mut client = client(&server).await;
    for sub in ["idle", "used"] {
        client
            .send(&json!(["NEG-OPEN", sub, {"kinds": [1]}, NOTHING]))
            .await;
        client.expect("NEG-MSG").await;
    }
    loop {
        client.send(&json!(["NEG-MSG", "used", NOTHING])).await;
        let answer = client.next().await;
        if answer[0] == "NEG-ERR" {
            assert_eq!(answer[1], "idle");
            let reason = answer[2].as_str().expect("a reason");
            assert!(reason.starts_with("closed: "), "{reason}");
            break;
        }
        assert_eq!(
            (&answer[0], &answer[1]),
            (&json!("NEG-MSG"), &json!("used"))
        );
    }
    client.send(&json!(["NEG-MSG", "idle", NOTHING])).await;
    let skipped = client.expect_skipping("NEG-ERR", &["NEG-MSG"]).await;
    assert_eq!(skipped[1], "idle");
}

#[tokio::test]
async fn a_session_that_got_an_error_is_closed() {
    let server = start(&[("NGIT_MAX_NEG_SESSIONS", "1")]);
    let mut client = client(&server).await;
    for bad in ["zz", "00"] {
        client
            .send(&json!(["NEG-OPEN", "first", {"kinds": [1]}, NOTHING]))
            .await;
        client.expect("NEG-MSG").await;
        client.send(&json!(["NEG-MSG", "first", bad])).await;
        neg_error(&mut client, "first").await;
        client
            .send(&json!(["NEG-OPEN", "second", {"kinds": [1]}, NOTHING]))
            .await;
        assert_eq!(client.next().await[0], "NEG-MSG", "after {bad}");
        client.send(&json!(["NEG-CLOSE", "second"])).await;
    }
}
