//! What is here, seen from the rules of admission: the store, what is on its way into it, and
//! purgatory.

use rustc_hash::FxHashMap;

use super::Core;
use crate::admit::{Known, Needs, Presence};
use crate::event::{Address, Event, Kind};
use crate::facts::Facts;
use crate::id::EventId;
use crate::nip34::PullRequest;
use crate::purgatory::Purgatory;

pub struct Here<'a> {
    pub(super) facts: &'a dyn Facts,
    pub(super) in_flight: &'a FxHashMap<EventId, Kind>,
    pub(super) purgatory: &'a Purgatory,
}

impl Core {
    pub(super) fn known<'a>(&'a self, facts: &'a dyn Facts) -> Here<'a> {
        Here {
            facts,
            in_flight: &self.in_flight,
            purgatory: &self.purgatory,
        }
    }
}

impl Known for Here<'_> {
    fn event(&self, id: &EventId) -> Presence {
        let stored = self.in_flight.get(id).copied();
        if let Some(kind) = stored.or_else(|| self.facts.kind_of(id)) {
            return Presence::Stored(kind);
        }
        match self.purgatory.get(id) {
            Some(held) if !matches!(held.needs, Needs::Arrival(_)) => Presence::Held,
            _ => Presence::Unknown,
        }
    }

    fn address(&self, address: &Address) -> Presence {
        if self.facts.rank_at(address).is_some() {
            return Presence::Stored(address.kind);
        }
        let mut held = self.purgatory.at(address);
        match held.any(|held| !matches!(held.needs, Needs::Arrival(_))) {
            true => Presence::Held,
            false => Presence::Unknown,
        }
    }

    fn pull_request(&self, id: &EventId) -> Option<PullRequest> {
        match self.purgatory.get(id) {
            Some(held) if !matches!(held.needs, Needs::Arrival(_)) => {
                PullRequest::read(&held.event)
            }
            _ => self.facts.pull_request(id).map(|row| row.says),
        }
    }

    fn is_named(&self, event: &Event) -> bool {
        self.facts.is_named(event)
    }
}
