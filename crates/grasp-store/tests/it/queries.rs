//! Every index and how filters are answered from it: order, limits, slices, completeness.

use grasp_core::{Event, EventId, Pubkey, Seq};
use grasp_store::{Budget, Completeness, Progress, Query, Store, Want};
use testkit::{Value, json, unsigned};

use crate::support::*;

const HUGE: Budget = Budget(usize::MAX);
const TINY: Budget = Budget(1);

/// Five notes, newest first.
fn five_notes() -> Vec<Event> {
    (10..15).rev().map(|at| note(ALICE, at, &[])).collect()
}

fn key(number: u8) -> Pubkey {
    Pubkey([number; 32])
}

fn newest_first(events: &[Event]) -> Vec<EventId> {
    let mut events: Vec<&Event> = events.iter().collect();
    events.sort_by_key(|event| (std::cmp::Reverse(event.created_at), event.id));
    ids(events)
}

/// Runs a query over some filters in one go.
fn ask(store: &Store, filters: &[Value], max: usize) -> (Vec<EventId>, Completeness) {
    let mut query = query(filters, max, Want::Json);
    let found = run(store, &mut query, HUGE, EARLY);
    (found, query.completeness())
}

/// One slice of the least work.
fn step(store: &Store, query: &mut Query, found: &mut Vec<EventId>) -> Progress {
    store
        .advance(query, TINY, EARLY, |match_| found.push(match_.id))
        .unwrap()
}

#[test]
fn everything_comes_newest_first_and_ties_by_lowest_id() {
    on_both(|store| {
        let events: Vec<Event> = (0..40_u64)
            .map(|n| unsigned(ALICE, 1, 10 + n % 4, &[], &n.to_string()))
            .collect();
        put_all(store, &events);
        assert_eq!(find(store, json!({})), newest_first(&events));
    });
}

#[test]
fn events_are_found_by_id() {
    on_both(|store| {
        let events = five_notes();
        put_all(store, &events);
        let wanted = [events[3].id, events[1].id, EventId([0; 32])];
        let filter = json!({"ids": wanted.map(|id| id.to_string())});
        assert_eq!(find(store, filter), [events[1].id, events[3].id]);
    });
}

#[test]
fn ids_are_narrowed_by_the_other_fields() {
    on_both(|store| {
        let event = note(ALICE, 10, &[&["t", "x"]]);
        put_all(store, [&event]);
        let ids = [event.id.to_string()];
        let alice = [ALICE.to_string()];
        for (filter, found) in [
            (json!({"ids": ids, "authors": alice}), 1),
            (json!({"ids": ids, "authors": [BOB.to_string()]}), 0),
            (json!({"ids": ids, "kinds": [1]}), 1),
            (json!({"ids": ids, "kinds": [2]}), 0),
            (json!({"ids": ids, "#t": ["x"]}), 1),
            (json!({"ids": ids, "#t": ["y"]}), 0),
            (json!({"ids": ids, "since": 10, "until": 10}), 1),
            (json!({"ids": ids, "since": 11}), 0),
            (json!({"ids": ids, "until": 9}), 0),
        ] {
            assert_eq!(find(store, filter.clone()).len(), found, "{filter}");
        }
    });
}

#[test]
fn events_are_found_by_author_and_by_kind_and_by_both() {
    on_both(|store| {
        let by = |author, kind, at| unsigned(author, kind, at, &[], "");
        let (a, b) = (by(ALICE, 1, 10), by(ALICE, 1111, 11));
        let (c, d) = (by(BOB, 1, 12), by(BOB, 1111, 13));
        put_all(store, [&a, &b, &c, &d]);
        let (alice, bob) = (ALICE.to_string(), BOB.to_string());
        for (filter, found) in [
            (json!({"authors": [alice]}), vec![b.id, a.id]),
            (json!({"kinds": [1]}), vec![c.id, a.id]),
            (json!({"authors": [alice], "kinds": [1]}), vec![a.id]),
            (
                json!({"authors": [alice, bob], "kinds": [1111]}),
                vec![d.id, b.id],
            ),
            (
                json!({"authors": [bob], "kinds": [1, 1111]}),
                vec![d.id, c.id],
            ),
            (json!({"authors": [bob], "kinds": [7]}), vec![]),
        ] {
            assert_eq!(find(store, filter.clone()), found, "{filter}");
        }
    });
}

#[test]
fn events_are_found_by_the_first_value_of_their_tags() {
    on_both(|store| {
        let event = note(
            ALICE,
            10,
            &[&["t", "x", "y"], &["t"], &["t", ""], &["r", "z"]],
        );
        put_all(store, [&event]);
        for (filter, found) in [
            (json!({"#t": ["x"]}), 1),
            (json!({"#t": ["y"]}), 0),
            (json!({"#t": [""]}), 1),
            (json!({"#r": ["z"]}), 1),
            (json!({"#r": ["x"]}), 0),
            (json!({"#t": ["x"], "#r": ["z"]}), 1),
            (json!({"#t": ["x"], "#r": ["x"]}), 0),
            (json!({"#t": ["nothing", "x"]}), 1),
        ] {
            assert_eq!(find(store, filter.clone()).len(), found, "{filter}");
        }
    });
}

#[test]
fn upper_and_lower_case_tags_are_different() {
    on_both(|store| {
        let root = unsigned(ALICE, 1111, 10, &[&["E", "x"], &["A", "Y"]], "");
        let reply = unsigned(ALICE, 1111, 11, &[&["q", "x"], &["a", "y"]], "");
        put_all(store, [&root, &reply]);
        assert_eq!(find(store, json!({"#E": ["x"]})), [root.id]);
        assert_eq!(find(store, json!({"#A": ["Y"]})), [root.id]);
        assert_eq!(find(store, json!({"#A": ["y"]})), []);
        assert_eq!(find(store, json!({"#a": ["y"]})), [reply.id]);
        assert_eq!(find(store, json!({"#Q": ["x"]})), []);
    });
}

#[test]
fn only_letters_are_indexed() {
    on_both(|store| {
        let tags: &[&[&str]] = &[&["topic", "x"], &["1", "x"], &["", "x"], &["é", "x"], &[]];
        let event = note(ALICE, 10, tags);
        put_all(store, [&event]);
        for letter in ('a'..='z')
            .chain('A'..='Z')
            .filter(|l| !matches!(l, 'e' | 'p'))
        {
            assert_eq!(find(store, json!({format!("#{letter}"): ["x"]})), []);
        }
        assert_eq!(find(store, json!({})), [event.id]);
    });
}

#[test]
fn tags_are_narrowed_by_authors_kinds_and_time() {
    on_both(|store| {
        let tagged = |author, kind, at| unsigned(author, kind, at, &[&["t", "x"]], "");
        let (a, b) = (tagged(ALICE, 1, 10), tagged(BOB, 1, 11));
        let c = tagged(ALICE, 1111, 12);
        put_all(store, [&a, &b, &c, &note(ALICE, 13, &[])]);
        let alice = [ALICE.to_string()];
        for (filter, found) in [
            (json!({"#t": ["x"]}), vec![c.id, b.id, a.id]),
            (json!({"#t": ["x"], "authors": alice}), vec![c.id, a.id]),
            (json!({"#t": ["x"], "kinds": [1]}), vec![b.id, a.id]),
            (
                json!({"#t": ["x"], "kinds": [1], "authors": alice}),
                vec![a.id],
            ),
            (json!({"#t": ["x"], "since": 11, "until": 11}), vec![b.id]),
        ] {
            assert_eq!(find(store, filter.clone()), found, "{filter}");
        }
    });
}

#[test]
fn a_hundred_authors_are_merged_into_one_order() {
    on_both(|store| {
        let events: Vec<Event> = (0..300_u64)
            .map(|n| note(key((n % 100) as u8), 10 + n % 7, &[&["t", &n.to_string()]]))
            .collect();
        put_all(store, &events);
        let authors: Vec<String> = (0..100).map(|n| key(n).to_string()).collect();
        assert_eq!(
            find(store, json!({"authors": authors})),
            newest_first(&events)
        );
    });
}

#[test]
fn a_hundred_tag_values_are_merged_into_one_order() {
    on_both(|store| {
        let values: Vec<String> = (0..100).map(|n| format!("value {n}")).collect();
        let events: Vec<Event> = (0..300_usize)
            .map(|n| {
                let tags: &[&[&str]] = &[&["t", &values[n % 100]], &["t", &values[n % 99]]];
                unsigned(ALICE, 1, 10 + n as u64 % 7, tags, &n.to_string())
            })
            .collect();
        put_all(store, &events);
        assert_eq!(find(store, json!({"#t": values})), newest_first(&events));
    });
}

#[test]
fn a_hundred_kinds_are_merged_into_one_order() {
    on_both(|store| {
        let events: Vec<Event> = (0..300_u16)
            .map(|n| {
                unsigned(
                    ALICE,
                    1000 + n % 100,
                    10 + u64::from(n % 7),
                    &[],
                    &n.to_string(),
                )
            })
            .collect();
        put_all(store, &events);
        let kinds: Vec<u16> = (1000..1100).collect();
        assert_eq!(find(store, json!({"kinds": kinds})), newest_first(&events));
        assert_eq!(find(store, json!({"kinds": [1000]})).len(), 3);
    });
}

#[test]
fn more_pairs_of_author_and_kind_than_cursors_are_still_answered() {
    on_both(|store| {
        let events: Vec<Event> = (0..200_u16)
            .map(|n| unsigned(key(n as u8 % 50), 1000 + n, 10 + u64::from(n % 7), &[], ""))
            .collect();
        put_all(store, &events);
        let authors: Vec<String> = (0..49).map(|n| key(n).to_string()).collect();
        let kinds: Vec<u16> = (1001..1200).collect();
        let wanted: Vec<Event> = events
            .into_iter()
            .filter(|event| event.kind.0 > 1000 && event.pubkey != key(49))
            .collect();
        let filter = json!({"authors": authors, "kinds": kinds});
        assert_eq!(find(store, filter), newest_first(&wanted));
    });
}

/// So many authors with one event of each of eight kinds.
fn eight_kinds_of(authors: u16) -> (Vec<Event>, Value) {
    let key = |n: u16| Pubkey(std::array::from_fn(|at| n.to_be_bytes()[at % 2]));
    let event = |n: u16| unsigned(key(n / 8), 1000 + n % 8, 10 + u64::from(n), &[], "");
    let events: Vec<Event> = (0..authors * 8).map(event).collect();
    let authors: Vec<String> = (0..authors).map(|n| key(n).to_string()).collect();
    let kinds: Vec<u16> = (1000..1008).collect();
    (events, json!({"authors": authors, "kinds": kinds}))
}

fn slices(store: &Store, query: &mut Query) -> (usize, Vec<EventId>) {
    let (mut slices, mut found) = (1, Vec::new());
    let visit = |found: &mut Vec<EventId>, query: &mut Query| {
        let progress = store.advance(query, Budget::SLICE, EARLY, |match_| found.push(match_.id));
        progress.unwrap()
    };
    while visit(&mut found, query) == Progress::More {
        slices += 1;
    }
    (slices, found)
}

#[test]
fn a_slice_that_placed_many_cursors_uses_them() {
    on_both(|store| {
        let (events, filter) = eight_kinds_of(500);
        put_all(store, &events);
        let mut query = query(&[filter], 500, Want::Ids);
        let (slices, found) = slices(store, &mut query);
        assert_eq!(found, newest_first(&events)[..500]);
        assert_eq!(slices, 1);
    });
}

#[test]
fn more_pairs_than_have_cursors_are_found_by_kind() {
    on_both(|store| {
        let (events, mut filter) = eight_kinds_of(600);
        put_all(store, &events);
        put(store, &unsigned(ALICE, 1000, 20, &[], ""));
        assert_eq!(find(store, filter.clone()), newest_first(&events));
        filter["kinds"].take();
        let filter = json!({"authors": filter["authors"]});
        assert_eq!(find(store, filter), newest_first(&events));
    });
}

#[test]
fn each_filter_that_spends_a_slice_has_one_of_its_own() {
    on_both(|store| {
        put(store, &note(ALICE, 1, &[]));
        let tags: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
        let filters: Vec<Value> = (0..5).map(|n| json!({"#t": tags, "since": n})).collect();
        let mut query = query(&filters, 500, Want::Ids);
        let (slices, found) = slices(store, &mut query);
        assert!(found.is_empty());
        assert_eq!(slices, filters.len());
    });
}

#[test]
fn an_event_under_several_values_comes_once() {
    on_both(|store| {
        let event = note(ALICE, 10, &[&["t", "x"], &["t", "y"], &["t", "x"]]);
        put_all(store, [&event]);
        let filter = json!({"#t": ["x", "y"], "limit": 2});
        let (found, completeness) = ask(store, &[filter], PLENTY);
        assert_eq!(
            (found, completeness),
            (vec![event.id], Completeness::Finish)
        );
    });
}

#[test]
fn since_and_until_include_their_second() {
    on_both(|store| {
        let events = five_notes();
        put_all(store, &events);
        for narrowed in [
            json!({}),
            json!({"kinds": [1]}),
            json!({"authors": [ALICE.to_string()]}),
        ] {
            let mut filter = narrowed.clone();
            filter["since"] = json!(11);
            filter["until"] = json!(13);
            assert_eq!(find(store, filter), ids(&events[1..4]), "{narrowed}");
        }
        assert_eq!(find(store, json!({"since": 15})), []);
        assert_eq!(find(store, json!({"until": 9})), []);
        assert_eq!(find(store, json!({"since": 12, "until": 11})), []);
    });
}

#[test]
fn the_first_and_the_last_second_are_times_too() {
    on_both(|store| {
        let (first, last) = (note(ALICE, 0, &[]), note(ALICE, u64::MAX, &[]));
        put_all(store, [&first, &last]);
        assert_eq!(find(store, json!({})), [last.id, first.id]);
        assert_eq!(find(store, json!({"until": 0})), [first.id]);
        assert_eq!(find(store, json!({"since": u64::MAX})), [last.id]);
        assert_eq!(find(store, json!({"until": u64::MAX})), [last.id, first.id]);
    });
}

#[test]
fn neighbours_of_a_prefix_are_not_found() {
    on_both(|store| {
        let events: Vec<Event> = [0, 1, 2, 255, 256, 257, 65535]
            .map(|kind| unsigned(key(0xff), kind, 10, &[], ""))
            .into();
        put_all(store, &events);
        put_all(store, [&note(key(0), 10, &[]), &note(key(0xfe), 10, &[])]);
        for event in &events[2..] {
            assert_eq!(find(store, json!({"kinds": [event.kind.0]})), [event.id]);
        }
        let last = [key(0xff).to_string()];
        assert_eq!(find(store, json!({"authors": last})).len(), events.len());
        assert_eq!(find(store, json!({"authors": last, "kinds": [1]})).len(), 1);
    });
}

#[test]
fn very_long_tag_values_are_found() {
    on_both(|store| {
        let long = "x".repeat(10_000);
        let event = unsigned(ALICE, 30617, 10, &[&["d", &long], &["t", &long]], "");
        put_all(store, [&event]);
        assert_eq!(find(store, json!({"#t": [long]})), [event.id]);
        let older = unsigned(ALICE, 30617, 9, &[&["d", &long]], "");
        let shorter = unsigned(ALICE, 30617, 9, &[&["d", &long[1..]]], "");
        let outcomes = store.apply([&older, &shorter]).unwrap();
        assert_eq!(outcomes[0], grasp_core::StoreOutcome::Replaced);
        assert_eq!(outcomes[1], grasp_core::StoreOutcome::Stored(Seq(1)));
    });
}

#[test]
fn empty_lists_match_nothing() {
    on_both(|store| {
        put_all(store, [&note(ALICE, 10, &[&["t", "x"]])]);
        for filter in [
            json!({"ids": []}),
            json!({"authors": []}),
            json!({"kinds": []}),
            json!({"#t": []}),
            json!({"#t": ["x"], "#r": []}),
        ] {
            let (found, completeness) = ask(store, std::slice::from_ref(&filter), PLENTY);
            assert_eq!(found, [], "{filter}");
            assert_eq!(completeness, Completeness::Finish, "{filter}");
        }
        assert_eq!(ask(store, &[], PLENTY), (vec![], Completeness::Finish));
    });
}

#[test]
fn a_limit_gives_the_newest_and_says_whether_there_are_more() {
    on_both(|store| {
        let events = five_notes();
        put_all(store, &events);
        for (limit, max, sent, completeness) in [
            (json!(3), PLENTY, 3, Completeness::More),
            (json!(4), PLENTY, 4, Completeness::More),
            (json!(5), PLENTY, 5, Completeness::Finish),
            (json!(6), PLENTY, 5, Completeness::Finish),
            (json!(6), 2, 2, Completeness::More),
            (json!(1), 2, 1, Completeness::More),
            (json!(u64::MAX), 5, 5, Completeness::Finish),
            (json!(0), PLENTY, 0, Completeness::Unknown),
        ] {
            let asked = ask(store, &[json!({"limit": limit})], max);
            assert_eq!(
                asked,
                (ids(&events[..sent]), completeness),
                "{limit} of {max}"
            );
        }
        let without = ask(store, &[json!({})], 2);
        assert_eq!(without, (ids(&events[..2]), Completeness::More));
    });
}

#[test]
fn hidden_events_are_not_more() {
    on_both(|store| {
        let events = five_notes();
        put_all(store, &events);
        put_all(store, [&note(ALICE, 9, &[&["expiration", "20"]])]);
        let asked = |now| {
            let mut query = query(&[json!({"limit": 5})], PLENTY, Want::Json);
            let found = run(store, &mut query, HUGE, grasp_core::Timestamp(now));
            (found.len(), query.completeness())
        };
        assert_eq!(asked(19), (5, Completeness::More));
        assert_eq!(asked(20), (5, Completeness::Finish));
    });
}

#[test]
fn the_worst_answer_of_several_filters_is_the_querys() {
    on_both(|store| {
        let events = five_notes();
        put_all(store, &events);
        let (all, some, none) = (json!({}), json!({"limit": 2}), json!({"limit": 0}));
        for (filters, completeness) in [
            ([&all, &all], Completeness::Finish),
            ([&all, &none], Completeness::Unknown),
            ([&some, &none], Completeness::More),
            ([&none, &some], Completeness::More),
        ] {
            let filters = filters.map(Clone::clone);
            assert_eq!(ask(store, &filters, PLENTY).1, completeness, "{filters:?}");
        }
    });
}

#[test]
fn filters_are_answered_one_after_the_other_and_each_event_once() {
    on_both(|store| {
        let events = five_notes();
        put_all(store, &events);
        let old = json!({"until": 11});
        let (found, completeness) = ask(store, &[old, json!({})], PLENTY);
        let expected = [3, 4, 0, 1, 2].map(|index: usize| events[index].id);
        assert_eq!(found, expected);
        assert_eq!(completeness, Completeness::Finish);
    });
}

#[test]
fn an_event_sent_for_an_earlier_filter_counts_toward_a_later_limit() {
    on_both(|store| {
        let events = five_notes();
        put_all(store, &events);
        let newest = json!({"ids": [events[0].id.to_string()]});
        let (found, completeness) = ask(store, &[newest, json!({"limit": 2})], PLENTY);
        assert_eq!(found, ids(&events[..2]));
        assert_eq!(completeness, Completeness::More);
    });
}

#[test]
fn what_an_earlier_filter_sent_is_not_more() {
    on_both(|store| {
        let events = five_notes();
        put_all(store, &events);
        let oldest = json!({"ids": [events[4].id.to_string()]});
        let (found, completeness) = ask(store, &[oldest, json!({"limit": 4})], PLENTY);
        assert_eq!(found.len(), 5);
        assert_eq!(completeness, Completeness::Finish);
    });
}

#[test]
fn json_is_the_stored_text_and_only_on_demand() {
    on_both(|store| {
        let event = note(ALICE, 10, &[&["t", "\"é\\"]]);
        put_all(store, [&event]);
        for (want, text) in [(Want::Json, &**event.json()), (Want::Ids, "")] {
            let mut query = query(&[json!({})], PLENTY, want);
            let mut found = Vec::new();
            store
                .advance(&mut query, HUGE, EARLY, |one| {
                    found.push((one.id, one.created_at, one.seq, one.json.to_owned()));
                })
                .unwrap();
            let expected = (event.id, event.created_at, Seq(0), text.to_owned());
            assert_eq!(found, [expected]);
        }
    });
}

#[test]
fn tiny_slices_give_the_same_answer_as_one() {
    on_both(|store| {
        let events: Vec<Event> = (0..60_u64)
            .map(|n| {
                let tags: &[&[&str]] = &[&["t", "x"], &["t", "y"], &["r", "z"]];
                unsigned(key(n as u8 % 5), 1, 10 + n % 4, tags, &n.to_string())
            })
            .collect();
        put_all(store, &events);
        let authors: Vec<String> = (0..3).map(|n| key(n).to_string()).collect();
        let some: Vec<String> = ids(&events[..20]).iter().map(EventId::to_string).collect();
        for filters in [
            vec![json!({})],
            vec![json!({"limit": 7})],
            vec![json!({"ids": some}), json!({"#t": ["x", "y"], "limit": 30})],
            vec![
                json!({"authors": authors, "since": 12}),
                json!({"until": 11}),
            ],
            vec![json!({"#t": ["x"], "#r": ["z"], "authors": authors})],
            vec![
                json!({"limit": 0}),
                json!({"kinds": []}),
                json!({"kinds": [1]}),
            ],
        ] {
            let mut whole = query(&filters, 50, Want::Json);
            let mut sliced = query(&filters, 50, Want::Json);
            let expected = run(store, &mut whole, HUGE, EARLY);
            assert_eq!(
                run(store, &mut sliced, TINY, EARLY),
                expected,
                "{filters:?}"
            );
            assert_eq!(sliced.completeness(), whole.completeness(), "{filters:?}");
        }
    });
}

#[test]
fn a_tiny_slice_stops_early() {
    on_both(|store| {
        put_all(store, &five_notes());
        let mut query = query(&[json!({})], PLENTY, Want::Json);
        let mut found = Vec::new();
        assert_eq!(step(store, &mut query, &mut found), Progress::More);
        assert_eq!(found.len(), 1);
    });
}

#[test]
fn the_bound_is_known_after_the_first_slice_and_stays() {
    on_both(|store| {
        put_all(store, &five_notes());
        let mut query = query(&[json!({})], PLENTY, Want::Json);
        assert_eq!(query.bound(), None);
        step(store, &mut query, &mut Vec::new());
        assert_eq!(query.bound(), Some(Seq(5)));
        put_all(store, [&note(BOB, 1, &[])]);
        run(store, &mut query, HUGE, EARLY);
        assert_eq!(query.bound(), Some(Seq(5)));
    });
}

#[test]
fn a_query_for_nothing_has_a_bound_too() {
    on_both(|store| {
        put_all(store, &five_notes());
        let mut query = query(&[json!({"limit": 0})], PLENTY, Want::Json);
        assert_eq!(run(store, &mut query, TINY, EARLY), []);
        assert_eq!(query.bound(), Some(Seq(5)));
    });
}

#[test]
fn events_committed_between_slices_are_not_seen() {
    on_both(|store| {
        let events = five_notes();
        put_all(store, &events);
        let coming = [note(BOB, 20, &[]), note(BOB, 12, &[]), note(BOB, 5, &[])];
        let any_of_them = json!({"ids": coming.each_ref().map(|event| event.id.to_string())});
        let filters = [
            json!({"authors": [ALICE.to_string()]}),
            any_of_them,
            json!({}),
        ];
        let mut query = query(&filters, PLENTY, Want::Json);
        let mut found = Vec::new();
        assert_eq!(step(store, &mut query, &mut found), Progress::More);
        put_all(store, &coming);
        found.extend(run(store, &mut query, TINY, EARLY));
        assert_eq!(found, ids(&events));
        assert_eq!(query.completeness(), Completeness::Finish);
    });
}

/// Deletes the third of five notes after one slice and returns what the whole query found.
fn found_around_a_deletion(store: &Store, filter: Value, want: Want) -> Vec<EventId> {
    let events = five_notes();
    let mut query = query(&[filter], PLENTY, want);
    let mut found = Vec::new();
    step(store, &mut query, &mut found);
    store.apply([&delete_id(ALICE, 30, &events[2])]).unwrap();
    found.extend(run(store, &mut query, TINY, EARLY));
    found
}

#[test]
fn events_deleted_between_slices_are_not_sent() {
    let events = five_notes();
    let some: Vec<String> = ids(&events).iter().map(EventId::to_string).collect();
    let expected = [0, 1, 3, 4].map(|index: usize| events[index].id);
    for filter in [json!({"kinds": [1]}), json!({"ids": some})] {
        for want in [Want::Json, Want::Ids] {
            on_both(|store| {
                put_all(store, &events);
                let found = found_around_a_deletion(store, filter.clone(), want);
                assert_eq!(found, expected, "{filter} {want:?}");
            });
        }
    }
}

/// Notes with so many bytes of tags or of content each.
fn wide_notes(count: u64, tag_bytes: usize, content_bytes: usize) -> Vec<Event> {
    let (padding, content) = ("x".repeat(tag_bytes), "x".repeat(content_bytes));
    let tags: &[&[&str]] = &[&["r", &padding], &["r", "other"]];
    (0..count)
        .map(|n| unsigned(ALICE, 1, 10 + n, tags, &content))
        .collect()
}

/// The same filter, of these events: each has its tags looked at.
fn by_id(events: &[Event], mut filter: Value) -> Value {
    let ids = events.iter().map(|event| event.id.to_string());
    filter["ids"] = ids.collect();
    filter
}

#[test]
fn a_slice_ends_after_a_megabyte_of_tags() {
    on_both(|store| {
        const TAG_BYTES: usize = 200_000;
        let events = wide_notes(40, TAG_BYTES, 0);
        put_all(store, &events);
        let filter = by_id(&events, json!({"#r": ["absent"]}));
        let mut query = query(&[filter], PLENTY, Want::Ids);
        let (slices, found) = slices(store, &mut query);
        assert_eq!(found, []);
        let megabytes = events.len() * TAG_BYTES / 1_000_000;
        assert!(
            slices >= megabytes,
            "{megabytes} MB of tags in {slices} slices"
        );
    });
}

#[test]
fn what_follows_the_tags_is_not_read_to_check_them() {
    on_both(|store| {
        let events = wide_notes(100, 10, 100_000);
        put_all(store, &events);
        let filter = by_id(&events, json!({"#r": ["absent"]}));
        let mut query = query(&[filter], PLENTY, Want::Ids);
        assert_eq!(slices(store, &mut query), (1, vec![]));
    });
}

#[test]
fn tags_that_are_looked_up_in_long_lists_are_charged() {
    on_both(|store| {
        let tags: Vec<[String; 2]> = (0..2_000).map(|n| ["r".into(), n.to_string()]).collect();
        let tags: Vec<[&str; 2]> = tags
            .iter()
            .map(|[name, value]| [&**name, &**value])
            .collect();
        let tags: Vec<&[&str]> = tags.iter().map(<[&str; 2]>::as_slice).collect();
        let events: Vec<Event> = (0..20).map(|n| note(ALICE, 10 + n, &tags)).collect();
        put_all(store, &events);
        let absent: Vec<String> = (0..1_900).map(|n| format!("absent {n}")).collect();
        let filter = by_id(&events, json!({"#r": absent}));
        let mut query = query(&[filter], PLENTY, Want::Ids);
        let (slices, found) = slices(store, &mut query);
        assert_eq!(found, []);
        assert!(slices >= 5, "40,000 tags in {slices} slices");
    });
}

#[test]
fn ids_that_are_not_here_are_charged() {
    on_both(|store| {
        put(store, &note(ALICE, 1, &[]));
        let absent = |n: u64| Pubkey(std::array::from_fn(|at| n.to_be_bytes()[at % 8])).to_string();
        let filters: Vec<Value> = (0..8)
            .map(|n| json!({"ids": (n * 1_000..(n + 1) * 1_000).map(absent).collect::<Vec<_>>()}))
            .collect();
        let mut query = query(&filters, PLENTY, Want::Ids);
        let (slices, found) = slices(store, &mut query);
        assert_eq!(found, []);
        assert!(slices >= filters.len(), "8,000 look-ups in {slices} slices");
    });
}

#[test]
fn an_author_of_more_kinds_than_have_cursors_is_found() {
    on_both(|store| {
        let events: Vec<Event> = (0..7_000_u16)
            .map(|n| unsigned(ALICE, 1_000 + n, 10, &[], ""))
            .collect();
        put_all(store, &events);
        put(store, &unsigned(BOB, 1_000, 10, &[], ""));
        let alice = [ALICE.to_string()];
        assert_eq!(find(store, json!({"authors": alice})).len(), 7_000);
        let kinds: Vec<u16> = (7_000..8_900).collect();
        let filter = json!({"authors": alice, "kinds": kinds});
        assert_eq!(find(store, filter).len(), 1_000);
    });
}
