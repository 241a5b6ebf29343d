//! Changes in the making, kept in memory above other tables: a reader sees the change if there is
//! one, else the row below. Those that are committed are in `runs`.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::Peekable;
use std::ops::Bound;

use super::runs::{RunRows, Runs};
use super::{IndexChange, Read, Table, Write};
use crate::error::StoreError;

/// A new value, or `None` for a row that is gone.
type Change = Option<Box<[u8]>>;
/// Key and record of an event.
type LogEntry = (Box<[u8]>, Box<[u8]>);
type Changes = BTreeMap<Box<[u8]>, Change>;

#[derive(Debug, Default)]
pub(crate) struct Layer {
    tables: [Changes; Table::ALL.len()],
}

impl Layer {
    pub(crate) fn set(&mut self, table: Table, key: &[u8], change: Change) {
        if let Some(changes) = self.tables.get_mut(table as usize) {
            changes.insert(key.into(), change);
        }
    }

    /// Takes out the changes that must not wait in memory.
    pub(crate) fn take_direct(&mut self) -> Vec<(Table, Box<[u8]>, Change)> {
        let tables = Table::ALL.iter().zip(&mut self.tables);
        tables
            .filter(|((table, _), _)| table.is_direct())
            .flat_map(|((table, _), changes)| {
                let changes = std::mem::take(changes).into_iter();
                changes.map(|(key, change)| (*table, key, change))
            })
            .collect()
    }

    /// The change of a row, if there is one.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<Option<&[u8]>> {
        self.table(table).get(key).map(Option::as_deref)
    }

    pub(crate) fn rows(&self, table: Table, from: Bound<&[u8]>) -> LayerRows<'_> {
        let range = (from, Bound::Unbounded);
        LayerRows(self.table(table).range::<[u8], _>(range))
    }

    fn table(&self, table: Table) -> &Changes {
        static EMPTY: Changes = Changes::new();
        self.tables.get(table as usize).unwrap_or(&EMPTY)
    }
}

pub(crate) struct LayerRows<'a>(Range<'a, Box<[u8]>, Change>);

impl<'a> Iterator for LayerRows<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, change) = self.0.next()?;
        Some((key, change.as_deref()))
    }
}

/// Tables seen through committed changes.
pub(crate) struct Layered<'b, B> {
    pub(crate) below: &'b B,
    pub(crate) runs: &'b Runs,
}

impl<B: Read> Read for Layered<'_, B> {
    type Rows<'a>
        = LayeredRows<RunRows<'a>, B::Rows<'a>>
    where
        Self: 'a;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        match self.runs.get(table, key) {
            Some(change) => Ok(change),
            None => self.below.get(table, key),
        }
    }

    fn rows(&self, table: Table, from: Bound<&[u8]>) -> Result<Self::Rows<'_>, StoreError> {
        let above = self.runs.rows(table, from);
        Ok(LayeredRows::new(above, self.below.rows(table, from)?))
    }
}

/// Changes in the making, above tables that stay as they are.
pub(crate) struct Staging<'b, B> {
    below: &'b B,
    /// The records come from the log and need not be kept again.
    replaying: bool,
    pub(crate) staged: Staged,
}

/// What a batch of events changes.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    pub(crate) layer: Layer,
    /// Records of new events, also of those that the same batch removes again: whoever replays
    /// the log must meet them.
    pub(crate) log: Vec<LogEntry>,
    /// Index rows that lie above the layer and that the batch itself does not read.
    pub(crate) index: Vec<IndexChange>,
    /// Size of those records.
    pub(crate) bytes: usize,
    /// By how much the number of stored events changes.
    pub(crate) events: i64,
    /// By how much the number of events changes whose rows a sweep has yet to remove.
    pub(crate) garbage: i64,
    /// What was there is gone, or hidden: that does not wait for the tail to fill.
    pub(crate) removes: bool,
}

impl Staged {
    /// The log is in the order of its keys.
    fn logged(&self, key: &[u8]) -> Option<&[u8]> {
        let place = self
            .log
            .binary_search_by(|(logged, _)| (**logged).cmp(key))
            .ok()?;
        self.log.get(place).map(|(_, record)| &**record)
    }
}

impl<'b, B: Read> Staging<'b, B> {
    pub(crate) fn over(below: &'b B) -> Self {
        Self {
            below,
            replaying: false,
            staged: Staged::default(),
        }
    }

    pub(crate) fn replaying(below: &'b B) -> Self {
        Self {
            replaying: true,
            ..Self::over(below)
        }
    }
}

impl<B: Read> Read for Staging<'_, B> {
    type Rows<'a>
        = LayeredRows<LayerRows<'a>, B::Rows<'a>>
    where
        Self: 'a;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        let staged = &self.staged;
        if let Some(change) = staged.layer.get(table, key) {
            return Ok(change);
        }
        if table == Table::Events
            && let Some(record) = staged.logged(key)
        {
            return Ok(Some(record));
        }
        self.below.get(table, key)
    }

    fn rows(&self, table: Table, from: Bound<&[u8]>) -> Result<Self::Rows<'_>, StoreError> {
        let above = self.staged.layer.rows(table, from);
        Ok(LayeredRows::new(above, self.below.rows(table, from)?))
    }
}

impl<B: Read> Write for Staging<'_, B> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let staged = &mut self.staged;
        match table {
            Table::Events => {
                staged.bytes += value.len();
                if self.replaying {
                    return Ok(());
                }
                staged.log.push((key.into(), value.into()));
                return Ok(());
            }
            Table::Ids => staged.events += 1,
            Table::Garbage => {
                staged.garbage += 1;
                staged.removes = true;
            }
            Table::VanishJobs => staged.removes = true,
            _ => {}
        }
        staged.layer.set(table, key, Some(value.into()));
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        let staged = &mut self.staged;
        match table {
            Table::Events => staged.removes = true,
            Table::Ids => staged.events -= 1,
            Table::Garbage => {
                staged.garbage -= 1;
                staged.removes = true;
            }
            Table::VanishJobs => staged.removes = true,
            _ => {}
        }
        staged.layer.set(table, key, None);
        Ok(())
    }

    fn finish(&mut self, changes: Vec<IndexChange>) -> Result<(), StoreError> {
        self.staged.index = changes;
        Ok(())
    }
}

/// Rows below, with the changes above them.
pub(crate) struct LayeredRows<A: Iterator, I: Iterator> {
    above: Peekable<A>,
    below: Peekable<I>,
}

impl<A: Iterator, I: Iterator> LayeredRows<A, I> {
    fn new(above: A, below: I) -> Self {
        Self {
            above: above.peekable(),
            below: below.peekable(),
        }
    }
}

impl<'a, A, I> Iterator for LayeredRows<A, I>
where
    A: Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    I: Iterator<Item = Result<(&'a [u8], &'a [u8]), StoreError>>,
{
    type Item = Result<(&'a [u8], &'a [u8]), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let order = match (self.above.peek(), self.below.peek()) {
                (None, _) | (_, Some(Err(_))) => return self.below.next(),
                (Some(_), None) => Ordering::Less,
                (Some((above, _)), Some(Ok((below, _)))) => (*above).cmp(below),
            };
            match order {
                Ordering::Greater => return self.below.next(),
                Ordering::Equal => drop(self.below.next()),
                Ordering::Less => {}
            }
            if let Some((key, Some(value))) = self.above.next() {
                return Some(Ok((key, value)));
            }
        }
    }
}
