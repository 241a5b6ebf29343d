//! A repository's refs. They live in `packed-refs`, which this process alone writes: one rename is
//! a transaction over any number of refs, `a` to `a/b` included. Where that file is large, a ref
//! that changes alone is a loose file, until there are enough of them to be worth packing. Loose
//! refs that an operator brought are read, and packed at the next write.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use grasp_core::git::{ObjectId, RefName, Refs, conflict};

use crate::deadline::Deadline;
use crate::error::GitError;
use crate::files::{self, Lock};
use crate::gate;
use crate::objects::Objects;
use crate::repo::Repo;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ref {
    pub id: ObjectId,
    /// What an annotated tag stands for.
    pub peeled: Option<ObjectId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefSet {
    pub refs: BTreeMap<RefName, Ref>,
    /// The branch that HEAD names, whether it exists or not. None if HEAD names no branch.
    pub head: Option<RefName>,
}

impl RefSet {
    /// What HEAD resolves to.
    pub fn head_id(&self) -> Option<ObjectId> {
        let branch = self.head.as_ref()?;
        self.refs.get(branch).map(|found| found.id)
    }

    pub fn ids(&self) -> Refs {
        let pair = |(name, found): (&RefName, &Ref)| (name.clone(), found.id);
        self.refs.iter().map(pair).collect()
    }
}

/// Of the file that every change of refs touches: which it is, and when that was.
pub(crate) type RefsVersion = (u64, SystemTime);

/// What was done to a `packed-refs` that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MendedRefs {
    /// Lines that are lost: no ref, or one whose object is not here.
    pub dropped: usize,
    /// The damaged file, for the operator.
    pub kept_as: PathBuf,
}

const HEADER: &str = "# pack-refs with: peeled fully-peeled sorted \n";
/// 200,000 refs of the longest names would be less.
const MAX_PACKED: u64 = 256 * 1024 * 1024;
const DAMAGED: &str = "packed-refs.damaged-";
/// The newest are kept.
const MAX_DAMAGED: usize = 3;
const MAX_LOOSE: u64 = 4 * 1024;
/// From this size on a ref that changes alone does not cause `packed-refs` to be written anew:
/// that is 560 tips of pull requests.
const LARGE: u64 = 64 * 1024;
/// Loose refs that wait to be packed. With 20,000 tips of 117 bytes a change costs 37 kB of writing
/// on average, and a reader opens at most so many files.
const MAX_WAITING: usize = 64;
/// For what tags stand for, in all. Ten thousand of them take less than a second.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often a reader begins anew because refs change under it.
const MAX_READS: usize = 8;
/// Folders within folders below `refs/`; names are at most 1,024 bytes.
const MAX_DEPTH: usize = 512;

impl Repo {
    pub fn refs(&self) -> Result<RefSet, GitError> {
        let found = self.read(&Deadline::after(TIMEOUT))?;
        Ok(RefSet {
            refs: found.refs,
            head: self.head()?,
        })
    }

    /// Makes the refs exactly these, in one transaction. Every object must be here.
    pub fn write_refs(&self, refs: &Refs) -> Result<(), GitError> {
        self.edit_refs(|present| present.clone_from(refs))
    }

    /// Changes the refs in one transaction: all of it is durable when this returns, or nothing
    /// has changed.
    pub fn edit_refs(&self, edit: impl FnOnce(&mut Refs)) -> Result<(), GitError> {
        self.edit_refs_within(TIMEOUT, edit)
    }

    /// The same with another limit on the time that tags may take to be looked up.
    pub fn edit_refs_within(
        &self,
        timeout: Duration,
        edit: impl FnOnce(&mut Refs),
    ) -> Result<(), GitError> {
        let deadline = Deadline::after(timeout);
        let _inside = gate::enter(&self.objects_dir())?;
        let lock = Lock::take(&self.packed_refs())?;
        let found = self.read(&deadline)?;
        let before: Refs = found.refs.iter().map(|(n, r)| (n.clone(), r.id)).collect();
        let mut after = before.clone();
        edit(&mut after);
        if after != before
            && let Some((a, b)) = conflict(&after)
        {
            return Err(GitError::RefConflict(a.clone(), b.clone()));
        }
        if found.is_large && self.edit_loose(&found, &before, &after, &deadline)? {
            return Ok(());
        }
        let lock = self.pack_loose(&found, lock)?;
        if after == before {
            return Ok(());
        }
        let resolved = resolve(&after, &found.refs, &self.objects()?, &deadline)?;
        lock.commit(render(&resolved).as_bytes())
    }

    /// Changes what can be changed without `packed-refs`: one ref, whose file is a transaction of
    /// its own. False if it must be written. Needs its lock.
    fn edit_loose(
        &self,
        found: &Found,
        before: &Refs,
        after: &Refs,
        deadline: &Deadline,
    ) -> Result<bool, GitError> {
        let mut changes = changes(before, after);
        let Some((name, new)) = changes.next() else {
            return Ok(true);
        };
        if changes.next().is_some() {
            return Ok(false);
        }
        let loose = found.loose.iter().find(|loose| loose.name == *name);
        let path = self.dir().join(name.as_str());
        match new {
            None if loose.is_some_and(|loose| !loose.is_packed) => {
                files::remove_file(&path)?;
                files::sync(path.parent().unwrap_or(self.dir()))?;
            }
            None => return Ok(false),
            Some(id) => {
                let waits = loose.is_some() || found.loose.len() < MAX_WAITING;
                // A tag is packed, where its file tells what it stands for. So is what is not here,
                // which is an error.
                let plain = !is_tag(name) && self.objects()?.peel(&id, deadline)? == Some(id);
                if !waits || !plain || path.is_dir() {
                    return Ok(false);
                }
                self.write_loose(&path, id)?;
            }
        }
        // Whoever reads the refs, or asks whether they have changed, looks at this file.
        files::touch(&self.packed_refs())?;
        Ok(true)
    }

    /// Durable when it returns, with the folders that it needs.
    fn write_loose(&self, path: &Path, id: ObjectId) -> Result<(), GitError> {
        let folder = path.parent().unwrap_or(self.dir());
        files::make_dir(folder)?;
        // Not beside it, where it would be taken for a ref.
        let write = || {
            let mut file = tempfile::Builder::new()
                .prefix("tmp_new_")
                .tempfile_in(self.dir())?;
            writeln!(file, "{id}")?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(GitError::io(path))?;
        let folders = folder.ancestors();
        for folder in folders.take_while(|folder| *folder != self.dir()) {
            files::sync(folder)?;
        }
        Ok(())
    }

    /// Points HEAD at a branch, which need not exist.
    pub fn set_head(&self, branch: &RefName) -> Result<(), GitError> {
        if self.head().is_ok_and(|head| head.as_ref() == Some(branch)) {
            return Ok(());
        }
        let lock = Lock::take(&self.dir().join("HEAD"))?;
        lock.commit(format!("ref: {branch}\n").as_bytes())
    }

    /// Makes a damaged `packed-refs` readable again, without what cannot be understood. The refs
    /// that are lost are for the caller to set again. None if there is nothing to mend.
    pub fn mend_refs(&self) -> Result<Option<MendedRefs>, GitError> {
        let _inside = gate::enter(&self.objects_dir())?;
        let lock = Lock::take(&self.packed_refs())?;
        let content = files::read_small(&self.packed_refs(), MAX_PACKED)?.unwrap_or_default();
        if parse_packed(&content).is_ok() {
            return Ok(None);
        }
        let kept_as = self.keep_damaged(&content)?;
        let deadline = Deadline::after(TIMEOUT);
        let (refs, dropped) = salvage(&content, &self.objects()?, &deadline)?;
        lock.commit(render(&refs).as_bytes())?;
        Ok(Some(MendedRefs { dropped, kept_as }))
    }

    fn keep_damaged(&self, content: &[u8]) -> Result<PathBuf, GitError> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = since.map_or(0, |since| since.as_secs());
        let path = self.dir().join(format!("{DAMAGED}{seconds}"));
        files::replace(&path, content)?;
        let entries = files::list(self.dir())?.into_iter();
        let names = entries.map(|entry| entry.file_name());
        let mut kept: Vec<_> = names
            .filter(|name| name.to_string_lossy().starts_with(DAMAGED))
            .collect();
        kept.sort();
        let too_many = kept.len().saturating_sub(MAX_DAMAGED);
        for name in kept.iter().take(too_many) {
            files::remove_file(&self.dir().join(name))?;
        }
        Ok(path)
    }

    fn packed_refs(&self) -> PathBuf {
        self.dir().join("packed-refs")
    }

    pub(crate) fn head(&self) -> Result<Option<RefName>, GitError> {
        let path = self.dir().join("HEAD");
        let content = files::read_small(&path, MAX_LOOSE)?
            .ok_or_else(|| GitError::damaged(&path, "is missing"))?;
        let text = std::str::from_utf8(&content)
            .map_err(|_| GitError::damaged(&path, "is not text"))?
            .trim_end();
        match text.strip_prefix("ref:") {
            Some(name) => Ok(RefName::parse(name.trim_start())),
            None if ObjectId::parse(text).is_some() => Ok(None),
            None => Err(GitError::damaged(&path, "names neither branch nor commit")),
        }
    }

    /// Refs that change meanwhile are read again, so that a change is seen as a whole.
    fn read(&self, deadline: &Deadline) -> Result<Found, GitError> {
        for _ in 1..MAX_READS {
            let before = self.version();
            let found = self.read_once(deadline)?;
            if before == self.version() {
                return Ok(found);
            }
        }
        self.read_once(deadline)
    }

    /// Differs after every change of refs.
    pub(crate) fn version(&self) -> Option<RefsVersion> {
        let found = std::fs::metadata(self.packed_refs()).ok()?;
        Some((found.ino(), found.modified().ok()?))
    }

    /// Loose files first: what is packed meanwhile is seen twice, and not missed.
    fn read_once(&self, deadline: &Deadline) -> Result<Found, GitError> {
        let loose = self.read_loose()?;
        let path = self.packed_refs();
        let packed = files::read_small(&path, MAX_PACKED)?.unwrap_or_default();
        let mut found = parse_packed(&packed).map_err(|what| GitError::damaged(&path, what))?;
        found.is_large = packed.len() as u64 >= LARGE;
        for (name, id, path) in loose {
            found.add_loose(name, id, path);
        }
        if !found.unpeeled.is_empty() {
            let objects = self.objects()?;
            for name in &found.unpeeled {
                if let Some(one) = found.refs.get_mut(name) {
                    let end = objects.peel(&one.id, deadline)?;
                    one.peeled = end.filter(|end| *end != one.id);
                }
            }
        }
        Ok(found)
    }

    fn read_loose(&self) -> Result<Vec<(RefName, ObjectId, PathBuf)>, GitError> {
        let mut loose = Vec::new();
        let mut folders = vec![(self.dir().join("refs"), "refs".to_owned(), 0)];
        while let Some((folder, prefix, depth)) = folders.pop() {
            for entry in files::list(&folder)? {
                let path = entry.path();
                let Ok(name) = entry.file_name().into_string() else {
                    return Err(GitError::damaged(&path, "is not a ref's name"));
                };
                let name = format!("{prefix}/{name}");
                let kind = entry.file_type().map_err(GitError::io(&path))?;
                if kind.is_dir() && depth < MAX_DEPTH {
                    folders.push((path, name, depth + 1));
                } else if is_hosted(&name) && !has_controls(&name) && !name.ends_with(".lock") {
                    loose.extend(read_loose(path, &name)?);
                }
            }
        }
        Ok(loose)
    }

    /// First what is there as it is, then without the loose files, then the change: a crash in
    /// between leaves the refs as they were.
    fn pack_loose(&self, found: &Found, lock: Lock) -> Result<Lock, GitError> {
        if found.loose.is_empty() {
            return Ok(lock);
        }
        lock.commit(render(&found.refs).as_bytes())?;
        let lock = Lock::take(&self.packed_refs())?;
        for loose in &found.loose {
            files::remove_file(&loose.path)?;
        }
        for space in ["refs/heads", "refs/tags", "refs/nostr"] {
            remove_empty_folders(&self.dir().join(space), 0)?;
            files::make_dir(&self.dir().join(space))?;
        }
        Ok(lock)
    }
}

#[derive(Default)]
struct Found {
    refs: BTreeMap<RefName, Ref>,
    /// Refs of which the file does not say whether they are tags.
    unpeeled: Vec<RefName>,
    loose: Vec<Loose>,
    /// `packed-refs` is.
    is_large: bool,
}

struct Loose {
    name: RefName,
    path: PathBuf,
    /// `packed-refs` has that name, too, and shows it when the file is gone.
    is_packed: bool,
}

impl Found {
    fn add_loose(&mut self, name: RefName, id: ObjectId, path: PathBuf) {
        let packed = self.refs.get(&name);
        let is_packed = packed.is_some();
        if packed.is_none_or(|packed| packed.id != id) {
            if is_tag(&name) {
                self.unpeeled.push(name.clone());
            }
            self.refs.insert(name.clone(), Ref { id, peeled: None });
        }
        self.loose.push(Loose {
            name,
            path,
            is_packed,
        });
    }
}

/// None if it is gone meanwhile.
fn read_loose(path: PathBuf, name: &str) -> Result<Option<(RefName, ObjectId, PathBuf)>, GitError> {
    let Some(content) = files::read_small(&path, MAX_LOOSE)? else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&content).unwrap_or_default().trim_end();
    match (ObjectId::parse(text), RefName::parse(name)) {
        (Some(id), Some(name)) => Ok(Some((name, id, path))),
        _ => Err(GitError::damaged(&path, "is not a ref")),
    }
}

/// Only there is an annotated tag looked for: branches and tips of pull requests are commits, or
/// packed.
fn is_tag(name: &RefName) -> bool {
    name.as_str().starts_with("refs/tags/")
}

/// What each ref becomes that changes; `None` goes.
fn changes<'a>(
    before: &'a Refs,
    after: &'a Refs,
) -> impl Iterator<Item = (&'a RefName, Option<ObjectId>)> {
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    let set = after.iter();
    let set = set.filter(|(name, id)| before.get(*name) != Some(*id));
    let set = set.map(|(name, id)| (name, Some(*id)));
    gone.map(|name| (name, None)).chain(set)
}

/// Names that git takes and that cannot be hosted are left out: they are not served, and the next
/// write drops them.
fn parse_packed(content: &[u8]) -> Result<Found, String> {
    let text = std::str::from_utf8(content).map_err(|_| "is not text".to_owned())?;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("ends within a line".to_owned());
    }
    let mut found = Found::default();
    let mut peeled_known = false;
    let mut last: Option<(RefName, Ref)> = None;
    for line in text.lines() {
        if let Some(traits) = line.strip_prefix("# pack-refs with:") {
            peeled_known = traits.split(' ').any(|word| word == "fully-peeled");
        } else if line.starts_with('#') {
            continue;
        } else if let Some(peeled) = line.strip_prefix('^') {
            let id = ObjectId::parse(peeled).ok_or_else(|| bad_line(line))?;
            if let Some((_, one)) = &mut last {
                one.peeled = Some(id);
            }
        } else {
            found.refs.extend(last.take());
            last = parse_ref(line)?;
        }
    }
    found.refs.extend(last);
    if !peeled_known {
        let unsure = found.refs.iter().filter(|(_, one)| one.peeled.is_none());
        found.unpeeled = unsure.map(|(name, _)| name.clone()).collect();
    }
    Ok(found)
}

fn parse_ref(line: &str) -> Result<Option<(RefName, Ref)>, String> {
    let (id, name) = line.split_once(' ').ok_or_else(|| bad_line(line))?;
    let id = ObjectId::parse(id).ok_or_else(|| bad_line(line))?;
    match RefName::parse(name) {
        Some(name) => Ok(Some((name, Ref { id, peeled: None }))),
        None if name.starts_with("refs/") && (!is_hosted(name) || has_controls(name)) => Ok(None),
        None => Err(bad_line(line)),
    }
}

/// The refs of a damaged file that can be understood and are here, and how many lines are not.
fn salvage(
    content: &[u8],
    objects: &Objects,
    deadline: &Deadline,
) -> Result<(BTreeMap<RefName, Ref>, usize), GitError> {
    let mut refs = Refs::new();
    let mut dropped = 0;
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"#") || line.starts_with(b"^") {
            continue;
        }
        // Without its end a name may be cut short.
        let whole = line.strip_suffix(b"\n");
        let text = whole.and_then(|line| std::str::from_utf8(line).ok());
        match text.map(parse_ref) {
            Some(Ok(Some((name, found)))) if objects.peel(&found.id, deadline)?.is_some() => {
                refs.insert(name, found.id);
            }
            Some(Ok(None)) => {}
            _ => dropped += 1,
        }
    }
    while let Some((_, name)) = conflict(&refs) {
        let name = name.clone();
        refs.remove(&name);
        dropped += 1;
    }
    let resolved = resolve(&refs, &BTreeMap::new(), objects, deadline)?;
    Ok((resolved, dropped))
}

fn bad_line(line: &str) -> String {
    let start: String = line.chars().take(100).collect();
    format!("has a line that is no ref: {start:?}")
}

/// Git takes names with controls beyond ASCII; no state can have them.
fn has_controls(name: &str) -> bool {
    name.contains(char::is_control)
}

fn is_hosted(name: &str) -> bool {
    ["refs/heads/", "refs/tags/", "refs/nostr/"]
        .iter()
        .any(|space| name.starts_with(space))
}

/// What each ref will say. Only what has changed is looked up.
fn resolve(
    wanted: &Refs,
    present: &BTreeMap<RefName, Ref>,
    objects: &Objects,
    deadline: &Deadline,
) -> Result<BTreeMap<RefName, Ref>, GitError> {
    let mut resolved = BTreeMap::new();
    for (name, id) in wanted {
        let one = match present.get(name).filter(|one| one.id == *id) {
            Some(known) => *known,
            None => {
                let end = objects.peel(id, deadline)?;
                let end = end.ok_or(GitError::MissingObject(*id))?;
                let peeled = (end != *id).then_some(end);
                Ref { id: *id, peeled }
            }
        };
        resolved.insert(name.clone(), one);
    }
    Ok(resolved)
}

fn render(refs: &BTreeMap<RefName, Ref>) -> String {
    let mut text = String::with_capacity(HEADER.len() + refs.len() * 80);
    text.push_str(HEADER);
    for (name, one) in refs {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{} {name}", one.id);
        if let Some(peeled) = one.peeled {
            let _ = writeln!(text, "^{peeled}");
        }
    }
    text
}

fn remove_empty_folders(folder: &Path, depth: usize) -> Result<(), GitError> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    for entry in files::list(folder)? {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty_folders(&entry.path(), depth + 1)?;
            // Not empty: something else than a ref is in it, which may stay.
            let _ = std::fs::remove_dir(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5f0cbceca1d2c4408c50bbcc206f7b1d013af346";

    #[test]
    fn a_damaged_file_is_an_error_and_never_a_panic() {
        for bad in [
            "garbage\n".to_owned(),
            format!("{ID}\n"),
            format!("{ID} \n"),
            format!("{ID} refs/heads/a"),
            format!("{ID} refs/heads/a..b\n"),
            format!("{ID} HEAD\n"),
            format!("{} refs/heads/a\n", &ID[1..]),
            format!("{} refs/heads/a\n", "0".repeat(40)),
            format!("{ID} refs/heads/a\n^nothing\n"),
            "\n".to_owned(),
        ] {
            assert!(parse_packed(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(parse_packed(&[0xff, 0xfe, b'\n']).is_err());
    }

    #[test]
    fn refs_that_cannot_be_hosted_are_left_out() {
        let text = format!(
            "{HEADER}{ID} refs/heads/a\n{ID} refs/heads/a\u{9b}\n{ID} refs/pull/1/head\n^{ID}\n"
        );
        let found = parse_packed(text.as_bytes()).unwrap();
        let names: Vec<_> = found.refs.keys().map(RefName::as_str).collect();
        assert_eq!(names, ["refs/heads/a"]);
        assert!(found.unpeeled.is_empty());
        assert_eq!(found.refs.values().next().unwrap().peeled, None);
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        let name = |text: &str| RefName::parse(text).unwrap();
        let id = ObjectId::parse(ID).unwrap();
        let plain = Ref { id, peeled: None };
        let tag = Ref {
            id,
            peeled: Some(ObjectId([7; 20])),
        };
        let refs = BTreeMap::from([(name("refs/heads/a"), plain), (name("refs/tags/v"), tag)]);
        assert_eq!(parse_packed(render(&refs).as_bytes()).unwrap().refs, refs);
    }
}
