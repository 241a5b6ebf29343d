//! What is to be said of a repository, read from the store and the disk only: what is held cannot
//! show here.

use std::sync::Arc;

use grasp_core::event::{Event, Kind};
use grasp_core::git::Refs;
use grasp_core::nip34::state::Targets;
use grasp_core::nip34::{Announcement, Rank, State};
use grasp_core::registry::{MAX_MEMBERS, Registry, Standing};
use grasp_core::{Facts, MaintainerRule, Pubkey, RepoId, Service};

pub struct Overview {
    /// `None` while the announcement waits for git data.
    pub announcement: Option<Arc<Event>>,
    /// The owner first.
    pub maintainers: Vec<Pubkey>,
    has_state: bool,
    /// A newer one is served, and its refs are not here.
    awaits: bool,
    /// The state that was applied last.
    pub state: Option<(Arc<Event>, Arc<Targets>)>,
}

impl Overview {
    pub fn of(repo: &RepoId, facts: &dyn Facts, us: &Service, rule: MaintainerRule) -> Self {
        let registry = registry_around(repo, facts, us, rule);
        let maintainers = registry.maintainers(repo).to_vec();
        let applied = facts.applied(repo).map(|applied| applied.rank);
        let awaits = states_of(repo, &maintainers, facts).any(|rank| Some(rank) > applied);
        let state = applied.and_then(|rank| facts.event(&rank.id));
        let state = state.and_then(|event| {
            let targets = State::read(&event).ok()?.refs.ok()?;
            Some((event, targets))
        });
        Self {
            announcement: facts.newest(&repo.address(Kind::ANNOUNCEMENT)),
            has_state: applied.is_some(),
            awaits,
            maintainers,
            state,
        }
    }

    /// The refs are those of its state, and no newer one is served.
    pub fn is_in_step(&self, heads_and_tags: &Refs) -> bool {
        match &self.state {
            _ if self.awaits => false,
            Some((_, targets)) => targets.refs == *heads_and_tags,
            // Its author has deleted it since; the refs stay.
            None => self.has_state || heads_and_tags.is_empty(),
        }
    }
}

/// The announcements that the maintainer set follows from, and no others.
pub fn registry_around(
    repo: &RepoId,
    facts: &dyn Facts,
    us: &Service,
    rule: MaintainerRule,
) -> Registry {
    let mut registry = Registry::new(rule);
    let mut keys = vec![repo.owner];
    let mut next = 0;
    while let Some(key) = keys.get(next).copied() {
        next += 1;
        let address = RepoId::new(key, repo.identifier.clone()).address(Kind::ANNOUNCEMENT);
        let event = facts.newest(&address);
        let read = event.and_then(|event| Announcement::read(&event, us).ok());
        let Some(announcement) = read else {
            continue;
        };
        for listed in &announcement.listed {
            if !keys.contains(listed) && keys.len() < 4 * MAX_MEMBERS {
                keys.push(*listed);
            }
        }
        registry.announce(announcement, Standing::Served, None);
    }
    registry
}

fn states_of<'a>(
    repo: &'a RepoId,
    maintainers: &'a [Pubkey],
    facts: &'a dyn Facts,
) -> impl Iterator<Item = Rank> + 'a {
    maintainers.iter().filter_map(|key| {
        let address = RepoId::new(*key, repo.identifier.clone()).address(Kind::STATE);
        facts.rank_at(&address)
    })
}
