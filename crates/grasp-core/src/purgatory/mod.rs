//! Events that are here and not served: what each waits for, and until when. Nothing of it is
//! ever in the store's indexes, so that nothing of it can leak.

mod held;
mod holders;
mod tips;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

pub use self::held::{Durability, Held};
pub use self::holders::Holder;
use self::holders::{Holders, Waits};
pub use self::tips::{Early, EarlyTips, Room};
use crate::admit::{Cause, Needs, Refusal};
use crate::clock::Timestamp;
use crate::event::{Address, Event};
use crate::id::{EventId, Pubkey};
use crate::limits::{Limits, Load};
use crate::nip34::{Identifier, RepoId};

/// An expired announcement is kept in mind for a late state.
pub const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// By what held events are found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Announcements(Identifier),
    States(Identifier),
    /// By their author, who need not have that repository.
    StatesOf(RepoId),
    Tips(RepoId),
    Waits(Cause),
    /// Whatever it waits for.
    At(Address),
}

#[derive(Debug, Default)]
pub struct Purgatory {
    held: FxHashMap<EventId, Held>,
    index: FxHashMap<Key, Vec<EventId>>,
    deadlines: BTreeSet<(Timestamp, EventId)>,
    /// Expired announcements, those first that have been kept longest. They wait for nothing that
    /// anybody was promised, so that they take nobody's room.
    remembered: BTreeSet<(Timestamp, EventId)>,
    per_author: FxHashMap<Pubkey, OfAuthor>,
    waiting: Load,
    /// Those of them that maintainers of served repositories sent.
    of_maintainers: Load,
    holders: Holders,
    kept_in_mind: Load,
    /// Of the expired announcements.
    expired_holders: Holders,
    /// What those waited for that have left lately.
    left: Vec<Needs>,
    /// So many were taken out since the start.
    released: u64,
}

#[derive(Debug, Default)]
struct OfAuthor {
    ids: Vec<EventId>,
    waiting: Load,
    kept_in_mind: Load,
}

/// For whom there is room when most of it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guest {
    Anybody,
    /// Somebody who maintains the served repository that it is about.
    Maintainer,
}

/// As what an event is counted.
#[derive(Debug, Clone, Copy)]
struct Stay {
    holder: Option<Holder>,
    guest: Guest,
    remembered: bool,
    until: Timestamp,
}

impl Stay {
    fn of(held: &Held) -> Self {
        Self {
            holder: held.holder,
            guest: held.guest,
            remembered: held.remembered,
            until: held.until,
        }
    }

    fn waits(self, id: EventId) -> Waits {
        Waits {
            guest: self.guest,
            until: self.until,
            id,
        }
    }
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

    /// Without what is only kept in mind.
    pub fn waiting(&self) -> Load {
        self.waiting
    }

    pub fn waiting_of(&self, author: &Pubkey) -> Load {
        let of_author = self.per_author.get(author);
        of_author.map_or(Load::default(), |found| found.waiting)
    }

    /// Expired announcements.
    pub fn kept_in_mind(&self) -> Load {
        self.kept_in_mind
    }

    /// Grows when something is held no longer, or for something else.
    pub fn released(&self) -> u64 {
        self.released
    }

    pub fn iter(&self) -> impl Iterator<Item = &Held> {
        self.held.values()
    }

    /// Is there room for one more event of that author and holder? The last of it is for
    /// maintainers of served repositories, so that strangers cannot keep them from pushing.
    pub fn room_for(
        &self,
        event: &Event,
        holder: Option<Holder>,
        guest: Guest,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        let own = self.waiting_of(&event.pubkey).with(size(event));
        if !own.fits(limits.held_of_one()) {
            return Err(Refusal::TooManyHeld);
        }
        if let Some(holder) = holder
            && !self.holders.fits(holder, size(event), limits)
        {
            return Err(Refusal::TooManyHeldFromAddress);
        }
        let fits = self.waiting.with(size(event)).fits(limits.held_of_all());
        match fits && !(guest == Guest::Anybody && self.is_full_of_strangers(event, limits)) {
            true => Ok(()),
            false => Err(Refusal::PurgatoryFull),
        }
    }

    fn is_full_of_strangers(&self, event: &Event, limits: &Limits) -> bool {
        let strangers = self.waiting.without(self.of_maintainers);
        !strangers.with(size(event)).fits(limits.held_of_strangers())
    }

    /// Whose events may be given up for that one when all is taken, in this order: strangers make
    /// way for each other in their part, and maintainers first where they have more than is kept
    /// for them.
    pub fn who_makes_way(&self, event: &Event, guest: Guest, limits: &Limits) -> &'static [Guest] {
        let in_their_part = guest == Guest::Anybody && self.is_full_of_strangers(event, limits);
        match in_their_part || self.of_maintainers.fits(limits.held_of_maintainers()) {
            true => &[Guest::Anybody],
            false => &[Guest::Maintainer, Guest::Anybody],
        }
    }

    /// What may be given up for that event, the first one first: events of holders that have more
    /// than this one's.
    pub fn evictable(
        &self,
        event: &Event,
        holder: Option<Holder>,
        of: Guest,
    ) -> impl Iterator<Item = &Held> {
        let ids = self.holders.larger_than(holder, size(event), of);
        ids.filter_map(|id| self.held.get(&id))
    }

    /// An announcement has expired and is only kept in mind from now on.
    pub fn remember(&mut self, id: &EventId, until: Timestamp) {
        self.extend(id, until);
        self.set_remembered(id, true);
    }

    /// It waits for its state again.
    pub fn revive(&mut self, id: &EventId) {
        self.set_remembered(id, false);
    }

    /// What is to be forgotten because too many announcements of that author, or of all, are kept
    /// in mind: the one that has been kept longest, of all those of the largest holder.
    pub fn too_old_to_remember(&self, author: &Pubkey, limits: &Limits) -> Option<EventId> {
        let of_author = self.per_author.get(author)?;
        if !of_author.kept_in_mind.fits(limits.held_of_one()) {
            let own = of_author.ids.iter().filter_map(|id| self.held.get(id));
            let own = own.filter(|held| held.remembered);
            let oldest = own.min_by_key(|held| (held.until, held.event.id));
            return oldest.map(|held| held.event.id);
        }
        if self.kept_in_mind.fits(limits.kept_in_mind()) {
            return None;
        }
        let of_largest = self
            .expired_holders
            .larger_than(None, 0, Guest::Anybody)
            .next();
        of_largest.or_else(|| self.remembered.first().map(|(_, id)| *id))
    }

    fn set_remembered(&mut self, id: &EventId, remembered: bool) {
        if let Some(held) = self
            .held
            .get(id)
            .filter(|held| held.remembered != remembered)
        {
            let (event, stay) = (Arc::clone(&held.event), Stay::of(held));
            self.uncount(&event, stay);
            self.count(&event, Stay { remembered, ..stay });
            if let Some(held) = self.held.get_mut(id) {
                held.remembered = remembered;
            }
        }
    }

    fn count(&mut self, event: &Event, stay: Stay) {
        let Stay {
            holder,
            guest,
            remembered,
            until,
        } = stay;
        if let Some(holder) = holder {
            let holders = self.holders_of(remembered);
            holders.add(holder, stay.waits(event.id), size(event));
        }
        let of_author = self.per_author.entry(event.pubkey).or_default();
        if remembered {
            of_author.kept_in_mind.add(size(event));
            self.kept_in_mind.add(size(event));
            self.remembered.insert((until, event.id));
        } else {
            of_author.waiting.add(size(event));
            self.waiting.add(size(event));
            if guest == Guest::Maintainer {
                self.of_maintainers.add(size(event));
            }
        }
    }

    fn uncount(&mut self, event: &Event, stay: Stay) {
        let Stay {
            holder,
            guest,
            remembered,
            until,
        } = stay;
        if let Some(holder) = holder {
            let holders = self.holders_of(remembered);
            holders.remove(holder, stay.waits(event.id), size(event));
        }
        let of_author = self.per_author.entry(event.pubkey).or_default();
        if remembered {
            of_author.kept_in_mind.remove(size(event));
            self.kept_in_mind.remove(size(event));
            self.remembered.remove(&(until, event.id));
        } else {
            of_author.waiting.remove(size(event));
            self.waiting.remove(size(event));
            if guest == Guest::Maintainer {
                self.of_maintainers.remove(size(event));
            }
        }
    }

    fn holders_of(&mut self, remembered: bool) -> &mut Holders {
        match remembered {
            true => &mut self.expired_holders,
            false => &mut self.holders,
        }
    }

    /// Takes an event; one that is here already keeps its submitters, its durability, its holder,
    /// and whether it is only kept in mind.
    pub fn insert(&mut self, event: Arc<Event>, needs: Needs, until: Timestamp) {
        self.insert_from(event, needs, until, None, Guest::Anybody);
    }

    /// The same for one of which it is known who brought it and who sent it.
    pub fn insert_from(
        &mut self,
        event: Arc<Event>,
        needs: Needs,
        until: Timestamp,
        holder: Option<Holder>,
        guest: Guest,
    ) {
        let id = event.id;
        let before = self.take(&id);
        // Whoever brings an expired announcement again is charged for it anew.
        let before_holder = before.as_ref().filter(|before| !before.remembered);
        let holder = match before_holder.and_then(|before| before.holder) {
            Some(known) => Some(known),
            None => holder.or(before.as_ref().and_then(|before| before.holder)),
        };
        for key in keys(&event, &needs) {
            self.index.entry(key).or_default().push(id);
        }
        self.deadlines.insert((until, id));
        let remembered = before.as_ref().is_some_and(|before| before.remembered);
        let guest = before
            .as_ref()
            .map_or(guest, |before| before.guest.max(guest));
        let stay = Stay {
            holder,
            guest,
            remembered,
            until,
        };
        self.count(&event, stay);
        let of_author = self.per_author.entry(event.pubkey).or_default();
        of_author.ids.push(id);
        let mut held = Held::new(event, needs, until);
        held.remembered = remembered;
        held.holder = holder;
        held.guest = guest;
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
        for key in keys(&held.event, &held.needs) {
            if let Some(ids) = self.index.get_mut(&key) {
                ids.retain(|other| other != id);
                if ids.is_empty() {
                    self.index.remove(&key);
                }
            }
        }
        self.deadlines.remove(&(held.until, *id));
        self.uncount(&held.event, Stay::of(&held));
        let author = held.event.pubkey;
        if let Some(of_author) = self.per_author.get_mut(&author) {
            of_author.ids.retain(|other| other != id);
            if of_author.ids.is_empty() {
                self.per_author.remove(&author);
            }
        }
        Some(held)
    }

    /// Held announcements of that identifier, by anybody.
    pub fn announcements(&self, identifier: &Identifier) -> Vec<EventId> {
        self.found(&Key::Announcements(identifier.clone()))
    }

    pub fn states(&self, identifier: &Identifier) -> Vec<EventId> {
        self.found(&Key::States(identifier.clone()))
    }

    /// States of one author.
    pub fn states_of(&self, of: &RepoId) -> &[EventId] {
        let ids = self.index.get(&Key::StatesOf(of.clone()));
        ids.map_or(&[], Vec::as_slice)
    }

    /// Pull requests that wait for a commit in that repository.
    pub fn tips(&self, repo: &RepoId) -> Vec<EventId> {
        self.found(&Key::Tips(repo.clone()))
    }

    /// Events whose verdict may change with that cause.
    pub fn waiting_for(&self, cause: &Cause) -> Vec<EventId> {
        self.found(&Key::Waits(cause.clone()))
    }

    /// Held events that stand at an address.
    pub fn at(&self, address: &Address) -> impl Iterator<Item = &Held> {
        let ids = self.index.get(&Key::At(address.clone()));
        ids.into_iter().flatten().filter_map(|id| self.held.get(id))
    }

    /// Those up to a time.
    pub fn at_address(&self, address: &Address, until: Timestamp) -> Vec<EventId> {
        let held = self.at(address).map(|held| &held.event);
        let held = held.filter(|event| event.created_at <= until);
        held.map(|event| event.id).collect()
    }

    pub fn of_author(&self, author: &Pubkey) -> impl Iterator<Item = &Held> {
        let ids = self.per_author.get(author).map(|found| &found.ids);
        ids.into_iter().flatten().filter_map(|id| self.held.get(id))
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
        let Some(held) = self.held.get_mut(id) else {
            return;
        };
        let before = Stay::of(held);
        held.until = until;
        self.deadlines.remove(&(before.until, *id));
        self.deadlines.insert((until, *id));
        let event = Arc::clone(&held.event);
        self.uncount(&event, before);
        self.count(&event, Stay { until, ..before });
    }

    fn found(&self, key: &Key) -> Vec<EventId> {
        self.index.get(key).cloned().unwrap_or_default()
    }
}

fn size(event: &Event) -> usize {
    event.json().len()
}

fn keys(event: &Event, needs: &Needs) -> Vec<Key> {
    let mut keys = match needs {
        Needs::State(announcement) => {
            vec![Key::Announcements(announcement.repo.identifier.clone())]
        }
        Needs::Refs(state) => vec![
            Key::States(state.identifier.clone()),
            Key::StatesOf(RepoId::new(state.author, state.identifier.clone())),
        ],
        Needs::Tip { repos, .. } => repos.iter().cloned().map(Key::Tips).collect(),
        Needs::Release(causes) | Needs::Arrival(causes) => {
            causes.iter().cloned().map(Key::Waits).collect()
        }
        Needs::Nothing => Vec::new(),
    };
    keys.extend(event.address().map(Key::At));
    keys
}
