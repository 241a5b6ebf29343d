//! What the rules ask of the store, and what a start takes from it.

use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use grasp_core::event::{Address, Event};
use grasp_core::facts::{Applied, PullRequestRow, RootCursor, RootPage, RootRow};
use grasp_core::nip34::{PULL_REQUEST_UPDATE, Rank, Target};
use grasp_core::{EventId, Facts, Kind, Pubkey, RepoId, Restore, Seq, StoreOutcome, nip34};

use crate::error::StoreError;
use crate::gone::{self, Gone};
use crate::kv::{Read, Table};
use crate::schema::{self, IdValue, IndexValue, Place, Record, Slot};
use crate::{Backend, Store, reading, relations, write};

/// Events of one page at the start: at most 256 x 0.5 MB.
const PAGE: usize = 256;

/// Runs a piece of code on a view of any backend. Repositories are put away and refs taken down
/// on the word that something is not stored: a store that cannot be read ends the process before
/// anything is decided.
macro_rules! asking {
    ($store:expr, |$kv:ident| $body:expr) => {
        (|| -> Result<_, StoreError> { reading!($store, |$kv| $body) })()
            .unwrap_or_else(|error| panic!("the event store cannot be read: {error}"))
    };
}

impl Facts for Store {
    fn kind_of(&self, id: &EventId) -> Option<Kind> {
        let value = asking!(self, |kv| id_value(kv, id));
        value.map(|value| value.index.kind)
    }

    fn author_of(&self, id: &EventId) -> Option<Pubkey> {
        asking!(self, |kv| author_of(kv, id))
    }

    fn event(&self, id: &EventId) -> Option<Arc<Event>> {
        asking!(self, |kv| event(kv, id))
    }

    fn newest(&self, address: &Address) -> Option<Arc<Event>> {
        asking!(self, |kv| {
            let slot = kv.get(Table::Slots, &schema::slot_key(address))?;
            match slot.map(Slot::from_bytes).transpose()? {
                Some(slot) => event(kv, &slot.id),
                None => Ok(None),
            }
        })
    }

    fn applied(&self, repo: &RepoId) -> Option<Applied> {
        asking!(self, |kv| {
            let row = kv.get(Table::Applied, &schema::applied_key(repo))?;
            row.map(schema::read_applied).transpose()
        })
    }

    fn rank_at(&self, address: &Address) -> Option<Rank> {
        asking!(self, |kv| {
            let slot = kv.get(Table::Slots, &schema::slot_key(address))?;
            let slot = slot.map(Slot::from_bytes).transpose()?;
            let Some(Slot { created_at, id }) = slot else {
                return Ok(None);
            };
            let stands = id_value(kv, &id)?.is_some();
            Ok(stands.then_some(Rank { created_at, id }))
        })
    }

    fn pull_request(&self, id: &EventId) -> Option<PullRequestRow> {
        asking!(self, |kv| relations::pull_request(kv, id))
    }

    fn roots(&self, repo: &RepoId, kinds: &[Kind]) -> Vec<RootRow> {
        asking!(self, |kv| {
            let address = repo.address(Kind::ANNOUNCEMENT);
            let address = format!("{}:{}:{}", address.kind, address.pubkey, address.d);
            relations::roots(kv, &address, kinds)
        })
    }

    fn updates(&self, pull_request: &EventId) -> Vec<RootRow> {
        asking!(self, |kv| {
            let root = pull_request.to_string();
            relations::naming(kv, b'e', &root, PULL_REQUEST_UPDATE)
        })
    }

    fn naming(
        &self,
        target: &Target,
        kind: Kind,
        after: Option<RootCursor>,
        left: &mut usize,
    ) -> RootPage {
        let (letter, value) = match target {
            Target::Event(id) => (b'e', id.to_string()),
            Target::Address(Address { kind, pubkey, d }) => (b'a', format!("{kind}:{pubkey}:{d}")),
        };
        asking!(self, |kv| {
            relations::naming_after(kv, (letter, &value), kind, after, left)
        })
    }

    fn is_named(&self, event: &Event) -> bool {
        let id = event.id.to_string();
        let mut names = vec![(b'e', id.clone()), (b'q', id)];
        if let Some(address) = event.address() {
            let text = format!("{}:{}:{}", address.kind, address.pubkey, address.d);
            names.extend([(b'a', text.clone()), (b'q', text)]);
        }
        asking!(self, |kv| {
            for (letter, value) in &names {
                if relations::is_proven(kv, *letter, value)? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    fn foresee(&self, event: &Event) -> Option<StoreOutcome> {
        asking!(self, |kv| write::foresee(kv, event))
    }
}

impl Store {
    /// Everything that the core must know at the start, in the order in which it wants it. Whoever
    /// visits may ask the store in turn.
    pub fn kept(&self, mut visit: impl FnMut(Restore)) -> Result<(), StoreError> {
        self.each_of_kind(Kind::ANNOUNCEMENT, |event, seq| {
            visit(Restore::Announcement { event, seq });
        })?;
        for kind in nip34::ROOTS {
            self.each_of_kind(kind, |event, seq| visit(Restore::Root { event, seq }))?;
        }
        let applied = self.all_of(Table::Applied, schema::read_applied_row)?;
        applied.into_iter().for_each(&mut visit);
        let hidden = self.all_of(Table::Hidden, |key, _| schema::read_hidden(key))?;
        hidden.into_iter().for_each(&mut visit);
        let mut held = self.all_of(Table::Held, |_, value| schema::read_held(value))?;
        let is_announcement = |held: &Restore| matches!(held, Restore::Held { event, .. } if event.kind == Kind::ANNOUNCEMENT);
        held.sort_by_key(|held| !is_announcement(held));
        held.into_iter().for_each(&mut visit);
        let relays = self.all_of(Table::Relays, |_, value| Ok(schema::read_relay(value)))?;
        relays.into_iter().flatten().for_each(&mut visit);
        let dismissed = self.all_of(Table::Dismissed, schema::read_dismissed)?;
        dismissed.into_iter().for_each(&mut visit);
        Ok(())
    }

    fn all_of<T>(
        &self,
        table: Table,
        read: impl Fn(&[u8], &[u8]) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        reading!(self, |kv| {
            let rows = kv.rows(table, Bound::Unbounded)?;
            rows.map(|row| row.and_then(|(key, value)| read(key, value)))
                .collect()
        })
    }

    /// Every event that is not served yet, and whether it is only kept in mind.
    pub fn each_held(&self, mut visit: impl FnMut(Arc<Event>, bool)) -> Result<(), StoreError> {
        reading!(self, |kv| {
            for row in kv.rows(Table::Held, Bound::Unbounded)? {
                if let Restore::Held {
                    event, remembered, ..
                } = schema::read_held(row?.1)?
                {
                    visit(event, remembered);
                }
            }
            Ok(())
        })
    }

    /// Page by page, so that all of them are never in memory at once, and that whoever visits may
    /// ask the store in turn.
    fn each_of_kind(
        &self,
        kind: Kind,
        mut visit: impl FnMut(Arc<Event>, Seq),
    ) -> Result<(), StoreError> {
        let mut from = Bound::Included(schema::kind_prefix(kind).to_vec());
        loop {
            let page = reading!(self, |kv| page_of_kind(kv, kind, from.as_ref()))?;
            for (event, seq) in page.events {
                visit(event, seq);
            }
            match page.last {
                Some(last) => from = Bound::Excluded(last),
                None => return Ok(()),
            }
        }
    }
}

/// Some events of a kind, and the key after which there may be more.
struct Page {
    events: Vec<(Arc<Event>, Seq)>,
    last: Option<Vec<u8>>,
}

fn id_value(kv: &impl Read, id: &EventId) -> Result<Option<IdValue>, StoreError> {
    gone::stored(kv, id)
}

/// From the record's header.
fn author_of(kv: &impl Read, id: &EventId) -> Result<Option<Pubkey>, StoreError> {
    let Some(value) = id_value(kv, id)? else {
        return Ok(None);
    };
    let record = kv.get(Table::Events, &value.index.seq.0.to_be_bytes())?;
    let header = record.map(schema::read_header).transpose()?;
    Ok(header.map(|(_, author)| author))
}

fn event(kv: &impl Read, id: &EventId) -> Result<Option<Arc<Event>>, StoreError> {
    let Some(value) = id_value(kv, id)? else {
        return Ok(None);
    };
    let record = kv.get(Table::Events, &value.index.seq.0.to_be_bytes())?;
    let event = record.map(|bytes| Record::decode(bytes)?.event());
    Ok(event.transpose()?.map(Arc::new))
}

fn page_of_kind(kv: &impl Read, kind: Kind, from: Bound<&Vec<u8>>) -> Result<Page, StoreError> {
    let prefix = schema::kind_prefix(kind);
    let gone = Gone::look(kv)?;
    let mut page = Page {
        events: Vec::new(),
        last: None,
    };
    for row in kv.rows(Table::ByKind, from.map(Vec::as_slice))? {
        let (key, value) = row?;
        if !key.starts_with(&prefix) {
            break;
        }
        let value = IndexValue::from_bytes(value)?;
        if gone.hides(kv, &Place::of_key(key)?, &value)? {
            continue;
        }
        let seq = value.seq;
        if let Some(bytes) = kv.get(Table::Events, &seq.0.to_be_bytes())? {
            page.events
                .push((Arc::new(Record::decode(bytes)?.event()?), seq));
        }
        if page.events.len() == PAGE {
            page.last = Some(key.to_vec());
            break;
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Write;

    #[test]
    #[should_panic(expected = "the event store cannot be read")]
    fn what_cannot_be_read_is_not_taken_for_absent() {
        let store = Store::in_memory();
        let id = EventId([1; 32]);
        if let Backend::Memory(memory) = &store.backend {
            let mut memory = memory.write().unwrap();
            memory.put(Table::Ids, &id.0, b"damaged").unwrap();
        }
        store.kind_of(&id);
    }
}
