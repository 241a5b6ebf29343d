//! Who is asked next. A fetch begins here and nowhere else.

use super::attempt::{self, Ask, MAX_FLIGHTS, Wants};
use super::domain::{Admission, Place};
use super::flight::{Pace, Path};
use super::io::FetchAsk;
use super::line::Turn;
use super::queue::Phase;
use super::{Grounds, Hunt, HuntNote, Need, Order};
use crate::clock::Mono;
use crate::clone_url::{CloneUrl, Domain};
use crate::nip34::RepoId;
use crate::ticket::FetchNo;

impl Hunt {
    /// Gives everybody in line a turn, as long as fetches may begin.
    pub(super) fn pump(&mut self, now: Mono, grounds: &dyn Grounds) {
        while self.paused.is_none() && self.flights.len() < self.limits.fetches.max(1) {
            match self.line.next() {
                Some(Turn::Repo(repo)) => self.take_turn(&repo, now, grounds),
                Some(Turn::Domain(domain)) => self.serve(&domain, now, grounds),
                None => break,
            }
        }
        if self.paused.is_none() && self.line.len() > 0 {
            self.make_room();
        }
    }

    /// Those who send nothing keep nobody waiting: servers that never answer would take every
    /// place.
    fn make_room(&mut self) {
        for _ in 0..self.line.len() {
            match self.flights.latest() {
                Some(no) => self.give_up(no),
                None => return,
            }
        }
    }

    /// The same for one repository that may ask nobody else.
    pub(super) fn make_way(&mut self, repo: &RepoId) {
        let Some(quarry) = self.queue.get(repo) else {
            return;
        };
        let full = quarry.flights.len() >= MAX_FLIGHTS && quarry.next().is_some();
        let all_late = quarry.flights.iter().all(|no| {
            let flight = self.flights.get(*no);
            flight.is_some_and(|flight| flight.pace == Pace::Late)
        });
        if full
            && all_late
            && let Some(no) = self.flights.latest_of(quarry.flights.iter())
        {
            self.give_up(no);
        }
    }

    fn give_up(&mut self, no: FetchNo) {
        self.flights.give_up(no);
        self.stop(no);
    }

    /// Path 1: the repository's own attempt.
    fn take_turn(&mut self, repo: &RepoId, now: Mono, grounds: &dyn Grounds) {
        let phase = self.queue.get(repo).map(|quarry| quarry.phase);
        if !matches!(phase, Some(Phase::Ready | Phase::Trying)) {
            return;
        }
        let needs = grounds.needs(repo);
        if needs.is_empty() {
            return self.leave(repo);
        }
        if phase == Some(Phase::Ready) {
            self.begin(repo, &needs, now);
        }
        self.advance(repo, &needs, now);
    }

    fn begin(&mut self, repo: &RepoId, needs: &[Need], now: Mono) {
        let Some(quarry) = self.queue.get_mut(repo) else {
            return;
        };
        let known = self.memory.who_had(repo);
        let domains = &self.domains;
        let urls = attempt::choose(
            needs,
            quarry,
            |url| known == Some(url),
            |url| domains.is_ill(url.domain(), now),
            &mut self.rng,
        );
        quarry.begin(urls);
        let objects = quarry.look(needs).len();
        let idle = quarry.take_idle_places();
        self.notes.push_back(HuntNote::Began {
            repo: repo.clone(),
            attempt: quarry.attempts.saturating_add(1),
            servers: quarry.servers.len(),
            objects,
        });
        for (domain, place) in idle {
            self.vacate(&domain, place);
        }
    }

    /// Asks the next server that may be asked; the others are left to their domains.
    fn advance(&mut self, repo: &RepoId, needs: &[Need], now: Mono) {
        if !self.may_ask(repo) {
            return;
        }
        while let Some(quarry) = self.queue.get(repo)
            && let Some(server) = quarry.next()
        {
            let (url, wants) = (server.url.clone(), quarry.wants(server, needs));
            if wants.objects.is_empty() || self.memory.is_forbidden(&url, now) {
                self.set_ask(repo, &url, Ask::Done);
                continue;
            }
            match self.domains.learn(url.domain(), now, &self.limits) {
                None => self.set_ask(repo, &url, Ask::Done),
                Some(domain) if !domain.is_awaited() && domain.admits(now) == Admission::Now => {
                    return self.order(repo, url, wants, Path::Attempt, now);
                }
                Some(_) => self.enqueue(repo, &url, now),
            }
        }
        self.end_if_over(repo, now);
    }

    /// Path 2: the next repository in the queue of a domain, with one server.
    fn serve(&mut self, domain: &Domain, now: Mono, grounds: &dyn Grounds) {
        while self.admits(domain, now) {
            let Some((place, repo)) = self.first_free(domain) else {
                return;
            };
            self.give_up_place(&repo, domain, place);
            let needs = grounds.needs(&repo);
            if needs.is_empty() {
                self.leave(&repo);
            } else if let Some((url, wants)) = self.next_queued(&repo, domain, &needs, now) {
                self.order(&repo, url, wants, Path::Queue, now);
                self.take_place(&repo, domain);
                break;
            }
        }
        self.settle(domain, now);
    }

    fn admits(&self, domain: &Domain, now: Mono) -> bool {
        let state = self.domains.get(domain);
        state.is_some_and(|state| state.admits(now) == Admission::Now)
    }

    /// The first in the queue for which nothing is under way: no more are passed over than there
    /// are fetches.
    fn first_free(&self, domain: &Domain) -> Option<(Place, RepoId)> {
        let mut waiting = self.domains.get(domain)?.waiting();
        let (place, repo) = waiting.find(|(_, repo)| self.may_ask(repo))?;
        Some((place, repo.clone()))
    }

    /// The next server of a repository that waits for this domain and is worth asking.
    fn next_queued(
        &mut self,
        repo: &RepoId,
        domain: &Domain,
        needs: &[Need],
        now: Mono,
    ) -> Option<(CloneUrl, Wants)> {
        loop {
            let quarry = self.queue.get(repo)?;
            let server = quarry.queued(domain)?;
            let (url, wants) = (server.url.clone(), quarry.wants(server, needs));
            if !wants.objects.is_empty() && !self.memory.is_forbidden(&url, now) {
                return Some((url, wants));
            }
            self.set_ask(repo, &url, Ask::Done);
        }
    }

    fn order(&mut self, repo: &RepoId, url: CloneUrl, wants: Wants, path: Path, now: Mono) {
        let (Some(quarry), Some(domain)) =
            (self.queue.get_mut(repo), self.domains.get_mut(url.domain()))
        else {
            return;
        };
        let ask = FetchAsk {
            repo: repo.clone(),
            url: url.clone(),
            wants: wants.objects.into(),
            backing: wants.rank.backing(),
        };
        domain.throttle.begin(now);
        let pace = (now, self.limits.hedge_after);
        let wants = (ask.wants.clone(), wants.rank);
        let no = self
            .flights
            .begin(repo.clone(), url.clone(), wants, path, pace);
        quarry.flights.push(no);
        if let Some(server) = quarry.server_mut(&url) {
            server.ask = Ask::Asked(no);
        }
        self.orders.push_back(Order::Fetch(no, ask));
    }

    /// Nothing is under way for it, or one fetch that should have begun to flow.
    pub(super) fn may_ask(&self, repo: &RepoId) -> bool {
        let Some(quarry) = self.queue.get(repo) else {
            return false;
        };
        let mut flights = quarry.flights.iter();
        let late = |no| self.flights.get(no).is_some_and(|at| at.pace == Pace::Late);
        quarry.flights.len() < MAX_FLIGHTS && flights.all(|no| late(*no))
    }

    /// Something may go on for this repository: its attempt, or a domain that it waits for.
    pub(super) fn wake(&mut self, repo: &RepoId, now: Mono) {
        self.end_if_over(repo, now);
        let Some(quarry) = self.queue.get(repo) else {
            return;
        };
        if quarry.phase == Phase::Trying {
            self.line.join(Turn::Repo(repo.clone()));
        }
        let domains: Vec<Domain> = quarry.places.iter().map(|(at, _)| at.clone()).collect();
        for domain in domains {
            self.settle(&domain, now);
        }
    }

    /// Has a domain for which somebody waits stand in line, or be woken when it may be asked.
    pub(super) fn settle(&mut self, domain: &Domain, now: Mono) {
        let Some(state) = self.domains.get(domain) else {
            return;
        };
        let wake = match state.admits(now) {
            Admission::At(at) if state.is_awaited() => Some(at),
            Admission::Now if state.is_awaited() => {
                self.line.join(Turn::Domain(domain.clone()));
                None
            }
            Admission::Now | Admission::At(_) | Admission::AfterOne => None,
        };
        self.domains.set_wake(domain, wake);
    }

    /// An attempt is over when nobody is left to ask, other than those who wait for their domain.
    pub(super) fn end_if_over(&mut self, repo: &RepoId, now: Mono) {
        let Some(quarry) = self.queue.get(repo) else {
            return;
        };
        let flights = quarry.flights.iter();
        let mut flights = flights.filter_map(|no| self.flights.get(*no));
        let trying = quarry.phase == Phase::Trying;
        if !trying || quarry.next().is_some() || flights.any(|at| at.path == Path::Attempt) {
            return;
        }
        let Some(at) = self.queue.back_off(repo, self.limits.backoff, now) else {
            return;
        };
        let Some(quarry) = self.queue.get(repo).filter(|quarry| quarry.missing > 0) else {
            return;
        };
        self.notes.push_back(HuntNote::Incomplete {
            repo: repo.clone(),
            attempts: quarry.attempts,
            objects: quarry.missing as usize,
            retry: at.since(now),
        });
    }

    /// A server is left to the queue of its domain.
    pub(super) fn enqueue(&mut self, repo: &RepoId, url: &CloneUrl, now: Mono) {
        self.set_ask(repo, url, Ask::Queued);
        self.take_place(repo, url.domain());
        self.settle(url.domain(), now);
    }

    /// The last place in the queue, if something of this repository waits for the domain.
    fn take_place(&mut self, repo: &RepoId, domain: &Domain) {
        let (Some(quarry), Some(state)) = (self.queue.get_mut(repo), self.domains.get_mut(domain))
        else {
            return;
        };
        if quarry.queued(domain).is_none() || quarry.place(domain).is_some() {
            return;
        }
        if !state.is_awaited() {
            let domain = domain.clone();
            self.notes.push_back(HuntNote::Throttled { domain });
        }
        let place = state.queue(repo.clone());
        quarry.places.push((domain.clone(), place));
    }

    fn give_up_place(&mut self, repo: &RepoId, domain: &Domain, place: Place) {
        if let Some(quarry) = self.queue.get_mut(repo) {
            quarry.places.retain(|(at, _)| at != domain);
        }
        if let Some(state) = self.domains.get_mut(domain) {
            state.leave(place);
        }
    }

    /// Frees a place that its repository has given up.
    pub(super) fn vacate(&mut self, domain: &Domain, place: Place) {
        if let Some(state) = self.domains.get_mut(domain) {
            state.leave(place);
            if !state.is_awaited() {
                self.domains.set_wake(domain, None);
            }
        }
    }

    fn set_ask(&mut self, repo: &RepoId, url: &CloneUrl, ask: Ask) {
        let quarry = self.queue.get_mut(repo);
        if let Some(server) = quarry.and_then(|quarry| quarry.server_mut(url)) {
            server.ask = ask;
        }
    }
}
