//! Ordered tables of bytes, on disk or in memory. Everything above is written once for both.

pub(crate) mod layer;
pub(crate) mod lmdb;
pub(crate) mod memory;
pub(crate) mod runs;

use std::ops::Bound;

use crate::error::StoreError;
use crate::schema::IndexValue;

/// Key layouts are in `schema`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    /// seq → header and JSON.
    Events,
    /// id → seq, kind and time.
    Ids,
    ByTime,
    ByKind,
    ByAuthorKind,
    ByTag,
    /// address → the winner's time and id, kept when the winner itself is gone.
    Slots,
    /// id and author → deleted by that author.
    DeletedIds,
    /// address → deleted up to that time.
    DeletedSlots,
    /// author → vanished up to that time.
    Vanished,
    /// expiration and seq.
    Expiry,
    Meta,
    /// id → until when, remembered or not, JSON: events that no reader sees.
    Held,
    /// owner and identifier → time and id of the state that the repository has.
    Applied,
    /// id → events whose git data is gone: stored, and seen by no reader.
    Hidden,
    /// key of its address → JSON of what is known of another relay.
    Relays,
    /// id → events that came and were not taken.
    Dismissed,
    /// seq → events that are gone, whose record and index rows a sweep has yet to remove.
    Garbage,
    /// author → how far the sweep is with what a vanished author wrote.
    VanishJobs,
    /// What is named through `a`, `e` or `q`, the kind of what names it, time and id: relations
    /// that prove something, and none of those that anybody may claim.
    ByTarget,
    /// id and one thing that a pull request says of git: its tip, its root, a repository.
    PullRequests,
}

impl Table {
    /// Cannot be made again from the log: its changes are written with the commit itself.
    pub(crate) fn is_direct(self) -> bool {
        use Table::{Applied, Dismissed, Held, Hidden, Relays};
        matches!(self, Held | Applied | Hidden | Relays | Dismissed)
    }

    pub(crate) const ALL: [(Table, &'static str); 21] = [
        (Table::Events, "events"),
        (Table::Ids, "ids"),
        (Table::ByTime, "by-time"),
        (Table::ByKind, "by-kind"),
        (Table::ByAuthorKind, "by-author-kind"),
        (Table::ByTag, "by-tag"),
        (Table::Slots, "slots"),
        (Table::DeletedIds, "deleted-ids"),
        (Table::DeletedSlots, "deleted-slots"),
        (Table::Vanished, "vanished"),
        (Table::Expiry, "expiry"),
        (Table::Meta, "meta"),
        (Table::Held, "held"),
        (Table::Applied, "applied"),
        (Table::Hidden, "hidden"),
        (Table::Relays, "relays"),
        (Table::Dismissed, "dismissed"),
        (Table::Garbage, "garbage"),
        (Table::VanishJobs, "vanish-jobs"),
        (Table::ByTarget, "by-target"),
        (Table::PullRequests, "pull-requests"),
    ];
}

/// One consistent view.
pub(crate) trait Read {
    type Rows<'a>: Iterator<Item = Result<(&'a [u8], &'a [u8]), StoreError>>
    where
        Self: 'a;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, StoreError>;

    /// Rows in key order from there to the end of the table.
    fn rows(&self, table: Table, from: Bound<&[u8]>) -> Result<Self::Rows<'_>, StoreError>;
}

/// A view that is being changed; it sees its own changes.
pub(crate) trait Write: Read {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError>;
    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StoreError>;

    /// The last changes of a batch, in key order; nothing is read after them.
    fn finish(&mut self, changes: Vec<IndexChange>) -> Result<(), StoreError> {
        self.change(changes)
    }

    fn change(&mut self, changes: Vec<IndexChange>) -> Result<(), StoreError> {
        for change in changes {
            match change.value {
                Some(value) => self.put(change.table, &change.key, &value)?,
                None => self.delete(change.table, &change.key)?,
            }
        }
        Ok(())
    }
}

/// A row of an index that comes, or goes.
#[derive(Debug)]
pub(crate) struct IndexChange {
    pub(crate) table: Table,
    pub(crate) key: Box<[u8]>,
    pub(crate) value: Option<[u8; IndexValue::LEN]>,
}
