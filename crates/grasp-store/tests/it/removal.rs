//! Deletion in steps: what a request takes is hidden at once, and its rows go a few at a time.

use grasp_core::{Event, EventId, Facts as _, Kind, Pubkey, RepoId, StoreOutcome, Timestamp};
use grasp_store::{RemovalLimits, Store, TailLimits, Want};
use testkit::author::unsigned_tags;
use testkit::{json, unsigned};

use crate::support::*;
use crate::tail::{Mortal, UNLIMITED, copy};
use crate::world::World;

/// Nothing goes with the commit itself, and little with a sweep.
const TINY: RemovalLimits = RemovalLimits {
    bytes_at_once: 0,
    looks: 1,
    rows: 1,
};
/// Everything is hidden by the commit itself, one by one.
const HIDDEN: RemovalLimits = RemovalLimits {
    bytes_at_once: 0,
    looks: 1_000,
    rows: 1,
};
const SMALL: RemovalLimits = RemovalLimits {
    bytes_at_once: 1_000,
    looks: 3,
    rows: 20,
};

const TAGS: usize = 2_400;
/// An event's rows in the indexes of time, kind and author, and those of its tags.
const ROWS: usize = 3 + TAGS;

/// An event with as many rows as one can have.
fn wide(author: Pubkey, kind: u16, n: u64) -> Event {
    let tag = |tag| vec!["t".to_owned(), format!("{n}-{tag}")];
    let tags = (0..TAGS).map(tag).collect();
    unsigned_tags(author, kind, 1_000 + n, tags, "")
}

fn on_both_limited(removal: RemovalLimits, test: impl Fn(&Store)) {
    eprintln!("in memory");
    test(&Store::in_memory_limited(removal));
    eprintln!("on disk");
    let dir = tempfile::tempdir().unwrap();
    test(&Store::open_limited(dir.path(), TailLimits::default(), removal).unwrap());
}

fn sweep_all(store: &Store) {
    for _ in 0..PLENTY {
        if !store.sweep(EARLY, PLENTY).unwrap().more {
            let left = store.stats().unwrap();
            assert_eq!((left.garbage, left.vanishing), (0, 0));
            return;
        }
    }
    panic!("the sweep does not end");
}

#[test]
fn stores_that_sweep_in_small_steps_agree_with_the_model() {
    for (n, limits) in [TINY, HIDDEN, SMALL].into_iter().enumerate() {
        let first = 60_000 + 1_000 * n as u64;
        for seed in first..first + 200 {
            World::new(seed, Store::in_memory_limited(limits)).live();
        }
        for seed in first + 500..first + 530 {
            let dir = tempfile::tempdir().unwrap();
            let tail = [
                UNLIMITED,
                TailLimits {
                    events: 5,
                    ..UNLIMITED
                },
            ][seed as usize % 2];
            World::new(seed, Store::open_limited(dir.path(), tail, limits).unwrap()).live();
        }
    }
}

#[test]
fn a_crash_in_the_middle_of_a_sweep_brings_nothing_back() {
    for seed in 70_000..70_018 {
        let limits = [TINY, HIDDEN, SMALL][seed as usize % 3];
        let tail = [
            UNLIMITED,
            TailLimits {
                events: 20,
                ..UNLIMITED
            },
        ][seed as usize % 2];
        let mut mortal = Mortal::limited(seed, tail, limits);
        for _ in 0..4 {
            for _ in 0..3 {
                mortal.live_a_while();
                mortal.world.sweep_a_step_or_not();
            }
            mortal.crash(tail);
        }
    }
}

#[test]
fn a_deletion_of_large_events_writes_little_and_hides_them_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_with(dir.path(), UNLIMITED).unwrap();
    let events: Vec<Event> = (0..200).map(|n| wide(ALICE, 1, n)).collect();
    for batch in events.chunks(20) {
        put_all(&store, batch);
    }
    // The tail is empty: whatever the request writes is in it afterwards.
    drop(store);
    let store = Store::open_with(dir.path(), UNLIMITED).unwrap();
    let targets = events
        .iter()
        .map(|event| vec!["e".to_owned(), event.id.to_string()]);
    let request = unsigned_tags(ALICE, 5, 2_000, targets.collect(), "");
    let before = store.stats().unwrap().tail_rows;
    put_all(&store, [&request]);
    let written = store.stats().unwrap().tail_rows - before;
    // Its own rows, and a few for each target: the indexes of what goes are left alone, except for
    // the small part that goes at once.
    assert!(written < 200 * 5 + 3 * ROWS, "{written} rows");
    assert_gone(&store, &events, &request);
}

#[test]
fn a_sweep_removes_a_bounded_number_of_rows_and_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let events: Vec<Event> = (0..60).map(|n| wide(ALICE, 1, n)).collect();
    for batch in events.chunks(20) {
        put_all(&store, batch);
    }
    let request = vanish(ALICE, 2_000);
    put_all(&store, [&request]);
    assert_gone(&store, &events, &request);
    let mut left = store.stats().unwrap().garbage;
    assert!(left > 50, "{left}");
    let most = RemovalLimits::default().rows.div_ceil(ROWS) as u64;
    for _ in 0..5 {
        assert!(store.sweep(EARLY, PLENTY).unwrap().more);
        let now = store.stats().unwrap().garbage;
        assert!((1..=most).contains(&(left - now)), "{left} to {now}");
        left = now;
    }
    // A crash, and an orderly end.
    let (_copied, path) = copy(&store);
    drop(store);
    for path in [dir.path(), &path] {
        assert_gone(&Store::open_read_only(path).unwrap(), &events, &request);
        let store = Store::open(path).unwrap();
        assert_eq!(store.stats().unwrap().garbage, left);
        assert_gone(&store, &events, &request);
        sweep_all(&store);
        assert_gone(&store, &events, &request);
    }
}

#[track_caller]
fn assert_gone(store: &Store, events: &[Event], request: &Event) {
    assert_eq!(find(store, json!({})), [request.id]);
    assert_eq!(find(store, json!({"kinds": [1]})), []);
    assert_eq!(
        find(store, json!({"authors": [ALICE.to_string()]})),
        [request.id]
    );
    assert_eq!(find(store, json!({"#t": ["0-0", "1-7", "59-2399"]})), []);
    let ids: Vec<String> = events.iter().map(|event| event.id.to_string()).collect();
    assert_eq!(find(store, json!({"ids": ids})), []);
    assert_eq!(store.stats().unwrap().events, 1);
    for event in events {
        assert!(!store.contains(&event.id).unwrap());
        assert_eq!(store.kind_of(&event.id), None);
        assert!(store.event(&event.id).is_none());
        let gone = [StoreOutcome::Deleted, StoreOutcome::Vanished];
        assert!(gone.contains(&store.foresee(event).unwrap()));
    }
}

#[test]
fn the_rows_of_what_was_swept_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_limited(dir.path(), TailLimits::default(), SMALL).unwrap();
    let events: Vec<Event> = (0..5).map(|n| wide(ALICE, 1, n)).collect();
    put_all(&store, &events);
    put_all(
        &store,
        events
            .iter()
            .map(|event| delete_id(ALICE, 2_000, event))
            .collect::<Vec<_>>()
            .iter(),
    );
    sweep_all(&store);
    drop(store);
    let (kept, rows) = (entries(dir.path(), "events"), entries(dir.path(), "by-tag"));
    assert_eq!((kept, rows), (5, 5), "the deletions and their targets");
    assert_eq!(entries(dir.path(), "by-time"), 5);
}

/// Rows of one table of a store that is not open.
#[allow(unsafe_code, reason = "no other process maps this file")]
fn entries(path: &std::path::Path, table: &str) -> u64 {
    use heed::types::Bytes;

    let mut options = heed::EnvOpenOptions::new();
    options.map_size(1 << 30).max_dbs(20);
    let env = unsafe { options.open(path).unwrap() };
    let txn = env.read_txn().unwrap();
    let table = env.open_database::<Bytes, Bytes>(&txn, Some(table));
    table.unwrap().expect("a table").len(&txn).unwrap()
}

#[test]
fn an_author_vanishes_at_once_however_much_there_is() {
    on_both_limited(SMALL, |store| {
        let notes: Vec<Event> = (0..40).map(|n| note(ALICE, 10 + n, &[])).collect();
        let newer = note(ALICE, 100, &[]);
        let to_alice = ALICE.to_string();
        let wrap = |at: u64| unsigned(BOB, 1059, at, &[&["p", &to_alice]], "");
        let cited = unsigned(BOB, 1059, 20, &[&["P", &to_alice]], "");
        put_all(store, &notes);
        put_all(
            store,
            [&wrap(20), &wrap(90), &cited, &newer, &repo(ALICE, 15, "x")],
        );
        let request = vanish(ALICE, 60);
        put_all(store, [&request]);
        assert_eq!(store.stats().unwrap().vanishing, 1, "it is not over");
        let left = [newer.id, wrap(90).id, request.id, cited.id];
        for _ in 0..10 {
            assert_eq!(find(store, json!({})), left);
            assert_eq!(
                find(store, json!({"kinds": [1059]})),
                [wrap(90).id, cited.id]
            );
            assert_eq!(find(store, json!({"#p": [to_alice]})), [wrap(90).id]);
            assert!(!store.contains(&wrap(20).id).unwrap());
            assert_eq!(store.kind_of(&notes[7].id), None);
            assert_eq!(put(store, &notes[3]), StoreOutcome::Vanished);
            assert_eq!(put(store, &wrap(20)), StoreOutcome::Vanished);
            assert_eq!(put(store, &request), StoreOutcome::Duplicate);
            store.sweep(EARLY, 1).unwrap();
        }
        // Another request while the first is under way.
        let again = vanish(ALICE, 150);
        put_all(store, [&again]);
        assert_eq!(find(store, json!({})), [again.id, cited.id]);
        sweep_all(store);
        assert_eq!(find(store, json!({})), [again.id, cited.id]);
        assert_eq!(store.stats().unwrap().events, 2);
    });
}

#[test]
fn what_the_rules_ask_does_not_know_what_is_gone() {
    for limits in [TINY, HIDDEN] {
        on_both_limited(limits, |store| {
            let announcement = repo(ALICE, 10, "x");
            let address = announcement.address().unwrap();
            let name = format!("30617:{ALICE}:x");
            let pull = unsigned(BOB, 1618, 11, &[&["a", &name]], "");
            let pull_id = pull.id.to_string();
            let update = unsigned(BOB, 1619, 12, &[&["e", &pull_id], &["E", &pull_id]], "");
            put_all(store, [&announcement, &pull, &update]);
            let repository = RepoId::of_address(&address).unwrap();
            let kinds = [Kind(1618), Kind(1619)];
            assert_eq!(store.roots(&repository, &kinds).len(), 2);
            assert_eq!(store.updates(&pull.id).len(), 1);
            assert!(store.is_named(&announcement) && store.is_named(&pull));

            put_all(store, [&vanish(BOB, 20)]);
            assert!(store.roots(&repository, &kinds).is_empty());
            assert!(store.updates(&pull.id).is_empty());
            assert!(!store.is_named(&announcement) && !store.is_named(&pull));
            assert!(store.newest(&address).is_some());

            put_all(store, [&delete_address(ALICE, 20, &name)]);
            assert!(store.newest(&address).is_none());
            assert_eq!(store.kind_of(&announcement.id), None);
            let mut announcements = 0;
            let count = |kept| {
                announcements += usize::from(matches!(
                    kept,
                    grasp_core::Restore::Announcement { .. } | grasp_core::Restore::Root { .. }
                ));
            };
            store.kept(count).unwrap();
            assert_eq!(announcements, 0, "nor does a start");
        });
    }
}

#[test]
fn many_versions_in_one_commit_leave_their_rows_to_the_sweep() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_with(dir.path(), UNLIMITED).unwrap();
    let versions: Vec<Event> = (0..20).map(|n| wide(ALICE, 10317, n)).collect();
    put_all(&store, &versions);
    let rows = store.stats().unwrap().tail_rows;
    assert!(rows < 20 * (ROWS + 5), "{rows}");
    assert!(store.stats().unwrap().garbage > 10);
    let newest = versions.last().unwrap().id;
    assert_eq!(find(&store, json!({})), [newest]);
    assert_eq!(find(&store, json!({"#t": ["3-3", "19-3"]})), [newest]);
    sweep_all(&store);
    assert_eq!(find(&store, json!({})), [newest]);
    assert_eq!(put(&store, &versions[4]), StoreOutcome::Replaced);
}

#[test]
fn an_event_that_comes_again_before_the_sweep_keeps_its_rows() {
    on_both_limited(HIDDEN, |store| {
        let (old, new) = (repo(ALICE, 10, "x"), repo(ALICE, 11, "x"));
        put_all(store, [&old, &new]);
        store.remove(&[new.id]).unwrap();
        assert_eq!(find(store, json!({})), []);
        put_all(store, [&old]);
        assert_eq!(find(store, json!({})), [old.id]);
        assert!(store.stats().unwrap().garbage > 0);
        sweep_all(store);
        assert_eq!(find(store, json!({})), [old.id]);
        assert_eq!(find(store, json!({"#d": ["x"]})), [old.id]);
        assert_eq!(put(store, &old), StoreOutcome::Duplicate);
        put_all(store, [&delete_id(ALICE, 20, &old)]);
        assert_eq!(find(store, json!({"kinds": [30617]})), []);
        sweep_all(store);
        assert_eq!(find(store, json!({"#d": ["x"]})), []);
    });
}

#[test]
fn what_expires_while_it_waits_for_the_sweep_is_counted_once() {
    on_both_limited(HIDDEN, |store| {
        let passing: Vec<Event> = (0..4)
            .map(|n| note(ALICE, n, &[&["expiration", "20"]]))
            .collect();
        put_all(store, &passing);
        put_all(
            store,
            [&delete_id(ALICE, 10, &passing[0]), &note(BOB, 1, &[])],
        );
        let mut removed = 0;
        for _ in 0..PLENTY {
            let swept = store.sweep(Timestamp(20), PLENTY).unwrap();
            removed += swept.removed;
            if !swept.more {
                break;
            }
        }
        assert_eq!(removed, 3);
        assert_eq!(store.stats().unwrap().events, 2);
    });
}

/// A query that began before a deletion goes on without what it took.
#[test]
fn a_query_under_way_does_not_deliver_what_was_deleted_meanwhile() {
    on_both_limited(HIDDEN, |store| {
        let notes: Vec<Event> = (0..10).map(|n| note(ALICE, 10 + n, &[])).collect();
        put_all(store, &notes);
        let ids: Vec<String> = notes.iter().map(|note| note.id.to_string()).collect();
        for filter in [json!({"kinds": [1]}), json!({"ids": ids, "kinds": [1]})] {
            let mut query = query(&[filter], PLENTY, Want::Json);
            let mut found: Vec<EventId> = Vec::new();
            let one = grasp_store::Budget(1);
            store
                .advance(&mut query, one, EARLY, |event| found.push(event.id))
                .unwrap();
            let victim = &notes[2];
            let _ = store.apply([&delete_id(ALICE, 30, victim)]).unwrap();
            found.extend(run(store, &mut query, one, EARLY));
            assert!(found.len() >= 9 - 1 && !found.contains(&victim.id));
        }
    });
}
