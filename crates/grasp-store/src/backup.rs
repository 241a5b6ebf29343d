//! A copy of the store that is known to be whole. The manifest is written last: without it, or
//! if it does not fit the data, there is no backup.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use sha2::{Digest, Sha256};

use crate::error::StoreError;
use crate::kv::lmdb;
use crate::{Backend, Store};

const DATA: &str = "events.mdb";
const MANIFEST: &str = "MANIFEST";

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSummary {
    pub events: u64,
    pub bytes: u64,
    sha256: String,
}

impl Store {
    /// Copies the committed state into an empty or new directory, while others read and write,
    /// together with other files that belong to it (those that exist).
    pub fn backup(&self, dir: &Path, files: &[PathBuf]) -> Result<BackupSummary, StoreError> {
        create_private_dir(dir)?;
        let path = dir.join(DATA);
        let mut file = create_new(&path)?;
        self.copy_to(&mut file)?;
        file.sync_all().map_err(StoreError::io(&path))?;
        let summary = BackupSummary {
            events: count_events(&path)?,
            bytes: file.metadata().map_err(StoreError::io(&path))?.len(),
            sha256: sha256(&path)?,
        };
        for file in files {
            copy_into(file, dir)?;
        }
        write_manifest(dir, &summary)?;
        sync_dir(dir)?;
        Ok(summary)
    }

    fn copy_to(&self, file: &mut File) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Disk(disk) => disk.copy_to(file),
            Backend::Snapshot(snapshot) => snapshot
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .copy_to(file),
            Backend::Memory(_) => Err(StoreError::NotOnDisk),
        }
    }
}

/// Puts a backup where no store is yet. The data appears whole or not at all.
pub fn restore(from: &Path, to: &Path) -> Result<BackupSummary, StoreError> {
    let summary = verify(from)?;
    fs::create_dir_all(to).map_err(StoreError::io(to))?;
    let _lock = lmdb::lock(to)?;
    if lmdb::exists(to) {
        return Err(StoreError::Occupied(to.to_owned()));
    }
    let partial = to.join("restoring.tmp");
    copy_private(&from.join(DATA), &partial).map_err(StoreError::io(&partial))?;
    let target = lmdb::data_file(to);
    fs::rename(&partial, &target).map_err(StoreError::io(&target))?;
    sync_dir(to)?;
    Ok(summary)
}

/// Checks that a backup is what its manifest says, before LMDB maps a byte of it.
fn verify(dir: &Path) -> Result<BackupSummary, StoreError> {
    let bad = |why: &str| StoreError::BadBackup {
        path: dir.to_owned(),
        why: why.to_owned(),
    };
    let text = fs::read_to_string(dir.join(MANIFEST)).map_err(|_| bad("there is no MANIFEST"))?;
    let summary = parse_manifest(&text).ok_or_else(|| bad("its MANIFEST is damaged"))?;
    let path = dir.join(DATA);
    let length = fs::metadata(&path)
        .map_err(|_| bad("its data is missing"))?
        .len();
    if length != summary.bytes || sha256(&path)? != summary.sha256 {
        return Err(bad("its data is not what the MANIFEST says"));
    }
    Ok(summary)
}

/// With its permissions: a secret stays one.
fn copy_into(file: &Path, dir: &Path) -> Result<(), StoreError> {
    let Some(name) = file.file_name().filter(|_| file.exists()) else {
        return Ok(());
    };
    let target = dir.join(name);
    fs::copy(file, &target)
        .and_then(|_| File::open(&target)?.sync_all())
        .map_err(StoreError::io(file))
}

fn write_manifest(dir: &Path, summary: &BackupSummary) -> Result<(), StoreError> {
    let path = dir.join(MANIFEST);
    let mut file = create_new(&path)?;
    let text = format!(
        "events {}\nbytes {}\nsha256 {}\n",
        summary.events, summary.bytes, summary.sha256
    );
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(StoreError::io(&path))
}

fn parse_manifest(text: &str) -> Option<BackupSummary> {
    let field = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .find_map(|(found, value)| (found == name).then_some(value))
    };
    Some(BackupSummary {
        events: field("events")?.parse().ok()?,
        bytes: field("bytes")?.parse().ok()?,
        sha256: field("sha256")?.to_owned(),
    })
}

/// Counts in the copy itself: the number is true even while the source goes on.
fn count_events(data: &Path) -> Result<u64, StoreError> {
    // LMDB opens directories: look at the copy through one that holds only a link to it.
    let view = data.with_extension("view");
    fs::create_dir(&view).map_err(StoreError::io(&view))?;
    let link = lmdb::data_file(&view);
    let count = fs::hard_link(data, &link)
        .map_err(StoreError::io(&link))
        .and_then(|()| Store::open_read_only(&view)?.stats());
    fs::remove_dir_all(&view).map_err(StoreError::io(&view))?;
    Ok(count?.events)
}

fn sha256(path: &Path) -> Result<String, StoreError> {
    let file = File::open(path).map_err(StoreError::io(path))?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = reader.read(&mut buffer).map_err(StoreError::io(path))?;
        match buffer.get(..n) {
            Some(chunk) if !chunk.is_empty() => hasher.update(chunk),
            _ => break,
        }
    }
    Ok(grasp_core::id::to_hex(&hasher.finalize()))
}

fn create_new(path: &Path) -> Result<File, StoreError> {
    let created = private().write(true).create_new(true).open(path);
    created.map_err(StoreError::io(path))
}

/// For its owner's eyes, whoever may read the original; durable when this returns.
fn copy_private(from: &Path, to: &Path) -> io::Result<()> {
    match fs::remove_file(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = private().write(true).create_new(true).open(to)?;
    io::copy(&mut File::open(from)?, &mut file)?;
    file.sync_all()
}

/// Files for their owner's eyes only, also in a directory that is open to others.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Backups hold everything that the server holds: for the operator's eyes only.
fn create_private_dir(dir: &Path) -> Result<(), StoreError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).map_err(StoreError::io(dir))?;
    let mut entries = fs::read_dir(dir).map_err(StoreError::io(dir))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(StoreError::Io {
            path: PathBuf::from(dir),
            source: io::Error::new(
                io::ErrorKind::DirectoryNotEmpty,
                "the directory is not empty",
            ),
        }),
    }
}

fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(StoreError::io(dir))
}
