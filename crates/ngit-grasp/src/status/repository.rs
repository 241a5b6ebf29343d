//! How sync stands with one repository, for its page: numbers and the relays that its announcement
//! names. Nothing of what is held is told.

use grasp_core::sync::{Health, Link, Relay};
use grasp_core::{Core, RepoId};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepoSync {
    pub enabled: bool,
    /// Events that wait for git data of this repository.
    pub held: usize,
    /// Git data is being looked for elsewhere.
    pub hunted: bool,
    pub relays: Vec<RepoRelay>,
    /// Relays that it names and that were not taken in.
    pub left_out: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoRelay {
    pub url: String,
    pub connected: bool,
    /// Everything that it had of this repository is here.
    pub in_step: bool,
    pub health: Health,
}

impl RepoSync {
    pub fn of(core: &Core, repo: &RepoId) -> Self {
        let (sync, targets) = (core.sync(), core.sync().targets());
        let mut told = Self {
            enabled: core.policy().limits.sync.enabled,
            ..Self::default()
        };
        // Anybody may ask for any name.
        if !core.registry().is_hosted(repo) {
            return told;
        }
        told.held = held(core, repo);
        told.hunted = core.hunt().is_after(repo);
        let Some(ix) = targets.repos.find(repo) else {
            return told;
        };
        let Some(needs) = targets.repos.get(ix) else {
            return told;
        };
        let in_step = |relay: &Relay| {
            let here = &relay.confirmed;
            here.repos.contains(ix.0) && needs.roots.is_subset(&here.roots)
        };
        let relays = needs.relays.iter().filter_map(|no| {
            let relay = targets.relays.get(*no)?;
            Some(RepoRelay {
                url: relay.url.to_string(),
                connected: sync.link(*no).is_some_and(Link::is_up),
                in_step: in_step(relay),
                health: sync.health(*no)?.health,
            })
        });
        told.relays = relays.collect();
        told.left_out = needs.left_out;
        told
    }
}

/// By its owner and maintainers, and pull requests of anybody.
fn held(core: &Core, repo: &RepoId) -> usize {
    let purgatory = core.purgatory();
    let maintainers = core.registry().maintainers(repo);
    let states = purgatory.states(&repo.identifier).into_iter();
    let announcements = purgatory.announcements(&repo.identifier).into_iter();
    let own = states.chain(announcements).filter(|id| {
        let held = purgatory.get(id);
        held.is_some_and(|held| {
            let author = held.event.pubkey;
            author == repo.owner || maintainers.contains(&author)
        })
    });
    own.count() + purgatory.tips(repo).len()
}
