//! What events say of each other, in rows that the rules read instead of the events: who names what,
//! and what a pull request says of git. A parse of a large event takes a millisecond, a row a
//! microsecond, and the driver asks for thousands.

use std::ops::Bound;

use grasp_core::event::{Event, Kind};
use grasp_core::facts::{PullRequestRow, RootCursor, RootPage, RootRow};
use grasp_core::git::ObjectId;
use grasp_core::nip34::{self, PULL_REQUEST, PULL_REQUEST_UPDATE, PullRequest};
use grasp_core::{EventId, Identifier, Pubkey, RepoId, Seq};

use crate::error::StoreError;
use crate::gone;
use crate::kv::lmdb::Lmdb;
use crate::kv::{Read, Table, Write};
use crate::schema::{self, Cases, IdValue, IndexValue, Place, Record, damaged};
use crate::write::number;

/// Roots of one kind that one repository is asked for, and updates of one pull request: each is two
/// rows, 2 us. More are looked after by nobody.
pub(crate) const MAX_ROOTS: usize = 2_000;
/// Rows of events that are gone, between one that proves something and whoever asks. There are some
/// only until the sweep.
const MAX_GONE: usize = 1_024;

/// Events, or bytes of them, in one commit when an older store is completed: one of 2,500 tags has as
/// many rows, so that a commit has 1.5 million rows of 100 bytes at most.
const PAGE_EVENTS: usize = 4_096;
const PAGE_BYTES: usize = 16 * 1024 * 1024;

/// What follows the id in a key of `PullRequests`.
const TIP: u8 = 0;
const ROOT: u8 = 1;
const REPO: u8 = 2;

/// How far the completion of an older store has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    /// Numbers of events, some of which are gone.
    pub done: u64,
    pub all: u64,
}

/// The rows of an event; they come and go with those of its other indexes.
pub(crate) fn keys(event: &Event) -> Vec<(Table, Box<[u8]>, Cases)> {
    let mut keys = by_target(event);
    if let Some(says) = PullRequest::read(event) {
        let own = said(event, &says).into_iter();
        keys.extend(own.map(|key| (Table::PullRequests, key.into(), Cases::default())));
    }
    keys
}

/// None for kinds that anybody may publish about anything: they prove nothing, and whoever looks for
/// a proof must not have to pass by them.
fn by_target(event: &Event) -> Vec<(Table, Box<[u8]>, Cases)> {
    if grasp_core::admit::is_free(event.kind) {
        return Vec::new();
    }
    let place = Place::new(event.created_at, &event.id);
    let is_target = |letter: u8| matches!(letter, b'a' | b'A' | b'e' | b'E' | b'q');
    let targets = event
        .indexed_tags()
        .filter(|(letter, _)| is_target(*letter));
    let mut targets: Vec<([u8; 18], Cases)> = targets
        .map(|(letter, value)| (target_prefix(letter, value, event.kind), Cases::of(letter)))
        .collect();
    targets.sort_unstable();
    targets.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1.add(later.1);
        }
        same
    });
    let keys = targets.into_iter();
    keys.map(|(prefix, cases)| (Table::ByTarget, schema::key(&prefix, &place), cases))
        .collect()
}

/// Both cases of a letter share it.
fn target_prefix(letter: u8, value: &str, kind: Kind) -> [u8; 18] {
    let mut prefix = [0; 18];
    let (target, rest) = prefix.split_at_mut(16);
    target.copy_from_slice(&schema::tag_prefix(letter, value));
    rest.copy_from_slice(&schema::kind_prefix(kind));
    prefix
}

/// In keys alone, so that they are index rows like all others. The longest has 32 + 2 + 32 + 200
/// bytes, of 511 that a key may have.
fn said(event: &Event, says: &PullRequest) -> Vec<Vec<u8>> {
    let row = |what: u8, parts: &[&[u8]]| [&event.id.0[..], &[what], &parts.concat()].concat();
    let tip = says.tip.map(|tip| tip.0);
    let tip = tip.as_ref().map_or(&[][..], |tip| &tip[..]);
    let mut rows = vec![row(TIP, &[&event.pubkey.0, tip])];
    rows.extend(says.root.map(|root| row(ROOT, &[&root.0])));
    for (n, repo) in (0u8..).zip(&says.repos) {
        let identifier = repo.identifier.as_str().as_bytes();
        rows.push(row(REPO, &[&[n], &repo.owner.0, identifier]));
    }
    rows
}

/// A stored event names the value, one of a kind that must itself belong here.
pub(crate) fn is_proven(kv: &impl Read, letter: u8, value: &str) -> Result<bool, StoreError> {
    let prefix = schema::tag_prefix(letter, value);
    let rows = kv.rows(Table::ByTarget, Bound::Included(&prefix))?;
    for row in rows.take(MAX_GONE) {
        let (key, value) = row?;
        if !key.starts_with(&prefix) {
            break;
        }
        if is_stored(kv, key, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Stored events of these kinds that name a repository, updates perhaps only through their root.
pub(crate) fn roots(
    kv: &impl Read,
    address: &str,
    kinds: &[Kind],
) -> Result<Vec<RootRow>, StoreError> {
    let mut found = Vec::new();
    for kind in kinds {
        found.extend(naming(kv, b'a', address, *kind)?);
    }
    if kinds.contains(&PULL_REQUEST_UPDATE) {
        found.extend(updates_of_roots(kv, address)?);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Updates that name the repository perhaps only through their root. As many as it may have of
/// those that name it: one update may name every root, so that all roots share one budget of rows.
fn updates_of_roots(kv: &impl Read, address: &str) -> Result<Vec<RootRow>, StoreError> {
    let (mut found, mut left) = (Vec::new(), MAX_ROOTS + MAX_GONE);
    for root in naming(kv, b'a', address, PULL_REQUEST)? {
        if found.len() >= MAX_ROOTS || left == 0 {
            break;
        }
        let root = root.id.to_string();
        let prefix = target_prefix(b'e', &root, PULL_REQUEST_UPDATE);
        let page = page_of(kv, &prefix, None, &mut left, MAX_ROOTS)?;
        found.extend(page.rows);
    }
    Ok(found)
}

/// Stored events of one kind that name the value, the newest first.
pub(crate) fn naming(
    kv: &impl Read,
    letter: u8,
    value: &str,
    kind: Kind,
) -> Result<Vec<RootRow>, StoreError> {
    let prefix = target_prefix(letter, value, kind);
    let mut left = MAX_ROOTS + MAX_GONE;
    Ok(page_of(kv, &prefix, None, &mut left, MAX_ROOTS)?.rows)
}

/// The same from a cursor on, as far as `left` reaches.
pub(crate) fn naming_after(
    kv: &impl Read,
    (letter, value): (u8, &str),
    kind: Kind,
    after: Option<RootCursor>,
    left: &mut usize,
) -> Result<RootPage, StoreError> {
    let prefix = target_prefix(letter, value, kind);
    page_of(kv, &prefix, after, left, MAX_ROOTS)
}

/// Rows under a prefix that ends with a kind; `left` are those that may still be looked at.
fn page_of(
    kv: &impl Read,
    prefix: &[u8; 18],
    after: Option<RootCursor>,
    left: &mut usize,
    most: usize,
) -> Result<RootPage, StoreError> {
    let start = after.map(|last| schema::key(prefix, &Place::new(last.created_at, &last.id)));
    let start = start.as_deref();
    let start = start.map_or(Bound::Included(&prefix[..]), Bound::Excluded);
    let mut page = RootPage::default();
    let mut last = after;
    for row in kv.rows(Table::ByTarget, start)? {
        let (key, value) = row?;
        if !key.starts_with(prefix) {
            break;
        }
        if *left == 0 || page.rows.len() == most {
            page.next = last;
            break;
        }
        *left -= 1;
        let place = Place::of_key(key)?;
        let (created_at, id) = (place.created_at(), place.id());
        last = Some(RootCursor { created_at, id });
        if is_stored(kv, key, value)? {
            let kind = IndexValue::from_bytes(value)?.kind;
            page.rows.push(RootRow {
                created_at,
                id,
                kind,
            });
        }
    }
    Ok(page)
}

/// Rows may outlive their event for a while: until a sweep, or where a version that did not know
/// this table removed it.
fn is_stored(kv: &impl Read, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
    let id = Place::of_key(key)?.id();
    let seq = IndexValue::from_bytes(value)?.seq;
    let stored = gone::stored(kv, &id)?;
    Ok(stored.is_some_and(|stored| stored.index.seq == seq))
}

/// What a stored pull request says.
pub(crate) fn pull_request(
    kv: &impl Read,
    id: &EventId,
) -> Result<Option<PullRequestRow>, StoreError> {
    let stored = gone::stored(kv, id)?;
    let is_one = |stored: &IdValue| nip34::PULL_REQUESTS.contains(&stored.index.kind);
    let Some(stored) = stored.filter(is_one) else {
        return Ok(None);
    };
    let (mut author, mut tip, mut root, mut repos) = (None, None, None, Vec::new());
    for row in kv.rows(Table::PullRequests, Bound::Included(&id.0))? {
        let (key, _) = row?;
        let Some((what, said)) = key.strip_prefix(&id.0).and_then(<[u8]>::split_first) else {
            break;
        };
        match *what {
            TIP => {
                let (key, commit) = said.split_first_chunk().ok_or_else(damaged)?;
                author = Some(Pubkey(*key));
                tip = commit.first_chunk().map(|commit| ObjectId(*commit));
            }
            ROOT => root = Some(EventId(said.try_into().map_err(|_| damaged())?)),
            REPO => repos.push(read_repo(said)?),
            _ => return Err(damaged()),
        }
    }
    match author {
        Some(author) => {
            let says = PullRequest { tip, repos, root };
            Ok(Some(PullRequestRow { author, says }))
        }
        None => parsed(kv, stored.index.seq),
    }
}

fn read_repo(said: &[u8]) -> Result<RepoId, StoreError> {
    let (_, said) = said.split_first().ok_or_else(damaged)?;
    let (owner, identifier) = said.split_first_chunk().ok_or_else(damaged)?;
    let identifier = std::str::from_utf8(identifier).map_err(|_| damaged())?;
    let identifier = Identifier::parse(identifier).map_err(|_| damaged())?;
    Ok(RepoId::new(Pubkey(*owner), identifier))
}

/// A store of an older version that is only read has no rows.
fn parsed(kv: &impl Read, seq: Seq) -> Result<Option<PullRequestRow>, StoreError> {
    let Some(record) = kv.get(Table::Events, &seq.0.to_be_bytes())? else {
        return Ok(None);
    };
    let event = Record::decode(record)?.event()?;
    Ok(PullRequest::read(&event).map(|says| PullRequestRow {
        author: event.pubkey,
        says,
    }))
}

/// Makes the rows of events that a version without these tables has indexed, a page in one commit.
/// A store that was written by this version alone has them all.
pub(crate) fn complete(lmdb: &Lmdb, tell: &mut dyn FnMut(Completed)) -> Result<(), StoreError> {
    let all = number(&lmdb.read()?, schema::META_INDEXED)?;
    loop {
        let Some(page) = page(lmdb, all, PAGE_EVENTS)? else {
            return Ok(());
        };
        let done = page.next;
        page.write(lmdb)?;
        tell(Completed { done, all });
    }
}

type Row = (Table, Box<[u8]>, [u8; IndexValue::LEN]);

struct Page {
    /// In key order.
    rows: Vec<Row>,
    next: u64,
}

impl Page {
    fn write(self, lmdb: &Lmdb) -> Result<(), StoreError> {
        let mut txn = lmdb.write()?;
        for (table, key, value) in self.rows {
            txn.put(table, &key, &value)?;
        }
        let done = self.next.to_be_bytes();
        txn.put(Table::Meta, schema::META_RELATED, &done)?;
        txn.commit()
    }
}

fn page(lmdb: &Lmdb, all: u64, most: usize) -> Result<Option<Page>, StoreError> {
    let read = lmdb.read()?;
    let from = number(&read, schema::META_RELATED)?;
    if from >= all {
        return Ok(None);
    }
    let (mut rows, mut bytes, mut next) = (Vec::new(), 0, all);
    let events = read.rows(Table::Events, Bound::Included(&from.to_be_bytes()))?;
    for (n, row) in events.enumerate() {
        let (key, record) = row?;
        let seq = schema::read_u64(key)?;
        if seq >= all {
            break;
        }
        if n == most || bytes >= PAGE_BYTES {
            next = seq;
            break;
        }
        bytes += record.len();
        let event = Record::decode(record)?.event()?;
        let value = IndexValue {
            seq: Seq(seq),
            kind: event.kind,
            expires: event.expiration().is_some(),
            cases: Cases::default(),
        };
        let keys = keys(&event).into_iter();
        rows.extend(keys.map(|(table, key, cases)| {
            let value = IndexValue { cases, ..value };
            (table, key, value.to_bytes())
        }));
    }
    rows.sort_unstable();
    Ok(Some(Page { rows, next }))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;

    use grasp_core::Facts;
    use testkit::author::unsigned_tags;
    use testkit::unsigned;

    use super::*;
    use crate::kv::memory::{Memory, MemoryRows};
    use crate::{Backend, RemovalLimits, Store, TailLimits};

    const ALICE: Pubkey = Pubkey([0xa1; 32]);

    /// A pull request, its update, and a comment about each.
    fn events() -> Vec<Event> {
        let address = format!("30617:{ALICE}:x");
        let tip = "1".repeat(40);
        let root = unsigned(ALICE, 1618, 10, &[&["a", &address], &["c", &tip]], "");
        let id = root.id.to_string();
        let update = unsigned(ALICE, 1619, 11, &[&["E", &id], &["c", &tip]], "");
        let comment = unsigned(ALICE, 1111, 12, &[&["E", &id]], "");
        let quote = unsigned(ALICE, 1, 13, &[&["q", &update.id.to_string()]], "");
        vec![root, update, comment, quote]
    }

    fn rows(lmdb: &Lmdb) -> Vec<(Table, Vec<u8>, Vec<u8>)> {
        let (read, mut rows) = (lmdb.read().unwrap(), Vec::new());
        for table in [Table::ByTarget, Table::PullRequests] {
            for row in read.rows(table, Bound::Unbounded).unwrap() {
                let (key, value) = row.unwrap();
                rows.push((table, key.to_vec(), value.to_vec()));
            }
        }
        rows
    }

    /// As a version leaves it that knows neither these tables nor how far they reach.
    fn make_older(path: &Path) -> Vec<(Table, Vec<u8>, Vec<u8>)> {
        let lmdb = Lmdb::open(path).unwrap();
        let rows = rows(&lmdb);
        let mut txn = lmdb.write().unwrap();
        for (table, key, _) in &rows {
            txn.delete(*table, key).unwrap();
        }
        txn.delete(Table::Meta, schema::META_RELATED).unwrap();
        txn.commit().unwrap();
        rows
    }

    #[test]
    fn a_store_of_an_older_version_gets_its_rows_and_is_told_how_far_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let events = events();
        Store::open(dir.path()).unwrap().apply(&events).unwrap();
        let before = make_older(dir.path());
        assert!(!before.is_empty());
        {
            let only_read = Store::open_read_only(dir.path()).unwrap();
            let said = only_read.pull_request(&events[0].id).unwrap().says;
            assert_eq!(Some(said), PullRequest::read(&events[0]));
        }
        let mut told = Vec::new();
        let (tail, removal) = (TailLimits::default(), RemovalLimits::default());
        drop(Store::open_telling(dir.path(), tail, removal, &mut |done| told.push(done)).unwrap());
        assert_eq!(told, [Completed { done: 4, all: 4 }]);
        assert_eq!(rows(&Lmdb::open(dir.path()).unwrap()), before);
        let again = &mut |_| panic!("there is nothing left to complete");
        let store = Store::open_telling(dir.path(), tail, removal, again).unwrap();
        assert_eq!(store.updates(&events[0].id).len(), 1);
        assert!(store.is_named(&events[1]));
    }

    #[test]
    fn a_completion_that_is_killed_goes_on_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        Store::open(dir.path()).unwrap().apply(&events()).unwrap();
        let before = make_older(dir.path());
        {
            let lmdb = Lmdb::open(dir.path()).unwrap();
            let first = page(&lmdb, 4, 3).unwrap().unwrap();
            assert_eq!(first.next, 3);
            first.write(&lmdb).unwrap();
            let rest = page(&lmdb, 4, 3).unwrap().unwrap();
            assert_eq!((rest.rows.len(), rest.next), (1, 4));
        }
        drop(Store::open(dir.path()).unwrap());
        assert_eq!(rows(&Lmdb::open(dir.path()).unwrap()), before);
    }

    /// Counts the rows that are looked at in `ByTarget`.
    struct Counted<'a> {
        kv: &'a Memory,
        rows: Cell<usize>,
    }

    impl Read for Counted<'_> {
        type Rows<'a>
            = CountedRows<'a>
        where
            Self: 'a;

        fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
            self.kv.get(table, key)
        }

        fn rows(&self, table: Table, from: Bound<&[u8]>) -> Result<CountedRows<'_>, StoreError> {
            let seen = (table == Table::ByTarget).then_some(&self.rows);
            Ok(CountedRows(self.kv.rows(table, from)?, seen))
        }
    }

    struct CountedRows<'a>(MemoryRows<'a>, Option<&'a Cell<usize>>);

    impl<'a> Iterator for CountedRows<'a> {
        type Item = <MemoryRows<'a> as Iterator>::Item;

        fn next(&mut self) -> Option<Self::Item> {
            let next = self.0.next();
            if let Some(rows) = self.1 {
                rows.set(rows.get() + usize::from(next.is_some()));
            }
            next
        }
    }

    #[test]
    fn updates_that_are_gone_are_passed_by_once_for_all_pull_requests() {
        let hidden = RemovalLimits {
            bytes_at_once: 0,
            looks: 1_000,
            rows: 1,
        };
        let store = Store::in_memory_limited(hidden);
        let address = format!("30617:{ALICE}:x");
        let root = |n| unsigned(ALICE, 1618, n, &[&["a", &address]], "");
        let roots: Vec<Event> = (0..50).map(root).collect();
        let named = roots
            .iter()
            .map(|root| vec!["e".to_owned(), root.id.to_string()]);
        let named: Vec<Vec<String>> = named.collect();
        let update = |n: u64| unsigned_tags(ALICE, 1619, 100 + n, named.clone(), "");
        let updates: Vec<Event> = (0..200).map(update).collect();
        let ids = updates.iter();
        let ids = ids.map(|update| vec!["e".to_owned(), update.id.to_string()]);
        let deletion = unsigned_tags(ALICE, 5, 1_000, ids.collect(), "");
        store.apply(roots.iter().chain(&updates)).unwrap();
        store.apply([&deletion]).unwrap();
        let Backend::Memory(memory) = &store.backend else {
            panic!("it is in memory");
        };
        let memory = memory.read().unwrap();
        let counted = Counted {
            kv: &memory,
            rows: Cell::new(0),
        };
        let found = super::roots(&counted, &address, &nip34::PULL_REQUESTS).unwrap();
        assert_eq!(found.len(), roots.len());
        // And one row behind the last of each list.
        let most = MAX_ROOTS + MAX_GONE + 3 * roots.len();
        assert!(counted.rows.get() <= most, "{}", counted.rows.get());
    }

    #[test]
    fn rows_whose_event_an_older_version_removed_prove_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let events = events();
        Store::open(dir.path()).unwrap().apply(&events).unwrap();
        {
            let lmdb = Lmdb::open(dir.path()).unwrap();
            let mut txn = lmdb.write().unwrap();
            for event in [&events[1], &events[3]] {
                txn.delete(Table::Ids, &event.id.0).unwrap();
            }
            txn.commit().unwrap();
        }
        let store = Store::open(dir.path()).unwrap();
        assert!(!store.is_named(&events[1]));
        assert_eq!(store.pull_request(&events[1].id), None);
        assert_eq!(store.updates(&events[0].id), []);
    }
}
