//! Which index answers a filter with the fewest rows, and what is left to check on each row.

use std::ops::Bound;

use grasp_core::{EventId, Filter, Kind, Pubkey};

use super::Budget;
use super::merge::Rows;
use crate::error::StoreError;
use crate::kv::{Read, Table};
use crate::schema::{self, Cases, IdValue, IndexValue, Place};

/// Pairs of author and kind that are tried unseen; beyond it we first look which there are.
const MAX_GUESSES: usize = 1_024;
/// Pairs of author and kind that have a cursor each. It takes 4 ms to place them, in every slice;
/// with more, other rows are read and their authors looked at.
const MAX_PAIRS: usize = 4_096;
/// Kinds that are looked up to learn which pairs there are: each pair, and an end for each of 2,000
/// authors. 6,144 x 1 us = 6 ms, once for a filter.
const MAX_LEAPS: usize = 6_144;
/// Rows counted per candidate to compare them; beyond it they are equally bad.
const SAMPLE: usize = 256;
/// Rows counted of all candidates: 1,024 x 0.5 us. A filter may have 53, one for each letter in
/// both cases and one for its authors; then 19 of each tell an empty one from the others.
const SAMPLES: usize = 1_024;

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
    /// Tags are at the beginning of the record's JSON.
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
    /// Takes 2 ms at most for a filter of 2,000 values, a look-up each, and 6 ms more where authors
    /// and kinds are so many that it looks which pairs there are.
    pub(super) fn choose<R: Read>(
        filter: &Filter,
        kv: &R,
        budget: &mut Budget,
    ) -> Result<Self, StoreError> {
        if let Some(ids) = &filter.ids {
            budget.spend(Budget::LOOKUP * ids.len());
            return Self::listed(ids, filter, kv);
        }
        let mut candidates = Self::by_tags(filter);
        candidates.extend(Self::by_authors(filter, kv, budget)?);
        match candidates.len() {
            0 => Ok(Self::by_kinds_or_time(filter)),
            1 => candidates
                .pop()
                .ok_or_else(|| StoreError::Damaged("no plan".to_owned())),
            _ => Self::smallest(candidates, filter, kv, budget),
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

    fn by_authors<R: Read>(
        filter: &Filter,
        kv: &R,
        budget: &mut Budget,
    ) -> Result<Option<Self>, StoreError> {
        let Some(authors) = &filter.authors else {
            return Ok(None);
        };
        let few = |kinds: &&Vec<Kind>| authors.len().saturating_mul(kinds.len()) <= MAX_GUESSES;
        let mut prefixes = Vec::new();
        let mut leaps = MAX_LEAPS;
        for author in authors {
            let kinds = match filter.kinds.as_ref().filter(few) {
                Some(kinds) => kinds.clone(),
                None => Self::kinds_written(filter, author, kv, &mut leaps)?,
            };
            prefixes.extend(
                kinds
                    .into_iter()
                    .map(|kind| schema::author_kind_prefix(author, kind).into()),
            );
            if prefixes.len() > MAX_PAIRS || leaps == 0 {
                break;
            }
        }
        budget.spend(Budget::LOOKUP * (MAX_LEAPS - leaps));
        if prefixes.len() > MAX_PAIRS || leaps == 0 {
            return Ok(None);
        }
        let check = Check {
            tags: !filter.tags.is_empty(),
            ..Check::default()
        };
        Ok(Some(Plan::merged(Table::ByAuthorKind, prefixes, check)))
    }

    /// The kinds that are both asked for and there, found by leaping from one to the next, as far as
    /// there are leaps left.
    fn kinds_written<R: Read>(
        filter: &Filter,
        author: &Pubkey,
        kv: &R,
        leaps: &mut usize,
    ) -> Result<Vec<Kind>, StoreError> {
        let wanted = filter.kinds.as_deref();
        let asked_from = |kind: Kind| match wanted {
            None => Some(kind),
            Some(wanted) => wanted
                .get(wanted.partition_point(|one| *one < kind))
                .copied(),
        };
        let mut kinds = Vec::new();
        let mut next = asked_from(Kind(0));
        while let Some(from) = next
            && *leaps > 0
        {
            *leaps -= 1;
            let prefix = schema::author_kind_prefix(author, from);
            let row = kv
                .rows(Table::ByAuthorKind, Bound::Included(&prefix))?
                .next();
            let Some((key, _)) = row.transpose()? else {
                break;
            };
            let Some(found) = schema::kind_after_author(key, author) else {
                break;
            };
            next = if asked_from(found) == Some(found) {
                kinds.push(found);
                found
                    .0
                    .checked_add(1)
                    .and_then(|after| asked_from(Kind(after)))
            } else {
                asked_from(found)
            };
        }
        Ok(kinds)
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
        budget: &mut Budget,
    ) -> Result<Self, StoreError> {
        let most = SAMPLE.min(SAMPLES / candidates.len().max(1));
        let mut best: Option<(usize, Plan)> = None;
        for plan in candidates {
            let size = plan.sample(filter, kv, most)?;
            budget.spend(Budget::LOOKUP * plan.cursors() + Budget::STEP * size);
            if best.as_ref().is_none_or(|(smallest, _)| size < *smallest) {
                best = Some((size, plan));
            }
        }
        best.map(|(_, plan)| plan)
            .ok_or_else(|| StoreError::Damaged("no plan".to_owned()))
    }

    /// Rows below the prefixes, counted up to a number.
    fn sample<R: Read>(&self, filter: &Filter, kv: &R, most: usize) -> Result<usize, StoreError> {
        let Plan::Merged {
            table, prefixes, ..
        } = self
        else {
            return Ok(0);
        };
        let Bound::Included(tail) = start(filter, None) else {
            return Ok(most);
        };
        let mut count = 0;
        for prefix in prefixes {
            let from = [&**prefix, &tail].concat();
            for row in kv.rows(*table, Bound::Included(&from))? {
                let (key, _) = row?;
                if count >= most {
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
