//! What can go wrong with a store, and the questions a caller asks about it.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{} is in use by another ngit-grasp{}", .path.display(), pid_hint(.pid))]
    Locked { path: PathBuf, pid: Option<u32> },
    #[error("there is no event store at {}", .0.display())]
    Missing(PathBuf),
    #[error("the event store at {} has schema {found}, this version reads {expected}", .path.display())]
    Schema {
        path: PathBuf,
        found: u32,
        expected: u32,
    },
    #[error("{} already holds events; move that directory away first", .0.display())]
    Occupied(PathBuf),
    #[error("{} is not a complete backup: {why}", .path.display())]
    BadBackup { path: PathBuf, why: String },
    #[error("this view of the store cannot be written")]
    ReadOnly,
    #[error("the in-memory store has no files to back up")]
    NotOnDisk,
    #[error("a stored record is damaged: {0}")]
    Damaged(String),
    #[error("{}: {source}", .path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot make or use the directory {}: {source}", .path.display())]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot open the event store in {}: {source}", .path.display())]
    Open {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("database: {0}")]
    Database(#[from] heed::Error),
}

impl StoreError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| StoreError::Io { path, source }
    }

    pub(crate) fn directory(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| StoreError::Directory { path, source }
    }

    /// No room left on the disk or in the map: writing fails until the operator acts.
    pub fn is_full(&self) -> bool {
        match self {
            StoreError::Database(heed::Error::Mdb(heed::MdbError::MapFull)) => true,
            StoreError::Database(heed::Error::Io(error)) | StoreError::Io { source: error, .. } => {
                error.kind() == std::io::ErrorKind::StorageFull
            }
            _ => false,
        }
    }
}

fn pid_hint(pid: &Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})"))
        .unwrap_or_default()
}
