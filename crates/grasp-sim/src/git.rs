//! Bare repositories without their contents: which objects each has, and where its refs are.
//! Closure is not modelled; an object is there whole or not at all.

use std::collections::{BTreeMap, BTreeSet};

use grasp_core::git::{ObjectId, RefName, Refs};
use grasp_core::nip34::state::Targets;
use grasp_core::{EventId, Failed, GitDone, GitTask, RepoId};

use crate::forge::kind_of;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repo {
    pub objects: BTreeSet<ObjectId>,
    pub refs: Refs,
    pub head: Option<RefName>,
    pub tips: BTreeMap<EventId, ObjectId>,
    /// What a prune would leave, and what was there when it was prepared.
    prepared: Option<Box<Prepared>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Prepared {
    keep: BTreeSet<ObjectId>,
    found: Repo,
}

#[derive(Debug, Default)]
pub struct Git {
    repos: BTreeMap<RepoId, Repo>,
    /// What was removed or put aside, for those who ask what once was.
    gone: Vec<(RepoId, Repo)>,
}

impl Git {
    pub fn get(&self, repo: &RepoId) -> Option<&Repo> {
        self.repos.get(repo)
    }

    pub fn repos(&self) -> impl Iterator<Item = (&RepoId, &Repo)> {
        self.repos.iter()
    }

    pub fn gone(&self) -> impl Iterator<Item = (&RepoId, &Repo)> {
        self.gone.iter().map(|(repo, kept)| (repo, kept))
    }

    pub fn refs(&self, repo: &RepoId) -> Refs {
        self.get(repo)
            .map(|repo| repo.refs.clone())
            .unwrap_or_default()
    }

    /// The objects of a push come out of quarantine; false when there is no such repository.
    pub fn take(&mut self, repo: &RepoId, objects: impl IntoIterator<Item = ObjectId>) -> bool {
        match self.repos.get_mut(repo) {
            Some(repo) => {
                repo.objects.extend(objects);
                true
            }
            None => false,
        }
    }

    /// A disk that loses what it had.
    pub fn lose(&mut self, repo: &RepoId) {
        self.repos.insert(repo.clone(), Repo::default());
    }

    /// A disk that loses some objects.
    pub fn lose_objects(&mut self, repo: &RepoId, mut is_lost: impl FnMut(&ObjectId) -> bool) {
        if let Some(repo) = self.repos.get_mut(repo) {
            repo.objects.retain(|id| !is_lost(id));
        }
    }

    /// The process that had prepared something is gone.
    /// HEAD is damaged, and made anew as that of a new repository.
    pub fn lose_head(&mut self, repo: &RepoId) {
        if let Some(repo) = self.repos.get_mut(repo) {
            repo.head = None;
        }
    }

    pub fn forget_prepared(&mut self) {
        for repo in self.repos.values_mut() {
            repo.prepared = None;
        }
    }

    pub fn perform(&mut self, repo: &RepoId, task: &GitTask) -> Result<GitDone, Failed> {
        match task {
            GitTask::Create => {
                self.repos.entry(repo.clone()).or_default();
                return Ok(GitDone::Done);
            }
            GitTask::RemoveEmpty => {
                if self.repos.get(repo) == Some(&Repo::default()) {
                    self.repos.remove(repo);
                }
                return Ok(GitDone::Done);
            }
            GitTask::Remove | GitTask::Retire => {
                let kept = self.repos.remove(repo);
                self.gone.extend(kept.map(|kept| (repo.clone(), kept)));
                return Ok(GitDone::Done);
            }
            _ => {}
        }
        let shared = match task {
            GitTask::Share { from } => self.repos.get(from).ok_or(Failed)?.objects.clone(),
            _ => BTreeSet::new(),
        };
        let repo = self.repos.get_mut(repo).ok_or(Failed)?;
        repo.objects.extend(shared);
        repo.perform(task)
    }
}

impl Repo {
    fn perform(&mut self, task: &GitTask) -> Result<GitDone, Failed> {
        match task {
            GitTask::Probe(objects) => {
                let kind = |id| self.objects.contains(id).then(|| kind_of(id));
                Ok(GitDone::Probed(objects.iter().map(kind).collect()))
            }
            GitTask::Apply(targets) => {
                if !targets.refs.values().all(|id| self.objects.contains(id)) {
                    return Err(Failed);
                }
                self.refs = targets.refs.clone();
                self.head = targets.head.clone().or_else(|| self.head.take());
                Ok(GitDone::Done)
            }
            GitTask::SetTips(tips) => {
                let mut set = tips.iter().filter_map(|(_, tip)| tip.as_ref());
                if !set.all(|tip| self.objects.contains(tip)) {
                    return Err(Failed);
                }
                for (id, tip) in tips {
                    match tip {
                        Some(tip) => self.tips.insert(*id, *tip),
                        None => self.tips.remove(id),
                    };
                }
                Ok(GitDone::Done)
            }
            GitTask::PreparePrune(keep) => {
                self.prepared = None;
                let keep = keep.iter().copied().collect();
                let found = self.clone();
                self.prepared = Some(Box::new(Prepared { keep, found }));
                Ok(GitDone::Done)
            }
            GitTask::Prune => {
                let prepared = self.prepared.take().ok_or(Failed)?;
                if prepared.found != *self {
                    return Err(Failed);
                }
                let Repo { refs, tips, .. } = &prepared.found;
                let reached: BTreeSet<_> = refs.values().chain(tips.values()).copied().collect();
                self.objects
                    .retain(|id| reached.contains(id) || prepared.keep.contains(id));
                Ok(GitDone::Done)
            }
            GitTask::DropPrune => {
                self.prepared = None;
                Ok(GitDone::Done)
            }
            GitTask::Look => Ok(GitDone::Refs {
                found: Targets {
                    refs: self.refs.clone(),
                    head: self.head.clone(),
                },
                tips: self.tips.iter().map(|(id, tip)| (*id, *tip)).collect(),
            }),
            GitTask::Create
            | GitTask::Remove
            | GitTask::RemoveEmpty
            | GitTask::Retire
            | GitTask::Share { .. } => Ok(GitDone::Done),
        }
    }
}
