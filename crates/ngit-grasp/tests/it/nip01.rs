//! NIP-01: what is published can be read, every message has its answer, and a subscription gets
//! every event once.

use std::collections::HashMap;

use grasp_core::Event;
use testkit::{Author, Client, Server, Value, json, now};
use tokio_tungstenite::tungstenite::Message;

use crate::support::{
    Socket, accept, accept_all, assert_alive, author, by, client, id_of, ids, ids_of, refuse,
    relay, sorted, start, stored, to_json,
};

#[tokio::test]
async fn an_event_is_read_back_as_it_was_published() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let content = "quotes \" and \\ and \n and \u{1f980} and \u{7f}\u{8}\u{c}";
    let event = author.event(1, now(), &[&["t", "x", "y"], &["e"], &[]], content);
    accept(&mut client, &event).await;
    let found = stored(&mut client, &[json!({"ids": [event.id]}), by(&author)]).await;
    assert_eq!(found, [to_json(&event)]);
}

#[tokio::test]
async fn every_event_gets_an_ok_and_a_duplicate_is_fine() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let event = author.event(1, now(), &[], "");
    accept(&mut client, &event).await;
    for _ in 0..2 {
        let (accepted, text) = client.publish(&event).await;
        assert!(accepted && text.starts_with("duplicate: "), "{text}");
    }
}

#[tokio::test]
async fn an_event_sent_several_times_at_once_is_stored_once() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let event = author.event(1, now(), &[], "");
    for _ in 0..20 {
        client
            .send_text(&format!(r#"["EVENT",{}]"#, event.json()))
            .await;
    }
    let mut new = 0;
    for _ in 0..20 {
        let ok = client.expect("OK").await;
        assert_eq!(
            (&ok[1], &ok[2]),
            (&json!(event.id), &json!(true)),
            "the answer is {ok}"
        );
        new += usize::from(ok[3] == "");
    }
    assert_eq!(new, 1);
    assert_eq!(stored(&mut client, &[by(&author)]).await.len(), 1);
}

#[tokio::test]
async fn a_wrong_id_or_signature_is_refused_and_not_stored() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let (good, other) = (
        author.event(1, now(), &[], "one"),
        author.event(1, now(), &[], "two"),
    );
    let mut wrong_id = to_json(&good);
    wrong_id["content"] = json!("three");
    let mut wrong_signature = to_json(&good);
    wrong_signature["sig"] = json!(other.sig);
    let mut impossible_key = to_json(&good);
    impossible_key["pubkey"] = json!("f".repeat(64));
    for event in [wrong_id, wrong_signature, impossible_key] {
        client.send(&json!(["EVENT", event])).await;
        let ok = client.expect("OK").await;
        assert_eq!((&ok[1], &ok[2]), (&event["id"], &json!(false)));
        assert!(
            ok[3]
                .as_str()
                .is_some_and(|text| text.starts_with("invalid: ")),
            "{ok}"
        );
    }
    assert_eq!(stored(&mut client, &[by(&author)]).await, [Value::Null; 0]);
    accept(&mut client, &good).await;
}

#[tokio::test]
async fn a_malformed_event_is_answered_by_its_id_if_it_has_one() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let good = to_json(&author.event(1, now(), &[], ""));
    let breakages = [
        ("sig", Value::Null),
        ("kind", json!(65_536)),
        ("kind", json!("1")),
        ("created_at", json!(-1)),
        ("created_at", json!(1.5)),
        ("tags", json!([[1]])),
        ("tags", json!({})),
        ("content", json!(null)),
        ("pubkey", json!("ABCD")),
    ];
    for (field, value) in breakages {
        let mut event = good.clone();
        event[field] = value;
        client.send(&json!(["EVENT", event])).await;
        let ok = client.expect("OK").await;
        assert_eq!((&ok[1], &ok[2]), (&good["id"], &json!(false)), "{field}");
        assert!(
            ok[3]
                .as_str()
                .is_some_and(|text| text.starts_with("invalid: ")),
            "{ok}"
        );
    }
    for id in [json!(null), json!(7), json!("beef"), json!("F".repeat(64))] {
        let mut event = good.clone();
        event["id"] = id;
        client.send(&json!(["EVENT", event])).await;
        client.expect("NOTICE").await;
    }
    client.send(&json!(["EVENT", "text"])).await;
    client.expect("NOTICE").await;
    client.send(&json!(["EVENT"])).await;
    client.expect("NOTICE").await;
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn a_request_of_thirteen_filters_without_limit_gets_each_event_once_and_its_eose() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let me = author.pubkey().to_string();
    let root = author.event(1621, now(), &[&["d", &me]], "");
    let root_id = root.id.to_string();
    let address = format!("30023:{me}:thirteen");
    let events = [
        author.event(30023, now(), &[&["d", "thirteen"]], ""),
        author.event(1621, now(), &[&["a", &address]], ""),
        author.event(1111, now(), &[&["E", &root_id], &["e", &root_id]], ""),
        author.event(1630, now(), &[&["e", &root_id], &["p", &me]], ""),
        root,
    ];
    accept_all(&mut client, &events).await;
    let filters = [
        json!({"kinds": [30023], "#d": ["thirteen"], "authors": [me]}),
        json!({"kinds": [30024], "#d": ["thirteen"], "authors": [me]}),
        json!({"#a": [address]}),
        json!({"#A": [address]}),
        json!({"#e": [root_id]}),
        json!({"#E": [root_id]}),
        json!({"#q": [root_id, address]}),
        json!({"#d": [me]}),
        json!({"ids": [root_id]}),
        json!({"#p": [me]}),
        json!({"kinds": [1630, 1631, 1632, 1633], "#e": [root_id]}),
        json!({"kinds": [10317], "authors": [me]}),
        json!({"authors": [me], "since": 1, "until": now() + 1}),
    ];
    let found = stored(&mut client, &filters).await;
    assert_eq!(sorted(ids_of(&found)), sorted(ids(&events)));
}

#[tokio::test]
async fn the_newest_come_first_and_ties_by_lowest_id() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let start = now() - 100;
    let mut events: Vec<Event> = (0..40)
        .map(|n| author.event(1, start + n % 5, &[&["t", "order"]], &n.to_string()))
        .collect();
    accept_all(&mut client, &events).await;
    events.sort_by_key(|event| (std::cmp::Reverse(event.created_at), event.id));
    let wanted = ids(&events);
    assert_eq!(ids_of(&stored(&mut client, &[by(&author)]).await), wanted);
    let filters = [
        json!({"authors": [author.pubkey()], "limit": 11}),
        json!({"authors": [author.pubkey()], "kinds": [1], "limit": 11}),
        json!({"authors": [author.pubkey()], "#t": ["order", "other"], "limit": 11}),
    ];
    for filter in filters {
        assert_eq!(ids_of(&stored(&mut client, &[filter]).await), wanted[..11]);
    }
    let window = json!({"authors": [author.pubkey()], "since": start + 1, "until": start + 2});
    assert_eq!(stored(&mut client, &[window]).await.len(), 16);
}

#[tokio::test]
async fn a_limit_of_zero_means_only_what_is_live() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    accept(&mut client, &author.event(1, now(), &[], "old")).await;
    let filter = json!({"authors": [author.pubkey()], "limit": 0});
    assert_eq!(client.request("zero", &[filter]).await, [Value::Null; 0]);
    let new = author.event(1, now(), &[], "new");
    accept(&mut client, &new).await;
    assert_eq!(
        client.expect("EVENT").await,
        json!(["EVENT", "zero", to_json(&new)])
    );
}

#[tokio::test]
async fn what_is_published_after_eose_comes_at_once_to_everybody_who_asked() {
    let (server, author) = (relay(), author());
    let mut writer = client(&server).await;
    let mut readers = [
        client(&server).await,
        client(&server).await,
        client(&server).await,
    ];
    for reader in &mut readers {
        reader.request("live", &[by(&author)]).await;
        // Twice on the same connection: each subscription gets its own.
        reader
            .request("also", &[by(&author), json!({"kinds": [7]})])
            .await;
    }
    let event = author.event(7, now(), &[], "+");
    accept(&mut writer, &event).await;
    for reader in &mut readers {
        let mut subs = Vec::new();
        for _ in 0..2 {
            let message = reader.expect("EVENT").await;
            assert_eq!(message[2], to_json(&event));
            subs.push(message[1].as_str().map(str::to_owned));
        }
        let subs = sorted(subs);
        assert_eq!(subs, [Some("also".to_owned()), Some("live".to_owned())]);
        assert_alive(reader).await;
    }
}

/// Several writers publish while several readers subscribe in the middle of it.
#[tokio::test]
async fn nothing_is_lost_and_nothing_comes_twice_when_subscribing_while_others_publish() {
    const WRITERS: usize = 4;
    const EACH: usize = 100;
    let server = relay();
    for round in 0..4 {
        let author = author();
        let time = now();
        let events: Vec<Event> = (0..WRITERS * EACH)
            .map(|n| author.event(1, time - n as u64 % 7, &[], &n.to_string()))
            .collect();
        let writers = events
            .chunks(EACH)
            .map(|events| tokio::spawn(write(server.ws_url(), events.to_vec())));
        let writers: Vec<_> = writers.collect();
        let readers: Vec<_> = (0..6)
            .map(|n| {
                let after = (n * 37 + round * 11) % EACH;
                tokio::spawn(read_all(
                    server.ws_url(),
                    author.clone(),
                    events[after].clone(),
                ))
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        let mut last = client(&server).await;
        let marker = author.event(20_000, now(), &[], "the end");
        for reader in readers {
            let (mut reader, mut seen) = reader.await.unwrap();
            accept(&mut last, &marker).await;
            loop {
                let event = reader.expect("EVENT").await[2].clone();
                if id_of(&event) == marker.id.to_string() {
                    break;
                }
                *seen.entry(id_of(&event)).or_insert(0) += 1;
            }
            let twice: Vec<_> = seen.iter().filter(|(_, count)| **count != 1).collect();
            assert!(twice.is_empty(), "round {round}: {twice:?}");
            let missing: Vec<_> = ids(&events)
                .into_iter()
                .filter(|id| !seen.contains_key(id))
                .collect();
            assert!(missing.is_empty(), "round {round}: {missing:?}");
        }
    }
}

async fn write(url: String, events: Vec<Event>) {
    let mut client = Client::connect(&url).await;
    for event in &events {
        client
            .send_text(&format!(r#"["EVENT",{}]"#, event.json()))
            .await;
    }
    for _ in &events {
        assert_eq!(client.expect("OK").await[2], true);
    }
}

/// Subscribes once that event is there, and counts what comes before EOSE.
async fn read_all(url: String, author: Author, after: Event) -> (Client, HashMap<String, usize>) {
    let mut client = Client::connect(&url).await;
    let wanted = json!({"ids": [after.id]});
    let stored = client.request("wait", &[wanted]).await;
    if stored.is_empty() {
        client.expect("EVENT").await;
    }
    client.send(&json!(["CLOSE", "wait"])).await;
    let mut seen = HashMap::new();
    for event in client.request("race", &[by(&author)]).await {
        *seen.entry(id_of(&event)).or_insert(0) += 1;
    }
    (client, seen)
}

#[tokio::test]
async fn a_reopened_subscription_replaces_the_old_one() {
    let (server, old, new) = (relay(), author(), author());
    let mut client = client(&server).await;
    client.request("same", &[by(&old)]).await;
    client.request("same", &[by(&new)]).await;
    accept(&mut client, &old.event(1, now(), &[], "")).await;
    let wanted = new.event(1, now(), &[], "");
    accept(&mut client, &wanted).await;
    assert_eq!(
        client.expect("EVENT").await,
        json!(["EVENT", "same", to_json(&wanted)])
    );
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn a_subscription_id_used_anew_many_times_at_once_ends_with_the_last() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let event = author.event(1, now(), &[], "");
    accept(&mut client, &event).await;
    for _ in 0..50 {
        client.send(&json!(["REQ", "again", by(&author)])).await;
    }
    client
        .send(&json!(["REQ", "again", {"ids": [event.id], "limit": 0}]))
        .await;
    // Only where nobody looked does EOSE say nothing of more.
    while client.expect_skipping("EOSE", &["EVENT"]).await != json!(["EOSE", "again"]) {}
    accept(&mut client, &author.event(1, now(), &[], "not asked for")).await;
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn close_stops_a_subscription_and_no_other() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    client.request("stop", &[by(&author)]).await;
    client.request("stay", &[by(&author)]).await;
    client.send(&json!(["CLOSE", "stop"])).await;
    client.send(&json!(["CLOSE", "never opened"])).await;
    accept(&mut client, &author.event(1, now(), &[], "")).await;
    assert_eq!(client.expect("EVENT").await[1], "stay");
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn a_refused_request_ends_the_subscription_that_had_its_id() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    client.request("one", &[by(&author)]).await;
    client.send(&json!(["REQ", "one", {"search": "x"}])).await;
    let closed = client.expect("CLOSED").await;
    assert_eq!(closed[1], "one");
    accept(&mut client, &author.event(1, now(), &[], "")).await;
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn a_subscription_id_has_one_to_sixty_four_characters() {
    let server = relay();
    let mut client = client(&server).await;
    for id in [
        "x".to_owned(),
        "é".repeat(64),
        "\"\\\n\u{1f980} ".to_owned(),
    ] {
        client.request(&id, &[json!({"kinds": [7]})]).await;
    }
    for id in [String::new(), "x".repeat(65)] {
        client.send(&json!(["REQ", id, {"limit": 0}])).await;
        let closed = client.expect("CLOSED").await;
        assert_eq!(closed[1], id.as_str());
        assert!(
            closed[2]
                .as_str()
                .is_some_and(|text| text.starts_with("invalid: ")),
            "{closed}"
        );
    }
    for id in [json!(1), json!(null), json!(["x"])] {
        client.send(&json!(["REQ", id, {"limit": 0}])).await;
        client.expect("NOTICE").await;
    }
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn a_filter_that_is_not_understood_is_refused_and_never_widened() {
    let server = relay();
    let mut client = client(&server).await;
    let upper = "A".repeat(64);
    let cases = [
        (json!({"search": "x"}), "unsupported: "),
        (json!({"kinds": [1], "Kinds": [1]}), "unsupported: "),
        (json!({"#title": ["x"]}), "unsupported: "),
        (json!({"#é": ["x"]}), "unsupported: "),
        (json!({"": []}), "unsupported: "),
        (json!({"&t": ["x"]}), "unsupported: "),
        (json!({"ids": [upper]}), "invalid: "),
        (json!({"authors": [upper]}), "invalid: "),
        (json!({"#e": [upper]}), "invalid: "),
        (json!({"#p": [upper]}), "invalid: "),
        (json!({"ids": ["abcd"]}), "invalid: "),
        (json!({"authors": "x"}), "invalid: "),
        (json!({"kinds": [65_536]}), "invalid: "),
        (json!({"kinds": [-1]}), "invalid: "),
        (json!({"kinds": ["1"]}), "invalid: "),
        (json!({"#t": [1]}), "invalid: "),
        (json!({"since": "1"}), "invalid: "),
        (json!({"until": 1.5}), "invalid: "),
        (json!({"limit": -1}), "invalid: "),
        (json!({"ids": null}), "invalid: "),
        (json!([]), "invalid: "),
        (json!("x"), "invalid: "),
    ];
    for (filter, prefix) in cases {
        // A good filter beside it does not help.
        client
            .send(&json!(["REQ", "strict", {"limit": 0}, filter]))
            .await;
        let reason = client.closed_reason().await;
        assert!(reason.starts_with(prefix), "{filter}: {reason}");
    }
    client.send(&json!(["REQ", "strict"])).await;
    assert!(client.closed_reason().await.starts_with("invalid: "));
    client
        .send_text(r#"["REQ","strict",{"kinds":[1],"kinds":[2]}]"#)
        .await;
    assert!(client.closed_reason().await.starts_with("invalid: "));
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn an_empty_filter_matches_everything() {
    let (server, author) = (start(&[]), author());
    let mut client = client(&server).await;
    assert_eq!(stored(&mut client, &[json!({})]).await, [Value::Null; 0]);
    client.request("all", &[json!({})]).await;
    let time = now();
    let events = [
        author.event(30_023, time, &[&["d", "x"]], ""),
        author.event(1, time - 1, &[], ""),
        author.event(5, time - 2, &[], ""),
    ];
    for event in &events {
        accept(&mut client, event).await;
        assert_eq!(client.expect("EVENT").await[2], to_json(event));
    }
    let found = stored(&mut client, &[json!({})]).await;
    assert_eq!(ids_of(&found), ids(&events));
    let found = stored(&mut client, &[json!({"until": time - 1})]).await;
    assert_eq!(ids_of(&found), ids(&events[1..]));
    let found = stored(&mut client, &[json!({"since": time - 1, "limit": 9})]).await;
    assert_eq!(ids_of(&found), ids(&events[..2]));
    client.send(&json!(["COUNT", "all", {}])).await;
    assert_eq!(client.expect("COUNT").await[2]["count"], 3);
}

#[tokio::test]
async fn an_empty_list_matches_nothing() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    accept(&mut client, &author.event(1, now(), &[], "")).await;
    let me = author.pubkey();
    for filter in [
        json!({"authors": [me], "ids": []}),
        json!({"authors": []}),
        json!({"authors": [me], "kinds": []}),
        json!({"authors": [me], "#t": []}),
    ] {
        let found = stored(&mut client, std::slice::from_ref(&filter)).await;
        assert_eq!(found, [Value::Null; 0], "{filter}");
    }
}

#[tokio::test]
async fn a_message_that_is_none_gets_a_notice_and_the_connection_lives_on() {
    let server = relay();
    let mut client = client(&server).await;
    let texts = [
        "",
        "hello",
        "{}",
        "[]",
        "null",
        "[1]",
        "[null,1]",
        r#"["EVENT""#,
        r#"["REQ","x",{"limit":0}"#,
        r#"["REQ","x",{"limit":0}] and more"#,
        r#"["HELLO","x"]"#,
        r#"["req","x",{"limit":0}]"#,
        r#"["CLOSE"]"#,
        r#"["AUTH"]"#,
        r#"["REQ"]"#,
        r#"["COUNT"]"#,
        r#"["NEG-OPEN"]"#,
        "[[[[[[[[",
        "\u{feff}[]",
    ];
    for text in texts {
        client.send_text(text).await;
        let notice = client.expect("NOTICE").await;
        assert!(
            notice[1]
                .as_str()
                .is_some_and(|text| text.starts_with("invalid: ")),
            "{text}: {notice}"
        );
    }
    client.send_text(&"[".repeat(100_000)).await;
    client.expect("NOTICE").await;
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn a_binary_message_gets_a_notice_and_the_connection_lives_on() {
    let server = relay();
    let mut socket = Socket::connect(&server, &[]).await;
    socket
        .send(Message::binary(&br#"["REQ","x",{"limit":0}]"#[..]))
        .await;
    assert_eq!(socket.next().await.unwrap()[0], "NOTICE");
    socket
        .send(Message::text(r#"["REQ","x",{"limit":0}]"#))
        .await;
    assert_eq!(socket.next().await.unwrap()[0], "EOSE");
}

/// One second, two events: whichever comes first, the lower id stays.
#[tokio::test]
async fn of_two_versions_in_one_second_the_lower_id_wins() {
    let server = relay();
    let mut client = client(&server).await;
    for kind in [0, 3, 10_002, 30_023] {
        for lower_first in [true, false] {
            let author = author();
            let (low, high) = versions(&author, kind);
            let (first, second) = if lower_first {
                (&low, &high)
            } else {
                (&high, &low)
            };
            accept(&mut client, first).await;
            if lower_first {
                refuse(&mut client, second, "replaced: ").await;
            } else {
                accept(&mut client, second).await;
                refuse(&mut client, first, "replaced: ").await;
            }
            let found = stored(&mut client, &[by(&author)]).await;
            assert_eq!(found, [to_json(&low)], "kind {kind}");
        }
    }
}

fn versions(author: &Author, kind: u16) -> (Event, Event) {
    let time = now();
    let one = author.event(kind, time, &[&["d", "tie"]], "one");
    let two = author.event(kind, time, &[&["d", "tie"]], "two");
    if one.id < two.id {
        (one, two)
    } else {
        (two, one)
    }
}

#[tokio::test]
async fn a_newer_version_replaces_and_an_older_one_never_returns() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let time = now();
    let version = |d, seconds| author.event(30_024, time + seconds, &[&["d", d]], "");
    let (old, new, other) = (version("a", 0), version("a", 1), version("b", 0));
    accept_all(&mut client, &[old.clone(), other.clone(), new.clone()]).await;
    refuse(&mut client, &old, "replaced: ").await;
    let found = stored(&mut client, &[by(&author)]).await;
    assert_eq!(ids_of(&found), ids(&[new.clone(), other.clone()]));
    let deletion = author.event(5, time + 2, &[&["e", &new.id.to_string()]], "");
    accept(&mut client, &deletion).await;
    assert!(!client.publish(&old).await.0);
    let found = stored(&mut client, &[by(&author)]).await;
    assert_eq!(ids_of(&found), ids(&[deletion, other]));
}

#[tokio::test]
async fn an_ephemeral_event_is_delivered_and_not_stored() {
    let (server, author) = (relay(), author());
    let mut reader = client(&server).await;
    let mut writer = client(&server).await;
    reader.request("live", &[by(&author)]).await;
    for kind in [20_000, 29_999] {
        let event = author.event(kind, now(), &[], "");
        accept(&mut writer, &event).await;
        assert_eq!(
            reader.expect("EVENT").await,
            json!(["EVENT", "live", to_json(&event)])
        );
        let filters = [by(&author), json!({"ids": [event.id]})];
        assert_eq!(
            stored(&mut writer, &filters).await,
            [Value::Null; 0],
            "kind {kind}"
        );
    }
}

#[tokio::test]
async fn upper_and_lower_case_tags_are_different_and_only_their_first_value_counts() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let word = author.npub();
    let upper = author.event(1, now(), &[&["T", &word]], "");
    let lower = author.event(1, now(), &[&["t", &word]], "");
    let second = author.event(1, now(), &[&["t", "first", &word], &["topic", &word]], "");
    accept_all(&mut client, &[upper.clone(), lower.clone(), second]).await;
    let found = stored(&mut client, &[json!({"#T": [word]})]).await;
    assert_eq!(ids_of(&found), ids(&[upper]));
    let found = stored(&mut client, &[json!({"#t": [word]})]).await;
    assert_eq!(ids_of(&found), ids(&[lower]));
}

#[tokio::test]
async fn messages_on_one_connection_do_not_wait_for_those_of_another() {
    let (server, author) = (relay(), author());
    let mut busy = client(&server).await;
    let mut quick = client(&server).await;
    for n in 0..200 {
        let id = format!("busy{}", n % 50);
        busy.send(&json!(["REQ", id, {}])).await;
    }
    let event = author.event(1, now(), &[], "");
    accept(&mut quick, &event).await;
    assert_eq!(stored(&mut quick, &[by(&author)]).await.len(), 1);
}

/// What one client publishes, another that connects later reads, in whatever order it asks.
#[tokio::test]
async fn what_is_acknowledged_can_be_read_at_once() {
    let (server, author) = (relay(), author());
    let mut writer = client(&server).await;
    for n in 0..20 {
        let event = author.event(1, now(), &[], &n.to_string());
        accept(&mut writer, &event).await;
        assert!(is_there(&server, &event).await, "event {n}");
    }
}

async fn is_there(server: &Server, event: &Event) -> bool {
    let mut reader = client(server).await;
    let found = stored(&mut reader, &[json!({"ids": [event.id]})]).await;
    found == [to_json(event)]
}
