//! What each repository lacks, from the one place that knows. Asked for several times in every
//! fetch, and so nothing is read anew for it, and of many pull requests only some are told.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::hunting::{Sought, ground};
use super::lost::Lost;
use crate::admit::{Needs, Policy};
use crate::clock::Timestamp;
use crate::clone_url::CloneUrl;
use crate::event::Event;
use crate::facts::Facts;
use crate::git::ObjectId;
use crate::hunt::{Grounds, Need};
use crate::id::{EventId, Pubkey};
use crate::nip34::{PullRequest, RepoId};
use crate::purgatory::{Held, Purgatory};
use crate::push::Backing;
use crate::registry::{Registry, Standing};

/// Pull requests of one repository that are looked for at a time, with up to 64 servers each. More
/// are asked for by nobody but those who want to be in the way.
const MAX_TIPS: usize = 512;
/// After so many seconds it is the turn of others, if there are more.
const TURN_SECS: u64 = 600;

/// What is looked for because of one event that is served.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub objects: Arc<[ObjectId]>,
    pub signer: Pubkey,
    backing: Backing,
    /// Those that it names itself; `None` as long as nobody has read them.
    pub servers: Option<Arc<[CloneUrl]>>,
}

impl Wanted {
    pub fn new(objects: Arc<[ObjectId]>, signer: Pubkey, backing: Backing) -> Self {
        Self {
            objects,
            signer,
            backing,
            servers: None,
        }
    }
}

pub(super) struct Lacking<'a> {
    pub policy: &'a Policy,
    pub registry: &'a Registry,
    pub purgatory: &'a Purgatory,
    pub lost: &'a Lost,
    /// Events that no repository here can serve.
    pub hidden: &'a FxHashSet<EventId>,
    pub sought: &'a Sought,
    pub facts: &'a dyn Facts,
    pub now: Timestamp,
}

impl Grounds for Lacking<'_> {
    fn needs(&self, repo: &RepoId) -> Vec<Need> {
        if !self.registry.is_hosted(repo) {
            return Vec::new();
        }
        let mut needs = self.of_states(repo);
        let mut tips = self.of_tips(repo);
        for need in self.of_served(repo) {
            match need.backing {
                Backing::State => needs.push(need.told()),
                Backing::PullRequests | Backing::None => tips.push(need),
            }
        }
        let tips = some(tips, self.now.0 / TURN_SECS);
        needs.extend(tips.into_iter().map(Lack::told));
        let mut named = Named::new(self.registry, repo);
        for (need, signer) in &mut needs {
            need.servers.extend(named.by(signer));
        }
        let needs = needs.into_iter().map(|(need, _)| need);
        needs.filter(|need| !need.objects.is_empty()).collect()
    }

    fn is_served(&self, repo: &RepoId) -> bool {
        self.registry.hosting(repo) == Some(Standing::Served)
    }
}

/// A need, as long as it is not decided whether it is told.
struct Lack<'a> {
    event: EventId,
    signer: Pubkey,
    backing: Backing,
    objects: &'a [ObjectId],
    servers: Arc<[CloneUrl]>,
}

impl Lack<'_> {
    fn told(self) -> (Need, Pubkey) {
        let need = Need {
            event: self.event,
            objects: self.objects.to_vec(),
            backing: self.backing,
            servers: self.servers.to_vec(),
        };
        (need, self.signer)
    }
}

impl Lacking<'_> {
    /// All of them.
    fn of_states(&self, repo: &RepoId) -> Vec<(Need, Pubkey)> {
        let members = self.registry.maintainers(repo);
        let ids = members.iter().flat_map(|member| {
            let of = RepoId::new(*member, repo.identifier.clone());
            self.purgatory.states_of(&of)
        });
        ids.filter_map(|id| self.of_state(repo, self.purgatory.get(id)?))
            .collect()
    }

    fn of_state(&self, repo: &RepoId, held: &Held) -> Option<(Need, Pubkey)> {
        let Needs::Refs(state) = &held.needs else {
            return None;
        };
        let ground = ground(self.registry, &state.author, &state.identifier);
        if ground.as_ref() != Some(repo) {
            return None;
        }
        let targets = state.refs.as_ref().ok()?;
        let need = Need {
            event: held.event.id,
            objects: match &held.missing {
                Some(missing) => missing.to_vec(),
                None => targets.objects(),
            },
            backing: Backing::State,
            servers: Vec::new(),
        };
        Some((need, held.event.pubkey))
    }

    fn of_tips(&self, repo: &RepoId) -> Vec<Lack<'_>> {
        let ids = self.purgatory.tips(repo).into_iter();
        let held = ids.filter_map(|id| self.purgatory.get(&id));
        let tips = held.filter_map(|held| {
            let Needs::Tip { tip, .. } = &held.needs else {
                return None;
            };
            let servers = held.servers.clone();
            (!held.landed_in.contains(repo)).then(|| Lack {
                event: held.event.id,
                signer: held.event.pubkey,
                backing: Backing::PullRequests,
                objects: std::slice::from_ref(tip),
                servers: servers.unwrap_or_else(|| self.servers_of(&held.event)),
            })
        });
        tips.collect()
    }

    fn servers_of(&self, event: &Event) -> Arc<[CloneUrl]> {
        PullRequest::clones(event, &self.policy.service).into()
    }

    /// Events that are served and whose objects are not here, or not any more.
    fn of_served(&self, repo: &RepoId) -> Vec<Lack<'_>> {
        if !self.sought.is_sought(repo, self.now) {
            return Vec::new();
        }
        let lost = self.lost.in_repo(repo);
        let lost = lost.filter(|(id, _)| self.hidden.contains(*id));
        let wanted = lost.chain(self.sought.absent_in(repo));
        let here = wanted.filter(|(id, _)| self.facts.kind_of(id).is_some());
        here.map(|(id, wanted)| Lack {
            event: *id,
            signer: wanted.signer,
            backing: wanted.backing,
            objects: &wanted.objects,
            servers: wanted.servers.clone().unwrap_or_default(),
        })
        .collect()
    }
}

/// The servers that maintainers name, found once for each of them and once for all strangers.
struct Named<'a> {
    registry: &'a Registry,
    repo: &'a RepoId,
    known: BTreeMap<Option<Pubkey>, Vec<CloneUrl>>,
}

impl<'a> Named<'a> {
    fn new(registry: &'a Registry, repo: &'a RepoId) -> Self {
        Self {
            registry,
            repo,
            known: BTreeMap::new(),
        }
    }

    fn by(&mut self, signer: &Pubkey) -> impl Iterator<Item = CloneUrl> {
        let member = self.registry.is_maintainer(self.repo, signer);
        let known = self.known.entry(member.then_some(*signer));
        let clones = known.or_insert_with(|| self.registry.clones(self.repo, signer));
        clones.iter().cloned()
    }
}

/// As many as are looked for at a time: the first of every author, then the second of every author.
/// Among equals the turn decides, so that nobody is left out for good.
fn some(mut tips: Vec<Lack<'_>>, turn: u64) -> Vec<Lack<'_>> {
    if tips.len() <= MAX_TIPS {
        return tips;
    }
    let lot = fastrand::Rng::with_seed(turn).u64(..);
    let place = |tip: &Lack<'_>| {
        let number = tip.event.0.first_chunk();
        number.map_or(0, |id| u64::from_be_bytes(*id)) ^ lot
    };
    tips.sort_by_cached_key(place);
    let mut of_author: FxHashMap<Pubkey, u32> = FxHashMap::default();
    let ranked = tips.into_iter().enumerate().map(|(place, tip)| {
        let rank = of_author.entry(tip.signer).or_default();
        *rank += 1;
        ((*rank, place), tip)
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.select_nth_unstable_by_key(MAX_TIPS, |(rank, _)| *rank);
    ranked.truncate(MAX_TIPS);
    ranked.into_iter().map(|(_, tip)| tip).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn tip(n: u32) -> Lack<'static> {
        let mut event = [7; 32];
        if let Some(first) = event.first_chunk_mut() {
            *first = (u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
        }
        Lack {
            event: EventId(event),
            signer: Pubkey([1; 32]),
            backing: Backing::PullRequests,
            objects: &[],
            servers: Arc::from([]),
        }
    }

    #[test]
    fn turns_of_one_authors_many_pull_requests_differ() {
        let chosen = |turn| -> BTreeSet<EventId> {
            let tips = (0..600).map(tip).collect();
            some(tips, turn).iter().map(|tip| tip.event).collect()
        };
        let (first, second) = (chosen(1), chosen(2));
        assert_eq!((first.len(), second.len()), (MAX_TIPS, MAX_TIPS));
        assert_ne!(first, second);
        let all: BTreeSet<EventId> = (1..40).flat_map(chosen).collect();
        assert_eq!(all.len(), 600, "nobody is left out for good");
    }
}
