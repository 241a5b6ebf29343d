//! Kinds 1618 and 1619: a tip that waits to be merged, and its next version.

use super::clones;
use super::repo::RepoId;
use super::{PULL_REQUEST, PULL_REQUEST_UPDATE};
use crate::clone_url::CloneUrl;
use crate::event::{Address, Event};
use crate::git::ObjectId;
use crate::id::EventId;
use crate::service::Service;

/// Repositories that one pull request is for; the others that it names are not looked at.
pub const MAX_REPOS: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// Its commit; `None` when the text is not an object id, and then it never comes.
    pub tip: Option<ObjectId>,
    /// Repositories that it names itself, the first few.
    pub repos: Vec<RepoId>,
    /// For an update: the pull request that it belongs to, which may name more.
    pub root: Option<EventId>,
}

impl PullRequest {
    /// `None` for events of other kinds.
    pub fn read(event: &Event) -> Option<Self> {
        if event.kind != PULL_REQUEST && event.kind != PULL_REQUEST_UPDATE {
            return None;
        }
        let mut repos = Vec::new();
        for address in event.tag_values("a").chain(event.tag_values("A")) {
            let repo = Address::parse(address).and_then(|address| RepoId::of_address(&address));
            repos.extend(repo.filter(|repo| !repos.contains(repo)));
            if repos.len() == MAX_REPOS {
                break;
            }
        }
        let root = event.tag("E").or_else(|| event.tag("e"));
        Some(Self {
            tip: event.tag("c").and_then(ObjectId::parse),
            repos,
            root: root
                .filter(|_| event.kind == PULL_REQUEST_UPDATE)
                .and_then(|id| EventId::from_hex(id).ok()),
        })
    }

    /// Where its tip may be, as it says itself. Read when a tip is looked for, not on every read.
    pub fn clones(event: &Event, us: &Service) -> Vec<CloneUrl> {
        let is_one = event.kind == PULL_REQUEST || event.kind == PULL_REQUEST_UPDATE;
        if is_one {
            clones(event, us)
        } else {
            Vec::new()
        }
    }
}
