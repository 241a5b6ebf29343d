//! Backups: whole while the store goes on, refused when they are not what they were.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use grasp_core::{Change, Event, StoreOutcome, Timestamp};
use grasp_store::{Backup, Store, StoreError, restore};
use tempfile::TempDir;
use testkit::random::Events;
use testkit::{json, unsigned};

use crate::support::*;

const DATA: &str = "events.mdb";
const MANIFEST: &str = "MANIFEST";

/// A store with random content, and its backup beside it.
struct Backed {
    dir: TempDir,
    store: Store,
}

impl Backed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        let events: Vec<Event> = Events::new(1).take(300).collect();
        store.apply(&events).unwrap();
        store.backup(&dir.path().join("backup"), &[]).unwrap();
        Self { dir, store }
    }

    fn backup(&self) -> PathBuf {
        self.dir.path().join("backup")
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("restored")
    }

    /// The backup must be refused and leave nothing behind that looks like a store.
    fn refuses(&self) -> StoreError {
        let error = restore(&self.backup(), &self.target()).unwrap_err();
        assert!(matches!(
            Store::open_read_only(&self.target()),
            Err(StoreError::Missing(_))
        ));
        error
    }
}

/// Also where the directory was there before and is open to all, as one made by hand is.
#[cfg(unix)]
#[test]
fn nobody_else_can_read_a_backup_or_what_is_restored_from_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let backed = Backed::new();
    let open_dir = backed.dir.path().join("open");
    fs::create_dir(&open_dir).unwrap();
    fs::set_permissions(&open_dir, fs::Permissions::from_mode(0o755)).unwrap();
    backed.store.backup(&open_dir, &[]).unwrap();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(open_dir.join(DATA)), 0o600);
    assert_eq!(mode(open_dir.join(MANIFEST)), 0o600);

    // One that was copied about, and what a killed restore left.
    let loose = fs::Permissions::from_mode(0o644);
    fs::set_permissions(open_dir.join(DATA), loose.clone()).unwrap();
    fs::create_dir(backed.target()).unwrap();
    let half = backed.target().join("restoring.tmp");
    fs::write(&half, "half").unwrap();
    fs::set_permissions(&half, loose).unwrap();
    restore(&open_dir, &backed.target()).unwrap();
    assert_eq!(mode(backed.target().join("data.mdb")), 0o600);
}

/// A thread that stores batches of a fixed size until it is told to stop.
struct Writer {
    stop: AtomicBool,
}

impl Writer {
    const BATCH: u64 = 10;

    fn write(&self, store: &Store, started: &mpsc::Sender<()>) -> u64 {
        let mut written = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let batch: Vec<Event> = (0..Self::BATCH).map(|n| nth_note(written + n)).collect();
            put_all(store, &batch);
            written += Self::BATCH;
            // The receiver needs only the first.
            let _ = started.send(());
        }
        written
    }
}

fn nth_note(n: u64) -> Event {
    unsigned(ALICE, 1, 1_000 + n, &[&["t", "x"]], &n.to_string())
}

#[test]
fn a_restored_store_answers_like_the_original() {
    let backed = Backed::new();
    restore(&backed.backup(), &backed.target()).unwrap();
    let restored = Store::open(&backed.target()).unwrap();
    let original = &backed.store;
    assert_eq!(restored.next_seq().unwrap(), original.next_seq().unwrap());
    let mut events = Events::new(1);
    let again: Vec<Event> = events.by_ref().take(300).collect();
    for filter in events.some_filters(100) {
        let expected = find(original, filter.clone());
        assert_eq!(find(&restored, filter.clone()), expected, "{filter}");
    }
    let outcomes = original.apply(&again).unwrap();
    assert_eq!(restored.apply(&again).unwrap(), outcomes);
}

#[test]
fn a_summary_tells_what_the_backup_holds() {
    let backed = Backed::new();
    let made = backed
        .store
        .backup(&backed.dir.path().join("second"), &[])
        .unwrap();
    let restored = restore(&backed.dir.path().join("second"), &backed.target()).unwrap();
    assert_eq!(made, restored);
    assert_eq!(made.events, backed.store.stats().unwrap().events);
    let data = backed.dir.path().join("second").join(DATA);
    assert_eq!(made.bytes, fs::metadata(data).unwrap().len());
}

#[test]
fn a_backup_beside_a_busy_writer_is_one_moment_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store")).unwrap();
    let backup = dir.path().join("backup");
    let writer = Writer {
        stop: AtomicBool::new(false),
    };
    let (started, first) = mpsc::channel();
    let (summary, written) = thread::scope(|scope| {
        let running = scope.spawn(|| writer.write(&store, &started));
        first.recv().unwrap();
        let summary = store.backup(&backup, &[]);
        writer.stop.store(true, Ordering::Relaxed);
        (summary.unwrap(), running.join().unwrap())
    });
    assert_eq!(store.stats().unwrap().events, written);
    assert_eq!(summary.events % Writer::BATCH, 0, "whole batches only");
    restore(&backup, &dir.path().join("restored")).unwrap();
    let restored = Store::open(&dir.path().join("restored")).unwrap();
    let expected: Vec<Event> = (0..summary.events).rev().map(nth_note).collect();
    assert_eq!(find(&restored, json!({"#t": ["x"]})), ids(&expected));
}

#[test]
fn a_restored_store_goes_on_where_the_original_was() {
    let backed = Backed::new();
    restore(&backed.backup(), &backed.target()).unwrap();
    let next = backed.store.next_seq().unwrap();
    let restored = Store::open(&backed.target()).unwrap();
    let event = nth_note(0);
    assert_eq!(put(&restored, &event), StoreOutcome::Stored(next));
    assert!(!backed.store.contains(&event.id).unwrap());
}

#[test]
fn a_reader_can_make_the_backup() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    put_all(&Store::open(&path).unwrap(), [&nth_note(0)]);
    let reader = Store::open_read_only(&path).unwrap();
    let summary = reader.backup(&dir.path().join("backup"), &[]).unwrap();
    assert_eq!(summary.events, 1);
}

#[test]
fn a_damaged_backup_is_refused() {
    let backed = Backed::new();
    let path = backed.backup().join(DATA);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(matches!(backed.refuses(), StoreError::BadBackup { .. }));
}

#[test]
fn a_truncated_backup_is_refused() {
    let backed = Backed::new();
    let data = File::options().write(true).open(backed.backup().join(DATA));
    let data = data.unwrap();
    data.set_len(data.metadata().unwrap().len() - 1).unwrap();
    assert!(matches!(backed.refuses(), StoreError::BadBackup { .. }));
}

#[test]
fn a_backup_without_its_last_step_is_refused() {
    let backed = Backed::new();
    fs::remove_file(backed.backup().join(MANIFEST)).unwrap();
    assert!(matches!(backed.refuses(), StoreError::BadBackup { .. }));
}

#[test]
fn a_damaged_manifest_is_refused() {
    let backed = Backed::new();
    let path = backed.backup().join(MANIFEST);
    let text = fs::read_to_string(&path).unwrap();
    let first_half = &text[..text.len() / 2];
    for damaged in [
        "",
        "events many\n",
        first_half,
        &text.replace("bytes ", "bytes 1"),
    ] {
        fs::write(&path, damaged).unwrap();
        assert!(
            matches!(backed.refuses(), StoreError::BadBackup { .. }),
            "{damaged:?}"
        );
    }
}

#[test]
fn a_backup_without_data_is_refused() {
    let backed = Backed::new();
    fs::remove_file(backed.backup().join(DATA)).unwrap();
    backed.refuses();
}

#[test]
fn a_restore_never_replaces_a_store() {
    let backed = Backed::new();
    let target = backed.target();
    let event = nth_note(0);
    put_all(&Store::open(&target).unwrap(), [&event]);
    let error = restore(&backed.backup(), &target).unwrap_err();
    assert!(matches!(error, StoreError::Occupied(_)), "{error}");
    let store = Store::open(&target).unwrap();
    assert_eq!(find(&store, json!({})), [event.id]);
    let error = restore(&backed.backup(), &target).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
}

#[test]
fn a_restore_replaces_a_store_without_events() {
    let backed = Backed::new();
    let target = backed.target();
    drop(Store::open(&target).unwrap());
    restore(&backed.backup(), &target).unwrap();
    let restored = Store::open(&target).unwrap();
    let events = |store: &Store| store.stats().unwrap().events;
    assert_eq!(events(&restored), events(&backed.store));
}

#[test]
fn events_that_wait_are_counted_and_never_replaced() {
    let backed = Backed::new();
    let target = backed.target();
    let waits = Change::Hold {
        event: std::sync::Arc::new(nth_note(0)),
        until: Timestamp(u64::MAX),
        remembered: false,
    };
    let store = Store::open(&target).unwrap();
    store.commit([[waits].as_slice()]).unwrap();
    let summary = store.backup(&backed.dir.path().join("other"), &[]).unwrap();
    assert_eq!((summary.events, summary.held), (0, 1));
    drop(store);
    let error = restore(&backed.backup(), &target).unwrap_err();
    assert!(matches!(error, StoreError::Occupied(_)), "{error}");
}

#[test]
fn what_comes_first_is_done_only_when_nothing_is_wrong() {
    let backed = Backed::new();
    let first = || -> Result<(), StoreError> { panic!("too early") };
    drop(Store::open(&backed.target()).map(|store| put_all(&store, [&nth_note(0)])));
    let backup = Backup::open(&backed.backup()).unwrap();
    assert!(backup.restore_after(&backed.target(), first).is_err());
    fs::remove_file(backed.backup().join(DATA)).unwrap();
    let new = backed.dir.path().join("new");
    assert!(restore(&backed.backup(), &new).is_err());
    assert!(!new.exists(), "a bad backup leaves no trace");
}

#[test]
fn a_restore_goes_over_the_remains_of_an_interrupted_one() {
    let backed = Backed::new();
    fs::create_dir(backed.target()).unwrap();
    fs::write(backed.target().join("restoring.tmp"), "half").unwrap();
    restore(&backed.backup(), &backed.target()).unwrap();
    let restored = Store::open(&backed.target()).unwrap();
    assert_eq!(
        restored.stats().unwrap().events,
        backed.store.stats().unwrap().events
    );
}

#[test]
fn a_backup_needs_a_directory_of_its_own() {
    let backed = Backed::new();
    let before = list(&backed.backup());
    let error = backed.store.backup(&backed.backup(), &[]).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert_eq!(list(&backed.backup()), before);
    restore(&backed.backup(), &backed.target()).unwrap();
}

#[test]
fn a_backup_holds_two_files_for_the_operator_only() {
    use std::os::unix::fs::PermissionsExt as _;

    let backed = Backed::new();
    assert_eq!(list(&backed.backup()), [MANIFEST, DATA]);
    let mode = fs::metadata(backed.backup()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    restore(&backed.backup(), &backed.target()).unwrap();
    let restored = fs::metadata(backed.target().join("data.mdb")).unwrap();
    assert_eq!(restored.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_store_in_memory_has_no_backup() {
    let dir = tempfile::tempdir().unwrap();
    let error = Store::in_memory().backup(dir.path(), &[]).unwrap_err();
    assert!(matches!(error, StoreError::NotOnDisk), "{error}");
}

fn list(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
