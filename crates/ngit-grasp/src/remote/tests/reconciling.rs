use std::collections::BTreeSet;

use grasp_core::id::{hex_to_vec, to_hex};
use grasp_core::sync::io::{Complaint, FromRelay, ToRelay};
use grasp_core::{Event, EventId, Filter, SubNo, Timestamp};
use negentropy::{Id, NegentropyStorageVector};
use serde_json::{Value, json};
use testkit::Author;

use super::stage::{Peer, Stage};
use crate::relay::negentropy::reconcile;

const SUB: SubNo = SubNo(4);

/// What a comparison told.
#[derive(Debug, Default)]
struct Told {
    needs: BTreeSet<EventId>,
    from: Timestamp,
    compared: u32,
    lacks: u32,
    some: Vec<EventId>,
}

fn ask(stage: &Stage, filter: &str, aside: &[(Timestamp, EventId)], most: u32) {
    stage.ask(ToRelay::Reconcile {
        sub: SUB,
        filter: Box::new(Filter::parse(filter).unwrap()),
        aside: aside.into(),
        most,
    });
}

/// Answers with our own relay's code until the asking side is content; the filter it asked with.
fn serve(stage: &Stage, peer: &mut Peer, theirs: &[&Event]) -> Value {
    let open = stage.hear(peer);
    assert_eq!((&open[0], &open[1]), (&json!("NEG-OPEN"), &json!("g4")));
    let filter = Filter::parse(&open[2].to_string()).unwrap();
    let mut items = NegentropyStorageVector::new();
    for event in theirs.iter().filter(|event| filter.matches(event)) {
        let id = Id::from_byte_array(event.id.0);
        items.insert(event.created_at.0, id).unwrap();
    }
    items.seal().unwrap();
    let mut said = open[3].clone();
    loop {
        let frame = hex_to_vec(said.as_str().unwrap()).unwrap();
        let reply = reconcile(&items, &frame, 4_096).unwrap();
        stage.say(peer, json!(["NEG-MSG", "g4", to_hex(&reply)]));
        let next = stage.hear(peer);
        if next[0] == "NEG-CLOSE" {
            return open[2].clone();
        }
        assert_eq!(next[0], "NEG-MSG");
        said = next[2].clone();
    }
}

fn told(stage: &Stage) -> Told {
    let mut told = Told::default();
    loop {
        match stage.word() {
            FromRelay::Needs { sub: SUB, ids } => {
                assert!(ids.len() <= 1_000);
                told.needs.extend(ids);
            }
            FromRelay::Reconciled {
                sub: SUB,
                from,
                compared,
                lacks,
                some,
            } => {
                return Told {
                    from,
                    compared,
                    lacks,
                    some,
                    ..told
                };
            }
            other => panic!("{other:?}"),
        }
    }
}

fn notes(count: u64) -> Vec<Event> {
    let author = Author::new(1);
    let note = |n: u64| author.event(1, 1_000 + n / 3, &[], &n.to_string());
    (0..count).map(note).collect()
}

fn ids<'a>(events: impl IntoIterator<Item = &'a Event>) -> BTreeSet<EventId> {
    events.into_iter().map(|event| event.id).collect()
}

#[test]
fn both_differences_are_found() {
    let stage = Stage::new();
    let events = notes(3_000);
    let (ours, theirs) = (&events[..1_800], &events[300..]);
    stage.store.apply(ours).unwrap();
    let mut peer = stage.connected();
    ask(&stage, r#"{"kinds":[1]}"#, &[], 20_000);
    let filter = serve(&stage, &mut peer, &theirs.iter().collect::<Vec<_>>());
    assert_eq!(filter, json!({"kinds": [1]}));
    let told = told(&stage);
    assert_eq!(told.needs, ids(&events[1_800..]));
    assert_eq!((told.lacks, told.from), (300, Timestamp(0)));
    assert_eq!(told.compared, 1_800);
    assert_eq!(told.some.len(), 64);
    assert!(told.some.iter().all(|id| ids(&events[..300]).contains(id)));
}

#[test]
fn what_is_set_aside_is_neither_needed_nor_missed() {
    let stage = Stage::new();
    let events = notes(30);
    stage.store.apply(&events[..20]).unwrap();
    let place = |event: &Event| (event.created_at, event.id);
    // One that is stored as well, some that they have, some that nobody has, one too old.
    let mut aside: Vec<_> = events[19..25].iter().map(place).collect();
    aside.push((Timestamp(1_005), EventId([9; 32])));
    aside.push((Timestamp(5), EventId([8; 32])));
    let mut peer = stage.connected();
    ask(&stage, r#"{"kinds":[1],"since":1000}"#, &aside, 20_000);
    serve(&stage, &mut peer, &events.iter().collect::<Vec<_>>());
    let told = told(&stage);
    assert_eq!(told.needs, ids(&events[25..]));
    assert_eq!((told.lacks, told.from), (0, Timestamp(1_000)));
    assert_eq!(told.compared, 20, "what is set aside does not count");
}

#[test]
fn only_the_newest_whole_seconds_are_compared() {
    let stage = Stage::new();
    let events = notes(30);
    stage.store.apply(&events).unwrap();
    let mut peer = stage.connected();
    ask(&stage, r#"{"kinds":[1],"until":1008}"#, &[], 10);
    let filter = serve(&stage, &mut peer, &events.iter().collect::<Vec<_>>());
    // Three in each second: ten fit three seconds and a third of the fourth.
    let expected = json!({"kinds": [1], "since": 1006, "until": 1008});
    assert_eq!(filter, expected);
    let first = told(&stage);
    assert_eq!((first.lacks, first.from), (0, Timestamp(1_006)));
    assert_eq!(first.compared, 9);
    assert!(first.needs.is_empty());

    // A second that is fuller than that is compared all the same.
    ask(&stage, r#"{"kinds":[1],"until":1005}"#, &[], 2);
    let filter = serve(&stage, &mut peer, &[]);
    let expected = json!({"kinds": [1], "since": 1005, "until": 1005});
    assert_eq!(filter, expected);
    let second = told(&stage);
    assert_eq!((second.lacks, second.from), (3, Timestamp(1_005)));
}

#[test]
fn a_comparison_that_fails_says_why() {
    let stage = Stage::new();
    let mut peer = stage.connected();
    let refusals = [
        (
            json!(["NEG-ERR", "g4", "blocked: too many query results"]),
            Complaint::TooManyEvents,
        ),
        (
            json!(["CLOSED", "g4", "auth-required: no"]),
            Complaint::AuthRequired,
        ),
        (json!(["NEG-MSG", "g4", "62"]), Complaint::Invalid),
        (json!(["NEG-MSG", "g4", "6100000205"]), Complaint::Invalid),
    ];
    for (refusal, why) in refusals {
        ask(&stage, "{}", &[], 10);
        while stage.hear(&mut peer)[0] != "NEG-OPEN" {}
        stage.say(&mut peer, refusal);
        assert_eq!(stage.word(), FromRelay::Unreconciled { sub: SUB, why });
    }
    ask(&stage, "{}", &[], 10);
    while stage.hear(&mut peer)[0] != "NEG-OPEN" {}
    stage.ask(ToRelay::EndReconcile(SUB));
    while stage.hear(&mut peer)[0] != "NEG-CLOSE" {}
    stage.say(&mut peer, json!(["NEG-MSG", "g4", "61"]));
    stage.say(&mut peer, json!(["NOTICE", ""]));
    assert_eq!(stage.word(), FromRelay::Notice(Complaint::Other));
}
