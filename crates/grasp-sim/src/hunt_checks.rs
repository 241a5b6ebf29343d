//! What must hold of everything that is asked of other git servers, at every step, seen from
//! outside.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use grasp_core::clone_url::Domain;
use grasp_core::git::ObjectId;
use grasp_core::hunt::MAX_FLIGHTS;
use grasp_core::hunt::io::{FetchAsk, Fetched};
use grasp_core::nip34::announcement::all_values;
use grasp_core::push::Backing;
use grasp_core::{DomainLimits, Event, FetchNo, HuntLimits, RepoId};

use crate::crowd::is_us;
use crate::git::Git;
use crate::hosts::{Site, site};

const MINUTE: Duration = Duration::from_secs(60);
/// What came is looked at, and what git refused to look at is asked again, within this time.
const LOOK: Duration = Duration::from_secs(300);

/// Watches one life of the process.
pub(crate) struct HuntChecks {
    limits: HuntLimits,
    open: BTreeMap<FetchNo, Open>,
    used: BTreeSet<FetchNo>,
    /// When each server was asked in the last minute.
    asked: BTreeMap<String, VecDeque<Duration>>,
    /// Every address that an event has named which the core has seen.
    named: BTreeSet<Site>,
    /// What the core was told to have got.
    got: BTreeSet<(RepoId, ObjectId)>,
    /// Of this, what was asked for all the same in the calm, and when first.
    in_vain: BTreeMap<(RepoId, ObjectId), Duration>,
}

struct Open {
    repo: RepoId,
    domain: String,
    at: Duration,
    backing: Backing,
    wants: BTreeSet<ObjectId>,
    stopped: bool,
}

impl HuntChecks {
    pub(crate) fn new(limits: HuntLimits) -> Self {
        Self {
            limits,
            open: BTreeMap::new(),
            used: BTreeSet::new(),
            asked: BTreeMap::new(),
            named: BTreeSet::new(),
            got: BTreeSet::new(),
            in_vain: BTreeMap::new(),
        }
    }

    /// An event was shown to the core.
    pub(crate) fn shown(&mut self, event: &Event) {
        self.named
            .extend(all_values(event, "clone").filter_map(site));
    }

    pub(crate) fn ordered(
        &mut self,
        fetch: FetchNo,
        ask: &FetchAsk,
        (now, quiet): (Duration, bool),
        git: &Git,
    ) -> Result<(), String> {
        let url = ask.url.as_str();
        let Some(site) = site(url) else {
            return Err(format!("{url} is asked and no address"));
        };
        if is_us(&site.domain) {
            return Err(format!("{url} is asked, and that is us"));
        }
        if !self.named.contains(&site) {
            return Err(format!("{url} is asked, and nobody has named it"));
        }
        if !self.used.insert(fetch) {
            return Err(format!("{fetch:?} is used twice"));
        }
        self.asks_well(ask)?;
        if quiet {
            self.asks_for_what_is_not_here(ask, now, git)?;
        }
        let open = Open {
            repo: ask.repo.clone(),
            domain: site.domain.clone(),
            at: now,
            backing: ask.backing,
            wants: ask.wants.iter().copied().collect(),
            stopped: false,
        };
        self.open.insert(fetch, open);
        self.keeps_to_limits(&site.domain, &ask.repo, now)
    }

    fn asks_well(&self, ask: &FetchAsk) -> Result<(), String> {
        let sorted = ask.wants.is_sorted_by(|a, b| a < b);
        if ask.wants.is_empty() || !sorted {
            return Err(format!("{} is asked for {:?}", ask.url, ask.wants));
        }
        Ok(())
    }

    /// What was said to have come is not asked for again and again, unless it is lost. Once it may
    /// be, for an event that nobody has looked at yet.
    fn asks_for_what_is_not_here(
        &mut self,
        ask: &FetchAsk,
        now: Duration,
        git: &Git,
    ) -> Result<(), String> {
        let found = git.get(&ask.repo);
        let is_here = |id: &ObjectId| found.is_some_and(|found| found.objects.contains(id));
        for id in ask.wants.iter() {
            let known = (ask.repo.clone(), *id);
            if !self.got.contains(&known) || !is_here(id) {
                self.got.remove(&known);
                self.in_vain.remove(&known);
            } else if *self.in_vain.entry(known).or_insert(now) + LOOK < now {
                return Err(format!("{} is asked for {id}, which has come", ask.url));
            }
        }
        Ok(())
    }

    fn keeps_to_limits(
        &mut self,
        domain: &str,
        repo: &RepoId,
        now: Duration,
    ) -> Result<(), String> {
        let DomainLimits {
            concurrent,
            per_minute,
        } = self.limits_of(domain);
        let asked = self.asked.entry(domain.to_owned()).or_default();
        asked.push_back(now);
        asked.retain(|at| *at + MINUTE > now);
        if asked.len() > per_minute as usize {
            return Err(format!("{domain} is asked {} times a minute", asked.len()));
        }
        let open = self.open.values();
        let at_once = open.clone().filter(|open| open.domain == domain).count();
        if at_once > concurrent as usize {
            return Err(format!("{domain} is asked {at_once} times at once"));
        }
        let ours = open
            .clone()
            .filter(|open| open.repo == *repo && !open.stopped);
        if ours.count() > MAX_FLIGHTS {
            return Err(format!("{repo:?} is asked for at too many servers"));
        }
        let all = self.limits.fetches.max(1);
        if open.len() > all {
            return Err(format!("{} fetches are under way", open.len()));
        }
        let requests = open.filter(|open| open.backing != Backing::State);
        let of_repo = requests.clone().filter(|open| open.repo == *repo).count();
        if requests.count() > all - all / 4 || of_repo >= MAX_FLIGHTS {
            return Err(format!("{repo:?}: pull requests leave no place for states"));
        }
        Ok(())
    }

    fn limits_of(&self, domain: &str) -> DomainLimits {
        let own = Domain::parse(domain).and_then(|own| self.limits.domains.get(&own).copied());
        own.unwrap_or(self.limits.domain)
    }

    pub(crate) fn stopped(&mut self, fetch: FetchNo) -> Result<(), String> {
        match self.open.get_mut(&fetch) {
            Some(open) if !open.stopped => {
                open.stopped = true;
                Ok(())
            }
            Some(_) => Err(format!("{fetch:?} is stopped twice")),
            None => Err(format!("{fetch:?} is stopped and not under way")),
        }
    }

    /// The core hears how it went.
    pub(crate) fn answered(&mut self, fetch: FetchNo, fetched: &Fetched) {
        let Some(open) = self.open.remove(&fetch) else {
            return;
        };
        // Whoever was not asked has not been asked in this minute either.
        if fetched.requests == 0
            && let Some(asked) = self.asked.get_mut(&open.domain)
            && let Some(at) = asked.iter().rposition(|at| *at == open.at)
        {
            asked.remove(at);
        }
        let got = fetched.present().filter(|id| open.wants.contains(id));
        let known = got.map(|id| (open.repo.clone(), *id));
        self.got.extend(known);
    }
}
