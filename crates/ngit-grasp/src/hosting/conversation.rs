//! What is said about a repository, counted from the store: open issues and pull requests, and
//! when something was said last.

use grasp_core::event::{Event, Kind};
use grasp_core::{EventId, Facts, Filter, Pubkey, RepoId, Timestamp, nip34};
use grasp_store::{Budget, Completeness, Found, Progress, Query, Store, StoreError, Want};
use rustc_hash::{FxHashMap, FxHashSet};

/// Issues, patches and pull requests that are looked at, the newest first: 20 us each to read.
const MOST_ROOTS: usize = 500;
/// Words on them that are looked at: 20 ms in all.
const MOST_WORDS: usize = 1_000;
/// Slices of a millisecond for one question; comments name the repository, too.
const MOST_SLICES: usize = 50;

const OPEN: Kind = Kind(1630);
const DRAFT: Kind = Kind(1633);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conversation {
    pub issues: usize,
    /// Patches that begin a series, and pull requests.
    pub proposals: usize,
    /// There are more than were looked at.
    pub at_least: bool,
    pub last: Option<Timestamp>,
}

struct Root {
    author: Pubkey,
    is_issue: bool,
    open: bool,
}

impl Conversation {
    /// Open is what neither its author nor a maintainer has closed, merged or made a draft.
    pub fn of(
        repo: &RepoId,
        maintainers: &[Pubkey],
        store: &Store,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let address = repo.address(Kind::ANNOUNCEMENT);
        let address = format!("{}:{}:{}", address.kind, address.pubkey, address.d);
        let naming = |kinds: Option<Vec<Kind>>| Filter {
            kinds,
            tags: vec![(b'a', vec![address.clone()])],
            ..Filter::default()
        };
        let mut last = None;
        let newest = |_: EventId, at| last = Some(at);
        look(store, naming(None), 1, now, newest)?;
        let kinds = vec![nip34::PATCH, nip34::PULL_REQUEST, nip34::ISSUE];
        let mut found = Vec::new();
        let all = look(store, naming(Some(kinds)), MOST_ROOTS, now, |id, _| {
            found.push(id);
        })?;
        let mut roots: FxHashMap<EventId, Root> = found
            .iter()
            .filter_map(|id| Some((*id, Root::of(&*store.event(id)?)?)))
            .collect();
        let judged = judge(&mut roots, maintainers, store, now)?;
        let open = |issues: bool| {
            let open = roots.values().filter(|root| root.open);
            open.filter(|root| root.is_issue == issues).count()
        };
        Ok(Self {
            issues: open(true),
            proposals: open(false),
            at_least: !(all && judged),
            last,
        })
    }
}

impl Root {
    /// `None` for a patch that goes on with a series.
    fn of(event: &Event) -> Option<Self> {
        let begins = event.tag("e").is_none() || event.tag_values("t").any(|topic| topic == "root");
        let counts = event.kind != nip34::PATCH || begins;
        counts.then(|| Self {
            author: event.pubkey,
            is_issue: event.kind == nip34::ISSUE,
            open: true,
        })
    }
}

/// The newest word on each root counts, if it is by somebody who may say so.
fn judge(
    roots: &mut FxHashMap<EventId, Root>,
    maintainers: &[Pubkey],
    store: &Store,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let mut authors: Vec<Pubkey> = roots.values().map(|root| root.author).collect();
    authors.extend(maintainers);
    authors.sort_unstable();
    authors.dedup();
    let mut ids: Vec<String> = roots.keys().map(ToString::to_string).collect();
    ids.sort_unstable();
    let filter = Filter {
        authors: Some(authors),
        kinds: Some((OPEN.0..=DRAFT.0).map(Kind).collect()),
        tags: vec![(b'e', ids)],
        ..Filter::default()
    };
    let mut words = Vec::new();
    let all = look(store, filter, MOST_WORDS, now, |id, _| words.push(id))?;
    let mut settled = FxHashSet::default();
    for word in words.iter().filter_map(|id| store.event(id)) {
        let Some(id) = spoken_of(&word) else {
            continue;
        };
        let Some(root) = roots.get_mut(&id) else {
            continue;
        };
        let may = root.author == word.pubkey || maintainers.contains(&word.pubkey);
        if may && settled.insert(id) {
            root.open = word.kind == OPEN;
        }
    }
    Ok(all)
}

/// The tag that is marked as the root; without a mark the first.
fn spoken_of(word: &Event) -> Option<EventId> {
    let marked = word.tags.iter().find_map(|tag| match tag.as_slice() {
        [name, id, _, mark, ..] if name == "e" && mark == "root" => Some(id.as_str()),
        _ => None,
    });
    EventId::from_hex(marked.or_else(|| word.tag("e"))?).ok()
}

/// Newest first. False if there may be more than were seen.
fn look(
    store: &Store,
    filter: Filter,
    most: usize,
    now: Timestamp,
    mut visit: impl FnMut(EventId, Timestamp),
) -> Result<bool, StoreError> {
    let mut query = Query::new(vec![filter], most, Want::Ids);
    for _ in 0..MOST_SLICES {
        let seen = |found: Found<'_>| visit(found.id, found.created_at);
        match store.advance(&mut query, Budget::SLICE, now, seen)? {
            Progress::More => {}
            Progress::Done => return Ok(query.completeness() != Completeness::More),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use grasp_core::Identifier;
    use testkit::Author;

    use super::*;

    struct Stage {
        store: Store,
        owner: Author,
        repo: RepoId,
        now: u64,
    }

    impl Stage {
        fn new() -> Self {
            let owner = Author::new(1);
            let identifier = Identifier::parse("a").unwrap();
            let repo = RepoId::new(owner.pubkey(), identifier);
            Self {
                store: Store::in_memory(),
                owner,
                repo,
                now: 1_000,
            }
        }

        fn say(&mut self, by: &Author, kind: u16, tags: &[&[&str]]) -> String {
            self.now += 1;
            let event = by.event(kind, self.now, tags, "");
            self.store.apply([&event]).unwrap();
            event.id.to_string()
        }

        fn root(&mut self, by: &Author, kind: u16) -> String {
            let address = format!("30617:{}:a", self.owner.pubkey());
            self.say(by, kind, &[&["a", &address]])
        }

        fn word(&mut self, by: &Author, kind: u16, root: &str) {
            self.say(by, kind, &[&["e", root, "", "root"]]);
        }

        fn count(&self) -> (usize, usize) {
            let maintainers = [self.owner.pubkey()];
            let now = Timestamp(self.now);
            let told = Conversation::of(&self.repo, &maintainers, &self.store, now).unwrap();
            assert!(!told.at_least);
            (told.issues, told.proposals)
        }
    }

    #[test]
    fn what_was_closed_merged_or_made_a_draft_is_not_open() {
        let mut stage = Stage::new();
        let (owner, user) = (stage.owner.clone(), Author::new(2));
        assert_eq!(stage.count(), (0, 0));
        let issue = stage.root(&user, 1621);
        let request = stage.root(&user, 1618);
        let patch = stage.root(&user, 1617);
        assert_eq!(stage.count(), (1, 2));
        stage.word(&owner, 1632, &issue);
        stage.word(&owner, 1631, &request);
        stage.word(&user, 1633, &patch);
        assert_eq!(stage.count(), (0, 0));
        stage.word(&user, 1630, &issue);
        assert_eq!(stage.count(), (1, 0), "the newest word counts");
    }

    #[test]
    fn nobody_else_can_close_it() {
        let mut stage = Stage::new();
        let (user, stranger) = (Author::new(2), Author::new(3));
        let issue = stage.root(&user, 1621);
        // An author of another root is asked for, and has no say here.
        let other = stage.root(&stranger, 1621);
        stage.word(&stranger, 1632, &issue);
        assert_eq!(stage.count(), (2, 0));
        let mention: &[&[&str]] = &[&["e", &issue, "", "mention"], &["e", &other, "", "root"]];
        stage.say(&stranger, 1632, mention);
        assert_eq!(stage.count(), (1, 0));
    }

    #[test]
    fn a_series_of_patches_counts_once() {
        let mut stage = Stage::new();
        let user = Author::new(2);
        let address = format!("30617:{}:a", stage.owner.pubkey());
        let first = stage.root(&user, 1617);
        stage.say(
            &user,
            1617,
            &[&["a", &address], &["e", &first, "", "reply"]],
        );
        assert_eq!(stage.count(), (0, 1));
    }
}
