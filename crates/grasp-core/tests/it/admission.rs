//! Which events come in, and what the others are told.

use std::time::Duration;

use grasp_core::{Answer, Effect, Limits, Origin, Service, auth};

use crate::stage::{ALICE, BOB, NOON, Stage, event, note};

/// The refusal's text, or `None` when the event goes to the store.
fn refused(effects: Vec<Effect>) -> Option<String> {
    match effects.as_slice() {
        [
            Effect::Answer {
                answer: Answer::Refused(refusal),
                ..
            },
        ] => Some(refusal.to_string()),
        [Effect::Store { .. }] => None,
        other => panic!("unexpected effects {other:?}"),
    }
}

fn authenticated(keys: &[grasp_core::Pubkey]) -> Origin {
    Origin::Client {
        authenticated: keys.to_vec(),
        network: None,
    }
}

#[test]
fn an_event_from_the_future_waits_until_its_time() {
    let mut stage = Stage::new();
    assert_eq!(refused(stage.submit(&note(ALICE, NOON + 900))), None);
    let early = note(ALICE, NOON + 901);
    assert_eq!(
        refused(stage.submit(&early)).unwrap(),
        "invalid: created_at is more than 15 minutes ahead of the relay's clock"
    );
    assert_eq!(refused(stage.at(1).submit(&early)), None);
}

#[test]
fn any_age_is_welcome_unless_a_limit_is_set() {
    assert_eq!(refused(Stage::new().submit(&note(ALICE, 0))), None);
    let mut stage = Stage::with(Limits {
        created_at_behind: Duration::from_secs(86_400),
        ..Limits::default()
    });
    assert_eq!(refused(stage.submit(&note(ALICE, NOON - 86_400))), None);
    assert_eq!(
        refused(stage.submit(&note(ALICE, NOON - 86_401))).unwrap(),
        "invalid: created_at is more than 1 days old"
    );
}

#[test]
fn an_expired_event_does_not_come_in() {
    let mut stage = Stage::new();
    let expires = (NOON + 10).to_string();
    let event = event(ALICE, 1, NOON, &[&["expiration", &expires]]);
    assert_eq!(refused(stage.at(9).submit(&event)), None);
    assert_eq!(
        refused(stage.at(10).submit(&event)).unwrap(),
        "invalid: the event has expired"
    );
}

#[test]
fn a_protected_event_comes_only_from_its_author() {
    let mut stage = Stage::new();
    let event = event(ALICE, 1, NOON, &[&["-"]]);
    assert!(
        refused(stage.submit(&event))
            .unwrap()
            .starts_with("auth-required: ")
    );
    let bob = authenticated(&[BOB]);
    assert!(
        refused(stage.submit_from(&event, bob))
            .unwrap()
            .starts_with("restricted: ")
    );
    let both = authenticated(&[BOB, ALICE]);
    assert_eq!(refused(stage.submit_from(&event, both)), None);
    assert_eq!(refused(stage.submit_from(&event, Origin::Import)), None);
}

#[test]
fn a_request_to_vanish_must_name_us() {
    let mut stage = Stage::new();
    for (relay, accepted) in [
        ("ALL_RELAYS", true),
        ("wss://relay.example/", true),
        ("wss://Relay.Example:443", true),
        ("wss://relay.example.evil.org", false),
        ("all_relays", false),
        ("", false),
    ] {
        let event = event(ALICE, 62, NOON, &[&["relay", relay]]);
        assert_eq!(refused(stage.submit(&event)).is_none(), accepted, "{relay}");
    }
    let nameless = event(ALICE, 62, NOON, &[]);
    assert!(refused(stage.submit(&nameless)).is_some());
    assert_eq!(refused(stage.submit_from(&nameless, Origin::Import)), None);
}

#[test]
fn an_auth_event_is_not_published() {
    let event = event(ALICE, 22_242, NOON, &[]);
    assert!(
        refused(Stage::new().submit(&event))
            .unwrap()
            .starts_with("invalid: ")
    );
}

#[test]
fn one_key_cannot_spend_anothers_rate() {
    let mut stage = Stage::with(Limits {
        events_per_minute_per_key: 2,
        ..Limits::default()
    });
    assert_eq!(refused(stage.submit(&note(ALICE, NOON))), None);
    assert_eq!(refused(stage.submit(&note(ALICE, NOON + 1))), None);
    let third = note(ALICE, NOON + 2);
    assert_eq!(
        refused(stage.submit(&third)).unwrap(),
        "rate-limited: more than 2 events a minute from this key"
    );
    assert_eq!(refused(stage.submit(&note(BOB, NOON))), None);
    assert_eq!(
        refused(stage.submit_from(&third, Origin::Import)),
        None,
        "the operator has no rate"
    );
    assert_eq!(refused(stage.at(30).submit(&third)), None);
}

#[test]
fn a_challenge_is_answered_by_one_event_for_one_relay_and_one_moment() {
    let now = Stage::new().now().unix;
    let answer = |kind, at, challenge: &str, relay: &str| {
        let event = event(
            ALICE,
            kind,
            at,
            &[&["challenge", challenge], &["relay", relay]],
        );
        let us = Service::of_url("wss://relay.example").unwrap();
        auth::check(&event, "c", &us, now)
    };
    let relay = "wss://relay.example/";
    assert_eq!(answer(22_242, NOON, "c", relay), Ok(ALICE));
    assert_eq!(answer(22_242, NOON - 600, "c", relay), Ok(ALICE));
    assert_eq!(
        answer(22_242, NOON - 601, "c", relay),
        Err(auth::AuthError::WrongTime)
    );
    assert_eq!(
        answer(22_242, NOON + 601, "c", relay),
        Err(auth::AuthError::WrongTime)
    );
    assert_eq!(
        answer(22_242, NOON, "d", relay),
        Err(auth::AuthError::WrongChallenge)
    );
    assert_eq!(
        answer(22_242, NOON, "c", "wss://evil.org"),
        Err(auth::AuthError::WrongRelay)
    );
    assert_eq!(answer(1, NOON, "c", relay), Err(auth::AuthError::WrongKind));
}
