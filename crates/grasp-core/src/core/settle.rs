//! Release of states. For repositories that hang together, one round at a time: which states wait,
//! whose objects are all here, which of them each repository shall have; then objects are shared,
//! refs moved, and the events stored, in that order. Every step may be cut by a crash: what is held stays held until
//! the last commit, and the next start goes through the same steps again.

mod candidates;
mod round;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use self::round::Settle;
use self::round::{Candidate, Step};

use super::retry::Again;
use super::{Change, Core, Errand, Failed, GitDone, GitTask};
use crate::admit::Needs;
use crate::event::{Event, Kind};
use crate::facts::{Applied, Facts, StoreOutcome};
use crate::id::{EventId, Pubkey};
use crate::nip34::state::Targets;
use crate::nip34::{Identifier, Rank, RepoId, State};
use crate::purgatory::{Durability, Held};
use crate::registry::{MAX_MEMBERS, Standing};

/// Repositories that are brought in step together.
const MAX_TOGETHER: usize = 64;
/// Of those who may sign for them, so many are asked what else they maintain. Each costs 20 us, and
/// 64 walks where nothing is kept in mind.
const MAX_ASKED: usize = 64;
/// Those who may sign for one of them, in all: as many as four repositories without a common
/// maintainer have. Whose state stands is one row of the store for each, 2 us: half a millisecond.
const MAX_AUTHORS: usize = 4 * MAX_MEMBERS;
/// States of one author and identifier that wait: each replaces those before it, and only a push
/// that is under way may still bring an older one. A look asks for the objects of all of them.
pub(super) const MAX_STATES: usize = 8;

/// What is settled together.
struct Group {
    seed: RepoId,
    repos: Vec<RepoId>,
    /// Whoever may sign for one of them.
    authors: BTreeSet<Pubkey>,
}

impl Core {
    /// Brings these repositories, and those that share a state with them, to the newest state
    /// whose objects are here. Those that hang together wait for each other, and nobody for a
    /// stranger who uses the same name.
    pub(super) fn settle(
        &mut self,
        identifier: &Identifier,
        repos: Vec<RepoId>,
        facts: &dyn Facts,
    ) {
        let mut seeds: BTreeSet<RepoId> = repos.into_iter().collect();
        while let Some(seed) = seeds.pop_first() {
            let group = self.connected(&seed, &seeds);
            if self.is_in_the_way(&group) {
                let again = self.settle_again.entry(identifier.clone()).or_default();
                again.insert(seed);
                continue;
            }
            seeds.retain(|repo| !group.repos.contains(repo));
            if !self.begin_settling(identifier, &group, facts) {
                self.end_settling(identifier, &group);
            }
        }
    }

    /// Something that it touches is settling.
    fn is_in_the_way(&self, group: &Group) -> bool {
        let settling = self.settling.get(&group.seed.identifier);
        let mut settling = settling.into_iter().flat_map(BTreeMap::values);
        settling.any(|settle| {
            let mut repos = group.repos.iter();
            repos.any(|repo| settle.has_member(repo)) || !settle.authors.is_disjoint(&group.authors)
        })
    }

    /// False if there is nothing to do.
    fn begin_settling(
        &mut self,
        identifier: &Identifier,
        group: &Group,
        facts: &dyn Facts,
    ) -> bool {
        let (states, left_out) = self.candidates(identifier, group, facts);
        let Some(first) = group.repos.first().filter(|_| !states.is_empty()) else {
            return false;
        };
        let mut settle = Settle::new(group.repos.clone(), group.authors.clone(), states);
        settle.left_out = left_out;
        for (n, repo) in group.repos.iter().enumerate() {
            let task = GitTask::Probe(Arc::clone(&settle.objects));
            self.ask_git(repo, task, Errand::Settle(first.clone(), n));
        }
        self.put_settling(first, settle);
        true
    }

    fn put_settling(&mut self, first: &RepoId, settle: Settle) {
        let settling = self.settling.entry(first.identifier.clone()).or_default();
        settling.insert(first.owner, settle);
    }

    fn take_settling(&mut self, first: &RepoId) -> Option<Settle> {
        let settling = self.settling.get_mut(&first.identifier)?;
        let settle = settling.remove(&first.owner);
        if settling.is_empty() {
            self.settling.remove(&first.identifier);
        }
        settle
    }

    /// Its refs may be moving.
    pub(super) fn is_settling(&self, repo: &RepoId) -> bool {
        let settling = self.settling.get(&repo.identifier);
        let mut settling = settling.into_iter().flat_map(BTreeMap::values);
        settling.any(|settle| settle.has_member(repo))
    }

    /// A state of that author may be on its way out.
    pub(super) fn is_settling_for(&self, author: &Pubkey, identifier: &Identifier) -> bool {
        let settling = self.settling.get(identifier);
        let mut settling = settling.into_iter().flat_map(BTreeMap::values);
        settling.any(|settle| settle.authors.contains(author))
    }

    /// Repositories that hang together, and whoever may sign for them, from one outwards.
    fn connected(&self, seed: &RepoId, seeds: &BTreeSet<RepoId>) -> Group {
        let mut repos: Vec<RepoId> = Vec::new();
        let mut queue = vec![seed.clone()];
        let mut authors: BTreeSet<Pubkey> = BTreeSet::new();
        while let Some(repo) = queue.pop() {
            if repos.contains(&repo)
                || !self.registry.is_hosted(&repo)
                || repos.len() == MAX_TOGETHER
            {
                continue;
            }
            let members = self.registry.maintainers(&repo);
            // A repository is settled with all who may sign for it, or in a round of its own.
            let new = members.iter().filter(|member| !authors.contains(*member));
            if authors.len() + new.count() > MAX_AUTHORS {
                continue;
            }
            for author in members.iter() {
                if authors.insert(*author) && authors.len() <= MAX_ASKED {
                    let mut near = self.registry.maintained_by(author, &seed.identifier);
                    // From the end: what was asked for before what only hangs together with it.
                    near.sort_by_key(|repo| seeds.contains(repo));
                    queue.extend(near);
                }
            }
            repos.push(repo);
        }
        Group {
            seed: seed.clone(),
            repos,
            authors,
        }
    }

    /// The newest few that somebody has signed and that wait, newest first. Those before them will
    /// not be asked for any more.
    fn held_states(&self, of: &RepoId) -> Vec<(&Arc<Event>, &State)> {
        let ids = self.purgatory.states_of(of).iter();
        let held = ids.filter_map(|id| {
            let held = self.purgatory.get(id)?;
            match &held.needs {
                Needs::Refs(state) => Some((&held.event, state)),
                _ => None,
            }
        });
        let mut states: Vec<_> = held.collect();
        states.sort_by_key(|(_, state)| Reverse(state.rank));
        states.truncate(MAX_STATES);
        states
    }

    fn would_take(&self, repo: &RepoId, rank: Rank, targets: &Targets) -> bool {
        let is_applied = self.registry.applied(repo) == Some(rank);
        let may = is_applied || !targets.refs.is_empty() || self.may_empty(repo, rank);
        may && self.is_newer(repo, rank)
    }

    /// Nothing older than what a repository has; the same only where the refs may be others.
    fn is_newer(&self, repo: &RepoId, rank: Rank) -> bool {
        let applied = self.registry.applied(repo);
        applied < Some(rank) || applied == Some(rank) && self.out_of_step.contains(repo)
    }

    /// An empty state empties a repository that had refs when it was signed; it does not make one.
    fn may_empty(&self, repo: &RepoId, rank: Rank) -> bool {
        let since = self.registry.refs_since(repo);
        self.registry.hosting(repo) == Some(Standing::Served)
            && since.is_some_and(|since| since < rank.created_at)
    }

    pub(super) fn on_settle_step(
        &mut self,
        first: &RepoId,
        n: usize,
        outcome: Result<GitDone, Failed>,
        facts: &dyn Facts,
    ) {
        let settling = self.settling.get_mut(&first.identifier);
        let Some(settle) = settling.and_then(|settling| settling.get_mut(&first.owner)) else {
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
            let again = self.settle_again.entry(first.identifier.clone());
            again.or_default().insert(repo);
        }
        if done {
            self.go_on(first, facts);
        }
    }

    /// The next step that has something to do.
    fn go_on(&mut self, first: &RepoId, facts: &dyn Facts) {
        let Some(mut settle) = self.take_settling(first) else {
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
            return self.commit_settled(first, settle, facts);
        }
        settle.outstanding = tasks.len();
        for (n, repo, task) in tasks {
            self.ask_git(&repo, task, Errand::Settle(first.clone(), n));
        }
        self.put_settling(first, settle);
    }

    /// What is to be looked for elsewhere.
    fn note_missing(&mut self, settle: &Settle) {
        for state in settle.states.iter().filter(|state| state.held.is_some()) {
            let missing = settle.missing_of(state);
            let lacks = missing.as_ref().is_some_and(|missing| !missing.is_empty());
            if let Some(held) = self.purgatory.get_mut(&state.rank.id) {
                held.missing = missing.map(Arc::from);
            }
            if lacks {
                self.go_on_expecting(&state.rank.id);
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
            let fits = |(at, state): &(usize, &Candidate)| {
                sources.get(*at).is_some_and(Option::is_some)
                    && state.speaks_for.contains(&n)
                    && self.would_take(&member.repo, state.rank, &state.targets)
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
        let is_here =
            |id: &EventId| self.purgatory.get(id).is_some() || facts.kind_of(id).is_some();
        for member in &mut settle.repos {
            let winner = member.winner.and_then(|at| states.get(at));
            let stands = winner.is_some_and(|state| {
                self.registry.is_hosted(&member.repo)
                    && self.registry.is_maintainer(&member.repo, &state.author)
                    && is_here(&state.rank.id)
            });
            if !stands {
                member.winner = None;
            }
        }
    }

    fn commit_settled(&mut self, first: &RepoId, mut settle: Settle, facts: &dyn Facts) {
        let now = self.now.unix;
        let mut changes = Vec::new();
        settle.committed = now;
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
                since: self.registry.refs_since(&member.repo).unwrap_or(now),
            });
        }
        for state in &settle.states {
            if let Some(event) = state
                .held
                .as_ref()
                .filter(|_| self.is_complete(state, &settle))
            {
                settle.storing.push(Arc::clone(event));
            }
        }
        for event in &settle.storing {
            changes.push(Change::Store(Arc::clone(event)));
            changes.push(Change::Unhold(event.id));
        }
        if changes.is_empty() {
            return self.after_settling(first, settle, facts);
        }
        self.commit(changes, Errand::Settled(first.clone()));
        self.put_settling(first, settle);
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
        first: &RepoId,
        outcomes: Result<Vec<StoreOutcome>, Failed>,
        facts: &dyn Facts,
    ) {
        let Some(settle) = self.take_settling(first) else {
            return;
        };
        match outcomes {
            Ok(outcomes) => self.take_effect(&settle, &outcomes, facts),
            Err(Failed) => {
                for member in &settle.repos {
                    // Its refs are there all the same, and nothing older may move them.
                    if let Some(rank) = settle.moved_to(member) {
                        let since = settle.committed;
                        let recorded = facts.applied(&member.repo);
                        let now = Applied { rank, since };
                        self.registry.set_unrecorded(&member.repo, now, recorded);
                        if self.registry.standing(&member.repo).is_some() {
                            self.out_of_step.insert(member.repo.clone());
                        }
                        self.retry_later(Again::Record(member.repo.clone()));
                    }
                    self.retry_later(Again::Repo(member.repo.clone()));
                }
            }
        }
        self.after_settling(first, settle, facts);
    }

    fn take_effect(&mut self, settle: &Settle, outcomes: &[StoreOutcome], facts: &dyn Facts) {
        for member in &settle.repos {
            if let Some(rank) = settle.moved_to(member) {
                self.registry
                    .set_applied(&member.repo, rank, settle.committed);
                if self.registry.is_hosted(&member.repo) {
                    self.out_of_step.remove(&member.repo);
                }
            }
        }
        // What is released makes room for what this round had none for.
        if let Some(first) = settle.repos.first().filter(|_| settle.left_out)
            && !settle.storing.is_empty()
        {
            let again = self.settle_again.entry(first.repo.identifier.clone());
            again.or_default().insert(first.repo.clone());
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
    fn after_settling(&mut self, first: &RepoId, settle: Settle, facts: &dyn Facts) {
        let identifier = &first.identifier;
        let repos = settle.repos.into_iter().map(|member| member.repo);
        let group = Group {
            seed: first.clone(),
            repos: repos.collect(),
            authors: settle.authors,
        };
        self.end_settling(identifier, &group);
        if let Some(again) = self.settle_again.remove(identifier) {
            self.settle(identifier, again.into_iter().collect(), facts);
        }
        let waiting = self.check_settled.remove(identifier).unwrap_or_default();
        for repo in waiting {
            if self.is_settling(&repo) {
                let later = self.check_settled.entry(identifier.clone());
                later.or_default().insert(repo);
            } else {
                self.check(repo);
            }
        }
    }

    /// What is still held becomes durable; pushes hear how it ended.
    fn end_settling(&mut self, identifier: &Identifier, group: &Group) {
        let of_seed = self.registry.maintainers(&group.seed);
        let authors: BTreeSet<Pubkey> = group.authors.iter().chain(&*of_seed).copied().collect();
        let repos: BTreeSet<&RepoId> = group.repos.iter().chain([&group.seed]).collect();
        let states = authors.into_iter().flat_map(|author| {
            let of = RepoId::new(author, identifier.clone());
            self.purgatory.states_of(&of).to_vec()
        });
        let mut waiting: Vec<EventId> = states.collect();
        for repo in repos {
            waiting.extend(self.held_versions(repo));
        }
        waiting.retain(|id| {
            let held = self.purgatory.get(id);
            held.is_some_and(|held| self.is_unwritten(held)) && !self.is_worked_on(id)
        });
        self.write_down(waiting);
        self.report_pushes(identifier);
    }

    /// Somebody waits for it to be written, and nothing else comes first.
    pub(super) fn is_unwritten(&self, held: &Held) -> bool {
        let ready = match &held.needs {
            Needs::State(announcement) => !self.creating.contains_key(&announcement.repo),
            // It came again, too early, while its earlier stay was being worked on; it is kept in
            // memory alone.
            Needs::Arrival(_) => false,
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
}
