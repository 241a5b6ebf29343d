//! A history that is too large for one fetch comes in slices, each some commits deeper than the
//! last. They wait in folders beside the objects, where nobody looks for any, until nothing is
//! missing; then all goes through a quarantine like anything else that comes. Each server has a
//! folder of its own: what one sends, or does not, is nothing to the others.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::SystemTime;

use grasp_core::clone_url::Domain;
use grasp_core::git::ObjectId;
use tokio::io::AsyncWriteExt as _;

use super::answer::Ends;
use super::off_the_loop;
use crate::command::GitCommand;
use crate::error::GitError;
use crate::files::{self, Claim};
use crate::objects::Objects;
use crate::quarantine::{PackLimits, Quarantine, revisions};
use crate::repo::Repo;

pub(crate) const SLICES: &str = "slices";
/// Folders in it. A repository has few servers whose history is too large for one fetch, and what
/// they hold is part of its size.
const MAX_FOLDERS: usize = 4;
const STATE: &str = "state";
const CLAIM: &str = "claim";
/// 100,000 ends and 10,000 tips of 50 bytes.
const MAX_STATE: u64 = 8 * 1024 * 1024;
const MAX_TIPS: usize = 10_000;
/// A slice that is far smaller than one fetch may be tells little about the next.
const MAX_GROWTH: u64 = 8;
/// What git takes for the end of all history.
const MAX_DEPTH: u32 = 0x7fff_fffe;

/// What has come of a history from one server so far. One fetch at a time works with it.
pub(super) struct Slices {
    dir: PathBuf,
    state: State,
    _only_one: Claim,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    /// Commits from the tips.
    depth: u32,
    /// How many more the next slice has.
    step: u32,
    tips: Vec<ObjectId>,
    shallow: Vec<ObjectId>,
}

/// Removes what was last added to before a point in time: nobody has asked for it since. True if
/// there was anything.
pub fn clear_slices(repo: &Repo, before: SystemTime) -> Result<bool, GitError> {
    let mut cleared = false;
    for folder in files::list(&root(repo))? {
        if added_to(&folder).is_some_and(|at| at < before) {
            cleared |= clear(&folder.path())?;
        }
    }
    Ok(cleared)
}

fn root(repo: &Repo) -> PathBuf {
    repo.objects_dir().join(SLICES)
}

/// A name without slashes that is neither `.` nor `..`. One that is too long for a file system is
/// too long for the name of a machine, and nothing came from there.
fn folder(repo: &Repo, from: &Domain) -> PathBuf {
    root(repo).join(format!("from-{from}").replace('/', "_"))
}

fn added_to(folder: &DirEntry) -> Option<SystemTime> {
    let found = fs::metadata(folder.path().join(STATE));
    found.or_else(|_| folder.metadata()).ok()?.modified().ok()
}

/// False if somebody works with it.
fn clear(dir: &Path) -> Result<bool, GitError> {
    match Claim::take(&dir.join(CLAIM)) {
        Ok(_claim) => remove(dir).map(|()| true),
        Err(error) if error.is_busy() => Ok(false),
        Err(error) => Err(error),
    }
}

fn remove(dir: &Path) -> Result<(), GitError> {
    files::remove_tree(dir)?;
    // The last one leaves nothing behind.
    if let Some(root) = dir.parent() {
        let _ = fs::remove_dir(root);
    }
    Ok(())
}

/// Room for one folder more: the one that nobody has added to for the longest time goes. False if
/// all of them are being added to.
fn make_way(repo: &Repo) -> Result<bool, GitError> {
    let mut folders = files::list(&root(repo))?;
    folders.sort_by_key(added_to);
    let mut left = folders.len();
    for folder in folders {
        if left < MAX_FOLDERS {
            break;
        }
        left -= usize::from(clear(&folder.path())?);
    }
    Ok(left < MAX_FOLDERS)
}

impl Slices {
    /// From now on the large history that a server has comes in slices.
    pub fn begin(repo: &Repo, from: &Domain) -> Result<(), GitError> {
        let (objects, dir) = (repo.objects_dir(), folder(repo, from));
        if !dir.exists() && !make_way(repo)? {
            return Ok(());
        }
        files::make_dir(&dir.join("pack"))?;
        files::make_dir(&dir.join("info"))?;
        let _only_one = Claim::take(&dir.join(CLAIM))?;
        let mut alternates = objects.into_os_string().into_encoded_bytes();
        alternates.push(b'\n');
        files::replace(&dir.join("info/alternates"), &alternates)?;
        State::default().write(&dir)
    }

    /// `Busy` if another fetch adds to them.
    pub fn find(repo: &Repo, from: &Domain) -> Result<Option<Self>, GitError> {
        let dir = folder(repo, from);
        if !dir.join(STATE).exists() {
            return Ok(None);
        }
        let only_one = Claim::take(&dir.join(CLAIM))?;
        let content = files::read_small(&dir.join(STATE), MAX_STATE)?;
        let Some(state) = content.and_then(|content| State::parse(&content)) else {
            remove(&dir)?;
            return Ok(None);
        };
        Ok(Some(Self {
            dir,
            state,
            _only_one: only_one,
        }))
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn tips(&self) -> &[ObjectId] {
        &self.state.tips
    }

    pub fn shallow(&self) -> &[ObjectId] {
        &self.state.shallow
    }

    pub fn next_depth(&self) -> u32 {
        self.state
            .depth
            .saturating_add(self.state.step)
            .min(MAX_DEPTH)
    }

    /// The pack of a slice is here.
    pub fn keep(
        &mut self,
        tips: &[ObjectId],
        ends: &Ends,
        bytes: u64,
        max_bytes: u64,
    ) -> Result<(), GitError> {
        self.state.depth = self.next_depth();
        self.state.grow(bytes, max_bytes);
        self.state.add(tips, ends);
        self.state.write(&self.dir)
    }

    /// The slice was too large. False if there are no smaller ones: then nothing will come of
    /// them.
    pub fn shrink(&mut self) -> Result<bool, GitError> {
        if self.state.step == 1 {
            return remove(&self.dir).map(|()| false);
        }
        self.state.step = (self.state.step / 4).max(1);
        self.state.write(&self.dir).map(|()| true)
    }

    /// Everything that the tips reach is here or in the repository.
    pub async fn are_whole(&self, repo: &Repo, tips: &[ObjectId], limits: &PackLimits) -> bool {
        let Ok(input) = self.revisions(repo, tips).await else {
            return false;
        };
        let command = self.command("rev-list", repo);
        let command = command.flag("--objects").flag("--quiet").flag("--stdin");
        let command = command.memory(limits.max_memory);
        let ran = command.run(input, 0, limits.deadline).await;
        ran.is_ok_and(|(finished, _)| finished.is_ok())
    }

    /// Nothing more will come of them.
    pub fn are_exhausted(&self) -> bool {
        self.state.shallow.is_empty() || self.state.depth >= MAX_DEPTH
    }

    /// Somebody sent less than it said.
    pub async fn give_up(self) -> Result<(), GitError> {
        off_the_loop(move || remove(&self.dir)).await?;
        let text = "slices do not make a whole";
        Err(GitError::NotConnected(text.to_owned()))
    }

    /// Makes one pack of what is missing in the repository, and lets it in as if a server had
    /// sent it. Whatever comes of that, the slices have served.
    pub async fn unite(
        self,
        repo: &Repo,
        tips: &[ObjectId],
        limits: &PackLimits,
    ) -> Result<(), GitError> {
        let united = self.let_in(repo, tips, limits).await;
        off_the_loop(move || remove(&self.dir)).await?;
        united
    }

    async fn let_in(
        &self,
        repo: &Repo,
        tips: &[ObjectId],
        limits: &PackLimits,
    ) -> Result<(), GitError> {
        let input = self.revisions(repo, tips).await?;
        let mut running = self
            .command("pack-objects", repo)
            .flag("--revs")
            .flag("--stdout")
            .flag("--delta-base-offset")
            .flag("-q")
            .memory(limits.max_memory)
            .spawn(Stdio::piped(), Stdio::piped())?;
        let (stdin, stdout) = (running.take_stdin(), running.take_stdout());
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(GitError::Spawn(std::io::ErrorKind::BrokenPipe.into()));
        };
        stdin.write_all(&input).await.map_err(GitError::Spawn)?;
        drop(stdin);
        let repo = repo.clone();
        let mut quarantine = off_the_loop(move || Quarantine::begin(&repo)).await?;
        quarantine.receive_pack(stdout, limits).await?;
        let finished = running.finish().await?;
        if !finished.is_ok() {
            return Err(finished.into_error());
        }
        quarantine.check_connected(tips, limits.deadline).await?;
        off_the_loop(move || quarantine.migrate()).await
    }

    async fn revisions(&self, repo: &Repo, tips: &[ObjectId]) -> Result<Vec<u8>, GitError> {
        let (repo, dir, tips) = (repo.clone(), self.dir.clone(), tips.to_vec());
        off_the_loop(move || revisions(&repo, &Objects::open(&dir)?, &tips)).await
    }

    fn command(&self, name: &'static str, repo: &Repo) -> GitCommand {
        GitCommand::new(name, repo.dir()).env("GIT_OBJECT_DIRECTORY", &self.dir)
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            depth: 0,
            step: 1,
            tips: Vec::new(),
            shallow: Vec::new(),
        }
    }
}

impl State {
    /// Aims at half of what a fetch may bring.
    fn grow(&mut self, bytes: u64, max_bytes: u64) {
        let step = u64::from(self.step);
        let fitting = step.saturating_mul(max_bytes / 2) / bytes.max(1);
        let step = fitting.clamp(1, step * MAX_GROWTH);
        self.step = u32::try_from(step).unwrap_or(MAX_DEPTH).min(MAX_DEPTH);
    }

    fn add(&mut self, tips: &[ObjectId], ends: &Ends) {
        self.tips.extend_from_slice(tips);
        self.tips.sort();
        self.tips.dedup();
        self.tips.truncate(MAX_TIPS);
        self.shallow.extend_from_slice(&ends.shallow);
        let gone: BTreeSet<_> = ends.unshallow.iter().collect();
        self.shallow.retain(|id| !gone.contains(id));
        self.shallow.sort();
        self.shallow.dedup();
    }

    fn write(&self, dir: &Path) -> Result<(), GitError> {
        let mut text = format!("depth {}\nstep {}\n", self.depth, self.step);
        for (word, ids) in [("tip", &self.tips), ("shallow", &self.shallow)] {
            for id in ids {
                text.push_str(&format!("{word} {id}\n"));
            }
        }
        files::replace(&dir.join(STATE), text.as_bytes())
    }

    /// None if it is not as [`State::write`] has it.
    fn parse(content: &[u8]) -> Option<Self> {
        let mut state = Self::default();
        for line in std::str::from_utf8(content).ok()?.lines() {
            let (word, value) = line.split_once(' ')?;
            match word {
                "depth" => state.depth = value.parse().ok()?,
                "step" => state.step = value.parse::<u32>().ok()?.max(1),
                "tip" => state.tips.push(ObjectId::parse(value)?),
                "shallow" => state.shallow.push(ObjectId::parse(value)?),
                _ => return None,
            }
        }
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> ObjectId {
        ObjectId([n; 20])
    }

    #[test]
    fn slices_grow_towards_half_of_what_may_come() {
        for (step, bytes, expected) in [
            (1, 0, 8),
            (10, 1, 80),
            (10, 500, 10),
            (10, 1_000, 5),
            (1, 999, 1),
            (100, 50, 800),
            (100, 250, 200),
            (MAX_DEPTH, 1, MAX_DEPTH),
        ] {
            let mut state = State {
                step,
                ..State::default()
            };
            state.grow(bytes, 1_000);
            assert_eq!(state.step, expected, "{step} {bytes}");
        }
    }

    #[test]
    fn what_is_written_reads_back_and_junk_does_not() {
        let mut state = State::default();
        let ends = Ends {
            shallow: vec![id(3), id(2)],
            unshallow: Vec::new(),
        };
        state.add(&[id(1)], &ends);
        let ends = Ends {
            shallow: vec![id(4)],
            unshallow: vec![id(3)],
        };
        state.add(&[id(1), id(5)], &ends);
        assert_eq!(state.tips, [id(1), id(5)]);
        assert_eq!(state.shallow, [id(2), id(4)]);
        let dir = tempfile::tempdir().unwrap();
        state.write(dir.path()).unwrap();
        let content = fs::read(dir.path().join(STATE)).unwrap();
        assert_eq!(State::parse(&content), Some(state));
        for junk in ["depth", "depth x", "tip 00", "what 1", "\u{7f}"] {
            assert_eq!(State::parse(junk.as_bytes()), None, "{junk}");
        }
        assert_eq!(State::parse(b"\xff"), None);
    }
}
