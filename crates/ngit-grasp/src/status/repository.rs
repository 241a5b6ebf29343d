//! How sync stands with one repository, for its page: numbers and the relays that its announcement
//! names. Of what is held the kind and the age are told, and nothing else.

use grasp_core::sync::{Health, Link, RepoIx, RepoSyncNeeds};
use grasp_core::{Core, EventId, RepoId, Timestamp};

use crate::perform::held_kind;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepoSync {
    pub enabled: bool,
    /// Kinds of the events that wait for git data of this repository, and for how many seconds;
    /// the oldest first.
    pub held: Vec<(u64, &'static str)>,
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
    /// Histories that were read to their end, of all: its own and those of its issues, patches
    /// and pull requests.
    pub read: u64,
    pub wanted: u64,
    pub health: Health,
}

impl RepoSync {
    pub fn of(core: &Core, repo: &RepoId, now: Timestamp) -> Self {
        let mut told = Self {
            enabled: core.policy().limits.sync.enabled,
            ..Self::default()
        };
        if !core.registry().is_hosted(repo) {
            return told;
        }
        told.held = held(core, repo, now);
        told.hunted = core.hunt().is_after(repo);
        let repos = &core.sync().targets().repos;
        let found = repos.find(repo);
        if let Some((ix, needs)) = found.and_then(|ix| Some((ix, repos.get(ix)?))) {
            told.relays = relays(core, ix, needs);
            told.left_out = needs.left_out;
        }
        told
    }
}

fn relays(core: &Core, ix: RepoIx, needs: &RepoSyncNeeds) -> Vec<RepoRelay> {
    let (sync, known) = (core.sync(), &core.sync().targets().relays);
    let relays = needs.relays.iter().filter_map(|no| {
        let relay = known.get(*no)?;
        let (here, read) = (&relay.confirmed, &relay.read);
        Some(RepoRelay {
            url: relay.url.to_string(),
            connected: sync.link(*no).is_some_and(Link::is_up),
            in_step: here.repos.contains(ix.0) && needs.roots.is_subset(&here.roots),
            read: u64::from(read.repos.contains(ix.0)) + needs.roots.intersection_len(&read.roots),
            wanted: 1 + needs.roots.len(),
            health: sync.health(*no)?.health,
        })
    });
    relays.collect()
}

/// By its owner and maintainers, and pull requests of anybody.
fn held(core: &Core, repo: &RepoId, now: Timestamp) -> Vec<(u64, &'static str)> {
    let purgatory = core.purgatory();
    let maintainers = core.registry().maintainers(repo);
    let states = purgatory.states(&repo.identifier).into_iter();
    let announcements = purgatory.announcements(&repo.identifier).into_iter();
    let own = states.chain(announcements).filter(|id| {
        let held = purgatory.get(id).filter(|held| !held.remembered);
        held.is_some_and(|held| {
            let author = held.event.pubkey;
            author == repo.owner || maintainers.contains(&author)
        })
    });
    let held_for = core.policy().limits.held_for.as_secs();
    let told = |id: EventId| {
        let held = purgatory.get(&id)?;
        let left = held.until.0.saturating_sub(now.0);
        let age = held_for.saturating_sub(left);
        Some((age, held_kind(held.event.kind)))
    };
    let all = own.chain(purgatory.tips(repo));
    let mut all: Vec<(u64, &'static str)> = all.filter_map(told).collect();
    all.sort_unstable_by_key(|(age, _)| std::cmp::Reverse(*age));
    all
}
