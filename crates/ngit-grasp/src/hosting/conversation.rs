//! What is said about a repository, counted from the store: open issues and pull requests, and
//! when something was said last.

use grasp_core::event::{Event, Kind};
use grasp_core::{EventId, Facts, Filter, Pubkey, RepoId, Timestamp, nip34};
use grasp_store::{Budget, Found, Progress, Query, Store, StoreError, Want};
use rustc_hash::{FxHashMap, FxHashSet};

use super::budget::ReadBudget;

/// Issues, patches and pull requests that are looked at, the newest first. Small ones take 20 us each
/// to read; what larger ones take, the budget bounds.
const MOST_ROOTS: usize = 500;
/// Words on them that are looked at, of maintainers and of others.
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
    pub completeness: Completeness,
    pub last: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Completeness {
    #[default]
    Whole,
    /// There are more than were looked at.
    AtLeast,
    /// There are more words on them than were looked at: some may be closed.
    About,
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
        budget: &mut ReadBudget,
    ) -> Result<Self, StoreError> {
        let addresses = addresses(repo, maintainers);
        let naming = |kinds: Option<Vec<Kind>>| Filter {
            kinds,
            tags: vec![(b'a', addresses.clone())],
            ..Filter::default()
        };
        let mut last = None;
        let newest = |_: EventId, at| last = Some(at);
        look(store, naming(None), 1, now, budget, newest)?;
        let kinds = vec![nip34::PATCH, nip34::PULL_REQUEST, nip34::ISSUE];
        let mut found = Vec::new();
        let filter = naming(Some(kinds));
        let mut all = look(store, filter, MOST_ROOTS, now, budget, |id, _| {
            found.push(id);
        })?;
        let mut roots: FxHashMap<EventId, Root> = FxHashMap::default();
        all &= read(store, &found, budget, |id, event| {
            roots.extend(Root::of(event).map(|root| (id, root)));
        });
        let judged = judge(&mut roots, maintainers, store, now, budget)?;
        let open = |issues: bool| {
            let open = roots.values().filter(|root| root.open);
            open.filter(|root| root.is_issue == issues).count()
        };
        Ok(Self {
            issues: open(true),
            proposals: open(false),
            completeness: match (all, judged) {
                (_, false) => Completeness::About,
                (false, true) => Completeness::AtLeast,
                (true, true) => Completeness::Whole,
            },
            last,
        })
    }
}

/// Its own, and those of the repositories of its other maintainers: they are one project.
fn addresses(repo: &RepoId, maintainers: &[Pubkey]) -> Vec<String> {
    let others = maintainers.iter().filter(|key| **key != repo.owner);
    let owners = std::iter::once(&repo.owner).chain(others);
    let address = |owner: &Pubkey| format!("{}:{owner}:{}", Kind::ANNOUNCEMENT.0, repo.identifier);
    owners.map(address).collect()
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

/// The newest word on each root counts, if it is by somebody who may say so. Maintainers are asked
/// apart: nobody can bury what they said. False if there were too many words.
fn judge(
    roots: &mut FxHashMap<EventId, Root>,
    maintainers: &[Pubkey],
    store: &Store,
    now: Timestamp,
    budget: &mut ReadBudget,
) -> Result<bool, StoreError> {
    let mut authors: Vec<Pubkey> = roots.values().map(|root| root.author).collect();
    authors.retain(|author| !maintainers.contains(author));
    authors.sort_unstable();
    authors.dedup();
    let mut ids: Vec<String> = roots.keys().map(ToString::to_string).collect();
    ids.sort_unstable();
    let mut words = Vec::new();
    let mut all = true;
    for speakers in [maintainers.to_vec(), authors] {
        let filter = Filter {
            authors: Some(speakers),
            kinds: Some((OPEN.0..=DRAFT.0).map(Kind).collect()),
            tags: vec![(b'e', ids.clone())],
            ..Filter::default()
        };
        all &= look(store, filter, MOST_WORDS, now, budget, |id, at| {
            words.push((at, id))
        })?;
    }
    words.sort_unstable_by_key(|(at, id)| (std::cmp::Reverse(*at), *id));
    let words: Vec<EventId> = words.into_iter().map(|(_, id)| id).collect();
    let mut settled = FxHashSet::default();
    all &= read(store, &words, budget, |_, word| {
        let root = spoken_of(word).and_then(|id| Some((id, roots.get_mut(&id)?)));
        let Some((id, root)) = root else {
            return;
        };
        let may = root.author == word.pubkey || maintainers.contains(&word.pubkey);
        if may && settled.insert(id) {
            root.open = word.kind == OPEN;
        }
    });
    Ok(all)
}

/// In that order, as far as the budget goes. False if some were left out.
fn read(
    store: &Store,
    ids: &[EventId],
    budget: &mut ReadBudget,
    mut visit: impl FnMut(EventId, &Event),
) -> bool {
    for id in ids {
        if !budget.has_left() {
            return false;
        }
        if let Some(event) = store.event(id) {
            budget.spend(event.json().len());
            visit(*id, &event);
        }
    }
    true
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
    budget: &mut ReadBudget,
    mut visit: impl FnMut(EventId, Timestamp),
) -> Result<bool, StoreError> {
    let mut query = Query::new(vec![filter], most, Want::Ids);
    for _ in 0..MOST_SLICES {
        if !budget.has_left() {
            return Ok(false);
        }
        let seen = |found: Found<'_>| visit(found.id, found.created_at);
        match store.advance(&mut query, Budget::SLICE, now, seen)? {
            Progress::More => {}
            Progress::Done => return Ok(query.completeness() != grasp_store::Completeness::More),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

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

        fn told(&self, maintainers: &[Pubkey]) -> Conversation {
            self.told_within(maintainers, u64::MAX)
        }

        fn told_within(&self, maintainers: &[Pubkey], bytes: u64) -> Conversation {
            let now = Timestamp(self.now);
            let mut budget = ReadBudget::new(bytes, Instant::now() + Duration::from_secs(3_600));
            Conversation::of(&self.repo, maintainers, &self.store, now, &mut budget).unwrap()
        }

        fn count(&self) -> (usize, usize) {
            let told = self.told(&[self.owner.pubkey()]);
            assert_eq!(told.completeness, Completeness::Whole);
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

    /// Whoever opened one issue may speak of it as often as he likes.
    #[test]
    fn nobody_buries_what_a_maintainer_said() {
        let mut stage = Stage::new();
        let (owner, user, loud) = (stage.owner.clone(), Author::new(2), Author::new(3));
        let closed = stage.root(&user, 1621);
        stage.word(&owner, 1632, &closed);
        let own = stage.root(&loud, 1621);
        for _ in 0..=MOST_WORDS {
            stage.word(&loud, 1630, &own);
        }
        let told = stage.told(&[owner.pubkey()]);
        assert_eq!((told.issues, told.proposals), (1, 0));
        assert_eq!(told.completeness, Completeness::About);
    }

    #[test]
    fn what_is_sent_to_another_maintainer_is_of_the_same_project() {
        let mut stage = Stage::new();
        let (owner, second, user) = (stage.owner.clone(), Author::new(4), Author::new(2));
        let address = format!("30617:{}:a", second.pubkey());
        stage.say(&user, 1621, &[&["a", &address]]);
        assert_eq!(stage.count(), (0, 0));
        let told = stage.told(&[owner.pubkey(), second.pubkey()]);
        assert_eq!(told.issues, 1);
    }

    #[test]
    fn more_than_are_looked_at_are_told_as_such() {
        let mut stage = Stage::new();
        let user = Author::new(2);
        for _ in 0..=MOST_ROOTS {
            stage.root(&user, 1621);
        }
        let told = stage.told(&[stage.owner.pubkey()]);
        assert_eq!(told.issues, MOST_ROOTS);
        assert_eq!(told.completeness, Completeness::AtLeast);
    }

    /// A12: what is counted costs what the budget says, however large the events are.
    #[test]
    fn large_events_are_read_as_far_as_the_budget_goes() {
        let mut stage = Stage::new();
        let user = Author::new(2);
        let address = format!("30617:{}:a", stage.owner.pubkey());
        let padding = "x".repeat(10_000);
        for _ in 0..20 {
            stage.say(&user, 1621, &[&["a", &address], &["x", &padding]]);
        }
        let maintainers = [stage.owner.pubkey()];
        assert_eq!(stage.told_within(&maintainers, 1_000_000).issues, 20);
        let told = stage.told_within(&maintainers, 45_000);
        assert_eq!(told.issues, 5, "and not one more is parsed");
        assert_eq!(told.completeness, Completeness::About);
    }
}
