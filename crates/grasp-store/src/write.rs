//! What an event does to the store: the rules of replacement, deletion (NIP-09), expiry
//! (NIP-40) and vanishing (NIP-62), applied in order within one transaction.

mod removal;

use grasp_core::event::{Address, Event, Kind};
use grasp_core::nip34::Rank;
use grasp_core::relay_url::RelayUrl;
use grasp_core::sync::{Dismissed, RelayMemory};
use grasp_core::{EventId, Pubkey, RepoId, Seq, StoreOutcome, Timestamp};

pub use self::removal::{RemovalLimits, Swept};
use crate::error::StoreError;
use crate::gone;
use crate::kv::{IndexChange, Read, Table, Write};
use crate::schema::{self, Cases, IdValue, IndexValue, Record, Slot};

/// Changes to the indexes are kept back and written in key order: neighbours share pages.
pub(crate) struct Batch<'w, W> {
    kv: &'w mut W,
    next_seq: u64,
    index: Vec<IndexChange>,
    limits: RemovalLimits,
    /// Of the limits, what is left to this batch.
    bytes_at_once: usize,
    looks: usize,
}

impl<'w, W: Write> Batch<'w, W> {
    pub(crate) fn begin(kv: &'w mut W, limits: RemovalLimits) -> Result<Self, StoreError> {
        let next_seq = next_seq(kv)?;
        Ok(Self {
            kv,
            next_seq,
            index: Vec::new(),
            limits,
            bytes_at_once: limits.bytes_at_once,
            looks: limits.looks,
        })
    }

    pub(crate) fn finish(mut self) -> Result<(), StoreError> {
        let next = self.next_seq.to_be_bytes();
        self.kv.put(Table::Meta, schema::META_NEXT_SEQ, &next)?;
        let changes = self.sorted_index();
        self.kv.finish(changes)
    }

    pub(crate) fn apply(&mut self, event: &Event) -> Result<StoreOutcome, StoreError> {
        if let Some(outcome) = foresee(&*self.kv, event)? {
            return Ok(outcome);
        }
        if let Some(address) = event.address() {
            self.take_slot(&address, event)?;
        }
        let seq = self.insert(event)?;
        match event.kind {
            Kind::DELETION => self.delete_targets(event)?,
            Kind::VANISH => self.vanish(event, seq)?,
            _ => {}
        }
        Ok(StoreOutcome::Stored(seq))
    }

    /// Applies an event of the log again, under the number that it has.
    pub(crate) fn replay(&mut self, seq: Seq, event: &Event) -> Result<(), StoreError> {
        self.next_seq = seq.0;
        match self.apply(event)? {
            StoreOutcome::Stored(_) => Ok(()),
            // It expired, was swept, and came again: the sweep is not in the log.
            StoreOutcome::Duplicate => {
                self.next_seq = seq.0 + 1;
                self.kv.delete(Table::Events, &seq.0.to_be_bytes())
            }
            other => {
                let id = event.id;
                Err(StoreError::Damaged(format!(
                    "the log has {id}, which is now {other:?}"
                )))
            }
        }
    }

    /// Takes the slot from an older version.
    fn take_slot(&mut self, address: &Address, event: &Event) -> Result<(), StoreError> {
        let key = schema::slot_key(address);
        if let Some(bytes) = self.kv.get(Table::Slots, &key)? {
            let holder = Slot::from_bytes(bytes)?;
            self.discard_by_id(&holder.id)?;
        }
        self.kv.put(Table::Slots, &key, &Slot::of(event).to_bytes())
    }

    /// Also gives its slot back, if it has one: as if it had never come.
    pub(crate) fn forget(&mut self, id: &EventId) -> Result<(), StoreError> {
        let Some(seq) = self.seq_of(id)? else {
            return Ok(());
        };
        let bytes = self.kv.get(Table::Events, &seq.0.to_be_bytes())?;
        let event = bytes
            .map(|bytes| Record::decode(bytes)?.event())
            .transpose()?;
        if let Some(address) = event.and_then(|event| event.address()) {
            // Who is stored holds the slot.
            self.kv.delete(Table::Slots, &schema::slot_key(&address))?;
        }
        self.discard(id, seq)
    }

    pub(crate) fn hold(
        &mut self,
        event: &Event,
        until: Timestamp,
        remembered: bool,
    ) -> Result<(), StoreError> {
        let row = schema::held_row(event, until, remembered);
        self.kv.put(Table::Held, &event.id.0, &row)
    }

    pub(crate) fn unhold(&mut self, id: &EventId) -> Result<(), StoreError> {
        self.kv.delete(Table::Held, &id.0)
    }

    pub(crate) fn applied(
        &mut self,
        repo: &RepoId,
        rank: &Rank,
        since: Timestamp,
    ) -> Result<(), StoreError> {
        let (key, row) = (schema::applied_key(repo), schema::applied_row(rank, since));
        self.kv.put(Table::Applied, &key, &row)
    }

    pub(crate) fn hide(&mut self, id: &EventId) -> Result<(), StoreError> {
        match self.seq_of(id)? {
            Some(_) => self.kv.put(Table::Hidden, &id.0, &[]),
            None => Ok(()),
        }
    }

    pub(crate) fn show(&mut self, id: &EventId) -> Result<(), StoreError> {
        match self.kv.get(Table::Hidden, &id.0)? {
            Some(_) => self.kv.delete(Table::Hidden, &id.0),
            None => Ok(()),
        }
    }

    pub(crate) fn know_relay(&mut self, memory: &RelayMemory) -> Result<(), StoreError> {
        let row = schema::relay_row(memory)?;
        self.kv
            .put(Table::Relays, memory.url.key().as_bytes(), &row)
    }

    pub(crate) fn forget_relay(&mut self, url: &RelayUrl) -> Result<(), StoreError> {
        self.kv.delete(Table::Relays, url.key().as_bytes())
    }

    pub(crate) fn dismiss(&mut self, row: &Dismissed) -> Result<(), StoreError> {
        self.kv
            .put(Table::Dismissed, &row.id.0, &schema::dismissed_row(row))
    }

    pub(crate) fn recall(&mut self, id: &EventId) -> Result<(), StoreError> {
        self.kv.delete(Table::Dismissed, &id.0)
    }

    fn insert(&mut self, event: &Event) -> Result<Seq, StoreError> {
        let seq = Seq(self.next_seq);
        self.next_seq += 1;
        let seq_bytes = seq.0.to_be_bytes();
        self.kv
            .put(Table::Events, &seq_bytes, &Record::encode(event))?;
        let expiration = event.expiration();
        if let Some(at) = expiration {
            self.kv
                .put(Table::Expiry, &schema::expiry_key(at, seq), &[])?;
        }
        let value = IndexValue {
            seq,
            kind: event.kind,
            expires: expiration.is_some(),
            cases: Cases::default(),
        };
        let by_id = IdValue {
            index: value,
            created_at: event.created_at,
        };
        self.kv.put(Table::Ids, &event.id.0, &by_id.to_bytes())?;
        self.change_index(event, Some(value));
        Ok(seq)
    }

    fn seq_of(&self, id: &EventId) -> Result<Option<Seq>, StoreError> {
        let value = self.kv.get(Table::Ids, &id.0)?;
        Ok(value
            .map(IdValue::from_bytes)
            .transpose()?
            .map(|value| value.index.seq))
    }

    /// Deletions last: they are remembered also for events that are not here yet.
    fn delete_targets(&mut self, deletion: &Event) -> Result<(), StoreError> {
        for id in deletion
            .tag_values("e")
            .filter_map(|text| EventId::from_hex(text).ok())
        {
            self.delete_by_id(&id, &deletion.pubkey)?;
        }
        for address in deletion.tag_values("a").filter_map(Address::parse) {
            if address.pubkey == deletion.pubkey {
                self.delete_by_address(&address, deletion.created_at)?;
            }
        }
        Ok(())
    }

    fn delete_by_id(&mut self, id: &EventId, author: &Pubkey) -> Result<(), StoreError> {
        self.kv
            .put(Table::DeletedIds, &schema::deleted_key(id, author), &[])?;
        let Some(seq) = self.seq_of(id)? else {
            return Ok(());
        };
        let record = self.kv.get(Table::Events, &seq.0.to_be_bytes())?;
        match record.map(schema::read_header).transpose()? {
            Some((kind, writer)) if writer == *author && !is_permanent(kind) => {
                self.discard(id, seq)
            }
            _ => Ok(()),
        }
    }

    fn delete_by_address(&mut self, address: &Address, until: Timestamp) -> Result<(), StoreError> {
        let key = schema::slot_key(address);
        let known = self.kv.get(Table::DeletedSlots, &key)?;
        let known = known.map(schema::read_u64).transpose()?.unwrap_or(0);
        let latest = known.max(until.0);
        self.kv
            .put(Table::DeletedSlots, &key, &latest.to_be_bytes())?;
        let holder = self.kv.get(Table::Slots, &key)?;
        match holder.map(Slot::from_bytes).transpose()? {
            Some(holder) if holder.created_at <= until => self.discard_by_id(&holder.id),
            _ => Ok(()),
        }
    }

    /// How many rows it has.
    fn change_index(&mut self, event: &Event, value: Option<IndexValue>) -> usize {
        let change = |(table, key, cases)| IndexChange {
            table,
            key,
            value: value.map(|value| IndexValue { cases, ..value }.to_bytes()),
        };
        let keys = schema::index_keys(event);
        let rows = keys.len();
        self.index.extend(keys.into_iter().map(change));
        rows
    }

    fn flush_index(&mut self) -> Result<(), StoreError> {
        let changes = self.sorted_index();
        self.kv.change(changes)
    }

    /// Stable: of two changes to one key the later one stands.
    fn sorted_index(&mut self) -> Vec<IndexChange> {
        let mut changes = std::mem::take(&mut self.index);
        changes.sort_by(|a, b| (a.table, &a.key).cmp(&(b.table, &b.key)));
        changes
    }
}

/// What an event would be answered, if not that it is stored.
pub(crate) fn foresee(kv: &impl Read, event: &Event) -> Result<Option<StoreOutcome>, StoreError> {
    Ok(if gone::stored(kv, &event.id)?.is_some() {
        Some(StoreOutcome::Duplicate)
    } else if has_vanished(kv, event)? {
        Some(StoreOutcome::Vanished)
    } else if is_deleted(kv, event)? {
        Some(StoreOutcome::Deleted)
    } else if is_replaced(kv, event)? {
        Some(StoreOutcome::Replaced)
    } else {
        None
    })
}

/// Written by somebody who has vanished, or wrapped for such a one.
fn has_vanished(kv: &impl Read, event: &Event) -> Result<bool, StoreError> {
    let wrapped_for = event
        .tag_values("p")
        .filter_map(|text| Pubkey::from_hex(text).ok());
    let recipients = wrapped_for.filter(|_| event.kind == Kind::GIFT_WRAP);
    for key in std::iter::once(event.pubkey).chain(recipients) {
        let until = kv.get(Table::Vanished, &key.0)?;
        if let Some(until) = until
            && schema::read_u64(until)? >= event.created_at.0
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_deleted(kv: &impl Read, event: &Event) -> Result<bool, StoreError> {
    if is_permanent(event.kind) {
        return Ok(false);
    }
    let by_id = schema::deleted_key(&event.id, &event.pubkey);
    if kv.get(Table::DeletedIds, &by_id)?.is_some() {
        return Ok(true);
    }
    let Some(address) = event.address() else {
        return Ok(false);
    };
    let until = kv.get(Table::DeletedSlots, &schema::slot_key(&address))?;
    until.map_or(Ok(false), |until| {
        Ok(schema::read_u64(until)? >= event.created_at.0)
    })
}

/// Another version of the same slot stands, or stood.
fn is_replaced(kv: &impl Read, event: &Event) -> Result<bool, StoreError> {
    let Some(address) = event.address() else {
        return Ok(false);
    };
    let holder = kv.get(Table::Slots, &schema::slot_key(&address))?;
    holder.map_or(Ok(false), |holder| {
        Ok(!Slot::of(event).beats(&Slot::from_bytes(holder)?))
    })
}

pub(crate) fn next_seq(kv: &impl Read) -> Result<u64, StoreError> {
    number(kv, schema::META_NEXT_SEQ)
}

/// A number in `Meta`; zero before it was ever written.
pub(crate) fn number(kv: &impl Read, name: &[u8]) -> Result<u64, StoreError> {
    kv.get(Table::Meta, name)?.map_or(Ok(0), schema::read_u64)
}

/// A deletion cannot be deleted, nor can a request to vanish.
fn is_permanent(kind: Kind) -> bool {
    matches!(kind, Kind::DELETION | Kind::VANISH)
}
