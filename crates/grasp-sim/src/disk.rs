//! A store on a disk: what is served, what is held beside it, and which state each repository
//! has. Replacement, deletion and vanishing follow NIP-01, 09 and 62.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use grasp_core::event::Address;
use grasp_core::facts::{Applied, PullRequestRow, RootCursor, RootPage, RootRow};
use grasp_core::nip34::{self, PULL_REQUEST_UPDATE, PullRequest, Rank, Target, targets};
use grasp_core::sync::{Dismissed, Fate, RelayMemory};
use grasp_core::{
    Change, Event, EventId, Facts, Filter, Kind, Pubkey, RepoId, Restore, Seq, StoreOutcome,
    Timestamp,
};

/// Of each kind in one answer, as the store has it.
const MAX_ROOTS: usize = 2_000;

#[derive(Debug, Clone)]
pub struct Row {
    pub event: Arc<Event>,
    pub until: Timestamp,
    pub remembered: bool,
}

#[derive(Debug, Default)]
pub struct Disk {
    stored: BTreeMap<EventId, Arc<Event>>,
    seqs: BTreeMap<EventId, Seq>,
    /// The best that each slot has ever had: a loser never returns.
    slots: BTreeMap<Address, Rank>,
    deleted_ids: BTreeSet<(Pubkey, EventId)>,
    deleted_addresses: BTreeMap<Address, Timestamp>,
    vanished: BTreeMap<Pubkey, Timestamp>,
    pub held: BTreeMap<EventId, Row>,
    pub applied: BTreeMap<RepoId, Rank>,
    refs_since: BTreeMap<RepoId, Timestamp>,
    /// Stored, and shown to no reader.
    hidden: BTreeSet<EventId>,
    /// What is known of other relays, and events that need not be fetched again.
    relays: BTreeMap<String, Arc<RelayMemory>>,
    dismissed: BTreeMap<EventId, Dismissed>,
    next_seq: u64,
    /// Everything that was ever stored.
    pub once_stored: BTreeMap<EventId, Arc<Event>>,
    /// Everything that was ever held, and the latest deadline that it had.
    pub once_held: BTreeMap<EventId, Row>,
}

impl Disk {
    /// All of it: the word on each stored event, in order.
    pub fn commit(&mut self, changes: &[Change]) -> Vec<StoreOutcome> {
        let mut outcomes = Vec::new();
        for change in changes {
            match change {
                Change::Store(event) => outcomes.push(self.store(event)),
                Change::Hold {
                    event,
                    until,
                    remembered,
                } => self.hold(Row {
                    event: Arc::clone(event),
                    until: *until,
                    remembered: *remembered,
                }),
                Change::Unhold(id) => {
                    self.held.remove(id);
                }
                Change::Applied { repo, rank, since } => {
                    self.applied.insert(repo.clone(), *rank);
                    self.refs_since.insert(repo.clone(), *since);
                }
                Change::Hide(id) => {
                    if self.stored.contains_key(id) {
                        self.hidden.insert(*id);
                    }
                }
                Change::Show(id) => {
                    self.hidden.remove(id);
                }
                Change::Relay(memory) => {
                    let key = memory.url.key().to_owned();
                    self.relays.insert(key, Arc::clone(memory));
                }
                Change::ForgetRelay(url) => {
                    self.relays.remove(url.key());
                }
                Change::Dismiss(row) => {
                    self.dismissed.insert(row.id, row.clone());
                }
                Change::Recall(id) => {
                    self.dismissed.remove(id);
                }
            }
        }
        outcomes
    }

    pub fn store(&mut self, event: &Arc<Event>) -> StoreOutcome {
        if let Some(outcome) = self.foresee(event) {
            return outcome;
        }
        if let Some(address) = event.address() {
            self.stored
                .retain(|_, other| other.address().as_ref() != Some(&address));
            self.slots.insert(address, Rank::of(event));
        }
        self.stored.insert(event.id, Arc::clone(event));
        self.once_stored.insert(event.id, Arc::clone(event));
        match event.kind {
            Kind::DELETION => self.delete(event),
            Kind::VANISH => self.vanish(event),
            _ => {}
        }
        let seq = Seq(self.next_seq);
        self.next_seq += 1;
        self.seqs.insert(event.id, seq);
        StoreOutcome::Stored(seq)
    }

    fn hold(&mut self, row: Row) {
        let id = row.event.id;
        let latest = self.once_held.entry(id).or_insert_with(|| row.clone());
        latest.until = latest.until.max(row.until);
        self.held.insert(id, row);
    }

    fn delete(&mut self, deletion: &Event) {
        let author = deletion.pubkey;
        for id in deletion.tag_values("e") {
            if let Ok(id) = EventId::from_hex(id) {
                self.deleted_ids.insert((author, id));
            }
        }
        for address in deletion.tag_values("a").filter_map(Address::parse) {
            if address.pubkey == author {
                let until = self.deleted_addresses.entry(address).or_default();
                *until = deletion.created_at.max(*until);
            }
        }
        self.remove_gone();
    }

    fn vanish(&mut self, request: &Event) {
        let until = self.vanished.entry(request.pubkey).or_default();
        *until = request.created_at.max(*until);
        self.remove_gone();
    }

    fn remove_gone(&mut self) {
        let gone: Vec<EventId> = self
            .stored
            .values()
            .filter(|event| self.is_gone(event).is_some())
            .map(|event| event.id)
            .collect();
        for id in gone {
            self.stored.remove(&id);
        }
    }

    fn is_gone(&self, event: &Event) -> Option<StoreOutcome> {
        if matches!(event.kind, Kind::DELETION | Kind::VANISH) {
            return None;
        }
        let until = self.vanished.get(&event.pubkey);
        if until.is_some_and(|until| event.created_at <= *until) {
            return Some(StoreOutcome::Vanished);
        }
        let address = event.address();
        let until = address.and_then(|address| self.deleted_addresses.get(&address));
        let deleted = self.deleted_ids.contains(&(event.pubkey, event.id))
            || until.is_some_and(|until| event.created_at <= *until);
        deleted.then_some(StoreOutcome::Deleted)
    }

    pub fn sweep(&mut self, until: Timestamp) {
        self.stored.retain(|_, event| !event.is_expired(until));
    }

    pub fn is_served(&self, id: &EventId) -> bool {
        self.is_stored(id) && !self.hidden.contains(id)
    }

    pub fn is_stored(&self, id: &EventId) -> bool {
        self.stored.contains_key(id)
    }

    /// It has waited for its git data in vain, whether or not that was written before.
    pub fn has_rested(&self, id: &EventId) -> bool {
        let row = self.dismissed.get(id);
        row.is_some_and(|row| matches!(row.fate, Fate::Rests(..)))
    }

    pub fn stored(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.stored.values()
    }

    /// Date and name of what matches, hidden or not.
    pub fn matching(&self, filter: &Filter) -> Vec<(Timestamp, EventId)> {
        let found = self.stored.values().filter(|event| filter.matches(event));
        found.map(|event| (event.created_at, event.id)).collect()
    }

    /// What a start hands to the core, in the order of the contract.
    pub fn restore(&self) -> Vec<Restore> {
        let announced = self.stored.values();
        let announced = announced.filter(|event| event.kind == Kind::ANNOUNCEMENT);
        let roots = self.stored.values();
        let roots = roots.filter(|event| nip34::is_root(event.kind));
        let roots = roots.map(|event| Restore::Root {
            event: Arc::clone(event),
            seq: self.seq(event),
        });
        let applied = self.applied.iter().map(|(repo, rank)| Restore::Applied {
            repo: repo.clone(),
            rank: *rank,
            since: self.refs_since.get(repo).copied().unwrap_or_default(),
        });
        let hidden = self.hidden.iter().filter(|id| self.is_stored(id));
        let hidden = hidden.map(|id| Restore::Hidden(*id));
        let mut held: Vec<&Row> = self.held.values().collect();
        held.sort_by_key(|row| row.event.kind != Kind::ANNOUNCEMENT);
        let held = held.into_iter().map(|row| Restore::Held {
            event: Arc::clone(&row.event),
            until: row.until,
            remembered: row.remembered,
        });
        let relays = self.relays.values().cloned().map(Restore::Relay);
        let dismissed = self.dismissed.values().cloned().map(Restore::Dismissed);
        announced
            .map(|event| Restore::Announcement {
                event: Arc::clone(event),
                seq: self.seq(event),
            })
            .chain(roots)
            .chain(applied)
            .chain(hidden)
            .chain(held)
            .chain(relays)
            .chain(dismissed)
            .collect()
    }
}

impl Disk {
    fn seq(&self, event: &Event) -> Seq {
        self.seqs.get(&event.id).copied().unwrap_or_default()
    }
}

impl Facts for Disk {
    fn kind_of(&self, id: &EventId) -> Option<Kind> {
        self.stored.get(id).map(|event| event.kind)
    }

    fn author_of(&self, id: &EventId) -> Option<Pubkey> {
        self.stored.get(id).map(|event| event.pubkey)
    }

    fn event(&self, id: &EventId) -> Option<Arc<Event>> {
        self.stored.get(id).cloned()
    }

    fn newest(&self, address: &Address) -> Option<Arc<Event>> {
        let rank = self.slots.get(address)?;
        self.stored.get(&rank.id).cloned()
    }

    fn rank_at(&self, address: &Address) -> Option<Rank> {
        let rank = *self.slots.get(address)?;
        self.is_stored(&rank.id).then_some(rank)
    }

    fn pull_request(&self, id: &EventId) -> Option<PullRequestRow> {
        let event = self.stored.get(id)?;
        Some(PullRequestRow {
            author: event.pubkey,
            says: PullRequest::read(event)?,
        })
    }

    fn applied(&self, repo: &RepoId) -> Option<Applied> {
        let rank = *self.applied.get(repo)?;
        let since = self.refs_since.get(repo).copied().unwrap_or_default();
        Some(Applied { rank, since })
    }

    fn roots(&self, repo: &RepoId, kinds: &[Kind]) -> Vec<RootRow> {
        let address = Target::Address(repo.address(Kind::ANNOUNCEMENT));
        let named = |event: &Event| targets(event).any(|target| target == address);
        let root_named = |event: &Event| {
            let root = PullRequest::read(event).and_then(|found| found.root);
            root.and_then(|root| self.stored.get(&root))
                .is_some_and(|root| named(root))
        };
        let mut found = Vec::new();
        for kind in kinds {
            let all = self.stored.values().filter(|event| event.kind == *kind);
            let all = all.filter(|event| named(event) || root_named(event));
            let mut rows: Vec<RootRow> = all.map(|event| row(event)).collect();
            rows.sort_unstable_by_key(|row| Reverse(row.created_at));
            rows.truncate(MAX_ROOTS);
            found.extend(rows);
        }
        found
    }

    fn updates(&self, pull_request: &EventId) -> Vec<RootRow> {
        let target = Target::Event(*pull_request);
        let all = self.stored.values();
        all.filter(|event| event.kind == PULL_REQUEST_UPDATE)
            .filter(|event| targets(event).any(|named| named == target))
            .map(|event| row(event))
            .collect()
    }

    fn naming(
        &self,
        target: &Target,
        kind: Kind,
        after: Option<RootCursor>,
        left: &mut usize,
    ) -> RootPage {
        let place = |row: &RootRow| (Reverse(row.created_at), row.id);
        let after = after.map(|last| (Reverse(last.created_at), last.id));
        let all = self.stored.values().filter(|event| event.kind == kind);
        let all = all.filter(|event| targets(event).any(|named| named == *target));
        let mut rows: Vec<RootRow> = all.map(|event| row(event)).collect();
        rows.retain(|row| Some(place(row)) > after);
        rows.sort_unstable_by_key(place);
        let more = rows.len() > *left;
        rows.truncate(*left);
        *left -= rows.len();
        let last = rows.last().filter(|_| more);
        let next = last.map(|row| RootCursor {
            created_at: row.created_at,
            id: row.id,
        });
        RootPage { rows, next }
    }

    fn is_named(&self, event: &Event) -> bool {
        let by_id = Target::Event(event.id);
        let by_address = event.address().map(Target::Address);
        let names = |other: &Event| {
            targets(other).any(|target| target == by_id || Some(&target) == by_address.as_ref())
        };
        let mut others = self.stored.values();
        others.any(|other| !grasp_core::admit::is_free(other.kind) && names(other))
    }

    fn foresee(&self, event: &Event) -> Option<StoreOutcome> {
        if self.stored.contains_key(&event.id) {
            return Some(StoreOutcome::Duplicate);
        }
        if let Some(gone) = self.is_gone(event) {
            return Some(gone);
        }
        let best = self.slots.get(&event.address()?)?;
        (*best >= Rank::of(event)).then_some(StoreOutcome::Replaced)
    }
}

fn row(event: &Event) -> RootRow {
    RootRow {
        created_at: event.created_at,
        id: event.id,
        kind: event.kind,
    }
}
