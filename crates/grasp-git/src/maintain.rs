//! Keeping a repository fit: few packs, and a look whether all of it is there. Nothing here ever
//! drops an object (`prune` does), and neither readers nor pushes wait for it.

use std::time::Duration;

use grasp_core::git::{ObjectId, ObjectKind};

use crate::adopt;
use crate::command::GitCommand;
use crate::error::GitError;
use crate::files::{self, Claim, off_the_loop};
use crate::repo::Repo;

/// What `fsck` found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// Something refers to it and it is not here.
    Missing { kind: ObjectKind, id: ObjectId },
    /// Anything else, in git's words.
    Other(String),
}

/// Who holds it changes which packs there are.
pub(crate) const REPACKING: &str = "repacking";
/// Each push brings a pack, and each git process opens all indexes.
const MAX_PACKS: usize = 30;
/// As git does it: one of 256 folders stands for all.
const SAMPLE: &str = "objects/17";
const MAX_IN_SAMPLE: usize = 4;
pub(crate) const REPACK_SETTINGS: &[&str] = &[
    "core.bigFileThreshold=16m",
    "pack.deltaCacheSize=32m",
    "pack.threads=1",
    "pack.windowMemory=64m",
];
/// Git takes some 250 bytes for each object that it walks over and packs, and 200 MB beside: 15
/// million objects fit. Files above the threshold of `REPACK_SETTINGS` are not read as a whole.
const MAX_MEMORY: u64 = 4 * 1024 * 1024 * 1024;
/// Whoever fetches or pushes goes before it.
const PRIORITY: i32 = 10;
const MAX_PRINTED: usize = 64 * 1024;
const MAX_PROBLEMS: usize = 1_000;

/// A command for which nobody waits.
pub(crate) fn upkeep(name: &'static str, repo: &Repo) -> GitCommand {
    GitCommand::new(name, repo.dir())
        .memory(MAX_MEMORY)
        .priority(PRIORITY)
}

impl Repo {
    pub fn needs_repack(&self) -> Result<bool, GitError> {
        if adopt::packs(&self.objects_dir())?.len() > MAX_PACKS {
            return Ok(true);
        }
        Ok(files::list(&self.dir().join(SAMPLE))?.len() > MAX_IN_SAMPLE)
    }

    /// Rolls small packs and loose objects up until each pack is twice as large as the next.
    /// Objects that no ref reaches stay: a state that needs them may come. `Busy` if one is
    /// running or objects are just being taken over.
    pub async fn repack(&self, deadline: Duration) -> Result<(), GitError> {
        let repo = self.clone();
        let _only_one = off_the_loop(move || repo.claim_repack()).await?;
        let (finished, _) = upkeep("repack", self)
            .settings(REPACK_SETTINGS)
            .flag("-d")
            .flag("-l")
            .flag("-n")
            .flag("-q")
            .flag("--geometric=2")
            .run(Vec::new(), 0, deadline)
            .await?;
        if !finished.is_ok() {
            return Err(finished.into_error());
        }
        // Git syncs what is in the new pack, and not the folder in which it took the place of others.
        let packs = self.objects_dir().join("pack");
        off_the_loop(move || files::sync(&packs)).await
    }

    fn claim_repack(&self) -> Result<Claim, GitError> {
        let only_one = Claim::take(&self.dir().join(REPACKING))?;
        match adopt::is_under_way(self)? {
            true => Err(GitError::Busy(self.objects_dir())),
            false => Ok(only_one),
        }
    }

    /// Checks that everything the refs reach is here. Empty if all is well; an error if the check
    /// could not come to its end.
    pub async fn fsck_connectivity(&self, deadline: Duration) -> Result<Vec<Problem>, GitError> {
        let (finished, printed) = upkeep("fsck", self)
            .flag("--connectivity-only")
            .flag("--no-dangling")
            .flag("--no-progress")
            .run(Vec::new(), MAX_PRINTED, deadline)
            .await?;
        if finished.is_ok() {
            return Ok(Vec::new());
        }
        if finished.ran_out_of_memory() {
            return Err(finished.into_error());
        }
        let printed = String::from_utf8_lossy(&printed);
        let lines = printed.lines().chain(finished.stderr.lines());
        let mut problems: Vec<_> = lines.map(Problem::parse).take(MAX_PROBLEMS).collect();
        if problems.is_empty() {
            problems.push(Problem::Other(finished.status.to_string()));
        }
        Ok(problems)
    }
}

impl Problem {
    fn parse(line: &str) -> Self {
        let missing = || {
            let (kind, id) = line.strip_prefix("missing ")?.split_once(' ')?;
            let kind = match kind {
                "commit" => ObjectKind::Commit,
                "tree" => ObjectKind::Tree,
                "blob" => ObjectKind::Blob,
                "tag" => ObjectKind::Tag,
                _ => return None,
            };
            Some(Self::Missing {
                kind,
                id: ObjectId::parse(id.trim())?,
            })
        };
        missing().unwrap_or_else(|| Self::Other(line.trim().to_owned()))
    }
}
