//! Answers filters from the indexes, newest first with ties by lowest id, in slices: a query
//! stops when its budget is spent and goes on from there, so that a heavy one delays nobody.

mod merge;
mod plan;

use std::ops::Bound;

use grasp_core::{EventId, Filter, Kind, Seq, Timestamp, nip34};
use rustc_hash::FxHashSet;

use self::plan::{Check, Plan};
use crate::error::StoreError;
use crate::gone::Gone;
use crate::kv::{Read, Table};
use crate::schema::{IndexValue, Place, Record};
use crate::tags::{TagFilter, TagMatch};
use crate::write::next_seq;

/// Rows to look for one more match, so that the end of a query can say `more` or `finish`.
const LOOK_AHEAD: usize = 1_000;

/// What the reader wants of each match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    Json,
    /// Time and id only, straight from the index.
    Ids,
}

/// One match.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    pub created_at: Timestamp,
    pub id: EventId,
    pub seq: Seq,
    /// Empty unless asked for.
    pub json: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    More,
    Done,
}

/// Whether a finished query sent all that is stored (NIP-67).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completeness {
    Finish,
    More,
    /// Nobody looked, or looked for long enough to tell.
    Unknown,
}

/// Work that one slice may do, in units of half a microsecond. What a slice begins it ends, so that
/// it may go beyond its budget by one event (256 KiB of tags are 1,024 units, 2,500 values looked
/// up 625, 256 KiB sent 512: 1 ms) and by the choice of one index.
#[derive(Debug, Clone, Copy)]
pub struct Budget(pub usize);

impl Budget {
    /// 2,000 x 0.5 us = a millisecond.
    pub const SLICE: Budget = Budget(2_000);
    /// The next row of a cursor, in the tail and in a page that is at hand.
    const STEP: usize = 1;
    /// One row looked up, or a cursor placed: a search down the tree, about 1 us.
    const LOOKUP: usize = 2;
    /// A record's header: a search, and a page that nothing else has touched.
    const RECORD: usize = 3;
    /// Bytes of tags read for one unit: 0.5 GB/s, byte by byte.
    const TAG_BYTES: usize = 256;
    /// Values of an event that are searched for in a filter's list for one unit: eleven comparisons
    /// each, if the list has 2,000.
    const TAG_LOOKUPS: usize = 4;
    /// Bytes handed to the reader for one unit, checked and copied once: a slice holds at most one
    /// megabyte and one event more.
    const JSON_BYTES: usize = 512;

    fn spend(&mut self, units: usize) {
        self.0 = self.0.saturating_sub(units);
    }

    fn spend_on(&mut self, checked: TagMatch) {
        self.spend(checked.bytes_read / Self::TAG_BYTES);
        self.spend(checked.lookups / Self::TAG_LOOKUPS);
    }

    fn is_spent(&self) -> bool {
        self.0 == 0
    }
}

/// A query over several filters: their results one after the other, each event once.
#[derive(Debug)]
pub struct Query {
    scans: Vec<Scan>,
    current: usize,
    want: Want,
    /// Events committed after the query began are not its business; live delivery has them.
    bound: Option<Seq>,
    seen: FxHashSet<Seq>,
    with_hidden: bool,
    completeness: Completeness,
}

#[derive(Debug)]
struct Scan {
    filter: Filter,
    remaining: usize,
    plan: Option<Plan>,
    /// The filter's tags, if the plan leaves them to be checked.
    tags: Option<TagFilter>,
    /// Where to go on.
    after: Option<Place>,
    /// Rows seen after the last one that was asked for.
    looked_ahead: usize,
}

impl Query {
    /// `max` bounds the results of each filter, whatever its own `limit` says.
    pub fn new(filters: Vec<Filter>, max: usize, want: Want) -> Self {
        let scan = |filter: Filter| Scan {
            remaining: filter.limit.unwrap_or(max).min(max),
            filter,
            plan: None,
            tags: None,
            after: None,
            looked_ahead: 0,
        };
        Self {
            scans: filters.into_iter().map(scan).collect(),
            current: 0,
            want,
            bound: None,
            seen: FxHashSet::default(),
            with_hidden: false,
            completeness: Completeness::Finish,
        }
    }

    /// Also events that are not served because their git data is gone.
    #[must_use]
    pub fn with_hidden(self) -> Self {
        Self {
            with_hidden: true,
            ..self
        }
    }

    /// Known after the first slice: the query saw every event below it.
    pub fn bound(&self) -> Option<Seq> {
        self.bound
    }

    /// Of several filters each event counts once: what was found is kept to the end.
    pub fn remembers(&self) -> bool {
        self.scans.len() > 1
    }

    pub fn completeness(&self) -> Completeness {
        self.completeness
    }

    pub(crate) fn advance<R: Read>(
        &mut self,
        kv: &R,
        mut budget: Budget,
        now: Timestamp,
        visit: &mut dyn FnMut(Found<'_>),
    ) -> Result<Progress, StoreError> {
        let bound = match self.bound {
            Some(bound) => bound,
            None => *self.bound.insert(Seq(next_seq(kv)?)),
        };
        let remembers = self.remembers();
        let hides = !self.with_hidden && hides_any(kv)?;
        let gone = Gone::look(kv)?;
        while let Some(scan) = self.scans.get_mut(self.current) {
            let seen = remembers.then_some(&mut self.seen);
            let mut slice = Slice {
                kv,
                now,
                bound,
                want: self.want,
                hides,
                gone,
                seen,
                budget: &mut budget,
                visit,
            };
            match scan.run(&mut slice)? {
                Ran::Paused => return Ok(Progress::More),
                Ran::Ended(completeness) => {
                    self.completeness = self.completeness.and(completeness);
                    self.current += 1;
                }
            }
            // The next filter's cursors are another slice's work.
            if budget.is_spent() && self.current < self.scans.len() {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }
}

impl Completeness {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Completeness::More, _) | (_, Completeness::More) => Completeness::More,
            (Completeness::Unknown, _) | (_, Completeness::Unknown) => Completeness::Unknown,
            _ => Completeness::Finish,
        }
    }
}

enum Ran {
    Paused,
    Ended(Completeness),
}

/// All that one slice of work needs besides the scan itself.
struct Slice<'s, R> {
    kv: &'s R,
    now: Timestamp,
    bound: Seq,
    want: Want,
    /// Some events here are hidden.
    hides: bool,
    gone: Gone,
    seen: Option<&'s mut FxHashSet<Seq>>,
    budget: &'s mut Budget,
    visit: &'s mut dyn FnMut(Found<'_>),
}

impl Scan {
    fn run<R: Read>(&mut self, slice: &mut Slice<'_, R>) -> Result<Ran, StoreError> {
        if self.filter.is_void() {
            return Ok(Ran::Ended(Completeness::Finish));
        }
        if self.remaining == 0 && self.after.is_none() {
            return Ok(Ran::Ended(Completeness::Unknown));
        }
        let plan = match self.plan.take() {
            Some(plan) => plan,
            None => self.choose(slice)?,
        };
        slice.budget.spend(Budget::LOOKUP * plan.cursors());
        // Every slice pays for its cursors anew: it goes on for as many steps at least.
        let left = slice.budget.0;
        slice.budget.0 = left.max(plan.cursors());
        let ran = self.follow(&plan, slice);
        slice.budget.0 = left.min(slice.budget.0);
        if let Ok(Ran::Paused) = ran {
            self.plan = Some(plan);
        }
        ran
    }

    fn choose<R: Read>(&mut self, slice: &mut Slice<'_, R>) -> Result<Plan, StoreError> {
        let plan = Plan::choose(&self.filter, slice.kv, slice.budget)?;
        if plan.check().tags {
            self.tags = Some(TagFilter::new(&self.filter.tags)?);
        }
        Ok(plan)
    }

    fn follow<R: Read>(
        &mut self,
        plan: &Plan,
        slice: &mut Slice<'_, R>,
    ) -> Result<Ran, StoreError> {
        let mut rows = plan.rows(slice.kv, &self.filter, self.after)?;
        let check = plan.check();
        let mut settled = None;
        while let Some((place, value)) = rows.next()? {
            slice.budget.spend(Budget::STEP);
            if self
                .filter
                .since
                .is_some_and(|since| place.created_at() < since)
            {
                break;
            }
            // One event under two values of the same list comes twice in a row.
            if value.cases.has(check.cases) && settled != Some(place) {
                settled = Some(place);
                let asked = Asked {
                    filter: &self.filter,
                    tags: self.tags.as_ref(),
                    check,
                    deliver: self.remaining > 0,
                };
                if slice.offer(&asked, place, value)? {
                    if self.remaining == 0 {
                        return Ok(Ran::Ended(Completeness::More));
                    }
                    self.remaining -= 1;
                }
            }
            self.after = Some(place);
            // Everything asked for is sent; whether there is more is not worth a long wait.
            self.looked_ahead += usize::from(self.remaining == 0);
            if self.looked_ahead > LOOK_AHEAD {
                return Ok(Ran::Ended(Completeness::Unknown));
            }
            // After a row, so that every slice makes progress, and never within one place.
            if slice.budget.is_spent() && rows.next_place() != Some(place) {
                return Ok(Ran::Paused);
            }
        }
        Ok(Ran::Ended(Completeness::Finish))
    }
}

/// What a row is held against.
struct Asked<'f> {
    filter: &'f Filter,
    tags: Option<&'f TagFilter>,
    check: Check,
    /// A match is handed to the reader.
    deliver: bool,
}

impl<'s, R: Read> Slice<'s, R> {
    /// Says whether the row matches; hands it to the reader if it is to be delivered.
    fn offer(
        &mut self,
        asked: &Asked<'_>,
        place: Place,
        value: IndexValue,
    ) -> Result<bool, StoreError> {
        let Asked { check, deliver, .. } = *asked;
        if value.seq >= self.bound {
            return Ok(false);
        }
        if self.is_gone(&place, &value)? {
            return Ok(false);
        }
        if self.hides && can_be_hidden(value.kind) && self.is_hidden(&place)? {
            return Ok(false);
        }
        if check.kinds
            && asked
                .filter
                .kinds
                .as_ref()
                .is_some_and(|kinds| kinds.binary_search(&value.kind).is_err())
        {
            return Ok(false);
        }
        let mut json = "";
        let send = deliver && self.want == Want::Json;
        if check.needs_record() || value.expires || send {
            let Some(record) = self.record(value.seq)? else {
                return match check.presence {
                    true => Ok(false),
                    false => Err(StoreError::Damaged("an index row has no event".to_owned())),
                };
            };
            if record.is_expired(self.now) || !self.passes(asked, &record)? {
                return Ok(false);
            }
            if send {
                json = record.json()?;
                self.budget.spend(json.len() / Budget::JSON_BYTES);
            }
        }
        if let Some(seen) = &mut self.seen {
            // Sent for an earlier filter: it counts as sent for this one too, but not as more.
            if !deliver && seen.contains(&value.seq) {
                return Ok(false);
            }
            if deliver && !seen.insert(value.seq) {
                return Ok(true);
            }
        }
        if deliver {
            (self.visit)(Found {
                created_at: place.created_at(),
                id: place.id(),
                seq: value.seq,
                json,
            });
        }
        Ok(true)
    }

    /// Deleted, and not swept yet.
    fn is_gone(&mut self, place: &Place, value: &IndexValue) -> Result<bool, StoreError> {
        if self.gone.is_nothing() {
            return Ok(false);
        }
        self.budget.spend(Budget::RECORD);
        self.gone.hides(self.kv, place, value)
    }

    fn is_hidden(&mut self, place: &Place) -> Result<bool, StoreError> {
        self.budget.spend(Budget::STEP);
        Ok(self.kv.get(Table::Hidden, &place.id().0)?.is_some())
    }

    fn record(&mut self, seq: Seq) -> Result<Option<Record<'s>>, StoreError> {
        self.budget.spend(Budget::RECORD);
        let kv: &'s R = self.kv;
        let bytes = kv.get(Table::Events, &seq.0.to_be_bytes())?;
        bytes.map(Record::decode).transpose()
    }

    fn passes(&mut self, asked: &Asked<'_>, record: &Record<'_>) -> Result<bool, StoreError> {
        if asked.check.authors
            && asked
                .filter
                .authors
                .as_ref()
                .is_some_and(|keys| keys.binary_search(&record.pubkey).is_err())
        {
            return Ok(false);
        }
        let Some(tags) = asked.tags else {
            return Ok(true);
        };
        let checked = tags.check(record.tags()?)?;
        self.budget.spend_on(checked);
        Ok(checked.matches)
    }
}

fn hides_any(kv: &impl Read) -> Result<bool, StoreError> {
    let first = kv.rows(Table::Hidden, Bound::Unbounded)?.next();
    Ok(first.transpose()?.is_some())
}

/// Only what has objects can lose them.
fn can_be_hidden(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::STATE | nip34::PULL_REQUEST | nip34::PULL_REQUEST_UPDATE
    )
}
