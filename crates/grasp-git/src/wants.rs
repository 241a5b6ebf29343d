//! What a fetch of protocol 2 asks for. `git upload-pack` gives whatever lies in the object directory to
//! whoever knows its name; here only what the refs reach is given.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use grasp_core::git::{ObjectId, ObjectKind};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::command::{GitCommand, Running};
use crate::error::GitError;
use crate::files::off_the_loop;
use crate::quarantine::{Complete, revisions};
use crate::repo::Repo;

/// For a walk over what refs reach. Histories of a million objects take less; what cannot be told
/// within it is given, since older files of large repositories are asked for one by one.
const WALK: Duration = Duration::from_secs(10);
const WALK_MEMORY: u64 = 1024 * 1024 * 1024;

/// `want`, a space and a name.
const WANT: usize = 5 + 40;
const HEADER: usize = 4;

/// Reads the packets of a request as they pass, up to the one that ends it.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    ids: Vec<ObjectId>,
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

    /// The first that no ref reaches.
    pub async fn find_unreachable(self, repo: &Repo) -> Result<Option<ObjectId>, GitError> {
        let opened = repo.clone();
        let wanted = off_the_loop(move || others_than_tips(&opened, self.ids)).await?;
        if wanted.is_empty() {
            return Ok(None);
        }
        let checked = tokio::time::timeout(WALK, check(repo, wanted)).await;
        // In large repositories it may take too long to tell.
        checked.unwrap_or(Ok(None))
    }
}

fn length(header: &[u8]) -> Option<usize> {
    let digits = header.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(header).ok().filter(|_| digits)?;
    usize::from_str_radix(text, 16).ok()
}

/// What is not here git itself refuses.
fn others_than_tips(repo: &Repo, ids: Vec<ObjectId>) -> Result<BTreeSet<ObjectId>, GitError> {
    let refs = repo.refs()?.refs;
    let tips: BTreeSet<ObjectId> = refs.values().map(|found| found.id).collect();
    let mut wanted: BTreeSet<ObjectId> = ids.into_iter().collect();
    wanted.retain(|id| !tips.contains(id));
    if !wanted.is_empty() {
        let objects = repo.objects()?;
        let ids: Vec<ObjectId> = wanted.iter().copied().collect();
        let kinds = objects.kinds(&ids, WALK)?;
        let here = ids.into_iter().zip(kinds);
        wanted = here.filter_map(|(id, kind)| kind.map(|_| id)).collect();
    }
    Ok(wanted)
}

/// First a walk that is as long as the history: it tells of every commit, and of every file that
/// one of the refs has now. Then, for older files, one over everything that refs reach.
async fn check(repo: &Repo, wanted: BTreeSet<ObjectId>) -> Result<Option<ObjectId>, GitError> {
    let opened = repo.clone();
    let ids: Vec<ObjectId> = wanted.iter().copied().collect();
    let input = off_the_loop(move || revisions(&opened, &opened.objects()?, &ids, &Complete::Refs));
    let mut beyond = BTreeSet::new();
    let walk = Walk::start(repo, "--objects-edge-aggressive", input.await?).await?;
    let all_told = walk
        .each(|id| {
            if wanted.contains(&id) {
                beyond.insert(id);
            }
            false
        })
        .await?;
    if !all_told || beyond.is_empty() {
        return Ok(None);
    }
    let opened = repo.clone();
    let (commit, input, mut left) = off_the_loop(move || {
        let ids: Vec<ObjectId> = beyond.iter().copied().collect();
        let kinds = opened.objects()?.kinds(&ids, WALK)?;
        let mut told = ids.iter().zip(kinds);
        let commit = told.find(|(_, kind)| *kind == Some(ObjectKind::Commit));
        let tips = opened.refs()?.refs.into_values().map(|found| found.id);
        let tips: String = tips.map(|id| format!("{id}\n")).collect();
        Ok((commit.map(|(id, _)| *id), tips.into_bytes(), beyond))
    })
    .await?;
    if commit.is_some() {
        return Ok(commit);
    }
    let walk = Walk::start(repo, "--objects", input).await?;
    let all_told = walk
        .each(|id| {
            left.remove(&id);
            left.is_empty()
        })
        .await?;
    Ok(left.first().copied().filter(|_| all_told))
}

/// `git rev-list` on its way.
struct Walk {
    running: Running,
    feeding: tokio::task::JoinHandle<()>,
}

impl Walk {
    async fn start(repo: &Repo, what: &'static str, input: Vec<u8>) -> Result<Self, GitError> {
        let mut running = GitCommand::new("rev-list", repo.dir())
            .flag("--use-bitmap-index")
            .flag(what)
            .flag("--stdin")
            .memory(WALK_MEMORY)
            .cpu_seconds(WALK.as_secs())
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

    /// Calls `found` for every object until it says that this is enough. False if git could not
    /// tell all of them.
    async fn each(mut self, mut found: impl FnMut(ObjectId) -> bool) -> Result<bool, GitError> {
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
                return Ok(true);
            }
        }
        Ok(self.running.finish().await?.is_ok())
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
                    Scanned::Malformed => panic!("{size}"),
                }
            }
            assert_eq!(passed, bytes.len() + HEADER, "{size}");
            assert_eq!(wants.ids, ids, "{size}");
        }
    }

    #[test]
    fn what_is_no_packet_is_noticed() {
        for junk in [&b"want"[..], b"0003", b"zzzz", b"+012command"] {
            assert_eq!(Wants::default().scan(junk), Scanned::Malformed, "{junk:?}");
        }
    }
}
