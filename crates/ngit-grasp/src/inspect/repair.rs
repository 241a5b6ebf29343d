//! What a disk has lost comes back from other git servers, while our own is stopped. The hunt of a
//! running server looks for commits and tags that are gone; here also what is gone below them
//! comes back, because everything that they reach is asked for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use grasp_core::clone_url::{CloneUrl, Domain};
use grasp_core::event::Event;
use grasp_core::git::ObjectId;
use grasp_core::hunt::io::{FetchAsk, FetchEnd, Fetched};
use grasp_core::nip34::{PullRequest, State};
use grasp_core::push::Backing;
use grasp_core::registry::Registry;
use grasp_core::{DomainLimits, Facts as _, HuntLimits, RepoId};
use grasp_git::{GitError, Repo};
use rustc_hash::FxHashMap;

use super::{FSCK, REPAIR, Records};
use crate::config::Config;
use crate::fetch::Restorer;
use crate::hosting::overview::registry_around;
use crate::hosting::room::Rooms;
use crate::transfer::{TransferError, say};

const MINUTE: Duration = Duration::from_secs(60);
/// Of a repository that has lost something.
const MAX_SERVERS: usize = 32;
/// In a row; a server that fails so often is not asked for the next repository.
const MAX_FAILURES: u32 = 2;

/// Looks through every repository and brings back what can be had. True if something came.
pub(super) async fn bring_back(records: &Records, config: &Config) -> Result<bool, TransferError> {
    let all = records.all()?;
    let mut errand = Errand::new(records, config)?;
    let mut came = false;
    for repo in &all {
        match Loss::of(records, config, repo).await {
            Ok(Some(loss)) => came |= errand.make_good(repo, loss).await,
            Ok(None) => {}
            // The check that follows says so.
            Err(error) if error.is_not_found() => {}
            Err(error) => say(&format!("{repo}: {error}")),
        }
    }
    Ok(came)
}

/// What a repository has lost, and who may have it.
struct Loss {
    wants: BTreeSet<ObjectId>,
    servers: Vec<CloneUrl>,
}

impl Loss {
    async fn of(records: &Records, config: &Config, id: &RepoId) -> Result<Option<Self>, GitError> {
        let repo = records.repositories.open(id)?;
        let us = config.service();
        let registry = registry_around(id, &records.store, &us, config.maintainer_rule);
        let hidden = records.hidden.iter();
        let hidden = hidden.filter_map(|event| records.store.event(event));
        let mut events: Vec<Arc<Event>> = hidden
            .filter(|event| is_served_from(event, id, &registry, records))
            .collect();
        let mut wants = absent(&repo, &events)?;
        if !repo.fsck_connectivity(FSCK).await?.is_empty() {
            for (name, tip) in repo.refs()?.ids() {
                wants.insert(tip);
                let event = name.event().and_then(|event| records.store.event(&event));
                events.extend(event);
            }
        }
        if wants.is_empty() {
            return Ok(None);
        }
        let mut servers = registry.clones(id, &id.owner);
        for url in events
            .iter()
            .flat_map(|event| PullRequest::clones(event, &us))
        {
            if servers.len() < MAX_SERVERS && !servers.contains(&url) {
                servers.push(url);
            }
        }
        Ok(Some(Self { wants, servers }))
    }
}

/// A repository that the event names, or one that its author maintains.
fn is_served_from(event: &Event, repo: &RepoId, registry: &Registry, records: &Records) -> bool {
    let Some(pull_request) = PullRequest::read(event) else {
        return State::read(event).is_ok_and(|state| {
            let maintains = registry.maintainers(repo).contains(&state.author);
            maintains && state.identifier == repo.identifier
        });
    };
    let root = pull_request
        .root
        .and_then(|root| records.store.event(&root));
    let root = root.and_then(|root| PullRequest::read(&root));
    let named = root.iter().flat_map(|root| &root.repos);
    pull_request
        .repos
        .iter()
        .chain(named)
        .any(|one| one == repo)
}

/// What these events need, as far as it is not there.
fn absent(repo: &Repo, events: &[Arc<Event>]) -> Result<BTreeSet<ObjectId>, GitError> {
    let objects = repo.objects()?;
    let mut absent = BTreeSet::new();
    for event in events {
        let needed = match PullRequest::read(event) {
            Some(pull_request) => pull_request.tip.into_iter().collect(),
            None => match State::read(event).map(|state| state.refs) {
                Ok(Ok(targets)) => targets.objects(),
                _ => Vec::new(),
            },
        };
        for id in needed {
            if !objects.contains(&id)? {
                absent.insert(id);
            }
        }
    }
    Ok(absent)
}

/// One server after the other, none more often than the hunt would ask it.
struct Errand {
    restorer: Restorer,
    limits: HuntLimits,
    asked: FxHashMap<Domain, Asked>,
    until: Instant,
}

struct Asked {
    at: Instant,
    failures: u32,
}

impl Errand {
    fn new(records: &Records, config: &Config) -> Result<Self, TransferError> {
        let mut options = config.fetch_options();
        // The operator waits for it, and it comes in one piece.
        let limits = &mut options.limits;
        limits.pack.max_bytes = config.max_repository_bytes.as_u64();
        limits.max_bytes = limits.pack.max_bytes;
        limits.deadline = limits.pack.deadline;
        let repositories = Arc::new(records.repositories.clone());
        let rooms = Arc::new(Rooms::of(config));
        let restorer = Restorer::new(options, repositories, rooms);
        let restorer = restorer.map_err(|source| TransferError::Io {
            path: "the network".into(),
            source,
        })?;
        Ok(Self {
            restorer,
            limits: config.policy().limits.hunt,
            asked: FxHashMap::default(),
            until: Instant::now() + REPAIR,
        })
    }

    /// True if something came.
    async fn make_good(&mut self, repo: &RepoId, loss: Loss) -> bool {
        let Loss { mut wants, servers } = loss;
        let all = wants.len();
        for url in &servers {
            while !wants.is_empty() && Instant::now() < self.until && self.may_ask(url) {
                let fetched = self.ask(repo, url, &wants).await;
                for id in &fetched.got {
                    wants.remove(id);
                }
                // What is in neither list was beyond what one fetch asks for.
                let left = wants.iter().any(|id| !fetched.lacking.contains(id));
                if fetched.got.is_empty() || fetched.end != FetchEnd::Answered || !left {
                    break;
                }
            }
        }
        let came = all - wants.len();
        say(&format!(
            "{repo}: {came} of {all} tips have all of their data again"
        ));
        came > 0
    }

    fn may_ask(&self, url: &CloneUrl) -> bool {
        let asked = self.asked.get(url.domain());
        asked.is_none_or(|asked| asked.failures < MAX_FAILURES)
    }

    async fn ask(&mut self, repo: &RepoId, url: &CloneUrl, wants: &BTreeSet<ObjectId>) -> Fetched {
        self.wait_for(url.domain()).await;
        let ask = FetchAsk {
            repo: repo.clone(),
            url: url.clone(),
            wants: wants.iter().copied().collect(),
            backing: Backing::State,
        };
        let fetched = self.restorer.fetch(&ask).await;
        let (got, lacking) = (fetched.got.len(), fetched.lacking.len());
        let word = fetched.end.label();
        say(&format!(
            "{repo}: {url}: {word}, had {got}, lacked {lacking}"
        ));
        if let Some(asked) = self.asked.get_mut(url.domain()) {
            asked.failures = match fetched.end {
                FetchEnd::Answered | FetchEnd::Absent => 0,
                _ => asked.failures + 1,
            };
        }
        fetched
    }

    /// Until so much time has passed since it was asked last that it is never asked too often.
    async fn wait_for(&mut self, domain: &Domain) {
        let DomainLimits { per_minute, .. } = match self.limits.domains.get(domain) {
            Some(limits) => *limits,
            None => self.limits.domain,
        };
        let gap = MINUTE / per_minute.max(1);
        let now = Instant::now();
        let asked = self.asked.entry(domain.clone()).or_insert(Asked {
            at: now.checked_sub(gap).unwrap_or(now),
            failures: 0,
        });
        tokio::time::sleep_until((asked.at + gap).into()).await;
        asked.at = Instant::now();
    }
}
