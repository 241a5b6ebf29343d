use grasp_core::sync::io::{Complaint, End, Fault, FromRelay, ToRelay};
use grasp_core::{ConnNo, Delivery, Limits, Origin, SubNo};
use serde_json::{Value, json};
use testkit::Author;
use tokio_tungstenite::tungstenite::Message;

use super::stage::{RELAY, Stage, options};
use crate::remote::Options;
use crate::remote::connection::{LATE, STRAYS, UNANSWERED};

const NOTES: &str = r#"{"kinds":[1]}"#;

fn bad(sub: u32, id: Option<grasp_core::EventId>, fault: Fault) -> FromRelay {
    let sub = Some(SubNo(sub));
    FromRelay::Bad { sub, id, fault }
}

#[test]
fn a_subscription_from_its_request_to_its_end() {
    let (stage, author) = (Stage::new(), Author::new(1));
    let (old, new) = (
        author.event(1, 10, &[], "old"),
        author.event(1, 20, &[], "new"),
    );
    stage.store.apply([&old]).unwrap();
    let mut peer = stage.connected();
    let request = stage.subscribed(&mut peer, 1, NOTES, Some(10));
    assert_eq!(request, json!(["REQ", "g1", {"kinds": [1]}]));
    stage.deliver(&mut peer, "g1", &new);
    let submission = stage.submitted();
    assert_eq!(*submission.event, new);
    let delivery = Delivery {
        relay: RELAY,
        conn: ConnNo(5),
        sub: SubNo(1),
    };
    assert_eq!(submission.origin, Origin::Sync(delivery));
    stage.deliver(&mut peer, "g1", &old);
    let known = FromRelay::Known {
        sub: SubNo(1),
        id: old.id,
        at: old.created_at,
    };
    assert_eq!(stage.word(), known);
    stage.say(&mut peer, json!(["EOSE", "g1", ["finish"]]));
    let eose = FromRelay::Eose {
        sub: SubNo(1),
        sent: 2,
        complete: true,
    };
    assert_eq!(stage.word(), eose);
    stage.say(&mut peer, json!(["CLOSED", "g1", "rate-limited: slow"]));
    let closed = FromRelay::Closed {
        sub: SubNo(1),
        sent: 2,
        why: Complaint::RateLimited,
    };
    assert_eq!(stage.word(), closed);
    stage.subscribed(&mut peer, 2, NOTES, None);
    stage.ask(ToRelay::Unsubscribe(SubNo(2)));
    stage.ask(ToRelay::Unsubscribe(SubNo(2)));
    assert_eq!(stage.hear(&mut peer), json!(["CLOSE", "g2"]));
    // On its way when we closed.
    stage.deliver(&mut peer, "g2", &new);
    stage.say(
        &mut peer,
        json!(["NOTICE", "ERROR: too many concurrent REQs"]),
    );
    let notice = FromRelay::Notice(Complaint::TooManySubscriptions);
    assert_eq!(stage.word(), notice);
}

#[test]
fn each_frame_that_is_wrong_is_one_fault() {
    let (stage, author) = (Stage::new(), Author::new(1));
    let mut peer = stage.connected();
    stage.subscribed(&mut peer, 1, NOTES, None);
    let other = author.event(2, 10, &[], "not asked for");
    stage.deliver(&mut peer, "g1", &other);
    assert_eq!(stage.word(), bad(1, Some(other.id), Fault::OffFilter));

    let note = author.event(1, 10, &[], "a note");
    let json: Value = serde_json::from_str(note.json()).unwrap();
    let send = |peer: &mut _, field: &str, value: Value| {
        let mut json = json.clone();
        json[field] = value;
        stage.say(peer, json!(["EVENT", "g1", json]));
    };
    send(&mut peer, "content", json!("forged"));
    assert_eq!(stage.word(), bad(1, Some(note.id), Fault::WrongId));
    send(&mut peer, "sig", json!("00".repeat(64)));
    assert_eq!(stage.word(), bad(1, Some(note.id), Fault::WrongSignature));
    send(&mut peer, "tags", json!("none"));
    assert_eq!(stage.word(), bad(1, Some(note.id), Fault::Malformed));
    let large = "x".repeat(Limits::default().event_bytes);
    send(&mut peer, "content", json!(large));
    assert_eq!(stage.word(), bad(1, Some(note.id), Fault::TooLarge));

    let nobodys = |fault| FromRelay::Bad {
        sub: None,
        id: None,
        fault,
    };
    stage.say(&mut peer, json!({"no": "message"}));
    assert_eq!(stage.word(), nobodys(Fault::Malformed));
    for _ in 0..STRAYS {
        stage.deliver(&mut peer, "g77", &note);
    }
    assert_eq!(stage.word(), nobodys(Fault::UnknownSubscription));
    stage.say(&mut peer, json!(["EOSE", "g1"]));
    let eose = FromRelay::Eose {
        sub: SubNo(1),
        sent: 5,
        complete: false,
    };
    assert_eq!(stage.word(), eose);
}

#[test]
fn what_means_nothing_is_counted_too() {
    let stage = Stage::new();
    let mut peer = stage.connected();
    stage.subscribed(&mut peer, 4, NOTES, None);
    let talk = [
        json!(["X"]),
        json!(["OK", "00".repeat(32), true, ""]),
        json!(["NEG-MSG", "g4", "61"]),
        json!(["NEG-ERR", "g4", "closed: long ago"]),
    ];
    let endless = talk.iter().cycle();
    for frame in endless.take(LATE as usize) {
        stage.say(&mut peer, frame.clone());
    }
    let fault = FromRelay::Bad {
        sub: None,
        id: None,
        fault: Fault::UnknownSubscription,
    };
    assert_eq!(stage.word(), fault);
}

#[test]
fn more_than_was_asked_for_is_a_flood_and_ends_the_subscription() {
    let (stage, author) = (Stage::new(), Author::new(1));
    let events: Vec<_> = (0..4).map(|n| author.event(1, n, &[], "")).collect();
    let mut peer = stage.connected();
    stage.subscribed(&mut peer, 1, NOTES, Some(2));
    for event in &events[..2] {
        stage.deliver(&mut peer, "g1", event);
        assert_eq!(*stage.submitted().event, *event);
    }
    stage.deliver(&mut peer, "g1", &events[2]);
    stage.deliver(&mut peer, "g1", &events[3]);
    assert_eq!(stage.word(), bad(1, Some(events[2].id), Fault::Flood));
    assert_eq!(stage.hear(&mut peer), json!(["CLOSE", "g1"]));
    stage.say(&mut peer, json!(["NOTICE", ""]));
    assert_eq!(stage.word(), FromRelay::Notice(Complaint::Other));
}

#[test]
fn a_relay_that_floods_waits_for_us() {
    let (stage, author) = (Stage::new(), Author::new(1));
    let count = UNANSWERED + 40;
    let mut peer = stage.connected();
    stage.subscribed(&mut peer, 1, NOTES, None);
    for n in 0..count {
        let event = author.event(1, n as u64, &[], "");
        stage.deliver(&mut peer, "g1", &event);
    }
    let waiting: Vec<_> = (0..UNANSWERED).map(|_| stage.submitted()).collect();
    assert!(stage.is_quiet(), "the rest is not read");
    drop(waiting);
    for n in UNANSWERED..count {
        assert_eq!(stage.submitted().event.created_at.0, n as u64);
    }
}

#[test]
fn a_relay_waits_while_ingest_has_no_room_and_can_be_left_all_the_same() {
    let limits = Limits {
        ingest_bytes: 2 * 1024,
        ..Limits::default()
    };
    let (stage, author) = (Stage::within(options(), limits), Author::new(1));
    let mut peer = stage.connected();
    stage.subscribed(&mut peer, 1, NOTES, None);
    for n in 0..6 {
        stage.deliver(&mut peer, "g1", &author.event(1, n, &[], ""));
    }
    let waiting = [stage.submitted(), stage.submitted()];
    assert!(stage.is_quiet(), "there is room for two");
    drop(waiting);
    let _waiting = [stage.submitted(), stage.submitted()];
    stage.ask(ToRelay::HangUp);
    stage.ends_with(End::Closed);
}

#[test]
fn a_relay_that_answers_pings_is_heard_and_a_silent_one_is_not() {
    let stage = Stage::with(Options {
        beat: std::time::Duration::from_millis(20),
        ..options()
    });
    let mut peer = stage.connected();
    assert!(stage.is_quiet(), "pings go unanswered");
    // Reading answers them.
    let mut other = stage.wait(futures_util::StreamExt::next(&mut peer.socket));
    while let Some(Ok(Message::Ping(_))) = other {
        if matches!(stage.next_word(), Some(FromRelay::Heard)) {
            return;
        }
        other = stage.wait(futures_util::StreamExt::next(&mut peer.socket));
    }
    panic!("{other:?} instead of a ping");
}

#[test]
fn who_we_are_is_told_when_it_is_asked() {
    let stage = Stage::new();
    let mut peer = stage.connected();
    stage.say(&mut peer, json!(["AUTH", "who?"]));
    let challenge = "who?".to_owned();
    assert_eq!(stage.word(), FromRelay::Challenge(challenge.clone()));
    stage.ask(ToRelay::Authenticate { challenge });
    let auth = stage.hear(&mut peer);
    assert_eq!(
        (&auth[0], &auth[1]["kind"]),
        (&json!("AUTH"), &json!(22242))
    );
    let tags = json!([
        ["relay", format!("ws://{}", stage.address())],
        ["challenge", "who?"]
    ]);
    assert_eq!(auth[1]["tags"], tags);
    let other = "00".repeat(32);
    stage.say(&mut peer, json!(["OK", other, false, "not yours"]));
    stage.say(&mut peer, json!(["OK", auth[1]["id"], true, ""]));
    assert_eq!(stage.word(), FromRelay::Authenticated(true));
}

#[test]
fn either_side_may_end_it() {
    let stage = Stage::new();
    let mut peer = stage.connected();
    stage.ask(ToRelay::HangUp);
    stage.ends_with(End::Closed);
    assert_eq!(stage.hear(&mut peer), Value::Null);
    let peer = stage.connected();
    drop(peer);
    stage.ends_with(End::Closed);
    stage.subscribe(1, NOTES, None);
    assert!(stage.is_quiet(), "nothing is asked of one that is down");
}

#[test]
fn a_message_without_end_is_not_kept() {
    let stage = Stage::new();
    let mut peer = stage.connected();
    let large = format!(r#"["NOTICE","{}"]"#, "x".repeat(1024 * 1024));
    let message = Message::Text(large.into());
    let _ = stage.wait(futures_util::SinkExt::send(&mut peer.socket, message));
    let fault = Fault::TooLarge;
    let bad = FromRelay::Bad {
        sub: None,
        id: None,
        fault,
    };
    assert_eq!(
        stage.word(),
        bad,
        "it is left out, and the connection lives"
    );
    stage.say(&mut peer, json!(["NOTICE", "slow down"]));
    assert_eq!(stage.word(), FromRelay::Notice(Complaint::RateLimited));
}

/// Somebody else may have planted it at an honest relay.
#[test]
fn an_event_that_is_too_large_is_known_by_its_id() {
    let stage = Stage::new();
    let mut peer = stage.connected();
    stage.subscribe(1, NOTES, None);
    stage.hear(&mut peer);
    let content = "x".repeat(Limits::default().event_bytes);
    let large = Author::new(5).event(1, 10, &[], &content);
    stage.deliver(&mut peer, "g1", &large);
    let word = FromRelay::TooLarge {
        sub: SubNo(1),
        id: large.id,
        at: large.created_at,
        kind: large.kind,
    };
    assert_eq!(stage.word(), word);
}
