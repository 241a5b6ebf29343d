//! An event: what is read can be stored, and what was stored is read as the same event.

#![no_main]

use grasp_core::event::Unverified;
use grasp_core::{Event, Limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(unverified) = Unverified::parse(text, &Limits::default()) else {
        return;
    };
    let event = Event::from_stored(text).expect("what parses can be stored");
    assert_eq!(event.id, unverified.id());
    let again = Event::from_stored(event.json()).expect("what we wrote we can read");
    assert_eq!(again, event);
    let _ = unverified.verify(|_| true);
    let _ = event.indexed_tags().count();
    let _ = (event.address(), event.expiration(), event.is_protected());
});
