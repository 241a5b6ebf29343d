//! Kind 30618: what the heads and tags of a repository shall be.

use std::sync::Arc;

use super::Rank;
use super::repo::{Identifier, IdentifierError};
use crate::event::{Event, Kind};
use crate::git::{self, ObjectId, RefName, Refs};
use crate::id::Pubkey;

/// Refs of one repository.
pub const MAX_REFS: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub author: Pubkey,
    pub identifier: Identifier,
    pub rank: Rank,
    /// Whole or not at all: a state with one bad ref moves none.
    pub refs: Result<Arc<Targets>, Unappliable>,
}

/// What a state sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Targets {
    pub refs: Refs,
    pub head: Option<RefName>,
}

impl Targets {
    /// Each object once.
    pub fn objects(&self) -> Vec<ObjectId> {
        let mut objects: Vec<ObjectId> = self.refs.values().copied().collect();
        objects.sort_unstable();
        objects.dedup();
        objects
    }
}

/// Why a state can never be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unappliable {
    #[error("{0} is not a ref name that git accepts")]
    Name(String),
    #[error("{0} is not at a full object id in lower case")]
    Object(String),
    #[error("{0} is named twice")]
    Twice(RefName),
    #[error("{0} and {1} cannot be there at once")]
    Conflict(RefName, RefName),
    #[error("HEAD does not name a branch")]
    Head,
    #[error("it has more than {MAX_REFS} refs")]
    TooMany,
}

impl State {
    /// What a state is about; `None` for every other event.
    pub fn identifier_of(event: &Event) -> Option<Identifier> {
        let d = event.tag("d").filter(|_| event.kind == Kind::STATE)?;
        Identifier::parse(d).ok()
    }

    pub fn read(event: &Event) -> Result<Self, IdentifierError> {
        Ok(Self {
            author: event.pubkey,
            identifier: Identifier::parse(event.tag("d").unwrap_or_default())?,
            rank: Rank::of(event),
            refs: targets(event).map(Arc::new),
        })
    }
}

fn targets(event: &Event) -> Result<Targets, Unappliable> {
    let mut targets = Targets::default();
    for tag in &event.tags {
        let [name, value, ..] = tag.as_slice() else {
            continue;
        };
        if name == "HEAD" {
            targets.head = Some(head(value)?);
        } else if name.starts_with("refs/") && !name.ends_with("^{}") {
            add(&mut targets.refs, name, value)?;
        }
    }
    match git::conflict(&targets.refs) {
        Some((one, other)) => Err(Unappliable::Conflict(one.clone(), other.clone())),
        None => Ok(targets),
    }
}

fn add(refs: &mut Refs, name: &str, value: &str) -> Result<(), Unappliable> {
    let parsed = RefName::parse(name).filter(|name| name.is_branch() || name.is_tag());
    let parsed = parsed.ok_or_else(|| Unappliable::Name(shortened(name)))?;
    let id = ObjectId::parse(value).ok_or_else(|| Unappliable::Object(shortened(name)))?;
    if refs.len() == MAX_REFS {
        return Err(Unappliable::TooMany);
    }
    match refs.insert(parsed.clone(), id) {
        Some(_) => Err(Unappliable::Twice(parsed)),
        None => Ok(()),
    }
}

/// `ref: refs/heads/x`, as in the file, or the bare name.
fn head(value: &str) -> Result<RefName, Unappliable> {
    let name = value.strip_prefix("ref: ").unwrap_or(value);
    RefName::parse(name)
        .filter(RefName::is_branch)
        .ok_or(Unappliable::Head)
}

/// A stranger's name in a message of ours: readable and short.
fn shortened(text: &str) -> String {
    text.chars()
        .take(80)
        .flat_map(char::escape_default)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    fn state(tags: &[[&str; 2]]) -> Result<Targets, Unappliable> {
        let mut all = vec![vec!["d".to_owned(), "r".to_owned()]];
        all.extend(tags.iter().map(|tag| tag.map(str::to_owned).to_vec()));
        let key = Pubkey([1; 32]);
        let id = crate::event::event_id(&key, Timestamp(1), Kind::STATE, &all, "");
        let json = serde_json::json!({"id": id, "pubkey": key, "created_at": 1, "kind": 30618,
            "tags": all, "content": "", "sig": "0".repeat(128)});
        let event = Event::from_stored(&json.to_string()).unwrap();
        State::read(&event)
            .unwrap()
            .refs
            .map(|refs| (*refs).clone())
    }

    const A: &str = "1111111111111111111111111111111111111111";

    #[test]
    fn refs_and_head_are_read_and_peeled_lines_ignored() {
        let read = state(&[
            ["refs/heads/main", A],
            ["refs/tags/v1", A],
            ["refs/tags/v1^{}", "anything"],
            ["HEAD", "ref: refs/heads/main"],
            ["alt", "x"],
        ])
        .unwrap();
        assert_eq!(read.refs.len(), 2);
        assert_eq!(read.head.unwrap().as_str(), "refs/heads/main");
        assert_eq!(
            state(&[["HEAD", "refs/heads/x"]])
                .unwrap()
                .head
                .unwrap()
                .as_str(),
            "refs/heads/x"
        );
        assert!(state(&[]).unwrap().refs.is_empty());
    }

    #[test]
    fn one_bad_ref_spoils_the_whole() {
        let upper = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        for bad in [
            ["refs/heads/a", "--upload-pack=x"],
            ["refs/heads/a", upper],
            ["refs/heads/a", "1111"],
            ["refs/heads/a", "0000000000000000000000000000000000000000"],
            ["refs/heads/a", "ref: refs/heads/b"],
            ["refs/heads/../x", A],
            ["refs/notes/x", A],
            [
                "refs/nostr/1111111111111111111111111111111111111111111111111111111111111111",
                A,
            ],
            ["HEAD", "ref: refs/tags/v1"],
            ["HEAD", A],
        ] {
            assert!(state(&[["refs/heads/good", A], bad]).is_err(), "{bad:?}");
        }
        let twice = state(&[["refs/heads/a", A], ["refs/heads/a", A]]);
        assert!(matches!(twice, Err(Unappliable::Twice(_))));
        let folder = state(&[["refs/heads/a", A], ["refs/heads/a/b", A]]);
        assert!(matches!(folder, Err(Unappliable::Conflict(..))));
    }
}
