//! Refs under `refs/nostr/`: what their events say of them, and their end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::retry::Again;
use super::{Core, Errand, Failed, GitDone, GitTask};
use crate::admit::{self, Known as _, Needs, Presence};
use crate::event::Event;
use crate::facts::{Facts, PullRequestRow};
use crate::git::ObjectId;
use crate::id::{EventId, Pubkey};
use crate::nip34::{PullRequest, RepoId};
use crate::push::Tip;

/// Where each tip was put, so that it can go with its event, or with its repository: about 350
/// bytes each.
#[derive(Debug, Default)]
pub struct Tips {
    at: FxHashMap<EventId, At>,
    in_repo: FxHashMap<RepoId, InRepo>,
    by_author: FxHashMap<Pubkey, BTreeSet<EventId>>,
}

/// What an event that is here, or is not, says of its tip.
pub struct Said {
    pub author: Option<Pubkey>,
    pub tip: Tip,
    pub says: Option<PullRequest>,
}

/// Changes of tips that are made at once.
const MAX_TIP_CHANGES: usize = 256;

/// Tips that are set or removed in one repository, and what follows.
#[derive(Debug, Clone)]
pub struct TipChange {
    tips: Vec<(EventId, Option<ObjectId>)>,
    errand: Errand,
    /// Together with others it failed.
    alone: bool,
}

impl TipChange {
    fn new(tips: Vec<(EventId, Option<ObjectId>)>, errand: Errand) -> Self {
        Self {
            tips,
            errand,
            alone: false,
        }
    }
}

/// Tips whose events are looked up in one step: 512 x 2 us = 1 ms.
const SWEEP: usize = 512;

#[derive(Debug, Default)]
struct At {
    repos: BTreeSet<RepoId>,
    /// If the event was here.
    author: Option<Pubkey>,
}

#[derive(Debug, Default)]
struct InRepo {
    /// With the author of each, if the event was here.
    tips: BTreeMap<EventId, Option<Pubkey>>,
    authors: BTreeMap<Pubkey, usize>,
}

impl InRepo {
    fn remove(&mut self, id: &EventId) {
        if let Some(Some(author)) = self.tips.remove(id)
            && let Some(count) = self.authors.get_mut(&author)
        {
            *count -= 1;
            if *count == 0 {
                self.authors.remove(&author);
            }
        }
    }
}

impl Tips {
    pub fn insert(&mut self, id: EventId, repo: &RepoId, author: Option<Pubkey>) {
        let at = self.at.entry(id).or_default();
        at.repos.insert(repo.clone());
        if let Some(author) = author {
            at.author = Some(author);
            self.by_author.entry(author).or_default().insert(id);
        }
        let in_repo = self.in_repo.entry(repo.clone()).or_default();
        let known = in_repo.tips.entry(id).or_default();
        if let (None, Some(author)) = (*known, author) {
            *known = Some(author);
            *in_repo.authors.entry(author).or_default() += 1;
        }
    }

    /// Whether it is there and counted for its author.
    fn is_counted(&self, id: &EventId, repo: &RepoId) -> bool {
        let in_repo = self.in_repo.get(repo);
        in_repo.is_some_and(|found| matches!(found.tips.get(id), Some(Some(_))))
    }

    /// How many others are in a repository, and how many of one author.
    fn count(&self, id: &EventId, repo: &RepoId, author: Option<&Pubkey>) -> (usize, usize) {
        let Some(in_repo) = self.in_repo.get(repo) else {
            return (0, 0);
        };
        let others = in_repo.tips.len() - usize::from(in_repo.tips.contains_key(id));
        let of_author = author.and_then(|author| in_repo.authors.get(author));
        (others, of_author.copied().unwrap_or(0))
    }

    pub fn at(&self, id: &EventId) -> impl Iterator<Item = &RepoId> {
        self.at.get(id).into_iter().flat_map(|at| &at.repos)
    }

    pub fn is_at(&self, id: &EventId, repo: &RepoId) -> bool {
        self.at.get(id).is_some_and(|at| at.repos.contains(repo))
    }

    fn remove(&mut self, id: &EventId, repo: &RepoId) {
        if let Some(in_repo) = self.in_repo.get_mut(repo) {
            in_repo.remove(id);
            if in_repo.tips.is_empty() {
                self.in_repo.remove(repo);
            }
        }
        self.remove_at(id, repo);
    }

    fn forget(&mut self, repo: &RepoId) {
        let gone = self.in_repo.remove(repo).unwrap_or_default();
        for id in gone.tips.keys() {
            self.remove_at(id, repo);
        }
    }

    fn remove_at(&mut self, id: &EventId, repo: &RepoId) {
        let Some(at) = self.at.get_mut(id) else {
            return;
        };
        at.repos.remove(repo);
        if !at.repos.is_empty() {
            return;
        }
        if let Some(author) = at.author
            && let Some(events) = self.by_author.get_mut(&author)
        {
            events.remove(id);
            if events.is_empty() {
                self.by_author.remove(&author);
            }
        }
        self.at.remove(id);
    }

    /// Events of an author that have a tip somewhere, in order, from that one on.
    fn of_author(&self, author: &Pubkey, from: EventId, limit: usize) -> Vec<EventId> {
        let events = self.by_author.get(author).into_iter();
        let events = events.flat_map(|events| events.range(from..));
        events.take(limit).copied().collect()
    }
}

impl Core {
    /// The commit that an event says it is about, if the event is here.
    pub(super) fn tip_of(&self, id: &EventId, facts: &dyn Facts) -> Tip {
        self.said_by(id, facts).tip
    }

    /// The same with who says so, for one row of the store.
    pub(super) fn said_by(&self, id: &EventId, facts: &dyn Facts) -> Said {
        let held = self.purgatory.get(id);
        let (author, says) = match held {
            Some(held) if matches!(held.needs, Needs::Arrival(_)) => {
                (Some(held.event.pubkey), self.known(facts).pull_request(id))
            }
            Some(held) => (Some(held.event.pubkey), PullRequest::read(&held.event)),
            None => facts.pull_request(id).map_or((None, None), |row| {
                let PullRequestRow { author, says } = row;
                (Some(author), Some(says))
            }),
        };
        let tip = match &says {
            Some(PullRequest { tip: Some(tip), .. }) => Tip::At(*tip),
            Some(PullRequest { tip: None, .. }) => Tip::None,
            None if self.known(facts).event(id) == Presence::Unknown => Tip::Unknown,
            None => Tip::None,
        };
        Said { author, tip, says }
    }

    /// Repositories that keep the tip of a pull request as long as it is here.
    pub(super) fn places(&self, pull_request: PullRequest, facts: &dyn Facts) -> Vec<RepoId> {
        admit::places(pull_request, &self.registry, &self.known(facts))
    }

    pub(super) fn is_place(&self, repo: &RepoId, id: &EventId, facts: &dyn Facts) -> bool {
        let pull_request = self.known(facts).pull_request(id);
        self.is_place_of(repo, pull_request, facts)
    }

    pub(super) fn is_place_of(
        &self,
        repo: &RepoId,
        pull_request: Option<PullRequest>,
        facts: &dyn Facts,
    ) -> bool {
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
                self.early_tips.insert(event.id, early);
            } else {
                self.tips.insert(event.id, &early.repo, Some(event.pubkey));
            }
        }
    }

    /// Who wrote an event that is here.
    pub(super) fn author_of(&self, id: &EventId, facts: &dyn Facts) -> Option<Pubkey> {
        match self.purgatory.get(id) {
            Some(held) => Some(held.event.pubkey),
            None => facts.pull_request(id).map(|stored| stored.author),
        }
    }

    /// Whether a repository takes one more tip, beside `more` that come with it. Everybody pays for
    /// them with every list of refs, so that no stranger has them all, and strangers together leave
    /// some to the maintainers.
    pub(super) fn has_tip_room(
        &self,
        repo: &RepoId,
        id: &EventId,
        author: Option<&Pubkey>,
        more: usize,
    ) -> bool {
        if self.tips.is_counted(id, repo) {
            return true;
        }
        let limits = &self.policy.limits;
        let (others, of_author) = self.tips.count(id, repo, author);
        let in_all = limits.tips_per_repository;
        match author {
            Some(author) if self.registry.is_maintainer(repo, author) => others + more < in_all,
            _ => {
                let of_strangers = in_all - in_all / 4;
                others + more < of_strangers && of_author + more < limits.tips_per_author
            }
        }
    }

    /// Whether a pull request could land nowhere, because all its repositories have enough of them.
    pub(super) fn has_too_many_tips(&self, event: &Event, needs: &Needs) -> bool {
        let Needs::Tip { repos, .. } = needs else {
            return false;
        };
        let takes = |repo: &RepoId| self.has_tip_room(repo, &event.id, Some(&event.pubkey), 0);
        !repos.is_empty() && !repos.iter().any(takes)
    }

    pub(super) fn set_tips(
        &mut self,
        repo: &RepoId,
        tips: &[(EventId, ObjectId)],
        errand: Errand,
        facts: &dyn Facts,
    ) {
        self.outdate_listed(repo, tips.iter().map(|(id, _)| *id));
        for (id, _) in tips {
            let author = self.author_of(id, facts);
            self.tips.insert(*id, repo, author);
        }
        let tips = tips.iter().map(|(id, tip)| (*id, Some(*tip))).collect();
        self.change_tips(repo, TipChange::new(tips, errand));
    }

    /// One change of tips at a time is under way in a repository, and those that come meanwhile are
    /// the next one together: however many pull requests there are, the repository's own work waits
    /// behind one change of theirs.
    fn change_tips(&mut self, repo: &RepoId, change: TipChange) {
        match self.tip_changes.get_mut(repo) {
            Some(waiting) => waiting.push(change),
            None => self.begin_tip_changes(repo, vec![change]),
        }
    }

    fn begin_tip_changes(&mut self, repo: &RepoId, mut changes: Vec<TipChange>) {
        let alone = |change: &TipChange| change.alone;
        let together = match changes.first().is_some_and(alone) {
            true => 1,
            false => changes.iter().position(alone).unwrap_or(changes.len()),
        };
        let waiting = changes.split_off(together.min(MAX_TIP_CHANGES));
        self.tip_changes.insert(repo.clone(), waiting);
        let tips = changes
            .iter()
            .flat_map(|change| change.tips.iter().copied());
        let task = GitTask::SetTips(tips.collect());
        self.ask_git(repo, task, Errand::ChangedTips(repo.clone(), changes));
    }

    pub(super) fn on_changed_tips(
        &mut self,
        repo: &RepoId,
        changes: Vec<TipChange>,
        outcome: Result<GitDone, Failed>,
        facts: &dyn Facts,
    ) {
        let waiting = self.tip_changes.remove(repo).unwrap_or_default();
        // What one of them lacks must not be held against the others: each is tried by itself.
        if outcome.is_err() && changes.len() > 1 {
            let alone = |change| TipChange {
                alone: true,
                ..change
            };
            let changes = changes.into_iter().map(alone).chain(waiting);
            return self.begin_tip_changes(repo, changes.collect());
        }
        if !waiting.is_empty() {
            self.begin_tip_changes(repo, waiting);
        }
        for change in changes {
            self.on_git_errand(change.errand, outcome.clone(), facts);
        }
    }

    /// Git had refused it when the pull request landed.
    pub(super) fn set_tips_again(&mut self, repo: &RepoId, ids: Vec<EventId>, facts: &dyn Facts) {
        let mut tips = Vec::new();
        for id in ids {
            let said = self.said_by(&id, facts);
            if let Tip::At(tip) = said.tip
                && self.is_place_of(repo, said.says, facts)
                && self.has_tip_room(repo, &id, said.author.as_ref(), tips.len())
            {
                tips.push((id, tip));
            }
        }
        if !tips.is_empty() {
            let ids = tips.iter().map(|(id, _)| *id).collect();
            self.set_tips(repo, &tips, Errand::SetTips(repo.clone(), ids), facts);
        }
    }

    pub(super) fn remove_tip(&mut self, repo: &RepoId, id: EventId) {
        self.remove_tips(repo, vec![id]);
    }

    pub(super) fn remove_tips(&mut self, repo: &RepoId, ids: Vec<EventId>) {
        self.outdate_listed(repo, ids.iter().copied());
        for id in &ids {
            self.tips.remove(id, repo);
        }
        if self.registry.is_hosted(repo) {
            let tips = ids.iter().map(|id| (*id, None)).collect();
            let errand = Errand::RemovedTips(repo.clone(), ids);
            self.change_tips(repo, TipChange::new(tips, errand));
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
            // Whether the event is here, without a look at it: anybody may name many large ones.
            if self.known(facts).event(id) != Presence::Unknown {
                continue;
            }
            for repo in self.tips.at(id) {
                if !self.early_tips.contains(repo, id) {
                    gone.entry(repo.clone()).or_default().push(*id);
                }
            }
        }
        for (repo, ids) in gone {
            self.remove_tips(&repo, ids);
        }
    }

    /// Everything of an author may be gone: so are its tips, some at a time.
    pub(super) fn sweep_tips(&mut self, author: Pubkey, from: EventId, facts: &dyn Facts) {
        let mut ids = self.tips.of_author(&author, from, SWEEP + 1);
        if let Some(next) = ids.get(SWEEP) {
            self.retry_after(Duration::ZERO, Again::SweepTips(author, *next));
            ids.truncate(SWEEP);
        }
        self.remove_all_tips_of(&ids, facts);
    }

    /// A repository is gone, and its refs with it.
    pub(super) fn forget_tips(&mut self, repo: &RepoId) {
        self.forget_hunt(repo);
        self.early_tips.forget(repo);
        self.tips.forget(repo);
    }

    pub(super) fn on_removed_tips(&mut self, repo: &RepoId, ids: Vec<EventId>, removed: bool) {
        for id in ids.into_iter().filter(|_| !removed) {
            self.retry_later(Again::Tip(repo.clone(), id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Pubkey;
    use crate::nip34::Identifier;

    #[test]
    fn a_repository_takes_its_own_tips_with_it() {
        let repo = |owner: u8| RepoId::new(Pubkey([owner; 32]), Identifier::parse("r").unwrap());
        let mut tips = Tips::default();
        for n in 0..4 {
            tips.insert(EventId([n; 32]), &repo(1), Some(Pubkey([n; 32])));
        }
        tips.insert(EventId([3; 32]), &repo(2), None);
        tips.remove(&EventId([0; 32]), &repo(1));
        tips.forget(&repo(1));
        let left: Vec<EventId> = tips.at.keys().copied().collect();
        assert_eq!(left, [EventId([3; 32])]);
        let author = Pubkey([3; 32]);
        let swept = tips.of_author(&author, EventId([0; 32]), 9);
        assert_eq!(swept, left, "it is known whose it is");
        assert!(tips.is_at(&EventId([3; 32]), &repo(2)));
        tips.forget(&repo(2));
        assert!(tips.at.is_empty() && tips.in_repo.is_empty());
        assert!(tips.by_author.is_empty());
    }
}
