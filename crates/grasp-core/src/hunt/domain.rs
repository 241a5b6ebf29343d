//! What is known of each domain: how much is asked of it now, how well it is, and which
//! repositories wait for it. Cost follows the change, not the number of domains.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::io::FetchEnd;
use super::throttle::DomainThrottle;
use crate::clock::Mono;
use crate::clone_url::{CloneUrl, Domain};
use crate::limits::HuntLimits;
use crate::nip34::RepoId;

/// What a busy server may ask for, and what is taken for granted if it does not say.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
const PATIENCE_MAX: Duration = Duration::from_secs(60 * 60);
const PATIENCE: Duration = Duration::from_secs(60);
/// One failure is chance; from the second in a row a domain rests.
const ILL: u32 = 2;

/// What was asked before a start is past after it.
const A_MINUTE: Duration = Duration::from_secs(61);
/// Repositories of so many people that are of no use speak against the server.
const SPOILED: usize = 4;

#[derive(Debug)]
pub struct DomainState {
    pub throttle: DomainThrottle,
    /// Failures in a row.
    pub failures: u32,
    pub rest: Option<Rest>,
    /// Whose repositories there were of no use since the last one that was, a few of them.
    spoiled: BTreeSet<String>,
    /// Repositories that wait for it, in the order of their turns.
    waiting: BTreeMap<Place, RepoId>,
    next: u64,
    /// When it is looked at again by itself.
    wake: Option<Mono>,
}

/// A turn in the queue of one domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

/// It is left alone until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    pub from: Mono,
    pub until: Mono,
    pub why: FetchEnd,
}

/// May it be asked now?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Now,
    /// A minute or a rest ends then.
    At(Mono),
    /// Once a fetch ends.
    AfterOne,
}

/// What the end of a fetch says about a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turned {
    Ill(Duration),
    Well,
}

impl DomainState {
    fn new(domain: &Domain, started: Option<Mono>, limits: &HuntLimits) -> Self {
        let own = limits.domains.get(domain).copied();
        let throttle = DomainThrottle::new(own.unwrap_or(limits.domain));
        Self {
            throttle: match started {
                Some(at) => throttle.used(at),
                None => throttle,
            },
            failures: 0,
            rest: None,
            spoiled: BTreeSet::new(),
            waiting: BTreeMap::new(),
            next: 0,
            wake: None,
        }
    }

    pub fn is_ill(&self) -> bool {
        self.failures >= ILL
    }

    /// How many at once: one tells whether a domain that was ill is well again.
    pub fn at_once(&self) -> u32 {
        match self.is_ill() {
            true => 1,
            false => self.throttle.limits().concurrent,
        }
    }

    pub fn resting(&self, now: Mono) -> Option<Rest> {
        self.rest.filter(|rest| rest.until > now)
    }

    pub fn admits(&self, now: Mono) -> Admission {
        let opens = self.throttle.opens();
        match self.resting(now) {
            Some(rest) => Admission::At(rest.until.max(opens)),
            None if self.throttle.in_flight() >= self.at_once() => Admission::AfterOne,
            None if opens > now => Admission::At(opens),
            None => Admission::Now,
        }
    }

    pub fn waiting(&self) -> impl Iterator<Item = (Place, &RepoId)> {
        self.waiting.iter().map(|(place, repo)| (*place, repo))
    }

    /// Those who come after this place, or all.
    pub fn waiting_after(&self, place: Option<Place>) -> impl Iterator<Item = (Place, &RepoId)> {
        let first = place.map_or(Place(0), |Place(before)| Place(before + 1));
        let waiting = self.waiting.range(first..);
        waiting.map(|(place, repo)| (*place, repo))
    }

    /// Who has this place.
    pub fn at(&self, place: Place) -> Option<&RepoId> {
        self.waiting.get(&place)
    }

    pub fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn awaited_by(&self) -> usize {
        self.waiting.len()
    }

    pub fn wake(&self) -> Option<Mono> {
        self.wake
    }

    /// The last in the queue.
    pub fn queue(&mut self, repo: RepoId) -> Place {
        let place = Place(self.next);
        self.next += 1;
        self.waiting.insert(place, repo);
        place
    }

    pub fn leave(&mut self, place: Place) {
        self.waiting.remove(&place);
    }

    /// A fetch that was begun at `begun` has ended. One that was under way when the rest began
    /// says nothing new about a domain that is ill.
    pub fn end(
        &mut self,
        url: &CloneUrl,
        begun: Mono,
        (end, requests): (FetchEnd, u32),
        now: Mono,
        limits: &HuntLimits,
    ) -> Option<Turned> {
        self.throttle.end(begun, requests, now);
        let known = self.rest.is_some_and(|rest| begun <= rest.from);
        let judgement = match requests {
            // Nobody was asked.
            0 => Judgement::Nothing,
            _ => self.judge(url, end),
        };
        match judgement {
            Judgement::Well => {
                let was_ill = self.is_ill();
                self.failures = 0;
                self.spoiled.clear();
                self.rest = self
                    .rest
                    .filter(|rest| matches!(rest.why, FetchEnd::Busy(_)));
                was_ill.then_some(Turned::Well)
            }
            Judgement::Ill if !known => {
                self.failures = self.failures.saturating_add(1);
                let span = limits.rest.delay(self.failures + 1 - ILL);
                self.rest(span, end, now);
                self.is_ill().then_some(Turned::Ill(span))
            }
            Judgement::Busy(span) => {
                self.rest(span, end, now);
                Some(Turned::Ill(span))
            }
            Judgement::Ill | Judgement::Nothing => None,
        }
    }

    /// Packs that are of no use are the fault of what somebody has put there, unless everybody's
    /// are so.
    fn judge(&mut self, url: &CloneUrl, end: FetchEnd) -> Judgement {
        let useless = matches!(end, FetchEnd::Spoiled | FetchEnd::Cut { kept: false });
        if useless && self.spoiled.len() < SPOILED {
            self.spoiled.insert(owner(url).to_owned());
        }
        match useless && self.spoiled.len() < SPOILED {
            true => Judgement::Nothing,
            false => judge(end),
        }
    }

    fn rest(&mut self, span: Duration, why: FetchEnd, now: Mono) {
        let (from, until) = (now, now + span);
        if until > now && self.rest.is_none_or(|rest| rest.until < until) {
            self.rest = Some(Rest { from, until, why });
        }
    }

    fn is_idle(&self, now: Mono) -> bool {
        self.throttle.is_idle(now) && self.waiting.is_empty() && self.wake.is_none()
    }

    /// Nothing would be lost by forgetting it.
    pub fn is_unremarkable(&self, now: Mono) -> bool {
        self.is_idle(now) && self.failures == 0 && self.resting(now).is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judgement {
    Well,
    Ill,
    Busy(Duration),
    /// It was not the domain.
    Nothing,
}

fn judge(end: FetchEnd) -> Judgement {
    match end {
        FetchEnd::Answered | FetchEnd::Absent | FetchEnd::Cut { kept: true } => Judgement::Well,
        FetchEnd::Unreachable
        | FetchEnd::Failed
        | FetchEnd::TooSlow
        | FetchEnd::Spoiled
        | FetchEnd::Cut { kept: false } => Judgement::Ill,
        FetchEnd::Busy(span) => {
            let span = span.unwrap_or(PATIENCE);
            Judgement::Busy(span.clamp(PATIENCE_MIN, PATIENCE_MAX))
        }
        FetchEnd::Forbidden
        | FetchEnd::Full
        | FetchEnd::DiskLow
        | FetchEnd::Ours
        | FetchEnd::Stopped => Judgement::Nothing,
    }
}

/// Whose repository it is, as most servers have it: the first part of the path.
fn owner(url: &CloneUrl) -> &str {
    let path = url.as_str().splitn(4, '/').nth(3);
    path.and_then(|path| path.split_once('/'))
        .map_or("", |(owner, _)| owner)
}

#[derive(Debug, Default)]
pub struct Domains {
    known: FxHashMap<Domain, DomainState>,
    /// When we were started, if somebody was asked before.
    started: Option<Mono>,
    wakes: BTreeSet<(Mono, Domain)>,
}

impl Domains {
    pub fn get(&self, domain: &Domain) -> Option<&DomainState> {
        self.known.get(domain)
    }

    pub fn get_mut(&mut self, domain: &Domain) -> Option<&mut DomainState> {
        self.known.get_mut(domain)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Domain, &DomainState)> {
        self.known.iter()
    }

    /// `None` when every domain that there is room for is in use.
    pub fn learn(
        &mut self,
        domain: &Domain,
        now: Mono,
        limits: &HuntLimits,
    ) -> Option<&mut DomainState> {
        let is_new = !self.known.contains_key(domain);
        if is_new && self.known.len() >= limits.domains_known {
            self.make_room(now, limits);
        }
        if is_new && self.known.len() >= limits.domains_known {
            return None;
        }
        let state = self.known.entry(domain.clone());
        let started = self.started.filter(|at| *at + A_MINUTE > now);
        Some(state.or_insert_with(|| DomainState::new(domain, started, limits)))
    }

    pub fn begin_slowly(&mut self, now: Mono) {
        self.started = Some(now);
    }

    /// Those that are well are forgotten first. None whose minute still runs.
    fn make_room(&mut self, now: Mono, limits: &HuntLimits) {
        self.known.retain(|_, state| !state.is_unremarkable(now));
        if self.known.len() >= limits.domains_known {
            self.known.retain(|_, state| !state.is_idle(now));
        }
    }

    pub fn is_ill(&self, domain: &Domain, now: Mono) -> bool {
        let state = self.known.get(domain);
        state.is_some_and(|state| state.is_ill() || state.resting(now).is_some())
    }

    pub fn set_wake(&mut self, domain: &Domain, at: Option<Mono>) {
        let Some(state) = self.known.get_mut(domain) else {
            return;
        };
        if let Some(before) = state.wake {
            self.wakes.remove(&(before, domain.clone()));
        }
        if let Some(at) = at {
            self.wakes.insert((at, domain.clone()));
        }
        state.wake = at;
    }

    pub fn next_wake(&self) -> Option<Mono> {
        self.wakes.first().map(|(at, _)| *at)
    }

    pub fn take_wake(&mut self, now: Mono) -> Option<Domain> {
        self.next_wake().filter(|at| *at <= now)?;
        let (_, domain) = self.wakes.pop_first()?;
        if let Some(state) = self.known.get_mut(&domain) {
            state.wake = None;
        }
        Some(domain)
    }

    pub fn audit(&self, limits: &HuntLimits) -> Result<(), String> {
        if self.known.len() > limits.domains_known {
            return Err("more domains are known than may be".to_owned());
        }
        let woken = self.known.iter();
        let woken = woken.filter_map(|(domain, state)| Some((state.wake?, domain.clone())));
        if woken.collect::<BTreeSet<_>>() != self.wakes {
            return Err("when domains are woken is out of date".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    fn state() -> DomainState {
        DomainState::new(&domain("a.example"), None, &HuntLimits::default())
    }

    fn url() -> CloneUrl {
        CloneUrl::parse("https://a.example/somebody/r.git").unwrap()
    }

    fn domain(text: &str) -> Domain {
        Domain::parse(text).unwrap()
    }

    #[test]
    fn rests_double_from_the_second_failure_and_one_answer_heals() {
        let limits = HuntLimits::default();
        let mut state = state();
        let mut now = at(0);
        let mut rests = Vec::new();
        for _ in 0..9 {
            state.throttle.begin(now);
            state.end(&url(), now, (FetchEnd::Unreachable, 1), now + MS, &limits);
            now = now + MS;
            let rest = state.resting(now).map_or(0, |rest| {
                let span = rest.until.since(now).as_secs();
                now = rest.until;
                span
            });
            rests.push(rest);
        }
        assert_eq!(rests, [0, 30, 60, 120, 240, 480, 900, 900, 900]);
        assert_eq!(state.at_once(), 1);
        state.throttle.begin(now);
        let turned = state.end(&url(), now, (FetchEnd::Absent, 1), now, &limits);
        assert_eq!(turned, Some(Turned::Well));
        assert_eq!((state.at_once(), state.failures), (5, 0));
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn fetches_that_failed_together_count_as_they_would_alone() {
        let limits = HuntLimits::default();
        let mut state = state();
        for _ in 0..5 {
            state.throttle.begin(at(0));
        }
        for _ in 0..5 {
            state.end(&url(), at(0), (FetchEnd::TooSlow, 1), at(30), &limits);
        }
        assert_eq!(state.failures, 2);
        assert_eq!(state.resting(at(31)).unwrap().until, at(60));
    }

    #[test]
    fn whoever_was_not_asked_has_not_answered() {
        let limits = HuntLimits::default();
        let mut state = state();
        state.failures = 3;
        state.throttle.begin(at(0));
        let turned = state.end(&url(), at(0), (FetchEnd::Answered, 0), at(1), &limits);
        assert_eq!((turned, state.failures), (None, 3));
    }

    #[test]
    fn a_busy_server_is_left_alone_for_as_long_as_it_asks() {
        let limits = HuntLimits::default();
        let hour = 3_600;
        for (asks, rests) in [
            (Some(0), 1),
            (Some(7), 7),
            (Some(100 * hour), hour),
            (None, 60),
        ] {
            let mut state = state();
            state.throttle.begin(at(0));
            let end = FetchEnd::Busy(asks.map(Duration::from_secs));
            state.end(&url(), at(0), (end, 1), at(1), &limits);
            assert_eq!(state.admits(at(1)), Admission::At(at(1 + rests)));
            assert_eq!(state.failures, 0);
        }
    }

    #[test]
    fn well_domains_are_forgotten_first_and_none_whose_minute_runs() {
        let limits = HuntLimits {
            domains_known: 3,
            ..HuntLimits::default()
        };
        let mut domains = Domains::default();
        for name in ["well", "ill", "asked"] {
            domains.learn(&domain(name), at(0), &limits).unwrap();
        }
        domains.get_mut(&domain("ill")).unwrap().failures = 3;
        let asked = domains.get_mut(&domain("asked")).unwrap();
        asked.throttle.begin(at(0));
        asked.throttle.end(at(0), 1, at(0));
        assert!(domains.learn(&domain("new"), at(1), &limits).is_some());
        assert!(domains.get(&domain("well")).is_none());
        domains
            .get_mut(&domain("new"))
            .unwrap()
            .throttle
            .begin(at(1));
        assert!(domains.learn(&domain("newer"), at(2), &limits).is_some());
        assert!(domains.get(&domain("ill")).is_none());
        assert!(domains.get(&domain("asked")).is_some());
        domains
            .get_mut(&domain("newer"))
            .unwrap()
            .throttle
            .begin(at(2));
        assert!(domains.learn(&domain("last"), at(3), &limits).is_none());
    }
}
