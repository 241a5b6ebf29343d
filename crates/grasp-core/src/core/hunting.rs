//! Where the hunt for git data meets the rest: held events make it expect data, its orders become
//! effects, and what it brings is released like what is pushed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::lacking::{Lacking, Wanted};
use super::retry::Again;
use super::{Core, Effect};
use crate::admit::{Needs, Origin};
use crate::clock::Timestamp;
use crate::facts::Facts;
use crate::git::ObjectId;
use crate::hunt::io::Fetched;
use crate::hunt::{Hunt, Order, Source};
use crate::id::{EventId, Pubkey};
use crate::nip34::{Identifier, PullRequest, RepoId};
use crate::registry::Registry;
use crate::shares::Shares;
use crate::ticket::FetchNo;

/// Events that are served and lack objects in some repository, about 400 bytes each and what they
/// name for servers: 4 MB and more.
const MAX_ABSENT: usize = 10_000;
/// Of these, how many one author may have signed.
const MAX_ABSENT_OF_AUTHOR: u64 = MAX_ABSENT as u64 / 4;

/// Lost data, and commits that another repository has, are looked for again so long after the last time that somebody began to.
const SEEK_AGAIN: Duration = Duration::from_secs(60 * 60);
/// Four attempts.
const SEEK_AGAIN_FOR: Duration = Duration::from_secs(5 * 60);

/// Data that is looked for though nothing is held for it.
#[derive(Debug, Default)]
pub struct Sought {
    /// Until when, as for held events.
    until: BTreeMap<RepoId, Timestamp>,
    /// Pull requests that are served from elsewhere, and whose commit is not in this one.
    absent: BTreeMap<RepoId, BTreeMap<EventId, Wanted>>,
    /// How many of these each author has.
    signers: Shares<Pubkey>,
}

impl Sought {
    pub fn is_sought(&self, repo: &RepoId, now: Timestamp) -> bool {
        self.until.get(repo).is_some_and(|until| *until > now)
    }

    /// The time that deadlines are written in has moved.
    pub fn shift(&mut self, by: i64) {
        for until in self.until.values_mut() {
            *until = until.shifted(by);
        }
    }

    pub fn is_full(&self) -> bool {
        let absent = self.absent.values().map(BTreeMap::len);
        absent.sum::<usize>() >= MAX_ABSENT
    }

    /// No more of this author are looked for.
    fn is_full_of(&self, signer: &Pubkey) -> bool {
        self.is_full() || self.signers.held_by(signer) >= MAX_ABSENT_OF_AUTHOR
    }

    /// True if it is new.
    fn insert(&mut self, repo: &RepoId, id: EventId, wanted: Wanted) -> bool {
        let signer = wanted.signer;
        let of_repo = self.absent.entry(repo.clone()).or_default();
        let before = of_repo.insert(id, wanted);
        self.signers.add(signer, 1);
        if let Some(before) = &before {
            self.signers.remove(before.signer, 1);
        }
        before.is_none()
    }

    fn forget_repo(&mut self, repo: &RepoId) {
        for wanted in self.absent.remove(repo).into_iter().flatten() {
            self.signers.remove(wanted.1.signer, 1);
        }
    }

    /// Those that were looked for in vain make room.
    fn forget_vain(&mut self, now: Timestamp) {
        let repos = self.absent.keys();
        let over: Vec<RepoId> = repos
            .filter(|repo| !self.is_sought(repo, now))
            .cloned()
            .collect();
        for repo in over {
            self.forget_repo(&repo);
        }
    }

    /// At any time since it is hosted.
    pub fn was_sought(&self, repo: &RepoId) -> bool {
        self.until.contains_key(repo)
    }

    fn forget(&mut self, repo: &RepoId, id: &EventId) {
        if let Some(absent) = self.absent.get_mut(repo) {
            if let Some(wanted) = absent.remove(id) {
                self.signers.remove(wanted.signer, 1);
            }
            if absent.is_empty() {
                self.absent.remove(repo);
            }
        }
    }

    pub fn get(&self, repo: &RepoId, id: &EventId) -> Option<&Wanted> {
        self.absent.get(repo)?.get(id)
    }

    pub fn absent_in(&self, repo: &RepoId) -> impl Iterator<Item = (&EventId, &Wanted)> {
        self.absent.get(repo).into_iter().flatten()
    }
}

impl Core {
    /// An event is held.
    pub(super) fn expect_data(&mut self, id: &EventId, source: Source) {
        if let Some(held) = self.purgatory.get_mut(id)
            && matches!(held.needs, Needs::Tip { .. })
            && held.servers.is_none()
        {
            let servers = PullRequest::clones(&held.event, &self.policy.service);
            held.servers = Some(servers.into());
        }
        let needs = self.purgatory.get(id).map(|held| held.needs.clone());
        for repo in needs.map_or_else(Vec::new, |needs| self.grounds_of(&needs)) {
            self.hunt.expect(&repo, source, self.now.mono);
        }
    }

    /// Something is missing for a held event, perhaps in another repository than before: who is
    /// hosted, and who may sign, changes.
    pub(super) fn go_on_expecting(&mut self, id: &EventId) {
        let Some(held) = self.purgatory.get(id) else {
            return;
        };
        let mut repos = self.grounds_of(&held.needs);
        repos.retain(|repo| !held.landed_in.contains(repo) && !self.hunt.is_after(repo));
        for repo in repos {
            self.hunt.expect(&repo, Source::Synced, self.now.mono);
        }
    }

    /// A start: what was held is looked for as if it had just come from elsewhere.
    pub(super) fn expect_held_data(&mut self) {
        let held: Vec<EventId> = self.purgatory.iter().map(|held| held.event.id).collect();
        if !held.is_empty() {
            self.hunt.begin_slowly(self.now.mono);
        }
        for id in held {
            self.expect_data(&id, Source::Synced);
        }
    }

    /// There is room again for repositories that were too many.
    fn expect_refused_data(&mut self) {
        let held: Vec<EventId> = self.purgatory.iter().map(|held| held.event.id).collect();
        for id in held {
            self.go_on_expecting(&id);
        }
    }

    /// Something that is served lacks its objects in this repository.
    pub(super) fn seek(&mut self, repo: &RepoId) {
        self.seek_for(repo, self.policy.limits.held_for);
    }

    /// What is not here may come back at a server that was down. Looked for less long than the first
    /// time, and as long as it takes.
    pub(super) fn seek_again(&mut self, repo: &RepoId, facts: &dyn Facts) {
        self.forget_tips_that_came(repo, facts);
        let absent = self.sought.absent.contains_key(repo);
        let lost = self.lost.in_repo(repo).next().is_some();
        if self.registry.is_hosted(repo) && (lost || absent) {
            self.seek_for(repo, SEEK_AGAIN_FOR);
        }
    }

    /// Or whose event is gone, or has nothing to do with the repository any more.
    fn forget_tips_that_came(&mut self, repo: &RepoId, facts: &dyn Facts) {
        let absent = self.sought.absent_in(repo).map(|(id, _)| *id);
        let over = absent.filter(|id| {
            let came = self.tips.is_at(id, repo);
            came || facts.kind_of(id).is_none() || !self.is_place(repo, id, facts)
        });
        for id in over.collect::<Vec<EventId>>() {
            self.sought.forget(repo, &id);
        }
    }

    fn seek_for(&mut self, repo: &RepoId, span: Duration) {
        let until = self.believed().saturating_add(span);
        let sought = self.sought.until.entry(repo.clone()).or_default();
        *sought = until.max(*sought);
        self.hunt.expect(repo, Source::Synced, self.now.mono);
        self.retry_after(SEEK_AGAIN, Again::Seek(repo.clone()));
    }

    /// A pull request is served, and this repository, which it names, does not have its commit.
    pub(super) fn seek_tip(&mut self, repo: &RepoId, id: EventId, wanted: Wanted) {
        if self.sought.is_full_of(&wanted.signer) {
            let now = self.believed();
            self.sought.forget_vain(now);
        }
        if self.sought.is_full_of(&wanted.signer) {
            return;
        }
        if self.sought.insert(repo, id, wanted) {
            self.seek(repo);
        }
    }

    /// Where the data of a held event is brought to.
    fn grounds_of(&self, needs: &Needs) -> Vec<RepoId> {
        match needs {
            Needs::Refs(state) => {
                let ground = ground(&self.registry, &state.author, &state.identifier);
                ground.into_iter().collect()
            }
            Needs::Tip { repos, .. } => {
                let hosted = repos.iter().filter(|repo| self.registry.is_hosted(repo));
                hosted.cloned().collect()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn on_flowing(&mut self, fetch: FetchNo, bytes: u64) {
        self.hunt.on_flowing(fetch, bytes, self.now.mono);
    }

    pub(super) fn on_fetched(&mut self, fetch: FetchNo, fetched: &Fetched, facts: &dyn Facts) {
        let now = self.now.mono;
        let (hunt, grounds) = self.hunt_with_grounds(facts);
        let repo = hunt.on_fetched(fetch, fetched, now, &grounds);
        if let Some(repo) = repo.filter(|repo| self.registry.is_hosted(repo))
            && fetched.present().next().is_some()
        {
            let present: BTreeSet<ObjectId> = fetched.present().copied().collect();
            self.set_absent_tips(&repo, &present, facts);
            self.objects_came(&repo, facts);
        }
    }

    pub(super) fn on_hunt_timeout(&mut self, facts: &dyn Facts) {
        let now = self.now.mono;
        if self.hunt.poll_timeout().is_some_and(|at| at <= now) {
            let (hunt, grounds) = self.hunt_with_grounds(facts);
            hunt.handle_timeout(now, &grounds);
        }
    }

    /// After every turn: the hunt hears what nobody waits for any more, and its orders become
    /// effects.
    pub(super) fn follow_hunt(&mut self, facts: &dyn Facts) {
        let left = self.purgatory.take_left();
        let changed: BTreeSet<RepoId> = left
            .iter()
            .flat_map(|needs| self.grounds_of(needs))
            .collect();
        let now = self.now.mono;
        for repo in changed {
            let (hunt, grounds) = self.hunt_with_grounds(facts);
            hunt.on_change(&repo, now, &grounds);
        }
        if self.hunt.take_room() {
            self.expect_refused_data();
        }
        while let Some(order) = self.hunt.poll_order() {
            self.effects.push_back(match order {
                Order::Fetch(fetch, ask) => Effect::Fetch { fetch, ask },
                Order::Stop(fetch) => Effect::StopFetch(fetch),
                Order::Leave(repo) => Effect::LeaveHunt(repo),
            });
        }
        while let Some(note) = self.hunt.poll_note() {
            self.effects.push_back(Effect::Hunted(note));
        }
    }

    /// A repository is hosted no longer.
    pub(super) fn forget_hunt(&mut self, repo: &RepoId) {
        self.hunt.forget(repo);
        self.sought.until.remove(repo);
        self.sought.forget_repo(repo);
    }

    fn set_absent_tips(&mut self, repo: &RepoId, present: &BTreeSet<ObjectId>, facts: &dyn Facts) {
        let Some(absent) = self.sought.absent.get(repo) else {
            return;
        };
        let came = |wanted: &Wanted| wanted.objects.iter().any(|id| present.contains(id));
        let found = absent.iter().filter(|(_, wanted)| came(wanted));
        let found: Vec<EventId> = found.map(|(id, _)| *id).collect();
        for id in &found {
            self.sought.forget(repo, id);
        }
        self.set_tips_again(repo, found, facts);
    }

    fn hunt_with_grounds<'a>(&'a mut self, facts: &'a dyn Facts) -> (&'a mut Hunt, Lacking<'a>) {
        let lacking = Lacking {
            policy: &self.policy,
            registry: &self.registry,
            purgatory: &self.purgatory,
            lost: &self.lost,
            hidden: &self.hidden,
            sought: &self.sought,
            facts,
            now: self.believed(),
        };
        (&mut self.hunt, lacking)
    }
}

/// Of all repositories that a state speaks for, the one that its objects are brought to; the
/// others get them from there.
pub(super) fn ground(
    registry: &Registry,
    author: &Pubkey,
    identifier: &Identifier,
) -> Option<RepoId> {
    let mut repos = registry.maintained_by(author, identifier);
    repos.retain(|repo| registry.is_hosted(repo));
    repos
        .into_iter()
        .min_by_key(|repo| (repo.owner != *author, repo.owner))
}

pub(super) fn source(origin: &Origin) -> Source {
    match origin {
        Origin::Client { .. } => Source::User,
        Origin::Import | Origin::Sync(_) => Source::Synced,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::push::Backing;

    #[test]
    fn one_author_has_a_quarter_of_what_is_looked_for_elsewhere() {
        let repo = |n: u32| {
            let identifier = Identifier::parse(&format!("r{n}")).unwrap();
            RepoId::new(Pubkey([1; 32]), identifier)
        };
        let id = |n: u32| {
            let mut id = [0; 32];
            id[..4].copy_from_slice(&n.to_be_bytes());
            EventId(id)
        };
        let of = |author| Wanted::new(Arc::default(), Pubkey([author; 32]), Backing::PullRequests);
        let mut sought = Sought::default();
        let mut n = 0;
        while !sought.is_full_of(&Pubkey([7; 32])) {
            assert!(sought.insert(&repo(n % 9), id(n), of(7)));
            assert!(!sought.insert(&repo(n % 9), id(n), of(7)), "once");
            n += 1;
        }
        assert_eq!(n as usize, MAX_ABSENT / 4);
        assert!(!sought.is_full_of(&Pubkey([8; 32])));
        sought.forget(&repo(0), &id(0));
        assert!(!sought.is_full_of(&Pubkey([7; 32])));
        sought.forget_vain(Timestamp(0));
        assert_eq!(sought.signers.holders(), 0);
    }
}
