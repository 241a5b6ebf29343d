//! Events as clients would sign them, without the signature: the core trusts the shell to have
//! checked it.

use std::sync::Arc;

use grasp_core::event::event_id;
use grasp_core::git::{ObjectId, ObjectKind};
use grasp_core::{Event, EventId, Identifier, Kind, Pubkey, RepoId, Timestamp};
use serde_json::json;

/// Under which name the world knows us.
pub const US: &str = "relay.example";

pub fn key(n: u8) -> Pubkey {
    Pubkey([n; 32])
}

pub fn repo(owner: Pubkey, identifier: &str) -> RepoId {
    match Identifier::parse(identifier) {
        Ok(identifier) => RepoId::new(owner, identifier),
        Err(error) => unreachable!("a simulated identifier is good: {error}"),
    }
}

/// The repository of that owner and name, if it can be one.
pub fn repo_of(owner: Pubkey, identifier: &str) -> Option<RepoId> {
    let identifier = Identifier::parse(identifier).ok()?;
    Some(RepoId::new(owner, identifier))
}

/// The n-th commit of the world.
pub fn commit(n: u32) -> ObjectId {
    object(1, n)
}

/// The n-th annotated tag.
pub fn tag_object(n: u32) -> ObjectId {
    object(2, n)
}

pub fn tree(n: u32) -> ObjectId {
    object(3, n)
}

/// What an object is, wherever it is.
pub fn kind_of(id: &ObjectId) -> ObjectKind {
    match id.0 {
        [2, ..] => ObjectKind::Tag,
        [3, ..] => ObjectKind::Tree,
        _ => ObjectKind::Commit,
    }
}

fn object(kind: u8, n: u32) -> ObjectId {
    let mut bytes = [0; 20];
    for (byte, part) in bytes.iter_mut().zip([kind].iter().chain(&n.to_be_bytes())) {
        *byte = *part;
    }
    ObjectId(bytes)
}

pub type Tags = Vec<Vec<String>>;

pub fn tag(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

pub fn event(pubkey: Pubkey, kind: Kind, at: u64, tags: Tags) -> Arc<Event> {
    let at = Timestamp(at);
    let id = event_id(&pubkey, at, kind, &tags, "");
    let json = json!({
        "id": id, "pubkey": pubkey, "created_at": at, "kind": kind,
        "tags": tags, "content": "", "sig": "0".repeat(128),
    });
    match Event::from_stored(&json.to_string()) {
        Ok(event) => Arc::new(event),
        Err(error) => unreachable!("a simulated event is well formed: {error}"),
    }
}

/// An announcement that lists us, or somebody else only.
pub fn announcement(repo: &RepoId, at: u64, here: bool, maintainers: &[Pubkey]) -> Arc<Event> {
    announcement_at(repo, at, here, maintainers, Vec::new())
}

/// One that lists us and other git servers.
pub fn announcement_with_clones(
    repo: &RepoId,
    at: u64,
    maintainers: &[Pubkey],
    clones: &[&str],
) -> Arc<Event> {
    let plain = announcement(repo, at, true, maintainers);
    let clones: Vec<String> = clones.iter().map(|&url| url.to_owned()).collect();
    with_clones(&plain, &clones)
}

/// The same, with more git servers.
pub fn with_clones(plain: &Arc<Event>, clones: &[String]) -> Arc<Event> {
    if clones.is_empty() {
        return Arc::clone(plain);
    }
    let mut tags = plain.tags.clone();
    let is_clone = |tag: &&mut Vec<String>| tag.first().is_some_and(|name| name == "clone");
    match tags.iter_mut().find(is_clone) {
        Some(tag) => tag.extend_from_slice(clones),
        None => {
            let mut named = tag(&["clone"]);
            named.extend_from_slice(clones);
            tags.push(named);
        }
    }
    event(plain.pubkey, plain.kind, plain.created_at.0, tags)
}

/// One that names other relays besides.
pub fn announcement_at(
    repo: &RepoId,
    at: u64,
    here: bool,
    maintainers: &[Pubkey],
    relays: Vec<String>,
) -> Arc<Event> {
    let host = if here { US } else { "elsewhere.example" };
    let (npub, d) = (repo.owner.npub(), repo.identifier.as_str());
    let mut listed = vec!["maintainers".to_owned()];
    listed.extend(maintainers.iter().map(Pubkey::to_string));
    let mut at_relays = tag(&["relays", &format!("wss://{host}")]);
    at_relays.extend(relays);
    let tags = vec![
        tag(&["d", d]),
        tag(&["clone", &format!("https://{host}/{npub}/{d}.git")]),
        at_relays,
        listed,
    ];
    event(repo.owner, Kind::ANNOUNCEMENT, at, tags)
}

/// `refs` are full names and values, as they stand in the event; `HEAD` may be among them.
pub fn state(author: Pubkey, d: &str, at: u64, refs: &[(&str, &str)]) -> Arc<Event> {
    let mut tags = vec![tag(&["d", d])];
    tags.extend(refs.iter().map(|(name, value)| tag(&[name, value])));
    event(author, Kind::STATE, at, tags)
}

pub fn address(kind: Kind, repo: &RepoId) -> String {
    format!("{kind}:{}:{}", repo.owner, repo.identifier)
}

pub fn pull_request(author: Pubkey, at: u64, repos: &[RepoId], tip: &str) -> Arc<Event> {
    let mut tags = vec![tag(&["c", tip])];
    let named = repos.iter().map(|repo| address(Kind::ANNOUNCEMENT, repo));
    tags.extend(named.map(|address| tag(&["a", &address])));
    event(author, Kind(1618), at, tags)
}

/// The next version of a pull request, which names nothing but its root.
pub fn update(author: Pubkey, at: u64, root: &EventId, tip: &str) -> Arc<Event> {
    let tags = vec![tag(&["c", tip]), tag(&["E", &root.to_string()])];
    event(author, Kind(1619), at, tags)
}

/// A comment, an issue or a status: whatever names one thing.
pub fn about(author: Pubkey, kind: u16, at: u64, name: &str, value: &str) -> Arc<Event> {
    event(author, Kind(kind), at, vec![tag(&[name, value])])
}

pub fn deletion(author: Pubkey, at: u64, name: &str, value: &str) -> Arc<Event> {
    about(author, 5, at, name, value)
}
