//! A push from its commands to its report. It moves no ref: its objects complete a state, and the
//! release of that state moves them.

use std::collections::BTreeMap;

use super::{Core, Effect, Errand};
use crate::facts::Facts;
use crate::git::{ObjectId, Refs};
use crate::id::EventId;
use crate::network::Network;
use crate::nip34::{Identifier, Rank, RepoId, State};
use crate::purgatory::{Early, Room};
use crate::push::{self, Command, Decision, Plan, PushRefusal};
use crate::ticket::PushId;

#[derive(Debug)]
pub struct Push {
    repo: RepoId,
    network: Option<Network>,
    plan: Plan,
    /// Its objects are kept, and it is refused, unless the rest turns out to be here already.
    refusal: Option<PushRefusal>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Receiving,
    SettingTips,
    /// Until the repository is settled and the pull requests have landed.
    Waiting,
}

impl Core {
    pub(super) fn on_push(
        &mut self,
        push: PushId,
        repo: RepoId,
        commands: &[Command],
        present: &Refs,
        network: Option<Network>,
        facts: &dyn Facts,
    ) {
        let decision = if self.registry.is_hosted(&repo) {
            self.notice_lost_refs(&repo, present, facts);
            let states = self.expected_states(&repo, facts);
            let states: Vec<&State> = states.iter().collect();
            match push::judge(commands, present, &states, |id| self.tip_of(id, facts)) {
                Decision::Take(plan) => self.judge_room(&repo, plan, network, facts),
                decision => decision,
            }
        } else {
            Decision::Refuse(PushRefusal::NotHosted)
        };
        let (plan, refusal) = match &decision {
            Decision::Take(plan) => (Some(plan.clone()), None),
            Decision::KeepObjects(refusal) => (Some(Plan::default()), Some(refusal.clone())),
            Decision::Refuse(_) => (None, None),
        };
        if let Some(plan) = plan {
            let stage = Stage::Receiving;
            let started = Push {
                repo,
                network,
                plan,
                refusal,
                stage,
            };
            self.pushes.insert(push, started);
        }
        self.effects.push_back(Effect::Decide { push, decision });
    }

    pub(super) fn on_push_taken(
        &mut self,
        push: PushId,
        taken: Result<(), String>,
        facts: &dyn Facts,
    ) {
        let Some(started) = self.pushes.get_mut(&push) else {
            return;
        };
        let (repo, network) = (started.repo.clone(), started.network);
        if let Err(why) = taken {
            return self.report(push, Err(PushRefusal::Objects(why)));
        }
        let tips = started.plan.tips.clone();
        if tips.is_empty() {
            started.stage = Stage::Waiting;
            return self.objects_came(&repo, facts);
        }
        started.stage = Stage::SettingTips;
        if let Err(refusal) = self.expect_events(&repo, &tips, network, facts) {
            return self.report(push, Err(refusal));
        }
        self.set_tips(&repo, &tips, Errand::PushedTips(push), facts);
    }

    /// Room is asked for before the pack is read.
    fn judge_room(
        &self,
        repo: &RepoId,
        plan: Plan,
        network: Option<Network>,
        facts: &dyn Facts,
    ) -> Decision {
        for (more, (id, _)) in plan.tips.iter().enumerate() {
            let author = self.author_of(id, facts);
            if !self.has_tip_room(repo, id, author.as_ref(), more) {
                return Decision::Refuse(PushRefusal::TipsFull(*id));
            }
        }
        let early = self.new_early_tips(repo, &plan.tips, facts);
        if self.early_tips.room(repo, network, early) == Room::None {
            return Decision::Refuse(PushRefusal::TooManyTips);
        }
        Decision::Take(plan)
    }

    /// Tips whose event is not here wait for it. One may have come while the objects did.
    fn expect_events(
        &mut self,
        repo: &RepoId,
        tips: &[(EventId, ObjectId)],
        network: Option<Network>,
        facts: &dyn Facts,
    ) -> Result<(), PushRefusal> {
        for (id, tip) in tips {
            push::judge_tip(*id, Some(*tip), &|id| self.tip_of(id, facts))?;
        }
        for (id, _) in tips {
            // This repository may not have been here when the event came.
            self.reconsider(id, facts);
        }
        self.make_tip_room(repo, tips, network, facts)?;
        let until = self.believed().saturating_add(self.policy.limits.tip_for);
        let early = tips
            .iter()
            .filter(|(id, _)| !self.is_place(repo, id, facts));
        let early: Vec<_> = early.copied().collect();
        for (id, tip) in early {
            let early = Early {
                repo: repo.clone(),
                tip,
                until,
                network,
            };
            self.early_tips.insert(id, early);
            // It may have waited for this in vain.
            self.sync.look_for(id, self.now);
        }
        Ok(())
    }

    /// How many of these tips wait for their event and did not before.
    fn new_early_tips(
        &self,
        repo: &RepoId,
        tips: &[(EventId, ObjectId)],
        facts: &dyn Facts,
    ) -> usize {
        let tips = tips.iter().map(|(id, _)| id);
        let new = tips.filter(|id| !self.early_tips.contains(repo, id));
        new.filter(|id| !self.is_place(repo, id, facts)).count()
    }

    /// The oldest tips of whoever holds most make way for these, and their refs go. A tip of this
    /// push may be among them: then there is no room after all.
    fn make_tip_room(
        &mut self,
        repo: &RepoId,
        tips: &[(EventId, ObjectId)],
        network: Option<Network>,
        facts: &dyn Facts,
    ) -> Result<(), PushRefusal> {
        let mut gone: BTreeMap<RepoId, Vec<EventId>> = BTreeMap::new();
        let new = self.new_early_tips(repo, tips, facts);
        let room = loop {
            match self.early_tips.room(repo, network, new) {
                Room::Enough => break Ok(()),
                Room::After(at, id)
                    if tips.iter().all(|(tip, _)| *tip != id)
                        && self.early_tips.remove(&at, &id).is_some() =>
                {
                    gone.entry(at).or_default().push(id);
                }
                Room::After(..) | Room::None => break Err(PushRefusal::TooManyTips),
            }
        };
        for (at, ids) in gone {
            self.remove_tips(&at, ids);
        }
        room
    }

    /// Refs that are not what the applied state says, because a disk lost them, may be pushed
    /// again.
    fn notice_lost_refs(&mut self, repo: &RepoId, present: &Refs, facts: &dyn Facts) {
        let state = self.applied_state(repo, facts);
        if let Some(Ok(targets)) = state.map(|state| state.refs)
            && targets.refs != *present
        {
            self.out_of_step.insert(repo.clone());
        }
    }

    pub(super) fn on_pushed_tips(&mut self, push: PushId, set: bool, facts: &dyn Facts) {
        let Some(started) = self.pushes.get_mut(&push) else {
            return;
        };
        let repo = started.repo.clone();
        if !set {
            return self.report(push, Err(PushRefusal::Failed));
        }
        started.stage = Stage::Waiting;
        let tips = started.plan.tips.clone();
        for (id, _) in tips {
            self.land(&id, facts);
        }
        self.objects_came(&repo, facts);
    }

    /// Repositories have settled: tell those whose push waited for it. Not those that must be
    /// looked at once more, or are being looked at: one that has settled may have made room for
    /// the next.
    pub(super) fn report_pushes(&mut self, identifier: &Identifier) {
        let again = self.settle_again.get(identifier);
        let waits = |repo: &RepoId| again.is_some_and(|again| again.contains(repo));
        let unsettled = |repo: &RepoId| waits(repo) || self.is_settling(repo);
        let ended: Vec<PushId> = self
            .pushes
            .iter()
            .filter(|(_, push)| push.stage == Stage::Waiting)
            .filter(|(_, push)| push.repo.identifier == *identifier && !unsettled(&push.repo))
            .filter(|(_, push)| !self.has_landing(&push.plan))
            .map(|(id, _)| *id)
            .collect();
        for push in ended {
            let result = self.result_of(push);
            self.report(push, result);
        }
    }

    /// A pull request has landed: the push that brought it may be complete.
    pub(super) fn report_tip_pushes(&mut self, event: &EventId) {
        let repos: Vec<Identifier> = self
            .pushes
            .values()
            .filter(|push| push.plan.tips.iter().any(|(id, _)| id == event))
            .map(|push| push.repo.identifier.clone())
            .collect();
        for identifier in repos {
            self.report_pushes(&identifier);
        }
    }

    fn has_landing(&self, plan: &Plan) -> bool {
        plan.tips
            .iter()
            .any(|(id, _)| self.landing.contains_key(id))
    }

    fn result_of(&self, push: PushId) -> Result<(), PushRefusal> {
        let Some(Push {
            repo,
            plan,
            refusal,
            ..
        }) = self.pushes.get(&push)
        else {
            return Ok(());
        };
        let applied = self.registry.applied(repo);
        match refusal {
            Some(PushRefusal::Partial { state, .. })
                if applied.is_some_and(|applied| applied.id == *state) =>
            {
                return Ok(());
            }
            Some(refusal) => return Err(refusal.clone()),
            None => {}
        }
        match (plan.state, applied) {
            (None, _) => Ok(()),
            // Refs alone are not enough: who pushed must find the event, too.
            (Some(Rank { id, .. }), Some(applied)) if applied.id == id => {
                let served = self.purgatory.get(&id).is_none();
                served.then_some(()).ok_or(PushRefusal::Failed)
            }
            (Some(state), Some(applied)) if applied > state => {
                Err(PushRefusal::Superseded(applied.id))
            }
            _ => Err(PushRefusal::Failed),
        }
    }

    fn report(&mut self, push: PushId, result: Result<(), PushRefusal>) {
        if self.pushes.remove(&push).is_some() {
            self.effects.push_back(Effect::Report { push, result });
        }
    }

    /// Somebody is pushing to it.
    pub(super) fn is_pushed_to(&self, repo: &RepoId) -> bool {
        self.pushes.values().any(|push| push.repo == *repo)
    }

    /// Somebody is pushing what a maintainer has signed.
    pub(super) fn is_backed(&self, repo: &RepoId) -> bool {
        let mut pushes = self.pushes.values();
        pushes.any(|push| push.repo == *repo && push.plan.state.is_some())
    }

    /// Somebody is pushing what this event waits for.
    pub(super) fn is_pushed(&self, id: &EventId) -> bool {
        self.pushes.values().any(|Push { plan, .. }| {
            plan.state.is_some_and(|rank| rank.id == *id)
                || plan.tips.iter().any(|(event, _)| event == id)
        })
    }
}
