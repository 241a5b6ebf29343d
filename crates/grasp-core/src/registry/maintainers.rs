//! Who may sign a repository's state: a bounded walk from its owner.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::memo::Walk;
use super::{Entry, MaintainerRule, Registry, Standing};
use crate::id::Pubkey;
use crate::nip34::{Identifier, RepoId};

/// Members of one set.
pub const MAX_MEMBERS: usize = 64;
/// Keys that are listed and not yet confirmed. Each costs one look-up.
const MAX_INVITED: usize = 256;
/// How often one walk asks whether an invited key lists a member. Who answers does so at the first
/// question, as a rule: it is enough for 64 members beside 64 keys that answer to somebody else. A
/// walk takes 40 us at most.
const MAX_COMPARED: usize = 4_096;
/// Keys on the way from a maintainer to the owners who trust it, each worth a walk that is kept in
/// mind until somebody's list changes on it.
const MAX_OWNERS: usize = 64;

/// A key that a member lists.
struct Invited<'a> {
    key: Pubkey,
    announced: Option<&'a Entry>,
    /// How many of the members it was compared with.
    compared: usize,
}

impl Registry {
    /// The owner first; the rest in the order of the walk.
    pub fn maintainers(&self, repo: &RepoId) -> Arc<[Pubkey]> {
        if let Some(members) = self.memo.borrow().members(repo) {
            return members;
        }
        // Anybody may ask for what nobody has announced: nothing is kept in mind of that.
        if !self.entries.contains_key(repo) {
            return Arc::new([repo.owner]);
        }
        let walk = self.walk(repo);
        let members = Arc::clone(&walk.members);
        self.memo.borrow_mut().keep_walk(repo, walk);
        members
    }

    pub fn is_maintainer(&self, repo: &RepoId, key: &Pubkey) -> bool {
        *key == repo.owner || self.maintainers(repo).contains(key)
    }

    /// Repositories of ours, hosted or remembered, whose state this key may sign.
    pub fn maintained_by(&self, key: &Pubkey, identifier: &Identifier) -> Vec<RepoId> {
        if let Some(repos) = self.memo.borrow().maintained(key, identifier) {
            return repos.clone();
        }
        let owned = |owner: Pubkey| RepoId::new(owner, identifier.clone());
        let repos = self.owners_near(vec![*key], identifier, MAX_OWNERS);
        let repos: Vec<RepoId> = repos
            .into_iter()
            .map(owned)
            .filter(|repo| self.hosting(repo).is_some() && self.is_maintainer(repo, key))
            .collect();
        if !repos.is_empty() {
            let mut memo = self.memo.borrow_mut();
            memo.keep_maintained(*key, identifier, repos.clone());
        }
        repos
    }

    /// Whose repositories these keys may maintain, the nearest first.
    fn owners_near(&self, keys: Vec<Pubkey>, identifier: &Identifier, most: usize) -> Vec<Pubkey> {
        match self.rule {
            // A member joins by listing one who was there before, up to the owner: so every owner
            // that a key maintains for is found among those whom it lists, and whom they list.
            // Strangers who list the key are not in the way.
            MaintainerRule::Reciprocal => closure(keys, most, |key| {
                self.listed_by_author(key, identifier).iter().copied()
            }),
            // Whoever lists the key, and who lists them: those first whose repositories are served.
            MaintainerRule::Listed => {
                closure(keys, most, |key| self.ranked_listers(key, identifier))
            }
        }
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
        let listers: Vec<Pubkey> = self.ranked_listers(key, identifier).collect();
        let of_lister: FxHashSet<Pubkey> = listers.iter().copied().collect();
        // All of them at once: each on its own would have as many owners looked at as all.
        let owners = self.owners_near(listers, identifier, 2 * MAX_OWNERS);
        let mut best = None;
        for owner in owners {
            let repo = RepoId::new(owner, identifier.clone());
            let standing = self.hosting(&repo);
            if standing <= best {
                continue;
            }
            let members = self.maintainers(&repo);
            if members.iter().any(|member| of_lister.contains(member)) {
                best = standing;
            }
            if best == Some(Standing::Served) {
                break;
            }
        }
        best
    }

    fn walk(&self, repo: &RepoId) -> Walk {
        let mut members = vec![repo.owner];
        let mut known: FxHashSet<Pubkey> = members.iter().copied().collect();
        let mut invited: Vec<Invited<'_>> = Vec::new();
        let (mut next, mut compared) = (0, 0);
        while let Some(member) = members.get(next).copied() {
            if members.len() == MAX_MEMBERS {
                break;
            }
            next += 1;
            for key in self.listed_by_author(&member, &repo.identifier) {
                if invited.len() < MAX_INVITED && known.insert(*key) {
                    invited.push(Invited {
                        key: *key,
                        announced: self.entry(key, &repo.identifier),
                        compared: 0,
                    });
                }
            }
            invited.retain_mut(|guest| {
                let joins =
                    members.len() < MAX_MEMBERS && self.joins(guest, &members, &mut compared);
                if joins {
                    members.push(guest.key);
                }
                !joins
            });
        }
        let mut read: Vec<Pubkey> = known.into_iter().collect();
        read.sort_unstable();
        Walk {
            members: members.into(),
            read,
            #[cfg(test)]
            compared,
        }
    }

    fn listed_by_author(&self, author: &Pubkey, identifier: &Identifier) -> &[Pubkey] {
        self.entry(author, identifier)
            .map_or(&[], |entry| entry.announcement.listed.as_slice())
    }

    fn joins(&self, guest: &mut Invited<'_>, members: &[Pubkey], compared: &mut usize) -> bool {
        if self.rule == MaintainerRule::Listed {
            return true;
        }
        let Some(answer) = guest.announced else {
            return false;
        };
        let new = members.get(guest.compared..).unwrap_or_default();
        guest.compared = members.len();
        let left = MAX_COMPARED - *compared;
        new.iter().take(left).any(|key| {
            *compared += 1;
            answer.listed.contains(key)
        })
    }
}

/// Some keys and those found from them, the nearest first.
fn closure<I: Iterator<Item = Pubkey>>(
    keys: Vec<Pubkey>,
    most: usize,
    next: impl Fn(&Pubkey) -> I,
) -> Vec<Pubkey> {
    let mut found = keys;
    let mut known: FxHashSet<Pubkey> = found.iter().copied().collect();
    let mut at = 0;
    while let Some(key) = found.get(at).copied() {
        at += 1;
        for other in next(&key) {
            if found.len() >= most {
                return found;
            }
            if known.insert(other) {
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
        registry.announce(announcement, Standing::Served, None);
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

    /// Two hundred keys in a ring, each of which lists the thirty on either side.
    fn ring() -> Registry {
        let mut registry = Registry::default();
        for n in 0..200 {
            announce(&mut registry, n, &around(n), 1);
        }
        registry
    }

    fn around(n: u8) -> Vec<u8> {
        let steps = (1..=30u16).flat_map(|step| [step, 200 - step]);
        let listed = steps.map(|step| ((u16::from(n) + step) % 200) as u8);
        listed.collect()
    }

    fn walked(registry: &Registry) -> u64 {
        registry.memo.borrow().walked()
    }

    #[test]
    fn two_hundred_keys_that_list_each_other_are_walked_once_each() {
        let mut registry = ring();
        let identifier = repo(7).identifier;
        let maintained = registry.maintained_by(&key(7), &identifier);
        assert!(!maintained.is_empty());
        for repo in &maintained {
            assert_eq!(registry.maintainers(repo).len(), MAX_MEMBERS);
        }
        assert!(walked(&registry) <= MAX_OWNERS as u64);
        for n in 0..200 {
            registry.maintained_by(&key(n), &identifier);
            registry.invites(&key(n), &identifier);
        }
        assert_eq!(walked(&registry), 200);
        announce(&mut registry, 7, &[8], 2);
        registry.invites(&key(7), &identifier);
        registry.maintained_by(&key(7), &identifier);
        assert!(walked(&registry) <= 200 + 2 * MAX_OWNERS as u64);
    }

    #[test]
    fn a_list_that_changes_costs_only_the_walks_past_it() {
        let mut registry = ring();
        let identifier = repo(7).identifier;
        announce(&mut registry, 210, &[211], 1);
        announce(&mut registry, 211, &[210], 1);
        for n in 0..212 {
            registry.maintainers(&repo(n));
        }
        let before = walked(&registry);
        announce(&mut registry, 211, &[], 2);
        assert_eq!(*registry.maintainers(&repo(210)), [key(210)]);
        assert_eq!(*registry.maintainers(&repo(211)), [key(211)]);
        registry.maintained_by(&key(7), &identifier);
        assert_eq!(walked(&registry), before + 2);
    }

    #[test]
    fn who_does_not_answer_is_compared_a_bounded_number_of_times() {
        let mut registry = Registry::default();
        announce(&mut registry, 0, &(1..=40).collect::<Vec<u8>>(), 1);
        for n in 1..=40u8 {
            let guests = (0..4).map(|step| 37 + n * 4 + step);
            let listed: Vec<u8> = [0].into_iter().chain(guests).collect();
            announce(&mut registry, n, &listed, 1);
        }
        for n in 41..=200 {
            announce(&mut registry, n, &[250], 1);
        }
        let walk = registry.walk(&repo(0));
        assert_eq!(walk.compared, MAX_COMPARED);
        assert_eq!(walk.members.len(), 41, "whom the owner lists come first");
    }

    #[test]
    fn nothing_is_kept_in_mind_of_repositories_that_nobody_announced() {
        let mut registry = Registry::default();
        announce(&mut registry, 1, &[], 1);
        for n in 2..200 {
            assert_eq!(*registry.maintainers(&repo(n)), [key(n)]);
            registry.maintained_by(&key(n), &repo(n).identifier);
        }
        assert_eq!(registry.memo.borrow().len(), 0);
        registry.maintainers(&repo(1));
        registry.maintained_by(&key(1), &repo(1).identifier);
        assert_eq!(registry.memo.borrow().len(), 2);
        registry.forget(&repo(1));
        assert_eq!(registry.memo.borrow().len(), 0);
    }

    #[test]
    fn a_repository_that_moves_elsewhere_is_maintained_by_nobody_here() {
        let mut registry = Registry::default();
        announce(&mut registry, 1, &[], 1);
        let maintained = |registry: &Registry| registry.maintained_by(&key(1), &repo(1).identifier);
        assert_eq!(maintained(&registry), [repo(1)]);
        let mut elsewhere = registry.announcement(&repo(1)).unwrap().clone();
        elsewhere.lists_us = false;
        registry.announce(elsewhere, Standing::Served, None);
        assert_eq!(maintained(&registry), []);
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
            registry.announce(announcement, Standing::Held, None);
        }
        announce(&mut registry, 1, &[2], 2);
        let maintained = registry.maintained_by(&key(2), &repo(1).identifier);
        assert_eq!(maintained, [repo(2), repo(1)]);
        assert_eq!(
            registry.invites(&key(2), &repo(1).identifier),
            Some(Standing::Served)
        );
    }
}
