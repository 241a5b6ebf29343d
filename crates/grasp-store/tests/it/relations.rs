//! Small rows that answer for an event: they say what it says, and go when it goes.

use grasp_core::facts::RootRow;
use grasp_core::nip34::{PULL_REQUESTS, PullRequest, ROOTS, Rank, Target};
use grasp_core::{Event, EventId, Facts, Identifier, Kind, RepoId};
use grasp_store::Store;
use testkit::unsigned;

use crate::support::*;
use crate::tail::{UNLIMITED, copy};

fn repo_id() -> RepoId {
    RepoId::new(ALICE, Identifier::parse("x").unwrap())
}

fn address() -> String {
    format!("30617:{ALICE}:x")
}

fn pull_request(second: u64) -> Event {
    let other = format!("30617:{BOB}:an odd name/with everything");
    let tags: &[&[&str]] = &[
        &["c", &"1".repeat(40)],
        &["a", &address()],
        &["A", &other],
        &["a", "30617:nobody:x"],
    ];
    unsigned(BOB, 1618, second, tags, "a long text")
}

fn update(second: u64, root: &Event) -> Event {
    let tags: &[&[&str]] = &[&["c", &"2".repeat(40)], &["E", &root.id.to_string()]];
    unsigned(ALICE, 1619, second, tags, "")
}

fn found(rows: Vec<RootRow>) -> Vec<EventId> {
    rows.into_iter().map(|row| row.id).collect()
}

#[test]
fn a_row_says_what_the_pull_request_says() {
    on_both(|store| {
        let root = pull_request(10);
        let bare = unsigned(BOB, 1618, 12, &[&["c", "no commit"]], "");
        for event in [&root, &update(11, &root), &bare] {
            put(store, event);
            let row = store.pull_request(&event.id).unwrap();
            assert_eq!(row.author, event.pubkey);
            assert_eq!(store.author_of(&event.id), Some(event.pubkey));
            assert_eq!(Some(row.says), PullRequest::read(event));
        }
        let note = note(BOB, 20, &[&["c", "1"]]);
        put(store, &note);
        assert_eq!(store.pull_request(&note.id), None);
        assert_eq!(store.pull_request(&pull_request(99).id), None);
    });
}

#[test]
fn roots_are_told_by_kind_with_their_time() {
    on_both(|store| {
        let (root, issue) = (pull_request(10), about(1621, 12));
        let update = update(11, &root);
        put_all(store, [&root, &update, &issue, &about(1111, 13)]);
        assert_eq!(
            found(store.roots(&repo_id(), &ROOTS)),
            ids([&root, &update, &issue])
        );
        assert_eq!(
            found(store.roots(&repo_id(), &PULL_REQUESTS)),
            ids([&root, &update])
        );
        let issues = store.roots(&repo_id(), &[Kind(1621)]);
        let RootRow {
            created_at,
            id,
            kind,
        } = issues[0];
        assert_eq!(
            (created_at, id, kind),
            (issue.created_at, issue.id, issue.kind)
        );
        assert_eq!(found(store.updates(&root.id)), [update.id]);
    });
}

fn about(kind: u16, second: u64) -> Event {
    unsigned(BOB, kind, second, &[&["a", &address()]], "")
}

/// Everything that names the target, in pages of so many rows.
fn in_pages(store: &Store, target: &Target, rows: usize) -> (Vec<EventId>, usize) {
    let (mut seen, mut pages, mut after) = (Vec::new(), 0, None);
    loop {
        let mut left = rows;
        let page = store.naming(target, Kind(1618), after, &mut left);
        pages += 1;
        seen.extend(found(page.rows));
        let Some(next) = page.next else {
            return (seen, pages);
        };
        assert_eq!(left, 0, "a page ends early only at the end");
        after = Some(next);
    }
}

#[test]
fn all_that_name_a_repository_are_found_in_pages() {
    on_both(|store| {
        let target = Target::Address(repo_id().address(Kind::ANNOUNCEMENT));
        assert_eq!(in_pages(store, &target, 2), (Vec::new(), 1));
        // Two of them in one second.
        let seconds = [10, 11, 11, 12, 13];
        let made: Vec<Event> = (0u8..)
            .zip(seconds)
            .map(|(n, at)| {
                let text = n.to_string();
                unsigned(BOB, 1618, at, &[&["a", &address()]], &text)
            })
            .collect();
        put_all(store, &made);
        put(store, &about(1621, 12));
        put(store, &delete_id(BOB, 20, &made[3]));
        let mut left: Vec<&Event> = made.iter().filter(|event| **event != made[3]).collect();
        left.sort_by_key(|event| (std::cmp::Reverse(event.created_at), event.id));
        for rows in 1..7 {
            let (seen, pages) = in_pages(store, &target, rows);
            assert_eq!(seen, ids(left.iter().copied()), "{rows} rows in a page");
            assert!(pages <= 5usize.div_ceil(rows));
        }
    });
}

#[test]
fn rows_go_with_their_event() {
    on_both(|store| {
        let root = pull_request(10);
        let update = update(11, &root);
        put_all(store, [&root, &update]);
        put(store, &delete_id(ALICE, 20, &update));
        assert_eq!(store.pull_request(&update.id), None);
        assert_eq!(store.author_of(&update.id), None);
        assert_eq!(store.updates(&root.id), []);
        assert!(
            !store.is_named(&root),
            "only the deletion's author names it now"
        );
        put(store, &vanish(BOB, 30));
        assert_eq!(store.pull_request(&root.id), None);
        assert_eq!(store.roots(&repo_id(), &ROOTS), []);
    });
}

#[test]
fn rows_are_there_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_with(dir.path(), UNLIMITED).unwrap();
    let root = pull_request(10);
    let update = update(11, &root);
    put_all(&store, [&root, &update]);
    put(&store, &about(1621, 12));
    // Nothing is in the indexes yet: the copy has the log alone.
    let (_copied, path) = copy(&store);
    let again = Store::open(&path).unwrap();
    assert_eq!(again.pull_request(&root.id), store.pull_request(&root.id));
    assert_eq!(
        again.roots(&repo_id(), &ROOTS),
        store.roots(&repo_id(), &ROOTS)
    );
    assert_eq!(again.roots(&repo_id(), &ROOTS).len(), 3);
    assert!(again.is_named(&root));
}

#[test]
fn the_rank_at_an_address_is_that_of_the_version_that_stands() {
    on_both(|store| {
        let (old, new) = (repo(ALICE, 10, "x"), repo(ALICE, 11, "x"));
        let address = old.address().unwrap();
        assert_eq!(store.rank_at(&address), None);
        put_all(store, [&old, &new]);
        assert_eq!(store.rank_at(&address), Some(Rank::of(&new)));
        put(store, &delete_id(ALICE, 12, &new));
        assert_eq!(store.rank_at(&address), None, "the slot outlives it");
    });
}
