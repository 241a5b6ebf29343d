//! A websocket text of a client: understood, or refused with a message that is JSON.

#![no_main]

use grasp_core::event::Unverified;
use grasp_core::{Filter, Limits};
use libfuzzer_sys::fuzz_target;
use ngit_grasp::relay::message::{self, ClientMessage, MAX_SUB_ID};

fuzz_target!(|text: &str| {
    let limits = Limits::default();
    match message::parse(text, &limits) {
        Ok(message) => check(&message, &limits),
        Err(rejected) => {
            serde_json::from_str::<Vec<serde_json::Value>>(&rejected.frame())
                .expect("a refusal is JSON");
        }
    }
});

fn check(message: &ClientMessage<'_>, limits: &Limits) {
    let (sub, filters) = match message {
        ClientMessage::Event(json) | ClientMessage::Auth(json) => {
            let _ = Unverified::parse(json, limits);
            let _ = message::claimed_id(json);
            return;
        }
        ClientMessage::Req { sub, filters } | ClientMessage::Count { sub, filters } => {
            assert!((1..=limits.filters).contains(&filters.len()));
            (sub, filters.as_slice())
        }
        ClientMessage::NegOpen { sub, filter, .. } => (sub, std::slice::from_ref(&**filter)),
        ClientMessage::Close { sub }
        | ClientMessage::NegMsg { sub, .. }
        | ClientMessage::NegClose { sub } => (sub, &[][..]),
    };
    assert!((1..=MAX_SUB_ID).contains(&sub.chars().count()));
    for filter in filters {
        assert!(filter.value_count() <= limits.filter_values);
        let text = serde_json::to_string(filter).expect("a filter is JSON");
        assert_eq!(Filter::parse(&text).as_ref(), Ok(filter));
    }
}
