//! Tables in LMDB: one writer, any number of readers in this and other processes, a commit is
//! on disk when it returns.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoRange, RoTxn, RwTxn, WithoutTls};

use super::{Read, Table, Write};
use crate::error::StoreError;
use crate::schema;

/// Address space, not disk or memory: the file grows as it fills. Beyond what a small machine's
/// disk holds, so that the map is never the limit.
const MAP_SIZE: usize = 1 << 40;
/// Read transactions at once in all processes; a slot is 64 bytes.
const MAX_READERS: u32 = 1024;

const META: &str = "meta";
const DATA_FILE: &str = "data.mdb";
/// LMDB's own: who reads. A look makes it, if it is not there.
const READERS_FILE: &str = "lock.mdb";
const LOCK_FILE: &str = "ngit-grasp.lock";

/// `None` for a table that a store of an older version, opened to be read, does not have yet.
type OneTable = Option<Database<Bytes, Bytes>>;
type Tables = [OneTable; Table::ALL.len()];

#[derive(Debug)]
pub(crate) struct Lmdb {
    env: Env<WithoutTls>,
    tables: Tables,
    /// Held for as long as we write; the kernel gives it back when the process ends.
    _lock: Option<File>,
}

impl Lmdb {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(path).map_err(StoreError::directory(path))?;
        let lock = lock(path)?;
        let env = open_env(path, EnvFlags::empty())?;
        // Tables and version in one commit: a store is there whole, or not at all.
        let mut txn = env.write_txn()?;
        let meta = env.create_database::<Bytes, Bytes>(&mut txn, Some(META))?;
        match meta.get(&txn, schema::META_VERSION)? {
            Some(found) => check_version(path, found)?,
            None => meta.put(
                &mut txn,
                schema::META_VERSION,
                &schema::VERSION.to_be_bytes(),
            )?,
        }
        let mut tables = Vec::with_capacity(Table::ALL.len());
        for (_, name) in Table::ALL {
            tables.push(Some(
                env.create_database::<Bytes, Bytes>(&mut txn, Some(name))?,
            ));
        }
        txn.commit()?;
        Self::assemble(env, tables, Some(lock))
    }

    /// Beside a running server: reads what is committed, never writes, takes no lock.
    pub(crate) fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        if !exists(path) {
            return Err(StoreError::Missing(path.to_owned()));
        }
        let env = open_env(path, EnvFlags::READ_ONLY)?;
        let txn = env.read_txn()?;
        let meta = env.open_database::<Bytes, Bytes>(&txn, Some(META))?;
        let meta = meta.ok_or_else(|| StoreError::Missing(path.to_owned()))?;
        check_version(
            path,
            meta.get(&txn, schema::META_VERSION)?.unwrap_or_default(),
        )?;
        let mut tables = Vec::with_capacity(Table::ALL.len());
        for (_, name) in Table::ALL {
            tables.push(env.open_database::<Bytes, Bytes>(&txn, Some(name))?);
        }
        txn.commit()?;
        Self::assemble(env, tables, None)
    }

    fn assemble(
        env: Env<WithoutTls>,
        tables: Vec<OneTable>,
        lock: Option<File>,
    ) -> Result<Self, StoreError> {
        let tables = Tables::try_from(tables)
            .map_err(|_| StoreError::Damaged("a table is missing".to_owned()))?;
        Ok(Self {
            env,
            tables,
            _lock: lock,
        })
    }

    pub(crate) fn read(&self) -> Result<LmdbRead<'_>, StoreError> {
        Ok(LmdbRead {
            txn: self.env.read_txn()?,
            tables: self.tables,
        })
    }

    /// A view that lives on its own. It pins old pages for as long as it is held.
    pub(crate) fn snapshot(&self) -> Result<LmdbRead<'static>, StoreError> {
        Ok(LmdbRead {
            txn: self.env.clone().static_read_txn()?,
            tables: self.tables,
        })
    }

    pub(crate) fn write(&self) -> Result<LmdbWrite<'_>, StoreError> {
        Ok(LmdbWrite {
            txn: self.env.write_txn()?,
            tables: self.tables,
        })
    }

    /// Readers killed in the middle of a backup would pin old pages for ever.
    pub(crate) fn clear_stale_readers(&self) -> Result<(), StoreError> {
        self.env.clear_stale_readers()?;
        Ok(())
    }

    pub(crate) fn disk_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.env.real_disk_size()?)
    }

    /// A consistent copy without free pages, while others read and write.
    pub(crate) fn copy_to(&self, file: &mut File) -> Result<(), StoreError> {
        self.env
            .copy_to_file(file, heed::CompactionOption::Enabled)?;
        Ok(())
    }
}

fn check_version(path: &Path, found: &[u8]) -> Result<(), StoreError> {
    let found = found.try_into().map_or(0, u32::from_be_bytes);
    if found == schema::VERSION {
        return Ok(());
    }
    Err(StoreError::Schema {
        path: path.to_owned(),
        found,
        expected: schema::VERSION,
    })
}

pub(crate) fn exists(path: &Path) -> bool {
    data_file(path).exists()
}

pub(crate) fn data_file(path: &Path) -> PathBuf {
    path.join(DATA_FILE)
}

/// Other data comes in their place. Needs our lock, and nobody who reads.
pub(crate) fn forget_readers(path: &Path) -> Result<(), StoreError> {
    let file = path.join(READERS_FILE);
    match fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::io(file)(error))
        }
        _ => Ok(()),
    }
}

/// One writer process per directory. The file names the process for the error message only.
pub(crate) fn lock(path: &Path) -> Result<File, StoreError> {
    let file_path = path.join(LOCK_FILE);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&file_path)
        .map_err(StoreError::io(&file_path))?;
    match try_lock_patiently(&file) {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut text = String::new();
            let pid = file
                .read_to_string(&mut text)
                .ok()
                .and_then(|_| text.trim().parse().ok());
            let path = path.to_owned();
            return Err(StoreError::Locked { path, pid });
        }
        Err(fs::TryLockError::Error(source)) => {
            return Err(StoreError::Io {
                path: file_path,
                source,
            });
        }
    }
    file.set_len(0).map_err(StoreError::io(&file_path))?;
    writeln!(file, "{}", std::process::id()).map_err(StoreError::io(&file_path))?;
    Ok(file)
}

/// A process that we are just starting shares our files until it becomes another program.
fn try_lock_patiently(file: &File) -> Result<(), fs::TryLockError> {
    for _ in 0..10 {
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            locked_or_failed => return locked_or_failed,
        }
    }
    file.try_lock()
}

#[allow(unsafe_code)]
fn open_env(path: &Path, flags: EnvFlags) -> Result<Env<WithoutTls>, StoreError> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options
        .map_size(MAP_SIZE)
        .max_readers(MAX_READERS)
        .max_dbs(Table::ALL.len() as u32);
    // SAFETY: the map is unsound only if the file is changed behind LMDB's back. Our lock keeps
    // a second writer out, LMDB's own lock orders readers, and no flag weakens either.
    let env = unsafe { options.flags(flags).open(path) };
    env.map_err(|error| match error {
        heed::Error::Io(source) if source.kind() == std::io::ErrorKind::PermissionDenied => {
            StoreError::Open {
                path: refused(path).unwrap_or_else(|| path.to_owned()),
                source,
            }
        }
        heed::Error::Io(source) => StoreError::Open {
            path: path.to_owned(),
            source,
        },
        other => StoreError::Open {
            path: path.to_owned(),
            source: std::io::Error::other(other),
        },
    })
}

/// Which of LMDB's files it is that we may not open.
fn refused(path: &Path) -> Option<PathBuf> {
    let files = [DATA_FILE, READERS_FILE].map(|name| path.join(name));
    let is_refused = |file: &PathBuf| {
        File::open(file).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    files.into_iter().find(is_refused)
}

pub(crate) struct LmdbRead<'e> {
    txn: RoTxn<'e, WithoutTls>,
    tables: Tables,
}

pub(crate) struct LmdbWrite<'e> {
    txn: RwTxn<'e>,
    tables: Tables,
}

impl LmdbRead<'_> {
    pub(crate) fn len(&self, table: Table) -> Result<u64, StoreError> {
        match of(&self.tables, table) {
            Some(rows) => Ok(rows.len(&self.txn)?),
            None => Ok(0),
        }
    }
}

impl LmdbWrite<'_> {
    pub(crate) fn commit(self) -> Result<(), StoreError> {
        Ok(self.txn.commit()?)
    }
}

fn of(tables: &Tables, table: Table) -> OneTable {
    tables.get(table as usize).copied().flatten()
}

/// A writer has them all.
fn written(tables: &Tables, table: Table) -> Result<Database<Bytes, Bytes>, StoreError> {
    of(tables, table).ok_or_else(|| StoreError::Damaged("a table is missing".to_owned()))
}

/// LMDB has no empty keys and refuses to look for one.
fn not_empty(from: Bound<&[u8]>) -> Bound<&[u8]> {
    match from {
        Bound::Included([]) => Bound::Unbounded,
        from => from,
    }
}

macro_rules! read_through_txn {
    ($reader:ident) => {
        impl Read for $reader<'_> {
            type Rows<'a>
                = LmdbRows<'a>
            where
                Self: 'a;

            fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
                match of(&self.tables, table) {
                    Some(rows) => Ok(rows.get(&self.txn, key)?),
                    None => Ok(None),
                }
            }

            fn rows(&self, table: Table, from: Bound<&[u8]>) -> Result<LmdbRows<'_>, StoreError> {
                let range = (not_empty(from), Bound::Unbounded);
                let rows = of(&self.tables, table).map(|rows| rows.range(&self.txn, &range));
                Ok(LmdbRows(rows.transpose()?))
            }
        }
    };
}

read_through_txn!(LmdbRead);
read_through_txn!(LmdbWrite);

impl Write for LmdbWrite<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        Ok(written(&self.tables, table)?.put(&mut self.txn, key, value)?)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        written(&self.tables, table)?.delete(&mut self.txn, key)?;
        Ok(())
    }
}

pub(crate) struct LmdbRows<'a>(Option<RoRange<'a, Bytes, Bytes>>);

impl<'a> Iterator for LmdbRows<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.0.as_mut()?.next()?;
        Some(row.map_err(StoreError::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store as a version made it that knew fewer tables.
    fn older_store(path: &Path, without: &[&str]) {
        let env = open_env(path, EnvFlags::empty()).unwrap();
        let mut txn = env.write_txn().unwrap();
        for (_, name) in Table::ALL {
            if !without.contains(&name) {
                env.create_database::<Bytes, Bytes>(&mut txn, Some(name))
                    .unwrap();
            }
        }
        let meta = env.create_database::<Bytes, Bytes>(&mut txn, Some(META));
        let version = schema::VERSION.to_be_bytes();
        meta.unwrap()
            .put(&mut txn, schema::META_VERSION, &version)
            .unwrap();
        txn.commit().unwrap();
    }

    #[test]
    fn a_table_that_an_older_store_lacks_is_read_as_empty_and_made_by_the_writer() {
        let dir = tempfile::tempdir().unwrap();
        older_store(dir.path(), &["relays", "dismissed"]);
        {
            let lmdb = Lmdb::open_read_only(dir.path()).unwrap();
            let read = lmdb.read().unwrap();
            assert_eq!(read.get(Table::Relays, b"key").unwrap(), None);
            let mut rows = read.rows(Table::Relays, Bound::Unbounded).unwrap();
            assert!(rows.next().is_none());
            assert_eq!(read.len(Table::Dismissed).unwrap(), 0);
        }
        let lmdb = Lmdb::open(dir.path()).unwrap();
        let mut write = lmdb.write().unwrap();
        write.put(Table::Relays, b"key", b"value").unwrap();
        write.commit().unwrap();
        assert_eq!(lmdb.read().unwrap().len(Table::Relays).unwrap(), 1);
    }
}
