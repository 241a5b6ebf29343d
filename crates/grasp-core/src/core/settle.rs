//! Release of states. For one identifier at a time: which states wait, whose objects are all
//! here, which of them each repository shall have; then objects are shared, refs moved, and the
//! events stored, in that order. Every step may be cut by a crash: what is held stays held until
//! the last commit, and the next start goes through the same steps again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::retry::Again;
use super::{Change, Core, Errand, Failed, GitDone, GitTask};
use crate::admit::Needs;
use crate::event::{Event, Kind};
use crate::facts::{Facts, StoreOutcome};
use crate::git::{ObjectId, ObjectKind, RefName};
use crate::id::{EventId, Pubkey};
use crate::nip34::state::Targets;
use crate::nip34::{Identifier, Rank, RepoId, State};
use crate::purgatory::{Durability, Held};
use crate::registry::Standing;

/// Repositories that are brought in step together.
const MAX_TOGETHER: usize = 64;

#[derive(Debug)]
pub struct Settle {
    step: Step,
    outstanding: usize,
    repos: Vec<Member>,
    states: Vec<Candidate>,
    objects: Arc<[ObjectId]>,
    /// What the last commit stores, in its order.
    storing: Vec<Arc<Event>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Probing,
    Sharing,
    Moving,
    Committing,
}

#[derive(Debug)]
struct Member {
    repo: RepoId,
    /// Kinds of `objects`, `None` where it has none.
    present: Vec<Option<ObjectKind>>,
    /// The state that its refs shall follow.
    winner: Option<usize>,
    share_from: Vec<usize>,
    moved: bool,
}

/// A task for the n-th member.
type Work = (usize, RepoId, GitTask);

#[derive(Debug)]
struct Candidate {
    event: Arc<Event>,
    rank: Rank,
    targets: Arc<Targets>,
    /// Members that it speaks for.
    speaks_for: Vec<usize>,
    held: bool,
}

impl Core {
    /// Brings these repositories, and those that share a state with them, to the newest state
    /// whose objects are here.
    pub(super) fn settle(
        &mut self,
        identifier: &Identifier,
        repos: Vec<RepoId>,
        facts: &dyn Facts,
    ) {
        if self.settling.contains_key(identifier) {
            if repos.is_empty() {
                return;
            }
            let again = self.settle_again.entry(identifier.clone()).or_default();
            again.extend(repos);
            return;
        }
        let mut next = Some(repos.into_iter().collect());
        while let Some(repos) = next {
            if self.begin_settling(identifier, &repos, facts) {
                return;
            }
            next = self.end_settling(identifier);
        }
    }

    /// False if there is nothing to do.
    fn begin_settling(
        &mut self,
        identifier: &Identifier,
        seeds: &BTreeSet<RepoId>,
        facts: &dyn Facts,
    ) -> bool {
        let (repos, states) = self.connected(identifier, seeds, facts);
        self.leave_for_later(identifier, seeds, &repos);
        if states.is_empty() || repos.is_empty() {
            return false;
        }
        let mut objects: Vec<ObjectId> = states
            .iter()
            .flat_map(|state| state.targets.refs.values().copied())
            .collect();
        objects.sort_unstable();
        objects.dedup();
        let settle = Settle {
            step: Step::Probing,
            outstanding: repos.len(),
            repos,
            states,
            objects: objects.into(),
            storing: Vec::new(),
        };
        for (n, member) in settle.repos.iter().enumerate() {
            let task = GitTask::Probe(Arc::clone(&settle.objects));
            let repo = member.repo.clone();
            self.ask_git(&repo, task, Errand::Settle(identifier.clone(), n));
        }
        self.settling.insert(identifier.clone(), settle);
        true
    }

    /// More than fit together: the rest has its turn after these.
    fn leave_for_later(
        &mut self,
        identifier: &Identifier,
        seeds: &BTreeSet<RepoId>,
        taken: &[Member],
    ) {
        if taken.len() < MAX_TOGETHER {
            return;
        }
        let is_taken = |repo: &RepoId| taken.iter().any(|member| member.repo == *repo);
        let left = seeds.iter().filter(|repo| !is_taken(repo));
        let left: Vec<RepoId> = left.cloned().collect();
        if !left.is_empty() {
            let again = self.settle_again.entry(identifier.clone()).or_default();
            again.extend(left);
        }
    }

    /// Its refs may be moving.
    pub(super) fn is_settling(&self, repo: &RepoId) -> bool {
        let settle = self.settling.get(&repo.identifier);
        settle.is_some_and(|settle| settle.repos.iter().any(|member| member.repo == *repo))
    }

    /// Repositories and states that hang together, from the given ones outwards.
    fn connected(
        &self,
        identifier: &Identifier,
        seeds: &BTreeSet<RepoId>,
        facts: &dyn Facts,
    ) -> (Vec<Member>, Vec<Candidate>) {
        let mut repos: Vec<RepoId> = Vec::new();
        let mut queue: Vec<RepoId> = seeds.iter().cloned().collect();
        let mut authors = BTreeSet::new();
        while let Some(repo) = queue.pop() {
            if repos.contains(&repo)
                || !self.registry.is_hosted(&repo)
                || repos.len() == MAX_TOGETHER
            {
                continue;
            }
            for author in self.registry.maintainers(&repo).iter() {
                if authors.insert(*author) {
                    let mut near = self.registry.maintained_by(author, identifier);
                    // From the end: what was asked for before what only hangs together with it.
                    near.sort_by_key(|repo| seeds.contains(repo));
                    queue.extend(near);
                }
            }
            repos.push(repo);
        }
        let held = self.purgatory.states(identifier).into_iter();
        let held = held.filter_map(|id| Some((Arc::clone(&self.purgatory.get(&id)?.event), true)));
        let address = |author| RepoId::new(author, identifier.clone()).address(Kind::STATE);
        let stored = authors
            .iter()
            .filter_map(|author| facts.newest(&address(*author)));
        let all = held.chain(stored.map(|event| (event, false)));
        let states = all
            .filter(|(event, _)| authors.contains(&event.pubkey))
            .filter_map(|(event, held)| self.candidate(event, held, &repos))
            .collect();
        let member = |repo| Member {
            repo,
            present: Vec::new(),
            winner: None,
            share_from: Vec::new(),
            moved: false,
        };
        (repos.into_iter().map(member).collect(), states)
    }

    /// `None` when it can tell no repository anything new.
    fn candidate(&self, event: Arc<Event>, held: bool, repos: &[RepoId]) -> Option<Candidate> {
        let state = State::read(&event).ok()?;
        let targets = state.refs.ok()?;
        let speaks = |repo: &RepoId| self.registry.is_maintainer(repo, &state.author);
        let speaks_for: Vec<usize> = (0..repos.len())
            .filter(|n| repos.get(*n).is_some_and(speaks))
            .collect();
        let is_news = speaks_for
            .iter()
            .filter_map(|n| repos.get(*n))
            .any(|repo| self.would_take(repo, state.rank));
        ((held || is_news) && !speaks_for.is_empty()).then_some(Candidate {
            event,
            rank: state.rank,
            targets,
            speaks_for,
            held,
        })
    }

    /// Nothing older than what a repository has; the same only where the refs may be others.
    fn would_take(&self, repo: &RepoId, rank: Rank) -> bool {
        let applied = self.registry.applied(repo);
        applied < Some(rank) || (applied == Some(rank) && self.out_of_step.contains(repo))
    }

    pub(super) fn on_settle_step(
        &mut self,
        identifier: &Identifier,
        n: usize,
        outcome: Result<GitDone, Failed>,
        facts: &dyn Facts,
    ) {
        let Some(settle) = self.settling.get_mut(identifier) else {
            return;
        };
        settle.outstanding -= 1;
        let shared = settle.step == Step::Sharing && outcome.is_ok();
        let shared = settle.repos.get(n).filter(|_| shared);
        let shared = shared.map(|member| member.repo.clone());
        let failed = settle.take(n, outcome);
        let done = settle.outstanding == 0;
        if let Some(repo) = failed {
            self.retry_later(Again::Repo(repo));
        }
        // What is shared for one state may complete another.
        if let Some(repo) = shared {
            self.look_for_lost(&repo, facts);
            let again = self.settle_again.entry(identifier.clone()).or_default();
            again.insert(repo);
        }
        if done {
            self.go_on(identifier, facts);
        }
    }

    /// The next step that has something to do.
    fn go_on(&mut self, identifier: &Identifier, facts: &dyn Facts) {
        let Some(mut settle) = self.settling.remove(identifier) else {
            return;
        };
        let mut tasks = Vec::new();
        while tasks.is_empty() && settle.step != Step::Committing {
            tasks = match settle.step {
                Step::Probing => {
                    self.note_missing(&settle);
                    self.choose(&mut settle);
                    settle.step = Step::Sharing;
                    settle.shares()
                }
                Step::Sharing => {
                    settle.step = Step::Moving;
                    self.drop_outdated(&mut settle, facts);
                    settle.moves()
                }
                Step::Moving | Step::Committing => {
                    settle.step = Step::Committing;
                    Vec::new()
                }
            };
        }
        if settle.step == Step::Committing {
            return self.commit_settled(identifier, settle, facts);
        }
        settle.outstanding = tasks.len();
        for (n, repo, task) in tasks {
            self.ask_git(&repo, task, Errand::Settle(identifier.clone(), n));
        }
        self.settling.insert(identifier.clone(), settle);
    }

    /// What is to be looked for elsewhere.
    fn note_missing(&mut self, settle: &Settle) {
        for state in settle.states.iter().filter(|state| state.held) {
            let missing = settle.missing_of(state);
            let lacks = missing.as_ref().is_some_and(|missing| !missing.is_empty());
            if let Some(held) = self.purgatory.get_mut(&state.event.id) {
                held.missing = missing.map(Arc::from);
            }
            if lacks {
                self.go_on_expecting(&state.event.id);
            }
        }
    }

    /// For each repository the newest state that it may have and whose objects are here.
    fn choose(&self, settle: &mut Settle) {
        let sources: Vec<Option<Vec<usize>>> = settle
            .states
            .iter()
            .map(|state| settle.sources_of(state))
            .collect();
        for (n, member) in settle.repos.iter_mut().enumerate() {
            let unread = member.present.len() != settle.objects.len();
            // Refs whose announcement a kill would lose would be nobody's.
            if unread || !self.is_durable(&member.repo) {
                continue;
            }
            // An empty state empties a repository; it does not make one.
            let served = self.registry.hosting(&member.repo) == Some(Standing::Served);
            let fits = |(at, state): &(usize, &Candidate)| {
                sources.get(*at).is_some_and(Option::is_some)
                    && state.speaks_for.contains(&n)
                    && self.would_take(&member.repo, state.rank)
                    && (!state.targets.refs.is_empty() || served)
            };
            let winner = settle.states.iter().enumerate().filter(fits);
            let winner = winner.max_by_key(|(_, state)| state.rank);
            member.winner = winner.map(|(at, _)| at);
            let from = winner.and_then(|(at, _)| sources.get(at).cloned().flatten());
            member.share_from = from.unwrap_or_default();
            member.share_from.retain(|source| *source != n);
        }
    }

    fn is_durable(&self, repo: &RepoId) -> bool {
        let held = self.held_announcement(repo);
        held.is_none_or(|held| held.durability == Durability::OnDisk)
    }

    /// While objects were shared, a repository or a state may have gone, or a maintainer been
    /// removed.
    fn drop_outdated(&self, settle: &mut Settle, facts: &dyn Facts) {
        let states = &settle.states;
        let is_here = |id: &EventId| self.purgatory.get(id).is_some() || facts.event(id).is_some();
        for member in &mut settle.repos {
            let winner = member.winner.and_then(|at| states.get(at));
            let stands = winner.is_some_and(|state| {
                self.registry.is_hosted(&member.repo)
                    && self
                        .registry
                        .is_maintainer(&member.repo, &state.event.pubkey)
                    && is_here(&state.event.id)
            });
            if !stands {
                member.winner = None;
            }
        }
    }

    fn commit_settled(&mut self, identifier: &Identifier, mut settle: Settle, facts: &dyn Facts) {
        let mut changes = Vec::new();
        for member in &mut settle.repos {
            member.moved &= self.registry.is_hosted(&member.repo);
            let state = member.winner.and_then(|at| settle.states.get(at));
            let Some(state) = state.filter(|_| member.moved) else {
                continue;
            };
            if self.registry.hosting(&member.repo) == Some(Standing::Held)
                && let Some(held) = self.held_announcement(&member.repo)
            {
                settle.storing.push(Arc::clone(&held.event));
            }
            changes.push(Change::Applied {
                repo: member.repo.clone(),
                rank: state.rank,
            });
        }
        for state in settle.states.iter().filter(|state| state.held) {
            if self.is_complete(state, &settle) {
                settle.storing.push(Arc::clone(&state.event));
            }
        }
        for event in &settle.storing {
            changes.push(Change::Store(Arc::clone(event)));
            changes.push(Change::Unhold(event.id));
        }
        if changes.is_empty() {
            return self.after_settling(identifier, facts);
        }
        self.commit(changes, Errand::Settled(identifier.clone()));
        self.settling.insert(identifier.clone(), settle);
    }

    /// A state is served when a served repository has its refs, or has newer ones and its objects.
    fn is_complete(&self, state: &Candidate, settle: &Settle) -> bool {
        let mut members = state.speaks_for.iter().filter_map(|n| settle.repos.get(*n));
        members.any(|member| {
            let moved_to = settle.moved_to(member);
            let served =
                moved_to.is_some() || self.registry.hosting(&member.repo) == Some(Standing::Served);
            let rank = self.registry.applied(&member.repo).max(moved_to);
            let superseded =
                served && rank >= Some(state.rank) && settle.has_all(member, &state.targets);
            moved_to == Some(state.rank) || superseded
        })
    }

    pub(super) fn on_settled(
        &mut self,
        identifier: &Identifier,
        outcomes: Result<Vec<StoreOutcome>, Failed>,
        facts: &dyn Facts,
    ) {
        let Some(settle) = self.settling.remove(identifier) else {
            return;
        };
        match outcomes {
            Ok(outcomes) => self.take_effect(&settle, &outcomes, facts),
            Err(Failed) => {
                for member in &settle.repos {
                    // Its refs are there all the same, and nothing older may move them.
                    if let Some(rank) = settle.moved_to(member) {
                        self.registry.set_applied(&member.repo, rank);
                        self.out_of_step.insert(member.repo.clone());
                        self.retry_later(Again::Record(member.repo.clone()));
                    }
                    self.retry_later(Again::Repo(member.repo.clone()));
                }
            }
        }
        self.after_settling(identifier, facts);
    }

    fn take_effect(&mut self, settle: &Settle, outcomes: &[StoreOutcome], facts: &dyn Facts) {
        for member in &settle.repos {
            if let Some(rank) = settle.moved_to(member) {
                self.registry.set_applied(&member.repo, rank);
                if self.registry.is_hosted(&member.repo) {
                    self.out_of_step.remove(&member.repo);
                }
            }
        }
        let stored = |outcome: &StoreOutcome| {
            matches!(outcome, StoreOutcome::Stored(_) | StoreOutcome::Duplicate)
        };
        let mut served = Vec::new();
        // All of them first: what one brings about must not take the others for still held.
        for (event, outcome) in settle.storing.iter().zip(outcomes) {
            self.leave(&event.id, *outcome);
        }
        for (event, outcome) in settle.storing.iter().zip(outcomes) {
            if event.kind == Kind::ANNOUNCEMENT
                && stored(outcome)
                && let Some(repo) = event.address().as_ref().and_then(RepoId::of_address)
                && self.registry.hosting(&repo) == Some(Standing::Held)
            {
                self.registry.set_standing(&repo, Standing::Served);
                served.push(repo);
            }
            self.on_left(event, *outcome, facts);
        }
        for repo in served {
            self.objects_came(&repo, facts);
        }
    }

    /// Then whatever came meanwhile.
    fn after_settling(&mut self, identifier: &Identifier, facts: &dyn Facts) {
        if let Some(repos) = self.end_settling(identifier) {
            self.settle(identifier, repos.into_iter().collect(), facts);
        }
    }

    /// What is still held becomes durable; pushes hear how it ended; what came meanwhile is next.
    fn end_settling(&mut self, identifier: &Identifier) -> Option<BTreeSet<RepoId>> {
        let mut waiting = self.purgatory.states(identifier);
        let owners = self.purgatory.announcements(identifier);
        waiting.extend(owners);
        waiting.retain(|id| {
            self.purgatory
                .get(id)
                .is_some_and(|held| self.is_unwritten(held))
        });
        self.write_down(waiting);
        self.report_pushes(identifier);
        let next = self.settle_again.remove(identifier);
        if next.is_none() {
            for repo in self.check_settled.remove(identifier).unwrap_or_default() {
                self.check(repo);
            }
        }
        next
    }

    /// Somebody waits for it to be written, and nothing else comes first.
    pub(super) fn is_unwritten(&self, held: &Held) -> bool {
        let ready = match &held.needs {
            Needs::State(announcement) => !self.creating.contains_key(&announcement.repo),
            _ => true,
        };
        let unwritten = match held.durability {
            Durability::InMemory => true,
            Durability::Writing(_) => false,
            Durability::OnDisk => !held.submitters.is_empty(),
        };
        ready && unwritten && !self.in_flight.contains_key(&held.event.id)
    }

    /// New objects are in a repository: everything that waits for some there is looked at.
    pub(super) fn objects_came(&mut self, repo: &RepoId, facts: &dyn Facts) {
        self.look_for_tips(repo);
        self.look_for_lost(repo, facts);
        self.settle(&repo.identifier, vec![repo.clone()], facts);
    }

    /// States that a repository would take: those that wait, and those in the store that it has
    /// not got yet.
    pub(super) fn expected_states(&self, repo: &RepoId, facts: &dyn Facts) -> Vec<State> {
        let members = self.registry.maintainers(repo);
        let held = self.purgatory.states(&repo.identifier).into_iter();
        let held = held.filter_map(|id| match &self.purgatory.get(&id)?.needs {
            Needs::Refs(state) => Some(state.clone()),
            _ => None,
        });
        let address = |member: &Pubkey| {
            let repo = RepoId::new(*member, repo.identifier.clone());
            repo.address(Kind::STATE)
        };
        let stored = members
            .iter()
            .filter_map(|member| State::read(&*facts.newest(&address(member))?).ok());
        held.chain(stored)
            .filter(|state| members.contains(&state.author) && self.would_take(repo, state.rank))
            .collect()
    }
}

impl Settle {
    /// Takes one answer; the repository that failed, if it did.
    fn take(&mut self, n: usize, outcome: Result<GitDone, Failed>) -> Option<RepoId> {
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
    fn sources_of(&self, state: &Candidate) -> Option<Vec<usize>> {
        let mut lacking: BTreeMap<&RefName, &ObjectId> = state.targets.refs.iter().collect();
        let mut sources = Vec::new();
        let mut members = state.speaks_for.clone();
        // One that has everything needs no other.
        members.sort_by_key(|n| {
            !self
                .repos
                .get(*n)
                .is_some_and(|m| self.has_all(m, &state.targets))
        });
        for n in members {
            let Some(member) = self.repos.get(n) else {
                continue;
            };
            let before = lacking.len();
            lacking.retain(|name, id| !self.has(member, name, id));
            if lacking.len() < before {
                sources.push(n);
            }
        }
        lacking.is_empty().then_some(sources)
    }

    /// Objects that nobody has whom the state speaks for; `None` while somebody was not looked at.
    fn missing_of(&self, state: &Candidate) -> Option<Vec<ObjectId>> {
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

    /// The object is there, and a commit if it is to be a branch.
    fn has(&self, member: &Member, name: &RefName, id: &ObjectId) -> bool {
        let at = self.objects.binary_search(id).ok();
        match at.and_then(|at| member.present.get(at).copied().flatten()) {
            Some(ObjectKind::Commit) => true,
            Some(_) => !name.is_branch(),
            None => false,
        }
    }

    fn has_all(&self, member: &Member, targets: &Targets) -> bool {
        let mut refs = targets.refs.iter();
        refs.all(|(name, id)| self.has(member, name, id))
    }

    fn moved_to(&self, member: &Member) -> Option<Rank> {
        let state = self.states.get(member.winner?)?;
        member.moved.then_some(state.rank)
    }

    fn shares(&self) -> Vec<Work> {
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

    fn moves(&self) -> Vec<Work> {
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
