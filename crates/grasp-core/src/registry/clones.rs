//! Where else the git data of a repository may be.

use super::Registry;
use crate::clone_url::CloneUrl;
use crate::id::Pubkey;
use crate::nip34::{MAX_CLONES, RepoId};

impl Registry {
    /// Git servers that a repository's maintainers name, the first few: those of `signer` first,
    /// who has just said something about the data, then the owner's, then everybody else's.
    pub fn clones(&self, repo: &RepoId, signer: &Pubkey) -> Vec<CloneUrl> {
        let members = self.maintainers(repo);
        let signer = members.iter().filter(|member| *member == signer);
        let mut clones: Vec<CloneUrl> = Vec::new();
        for member in signer.chain(members.iter()) {
            let announced = self.entry(member, &repo.identifier);
            let named = announced.map_or(&[][..], |entry| &entry.announcement.clones);
            for url in named {
                if clones.len() == MAX_CLONES {
                    return clones;
                }
                if !clones.contains(url) {
                    clones.push(url.clone());
                }
            }
        }
        clones
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::id::EventId;
    use crate::nip34::{Announcement, Identifier, Rank};
    use crate::registry::Standing;

    fn repo(owner: u8) -> RepoId {
        RepoId::new(Pubkey([owner; 32]), Identifier::parse("r").unwrap())
    }

    fn announce(registry: &mut Registry, author: u8, listed: u8, hosts: &[&str]) {
        let url = |host: &&str| CloneUrl::parse(&format!("https://{host}/r.git")).unwrap();
        let announcement = Announcement {
            repo: repo(author),
            rank: Rank {
                created_at: Timestamp(1),
                id: EventId([author; 32]),
            },
            listed: vec![Pubkey([listed; 32])],
            lists_us: true,
            expires: None,
            relays: Vec::new(),
            clones: hosts.iter().map(url).collect(),
        };
        registry.announce(announcement, Standing::Served, None);
    }

    /// G7: the servers of every maintainer, those of whoever signed first.
    #[test]
    fn the_signers_servers_come_first_then_the_owners_then_the_others() {
        let mut registry = Registry::default();
        announce(&mut registry, 1, 2, &["one", "shared"]);
        announce(&mut registry, 2, 1, &["two", "shared"]);
        announce(&mut registry, 3, 1, &["stranger"]);
        let hosts = |signer: u8| -> Vec<String> {
            let found = registry.clones(&repo(1), &Pubkey([signer; 32]));
            let domain = |url: &CloneUrl| url.domain().to_string();
            found.iter().map(domain).collect()
        };
        assert_eq!(hosts(1), ["one", "shared", "two"]);
        assert_eq!(hosts(2), ["two", "shared", "one"]);
        assert_eq!(hosts(3), hosts(1), "a stranger's servers are not asked");
    }

    #[test]
    fn there_are_never_more_than_a_few() {
        let mut registry = Registry::default();
        let hosts: Vec<String> = (0..30).map(|n| format!("h{n}")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        announce(&mut registry, 1, 2, &hosts);
        announce(&mut registry, 2, 1, &["a", "b", "c", "d"]);
        let found = registry.clones(&repo(1), &Pubkey([1; 32]));
        assert_eq!(found.len(), MAX_CLONES);
    }
}
