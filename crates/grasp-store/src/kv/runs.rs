//! Changes that many may read while more are made: sorted runs of rows that never change. A commit
//! makes a new version, which shares with the one before it all but the runs that it merges.
//!
//! A run is one piece of memory, so that merging copies rows one after the other, some 25 ns each.

use std::ops::Bound;
use std::sync::Arc;

use super::layer::Layer;
use super::{IndexChange, Table};

/// Runs are so many times as long as the next: with 200,000 rows a table has four at most (200,000,
/// 25,000, 3,125 and 390), each of which a reader searches. A row is copied some 14 times before
/// it reaches the longest: 0.35 us, what it takes to insert it into a tree of that size.
const RATIO: usize = 8;
/// Shorter runs are merged in any case. A commit of one event copies half of it in each of six
/// tables: 6 x 256 x 25 ns = 40 us, little beside the disk's part of the commit.
const MIN_RUN: usize = 512;
/// 200,000 rows have 25,000 fences: 200 kB, which a processor keeps at hand.
const BLOCK: usize = 8;

/// For each table its runs, the oldest and longest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runs {
    tables: [Vec<Arc<Run>>; Table::ALL.len()],
}

/// Rows in key order, each key once.
#[derive(Debug, Default)]
struct Run {
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    rows: Vec<Extent>,
    /// How the key of every [`BLOCK`]th row begins: a search looks here first, where neighbours are
    /// close together, and then at the rows of a block.
    fences: Vec<u64>,
}

/// Where a row lies.
#[derive(Debug, Clone, Copy)]
struct Extent {
    key: usize,
    value: usize,
    end: usize,
    /// The row below is gone.
    gone: bool,
}

/// A key with its new value, or `None` for a row that is gone.
type Row<'a> = (&'a [u8], Option<&'a [u8]>);

impl Runs {
    /// Lays changes over those that are there; the index rows lie above the layer, in the order of
    /// tables and keys.
    pub(crate) fn add(&mut self, layer: &Layer, index: &[IndexChange]) {
        for (table, _) in Table::ALL {
            self.push(table, Run::of(layer.rows(table, Bound::Unbounded)));
        }
        for rows in index.chunk_by(|one, next| one.table == next.table) {
            let Some(first) = rows.first() else {
                continue;
            };
            let changes = rows.iter();
            let changes = changes.map(|row| (&*row.key, row.value.as_ref().map(|v| &v[..])));
            self.push(first.table, Run::of(changes));
        }
    }

    fn push(&mut self, table: Table, mut run: Run) {
        let Some(runs) = self.tables.get_mut(table as usize) else {
            return;
        };
        if run.rows.is_empty() {
            return;
        }
        while let Some(older) = runs
            .pop_if(|older| older.rows.len() < MIN_RUN || older.rows.len() < RATIO * run.rows.len())
        {
            run = Run::merged(&older, &run);
        }
        runs.push(Arc::new(run));
    }

    /// Rows of all runs; one that several have counts for each.
    pub(crate) fn len(&self) -> usize {
        let runs = self.tables.iter().flatten();
        runs.map(|run| run.rows.len()).sum()
    }

    /// The change of a row, if there is one.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<Option<&[u8]>> {
        let newest_first = self.table(table).iter().rev();
        newest_first.into_iter().find_map(|run| run.get(key))
    }

    pub(crate) fn rows(&self, table: Table, from: Bound<&[u8]>) -> RunRows<'_> {
        let heads = self.table(table).iter().filter_map(|run| run.from(from));
        RunRows {
            heads: heads.collect(),
        }
    }

    /// Every change, in the order of tables and keys.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (Table, &[u8], Option<&[u8]>)> {
        Table::ALL.into_iter().flat_map(|(table, _)| {
            let rows = self.rows(table, Bound::Unbounded);
            rows.map(move |(key, change)| (table, key, change))
        })
    }

    fn table(&self, table: Table) -> &[Arc<Run>] {
        let runs = self.tables.get(table as usize);
        runs.map(Vec::as_slice).unwrap_or_default()
    }
}

impl Run {
    /// Of rows in key order; of one key the last row stands.
    fn of<'a>(rows: impl Iterator<Item = Row<'a>>) -> Self {
        let mut run = Self::default();
        rows.for_each(|(key, change)| run.push(key, change));
        run
    }

    fn merged(older: &Run, newer: &Run) -> Self {
        let mut run = Self {
            bytes: Vec::with_capacity(older.bytes.len() + newer.bytes.len()),
            rows: Vec::with_capacity(older.rows.len() + newer.rows.len()),
            fences: Vec::new(),
        };
        let heads = vec![Head::new(older, 0), Head::new(newer, 0)];
        RunRows { heads }.for_each(|(key, change)| run.push(key, change));
        run
    }

    fn push(&mut self, key: &[u8], change: Option<&[u8]>) {
        if let Some(last) = self.rows.last().copied()
            && self.row(&last).0 == key
        {
            self.bytes.truncate(last.key);
            self.rows.pop();
        }
        if self.rows.len() == self.fences.len() * BLOCK {
            self.fences.push(beginning(key));
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(change.unwrap_or_default());
        self.rows.push(Extent {
            key: at,
            value: at + key.len(),
            end: self.bytes.len(),
            gone: change.is_none(),
        });
    }

    fn row(&self, row: &Extent) -> Row<'_> {
        let key = self.bytes.get(row.key..row.value).unwrap_or_default();
        let value = self.bytes.get(row.value..row.end).unwrap_or_default();
        (key, (!row.gone).then_some(value))
    }

    fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let row = self.rows.get(self.before(key, |found| found < key))?;
        let (found, change) = self.row(row);
        (found == key).then_some(change)
    }

    /// Its rows from there on, if it has any.
    fn from(&self, from: Bound<&[u8]>) -> Option<Head<'_>> {
        let at = match from {
            Bound::Unbounded => 0,
            Bound::Included(from) => self.before(from, |found| found < from),
            Bound::Excluded(from) => self.before(from, |found| found <= from),
        };
        (at < self.rows.len()).then(|| Head::new(self, at))
    }

    /// How many rows lie before a key.
    fn before(&self, key: &[u8], is_before: impl Fn(&[u8]) -> bool) -> usize {
        let beginning = beginning(key);
        let first = self.fences.partition_point(|fence| *fence < beginning);
        let last = self.fences.partition_point(|fence| *fence <= beginning);
        let start = first.saturating_sub(1) * BLOCK;
        let end = (last * BLOCK).min(self.rows.len());
        let rows = self.rows.get(start..end).unwrap_or_default();
        start + rows.partition_point(|row| is_before(self.row(row).0))
    }
}

/// The first bytes of a key as a number, in the order of keys.
fn beginning(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(bytes.len());
    if let (Some(to), Some(from)) = (bytes.get_mut(..length), key.get(..length)) {
        to.copy_from_slice(from);
    }
    u64::from_be_bytes(bytes)
}

/// The rows of several runs as one, in key order.
#[derive(Debug)]
pub(crate) struct RunRows<'a> {
    /// The oldest first.
    heads: Vec<Head<'a>>,
}

#[derive(Debug)]
struct Head<'a> {
    run: &'a Run,
    at: usize,
}

impl<'a> Head<'a> {
    fn new(run: &'a Run, at: usize) -> Self {
        Self { run, at }
    }

    fn row(&self) -> Option<Row<'a>> {
        let run = self.run;
        run.rows.get(self.at).map(|row| run.row(row))
    }
}

impl<'a> Iterator for RunRows<'a> {
    type Item = Row<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if let [only] = self.heads.as_mut_slice() {
            let row = only.row();
            only.at += 1;
            return row;
        }
        let mut first: Option<Row<'a>> = None;
        for row in self.heads.iter().filter_map(Head::row) {
            // Of one key the newer run's change stands.
            if first.is_none_or(|(lowest, _)| row.0 <= lowest) {
                first = Some(row);
            }
        }
        let (key, change) = first?;
        for head in &mut self.heads {
            if head.row().is_some_and(|(found, _)| found == key) {
                head.at += 1;
            }
        }
        Some((key, change))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

    fn random_change(rng: &mut fastrand::Rng) -> (Vec<u8>, Option<Vec<u8>>) {
        let key = rng.u16(..2_000).to_be_bytes().to_vec();
        let value = rng.bool().then(|| vec![rng.u8(..); rng.usize(0..4)]);
        (key, value)
    }

    fn compare(runs: &Runs, model: &Model, rng: &mut fastrand::Rng) {
        let key = rng.u16(..2_001).to_be_bytes();
        let found = runs.get(Table::Ids, &key);
        let expected = model.get(&key[..]).map(Option::as_deref);
        assert_eq!(found, expected);
        let key = &key[..];
        for from in [Bound::Included(key), Bound::Excluded(key), Bound::Unbounded] {
            let found: Vec<Row<'_>> = runs.rows(Table::Ids, from).collect();
            let expected = model.range::<[u8], _>((from, Bound::Unbounded));
            let expected: Vec<Row<'_>> = expected
                .map(|(key, change)| (&**key, change.as_deref()))
                .collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn runs_agree_with_a_map_and_an_older_version_stays_as_it_is() {
        for seed in 0..10 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut runs, mut model) = (Runs::default(), Model::default());
            let mut before = (runs.clone(), model.clone());
            for step in 0..60 {
                let mut layer = Layer::default();
                for _ in 0..rng.usize(0..100) {
                    let (key, change) = random_change(&mut rng);
                    layer.set(Table::Ids, &key, change.as_deref().map(Into::into));
                    model.insert(key, change);
                }
                runs.add(&layer, &[]);
                compare(&runs, &model, &mut rng);
                compare(&before.0, &before.1, &mut rng);
                if step % 7 == 0 {
                    before = (runs.clone(), model.clone());
                }
            }
        }
    }

    #[test]
    fn index_rows_lie_above_the_layer_and_of_one_key_the_last_stands() {
        let mut layer = Layer::default();
        layer.set(Table::ByKind, b"a", None);
        let change = |table, key: &[u8], byte| IndexChange {
            table,
            key: key.into(),
            value: Some([byte; 11]),
        };
        let index = [
            change(Table::ByTime, b"a", 1),
            change(Table::ByTime, b"a", 2),
            change(Table::ByKind, b"a", 3),
        ];
        let mut runs = Runs::default();
        runs.add(&layer, &index);
        assert_eq!(runs.get(Table::ByTime, b"a"), Some(Some(&[2; 11][..])));
        assert_eq!(runs.get(Table::ByKind, b"a"), Some(Some(&[3; 11][..])));
        assert_eq!(runs.len(), 2);
    }

    #[test]
    fn a_table_has_few_runs_and_a_row_is_copied_few_times() {
        let mut runs = Runs::default();
        let (mut copied, mut most) = (0, 0);
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..1_000 {
            let mut layer = Layer::default();
            for _ in 0..100 {
                layer.set(Table::Ids, &rng.u64(..).to_be_bytes(), Some([].into()));
            }
            let before: Vec<Arc<Run>> = runs.table(Table::Ids).to_vec();
            runs.add(&layer, &[]);
            let after = runs.table(Table::Ids);
            let is_new = |run: &&Arc<Run>| !before.iter().any(|old| Arc::ptr_eq(old, run));
            copied += after
                .iter()
                .filter(is_new)
                .map(|run| run.rows.len())
                .sum::<usize>();
            most = most.max(after.len());
        }
        assert_eq!(runs.len(), 100_000);
        assert!(most <= 4, "{most} runs");
        assert!(copied <= 20 * runs.len(), "{copied} rows were copied");
    }
}
