//! Fetches under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;

use super::attempt::Rank;
use super::io::{FetchEnd, Fetched, PART};
use crate::clock::Mono;
use crate::clone_url::CloneUrl;
use crate::git::ObjectId;
use crate::id::Pubkey;
use crate::nip34::RepoId;
use crate::ticket::FetchNo;

/// 64 KiB in a second: whoever is slower on the whole makes way for others.
const PART_WITHIN: Duration = Duration::from_secs(PART / (64 * 1_024));
/// What anybody may have fetched makes way after so long, if others have fewer.
const YIELDS_AFTER: Duration = Duration::from_secs(60);
/// Bytes of a pack that even a busy machine looks at in a second.
const LOOKED_AT: u64 = 4 * 1_024 * 1_024;

/// How a server came to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// In an attempt of its repository.
    Attempt,
    /// From the queue of its domain.
    Queue,
}

/// Who has which part of all fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// States of repositories that are served.
    Served,
    /// States of repositories that are not served yet: anybody may announce one.
    Unserved,
    /// Pull requests: anybody may sign one.
    Requests,
}

impl Class {
    /// Those that anybody can be of.
    pub const OPEN: [Class; 2] = [Class::Unserved, Class::Requests];

    pub fn of(rank: Rank, served: bool) -> Self {
        match rank {
            Rank::State if served => Class::Served,
            Rank::State => Class::Unserved,
            Rank::PullRequests => Class::Requests,
        }
    }

    pub fn is_open(self) -> bool {
        self != Class::Served
    }
}

#[derive(Debug)]
pub struct Flight {
    pub repo: RepoId,
    pub url: CloneUrl,
    /// Sorted.
    pub wants: Arc<[ObjectId]>,
    /// What the server is asked for next, sorted.
    pub after: Vec<ObjectId>,
    pub rank: Rank,
    pub class: Class,
    pub path: Path,
    pub begun: Mono,
    pub pace: Pace,
    /// When its pack began to come.
    pub flows_since: Option<Mono>,
    pub stopped: bool,
    /// It was stopped because it was slow and others waited.
    pub given_up: bool,
}

impl Flight {
    /// It may still bring what it is after in good time.
    pub fn is_promising(&self) -> bool {
        !self.stopped && self.pace != Pace::Late
    }

    pub fn wants(&self, id: &ObjectId) -> bool {
        self.wants.binary_search(id).is_ok()
    }

    pub fn is_followed_by(&self, id: &ObjectId) -> bool {
        self.after.binary_search(id).is_ok()
    }

    /// What the server was not asked for after all, because there was too much.
    pub fn unanswered(&self, fetched: &Fetched) -> Vec<ObjectId> {
        let said: FxHashSet<&ObjectId> = fetched.present().chain(&fetched.lacking).collect();
        let left = self.wants.iter().filter(|id| !said.contains(id));
        left.copied().collect()
    }

    /// One that was given up was too slow, whoever stopped it.
    pub fn as_it_was(&self, fetched: &Fetched) -> Fetched {
        let end = match fetched.end {
            FetchEnd::Stopped if self.given_up => FetchEnd::TooSlow,
            end => end,
        };
        Fetched {
            end,
            ..fetched.clone()
        }
    }
}

/// Whether another server may be asked for the same beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Nothing more need have come before then.
    Good(Mono),
    /// It should have begun, or brought more, by now.
    Late,
    /// Everything came then, and we are at work on it, which ends by itself.
    Ours(Mono),
}

/// How long a pack of which so much has come may take until its next part is here: what has come
/// is looked at, too, which takes its time.
fn patience(bytes: u64) -> Duration {
    let parts = u32::try_from(bytes / PART).unwrap_or(u32::MAX);
    let coming = PART_WITHIN.saturating_mul(parts.saturating_add(1));
    coming.saturating_add(Duration::from_secs(bytes / LOOKED_AT))
}

#[derive(Debug, Default)]
pub struct Flights {
    all: BTreeMap<FetchNo, Flight>,
    hedges: BTreeSet<(Mono, FetchNo)>,
    /// When each has had its time, if others wait.
    yields: BTreeSet<(Mono, FetchNo)>,
    next: u64,
}

impl Flights {
    pub fn begin(&mut self, flight: Flight) -> FetchNo {
        let no = FetchNo(self.next);
        self.next += 1;
        if let Pace::Good(until) = flight.pace {
            self.hedges.insert((until, no));
        }
        self.yields.insert((flight.begun + YIELDS_AFTER, no));
        self.all.insert(no, flight);
        no
    }

    pub fn end(&mut self, no: FetchNo) -> Option<Flight> {
        self.set_pace(no, Pace::Late);
        let flight = self.all.remove(&no)?;
        self.yields.remove(&(flight.begun + YIELDS_AFTER, no));
        Some(flight)
    }

    /// So much of its pack has come.
    pub fn flows(&mut self, no: FetchNo, bytes: u64, now: Mono) {
        let Some(flight) = self.all.get_mut(&no).filter(|flight| !flight.stopped) else {
            return;
        };
        if let (Pace::Ours(since), Some(flows)) = (flight.pace, &mut flight.flows_since) {
            *flows = *flows + now.since(since);
        }
        let until = *flight.flows_since.get_or_insert(now) + patience(bytes);
        if until > now || flight.pace != Pace::Late {
            self.set_pace(no, Pace::Good(until.max(now)));
        }
    }

    /// Nothing more need come, for now.
    pub fn arrived(&mut self, no: FetchNo, now: Mono) {
        let flight = self.all.get(&no);
        let at_work = |flight: &Flight| flight.stopped || matches!(flight.pace, Pace::Ours(_));
        if !flight.is_some_and(at_work) {
            self.set_pace(no, Pace::Ours(now));
        }
    }

    fn set_pace(&mut self, no: FetchNo, pace: Pace) {
        let Some(flight) = self.all.get_mut(&no) else {
            return;
        };
        if let Pace::Good(until) = flight.pace {
            self.hedges.remove(&(until, no));
        }
        if let Pace::Good(until) = pace {
            self.hedges.insert((until, no));
        }
        flight.pace = pace;
    }

    /// False if it was stopped before.
    pub fn stop(&mut self, no: FetchNo) -> bool {
        self.set_pace(no, Pace::Late);
        let flight = self.all.get_mut(&no);
        flight.is_some_and(|flight| !std::mem::replace(&mut flight.stopped, true))
    }

    /// Of these, the one that is late and began first.
    pub fn latest_of<'a>(&self, among: impl Iterator<Item = &'a FetchNo>) -> Option<FetchNo> {
        let late = |no: &&FetchNo| {
            let flight = self.all.get(no);
            flight.is_some_and(|flight| flight.pace == Pace::Late && !flight.stopped)
        };
        among.filter(late).min().copied()
    }

    /// The same among all of a kind.
    pub fn latest(&self, which: impl Fn(&Flight) -> bool) -> Option<FetchNo> {
        let of_kind = self.all.iter().filter(|(_, flight)| which(flight));
        self.latest_of(of_kind.map(|(no, _)| no))
    }

    /// How many of a kind were stopped and have not ended.
    pub fn stopped(&self, which: impl Fn(&Flight) -> bool) -> usize {
        let stopped = self.all.values().filter(|flight| flight.stopped);
        stopped.filter(|flight| which(flight)).count()
    }

    pub fn count(&self, which: impl Fn(&Flight) -> bool) -> usize {
        self.all.values().filter(|flight| which(flight)).count()
    }

    /// How many are under way from a machine, whatever the ports.
    pub fn of_host(&self, host: &str) -> usize {
        self.count(|flight| flight.url.domain().host() == host)
    }

    /// How many repositories of an owner that are not served yet are fetched for.
    pub fn of_owner(&self, owner: &Pubkey) -> usize {
        let unserved = |flight: &Flight| flight.class == Class::Unserved;
        self.count(|flight| unserved(flight) && flight.repo.owner == *owner)
    }

    /// The one to make way for somebody who has so many, from his host or for himself: of whoever
    /// has most, the last that has had its time, so that the first goes on to its end.
    pub fn to_yield(
        &self,
        has: usize,
        which: impl Fn(&Flight) -> bool,
        now: Mono,
    ) -> Option<FetchNo> {
        let may = |flight: &Flight| {
            let ours = matches!(flight.pace, Pace::Ours(_));
            !flight.stopped && !ours && flight.begun + YIELDS_AFTER <= now && which(flight)
        };
        let candidates = self.all.iter().filter(|(_, flight)| may(flight));
        let candidates = candidates.map(|(no, flight)| (self.beside(flight), *no));
        let (most, no) = candidates.max()?;
        // Otherwise it would have fewer than the other then.
        (most > has + 1).then_some(no)
    }

    /// How many whoever has this one has, with it.
    fn beside(&self, flight: &Flight) -> usize {
        let of_host = self.of_host(flight.url.domain().host());
        match flight.class {
            Class::Unserved => of_host.max(self.of_owner(&flight.repo.owner)),
            Class::Served | Class::Requests => of_host,
        }
    }

    /// Whether one has had its time since this was asked last.
    pub fn take_yield(&mut self, now: Mono) -> bool {
        let due = self.next_yield().is_some_and(|at| at <= now);
        due && self.yields.pop_first().is_some()
    }

    pub fn next_yield(&self) -> Option<Mono> {
        self.yields.first().map(|(at, _)| *at)
    }

    /// It makes room for others.
    pub fn give_up(&mut self, no: FetchNo) {
        if let Some(flight) = self.all.get_mut(&no) {
            flight.given_up = true;
        }
    }

    /// One that should have brought something by now.
    pub fn take_late(&mut self, now: Mono) -> Option<FetchNo> {
        self.next_hedge().filter(|at| *at <= now)?;
        let (_, no) = *self.hedges.first()?;
        self.set_pace(no, Pace::Late);
        Some(no)
    }

    pub fn next_hedge(&self) -> Option<Mono> {
        self.hedges.first().map(|(at, _)| *at)
    }

    pub fn get(&self, no: FetchNo) -> Option<&Flight> {
        self.all.get(&no)
    }

    pub fn iter(&self) -> impl Iterator<Item = (FetchNo, &Flight)> {
        self.all.iter().map(|(no, flight)| (*no, flight))
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn audit(&self) -> Result<(), String> {
        let young = self.iter().filter_map(|(no, flight)| match flight.pace {
            Pace::Good(until) => Some((until, no)),
            Pace::Late | Pace::Ours(_) => None,
        });
        if young.collect::<BTreeSet<_>>() != self.hedges {
            return Err("when fetches are late is out of date".to_owned());
        }
        Ok(())
    }
}
