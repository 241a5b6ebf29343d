//! Release of pull requests: the commit is looked for in the repositories that the event names,
//! brought to all of them, put under `refs/nostr/`, and the event stored.

use std::sync::Arc;

use super::lost::wanted_by;
use super::retry::Again;
use super::{Change, Core, Errand, Failed, GitDone, GitTask};
use crate::admit::Needs;
use crate::event::Event;
use crate::facts::{Facts, StoreOutcome};
use crate::git::{ObjectId, ObjectKind};
use crate::id::EventId;
use crate::nip34::{PULL_REQUEST, PullRequest, RepoId};
use crate::purgatory::Held;
use crate::registry::Standing;

#[derive(Debug)]
pub struct Landing {
    step: Step,
    outstanding: usize,
    tip: ObjectId,
    repos: Vec<Place>,
    /// Something changed meanwhile: once more when this one has ended.
    again: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Probing,
    Sharing,
    Setting,
    Committing,
}

#[derive(Debug)]
struct Place {
    repo: RepoId,
    /// It has the commit.
    present: bool,
    /// It has that object, which need not be a commit.
    here: bool,
    /// It came from another repository just now.
    shared: bool,
    set: bool,
}

impl Core {
    pub(super) fn land(&mut self, id: &EventId, facts: &dyn Facts) {
        if let Some(landing) = self.landing.get_mut(id) {
            landing.again = true;
            return;
        }
        self.look_up_places(id, facts);
        let Some(held) = self.purgatory.get(id) else {
            return;
        };
        let Needs::Tip { tip, repos } = &held.needs else {
            return;
        };
        let place = |repo: &RepoId| Place {
            repo: repo.clone(),
            present: false,
            here: false,
            shared: false,
            set: false,
        };
        let hosted = repos.iter().filter(|repo| self.registry.is_hosted(repo));
        let landing = Landing {
            step: Step::Probing,
            outstanding: 0,
            tip: *tip,
            repos: hosted.map(place).collect(),
            again: false,
        };
        let tasks: Vec<_> = (0..landing.repos.len())
            .map(|n| (n, Some(GitTask::Probe(Arc::from([landing.tip])))))
            .collect();
        self.do_landing(id, landing, tasks, facts);
    }

    /// Repositories may have come since the event did, and others have stood in for them.
    fn look_up_places(&mut self, id: &EventId, facts: &dyn Facts) {
        let held = self.purgatory.get(id);
        let Some((event, until)) = held.map(|held| (Arc::clone(&held.event), held.until)) else {
            return;
        };
        let Some(Needs::Tip { tip, repos }) = held.map(|held| &held.needs) else {
            return;
        };
        let Some(pull_request) = PullRequest::read(&event) else {
            return;
        };
        let places = self.places(pull_request, facts);
        if !places.is_empty() && places != *repos {
            let needs = Needs::Tip {
                tip: *tip,
                repos: places,
            };
            self.purgatory.insert(event, needs, until);
        }
    }

    fn do_landing(
        &mut self,
        id: &EventId,
        mut landing: Landing,
        tasks: Vec<(usize, Option<GitTask>)>,
        facts: &dyn Facts,
    ) {
        if tasks.is_empty() {
            return self.go_on_landing(id, landing, facts);
        }
        landing.outstanding = tasks.len();
        for (n, task) in tasks {
            if let Some(place) = landing.repos.get(n) {
                let errand = Errand::Land(*id, n);
                match task {
                    Some(task) => self.ask_git(&place.repo, task, errand),
                    None => self.set_tips(&place.repo, &[(*id, landing.tip)], errand),
                }
            }
        }
        self.landing.insert(*id, landing);
    }

    pub(super) fn on_land_step(
        &mut self,
        id: &EventId,
        n: usize,
        outcome: Result<GitDone, Failed>,
        facts: &dyn Facts,
    ) {
        let Some(mut landing) = self.landing.remove(id) else {
            return;
        };
        landing.outstanding -= 1;
        let failed = outcome.is_err();
        if let Some(place) = landing.repos.get_mut(n) {
            place.take(landing.step, outcome);
            if failed {
                let repo = place.repo.clone();
                if landing.step == Step::Setting {
                    self.retry_later(Again::SetTip(repo.clone(), *id));
                }
                self.retry_later(Again::Repo(repo));
            }
        }
        if landing.outstanding == 0 {
            self.go_on_landing(id, landing, facts);
        } else {
            self.landing.insert(*id, landing);
        }
    }

    fn go_on_landing(&mut self, id: &EventId, mut landing: Landing, facts: &dyn Facts) {
        if self.purgatory.get(id).is_none() {
            return self.after_landing(id, landing.again, facts);
        }
        match landing.step {
            Step::Probing => {
                let tasks = self.shares(&landing);
                landing.step = Step::Sharing;
                self.do_landing(id, landing, tasks, facts);
            }
            Step::Sharing => {
                self.note_landed(id, &landing);
                self.settle_shared(&landing, facts);
                let tasks = landing.settings();
                landing.step = Step::Setting;
                self.do_landing(id, landing, tasks, facts);
            }
            Step::Setting => self.commit_landed(id, landing, facts),
            Step::Committing => self.after_landing(id, landing.again, facts),
        }
    }

    /// What need not be looked for elsewhere.
    fn note_landed(&mut self, id: &EventId, landing: &Landing) {
        let here = landing.repos.iter().filter(|place| place.here);
        if let Some(held) = self.purgatory.get_mut(id) {
            held.landed_in = here.map(|place| place.repo.clone()).collect();
        }
        self.go_on_expecting(id);
    }

    /// What was shared may complete a state, too.
    fn settle_shared(&mut self, landing: &Landing, facts: &dyn Facts) {
        for place in landing.repos.iter().filter(|place| place.shared) {
            self.look_for_lost(&place.repo, facts);
            self.settle(&place.repo.identifier, vec![place.repo.clone()], facts);
        }
    }

    /// A pull request is served once a served repository has its commit.
    fn commit_landed(&mut self, id: &EventId, mut landing: Landing, facts: &dyn Facts) {
        let event = self.purgatory.get(id).map(|held| Arc::clone(&held.event));
        let named = event.as_ref();
        let named = named.map(|event| self.served_from_of(event, facts));
        // Another one stood in for those that it names only as long as none was here.
        let is_named = |repo: &RepoId| {
            let named = named.as_ref();
            named.is_none_or(|named| named.is_empty() || named.contains(repo))
        };
        let served = landing.repos.iter().any(|place| {
            let standing = self.registry.hosting(&place.repo);
            place.set && standing == Some(Standing::Served) && is_named(&place.repo)
        });
        match event {
            Some(event) if served => {
                let changes = vec![Change::Store(Arc::clone(&event)), Change::Unhold(*id)];
                self.commit(changes, Errand::Landed(event));
                landing.step = Step::Committing;
                self.landing.insert(*id, landing);
            }
            _ => self.after_landing(id, landing.again, facts),
        }
    }

    /// Updates that were served before their pull request have its repositories for places now.
    fn check_updates(&mut self, event: &Event, facts: &dyn Facts) {
        if event.kind == PULL_REQUEST && !facts.updates(&event.id).is_empty() {
            for repo in self.served_from_of(event, facts) {
                self.retry_later(Again::Check(repo));
            }
        }
    }

    pub(super) fn on_landed(
        &mut self,
        event: &Arc<Event>,
        outcomes: Result<Vec<StoreOutcome>, Failed>,
        facts: &dyn Facts,
    ) {
        let id = &event.id;
        let landing = self.landing.remove(id);
        let again = landing.as_ref().is_some_and(|landing| landing.again);
        match outcomes.as_deref() {
            Ok([outcome, ..]) => {
                self.released(event, *outcome, facts);
                self.check_updates(event, facts);
                let places = landing.iter().flat_map(|landing| &landing.repos);
                if let Some(wanted) = wanted_by(event, &self.policy.service) {
                    for place in places.filter(|place| !place.present) {
                        self.seek_tip(&place.repo, event.id, wanted.clone());
                    }
                }
            }
            _ => {
                let repos = self.repos_of_held(id);
                for repo in repos {
                    self.retry_later(Again::Repo(repo));
                }
            }
        }
        self.after_landing(id, again, facts);
    }

    fn after_landing(&mut self, id: &EventId, again: bool, facts: &dyn Facts) {
        let waiting = |held: &Held| self.is_unwritten(held);
        if self.purgatory.get(id).is_some_and(waiting) {
            self.write_down(vec![*id]);
        }
        let waits = |held: &Held| matches!(held.needs, Needs::Tip { .. });
        if again && self.purgatory.get(id).is_some_and(waits) {
            return self.land(id, facts);
        }
        self.report_tip_pushes(id);
    }

    /// New objects are in a repository: one look tells which of the commits are there that pull
    /// requests wait for.
    pub(super) fn look_for_tips(&mut self, repo: &RepoId) {
        let mut tips = Vec::new();
        for id in self.purgatory.tips(repo) {
            if let Some(Needs::Tip { tip, .. }) = self.purgatory.get(&id).map(|held| &held.needs) {
                tips.push((id, *tip));
            }
        }
        if !tips.is_empty() {
            let (ids, objects): (Vec<_>, Vec<_>) = tips.into_iter().unzip();
            let errand = Errand::LookedForTips(repo.clone(), ids);
            self.ask_git(repo, GitTask::Probe(objects.into()), errand);
        }
    }

    pub(super) fn on_looked_for_tips(
        &mut self,
        repo: RepoId,
        ids: &[EventId],
        outcome: Result<GitDone, Failed>,
        facts: &dyn Facts,
    ) {
        let Ok(GitDone::Probed(kinds)) = outcome else {
            return self.retry_later(Again::Repo(repo));
        };
        for (id, kind) in ids.iter().zip(kinds) {
            if kind == Some(ObjectKind::Commit) {
                self.land(id, facts);
            } else if let Some(held) = self.purgatory.get_mut(id) {
                held.landed_in.retain(|landed| *landed != repo);
                // A file or a tag never lands, and need not be looked for either.
                held.landed_in.extend(kind.map(|_| repo.clone()));
                // The repository may have come after the event.
                self.go_on_expecting(id);
            }
        }
    }

    /// A repository gets the commit from one whose owner maintains it too. A stranger's, which the
    /// event names beside it, would bring along whatever that stranger put there.
    fn shares(&self, landing: &Landing) -> Vec<(usize, Option<GitTask>)> {
        let places = landing.repos.iter().enumerate();
        places
            .filter(|(_, place)| !place.present)
            .filter_map(|(n, place)| {
                let mut sources = landing.repos.iter().filter(|source| source.present);
                let source = sources
                    .find(|source| self.registry.is_maintainer(&place.repo, &source.repo.owner))?;
                let from = source.repo.clone();
                Some((n, Some(GitTask::Share { from })))
            })
            .collect()
    }

    fn repos_of_held(&self, id: &EventId) -> Vec<RepoId> {
        match self.purgatory.get(id).map(|held| &held.needs) {
            Some(Needs::Tip { repos, .. }) => repos.clone(),
            _ => Vec::new(),
        }
    }
}

impl Place {
    fn take(&mut self, step: Step, outcome: Result<GitDone, Failed>) {
        match (step, outcome) {
            (Step::Probing, Ok(GitDone::Probed(kinds))) => {
                self.present = kinds == [Some(ObjectKind::Commit)];
                self.here = matches!(*kinds, [Some(_)]);
            }
            (Step::Sharing, Ok(_)) => {
                self.present = true;
                self.here = true;
                self.shared = true;
            }
            (Step::Setting, Ok(_)) => self.set = true,
            _ => {}
        }
    }
}

impl Landing {
    pub fn touches(&self, repo: &RepoId) -> bool {
        self.repos.iter().any(|place| place.repo == *repo)
    }

    /// Its last commit is under way and stores the event.
    pub fn is_committing(&self) -> bool {
        self.step == Step::Committing
    }

    /// Where the tip is to be set, which is no task like the others: it is remembered.
    fn settings(&self) -> Vec<(usize, Option<GitTask>)> {
        let present = self.repos.iter().enumerate();
        present
            .filter(|(_, place)| place.present)
            .map(|(n, _)| (n, None))
            .collect()
    }
}
