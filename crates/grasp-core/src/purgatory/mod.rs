//! Events that are here and not served: what each waits for, and until when. Nothing of it is
//! ever in the store's indexes, so that nothing of it can leak.

mod held;
mod tips;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

pub use self::held::{Durability, Held};
pub use self::tips::EarlyTips;
use crate::admit::{Cause, Needs, Refusal};
use crate::clock::Timestamp;
use crate::event::{Address, Event};
use crate::id::{EventId, Pubkey};
use crate::limits::Limits;
use crate::nip34::{Identifier, RepoId};

/// An expired announcement is kept in mind for a late state.
pub const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// By what held events are found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Announcements(Identifier),
    States(Identifier),
    Tips(RepoId),
    Waits(Cause),
}

#[derive(Debug, Default)]
pub struct Purgatory {
    held: FxHashMap<EventId, Held>,
    index: FxHashMap<Key, Vec<EventId>>,
    deadlines: BTreeSet<(Timestamp, EventId)>,
    per_author: FxHashMap<Pubkey, Vec<EventId>>,
    bytes: usize,
    /// What those waited for that have left lately.
    left: Vec<Needs>,
    /// So many were taken out since the start.
    released: u64,
}

impl Purgatory {
    pub fn get(&self, id: &EventId) -> Option<&Held> {
        self.held.get(id)
    }

    pub fn get_mut(&mut self, id: &EventId) -> Option<&mut Held> {
        self.held.get_mut(id)
    }

    pub fn len(&self) -> usize {
        self.held.len()
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Grows when something is held no longer, or for something else.
    pub fn released(&self) -> u64 {
        self.released
    }

    pub fn of_author_count(&self, author: &Pubkey) -> usize {
        self.per_author.get(author).map_or(0, Vec::len)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Held> {
        self.held.values()
    }

    /// Is there room for one more event of that author?
    pub fn room_for(&self, event: &Event, limits: &Limits) -> Result<(), Refusal> {
        if self.of_author_count(&event.pubkey) >= limits.held_per_key {
            return Err(Refusal::TooManyHeld);
        }
        let bytes = self.bytes + event.json().len();
        if self.held.len() >= limits.held_events || bytes > limits.held_bytes {
            return Err(Refusal::PurgatoryFull);
        }
        Ok(())
    }

    /// Takes an event; one that is here already keeps its submitters and its durability.
    pub fn insert(&mut self, event: Arc<Event>, needs: Needs, until: Timestamp) {
        let id = event.id;
        let before = self.take(&id);
        for key in keys(&needs) {
            self.index.entry(key).or_default().push(id);
        }
        self.deadlines.insert((until, id));
        self.per_author.entry(event.pubkey).or_default().push(id);
        self.bytes += event.json().len();
        let mut held = Held::new(event, needs, until);
        if let Some(before) = before {
            held.submitters = before.submitters;
            held.durability = before.durability;
            held.missing = before.missing.filter(|_| before.needs == held.needs);
            held.servers = before.servers;
            held.landed_in = before.landed_in;
        }
        self.held.insert(id, held);
    }

    pub fn remove(&mut self, id: &EventId) -> Option<Held> {
        let held = self.take(id)?;
        if matches!(held.needs, Needs::Refs(_) | Needs::Tip { .. }) {
            self.left.push(held.needs.clone());
        }
        Some(held)
    }

    /// What those waited for that have left since this was asked last.
    pub fn take_left(&mut self) -> Vec<Needs> {
        std::mem::take(&mut self.left)
    }

    fn take(&mut self, id: &EventId) -> Option<Held> {
        let held = self.held.remove(id)?;
        self.released += 1;
        for key in keys(&held.needs) {
            if let Some(ids) = self.index.get_mut(&key) {
                ids.retain(|other| other != id);
                if ids.is_empty() {
                    self.index.remove(&key);
                }
            }
        }
        self.deadlines.remove(&(held.until, *id));
        let author = held.event.pubkey;
        if let Some(ids) = self.per_author.get_mut(&author) {
            ids.retain(|other| other != id);
            if ids.is_empty() {
                self.per_author.remove(&author);
            }
        }
        self.bytes -= held.event.json().len();
        Some(held)
    }

    /// Held announcements of that identifier, by anybody.
    pub fn announcements(&self, identifier: &Identifier) -> Vec<EventId> {
        self.found(&Key::Announcements(identifier.clone()))
    }

    pub fn states(&self, identifier: &Identifier) -> Vec<EventId> {
        self.found(&Key::States(identifier.clone()))
    }

    /// Pull requests that wait for a commit in that repository.
    pub fn tips(&self, repo: &RepoId) -> Vec<EventId> {
        self.found(&Key::Tips(repo.clone()))
    }

    /// Events whose verdict may change with that cause.
    pub fn waiting_for(&self, cause: &Cause) -> Vec<EventId> {
        self.found(&Key::Waits(cause.clone()))
    }

    /// Held events of one author that stand at an address, up to a time.
    pub fn at_address(&self, address: &Address, until: Timestamp) -> Vec<EventId> {
        let at = |held: &&Held| {
            held.event.kind == address.kind
                && held.event.created_at <= until
                && held.event.address().as_ref() == Some(address)
        };
        self.of_author(&address.pubkey)
            .filter(at)
            .map(|held| held.event.id)
            .collect()
    }

    pub fn of_author(&self, author: &Pubkey) -> impl Iterator<Item = &Held> {
        let ids = self.per_author.get(author).map_or(&[][..], Vec::as_slice);
        ids.iter().filter_map(|id| self.held.get(id))
    }

    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// One event whose time has come.
    pub fn expired(&self, now: Timestamp) -> Option<EventId> {
        let (until, id) = self.deadlines.first()?;
        (*until <= now).then_some(*id)
    }

    /// Gives an event more time.
    pub fn extend(&mut self, id: &EventId, until: Timestamp) {
        if let Some(held) = self.held.get_mut(id) {
            self.deadlines.remove(&(held.until, *id));
            self.deadlines.insert((until, *id));
            held.until = until;
        }
    }

    fn found(&self, key: &Key) -> Vec<EventId> {
        self.index.get(key).cloned().unwrap_or_default()
    }
}

fn keys(needs: &Needs) -> Vec<Key> {
    match needs {
        Needs::State(announcement) => {
            vec![Key::Announcements(announcement.repo.identifier.clone())]
        }
        Needs::Refs(state) => vec![Key::States(state.identifier.clone())],
        Needs::Tip { repos, .. } => repos.iter().cloned().map(Key::Tips).collect(),
        Needs::Release(causes) | Needs::Arrival(causes) => {
            causes.iter().cloned().map(Key::Waits).collect()
        }
        Needs::Nothing => Vec::new(),
    }
}
