//! Questions about objects, answered in this process. A miss looks at the disk once more, so
//! that packs which came after opening are seen.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use gix_object::Find as _;
use gix_odb::Header as _;
use gix_odb::store::init::{Options, Slots};
use grasp_core::git::{ObjectId, ObjectKind};

use crate::deadline::Deadline;
use crate::error::GitError;
use crate::text::is_plain;

/// A repository's objects. Shared freely between threads; keeps indexes and packs mapped.
pub struct Objects {
    dir: PathBuf,
    store: RwLock<Arc<gix_odb::Store>>,
}

/// What a page shows of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitSummary {
    pub subject: String,
    pub author: String,
    /// Seconds since 1970, as the author's clock had it.
    pub time: i64,
}

/// What is known of an object without reading it.
#[derive(Debug, Clone, Copy)]
struct Header {
    kind: ObjectKind,
    size: u64,
    /// How many of them it takes to make it.
    deltas: u32,
}

type Handle = gix_odb::store::Handle<Arc<gix_odb::Store>>;

/// Commits and tags of real histories stay below 1 MiB; a chain of deltas can hide a larger
/// object behind a small one, therefore the limit on every allocation. It has to hold two objects
/// and their deltas, so that none on the way is larger than 2 MiB.
const MAX_READ: u64 = 1024 * 1024;
/// Of a commit that is shown: a page has a hundred of them, and anybody may ask for it.
const MAX_SHOWN: u64 = 64 * 1024;
const MAX_ALLOCATION: usize = 4 * 1024 * 1024;
/// Every object on the way is made anew: together with the limit of allocations this is half a GB
/// of copying, a tenth of a second. Git makes chains of 50, and of 250 when it is told to be thorough.
const MAX_DELTAS: u32 = 256;
/// A tag of a tag of a tag.
const MAX_TAGS: usize = 64;
const MAX_SUBJECT: usize = 200;
const MAX_AUTHOR: usize = 100;

impl Objects {
    pub(crate) fn open(dir: &Path) -> Result<Self, GitError> {
        Ok(Self {
            dir: dir.to_owned(),
            store: RwLock::new(Arc::new(open_store(dir)?)),
        })
    }

    /// None if the object is not here.
    pub fn kind(&self, id: &ObjectId) -> Result<Option<ObjectKind>, GitError> {
        self.header(id).map(|found| found.map(|header| header.kind))
    }

    fn header(&self, id: &ObjectId) -> Result<Option<Header>, GitError> {
        let found = self.ask(|handle| handle.try_header(&gix(id)))?;
        Ok(found.map(|header| Header {
            kind: kind(header.kind()),
            size: header.size(),
            deltas: header.num_deltas().unwrap_or(0),
        }))
    }

    /// Of many objects, most of which may not be here. For all that are not found the disk is
    /// looked at once more, and only once: each look reads the folder of packs.
    /// Looking ends with an error when it takes longer than `timeout`.
    pub fn kinds(
        &self,
        ids: &[ObjectId],
        timeout: Duration,
    ) -> Result<Vec<Option<ObjectKind>>, GitError> {
        let late = || GitError::TimedOut {
            args: "look for objects".to_owned(),
            after: timeout,
        };
        let began = Instant::now();
        let in_time = || began.elapsed() < timeout;
        let mut kinds = self.known_kinds(ids, &in_time)?.ok_or_else(late)?;
        let missed = ids.iter().zip(&kinds).filter(|(_, kind)| kind.is_none());
        let missed: Vec<ObjectId> = missed.map(|(id, _)| *id).collect();
        let Some(first) = missed.first() else {
            return Ok(kinds);
        };
        self.kind(first)?;
        let found = self.known_kinds(&missed, &in_time)?.ok_or_else(late)?;
        let missing = kinds.iter_mut().filter(|kind| kind.is_none());
        for (kind, found) in missing.zip(found) {
            *kind = found;
        }
        Ok(kinds)
    }

    /// As far as the disk was looked at before. None if it takes too long.
    fn known_kinds(
        &self,
        ids: &[ObjectId],
        in_time: &impl Fn() -> bool,
    ) -> Result<Option<Vec<Option<ObjectKind>>>, GitError> {
        self.ask(|handle| {
            let mut known = handle.clone();
            known.refresh_never();
            let mut kinds = Vec::with_capacity(ids.len());
            for id in ids {
                if !in_time() {
                    return Ok(None);
                }
                match known.try_header(&gix(id)) {
                    Ok(found) => kinds.push(found.map(|header| kind(header.kind()))),
                    Err(error) => return Err(error),
                }
            }
            Ok(Some(kinds))
        })
    }

    pub fn contains(&self, id: &ObjectId) -> Result<bool, GitError> {
        self.kind(id).map(|found| found.is_some())
    }

    /// Asked of one state of the disk, for many objects at once.
    pub(crate) fn has_all(&self, mut ids: impl Iterator<Item = ObjectId>) -> bool {
        let store = Arc::clone(&self.store.read().unwrap_or_else(PoisonError::into_inner));
        let handle = store.to_handle_arc();
        ids.all(|id| handle.exists_without_refresh(&gix(&id)))
    }

    /// Follows tags to what they stand for; anything else stands for itself. None if the object,
    /// or what it stands for, is not here.
    pub(crate) fn peel(
        &self,
        id: &ObjectId,
        deadline: &Deadline,
    ) -> Result<Option<ObjectId>, GitError> {
        let mut id = *id;
        for _ in 0..MAX_TAGS {
            deadline.check("look up tags")?;
            let content = match self.header(&id)? {
                None => return Ok(None),
                Some(header) if header.kind != ObjectKind::Tag => return Ok(Some(id)),
                Some(header) => self.tag(&id, &header)?,
            };
            let target = content.as_deref().and_then(tag_target);
            id = target.ok_or_else(|| self.damaged(format!("tag {id} cannot be read")))?;
        }
        Err(self.damaged(format!("tags are nested too deep at {id}")))
    }

    fn tag(&self, id: &ObjectId, header: &Header) -> Result<Option<Vec<u8>>, GitError> {
        let costly = |why: String| GitError::Costly { object: *id, why };
        if header.size > MAX_READ {
            return Err(costly(format!("it is larger than {MAX_READ} bytes")));
        }
        if header.deltas > MAX_DELTAS {
            let deltas = header.deltas;
            return Err(costly(format!(
                "it is the end of a chain of {deltas} deltas, and {MAX_DELTAS} are the limit"
            )));
        }
        self.content(id)
    }

    /// None if it is not here, not a commit, too costly for a page, or not readable as one.
    /// `may_read` is asked before it is read, with its size.
    pub fn commit_summary(
        &self,
        id: &ObjectId,
        mut may_read: impl FnMut(u64) -> bool,
    ) -> Result<Option<CommitSummary>, GitError> {
        let content = self.commit(id, MAX_SHOWN, &mut may_read)?;
        Ok(content.as_deref().and_then(CommitSummary::parse))
    }

    /// The last commits of a branch, along first parents: at most so many. It ends where one has
    /// no summary, or may not be read: `may_read` is asked for each, with its size.
    pub fn log(
        &self,
        tip: &ObjectId,
        max_commits: usize,
        mut may_read: impl FnMut(u64) -> bool,
    ) -> Result<Vec<(ObjectId, CommitSummary)>, GitError> {
        let mut log = Vec::new();
        let mut next = Some(*tip);
        while let Some(id) = next.filter(|_| log.len() < max_commits) {
            let content = self.commit(&id, MAX_SHOWN, &mut may_read)?;
            let content = content.unwrap_or_default();
            let Some(summary) = CommitSummary::parse(&content) else {
                break;
            };
            log.push((id, summary));
            next = first_parent(&content);
        }
        Ok(log)
    }

    /// None for what is no commit, has no parent, or cannot be read.
    pub(crate) fn first_parent(&self, id: &ObjectId) -> Result<Option<ObjectId>, GitError> {
        let content = self.commit(id, MAX_READ, &mut |_| true)?;
        Ok(content.as_deref().and_then(first_parent))
    }

    /// None if it is not here, no commit, larger than that, behind too many deltas, or not to be read.
    fn commit(
        &self,
        id: &ObjectId,
        max_size: u64,
        may_read: &mut impl FnMut(u64) -> bool,
    ) -> Result<Option<Vec<u8>>, GitError> {
        let is_read = |header: &Header| {
            let costly = header.size > max_size || header.deltas > MAX_DELTAS;
            header.kind == ObjectKind::Commit && !costly && may_read(header.size)
        };
        match self.header(id)?.filter(is_read) {
            Some(_) => self.content(id),
            None => Ok(None),
        }
    }

    /// For what was looked at: its size is known not to be too much.
    fn content(&self, id: &ObjectId) -> Result<Option<Vec<u8>>, GitError> {
        let id = gix(id);
        self.ask(|handle| {
            let mut content = Vec::new();
            let found = handle.try_find(&id, &mut content);
            found.map(|found| found.map(|found| found.data.to_vec()))
        })
    }

    /// A repack can take a pack away under an answer, and packs can outgrow the slots that an
    /// open store has: look once more with fresh eyes.
    fn ask<T, E: Display>(
        &self,
        question: impl Fn(&Handle) -> Result<T, E>,
    ) -> Result<T, GitError> {
        let store = Arc::clone(&self.store.read().unwrap_or_else(PoisonError::into_inner));
        if let Ok(answer) = question(&store.to_handle_arc()) {
            return Ok(answer);
        }
        let fresh = Arc::new(open_store(&self.dir)?);
        *self.store.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&fresh);
        question(&fresh.to_handle_arc()).map_err(|error| self.damaged(error.to_string()))
    }

    fn damaged(&self, what: String) -> GitError {
        GitError::damaged(&self.dir, what)
    }
}

/// Which objects one pack has.
pub(crate) struct PackIndex(gix_odb::pack::index::File);

impl PackIndex {
    pub fn open(path: &Path) -> Result<Self, GitError> {
        let opened = gix_odb::pack::index::File::at(path, gix_hash::Kind::Sha1);
        let damaged = |error| GitError::damaged(path, format!("{error:?}"));
        opened.map(Self).map_err(damaged)
    }

    pub fn ids(&self) -> impl Iterator<Item = ObjectId> {
        let count = self.0.num_objects();
        (0..count).filter_map(|n| {
            self.0
                .oid_at_index(n)
                .as_bytes()
                .try_into()
                .ok()
                .map(ObjectId)
        })
    }
}

impl CommitSummary {
    fn parse(content: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(content);
        let (headers, message) = text.split_once("\n\n").unwrap_or((&text, ""));
        let author = headers
            .lines()
            .find_map(|line| line.strip_prefix("author "))?;
        let (author, rest) = author.split_once('<').unwrap_or((author, ""));
        let time = rest
            .rsplit_once('>')
            .and_then(|(_, time)| time.split_whitespace().next())
            .and_then(|seconds| seconds.parse().ok())
            .unwrap_or(0);
        let subject = message.lines().find(|line| !line.trim().is_empty());
        Some(Self {
            subject: shortened(subject.unwrap_or_default(), MAX_SUBJECT),
            author: shortened(author, MAX_AUTHOR),
            time,
        })
    }
}

fn shortened(text: &str, max: usize) -> String {
    let visible = text.trim().chars().filter(|c| is_plain(*c));
    visible.take(max).collect()
}

/// The second line: `tree` is the first.
fn first_parent(content: &[u8]) -> Option<ObjectId> {
    let line = content.split(|byte| *byte == b'\n').nth(1)?;
    let id = std::str::from_utf8(line).ok()?.strip_prefix("parent ")?;
    ObjectId::parse(id)
}

fn tag_target(content: &[u8]) -> Option<ObjectId> {
    let line = content.split(|byte| *byte == b'\n').next()?;
    let id = std::str::from_utf8(line).ok()?.strip_prefix("object ")?;
    ObjectId::parse(id)
}

fn open_store(dir: &Path) -> Result<gix_odb::Store, GitError> {
    let options = Options {
        // Room for packs that come while it is open.
        slots: Slots::AsNeededByDiskState {
            multiplier: 2.0,
            minimum: 128,
        },
        alloc_limit_bytes: Some(MAX_ALLOCATION),
        ..Options::default()
    };
    let sha1 = gix_hash::Kind::Sha1;
    gix_odb::Store::at_opts(dir.to_owned(), sha1, &mut std::iter::empty(), options)
        .map_err(GitError::io(dir))
}

fn gix(id: &ObjectId) -> gix_hash::ObjectId {
    gix_hash::ObjectId::Sha1(*id.as_bytes())
}

/// The name that git gives to a file with this content, unless somebody made it to collide.
pub(crate) fn hash(content: &[u8]) -> Option<gix_hash::ObjectId> {
    let (sha1, blob) = (gix_hash::Kind::Sha1, gix_object::Kind::Blob);
    gix_object::compute_hash(sha1, blob, content).ok()
}

fn kind(kind: gix_object::Kind) -> ObjectKind {
    match kind {
        gix_object::Kind::Commit => ObjectKind::Commit,
        gix_object::Kind::Tree => ObjectKind::Tree,
        gix_object::Kind::Blob => ObjectKind::Blob,
        gix_object::Kind::Tag => ObjectKind::Tag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_summed_up_and_junk_does_no_harm() {
        let text = "tree x\nparent y\nauthor A U Thor <a@b.c> 1700000000 +0100\n\
                    committer C <c@d> 1 +0000\n\n\n  Subject \u{7}line\n\nBody\n";
        let summary = CommitSummary::parse(text.as_bytes()).unwrap();
        assert_eq!(summary.subject, "Subject line");
        assert_eq!(summary.author, "A U Thor");
        assert_eq!(summary.time, 1_700_000_000);

        for junk in ["", "\n\n", "author", "tree x\n\nmessage"] {
            assert_eq!(CommitSummary::parse(junk.as_bytes()), None, "{junk:?}");
        }
        let odd = CommitSummary::parse(b"author <<>> x\n\n\xff\xfe").unwrap();
        assert_eq!((odd.author.as_str(), odd.time), ("", 0));
        let long = format!("author a <> 1 +0000\n\n{}", "x".repeat(10_000));
        let long = CommitSummary::parse(long.as_bytes()).unwrap();
        assert_eq!(long.subject.len(), MAX_SUBJECT);
    }
}
