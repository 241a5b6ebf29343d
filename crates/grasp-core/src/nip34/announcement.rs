//! Kind 30617: a repository, where it is, and whom its author trusts with it.

use super::Rank;
use super::clones::clones;
use super::repo::{Identifier, IdentifierError, RepoId};
use crate::clone_url::CloneUrl;
use crate::event::Event;
use crate::id::Pubkey;
use crate::relay_url::RelayUrl;
use crate::service::Service;

/// Keys that one announcement may name; 64 is also the bound of the walk through all of them.
pub const MAX_LISTED: usize = 64;
/// Relays of one announcement that are kept in mind.
const MAX_RELAYS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    pub repo: RepoId,
    pub rank: Rank,
    /// Whom its author trusts to maintain; without the author.
    pub listed: Vec<Pubkey>,
    /// Names this service in both `clone` and `relays`.
    pub lists_us: bool,
    /// The other relays that it names, each once, the first few.
    pub relays: Vec<RelayUrl>,
    /// The other git servers that it names, each once, the first few.
    pub clones: Vec<CloneUrl>,
}

impl Announcement {
    pub fn read(event: &Event, us: &Service) -> Result<Self, IdentifierError> {
        let identifier = Identifier::parse(event.tag("d").unwrap_or_default())?;
        let repo = RepoId::new(event.pubkey, identifier);
        let clone_here = all_values(event, "clone")
            .any(|url| us.is_clone_url(url, &repo.owner, repo.identifier.as_str()));
        let relay_here = all_values(event, "relays").any(|url| us.is_relay_url(url));
        Ok(Self {
            lists_us: clone_here && relay_here,
            relays: relays(event, us),
            clones: clones(event, us),
            listed: listed(event),
            rank: Rank::of(event),
            repo,
        })
    }
}

/// Every value of every tag of that name.
pub fn all_values<'a>(event: &'a Event, name: &'a str) -> impl Iterator<Item = &'a str> {
    event
        .tags
        .iter()
        .filter(move |tag| tag.first().is_some_and(|found| found == name))
        .flat_map(|tag| tag.iter().skip(1).map(String::as_str))
}

fn relays(event: &Event, us: &Service) -> Vec<RelayUrl> {
    let mut relays: Vec<RelayUrl> = Vec::new();
    let named = all_values(event, "relays").filter_map(RelayUrl::parse);
    for url in named.filter(|url| !us.is_at(url)) {
        if relays.len() == MAX_RELAYS {
            break;
        }
        if !relays.iter().any(|known| known.key() == url.key()) {
            relays.push(url);
        }
    }
    relays
}

/// Role tags, where there are any, stand in place of `maintainers`.
fn listed(event: &Event) -> Vec<Pubkey> {
    let is_role = |tag: &&Vec<String>| {
        tag.first()
            .is_some_and(|name| matches!(name.as_str(), "M" | "m" | "o"))
    };
    let keys: Vec<&str> = if event.tags.iter().any(|tag| is_role(&tag)) {
        let roles = event.tags.iter().filter(is_role);
        roles.filter_map(|tag| active_maintainer(tag)).collect()
    } else {
        all_values(event, "maintainers").collect()
    };
    let mut listed = Vec::new();
    for key in keys
        .into_iter()
        .filter_map(|key| Pubkey::from_hex(key).ok())
    {
        if key != event.pubkey && !listed.contains(&key) && listed.len() < MAX_LISTED {
            listed.push(key);
        }
    }
    listed
}

/// `[role, key, start, end, start, ...]`: active with no boundary or an odd number of them.
/// An observer (`o`) maintains nothing.
fn active_maintainer(tag: &[String]) -> Option<&str> {
    let [role, key, boundaries @ ..] = tag else {
        return None;
    };
    let numeric = boundaries.iter().all(|text| text.parse::<u64>().is_ok());
    let active = boundaries.is_empty() || boundaries.len() % 2 == 1;
    (role != "o" && numeric && active).then_some(key)
}
