//! Submitters of held events wait for git only so long: then the hold is written down and
//! answered, and what git does later releases it as a push would.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::Core;
use crate::admit::Needs;
use crate::clock::Mono;
use crate::id::EventId;
use crate::nip34::Identifier;
use crate::purgatory::{Durability, Held};

/// Git answers within milliseconds where nothing is wrong, and then a state whose objects are here
/// is accepted and an announcement has its repository when its owner hears of it. Beyond this the
/// memory and the connection that the event holds are worth more.
const GIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Held events with submitters, in the order of their deadlines. One entry for each submission of
/// the last two seconds, which have permits of ingest or had an answer: 40 bytes each.
#[derive(Debug, Default)]
pub struct Unanswered {
    due: VecDeque<(Mono, EventId)>,
}

impl Unanswered {
    pub fn next(&self) -> Option<Mono> {
        self.due.front().map(|(at, _)| *at)
    }

    fn add(&mut self, at: Mono, id: EventId) {
        self.due.push_back((at, id));
    }

    fn take(&mut self, now: Mono) -> Option<EventId> {
        let (at, id) = *self.due.front()?;
        if at > now {
            return None;
        }
        self.due.pop_front();
        Some(id)
    }
}

impl Core {
    /// From now on somebody waits for an answer.
    pub(super) fn answer_in_time(&mut self, id: &EventId) {
        if self.purgatory.get(id).is_some_and(waits_for_git) {
            self.unanswered.add(self.now.mono + GIT_TIMEOUT, *id);
        }
    }

    /// Writes down what git has not had its word on; the commit answers the submitters.
    pub(super) fn answer_overdue(&mut self) {
        while let Some(id) = self.unanswered.take(self.now.mono) {
            if !self.purgatory.get(&id).is_some_and(waits_for_git) {
                continue;
            }
            match self.is_being_stored(&id) {
                // If that commit fails, its submitters still wait.
                true => self.unanswered.add(self.now.mono + GIT_TIMEOUT, id),
                false => self.write_down(vec![id]),
            }
        }
    }

    /// A commit is under way that stores it: a hold that is written after it would outlive it.
    fn is_being_stored(&self, id: &EventId) -> bool {
        let in_round = |identifier: &Identifier| {
            let settling = self.settling.get(identifier);
            let mut settling = settling.into_iter().flat_map(BTreeMap::values);
            settling.any(|settle| settle.is_storing(id))
        };
        let stored = match self.purgatory.get(id).map(|held| &held.needs) {
            Some(Needs::State(announcement)) => in_round(&announcement.repo.identifier),
            Some(Needs::Refs(state)) => in_round(&state.identifier),
            Some(Needs::Tip { .. }) => {
                let landing = self.landing.get(id);
                landing.is_some_and(|landing| landing.is_committing())
            }
            _ => false,
        };
        stored || self.in_flight.contains_key(id)
    }
}

fn waits_for_git(held: &Held) -> bool {
    !held.submitters.is_empty() && !matches!(held.durability, Durability::Writing(_))
}
