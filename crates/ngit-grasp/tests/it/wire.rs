//! The fuzz targets' entry points on stable: valid inputs, broken at random, never panic, and
//! what is understood is understood the same way again.

use std::fs;
use std::path::Path;

use grasp_core::event::Unverified;
use grasp_core::{Event, Filter, Limits};
use negentropy::{Id, NegentropyStorageVector};
use ngit_grasp::relay::message::{self, ClientMessage, MAX_SUB_ID};
use ngit_grasp::relay::negentropy::reconcile;
use ngit_grasp::remote::codec::{self, Said, Sub};
use testkit::Value;

const ROUNDS: usize = 20_000;
const FRAME: usize = 4_096;

/// The seeds of the fuzz target of that name.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut paths: Vec<_> = fs::read_dir(dir.join(target))
        .expect("a corpus")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 5, "{target}");
    paths
        .iter()
        .map(|path| fs::read(path).expect("a seed"))
        .collect()
}

/// Every seed as it is, then broken ones.
fn fuzz(target: &str, mut look: impl FnMut(&[u8])) {
    let seeds = corpus(target);
    seeds.iter().for_each(|seed| look(seed));
    let seed = fastrand::u64(..);
    println!("{target}: seed {seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    for _ in 0..ROUNDS {
        look(&mutated(&seeds, &mut dice));
    }
}

fn mutated(seeds: &[Vec<u8>], dice: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = seeds[dice.usize(..seeds.len())].clone();
    for _ in 0..dice.usize(1..4) {
        let (from, to) = range(bytes.len(), dice);
        match dice.u8(0..7) {
            0 if !bytes.is_empty() => {
                let at = dice.usize(..bytes.len());
                bytes[at] ^= 1 << dice.u8(0..8);
            }
            1 => bytes.insert(from, dice.u8(..)),
            2 => bytes.truncate(from),
            3 => drop(bytes.drain(from..to)),
            4 => {
                let twice = bytes[from..to].to_vec();
                bytes.splice(from..from, twice);
            }
            5 => {
                let other = &seeds[dice.usize(..seeds.len())];
                let (start, end) = range(other.len(), dice);
                bytes.splice(from..to, other[start..end].iter().copied());
            }
            _ => {
                let words = [
                    "\"", "[", "{", "]", "}", ",", "null", "-1", "1e400", "\\u0000", "\\ud800",
                ];
                let word = words[dice.usize(..words.len())];
                bytes.splice(from..from, word.bytes());
            }
        }
    }
    bytes
}

fn range(length: usize, dice: &mut fastrand::Rng) -> (usize, usize) {
    let (a, b) = (dice.usize(..=length), dice.usize(..=length));
    (a.min(b), a.max(b))
}

#[test]
fn client_messages_are_understood_or_refused() {
    let limits = Limits::default();
    let mut understood = 0;
    fuzz("client_message", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        match message::parse(&text, &limits) {
            Ok(message) => {
                understood += 1;
                check_message(&message, &limits);
            }
            Err(rejected) => {
                let frame: Value = serde_json::from_str(&rejected.frame()).expect("JSON");
                assert!(["NOTICE", "CLOSED", "NEG-ERR"].contains(&frame[0].as_str().unwrap()));
            }
        }
    });
    assert!(understood > ROUNDS / 100, "{understood}");
}

#[test]
fn relay_messages_are_understood_or_refused() {
    let mut understood = 0;
    fuzz("relay_message", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Some(said) = codec::parse(&text) else {
            return;
        };
        understood += 1;
        let Said::Eose { sub, .. } = said else {
            return;
        };
        let Sub::Ours(number) = sub else {
            return;
        };
        let complete = false;
        let again = format!(r#"["EOSE","{}"]"#, codec::name(number));
        assert_eq!(codec::parse(&again), Some(Said::Eose { sub, complete }));
    });
    assert!(understood > ROUNDS / 100, "{understood}");
}

fn check_message(message: &ClientMessage<'_>, limits: &Limits) {
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
        check_filter(filter);
    }
}

fn check_filter(filter: &Filter) {
    let text = serde_json::to_string(filter).expect("a filter is JSON");
    assert_eq!(Filter::parse(&text).as_ref(), Ok(filter), "{text}");
}

#[test]
fn filters_are_understood_the_same_way_again() {
    let mut understood = 0;
    fuzz("filter", |bytes| {
        if let Ok(filter) = Filter::parse(&String::from_utf8_lossy(bytes)) {
            understood += 1;
            check_filter(&filter);
        }
    });
    assert!(understood > ROUNDS / 100, "{understood}");
}

#[test]
fn events_are_written_as_they_were_read() {
    let limits = Limits::default();
    let mut understood = 0;
    fuzz("event", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(unverified) = Unverified::parse(&text, &limits) else {
            return;
        };
        understood += 1;
        let event = Event::from_stored(&text).expect("what parses can be stored");
        assert_eq!(event.id, unverified.id());
        assert!(unverified.memory() >= 2 * event.json().len());
        let again = Event::from_stored(event.json()).expect("what we wrote we can read");
        assert_eq!(again, event);
        let value: Value = serde_json::from_str(event.json()).expect("JSON");
        assert_eq!(value.as_object().map(serde_json::Map::len), Some(7));
        let _ = unverified.verify(|_| true);
        let _ = event.indexed_tags().count();
        let _ = (event.address(), event.expiration(), event.is_protected());
    });
    assert!(understood > ROUNDS / 100, "{understood}");
}

fn items(count: u64) -> NegentropyStorageVector {
    let mut items = NegentropyStorageVector::new();
    let mut dice = fastrand::Rng::with_seed(count);
    for n in 0..count {
        let mut id = [0; 32];
        dice.fill(&mut id);
        items
            .insert(1_700_000_000 + n / 3, Id::from_byte_array(id))
            .expect("an item");
    }
    items.seal().expect("sealed");
    items
}

#[test]
fn reconciliation_frames_are_answered_within_bounds_or_refused() {
    let worlds = [0, 1, 40, 1_000].map(items);
    let mut understood = 0;
    fuzz("negentropy", |frame| {
        for items in &worlds {
            match reconcile(items, frame, FRAME) {
                Ok(reply) => {
                    understood += 1;
                    assert_eq!(reply.first(), Some(&0x61));
                    assert!(reply.len() <= FRAME, "{} bytes", reply.len());
                }
                Err(reason) => assert!(reason.starts_with("invalid: "), "{reason}"),
            }
        }
    });
    assert!(understood > ROUNDS / 100, "{understood}");
}

#[test]
fn random_bytes_never_panic() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let (limits, items) = (Limits::default(), items(40));
    for _ in 0..ROUNDS {
        let mut bytes = vec![0; dice.usize(..200)];
        dice.fill(&mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        let _ = message::parse(&text, &limits);
        let _ = Filter::parse(&text);
        let _ = Unverified::parse(&text, &limits);
        if let Some(version) = bytes.first_mut() {
            *version = 0x61;
        }
        let _ = reconcile(&items, &bytes, FRAME);
    }
}
