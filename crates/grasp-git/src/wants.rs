//! What a fetch of protocol 2 asks for. `git upload-pack` gives whatever lies in the object directory to
//! whoever knows its name; here only what the refs reach is given.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use grasp_core::git::{ObjectId, ObjectKind};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{OwnedMutexGuard, Semaphore, SemaphorePermit};

use crate::command::{GitCommand, Running};
use crate::error::GitError;
use crate::files::off_the_loop;
use crate::quarantine::{Complete, revisions};
use crate::refs::RefsVersion;
use crate::repo::Repo;

/// Of the walks that tell what refs reach.
#[derive(Debug, Clone, Copy)]
pub struct WalkLimits {
    /// Processor time of each. Histories of a million objects take less; where it is not enough,
    /// files are given and commits are not, since clients ask for older files one by one.
    pub cpu: Duration,
    /// For all of it, with the wait for the walks of others.
    pub timeout: Duration,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self {
            cpu: Duration::from_secs(10),
            timeout: Duration::from_secs(60),
        }
    }
}

const WALK_MEMORY: u64 = 1024 * 1024 * 1024;
/// Whoever clones or pushes goes before it.
const NICENESS: i32 = 10;
/// At once, of different repositories.
const MAX_WALKS: usize = 2;
/// Different objects in one request: a checkout of a partial clone asks for all its files at once.
/// 32 bytes each.
const MAX_WANTS: usize = 200_000;
/// Walks that are remembered as too large; 200 bytes each.
const MAX_REMEMBERED: usize = 1_024;

/// Why nothing is given, in the words that the client is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WantRefusal {
    /// As git says it.
    #[error("not our ref {0}")]
    Unreachable(ObjectId),
    #[error("the history is too large to tell whether a ref reaches {0}")]
    Untold(ObjectId),
    #[error("more than {MAX_WANTS} objects are asked for at once")]
    TooMany,
    #[error("cannot tell now what refs reach, try again")]
    TryAgain,
}

/// `want`, a space and a name.
const WANT: usize = 5 + 40;
const HEADER: usize = 4;

/// Reads the packets of a request as they pass, up to the one that ends it.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    ids: BTreeSet<ObjectId>,
    header: Vec<u8>,
    /// Bytes of the packet that are still to come, and the first of those that came.
    left: usize,
    start: Vec<u8>,
}

/// How far a request goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// All of it belongs to the request, which goes on.
    More,
    /// The packet that ends it begins here: what is before it may be passed on.
    Ends(usize),
    /// These are no packets.
    Malformed,
    /// More is asked for than anybody needs.
    TooMany,
}

impl Wants {
    pub fn scan(&mut self, bytes: &[u8]) -> Scanned {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if self.left > 0 {
                let taken = rest.len().min(self.left);
                let kept = taken.min(WANT.saturating_sub(self.start.len()));
                self.start
                    .extend_from_slice(rest.get(..kept).unwrap_or(rest));
                self.left -= taken;
                at += taken;
                if self.left == 0 {
                    self.end_packet();
                }
                if self.ids.len() > MAX_WANTS {
                    return Scanned::TooMany;
                }
                continue;
            }
            let taken = rest.len().min(HEADER - self.header.len());
            self.header
                .extend_from_slice(rest.get(..taken).unwrap_or(rest));
            at += taken;
            if self.header.len() < HEADER {
                return Scanned::More;
            }
            let header = std::mem::take(&mut self.header);
            match length(&header) {
                Some(0) => return Scanned::Ends(at),
                Some(1 | 2) => {}
                Some(length) if length >= HEADER => self.left = length - HEADER,
                _ => return Scanned::Malformed,
            }
        }
        Scanned::More
    }

    fn end_packet(&mut self) {
        let start = std::mem::take(&mut self.start);
        let want = start.strip_prefix(b"want ");
        // Git reads capitals as well.
        let want = want.map(|name| String::from_utf8_lossy(name).to_ascii_lowercase());
        self.ids.extend(want.as_deref().and_then(ObjectId::parse));
    }

    /// Whether refs reach all of it.
    pub async fn check(self, repo: &Repo, limits: &WalkLimits) -> Result<(), WantRefusal> {
        let found = tokio::time::timeout(limits.timeout, self.find_refused(repo, limits)).await;
        match found {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(refusal))) => Err(refusal),
            Ok(Err(_)) | Err(_) => Err(WantRefusal::TryAgain),
        }
    }

    async fn find_refused(
        self,
        repo: &Repo,
        limits: &WalkLimits,
    ) -> Result<Option<WantRefusal>, GitError> {
        let (opened, timeout) = (repo.clone(), limits.timeout);
        let wanted = off_the_loop(move || others_than_tips(&opened, self.ids, timeout)).await?;
        match wanted.is_empty() {
            true => Ok(None),
            false => find_refused(repo, &wanted, limits).await,
        }
    }
}

fn length(header: &[u8]) -> Option<usize> {
    let digits = header.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(header).ok().filter(|_| digits)?;
    usize::from_str_radix(text, 16).ok()
}

/// What is not here git itself refuses.
fn others_than_tips(
    repo: &Repo,
    mut wanted: BTreeSet<ObjectId>,
    timeout: Duration,
) -> Result<BTreeMap<ObjectId, ObjectKind>, GitError> {
    for found in repo.refs()?.refs.values() {
        wanted.remove(&found.id);
    }
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ids: Vec<ObjectId> = wanted.into_iter().collect();
    let kinds = repo.objects()?.kinds(&ids, timeout)?;
    let here = ids.into_iter().zip(kinds);
    Ok(here.filter_map(|(id, kind)| Some((id, kind?))).collect())
}

/// First a walk that is as long as the history: it tells of every commit, and of every file that
/// one of the refs has now. Then, for older files, one over everything that refs reach.
async fn find_refused(
    repo: &Repo,
    wanted: &BTreeMap<ObjectId, ObjectKind>,
    limits: &WalkLimits,
) -> Result<Option<WantRefusal>, GitError> {
    let opened = repo.clone();
    let ids: Vec<ObjectId> = wanted.keys().copied().collect();
    // What was too large for these says nothing of others: a stranger may have brought them.
    let over = Over::Wanted(WALKS.hasher.hash_one(&ids));
    let input = off_the_loop(move || revisions(&opened, &opened.objects()?, &ids, &Complete::Refs));
    let mut beyond: BTreeMap<ObjectId, ObjectKind> = BTreeMap::new();
    let told = walk(repo, over, input.await?, limits, |id| {
        beyond.extend(wanted.get_key_value(&id));
        false
    });
    if told.await? == Told::TooLarge {
        return Ok(first_untold(wanted.iter()));
    }
    let mut told = beyond.iter();
    let commit = told.find(|(_, kind)| **kind == ObjectKind::Commit);
    if let Some((id, _)) = commit {
        return Ok(Some(WantRefusal::Unreachable(*id)));
    }
    if beyond.is_empty() {
        return Ok(None);
    }
    let opened = repo.clone();
    let input = off_the_loop(move || {
        let tips = opened.refs()?.refs.into_values();
        let tips: String = tips.map(|found| format!("{}\n", found.id)).collect();
        Ok(tips.into_bytes())
    });
    let told = walk(repo, Over::Everything, input.await?, limits, |id| {
        beyond.remove(&id);
        beyond.is_empty()
    });
    match told.await? {
        Told::TooLarge => Ok(first_untold(beyond.iter())),
        Told::Enough => Ok(beyond.keys().next().map(|id| WantRefusal::Unreachable(*id))),
    }
}

/// A commit that nobody signed for brings a history with it; a file is what it is.
fn first_untold<'a>(
    mut wanted: impl Iterator<Item = (&'a ObjectId, &'a ObjectKind)>,
) -> Option<WantRefusal> {
    let held = |kind: &ObjectKind| matches!(kind, ObjectKind::Commit | ObjectKind::Tag);
    let found = wanted.find(|(_, kind)| held(kind));
    found.map(|(id, _)| WantRefusal::Untold(*id))
}

/// Walks that run, wait, or are not worth beginning.
struct Walks {
    slots: Semaphore,
    /// Those of one repository wait for each other first, so that its clients have one slot.
    repos: Mutex<HashMap<PathBuf, Weak<tokio::sync::Mutex<()>>>>,
    too_large: Mutex<TooLarge>,
    hasher: RandomState,
}

static WALKS: LazyLock<Walks> = LazyLock::new(|| Walks {
    slots: Semaphore::new(MAX_WALKS),
    repos: Mutex::default(),
    too_large: Mutex::default(),
    hasher: RandomState::new(),
});

impl Walks {
    async fn acquire(
        &self,
        repo: &Repo,
    ) -> Result<(OwnedMutexGuard<()>, SemaphorePermit<'_>), GitError> {
        let of_repo = self.of_repo(repo).lock_owned().await;
        let slot = self.slots.acquire().await;
        // It is never closed.
        let slot = slot.map_err(|closed| GitError::Spawn(std::io::Error::other(closed)))?;
        Ok((of_repo, slot))
    }

    fn of_repo(&self, repo: &Repo) -> Arc<tokio::sync::Mutex<()>> {
        let mut repos = self.repos.lock().unwrap_or_else(PoisonError::into_inner);
        repos.retain(|_, walks| walks.strong_count() > 0);
        if let Some(found) = repos.get(repo.dir()).and_then(Weak::upgrade) {
            return found;
        }
        let made = Arc::default();
        repos.insert(repo.dir().to_owned(), Arc::downgrade(&made));
        made
    }

    fn too_large(&self) -> MutexGuard<'_, TooLarge> {
        self.too_large
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a walk goes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Over {
    /// What these reach and refs do not, known by their hash.
    Wanted(u64),
    /// All that refs reach.
    Everything,
}

impl Over {
    fn flag(self) -> &'static str {
        match self {
            Self::Wanted(_) => "--objects-edge-aggressive",
            Self::Everything => "--objects",
        }
    }
}

/// Walks that did not end with the processor time they had, and the refs that there were.
#[derive(Debug, Default)]
struct TooLarge(HashMap<(PathBuf, Over), Option<RefsVersion>>);

impl TooLarge {
    fn contains(&self, walk: &(PathBuf, Over), refs: &Option<RefsVersion>) -> bool {
        self.0.get(walk) == Some(refs)
    }

    /// Forgetting costs a walk for each.
    fn insert(&mut self, walk: (PathBuf, Over), refs: Option<RefsVersion>) {
        if self.0.len() >= MAX_REMEMBERED {
            self.0.clear();
        }
        self.0.insert(walk, refs);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// Everything, or as much as was needed.
    Enough,
    /// It takes more processor time than there is for it.
    TooLarge,
}

/// Calls `found` for every object until it says that this is enough.
async fn walk(
    repo: &Repo,
    over: Over,
    input: Vec<u8>,
    limits: &WalkLimits,
    found: impl FnMut(ObjectId) -> bool,
) -> Result<Told, GitError> {
    let opened = repo.clone();
    let refs = off_the_loop(move || Ok(opened.version())).await?;
    let walk = (repo.dir().to_owned(), over);
    if WALKS.too_large().contains(&walk, &refs) {
        return Ok(Told::TooLarge);
    }
    let _running = WALKS.acquire(repo).await?;
    // Somebody else may have tried meanwhile.
    if WALKS.too_large().contains(&walk, &refs) {
        return Ok(Told::TooLarge);
    }
    let started = Walk::start(repo, over, input, limits)?;
    let told = started.each(found).await?;
    if told == Told::TooLarge {
        WALKS.too_large().insert(walk, refs);
    }
    Ok(told)
}

/// `git rev-list` on its way.
struct Walk {
    running: Running,
    feeding: tokio::task::JoinHandle<()>,
}

impl Walk {
    fn start(
        repo: &Repo,
        over: Over,
        input: Vec<u8>,
        limits: &WalkLimits,
    ) -> Result<Self, GitError> {
        let mut running = GitCommand::new("rev-list", repo.dir())
            .flag("--use-bitmap-index")
            .flag(over.flag())
            .flag("--stdin")
            .memory(WALK_MEMORY)
            .cpu_seconds(limits.cpu.as_secs())
            .priority(NICENESS)
            .spawn(Stdio::piped(), Stdio::piped())?;
        let stdin = running.take_stdin();
        let feeding = tokio::spawn(async move {
            if let Some(mut stdin) = stdin {
                // A process that leaves early says so by its status.
                let _ = stdin.write_all(&input).await;
            }
        });
        Ok(Self { running, feeding })
    }

    async fn each(mut self, mut found: impl FnMut(ObjectId) -> bool) -> Result<Told, GitError> {
        let stdout = self.running.take_stdout();
        let mut lines = BufReader::new(stdout.ok_or_else(no_pipe)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = lines.read_until(b'\n', &mut line).await;
            if read.map_err(GitError::Spawn)? == 0 {
                break;
            }
            // With a minus before them: commits at which the walk stopped.
            let name = line
                .get(..40)
                .and_then(|name| std::str::from_utf8(name).ok());
            if name.and_then(ObjectId::parse).is_some_and(&mut found) {
                return Ok(Told::Enough);
            }
        }
        let finished = self.running.finish().await?;
        match finished.is_ok() {
            true => Ok(Told::Enough),
            false if finished.ran_out_of_time() => Ok(Told::TooLarge),
            false => Err(finished.into_error()),
        }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.feeding.abort();
    }
}

fn no_pipe() -> GitError {
    GitError::Spawn(std::io::ErrorKind::BrokenPipe.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> (Vec<u8>, Vec<ObjectId>) {
        let ids: Vec<ObjectId> = (1..4).map(|n| ObjectId([n; 20])).collect();
        let mut bytes = b"0012command=fetch\n0001000eofs-delta\n".to_vec();
        for id in &ids {
            bytes.extend(format!("0032want {id}\n").bytes());
            bytes.extend(format!("0032have {id}\n").bytes());
        }
        (bytes, ids)
    }

    #[test]
    fn wants_are_found_wherever_they_stand_and_however_they_come() {
        let (bytes, ids) = request();
        let whole = [&bytes[..], b"0000more"].concat();
        for size in [1, 2, 3, 7, 50, 51, 10_000] {
            let mut wants = Wants::default();
            let mut passed = 0;
            for part in whole.chunks(size) {
                match wants.scan(part) {
                    Scanned::More => passed += part.len(),
                    Scanned::Ends(at) => {
                        passed += at;
                        break;
                    }
                    Scanned::Malformed | Scanned::TooMany => panic!("{size}"),
                }
            }
            assert_eq!(passed, bytes.len() + HEADER, "{size}");
            assert!(wants.ids.iter().eq(&ids), "{size}");
        }
    }

    #[test]
    fn what_is_no_packet_is_noticed() {
        for junk in [&b"want"[..], b"0003", b"zzzz", b"+012command"] {
            assert_eq!(Wants::default().scan(junk), Scanned::Malformed, "{junk:?}");
        }
    }
    #[test]
    fn no_more_is_kept_than_anybody_needs() {
        let want = |n: usize| format!("0032want {n:040x}\n").into_bytes();
        let mut wants = Wants::default();
        for n in 1..=MAX_WANTS {
            assert_eq!(wants.scan(&want(n)), Scanned::More);
        }
        assert_eq!(wants.scan(&want(1)), Scanned::More, "it is known");
        assert_eq!(wants.scan(&want(MAX_WANTS + 1)), Scanned::TooMany);
    }

    #[test]
    fn a_walk_that_was_too_large_is_remembered_until_refs_change() {
        let mut too_large = TooLarge::default();
        let walk = |name: &str, over| (PathBuf::from(name), over);
        let at = |seconds| {
            let after = Duration::from_secs(seconds);
            Some((1, std::time::SystemTime::UNIX_EPOCH + after))
        };
        too_large.insert(walk("a", Over::Everything), at(1));
        assert!(too_large.contains(&walk("a", Over::Everything), &at(1)));
        assert!(!too_large.contains(&walk("a", Over::Everything), &at(2)));
        assert!(!too_large.contains(&walk("a", Over::Wanted(1)), &at(1)));
        assert!(!too_large.contains(&walk("b", Over::Everything), &at(1)));
        for n in 0..10 * MAX_REMEMBERED {
            too_large.insert(walk(&n.to_string(), Over::Everything), at(1));
            assert!(too_large.0.len() <= MAX_REMEMBERED);
        }
    }
}
