//! What the operator wants here and what not.

use crate::id::Pubkey;
use crate::nip34::RepoId;

/// One entry of a list of repositories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepoPattern {
    Owner(Pubkey),
    Repo(RepoId),
    Identifier(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lists {
    /// When it is not empty, nothing else is taken.
    pub repositories: Vec<RepoPattern>,
    pub no_repositories: Vec<RepoPattern>,
    pub no_authors: Vec<Pubkey>,
}

impl Lists {
    pub fn takes_repository(&self, repo: &RepoId) -> bool {
        let listed = |list: &[RepoPattern]| list.iter().any(|pattern| pattern.matches(repo));
        !listed(&self.no_repositories)
            && (self.repositories.is_empty() || listed(&self.repositories))
    }

    pub fn blocks_author(&self, author: &Pubkey) -> bool {
        self.no_authors.contains(author)
    }
}

impl RepoPattern {
    fn matches(&self, repo: &RepoId) -> bool {
        match self {
            RepoPattern::Owner(owner) => repo.owner == *owner,
            RepoPattern::Repo(other) => repo == other,
            RepoPattern::Identifier(identifier) => repo.identifier.as_str() == identifier,
        }
    }
}
