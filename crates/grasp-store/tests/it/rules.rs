//! What an event does to the store: replacement, deletion, expiry and vanishing.

use grasp_core::{Seq, StoreOutcome, Timestamp};
use grasp_store::Swept;
use testkit::{json, unsigned};

use crate::support::*;

fn alice_repo_address(d: &str) -> String {
    format!("30617:{ALICE}:{d}")
}

#[test]
fn an_event_is_stored_once() {
    on_both(|store| {
        let event = note(ALICE, 10, &[]);
        assert_eq!(put(store, &event), StoreOutcome::Stored(Seq(0)));
        assert_eq!(put(store, &event), StoreOutcome::Duplicate);
        assert!(store.contains(&event.id).unwrap());
        assert_eq!(store.stats().unwrap().events, 1);
    });
}

#[test]
fn every_stored_event_has_a_higher_number() {
    on_both(|store| {
        let old = repo(ALICE, 10, "x");
        let new = repo(ALICE, 11, "x");
        assert_eq!(store.next_seq().unwrap(), Seq(0));
        assert_eq!(put(store, &new), StoreOutcome::Stored(Seq(0)));
        assert_eq!(put(store, &old), StoreOutcome::Replaced);
        let newest = repo(ALICE, 12, "x");
        assert_eq!(put(store, &newest), StoreOutcome::Stored(Seq(1)));
        assert_eq!(store.next_seq().unwrap(), Seq(2));
    });
}

#[test]
fn a_newer_version_replaces_the_older() {
    on_both(|store| {
        for kind in [0, 3, 10317, 30617, 39999] {
            let old = unsigned(ALICE, kind, 10, &[&["d", "x"]], "");
            let new = unsigned(ALICE, kind, 11, &[&["d", "x"]], "");
            put_all(store, [&old, &new]);
            assert_eq!(find(store, json!({"kinds": [kind]})), [new.id]);
            assert!(!store.contains(&old.id).unwrap());
        }
    });
}

#[test]
fn an_older_version_is_refused() {
    on_both(|store| {
        let new = repo(ALICE, 11, "x");
        put_all(store, [&new]);
        assert_eq!(put(store, &repo(ALICE, 10, "x")), StoreOutcome::Replaced);
        assert_eq!(find(store, json!({})), [new.id]);
    });
}

#[test]
fn of_two_versions_in_one_second_the_lowest_id_stays_and_the_loser_never_returns() {
    on_both(|store| {
        for kind in [10317, 30617] {
            let (low, high) = tied(|content| unsigned(ALICE, kind, 10, &[], content));
            put_all(store, [&high, &low]);
            assert_eq!(find(store, json!({"kinds": [kind]})), [low.id]);
            assert_eq!(put(store, &high), StoreOutcome::Replaced);
            put_all(store, [&delete_id(ALICE, 20, &low)]);
            assert_eq!(put(store, &high), StoreOutcome::Replaced);
            assert_eq!(put(store, &low), StoreOutcome::Deleted);
            assert_eq!(find(store, json!({"kinds": [kind]})), []);
        }
    });
}

#[test]
fn a_loser_stays_out_when_the_winner_has_expired() {
    on_both(|store| {
        let winner = unsigned(ALICE, 10317, 11, &[&["expiration", "20"]], "");
        let loser = unsigned(ALICE, 10317, 10, &[], "");
        put_all(store, [&winner]);
        store.sweep(Timestamp(20), PLENTY).unwrap();
        assert!(!store.contains(&winner.id).unwrap());
        assert_eq!(put(store, &loser), StoreOutcome::Replaced);
        assert_eq!(put(store, &winner), StoreOutcome::Replaced);
        put_all(store, [&unsigned(ALICE, 10317, 12, &[], "")]);
    });
}

#[test]
fn addressable_events_of_different_d_stand_side_by_side() {
    on_both(|store| {
        let without = unsigned(ALICE, 30617, 12, &[], "");
        let valueless = unsigned(ALICE, 30617, 11, &[&["d"]], "");
        let empty = unsigned(ALICE, 30617, 10, &[&["d", ""]], "");
        put_all(store, [&repo(ALICE, 10, "x"), &repo(ALICE, 10, "y")]);
        put_all(store, [&without]);
        assert_eq!(put(store, &valueless), StoreOutcome::Replaced);
        assert_eq!(put(store, &empty), StoreOutcome::Replaced);
        assert_eq!(store.stats().unwrap().events, 3);
    });
}

#[test]
fn the_first_d_tag_is_the_one() {
    on_both(|store| {
        let twice = unsigned(ALICE, 30617, 10, &[&["d", "x", "z"], &["d", "y"]], "");
        put_all(store, [&twice, &repo(ALICE, 9, "y"), &repo(ALICE, 9, "z")]);
        assert_eq!(put(store, &repo(ALICE, 9, "x")), StoreOutcome::Replaced);
    });
}

#[test]
fn a_replaceable_kind_has_one_event_whatever_its_d() {
    on_both(|store| {
        let old = unsigned(ALICE, 10317, 10, &[&["d", "x"]], "");
        let new = unsigned(ALICE, 10317, 11, &[&["d", "y"]], "");
        put_all(store, [&old, &new]);
        assert_eq!(find(store, json!({})), [new.id]);
    });
}

#[test]
fn authors_and_kinds_do_not_share_slots() {
    on_both(|store| {
        let state = unsigned(ALICE, 30618, 9, &[&["d", "x"]], "");
        put_all(store, [&repo(ALICE, 10, "x"), &repo(BOB, 9, "x"), &state]);
        assert_eq!(store.stats().unwrap().events, 3);
    });
}

#[test]
fn other_kinds_replace_nothing() {
    on_both(|store| {
        for kind in [1, 2, 4, 9999, 40000] {
            let one = unsigned(ALICE, kind, 10, &[&["d", "x"]], "");
            let two = unsigned(ALICE, kind, 11, &[&["d", "x"]], "");
            put_all(store, [&one, &two]);
        }
        assert_eq!(store.stats().unwrap().events, 10);
    });
}

#[test]
fn a_deletion_removes_its_target_and_stays_itself() {
    on_both(|store| {
        let event = note(ALICE, 10, &[&["t", "x"]]);
        let request = delete_id(ALICE, 5, &event);
        put_all(store, [&event, &request]);
        assert_eq!(find(store, json!({})), [request.id]);
        assert_eq!(find(store, json!({"#t": ["x"]})), []);
        assert!(!store.contains(&event.id).unwrap());
        assert_eq!(put(store, &event), StoreOutcome::Deleted);
        assert_eq!(put(store, &request), StoreOutcome::Duplicate);
    });
}

#[test]
fn a_deletion_before_its_target_is_remembered() {
    on_both(|store| {
        let event = note(ALICE, 10, &[]);
        put_all(store, [&delete_id(ALICE, 20, &event)]);
        assert_eq!(put(store, &event), StoreOutcome::Deleted);
        assert!(!store.contains(&event.id).unwrap());
    });
}

#[test]
fn a_strangers_deletion_does_nothing() {
    on_both(|store| {
        let (there, coming) = (note(ALICE, 10, &[]), note(ALICE, 11, &[]));
        let requests = [delete_id(BOB, 20, &there), delete_id(BOB, 20, &coming)];
        put_all(store, [&there]);
        put_all(store, &requests);
        put_all(store, [&coming]);
        assert_eq!(find(store, json!({"kinds": [1]})), [coming.id, there.id]);
    });
}

#[test]
fn a_strangers_deletion_does_not_undo_the_authors() {
    on_both(|store| {
        let event = note(ALICE, 10, &[]);
        put_all(store, [&delete_id(ALICE, 20, &event)]);
        put_all(store, [&delete_id(BOB, 21, &event)]);
        assert_eq!(put(store, &event), StoreOutcome::Deleted);
    });
}

#[test]
fn a_deletion_names_many_events_by_the_first_value_of_its_tags() {
    on_both(|store| {
        let notes = [10, 11, 12].map(|at| note(ALICE, at, &[]));
        let [a, b, c] = notes.each_ref().map(|event| event.id.to_string());
        put_all(store, &notes);
        let tags: &[&[&str]] = &[&["e", &a, &c], &["e"], &["e", "no id"], &["e", &b]];
        put_all(store, [&deletion(ALICE, 20, tags)]);
        assert_eq!(find(store, json!({"kinds": [1]})), [notes[2].id]);
    });
}

#[test]
fn a_deletion_cannot_be_deleted() {
    on_both(|store| {
        let event = note(ALICE, 10, &[]);
        let (there, coming) = (delete_id(ALICE, 20, &event), delete_id(ALICE, 21, &event));
        put_all(store, [&there, &delete_id(ALICE, 30, &there)]);
        put_all(store, [&delete_id(ALICE, 31, &coming), &coming]);
        assert!(store.contains(&there.id).unwrap());
        assert_eq!(put(store, &event), StoreOutcome::Deleted);
    });
}

#[test]
fn a_request_to_vanish_cannot_be_deleted() {
    on_both(|store| {
        let (there, coming) = (vanish(ALICE, 20), vanish(ALICE, 25));
        put_all(store, [&there, &delete_id(ALICE, 30, &there)]);
        assert!(store.contains(&there.id).unwrap());
        put_all(store, [&delete_id(ALICE, 31, &coming), &coming]);
        assert_eq!(put(store, &note(ALICE, 22, &[])), StoreOutcome::Vanished);
    });
}

#[test]
fn a_deletion_by_address_takes_all_versions_up_to_its_time() {
    on_both(|store| {
        let other = repo(ALICE, 10, "y");
        put_all(store, [&repo(ALICE, 10, "x"), &other]);
        put_all(
            store,
            [&delete_address(ALICE, 20, &alice_repo_address("x"))],
        );
        assert_eq!(find(store, json!({"kinds": [30617]})), [other.id]);
        for at in [5, 10, 15, 20] {
            assert_eq!(put(store, &repo(ALICE, at, "x")), StoreOutcome::Deleted);
        }
        put_all(store, [&repo(ALICE, 21, "x")]);
    });
}

#[test]
fn a_deletion_by_address_leaves_a_newer_version() {
    on_both(|store| {
        let newer = repo(ALICE, 21, "x");
        put_all(store, [&newer]);
        put_all(
            store,
            [&delete_address(ALICE, 20, &alice_repo_address("x"))],
        );
        assert_eq!(find(store, json!({"kinds": [30617]})), [newer.id]);
    });
}

#[test]
fn a_deletion_by_address_before_its_target_is_remembered() {
    on_both(|store| {
        put_all(
            store,
            [&delete_address(ALICE, 20, &alice_repo_address("x"))],
        );
        assert_eq!(put(store, &repo(ALICE, 20, "x")), StoreOutcome::Deleted);
        put_all(store, [&repo(ALICE, 20, "y"), &repo(ALICE, 21, "x")]);
    });
}

#[test]
fn an_older_address_deletion_does_not_move_the_tombstone_back() {
    on_both(|store| {
        let address = alice_repo_address("x");
        put_all(store, [&delete_address(ALICE, 20, &address)]);
        put_all(store, [&delete_address(ALICE, 10, &address)]);
        assert_eq!(put(store, &repo(ALICE, 15, "x")), StoreOutcome::Deleted);
        put_all(store, [&delete_address(ALICE, 30, &address)]);
        assert_eq!(put(store, &repo(ALICE, 25, "x")), StoreOutcome::Deleted);
        put_all(store, [&repo(ALICE, 31, "x")]);
    });
}

#[test]
fn a_strangers_address_deletion_does_nothing() {
    on_both(|store| {
        put_all(store, [&repo(ALICE, 10, "x")]);
        put_all(store, [&delete_address(BOB, 20, &alice_repo_address("x"))]);
        put_all(store, [&repo(ALICE, 11, "x")]);
    });
}

#[test]
fn an_address_in_another_spelling_deletes_nothing() {
    on_both(|store| {
        let about = |kind: &str, d: &str| delete_address(ALICE, 20, &format!("{kind}:{ALICE}:{d}"));
        let list = unsigned(ALICE, 10317, 10, &[], "");
        put_all(store, [&repo(ALICE, 10, "x"), &list, &note(ALICE, 10, &[])]);
        let misspelt = [
            about("+30617", "x"),
            about("030617", "x"),
            about(" 30617", "x"),
            about("30617", "X"),
            about("30617", ""),
            about("30617", "x:"),
            about("10317", "x"),
            about("1", ""),
            delete_address(ALICE, 20, &alice_repo_address("x").to_uppercase()),
            delete_address(ALICE, 20, "30617"),
            delete_address(ALICE, 20, ""),
        ];
        put_all(store, &misspelt);
        assert_eq!(find(store, json!({"kinds": [1, 10317, 30617]})).len(), 3);
        put_all(store, [&about("10317", "")]);
        assert_eq!(find(store, json!({"kinds": [10317]})), []);
    });
}

#[test]
fn an_identifier_may_hold_colons() {
    on_both(|store| {
        let short = repo(ALICE, 10, "a");
        put_all(store, [&short, &repo(ALICE, 10, "a:b")]);
        put_all(
            store,
            [&delete_address(ALICE, 20, &alice_repo_address("a:b"))],
        );
        assert_eq!(find(store, json!({"kinds": [30617]})), [short.id]);
    });
}

#[test]
fn a_loser_stays_out_when_the_winner_was_deleted() {
    on_both(|store| {
        let winner = repo(ALICE, 15, "x");
        put_all(store, [&winner, &delete_id(ALICE, 20, &winner)]);
        assert_eq!(put(store, &repo(ALICE, 10, "x")), StoreOutcome::Replaced);
        put_all(store, [&repo(ALICE, 16, "x")]);
    });
}

#[test]
fn an_expired_event_is_hidden_at_once_and_swept_later() {
    on_both(|store| {
        let event = note(ALICE, 10, &[&["expiration", "20"], &["t", "x"]]);
        let by_id = json!({"ids": [event.id.to_string()]});
        put_all(store, [&event]);
        for filter in [json!({}), json!({"#t": ["x"]}), by_id] {
            assert_eq!(find_at(store, filter.clone(), Timestamp(19)), [event.id]);
            assert_eq!(find_at(store, filter, Timestamp(20)), []);
        }
        assert!(store.contains(&event.id).unwrap());
        assert_eq!(store.sweep(Timestamp(19), 9).unwrap(), swept(0, false));
        assert_eq!(store.sweep(Timestamp(20), 9).unwrap(), swept(1, false));
        assert!(!store.contains(&event.id).unwrap());
        assert_eq!(store.stats().unwrap().events, 0);
    });
}

fn swept(removed: usize, more: bool) -> Swept {
    Swept { removed, more }
}

#[test]
fn a_sweep_stops_at_its_bound_and_says_so() {
    on_both(|store| {
        for at in 20..28_u64 {
            let expiration = at.to_string();
            put_all(store, [&note(ALICE, 10, &[&["expiration", &expiration]])]);
        }
        assert_eq!(store.sweep(Timestamp(22), 3).unwrap(), swept(3, false));
        assert_eq!(store.sweep(Timestamp(26), 3).unwrap(), swept(3, true));
        assert_eq!(store.sweep(Timestamp(26), 3).unwrap(), swept(1, false));
        assert_eq!(store.sweep(Timestamp(26), 3).unwrap(), swept(0, false));
        assert_eq!(store.stats().unwrap().events, 1);
    });
}

#[test]
fn a_sweep_forgets_no_event_that_is_gone_already() {
    on_both(|store| {
        let event = note(ALICE, 10, &[&["expiration", "20"]]);
        put_all(store, [&event, &delete_id(ALICE, 11, &event)]);
        assert_eq!(store.sweep(Timestamp(30), 9).unwrap(), swept(0, false));
    });
}

#[test]
fn an_expiration_that_is_no_time_means_nothing() {
    on_both(|store| {
        let without: &[&[&str]] = &[&["expiration"]];
        for tags in [without, &[&["expiration", "soon"]], &[&["expiration", ""]]] {
            put_all(store, [&note(ALICE, 10, tags)]);
        }
        assert_eq!(find_at(store, json!({}), Timestamp(u64::MAX)).len(), 3);
        assert_eq!(
            store.sweep(Timestamp(u64::MAX), 9).unwrap(),
            swept(0, false)
        );
    });
}

#[test]
fn what_an_expired_deletion_deleted_stays_deleted() {
    on_both(|store| {
        let event = note(ALICE, 10, &[]);
        let tags: &[&[&str]] = &[&["e", &event.id.to_string()], &["expiration", "20"]];
        put_all(store, [&event, &deletion(ALICE, 11, tags)]);
        assert_eq!(store.sweep(Timestamp(20), PLENTY).unwrap(), swept(1, false));
        assert_eq!(put(store, &event), StoreOutcome::Deleted);
    });
}

#[test]
fn vanishing_removes_all_that_the_author_wrote_before() {
    on_both(|store| {
        let newer = note(ALICE, 21, &[]);
        let strangers = note(BOB, 10, &[]);
        let request = vanish(ALICE, 20);
        put_all(
            store,
            [&note(ALICE, 20, &[&["t", "x"]]), &newer, &strangers],
        );
        put_all(store, [&repo(ALICE, 10, "x"), &deletion(ALICE, 11, &[])]);
        put_all(store, [&request]);
        let left = find(store, json!({}));
        assert_eq!(left, [newer.id, request.id, strangers.id]);
        assert_eq!(find(store, json!({"#t": ["x"]})), []);
    });
}

#[test]
fn what_vanished_does_not_return() {
    on_both(|store| {
        let event = note(ALICE, 20, &[]);
        put_all(store, [&event, &vanish(ALICE, 20)]);
        assert_eq!(put(store, &event), StoreOutcome::Vanished);
        assert_eq!(put(store, &repo(ALICE, 5, "x")), StoreOutcome::Vanished);
        put_all(store, [&note(ALICE, 21, &[]), &note(BOB, 5, &[])]);
    });
}

#[test]
fn an_older_request_to_vanish_does_not_bring_anything_back() {
    on_both(|store| {
        put_all(store, [&vanish(ALICE, 20)]);
        assert_eq!(put(store, &vanish(ALICE, 10)), StoreOutcome::Vanished);
        assert_eq!(put(store, &note(ALICE, 15, &[])), StoreOutcome::Vanished);
        put_all(store, [&vanish(ALICE, 30)]);
        assert_eq!(put(store, &note(ALICE, 25, &[])), StoreOutcome::Vanished);
        assert_eq!(find(store, json!({"kinds": [62]})).len(), 1);
    });
}

#[test]
fn vanishing_removes_gift_wraps_to_the_author() {
    on_both(|store| {
        let to_alice = ALICE.to_string();
        let wrap = |at| unsigned(BOB, 1059, at, &[&["p", &to_alice]], "");
        let mention = note(BOB, 10, &[&["p", &to_alice]]);
        let cited = unsigned(BOB, 1059, 10, &[&["P", &to_alice]], "");
        put_all(store, [&wrap(19), &wrap(20), &wrap(21), &mention, &cited]);
        put_all(store, [&vanish(ALICE, 20)]);
        assert_eq!(
            find(store, json!({"kinds": [1059]})),
            [wrap(21).id, cited.id]
        );
        assert!(store.contains(&mention.id).unwrap());
    });
}

#[test]
fn gift_wraps_to_a_vanished_author_are_refused_up_to_that_time() {
    on_both(|store| {
        let to_alice = ALICE.to_string();
        let tags: &[&[&str]] = &[&["p", &BOB.to_string()], &["p", &to_alice]];
        let wrap = |at| unsigned(BOB, 1059, at, tags, "");
        put_all(store, [&vanish(ALICE, 20)]);
        assert_eq!(put(store, &wrap(20)), StoreOutcome::Vanished);
        put_all(store, [&wrap(21), &note(BOB, 20, &[&["p", &to_alice]])]);
    });
}

#[test]
fn a_request_to_vanish_sees_events_of_its_own_batch() {
    on_both(|store| {
        let request = vanish(ALICE, 20);
        let later = note(ALICE, 15, &[]);
        let batch = [note(ALICE, 10, &[]), request.clone(), later];
        let outcomes = store.apply(&batch).unwrap();
        assert_eq!(outcomes[2], StoreOutcome::Vanished);
        assert_eq!(find(store, json!({})), [request.id]);
    });
}

#[test]
fn one_batch_is_applied_in_order() {
    on_both(|store| {
        let event = note(ALICE, 10, &[&["t", "x"]]);
        let (old, new) = (repo(ALICE, 10, "x"), repo(ALICE, 11, "x"));
        let batch = [
            event.clone(),
            event.clone(),
            old.clone(),
            new.clone(),
            old,
            delete_id(ALICE, 20, &event),
            event,
        ];
        let outcomes = store.apply(&batch).unwrap();
        let expected = [
            StoreOutcome::Stored(Seq(0)),
            StoreOutcome::Duplicate,
            StoreOutcome::Stored(Seq(1)),
            StoreOutcome::Stored(Seq(2)),
            StoreOutcome::Replaced,
            StoreOutcome::Stored(Seq(3)),
            StoreOutcome::Deleted,
        ];
        assert_eq!(outcomes, expected);
        assert_eq!(find(store, json!({})), [batch[5].id, new.id]);
        assert_eq!(find(store, json!({"#t": ["x"]})), []);
    });
}

#[test]
fn the_first_reason_to_refuse_is_given() {
    on_both(|store| {
        let address = alice_repo_address("x");
        let old = repo(ALICE, 10, "x");
        put_all(store, [&repo(ALICE, 30, "x")]);
        assert_eq!(put(store, &old), StoreOutcome::Replaced);
        put_all(store, [&delete_address(ALICE, 20, &address)]);
        assert_eq!(put(store, &old), StoreOutcome::Deleted);
        put_all(store, [&vanish(ALICE, 20)]);
        assert_eq!(put(store, &old), StoreOutcome::Vanished);
    });
}

#[test]
fn an_empty_batch_is_nothing() {
    on_both(|store| {
        assert_eq!(store.apply([]).unwrap(), []);
        assert_eq!(store.next_seq().unwrap(), Seq(0));
    });
}
