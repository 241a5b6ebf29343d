//! Sums that are kept up against sums made anew, limits, and whether anything waits without end.
//! For the simulator and the stories.

use std::collections::BTreeMap;

use super::Hunt;
use super::attempt::{Ask, MAX_FLIGHTS, MAX_SERVERS, Quarry};
use super::domain::{Admission, DomainState};
use super::flight::Class;
use super::line::Turn;
use super::queue::Phase;
use super::turn::kept_for_served;
use crate::clock::Mono;
use crate::clone_url::Domain;
use crate::nip34::RepoId;

impl Hunt {
    pub fn audit(&self, now: Mono) -> Result<(), String> {
        self.queue.audit()?;
        self.domains.audit(&self.limits)?;
        self.flights.audit()?;
        if self.flights.len() > self.limits.fetches.max(1) {
            return Err("more fetches are under way than may be".to_owned());
        }
        if self.queue.len() > self.limits.repositories {
            return Err("more repositories wait than may".to_owned());
        }
        let mut in_flight: BTreeMap<&Domain, u32> = BTreeMap::new();
        for (_, flight) in self.flights.iter() {
            *in_flight.entry(flight.url.domain()).or_default() += 1;
        }
        self.audit_classes()?;
        for (repo, quarry) in self.queue.iter() {
            self.audit_repo(repo, quarry)?;
        }
        for (domain, state) in self.domains.iter() {
            if in_flight.remove(domain).unwrap_or_default() != state.throttle.in_flight() {
                return Err(format!("fetches from {domain} are miscounted"));
            }
            self.audit_domain(domain, state, now)?;
        }
        match in_flight.first_key_value() {
            Some((domain, _)) => Err(format!("{domain} is asked and not known")),
            None => Ok(()),
        }
    }

    fn audit_classes(&self) -> Result<(), String> {
        let all = self.limits.fetches.max(1);
        for class in Class::OPEN {
            if self.flights.count(|flight| flight.class == class) > all - all / 4 {
                return Err(format!("{class:?} have more places than they may have"));
            }
        }
        if self.flights.count(|flight| flight.class.is_open()) > all - kept_for_served(all) {
            return Err("nothing is left for repositories that are served".to_owned());
        }
        Ok(())
    }

    fn audit_repo(&self, repo: &RepoId, quarry: &Quarry) -> Result<(), String> {
        if quarry.flights.len() > MAX_FLIGHTS || quarry.servers.len() > MAX_SERVERS {
            return Err(format!("{repo} has too many fetches or servers"));
        }
        for no in &quarry.flights {
            if self.flights.get(*no).is_none_or(|at| at.repo != *repo) {
                return Err(format!("{no:?} of {repo} is not under way"));
            }
        }
        for server in &quarry.servers {
            let good = match server.ask {
                Ask::Next => !matches!(quarry.phase, Phase::Waiting(_)),
                Ask::Asked(no) => quarry.flights.contains(&no),
                Ask::Queued => quarry.place(server.url.domain()).is_some(),
                Ask::Done => true,
            };
            if !good {
                return Err(format!("{} of {repo} is forgotten", server.url));
            }
        }
        for (domain, place) in &quarry.places {
            let state = self.domains.get(domain);
            let stands = state.and_then(|state| state.at(*place)) == Some(repo);
            if !stands || !quarry.waits_for(domain) {
                return Err(format!("{repo} waits for {domain} in vain"));
            }
        }
        let stuck = match quarry.phase {
            Phase::Waiting(_) => false,
            Phase::Ready => !self.stands(&Turn::Repo(repo.clone())),
            Phase::Trying { .. } => {
                quarry.flights.is_empty() && !self.stands(&Turn::Repo(repo.clone()))
            }
        };
        match stuck && self.is_on() {
            true => Err(format!("{repo} is never looked at again")),
            false => Ok(()),
        }
    }

    fn stands(&self, turn: &Turn) -> bool {
        self.line.has(turn) || self.aside_unserved.has(turn) || self.aside_requests.has(turn)
    }

    /// Its limits are kept, and whoever waits for it is served as soon as it may be asked.
    fn audit_domain(&self, domain: &Domain, state: &DomainState, now: Mono) -> Result<(), String> {
        let limits = state.throttle.limits();
        let asked = state.throttle.lately(now);
        let of_host = self.flights.of_host(domain.host());
        let own = state.throttle.in_flight() > 0 && self.limits.domains.is_empty();
        if own && of_host > limits.concurrent as usize {
            return Err(format!("too much is asked of the host of {domain}"));
        }
        if state.throttle.in_flight() > limits.concurrent || asked > limits.per_minute as usize {
            return Err(format!("too much is asked of {domain}"));
        }
        for (place, repo) in state.waiting() {
            let quarry = self.queue.get(repo);
            if quarry.and_then(|quarry| quarry.place(domain)) != Some(place) {
                return Err(format!("{domain} is awaited by nobody"));
            }
        }
        let looked_after = match self.admission(domain, now) {
            Admission::Now => self.stands(&Turn::Domain(domain.clone())),
            Admission::At(at) => state.wake().is_some_and(|wake| wake <= at),
            // Another port of its host may have been asked while it stood in line.
            Admission::AfterOne => {
                let one_ends = state.throttle.in_flight() > 0 || self.waits_for_host(domain);
                one_ends || self.stands(&Turn::Domain(domain.clone()))
            }
        };
        // A deadline that has passed is heard at the next timeout.
        let woken = state.wake().is_some();
        let free = |(_, repo): (_, &RepoId)| self.is_free(repo);
        if self.is_on() && !looked_after && !woken && state.waiting().any(free) {
            return Err(format!("{domain} is awaited and never asked"));
        }
        Ok(())
    }
}
