//! The NIPs beside NIP-01 and NIP-77, each by what a client sees of it.

use std::collections::BTreeSet;

use grasp_core::Event;
use testkit::{Author, Client, Server, Value, json, now};

use crate::nip77::difference;
use crate::support::{
    accept, accept_all, assert_alive, author, by, client, eventually, get, ids, ids_of, refuse,
    relay, request, sorted, start, stored, to_json,
};

const NONE: [Value; 0] = [];

/// Our name, as the server knows it.
fn public_url(server: &Server) -> String {
    format!("ws://localhost:{}", server.addr().port())
}

// NIP-09

#[tokio::test]
async fn an_event_deleted_by_its_author_is_gone_and_does_not_return() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let event = author.event(1, now(), &[], "");
    let deletion = author.event(5, now(), &[&["e", &event.id.to_string()]], "oops");
    accept_all(&mut client, &[event.clone(), deletion.clone()]).await;
    let found = stored(&mut client, &[by(&author)]).await;
    assert_eq!(found, [to_json(&deletion)], "the deletion stays served");
    refuse(&mut client, &event, "blocked: ").await;
    let found = stored(&mut client, &[by(&author)]).await;
    assert_eq!(found, [to_json(&deletion)]);
}

#[tokio::test]
async fn a_deletion_by_address_reaches_the_versions_up_to_its_time() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let (time, address) = (now(), format!("30023:{}:gone", author.pubkey()));
    let version = |seconds, d| author.event(30_023, time - seconds, &[&["d", d]], "");
    let (old, other) = (version(60, "gone"), version(60, "stays"));
    accept_all(&mut client, &[old.clone(), other.clone()]).await;
    let deletion = author.event(5, time - 30, &[&["a", &address]], "");
    accept(&mut client, &deletion).await;
    refuse(&mut client, &old, "blocked: ").await;
    refuse(&mut client, &version(30, "gone"), "blocked: ").await;
    let newer = version(29, "gone");
    accept(&mut client, &newer).await;
    let found = stored(&mut client, &[by(&author)]).await;
    assert_eq!(ids_of(&found), ids(&[newer, deletion, other]));
}

#[tokio::test]
async fn a_deletion_may_come_before_its_target() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let event = author.event(1, now(), &[], "");
    let deletion = author.event(5, now(), &[&["e", &event.id.to_string()]], "");
    accept(&mut client, &deletion).await;
    refuse(&mut client, &event, "blocked: ").await;
    let found = stored(&mut client, &[by(&author)]).await;
    assert_eq!(found, [to_json(&deletion)]);
}

#[tokio::test]
async fn nobody_deletes_what_another_wrote() {
    let (server, author, stranger) = (relay(), author(), author());
    let mut client = client(&server).await;
    let note = author.event(1, now(), &[], "");
    let repository = author.event(30_023, now(), &[&["d", "mine"]], "");
    let later = author.event(1, now(), &[], "later");
    accept_all(&mut client, &[note.clone(), repository.clone()]).await;
    let address = format!("30023:{}:mine", author.pubkey());
    let deletion = stranger.event(
        5,
        now() + 1,
        &[
            &["e", &note.id.to_string()],
            &["e", &later.id.to_string()],
            &["a", &address],
        ],
        "",
    );
    accept(&mut client, &deletion).await;
    accept(&mut client, &later).await;
    let found = stored(&mut client, &[by(&author)]).await;
    assert_eq!(
        sorted(ids_of(&found)),
        sorted(ids(&[note, repository, later]))
    );
}

#[tokio::test]
async fn a_deletion_cannot_be_deleted() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let event = author.event(1, now(), &[], "");
    let first = author.event(5, now(), &[&["e", &event.id.to_string()]], "");
    let second = author.event(5, now(), &[&["e", &first.id.to_string()]], "");
    accept_all(&mut client, &[event.clone(), first.clone(), second.clone()]).await;
    refuse(&mut client, &event, "blocked: ").await;
    let found = stored(&mut client, &[by(&author)]).await;
    assert_eq!(sorted(ids_of(&found)), sorted(ids(&[first, second])));
}

// NIP-11

pub fn document(server: &Server) -> Value {
    let reply = request(
        server.addr(),
        "GET",
        "/",
        &[("Accept", "application/nostr+json")],
    );
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/nostr+json"));
    reply.assert_cors();
    serde_json::from_str(&reply.body).expect("JSON")
}

#[test]
fn the_information_document_says_who_and_what_this_is() {
    let server = start(&[
        ("NGIT_RELAY_NAME", "a \"name\""),
        ("NGIT_RELAY_DESCRIPTION", "what it is for"),
        ("NGIT_RELAY_CONTACT", "mailto:admin@example.com"),
        ("NGIT_RELAY_OWNER_NSEC", &Author::new(7).secret_hex()),
    ]);
    let document = document(&server);
    assert_eq!(document["name"], "a \"name\"");
    assert_eq!(document["description"], "what it is for");
    assert_eq!(document["contact"], "mailto:admin@example.com");
    assert_eq!(document["pubkey"], json!(Author::new(7).pubkey()));
    assert_eq!(document["self"], json!(Author::new(7).pubkey()));
    assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
    assert!(document["software"].is_string());
    assert_eq!(
        document["supported_grasps"],
        json!(["GRASP-01", "GRASP-02"])
    );
    assert_eq!(
        document["supported_nips"],
        json!([1, 9, 11, 22, 34, 40, 42, 45, 62, 67, 70, 77])
    );
}

#[test]
fn the_limits_in_the_information_document_are_the_settings() {
    let settings = [
        ("max_message_length", "NGIT_MAX_MESSAGE_BYTES", 40_000),
        ("max_event_length", "NGIT_MAX_EVENT_BYTES", 20_000),
        ("max_content_length", "NGIT_MAX_CONTENT_BYTES", 10_000),
        ("max_event_tags", "NGIT_MAX_EVENT_TAGS", 11),
        ("max_subscriptions", "NGIT_MAX_SUBSCRIPTIONS", 12),
        ("max_filters", "NGIT_MAX_FILTERS", 13),
        ("max_limit", "NGIT_MAX_QUERY_RESULTS", 14),
        ("created_at_upper_limit", "NGIT_CREATED_AT_AHEAD_SECS", 15),
        ("created_at_lower_limit", "NGIT_CREATED_AT_BEHIND_SECS", 16),
        ("max_filter_values", "NGIT_MAX_FILTER_VALUES", 17),
        (
            "max_connection_filter_values",
            "NGIT_MAX_CONNECTION_VALUES",
            18,
        ),
        ("max_neg_sessions", "NGIT_MAX_NEG_SESSIONS", 19),
        ("max_neg_items", "NGIT_MAX_NEG_ITEMS", 20),
        (
            "max_events_per_minute_per_ip",
            "NGIT_EVENTS_PER_MINUTE_PER_IP",
            21,
        ),
        (
            "max_events_per_minute_per_key",
            "NGIT_EVENTS_PER_MINUTE_PER_KEY",
            22,
        ),
    ];
    let texts = settings.map(|(_, name, value)| (name, value.to_string()));
    let env: Vec<(&str, &str)> = texts
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let limitation = &document(&start(&env))["limitation"];
    for (field, _, value) in settings {
        assert_eq!(limitation[field], value, "{field}");
    }
    assert_eq!(limitation["default_limit"], 14);
    assert_eq!(limitation["max_subid_length"], 64);
    assert_eq!(limitation["auth_required"], false);
    assert_eq!(limitation["payment_required"], false);
    assert_eq!(limitation["min_pow_difficulty"], 0);
}

#[test]
fn without_a_limit_on_age_none_is_advertised() {
    let document = document(&relay());
    let limitation = &document["limitation"];
    assert_eq!(limitation["created_at_lower_limit"], Value::Null);
    assert_eq!(limitation["max_message_length"], 512 * 1024);
    assert_eq!(limitation["max_event_length"], 256 * 1024);
    assert_eq!(limitation["max_limit"], 500);
    assert_eq!(document.get("contact"), None);
}

#[test]
fn the_information_document_is_chosen_by_the_accept_header() {
    let server = relay();
    for accept in [
        "application/nostr+json",
        "text/html, application/nostr+json;q=0.9",
        "Application/Nostr+JSON",
    ] {
        let reply = request(server.addr(), "GET", "/", &[("Accept", accept)]);
        assert_eq!(
            reply.header("content-type"),
            Some("application/nostr+json"),
            "{accept}"
        );
    }
    let page = get(server.addr(), "/");
    let kind = page.header("content-type");
    assert!(kind.is_some_and(|kind| kind.starts_with("text/html")));
}

// NIP-40

#[tokio::test]
async fn an_expired_event_is_refused_and_one_that_expires_is_not_sent_any_more() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let expiring = |at: u64| author.event(1, now(), &[&["expiration", &at.to_string()]], "");
    refuse(&mut client, &expiring(now()), "invalid: ").await;
    refuse(&mut client, &expiring(1), "invalid: ").await;
    let later = expiring(now() + 3_600);
    accept(&mut client, &later).await;
    let soon = expiring(now() + 2);
    accept(&mut client, &soon).await;
    assert_eq!(stored(&mut client, &[by(&author)]).await.len(), 2);
    eventually("the event expires", async || {
        let mut client = self::client(&server).await;
        stored(&mut client, &[by(&author)]).await == [to_json(&later)]
    })
    .await;
    assert_eq!(count(&mut client, &[by(&author)]).await, 1);
    let by_id = json!({"ids": [soon.id]});
    assert_eq!(
        stored(&mut client, std::slice::from_ref(&by_id)).await,
        NONE
    );
    assert_eq!(difference(&mut client, &by_id, &[]).await.need, [""; 0]);
}

#[tokio::test]
async fn an_expiration_that_is_no_time_is_none() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let event = author.event(1, now(), &[&["expiration", "never"]], "");
    accept(&mut client, &event).await;
    assert_eq!(stored(&mut client, &[by(&author)]).await.len(), 1);
}

// NIP-42

fn proof(author: &Author, kind: u16, time: u64, relay: &str, challenge: &str) -> Event {
    author.event(
        kind,
        time,
        &[&["relay", relay], &["challenge", challenge]],
        "",
    )
}

/// Sends an AUTH and returns its OK.
async fn prove(client: &mut Client, proof: &Value) -> (bool, String) {
    client.send(&json!(["AUTH", proof])).await;
    let ok = client.expect("OK").await;
    assert_eq!(ok[1], proof["id"]);
    (ok[2] == true, ok[3].as_str().expect("a text").to_owned())
}

/// What is sent to whoever brings something that only its author may bring.
async fn challenged(client: &mut Client) -> String {
    let protected = author().event(1, now(), &[&["-"]], "");
    refuse(client, &protected, "auth-required: ").await;
    client.await_challenge().await
}

#[tokio::test]
async fn whoever_brings_nothing_protected_is_not_asked_who_it_is() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    client.request("stored", &[by(&author)]).await;
    accept(&mut client, &author.event(1, now(), &[], "")).await;
    assert_eq!(client.challenge, None);
}

#[tokio::test]
async fn every_connection_has_a_challenge_of_its_own() {
    let server = relay();
    let mut challenges = BTreeSet::new();
    for _ in 0..5 {
        let challenge = challenged(&mut client(&server).await).await;
        assert!(challenge.len() >= 16, "{challenge}");
        challenges.insert(challenge);
    }
    assert_eq!(challenges.len(), 5);
}

#[tokio::test]
async fn a_wrong_proof_of_a_key_is_refused_and_the_right_one_accepted() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let challenge = challenged(&mut client).await;
    let url = public_url(&server);
    let right = proof(&author, 22_242, now(), &url, &challenge);
    let mut forged = to_json(&right);
    forged["sig"] = json!(author.event(1, 1, &[], "").sig);
    let wrong = [
        forged,
        to_json(&proof(&author, 22_242, now(), &url, "another")),
        to_json(&proof(
            &author,
            22_242,
            now(),
            "ws://relay.example",
            &challenge,
        )),
        to_json(&proof(&author, 1, now(), &url, &challenge)),
        to_json(&proof(&author, 22_242, now() - 3_600, &url, &challenge)),
        to_json(&proof(&author, 22_242, now() + 3_600, &url, &challenge)),
        to_json(&author.event(22_242, now(), &[], "")),
    ];
    for proof in &wrong {
        let (accepted, text) = prove(&mut client, proof).await;
        assert!(
            !accepted && text.starts_with("invalid: "),
            "{proof}: {text}"
        );
    }
    let protected = author.event(1, now(), &[&["-"]], "");
    refuse(&mut client, &protected, "auth-required: ").await;
    let right = to_json(&right);
    assert_eq!(prove(&mut client, &right).await, (true, String::new()));
    assert_eq!(prove(&mut client, &right).await, (true, String::new()));
    accept(&mut client, &protected).await;
}

#[tokio::test]
async fn a_proof_is_worth_nothing_on_another_connection() {
    let (server, author) = (relay(), author());
    let mut first = client(&server).await;
    let mut second = client(&server).await;
    challenged(&mut second).await;
    let challenge = challenged(&mut first).await;
    let proof = proof(&author, 22_242, now(), &public_url(&server), &challenge);
    assert!(prove(&mut first, &to_json(&proof)).await.0);
    assert!(!prove(&mut second, &to_json(&proof)).await.0);
    let protected = author.event(1, now(), &[&["-"]], "");
    refuse(&mut second, &protected, "auth-required: ").await;
}

#[tokio::test]
async fn a_proof_is_never_stored_or_delivered() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    client.request("live", &[by(&author)]).await;
    let challenge = challenged(&mut client).await;
    let proof = proof(&author, 22_242, now(), &public_url(&server), &challenge);
    assert!(prove(&mut client, &to_json(&proof)).await.0);
    refuse(&mut client, &proof, "invalid: ").await;
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn the_relay_may_be_named_in_several_spellings() {
    let server = start(&[("NGIT_DOMAIN", "relay.example")]);
    let author = author();
    for url in [
        "wss://relay.example",
        "wss://relay.example/",
        "wss://RELAY.example:443",
    ] {
        let mut client = client(&server).await;
        let challenge = challenged(&mut client).await;
        let proof = proof(&author, 22_242, now(), url, &challenge);
        assert!(prove(&mut client, &to_json(&proof)).await.0, "{url}");
    }
}

// NIP-45

async fn count(client: &mut Client, filters: &[Value]) -> u64 {
    let mut message = vec![json!("COUNT"), json!("count")];
    message.extend_from_slice(filters);
    client.send(&Value::Array(message)).await;
    let answer = client.expect("COUNT").await;
    assert_eq!(answer[1], "count");
    answer[2]["count"].as_u64().expect("a number")
}

#[tokio::test]
async fn a_count_is_exact_and_counts_an_event_of_several_filters_once() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let events: Vec<Event> = (0..9)
        .map(|n| {
            author.event(
                [1, 1621, 1111][n % 3],
                now(),
                &[&["t", "x"]],
                &n.to_string(),
            )
        })
        .collect();
    accept_all(&mut client, &events).await;
    let me = author.pubkey();
    let of_kind = |kind: u64| json!({"authors": [me], "kinds": [kind]});
    assert_eq!(count(&mut client, &[by(&author)]).await, 9);
    assert_eq!(count(&mut client, &[of_kind(1)]).await, 3);
    assert_eq!(count(&mut client, &[of_kind(1), of_kind(1621)]).await, 6);
    assert_eq!(
        count(&mut client, &[of_kind(1), by(&author), of_kind(1)]).await,
        9
    );
    assert_eq!(count(&mut client, &[of_kind(7)]).await, 0);
    let limited = json!({"authors": [me], "limit": 2});
    assert_eq!(count(&mut client, &[limited]).await, 9);
}

#[tokio::test]
async fn a_count_goes_beyond_what_a_request_sends() {
    let server = start(&[
        ("NGIT_MAX_QUERY_RESULTS", "2"),
        ("NGIT_MAX_COUNT_RESULTS", "5"),
    ]);
    let author = author();
    let mut client = client(&server).await;
    for n in 0..5 {
        accept(&mut client, &author.event(1, now(), &[], &n.to_string())).await;
    }
    client.send(&json!(["COUNT", "c", by(&author)])).await;
    assert_eq!(
        client.expect("COUNT").await,
        json!(["COUNT", "c", {"count": 5}])
    );
    accept(&mut client, &author.event(1, now(), &[], "more")).await;
    client.send(&json!(["COUNT", "c", by(&author)])).await;
    assert_eq!(
        client.expect("COUNT").await,
        json!(["COUNT", "c", {"count": 5, "approximate": true}])
    );
}

#[tokio::test]
async fn a_refused_count_is_closed() {
    let server = relay();
    let mut client = client(&server).await;
    client.send(&json!(["COUNT", "c", {"search": "x"}])).await;
    assert!(client.closed_reason().await.starts_with("unsupported: "));
    client.send(&json!(["COUNT", "c"])).await;
    assert!(client.closed_reason().await.starts_with("invalid: "));
}

// NIP-62

#[tokio::test]
async fn who_asks_to_vanish_is_forgotten_and_others_are_not() {
    let (server, author, other) = (relay(), author(), author());
    let mut client = client(&server).await;
    let time = now();
    let me = author.pubkey().to_string();
    let note = author.event(1, time - 10, &[], "");
    let deletion = author.event(5, time - 10, &[&["e", &"0".repeat(64)]], "");
    let repository = author.event(30_023, time - 5, &[&["d", "mine"]], "");
    let mention = other.event(1, time - 10, &[&["p", &me]], "");
    let mine = [note, deletion, repository];
    accept_all(&mut client, &mine).await;
    accept(&mut client, &mention).await;
    let url = public_url(&server);
    let request = author.event(62, time - 5, &[&["relay", &url]], "bye");
    accept(&mut client, &request).await;
    let mut found = stored(&mut client, &[by(&author)]).await;
    found.retain(|event| *event != to_json(&request));
    assert_eq!(found, NONE);
    let left = stored(&mut client, &[by(&other)]).await;
    assert_eq!(left, [to_json(&mention)]);
    for event in &mine {
        refuse(&mut client, event, "blocked: ").await;
    }
    let back = author.event(1, time, &[], "back again");
    accept(&mut client, &back).await;
    let found = stored(&mut client, &[json!({"ids": [back.id]})]).await;
    assert_eq!(found, [to_json(&back)]);
}

#[tokio::test]
async fn gift_wraps_to_who_vanished_are_gone_and_do_not_return() {
    let (server, author, other) = (relay(), author(), author());
    let mut client = client(&server).await;
    let (time, me) = (now(), author.pubkey().to_string());
    let wrap = other.event(1059, time - 10, &[&["p", &me]], "");
    let later = other.event(1059, time, &[&["p", &me]], "");
    let elsewhere = other.event(1059, time - 10, &[&["p", &other.pubkey().to_string()]], "");
    accept_all(&mut client, &[wrap.clone(), elsewhere.clone()]).await;
    let request = author.event(62, time - 5, &[&["relay", "ALL_RELAYS"]], "");
    accept(&mut client, &request).await;
    let found = stored(&mut client, &[by(&other)]).await;
    assert_eq!(ids_of(&found), ids(&[elsewhere]));
    accept(&mut client, &later).await;
    refuse(&mut client, &wrap, "blocked: ").await;
}

#[tokio::test]
async fn a_request_to_vanish_from_all_relays_means_us_too() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let note = author.event(1, now(), &[], "");
    accept(&mut client, &note).await;
    let request = author.event(62, now(), &[&["relay", "ALL_RELAYS"]], "");
    accept(&mut client, &request).await;
    let found = stored(&mut client, &[json!({"ids": [note.id]})]).await;
    assert_eq!(found, NONE);
}

#[tokio::test]
async fn a_request_to_vanish_from_another_relay_changes_nothing() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    let note = author.event(1, now(), &[], "");
    accept(&mut client, &note).await;
    for tags in [&[&["relay", "wss://relay.example"][..]][..], &[]] {
        refuse(&mut client, &author.event(62, now(), tags, ""), "invalid: ").await;
    }
    let found = stored(&mut client, &[by(&author)]).await;
    assert_eq!(found, [to_json(&note)]);
}

// NIP-67

#[tokio::test]
async fn eose_says_whether_there_is_more() {
    let (server, author) = (relay(), author());
    let mut client = client(&server).await;
    for n in 0..3 {
        accept(&mut client, &author.event(1, now(), &[], &n.to_string())).await;
    }
    let me = author.pubkey();
    let cases = [
        (json!({"authors": [me]}), json!(["finish"])),
        (json!({"authors": [me], "limit": 3}), json!(["finish"])),
        (json!({"authors": [me], "limit": 2}), json!(["more"])),
        (json!({"authors": [me], "kinds": [7]}), json!(["finish"])),
    ];
    for (filter, hint) in cases {
        client.send(&json!(["REQ", "hint", filter])).await;
        let eose = client.expect_skipping("EOSE", &["EVENT"]).await;
        assert_eq!(eose, json!(["EOSE", "hint", hint]), "{filter}");
    }
}

#[tokio::test]
async fn eose_says_more_when_the_servers_own_limit_cut_the_answer() {
    let server = start(&[("NGIT_MAX_QUERY_RESULTS", "2")]);
    let author = author();
    let mut client = client(&server).await;
    for (n, hint) in ["finish", "finish", "more"].into_iter().enumerate() {
        accept(&mut client, &author.event(1, now(), &[], &n.to_string())).await;
        client.send(&json!(["REQ", "hint", by(&author)])).await;
        let eose = client.expect_skipping("EOSE", &["EVENT"]).await;
        assert_eq!(eose[2], json!([hint]));
        client.send(&json!(["CLOSE", "hint"])).await;
    }
}

// NIP-70

#[tokio::test]
async fn a_protected_event_comes_only_from_its_author() {
    let (server, author, other) = (relay(), author(), author());
    let mut client = client(&server).await;
    let protected = author.event(1, now(), &[&["-"]], "");
    refuse(&mut client, &protected, "auth-required: ").await;
    let challenge = client.await_challenge().await;
    let url = public_url(&server);
    let stranger = to_json(&proof(&other, 22_242, now(), &url, &challenge));
    assert!(prove(&mut client, &stranger).await.0);
    refuse(&mut client, &protected, "restricted: ").await;
    assert_eq!(stored(&mut client, &[by(&author)]).await, NONE);
    let own = to_json(&proof(&author, 22_242, now(), &url, &challenge));
    assert!(prove(&mut client, &own).await.0);
    accept(&mut client, &protected).await;
    let theirs = other.event(1, now(), &[&["-"]], "");
    accept(&mut client, &theirs).await;
    let found = stored(&mut client, &[by(&author)]).await;
    assert_eq!(found, [to_json(&protected)]);
}
