//! What has waited long enough. Deadlines are in unix seconds, because they outlive the process, and
//! of the time that is believed: a wall clock that jumps gives nothing up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Core;
use super::retry::Discard;
use crate::admit::{Needs, Origin, Refusal, Verdict};
use crate::clock::{Mono, Now, Timestamp};
use crate::event::Event;
use crate::facts::Facts;
use crate::id::{EventId, Pubkey};
use crate::nip34::RepoId;
use crate::purgatory::REMEMBERED;
use crate::registry::Standing;

/// How much longer something waits that is being worked on right now.
const BUSY: Duration = Duration::from_secs(60);
/// Events that expire in one turn, and tips; the others in the next one, at once.
const AT_ONCE: usize = 256;

impl Core {
    pub(super) fn set_time(&mut self, now: Now) {
        self.now = now;
        if let Some(by) = self.clock.observe(now) {
            self.shift_deadlines(by);
        }
    }

    /// The time in which deadlines of what is held are written.
    pub fn believed(&self) -> Timestamp {
        self.clock.unix(self.now)
    }

    /// What has ended before it is over by the wall clock, and by the one that is believed.
    pub(super) fn surely_past(&self) -> Timestamp {
        self.believed().min(self.now.unix)
    }

    /// Another time is believed from now on: what is held has as long to wait as before.
    fn shift_deadlines(&mut self, by: i64) {
        let held = self.purgatory.iter();
        let held: Vec<_> = held.map(|held| (held.event.id, held.until)).collect();
        for (id, until) in held {
            self.purgatory.extend(&id, until.shifted(by));
        }
        self.early_tips.shift(by);
        self.sought.shift(by);
    }

    pub(super) fn next_expiry(&self) -> Option<Mono> {
        let held = self.purgatory.next_deadline();
        let tips = self.early_tips.next_deadline();
        let until = held.into_iter().chain(tips).min()?;
        let wait = until.0.saturating_sub(self.believed().0);
        Some(self.now.mono + Duration::from_secs(wait))
    }

    pub(super) fn expire(&mut self, facts: &dyn Facts) {
        for _ in 0..AT_ONCE {
            let Some(id) = self.purgatory.expired(self.believed()) else {
                break;
            };
            if self.is_busy(&id) {
                let until = self.believed().saturating_add(BUSY);
                self.purgatory.extend(&id, until);
            } else {
                self.expire_one(&id, facts);
            }
        }
        self.expire_tips();
    }

    fn expire_one(&mut self, id: &EventId, facts: &dyn Facts) {
        let Some(held) = self.purgatory.get(id) else {
            return;
        };
        if let Needs::State(announcement) = &held.needs
            && self.registry.repo_of(id) == Some(&announcement.repo)
            && self.registry.hosting(&announcement.repo) == Some(Standing::Held)
        {
            let repo = announcement.repo.clone();
            return match self.awaited_state(&repo) {
                Some(until) => self.purgatory.extend(id, until),
                None => self.remember(id, &repo, facts),
            };
        }
        let (event, needs) = (Arc::clone(&held.event), held.needs.clone());
        if matches!(needs, Needs::Release(_)) && self.could_join(&event, facts) {
            // What it waited for has come; only the disk has not taken it yet.
            let until = self.believed().saturating_add(BUSY);
            return self.purgatory.extend(id, until);
        }
        self.tell_sync_expired(&event, &needs);
        self.give_up(id, &Refusal::Expired, facts);
    }

    fn could_join(&self, event: &Event, facts: &dyn Facts) -> bool {
        self.judge(event, &Origin::Import, facts) == Verdict::Store
    }

    /// A state that still waits for its push keeps the repository, as a late one would revive it.
    fn awaited_state(&self, repo: &RepoId) -> Option<Timestamp> {
        let members = self.registry.maintainers(repo);
        let states = members.iter().flat_map(|member| {
            let of = RepoId::new(*member, repo.identifier.clone());
            self.purgatory.states_of(&of)
        });
        let held = states.filter_map(|id| self.purgatory.get(id));
        let until = held.map(|held| held.until).max();
        until.filter(|until| *until > self.believed())
    }

    /// The bare repository goes, the announcement stays in mind for a day.
    fn remember(&mut self, id: &EventId, repo: &RepoId, facts: &dyn Facts) {
        let reach = self.reach(repo);
        self.registry.set_standing(repo, Standing::Remembered);
        let until = self.believed().saturating_add(REMEMBERED);
        self.purgatory.remember(id, until);
        self.check_reach(repo, &reach, facts);
        self.forget_tips(repo);
        self.discard(Discard {
            repo: repo.clone(),
            retire: false,
            unhold: None,
        });
        self.write_down(vec![*id]);
        self.forget_oldest(&repo.owner, facts);
    }

    /// Too many are kept in mind: those that have been longest go as if their day were over.
    fn forget_oldest(&mut self, author: &Pubkey, facts: &dyn Facts) {
        while let Some(id) = self
            .purgatory
            .too_old_to_remember(author, &self.policy.limits)
        {
            self.expire_one(&id, facts);
        }
    }

    /// Something is under way that may serve it.
    pub(super) fn is_busy(&self, id: &EventId) -> bool {
        let Some(held) = self.purgatory.get(id) else {
            return false;
        };
        let pushed_to = match &held.needs {
            Needs::State(announcement) => self.is_pushed_to(&announcement.repo),
            _ => self.is_pushed(id),
        };
        pushed_to || self.is_worked_on(id) || !held.submitters.is_empty()
    }

    /// The store or git will have a word on it.
    pub(super) fn is_worked_on(&self, id: &EventId) -> bool {
        let working = match self.purgatory.get(id).map(|held| &held.needs) {
            Some(Needs::State(announcement)) => {
                let repo = &announcement.repo;
                self.is_settling(repo) || self.creating.contains_key(repo)
            }
            Some(Needs::Refs(state)) => self.is_settling_for(&state.author, &state.identifier),
            Some(Needs::Tip { .. }) => self.landing.contains_key(id),
            _ => false,
        };
        working || self.in_flight.contains_key(id)
    }

    fn expire_tips(&mut self) {
        let mut expired: BTreeMap<RepoId, Vec<EventId>> = BTreeMap::new();
        for _ in 0..AT_ONCE {
            let Some((repo, id)) = self.early_tips.take_expired(self.believed()) else {
                break;
            };
            expired.entry(repo).or_default().push(id);
        }
        for (repo, ids) in expired {
            self.remove_tips(&repo, ids);
        }
    }
}
