//! Every stored event as it lies on disk, for whoever wants to prove that it is still what was
//! stored: records have no checksum but the signature of their author.

use std::ops::Bound;
use std::sync::PoisonError;

use grasp_core::{EventId, Kind, Pubkey};

use crate::error::StoreError;
use crate::gone::Gone;
use crate::kv::{Read, Table};
use crate::schema::{self, IndexValue, Place, Record};
use crate::{Backend, Store, reading};

/// Rows that are looked at before others get their turn.
const PAGE: usize = 256;

/// An event as the index knows it, and what its record says.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    pub id: EventId,
    pub kind: Kind,
    /// `None` where there is no record, or none that can be read.
    pub record: Option<StoredRecord<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub struct StoredRecord<'a> {
    /// What queries go by.
    pub kind: Kind,
    pub author: Pubkey,
    pub json: &'a str,
}

impl Store {
    /// Visits every event that is served or hidden for want of git data, the newest first. Nothing
    /// is parsed. Whoever visits must not ask the store.
    pub fn each_stored(&self, mut visit: impl FnMut(Stored<'_>)) -> Result<(), StoreError> {
        let mut last = None;
        loop {
            last = reading!(self, |kv| page(kv, last, &mut visit))?;
            if last.is_none() {
                return Ok(());
            }
        }
    }
}

/// Where the next page begins.
fn page(
    kv: &impl Read,
    after: Option<Place>,
    visit: &mut impl FnMut(Stored<'_>),
) -> Result<Option<Place>, StoreError> {
    let gone = Gone::look(kv)?;
    let from = match &after {
        Some(place) => Bound::Excluded(&place.0[..]),
        None => Bound::Unbounded,
    };
    for (n, row) in kv.rows(Table::ByTime, from)?.enumerate() {
        let (key, value) = row?;
        let (place, value) = (Place::of_key(key)?, IndexValue::from_bytes(value)?);
        if !gone.hides(kv, &place, &value)? {
            let bytes = kv.get(Table::Events, &value.seq.0.to_be_bytes())?;
            visit(Stored {
                id: place.id(),
                kind: value.kind,
                record: bytes.and_then(read),
            });
        }
        if n + 1 == PAGE {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

fn read(bytes: &[u8]) -> Option<StoredRecord<'_>> {
    let (kind, author) = schema::read_header(bytes).ok()?;
    let json = Record::decode(bytes).ok()?.json().ok()?;
    Some(StoredRecord { kind, author, json })
}
