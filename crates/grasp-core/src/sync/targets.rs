//! Which relay is to be asked for what. A change touches the relays of its repository and no
//! others, however many there are.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;

use super::index::{RepoSyncIndex, Stage};
use super::items::{Items, RepoIx, RootIx};
use super::relays::RelaySyncIndex;
use crate::clock::Timestamp;
use crate::id::{EventId, Pubkey};
use crate::limits::SyncLimits;
use crate::nip34::RepoId;
use crate::relay_url::RelayUrl;
use crate::ticket::RelayNo;

/// The two indexes, kept in step.
#[derive(Debug, Default)]
pub struct Targets {
    pub repos: RepoSyncIndex,
    pub relays: RelaySyncIndex,
    /// Relays whose targets have changed since somebody looked.
    changed: BTreeSet<RelayNo>,
    /// Relays that nobody but this owner names.
    sole: FxHashMap<Pubkey, usize>,
    /// Places in the lists of repositories whose relay was not taken in, because there are enough.
    pub over_limit: u64,
    /// Some roots were not taken in, because there are enough, or enough of one owner.
    pub left_out_roots: bool,
}

impl Targets {
    /// The operator names a relay: announcements are asked of it, and it is never left.
    pub fn bootstrap(&mut self, url: &RelayUrl) -> RelayNo {
        let no = self.relays.enter(url);
        if let Some(relay) = self.relays.get_mut(no) {
            let sole = relay.sole_owner();
            relay.bootstrap = true;
            self.count_sole(sole, None);
        }
        self.changed.insert(no);
        no
    }

    /// A repository is announced, anew perhaps: with these relays, and so far along.
    pub fn announce(
        &mut self,
        repo: &RepoId,
        urls: &[RelayUrl],
        stage: Stage,
        limits: &SyncLimits,
    ) {
        let ix = self.repos.enter(repo);
        let (relays, left_out) = self.admitted(repo, urls, limits);
        let Some(needs) = self.repos.get_mut(ix) else {
            return;
        };
        let before = std::mem::replace(&mut needs.left_out, left_out);
        self.over_limit = self.over_limit + u64::from(left_out) - u64::from(before);
        let less = needs.stage > stage;
        needs.stage = stage;
        let before = std::mem::replace(&mut needs.relays, relays.clone());
        for no in before.iter().filter(|no| less || !relays.contains(no)) {
            self.unlist(*no, ix, repo);
        }
        for no in &relays {
            self.list(*no, ix, repo);
        }
    }

    /// A repository is not ours any more.
    pub fn forget(&mut self, repo: &RepoId) {
        let Some(ix) = self.repos.find(repo) else {
            return;
        };
        let relays = self.repos.get(ix).map(|needs| needs.relays.clone());
        for no in relays.unwrap_or_default() {
            self.unlist(no, ix, repo);
        }
        if let Some(needs) = self.repos.leave(ix) {
            self.over_limit -= u64::from(needs.left_out);
        }
    }

    /// An issue, a patch or a pull request belongs to these repositories.
    pub fn add_root(
        &mut self,
        id: EventId,
        repos: &[RepoId],
        at: Timestamp,
        limits: &SyncLimits,
    ) -> Option<RootIx> {
        let repos = self.with_room(id, repos, limits);
        if repos.is_empty() {
            return None;
        }
        let root = self.repos.enter_root(id, at);
        let items = Items {
            roots: RoaringBitmap::from_iter([root.0]),
            ..Items::default()
        };
        for ix in repos {
            let is_new = self.repos.put_root(root, ix);
            let needs = self.repos.get(ix).filter(|_| is_new);
            let Some(needs) = needs.filter(|needs| needs.stage == Stage::Served) else {
                continue;
            };
            for no in &needs.relays {
                if let Some(relay) = self.relays.get_mut(*no) {
                    relay.add_target(&items);
                    self.changed.insert(*no);
                }
            }
        }
        Some(root)
    }

    /// Some of these repositories are synced, and none has room for that root.
    pub fn is_full(&self, id: EventId, repos: &[RepoId], limits: &SyncLimits) -> bool {
        let mut synced = repos.iter().filter_map(|repo| self.repos.find(repo));
        synced.next().is_some() && self.with_room(id, repos, limits).is_empty()
    }

    /// Those that have the root, or may have it: not too many in all, nor of one owner.
    fn with_room(&self, id: EventId, repos: &[RepoId], limits: &SyncLimits) -> Vec<RepoIx> {
        let root = self.repos.find_root(&id);
        let room = root.is_some() || self.repos.roots() < limits.roots;
        let mut found = Vec::new();
        for repo in repos {
            let Some(ix) = self.repos.find(repo) else {
                continue;
            };
            let has = |root: RootIx| {
                let needs = self.repos.get(ix);
                needs.is_some_and(|needs| needs.roots.contains(root.0))
            };
            let own_room = self.repos.has_room(&repo.owner, limits.roots);
            if root.is_some_and(has) || (room && own_room) {
                found.push(ix);
            }
        }
        found
    }

    /// Relays whose targets have changed since this was asked last.
    pub fn take_changed(&mut self) -> BTreeSet<RelayNo> {
        std::mem::take(&mut self.changed)
    }

    fn list(&mut self, no: RelayNo, ix: RepoIx, repo: &RepoId) {
        let Some(needs) = self.repos.get(ix) else {
            return;
        };
        let items = wanted(ix, needs.stage, &needs.roots);
        let Some(relay) = self.relays.get_mut(no) else {
            return;
        };
        let sole = relay.sole_owner();
        if relay.listed_by.insert(ix.0) {
            *relay.owners.entry(repo.owner).or_default() += 1;
        }
        relay.add_target(&items);
        let now = relay.sole_owner();
        self.changed.insert(no);
        self.count_sole(sole, now);
    }

    /// A root that another of the relay's repositories has too stays.
    fn unlist(&mut self, no: RelayNo, ix: RepoIx, repo: &RepoId) {
        let Some(relay) = self.relays.get_mut(no) else {
            return;
        };
        let sole = relay.sole_owner();
        if relay.listed_by.remove(ix.0)
            && let Some(count) = relay.owners.get_mut(&repo.owner)
        {
            *count -= 1;
            if *count == 0 {
                relay.owners.remove(&repo.owner);
            }
        }
        let mut gone = Items {
            repos: RoaringBitmap::from_iter([ix.0]),
            ..Items::default()
        };
        if let Some(needs) = self.repos.get(ix) {
            gone.roots = needs.roots.clone();
        }
        for other in &relay.listed_by {
            if gone.roots.is_empty() {
                break;
            }
            let needs = self.repos.get(RepoIx(other));
            if let Some(needs) = needs.filter(|needs| needs.stage == Stage::Served) {
                gone.roots -= &needs.roots;
            }
        }
        relay.drop_target(&gone);
        let now = relay.sole_owner();
        self.changed.insert(no);
        self.count_sole(sole, now);
    }

    fn count_sole(&mut self, before: Option<Pubkey>, now: Option<Pubkey>) {
        if let Some(owner) = before
            && let Some(count) = self.sole.get_mut(&owner)
        {
            *count -= 1;
            if *count == 0 {
                self.sole.remove(&owner);
            }
        }
        if let Some(owner) = now {
            *self.sole.entry(owner).or_default() += 1;
        }
    }

    /// The relays of an announcement that are taken in, sorted: not too many of one repository, of
    /// one owner, and in all. And how many are not.
    fn admitted(
        &mut self,
        repo: &RepoId,
        urls: &[RelayUrl],
        limits: &SyncLimits,
    ) -> (Vec<RelayNo>, u32) {
        let mut admitted = BTreeSet::new();
        let (mut new, mut left_out) = (0, 0);
        for url in urls {
            let known = self.relays.find(url);
            if known.is_some_and(|known| admitted.contains(&known)) {
                continue;
            }
            let full = admitted.len() == limits.relays_per_repository;
            if full || (known.is_none() && !self.has_room(repo, new, limits)) {
                left_out += 1;
                continue;
            }
            new += usize::from(known.is_none());
            admitted.insert(self.relays.enter(url));
        }
        (admitted.into_iter().collect(), left_out)
    }

    /// Relays that nobody else names are an owner's own expense.
    fn has_room(&self, repo: &RepoId, new: usize, limits: &SyncLimits) -> bool {
        let own = self.sole.get(&repo.owner).copied().unwrap_or_default();
        self.relays.len() < limits.relays && own + new < limits.relays_per_owner
    }

    /// The same made anew from the repositories alone; for tests and audits.
    pub fn derive_relay_targets(&self) -> BTreeMap<RelayNo, Items> {
        let mut targets: BTreeMap<RelayNo, Items> = self
            .relays
            .iter()
            .map(|(no, _)| (no, Items::announcements()))
            .collect();
        for (ix, needs) in self.repos.iter() {
            for no in &needs.relays {
                let items = wanted(ix, needs.stage, &needs.roots);
                targets.entry(*no).or_default().add(&items);
            }
        }
        targets
    }

    pub fn audit(&self) -> Result<(), String> {
        self.repos.audit()?;
        let derived = self.derive_relay_targets();
        for (no, relay) in self.relays.iter() {
            relay.audit()?;
            if derived.get(&no) != Some(&relay.target) {
                return Err(format!("the target of {} is out of date", relay.url));
            }
        }
        Ok(())
    }
}

fn wanted(ix: RepoIx, stage: Stage, roots: &RoaringBitmap) -> Items {
    match stage {
        Stage::Announced => Items::default(),
        Stage::Served => Items {
            announcements: false,
            repos: RoaringBitmap::from_iter([ix.0]),
            roots: roots.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nip34::Identifier;

    fn repo(owner: u8, name: u8) -> RepoId {
        let name = format!("r{name}");
        RepoId::new(Pubkey([owner; 32]), Identifier::parse(&name).unwrap())
    }

    fn url(n: u32) -> RelayUrl {
        RelayUrl::parse(&format!("wss://relay{n}.example")).unwrap()
    }

    fn root(n: u32) -> EventId {
        let mut id = [0; 32];
        id[..4].copy_from_slice(&n.to_be_bytes());
        EventId(id)
    }

    fn missing(targets: &Targets, n: u32) -> (u64, u64) {
        let no = targets.relays.find(&url(n)).unwrap();
        let missing = targets.relays.get(no).unwrap().missing();
        (missing.repos.len(), missing.roots.len())
    }

    /// E4: a root event of two repositories is watched for both, at the relays of both.
    #[test]
    fn a_root_of_two_repositories_is_wanted_at_the_relays_of_both() {
        let limits = SyncLimits::default();
        let mut targets = Targets::default();
        targets.announce(&repo(1, 1), &[url(1), url(2)], Stage::Served, &limits);
        targets.announce(&repo(2, 1), &[url(3)], Stage::Served, &limits);
        let both = [repo(1, 1), repo(2, 1)];
        targets.add_root(root(1), &both, Timestamp(1), &limits);
        for n in 1..=3 {
            assert_eq!(missing(&targets, n), (1, 1), "{n}");
        }
        targets.forget(&repo(1, 1));
        assert_eq!(missing(&targets, 1), (0, 0));
        assert_eq!(missing(&targets, 3), (1, 1));
        targets.audit().unwrap();
    }

    /// E5: only what is neither pending nor confirmed is missing.
    #[test]
    fn what_is_pending_or_confirmed_is_not_missing() {
        let limits = SyncLimits::default();
        let mut targets = Targets::default();
        targets.announce(&repo(1, 1), &[url(1)], Stage::Served, &limits);
        targets.add_root(root(1), &[repo(1, 1)], Timestamp(1), &limits);
        let no = targets.relays.find(&url(1)).unwrap();
        let relay = targets.relays.get_mut(no).unwrap();
        let mut all = relay.missing().clone();
        let first = all.take(2);
        relay.begin(&first);
        assert_eq!(relay.missing().len(), 1);
        relay.confirm(&first);
        assert_eq!(relay.missing().len(), 1);
        relay.begin(&all);
        relay.give_back(&all);
        assert_eq!(relay.missing(), &all);
        relay.doubt(&relay.target.clone());
        assert_eq!(relay.missing().len(), 3);
        assert_eq!(relay.read, first, "a doubt is no loss");
        targets.audit().unwrap();
    }

    #[test]
    fn a_repository_that_waits_for_its_data_has_relays_and_no_roots_there() {
        let limits = SyncLimits::default();
        let mut targets = Targets::default();
        targets.announce(&repo(1, 1), &[url(1)], Stage::Announced, &limits);
        targets.add_root(root(1), &[repo(1, 1)], Timestamp(1), &limits);
        assert_eq!(missing(&targets, 1), (0, 0));
        targets.announce(&repo(1, 1), &[url(1)], Stage::Served, &limits);
        assert_eq!(missing(&targets, 1), (1, 1));
    }

    #[test]
    fn relay_lists_are_bounded_for_each_repository_each_owner_and_in_all() {
        let limits = SyncLimits {
            relays_per_repository: 5,
            relays_per_owner: 7,
            relays: 10,
            ..SyncLimits::default()
        };
        let mut targets = Targets::default();
        let urls = |range: std::ops::Range<u32>| range.map(url).collect::<Vec<_>>();
        targets.announce(&repo(1, 1), &urls(0..1_000), Stage::Served, &limits);
        assert_eq!(targets.relays.len(), 5);
        targets.announce(&repo(1, 2), &urls(10..1_000), Stage::Served, &limits);
        assert_eq!(targets.relays.len(), 7, "the owner's allowance is used up");
        targets.announce(&repo(2, 1), &urls(0..5), Stage::Served, &limits);
        targets.announce(&repo(1, 3), &urls(20..30), Stage::Served, &limits);
        assert_eq!(
            targets.relays.len(),
            10,
            "what others name too is not his alone"
        );
        assert_eq!(targets.over_limit, 995 + 988 + 7);
        targets.announce(&repo(1, 1), &urls(0..1_000), Stage::Served, &limits);
        assert_eq!(
            targets.over_limit,
            995 + 988 + 7,
            "who comes again counts once"
        );
        targets.forget(&repo(1, 1));
        targets.announce(&repo(1, 2), &urls(10..11), Stage::Served, &limits);
        targets.announce(&repo(1, 3), &urls(20..21), Stage::Served, &limits);
        assert_eq!(targets.over_limit, 0);
        targets.audit().unwrap();
    }

    #[test]
    fn roots_go_with_their_last_repository_and_their_numbers_are_not_used_again() {
        let limits = SyncLimits {
            roots: 2,
            ..SyncLimits::default()
        };
        let mut targets = Targets::default();
        targets.announce(&repo(1, 1), &[url(1)], Stage::Served, &limits);
        targets.announce(&repo(2, 1), &[url(1)], Stage::Served, &limits);
        let both = [repo(1, 1), repo(2, 1)];
        let first = targets.add_root(root(1), &both, Timestamp(1), &limits);
        let second = targets.add_root(root(2), &both[..1], Timestamp(1), &limits);
        assert!(targets.is_full(root(3), &both, &limits));
        assert!(!targets.is_full(root(2), &both, &limits), "it is known");
        targets.forget(&repo(1, 1));
        assert_eq!(targets.repos.roots(), 1);
        assert_eq!(targets.repos.find_root(&root(1)), first);
        assert_eq!(targets.repos.find_root(&root(2)), None);
        let third = targets.add_root(root(3), &both, Timestamp(1), &limits);
        assert!(third.is_some() && third != second);
        assert_eq!(missing(&targets, 1), (1, 2));
        targets.audit().unwrap();
        targets.forget(&repo(2, 1));
        assert_eq!(targets.repos.roots(), 0);
        targets.audit().unwrap();
    }

    #[test]
    fn one_owners_issues_leave_room_for_everybody_elses() {
        let limits = SyncLimits {
            roots: 800,
            ..SyncLimits::default()
        };
        let mut targets = Targets::default();
        for name in [repo(1, 1), repo(1, 2), repo(2, 1)] {
            targets.announce(&name, &[url(1)], Stage::Served, &limits);
        }
        for n in 0..800 {
            let of = repo(1, 1 + (n % 2) as u8);
            targets.add_root(root(n), &[of], Timestamp(1), &limits);
        }
        assert_eq!(targets.repos.roots(), 100);
        let both = [repo(1, 1), repo(2, 1)];
        assert!(targets.is_full(root(900), &both[..1], &limits));
        let shared = targets.add_root(root(900), &both, Timestamp(1), &limits);
        assert!(shared.is_some(), "as the other's");
        targets.forget(&repo(1, 1));
        assert!(!targets.is_full(root(901), &[repo(1, 2)], &limits));
        targets.audit().unwrap();
    }

    #[test]
    fn whatever_happens_the_sums_are_those_made_anew() {
        let limits = SyncLimits::default();
        for seed in 0..20 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut targets = Targets::default();
            for _ in 0..300 {
                let repo = repo(rng.u8(0..3), rng.u8(0..3));
                let urls: Vec<_> = (0..rng.u32(0..4)).map(|_| url(rng.u32(0..6))).collect();
                let stage = match rng.bool() {
                    true => Stage::Served,
                    false => Stage::Announced,
                };
                match rng.u8(0..6) {
                    0 | 1 => targets.announce(&repo, &urls, stage, &limits),
                    2 => targets.forget(&repo),
                    3 | 4 => {
                        let id = root(rng.u32(0..40));
                        targets.add_root(id, &[repo], Timestamp(1), &limits);
                    }
                    _ => some_history(&mut targets, &mut rng),
                }
                targets.audit().unwrap();
            }
        }
    }

    fn some_history(targets: &mut Targets, rng: &mut fastrand::Rng) {
        let relays: Vec<RelayNo> = targets.relays.iter().map(|(no, _)| no).collect();
        let Some(relay) = rng.choice(relays).and_then(|no| targets.relays.get_mut(no)) else {
            return;
        };
        let items = relay.missing().clone().take(3);
        relay.begin(&items);
        match rng.u8(0..4) {
            0 => relay.give_back(&items),
            1 => relay.confirm(&items),
            2 => {
                relay.doubt(&items);
            }
            _ => {}
        }
    }
}
