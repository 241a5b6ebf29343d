//! One task on one repository.

use std::path::Path;
use std::time::{Duration, SystemTime};

use grasp_core::git::{ObjectId, RefName, Refs};
use grasp_core::nip34::state::Targets;
use grasp_core::{EventId, GitDone, GitTask, RepoId};
use grasp_git::{GitError, Leftovers, MendedRefs, RefSet, Repo, share};

use super::{Repositories, unix_seconds};

/// Looking for the objects of a state takes milliseconds. Packs that make it take this long were
/// taken in before chains of deltas had a bound; the core asks again after a pause.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

impl Repositories {
    pub(super) fn perform(&self, repo: &RepoId, task: &GitTask) -> Result<GitDone, GitError> {
        match task {
            GitTask::Create => self.create(repo)?,
            GitTask::Remove => {
                Repo::remove(&self.dir(repo))?;
            }
            GitTask::RemoveEmpty => self.remove_empty(repo)?,
            GitTask::Retire => self.retire(repo)?,
            GitTask::Probe(objects) => {
                let found = self.open(repo)?.objects()?.kinds(objects, PROBE_TIMEOUT)?;
                return Ok(GitDone::Probed(found));
            }
            GitTask::Share { from } => {
                share(&self.open(from)?, &self.open(repo)?)?;
                self.look_after(repo);
            }
            GitTask::Apply(targets) => apply(&self.open(repo)?, targets)?,
            GitTask::SetTips(tips) => self.open(repo)?.edit_refs(|refs| {
                for (event, tip) in tips {
                    let name = RefName::nostr(event);
                    match tip {
                        Some(tip) => refs.insert(name, *tip),
                        None => refs.remove(&name),
                    };
                }
            })?,
            GitTask::Look => return self.look(repo),
            // The caretaker's.
            GitTask::PreparePrune(_) | GitTask::Prune | GitTask::DropPrune => {}
        }
        Ok(GitDone::Done)
    }

    fn create(&self, repo: &RepoId) -> Result<(), GitError> {
        let (_, created) = Repo::create(&self.dir(repo))?;
        if created {
            tracing::info!(%repo, "repository created");
        }
        Ok(())
    }

    fn remove_empty(&self, repo: &RepoId) -> Result<(), GitError> {
        if self.open(repo)?.is_empty()? {
            Repo::remove(&self.dir(repo))?;
            tracing::info!(%repo, "empty repository of nobody removed");
        } else {
            tracing::warn!(%repo, "a repository is on disk and not announced; it is left alone");
        }
        Ok(())
    }

    fn retire(&self, repo: &RepoId) -> Result<(), GitError> {
        let from = self.dir(repo);
        if !from.exists() {
            return Ok(());
        }
        let to = self.retired_dir(repo, unix_seconds());
        let io = |source| GitError::Io {
            path: to.clone(),
            source,
        };
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        std::fs::rename(&from, &to).map_err(io)?;
        tracing::info!(%repo, to = %to.display(), "announcement gone, repository put aside");
        clear_unfinished(&to);
        Ok(())
    }

    /// What a killed process left; true if there was something.
    pub(super) fn clear_leftovers(&self, repo: &RepoId) -> Result<bool, GitError> {
        let left = self.open(repo)?.clear_leftovers(self.since)?;
        let found = left != Leftovers::default();
        if found {
            tracing::warn!(%repo, ?left, "leftovers of a killed process cleared");
        }
        Ok(found)
    }

    /// What is lost of damaged refs, the core sets again once it has seen the rest.
    fn readable_refs(&self, id: &RepoId) -> Result<RefSet, GitError> {
        let repo = self.open(id)?;
        match repo.refs() {
            Err(error) if error.is_damaged() => {
                if let Some(MendedRefs { dropped, kept_as }) = repo.mend_refs()? {
                    let kept_as = kept_as.display();
                    tracing::warn!(repo = %id, %error, dropped, %kept_as, "damaged refs mended");
                }
                repo.refs()
            }
            read => read,
        }
    }

    fn look(&self, repo: &RepoId) -> Result<GitDone, GitError> {
        let RefSet { refs, head } = self.readable_refs(repo)?;
        let all = refs.into_iter().map(|(name, at)| (name, at.id)).collect();
        Ok(GitDone::Refs {
            tips: tips(&all),
            found: Targets {
                refs: heads_and_tags(&all),
                head,
            },
        })
    }
}

/// Packs that were on their way when a repository was put aside find their place no more.
fn clear_unfinished(dir: &Path) {
    let cleared = Repo::open(dir).and_then(|repo| repo.clear_leftovers(SystemTime::now()));
    if let Err(error) = cleared {
        tracing::warn!(%error, "clearing a repository that was put aside failed");
    }
}

fn tips(refs: &Refs) -> Vec<(EventId, ObjectId)> {
    let tips = refs.iter();
    tips.filter_map(|(name, id)| Some((name.event()?, *id)))
        .collect()
}

/// What a push sees and a state sets.
pub fn heads_and_tags(refs: &Refs) -> Refs {
    let ours = refs.iter().filter(|(name, _)| name.event().is_none());
    ours.map(|(name, id)| (name.clone(), *id)).collect()
}

fn apply(repo: &Repo, targets: &Targets) -> Result<(), GitError> {
    repo.edit_refs(|refs| {
        refs.retain(|name, _| name.event().is_some());
        refs.extend(targets.refs.iter().map(|(name, id)| (name.clone(), *id)));
    })?;
    match &targets.head {
        Some(head) => repo.set_head(head),
        None => Ok(()),
    }
}
