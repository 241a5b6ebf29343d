//! One bare repository on disk: made, found, measured, tidied, taken away. Refs are in `refs`,
//! objects in `objects`, what comes in through `quarantine`.
//!
//! What is not `async` here waits for the disk: call it off the event loop.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::adopt;
use crate::error::GitError;
use crate::fetch::SLICES;
use crate::files;
use crate::objects::Objects;

/// A bare repository. Cheap to clone; holds nothing open.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Repo {
    dir: PathBuf,
}

/// What a killed process had left behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Lock files, half-written packs and objects.
    pub files: usize,
    /// Quarantines that nobody will migrate, slices that nobody will complete, and packs that a
    /// prune was making.
    pub quarantines: usize,
    /// Sets of objects whose taking over was begun and is now finished.
    pub adoptions: usize,
}

/// The server's settings are on every command line; these are for a person who uses git here.
const CONFIG: &str = "\
[core]
\trepositoryformatversion = 0
\tfilemode = false
\tbare = true
\thooksPath = /dev/null
\tlogAllRefUpdates = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[transfer]
\tfsckObjects = true
[receive]
\tautogc = false
[uploadpack]
\tallowFilter = true
\tallowTipSHA1InWant = true
\tallowReachableSHA1InWant = true
";
const HEAD: &str = "ref: refs/heads/master\n";
const FOLDERS: &[&str] = &["objects/info", "objects/pack", "refs/heads", "refs/tags"];
const CREATING: &str = ".creating-";
const REMOVING: &str = ".removing-";
pub(crate) const INCOMING: &str = "incoming-";
pub(crate) const PRUNING: &str = "pruning-";

impl Repo {
    /// Makes an empty repository with HEAD at `refs/heads/master`. False if there was one, whose
    /// HEAD is made anew if nothing can be read there.
    pub fn create(dir: &Path) -> Result<(Self, bool), GitError> {
        let dir = absolute(dir)?;
        if dir.join("objects").is_dir() {
            let repo = Self { dir };
            repo.mend_head()?;
            return Ok((repo, false));
        }
        let parent = parent_of(&dir)?;
        files::make_dir(parent)?;
        let making = temporary_in(parent, CREATING)?;
        let inside = making.path();
        for folder in FOLDERS {
            files::make_dir(&inside.join(folder))?;
        }
        files::write_new(&inside.join("config"), CONFIG.as_bytes())?;
        files::write_new(&inside.join("HEAD"), HEAD.as_bytes())?;
        files::sync(inside)?;
        match fs::rename(inside, &dir) {
            Ok(()) => {
                // Nothing is there any more; the name may be somebody else's next.
                let _ = making.keep();
                files::sync(parent)?;
                Ok((Self { dir }, true))
            }
            Err(_) => Self::open(&dir).map(|repo| (repo, false)),
        }
    }

    /// A repository is a directory with a HEAD and objects.
    pub fn open(dir: &Path) -> Result<Self, GitError> {
        let dir = absolute(dir)?;
        if dir.join("HEAD").is_file() && dir.join("objects").is_dir() {
            return Ok(Self { dir });
        }
        if dir.exists() {
            return Err(GitError::damaged(&dir, "HEAD or objects are missing"));
        }
        Err(GitError::NotFound(dir))
    }

    fn mend_head(&self) -> Result<(), GitError> {
        match self.head() {
            Err(error) if error.is_damaged() => {
                files::replace(&self.dir.join("HEAD"), HEAD.as_bytes())
            }
            read => read.map(drop),
        }
    }

    /// It vanishes at once, also when it is damaged; the space comes back after. False if there
    /// was none.
    pub fn remove(dir: &Path) -> Result<bool, GitError> {
        let dir = absolute(dir)?;
        let parent = parent_of(&dir)?;
        if !dir.exists() {
            return Ok(false);
        }
        let aside = temporary_in(parent, REMOVING)?;
        match fs::rename(&dir, aside.path().join("repository")) {
            Ok(()) => {}
            Err(error) if files::is_absent(&error) => return Ok(false),
            Err(error) => return Err(GitError::io(&dir)(error)),
        }
        files::sync(parent)?;
        let path = aside.keep();
        files::remove_tree(&path).map(|()| true)
    }

    /// Clears what a killed `create` or `remove` left in the folder that holds repositories.
    pub fn clear_abandoned(folder: &Path, before: SystemTime) -> Result<usize, GitError> {
        let mut cleared = 0;
        for entry in files::list(folder)? {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // A repository may be called like that, and then it ends as all of them do.
            let ours = (name.starts_with(CREATING) || name.starts_with(REMOVING))
                && !name.ends_with(".git");
            if ours && is_older(&entry, before) {
                files::remove_tree(&entry.path())?;
                cleared += 1;
            }
        }
        Ok(cleared)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn objects_dir(&self) -> PathBuf {
        self.dir.join("objects")
    }

    pub fn objects(&self) -> Result<Objects, GitError> {
        Objects::open(&self.objects_dir())
    }

    /// Nothing was ever pushed to it.
    pub fn is_empty(&self) -> Result<bool, GitError> {
        let objects = self.objects_dir();
        Ok(adopt::packs(&objects)?.is_empty()
            && adopt::loose(&objects)?.is_empty()
            && self.refs()?.refs.is_empty())
    }

    /// Bytes of all files. What is shared with another repository counts in both.
    pub fn size(&self) -> Result<u64, GitError> {
        let mut total = 0;
        let mut folders = vec![self.dir.clone()];
        while let Some(folder) = folders.pop() {
            for entry in files::list(&folder)? {
                // Gone since it was listed: a repack at work.
                let Ok(found) = entry.metadata() else {
                    continue;
                };
                if found.is_dir() {
                    folders.push(entry.path());
                } else {
                    total += found.len();
                }
            }
        }
        Ok(total)
    }

    /// Clears what was last touched before a point in time. With the present as that point, only
    /// when nothing works on the repository: quarantines and locks in use would go too.
    pub fn clear_leftovers(&self, before: SystemTime) -> Result<Leftovers, GitError> {
        let mut cleared = Leftovers::default();
        for entry in files::list(&self.dir)? {
            let name = entry.file_name();
            if name.to_string_lossy().ends_with(".lock") && is_older(&entry, before) {
                files::remove_file(&entry.path())?;
                cleared.files += 1;
            }
        }
        cleared.adoptions = adopt::resume(self)?;
        for entry in files::list(&self.objects_dir())? {
            self.clear_in_objects(&entry, before, &mut cleared)?;
        }
        Ok(cleared)
    }

    fn clear_in_objects(
        &self,
        entry: &fs::DirEntry,
        before: SystemTime,
        cleared: &mut Leftovers,
    ) -> Result<(), GitError> {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let unfinished = [INCOMING, PRUNING, SLICES, "tmp_objdir-"];
        if unfinished.iter().any(|start| name.starts_with(start)) {
            if is_older(entry, before) {
                files::remove_tree(&entry.path())?;
                cleared.quarantines += 1;
            }
        } else if name == "pack" {
            cleared.files += clear_pack_folder(&entry.path(), before)?;
        } else if name.len() == 2 || name == "info" {
            cleared.files += clear_named(&entry.path(), before, is_temporary)?;
        } else if is_temporary(&name) && is_older(entry, before) {
            files::remove_file(&entry.path())?;
            cleared.files += 1;
        }
        Ok(())
    }
}

/// Half-written packs, and packs whose index never came: nobody can see them.
fn clear_pack_folder(folder: &Path, before: SystemTime) -> Result<usize, GitError> {
    let mut cleared = clear_named(folder, before, is_temporary)?;
    for entry in files::list(folder)? {
        let path = entry.path();
        let orphan = path
            .extension()
            .is_some_and(|kind| kind != "idx" && kind != "keep")
            && entry.file_name().to_string_lossy().starts_with("pack-")
            && !path.with_extension("idx").exists();
        if orphan && is_older(&entry, before) {
            files::remove_file(&path)?;
            cleared += 1;
        }
    }
    Ok(cleared)
}

fn clear_named(
    folder: &Path,
    before: SystemTime,
    wanted: impl Fn(&str) -> bool,
) -> Result<usize, GitError> {
    let mut cleared = 0;
    for entry in files::list(folder)? {
        if wanted(&entry.file_name().to_string_lossy()) && is_older(&entry, before) {
            files::remove_file(&entry.path())?;
            cleared += 1;
        }
    }
    Ok(cleared)
}

fn is_temporary(name: &str) -> bool {
    name.starts_with("tmp_") || name.starts_with(".tmp-") || name.ends_with(".lock")
}

/// Not older if it cannot be told: it may be gone, or too new to be sure.
pub(crate) fn is_older(entry: &fs::DirEntry, before: SystemTime) -> bool {
    let modified = entry.metadata().and_then(|found| found.modified());
    modified.is_ok_and(|modified| modified < before)
}

pub(crate) fn temporary_in(folder: &Path, prefix: &str) -> Result<tempfile::TempDir, GitError> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755));
    builder.tempdir_in(folder).map_err(GitError::io(folder))
}

fn absolute(dir: &Path) -> Result<PathBuf, GitError> {
    std::path::absolute(dir).map_err(GitError::io(dir))
}

fn parent_of(dir: &Path) -> Result<&Path, GitError> {
    let none = || io::Error::new(io::ErrorKind::InvalidInput, "has no parent");
    dir.parent().ok_or_else(|| GitError::io(dir)(none()))
}
