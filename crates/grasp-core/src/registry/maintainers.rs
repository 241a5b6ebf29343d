//! Who may sign a repository's state: a bounded walk from its owner.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::{MaintainerRule, Registry, Standing};
use crate::id::Pubkey;
use crate::nip34::{Identifier, RepoId};

/// Members of one set.
pub const MAX_MEMBERS: usize = 64;
/// Keys that are listed and not yet confirmed. Each is compared once with each member: 256 x 64 =
/// 16,384 look-ups in the worst walk, well under a millisecond.
const MAX_INVITED: usize = 256;
/// Keys on the way from a maintainer to the owners who trust it, each worth a walk that is kept in
/// mind until somebody's list changes under that identifier.
const MAX_OWNERS: usize = 256;
/// Identifiers whose walks are kept in mind.
const MAX_REMEMBERED: usize = 4_096;

/// A key that a member lists.
struct Invited {
    key: Pubkey,
    /// How many of the members it was compared with.
    compared: usize,
}

impl Registry {
    /// The owner first; the rest in the order of the walk.
    pub fn maintainers(&self, repo: &RepoId) -> Arc<[Pubkey]> {
        let mut walks = self.walks.borrow_mut();
        if walks.len() >= MAX_REMEMBERED {
            walks.clear();
        }
        let walks = walks.entry(repo.identifier.clone()).or_default();
        let members = walks
            .entry(repo.owner)
            .or_insert_with(|| self.walk(repo).into());
        Arc::clone(members)
    }

    pub fn is_maintainer(&self, repo: &RepoId, key: &Pubkey) -> bool {
        *key == repo.owner || self.maintainers(repo).contains(key)
    }

    /// Repositories of ours, hosted or remembered, whose state this key may sign.
    pub fn maintained_by(&self, key: &Pubkey, identifier: &Identifier) -> Vec<RepoId> {
        let owners = match self.rule {
            MaintainerRule::Reciprocal => self.answered_by(key, identifier),
            MaintainerRule::Listed => self.trusting(key, identifier),
        };
        let owned = |owner: Pubkey| RepoId::new(owner, identifier.clone());
        let repos = owners.into_iter().map(owned);
        repos
            .filter(|repo| self.hosting(repo).is_some() && self.is_maintainer(repo, key))
            .collect()
    }

    /// A member joins by listing one who was there before, up to the owner: so every owner that a
    /// key maintains for is found among those whom it lists, and whom they list. Strangers who
    /// list the key are not in the way.
    fn answered_by(&self, key: &Pubkey, identifier: &Identifier) -> Vec<Pubkey> {
        closure(*key, |key| {
            self.listed_by_author(key, identifier).iter().copied()
        })
    }

    /// Whoever lists the key, and who lists them: those first whose repositories are served.
    fn trusting(&self, key: &Pubkey, identifier: &Identifier) -> Vec<Pubkey> {
        closure(*key, |key| self.ranked_listers(key, identifier))
    }

    fn ranked_listers<'a>(
        &'a self,
        key: &Pubkey,
        identifier: &'a Identifier,
    ) -> impl Iterator<Item = Pubkey> + use<'a> {
        let listers = self.listers(key, identifier).iter();
        let is_served = |lister: &&Pubkey| {
            let entry = self.entry(lister, identifier);
            entry.is_some_and(|entry| entry.standing == Standing::Served)
        };
        let served = listers.clone().filter(is_served);
        let others = listers.filter(move |lister| !is_served(lister));
        served.chain(others).take(MAX_OWNERS).copied()
    }

    /// The best standing of a repository of ours in whose maintainer set somebody lists this key,
    /// whether or not the key has answered.
    pub fn invites(&self, key: &Pubkey, identifier: &Identifier) -> Option<Standing> {
        let mut best = None;
        for lister in self.ranked_listers(key, identifier) {
            let repos = self.maintained_by(&lister, identifier);
            let standing = repos.iter().filter_map(|repo| self.hosting(repo)).max();
            best = best.max(standing);
            if best == Some(Standing::Served) {
                break;
            }
        }
        best
    }

    fn walk(&self, repo: &RepoId) -> Vec<Pubkey> {
        let mut members = vec![repo.owner];
        let mut known: FxHashSet<Pubkey> = members.iter().copied().collect();
        let mut invited: Vec<Invited> = Vec::new();
        let mut next = 0;
        while let Some(member) = members.get(next).copied() {
            next += 1;
            for key in self.listed_by_author(&member, &repo.identifier) {
                if invited.len() < MAX_INVITED && known.insert(*key) {
                    let (key, compared) = (*key, 0);
                    invited.push(Invited { key, compared });
                }
            }
            invited.retain_mut(|guest| {
                let joins = members.len() < MAX_MEMBERS && self.joins(guest, &members, repo);
                if joins {
                    members.push(guest.key);
                }
                !joins
            });
        }
        members
    }

    fn listed_by_author(&self, author: &Pubkey, identifier: &Identifier) -> &[Pubkey] {
        self.entry(author, identifier)
            .map_or(&[], |entry| entry.announcement.listed.as_slice())
    }

    fn joins(&self, guest: &mut Invited, members: &[Pubkey], repo: &RepoId) -> bool {
        let new = members.get(guest.compared..).unwrap_or_default();
        guest.compared = members.len();
        match self.rule {
            MaintainerRule::Listed => true,
            MaintainerRule::Reciprocal => {
                let answer = self.entry(&guest.key, &repo.identifier);
                answer.is_some_and(|answer| new.iter().any(|key| answer.listed.contains(key)))
            }
        }
    }
}

/// A key and those found from it, the nearest first.
fn closure<I: Iterator<Item = Pubkey>>(key: Pubkey, next: impl Fn(&Pubkey) -> I) -> Vec<Pubkey> {
    let mut found = vec![key];
    let mut known: FxHashSet<Pubkey> = found.iter().copied().collect();
    let mut at = 0;
    while let Some(key) = found.get(at).copied() {
        at += 1;
        for other in next(&key) {
            if found.len() < MAX_OWNERS && known.insert(other) {
                found.push(other);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::id::EventId;
    use crate::nip34::{Announcement, Rank};

    fn key(n: u8) -> Pubkey {
        Pubkey([n; 32])
    }

    fn repo(owner: u8) -> RepoId {
        RepoId::new(key(owner), Identifier::parse("r").unwrap())
    }

    fn announce(registry: &mut Registry, author: u8, listed: &[u8], second: u64) {
        let rank = Rank {
            created_at: Timestamp(second),
            id: EventId([author; 32]),
        };
        let listed = listed.iter().copied().map(key).collect();
        let repo = repo(author);
        let announcement = Announcement {
            repo,
            rank,
            listed,
            lists_us: true,
            expires: None,
            relays: Vec::new(),
            clones: Vec::new(),
        };
        registry.announce(announcement, Standing::Served);
    }

    #[test]
    fn a_listed_key_has_authority_once_it_answers() {
        let mut registry = Registry::default();
        announce(&mut registry, 1, &[2], 1);
        assert_eq!(*registry.maintainers(&repo(1)), [key(1)]);
        assert_eq!(
            registry.invites(&key(2), &repo(1).identifier),
            Some(Standing::Served)
        );
        announce(&mut registry, 2, &[1], 1);
        assert_eq!(*registry.maintainers(&repo(1)), [key(1), key(2)]);
        assert_eq!(
            registry.maintained_by(&key(2), &repo(1).identifier),
            [repo(2), repo(1)]
        );
        assert_eq!(registry.maintained_by(&key(3), &repo(1).identifier), []);
    }

    #[test]
    fn under_the_other_rule_it_has_it_at_once() {
        let mut registry = Registry::new(MaintainerRule::Listed);
        announce(&mut registry, 1, &[2], 1);
        assert_eq!(*registry.maintainers(&repo(1)), [key(1), key(2)]);
        assert_eq!(
            registry.maintained_by(&key(2), &repo(1).identifier),
            [repo(1)]
        );
    }

    #[test]
    fn chains_are_followed_in_any_order_of_confirmation() {
        let mut registry = Registry::default();
        // 1 lists 3 and 2; 3 answers only to 2.
        announce(&mut registry, 1, &[3, 2], 1);
        announce(&mut registry, 2, &[1, 3], 1);
        announce(&mut registry, 3, &[2], 1);
        assert_eq!(*registry.maintainers(&repo(1)), [key(1), key(2), key(3)]);
    }

    #[test]
    fn removal_takes_effect_at_once_and_an_older_announcement_changes_nothing() {
        let mut registry = Registry::default();
        announce(&mut registry, 1, &[2], 5);
        announce(&mut registry, 2, &[1], 5);
        announce(&mut registry, 1, &[], 6);
        assert_eq!(*registry.maintainers(&repo(1)), [key(1)]);
        assert_eq!(
            registry.maintained_by(&key(2), &repo(1).identifier),
            [repo(2)]
        );
        announce(&mut registry, 1, &[2], 5);
        assert_eq!(*registry.maintainers(&repo(1)), [key(1)]);
    }

    #[test]
    fn the_walk_is_bounded() {
        let mut registry = Registry::new(MaintainerRule::Listed);
        for n in 0..200 {
            announce(&mut registry, n, &[n + 1, n + 2], 1);
        }
        assert_eq!(registry.maintainers(&repo(0)).len(), MAX_MEMBERS);
    }

    #[test]
    fn two_hundred_keys_that_all_list_each_other_are_walked_in_no_time() {
        let mut registry = Registry::default();
        for n in 0..200u8 {
            let around = (1..=30u16).flat_map(|step| [step, 200 - step]);
            let listed = around.map(|step| ((u16::from(n) + step) % 200) as u8);
            let listed: Vec<u8> = listed.collect();
            announce(&mut registry, n, &listed, 1);
        }
        let key = key(7);
        let maintained = registry.maintained_by(&key, &repo(7).identifier);
        for repo in &maintained {
            assert_eq!(registry.maintainers(repo).len(), MAX_MEMBERS);
        }
        assert!(!maintained.is_empty());
    }

    #[test]
    fn strangers_who_list_a_maintainer_take_nothing_from_it() {
        let mut registry = Registry::default();
        announce(&mut registry, 1, &[2], 1);
        announce(&mut registry, 2, &[1], 1);
        for n in 0..MAX_OWNERS as u16 + 50 {
            let owner = Pubkey(
                [[n.to_be_bytes(), [9, 9]].concat().as_slice(), &[9; 28]]
                    .concat()
                    .try_into()
                    .unwrap(),
            );
            let announcement = Announcement {
                repo: RepoId::new(owner, repo(1).identifier),
                rank: Rank {
                    created_at: Timestamp(1),
                    id: EventId(owner.0),
                },
                listed: vec![key(2)],
                lists_us: true,
                expires: None,
                relays: Vec::new(),
                clones: Vec::new(),
            };
            registry.announce(announcement, Standing::Held);
        }
        announce(&mut registry, 1, &[2], 2);
        let maintained = registry.maintained_by(&key(2), &repo(1).identifier);
        assert_eq!(maintained, [repo(2), repo(1)]);
        assert_eq!(
            registry.invites(&key(2), &repo(1).identifier),
            Some(Standing::Served)
        );
    }

    #[test]
    fn a_rank_survives_the_announcement() {
        let mut registry = Registry::default();
        announce(&mut registry, 1, &[], 1);
        let rank = Rank {
            created_at: Timestamp(9),
            id: EventId([9; 32]),
        };
        registry.set_applied(&repo(1), rank, Timestamp(5));
        registry.forget(&repo(1));
        assert!(!registry.is_hosted(&repo(1)));
        announce(&mut registry, 1, &[], 2);
        registry.set_applied(&repo(1), rank, Timestamp(6));
        assert_eq!(registry.applied(&repo(1)), Some(rank));
        assert_eq!(registry.refs_since(&repo(1)), Some(Timestamp(5)));
    }
}
