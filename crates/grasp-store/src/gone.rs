//! What is gone for every reader although its rows are still there: removing all rows of what one
//! request deletes could take minutes, hiding it takes one row.

use std::ops::Bound;

use grasp_core::{EventId, Kind};

use crate::error::StoreError;
use crate::kv::{Read, Table};
use crate::schema::{self, Cases, IdValue, IndexValue, Place, VanishJob};

/// Whether there is anything to hide: most of the time there is not, and nobody pays for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gone {
    garbage: bool,
    vanishing: bool,
}

impl Gone {
    pub(crate) fn look(kv: &impl Read) -> Result<Self, StoreError> {
        Ok(Self {
            garbage: has_rows(kv, Table::Garbage)?,
            vanishing: has_rows(kv, Table::VanishJobs)?,
        })
    }

    pub(crate) fn is_nothing(self) -> bool {
        !self.garbage && !self.vanishing
    }

    /// The event of an index row is gone.
    pub(crate) fn hides(
        self,
        kv: &impl Read,
        place: &Place,
        value: &IndexValue,
    ) -> Result<bool, StoreError> {
        let seq = value.seq.0.to_be_bytes();
        if self.garbage && kv.get(Table::Garbage, &seq)?.is_some() {
            return Ok(true);
        }
        Ok(self.vanishing && has_vanished(kv, place, value)?)
    }
}

/// The event of that id, if it is stored and not gone.
pub(crate) fn stored(kv: &impl Read, id: &EventId) -> Result<Option<IdValue>, StoreError> {
    let value = kv.get(Table::Ids, &id.0)?;
    let Some(value) = value.map(IdValue::from_bytes).transpose()? else {
        return Ok(None);
    };
    let place = Place::new(value.created_at, id);
    // Garbage has no row in `Ids` any more.
    let gone = has_rows(kv, Table::VanishJobs)? && has_vanished(kv, &place, &value.index)?;
    Ok((!gone).then_some(value))
}

/// Its author has vanished, or the one to whom it was sent, and the sweep has not come by yet.
fn has_vanished(kv: &impl Read, place: &Place, value: &IndexValue) -> Result<bool, StoreError> {
    let covers = |job: &[u8]| VanishJob::row_covers(job, place.created_at(), value.seq);
    let Some(record) = kv.get(Table::Events, &value.seq.0.to_be_bytes())? else {
        return Ok(false);
    };
    let (_, author) = schema::read_header(record)?;
    if let Some(job) = kv.get(Table::VanishJobs, &author.0)?
        && covers(job)?
    {
        return Ok(true);
    }
    if value.kind != Kind::GIFT_WRAP {
        return Ok(false);
    }
    for row in kv.rows(Table::VanishJobs, Bound::Unbounded)? {
        let (author, job) = row?;
        if covers(job)? && is_addressed_to(kv, author, place)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A look into the index instead of into the event.
fn is_addressed_to(kv: &impl Read, author: &[u8], place: &Place) -> Result<bool, StoreError> {
    let prefix = schema::tag_prefix(b'p', &grasp_core::id::to_hex(author));
    let row = kv.get(Table::ByTag, &[&prefix[..], &place.0].concat())?;
    let value = row.map(IndexValue::from_bytes).transpose()?;
    Ok(value.is_some_and(|value| value.cases.has(Cases::of(b'p'))))
}

pub(crate) fn has_rows(kv: &impl Read, table: Table) -> Result<bool, StoreError> {
    let first = kv.rows(table, Bound::Unbounded)?.next();
    Ok(first.transpose()?.is_some())
}
