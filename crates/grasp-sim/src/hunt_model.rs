//! What the hunt must have brought, by set algebra: an object that somebody waits for, and that an
//! honest server has which one of its events names, is here after a while. Nothing of how the hunt
//! works is used.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use grasp_core::admit::Needs;
use grasp_core::git::ObjectId;
use grasp_core::hunt::MAX_SERVERS;
use grasp_core::nip34::State;
use grasp_core::nip34::announcement::all_values;
use grasp_core::{Event, EventId, Facts as _, RepoId};

use crate::checkers::View;
use crate::ending::places_of;
use crate::hosts::{Hosts, Site, site};

/// A push is awaited for three minutes, a repository rests for two between attempts, and then git
/// and the disk have their say. For objects that came after their server was asked there is a
/// second attempt.
const PATIENCE: Duration = Duration::from_secs(180 + 120 + 180);
/// Of more servers than one attempt asks, so many have their turn in each, and so long lies
/// between two attempts.
const TURN: usize = MAX_SERVERS / 2;
const BETWEEN: Duration = Duration::from_secs(120 + 30);
/// A server that failed is left alone for so long at most.
const REST: Duration = Duration::from_secs(15 * 60);

/// Somebody waits for an object of a repository that could be had.
type Due = (EventId, RepoId, ObjectId);

/// Watches one life of the process in the calm.
#[derive(Default)]
pub(crate) struct HuntModel {
    /// Since when each could be had, without a break.
    due: BTreeMap<Due, Duration>,
}

pub(crate) struct Scene<'a> {
    pub(crate) view: &'a View<'a>,
    pub(crate) hosts: &'a Hosts,
    pub(crate) now: Duration,
    /// Everything that is lost was looked for since the process was started.
    pub(crate) seeks_lost: bool,
}

impl HuntModel {
    pub(crate) fn look(&mut self, scene: &Scene<'_>) -> Result<(), String> {
        let mut due = BTreeMap::new();
        for (event, repo, id, patience) in scene.of_held().into_iter().chain(scene.of_lost()) {
            let key = (event, repo, id);
            let since = self.due.get(&key).copied().unwrap_or(scene.now);
            if since + patience < scene.now {
                let (event, repo, id) = key;
                let at = since.as_secs();
                return Err(format!(
                    "{event} waits for {id} in {repo:?}, which could be had since {at} s"
                ));
            }
            due.insert(key, since);
        }
        self.due = due;
        Ok(())
    }
}

/// What somebody waits for, and how long it may take.
type Wait = (EventId, RepoId, ObjectId, Duration);

impl Scene<'_> {
    fn of_held(&self) -> Vec<Wait> {
        let mut waits = Vec::new();
        for held in self.view.core.purgatory().iter() {
            let event = &held.event;
            let lacking = match &held.needs {
                _ if !self.view.disk.held.contains_key(&event.id) => Vec::new(),
                Needs::Refs(state) => self.of_state(event, state),
                Needs::Tip { tip, repos } => self.of_tip(event, *tip, repos),
                _ => Vec::new(),
            };
            let wait = lacking.into_iter();
            waits.extend(wait.map(|(repo, id, patience)| (event.id, repo, id, patience)));
        }
        waits
    }

    /// Objects of hidden events that could be had whichever repository they are looked for in.
    fn of_lost(&self) -> Vec<Wait> {
        let mut waits = Vec::new();
        let stored = self.view.disk.stored();
        let hidden = stored.filter(|event| !self.view.disk.is_served(&event.id));
        for event in hidden.filter(|_| self.seeks_lost) {
            let Some((places, mut lacking)) = places_of(event, self.view) else {
                continue;
            };
            lacking.retain(|id| !places.iter().any(|repo| self.has(repo, id)));
            let mut had: BTreeMap<ObjectId, Vec<(RepoId, Duration)>> = BTreeMap::new();
            for place in &places {
                for (repo, id, patience) in self.could_be_had(event, place, &lacking) {
                    had.entry(id).or_default().push((repo, patience));
                }
            }
            had.retain(|_, offers| offers.len() == places.len());
            for (id, offers) in had {
                let longest = offers.into_iter().max_by_key(|(_, patience)| *patience);
                waits.extend(longest.map(|(repo, patience)| (event.id, repo, id, patience)));
            }
        }
        waits
    }

    /// What a state lacks and could have, and how long that may take.
    fn of_state(&self, event: &Event, state: &State) -> Vec<(RepoId, ObjectId, Duration)> {
        let registry = self.view.core.registry();
        let mut repos = registry.maintained_by(&state.author, &state.identifier);
        repos.retain(|repo| registry.is_hosted(repo));
        let own = repos.iter().position(|repo| repo.owner == state.author);
        let ground = own.and_then(|own| repos.get(own)).or(repos.iter().min());
        let (Some(ground), Ok(targets)) = (ground, &state.refs) else {
            return Vec::new();
        };
        let mut lacking = targets.objects();
        lacking.retain(|id| !repos.iter().any(|repo| self.has(repo, id)));
        self.could_be_had(event, ground, &lacking)
    }

    fn of_tip(
        &self,
        event: &Event,
        tip: ObjectId,
        repos: &[RepoId],
    ) -> Vec<(RepoId, ObjectId, Duration)> {
        let registry = self.view.core.registry();
        let hosted = repos.iter().filter(|repo| registry.is_hosted(repo));
        let lacking = hosted.filter(|repo| !self.has(repo, &tip));
        lacking
            .flat_map(|repo| self.could_be_had(event, repo, &[tip]))
            .collect()
    }

    fn has(&self, repo: &RepoId, id: &ObjectId) -> bool {
        let found = self.view.git.get(repo);
        found.is_some_and(|found| found.objects.contains(id))
    }

    fn could_be_had(
        &self,
        event: &Event,
        repo: &RepoId,
        lacking: &[ObjectId],
    ) -> Vec<(RepoId, ObjectId, Duration)> {
        if self.view.git.get(repo).is_none() {
            return Vec::new();
        }
        let sites = self.sites(event, repo);
        let hosts = sites.iter().filter_map(|site| self.hosts.at(site));
        let waits: Duration = hosts.map(|host| host.traits.longest()).sum();
        let patience = PATIENCE + waits * 2 + self.turns(repo) * BETWEEN;
        let offered = |id: &&ObjectId| sites.iter().any(|site| self.offers(site, id));
        let offered = lacking.iter().filter(offered);
        offered.map(|id| (repo.clone(), *id, patience)).collect()
    }

    /// Attempts until every server that anybody names for this repository was asked.
    fn turns(&self, repo: &RepoId) -> u32 {
        let held = self.view.core.purgatory().iter();
        let tips = held.filter(|held| match &held.needs {
            Needs::Tip { repos, .. } => repos.contains(repo),
            _ => false,
        });
        let named = tips.flat_map(|held| all_values(&held.event, "clone"));
        let named: BTreeSet<&str> = named.collect();
        u32::try_from(named.len().saturating_sub(TURN).div_ceil(TURN)).unwrap_or(u32::MAX)
    }

    /// An honest server, which we have no reason to leave alone, shows it.
    fn offers(&self, site: &Site, id: &ObjectId) -> bool {
        let host = self.hosts.at(site);
        host.is_some_and(|host| {
            let rests = host.failed_at.is_some_and(|at| at + REST > self.now);
            host.traits.is_honest() && !rests && host.shows(&site.path, id).is_some()
        })
    }

    /// Where the event, and those who maintain the repository, say that it is.
    fn sites(&self, event: &Event, repo: &RepoId) -> BTreeSet<Site> {
        let (registry, disk) = (self.view.core.registry(), self.view.disk);
        let members = registry.maintainers(repo);
        let announced = members.iter().filter_map(|member| {
            let of_member = RepoId::new(*member, repo.identifier.clone());
            let id = registry.announcement(&of_member)?.rank.id;
            let held = disk.held.get(&id).map(|row| row.event.clone());
            disk.event(&id).or(held)
        });
        let mut sites: BTreeSet<Site> = BTreeSet::new();
        for announcement in announced {
            sites.extend(all_values(&announcement, "clone").filter_map(site));
        }
        if matches!(event.kind.0, 1618 | 1619) {
            sites.extend(all_values(event, "clone").filter_map(site));
        }
        sites
    }
}
