//! A history that is too large for one fetch comes in slices, each some commits deeper than the
//! last. They wait in folders beside the objects, where nobody looks for any, until nothing is
//! missing; then all goes through a quarantine like anything else that comes. Each address has a
//! folder of its own, and one for pull requests: what one sends, or does not, is nothing to the
//! others, though they be on the same server.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use grasp_core::clone_url::CloneUrl;
use grasp_core::git::ObjectId;
use grasp_core::hunt::io::FetchEnd;
use grasp_core::push::Backing;
use tokio::io::{AsyncRead, AsyncWriteExt as _, ReadBuf};

use super::answer::Ends;
use super::meter::Stop;
use super::progress::{PROGRESS, Progress};
use super::run::{end_of, ours};
use super::{Watch, tell_refused};
use crate::command::GitCommand;
use crate::error::GitError;
use crate::files::{self, Claim, off_the_loop};
use crate::objects::{self, Objects};
use crate::quarantine::{Complete, PackLimits, Quarantine, revisions};
use crate::repo::Repo;

pub(crate) const SLICES: &str = "slices";
/// Folders in it. A repository has few servers whose history is too large for one fetch, and what
/// they hold is part of its size.
const MAX_FOLDERS: usize = 4;
/// What their names begin with.
const STATES: &str = "states-from-";
const REQUESTS: &str = "requests-from-";
const CLAIM: &str = "claim";

/// What has come of a history from one server so far. One fetch at a time works with it.
pub(super) struct Slices {
    dir: PathBuf,
    progress: Progress,
    _only_one: Claim,
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

/// Addresses are longer than names of files may be, and have slashes in them.
fn folder(repo: &Repo, from: &CloneUrl, backing: Backing) -> Result<PathBuf, GitError> {
    let whose = match backing {
        Backing::State => STATES,
        Backing::PullRequests | Backing::None => REQUESTS,
    };
    let root = root(repo);
    match objects::hash(from.as_str().as_bytes()) {
        Some(name) => Ok(root.join(format!("{whose}{name}"))),
        None => Err(GitError::damaged(&root, "an address has no name")),
    }
}

fn added_to(folder: &DirEntry) -> Option<SystemTime> {
    let found = fs::metadata(folder.path().join(PROGRESS));
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

/// Room for one folder more: the one that nobody has added to for the longest time goes, those of
/// pull requests first, and no other for a pull request. False if none can go.
fn make_way(repo: &Repo, backing: Backing) -> Result<bool, GitError> {
    let mut folders = files::list(&root(repo))?;
    let mut left = folders.len();
    let is_states = |folder: &DirEntry| folder.file_name().to_string_lossy().starts_with(STATES);
    folders.retain(|folder| backing == Backing::State || !is_states(folder));
    folders.sort_by_key(|folder| (is_states(folder), added_to(folder)));
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
    pub fn begin(repo: &Repo, from: &CloneUrl, backing: Backing) -> Result<(), GitError> {
        let (objects, dir) = (repo.objects_dir(), folder(repo, from, backing)?);
        if !dir.exists() && !make_way(repo, backing)? {
            return Ok(());
        }
        files::make_dir(&dir.join("pack"))?;
        files::make_dir(&dir.join("info"))?;
        let _only_one = Claim::take(&dir.join(CLAIM))?;
        let mut alternates = objects.into_os_string().into_encoded_bytes();
        alternates.push(b'\n');
        files::replace(&dir.join("info/alternates"), &alternates)?;
        Progress::default().write(&dir)
    }

    /// `Busy` if another fetch adds to them.
    pub fn find(repo: &Repo, from: &CloneUrl, backing: Backing) -> Result<Option<Self>, GitError> {
        let dir = folder(repo, from, backing)?;
        if !dir.join(PROGRESS).exists() {
            return Ok(None);
        }
        let only_one = Claim::take(&dir.join(CLAIM))?;
        let Some(progress) = Progress::read(&dir) else {
            remove(&dir)?;
            return Ok(None);
        };
        Ok(Some(Self {
            dir,
            progress,
            _only_one: only_one,
        }))
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn tips(&self) -> &[ObjectId] {
        &self.progress.tips
    }

    pub fn shallow(&self) -> &[ObjectId] {
        &self.progress.shallow
    }

    pub fn next_depth(&self) -> u32 {
        self.progress.next_depth()
    }

    /// The pack of a slice is here. False if there is more to it than can be kept in mind: then
    /// nothing will come of them.
    pub fn keep(
        &mut self,
        tips: &[ObjectId],
        ends: &Ends,
        bytes: u64,
        max_bytes: u64,
    ) -> Result<bool, GitError> {
        self.progress.depth = self.next_depth();
        self.progress.grow(bytes, max_bytes);
        match self.progress.add(tips, ends) {
            true => self.progress.write(&self.dir).map(|()| true),
            false => remove(&self.dir).map(|()| false),
        }
    }

    /// The slice was too large. False if there are no smaller ones: then nothing will come of
    /// them.
    pub fn shrink(&mut self) -> Result<bool, GitError> {
        if self.progress.step == 1 {
            return remove(&self.dir).map(|()| false);
        }
        self.progress.step = (self.progress.step / 4).max(1);
        self.progress.write(&self.dir).map(|()| true)
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
        self.progress.is_at_its_end()
    }

    /// Somebody sent less than it said.
    pub async fn give_up(self) -> Result<(), FetchEnd> {
        ours(move || remove(&self.dir)).await?;
        Err(FetchEnd::Spoiled)
    }

    /// Bytes of all that has come.
    pub fn size(&self) -> Result<u64, GitError> {
        let found = files::list(&self.dir.join("pack"))?;
        let size = |entry: &DirEntry| entry.metadata().map_or(0, |found| found.len());
        Ok(found.iter().map(size).sum())
    }

    /// Makes one pack of what is missing in the repository, and lets it in as if a server had
    /// sent it. Whatever comes of that, the slices have served, unless the disk is full. `counted`
    /// is their size.
    pub async fn unite(
        self,
        repo: &Repo,
        tips: &[ObjectId],
        counted: u64,
        limits: &PackLimits,
        watch: &impl Watch,
    ) -> Result<(), FetchEnd> {
        let united = self.let_in(repo, tips, counted, limits, watch).await;
        tell_refused(watch, &united);
        // Time that we take to write it down is not the server's.
        let united = united.map_err(|error| match error.is_timeout() {
            true => FetchEnd::Ours,
            false => end_of(&error),
        });
        if united != Err(FetchEnd::DiskLow) {
            ours(move || remove(&self.dir)).await?;
        }
        united
    }

    async fn let_in(
        &self,
        repo: &Repo,
        tips: &[ObjectId],
        counted: u64,
        limits: &PackLimits,
        watch: &impl Watch,
    ) -> Result<(), GitError> {
        let limits = PackLimits {
            max_bytes: limits.max_bytes.max(counted.saturating_mul(2)),
            ..*limits
        };
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
        let pack = Again {
            pack: stdout,
            counted,
            watch,
        };
        quarantine.receive_pack(pack, &limits).await?;
        let finished = running.finish().await?;
        if !finished.is_ok() {
            return Err(finished.into_error());
        }
        quarantine.check_connected(tips, limits.deadline).await?;
        off_the_loop(move || quarantine.migrate()).await
    }

    async fn revisions(&self, repo: &Repo, tips: &[ObjectId]) -> Result<Vec<u8>, GitError> {
        let (repo, dir, tips) = (repo.clone(), self.dir.clone(), tips.to_vec());
        off_the_loop(move || revisions(&repo, &Objects::open(&dir)?, &tips, &Complete::Refs)).await
    }

    fn command(&self, name: &'static str, repo: &Repo) -> GitCommand {
        GitCommand::new(name, repo.dir()).env("GIT_OBJECT_DIRECTORY", &self.dir)
    }
}

/// Bytes that were counted when they came first are not counted again.
struct Again<'a, R, W> {
    pack: R,
    counted: u64,
    watch: &'a W,
}

impl<R: AsyncRead + Unpin, W: Watch> AsyncRead for Again<'_, R, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.pack).poll_read(cx, buffer))?;
        let read = (buffer.filled().len() - before) as u64;
        let more = read.saturating_sub(self.counted);
        self.counted = self.counted.saturating_sub(read);
        Poll::Ready(self.watch.took(more).map_err(Stop::error))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU64);

    impl Watch for Count {
        fn flowing(&self) {}

        fn took(&self, bytes: u64) -> Result<(), FetchEnd> {
            self.0.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        }

        fn arrived(&self) {}

        fn copies(&self, _: u64) -> Result<(), FetchEnd> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_is_united_counts_as_far_as_it_is_more_than_what_came() {
        for (counted, expected) in [(0, 100), (60, 40), (100, 0), (1_000, 0)] {
            let watch = Count::default();
            let mut again = Again {
                pack: &[7; 100][..],
                counted,
                watch: &watch,
            };
            again.read_to_end(&mut Vec::new()).await.unwrap();
            assert_eq!(watch.0.into_inner(), expected, "{counted}");
        }
    }
}
