//! Repositories that lack data, and when each is tried next.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::attempt::Quarry;
use crate::backoff::Backoff;
use crate::clock::Mono;
use crate::nip34::RepoId;

/// Where a repository stands between two attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Waiting(Mono),
    /// Its time has come, its turn has not.
    Ready,
    /// An event that came during the attempt has it begin anew then, whoever is being asked.
    Trying {
        again: Option<Mono>,
    },
}

impl Phase {
    fn due(self) -> Option<Mono> {
        match self {
            Phase::Waiting(at) => Some(at),
            Phase::Trying { again } => again,
            Phase::Ready => None,
        }
    }

    pub fn is_trying(self) -> bool {
        matches!(self, Phase::Trying { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    New,
    Known,
    /// There are too many.
    Refused,
}

#[derive(Debug, Default)]
pub struct SyncQueue {
    repos: FxHashMap<RepoId, Quarry>,
    due: BTreeSet<(Mono, RepoId)>,
}

impl SyncQueue {
    /// A new event makes a fresh start, and may only bring the next attempt forward.
    pub fn expect(&mut self, repo: &RepoId, at: Mono, now: Mono, most: usize) -> Expected {
        let Some(quarry) = self.repos.get_mut(repo) else {
            if self.repos.len() >= most {
                return Expected::Refused;
            }
            let quarry = Quarry::new(at, now);
            self.repos.insert(repo.clone(), quarry);
            self.due.insert((at, repo.clone()));
            return Expected::New;
        };
        quarry.attempts = 0;
        match quarry.phase {
            Phase::Waiting(before) if at < before => self.be_due(repo, Phase::Waiting(at)),
            Phase::Trying { again } if again.is_none_or(|before| at < before) => {
                self.be_due(repo, Phase::Trying { again: Some(at) });
            }
            Phase::Waiting(_) | Phase::Trying { .. } | Phase::Ready => {}
        }
        Expected::Known
    }

    /// One whose time has come; it is ready from now on.
    pub fn take_due(&mut self, now: Mono) -> Option<RepoId> {
        self.next_due().filter(|at| *at <= now)?;
        let (_, repo) = self.due.pop_first()?;
        if let Some(quarry) = self.repos.get_mut(&repo) {
            if !quarry.phase.is_trying() {
                quarry.found.clear();
            }
            quarry.phase = Phase::Ready;
        }
        Some(repo)
    }

    pub fn next_due(&self) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }

    /// An attempt is over and something is still missing: when is the next?
    pub fn back_off(&mut self, repo: &RepoId, backoff: Backoff, now: Mono) -> Option<Mono> {
        let quarry = self.repos.get_mut(repo)?;
        quarry.attempts = quarry.attempts.saturating_add(1);
        let at = now + backoff.delay(quarry.attempts);
        let sooner = quarry.phase.due().map_or(at, |sooner| sooner.max(now));
        let at = at.min(sooner);
        self.be_due(repo, Phase::Waiting(at));
        Some(at)
    }

    pub fn remove(&mut self, repo: &RepoId) -> Option<Quarry> {
        let quarry = self.repos.remove(repo)?;
        if let Some(at) = quarry.phase.due() {
            self.due.remove(&(at, repo.clone()));
        }
        Some(quarry)
    }

    pub fn get(&self, repo: &RepoId) -> Option<&Quarry> {
        self.repos.get(repo)
    }

    pub fn get_mut(&mut self, repo: &RepoId) -> Option<&mut Quarry> {
        self.repos.get_mut(repo)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&RepoId, &Quarry)> {
        self.repos.iter()
    }

    pub fn len(&self) -> usize {
        self.repos.len()
    }

    fn be_due(&mut self, repo: &RepoId, phase: Phase) {
        let Some(quarry) = self.repos.get_mut(repo) else {
            return;
        };
        let before = std::mem::replace(&mut quarry.phase, phase);
        if let Some(at) = before.due() {
            self.due.remove(&(at, repo.clone()));
        }
        self.due.extend(phase.due().map(|at| (at, repo.clone())));
    }

    pub fn audit(&self) -> Result<(), String> {
        let waiting = self.repos.iter();
        let waiting =
            waiting.filter_map(|(repo, quarry)| Some((quarry.phase.due()?, repo.clone())));
        if waiting.collect::<BTreeSet<_>>() != self.due {
            return Err("when repositories are due is out of date".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::id::Pubkey;
    use crate::limits::HuntLimits;
    use crate::nip34::Identifier;

    fn repo() -> RepoId {
        RepoId::new(Pubkey([1; 32]), Identifier::parse("r").unwrap())
    }

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    /// G4, the seed's table.
    #[test]
    fn waits_of_20_40_80_and_then_120_seconds() {
        let mut queue = SyncQueue::default();
        queue.expect(&repo(), at(0), at(0), 10);
        let mut now = at(0);
        let mut waits = Vec::new();
        for _ in 0..6 {
            assert_eq!(queue.take_due(now), Some(repo()));
            let next = queue.back_off(&repo(), HuntLimits::default().backoff, now);
            waits.push(next.unwrap().since(now).as_secs());
            now = next.unwrap();
        }
        assert_eq!(waits, [20, 40, 80, 120, 120, 120]);
    }

    /// G2: a new event only brings the attempt forward, and makes a fresh start.
    #[test]
    fn a_later_event_never_delays() {
        let mut queue = SyncQueue::default();
        assert_eq!(queue.expect(&repo(), at(180), at(0), 1), Expected::New);
        assert_eq!(queue.expect(&repo(), at(200), at(20), 1), Expected::Known);
        assert_eq!(queue.next_due(), Some(at(180)));
        queue.expect(&repo(), at(31), at(30), 1);
        assert_eq!(queue.next_due(), Some(at(31)));
        let other = RepoId::new(Pubkey([2; 32]), repo().identifier);
        assert_eq!(queue.expect(&other, at(1), at(0), 1), Expected::Refused);
        queue.audit().unwrap();
    }

    /// Beside `HuntLimits::repositories`: the map's slot, the entry among those that are due, a
    /// place in one domain's queue, and four servers. Addresses are shared with the registry.
    #[test]
    fn a_repository_that_waits_takes_no_more_than_is_reckoned_with() {
        let slot = size_of::<(RepoId, Quarry)>() * 2;
        let due = size_of::<(Mono, RepoId)>() * 2;
        let place = (size_of::<u64>() + size_of::<RepoId>()) * 2;
        let servers = 4 * size_of::<super::super::attempt::Server>();
        let sum = slot + due + place + servers;
        assert!(sum <= 1_300, "{slot} + {due} + {place} + {servers} = {sum}");
    }
}
