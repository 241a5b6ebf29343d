//! Held events and applied states: durable, written with the commit, seen by no query. And the
//! point reads that the rules ask for.

use std::sync::Arc;

use grasp_core::nip34::Rank;
use grasp_core::{
    Change, Event, Facts, Identifier, Kind, RepoId, Restore, Seq, StoreOutcome, Timestamp,
};
use grasp_store::{Budget, Store, Want};
use testkit::{json, unsigned};

use crate::support::*;

fn hold(event: &Arc<Event>, until: u64) -> Change {
    Change::Hold {
        event: Arc::clone(event),
        until: Timestamp(until),
        remembered: false,
    }
}

fn applied(second: u64) -> Change {
    Change::Applied {
        repo: repo_id(),
        rank: rank(second),
        since: Timestamp(second - 1),
    }
}

fn repo_id() -> RepoId {
    RepoId::new(ALICE, Identifier::parse("x").unwrap())
}

fn rank(second: u64) -> Rank {
    Rank {
        created_at: Timestamp(second),
        id: note(ALICE, second, &[]).id,
    }
}

fn kept(store: &Store) -> Vec<String> {
    let mut kept = Vec::new();
    let mut show = |restore| {
        kept.push(match restore {
            Restore::Announcement { event, .. } => format!("announced {}", event.created_at.0),
            Restore::Root { event, .. } => format!("root {}", event.created_at.0),
            Restore::Relay(memory) => format!("relay {}", memory.url),
            Restore::Dismissed(row) => format!("dismissed {}", row.id),
            Restore::Applied { repo, rank, since } => {
                let (at, since) = (rank.created_at.0, since.0);
                format!("applied {} {at} since {since}", repo.identifier)
            }
            Restore::Hidden(id) => format!("hidden {id}"),
            Restore::Repository(repo) => format!("found {repo}"),
            Restore::Held { event, until, .. } => format!("held {} {}", event.kind, until.0),
        });
    };
    store.kept(&mut show).unwrap();
    kept
}

#[test]
fn whoever_visits_what_is_kept_may_ask_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let event = Arc::new(note(ALICE, 10, &[]));
    put(&store, &event);
    let changes = [
        applied(20),
        Change::Hide(event.id),
        hold(&Arc::new(note(ALICE, 11, &[])), 99),
    ];
    store.commit([&changes[..]]).unwrap();
    // A snapshot has one view, which one reader has at a time.
    drop(store);
    let store = Store::open_read_only(directory.path()).unwrap();
    let mut visits = 0;
    let visit = |_| {
        visits += 1;
        assert_eq!(store.kind_of(&event.id), Some(event.kind));
    };
    store.kept(visit).unwrap();
    assert_eq!(visits, 3);
}

#[test]
fn held_events_are_seen_by_no_query() {
    on_both(|store| {
        let event = Arc::new(note(ALICE, 10, &[]));
        let change = [hold(&event, 99)];
        assert_eq!(store.commit([&change[..]]).unwrap(), [vec![]]);
        assert!(!store.contains(&event.id).unwrap());
        assert_eq!(find(store, json!({})), []);
        assert_eq!(store.stats().unwrap().events, 0);
        assert_eq!(kept(store), ["held 1 99"]);

        let release = [Change::Store(Arc::clone(&event)), Change::Unhold(event.id)];
        let outcomes = store.commit([&release[..]]).unwrap();
        assert_eq!(outcomes, [vec![StoreOutcome::Stored(Seq(0))]]);
        assert!(store.contains(&event.id).unwrap());
        assert_eq!(kept(store), Vec::<String>::new());
    });
}

#[test]
fn a_start_finds_announcements_states_and_held_events_in_that_order() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = Store::open(dir.path()).unwrap();
        put(&store, &repo(BOB, 7, "y"));
        let state = Arc::new(unsigned(ALICE, 30618, 20, &[&["d", "x"]], ""));
        let announcement = Arc::new(repo(ALICE, 10, "x"));
        let changes = [hold(&state, 50), hold(&announcement, 60), applied(5)];
        store.commit([&changes[..]]).unwrap();
    }
    let again = Store::open(dir.path()).unwrap();
    let expected = [
        "announced 7",
        "applied x 5 since 4",
        "held 30617 60",
        "held 30618 50",
    ];
    assert_eq!(kept(&again), expected);
}

#[test]
fn the_last_word_on_a_held_event_and_on_a_repository_stands() {
    on_both(|store| {
        let event = Arc::new(note(ALICE, 10, &[]));
        let changes = [hold(&event, 50), hold(&event, 70), applied(5), applied(6)];
        store.commit([&changes[..]]).unwrap();
        assert_eq!(kept(store), ["applied x 6 since 5", "held 1 70"]);
    });
}

#[test]
fn the_rules_can_ask_for_single_events() {
    on_both(|store| {
        let (old, new) = (repo(ALICE, 10, "x"), repo(ALICE, 11, "x"));
        put(store, &new);
        assert_eq!(store.kind_of(&new.id), Some(Kind(30617)));
        assert_eq!(store.kind_of(&old.id), None);
        assert_eq!(store.event(&new.id).as_deref(), Some(&new));
        let address = new.address().unwrap();
        assert_eq!(store.newest(&address).as_deref(), Some(&new));
        assert_eq!(store.foresee(&old), Some(StoreOutcome::Replaced));
        assert_eq!(store.foresee(&new), Some(StoreOutcome::Duplicate));
        assert_eq!(store.foresee(&repo(ALICE, 12, "x")), None);
        put(store, &delete_id(ALICE, 13, &new));
        assert_eq!(store.foresee(&new), Some(StoreOutcome::Deleted));
        assert_eq!(store.newest(&address), None);
    });
}

#[test]
fn a_stored_event_that_names_another_proves_the_relation() {
    on_both(|store| {
        let (target, other) = (note(BOB, 1, &[]), note(BOB, 2, &[]));
        let id = target.id.to_string();
        // A deletion is taken from anybody and proves nothing.
        put(store, &deletion(ALICE, 3, &[&["e", &id]]));
        assert!(!store.is_named(&target));
        put(store, &note(ALICE, 4, &[&["q", &id]]));
        assert!(store.is_named(&target));
        assert!(!store.is_named(&other));
        let announced = repo(BOB, 5, "y");
        assert!(!store.is_named(&announced));
        let address = format!("30617:{BOB}:y");
        put(store, &note(ALICE, 6, &[&["A", &address]]));
        assert!(store.is_named(&announced));
    });
}

#[test]
fn a_hidden_event_is_stored_and_seen_by_no_query() {
    on_both(|store| {
        let state = |at| unsigned(ALICE, 30618, at, &[&["d", "x"]], "");
        let (old, new) = (state(10), state(11));
        put(store, &old);
        store.commit([&[Change::Hide(old.id)][..]]).unwrap();
        assert_eq!(find(store, json!({})), []);
        assert_eq!(put(store, &old), StoreOutcome::Duplicate);
        assert_eq!(store.event(&old.id).as_deref(), Some(&old));
        let mut all = query(&[json!({})], PLENTY, Want::Ids).with_hidden();
        assert_eq!(run(store, &mut all, Budget::SLICE, EARLY), [old.id]);
        assert!(kept(store).contains(&format!("hidden {}", old.id)));
        store.commit([&[Change::Show(old.id)][..]]).unwrap();
        assert_eq!(find(store, json!({})), [old.id]);
        // Whatever takes its place is not hidden.
        store.commit([&[Change::Hide(old.id)][..]]).unwrap();
        put(store, &new);
        assert_eq!(find(store, json!({})), [new.id]);
        assert!(!kept(store).iter().any(|row| row.starts_with("hidden")));
        // Nor is what is not here.
        store.commit([&[Change::Hide(old.id)][..]]).unwrap();
        assert!(!kept(store).iter().any(|row| row.starts_with("hidden")));
    });
}

#[test]
fn pull_requests_of_a_repository_are_found_with_their_updates() {
    on_both(|store| {
        let address = format!("30617:{}:x", repo_id().owner);
        let root = unsigned(BOB, 1618, 10, &[&["a", &address]], "");
        let update = unsigned(BOB, 1619, 11, &[&["E", &root.id.to_string()]], "");
        let issue = unsigned(BOB, 1621, 12, &[&["a", &address]], "");
        for event in [&root, &update, &issue] {
            put(store, event);
        }
        let found = store.roots(&repo_id(), &grasp_core::nip34::PULL_REQUESTS);
        let found: Vec<_> = found.iter().map(|row| row.id).collect();
        assert_eq!(found, [root.id, update.id]);
    });
}

/// D1.
#[test]
fn no_number_of_deletions_by_strangers_hides_that_an_event_is_named() {
    on_both(|store| {
        let target = note(BOB, 1, &[]);
        let id = target.id.to_string();
        let names_it = note(ALICE, 2, &[&["q", &id]]);
        put(store, &names_it);
        for second in 10..110 {
            put(store, &deletion(ALICE, second, &[&["e", &id], &["q", &id]]));
        }
        assert!(store.is_named(&target));
        put(store, &delete_id(ALICE, 200, &names_it));
        assert!(!store.is_named(&target), "it went with whoever named it");
    });
}

/// D1.
#[test]
fn no_number_of_comments_hides_the_pull_requests_of_a_repository() {
    on_both(|store| {
        let address = format!("30617:{}:x", repo_id().owner);
        let root = unsigned(BOB, 1618, 10, &[&["a", &address]], "");
        put(store, &root);
        let comment = |n: u64| unsigned(BOB, 1111, 20 + n, &[&["A", &address]], "");
        let comments: Vec<Event> = (0..20_001).map(comment).collect();
        put_all(store, &comments);
        let found = store.roots(&repo_id(), &grasp_core::nip34::PULL_REQUESTS);
        assert_eq!(found.len(), 1);
    });
}
