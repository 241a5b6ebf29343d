//! Refs under `refs/nostr/`: what their events say of them, and their end.

use std::collections::BTreeMap;

use super::retry::Again;
use super::{Core, Errand, GitTask};
use crate::admit::{self, Known as _, Presence};
use crate::event::Event;
use crate::facts::Facts;
use crate::git::ObjectId;
use crate::id::EventId;
use crate::nip34::{PullRequest, RepoId};
use crate::push::Tip;

impl Core {
    /// The commit that an event says it is about, if the event is here.
    pub(super) fn tip_of(&self, id: &EventId, facts: &dyn Facts) -> Tip {
        let known = self.known(facts);
        match known.pull_request(id) {
            Some(PullRequest { tip: Some(tip), .. }) => Tip::At(tip),
            Some(PullRequest { tip: None, .. }) => Tip::None,
            None if known.event(id) == Presence::Unknown => Tip::Unknown,
            None => Tip::None,
        }
    }

    /// Repositories that keep the tip of a pull request as long as it is here.
    pub(super) fn places(&self, pull_request: PullRequest, facts: &dyn Facts) -> Vec<RepoId> {
        admit::places(pull_request, &self.registry, &self.known(facts))
    }

    pub(super) fn is_place(&self, repo: &RepoId, id: &EventId, facts: &dyn Facts) -> bool {
        let pull_request = self.known(facts).pull_request(id);
        pull_request.is_some_and(|found| self.places(found, facts).contains(repo))
    }

    /// The event of some tips has come: those that are not what it says go, and those in its
    /// repositories stay as long as it does.
    pub(super) fn meet_early_tips(&mut self, event: &Event, facts: &dyn Facts) {
        let said = PullRequest::read(event).and_then(|pull_request| pull_request.tip);
        for early in self.early_tips.take(&event.id) {
            if said != Some(early.tip) {
                self.remove_tip(&early.repo, event.id);
            } else if !self.is_place(&early.repo, &event.id, facts) {
                let (repo, tip) = (early.repo, early.tip);
                self.early_tips.insert(repo, event.id, tip, early.until);
            }
        }
    }

    pub(super) fn set_tips(&mut self, repo: &RepoId, tips: &[(EventId, ObjectId)], errand: Errand) {
        for (id, _) in tips {
            self.tips_at.entry(*id).or_default().insert(repo.clone());
        }
        let tips = tips.iter().map(|(id, tip)| (*id, Some(*tip))).collect();
        self.ask_git(repo, GitTask::SetTips(tips), errand);
    }

    /// Git had refused it when the pull request landed.
    pub(super) fn set_tips_again(&mut self, repo: &RepoId, ids: Vec<EventId>, facts: &dyn Facts) {
        let mut tips = Vec::new();
        for id in ids {
            if let Tip::At(tip) = self.tip_of(&id, facts)
                && self.is_place(repo, &id, facts)
            {
                tips.push((id, tip));
            }
        }
        if !tips.is_empty() {
            let ids = tips.iter().map(|(id, _)| *id).collect();
            self.set_tips(repo, &tips, Errand::SetTips(repo.clone(), ids));
        }
    }

    pub(super) fn remove_tip(&mut self, repo: &RepoId, id: EventId) {
        self.remove_tips(repo, vec![id]);
    }

    pub(super) fn remove_tips(&mut self, repo: &RepoId, ids: Vec<EventId>) {
        for id in &ids {
            if let Some(repos) = self.tips_at.get_mut(id) {
                repos.remove(repo);
                if repos.is_empty() {
                    self.tips_at.remove(id);
                }
            }
        }
        if self.registry.is_hosted(repo) {
            let task = GitTask::SetTips(ids.iter().map(|id| (*id, None)).collect());
            self.ask_git(repo, task, Errand::RemovedTips(repo.clone(), ids));
        }
    }

    /// The event is gone, unless somebody knows better: so are its tips.
    pub(super) fn remove_tips_of(&mut self, id: &EventId, facts: &dyn Facts) {
        self.remove_all_tips_of(&[*id], facts);
    }

    /// One change of refs for each repository, however many tips go.
    fn remove_all_tips_of(&mut self, ids: &[EventId], facts: &dyn Facts) {
        let mut gone: BTreeMap<RepoId, Vec<EventId>> = BTreeMap::new();
        for id in ids {
            if self.tip_of(id, facts) != Tip::Unknown {
                continue;
            }
            for repo in self.tips_at.get(id).into_iter().flatten() {
                if !self.early_tips.contains(repo, id) {
                    gone.entry(repo.clone()).or_default().push(*id);
                }
            }
        }
        for (repo, ids) in gone {
            self.remove_tips(&repo, ids);
        }
    }

    /// Many events are gone, and nobody can list them.
    pub(super) fn remove_tips_without_event(&mut self, facts: &dyn Facts) {
        let mut ids: Vec<EventId> = self.tips_at.keys().copied().collect();
        ids.sort_unstable();
        self.remove_all_tips_of(&ids, facts);
    }

    /// A repository is gone, and its refs with it.
    pub(super) fn forget_tips(&mut self, repo: &RepoId) {
        self.forget_hunt(repo);
        self.early_tips.forget(repo);
        self.tips_at.retain(|_, repos| {
            repos.remove(repo);
            !repos.is_empty()
        });
    }

    pub(super) fn on_removed_tips(&mut self, repo: &RepoId, ids: Vec<EventId>, removed: bool) {
        for id in ids.into_iter().filter(|_| !removed) {
            self.retry_later(Again::Tip(repo.clone(), id));
        }
    }
}
