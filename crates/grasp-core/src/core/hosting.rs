//! Repositories come and go with their announcements: what the registry says, git is made to
//! follow.

use std::sync::Arc;

use super::checking::Check;
use super::retry::{Again, Discard};
use super::{Core, Errand, GitTask};
use crate::admit::{Needs, Refusal};
use crate::clock::Timestamp;
use crate::event::{Event, Kind};
use crate::facts::Facts;
use crate::id::EventId;
use crate::nip34::{Announcement, RepoId};
use crate::purgatory::{Durability, Guest, Held};
use crate::registry::Standing;

impl Core {
    /// The held event that a repository stands on.
    pub(super) fn held_announcement(&self, repo: &RepoId) -> Option<&Held> {
        let announcement = self.registry.announcement(repo)?;
        self.purgatory.get(&announcement.rank.id)
    }

    /// Every held announcement of a repository.
    pub(super) fn held_versions(&self, repo: &RepoId) -> Vec<EventId> {
        let address = repo.address(Kind::ANNOUNCEMENT);
        let mut ids = self.purgatory.at_address(&address, Timestamp(u64::MAX));
        ids.retain(|id| {
            let held = self.purgatory.get(id);
            held.is_some_and(|held| !matches!(held.needs, Needs::Arrival(_)))
        });
        ids
    }

    /// The repository must be there before its owner hears that the announcement is taken.
    pub(super) fn host(&mut self, announcement: Announcement, facts: &dyn Facts) {
        let (repo, id) = (announcement.repo.clone(), announcement.rank.id);
        let reach = self.reach(&repo);
        self.enter(announcement, Standing::Held, facts);
        self.check_reach(&repo, &reach, facts);
        if self.registry.repo_of(&id).is_none() {
            return self.give_up(&id, &Refusal::Replaced, facts);
        }
        self.create(&repo);
    }

    pub(super) fn create(&mut self, repo: &RepoId) {
        *self.creating.entry(repo.clone()).or_default() += 1;
        self.ask_git(repo, GitTask::Create, Errand::Created(repo.clone()));
    }

    pub(super) fn on_created(&mut self, repo: &RepoId, created: bool, facts: &dyn Facts) {
        if let Some(asked) = self.creating.get_mut(repo) {
            *asked -= 1;
            if *asked == 0 {
                self.creating.remove(repo);
            }
        }
        if !self.registry.is_hosted(repo) {
            return;
        }
        if created {
            self.objects_came(repo, facts);
            return self.look_into(repo);
        }
        let held = self.held_announcement(repo);
        let held = held.map(|held| (held.event.id, held.durability));
        match held {
            // Nobody was promised anything yet.
            Some((id, Durability::InMemory)) => self.give_up(&id, &Refusal::StoreFailed, facts),
            Some((id, _)) => {
                self.refuse_submitters(&id, &Refusal::StoreFailed);
                self.retry_later(Again::Repo(repo.clone()));
            }
            None => self.retry_later(Again::Repo(repo.clone())),
        }
    }

    /// A kill may have left something where a repository was to be made.
    fn look_into(&mut self, repo: &RepoId) {
        if !self.checked.contains(repo) {
            self.check(repo.clone());
        }
    }

    /// A late state brings back a repository that had expired, if there is room for it to wait.
    pub(super) fn revive(&mut self, repo: &RepoId, facts: &dyn Facts) {
        if self.registry.hosting(repo) != Some(Standing::Remembered) {
            return;
        }
        let Some(held) = self.held_announcement(repo) else {
            return;
        };
        let (id, limits) = (held.event.id, &self.policy.limits);
        let (event, guest) = (&held.event, Guest::Anybody);
        let room = self.purgatory.room_for(event, held.holder, guest, limits);
        if room.is_err() {
            return;
        }
        let until = self.believed().saturating_add(limits.held_for);
        self.purgatory.extend(&id, until);
        self.purgatory.revive(&id);
        let reach = self.reach(repo);
        self.registry.set_standing(repo, Standing::Held);
        self.check_reach(repo, &reach, facts);
        self.create(repo);
        self.write_down(vec![id]);
    }

    /// Takes an announcement as its author's word; git follows.
    pub(super) fn announce(
        &mut self,
        announcement: Announcement,
        standing: Standing,
        facts: &dyn Facts,
    ) {
        let repo = announcement.repo.clone();
        let before = self.registry.hosting(&repo);
        let reach = self.reach(&repo);
        self.enter(announcement, standing, facts);
        self.follow(&repo, before, None);
        self.check_reach(&repo, &reach, facts);
    }

    /// The registry takes an announcement. A repository that is back is made anew, or had been put
    /// away: its refs are not those of the state that it had.
    fn enter(&mut self, announcement: Announcement, standing: Standing, facts: &dyn Facts) {
        let repo = announcement.repo.clone();
        if self.registry.standing(&repo).is_some() {
            return self.registry.announce(announcement, standing, None);
        }
        let recorded = facts.applied(&repo);
        self.registry.announce(announcement, standing, recorded);
        if self.registry.applied(&repo).is_some() {
            self.out_of_step.insert(repo);
        }
    }

    /// It has refs, or had when it was announced last.
    pub(super) fn was_applied(&self, repo: &RepoId, facts: &dyn Facts) -> bool {
        self.registry.applied(repo).is_some() || facts.applied(repo).is_some()
    }

    /// A held announcement was given up: the repository stands on what else is here.
    pub(super) fn withdraw(&mut self, event: &Event, unhold: Option<EventId>, facts: &dyn Facts) {
        if let Some(repo) = self.registry.repo_of(&event.id).cloned() {
            return self.unhost(&repo, unhold, facts);
        }
        // A newer one may have said that the repository is elsewhere, and a kill come before it
        // was put away.
        let read = Announcement::read(event, &self.policy.service);
        match read {
            Ok(Announcement { repo, lists_us, .. })
                if lists_us && !self.registry.is_hosted(&repo) =>
            {
                let retire = self.was_applied(&repo, facts);
                self.discard(Discard {
                    repo,
                    retire,
                    unhold,
                });
            }
            _ => unhold.into_iter().for_each(|id| self.unhold(id)),
        }
    }

    /// The announcement that a repository stands on is gone. Another may be here: an older one
    /// that waits, or one in the store.
    pub(super) fn unhost(&mut self, repo: &RepoId, unhold: Option<EventId>, facts: &dyn Facts) {
        let before = self.registry.hosting(repo);
        let reach = self.reach(repo);
        self.registry.forget(repo);
        let stored = facts.newest(&repo.address(Kind::ANNOUNCEMENT));
        let stored = stored.map(|event| (event, Standing::Served));
        let held = self.held_versions(repo).into_iter();
        let held = held.filter_map(|id| self.purgatory.get(&id));
        let others = held.map(|held| match held.remembered {
            true => (Arc::clone(&held.event), Standing::Remembered),
            false => (Arc::clone(&held.event), Standing::Held),
        });
        let others: Vec<_> = others.chain(stored).collect();
        for (event, standing) in others {
            if let Ok(announcement) = Announcement::read(&event, &self.policy.service) {
                let recorded = facts.applied(repo);
                self.registry.announce(announcement, standing, recorded);
            }
        }
        self.follow(repo, before, unhold);
        if self.registry.announcement(repo).is_none() {
            self.out_of_step.remove(repo);
        }
        self.check_reach(repo, &reach, facts);
        if self.registry.announcement(repo).is_some() {
            let maintained = self.registry.maintained_by(&repo.owner, &repo.identifier);
            self.settle(&repo.identifier, maintained, facts);
        }
    }

    /// An announcement that says when it ends (NIP-40) ends its repository, too.
    pub(super) fn unhost_swept(&mut self, facts: &dyn Facts) {
        for (repo, id) in self.registry.expired(self.surely_past()) {
            if self.purgatory.get(&id).is_some() {
                self.give_up(&id, &Refusal::Expired, facts);
            } else if facts.kind_of(&id).is_none() {
                self.unhost(&repo, None, facts);
            }
        }
    }

    /// Makes or puts away the bare repository, where its standing has changed.
    fn follow(&mut self, repo: &RepoId, before: Option<Standing>, unhold: Option<EventId>) {
        let (was, is) = (
            before >= Some(Standing::Held),
            self.registry.is_hosted(repo),
        );
        if is && !was && !self.creating.contains_key(repo) {
            self.create(repo);
        }
        if was && !is {
            self.forget_tips(repo);
            let retire = before == Some(Standing::Served);
            let repo = repo.clone();
            self.discard(Discard {
                repo,
                retire,
                unhold,
            });
        } else if let Some(id) = unhold {
            self.unhold(id);
        }
    }

    pub(super) fn discard(&mut self, discard: Discard) {
        if self.registry.is_hosted(&discard.repo) {
            // It is announced anew before the old one could be put away: what is in it now?
            discard.unhold.into_iter().for_each(|id| self.unhold(id));
            return self.check(discard.repo);
        }
        let is_announced = self.registry.standing(&discard.repo).is_some();
        if is_announced && self.registry.applied(&discard.repo).is_some() {
            self.out_of_step.insert(discard.repo.clone());
        }
        self.checked.remove(&discard.repo);
        if matches!(self.checking.get(&discard.repo), Some(Check::Comparing(_))) {
            self.end_check(&discard.repo);
        }
        let (repo, task) = (discard.repo.clone(), discard.task());
        self.ask_git(&repo, task, Errand::Discarded(discard));
    }

    pub(super) fn on_discarded(&mut self, discard: Discard, gone: bool) {
        if !gone {
            self.retry_later(Again::Discard(discard));
        } else if let Some(id) = discard.unhold {
            self.unhold(id);
        }
    }
}
