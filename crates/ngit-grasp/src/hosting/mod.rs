//! Repositories on disk: where each lies, and the threads that carry out what the core asks of
//! them. Nothing here decides.

pub mod budget;
mod caretaker;
pub mod conversation;
mod creating;
pub mod overview;
mod queue;
mod repacking;
pub mod room;
mod tasks;
pub mod worker;

pub use self::tasks::heads_and_tags;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use grasp_core::{Identifier, Pubkey, RepoId};
use grasp_git::fetch::clear_slices;
use grasp_git::{GitError, Repo};

use self::creating::Creating;
use self::repacking::Waiting;

/// Repositories whose announcement is gone, kept for a while for the operator to look at.
const RETIRED: &str = ".retired";
const SUFFIX: &str = ".git";
/// Whoever announces, pushes and deletes again makes many small ones.
const MAX_RETIRED: usize = 1_000;
/// Longer than any pause between two attempts to fetch a history.
const SLICES_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Whoever asks for a repository that is being made waits so long at most.
const CREATION_TIMEOUT: Duration = Duration::from_secs(10);

/// `<git data>/<npub>/<identifier>.git`.
#[derive(Debug, Clone)]
pub struct Repositories {
    root: PathBuf,
    /// Whatever is unfinished and older than this process is nobody's any more.
    since: SystemTime,
    /// Without it everything that is put aside stays.
    retired: Option<RetiredBounds>,
    /// Objects that nobody needs stay for this long.
    prune_grace: Duration,
    /// Bytes that the disk keeps free when they go.
    min_free: u64,
    waiting: Arc<Waiting>,
    creating: Arc<Creating>,
}

#[derive(Debug, Clone, Copy)]
struct RetiredBounds {
    keep_for: Duration,
    max_bytes: u64,
}

/// One repository that was put aside.
struct Retired {
    /// Unix seconds.
    at: u64,
    dir: PathBuf,
}

impl Repositories {
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            since: SystemTime::now(),
            retired: None,
            prune_grace: Duration::MAX,
            min_free: 0,
            waiting: Arc::default(),
            creating: Arc::default(),
        }
    }

    /// From time to time those go that were put aside too long ago, or are too much.
    pub fn keeping_retired(mut self, keep_for: Duration, max_bytes: u64) -> Self {
        self.retired = Some(RetiredBounds {
            keep_for,
            max_bytes,
        });
        self
    }

    pub fn pruned_after(mut self, grace: Duration) -> Self {
        self.prune_grace = grace;
        self
    }

    pub fn leaving_free(mut self, bytes: u64) -> Self {
        self.min_free = bytes;
        self
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn open(&self, repo: &RepoId) -> Result<Repo, GitError> {
        Repo::open(&self.dir(repo))
    }

    /// Waits for a repository that is being made; false if it is not.
    pub async fn wait_until_made(&self, repo: &RepoId) -> bool {
        self.creating.wait(repo, CREATION_TIMEOUT).await
    }

    pub fn dir(&self, repo: &RepoId) -> PathBuf {
        self.root
            .join(repo.owner.npub())
            .join(repo.identifier.directory() + SUFFIX)
    }

    fn retired_dir(&self, repo: &RepoId, number: u64) -> PathBuf {
        let name = format!("{}.{number}{SUFFIX}", repo.identifier.directory());
        self.root.join(RETIRED).join(repo.owner.npub()).join(name)
    }

    /// Every repository that is there, in the order of their names.
    pub fn list(&self) -> std::io::Result<Vec<RepoId>> {
        let mut found = Vec::new();
        for (owner, folder) in folders(&self.root)? {
            let Ok(owner) = Pubkey::from_npub(&owner) else {
                continue;
            };
            for (name, _) in folders(&folder)? {
                let identifier = name
                    .strip_suffix(SUFFIX)
                    .and_then(Identifier::from_directory);
                found.extend(identifier.map(|identifier| RepoId::new(owner, identifier)));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Those that were put aside, too.
    pub fn list_all(&self) -> std::io::Result<Vec<RepoId>> {
        let mut found = self.list()?;
        for (owner, folder) in folders(&self.root.join(RETIRED)).unwrap_or_default() {
            let Ok(owner) = Pubkey::from_npub(&owner) else {
                continue;
            };
            for (name, _) in folders(&folder)? {
                let identifier =
                    retired_name(&name).and_then(|(name, _)| Identifier::from_directory(name));
                found.extend(identifier.map(|identifier| RepoId::new(owner, identifier)));
            }
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// With what was put aside of it. The server must be stopped.
    pub fn remove_for_good(&self, repo: &RepoId) -> Result<(), GitError> {
        Repo::remove(&self.dir(repo))?;
        let folder = self.root.join(RETIRED).join(repo.owner.npub());
        let name = repo.identifier.directory();
        for (found, dir) in folders(&folder).unwrap_or_default() {
            if retired_name(&found).is_some_and(|(found, _)| found == name) {
                Repo::remove(&dir)?;
            }
        }
        Ok(())
    }

    /// Bytes of all repositories of one owner.
    pub fn size_of_owner(&self, owner: &Pubkey) -> Result<u64, GitError> {
        let folder = self.root.join(owner.npub());
        let found = folders(&folder).map_err(|source| GitError::Io {
            path: folder,
            source,
        })?;
        let mut bytes = 0;
        for (name, dir) in found {
            if name.ends_with(SUFFIX) {
                // Gone since it was listed, or damaged: it has no size.
                bytes += Repo::open(&dir).and_then(|repo| repo.size()).unwrap_or(0);
            }
        }
        Ok(bytes)
    }

    /// Parts of large histories that nobody has asked for since.
    fn clear_old_slices(&self) {
        let before = SystemTime::now() - SLICES_KEPT;
        for id in self.list().unwrap_or_default() {
            let cleared = self.open(&id).and_then(|repo| clear_slices(&repo, before));
            match cleared {
                Ok(true) => {
                    tracing::info!(repo = %id, "parts of a history that never came dropped")
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(repo = %id, %error, "looking at slices failed"),
            }
        }
    }

    /// Clears what a killed process was making or removing.
    pub fn clear_abandoned(&self) -> std::io::Result<()> {
        for (_, folder) in folders(&self.root)? {
            match Repo::clear_abandoned(&folder, self.since) {
                Ok(0) => {}
                Ok(cleared) => {
                    let folder = folder.display();
                    tracing::warn!(cleared, %folder, "unfinished repositories cleared");
                }
                Err(error) => tracing::warn!(%error, "clearing unfinished repositories failed"),
            }
        }
        Ok(())
    }

    /// Walks through everything that was put aside.
    fn clear_old_retired(&self) {
        if let Some(bounds) = self.retired
            && let Err(error) = self.clear_retired(bounds.keep_for, bounds.max_bytes)
        {
            tracing::warn!(%error, "looking at retired repositories failed");
        }
    }

    /// Removes what was put aside longer ago than `keep_for`, and the oldest of the rest as long as
    /// it is larger than `max_bytes` or more than a thousand. Says how many went.
    pub fn clear_retired(&self, keep_for: Duration, max_bytes: u64) -> std::io::Result<usize> {
        let mut found = self.list_retired()?;
        found.sort_by_key(|one| std::cmp::Reverse(one.at));
        let oldest = unix_seconds().saturating_sub(keep_for.as_secs());
        let (mut bytes, mut removed) = (0_u64, 0);
        for (n, Retired { at, dir }) in found.into_iter().enumerate() {
            // What is no repository any more has no size, and goes by its age.
            let size = Repo::open(&dir).and_then(|repo| repo.size()).unwrap_or(0);
            let fits = bytes.saturating_add(size) <= max_bytes;
            if fits && at >= oldest && n < MAX_RETIRED {
                bytes += size;
                continue;
            }
            // Nothing older stays in the room that a larger one would have needed.
            bytes = if fits { bytes } else { max_bytes };
            match Repo::remove(&dir) {
                Ok(_) => removed += 1,
                Err(error) => tracing::warn!(%error, "removing a retired repository failed"),
            }
        }
        if removed > 0 {
            tracing::info!(removed, "repositories that were put aside are removed");
        }
        Ok(removed)
    }

    fn list_retired(&self) -> std::io::Result<Vec<Retired>> {
        let root = self.root.join(RETIRED);
        if !root.exists() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for (_, folder) in folders(&root)? {
            if let Err(error) = Repo::clear_abandoned(&folder, self.since) {
                tracing::warn!(%error, "clearing half-removed repositories failed");
            }
            for (name, dir) in folders(&folder)? {
                let number = retired_name(&name).map(|(_, number)| number);
                found.extend(number.map(|at| Retired { at, dir }));
            }
        }
        Ok(found)
    }
}

/// The name and the number of a repository that was put aside.
fn retired_name(folder: &str) -> Option<(&str, u64)> {
    let (name, number) = folder.strip_suffix(SUFFIX)?.rsplit_once('.')?;
    Some((name, number.parse().ok()?))
}

fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Names that are text, with their paths.
fn folders(path: &Path) -> std::io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::GitTask;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    const NO_LIMIT: u64 = u64::MAX;

    struct Attic {
        folder: tempfile::TempDir,
        repositories: Repositories,
    }

    impl Attic {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let repositories = Repositories::new(folder.path().to_owned());
            Self {
                folder,
                repositories,
            }
        }

        /// Puts a repository of this size aside, as it was done some days ago.
        fn put_aside(&self, name: &str, days: u32, bytes: usize) -> PathBuf {
            let at = unix_seconds() - (days * DAY).as_secs();
            let dir = self.repositories.retired_dir(&repo(name), at);
            Repo::create(&dir).unwrap();
            std::fs::write(dir.join("objects/pack/x.pack"), vec![0; bytes]).unwrap();
            dir
        }

        fn clear(&self, days: u32, max_bytes: u64) -> usize {
            let cleared = self.repositories.clear_retired(days * DAY, max_bytes);
            cleared.unwrap()
        }
    }

    fn repo(name: &str) -> RepoId {
        let identifier = Identifier::parse(name).unwrap();
        RepoId::new(Pubkey([7; 32]), identifier)
    }

    #[test]
    fn what_was_put_aside_long_ago_goes() {
        let attic = Attic::new();
        assert_eq!(attic.clear(30, NO_LIMIT), 0, "there is nothing yet");
        let old = attic.put_aside("a.b", 31, 10);
        let new = attic.put_aside("a.b", 29, 10);
        let strange = attic.folder.path().join(".retired/somebody/notes");
        std::fs::create_dir_all(&strange).unwrap();
        assert_eq!(attic.clear(30, NO_LIMIT), 1);
        assert!(!old.exists() && new.exists() && strange.exists());
        assert_eq!(attic.clear(0, NO_LIMIT), 1);
        assert!(!new.exists());
    }

    #[test]
    fn the_oldest_go_first_when_it_is_too_much() {
        let attic = Attic::new();
        let oldest = attic.put_aside("small", 3, 10);
        let middle = attic.put_aside("large", 2, 500_000);
        let newest = attic.put_aside("medium", 1, 100_000);
        assert_eq!(attic.clear(30, 1_000_000), 0);
        assert_eq!(attic.clear(30, 500_000), 2);
        assert!(newest.exists() && !middle.exists() && !oldest.exists());
    }

    #[test]
    fn the_oldest_go_first_when_they_are_too_many() {
        let attic = Attic::new();
        let newest = unix_seconds() - 1_000_000;
        for n in 0..=MAX_RETIRED {
            let at = newest - u64::try_from(n).unwrap();
            let dir = attic.repositories.retired_dir(&repo("many"), at);
            std::fs::create_dir_all(dir).unwrap();
        }
        let first = attic.put_aside("newest", 1, 10);
        assert_eq!(attic.clear(30, NO_LIMIT), 2);
        let left = attic.repositories.list_retired().unwrap();
        assert_eq!(left.len(), MAX_RETIRED);
        assert!(first.exists());
    }

    #[test]
    fn a_repository_that_is_put_aside_makes_others_go() {
        let mut attic = Attic::new();
        attic.repositories = attic.repositories.keeping_retired(30 * DAY, 500_000);
        let old = attic.put_aside("old", 1, 450_000);
        let dir = attic.repositories.dir(&repo("new"));
        Repo::create(&dir).unwrap();
        std::fs::write(dir.join("objects/pack/x.pack"), vec![0; 100_000]).unwrap();
        attic
            .repositories
            .perform(&repo("new"), &GitTask::Retire)
            .unwrap();
        // Whoever waits for the next task on a repository does not wait for that.
        assert!(!dir.exists() && old.exists());
        attic.repositories.clear_old_retired();
        assert!(!old.exists());
        assert_eq!(attic.repositories.list_retired().unwrap().len(), 1);
    }

    #[test]
    fn what_was_unfinished_is_not_put_aside() {
        let attic = Attic::new();
        let dir = attic.repositories.dir(&repo("a"));
        Repo::create(&dir).unwrap();
        let unfinished = ["incoming-x", "pruning-x"];
        for name in unfinished {
            std::fs::create_dir_all(dir.join("objects").join(name).join("pack")).unwrap();
        }
        let half = dir.join("objects/pack/tmp_pack_x");
        std::fs::write(half, "half").unwrap();
        let retired = attic.repositories.perform(&repo("a"), &GitTask::Retire);
        retired.unwrap();
        let found = attic.repositories.list_retired().unwrap();
        let objects = found.first().unwrap().dir.join("objects");
        assert!(unfinished.iter().all(|name| !objects.join(name).exists()));
        assert!(!objects.join("pack/tmp_pack_x").exists());
    }

    #[test]
    fn a_look_mends_damaged_refs() {
        let attic = Attic::new();
        let dir = attic.repositories.dir(&repo("a"));
        Repo::create(&dir).unwrap();
        std::fs::write(dir.join("packed-refs"), "junk\n").unwrap();
        let looked = attic.repositories.perform(&repo("a"), &GitTask::Look);
        assert!(looked.is_ok(), "{looked:?}");
    }
}
