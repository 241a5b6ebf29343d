//! What a deletion (NIP-09) or a request to vanish (NIP-62) takes with it beyond the store: held
//! events, repositories, tips.

use std::collections::BTreeSet;

use super::Core;
use super::retry::Again;
use crate::admit::Refusal;
use crate::event::{Address, Event, Kind};
use crate::facts::Facts;
use crate::id::EventId;
use crate::nip34::RepoId;

impl Core {
    pub(super) fn on_deletion(&mut self, event: &Event, facts: &dyn Facts) {
        if event.kind == Kind::VANISH {
            return self.on_vanish(event, facts);
        }
        for id in deleted_ids(event) {
            self.delete_held(&id, event, facts);
            let repo = self.registry.repo_of(&id).cloned();
            if let Some(repo) = repo.filter(|repo| repo.owner == event.pubkey) {
                self.unhost(&repo, None, facts);
            }
            self.remove_tips_of(&id, facts);
        }
        for address in deleted_addresses(event) {
            for id in self.purgatory.at_address(&address, event.created_at) {
                self.delete_held(&id, event, facts);
            }
            if let Some(repo) = RepoId::of_address(&address) {
                self.unhost_until(&repo, event, facts);
            }
        }
    }

    fn delete_held(&mut self, id: &EventId, deletion: &Event, facts: &dyn Facts) {
        let own = self
            .purgatory
            .get(id)
            .is_some_and(|held| held.event.pubkey == deletion.pubkey);
        if own {
            self.give_up(id, &Refusal::Deleted, facts);
        }
    }

    /// The announcement is gone, unless it is newer than the request.
    fn unhost_until(&mut self, repo: &RepoId, request: &Event, facts: &dyn Facts) {
        let known = self.registry.announcement(repo);
        if known.is_some_and(|known| known.rank.created_at <= request.created_at) {
            self.unhost(repo, None, facts);
        }
    }

    fn on_vanish(&mut self, event: &Event, facts: &dyn Facts) {
        let held = self.purgatory.of_author(&event.pubkey);
        let held = held.filter(|held| held.event.created_at <= event.created_at);
        let ids: Vec<EventId> = held.map(|held| held.event.id).collect();
        for id in ids {
            self.give_up(&id, &Refusal::Vanished, facts);
        }
        for repo in self.registry.owned_by(&event.pubkey) {
            self.unhost_until(&repo, event, facts);
        }
        // Its events are hidden by then, and one sweep does for many requests.
        let first = EventId([0; 32]);
        self.retry_later(Again::SweepTips(event.pubkey, first));
    }
}

/// Each once, however often it is named.
fn deleted_addresses(deletion: &Event) -> BTreeSet<Address> {
    let named = deletion.tag_values("a").filter_map(Address::parse);
    named
        .filter(|address| address.pubkey == deletion.pubkey)
        .collect()
}

fn deleted_ids(deletion: &Event) -> impl Iterator<Item = EventId> {
    deletion
        .tag_values("e")
        .filter_map(|id| EventId::from_hex(id).ok())
}
