//! The event store: what a relay keeps, and how it is found again.
//!
//! Events are kept as the JSON in which they are sent, under a local number ([`Seq`]) that
//! grows with every commit. Indexes answer every filter newest first. One writer, batched
//! commits; readers see the last commit and never wait. LMDB on disk by default, the same
//! tables in memory for closed tests. Nothing here knows sockets or git.

mod backup;
mod error;
mod kv;
mod query;
mod schema;
mod write;

use std::path::Path;
use std::sync::{PoisonError, RwLock};

use grasp_core::{Event, EventId, Seq, StoreOutcome, Timestamp};

pub use crate::backup::{BackupSummary, restore};
pub use crate::error::StoreError;
use crate::kv::lmdb::Lmdb;
use crate::kv::memory::Memory;
use crate::kv::{Read, Table};
pub use crate::query::{Budget, Completeness, Found, Progress, Query, Want};
use crate::write::Batch;
pub use crate::write::Swept;

#[derive(Debug)]
pub struct Store {
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    Lmdb(Lmdb),
    Memory(RwLock<Memory>),
}

/// How large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    pub events: u64,
    pub disk_bytes: u64,
}

/// Runs a piece of code on a consistent view of either backend.
macro_rules! reading {
    ($store:expr, |$kv:ident| $body:expr) => {
        match &$store.backend {
            Backend::Lmdb(lmdb) => {
                let view = lmdb.read()?;
                let $kv = &view;
                $body
            }
            Backend::Memory(memory) => {
                let view = memory.read().unwrap_or_else(PoisonError::into_inner);
                let $kv = &*view;
                $body
            }
        }
    };
}

/// Runs a piece of code on either backend and commits; on an error nothing has happened.
macro_rules! writing {
    ($store:expr, |$kv:ident| $body:expr) => {
        match &$store.backend {
            Backend::Lmdb(lmdb) => {
                let mut view = lmdb.write()?;
                let $kv = &mut view;
                let result = $body;
                view.commit()?;
                result
            }
            Backend::Memory(memory) => {
                let mut view = memory.write().unwrap_or_else(PoisonError::into_inner);
                let $kv = &mut *view;
                $body
            }
        }
    };
}

impl Store {
    /// Opens or creates the store in a directory that no other process writes.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self::on(Lmdb::open(path)?))
    }

    /// Reads beside a running server.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        Ok(Self::on(Lmdb::open_read_only(path)?))
    }

    pub fn in_memory() -> Self {
        Self {
            backend: Backend::Memory(RwLock::default()),
        }
    }

    fn on(lmdb: Lmdb) -> Self {
        Self {
            backend: Backend::Lmdb(lmdb),
        }
    }

    /// Applies events in order, in one commit. When this returns, they are on disk.
    pub fn apply<'e>(
        &self,
        events: impl IntoIterator<Item = &'e Event>,
    ) -> Result<Vec<StoreOutcome>, StoreError> {
        writing!(self, |kv| {
            let mut batch = Batch::begin(kv)?;
            let outcomes: Result<Vec<_>, _> =
                events.into_iter().map(|event| batch.apply(event)).collect();
            let outcomes = outcomes?;
            batch.finish()?;
            Ok(outcomes)
        })
    }

    /// Gives back the space of at most `max` events that expired up to `until`.
    pub fn sweep(&self, until: Timestamp, max: usize) -> Result<Swept, StoreError> {
        if !self.has_expired(until)? {
            return Ok(Swept {
                removed: 0,
                more: false,
            });
        }
        writing!(self, |kv| {
            let mut batch = Batch::begin(kv)?;
            let swept = batch.sweep(until, max)?;
            batch.finish()?;
            Ok(swept)
        })
    }

    pub fn contains(&self, id: &EventId) -> Result<bool, StoreError> {
        reading!(self, |kv| Ok(kv.get(Table::Ids, &id.0)?.is_some()))
    }

    /// One slice of a query; call again while it says [`Progress::More`].
    pub fn advance(
        &self,
        query: &mut Query,
        budget: Budget,
        now: Timestamp,
        mut visit: impl FnMut(Found<'_>),
    ) -> Result<Progress, StoreError> {
        reading!(self, |kv| query.advance(kv, budget, now, &mut visit))
    }

    /// Every event committed so far has a lower one.
    pub fn next_seq(&self) -> Result<Seq, StoreError> {
        reading!(self, |kv| Ok(Seq(write::next_seq(kv)?)))
    }

    pub fn stats(&self) -> Result<Stats, StoreError> {
        let events = reading!(self, |kv| kv.len(Table::Ids)?);
        let disk_bytes = match &self.backend {
            Backend::Lmdb(lmdb) => lmdb.disk_bytes()?,
            Backend::Memory(_) => 0,
        };
        Ok(Stats { events, disk_bytes })
    }

    fn has_expired(&self, until: Timestamp) -> Result<bool, StoreError> {
        reading!(self, |kv| {
            let first = kv.rows(Table::Expiry, std::ops::Bound::Unbounded)?.next();
            let Some((key, _)) = first.transpose()? else {
                return Ok(false);
            };
            let at = key.get(..8).unwrap_or_default();
            Ok(schema::read_u64(at)? <= until.0)
        })
    }
}
