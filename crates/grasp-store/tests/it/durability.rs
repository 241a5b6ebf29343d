//! What a store still knows when it is opened again, and who may open it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use grasp_core::{StoreOutcome, Timestamp};
use grasp_store::{Store, StoreError};
use testkit::{json, unsigned};

use crate::child;
use crate::support::*;
use crate::tail::copy;

const LOCK_FILE: &str = "ngit-grasp.lock";

#[test]
fn events_and_their_numbers_survive_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let events = [note(ALICE, 10, &[&["t", "x"]]), repo(BOB, 11, "y")];
    put_all(&store, &events);
    let next = store.next_seq().unwrap();
    drop(store);

    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.next_seq().unwrap(), next);
    assert_eq!(find(&store, json!({})), [events[1].id, events[0].id]);
    assert_eq!(find(&store, json!({"#t": ["x"]})), [events[0].id]);
    assert_eq!(put(&store, &events[0]), StoreOutcome::Duplicate);
    assert_eq!(put(&store, &note(BOB, 9, &[])), StoreOutcome::Stored(next));
}

#[test]
fn what_must_not_return_is_remembered_after_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let deleted = note(ALICE, 10, &[]);
    let winner = unsigned(ALICE, 10317, 12, &[&["expiration", "20"]], "");
    put_all(&store, [&delete_id(ALICE, 11, &deleted), &winner]);
    put_all(
        &store,
        [&delete_address(ALICE, 15, &format!("30617:{ALICE}:x"))],
    );
    put_all(&store, [&vanish(BOB, 15)]);
    assert_eq!(store.sweep(Timestamp(20), PLENTY).unwrap().removed, 1);
    drop(store);

    let store = Store::open(dir.path()).unwrap();
    let loser = unsigned(ALICE, 10317, 11, &[], "");
    assert_eq!(put(&store, &deleted), StoreOutcome::Deleted);
    assert_eq!(put(&store, &repo(ALICE, 15, "x")), StoreOutcome::Deleted);
    assert_eq!(put(&store, &loser), StoreOutcome::Replaced);
    assert_eq!(put(&store, &note(BOB, 15, &[])), StoreOutcome::Vanished);
}

#[test]
fn what_was_removed_is_gone_after_a_crash_and_may_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let (one, two) = (repo(ALICE, 10, "x"), note(BOB, 11, &[]));
    put_all(&store, [&one, &two]);
    store.remove(&[one.id]).unwrap();
    assert_eq!(find(&store, json!({})), [two.id]);
    let (_copied, path) = copy(&store);
    let copied = Store::open(&path).unwrap();
    assert_eq!(find(&copied, json!({})), [two.id]);
    assert!(matches!(put(&copied, &one), StoreOutcome::Stored(_)));
}

#[test]
fn what_is_due_to_expire_is_swept_after_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let event = note(ALICE, 10, &[&["expiration", "20"]]);
    put_all(&Store::open(dir.path()).unwrap(), [&event]);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(find_at(&store, json!({}), Timestamp(20)), []);
    assert_eq!(store.sweep(Timestamp(20), PLENTY).unwrap().removed, 1);
}

#[test]
fn numbers_are_not_used_again_when_the_newest_events_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    put_all(&store, [&note(ALICE, 10, &[&["expiration", "20"]])]);
    store.sweep(Timestamp(20), PLENTY).unwrap();
    let next = store.next_seq().unwrap();
    drop(store);
    assert_eq!(Store::open(dir.path()).unwrap().next_seq().unwrap(), next);
}

#[test]
fn a_commit_survives_the_death_of_its_process() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(child::commit_and_abort(dir.path()), "committed 3");
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(find(&store, json!({})).len(), 3);
}

#[test]
fn a_store_in_use_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let mut lock = File::create(dir.path().join(LOCK_FILE)).unwrap();
    lock.try_lock().unwrap();
    writeln!(lock, "4711").unwrap();
    match Store::open(dir.path()) {
        Err(StoreError::Locked { path, pid }) => {
            assert_eq!((&*path, pid), (dir.path(), Some(4711)));
        }
        other => panic!("not locked: {other:?}"),
    }
    drop(lock);
    Store::open(dir.path()).unwrap();
}

#[test]
fn a_lock_file_without_its_owner_is_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(LOCK_FILE), "not a number").unwrap();
    let lock = File::options().read(true).open(dir.path().join(LOCK_FILE));
    lock.unwrap().try_lock().unwrap();
    drop(Store::open(dir.path()).unwrap());
    Store::open(dir.path()).unwrap();
}

#[test]
fn another_process_may_read_but_not_open_a_store_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    put_all(&store, [&note(ALICE, 10, &[])]);
    assert_eq!(child::count_read_only(dir.path()), "counted 1");
    put_all(&store, [&note(ALICE, 11, &[])]);
    assert_eq!(child::count_read_only(dir.path()), "counted 2");
    let holder = format!("locked by {}", std::process::id());
    assert_eq!(child::open(dir.path()), holder);
    drop(store);
    assert_eq!(child::open(dir.path()), "opened");
}

#[test]
fn a_missing_store_is_not_made_by_reading_it() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    for path in [dir.path(), &*nowhere] {
        let error = Store::open_read_only(path).unwrap_err();
        assert!(matches!(error, StoreError::Missing(_)), "{error}");
    }
    assert!(!nowhere.exists());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_reader_alone_finds_everything_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let event = note(ALICE, 10, &[]);
    put_all(&Store::open(dir.path()).unwrap(), [&event]);
    let reader = Store::open_read_only(dir.path()).unwrap();
    assert_eq!(find(&reader, json!({})), [event.id]);
    assert!(reader.apply([&note(ALICE, 11, &[])]).is_err());
    assert_eq!(reader.stats().unwrap().events, 1);
}

#[test]
fn a_store_of_another_schema_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    put_all(&Store::open(dir.path()).unwrap(), [&note(ALICE, 10, &[])]);
    set_schema(dir.path(), 999);
    for opened in [Store::open(dir.path()), Store::open_read_only(dir.path())] {
        match opened {
            Err(StoreError::Schema { found, .. }) => assert_eq!(found, 999),
            other => panic!("not refused: {other:?}"),
        }
    }
    set_schema(dir.path(), 1);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.stats().unwrap().events, 1);
}

#[allow(unsafe_code, reason = "no other process maps this file")]
fn set_schema(path: &Path, version: u32) {
    use heed::types::Bytes;

    let mut options = heed::EnvOpenOptions::new();
    options.map_size(1 << 30).max_dbs(20);
    let env = unsafe { options.open(path).unwrap() };
    let mut txn = env.write_txn().unwrap();
    let meta = env.open_database::<Bytes, Bytes>(&txn, Some("meta"));
    let meta = meta.unwrap().expect("a table of versions");
    let version = version.to_be_bytes();
    meta.put(&mut txn, b"version", &version).unwrap();
    txn.commit().unwrap();
}
