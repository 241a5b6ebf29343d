//! The start: what the store kept is taken in again, then disk and store are compared.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::hold::causes;
use super::retry::Discard;
use super::{Core, Errand, GitTask, Restore};
use crate::admit::{Needs, Origin, Refusal, Verdict};
use crate::clock::Timestamp;
use crate::event::{Event, Kind};
use crate::facts::{Facts, StoreOutcome};
use crate::nip34::{Announcement, Rank, State};
use crate::purgatory::{Durability, Guest, Holder};
use crate::registry::Standing;

impl Core {
    pub(super) fn on_restore(&mut self, restore: Restore, facts: &dyn Facts) {
        match restore {
            Restore::Announcement { event, seq } => {
                if let Ok(announcement) = Announcement::read(&event, &self.policy.service) {
                    let repo = announcement.repo.clone();
                    // What it has comes by itself.
                    self.registry.announce(announcement, Standing::Served, None);
                    self.restore_repository(repo, seq);
                }
            }
            Restore::Applied { repo, rank, since } => {
                self.registry.set_applied(&repo, rank, since);
            }
            Restore::Repository(repo) => {
                self.on_disk.insert(repo);
            }
            Restore::Root { event, seq } => self.restore_root(&event, seq, facts),
            Restore::Relay(memory) => self.sync.restore_relay(memory),
            Restore::Dismissed(row) => self.sync.restore_dismissed(row),
            Restore::Hidden(id) => {
                self.hidden.insert(id);
            }
            Restore::Held {
                event,
                until,
                remembered,
            } => self.restore_held(event, until, remembered, facts),
        }
    }

    fn restore_held(
        &mut self,
        event: Arc<Event>,
        until: Timestamp,
        remembered: bool,
        facts: &dyn Facts,
    ) {
        if event.kind == Kind::ANNOUNCEMENT
            && let Ok(announcement) = Announcement::read(&event, &self.policy.service)
            && self.registry.hosting(&announcement.repo) != Some(Standing::Served)
        {
            let standing = if remembered {
                Standing::Remembered
            } else {
                Standing::Held
            };
            let recorded = facts.applied(&announcement.repo);
            self.registry.announce(announcement, standing, recorded);
        }
        let id = event.id;
        // What it waits for shows when everything is back.
        let holder = Some(Holder::Restored);
        let needs = Needs::Nothing;
        self.purgatory
            .insert_from(event, needs, until, holder, Guest::Anybody);
        if remembered {
            self.purgatory.remember(&id, until);
        }
        if let Some(held) = self.purgatory.get_mut(&id) {
            held.durability = Durability::OnDisk;
        }
    }

    pub(super) fn on_restored(&mut self, facts: &dyn Facts) {
        let mut held: Vec<Arc<Event>> = self
            .purgatory
            .iter()
            .map(|held| Arc::clone(&held.event))
            .collect();
        held.sort_by_key(|event| (event.kind != Kind::ANNOUNCEMENT, Rank::of(event)));
        for event in held {
            self.restore_needs(&event, facts);
        }
        self.revive_awaited(facts);
        self.clear_away(facts);
        self.check_all();
        self.expect_held_data();
        self.start_sync(facts);
    }

    /// A state was taken, and the kill came before its repository was written down as revived.
    fn revive_awaited(&mut self, facts: &dyn Facts) {
        let states = self.purgatory.iter().filter_map(|held| match &held.needs {
            Needs::Refs(state) => Some((state.author, state.identifier.clone())),
            _ => None,
        });
        let states: BTreeSet<_> = states.collect();
        for (author, identifier) in states {
            for repo in self.registry.maintained_by(&author, &identifier) {
                self.revive(&repo, facts);
            }
        }
    }

    fn restore_needs(&mut self, event: &Arc<Event>, facts: &dyn Facts) {
        if let Some(outcome) = facts.foresee(event) {
            return self.give_up(&event.id, &refusal_of(outcome), facts);
        }
        let needs = match self.judge_kept(event, facts) {
            Verdict::Hold(needs) => needs,
            Verdict::Store => {
                self.join(event);
                Needs::Release(causes(event))
            }
            // Authority may come back before it expires.
            Verdict::Drop(Refusal::NotMaintainer) => match State::read(event) {
                Ok(state) if state.refs.is_ok() => Needs::Refs(state),
                _ => Needs::Nothing,
            },
            Verdict::Drop(Refusal::Orphan | Refusal::NotListed) => Needs::Release(causes(event)),
            Verdict::Drop(refusal) => return self.give_up(&event.id, &refusal, facts),
        };
        let until = self.purgatory.get(&event.id).map(|held| held.until);
        if let Some(until) = until {
            let guest = self.guest(event, &needs);
            let event = Arc::clone(event);
            self.purgatory.insert_from(event, needs, until, None, guest);
        }
    }

    /// Its date was good when it came, whatever the clock says now.
    fn judge_kept(&mut self, event: &Event, facts: &dyn Facts) -> Verdict {
        match self.judge(event, &Origin::Import, facts) {
            Verdict::Drop(Refusal::TooFarAhead(_) | Refusal::TooOld(_)) => {
                let now = std::mem::replace(&mut self.now.unix, event.created_at);
                let verdict = self.judge(event, &Origin::Import, facts);
                self.now.unix = now;
                verdict
            }
            verdict => verdict,
        }
    }

    /// A kill may have come before the repositories of expired and deleted announcements went, or
    /// before an announcement was written whose repository was made.
    fn clear_away(&mut self, facts: &dyn Facts) {
        for repo in std::mem::take(&mut self.on_disk) {
            let expired = self.registry.hosting(&repo) == Some(Standing::Remembered);
            let elsewhere = self.registry.standing(&repo) == Some(Standing::Held);
            if self.registry.is_hosted(&repo) {
                continue;
            }
            let was_applied = self.was_applied(&repo, facts);
            if !expired && !elsewhere && !was_applied {
                // If there is something in it, then not by us: a person must look.
                self.ask_git(&repo, GitTask::RemoveEmpty, Errand::Done);
                continue;
            }
            let retire = !expired && was_applied;
            self.discard(Discard {
                repo,
                retire,
                unhold: None,
            });
        }
    }
}

/// Why an event that was held is not any more.
fn refusal_of(outcome: StoreOutcome) -> Refusal {
    match outcome {
        StoreOutcome::Deleted => Refusal::Deleted,
        StoreOutcome::Vanished => Refusal::Vanished,
        StoreOutcome::Failed => Refusal::StoreFailed,
        StoreOutcome::Stored(_) | StoreOutcome::Duplicate | StoreOutcome::Replaced => {
            Refusal::Replaced
        }
    }
}
