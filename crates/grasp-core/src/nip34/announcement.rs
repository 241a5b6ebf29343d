//! Kind 30617: a repository, where it is, and whom its author trusts with it.

use super::Rank;
use super::clones::clones;
use super::repo::{Identifier, IdentifierError, RepoId};
use crate::clock::Timestamp;
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
    /// When it ends (NIP-40).
    pub expires: Option<Timestamp>,
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
            expires: event.expiration(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Kind;

    fn key(n: u8) -> String {
        Pubkey([n; 32]).to_string()
    }

    /// Whom the first key lists with these tags, `{2}` standing for the second key in full.
    fn listed_by(tags: &[&[&str]]) -> Vec<u8> {
        let full = |text: &&str| {
            (1..=9).fold((*text).to_owned(), |text, n| {
                text.replace(&format!("{{{n}}}"), &key(n))
            })
        };
        let mut all = vec![vec!["d".to_owned(), "r".to_owned()]];
        all.extend(tags.iter().map(|tag| tag.iter().map(full).collect()));
        let author = Pubkey([1; 32]);
        let id = crate::event::event_id(&author, Timestamp(1), Kind::ANNOUNCEMENT, &all, "");
        let json = serde_json::json!({"id": id, "pubkey": author, "created_at": 1, "kind": 30617,
            "tags": all, "content": "", "sig": "0".repeat(128)});
        let event = Event::from_stored(&json.to_string()).unwrap();
        listed(&event)
            .iter()
            .filter_map(|key| key.0.first().copied())
            .collect()
    }

    #[test]
    fn role_tags_say_who_maintains_and_when() {
        let table: &[(&[&[&str]], &[u8])] = &[
            (
                &[&["maintainers", "{2}", "{3}"], &["maintainers", "{4}"]],
                &[2, 3, 4],
            ),
            (&[&["maintainers", "{1}", "{2}", "{2}", "nobody"]], &[2]),
            (&[&["M", "{2}"], &["m", "{3}"]], &[2, 3]),
            // Begun; begun and ended; begun again.
            (&[&["M", "{2}", "100"]], &[2]),
            (&[&["M", "{2}", "100", "200"]], &[]),
            (&[&["m", "{2}", "100", "200", "300"]], &[2]),
            (&[&["m", "{2}", "100", "200", "300", "400"]], &[]),
            // What is no number voids the tag, and no other.
            (&[&["M", "{2}", "soon"], &["M", "{3}"]], &[3]),
            (&[&["M", "{2}", "100", "", "300"]], &[]),
            (&[&["M", "{2}", ""]], &[]),
            (&[&["M", "{2}", "-1"]], &[]),
            (&[&["M", "{2}", "1.5"]], &[]),
            // Observers have no word.
            (&[&["o", "{2}"], &["o", "{3}", "100"]], &[]),
            (&[&["M", "{2}"], &["o", "{3}"]], &[2]),
            // Any role, also one that is over or of an observer, stands in place of the list.
            (&[&["maintainers", "{2}"], &["M", "{3}"]], &[3]),
            (&[&["maintainers", "{2}"], &["o", "{3}"]], &[]),
            (&[&["maintainers", "{2}"], &["m", "{3}", "100", "200"]], &[]),
            (&[&["maintainers", "{2}"], &["M"]], &[]),
            // Other letters are no roles; the author needs none.
            (&[&["maintainers", "{2}"], &["r", "{3}"]], &[2]),
            (&[&["M", "{1}"], &["M", "{2}"], &["m", "{2}"]], &[2]),
            (&[&["M", "npub1xyz"], &["M", "{2}"]], &[2]),
        ];
        for (tags, wanted) in table {
            assert_eq!(listed_by(tags), *wanted, "{tags:?}");
        }
    }
}
