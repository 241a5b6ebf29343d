//! From the values in filters to the subscriptions that hold them. Each filter is filed under
//! one of its lists, the most selective; a look-up gathers candidates by the event's own values
//! and asks each candidate filter.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};

use grasp_core::{Event, Filter, Kind};
use rustc_hash::{FxBuildHasher, FxHashSet};

/// A subscription's place in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubRef(usize);

#[derive(Debug)]
struct Sub<T> {
    owner: T,
    filters: Vec<Filter>,
    /// The last look-up that found this subscription, so that it is found once.
    found_in: u64,
}

/// One filter of one subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Entry {
    place: SubRef,
    filter: usize,
}

/// Sets, so that a subscription leaves as fast as it came.
type Shelf<K> = HashMap<K, FxHashSet<Entry>, FxBuildHasher>;

#[derive(Debug)]
pub struct Index<T> {
    subs: Vec<Option<Sub<T>>>,
    free: Vec<usize>,
    /// Ids, authors and tag values by a keyed hash: strangers choose them, and must not choose
    /// where they collide. A collision costs one more filter to ask.
    by_value: Shelf<u64>,
    by_kind: Shelf<Kind>,
    by_nothing: FxHashSet<Entry>,
    hasher: RandomState,
    look_ups: u64,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self {
            subs: Vec::new(),
            free: Vec::new(),
            by_value: Shelf::default(),
            by_kind: Shelf::default(),
            by_nothing: FxHashSet::default(),
            hasher: RandomState::new(),
            look_ups: 0,
        }
    }
}

/// Where a filter is filed.
enum Filed {
    Values(Vec<u64>),
    Kinds(Vec<Kind>),
    Nothing,
}

const IDS: u8 = 0;
const AUTHORS: u8 = 1;

impl<T> Index<T> {
    pub fn insert(&mut self, owner: T, filters: Vec<Filter>) -> SubRef {
        let place = SubRef(self.free.pop().unwrap_or(self.subs.len()));
        for (n, filter) in filters.iter().enumerate() {
            let entry = Entry { place, filter: n };
            match self.filed(filter) {
                Filed::Values(hashes) => file(&mut self.by_value, hashes, entry),
                Filed::Kinds(kinds) => file(&mut self.by_kind, kinds, entry),
                Filed::Nothing => {
                    self.by_nothing.insert(entry);
                }
            }
        }
        let sub = Some(Sub {
            owner,
            filters,
            found_in: 0,
        });
        match self.subs.get_mut(place.0) {
            Some(slot) => *slot = sub,
            None => self.subs.push(sub),
        }
        place
    }

    pub fn remove(&mut self, place: SubRef) {
        let Some(gone) = self.subs.get_mut(place.0).and_then(Option::take) else {
            return;
        };
        for (n, filter) in gone.filters.iter().enumerate() {
            let entry = Entry { place, filter: n };
            match self.filed(filter) {
                Filed::Values(hashes) => take_out(&mut self.by_value, &hashes, entry),
                Filed::Kinds(kinds) => take_out(&mut self.by_kind, &kinds, entry),
                Filed::Nothing => {
                    self.by_nothing.remove(&entry);
                }
            }
        }
        self.free.push(place.0);
    }

    /// The owners of the subscriptions that want this event, each once.
    pub fn matches(&mut self, event: &Event) -> Vec<&T> {
        self.look_ups += 1;
        let hashes = [
            self.hash(IDS, event.id.0),
            self.hash(AUTHORS, event.pubkey.0),
        ];
        let tags = event
            .indexed_tags()
            .map(|(letter, value)| self.hash(letter, value));
        let hashes: Vec<u64> = hashes.into_iter().chain(tags).collect();
        let by_value = hashes.iter().filter_map(|hash| self.by_value.get(hash));
        let by_kind = self.by_kind.get(&event.kind);

        let mut found = Vec::new();
        for entry in by_value.chain(by_kind).chain([&self.by_nothing]).flatten() {
            let Some(Some(sub)) = self.subs.get_mut(entry.place.0) else {
                continue;
            };
            let filter = sub.filters.get(entry.filter);
            if sub.found_in != self.look_ups && filter.is_some_and(|filter| filter.matches(event)) {
                sub.found_in = self.look_ups;
                found.push(entry.place);
            }
        }
        let owner = |place: SubRef| Some(&self.subs.get(place.0)?.as_ref()?.owner);
        found.into_iter().filter_map(owner).collect()
    }

    fn filed(&self, filter: &Filter) -> Filed {
        if filter.is_void() {
            return Filed::Values(Vec::new());
        }
        if let Some(ids) = &filter.ids {
            return Filed::Values(ids.iter().map(|id| self.hash(IDS, id.0)).collect());
        }
        let shortest = filter.tags.iter().min_by_key(|(_, values)| values.len());
        if let Some((letter, values)) = shortest {
            let hash = |value: &String| self.hash(*letter, value.as_str());
            return Filed::Values(values.iter().map(hash).collect());
        }
        match (&filter.authors, &filter.kinds) {
            (Some(authors), _) => Filed::Values(
                authors
                    .iter()
                    .map(|key| self.hash(AUTHORS, key.0))
                    .collect(),
            ),
            (None, Some(kinds)) => Filed::Kinds(kinds.clone()),
            (None, None) => Filed::Nothing,
        }
    }

    /// Tag letters are their own shelf numbers; ids and authors use numbers that are no letters.
    fn hash(&self, shelf: u8, value: impl Hash) -> u64 {
        self.hasher.hash_one((shelf, value))
    }
}

fn file<K: Hash + Eq>(shelf: &mut Shelf<K>, keys: Vec<K>, entry: Entry) {
    for key in keys {
        shelf.entry(key).or_default().insert(entry);
    }
}

fn take_out<K: Hash + Eq>(shelf: &mut Shelf<K>, keys: &[K], entry: Entry) {
    for key in keys {
        if let Some(entries) = shelf.get_mut(key) {
            entries.remove(&entry);
            if entries.is_empty() {
                shelf.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(json: &[&str]) -> Vec<Filter> {
        json.iter()
            .map(|json| Filter::parse(json).unwrap())
            .collect()
    }

    fn event(kind: u16, tags: &[&[&str]]) -> Event {
        let author = testkit::Author::new(1);
        author.event(kind, 100, tags, "")
    }

    #[test]
    fn a_subscription_is_found_once_whatever_matches() {
        let mut index = Index::default();
        index.insert(
            "a",
            filters(&[r#"{"kinds":[1]}"#, "{}", r##"{"#t":["x","y"]}"##]),
        );
        index.insert("b", filters(&[r##"{"#t":["z"]}"##]));
        let event = event(1, &[&["t", "x"], &["t", "y"]]);
        assert_eq!(index.matches(&event), [&"a"]);
        assert_eq!(index.matches(&event), [&"a"]);
    }

    #[test]
    fn nothing_is_left_of_a_removed_subscription() {
        let mut index = Index::default();
        let sub = index.insert(
            "a",
            filters(&[r#"{"kinds":[1]}"#, "{}", r##"{"#t":["x"]}"##]),
        );
        index.remove(sub);
        index.remove(sub);
        assert!(index.matches(&event(1, &[&["t", "x"]])).is_empty());
        assert!(
            index.by_value.is_empty() && index.by_kind.is_empty() && index.by_nothing.is_empty()
        );
        index.insert("b", filters(&["{}"]));
        assert_eq!(index.matches(&event(1, &[])), [&"b"]);
        assert_eq!(index.subs.len(), 1, "places are used again");
    }
}
