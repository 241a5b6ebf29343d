//! What sync keeps: other relays as they are known, and events that need not be fetched again.
//! And what it is told at the start: announcements, then roots, in bounded pages.

use std::sync::Arc;

use grasp_core::sync::{Capabilities, Dismissed, Fate, Health, Record, RelayHealth, RelayMemory};
use grasp_core::{Change, EventId, RelayUrl, Restore, Seq, SyncLimits, Timestamp};
use grasp_store::{Store, restore};
use testkit::unsigned;

use crate::support::*;

fn relay(url: &str, failures: u32) -> RelayMemory {
    RelayMemory {
        url: RelayUrl::parse(url).unwrap(),
        health: RelayHealth {
            health: Health::Degraded,
            failures,
            ..RelayHealth::default()
        },
        capabilities: Capabilities::unknown(&SyncLimits::default()),
        covered: Some(Timestamp(7)),
        settled: Some(Seq(8)),
        next_full: None,
        record: Record {
            attempts: 9,
            ..Record::default()
        },
    }
}

fn dismissed(byte: u8, announcement: bool, fate: Fate) -> Dismissed {
    Dismissed {
        id: EventId([byte; 32]),
        at: Timestamp(1_000 + u64::from(byte)),
        announcement,
        fate,
    }
}

fn know(memory: &RelayMemory) -> Change {
    Change::Relay(Arc::new(memory.clone()))
}

fn commit(store: &Store, changes: &[Change]) {
    store.commit([changes]).unwrap();
}

/// What a start hears of relays and of events that need not be fetched again.
fn kept(store: &Store) -> (Vec<RelayMemory>, Vec<Dismissed>) {
    let (mut relays, mut rows) = (Vec::new(), Vec::new());
    let visit = |restore| match restore {
        Restore::Relay(memory) => {
            assert!(rows.is_empty(), "relays come first");
            relays.push((*memory).clone());
        }
        Restore::Dismissed(row) => rows.push(row),
        other => panic!("unexpected: {other:?}"),
    };
    store.kept(visit).unwrap();
    (relays, rows)
}

#[test]
fn a_relay_is_remembered_once_under_all_its_spellings() {
    on_both(|store| {
        let (before, after) = (relay("ws://a.example", 1), relay("wss://A.example/", 2));
        let other = relay("wss://b.example:7777/path", 3);
        commit(store, &[know(&before), know(&after), know(&other)]);
        assert_eq!(kept(store).0, [after, other.clone()]);
        commit(store, &[Change::ForgetRelay(before.url)]);
        assert_eq!(kept(store).0, [other]);
    });
}

#[test]
fn every_fate_of_a_dismissed_event_is_kept_as_it_was() {
    on_both(|store| {
        let rows = [
            dismissed(1, true, Fate::ForGood),
            dismissed(2, false, Fate::Early(vec![1, u64::MAX])),
            dismissed(3, false, Fate::Early(Vec::new())),
            dismissed(4, true, Fate::Rests(Timestamp(99), vec![5])),
        ];
        let changes: Vec<Change> = rows.iter().cloned().map(Change::Dismiss).collect();
        commit(store, &changes);
        assert_eq!(kept(store).1, rows);
        let again = dismissed(2, false, Fate::ForGood);
        let changes = [
            Change::Dismiss(again.clone()),
            Change::Recall(rows[0].id),
            Change::Recall(rows[2].id),
            Change::Recall(EventId([9; 32])),
        ];
        commit(store, &changes);
        assert_eq!(kept(store).1, [again, rows[3].clone()]);
    });
}

#[test]
fn both_outlive_a_restart_a_backup_and_are_read_beside_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let memory = relay("wss://a.example", 1);
    let row = dismissed(1, true, Fate::Early(vec![2]));
    let expected = (vec![memory.clone()], vec![row.clone()]);
    commit(
        &Store::open(&path).unwrap(),
        &[know(&memory), Change::Dismiss(row)],
    );
    assert_eq!(kept(&Store::open(&path).unwrap()), expected);
    let beside = Store::open_read_only(&path).unwrap();
    assert_eq!(kept(&beside), expected);
    let backup = dir.path().join("backup");
    beside.backup(&backup, &[]).unwrap();
    restore(&backup, &dir.path().join("restored")).unwrap();
    let restored = Store::open(&dir.path().join("restored")).unwrap();
    assert_eq!(kept(&restored), expected);
}

#[test]
fn a_start_hears_of_roots_after_announcements_with_their_numbers() {
    on_both(|store| {
        let address = format!("30617:{ALICE}:x");
        let mut events = vec![unsigned(BOB, 1621, 1, &[&["a", &address]], "")];
        events.push(repo(ALICE, 2, "x"));
        events.push(note(BOB, 3, &[&["a", &address]]));
        // More than fit into a page, many of them in one second.
        events.extend((0..700).map(|n| {
            let (kind, at) = ([1617, 1618, 1619, 1621][n % 4], 10 + n as u64 / 300);
            unsigned(BOB, kind, at, &[&["a", &address]], &n.to_string())
        }));
        put_all(store, &events);
        let mut heard = Vec::new();
        let visit = |restore| match restore {
            Restore::Announcement { event, seq } => {
                assert!(heard.is_empty(), "announcements come first");
                heard.push((seq, event.id));
            }
            Restore::Root { event, seq } => {
                // Whoever hears may ask in turn.
                assert!(store.contains(&event.id).unwrap());
                heard.push((seq, event.id));
            }
            other => panic!("unexpected: {other:?}"),
        };
        store.kept(visit).unwrap();
        heard.sort_unstable();
        let stored = events
            .iter()
            .enumerate()
            .filter(|(_, event)| event.kind.0 != 1);
        let stored: Vec<_> = stored.map(|(n, event)| (Seq(n as u64), event.id)).collect();
        assert_eq!(heard, stored);
    });
}

#[test]
fn a_start_hears_of_everything_in_the_order_that_the_core_wants() {
    on_both(|store| {
        let address = format!("30617:{ALICE}:x");
        let issue = unsigned(BOB, 1621, 1, &[&["a", &address]], "");
        put_all(store, [&issue, &repo(ALICE, 2, "x")]);
        let held = Change::Hold {
            event: Arc::new(note(BOB, 3, &[])),
            until: Timestamp(9),
            remembered: false,
        };
        let changes = [
            Change::Dismiss(dismissed(1, false, Fate::ForGood)),
            know(&relay("wss://a.example", 0)),
            held,
            Change::Hide(issue.id),
        ];
        commit(store, &changes);
        let mut heard = Vec::new();
        let visit = |restore| {
            heard.push(match restore {
                Restore::Announcement { .. } => "announcement",
                Restore::Root { .. } => "root",
                Restore::Applied { .. } => "applied",
                Restore::Hidden(_) => "hidden",
                Restore::Repository(_) => "repository",
                Restore::Held { .. } => "held",
                Restore::Relay(_) => "relay",
                Restore::Dismissed(_) => "dismissed",
            });
        };
        store.kept(visit).unwrap();
        let expected = [
            "announcement",
            "root",
            "hidden",
            "held",
            "relay",
            "dismissed",
        ];
        assert_eq!(heard, expected);
    });
}
