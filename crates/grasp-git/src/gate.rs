//! The gate between those who lean on objects and the one who drops them. Whoever brings objects
//! or moves refs goes through and stays until it is done; a prune closes the gate only for the
//! moment in which it drops what nobody reaches, and only if nobody went through since it looked.

use std::path::{Path, PathBuf};

use crate::error::GitError;
use crate::files::{self, Claim};

/// Goes through: what is here now stays until the claim is dropped, and a prune that has looked
/// already gives up. Waits while one drops what it found, some milliseconds.
pub(crate) fn enter(objects: &Path) -> Result<Claim, GitError> {
    let claim = stay(objects)?;
    files::remove_file(&mark(objects))?;
    Ok(claim)
}

/// The same for somebody who only looks: no prune drops anything meanwhile.
pub(crate) fn stay(objects: &Path) -> Result<Claim, GitError> {
    files::make_dir(&objects.join("info"))?;
    Claim::share(&path(objects))
}

/// `Busy` if anybody is inside.
pub(crate) fn close(objects: &Path) -> Result<Claim, GitError> {
    files::make_dir(&objects.join("info"))?;
    Claim::take(&path(objects))
}

/// From now on it can be told whether somebody went through. Needs a gate that is closed.
pub(crate) fn watch(objects: &Path, _closed: &Claim) -> Result<(), GitError> {
    let mark = mark(objects);
    std::fs::write(&mark, b"").map_err(GitError::io(&mark))
}

/// True if nobody went through since [`watch`]. Needs a gate that is closed.
pub(crate) fn was_quiet(objects: &Path, _closed: &Claim) -> bool {
    mark(objects).exists()
}

/// Ends what [`watch`] began.
pub(crate) fn forget(objects: &Path) -> Result<(), GitError> {
    files::remove_file(&mark(objects))
}

fn path(objects: &Path) -> PathBuf {
    objects.join("info/gate")
}

/// Removed by the first who goes through.
fn mark(objects: &Path) -> PathBuf {
    objects.join("info/nobody-came")
}
