//! 1618 and 1619: from anybody, for a repository here.

use super::{Known, Needs, Refusal, Verdict};
use crate::event::Event;
use crate::nip34::{PullRequest, RepoId};
use crate::registry::Registry;

/// Repositories that one pull request is kept in.
const MAX_REPOS: usize = 16;

pub fn judge(event: &Event, registry: &Registry, known: &dyn Known) -> Verdict {
    let Some(pull_request) = PullRequest::read(event) else {
        return Verdict::Drop(Refusal::Orphan);
    };
    let tip = pull_request.tip;
    let repos = places(pull_request, registry, known);
    if repos.is_empty() {
        return Verdict::Drop(Refusal::Orphan);
    }
    Verdict::Hold(match tip {
        Some(tip) => Needs::Tip { tip, repos },
        None => Needs::Nothing,
    })
}

/// The repositories here that a pull request is for: those that it or its root names.
pub fn places(pull_request: PullRequest, registry: &Registry, known: &dyn Known) -> Vec<RepoId> {
    let root = pull_request.root.and_then(|id| known.pull_request(&id));
    let named = pull_request.repos.into_iter();
    hosted_here(
        named.chain(root.into_iter().flat_map(|root| root.repos)),
        registry,
    )
}

/// The repositories that are here, and in place of one that is elsewhere those that its owner
/// maintains here.
pub fn hosted_here(named: impl Iterator<Item = RepoId>, registry: &Registry) -> Vec<RepoId> {
    let mut places = Vec::new();
    for repo in named {
        let found = if registry.is_hosted(&repo) {
            vec![repo]
        } else {
            registry.maintained_by(&repo.owner, &repo.identifier)
        };
        for repo in found {
            if registry.is_hosted(&repo) && !places.contains(&repo) && places.len() < MAX_REPOS {
                places.push(repo);
            }
        }
    }
    places
}
