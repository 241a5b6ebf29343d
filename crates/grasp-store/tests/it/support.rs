//! What every store test needs: both backends, two authors, short ways to write and to ask.

use grasp_core::{Event, EventId, Filter, Pubkey, StoreOutcome, Timestamp};
use grasp_store::{Budget, Found, Progress, Query, Store, Want};
use testkit::{Value, unsigned};

pub const ALICE: Pubkey = Pubkey([0xa1; 32]);
pub const BOB: Pubkey = Pubkey([0xb0; 32]);

/// Before every expiration in the tests.
pub const EARLY: Timestamp = Timestamp(0);

/// More than any test stores.
pub const PLENTY: usize = 100_000;

/// Runs a test on each backend; the output of a failure ends with the name of the one.
pub fn on_both(test: impl Fn(&Store)) {
    eprintln!("in memory");
    test(&Store::in_memory());
    eprintln!("on disk");
    let dir = tempfile::tempdir().unwrap();
    test(&Store::open(dir.path()).unwrap());
}

pub fn note(author: Pubkey, created_at: u64, tags: &[&[&str]]) -> Event {
    unsigned(author, 1, created_at, tags, "")
}

/// A repository announcement: addressable.
pub fn repo(author: Pubkey, created_at: u64, d: &str) -> Event {
    unsigned(author, 30617, created_at, &[&["d", d]], "")
}

pub fn deletion(author: Pubkey, created_at: u64, tags: &[&[&str]]) -> Event {
    unsigned(author, 5, created_at, tags, "")
}

pub fn delete_id(author: Pubkey, created_at: u64, target: &Event) -> Event {
    deletion(author, created_at, &[&["e", &target.id.to_string()]])
}

pub fn delete_address(author: Pubkey, created_at: u64, address: &str) -> Event {
    deletion(author, created_at, &[&["a", address]])
}

pub fn vanish(author: Pubkey, created_at: u64) -> Event {
    unsigned(author, 62, created_at, &[&["relay", "ALL_RELAYS"]], "")
}

pub fn put(store: &Store, event: &Event) -> StoreOutcome {
    store.apply([event]).unwrap()[0]
}

/// Stores events that must all be new.
pub fn put_all<'e>(store: &Store, events: impl IntoIterator<Item = &'e Event>) {
    for outcome in store.apply(events).unwrap() {
        assert!(
            matches!(outcome, StoreOutcome::Stored(_)),
            "not stored: {outcome:?}"
        );
    }
}

pub fn filter(json: &Value) -> Filter {
    Filter::parse(&json.to_string()).unwrap()
}

pub fn query(filters: &[Value], max: usize, want: Want) -> Query {
    Query::new(filters.iter().map(filter).collect(), max, want)
}

/// The ids that one filter finds, before anything expires.
pub fn find(store: &Store, filter: Value) -> Vec<EventId> {
    find_at(store, filter, EARLY)
}

pub fn find_at(store: &Store, filter: Value, now: Timestamp) -> Vec<EventId> {
    let mut query = query(&[filter], PLENTY, Want::Ids);
    run(store, &mut query, Budget(usize::MAX), now)
}

/// Runs a query to its end in slices of one size.
pub fn run(store: &Store, query: &mut Query, slice: Budget, now: Timestamp) -> Vec<EventId> {
    let mut ids = Vec::new();
    for _ in 0..PLENTY {
        let visit = |found: Found<'_>| ids.push(found.id);
        if store.advance(query, slice, now, visit).unwrap() == Progress::Done {
            return ids;
        }
    }
    panic!("the query does not end");
}

pub fn ids<'e>(events: impl IntoIterator<Item = &'e Event>) -> Vec<EventId> {
    events.into_iter().map(|event| event.id).collect()
}

/// Two versions of one second, the one with the lower id first.
pub fn tied(make: impl Fn(&str) -> Event) -> (Event, Event) {
    let (one, other) = (make("1"), make("2"));
    if one.id < other.id {
        (one, other)
    } else {
        (other, one)
    }
}
