//! Fetches under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::attempt::Rank;
use super::io::{FetchEnd, Fetched};
use crate::clock::Mono;
use crate::clone_url::CloneUrl;
use crate::git::ObjectId;
use crate::nip34::RepoId;
use crate::ticket::FetchNo;

/// How a server came to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// In an attempt of its repository.
    Attempt,
    /// From the queue of its domain.
    Queue,
}

#[derive(Debug)]
pub struct Flight {
    pub repo: RepoId,
    pub url: CloneUrl,
    /// Sorted.
    pub wants: Arc<[ObjectId]>,
    pub rank: Rank,
    pub path: Path,
    pub begun: Mono,
    pub pace: Pace,
    pub stopped: bool,
    /// It was stopped because it sent nothing and others waited.
    pub given_up: bool,
}

impl Flight {
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

/// Whether another server may be asked beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Nothing has come, and nothing need have come before then.
    Young(Mono),
    /// Nothing has come, and it should have.
    Late,
    Flowing,
}

#[derive(Debug, Default)]
pub struct Flights {
    all: BTreeMap<FetchNo, Flight>,
    hedges: BTreeSet<(Mono, FetchNo)>,
    next: u64,
}

impl Flights {
    pub fn begin(
        &mut self,
        repo: RepoId,
        url: CloneUrl,
        (wants, rank): (Arc<[ObjectId]>, Rank),
        path: Path,
        (now, patience): (Mono, Duration),
    ) -> FetchNo {
        let no = FetchNo(self.next);
        self.next += 1;
        let flight = Flight {
            repo,
            url,
            wants,
            rank,
            path,
            begun: now,
            pace: Pace::Young(now + patience),
            stopped: false,
            given_up: false,
        };
        self.all.insert(no, flight);
        self.hedges.insert((now + patience, no));
        no
    }

    pub fn end(&mut self, no: FetchNo) -> Option<Flight> {
        self.set_pace(no, Pace::Flowing);
        self.all.remove(&no)
    }

    pub fn set_pace(&mut self, no: FetchNo, pace: Pace) {
        let Some(flight) = self.all.get_mut(&no) else {
            return;
        };
        if let Pace::Young(until) = flight.pace {
            self.hedges.remove(&(until, no));
        }
        flight.pace = pace;
    }

    /// False if it was stopped before.
    pub fn stop(&mut self, no: FetchNo) -> bool {
        self.set_pace(no, Pace::Flowing);
        let flight = self.all.get_mut(&no);
        flight.is_some_and(|flight| !std::mem::replace(&mut flight.stopped, true))
    }

    /// Of these, the one that sends nothing for the longest time.
    pub fn latest_of<'a>(&self, among: impl Iterator<Item = &'a FetchNo>) -> Option<FetchNo> {
        let late = |no: &&FetchNo| {
            let flight = self.all.get(no);
            flight.is_some_and(|flight| flight.pace == Pace::Late && !flight.stopped)
        };
        among.filter(late).min().copied()
    }

    /// The same among all.
    pub fn latest(&self) -> Option<FetchNo> {
        self.latest_of(self.all.keys())
    }

    /// It makes room for others.
    pub fn give_up(&mut self, no: FetchNo) {
        if let Some(flight) = self.all.get_mut(&no) {
            flight.given_up = true;
        }
    }

    /// One that should have begun to flow by now.
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
            Pace::Young(until) => Some((until, no)),
            Pace::Late | Pace::Flowing => None,
        });
        if young.collect::<BTreeSet<_>>() != self.hedges {
            return Err("when fetches are late is out of date".to_owned());
        }
        Ok(())
    }
}
