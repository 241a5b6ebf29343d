//! A copy of the store that is known to be whole. The manifest is written last: without it, or
//! if it does not fit the data, there is no backup.

use std::fs::{self, File};
use std::io::{self, BufReader, Read as _, Seek as _, Write as _};
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
    /// Those that are served.
    pub events: u64,
    /// Those that wait for their git data.
    pub held: u64,
    pub bytes: u64,
    sha256: String,
}

impl Store {
    /// Copies the committed state into an empty or new directory, while others read and write,
    /// together with small files that belong to it: their names, and what is in them.
    pub fn backup(
        &self,
        dir: &Path,
        files: &[(&str, String)],
    ) -> Result<BackupSummary, StoreError> {
        create_private_dir(dir)?;
        let path = dir.join(DATA);
        let mut file = create_new(&path)?;
        self.copy_to(&mut file)?;
        file.sync_all().map_err(StoreError::io(&path))?;
        let (events, held) = count_events(&path)?;
        let summary = BackupSummary {
            events,
            held,
            bytes: file.metadata().map_err(StoreError::io(&path))?.len(),
            sha256: {
                let copy = File::open(&path).map_err(StoreError::io(&path))?;
                sha256(&copy, &path)?
            },
        };
        for (name, text) in files {
            write_new(&dir.join(name), text)?;
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

/// Puts a backup where no event is yet. The data appears whole or not at all.
pub fn restore(from: &Path, to: &Path) -> Result<BackupSummary, StoreError> {
    Backup::open(from)?.restore_after(to, || Ok(()))
}

/// A backup that is what its manifest says, opened: whoever restores it need not be able to read
/// its folder any more.
#[derive(Debug)]
pub struct Backup {
    path: PathBuf,
    data: File,
    summary: BackupSummary,
}

impl Backup {
    /// Looks at all of it, before LMDB maps a byte.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let bad = |why: &str| StoreError::BadBackup {
            path: dir.to_owned(),
            why: why.to_owned(),
        };
        let text = fs::read_to_string(dir.join(MANIFEST));
        let text = text.map_err(|_| bad("there is no MANIFEST"))?;
        let summary = parse_manifest(&text).ok_or_else(|| bad("its MANIFEST is damaged"))?;
        let path = dir.join(DATA);
        let data = File::open(&path).map_err(|_| bad("its data is missing"))?;
        let length = data.metadata().map_err(StoreError::io(&path))?.len();
        if length != summary.bytes || sha256(&data, &path)? != summary.sha256 {
            return Err(bad("its data is not what the MANIFEST says"));
        }
        Ok(Self {
            path,
            data,
            summary,
        })
    }

    /// `first` is done before the data appears, and when it is sure that the place is good.
    pub fn restore_after(
        self,
        to: &Path,
        first: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<BackupSummary, StoreError> {
        create_private(to)?;
        let _lock = lmdb::lock(to)?;
        if lmdb::exists(to) && !is_empty(to)? {
            return Err(StoreError::Occupied(to.to_owned()));
        }
        first()?;
        let partial = to.join("restoring.tmp");
        self.copy_to(&partial)?;
        lmdb::forget_readers(to)?;
        let target = lmdb::data_file(to);
        fs::rename(&partial, &target).map_err(StoreError::io(&target))?;
        sync_dir(to)?;
        Ok(self.summary)
    }

    /// Whatever the permissions of the original. What an earlier try left is written anew.
    fn copy_to(&self, to: &Path) -> Result<(), StoreError> {
        match fs::remove_file(to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io(to)(error));
            }
            _ => {}
        }
        let mut source = &self.data;
        source.rewind().map_err(StoreError::io(&self.path))?;
        let mut file = create_new(to)?;
        io::copy(&mut source, &mut file)
            .and_then(|_| file.sync_all())
            .map_err(StoreError::io(to))
    }
}

/// A server that was started once, and to which nobody has sent anything.
fn is_empty(dir: &Path) -> Result<bool, StoreError> {
    let store = Store::open_read_only(dir)?;
    Ok(store.stats()?.events == 0 && store.held()? == 0)
}

fn write_manifest(dir: &Path, summary: &BackupSummary) -> Result<(), StoreError> {
    let text = format!(
        "events {}\nheld {}\nbytes {}\nsha256 {}\n",
        summary.events, summary.held, summary.bytes, summary.sha256
    );
    write_new(&dir.join(MANIFEST), &text)
}

fn write_new(path: &Path, text: &str) -> Result<(), StoreError> {
    let mut file = create_new(path)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(StoreError::io(path))
}

fn parse_manifest(text: &str) -> Option<BackupSummary> {
    let field = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .find_map(|(found, value)| (found == name).then_some(value))
    };
    Some(BackupSummary {
        events: field("events")?.parse().ok()?,
        held: field("held").unwrap_or("0").parse().ok()?,
        bytes: field("bytes")?.parse().ok()?,
        sha256: field("sha256")?.to_owned(),
    })
}

/// Counts in the copy itself: the number is true even while the source goes on.
fn count_events(data: &Path) -> Result<(u64, u64), StoreError> {
    // LMDB opens directories: look at the copy through one that holds only a link to it.
    let view = data.with_extension("view");
    fs::create_dir(&view).map_err(StoreError::io(&view))?;
    let link = lmdb::data_file(&view);
    let count = fs::hard_link(data, &link)
        .map_err(StoreError::io(&link))
        .and_then(|()| {
            let store = Store::open_read_only(&view)?;
            Ok((store.stats()?.events, store.held()?))
        });
    fs::remove_dir_all(&view).map_err(StoreError::io(&view))?;
    count
}

fn sha256(file: &File, path: &Path) -> Result<String, StoreError> {
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

/// For the operator's eyes only.
fn create_new(path: &Path) -> Result<File, StoreError> {
    private().open(path).map_err(StoreError::io(path))
}

fn private() -> fs::OpenOptions {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn create_private(dir: &Path) -> Result<(), StoreError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).map_err(StoreError::directory(dir))
}

/// Backups hold everything that the server holds.
fn create_private_dir(dir: &Path) -> Result<(), StoreError> {
    create_private(dir)?;
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
