//! Seeded events and filters from a small world: few authors, kinds, seconds and tag values, so
//! that ties, replacements, deletions and matches are common instead of rare.

use fastrand::Rng;
use grasp_core::{Event, EventId, Pubkey};
use serde_json::{Map, Value, json};

use crate::author::{Author, unsigned_tags};

/// All random times are in `EPOCH..EPOCH + SPAN`.
pub const EPOCH: u64 = 1_700_000_000;
pub const SPAN: u64 = 12;

const AUTHORS: u64 = 3;
/// Repeated kinds are likelier.
const KINDS: [u16; 24] = [
    0, 1, 1, 1, 5, 5, 5, 5, 1059, 1059, 1111, 1111, 1617, 1618, 1621, 1621, 10317, 10317, 30617,
    30617, 30617, 30618, 30618, 30618,
];
const IDENTIFIERS: [&str; 4] = ["a", "b", "a:b", ""];
const TOPICS: [&str; 4] = ["x", "y", "X", ""];
const LETTERS: [&str; 11] = ["a", "A", "e", "E", "q", "d", "p", "P", "t", "T", "t"];
const LIMITS: [usize; 8] = [0, 1, 1, 2, 3, 5, 10, 1_000];

/// An endless supply of events for a store: no ephemeral kinds, zero signatures unless
/// [`Events::signed`].
#[derive(Debug)]
pub struct Events {
    rng: Rng,
    authors: Vec<Author>,
    signed: bool,
    /// What was given out.
    made: Vec<Event>,
    /// What exists but was not given out yet: targets for deletions that come first.
    held: Vec<Event>,
    serial: u32,
}

impl Events {
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            authors: (0..AUTHORS).map(Author::new).collect(),
            signed: false,
            made: Vec::new(),
            held: Vec::new(),
            serial: 0,
        }
    }

    /// For servers, which check signatures.
    pub fn signed(mut self) -> Self {
        self.signed = true;
        self
    }

    /// A time at which some expirations are past and others are not.
    pub fn moment(&mut self) -> u64 {
        EPOCH + self.rng.u64(0..SPAN + 4)
    }

    /// The dice, for choices of the test itself.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    pub fn some_filters(&mut self, count: usize) -> Vec<Value> {
        (0..count).map(|_| self.some_filter()).collect()
    }

    /// A filter as a client would send it. Few fields, so that it often matches.
    pub fn some_filter(&mut self) -> Value {
        let mut fields = Map::new();
        if self.one_in(8) {
            let ids = self.list(4, Self::any_id);
            fields.insert("ids".to_owned(), ids);
        }
        if self.one_in(3) {
            let authors = self.list(3, Self::any_pubkey);
            fields.insert("authors".to_owned(), authors);
        }
        if self.one_in(3) {
            let kinds = self.list(4, |world| world.pick(&KINDS));
            fields.insert("kinds".to_owned(), kinds);
        }
        self.add_tag_fields(&mut fields);
        if self.one_in(5) {
            fields.insert("since".to_owned(), json!(self.moment()));
        }
        if self.one_in(5) {
            fields.insert("until".to_owned(), json!(self.moment()));
        }
        if self.one_in(3) {
            fields.insert("limit".to_owned(), json!(self.pick(&LIMITS)));
        }
        Value::Object(fields)
    }

    fn add_tag_fields(&mut self, fields: &mut Map<String, Value>) {
        let count = self.pick(&[0, 0, 1, 1, 1, 2, 3]);
        for _ in 0..count {
            let letter = self.pick(&LETTERS);
            let values = match self.one_in(30) {
                true => self.wide_list(letter),
                false => self.list(3, |world| world.filter_value(letter)),
            };
            fields.insert(format!("#{letter}"), values);
        }
    }

    /// Mostly one to `max` values, now and then none.
    fn list<T: Into<Value>>(&mut self, max: usize, mut value: impl FnMut(&mut Self) -> T) -> Value {
        let count = match self.one_in(40) {
            true => 0,
            false => self.rng.usize(1..=max),
        };
        (0..count).map(|_| value(self).into()).collect()
    }

    /// A hundred values that nobody uses around one that somebody may.
    fn wide_list(&mut self, letter: &str) -> Value {
        let mut values: Vec<String> = (0..100).map(|_| self.unknown_id()).collect();
        values.push(self.filter_value(letter));
        values.into()
    }

    /// Filters on `e` and `p` must be hex; a relay refuses others.
    fn filter_value(&mut self, letter: &str) -> String {
        match letter {
            "e" => self.any_id(),
            "p" => self.any_pubkey(),
            _ => self.tag_value(letter),
        }
    }

    fn fresh(&mut self) -> Event {
        let author = self.rng.usize(0..self.authors.len());
        let kind = match self.one_in(60) {
            true => 62,
            false => self.pick(&KINDS),
        };
        let pubkey = self.authors[author].pubkey();
        let mut tags = self.own_tags(kind, pubkey);
        for _ in 0..self.rng.usize(0..4) {
            tags.push(self.any_tag());
        }
        if self.one_in(8) {
            tags.push(self.expiration());
        }
        self.rng.shuffle(&mut tags);
        self.serial += 1;
        let created_at = EPOCH + self.rng.u64(0..SPAN);
        let content = format!("event {}", self.serial);
        match self.signed {
            true => self.authors[author].event_tags(kind, created_at, tags, &content),
            false => unsigned_tags(pubkey, kind, created_at, tags, &content),
        }
    }

    /// The tags that give the kind its meaning.
    fn own_tags(&mut self, kind: u16, pubkey: Pubkey) -> Vec<Vec<String>> {
        match kind {
            5 => {
                let count = self.rng.usize(1..4);
                (0..count).map(|_| self.target(pubkey)).collect()
            }
            62 => vec![tag(&["relay", "ALL_RELAYS"])],
            1059 => vec![tag(&["p", &self.any_pubkey()])],
            30_000..=39_999 if !self.one_in(6) => vec![tag(&["d", self.pick(&IDENTIFIERS)])],
            _ => Vec::new(),
        }
    }

    /// What a deletion names: mostly the author's own, present, coming or never seen.
    fn target(&mut self, author: Pubkey) -> Vec<String> {
        if self.one_in(3) {
            return tag(&["a", &self.target_address(author)]);
        }
        let known: Vec<&Event> = self.made.iter().chain(&self.held).collect();
        let own: Vec<&Event> = known
            .iter()
            .filter(|event| event.pubkey == author)
            .copied()
            .collect();
        let among = if self.rng.u8(0..4) > 0 { own } else { known };
        let id = self.rng.choice(among).map(|event| event.id.to_string());
        tag(&["e", &id.unwrap_or_else(|| self.unknown_id())])
    }

    fn target_address(&mut self, author: Pubkey) -> String {
        let pubkey = match self.one_in(4) {
            true => self.any_pubkey(),
            false => author.to_string(),
        };
        let (kind, d) = match self.rng.u8(0..12) {
            0 => ("+30617", "a"),
            1 => ("030618", "b"),
            2 => ("10317", "a"),
            3 => ("1", ""),
            4 => ("0", ""),
            5 | 6 => ("10317", ""),
            7..=9 => ("30617", self.pick(&IDENTIFIERS)),
            _ => ("30618", self.pick(&IDENTIFIERS)),
        };
        format!("{kind}:{pubkey}:{d}")
    }

    fn any_tag(&mut self) -> Vec<String> {
        let letter = self.pick(&LETTERS);
        match self.rng.u8(0..24) {
            0 => Vec::new(),
            1 => tag(&[letter]),
            2 => tag(&["topic", "x"]),
            3 => tag(&["1", "x"]),
            4 => tag(&["", "x"]),
            5 => tag(&[letter, "other", &self.tag_value(letter)]),
            _ => tag(&[letter, &self.tag_value(letter)]),
        }
    }

    fn tag_value(&mut self, letter: &str) -> String {
        match letter {
            "a" | "A" => self.any_address(),
            "e" | "E" => self.any_id(),
            "q" if self.one_in(2) => self.any_id(),
            "q" => self.any_address(),
            "d" => self.pick(&IDENTIFIERS).to_owned(),
            "p" | "P" => self.any_pubkey(),
            _ => self.pick(&TOPICS).to_owned(),
        }
    }

    fn expiration(&mut self) -> Vec<String> {
        match self.rng.u8(0..8) {
            0 => tag(&["expiration"]),
            1 => tag(&["expiration", "soon"]),
            _ => tag(&["expiration", &self.moment().to_string()]),
        }
    }

    fn any_address(&mut self) -> String {
        let d = self.pick(&["a", "b"]);
        format!("30617:{}:{d}", self.any_pubkey())
    }

    fn any_pubkey(&mut self) -> String {
        match self.one_in(20) {
            true => self.unknown_id(),
            false => {
                let author = self.rng.usize(0..self.authors.len());
                self.authors[author].pubkey().to_string()
            }
        }
    }

    /// The first events are talked about most.
    fn any_id(&mut self) -> String {
        let popular = self.made.len().min(6);
        let known = match self.one_in(3) {
            true => self.rng.choice(&self.made),
            false => self.rng.choice(&self.made[..popular]),
        };
        let id = known.map(|event| event.id.to_string());
        id.unwrap_or_else(|| self.unknown_id())
    }

    fn unknown_id(&mut self) -> String {
        let mut bytes = [0; 32];
        self.rng.fill(&mut bytes);
        EventId(bytes).to_string()
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(0..from.len())]
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n) == 0
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if !self.made.is_empty() && self.one_in(12) {
            return self.rng.choice(&self.made).cloned();
        }
        if self.one_in(8) {
            let later = self.fresh();
            self.held.push(later);
        }
        let event = match self.held.is_empty() || !self.one_in(8) {
            true => self.fresh(),
            false => {
                let index = self.rng.usize(0..self.held.len());
                self.held.swap_remove(index)
            }
        };
        self.made.push(event.clone());
        Some(event)
    }
}

fn tag(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::{Model, Verdict};

    #[test]
    fn a_seed_gives_the_same_world_again() {
        let run = |seed| {
            let mut events = Events::new(seed);
            let some: Vec<Event> = events.by_ref().take(50).collect();
            (some, events.some_filters(20))
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }

    #[test]
    fn every_rule_has_its_cases() {
        let mut seen = Vec::new();
        for seed in 0..20 {
            let mut model = Model::new();
            for event in Events::new(seed).take(100) {
                let event = serde_json::from_str(event.json()).unwrap();
                seen.push(model.submit(&event));
            }
        }
        for (verdict, at_least) in [
            (Verdict::Stored, 500),
            (Verdict::Duplicate, 50),
            (Verdict::Replaced, 50),
            (Verdict::Deleted, 50),
            (Verdict::Vanished, 50),
        ] {
            let count = seen.iter().filter(|found| **found == verdict).count();
            assert!(count >= at_least, "{verdict:?}: {count}");
        }
    }

    #[test]
    fn half_of_the_filters_find_something() {
        let mut found = 0;
        for seed in 0..20 {
            let mut events = Events::new(seed);
            let mut model = Model::new();
            for event in events.by_ref().take(100) {
                model.submit(&serde_json::from_str(event.json()).unwrap());
            }
            for filter in events.some_filters(50) {
                found += usize::from(!model.query(&filter, EPOCH, 500).is_empty());
            }
        }
        assert!((300..900).contains(&found), "{found} of 1000");
    }
}
