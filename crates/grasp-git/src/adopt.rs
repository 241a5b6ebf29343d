//! How objects become a repository's own, all at once. The invariant of every object directory
//! here: whatever is in it has all that it refers to in it too, so that a commit's presence means
//! a complete history. Git shows each pack as it comes; a set of packs is therefore put aside
//! first, made visible by one line in `objects/info/alternates`, and then moved in.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use grasp_core::git::ObjectId;

use crate::error::GitError;
use crate::files::{self, Claim};
use crate::gate;
use crate::objects::{Objects, PackIndex};
use crate::repo::{Repo, temporary_in};

const STAGING: &str = "adopt-";
/// What belongs to a pack, the index last: only with it the pack exists. Bitmaps stay behind,
/// git uses only one.
const PARTS: [&str; 3] = ["pack", "rev", "idx"];
/// A repack of the source shifts objects while they are listed; each new listing shows where to.
const MAX_LISTINGS: usize = 32;

/// Gives all objects of one repository to another, as hard links: either can be repacked or
/// removed without the other. True if there was anything new.
pub fn share(from: &Repo, to: &Repo) -> Result<bool, GitError> {
    // What is half dropped is not complete.
    let _whole = gate::stay(&from.objects_dir())?;
    let mut sources = vec![from.objects_dir()];
    sources.extend(alternates(&from.objects_dir())?);
    adopt(&sources, to)
}

/// Takes over all packs and loose objects of object directories. A crash at any point leaves
/// either nothing of them visible or all.
pub(crate) fn adopt(sources: &[PathBuf], to: &Repo) -> Result<bool, GitError> {
    let objects = to.objects_dir();
    let _only_one = exclusive(&objects)?;
    let _inside = gate::enter(&objects)?;
    let staging = temporary_in(&objects, STAGING)?;
    let mut staged = Staged::default();
    for source in sources {
        stage(source, staging.path(), &objects, &mut staged)?;
    }
    if staged.is_empty() {
        return Ok(false);
    }
    staged.sync(staging.path())?;
    files::sync(&objects)?;
    let staging = staging.keep();
    edit_alternates(&objects, |lines| {
        lines.push(staging.as_os_str().to_owned());
    })?;
    finish(&objects, &staging)?;
    Ok(true)
}

/// Takes over a single pack, whose index makes it visible at once. Its files are synced. False if
/// it was there.
pub(crate) fn move_pack(from: &Path, objects: &Path, pack: &OsStr) -> Result<bool, GitError> {
    if part_of(objects, pack, "idx").exists() {
        return Ok(false);
    }
    for part in PARTS {
        let from = part_of(from, pack, part);
        match fs::rename(&from, part_of(objects, pack, part)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && part == "rev" => {}
            Err(error) => return Err(GitError::io(&from)(error)),
        }
    }
    files::sync(&objects.join("pack"))?;
    Ok(true)
}

/// Somebody brought it again: to a prune it is as young as if it were new.
pub(crate) fn refresh(objects: &Path, pack: &OsStr) -> Result<(), GitError> {
    files::touch(&part_of(objects, pack, "pack"))
}

/// Finishes what a killed process had begun, and forgets what it had only prepared.
pub(crate) fn resume(repo: &Repo) -> Result<usize, GitError> {
    let objects = repo.objects_dir();
    let is_staging = |name: &OsString| name.to_string_lossy().starts_with(STAGING);
    let left: Vec<_> = files::list(&objects)?
        .into_iter()
        .filter(|entry| is_staging(&entry.file_name()))
        .collect();
    if left.is_empty() {
        return Ok(0);
    }
    let _only_one = exclusive(&objects)?;
    let _inside = gate::enter(&objects)?;
    let visible = alternates(&objects)?;
    let mut finished = 0;
    for entry in left {
        // By its name: the repository may have been moved since.
        let name = entry.file_name();
        if visible.iter().any(|path| path.file_name() == Some(&name)) {
            finish(&objects, &entry.path())?;
            finished += 1;
        } else {
            files::remove_tree(&entry.path())?;
        }
    }
    Ok(finished)
}

pub(crate) fn is_under_way(repo: &Repo) -> Result<bool, GitError> {
    let entries = files::list(&repo.objects_dir())?;
    let staging = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(STAGING);
    Ok(entries.iter().any(staging))
}

/// The packs of an object directory that can be seen, as paths without an ending.
pub(crate) fn packs(objects: &Path) -> Result<BTreeSet<OsString>, GitError> {
    let entries = files::list(&objects.join("pack"))?;
    let stem = |entry: fs::DirEntry| {
        let path = entry.path();
        let index = path.extension().is_some_and(|kind| kind == "idx");
        index
            .then(|| path.file_stem().map(OsString::from))
            .flatten()
    };
    Ok(entries.into_iter().filter_map(stem).collect())
}

pub(crate) fn pack_index(objects: &Path, pack: &OsStr) -> Result<PackIndex, GitError> {
    PackIndex::open(&part_of(objects, pack, "idx"))
}

/// The folders of loose objects: two hex digits.
pub(crate) fn fan_out(objects: &Path) -> Result<Vec<OsString>, GitError> {
    let names = files::list(objects)?
        .into_iter()
        .map(|entry| entry.file_name());
    Ok(names.filter(|name| is_hex(name, 2)).collect())
}

/// A file of one object: two hex digits and the rest of its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LooseName {
    folder: OsString,
    name: OsString,
}

impl LooseName {
    pub fn path(&self, objects: &Path) -> PathBuf {
        objects.join(&self.folder).join(&self.name)
    }

    pub fn id(&self) -> Option<ObjectId> {
        let (folder, name) = (self.folder.to_str()?, self.name.to_str()?);
        ObjectId::parse(&format!("{folder}{name}"))
    }
}

/// One set at a time.
fn exclusive(objects: &Path) -> Result<Claim, GitError> {
    files::make_dir(&objects.join("info"))?;
    Claim::wait_for(&objects.join("info/adopting"))
}

#[derive(Default)]
struct Staged {
    packs: BTreeSet<OsString>,
    loose: BTreeSet<LooseName>,
}

impl Staged {
    fn is_empty(&self) -> bool {
        self.packs.is_empty() && self.loose.is_empty()
    }

    fn sync(&self, objects: &Path) -> Result<(), GitError> {
        let mut folders: BTreeSet<_> = self.loose.iter().map(|name| &name.folder).collect();
        let pack = OsString::from("pack");
        if !self.packs.is_empty() {
            folders.insert(&pack);
        }
        for folder in folders {
            files::sync(&objects.join(folder))?;
        }
        files::sync(objects)
    }
}

/// Links what brings an object that `objects` does not have yet, until a listing of the source
/// shows nothing new.
fn stage(
    source: &Path,
    staging: &Path,
    objects: &Path,
    staged: &mut Staged,
) -> Result<(), GitError> {
    let known = Objects::open(objects)?;
    let mut needless = packs(objects)?;
    for _ in 0..MAX_LISTINGS {
        let mut settled = true;
        for pack in packs(source)? {
            if needless.contains(&pack) || staged.packs.contains(&pack) {
                continue;
            }
            settled = false;
            if !brings_new(source, &pack, &known) {
                needless.insert(pack);
            } else if link_pack(source, staging, &pack)? {
                // Its age is that of the source's file.
                refresh(staging, &pack)?;
                staged.packs.insert(pack);
            }
        }
        for name in loose(source)? {
            if !staged.loose.contains(&name) && !name.path(objects).exists() {
                settled = false;
                if link_loose(source, staging, &name)? {
                    staged.loose.insert(name);
                }
            }
        }
        if settled {
            return Ok(());
        }
    }
    Err(GitError::Busy(source.to_owned()))
}

/// False only if it is sure: a pack that cannot be read, or is gone, is for [`link_pack`] to judge.
fn brings_new(source: &Path, pack: &OsStr, known: &Objects) -> bool {
    pack_index(source, pack).map_or(true, |index| !known.has_all(index.ids()))
}

fn finish(objects: &Path, staging: &Path) -> Result<(), GitError> {
    let moved = Staged {
        packs: packs(staging)?,
        loose: loose(staging)?.into_iter().collect(),
    };
    for name in &moved.loose {
        link_loose(staging, objects, name)?;
    }
    for pack in &moved.packs {
        link_pack(staging, objects, pack)?;
    }
    moved.sync(objects)?;
    edit_alternates(objects, |lines| {
        lines.retain(|line| Path::new(line).file_name() != staging.file_name());
    })?;
    files::remove_tree(staging)
}

pub(crate) fn part_of(objects: &Path, pack: &OsStr, part: &str) -> PathBuf {
    let mut name = pack.to_owned();
    name.push(".");
    name.push(part);
    objects.join("pack").join(name)
}

/// False if the pack is no longer there.
fn link_pack(from: &Path, to: &Path, pack: &OsString) -> Result<bool, GitError> {
    files::make_dir(&to.join("pack"))?;
    for part in PARTS {
        let (from, to) = (part_of(from, pack, part), part_of(to, pack, part));
        match files::link(&from, &to) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && part == "rev" => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(GitError::io(&to)(error)),
        }
    }
    Ok(true)
}

/// False if the object is no longer there.
fn link_loose(from: &Path, to: &Path, name: &LooseName) -> Result<bool, GitError> {
    files::make_dir(&to.join(&name.folder))?;
    let to = name.path(to);
    match files::link(&name.path(from), &to) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(GitError::io(&to)(error)),
    }
}

pub(crate) fn loose(objects: &Path) -> Result<Vec<LooseName>, GitError> {
    let mut found = Vec::new();
    for folder in fan_out(objects)? {
        for entry in files::list(&objects.join(&folder))? {
            let name = entry.file_name();
            if is_hex(&name, 38) {
                found.push(LooseName {
                    folder: folder.clone(),
                    name,
                });
            }
        }
    }
    Ok(found)
}

fn is_hex(name: &OsString, len: usize) -> bool {
    let name = name.as_encoded_bytes();
    name.len() == len && name.iter().all(u8::is_ascii_hexdigit)
}

/// Where else git looks for objects.
fn alternates(objects: &Path) -> Result<Vec<PathBuf>, GitError> {
    let lines = read_alternates(objects)?;
    let path = |line: OsString| objects.join(line);
    Ok(lines.into_iter().map(path).collect())
}

fn read_alternates(objects: &Path) -> Result<Vec<OsString>, GitError> {
    let path = objects.join("info/alternates");
    let content = files::read_small(&path, 1024 * 1024)?.unwrap_or_default();
    let content =
        String::from_utf8(content).map_err(|_| GitError::damaged(&path, "is not text"))?;
    let lines = content.lines().filter(|line| !line.is_empty());
    Ok(lines.map(OsString::from).collect())
}

/// Under the lock of [`exclusive`].
fn edit_alternates(objects: &Path, edit: impl FnOnce(&mut Vec<OsString>)) -> Result<(), GitError> {
    let path = objects.join("info/alternates");
    let mut lines = read_alternates(objects)?;
    edit(&mut lines);
    if lines.is_empty() {
        files::remove_file(&path)?;
        return files::sync(&objects.join("info"));
    }
    let mut content = Vec::new();
    for line in lines {
        content.extend_from_slice(line.as_encoded_bytes());
        content.push(b'\n');
    }
    files::replace(&path, &content)
}
