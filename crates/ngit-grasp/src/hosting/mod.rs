//! Repositories on disk: where each lies, and the threads that carry out what the core asks of
//! them. Nothing here decides.

pub mod overview;
mod tasks;
pub mod worker;

pub use self::tasks::heads_and_tags;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use grasp_core::{Identifier, Pubkey, RepoId};
use grasp_git::{GitError, Repo};

/// Repositories whose announcement is gone, kept for the operator to look at or throw away.
const RETIRED: &str = ".retired";
const SUFFIX: &str = ".git";

/// `<git data>/<npub>/<identifier>.git`.
#[derive(Debug, Clone)]
pub struct Repositories {
    root: PathBuf,
    /// Whatever is unfinished and older than this process is nobody's any more.
    since: SystemTime,
}

impl Repositories {
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            since: SystemTime::now(),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn open(&self, repo: &RepoId) -> Result<Repo, GitError> {
        Repo::open(&self.dir(repo))
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
}

/// Names that are text, with their paths.
fn folders(path: &Path) -> std::io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}
