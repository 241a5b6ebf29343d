//! Small steps on files that survive a crash: written whole, synced, renamed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::GitError;

const SYNCED_AT_ONCE: usize = 8;

/// Runs what waits for the disk where it keeps nobody else waiting.
pub(crate) async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GitError> + Send + 'static,
) -> Result<T, GitError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(stopped) => Err(GitError::Spawn(stopped.into())),
    }
}

pub(crate) fn sync(path: &Path) -> Result<(), GitError> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(GitError::io(path))
}

/// At the same time, because a file system writes down many for the price of one.
pub(crate) fn sync_all<'a>(paths: &'a [PathBuf]) -> Result<(), GitError> {
    std::thread::scope(|scope| {
        for group in paths.chunks(SYNCED_AT_ONCE) {
            let start = |path: &'a PathBuf| scope.spawn(move || sync(path));
            let threads: Vec<_> = group.iter().map(start).collect();
            for thread in threads {
                // A sync does not panic; if it did, the file is not safe.
                thread
                    .join()
                    .unwrap_or_else(|_| Err(GitError::damaged(Path::new(""), "sync")))?;
            }
        }
        Ok(())
    })
}

/// Makes a file young again: somebody needs it.
pub(crate) fn touch(path: &Path) -> Result<(), GitError> {
    File::open(path)
        .and_then(|file| file.set_modified(SystemTime::now()))
        .map_err(GitError::io(path))
}

pub(crate) fn make_dir(path: &Path) -> Result<(), GitError> {
    fs::create_dir_all(path).map_err(GitError::io(path))
}

/// Writes a new file and syncs it.
pub(crate) fn write_new(path: &Path, content: &[u8]) -> Result<(), GitError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(GitError::io(path))
}

/// Replaces a file that needs no lock; durable when this returns.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), GitError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || {
        let mut file = tempfile::Builder::new()
            .prefix("tmp_new_")
            .tempfile_in(folder)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(GitError::io(path))?;
    sync(folder)
}

/// Absent is `None`; more than `limit` bytes is damage.
pub(crate) fn read_small(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, GitError> {
    let size = match fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(GitError::io(path)(error)),
    };
    if size > limit {
        return Err(GitError::damaged(path, "far too large"));
    }
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(GitError::io(path)(error)),
    }
}

/// The names in a directory; none if it does not exist.
pub(crate) fn list(path: &Path) -> Result<Vec<fs::DirEntry>, GitError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(GitError::io(path)(error)),
    };
    entries
        .collect::<io::Result<_>>()
        .map_err(GitError::io(path))
}

/// What the file system has for us; none if it cannot say.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

pub(crate) fn remove_file(path: &Path) -> Result<(), GitError> {
    absent_is_fine(fs::remove_file(path)).map_err(GitError::io(path))
}

pub(crate) fn remove_tree(path: &Path) -> Result<(), GitError> {
    absent_is_fine(fs::remove_dir_all(path)).map_err(GitError::io(path))
}

/// Gives a file a second name, or a copy where the file system cannot. True if `to` is new.
/// `NotFound` is passed on as it is: somebody took the file away.
pub(crate) fn link(from: &Path, to: &Path) -> io::Result<bool> {
    match fs::hard_link(from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(_) => copy(from, to),
    }
}

/// Next to its place first, so that no half-written file ever has the name.
fn copy(from: &Path, to: &Path) -> io::Result<bool> {
    let folder = to.parent().unwrap_or(Path::new("."));
    let mut copy = tempfile::Builder::new()
        .prefix("tmp_copy_")
        .tempfile_in(folder)?;
    io::copy(&mut File::open(from)?, copy.as_file_mut())?;
    let permissions = fs::metadata(from)?.permissions();
    copy.as_file().set_permissions(permissions)?;
    copy.as_file().sync_all()?;
    match copy.persist_noclobber(to) {
        Ok(_) => Ok(true),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.error),
    }
}

pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_absent(&error) => Ok(()),
        other => other,
    }
}

/// A lock that a crash releases; the file that carries it means nothing.
pub(crate) struct Claim(File);

impl Claim {
    /// Waits until it is free.
    pub fn wait_for(path: &Path) -> Result<Self, GitError> {
        let file = File::create(path).map_err(GitError::io(path))?;
        file.lock().map_err(GitError::io(path))?;
        Ok(Self(file))
    }

    /// Together with others who share it; waits for one who has taken it.
    pub fn share(path: &Path) -> Result<Self, GitError> {
        let file = File::create(path).map_err(GitError::io(path))?;
        file.lock_shared().map_err(GitError::io(path))?;
        Ok(Self(file))
    }

    /// `Busy` if somebody has it.
    pub fn take(path: &Path) -> Result<Self, GitError> {
        let file = File::create(path).map_err(GitError::io(path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(GitError::Busy(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(GitError::io(path)(error)),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Closing is not enough: a process that is just being started has the file open too.
        let _ = self.0.unlock();
    }
}

/// The right to replace one file: `<file>.lock`, as git does it, so that git respects it too.
/// Dropped without `commit`, nothing has changed.
pub(crate) struct Lock {
    target: PathBuf,
    lock: PathBuf,
    file: File,
}

impl Lock {
    pub fn take(target: &Path) -> Result<Self, GitError> {
        let mut lock = target.as_os_str().to_owned();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        let opened = OpenOptions::new().write(true).create_new(true).open(&lock);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => GitError::Busy(lock.clone()),
            _ => GitError::io(&lock)(error),
        })?;
        Ok(Self {
            target: target.to_owned(),
            lock,
            file,
        })
    }

    /// Replaces the file; durable when this returns.
    pub fn commit(mut self, content: &[u8]) -> Result<(), GitError> {
        self.file
            .write_all(content)
            .and_then(|()| self.file.sync_all())
            .map_err(GitError::io(&self.lock))?;
        fs::rename(&self.lock, &self.target).map_err(GitError::io(&self.target))?;
        // The drop must not take away a lock that somebody else has taken since.
        self.lock = PathBuf::new();
        match self.target.parent() {
            Some(folder) => sync(folder),
            None => Ok(()),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.lock.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.lock);
        }
    }
}
