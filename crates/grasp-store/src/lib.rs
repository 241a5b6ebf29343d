//! The event store: what a relay keeps, and how it is found again.
//!
//! Events are kept as the JSON in which they are sent, under a local number ([`Seq`]) that
//! grows with every commit. Indexes answer every filter newest first. One writer, batched
//! commits; readers see the last commit. LMDB on disk by default, the same tables in memory for
//! closed tests. Nothing here knows sockets or git.

mod audit;
mod backup;
mod disk;
mod error;
mod facts;
mod gone;
mod kv;
mod query;
mod relations;
mod schema;
mod tags;
mod write;

use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};

use grasp_core::{Change, Event, EventId, Seq, StoreOutcome, Timestamp};

pub use crate::audit::{Stored, StoredRecord};
pub use crate::backup::{Backup, BackupSummary, restore};
pub use crate::disk::TailLimits;
use crate::disk::{Disk, Snapshot};
pub use crate::error::StoreError;
use crate::gone::Gone;
use crate::kv::memory::Memory;
use crate::kv::{Read, Table};
pub use crate::query::{Budget, Completeness, Found, Progress, Query, Want};
pub use crate::relations::Completed;
use crate::write::Batch;
pub use crate::write::{RemovalLimits, Swept};

#[derive(Debug)]
pub struct Store {
    backend: Backend,
    removal: RemovalLimits,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a process has one")]
enum Backend {
    Disk(Disk),
    /// Beside a running server, as of one moment.
    Snapshot(Mutex<Snapshot>),
    Memory(RwLock<Memory>),
}

/// How large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Of an author who vanishes, events count until the sweep has come by them.
    pub events: u64,
    /// Events that are gone, whose rows a sweep has yet to remove.
    pub garbage: u64,
    /// Authors who vanish and of whom a sweep has not seen everything yet.
    pub vanishing: usize,
    /// Rows in memory that wait for their place in the indexes.
    pub tail_rows: usize,
    pub disk_bytes: u64,
}

/// Runs a piece of code on a consistent view of any backend.
macro_rules! reading {
    ($store:expr, |$kv:ident| $body:expr) => {
        match &$store.backend {
            Backend::Disk(disk) => {
                let view = disk.read()?;
                let $kv = &view.tables();
                $body
            }
            Backend::Snapshot(snapshot) => {
                let view = snapshot.lock().unwrap_or_else(PoisonError::into_inner);
                let $kv = &view.tables();
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

pub(crate) use reading;

/// Runs a piece of code that changes any backend; on an error nothing has happened.
macro_rules! writing {
    ($store:expr, |$batch:ident| $body:expr) => {
        match &$store.backend {
            Backend::Disk(disk) => disk.write(|kv| {
                let mut $batch = Batch::begin(kv, $store.removal)?;
                let result = $body;
                $batch.finish()?;
                Ok(result)
            }),
            Backend::Snapshot(_) => Err(StoreError::ReadOnly),
            Backend::Memory(memory) => {
                let mut view = memory.write().unwrap_or_else(PoisonError::into_inner);
                let mut $batch = Batch::begin(&mut *view, $store.removal)?;
                let result = $body;
                $batch.finish()?;
                Ok(result)
            }
        }
    };
}

impl Store {
    /// Opens or creates the store in a directory that no other process writes.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, TailLimits::default())
    }

    pub fn open_with(path: &Path, tail: TailLimits) -> Result<Self, StoreError> {
        Self::open_limited(path, tail, RemovalLimits::default())
    }

    pub fn open_limited(
        path: &Path,
        tail: TailLimits,
        removal: RemovalLimits,
    ) -> Result<Self, StoreError> {
        Self::open_telling(path, tail, removal, &mut |_| {})
    }

    /// Tells how far it is, when a store of an older version must be completed first: about a minute
    /// for a million events. Whatever ends it, the next start goes on from there.
    pub fn open_telling(
        path: &Path,
        tail: TailLimits,
        removal: RemovalLimits,
        tell: &mut dyn FnMut(Completed),
    ) -> Result<Self, StoreError> {
        Ok(Self {
            backend: Backend::Disk(Disk::open(path, tail, removal, tell)?),
            removal,
        })
    }

    /// Reads beside a running server what is there at this moment.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let snapshot = Snapshot::open(path)?;
        Ok(Self {
            backend: Backend::Snapshot(Mutex::new(snapshot)),
            removal: RemovalLimits::default(),
        })
    }

    pub fn in_memory() -> Self {
        Self::in_memory_limited(RemovalLimits::default())
    }

    pub fn in_memory_limited(removal: RemovalLimits) -> Self {
        Self {
            backend: Backend::Memory(RwLock::default()),
            removal,
        }
    }

    /// Applies events in order, in one commit. When this returns, they are on disk.
    pub fn apply<'e>(
        &self,
        events: impl IntoIterator<Item = &'e Event>,
    ) -> Result<Vec<StoreOutcome>, StoreError> {
        let mut events = events.into_iter();
        writing!(self, |batch| {
            let outcomes: Result<Vec<_>, _> =
                events.by_ref().map(|event| batch.apply(event)).collect();
            outcomes?
        })
    }

    /// Applies groups of changes in order, in one commit: either all are on disk, or none. The
    /// words on the stored events of each group.
    pub fn commit<'c>(
        &self,
        groups: impl IntoIterator<Item = &'c [Change]>,
    ) -> Result<Vec<Vec<StoreOutcome>>, StoreError> {
        let mut groups = groups.into_iter();
        writing!(self, |batch| {
            let mut words = Vec::new();
            for group in groups.by_ref() {
                let mut outcomes = Vec::new();
                for change in group {
                    match change {
                        Change::Store(event) => outcomes.push(batch.apply(event)?),
                        Change::Hold {
                            event,
                            until,
                            remembered,
                        } => batch.hold(event, *until, *remembered)?,
                        Change::Unhold(id) => batch.unhold(id)?,
                        Change::Applied { repo, rank, since } => {
                            batch.applied(repo, rank, *since)?
                        }
                        Change::Hide(id) => batch.hide(id)?,
                        Change::Show(id) => batch.show(id)?,
                        Change::Relay(memory) => batch.know_relay(memory)?,
                        Change::ForgetRelay(url) => batch.forget_relay(url)?,
                        Change::Dismiss(row) => batch.dismiss(row)?,
                        Change::Recall(id) => batch.recall(id)?,
                    }
                }
                words.push(outcomes);
            }
            words
        })
    }

    /// Removes events as if they had never come: nothing remembers them, and nothing keeps them
    /// from coming again.
    pub fn remove(&self, ids: &[EventId]) -> Result<(), StoreError> {
        let mut ids = ids.iter();
        writing!(self, |batch| {
            ids.by_ref().try_for_each(|id| batch.forget(id))?
        })?;
        match &self.backend {
            Backend::Disk(disk) => disk.tidy(),
            Backend::Snapshot(_) | Backend::Memory(_) => Ok(()),
        }
    }

    /// Gives back the space of at most `max` events that expired up to `until`, and of those that
    /// were deleted or replaced, a bounded number of rows at a time.
    pub fn sweep(&self, until: Timestamp, max: usize) -> Result<Swept, StoreError> {
        let swept = if self.has_garbage()? || self.has_expired(until)? {
            writing!(self, |batch| batch.sweep(until, max)?)?
        } else {
            Swept::default()
        };
        if let Backend::Disk(disk) = &self.backend {
            disk.tidy()?;
        }
        Ok(swept)
    }

    pub fn contains(&self, id: &EventId) -> Result<bool, StoreError> {
        reading!(self, |kv| Ok(gone::stored(kv, id)?.is_some()))
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
        let vanishing = reading!(self, |kv| {
            kv.rows(Table::VanishJobs, std::ops::Bound::Unbounded)?
                .count()
        });
        let stats = self.size()?;
        Ok(Stats { vanishing, ..stats })
    }

    fn size(&self) -> Result<Stats, StoreError> {
        match &self.backend {
            Backend::Disk(disk) => disk.stats(),
            Backend::Snapshot(snapshot) => {
                let snapshot = snapshot.lock().unwrap_or_else(PoisonError::into_inner);
                snapshot.stats()
            }
            Backend::Memory(memory) => {
                let memory = memory.read().unwrap_or_else(PoisonError::into_inner);
                Ok(Stats {
                    events: memory.len(Table::Ids),
                    garbage: memory.len(Table::Garbage),
                    vanishing: 0,
                    tail_rows: 0,
                    disk_bytes: 0,
                })
            }
        }
    }

    /// Events that wait for their git data.
    pub fn held(&self) -> Result<u64, StoreError> {
        let mut held = 0;
        self.each_held(|_, remembered| held += u64::from(!remembered))?;
        Ok(held)
    }

    fn has_garbage(&self) -> Result<bool, StoreError> {
        reading!(self, |kv| Ok(!Gone::look(kv)?.is_nothing()))
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
