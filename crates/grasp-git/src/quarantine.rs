//! Where a stranger's objects are checked before they are anybody's: a directory inside the
//! object directory that only its own git processes look into.

mod judge;

use std::io::PipeWriter;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use grasp_core::git::ObjectId;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use self::judge::judge;
use crate::adopt;
use crate::chains::{self, MAX_CHAIN};
use crate::command::{CpuTime, GitCommand, tail_of};
use crate::error::{GitError, PackFault};
use crate::files::{self, Claim, off_the_loop};
use crate::gate;
use crate::objects::Objects;
use crate::repo::{INCOMING, Repo, temporary_in};

/// Objects on their way in. Dropped without [`Quarantine::migrate`], nothing has happened.
///
/// What holds: a pack is never in memory; more bytes than allowed end it; every object is checked
/// as `receive.fsckObjects` does, and so is every link, also of objects that no ref will name, so
/// that what is migrated is complete. A single object that inflates beyond the memory limit ends
/// git, not the server (Linux only); blobs above 16 MiB stream by and cost time, which the deadline
/// bounds, but neither memory nor more disk than was sent.
pub struct Quarantine {
    repo: Repo,
    dir: TempDir,
    /// What the objects lean on stays as long as this.
    _inside: Claim,
    /// All steps together have one deadline, and each process the same memory.
    began: Instant,
    deadline: Duration,
    max_memory: u64,
    cpu: CpuLimit,
    niceness: i32,
    received: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct PackLimits {
    pub max_bytes: u64,
    pub max_objects: u32,
    /// From the beginning of the quarantine to its migration.
    pub deadline: Duration,
    /// Private memory of the process that unpacks, and of the one that checks what is reached;
    /// also what bounds a single object.
    pub max_memory: u64,
    /// Processor time of the process that unpacks, in proportion to what was sent.
    pub cpu: CpuLimit,
    /// Above 0 its processes give way to others.
    pub niceness: i32,
}

#[derive(Debug, Clone, Copy)]
pub struct CpuLimit {
    pub base: Duration,
    pub per_mib: Duration,
}

impl Default for CpuLimit {
    /// Large histories take 0.2 to 0.4 s for a MiB on the machines of today, and few bytes that
    /// inflate to much a hundred times that. Five times the first leaves room for old machines;
    /// a push of 5 MiB has 15 s, one of 256 MiB less than nine minutes.
    fn default() -> Self {
        Self {
            base: Duration::from_secs(5),
            per_mib: Duration::from_secs(2),
        }
    }
}

impl CpuLimit {
    pub(crate) fn seconds(&self, bytes: u64) -> u64 {
        let grown = self.per_mib.as_millis().saturating_mul(bytes.into()) >> 20;
        let millis = self.base.as_millis().saturating_add(grown);
        u64::try_from(millis.div_ceil(1_000)).unwrap_or(u64::MAX)
    }
}

impl Default for PackLimits {
    fn default() -> Self {
        Self {
            max_bytes: 2 * 1024 * 1024 * 1024,
            max_objects: 20_000_000,
            deadline: Duration::from_secs(3_600),
            // Checking links keeps some 100 bytes per object: 10 million objects fit, and no
            // commit or tree larger than half of it.
            max_memory: 2 * 1024 * 1024 * 1024,
            cpu: CpuLimit::default(),
            // Whoever sent it: the server itself goes before.
            niceness: 5,
        }
    }
}

/// What a pack brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    pub bytes: u64,
    pub objects: u32,
}

const HEADER_LEN: usize = 12;
/// SHA-1 of the header of an empty pack of version 2, which is all there is of it.
const EMPTY_TRAILER: [u8; 20] = [
    0x02, 0x9d, 0x08, 0x82, 0x3b, 0xd8, 0xa8, 0xea, 0xb5, 0x10, 0xad, 0x6a, 0xc7, 0x5c, 0x82, 0x3c,
    0xfd, 0x3e, 0xd3, 0x1e,
];
/// Old histories of respected projects have these, and no reader stumbles over them: docs/adr,
/// "What fsck lets through".
const STRICT: &str = "--strict=badTimezone=ignore,missingNameBeforeEmail=ignore,\
                      missingSpaceBeforeDate=ignore,missingSpaceBeforeEmail=ignore,\
                      zeroPaddedDate=ignore,zeroPaddedFilemode=ignore";
const SETTINGS: &[&str] = &[
    // Synced once, at migration.
    "core.fsync=none",
    // Larger blobs are hashed as they stream by.
    "core.bigFileThreshold=16m",
    "core.deltaBaseCacheLimit=64m",
    "pack.threads=2",
];
/// A reverse index spares a sort at each fetch; for less, it is one more file to sync.
const WORTH_A_REVERSE_INDEX: u32 = 10_000;
/// `pack`, a tab, the name of the pack, a line's end. What index-pack reads beyond the pack, it
/// prints after that.
const PRINTED: usize = 46;
const CHUNK: usize = 64 * 1024;

impl Quarantine {
    pub fn begin(repo: &Repo) -> Result<Self, GitError> {
        Self::with_alternates(repo, &[repo.objects_dir()])
    }

    /// Its objects may need some that wait elsewhere, and not only the repository's.
    pub(crate) fn leaning_on(repo: &Repo, waiting: &Path) -> Result<Self, GitError> {
        Self::with_alternates(repo, &[repo.objects_dir(), waiting.to_owned()])
    }

    /// It needs nothing else: what the repository has may be damaged.
    pub(crate) fn alone(repo: &Repo) -> Result<Self, GitError> {
        Self::with_alternates(repo, &[])
    }

    fn with_alternates(repo: &Repo, others: &[PathBuf]) -> Result<Self, GitError> {
        let objects = repo.objects_dir();
        let inside = gate::enter(&objects)?;
        let dir = temporary_in(&objects, INCOMING)?;
        files::make_dir(&dir.path().join("info"))?;
        files::make_dir(&dir.path().join("pack"))?;
        // In a file, because the variable for it splits paths at colons.
        let mut alternates = Vec::new();
        for other in others {
            alternates.extend_from_slice(other.as_os_str().as_encoded_bytes());
            alternates.push(b'\n');
        }
        let path = dir.path().join("info/alternates");
        std::fs::write(&path, alternates).map_err(GitError::io(&path))?;
        let limits = PackLimits::default();
        Ok(Self {
            repo: repo.clone(),
            dir,
            _inside: inside,
            began: Instant::now(),
            deadline: limits.deadline,
            max_memory: limits.max_memory,
            cpu: limits.cpu,
            niceness: limits.niceness,
            received: 0,
        })
    }

    /// Streams one pack in and checks all of it. `pack` must end where the pack ends.
    pub async fn receive_pack(
        &mut self,
        pack: impl AsyncRead + Unpin,
        limits: &PackLimits,
    ) -> Result<Received, GitError> {
        self.receive_as(Some(STRICT), pack, limits).await
    }

    /// The same for a part that is checked when the whole is there: links may lead nowhere yet.
    pub(crate) async fn receive_slice(
        &mut self,
        pack: impl AsyncRead + Unpin,
        limits: &PackLimits,
    ) -> Result<Received, GitError> {
        self.receive_as(None, pack, limits).await
    }

    async fn receive_as(
        &mut self,
        strictness: Option<&'static str>,
        pack: impl AsyncRead + Unpin,
        limits: &PackLimits,
    ) -> Result<Received, GitError> {
        (self.deadline, self.max_memory) = (limits.deadline, limits.max_memory);
        (self.cpu, self.niceness) = (limits.cpu, limits.niceness);
        let work = self.receive(strictness, pack, limits);
        let received = self.in_time("index-pack", limits.deadline, work).await?;
        self.received = self.received.saturating_add(received.bytes);
        Ok(received)
    }

    /// Puts the packs where the other parts wait. False if all of them were there.
    pub(crate) fn move_packs_to(self, waiting: &Path) -> Result<bool, GitError> {
        let mut moved = false;
        for pack in adopt::packs(self.dir.path())? {
            moved |= adopt::move_pack(self.dir.path(), waiting, &pack)?;
        }
        Ok(moved)
    }

    /// The objects here together with the repository's.
    pub fn objects(&self) -> Result<Objects, GitError> {
        Objects::open(self.dir.path())
    }

    /// Checks that everything reachable from the tips is here or in the repository. The deadline
    /// counts from the beginning of the quarantine.
    pub async fn check_connected(
        &self,
        tips: &[ObjectId],
        deadline: Duration,
    ) -> Result<(), GitError> {
        self.check(tips, Complete::Refs, deadline).await
    }

    /// The same where refs prove nothing: only what these reach is taken for complete.
    pub(crate) async fn check_connected_to(
        &self,
        complete: &[ObjectId],
        tips: &[ObjectId],
        deadline: Duration,
    ) -> Result<(), GitError> {
        let complete = Complete::These(complete.to_vec());
        self.check(tips, complete, deadline).await
    }

    async fn check(
        &self,
        tips: &[ObjectId],
        complete: Complete,
        deadline: Duration,
    ) -> Result<(), GitError> {
        let deadline = deadline.min(self.deadline);
        // A walk may lead through what is here and no ref reaches, besides what came.
        let repo = self.repo.clone();
        let here = off_the_loop(move || repo.size()).await?;
        let seconds = self.cpu.seconds(here.saturating_add(self.received));
        let work = async {
            let input = self.revisions(tips.to_vec(), complete).await?;
            let command = self
                .command("rev-list")
                .settings(SETTINGS)
                .flag("--objects")
                .flag("--quiet")
                .flag("--stdin")
                .memory(self.max_memory)
                .cpu_seconds(seconds)
                .priority(self.niceness);
            command.run(input, 0, deadline).await
        };
        let (finished, _) = self.in_time("rev-list", deadline, work).await?;
        match finished.is_ok() {
            true => Ok(()),
            false if finished.ran_out_of_time() => Err(PackFault::TooMuchCpu { seconds }.into()),
            false if finished.ran_out_of_memory() => {
                Err(PackFault::TooCostly(finished.stderr).into())
            }
            false => Err(GitError::NotConnected(finished.stderr)),
        }
    }

    /// Makes the objects the repository's own: durable and visible when this returns.
    pub fn migrate(self) -> Result<(), GitError> {
        if self.began.elapsed() >= self.deadline {
            return Err(late("migration", self.deadline));
        }
        let dir = self.dir.path();
        let packs = adopt::packs(dir)?;
        let loose = adopt::fan_out(dir)?;
        let mut arrived = files::list(&dir.join("pack"))?;
        for folder in &loose {
            arrived.extend(files::list(&dir.join(folder))?);
        }
        let arrived: Vec<_> = arrived.iter().map(|entry| entry.path()).collect();
        files::sync_all(&arrived)?;
        match packs.first() {
            None if loose.is_empty() => Ok(()),
            Some(pack) if packs.len() == 1 && loose.is_empty() => {
                let objects = self.repo.objects_dir();
                match adopt::move_pack(dir, &objects, pack)? {
                    true => Ok(()),
                    false => adopt::refresh(&objects, pack),
                }
            }
            _ => adopt::adopt(&[dir.to_owned()], &self.repo).map(|_| ()),
        }
    }

    async fn in_time<T>(
        &self,
        step: &str,
        deadline: Duration,
        work: impl Future<Output = Result<T, GitError>>,
    ) -> Result<T, GitError> {
        let left = deadline.saturating_sub(self.began.elapsed());
        let finished = tokio::time::timeout(left, work).await;
        finished.unwrap_or_else(|_| Err(late(step, deadline)))
    }

    async fn receive(
        &self,
        strictness: Option<&'static str>,
        mut pack: impl AsyncRead + Unpin,
        limits: &PackLimits,
    ) -> Result<Received, GitError> {
        let header = read_exactly::<HEADER_LEN>(&mut pack).await?;
        let objects = object_count(&header, limits.max_objects)?;
        if objects == 0 {
            return receive_empty(pack).await;
        }
        let (reader, writer) = std::io::pipe().map_err(GitError::Spawn)?;
        let for_git = reader.try_clone().map_err(GitError::Spawn)?;
        let command = self.index_pack(strictness, objects, limits);
        let mut running = command.spawn(Stdio::from(for_git), Stdio::piped())?;
        let printed = running.take_stdout();
        let granted = Granted::new(running.cpu_time(), limits.cpu);
        let mut feed = pin!(feed(&header, pack, writer, limits.max_bytes, &granted));
        let mut end = pin!(async {
            let printed = tail_of(printed, PRINTED + 1).await;
            let finished = running.finish().await;
            granted.ended.store(true, Ordering::Relaxed);
            finished.map(|finished| (finished, printed))
        });
        let (fed, finished) = tokio::select! {
            fed = &mut feed => (Some(fed?), end.await?),
            finished = &mut end => (None, finished?),
        };
        judge(finished, limits, granted.seconds())?;
        // Whoever is left to write or read now has bytes that belong to no pack.
        let mut left = pipe::Receiver::from_owned_fd(reader.into()).map_err(GitError::Spawn)?;
        let bytes = match fed {
            Some(bytes) => bytes,
            None => tokio::select! {
                found = has_byte(&mut left) => match found? {
                    true => return Err(PackFault::TrailingBytes.into()),
                    false => feed.await?,
                },
                fed = &mut feed => fed?,
            },
        };
        if has_byte(&mut left).await? {
            return Err(PackFault::TrailingBytes.into());
        }
        self.check_chains(objects).await?;
        Ok(Received { bytes, objects })
    }

    fn index_pack(
        &self,
        strictness: Option<&'static str>,
        objects: u32,
        limits: &PackLimits,
    ) -> GitCommand {
        let mut command = self.command("index-pack");
        if let Some(strictness) = strictness {
            command = command.flag(strictness);
        }
        command
            .settings(SETTINGS)
            .flag("--stdin")
            .flag("--fix-thin")
            .flag(match objects < WORTH_A_REVERSE_INDEX {
                true => "--no-rev-index",
                false => "--rev-index",
            })
            .number("--max-input-size=", limits.max_bytes)
            .memory(limits.max_memory)
            .cpu_seconds(limits.cpu.seconds(0))
            .priority(limits.niceness)
    }

    /// Bases that a thin pack lacked are whole objects in it now, so no chain leaves its pack, and
    /// none is longer than the pack has objects.
    async fn check_chains(&self, objects: u32) -> Result<(), GitError> {
        if objects <= MAX_CHAIN {
            return Ok(());
        }
        let dir = self.dir.path().to_owned();
        let deepest = off_the_loop(move || {
            let mut deepest = None;
            for name in adopt::packs(&dir)? {
                let index = dir.join("pack").join(name).with_extension("idx");
                let found = chains::deepest(&index)?;
                deepest = deepest.max(found);
            }
            Ok(deepest)
        });
        match deepest.await? {
            Some(deepest) if deepest.depth > MAX_CHAIN => Err(PackFault::DeepDelta {
                object: deepest.object,
                depth: deepest.depth,
                limit: MAX_CHAIN,
            }
            .into()),
            _ => Ok(()),
        }
    }

    async fn revisions(
        &self,
        tips: Vec<ObjectId>,
        complete: Complete,
    ) -> Result<Vec<u8>, GitError> {
        let (repo, dir) = (self.repo.clone(), self.dir.path().to_owned());
        off_the_loop(move || revisions(&repo, &Objects::open(&dir)?, &tips, &complete)).await
    }

    fn command(&self, name: &'static str) -> GitCommand {
        GitCommand::new(name, self.repo.dir())
            .env("GIT_OBJECT_DIRECTORY", self.dir.path())
            .env("GIT_QUARANTINE_PATH", self.dir.path())
    }
}

/// From where no walk needs to go on.
pub(crate) enum Complete {
    Refs,
    These(Vec<ObjectId>),
}

/// Tips to walk from, and what is known to be complete. Refs whose object is lost are left out,
/// so that a push can mend them.
pub(crate) fn revisions(
    repo: &Repo,
    objects: &Objects,
    tips: &[ObjectId],
    complete: &Complete,
) -> Result<Vec<u8>, GitError> {
    let mut input = Vec::new();
    for tip in tips {
        if !objects.contains(tip)? {
            return Err(GitError::MissingObject(*tip));
        }
        input.extend_from_slice(format!("{tip}\n").as_bytes());
    }
    let complete = match complete {
        Complete::Refs => repo.refs()?.refs.values().map(|found| found.id).collect(),
        Complete::These(these) => these.clone(),
    };
    for id in complete {
        if objects.contains(&id)? {
            input.extend_from_slice(format!("^{id}\n").as_bytes());
        }
    }
    Ok(input)
}

async fn read_exactly<const N: usize>(
    pack: &mut (impl AsyncRead + Unpin),
) -> Result<[u8; N], GitError> {
    let mut bytes = [0; N];
    match pack.read_exact(&mut bytes).await {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(PackFault::Truncated.into())
        }
        Err(error) => Err(GitError::Body(error)),
    }
}

fn object_count(header: &[u8; HEADER_LEN], limit: u32) -> Result<u32, PackFault> {
    let [b'P', b'A', b'C', b'K', a, b, c, d, e, f, g, h] = *header else {
        return Err(PackFault::NotAPack);
    };
    let version = u32::from_be_bytes([a, b, c, d]);
    if version != 2 && version != 3 {
        return Err(PackFault::Version(version));
    }
    match u32::from_be_bytes([e, f, g, h]) {
        count if count > limit => Err(PackFault::TooManyObjects { count, limit }),
        count => Ok(count),
    }
}

/// What a client sends that has nothing new to send.
async fn receive_empty(mut pack: impl AsyncRead + Unpin) -> Result<Received, GitError> {
    if read_exactly::<20>(&mut pack).await? != EMPTY_TRAILER {
        return Err(PackFault::Malformed("its checksum is wrong".to_owned()).into());
    }
    match pack.read(&mut [0]).await.map_err(GitError::Body)? {
        0 => Ok(Received {
            bytes: 32,
            objects: 0,
        }),
        _ => Err(PackFault::TrailingBytes.into()),
    }
}

/// Hands the pack on to git. Our own copy of the pipe's other end keeps this from failing when
/// git leaves: it waits then, and git's end is noticed elsewhere.
async fn feed(
    header: &[u8],
    mut pack: impl AsyncRead + Unpin,
    writer: PipeWriter,
    max_bytes: u64,
    granted: &Granted,
) -> Result<u64, GitError> {
    let mut writer = pipe::Sender::from_owned_fd(writer.into()).map_err(GitError::Spawn)?;
    writer.write_all(header).await.map_err(GitError::Spawn)?;
    let mut total = header.len() as u64;
    let mut chunk = Vec::with_capacity(CHUNK);
    while pack.read_buf(&mut chunk).await.map_err(GitError::Body)? > 0 {
        total += chunk.len() as u64;
        if total > max_bytes {
            return Err(PackFault::TooLarge { limit: max_bytes }.into());
        }
        granted.grow(total);
        writer.write_all(&chunk).await.map_err(GitError::Spawn)?;
        chunk.clear();
    }
    Ok(total)
}

/// Processor time that git may have, more with every MiB that it is given.
struct Granted {
    process: Option<CpuTime>,
    limit: CpuLimit,
    seconds: AtomicU64,
    /// The number of a process that has been waited for may be somebody else's.
    ended: AtomicBool,
}

impl Granted {
    fn new(process: Option<CpuTime>, limit: CpuLimit) -> Self {
        Self {
            process,
            limit,
            seconds: AtomicU64::new(limit.seconds(0)),
            ended: AtomicBool::new(false),
        }
    }

    fn seconds(&self) -> u64 {
        self.seconds.load(Ordering::Relaxed)
    }

    fn grow(&self, bytes: u64) {
        let seconds = self.limit.seconds(bytes);
        if seconds > self.seconds() && !self.ended.load(Ordering::Relaxed) {
            self.seconds.store(seconds, Ordering::Relaxed);
            if let Some(process) = self.process {
                process.allow(seconds);
            }
        }
    }
}

async fn has_byte(left: &mut pipe::Receiver) -> Result<bool, GitError> {
    let read = left.read(&mut [0]).await.map_err(GitError::Spawn)?;
    Ok(read > 0)
}

fn late(step: &str, after: Duration) -> GitError {
    GitError::TimedOut {
        args: step.to_owned(),
        after,
    }
}
