//! One round of settling: what is known of each repository and state in it, and what follows.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::{Failed, GitDone, GitTask};
use crate::clock::Timestamp;
use crate::event::Event;
use crate::git::{ObjectId, ObjectKind, RefName};
use crate::id::{EventId, Pubkey};
use crate::nip34::state::Targets;
use crate::nip34::{Rank, RepoId};

#[derive(Debug)]
pub struct Settle {
    pub step: Step,
    pub outstanding: usize,
    pub repos: Vec<Member>,
    /// Whoever may sign for one of them.
    pub authors: BTreeSet<Pubkey>,
    pub states: Vec<Candidate>,
    /// Others wait, and have too many objects for this round.
    pub left_out: bool,
    pub objects: Arc<[ObjectId]>,
    /// What the last commit stores, in its order.
    pub storing: Vec<Arc<Event>>,
    pub committed: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Probing,
    Sharing,
    Moving,
    Committing,
}

#[derive(Debug)]
pub struct Member {
    pub repo: RepoId,
    /// Kinds of `objects`, `None` where it has none.
    pub present: Vec<Option<ObjectKind>>,
    /// The state that its refs shall follow.
    pub winner: Option<usize>,
    pub share_from: Vec<usize>,
    pub moved: bool,
}

/// A task for the n-th member.
pub type Work = (usize, RepoId, GitTask);

#[derive(Debug)]
pub struct Candidate {
    pub author: Pubkey,
    pub rank: Rank,
    pub targets: Arc<Targets>,
    /// Members that it speaks for.
    pub speaks_for: Vec<usize>,
    /// The event, if it waits.
    pub held: Option<Arc<Event>>,
}

/// What a ref of a state is to point at.
#[derive(Debug, Clone, Copy)]
struct Target {
    /// Its place among the objects of the round.
    at: Option<usize>,
    is_branch: bool,
}

impl Target {
    /// The object is there, and a commit if it is to be a branch.
    fn is_in(self, member: &Member) -> bool {
        let kind = self.at.and_then(|at| member.present.get(at).copied());
        match kind.flatten() {
            Some(ObjectKind::Commit) => true,
            Some(_) => !self.is_branch,
            None => false,
        }
    }
}

impl Member {
    pub fn new(repo: RepoId) -> Self {
        Self {
            repo,
            present: Vec::new(),
            winner: None,
            share_from: Vec::new(),
            moved: false,
        }
    }
}

impl Settle {
    pub fn new(repos: Vec<RepoId>, authors: BTreeSet<Pubkey>, states: Vec<Candidate>) -> Self {
        let wanted = states.iter().flat_map(|state| state.targets.refs.values());
        let objects: BTreeSet<ObjectId> = wanted.copied().collect();
        Self {
            step: Step::Probing,
            outstanding: repos.len(),
            repos: repos.into_iter().map(Member::new).collect(),
            authors,
            states,
            left_out: false,
            objects: objects.into_iter().collect(),
            storing: Vec::new(),
            committed: Timestamp::default(),
        }
    }

    pub fn has_member(&self, repo: &RepoId) -> bool {
        self.repos.iter().any(|member| member.repo == *repo)
    }

    /// Its last commit is under way and stores that event.
    pub fn is_storing(&self, id: &EventId) -> bool {
        self.step == Step::Committing && self.storing.iter().any(|event| event.id == *id)
    }

    /// Takes one answer; the repository that failed, if it did.
    pub fn take(&mut self, n: usize, outcome: Result<GitDone, Failed>) -> Option<RepoId> {
        let step = self.step;
        let objects = self.objects.len();
        let member = self.repos.get_mut(n)?;
        match (step, outcome) {
            (Step::Probing, Ok(GitDone::Probed(kinds))) if kinds.len() == objects => {
                member.present = kinds;
                None
            }
            (Step::Sharing, Ok(_)) => None,
            (Step::Moving, Ok(_)) => {
                member.moved = true;
                None
            }
            _ => {
                member.winner = None;
                Some(member.repo.clone())
            }
        }
    }

    /// The repositories that have all of a state's objects between them, as few as may be.
    pub fn sources_of(&self, state: &Candidate) -> Option<Vec<usize>> {
        // Looked up once, and not for each of 64 repositories: thousands of refs are compared with
        // every one of them.
        let refs = state.targets.refs.iter();
        let mut lacking: Vec<Target> = refs.map(|(name, id)| self.target(name, id)).collect();
        let mut sources = Vec::new();
        let mut members = state.speaks_for.clone();
        let has_all = |n: &usize| {
            let member = self.repos.get(*n);
            member.is_some_and(|member| lacking.iter().all(|target| target.is_in(member)))
        };
        // One that has everything needs no other.
        members.sort_by_cached_key(|n| !has_all(n));
        for n in members {
            let Some(member) = self.repos.get(n) else {
                continue;
            };
            let before = lacking.len();
            lacking.retain(|target| !target.is_in(member));
            if lacking.len() < before {
                sources.push(n);
            }
        }
        lacking.is_empty().then_some(sources)
    }

    fn target(&self, name: &RefName, id: &ObjectId) -> Target {
        Target {
            at: self.objects.binary_search(id).ok(),
            is_branch: name.is_branch(),
        }
    }

    /// Objects that nobody has whom the state speaks for; `None` while somebody was not looked at.
    pub fn missing_of(&self, state: &Candidate) -> Option<Vec<ObjectId>> {
        let members = state.speaks_for.iter().map(|n| self.repos.get(*n));
        let members: Option<Vec<&Member>> = members.collect();
        let members = members?;
        if members
            .iter()
            .any(|member| member.present.len() != self.objects.len())
        {
            return None;
        }
        let is_missing = |id: &ObjectId| {
            let at = self.objects.binary_search(id).ok();
            let has = |member: &&Member| {
                at.is_some_and(|at| member.present.get(at).copied().flatten().is_some())
            };
            !members.iter().any(has)
        };
        let mut missing = state.targets.objects();
        missing.retain(is_missing);
        Some(missing)
    }

    pub fn has_all(&self, member: &Member, targets: &Targets) -> bool {
        let mut refs = targets.refs.iter();
        refs.all(|(name, id)| self.target(name, id).is_in(member))
    }

    pub fn moved_to(&self, member: &Member) -> Option<Rank> {
        let state = self.states.get(member.winner?)?;
        member.moved.then_some(state.rank)
    }

    pub fn shares(&self) -> Vec<Work> {
        let members = self.repos.iter().enumerate();
        let lacking = members.filter(|(_, member)| {
            let state = member.winner.and_then(|at| self.states.get(at));
            state.is_some_and(|state| !self.has_all(member, &state.targets))
        });
        lacking
            .flat_map(|(n, member)| {
                let sources = member
                    .share_from
                    .iter()
                    .filter_map(|at| self.repos.get(*at));
                sources.map(move |source| {
                    let from = source.repo.clone();
                    (n, member.repo.clone(), GitTask::Share { from })
                })
            })
            .collect()
    }

    pub fn moves(&self) -> Vec<Work> {
        let members = self.repos.iter().enumerate();
        members
            .filter_map(|(n, member)| {
                let state = self.states.get(member.winner?)?;
                let task = GitTask::Apply(Arc::clone(&state.targets));
                Some((n, member.repo.clone(), task))
            })
            .collect()
    }
}
