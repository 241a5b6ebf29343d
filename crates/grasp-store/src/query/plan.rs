//! Which index answers a filter with the fewest rows, and what is left to check on each row.

use std::ops::Bound;

use grasp_core::{EventId, Filter, Seq};

use super::merge::Rows;
use crate::error::StoreError;
use crate::kv::{Read, Table};
use crate::schema::{self, IndexValue, Place, Record};

/// More cursors than this cost more to place than one cursor costs to filter.
const MAX_CURSORS: usize = 1_024;
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
}

impl Check {
    pub(super) fn needs_record(self) -> bool {
        self.authors || self.tags
    }
}

impl Plan {
    pub(super) fn choose<R: Read>(filter: &Filter, kv: &R) -> Result<Self, StoreError> {
        if let Some(ids) = &filter.ids {
            return Self::listed(ids, filter, kv);
        }
        let mut candidates = Self::by_tags(filter);
        candidates.extend(Self::by_authors(filter));
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
            let Some(seq) = kv.get(Table::Ids, &id.0)? else {
                continue;
            };
            let Some(record) = kv.get(Table::Events, seq)? else {
                continue;
            };
            let record = Record::decode(record)?;
            let value = IndexValue {
                seq: Seq(schema::read_u64(seq)?),
                kind: record.kind,
                expires: record.expires.is_some(),
            };
            if filter.until.is_none_or(|until| record.created_at <= until) {
                rows.push((Place::new(record.created_at, id), value));
            }
        }
        rows.sort_unstable_by_key(|(place, _)| *place);
        let check = Check {
            kinds: true,
            authors: filter.authors.is_some(),
            tags: !filter.tags.is_empty(),
        };
        Ok(Plan::Listed { rows, check })
    }

    fn by_tags(filter: &Filter) -> Vec<Self> {
        let check = Check {
            kinds: true,
            authors: filter.authors.is_some(),
            tags: filter.tags.len() > 1,
        };
        let plan = |(letter, values): &(u8, Vec<String>)| {
            let prefix = |value: &String| schema::tag_prefix(*letter, value).into();
            Plan::merged(Table::ByTag, values.iter().map(prefix).collect(), check)
        };
        filter.tags.iter().map(plan).collect()
    }

    fn by_authors(filter: &Filter) -> Option<Self> {
        let authors = filter.authors.as_ref()?;
        let mut check = Check {
            tags: !filter.tags.is_empty(),
            ..Check::default()
        };
        if let Some(kinds) = &filter.kinds
            && authors.len().saturating_mul(kinds.len()) <= MAX_CURSORS
        {
            let pairs = authors.iter().flat_map(|author| {
                kinds
                    .iter()
                    .map(|kind| schema::author_kind_prefix(author, *kind).into())
            });
            return Some(Plan::merged(Table::ByAuthorKind, pairs.collect(), check));
        }
        check.kinds = true;
        let prefixes = authors.iter().map(|author| author.0.into()).collect();
        Some(Plan::merged(Table::ByAuthor, prefixes, check))
    }

    fn by_kinds_or_time(filter: &Filter) -> Self {
        match &filter.kinds {
            Some(kinds) => {
                let prefixes = kinds
                    .iter()
                    .map(|kind| schema::kind_prefix(*kind).into())
                    .collect();
                Plan::merged(Table::ByKind, prefixes, Check::default())
            }
            None => Plan::merged(Table::ByTime, vec![Box::default()], Check::default()),
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
