//! What is compared when an event goes out, hashed once each: the values of a filter when it is
//! filed, those of an event when it is announced. A comparison takes as long as the shorter of the
//! two lists, whatever a stranger put into the other.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash};

use grasp_core::{Event, Filter};

const IDS: u8 = 0;
const AUTHORS: u8 = 1;
const KINDS: u8 = 2;
const EVERYTHING: u8 = 3;

/// Hashes values by a key of this process: strangers choose them, and must not choose where they
/// collide. Tag letters stand for themselves; the other lists have numbers that are no letters.
#[derive(Debug, Clone, Default)]
pub struct Keyed(RandomState);

impl Keyed {
    fn key(&self, list: u8, value: impl Hash) -> u64 {
        self.0.hash_one((list, value))
    }

    fn keys<V: Hash>(&self, list: u8, values: &[V]) -> Box<[u64]> {
        values.iter().map(|value| self.key(list, value)).collect()
    }

    pub fn prepare(&self, filter: Filter) -> Prepared {
        let mut lists = Vec::new();
        if filter.is_void() {
            return Prepared { filter, lists };
        }
        let ids = filter.ids.as_deref();
        lists.extend(ids.map(|ids| (Of::Other, self.keys(IDS, ids))));
        for (n, (letter, values)) in filter.tags.iter().enumerate() {
            let keys = values.iter().map(|value| self.key(*letter, value.as_str()));
            lists.push((Of::Tag(n), keys.collect()));
        }
        lists.sort_by_key(|(of, keys)| (matches!(of, Of::Tag(_)), keys.len()));
        let authors = filter.authors.as_deref();
        lists.extend(authors.map(|authors| (Of::Other, self.keys(AUTHORS, authors))));
        let kinds = filter.kinds.as_deref();
        lists.extend(kinds.map(|kinds| (Of::Other, self.keys(KINDS, kinds))));
        if lists.is_empty() {
            lists.push((Of::Other, Box::new([self.key(EVERYTHING, ())])));
        }
        Prepared { filter, lists }
    }

    pub fn probe<'e>(&self, event: &'e Event) -> Probe<'e> {
        let mut letters: Vec<(u8, &str)> = event.indexed_tags().collect();
        letters.sort_unstable();
        letters.dedup();
        let tagged = letters.iter();
        let mut tags: Vec<Tagged<'_>> = tagged
            .map(|(letter, value)| (self.key(*letter, *value), *letter, *value))
            .collect();
        tags.sort_unstable();
        let others = [
            self.key(IDS, event.id),
            self.key(AUTHORS, event.pubkey),
            self.key(KINDS, event.kind),
            self.key(EVERYTHING, ()),
        ];
        Probe {
            event,
            others,
            tags,
            letters,
        }
    }
}

/// Whose values they are.
#[derive(Debug, Clone, Copy)]
enum Of {
    /// A place in the filter's list of tags.
    Tag(usize),
    Other,
}

/// A filter with the keys of its lists, those first that few events are likely to meet.
#[derive(Debug)]
pub struct Prepared {
    filter: Filter,
    lists: Vec<(Of, Box<[u64]>)>,
}

impl Prepared {
    /// The lists under any of which the filter may be filed: an event that matches it has one of
    /// the keys of each. A filter that no event matches has none.
    pub fn lists(&self) -> impl Iterator<Item = &[u64]> {
        self.lists.iter().map(|(_, keys)| &**keys)
    }

    pub fn matches(&self, probe: &Probe<'_>) -> bool {
        self.filter.matches_apart_from_tags(probe.event)
            && self.lists.iter().all(|(of, keys)| match of {
                Of::Tag(n) => {
                    let tags = self.filter.tags.get(*n);
                    tags.is_some_and(|(letter, values)| probe.has_any(*letter, values, keys))
                }
                Of::Other => true,
            })
    }
}

type Tagged<'e> = (u64, u8, &'e str);

/// An event with the keys of all its values.
#[derive(Debug)]
pub struct Probe<'e> {
    event: &'e Event,
    others: [u64; 4],
    /// In the order of their keys.
    tags: Vec<Tagged<'e>>,
    /// In the order of letters and values.
    letters: Vec<(u8, &'e str)>,
}

impl Probe<'_> {
    pub fn keys(&self) -> impl Iterator<Item = u64> {
        let tags = self.tags.iter().map(|(key, ..)| *key);
        self.others.into_iter().chain(tags)
    }

    fn has_any(&self, letter: u8, values: &[String], keys: &[u64]) -> bool {
        let from = self.letters.partition_point(|(found, _)| *found < letter);
        let to = self.letters.partition_point(|(found, _)| *found <= letter);
        let own = self.letters.get(from..to).unwrap_or_default();
        if own.len() < values.len() / 16 {
            let wanted = |own: &str| values.binary_search_by(|value| value.as_str().cmp(own));
            return own.iter().any(|(_, own)| wanted(own).is_ok());
        }
        !own.is_empty()
            && (keys.iter().zip(values)).any(|(key, value)| self.has(*key, letter, value))
    }

    fn has(&self, key: u64, letter: u8, value: &str) -> bool {
        let from = self.tags.partition_point(|(found, ..)| *found < key);
        let same = self.tags.get(from..).unwrap_or_default().iter();
        same.take_while(|(found, ..)| *found == key)
            .any(|(_, l, v)| *l == letter && *v == value)
    }
}
