//! Dropping what nobody reaches. One new pack is made of everything that refs and the caller's
//! ids reach; once it is in and durable, the old packs and loose objects go. A kill at any point
//! leaves either the old, or both, or the new.
//!
//! What must stay true is that an object that is here has its whole closure here. Packs that are
//! too young to go therefore count as reached, with everything that they lean on; and whoever
//! brings objects or moves refs meanwhile makes the prune give up (see `gate`).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use grasp_core::git::{ObjectId, ObjectKind};
use tempfile::TempDir;

use crate::adopt::{self, LooseName};
use crate::error::GitError;
use crate::files::{self, Claim, off_the_loop};
use crate::garbage::Weight;
use crate::gate;
use crate::maintain::{REPACK_SETTINGS, REPACKING, upkeep};
use crate::objects::Objects;
use crate::repo::{PRUNING, Repo, temporary_in};

#[derive(Debug, Clone, Copy)]
pub struct PruneLimits {
    /// What is younger stays.
    pub grace: Duration,
    /// Of all that happens before the swap.
    pub deadline: Duration,
    /// What the file system keeps free beside the new pack.
    pub min_free: u64,
}

/// What a prune did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Bytes by which the repository became smaller.
    pub freed: u64,
}

/// Objects of young packs that are walked from; 41 bytes of input for each. With more, the prune
/// has to wait until they are old.
const MAX_YOUNG: u64 = 2_000_000;
/// Of each pack that is no object: its first words and its checksum.
const PACK_FRAME: u64 = 12 + 20;
/// For one number.
const MAX_PRINTED: usize = 64;
/// What was kept the last time; its time is that of the youngest thing that was looked at.
const PRUNED: &str = "pruned";

impl Repo {
    /// Drops what is neither reached by a ref, nor by `keep`, nor young; see
    /// [`Repo::prepare_prune`].
    pub async fn prune(&self, keep: &[ObjectId], limits: PruneLimits) -> Result<Pruned, GitError> {
        match self.prepare_prune(keep, limits).await? {
            Some(prepared) => off_the_loop(move || prepared.drop_old()).await,
            None => Ok(Pruned::default()),
        }
    }

    /// Makes the pack that is to replace the old ones. Ids that are not here do not matter.
    /// `None` if nothing has changed since the last time, or there is too little to drop. `Busy`
    /// if objects are just being taken over, `NoSpace` if the new pack would fill the disk.
    pub async fn prepare_prune(
        &self,
        keep: &[ObjectId],
        limits: PruneLimits,
    ) -> Result<Option<PreparedPrune>, GitError> {
        let began = Instant::now();
        let (grace, deadline) = (limits.grace, limits.deadline);
        let left = || deadline.saturating_sub(began.elapsed());
        let (repo, keep) = (self.clone(), keep.iter().copied().collect());
        let mut plan = off_the_loop(move || Plan::make(repo, keep, grace)).await?;
        if plan.packs.is_empty() && plan.loose.is_empty() || plan.is_done_already() {
            return Ok(None);
        }
        let plan = off_the_loop(move || plan.find_roots(deadline).map(|()| plan)).await?;
        let weight = plan.weigh(left()).await?;
        if !weight.is_worth_a_prune() {
            off_the_loop(move || plan.note_done()).await?;
            return Ok(None);
        }
        plan.find_room(weight.reached, limits.min_free)?;
        let made = plan.pack(left()).await?;
        Ok(Some(PreparedPrune { plan, made }))
    }
}

/// A new pack that waits for its moment. While it does, the repository is not repacked.
pub struct PreparedPrune {
    plan: Plan,
    made: TempDir,
}

impl PreparedPrune {
    /// The swap. `Busy` if objects or refs have changed since it was prepared, and then nothing
    /// has happened. A caller that has just been told that an object is here, and wants to move a
    /// ref to it, must have it in `keep`. Blocks.
    pub fn drop_old(self) -> Result<Pruned, GitError> {
        let pruned = self.plan.swap(&self.made)?;
        self.plan.note_done()?;
        Ok(pruned)
    }
}

/// What is there when a prune begins.
struct Plan {
    repo: Repo,
    _only_one: Claim,
    refs: BTreeSet<ObjectId>,
    keep: BTreeSet<ObjectId>,
    /// What is reached without a ref.
    roots: Vec<ObjectId>,
    /// What is young and leads nowhere; it stays where it is.
    leaves: Vec<ObjectId>,
    /// Old enough to go.
    packs: BTreeSet<OsString>,
    loose: Vec<LooseName>,
    /// What stays as it is.
    young: BTreeSet<OsString>,
    young_loose: Vec<LooseName>,
    cutoff: SystemTime,
}

impl Plan {
    fn make(repo: Repo, keep: BTreeSet<ObjectId>, grace: Duration) -> Result<Self, GitError> {
        let objects = repo.objects_dir();
        let only_one = Claim::take(&repo.dir().join(REPACKING))?;
        let closed = gate::close(&objects)?;
        gate::watch(&objects, &closed)?;
        drop(closed);
        if adopt::is_under_way(&repo)? {
            return Err(GitError::Busy(objects));
        }
        let cutoff = SystemTime::now().checked_sub(grace);
        let cutoff = cutoff.unwrap_or(SystemTime::UNIX_EPOCH);
        let is_old = |pack: &OsString| is_old_pack(&objects, pack, cutoff);
        let (packs, young) = adopt::packs(&objects)?.into_iter().partition(is_old);
        let (loose, young_loose): (Vec<_>, Vec<_>) = adopt::loose(&objects)?
            .into_iter()
            .partition(|name| is_old_file(&name.path(&objects), cutoff));
        Ok(Self {
            refs: ids(&repo)?,
            repo,
            keep,
            _only_one: only_one,
            roots: Vec::new(),
            leaves: Vec::new(),
            packs,
            loose,
            young,
            young_loose,
            cutoff,
        })
    }

    fn find_roots(&mut self, deadline: Duration) -> Result<(), GitError> {
        let began = Instant::now();
        let objects = self.repo.objects()?;
        for id in &self.keep {
            if objects.contains(id)? {
                self.roots.push(*id);
            }
        }
        let mut looked_at = 0;
        for pack in &self.young {
            if began.elapsed() > deadline {
                return Err(GitError::TimedOut {
                    args: "prune".to_owned(),
                    after: deadline,
                });
            }
            for id in adopt::pack_index(&self.repo.objects_dir(), pack)?.ids() {
                looked_at += 1;
                if looked_at > MAX_YOUNG {
                    return Err(GitError::Busy(self.repo.objects_dir()));
                }
                sort_in(&objects, id, &mut self.roots, &mut self.leaves)?;
            }
        }
        for id in self.young_loose.iter().filter_map(LooseName::id) {
            sort_in(&objects, id, &mut self.roots, &mut self.leaves)?;
        }
        Ok(())
    }

    /// Whatever is here was old enough to be looked at the last time, no ref has moved since, and
    /// the same is to be kept.
    fn is_done_already(&self) -> bool {
        let dir = self.repo.dir();
        let at = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
        let Some(then) = at(&dir.join(PRUNED)) else {
            return false;
        };
        let objects = self.repo.objects_dir();
        let is_old = |path: &Path| is_old_file(path, then);
        let packs = self.packs.iter();
        let mut packs = packs.map(|pack| adopt::part_of(&objects, pack, "pack"));
        let no_younger = self.young.is_empty() && self.young_loose.is_empty();
        let kept = fs::read_to_string(dir.join(PRUNED)).unwrap_or_default();
        no_younger
            && kept == self.kept()
            && packs.all(|pack| is_old(&pack))
            && self.loose.iter().all(|name| is_old(&name.path(&objects)))
            && is_old(&dir.join("packed-refs"))
    }

    /// Remembers what was old enough this time.
    fn note_done(&self) -> Result<(), GitError> {
        let path = self.repo.dir().join(PRUNED);
        let write = || {
            fs::write(&path, self.kept())?;
            File::open(&path)?.set_modified(self.cutoff)
        };
        write().map_err(GitError::io(&path))
    }

    fn kept(&self) -> String {
        self.keep.iter().map(|id| format!("{id}\n")).collect()
    }

    async fn weigh(&self, deadline: Duration) -> Result<Weight, GitError> {
        let command = upkeep("rev-list", &self.repo)
            .flag("--objects")
            .flag("--disk-usage")
            .flag("--all")
            .flag("--stdin");
        let input = lines(self.roots.iter().chain(&self.leaves));
        let (finished, printed) = command.run(input, MAX_PRINTED, deadline).await?;
        if !finished.is_ok() {
            return Err(finished.into_error());
        }
        let printed = String::from_utf8_lossy(&printed).into_owned();
        let reached = printed.trim().parse();
        Ok(Weight {
            whole: self.whole(),
            reached: reached.map_err(|_| GitError::Unexpected(printed))?,
        })
    }

    /// Bytes of all objects, young and old.
    fn whole(&self) -> u64 {
        let objects = self.repo.objects_dir();
        let packs = self.packs.iter().chain(&self.young);
        let packs = packs.map(|pack| size_of(&adopt::part_of(&objects, pack, "pack")));
        let loose = self.loose.iter().chain(&self.young_loose);
        let loose = loose.map(|name| size_of(&name.path(&objects)));
        packs
            .map(|size| size.saturating_sub(PACK_FRAME))
            .chain(loose)
            .sum()
    }

    /// Where nothing is reached, nothing is written.
    fn find_room(&self, reached: u64, min_free: u64) -> Result<(), GitError> {
        let needed = reached.saturating_add(min_free);
        match files::free_bytes(self.repo.dir()) {
            Some(free) if reached > 0 && free < needed => Err(GitError::NoSpace { needed, free }),
            _ => Ok(()),
        }
    }

    /// One pack of all that is reached and not in a pack that stays anyway.
    async fn pack(&self, deadline: Duration) -> Result<TempDir, GitError> {
        let objects = self.repo.objects_dir();
        let made = temporary_in(&objects, PRUNING)?;
        files::make_dir(&made.path().join("pack"))?;
        let _scraps = Scraps::watch(&objects.join("pack"))?;
        let mut command = upkeep("pack-objects", &self.repo)
            .settings(REPACK_SETTINGS)
            .flag("--all")
            .flag("--local")
            .flag("--non-empty")
            .flag("--delta-base-offset")
            .flag("-q");
        for pack in &self.young {
            command = command.pack("--keep-pack=", pack);
        }
        let base = made.path().join("pack/pack");
        let input = lines(self.roots.iter());
        let (finished, _) = command.path(&base).run(input, 0, deadline).await?;
        match finished.is_ok() {
            true => Ok(made),
            false => Err(finished.into_error()),
        }
    }

    /// The new pack in, then the old out: whoever misses an object in between looks again and
    /// finds it.
    fn swap(&self, made: &TempDir) -> Result<Pruned, GitError> {
        let objects = self.repo.objects_dir();
        let new = adopt::packs(made.path())?;
        let present = adopt::packs(&objects)?;
        let added: BTreeSet<_> = new.difference(&present).cloned().collect();
        let size = |packs: &BTreeSet<OsString>| sizes(&files_of(&objects, packs)?);
        self.prepare(made.path())?;
        let dropped: BTreeSet<_> = self.packs.difference(&new).cloned().collect();
        let before = size(&dropped)? + self.size_of_loose();
        let moved = new
            .iter()
            .try_for_each(|pack| adopt::move_pack(made.path(), &objects, pack).map(|_| ()));
        match moved.and_then(|()| self.close_if_quiet()) {
            Ok(closed) => self.drop_old(&dropped, closed)?,
            Err(error) => {
                // Nothing has been dropped: all of it is in the packs that stay.
                hide(&objects, &added)?;
                remove_hidden(&objects, &added)?;
                return Err(error);
            }
        }
        let freed = before.saturating_sub(size(&added)?);
        Ok(Pruned { freed })
    }

    /// Durable, and as old as what it replaces: what is in it is no younger than it was.
    fn prepare(&self, made: &Path) -> Result<(), GitError> {
        let entries = files::list(&made.join("pack"))?;
        let paths: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
        for path in &paths {
            File::open(path)
                .and_then(|file| file.set_modified(self.cutoff))
                .map_err(GitError::io(path))?;
        }
        files::sync_all(&paths)
    }

    /// The last moment to give up.
    fn close_if_quiet(&self) -> Result<Claim, GitError> {
        let objects = self.repo.objects_dir();
        let closed = gate::close(&objects)?;
        let quiet = gate::was_quiet(&objects, &closed)
            && !adopt::is_under_way(&self.repo)?
            && ids(&self.repo)?.is_subset(&self.refs);
        match quiet {
            true => Ok(closed),
            false => Err(GitError::Busy(objects)),
        }
    }

    /// While the gate is closed only what is quick: an index that is gone hides its pack. The new
    /// pack stays whatever fails here, because part of the old may be gone.
    fn drop_old(&self, packs: &BTreeSet<OsString>, closed: Claim) -> Result<(), GitError> {
        let objects = self.repo.objects_dir();
        gate::forget(&objects)?;
        remove_summaries(&objects)?;
        hide(&objects, packs)?;
        for name in &self.loose {
            files::remove_file(&name.path(&objects))?;
        }
        drop(closed);
        remove_hidden(&objects, packs)
    }

    fn size_of_loose(&self) -> u64 {
        let objects = self.repo.objects_dir();
        let loose = self.loose.iter();
        loose.map(|name| size_of(&name.path(&objects))).sum()
    }
}

/// Half-written files of a pack that is not finished are taken away with it.
struct Scraps {
    folder: PathBuf,
    before: BTreeSet<PathBuf>,
}

impl Scraps {
    fn watch(folder: &Path) -> Result<Self, GitError> {
        let before = Self::list(folder)?.collect();
        let folder = folder.to_owned();
        Ok(Self { folder, before })
    }

    fn list(folder: &Path) -> Result<impl Iterator<Item = PathBuf> + use<>, GitError> {
        let ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            ["tmp_pack_", "tmp_idx_", "tmp_rev_"]
                .iter()
                .any(|start| name.starts_with(start))
        };
        let entries = files::list(folder)?.into_iter();
        Ok(entries.map(|entry| entry.path()).filter(ours))
    }
}

impl Drop for Scraps {
    fn drop(&mut self) {
        let left = Self::list(&self.folder).into_iter().flatten();
        for path in left.filter(|path| !self.before.contains(path)) {
            // Whatever stays is cleared at the next start.
            let _ = fs::remove_file(path);
        }
    }
}

fn ids(repo: &Repo) -> Result<BTreeSet<ObjectId>, GitError> {
    let found = repo.refs()?;
    Ok(found.refs.values().map(|one| one.id).collect())
}

fn sort_in(
    objects: &Objects,
    id: ObjectId,
    roots: &mut Vec<ObjectId>,
    leaves: &mut Vec<ObjectId>,
) -> Result<(), GitError> {
    match objects.kind(&id)? {
        Some(ObjectKind::Blob) => leaves.push(id),
        Some(_) => roots.push(id),
        None => {}
    }
    Ok(())
}

/// As git reads them.
fn lines<'a>(ids: impl Iterator<Item = &'a ObjectId>) -> Vec<u8> {
    ids.flat_map(|id| format!("{id}\n").into_bytes()).collect()
}

/// Nothing if it is gone.
fn size_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

/// What an operator keeps is never old.
fn is_old_pack(objects: &Path, pack: &OsStr, cutoff: SystemTime) -> bool {
    let kept = ["keep", "promisor"]
        .iter()
        .any(|part| adopt::part_of(objects, pack, part).exists());
    !kept && is_old_file(&adopt::part_of(objects, pack, "pack"), cutoff)
}

fn is_old_file(path: &Path, cutoff: SystemTime) -> bool {
    let modified = fs::metadata(path).and_then(|found| found.modified());
    modified.is_ok_and(|modified| modified <= cutoff)
}

/// What git keeps beside packs to find things faster would name objects that are gone.
fn remove_summaries(objects: &Path) -> Result<(), GitError> {
    for entry in files::list(&objects.join("pack"))? {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("multi-pack-index") {
            files::remove_file(&entry.path())?;
        }
    }
    files::remove_file(&objects.join("info/commit-graph"))?;
    files::remove_tree(&objects.join("info/commit-graphs"))
}

fn hide(objects: &Path, packs: &BTreeSet<OsString>) -> Result<(), GitError> {
    packs
        .iter()
        .try_for_each(|pack| files::remove_file(&adopt::part_of(objects, pack, "idx")))
}

/// After [`hide`]; what a kill leaves of them is cleared at the next start.
fn remove_hidden(objects: &Path, packs: &BTreeSet<OsString>) -> Result<(), GitError> {
    files_of(objects, packs)?
        .iter()
        .try_for_each(|path| files::remove_file(path))
}

fn files_of(objects: &Path, packs: &BTreeSet<OsString>) -> Result<Vec<PathBuf>, GitError> {
    let entries = files::list(&objects.join("pack"))?.into_iter();
    let paths = entries.map(|entry| entry.path());
    let ours = |path: &PathBuf| path.file_stem().is_some_and(|stem| packs.contains(stem));
    Ok(paths.filter(ours).collect())
}

fn sizes(paths: &[PathBuf]) -> Result<u64, GitError> {
    let size = |path: &PathBuf| fs::metadata(path).map(|found| found.len());
    let size = |path: &PathBuf| size(path).map_err(GitError::io(path));
    paths.iter().map(size).sum()
}
