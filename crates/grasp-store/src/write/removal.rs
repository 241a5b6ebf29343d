//! How events go. A request hides what it takes and leaves the rows to a sweep, which removes a
//! bounded number of them at a time: nobody's deletion holds up the writer or fills the memory.

use std::ops::Bound;

use grasp_core::event::{Event, Kind};
use grasp_core::{EventId, Pubkey, Seq, Timestamp};

use super::Batch;
use crate::error::StoreError;
use crate::gone::{self, has_rows};
use crate::kv::{Read, Table, Write};
use crate::schema::{self, Cases, Cursor, IndexValue, Place, Record, VanishJob};

/// Records that one sweep parses, so that it ends soon even if they have few rows: 16 ms.
const MAX_SWEPT_BYTES: usize = 4 * 1024 * 1024;

/// What one commit does about events that go; the rest is hidden and left to later sweeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovalLimits {
    /// Records whose rows go with the commit itself, so that small deletions and replacements leave
    /// nothing to sweep: at 9 bytes a tag at most 14,500 rows x 180 bytes = 2.6 MB, parsed in 0.5 ms.
    pub bytes_at_once: usize,
    /// Rows of vanished authors that are looked at: 2 rows of 100 bytes are written for each.
    pub looks: usize,
    /// Index rows that a sweep removes, and those of one event more: each may lie on a page of its
    /// own, 7,400 x 4 KiB = 30 MB for a moment.
    pub rows: usize,
}

impl Default for RemovalLimits {
    fn default() -> Self {
        Self {
            bytes_at_once: 128 * 1024,
            looks: 2_400,
            rows: 5_000,
        }
    }
}

/// What a sweep did; `more` when it stopped at its bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Events that expired. Those that were deleted had gone before.
    pub removed: usize,
    pub more: bool,
}

/// What a sweep may still do.
struct Allowance {
    rows: usize,
    bytes: usize,
}

impl Allowance {
    fn spend(&mut self, removed: &Removed) {
        self.rows = self.rows.saturating_sub(removed.rows);
        self.bytes = self.bytes.saturating_sub(removed.bytes);
    }

    fn is_spent(&self) -> bool {
        self.rows == 0 || self.bytes == 0
    }
}

#[derive(Default)]
struct Removed {
    rows: usize,
    bytes: usize,
    /// Readers could see it.
    visible: bool,
}

impl<W: Write> Batch<'_, W> {
    /// Removes at most `max` events that expired at or before `until`, and goes on with what
    /// earlier commits left.
    pub(crate) fn sweep(&mut self, until: Timestamp, max: usize) -> Result<Swept, StoreError> {
        self.bytes_at_once = 0;
        self.sweep_jobs()?;
        let mut allowance = Allowance {
            // What was deleted must not wait for a flood of what expires.
            rows: self.limits.rows.div_ceil(2),
            bytes: MAX_SWEPT_BYTES,
        };
        let expired = self.sweep_expired(until, max, &mut allowance)?;
        allowance.rows += self.limits.rows / 2;
        self.sweep_garbage(&mut allowance)?;
        let more = expired.more
            || has_rows(&*self.kv, Table::Garbage)?
            || has_rows(&*self.kv, Table::VanishJobs)?;
        Ok(Swept { more, ..expired })
    }

    fn sweep_expired(
        &mut self,
        until: Timestamp,
        max: usize,
        allowance: &mut Allowance,
    ) -> Result<Swept, StoreError> {
        let mut expired = Vec::new();
        for row in self.kv.rows(Table::Expiry, Bound::Unbounded)? {
            let (key, _) = row?;
            let (at, seq) = key.split_at_checked(8).unwrap_or_default();
            if schema::read_u64(at)? > until.0 || expired.len() > max {
                break;
            }
            expired.push(Seq(schema::read_u64(seq)?));
        }
        let mut swept = Swept::default();
        for (n, seq) in expired.into_iter().enumerate() {
            if n == max || allowance.is_spent() {
                swept.more = true;
                break;
            }
            let removed = self.remove(seq)?;
            allowance.spend(&removed);
            swept.removed += usize::from(removed.visible);
        }
        Ok(swept)
    }

    fn sweep_garbage(&mut self, allowance: &mut Allowance) -> Result<(), StoreError> {
        let mut from = Bound::Unbounded;
        while !allowance.is_spent() {
            let after = from.as_ref().map(|key: &[u8; 8]| &key[..]);
            let row = self.kv.rows(Table::Garbage, after)?.next();
            let Some((key, _)) = row.transpose()? else {
                break;
            };
            let seq = Seq(schema::read_u64(key)?);
            from = Bound::Excluded(seq.0.to_be_bytes());
            let removed = self.remove(seq)?;
            allowance.spend(&removed);
        }
        Ok(())
    }

    fn sweep_jobs(&mut self) -> Result<(), StoreError> {
        while self.looks > 0 {
            let row = self.kv.rows(Table::VanishJobs, Bound::Unbounded)?.next();
            let Some((author, job)) = row.transpose()? else {
                break;
            };
            let (author, job) = (schema::read_pubkey(author)?, VanishJob::from_bytes(job)?);
            self.advance_job(&author, job)?;
        }
        Ok(())
    }

    /// Hides all that the author wrote up to the request, and the gift wraps sent to it.
    pub(super) fn vanish(&mut self, request: &Event, seq: Seq) -> Result<(), StoreError> {
        let author = &request.pubkey;
        let known = self.kv.get(Table::Vanished, &author.0)?;
        let known = known.map(schema::read_u64).transpose()?.unwrap_or(0);
        let until = Timestamp(known.max(request.created_at.0));
        self.kv
            .put(Table::Vanished, &author.0, &until.0.to_be_bytes())?;
        // The scan reads the indexes: they must hold this batch's events too.
        self.flush_index()?;
        let under_way = self.kv.get(Table::VanishJobs, &author.0)?;
        let job = match under_way.map(VanishJob::from_bytes).transpose()? {
            // A pass comes to its end whatever else is asked for.
            Some(job) => VanishJob {
                until,
                before: seq,
                again: true,
                ..job
            },
            None => VanishJob::new(author, until, seq),
        };
        self.advance_job(author, job)
    }

    /// Goes on for as long as this batch may look. While a job is there, readers look for it.
    fn advance_job(&mut self, author: &Pubkey, mut job: VanishJob) -> Result<(), StoreError> {
        while self.looks > 0 {
            let step = Step::of(&*self.kv, author, &job, self.looks)?;
            self.looks = self.looks.saturating_sub(step.looked);
            for (id, seq) in step.covered {
                if self.seq_of(&id)? == Some(seq) {
                    self.discard(&id, seq)?;
                }
            }
            job.cursor = match step.cursor {
                Some(cursor) => cursor,
                None if job.again => {
                    job.again = false;
                    Cursor::start(author)
                }
                None => return self.end_job(author),
            };
        }
        self.kv.put(Table::VanishJobs, &author.0, &job.to_bytes())
    }

    fn end_job(&mut self, author: &Pubkey) -> Result<(), StoreError> {
        match self.kv.get(Table::VanishJobs, &author.0)? {
            Some(_) => self.kv.delete(Table::VanishJobs, &author.0),
            None => Ok(()),
        }
    }

    pub(super) fn discard_by_id(&mut self, id: &EventId) -> Result<(), StoreError> {
        match self.seq_of(id)? {
            Some(seq) => self.discard(id, seq),
            None => Ok(()),
        }
    }

    /// No reader sees a stored event any more. Its rows go now, or with a sweep.
    pub(super) fn discard(&mut self, id: &EventId, seq: Seq) -> Result<(), StoreError> {
        let seq_bytes = seq.0.to_be_bytes();
        let record = self.kv.get(Table::Events, &seq_bytes)?;
        let bytes = record.map_or(0, <[u8]>::len);
        if let Some(left) = self.bytes_at_once.checked_sub(bytes) {
            self.bytes_at_once = left;
            return self.remove(seq).map(drop);
        }
        self.strike(id)?;
        self.kv.put(Table::Garbage, &seq_bytes, &[])
    }

    fn strike(&mut self, id: &EventId) -> Result<(), StoreError> {
        self.kv.delete(Table::Ids, &id.0)?;
        self.show(id)
    }

    fn remove(&mut self, seq: Seq) -> Result<Removed, StoreError> {
        let seq_bytes = seq.0.to_be_bytes();
        if self.kv.get(Table::Garbage, &seq_bytes)?.is_some() {
            self.kv.delete(Table::Garbage, &seq_bytes)?;
        }
        let Some(bytes) = self.kv.get(Table::Events, &seq_bytes)? else {
            return Ok(Removed::default());
        };
        let size = bytes.len();
        let record = Record::decode(bytes)?;
        let (event, expires) = (record.event()?, record.expires);
        let visible = gone::stored(&*self.kv, &event.id)?;
        let visible = visible.is_some_and(|value| value.index.seq == seq);
        self.kv.delete(Table::Events, &seq_bytes)?;
        if let Some(at) = expires {
            self.kv
                .delete(Table::Expiry, &schema::expiry_key(at, seq))?;
        }
        let rows = match self.seq_of(&event.id)? {
            // The same event came again, and all the rows are that one's now.
            Some(other) if other != seq => 0,
            living => {
                if living.is_some() {
                    self.strike(&event.id)?;
                }
                self.change_index(&event, None)
            }
        };
        Ok(Removed {
            rows,
            bytes: size,
            visible,
        })
    }
}

/// Some of what a job covers.
struct Step {
    covered: Vec<(EventId, Seq)>,
    looked: usize,
    /// Where to go on; `None` at the end.
    cursor: Option<Cursor>,
}

impl Step {
    /// Looks at `max` rows at most.
    fn of(
        kv: &impl Read,
        author: &Pubkey,
        job: &VanishJob,
        max: usize,
    ) -> Result<Self, StoreError> {
        let mut step = Self {
            covered: Vec::new(),
            looked: 0,
            cursor: None,
        };
        let mut cursor = Some(job.cursor.clone());
        while let Some(at) = cursor {
            if step.looked >= max {
                step.cursor = Some(at);
                break;
            }
            cursor = match at {
                Cursor::Written(key) => step.written(kv, author, job, key, max)?,
                Cursor::Addressed(key) => step.addressed(kv, author, job, key, max)?,
            };
        }
        Ok(step)
    }

    /// Of each kind the newest come first: those that are too new are leapt over.
    fn written(
        &mut self,
        kv: &impl Read,
        author: &Pubkey,
        job: &VanishJob,
        mut last: Vec<u8>,
        max: usize,
    ) -> Result<Option<Cursor>, StoreError> {
        for row in kv.rows(Table::ByAuthorKind, Bound::Excluded(&last))? {
            let (key, value) = row?;
            let Some(kind) = schema::kind_after_author(key, author) else {
                break;
            };
            self.looked += 1;
            let place = Place::of_key(key)?;
            if place.created_at() > job.until {
                let prefix = schema::author_kind_prefix(author, kind);
                let leap = [&prefix[..], &schema::newest_from(job.until)].concat();
                return Ok(Some(Cursor::Written(leap)));
            }
            self.take(job, &place, &IndexValue::from_bytes(value)?);
            key.clone_into(&mut last);
            if self.looked >= max {
                return Ok(Some(Cursor::Written(last)));
            }
        }
        let prefix = schema::tag_prefix(b'p', &author.to_string());
        let first = [&prefix[..], &schema::newest_from(job.until)].concat();
        Ok(Some(Cursor::Addressed(first)))
    }

    fn addressed(
        &mut self,
        kv: &impl Read,
        author: &Pubkey,
        job: &VanishJob,
        mut last: Vec<u8>,
        max: usize,
    ) -> Result<Option<Cursor>, StoreError> {
        let prefix = schema::tag_prefix(b'p', &author.to_string());
        for row in kv.rows(Table::ByTag, Bound::Excluded(&last))? {
            let (key, value) = row?;
            if !key.starts_with(&prefix) {
                break;
            }
            self.looked += 1;
            let value = IndexValue::from_bytes(value)?;
            if value.kind == Kind::GIFT_WRAP && value.cases.has(Cases::of(b'p')) {
                self.take(job, &Place::of_key(key)?, &value);
            }
            key.clone_into(&mut last);
            if self.looked >= max {
                return Ok(Some(Cursor::Addressed(last)));
            }
        }
        Ok(None)
    }

    fn take(&mut self, job: &VanishJob, place: &Place, value: &IndexValue) {
        if job.covers(place.created_at(), value.seq) {
            self.covered.push((place.id(), value.seq));
        }
    }
}
