//! Tables in memory, for `NGIT_DATABASE_BACKEND=memory` and for tests.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::ops::Bound;

use super::{Read, Table, Write};
use crate::error::StoreError;

type Map = BTreeMap<Box<[u8]>, Box<[u8]>>;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    tables: [Map; Table::ALL.len()],
}

impl Memory {
    pub(crate) fn len(&self, table: Table) -> u64 {
        self.table(table).len() as u64
    }

    fn table(&self, table: Table) -> &Map {
        static EMPTY: Map = Map::new();
        self.tables.get(table as usize).unwrap_or(&EMPTY)
    }
}

impl Read for Memory {
    type Rows<'a> = MemoryRows<'a>;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        Ok(self.table(table).get(key).map(|value| &**value))
    }

    fn rows(&self, table: Table, from: Bound<&[u8]>) -> Result<MemoryRows<'_>, StoreError> {
        let range = (from, Bound::Unbounded);
        Ok(MemoryRows(self.table(table).range::<[u8], _>(range)))
    }
}

impl Write for Memory {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        if let Some(map) = self.tables.get_mut(table as usize) {
            map.insert(key.into(), value.into());
        }
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        if let Some(map) = self.tables.get_mut(table as usize) {
            map.remove(key);
        }
        Ok(())
    }
}

pub(crate) struct MemoryRows<'a>(Range<'a, Box<[u8]>, Box<[u8]>>);

impl<'a> Iterator for MemoryRows<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| Ok((&**key, &**value)))
    }
}
