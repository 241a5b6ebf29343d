//! Which index answers a filter with the fewest rows, and what is left to check on each row.

use std::ops::Bound;

use grasp_core::{EventId, Filter, Kind, Pubkey};

use super::merge::Rows;
use crate::error::StoreError;
use crate::kv::{Read, Table};
use crate::schema::{self, Cases, IdValue, IndexValue, Place};
use crate::write::kinds_of;

/// Pairs of author and kind that are tried unseen; beyond it we first look which there are.
const MAX_GUESSES: usize = 1_024;
/// Pairs of author and kind that have a cursor each. It takes 4 ms to place them, in every slice;
/// with more, other rows are read and their authors looked at.
const MAX_PAIRS: usize = 4_096;
/// Rows counted per candidate to compare them; beyond it they are equally bad.
const SAMPLE: usize = 256;

#[derive(Debug)]
pub(super) enum Plan {
    /// Looked up one by one and sorted.
    Listed {
        rows: Vec<(Place, IndexValue)>,
        check: Check,
    },
    /// One cursor per prefix, merged.
    Merged {
        table: Table,
        prefixes: Vec<Box<[u8]>>,
        check: Check,
    },
}

/// What the index does not answer by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Check {
    /// The kind is in every index row.
    pub(super) kinds: bool,
    /// The author is in the record's header.
    pub(super) authors: bool,
    /// Tags need the parsed event.
    pub(super) tags: bool,
    /// The case of the letter that was asked for.
    pub(super) cases: Cases,
    /// The event may have gone since the row was noted.
    pub(super) presence: bool,
}

impl Check {
    pub(super) fn needs_record(self) -> bool {
        self.authors || self.tags || self.presence
    }
}

impl Plan {
    pub(super) fn choose<R: Read>(filter: &Filter, kv: &R) -> Result<Self, StoreError> {
        if let Some(ids) = &filter.ids {
            return Self::listed(ids, filter, kv);
        }
        let mut candidates = Self::by_tags(filter);
        candidates.extend(Self::by_authors(filter, kv)?);
        match candidates.len() {
            0 => Ok(Self::by_kinds_or_time(filter)),
            1 => candidates
                .pop()
                .ok_or_else(|| StoreError::Damaged("no plan".to_owned())),
            _ => Self::smallest(candidates, filter, kv),
        }
    }

    pub(super) fn check(&self) -> Check {
        match self {
            Plan::Listed { check, .. } | Plan::Merged { check, .. } => *check,
        }
    }

    /// Each has to be placed anew in every slice.
    pub(super) fn cursors(&self) -> usize {
        match self {
            Plan::Listed { .. } => 0,
            Plan::Merged { prefixes, .. } => prefixes.len(),
        }
    }

    /// The plan's rows after a place, newest first.
    pub(super) fn rows<'r, R: Read>(
        &'r self,
        kv: &'r R,
        filter: &Filter,
        after: Option<Place>,
    ) -> Result<Rows<'r, R>, StoreError> {
        match self {
            Plan::Listed { rows, .. } => {
                let start = after.map_or(0, |after| {
                    rows.partition_point(|(place, _)| *place <= after)
                });
                Ok(Rows::Listed(rows.get(start..).unwrap_or_default().iter()))
            }
            Plan::Merged {
                table, prefixes, ..
            } => Rows::merged(kv, *table, prefixes, start(filter, after)),
        }
    }

    fn listed<R: Read>(ids: &[EventId], filter: &Filter, kv: &R) -> Result<Self, StoreError> {
        let mut rows = Vec::new();
        for id in ids {
            let Some(bytes) = kv.get(Table::Ids, &id.0)? else {
                continue;
            };
            let value = IdValue::from_bytes(bytes)?;
            if filter.until.is_none_or(|until| value.created_at <= until) {
                rows.push((Place::new(value.created_at, id), value.index));
            }
        }
        rows.sort_unstable_by_key(|(place, _)| *place);
        let check = Check {
            kinds: true,
            authors: filter.authors.is_some(),
            tags: !filter.tags.is_empty(),
            presence: true,
            ..Check::default()
        };
        Ok(Plan::Listed { rows, check })
    }

    fn by_tags(filter: &Filter) -> Vec<Self> {
        let plan = |(letter, values): &(u8, Vec<String>)| {
            let check = Check {
                kinds: true,
                authors: filter.authors.is_some(),
                tags: filter.tags.len() > 1,
                cases: Cases::of(*letter),
                ..Check::default()
            };
            let prefix = |value: &String| schema::tag_prefix(*letter, value).into();
            Plan::merged(Table::ByTag, values.iter().map(prefix).collect(), check)
        };
        filter.tags.iter().map(plan).collect()
    }

    fn by_authors<R: Read>(filter: &Filter, kv: &R) -> Result<Option<Self>, StoreError> {
        let Some(authors) = &filter.authors else {
            return Ok(None);
        };
        let few = |kinds: &&Vec<Kind>| authors.len().saturating_mul(kinds.len()) <= MAX_GUESSES;
        let mut prefixes = Vec::new();
        for author in authors {
            let kinds = match filter.kinds.as_ref().filter(few) {
                Some(kinds) => kinds.clone(),
                None => Self::kinds_written(filter, author, kv)?,
            };
            prefixes.extend(
                kinds
                    .into_iter()
                    .map(|kind| schema::author_kind_prefix(author, kind).into()),
            );
            if prefixes.len() > MAX_PAIRS {
                return Ok(None);
            }
        }
        let check = Check {
            tags: !filter.tags.is_empty(),
            ..Check::default()
        };
        Ok(Some(Plan::merged(Table::ByAuthorKind, prefixes, check)))
    }

    /// The kinds that are both asked for and there.
    fn kinds_written<R: Read>(
        filter: &Filter,
        author: &Pubkey,
        kv: &R,
    ) -> Result<Vec<Kind>, StoreError> {
        let mut written = kinds_of(kv, author)?;
        if let Some(wanted) = &filter.kinds {
            written.retain(|kind| wanted.binary_search(kind).is_ok());
        }
        Ok(written)
    }

    fn by_kinds_or_time(filter: &Filter) -> Self {
        let check = Check {
            authors: filter.authors.is_some(),
            ..Check::default()
        };
        match &filter.kinds {
            Some(kinds) => {
                let prefixes = kinds
                    .iter()
                    .map(|kind| schema::kind_prefix(*kind).into())
                    .collect();
                Plan::merged(Table::ByKind, prefixes, check)
            }
            None => Plan::merged(Table::ByTime, vec![Box::default()], check),
        }
    }

    fn merged(table: Table, mut prefixes: Vec<Box<[u8]>>, check: Check) -> Self {
        // Cursors placed in key order touch each page once.
        prefixes.sort_unstable();
        Plan::Merged {
            table,
            prefixes,
            check,
        }
    }

    fn smallest<R: Read>(
        candidates: Vec<Self>,
        filter: &Filter,
        kv: &R,
    ) -> Result<Self, StoreError> {
        let mut best: Option<(usize, Plan)> = None;
        for plan in candidates {
            let size = plan.sample(filter, kv)?;
            if best.as_ref().is_none_or(|(smallest, _)| size < *smallest) {
                best = Some((size, plan));
            }
        }
        best.map(|(_, plan)| plan)
            .ok_or_else(|| StoreError::Damaged("no plan".to_owned()))
    }

    /// Rows below the prefixes, counted up to [`SAMPLE`].
    fn sample<R: Read>(&self, filter: &Filter, kv: &R) -> Result<usize, StoreError> {
        let Plan::Merged {
            table, prefixes, ..
        } = self
        else {
            return Ok(0);
        };
        let Bound::Included(tail) = start(filter, None) else {
            return Ok(SAMPLE);
        };
        let mut count = 0;
        for prefix in prefixes {
            let from = [&**prefix, &tail].concat();
            for row in kv.rows(*table, Bound::Included(&from))? {
                let (key, _) = row?;
                if count >= SAMPLE {
                    return Ok(count);
                }
                if !key.starts_with(prefix) {
                    break;
                }
                count += 1;
            }
        }
        Ok(count)
    }
}

/// The part of the first key that follows the prefix.
fn start(filter: &Filter, after: Option<Place>) -> Bound<Vec<u8>> {
    match (after, filter.until) {
        (Some(place), _) => Bound::Excluded(place.0.to_vec()),
        (None, Some(until)) => Bound::Included(schema::newest_from(until).to_vec()),
        (None, None) => Bound::Included(Vec::new()),
    }
}
