//! Objects that nobody needs any more go: of tips that expired, of states that were replaced, of
//! pushes that were refused. One repository at a time, and never under the hands of somebody who
//! has just been told that an object is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Core, Errand, GitTask};
use crate::admit::Needs;
use crate::clock::Mono;
use crate::facts::Facts;
use crate::git::ObjectId;
use crate::id::Pubkey;
use crate::nip34::RepoId;

/// Of repositories that are due, among whose owners turns are taken.
const MAX_COMPARED: usize = 4_096;
/// After somebody came in between.
const SOON: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Default)]
pub struct Prunes {
    due: BTreeSet<(Mono, RepoId)>,
    when: BTreeMap<RepoId, Mono>,
    /// What is being got ready, and the objects that it would leave beside those of the refs.
    ready: Option<(RepoId, Arc<[ObjectId]>)>,
    /// Whose turn was last.
    last: Option<Pubkey>,
}

impl Prunes {
    /// The next one; none while one is being got ready.
    pub fn next(&self) -> Option<Mono> {
        let first = self.due.first().filter(|_| self.ready.is_none());
        first.map(|(at, _)| *at)
    }

    fn set(&mut self, repo: RepoId, at: Mono) {
        if let Some(before) = self.when.insert(repo.clone(), at) {
            self.due.remove(&(before, repo.clone()));
        }
        self.due.insert((at, repo));
    }

    /// Of those that are due, the first of the next owner: a prune may take an hour, and whoever has
    /// many repositories does not keep the others waiting.
    fn take(&mut self, now: Mono) -> Option<RepoId> {
        self.next().filter(|at| *at <= now)?;
        let due = || {
            let due = self.due.iter().take_while(|(at, _)| *at <= now);
            due.take(MAX_COMPARED)
        };
        let is_next = |(_, repo): &&(Mono, RepoId)| Some(repo.owner) > self.last;
        let next = due().filter(is_next).min_by_key(|(_, repo)| repo.owner);
        let next = next.or_else(|| due().min_by_key(|(_, repo)| repo.owner));
        let (at, repo) = next.cloned()?;
        self.due.remove(&(at, repo.clone()));
        self.when.remove(&repo);
        self.last = Some(repo.owner);
        Some(repo)
    }
}

impl Core {
    /// Some time within the interval, so that a start does not do all of them at once.
    pub(super) fn plan_prune(&mut self, repo: &RepoId) {
        let most = self.policy.limits.prune_every.as_millis();
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let planned = self.prunes.when.contains_key(repo);
        if planned || most == 0 {
            return;
        }
        let wait = self.rng.u64(..most);
        let at = self.now.mono + Duration::from_millis(wait);
        self.prunes.set(repo.clone(), at);
    }

    /// What is being prepared is worth nothing any more.
    pub(super) fn stop_pruning(&mut self) {
        self.prunes = Prunes::default();
        self.jobs
            .retain(|_, errand| !matches!(errand, Errand::PrunePrepared(_)));
    }

    pub(super) fn prune(&mut self, facts: &dyn Facts) {
        while let Some(repo) = self.prunes.take(self.now.mono) {
            if !self.registry.is_hosted(&repo) {
                continue;
            }
            let keep: Arc<[ObjectId]> = self.needed(&repo, facts).into_iter().collect();
            let task = GitTask::PreparePrune(Arc::clone(&keep));
            self.prunes.ready = Some((repo.clone(), keep));
            self.ask_git(&repo, task, Errand::PrunePrepared(repo.clone()));
        }
    }

    pub(super) fn on_prune_prepared(&mut self, repo: &RepoId, prepared: bool, facts: &dyn Facts) {
        if prepared && self.may_prune(repo, facts) {
            return self.ask_git(repo, GitTask::Prune, Errand::Pruned(repo.clone()));
        }
        if prepared {
            self.ask_git(repo, GitTask::DropPrune, Errand::Done);
        }
        self.on_pruned(repo, false);
    }

    pub(super) fn on_pruned(&mut self, repo: &RepoId, pruned: bool) {
        self.prunes.ready = None;
        let every = self.policy.limits.prune_every;
        let wait = if pruned { every } else { every.min(SOON) };
        self.prunes.set(repo.clone(), self.now.mono + wait);
    }

    /// Nobody relies on what git said of this repository's objects, and nothing new is needed.
    /// Whoever asks from now on is answered after the prune.
    fn may_prune(&self, repo: &RepoId, facts: &dyn Facts) -> bool {
        let Some((_, kept)) = &self.prunes.ready else {
            return false;
        };
        let relied_on = self.is_settling(repo)
            || self.landing.values().any(|landing| landing.touches(repo))
            || self.is_pushed_to(repo)
            || self.tip_changes.contains_key(repo);
        let is_kept = |id: &ObjectId| kept.binary_search(id).is_ok();
        self.registry.is_hosted(repo) && !relied_on && self.needed(repo, facts).iter().all(is_kept)
    }

    /// What is served from this repository, and what waits in it.
    fn needed(&self, repo: &RepoId, facts: &dyn Facts) -> BTreeSet<ObjectId> {
        let served = self.promised(repo, facts).into_iter();
        let served = served.flat_map(|event| event.objects);
        let states = self.purgatory.states(&repo.identifier).into_iter();
        let held = states.chain(self.purgatory.tips(repo));
        let held = held.filter_map(|id| match &self.purgatory.get(&id)?.needs {
            Needs::Refs(state) => Some(state.refs.as_ref().ok()?.objects()),
            Needs::Tip { tip, .. } => Some(vec![*tip]),
            _ => None,
        });
        held.flatten().chain(served).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nip34::Identifier;

    #[test]
    fn an_owner_of_many_repositories_has_one_turn_in_each_round() {
        let repo = |owner: u8, name: &str| {
            RepoId::new(Pubkey([owner; 32]), Identifier::parse(name).unwrap())
        };
        let at = |seconds| Mono(Duration::from_secs(seconds));
        let mut prunes = Prunes::default();
        for n in 0..100 {
            prunes.set(repo(2, &format!("r{n:02}")), at(n));
        }
        prunes.set(repo(1, "a"), at(200));
        prunes.set(repo(3, "a"), at(200));
        prunes.set(repo(1, "later"), at(1_000));
        let now = at(300);
        for expected in [repo(1, "a"), repo(2, "r00"), repo(3, "a"), repo(2, "r01")] {
            assert_eq!(prunes.take(now), Some(expected));
        }
        prunes.set(repo(1, "b"), at(250));
        assert_eq!(prunes.take(now), Some(repo(1, "b")));
        assert_eq!(prunes.take(now), Some(repo(2, "r02")));
        assert_eq!(prunes.next(), Some(at(3)));
        assert_eq!(prunes.take(at(2)), None, "nothing before its time");
    }
}
