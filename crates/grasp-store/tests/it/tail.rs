//! The log is ahead of the indexes, and nobody can tell: not by what is found, not by what is
//! refused, not after a crash, not beside a writer.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use grasp_core::{Event, EventId, Seq, StoreOutcome, Timestamp};
use grasp_store::{Budget, Found, Progress, RemovalLimits, Store, TailLimits, Want, restore};
use tempfile::TempDir;
use testkit::random::Events;
use testkit::{Value, json, unsigned};

use crate::child::{self, Life};
use crate::support::*;
use crate::world::World;

/// Nothing goes into the indexes unless the store is closed or swept.
pub const UNLIMITED: TailLimits = TailLimits {
    events: u64::MAX,
    rows: usize::MAX,
    bytes: usize::MAX,
};

fn events(events: u64) -> TailLimits {
    TailLimits {
        events,
        ..UNLIMITED
    }
}

fn rows(rows: usize) -> TailLimits {
    TailLimits { rows, ..UNLIMITED }
}

fn bytes(bytes: usize) -> TailLimits {
    TailLimits { bytes, ..UNLIMITED }
}

fn agrees_with_the_model(limits: TailLimits, first_seed: u64) {
    for seed in first_seed..first_seed + 12 {
        let dir = tempfile::tempdir().unwrap();
        World::new(seed, Store::open_with(dir.path(), limits).unwrap()).live();
    }
}

#[test]
fn a_store_without_a_tail_agrees_with_the_model() {
    agrees_with_the_model(events(1), 20_000);
}

#[test]
fn a_tail_of_three_agrees_with_the_model() {
    agrees_with_the_model(events(3), 21_000);
}

#[test]
fn a_tail_of_eight_agrees_with_the_model() {
    agrees_with_the_model(events(8), 22_000);
}

#[test]
fn a_tail_of_fifty_agrees_with_the_model() {
    agrees_with_the_model(events(50), 23_000);
}

#[test]
fn a_tail_bounded_by_rows_agrees_with_the_model() {
    comes_to_an_end(|| agrees_with_the_model(rows(40), 24_000));
}

#[test]
fn a_tail_bounded_by_bytes_agrees_with_the_model() {
    agrees_with_the_model(bytes(2_000), 25_000);
}

#[test]
fn a_sweep_that_fills_the_tail_comes_to_an_end() {
    comes_to_an_end(|| {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_with(dir.path(), rows(10)).unwrap();
        put_all(&store, [&note(ALICE, 10, &[&["expiration", "20"]])]);
        put_all(&store, [&note(ALICE, 11, &[&["expiration", "20"]])]);
        assert_eq!(store.sweep(Timestamp(20), PLENTY).unwrap().removed, 2);
        assert_eq!(find(&store, json!({})), []);
        put_all(&store, [&note(ALICE, 12, &[])]);
    });
}

/// A writer that waits for itself shall fail a test instead of holding up all of them.
fn comes_to_an_end(test: impl FnOnce() + Send + 'static) {
    let (running, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let _running = running;
        test();
    });
    match ended.recv_timeout(Duration::from_secs(30)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

#[test]
fn a_store_that_crashes_again_and_again_agrees_with_the_model() {
    comes_to_an_end(crash_again_and_again);
}

fn crash_again_and_again() {
    let mut replayed = 0;
    for seed in 30_000..30_012 {
        let limits = [UNLIMITED, events(40), rows(300)][seed as usize % 3];
        let mut mortal = Mortal::new(seed, limits);
        for _ in 0..4 {
            mortal.live_a_while();
            replayed += mortal.crash(limits);
        }
    }
    assert!(replayed > 500, "{replayed} events had to be made again");
}

#[test]
fn a_crash_after_a_long_history_loses_nothing() {
    for seed in 31_000..31_003 {
        let mut mortal = Mortal::new(seed, UNLIMITED);
        for _ in 0..40 {
            mortal.world.submit_a_batch();
        }
        let stored = mortal.world.store.next_seq().unwrap();
        assert_eq!(Seq(mortal.crash(UNLIMITED)), stored);
    }
}

/// A world whose store can crash.
pub struct Mortal {
    pub world: World,
    removal: RemovalLimits,
    _dir: TempDir,
}

impl Mortal {
    fn new(seed: u64, limits: TailLimits) -> Self {
        Self::limited(seed, limits, RemovalLimits::default())
    }

    pub fn limited(seed: u64, limits: TailLimits, removal: RemovalLimits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_limited(dir.path(), limits, removal).unwrap();
        Self {
            world: World::new(seed, store),
            removal,
            _dir: dir,
        }
    }

    pub fn live_a_while(&mut self) {
        for _ in 0..self.world.events.rng().usize(1..8) {
            match self.world.events.rng().u8(0..6) {
                0 => self.world.sweep(),
                _ => self.world.submit_a_batch(),
            }
        }
    }

    /// Goes on with what a crash at this moment would leave; says how much of it was only in the
    /// log.
    pub fn crash(&mut self, limits: TailLimits) -> u64 {
        let before = self.world.numbered();
        let world = &mut self.world;
        let next = world.store.next_seq().unwrap();
        let (dir, path) = copy(&world.store);
        let replayed = unindexed(&path);
        world.expect_unswept();

        let original = std::mem::replace(&mut world.store, Store::open_read_only(&path).unwrap());
        let size = world.store.stats().unwrap();
        assert_eq!(world.store.next_seq().unwrap(), next);
        assert_eq!(world.numbered(), before);
        world.compare();
        // Two of one directory in one process are refused.
        world.store = original;

        world.store = Store::open_limited(&path, limits, self.removal).unwrap();
        self._dir = dir;
        if world.store.stats().unwrap().vanishing == size.vanishing {
            assert_eq!(world.store.stats().unwrap().events, size.events);
        }
        assert_eq!(world.store.next_seq().unwrap(), next);
        assert_eq!(world.numbered(), before);
        world.compare();
        world.sweep_again();
        world.compare_size();
        world.submit_everything_again();
        world.compare();
        replayed
    }
}

/// What is on disk at this moment, as a store of its own.
pub fn copy(store: &Store) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (backup, path) = (dir.path().join("backup"), dir.path().join("store"));
    store.backup(&backup, &[]).unwrap();
    restore(&backup, &path).unwrap();
    (dir, path)
}

/// How many events a store that is not open has in its log but not in its indexes.
#[allow(unsafe_code, reason = "no other process maps this file")]
fn unindexed(path: &Path) -> u64 {
    use heed::types::Bytes;

    let mut options = heed::EnvOpenOptions::new();
    options.map_size(1 << 30).max_dbs(20);
    let env = unsafe { options.open(path).unwrap() };
    let txn = env.read_txn().unwrap();
    let meta = env.open_database::<Bytes, Bytes>(&txn, Some("meta"));
    let meta = meta.unwrap().expect("a table of versions");
    let number = |name: &str| {
        let bytes = meta.get(&txn, name.as_bytes()).unwrap();
        bytes.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()))
    };
    number("next-seq") - number("indexed")
}

#[test]
fn what_an_aborted_process_acknowledged_is_there() {
    let mut replayed = 0;
    for seed in 40_000..40_004 {
        let life = Life {
            seed,
            tail: u64::MAX,
            killed_after: None,
        };
        replayed += die_and_compare(&life);
    }
    assert!(replayed > 100, "{replayed} events had to be made again");
}

#[test]
fn what_a_killed_process_acknowledged_is_there() {
    for seed in 41_000..41_006 {
        let life = Life {
            seed,
            tail: 8,
            killed_after: Some(fastrand::Rng::with_seed(seed).usize(1..History::STEPS)),
        };
        die_and_compare(&life);
    }
}

fn die_and_compare(life: &Life) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let acknowledged = child::live_and_die(dir.path(), life);
    assert!(acknowledged >= life.killed_after.unwrap_or(History::STEPS));
    let replayed = unindexed(dir.path());
    let reader = Store::open_read_only(dir.path()).unwrap();
    let size = reader.stats().unwrap().events;
    drop(reader);

    let store = Store::open_with(dir.path(), UNLIMITED).unwrap();
    assert_eq!(store.stats().unwrap().events, size);
    let next = store.next_seq().unwrap().0 as usize;
    let History { events, steps } = History::new(life.seed);
    let mut world = World::of_another(life.seed, events, store);
    let mut stored = 0;
    for step in &steps[..acknowledged] {
        stored += step.catch_up(&mut world);
    }
    // The step that nobody heard of is there as a whole, or not at all.
    if let Some(step) = steps.get(acknowledged)
        && (stored != next || matches!(step, Step::Sweep(_)))
    {
        stored += step.catch_up(&mut world);
    }
    assert_eq!(stored, next, "seed {}", life.seed);
    world.expect_unswept();
    world.compare();
    world.sweep_again();
    world.compare_size();
    world.submit_everything_again();
    world.compare();
    replayed
}

/// What happens to a store, the same in two processes.
pub struct History {
    events: Events,
    pub steps: Vec<Step>,
}

pub enum Step {
    Apply(Vec<Event>),
    Sweep(u64),
}

impl History {
    const STEPS: usize = 30;

    pub fn new(seed: u64) -> Self {
        let mut events = Events::new(seed);
        let step = |_| match events.rng().u8(0..10) {
            0 => Step::Sweep(events.moment()),
            _ => {
                let size = events.rng().usize(1..20);
                Step::Apply(events.by_ref().take(size).collect())
            }
        };
        let steps = (0..Self::STEPS).map(step).collect();
        Self { events, steps }
    }
}

impl Step {
    pub fn apply(&self, store: &Store) {
        match self {
            Step::Apply(batch) => drop(store.apply(batch).unwrap()),
            Step::Sweep(until) => {
                store.sweep(Timestamp(*until), PLENTY).unwrap();
            }
        }
    }

    fn catch_up(&self, world: &mut World) -> usize {
        match self {
            Step::Apply(batch) => world.catch_up(batch),
            Step::Sweep(until) => {
                world.catch_up_with_sweep(*until);
                0
            }
        }
    }
}

#[test]
fn a_tail_goes_into_the_indexes_when_one_of_its_bounds_is_reached() {
    // An event has four rows and 300 bytes at least.
    for (limits, most) in [(events(5), 4), (rows(41), 9), (bytes(3_000), 9)] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_with(dir.path(), limits).unwrap();
        let mut kept = 0;
        for n in 0..15 {
            put_all(&store, [&nth_note(n)]);
            let left = unindexed(&copy(&store).1);
            assert!(left <= most, "{left} events with {limits:?}");
            kept = left.max(kept);
        }
        assert!(kept > 0, "nothing kept back with {limits:?}");
    }
}

#[test]
fn a_tail_without_bounds_stays_in_the_log_until_the_store_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_with(dir.path(), UNLIMITED).unwrap();
    for n in 0..20 {
        put_all(&store, [&nth_note(n)]);
    }
    assert_eq!(unindexed(&copy(&store).1), 20);
    drop(store);
    assert_eq!(unindexed(dir.path()), 0);
}

#[test]
fn a_batch_larger_than_the_tail_is_one_commit() {
    let dir = tempfile::tempdir().unwrap();
    let notes: Vec<Event> = (0..300).map(nth_note).collect();
    for limits in [events(8), rows(8), bytes(8)] {
        let path = dir.path().join(format!("{limits:?}"));
        let store = Store::open_with(&path, limits).unwrap();
        put_all(&store, &notes);
        assert_eq!(find(&store, json!({})), ids(notes.iter().rev()));
        assert_eq!(store.stats().unwrap().events, 300);
    }
}

#[test]
fn an_author_with_more_rows_than_the_tail_vanishes() {
    let written: Vec<Event> = (0..500).map(nth_note).collect();
    let wrap = |to: String| unsigned(BOB, 1059, 1_100, &[&["p", &to]], "");
    let (wrapped, other) = (wrap(ALICE.to_string()), wrap(BOB.to_string()));
    let request = vanish(ALICE, 1_499);
    for limits in [rows(100), rows(3_000), events(8), UNLIMITED] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_with(dir.path(), limits).unwrap();
        for batch in written.chunks(100) {
            put_all(&store, batch);
        }
        put_all(&store, [&wrapped, &other]);
        put_all(&store, [&request]);
        let (_copied, path) = copy(&store);
        let read_only = Store::open_read_only(&path).unwrap();
        vanished(&read_only, [&request, &other]);
        drop(read_only);
        for store in [store, Store::open_with(&path, limits).unwrap()] {
            vanished(&store, [&request, &other]);
            for outcome in store.apply(written.iter().chain([&wrapped])).unwrap() {
                assert_eq!(outcome, StoreOutcome::Vanished, "{limits:?}");
            }
            put_all(&store, [&note(ALICE, 1_500, &[])]);
        }
    }
}

fn vanished(store: &Store, left: [&Event; 2]) {
    assert_eq!(find(store, json!({})), ids(left));
    assert_eq!(find(store, json!({"#t": ["x"]})), []);
    assert_eq!(
        find(store, json!({"authors": [ALICE.to_string()], "kinds": [1]})),
        []
    );
    assert_eq!(store.stats().unwrap().events, 2);
}

#[test]
fn an_event_that_was_swept_and_came_again_is_there_once_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_with(dir.path(), UNLIMITED).unwrap();
    let passing = note(ALICE, 10, &[&["expiration", "20"]]);
    put_all(&store, [&passing, &note(BOB, 11, &[])]);
    assert_eq!(store.sweep(Timestamp(20), PLENTY).unwrap().removed, 1);
    put_all(&store, [&passing, &note(BOB, 12, &[])]);
    let (_copied, path) = copy(&store);
    let copied = Store::open_with(&path, UNLIMITED).unwrap();
    assert_eq!(find(&copied, json!({})), find(&store, json!({})));
    assert_eq!(copied.stats().unwrap().events, 3);
    assert_eq!(put(&copied, &passing), StoreOutcome::Duplicate);
    assert_eq!(copied.sweep(Timestamp(20), PLENTY).unwrap().removed, 1);
    assert_eq!(find(&copied, json!({})).len(), 2);
}

/// A sweep that is in no log, and then the same event again: who replays meets it twice.
#[test]
fn a_crash_while_events_are_swept_and_come_again_leaves_a_whole_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_with(dir.path(), UNLIMITED).unwrap();
    let passing: Vec<Event> = (0..5)
        .map(|n| note(BOB, n, &[&["expiration", "20"]]))
        .collect();
    let (acknowledged, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let is_over = || ended.load(Ordering::SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over() {
                store.sweep(Timestamp(20), PLENTY).unwrap();
            }
        });
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over() {
                    store.apply(&passing).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for n in (0..PLENTY as u64).take_while(|_| !is_over()) {
                put_all(&store, [&nth_note(n)]);
                acknowledged.store(n + 1, Ordering::SeqCst);
            }
        });
        for _ in 0..25 {
            let least = acknowledged.load(Ordering::SeqCst) as usize;
            let (_copied, path) = copy(&store);
            let opened = Store::open_with(&path, UNLIMITED);
            let checked = opened.map(|copied| check_copy(&copied, least, &passing));
            // The others must end in any case.
            if !matches!(checked, Ok(Ok(()))) {
                ended.store(true, Ordering::SeqCst);
                panic!("{checked:?}");
            }
        }
        ended.store(true, Ordering::SeqCst);
    });
}

fn check_copy(copied: &Store, least: usize, passing: &[Event]) -> Result<(), String> {
    let all = find(copied, json!({}));
    let lasting = find_at(copied, json!({}), Timestamp(20));
    let size = copied.stats().unwrap().events;
    if size != all.len() as u64 {
        return Err(format!("{size} events, but {} are found", all.len()));
    }
    if lasting.len() < least || lasting != find(copied, json!({"kinds": [1], "since": 1_000})) {
        return Err(format!("{} of {least} notes", lasting.len()));
    }
    for event in passing {
        let is_duplicate = put(copied, event) == StoreOutcome::Duplicate;
        if is_duplicate != all.contains(&event.id) {
            return Err(format!("{event:?} is a duplicate: {is_duplicate}"));
        }
    }
    Ok(())
}

const TAIL: u64 = 8;
const BATCHES: u64 = 120;

/// A note whose number in the store is `n`.
fn nth_note(n: u64) -> Event {
    let topic: &[&str] = if n.is_multiple_of(3) {
        &["t", "x"]
    } else {
        &["t", "y"]
    };
    unsigned(ALICE, 1, 1_000 + n, &[topic], &n.to_string())
}

/// A filter, and which notes it finds.
type Question = (Value, fn(u64) -> bool);

/// How far the writer is.
#[derive(Default)]
struct Progressing {
    begun: AtomicU64,
    done: AtomicU64,
    ended: AtomicBool,
}

/// Runs a reader in several threads while one writer applies batches, which `batch` makes from
/// the number of events so far.
fn beside_a_writer(
    batch: impl Fn(u64) -> Vec<Event> + Sync,
    reader: impl Fn(&Store, &Progressing, &mut fastrand::Rng) + Sync,
) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_with(dir.path(), events(TAIL)).unwrap();
    let progress = Progressing::default();
    thread::scope(|scope| {
        for seed in 0..3 {
            let (store, progress, reader) = (&store, &progress, &reader);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                while !progress.ended.load(Ordering::SeqCst) {
                    reader(store, progress, &mut rng);
                }
                reader(store, progress, &mut rng);
            });
        }
        let mut written = 0;
        for _ in 0..BATCHES {
            let batch = batch(written);
            written += batch.len() as u64;
            progress.begun.store(written, Ordering::SeqCst);
            let applied = store.apply(&batch);
            progress.done.store(written, Ordering::SeqCst);
            if applied.is_err() {
                break;
            }
        }
        progress.ended.store(true, Ordering::SeqCst);
    });
    let next = store.next_seq().unwrap().0;
    assert_eq!(
        next,
        progress.done.load(Ordering::SeqCst),
        "all was written"
    );
}

fn notes_after(written: u64) -> Vec<Event> {
    let size = 1 + written % 11;
    (written..written + size).map(nth_note).collect()
}

#[test]
fn a_query_sees_everything_below_its_bound_while_the_tail_comes_and_goes() {
    let all: Vec<Event> = (0..BATCHES * 11).map(nth_note).collect();
    let everything = |_: u64| true;
    let every_third = |n: u64| n.is_multiple_of(3);
    let questions: [Question; 4] = [
        (json!({}), everything),
        (json!({"#t": ["x"]}), every_third),
        (json!({"authors": [ALICE.to_string()]}), everything),
        (json!({"kinds": [1], "#t": ["x"]}), every_third),
    ];
    beside_a_writer(notes_after, |store, progress, rng| {
        let acknowledged = progress.done.load(Ordering::SeqCst);
        let (filter, matches) = &questions[rng.usize(0..questions.len())];
        let slice = Budget(1 << rng.u32(6..20));
        let want = if rng.bool() { Want::Json } else { Want::Ids };
        let mut query = query(std::slice::from_ref(filter), PLENTY, want);
        let found = run(store, &mut query, slice, EARLY);
        let bound = query.bound().unwrap().0;
        assert!(bound >= acknowledged, "{bound} < {acknowledged}");
        let expected = (0..bound).rev().filter(|n| matches(*n));
        let expected: Vec<EventId> = expected.map(|n| all[n as usize].id).collect();
        assert_eq!(found, expected, "{filter} below {bound}");
        if let Some(last) = acknowledged.checked_sub(1) {
            assert!(store.contains(&all[last as usize].id).unwrap());
        }
        assert!(store.next_seq().unwrap().0 >= bound);
    });
}

#[test]
fn a_reader_finds_one_version_at_every_moment() {
    let version = |n: u64| repo(ALICE, 1_000 + n, "x");
    let versions = |written: u64| (written..written + 1 + written % 3).map(version).collect();
    beside_a_writer(versions, |store, progress, rng| {
        let acknowledged = progress.done.load(Ordering::SeqCst);
        let filters = [
            json!({}),
            json!({"#d": ["x"]}),
            json!({"kinds": [30617], "authors": [ALICE.to_string()]}),
        ];
        let filter = &filters[rng.usize(0..filters.len())];
        let mut query = query(std::slice::from_ref(filter), PLENTY, Want::Json);
        let mut found = Vec::new();
        let visit = |event: Found<'_>| found.push((event.seq.0, event.created_at.0));
        let all = Budget(usize::MAX);
        let ran = store.advance(&mut query, all, EARLY, visit).unwrap();
        assert_eq!(ran, Progress::Done);
        let bound = query.bound().unwrap().0;
        assert!(bound >= acknowledged, "{bound} < {acknowledged}");
        let newest = bound.checked_sub(1);
        let expected: Vec<(u64, u64)> = newest.iter().map(|n| (*n, 1_000 + n)).collect();
        assert_eq!(found, expected, "{filter} below {bound}");
    });
}

#[test]
fn the_number_of_events_is_right_at_every_moment() {
    beside_a_writer(notes_after, |store, progress, _| {
        let least = progress.done.load(Ordering::SeqCst);
        let counted = store.stats().unwrap().events;
        let most = progress.begun.load(Ordering::SeqCst);
        assert!(
            (least..=most).contains(&counted),
            "{counted} events, when {least} to {most} were stored"
        );
    });
}

/// Deletes what a reader is reading, and writes more than the tail holds.
fn write_a_lot(store: &Store, read: &[Event]) {
    for event in read {
        put_all(store, [&delete_id(ALICE, 5_000, event)]);
    }
    for n in 100..100 + 3 * TAIL {
        put_all(store, [&nth_note(n)]);
    }
    store.sweep(Timestamp(1), PLENTY).unwrap();
}

#[test]
fn a_reader_that_takes_long_holds_up_neither_the_writer_nor_other_readers() {
    for limits in [UNLIMITED, events(TAIL), events(1)] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_with(dir.path(), limits).unwrap();
        let notes: Vec<Event> = (0..5).map(nth_note).collect();
        put_all(&store, &notes);
        let (reading, read) = mpsc::channel();
        let (written, wrote) = mpsc::channel();
        thread::scope(|scope| {
            let (store, notes) = (&store, &notes);
            scope.spawn(move || {
                read.recv().unwrap();
                write_a_lot(store, notes);
                let found = find(store, json!({"kinds": [1]}));
                written.send(found.len() as u64).unwrap();
            });
            let mut query = query(&[json!({"kinds": [1]})], PLENTY, Want::Json);
            let mut found = Vec::new();
            let visit = |event: Found<'_>| {
                if found.is_empty() {
                    reading.send(()).unwrap();
                    let others = wrote.recv_timeout(Duration::from_secs(20));
                    assert_eq!(others, Ok(3 * TAIL), "with {limits:?}");
                }
                found.push(event.id);
            };
            let all = Budget(usize::MAX);
            let ran = store.advance(&mut query, all, EARLY, visit).unwrap();
            assert_eq!(ran, Progress::Done);
            assert_eq!(found, ids(notes.iter().rev()), "what was there before");
        });
        assert_eq!(find(&store, json!({"#t": ["x"], "until": 1_004})), []);
    }
}
