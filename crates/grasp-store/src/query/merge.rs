//! Many cursors of one index, read as one in the common order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Bound;

use crate::error::StoreError;
use crate::kv::{Read, Table};
use crate::schema::{IndexValue, Place};

pub(super) enum Rows<'r, R: Read + 'r> {
    Listed(std::slice::Iter<'r, (Place, IndexValue)>),
    Merged(Merge<'r, R>),
}

pub(super) struct Merge<'r, R: Read + 'r> {
    cursors: Vec<Cursor<'r, R>>,
    /// The next row of every cursor that has one.
    heads: BinaryHeap<Reverse<(Place, usize, IndexValue)>>,
}

struct Cursor<'r, R: Read + 'r> {
    prefix: &'r [u8],
    rows: R::Rows<'r>,
}

impl<'r, R: Read> Rows<'r, R> {
    pub(super) fn merged(
        kv: &'r R,
        table: Table,
        prefixes: &'r [Box<[u8]>],
        start: Bound<Vec<u8>>,
    ) -> Result<Self, StoreError> {
        let mut merge = Merge {
            cursors: Vec::with_capacity(prefixes.len()),
            heads: BinaryHeap::with_capacity(prefixes.len()),
        };
        let mut key = Vec::new();
        for prefix in prefixes {
            let (Bound::Included(tail) | Bound::Excluded(tail)) = &start else {
                continue;
            };
            key.clear();
            key.extend_from_slice(prefix);
            key.extend_from_slice(tail);
            let from = match start {
                Bound::Excluded(_) => Bound::Excluded(&*key),
                _ => Bound::Included(&*key),
            };
            let rows = kv.rows(table, from)?;
            merge.cursors.push(Cursor { prefix, rows });
            merge.refill(merge.cursors.len() - 1)?;
        }
        Ok(Rows::Merged(merge))
    }

    pub(super) fn next(&mut self) -> Result<Option<(Place, IndexValue)>, StoreError> {
        match self {
            Rows::Listed(rows) => Ok(rows.next().copied()),
            Rows::Merged(merge) => merge.next(),
        }
    }
}

impl<R: Read> Rows<'_, R> {
    pub(super) fn next_place(&self) -> Option<Place> {
        match self {
            Rows::Listed(rows) => rows.as_slice().first().map(|(place, _)| *place),
            Rows::Merged(merge) => merge.heads.peek().map(|Reverse((place, ..))| *place),
        }
    }
}

impl<R: Read> Merge<'_, R> {
    fn next(&mut self) -> Result<Option<(Place, IndexValue)>, StoreError> {
        let Some(Reverse((place, cursor, value))) = self.heads.pop() else {
            return Ok(None);
        };
        self.refill(cursor)?;
        Ok(Some((place, value)))
    }

    fn refill(&mut self, index: usize) -> Result<(), StoreError> {
        let Some(cursor) = self.cursors.get_mut(index) else {
            return Ok(());
        };
        let Some(row) = cursor.rows.next() else {
            return Ok(());
        };
        let (key, value) = row?;
        if key.starts_with(cursor.prefix) {
            let head = (Place::of_key(key)?, index, IndexValue::from_bytes(value)?);
            self.heads.push(Reverse(head));
        }
        Ok(())
    }
}
