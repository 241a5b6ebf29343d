//! Which states a round of settling looks at, and which a push may complete: those that wait, and
//! those in the store that a repository has not got yet.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::Core;
use super::Group;
use super::round::Candidate;
use crate::event::Event;
use crate::facts::Facts;
use crate::id::Pubkey;
use crate::nip34::{Identifier, Rank, RepoId, State};

/// States of the store that one round reads; each that is not in memory takes a millisecond at most.
/// Only those that are newer than what a repository has are of interest.
const MAX_STORED: usize = 32;
/// Objects that each repository of a round is asked for, 20 bytes each: those of a dozen of the
/// largest states that an event can hold.
const MAX_OBJECTS: usize = 32_768;

impl Core {
    /// What is looked at in one round, and whether something is left out.
    pub(super) fn candidates(
        &self,
        identifier: &Identifier,
        group: &Group,
        facts: &dyn Facts,
    ) -> (Vec<Candidate>, bool) {
        let address = |author: &Pubkey| RepoId::new(*author, identifier.clone());
        let authors = group.authors.iter().map(address);
        let held = authors.flat_map(|of| self.held_states(&of));
        let held = held.map(|(event, state)| (state.clone(), Some(Arc::clone(event))));
        let stored = self.newer_stored(identifier, group, facts);
        let stored = stored.into_iter().map(|state| (state, None));
        let candidates = held
            .chain(stored)
            .filter_map(|(state, held)| self.candidate(state, held, &group.repos));
        let candidates: Vec<Candidate> = candidates.collect();
        let all = candidates.len();
        let some = some(candidates);
        let left_out = some.len() < all;
        (some, left_out)
    }

    /// The newest states in the store that some repository of the group has not got yet.
    fn newer_stored(
        &self,
        identifier: &Identifier,
        group: &Group,
        facts: &dyn Facts,
    ) -> Vec<State> {
        let ranks = group.authors.iter().filter_map(|author| {
            let rank = self.stored_rank(&RepoId::new(*author, identifier.clone()), facts)?;
            let mut repos = group.repos.iter();
            let is_news = repos
                .any(|repo| self.is_newer(repo, rank) && self.registry.is_maintainer(repo, author));
            let for_seed = self.registry.is_maintainer(&group.seed, author);
            is_news.then_some((for_seed, rank))
        });
        let mut ranks: Vec<(bool, Rank)> = ranks.collect();
        // Strangers who hang together with the repository do not crowd its maintainers out.
        ranks.sort_unstable_by_key(|newest| Reverse(*newest));
        ranks.truncate(MAX_STORED);
        let states = ranks.iter();
        states
            .filter_map(|(_, rank)| self.stored_state(&rank.id, facts))
            .collect()
    }

    /// `None` when it can tell no repository anything new.
    fn candidate(
        &self,
        state: State,
        held: Option<Arc<Event>>,
        repos: &[RepoId],
    ) -> Option<Candidate> {
        let (rank, targets) = (state.rank, state.refs.ok()?);
        let speaks = |repo: &RepoId| self.registry.is_maintainer(repo, &state.author);
        let speaks_for: Vec<usize> = (0..repos.len())
            .filter(|n| repos.get(*n).is_some_and(speaks))
            .collect();
        let is_news = speaks_for
            .iter()
            .filter_map(|n| repos.get(*n))
            .any(|repo| self.would_take(repo, rank, &targets));
        ((held.is_some() || is_news) && !speaks_for.is_empty()).then_some(Candidate {
            author: state.author,
            rank,
            targets,
            speaks_for,
            held,
        })
    }

    /// States that a repository would take: those that wait, and those in the store that it has
    /// not got yet.
    pub(in crate::core) fn expected_states(&self, repo: &RepoId, facts: &dyn Facts) -> Vec<State> {
        let members = self.registry.maintainers(repo);
        let address = |member: &Pubkey| RepoId::new(*member, repo.identifier.clone());
        let members = members.iter().map(address);
        let held = members.clone().flat_map(|of| self.held_states(&of));
        let held = held.map(|(_, state)| state.clone());
        let ranks = members.filter_map(|of| self.stored_rank(&of, facts));
        let mut ranks: Vec<Rank> = ranks.filter(|rank| self.is_newer(repo, *rank)).collect();
        ranks.sort_unstable_by_key(|rank| Reverse(*rank));
        ranks.truncate(MAX_STORED);
        let stored = ranks.iter();
        let stored = stored.filter_map(|rank| self.stored_state(&rank.id, facts));
        held.chain(stored)
            .filter(|state| {
                let targets = state.refs.as_ref();
                targets.is_ok_and(|targets| self.would_take(repo, state.rank, targets))
            })
            .collect()
    }
}

/// As many as have no more objects than one round asks for. The newest of every author come first,
/// then the second of every author; the others wait for a later round.
fn some(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let objects = |state: &Candidate| state.targets.refs.len();
    if candidates.iter().map(objects).sum::<usize>() <= MAX_OBJECTS {
        return candidates;
    }
    candidates.sort_by_key(|state| Reverse(state.rank));
    let mut of_author: BTreeMap<Pubkey, usize> = BTreeMap::new();
    let place = |state: Candidate| {
        let nth = of_author.entry(state.author).or_default();
        *nth += 1;
        (*nth, state)
    };
    let mut placed: Vec<(usize, Candidate)> = candidates.into_iter().map(place).collect();
    // Those who speak for the first repository, which the round was begun for, before all others.
    placed.sort_by_key(|(nth, state)| (!state.speaks_for.contains(&0), *nth));
    let mut left = MAX_OBJECTS;
    let fits = placed.into_iter().take_while(|(_, state)| {
        let enough = left.checked_sub(objects(state));
        left = enough.unwrap_or(0);
        enough.is_some()
    });
    fits.map(|(_, state)| state).collect()
}
