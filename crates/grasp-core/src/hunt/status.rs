//! How the hunt stands, for the operator: plain data, in the words of the API. Times are in
//! seconds from now.

use serde::Serialize;

use super::Hunt;
use super::attempt::{Ask, Quarry, Server, Tried};
use super::domain::DomainState;
use super::queue::Phase;
use crate::clock::Mono;
use crate::clone_url::Domain;
use crate::nip34::RepoId;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HuntStatus {
    pub enabled: bool,
    /// Our disk is nearly full: nothing is fetched for so long.
    pub paused_secs: Option<u64>,
    pub in_flight: usize,
    /// Repositories and domains that would be asked if more fetches were allowed.
    pub in_line: usize,
    pub repositories: Vec<RepoHunt>,
    /// Those about which there is something to say.
    pub domains: Vec<DomainHunt>,
}

/// What all repositories come to, told without a look at their servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HuntTotals {
    pub enabled: bool,
    /// Our disk is nearly full: nothing is fetched for so long.
    pub paused_secs: Option<u64>,
    pub in_flight: usize,
    /// Repositories and domains that would be asked if more fetches were allowed.
    pub in_line: usize,
    pub repositories: usize,
    /// Objects that were missing when they were counted last.
    pub missing: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepoHunt {
    #[serde(skip)]
    pub id: RepoId,
    pub repository: String,
    pub waiting_secs: u64,
    /// Events that waited and objects that were missing when they were counted last.
    pub events: u32,
    pub missing: u32,
    pub attempts: u32,
    pub state: &'static str,
    pub next_secs: Option<u64>,
    pub servers: Vec<ServerHunt>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerHunt {
    pub url: String,
    pub state: &'static str,
    pub last: Option<LastTry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastTry {
    pub secs_ago: u64,
    pub end: &'static str,
    pub got: u32,
    pub lacking: u32,
    /// What is wrong with what it sent.
    pub problem: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DomainHunt {
    pub domain: String,
    pub in_flight: u32,
    pub concurrent: u32,
    pub last_minute: usize,
    pub per_minute: u32,
    pub failures: u32,
    pub resting_secs: Option<u64>,
    /// Why it rests.
    pub why: Option<&'static str>,
    /// Repositories in its queue.
    pub waiting: usize,
}

impl Hunt {
    /// How everything stands, in a stable order.
    pub fn status(&self, now: Mono) -> HuntStatus {
        let repos = self.queue.iter();
        let mut repositories: Vec<RepoHunt> = repos
            .map(|(repo, quarry)| repo_status(repo, quarry, now))
            .collect();
        repositories.sort_by(|one, other| one.id.cmp(&other.id));
        HuntStatus {
            enabled: self.limits.enabled,
            paused_secs: self.paused.map(|until| until.since(now).as_secs()),
            in_flight: self.flights.len(),
            in_line: self.line.len(),
            repositories,
            domains: self.domains(now),
        }
    }

    pub fn totals(&self, now: Mono) -> HuntTotals {
        let missing = self.queue.iter().map(|(_, quarry)| quarry.missing);
        HuntTotals {
            enabled: self.limits.enabled,
            paused_secs: self.paused.map(|until| until.since(now).as_secs()),
            in_flight: self.flights.len(),
            in_line: self.line.len(),
            repositories: self.queue.len(),
            missing: missing.map(u64::from).sum(),
        }
    }

    /// Those that have waited longest, at most so many.
    pub fn longest(&self, most: usize, now: Mono) -> Vec<RepoHunt> {
        let all = self.queue.iter();
        let mut all: Vec<(Mono, &RepoId, &Quarry)> = all
            .map(|(repo, quarry)| (quarry.since, repo, quarry))
            .collect();
        let older = |one: &(Mono, &RepoId, _), other: &(Mono, &RepoId, _)| {
            (one.0, one.1).cmp(&(other.0, other.1))
        };
        if most < all.len() {
            all.select_nth_unstable_by(most, older);
            all.truncate(most);
        }
        all.sort_unstable_by(older);
        let all = all.into_iter();
        all.map(|(_, repo, quarry)| repo_status(repo, quarry, now))
            .collect()
    }

    /// Domains about which there is something to say, in a stable order.
    pub fn domains(&self, now: Mono) -> Vec<DomainHunt> {
        let domains = self.domains.iter();
        let domains = domains.filter(|(_, state)| !state.is_unremarkable(now));
        let mut domains: Vec<DomainHunt> = domains
            .map(|(domain, state)| domain_status(domain, state, now))
            .collect();
        domains.sort_by(|one, other| one.domain.cmp(&other.domain));
        domains
    }

    /// How it stands with one repository; `None` if it lacks nothing.
    pub fn status_of(&self, repo: &RepoId, now: Mono) -> Option<RepoHunt> {
        let quarry = self.queue.get(repo)?;
        Some(repo_status(repo, quarry, now))
    }
}

fn repo_status(repo: &RepoId, quarry: &Quarry, now: Mono) -> RepoHunt {
    let (state, next) = match quarry.phase {
        Phase::Waiting(at) => ("waiting", Some(at)),
        Phase::Ready => ("ready", None),
        Phase::Trying { .. } => ("trying", None),
    };
    RepoHunt {
        id: repo.clone(),
        repository: repo.to_string(),
        waiting_secs: now.since(quarry.since).as_secs(),
        events: quarry.events,
        missing: quarry.missing,
        attempts: quarry.attempts,
        state,
        next_secs: next.map(|at| at.since(now).as_secs()),
        servers: quarry
            .servers
            .iter()
            .map(|server| server_status(server, now))
            .collect(),
    }
}

fn server_status(server: &Server, now: Mono) -> ServerHunt {
    ServerHunt {
        url: server.url.to_string(),
        state: match server.ask {
            Ask::Next => "next",
            Ask::Asked(_) => "asked",
            Ask::Queued => "waits for its domain",
            Ask::Done => "done",
        },
        last: server.last.as_ref().map(|last| last_try(last, now)),
    }
}

fn last_try(last: &Tried, now: Mono) -> LastTry {
    LastTry {
        secs_ago: now.since(last.at).as_secs(),
        end: last.end.label(),
        got: last.got,
        lacking: last.lacking,
        problem: last.problem.as_deref().map(str::to_owned),
    }
}

fn domain_status(domain: &Domain, state: &DomainState, now: Mono) -> DomainHunt {
    let limits = state.throttle.limits();
    let rest = state.resting(now);
    DomainHunt {
        domain: domain.to_string(),
        in_flight: state.throttle.in_flight(),
        concurrent: limits.concurrent,
        last_minute: state.throttle.lately(now),
        per_minute: limits.per_minute,
        failures: state.failures,
        resting_secs: rest.map(|rest| rest.until.since(now).as_secs()),
        why: rest.map(|rest| rest.why.label()),
        waiting: state.awaited_by(),
    }
}
