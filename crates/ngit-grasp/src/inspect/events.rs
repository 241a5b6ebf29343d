//! Are stored events still what their authors signed? A record has no other checksum.

use std::fmt;

use grasp_core::event::{EventError, Kind, Unverified};
use grasp_core::{EventId, Pubkey};
use grasp_store::{Store, Stored};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::ingest::signature;
use crate::status::verdict::plural;
use crate::transfer::{TransferError, bar};

/// What was looked at, and what of it does not hold.
#[derive(Debug, Default)]
pub struct Verified {
    pub events: usize,
    pub damaged: Vec<Damaged>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damaged {
    pub id: String,
    pub kind: u16,
    pub problem: String,
    /// Whoever asks the store for it fails.
    #[serde(skip)]
    unreadable: bool,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id, kind, problem, ..
        } = self;
        write!(f, "event {id} of kind {kind}: {problem}")
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = plural(self.events, "event", "events");
        write!(f, "{events} verified, {} damaged", self.damaged.len())
    }
}

impl Verified {
    /// Every event of the store, also those that wait for their git data. `tell` hears of each that
    /// does not hold when it is found.
    pub fn of(store: &Store, tell: impl Fn(&ProgressBar, &Damaged)) -> Result<Self, TransferError> {
        let bar = bar(store.stats()?.events, "{bar:30} {pos}/{len} events {eta}");
        let mut verified = Self::default();
        store.each_stored(|stored| {
            verified.add(judge(&stored), &bar, &tell);
        })?;
        store.each_held(|event, _| {
            let found = prove(event.json(), &event.id, event.kind, &event.pubkey).err();
            verified.add(found, &bar, &tell);
        })?;
        bar.finish_and_clear();
        Ok(verified)
    }

    /// The store cannot be asked for everything: whoever tried would fail in the middle.
    pub fn is_readable(&self) -> bool {
        !self.damaged.iter().any(|damaged| damaged.unreadable)
    }

    fn add(
        &mut self,
        found: Option<Damaged>,
        bar: &ProgressBar,
        tell: &impl Fn(&ProgressBar, &Damaged),
    ) {
        self.events += 1;
        bar.inc(1);
        if let Some(damaged) = found {
            tell(bar, &damaged);
            self.damaged.push(damaged);
        }
    }
}

fn judge(stored: &Stored<'_>) -> Option<Damaged> {
    let Some(record) = stored.record else {
        let problem = "its record is missing or no text".to_owned();
        return Some(damaged(&stored.id, stored.kind, problem, true));
    };
    let proven = prove(record.json, &stored.id, stored.kind, &record.author);
    let fits = record.kind == stored.kind;
    proven.err().or_else(|| {
        let problem = || "its record has the header of another kind".to_owned();
        (!fits).then(|| damaged(&stored.id, stored.kind, problem(), false))
    })
}

/// The text is an event of that id, kind and author, and signed by the author.
fn prove(json: &str, id: &EventId, kind: Kind, author: &Pubkey) -> Result<(), Damaged> {
    let unreadable = |error: EventError| damaged(id, kind, error.to_string(), true);
    let wrong = |problem: &str| Err(damaged(id, kind, problem.to_owned(), false));
    let event = Unverified::from_stored(json).map_err(unreadable)?;
    let claim = event.claim();
    if claim.id != *id {
        return wrong("its record says another id");
    }
    if claim.kind != kind || claim.pubkey != *author {
        return wrong("its record says another kind or author than the index");
    }
    match event.verify(signature::is_valid) {
        Ok(_) => Ok(()),
        Err(EventError::WrongId) => wrong("its id is not the hash of what it says"),
        Err(EventError::WrongSignature) => wrong("its signature is not that of its author"),
        Err(other) => Err(unreadable(other)),
    }
}

fn damaged(id: &EventId, kind: Kind, problem: String, unreadable: bool) -> Damaged {
    Damaged {
        id: id.to_string(),
        kind: kind.0,
        problem,
        unreadable,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use grasp_core::Event;
    use testkit::Author;

    use super::*;

    /// Writes into the closed store what a failing disk might.
    fn flip(dir: &Path, from: &str, to: &str) {
        assert_eq!(from.len(), to.len());
        let path = dir.join("data.mdb");
        let mut data = fs::read(&path).unwrap();
        let places: Vec<usize> = (0..data.len() - from.len())
            .filter(|at| data[*at..].starts_with(from.as_bytes()))
            .collect();
        assert!(!places.is_empty(), "{from} is not there");
        for at in places {
            data[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
        fs::write(path, data).unwrap();
    }

    fn store_with(events: &[Event]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        store.apply(events).unwrap();
        dir
    }

    fn verify(dir: &Path) -> Verified {
        let store = Store::open_read_only(dir).unwrap();
        Verified::of(&store, |_, _| {}).unwrap()
    }

    #[test]
    fn what_a_disk_has_changed_is_named() {
        let author = Author::new(1);
        let event = |n: u64| author.event(1, n, &[&["t", "x"]], &format!("content {n}."));
        let events: Vec<Event> = (10..600).map(event).collect();
        let dir = store_with(&events);
        let well = verify(dir.path());
        assert_eq!((well.events, well.damaged.len()), (590, 0));

        flip(dir.path(), "content 17.", "content 71.");
        let sig = events[20].sig.to_string();
        let other = events[21].sig.to_string();
        flip(dir.path(), &sig, &other);
        flip(dir.path(), "\"content 99.\"", "\"content 99.,");
        let found = verify(dir.path());
        let named: Vec<(&str, &str)> = found
            .damaged
            .iter()
            .map(|damaged| (&*damaged.id, &*damaged.problem))
            .collect();
        let ids = [&events[89], &events[20], &events[7]].map(|event| event.id.to_string());
        assert_eq!(named.len(), 3, "{named:?}");
        assert_eq!(named[0].0, ids[0]);
        assert!(named[0].1.starts_with("invalid:"), "{named:?}");
        assert_eq!(
            named[1],
            (&*ids[1], "its signature is not that of its author")
        );
        assert_eq!(
            named[2],
            (&*ids[2], "its id is not the hash of what it says")
        );
        assert!(!found.is_readable());
        assert_eq!(found.to_string(), "590 events verified, 3 damaged");
    }

    #[test]
    fn what_was_deleted_and_not_swept_is_not_looked_at() {
        let author = Author::new(1);
        let tags: Vec<Vec<String>> = (0..2_000)
            .map(|n| {
                vec![
                    "t".to_owned(),
                    format!("a long topic, so that it is swept later {n}"),
                ]
            })
            .collect();
        let large = |at: u64| author.event_tags(1, at, tags.clone(), "");
        let events: Vec<Event> = (10..14).map(large).collect();
        let named: Vec<Vec<String>> = events
            .iter()
            .map(|event| vec!["e".to_owned(), event.id.to_string()])
            .collect();
        let deletion = author.event_tags(5, 20, named, "");
        let dir = store_with(&[&events[..], &[deletion]].concat());
        assert!(
            Store::open_read_only(dir.path())
                .unwrap()
                .stats()
                .unwrap()
                .garbage
                > 0
        );
        assert_eq!(verify(dir.path()).events, 1);
    }
}
