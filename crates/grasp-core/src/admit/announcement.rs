//! 30617: it must list us, or come from somebody whom a repository here invites.

use super::{Cause, Needs, Policy, Refusal, Verdict};
use crate::event::Event;
use crate::nip34::Announcement;
use crate::registry::{Registry, Standing};

pub fn judge(event: &Event, policy: &Policy, registry: &Registry) -> Verdict {
    let announcement = match Announcement::read(event, &policy.service) {
        Ok(announcement) => announcement,
        Err(error) => return Verdict::Drop(Refusal::Identifier(error)),
    };
    let repo = &announcement.repo;
    if !policy.lists.takes_repository(repo) {
        return Verdict::Drop(Refusal::RepositoryBlocked);
    }
    let newer_is_here = registry
        .announcement(repo)
        .is_some_and(|known| known.rank > announcement.rank);
    if newer_is_here {
        return Verdict::Drop(Refusal::Replaced);
    }
    if announcement.lists_us {
        return match registry.hosting(repo) {
            Some(Standing::Served) => Verdict::Store,
            _ => Verdict::Hold(Needs::State(announcement)),
        };
    }
    match registry.invites(&repo.owner, &repo.identifier) {
        Some(Standing::Served) => Verdict::Store,
        // What is only held does not take a served repository away.
        Some(_) if registry.hosting(repo) == Some(Standing::Served) => {
            Verdict::Drop(Refusal::NotListed)
        }
        Some(_) => Verdict::Hold(Needs::Release(vec![Cause::Announced(
            repo.identifier.clone(),
        )])),
        None => Verdict::Drop(Refusal::NotListed),
    }
}
