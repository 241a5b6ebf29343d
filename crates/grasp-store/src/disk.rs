//! The store on disk: a log that every commit appends to, and indexes that follow it.
//!
//! Index rows lie scattered over the whole file; writing them with every commit would cost a page
//! each. So a commit makes only the events themselves durable, one after the other, and keeps
//! what they change in the *tail*, in memory. When the tail has grown it goes into the indexes in
//! one sorted sweep. What a crash takes of the tail is made again from the log, by the same rules
//! in the same order.
//!
//! A version of the tail never changes: readers keep the one that they began with, for as long as
//! they like, and a commit puts another in its place. Nobody waits for a reader.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use grasp_core::Seq;

use crate::Stats;
use crate::error::StoreError;
use crate::kv::layer::{Layer, Layered, Staged, Staging};
use crate::kv::lmdb::{Lmdb, LmdbRead, LmdbWrite};
use crate::kv::runs::Runs;
use crate::kv::{Read, Table, Write};
use crate::relations::{self, Completed};
use crate::schema::{self, Record};
use crate::write::{Batch, RemovalLimits, next_seq, number};

/// When the tail goes into the indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailLimits {
    /// 16,384 events x 11 rows x 110 bytes = 20 MB, twice that while they are merged, and 0.4 s to
    /// make again; the sweep into the indexes of a large store dirties some 40,000 pages = 160 MB
    /// for a moment.
    pub events: u64,
    /// For events of many tags and for authors who vanish: 200,000 x 110 bytes = 22 MB, twice that
    /// while they are merged.
    pub rows: usize,
    /// Records that a start after a crash must read again.
    pub bytes: usize,
}

impl Default for TailLimits {
    fn default() -> Self {
        Self {
            events: 16_384,
            rows: 200_000,
            bytes: 64 * 1024 * 1024,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Disk {
    lmdb: Lmdb,
    /// Locked to take the pointer or to put another in its place, never while anything is read.
    tail: RwLock<Arc<Tail>>,
    limits: TailLimits,
    /// One batch after the other.
    writing: Mutex<()>,
}

/// What the log has and the indexes have not.
#[derive(Debug, Clone, Default)]
struct Tail {
    runs: Runs,
    first: u64,
    next: u64,
    /// Stored events, those in the indexes included.
    events: u64,
    /// Events that are gone, but for their rows.
    garbage: u64,
    /// Size of the records between.
    bytes: usize,
    removes: bool,
}

impl Disk {
    pub(crate) fn open(
        path: &Path,
        limits: TailLimits,
        removal: RemovalLimits,
        tell: &mut dyn FnMut(Completed),
    ) -> Result<Self, StoreError> {
        let lmdb = Lmdb::open(path)?;
        relations::complete(&lmdb, tell)?;
        let tail = Tail::from_log(&lmdb.read()?, removal)?;
        Ok(Self {
            lmdb,
            tail: RwLock::new(Arc::new(tail)),
            limits,
            writing: Mutex::default(),
        })
    }

    /// A consistent view: the tail first, then the tables. Whatever leaves the tail is in the
    /// tables before, and the tail stays in its place until the tables are taken: else a commit
    /// and a sweep into the indexes between them could take away what the tail still names.
    pub(crate) fn read(&self) -> Result<View<'_>, StoreError> {
        let current = self.tail.read().unwrap_or_else(PoisonError::into_inner);
        let tail = Arc::clone(&current);
        let tables = self.lmdb.read()?;
        drop(current);
        Ok(View { tail, tables })
    }

    fn tail(&self) -> Arc<Tail> {
        let current = self.tail.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }

    fn publish(&self, tail: Tail) {
        let mut current = self.tail.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, Arc::new(tail));
        drop(current);
        // Whatever no reader has any more is given back when nobody waits for it.
        drop(before);
    }

    /// Makes a change durable and then visible.
    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&mut Staging<'_, Layered<'_, LmdbWrite<'_>>>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let writer = self.writer();
        // A tail that could not be brought in must not grow: refuse before anything is logged.
        if self.is_full() {
            self.flush(&writer)?;
        }
        let mut txn = self.lmdb.write()?;
        let mut tail = Tail::clone(&self.tail());
        let (result, mut staged) = {
            let tables = Layered {
                below: &txn,
                runs: &tail.runs,
            };
            let mut staging = Staging::over(&tables);
            let result = change(&mut staging)?;
            (result, staging.staged)
        };
        let direct = staged.layer.take_direct();
        // A sweep logs nothing; its transaction must end all the same, for the next to begin.
        if staged.log.is_empty() && direct.is_empty() {
            drop(txn);
        } else {
            append(&mut txn, &staged)?;
            for (table, key, change) in direct {
                match change {
                    Some(value) => txn.put(table, &key, &value)?,
                    None => txn.delete(table, &key)?,
                }
            }
            txn.commit()?;
        }
        tail.absorb(staged)?;
        self.publish(tail);
        // The events are durable and visible: whatever happens now, they are stored.
        if self.is_full() {
            self.try_flush(&writer);
        }
        Ok(result)
    }

    fn is_full(&self) -> bool {
        self.tail().exceeds(&self.limits)
    }

    /// The next write tries again and says what is wrong.
    fn try_flush(&self, writer: &MutexGuard<'_, ()>) {
        let _ = self.flush(writer);
    }

    /// Brings the tail into the indexes.
    fn flush(&self, _writer: &MutexGuard<'_, ()>) -> Result<(), StoreError> {
        let tail = self.tail();
        if tail.is_clean() {
            return Ok(());
        }
        let mut txn = self.lmdb.write()?;
        for (table, key, change) in tail.runs.changes() {
            match change {
                Some(value) => txn.put(table, key, value)?,
                None => txn.delete(table, key)?,
            }
        }
        txn.put(Table::Meta, schema::META_INDEXED, &tail.next.to_be_bytes())?;
        txn.put(Table::Meta, schema::META_RELATED, &tail.next.to_be_bytes())?;
        txn.commit()?;
        self.publish(Tail::empty(tail.next, tail.events, tail.garbage));
        Ok(())
    }

    /// What was deleted shall leave the disk too, not only the sight of readers; and pages that a
    /// killed reader pinned shall come free.
    pub(crate) fn tidy(&self) -> Result<(), StoreError> {
        self.lmdb.clear_stale_readers()?;
        let writer = self.writer();
        if self.tail().removes {
            self.flush(&writer)
        } else {
            Ok(())
        }
    }

    fn writer(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stats(&self) -> Result<Stats, StoreError> {
        stats(&self.lmdb, &self.tail())
    }

    pub(crate) fn copy_to(&self, file: &mut File) -> Result<(), StoreError> {
        self.lmdb.copy_to(file)
    }
}

impl Drop for Disk {
    /// A tail that is in the indexes need not be made again at the next start.
    fn drop(&mut self) {
        self.try_flush(&self.writer());
    }
}

/// Records into the log, and where the log ends.
fn append(txn: &mut LmdbWrite<'_>, staged: &Staged) -> Result<(), StoreError> {
    for (key, record) in &staged.log {
        txn.put(Table::Events, key, record)?;
    }
    let next = staged
        .layer
        .get(Table::Meta, schema::META_NEXT_SEQ)
        .flatten();
    let next = next.ok_or_else(|| StoreError::Damaged("a batch without an end".to_owned()))?;
    txn.put(Table::Meta, schema::META_NEXT_SEQ, next)
}

fn stats(lmdb: &Lmdb, tail: &Tail) -> Result<Stats, StoreError> {
    Ok(Stats {
        events: tail.events,
        garbage: tail.garbage,
        vanishing: 0,
        tail_rows: tail.runs.len(),
        disk_bytes: lmdb.disk_bytes()?,
    })
}

impl Tail {
    /// Nothing but where the log ends: readers take that from here and never from the tables,
    /// which learn of new events a moment before their rows can be seen.
    fn empty(next: u64, events: u64, garbage: u64) -> Self {
        let mut tail = Self {
            first: next,
            next,
            events,
            garbage,
            ..Self::default()
        };
        let mut layer = Layer::default();
        let next = next.to_be_bytes();
        layer.set(Table::Meta, schema::META_NEXT_SEQ, Some(next.into()));
        tail.runs.add(&layer, &[]);
        tail
    }

    /// Applies again what the log has beyond the indexes.
    fn from_log(tables: &LmdbRead<'_>, removal: RemovalLimits) -> Result<Self, StoreError> {
        let (first, next) = (number(tables, schema::META_INDEXED)?, next_seq(tables)?);
        let (events, garbage) = (tables.len(Table::Ids)?, tables.len(Table::Garbage)?);
        let mut tail = Self::empty(first, events, garbage);
        if first == next {
            return Ok(tail);
        }
        let layered = Layered {
            below: tables,
            runs: &tail.runs,
        };
        let mut staging = Staging::replaying(&layered);
        let mut batch = Batch::begin(&mut staging, removal)?;
        for seq in first..next {
            let missing = || StoreError::Damaged(format!("event {seq} is not in the log"));
            let record = tables
                .get(Table::Events, &seq.to_be_bytes())?
                .ok_or_else(missing)?;
            batch.replay(Seq(seq), &Record::decode(record)?.event()?)?;
        }
        batch.finish()?;
        let staged = staging.staged;
        tail.absorb(staged)?;
        Ok(tail)
    }

    fn absorb(&mut self, staged: Staged) -> Result<(), StoreError> {
        self.runs.add(&staged.layer, &staged.index);
        self.events = self.events.saturating_add_signed(staged.events);
        self.garbage = self.garbage.saturating_add_signed(staged.garbage);
        self.bytes += staged.bytes;
        self.removes |= staged.removes;
        let next = self.runs.get(Table::Meta, schema::META_NEXT_SEQ).flatten();
        self.next = next.map_or(Ok(self.next), schema::read_u64)?;
        Ok(())
    }

    /// The indexes have everything.
    fn is_clean(&self) -> bool {
        self.first == self.next && !self.removes
    }

    fn exceeds(&self, limits: &TailLimits) -> bool {
        self.next - self.first >= limits.events
            || self.runs.len() >= limits.rows
            || self.bytes >= limits.bytes
    }
}

/// What readers see at one moment.
pub(crate) struct View<'d> {
    tail: Arc<Tail>,
    tables: LmdbRead<'d>,
}

impl View<'_> {
    pub(crate) fn tables(&self) -> Layered<'_, LmdbRead<'_>> {
        Layered {
            below: &self.tables,
            runs: &self.tail.runs,
        }
    }
}

/// The store of a running server, seen from another process, as of one moment.
pub(crate) struct Snapshot {
    lmdb: Lmdb,
    tables: LmdbRead<'static>,
    tail: Tail,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("lmdb", &self.lmdb)
            .finish_non_exhaustive()
    }
}

impl Snapshot {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let lmdb = Lmdb::open_read_only(path)?;
        let tables = lmdb.snapshot()?;
        let tail = Tail::from_log(&tables, RemovalLimits::default())?;
        Ok(Self { lmdb, tables, tail })
    }

    pub(crate) fn tables(&self) -> Layered<'_, LmdbRead<'static>> {
        Layered {
            below: &self.tables,
            runs: &self.tail.runs,
        }
    }

    pub(crate) fn stats(&self) -> Result<Stats, StoreError> {
        stats(&self.lmdb, &self.tail)
    }

    pub(crate) fn copy_to(&self, file: &mut File) -> Result<(), StoreError> {
        self.lmdb.copy_to(file)
    }
}
