//! What follows from the end of a fetch.

use super::attempt::{Ask, MAX_CUTS, Server, Tried};
use super::domain::Turned;
use super::flight::{Flight, Path};
use super::io::{FetchEnd, Fetched};
use super::{Grounds, Hunt, HuntNote};
use crate::clock::Mono;
use crate::nip34::RepoId;
use crate::ticket::FetchNo;

impl Hunt {
    /// What it says about its domain, its address and our disk.
    pub(super) fn judge(&mut self, flight: &Flight, fetched: &Fetched, now: Mono) {
        let (end, requests) = (fetched.end, fetched.requests);
        let domain = flight.url.domain();
        if let Some(state) = self.domains.get_mut(domain) {
            let turned = state.end(
                &flight.url,
                flight.begun,
                (end, requests),
                now,
                &self.limits,
            );
            let (domain, failures) = (domain.clone(), state.failures);
            self.notes.extend(turned.map(|turned| match turned {
                Turned::Well => HuntNote::Healed { domain },
                Turned::Ill(rest) => HuntNote::Resting {
                    domain,
                    why: end,
                    failures,
                    rest,
                },
            }));
        }
        match end {
            FetchEnd::Forbidden => self.memory.forbid(&flight.url, now),
            FetchEnd::Spoiled | FetchEnd::Cut { kept: false } => {
                self.memory.spoiled(&flight.url, self.limits.rest, now);
            }
            FetchEnd::Answered | FetchEnd::Cut { kept: true } if requests > 0 => {
                self.memory.useful(&flight.url);
            }
            FetchEnd::DiskLow => self.pause(now),
            _ => {}
        }
    }

    /// What it says about its repository and server.
    pub(super) fn conclude(&mut self, no: FetchNo, flight: &Flight, fetched: &Fetched, now: Mono) {
        self.notes.push_back(HuntNote::Fetched {
            repo: flight.repo.clone(),
            url: flight.url.clone(),
            end: fetched.end,
            got: fetched.got.len(),
            lacking: fetched.lacking.len(),
            bytes: fetched.bytes,
            took: now.since(flight.begun),
            problem: fetched.problem.clone(),
        });
        let served = matches!(fetched.end, FetchEnd::Answered | FetchEnd::Cut { .. });
        if served && !fetched.got.is_empty() {
            self.memory.had(&flight.repo, &flight.url);
        }
        // It may have left, and even come back, since this was asked.
        let quarry = self.queue.get_mut(&flight.repo);
        let Some(quarry) = quarry.filter(|quarry| quarry.flights.contains(&no)) else {
            return;
        };
        quarry.flights.retain(|at| *at != no);
        let wanted = |id: &&_| flight.wants(id);
        let before = quarry.found.len();
        quarry.found.extend(fetched.present().filter(wanted));
        quarry.came += quarry.found.len() - before;
        let is_full = fetched.end == FetchEnd::Full;
        let server = quarry.server_mut(&flight.url);
        let server = server.filter(|server| server.ask == Ask::Asked(no));
        let goes_on = server.is_some_and(|server| server.conclude(flight, fetched, now));
        if goes_on && flight.given_up {
            quarry.put_last(&flight.url);
        }
        if is_full {
            quarry.servers.iter_mut().for_each(Server::set_aside);
        }
        for (domain, place) in quarry.take_idle_places() {
            self.vacate(&domain, place);
        }
        // In an attempt it goes on when it is its turn again: a large history takes hours.
        if goes_on && flight.path == Path::Queue {
            self.enqueue(&flight.repo, &flight.url, now);
        }
    }

    /// What is needed now? Nothing: it leaves. And nothing is fetched that nobody needs any more.
    pub(super) fn review(&mut self, repo: &RepoId, grounds: &dyn Grounds) {
        let Some(quarry) = self.queue.get_mut(repo) else {
            return;
        };
        let needs = grounds.needs(repo);
        if needs.is_empty() {
            return self.leave(repo);
        }
        let missing = quarry.look(&needs);
        let in_vain = |no: &&FetchNo| {
            let flight = self.flights.get(**no);
            flight.is_some_and(|flight| {
                let mut wants = flight.wants.iter();
                !wants.any(|want| missing.binary_search(want).is_ok())
            })
        };
        let in_vain: Vec<FetchNo> = quarry.flights.iter().filter(in_vain).copied().collect();
        in_vain.into_iter().for_each(|no| self.stop(no));
    }

    fn pause(&mut self, now: Mono) {
        let pause = self.limits.disk_pause;
        if self.paused.is_none() {
            self.notes.push_back(HuntNote::DiskLow { pause });
        }
        self.paused = Some(now + pause);
    }
}

impl Server {
    /// Whether it goes on with this server at once: more is to be asked of it, or it was not its
    /// fault.
    fn conclude(&mut self, flight: &Flight, fetched: &Fetched, now: Mono) -> bool {
        let count = |ids: &[_]| u32::try_from(ids.len()).unwrap_or(u32::MAX);
        self.last = Some(Tried {
            at: now,
            end: fetched.end,
            got: count(&fetched.got),
            lacking: count(&fetched.lacking),
            problem: fetched.problem.clone(),
        });
        let goes_on = match fetched.end {
            FetchEnd::Answered => {
                let left = flight.unanswered(fetched);
                // Whoever says nothing to any of them has nothing to say.
                let lacks = flight
                    .wants
                    .iter()
                    .filter(|id| left.len() == flight.wants.len() || fetched.lacking.contains(id));
                let room = self.learn_lacks(lacks.copied());
                let is_left = !left.is_empty() && left.len() < flight.wants.len();
                room && (self.more || is_left)
            }
            FetchEnd::Cut { kept: true } => {
                self.cuts += 1;
                self.cuts < MAX_CUTS
            }
            FetchEnd::DiskLow => true,
            // Some think for long before they begin.
            FetchEnd::TooSlow if flight.given_up => !std::mem::replace(&mut self.again, true),
            _ => false,
        };
        match (goes_on, flight.path) {
            (false, _) => self.be_done(),
            (true, Path::Attempt) => self.ask = Ask::Next,
            (true, Path::Queue) => self.ask = Ask::Queued,
        }
        goes_on
    }

    /// It is of no use to ask it in this attempt.
    fn set_aside(&mut self) {
        if matches!(self.ask, Ask::Next | Ask::Queued) {
            self.be_done();
        }
    }
}
