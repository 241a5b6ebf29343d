//! What can go wrong with git, as types with questions. Refusals of a push's command list are
//! in `commands`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use grasp_core::git::{ObjectId, RefName};

#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git could not be started: {0}")]
    Spawn(#[source] io::Error),
    #[error("git {args} failed: {stderr}")]
    Failed { args: String, stderr: String },
    #[error("git printed something unexpected: {0:?}")]
    Unexpected(String),
    #[error("git {args} took longer than {} s", after.as_secs())]
    TimedOut { args: String, after: Duration },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("there is no repository at {}", .0.display())]
    NotFound(PathBuf),
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("another writer holds {}", .0.display())]
    Busy(PathBuf),
    #[error("a new pack needs {needed} bytes, with those that stay free, and the disk has {free}")]
    NoSpace { needed: u64, free: u64 },
    #[error("the disk is full: {0}")]
    DiskFull(String),
    #[error("object {0} is not here")]
    MissingObject(ObjectId),
    #[error("object {object} is not read: {why}")]
    Costly { object: ObjectId, why: String },
    #[error("{0} and {1} cannot both exist")]
    RefConflict(RefName, RefName),
    #[error("the pack is refused: {0}")]
    Pack(#[from] PackFault),
    #[error("the objects are not complete: {0}")]
    NotConnected(String),
    #[error("the sender's bytes ended early: {0}")]
    Body(#[source] io::Error),
}

/// What is wrong with a pack that somebody sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackFault {
    #[error("it is not a pack")]
    NotAPack,
    #[error("pack version {0} is not known")]
    Version(u32),
    #[error("it ends before its end")]
    Truncated,
    #[error("bytes follow its end")]
    TrailingBytes,
    #[error("it is larger than {limit} bytes")]
    TooLarge { limit: u64 },
    #[error("it has {count} objects, more than {limit}")]
    TooManyObjects { count: u32, limit: u32 },
    #[error("an object that it needs is missing ({0})")]
    Incomplete(String),
    #[error("{0}")]
    Malformed(String),
    #[error("object {object} has a fault: {words} ({fault})")]
    Fsck {
        object: ObjectId,
        /// As fsck calls it.
        fault: String,
        words: String,
    },
    #[error(
        "object {object} is the end of a chain of {depth} deltas, and {limit} are the limit: \
         pack it with a lower pack.depth"
    )]
    DeepDelta {
        object: ObjectId,
        depth: u32,
        limit: u32,
    },
    #[error("unpacking it takes more than {seconds} s of processor time, too much for its size")]
    TooMuchCpu { seconds: u64 },
    #[error("it takes too much memory or time to unpack ({0})")]
    TooCostly(String),
}

impl GitError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }

    pub fn is_damaged(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }

    /// Somebody else writes; the same call may succeed later.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_))
    }

    /// The disk is too full for it; the same call may succeed later.
    pub fn is_no_space(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Self::NoSpace { .. } | Self::DiskFull(_) => true,
            Self::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded),
            _ => false,
        }
    }

    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    pub fn is_too_large(&self) -> bool {
        matches!(
            self,
            Self::Pack(PackFault::TooLarge { .. } | PackFault::TooManyObjects { .. })
        )
    }

    /// Objects are missing that the sender, or somebody else, may still bring.
    pub fn is_incomplete(&self) -> bool {
        matches!(
            self,
            Self::MissingObject(_) | Self::NotConnected(_) | Self::Pack(PackFault::Incomplete(_))
        )
    }

    /// What was sent is at fault, not this server.
    pub fn is_client_fault(&self) -> bool {
        matches!(
            self,
            Self::Pack(_)
                | Self::NotConnected(_)
                | Self::Body(_)
                | Self::MissingObject(_)
                | Self::RefConflict(..)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_known_and_nobody_elses_fault() {
        let io = |kind: io::ErrorKind| GitError::io(Path::new("/x"))(kind.into());
        for full in [
            GitError::DiskFull("write error".to_owned()),
            io(io::ErrorKind::StorageFull),
            io(io::ErrorKind::QuotaExceeded),
        ] {
            assert!(full.is_no_space() && !full.is_client_fault(), "{full}");
        }
        assert!(!io(io::ErrorKind::PermissionDenied).is_no_space());
    }
}
