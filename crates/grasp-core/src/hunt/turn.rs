//! Who is asked next. A fetch begins here and nowhere else.

use super::attempt::{self, Ask, Asking, Beside, MAX_BESIDE, Quarry, Rank, Wants};
use super::domain::{Admission, Place};
use super::flight::{Class, Flight, Pace, Path};
use super::io::FetchAsk;
use super::line::{Line, Turn};
use super::queue::Phase;
use super::{Grounds, Hunt, HuntNote, Need, Order};
use crate::clock::Mono;
use crate::clone_url::{CloneUrl, Domain};
use crate::nip34::RepoId;
use crate::ticket::FetchNo;

/// Whom to ask, and for what.
enum Worth {
    Asking(CloneUrl, Wants),
    /// When those of its class have a place again.
    NoPlace(Class),
    /// Somebody may be, when others have ended.
    Later,
    Nothing,
}

/// Of those who wait, so many are looked at to find one who has less than others.
const LOOKED_AT: usize = 64;

/// Of all fetches, what nobody has but repositories that are served.
pub(super) fn kept_for_served(all: usize) -> usize {
    match all < 4 {
        true => 0,
        false => all.div_ceil(8),
    }
}

/// What has a place that somebody of this class could have.
fn is_rival(flight: &Flight, class: Class, full: bool) -> bool {
    match full {
        true => flight.class == class,
        false => flight.class.is_open(),
    }
}

impl Hunt {
    /// Gives everybody in line a turn, as long as fetches may begin.
    pub(super) fn pump(&mut self, now: Mono, grounds: &dyn Grounds) {
        let mut passed = 0;
        while self.paused.is_none() && self.flights.len() < self.limits.fetches.max(1) {
            match self.next_turn(&mut passed, grounds) {
                Some(Turn::Repo(repo)) => self.take_turn(&repo, now, grounds),
                Some(Turn::Domain(domain)) => self.serve(&domain, now, grounds),
                None => break,
            }
        }
        if self.paused.is_none() {
            self.make_room(now);
        }
    }

    /// Those who stood aside for want of a place were in line before the others.
    fn next_turn(&mut self, passed: &mut usize, grounds: &dyn Grounds) -> Option<Turn> {
        let [unserved, requests] = Class::OPEN;
        for class in [unserved, requests, Class::Served] {
            if self.has_place(class)
                && let Some(turn) = self.next_of(class, passed, grounds)
            {
                return Some(turn);
            }
        }
        None
    }

    /// Whoever has his share waits behind those who have less, if there are any.
    fn next_of(&mut self, class: Class, passed: &mut usize, grounds: &dyn Grounds) -> Option<Turn> {
        loop {
            let turn = self.waiting_mut(class).next()?;
            let others = self.waiting(class).len();
            if *passed >= others.min(LOOKED_AT) || !self.has_share(class, &turn, grounds) {
                return Some(turn);
            }
            *passed += 1;
            self.waiting_mut(class).join(turn);
        }
    }

    /// From one host, or for one owner, a quarter of what new repositories may have.
    fn has_share(&self, class: Class, turn: &Turn, grounds: &dyn Grounds) -> bool {
        let may_be_served = class == Class::Served
            && match turn {
                Turn::Domain(_) => true,
                Turn::Repo(repo) => grounds.is_served(repo),
            };
        let all = self.limits.fetches.max(1);
        let share = ((all - all / 4) / 4).max(1);
        !may_be_served && self.under_way_for(turn) >= Some(share)
    }

    /// Where those of a class wait. Everybody stands in line before it is known that only what
    /// anybody may have is to be asked for.
    fn waiting(&self, class: Class) -> &Line {
        match class {
            Class::Served => &self.line,
            Class::Unserved => &self.aside_unserved,
            Class::Requests => &self.aside_requests,
        }
    }

    fn waiting_mut(&mut self, class: Class) -> &mut Line {
        match class {
            Class::Served => &mut self.line,
            Class::Unserved => &mut self.aside_unserved,
            Class::Requests => &mut self.aside_requests,
        }
    }

    /// What anybody may have fetched has three quarters of all places at most, new repositories and
    /// pull requests each; together they leave some to repositories that are served.
    fn has_place(&self, class: Class) -> bool {
        let all = self.limits.fetches.max(1);
        let open = self.flights.count(|flight| flight.class.is_open());
        !class.is_open() || !self.is_full_of(class) && open < all - kept_for_served(all)
    }

    fn is_full_of(&self, class: Class) -> bool {
        let all = self.limits.fetches.max(1);
        self.flights.count(|flight| flight.class == class) >= all - all / 4
    }

    /// Those who are slow keep nobody waiting: servers that never answer, or send a byte now and
    /// then, would take every place. One that is stopped makes room already.
    fn make_room(&mut self, now: Mono) {
        let wanted = self
            .line
            .len()
            .saturating_sub(self.flights.stopped(|_| true));
        self.give_up_late(wanted, |_| true);
        for class in Class::OPEN {
            let wanted = self.waiting(class).len();
            let full = self.is_full_of(class);
            let rival = |flight: &Flight| is_rival(flight, class, full);
            let wanted = wanted.saturating_sub(self.flights.stopped(rival));
            self.give_up_late(wanted, rival);
        }
        self.share(now);
    }

    /// Whoever has much of what anybody may have makes way for those who have less, with one fetch
    /// at a time. Its server is not slow, and nothing is held against it.
    fn share(&mut self, now: Mono) {
        if self.flights.stopped(|_| true) > 0 {
            return;
        }
        let open = |flight: &Flight| flight.class.is_open();
        let mut yields = self.to_yield(&self.line, open, now);
        for class in Class::OPEN {
            let full = self.is_full_of(class);
            let rival = |flight: &Flight| is_rival(flight, class, full);
            let aside = self.waiting(class);
            yields = yields.or_else(|| self.to_yield(aside, rival, now));
        }
        if let Some(no) = yields {
            self.stop(no);
        }
    }

    fn to_yield(
        &self,
        waiting: &Line,
        which: impl Fn(&Flight) -> bool,
        now: Mono,
    ) -> Option<FetchNo> {
        let waiting = waiting.iter().take(LOOKED_AT);
        let fewest = waiting.filter_map(|turn| self.under_way_for(turn)).min()?;
        self.flights.to_yield(fewest, which, now)
    }

    /// How much of what is under way is theirs who wait: from the host with the least, and for an
    /// owner whose repository is new. None if nobody waits there any more.
    fn under_way_for(&self, turn: &Turn) -> Option<usize> {
        match turn {
            Turn::Domain(domain) => {
                let state = self.domains.get(domain)?;
                let of_host = self.flights.of_host(domain.host());
                state.is_awaited().then_some(of_host)
            }
            Turn::Repo(repo) => {
                let quarry = self.queue.get(repo)?;
                let hosts = quarry.next().map(|server| server.url.domain().host());
                let of_host = match quarry.phase {
                    // Whom it will ask is not known yet.
                    Phase::Ready => 0,
                    _ => hosts.map(|host| self.flights.of_host(host)).min()?,
                };
                Some(of_host.max(self.flights.of_owner(&repo.owner)))
            }
        }
    }

    fn give_up_late(&mut self, most: usize, which: impl Fn(&Flight) -> bool) {
        for _ in 0..most {
            match self.flights.latest(&which) {
                Some(no) => self.give_up(no),
                None => return,
            }
        }
    }

    /// The same for one repository that may ask nobody else, now that this one is late.
    pub(super) fn make_way(&mut self, repo: &RepoId, no: FetchNo) {
        let (Some(quarry), Some(late)) = (self.queue.get(repo), self.flights.get(no)) else {
            return;
        };
        let beside = self.beside(repo);
        let crowded = beside.is_full_for(late.rank);
        let shares = |flight: &Flight| late.wants.iter().any(|id| flight.wants(id));
        let is_rival = |flight: &Flight| shares(flight) || crowded && flight.rank == late.rank;
        let going = beside.0.iter().filter(|flight| !flight.stopped);
        let rivals = going.filter(|flight| is_rival(flight));
        let full = crowded || rivals.clone().count() >= MAX_BESIDE;
        let all_late = !rivals.clone().any(|flight| flight.is_promising());
        let somebody_waits = quarry.is_to_ask_others();
        let is_rival = |no: &&FetchNo| self.flights.get(**no).is_some_and(is_rival);
        let among = quarry.flights.iter().filter(is_rival);
        if full
            && all_late
            && somebody_waits
            && let Some(no) = self.flights.latest_of(among)
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
        if !phase.is_some_and(|phase| phase == Phase::Ready || phase.is_trying()) {
            return;
        }
        let needs = grounds.needs(repo);
        if needs.is_empty() {
            return self.leave(repo);
        }
        self.set_served(repo, grounds);
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
        let queued: Vec<Domain> = quarry.places.iter().map(|(at, _)| at.clone()).collect();
        for (domain, place) in idle {
            self.vacate(&domain, place);
        }
        // What is new may be asked of them.
        for domain in queued {
            self.settle(&domain, now);
        }
    }

    /// Asks the next server that may be asked; the others are left to their domains.
    fn advance(&mut self, repo: &RepoId, needs: &[Need], now: Mono) {
        loop {
            let (url, wants) = match self.next_of_attempt(repo, needs, now) {
                Worth::Asking(url, wants) => (url, wants),
                Worth::NoPlace(class) => {
                    return self.waiting_mut(class).join(Turn::Repo(repo.clone()));
                }
                Worth::Later | Worth::Nothing => return self.end_if_over(repo, now),
            };
            let domain = self.domains.learn(url.domain(), now, &self.limits);
            match domain.map(|domain| domain.is_awaited()) {
                None => self.be_done(repo, &url),
                Some(false) if self.admits(url.domain(), now) => {
                    self.order(repo, url, wants, Path::Attempt, now);
                    return self.go_on(repo);
                }
                Some(_) => self.enqueue(repo, &url, now),
            }
        }
    }

    /// Others may be asked for other objects at the same time, when it is its turn again.
    fn go_on(&mut self, repo: &RepoId) {
        let quarry = self.queue.get(repo);
        if quarry.is_some_and(|quarry| quarry.next().next().is_some()) {
            self.line.join(Turn::Repo(repo.clone()));
        }
    }

    /// The first server of an attempt that is worth asking now; those that never will be in this
    /// attempt are done.
    fn next_of_attempt(&mut self, repo: &RepoId, needs: &[Need], now: Mono) -> Worth {
        let next = self.queue.get(repo).into_iter().flat_map(Quarry::next);
        let urls: Vec<CloneUrl> = next.map(|server| server.url.clone()).collect();
        self.first_worth_asking(repo, urls, needs, now)
    }

    /// Whoever has something of a state comes before those who have something of a pull request.
    fn first_worth_asking(
        &mut self,
        repo: &RepoId,
        urls: Vec<CloneUrl>,
        needs: &[Need],
        now: Mono,
    ) -> Worth {
        let of_states = || needs.iter().filter(|need| need.rank() == Rank::State);
        let has_state = |url: &&CloneUrl| {
            let asking = self.asking(repo, url, of_states(), now);
            matches!(asking, Asking::Now(_))
        };
        let first = match of_states().next() {
            Some(_) => urls.iter().find(has_state).cloned(),
            None => None,
        };
        if let Some(url) = first
            && let Asking::Now(wants) = self.asking(repo, &url, needs, now)
        {
            return Worth::Asking(url, wants);
        }
        let mut worth = Worth::Nothing;
        for url in urls {
            match self.asking(repo, &url, needs, now) {
                Asking::Now(wants) => return Worth::Asking(url, wants),
                Asking::NoPlace(class) => worth = Worth::NoPlace(class),
                Asking::Later if matches!(worth, Worth::Nothing) => worth = Worth::Later,
                Asking::Later => {}
                Asking::Nothing => self.be_done(repo, &url),
            }
        }
        worth
    }

    fn asking<'a>(
        &self,
        repo: &RepoId,
        url: &CloneUrl,
        needs: impl IntoIterator<Item = &'a Need>,
        now: Mono,
    ) -> Asking {
        let beside = self.beside(repo);
        let quarry = self.queue.get(repo);
        let server = quarry.and_then(|quarry| Some((quarry, quarry.server(url)?)));
        let asking = match server {
            Some(_) if beside.is_full() => Asking::Later,
            Some((quarry, server)) if !self.memory.is_resting(url, now) => {
                quarry.asking(server, needs, &beside)
            }
            _ => Asking::Nothing,
        };
        match asking {
            Asking::Now(wants) => {
                let class = Class::of(wants.rank, quarry.is_some_and(|quarry| quarry.served));
                match self.has_place(class) {
                    true => Asking::Now(wants),
                    false => Asking::NoPlace(class),
                }
            }
            asking => asking,
        }
    }

    fn set_served(&mut self, repo: &RepoId, grounds: &dyn Grounds) {
        if let Some(quarry) = self.queue.get_mut(repo) {
            quarry.served = grounds.is_served(repo);
        }
    }

    fn beside(&self, repo: &RepoId) -> Beside<'_> {
        let quarry = self.queue.get(repo);
        let flights = quarry.into_iter().flat_map(|quarry| &quarry.flights);
        Beside(flights.filter_map(|no| self.flights.get(*no)).collect())
    }

    /// Path 2: the next repository in the queue of a domain, with one server.
    fn serve(&mut self, domain: &Domain, now: Mono, grounds: &dyn Grounds) {
        let (mut passed, mut no_place) = (None, Vec::new());
        while self.admits(domain, now) {
            let Some((place, repo)) = self.next_in_queue(domain, passed) else {
                for class in no_place {
                    self.waiting_mut(class).join(Turn::Domain(domain.clone()));
                }
                return;
            };
            let needs = grounds.needs(&repo);
            if needs.is_empty() {
                self.leave(&repo);
                continue;
            }
            self.set_served(&repo, grounds);
            let queued = self.queue.get(&repo).into_iter();
            let queued = queued.flat_map(|quarry| quarry.queued(domain));
            let urls: Vec<CloneUrl> = queued.map(|server| server.url.clone()).collect();
            let worth = self.first_worth_asking(&repo, urls, &needs, now);
            if let Worth::NoPlace(class) = worth
                && !no_place.contains(&class)
            {
                no_place.push(class);
            }
            if matches!(worth, Worth::NoPlace(_) | Worth::Later) {
                passed = Some(place);
                continue;
            }
            self.give_up_place(&repo, domain, place);
            if let Worth::Asking(url, wants) = worth {
                self.order(&repo, url, wants, Path::Queue, now);
                self.take_place(&repo, domain);
                break;
            }
        }
        self.settle(domain, now);
    }

    fn admits(&self, domain: &Domain, now: Mono) -> bool {
        self.domains.get(domain).is_some() && self.admission(domain, now) == Admission::Now
    }

    /// May it be asked now? All ports of a host are one machine, and have together what one domain
    /// has: whoever listens on many has no more of us for it.
    pub(super) fn admission(&self, domain: &Domain, now: Mono) -> Admission {
        let Some(state) = self.domains.get(domain) else {
            return Admission::Now;
        };
        let most = state.throttle.limits().concurrent as usize;
        match state.admits(now) {
            Admission::Now if self.flights.of_host(domain.host()) >= most => Admission::AfterOne,
            admission => admission,
        }
    }

    pub(super) fn waits_for_host(&self, domain: &Domain) -> bool {
        let of_host = self.host_queues.get(domain.host());
        of_host.is_some_and(|domains| domains.contains(domain))
    }

    /// A fetch from a domain has ended: others of its host may be asked.
    pub(super) fn settle_host(&mut self, domain: &Domain, now: Mono) {
        self.settle(domain, now);
        for other in self.host_queues.remove(domain.host()).unwrap_or_default() {
            self.settle(&other, now);
        }
    }

    /// The first in the queue after those that were passed over, because others bring what they
    /// want: no more than there are fetches.
    fn next_in_queue(&self, domain: &Domain, passed: Option<Place>) -> Option<(Place, RepoId)> {
        let mut waiting = self.domains.get(domain)?.waiting_after(passed);
        let (place, repo) = waiting.find(|(_, repo)| !self.beside(repo).is_full())?;
        Some((place, repo.clone()))
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
        let no = self.flights.begin(Flight {
            repo: repo.clone(),
            url: url.clone(),
            wants: ask.wants.clone(),
            after: wants.after,
            rank: wants.rank,
            class: Class::of(wants.rank, quarry.served),
            path,
            begun: now,
            pace: Pace::Good(now + self.limits.hedge_after),
            flows_since: None,
            stopped: false,
            given_up: false,
        });
        quarry.flights.push(no);
        if let Some(server) = quarry.server_mut(&url) {
            (server.ask, server.more) = (Ask::Asked(no), wants.more);
        }
        self.orders.push_back(Order::Fetch(no, ask));
    }

    /// Nothing is under way for it, or nothing that keeps anybody from being asked.
    pub(super) fn is_free(&self, repo: &RepoId) -> bool {
        let Beside(flights) = self.beside(repo);
        // One that was stopped has everybody woken when it ends.
        let late = |flight: &&Flight| flight.pace == Pace::Late && !flight.stopped;
        flights.iter().copied().all(|flight| late(&flight))
            && flights.len() < MAX_BESIDE
            && self.queue.get(repo).is_some()
    }

    /// Something may go on for this repository: its attempt, or a domain that it waits for.
    pub(super) fn wake(&mut self, repo: &RepoId, now: Mono) {
        self.end_if_over(repo, now);
        let Some(quarry) = self.queue.get(repo) else {
            return;
        };
        // Whoever has nobody to ask wants no place.
        if quarry.phase.is_trying() && quarry.next().next().is_some() {
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
        let admission = self.admission(domain, now);
        let awaited = state.is_awaited();
        let full = state.throttle.in_flight() >= state.at_once();
        let wake = match admission {
            Admission::At(at) if awaited => Some(at),
            Admission::Now if awaited => {
                self.line.join(Turn::Domain(domain.clone()));
                None
            }
            // A fetch from another port ends first.
            Admission::AfterOne if awaited && !full => {
                let of_host = self.host_queues.entry(domain.host().into()).or_default();
                of_host.insert(domain.clone());
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
        let trying = quarry.phase.is_trying();
        let is_left = quarry.next().next().is_some();
        if !trying || is_left || flights.any(|at| at.path == Path::Attempt) {
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
        if !quarry.waits_for(domain) || quarry.place(domain).is_some() {
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

    fn be_done(&mut self, repo: &RepoId, url: &CloneUrl) {
        let quarry = self.queue.get_mut(repo);
        if let Some(server) = quarry.and_then(|quarry| quarry.server_mut(url)) {
            server.be_done();
        }
    }

    fn set_ask(&mut self, repo: &RepoId, url: &CloneUrl, ask: Ask) {
        let quarry = self.queue.get_mut(repo);
        if let Some(server) = quarry.and_then(|quarry| quarry.server_mut(url)) {
            server.ask = ask;
        }
    }
}
