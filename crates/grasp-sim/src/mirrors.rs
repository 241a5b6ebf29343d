//! Which git servers people name, and what they bring there: instead of a push, before it, after
//! it, or never.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use grasp_core::git::ObjectId;
use grasp_core::nip34::State;
use grasp_core::{Event, RepoId};

use crate::forge::{self, US};
use crate::hosts::spell;
use crate::people::{Deed, People};

/// Servers in one announcement, mostly.
const FEW: usize = 4;
const MANY: usize = 10;

pub(crate) struct Mirrors {
    rng: Rng,
    /// The git servers of the world, by place.
    names: Vec<String>,
    /// Where the announcement of a repository says that it is, too.
    listed: BTreeMap<RepoId, Vec<usize>>,
    forks: u32,
}

impl Mirrors {
    pub(crate) fn new(rng: Rng, names: Vec<String>) -> Self {
        Self {
            rng,
            names,
            listed: BTreeMap::new(),
            forks: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The servers that an announcement names besides us, in whatever spelling, with some
    /// nonsense.
    pub(crate) fn list(&mut self, repo: &RepoId) -> Vec<String> {
        if self.is_empty() {
            return Vec::new();
        }
        if !self.listed.contains_key(repo) || self.rng.u8(0..4) == 0 {
            let drawn = self.some();
            self.listed.insert(repo.clone(), drawn);
        }
        let drawn = self.listed.get(repo).cloned().unwrap_or_default();
        let mut urls = Vec::new();
        for host in drawn {
            urls.extend(self.spell(host, &path(repo)));
            if self.rng.u8(0..5) == 0 {
                urls.extend(self.spell(host, &path(repo)));
            }
        }
        if self.rng.u8(0..4) == 0 {
            urls.extend(self.nonsense());
        }
        urls
    }

    fn some(&mut self) -> Vec<usize> {
        let most = if self.rng.u8(0..10) == 0 { MANY } else { FEW };
        let mut all: Vec<usize> = (0..self.names.len()).collect();
        self.rng.shuffle(&mut all);
        all.truncate(self.rng.usize(0..=most));
        all
    }

    fn spell(&mut self, host: usize, path: &str) -> Option<String> {
        Some(spell(&mut self.rng, self.names.get(host)?, path))
    }

    fn nonsense(&mut self) -> Vec<String> {
        let mut urls = vec![
            spell(&mut self.rng, US, "other/thing.git"),
            "https://nobody.example/x.git".to_owned(),
            "https://me@g0.example/x.git".to_owned(),
            "ssh://git@g0.example/x.git".to_owned(),
            "https://g0.example".to_owned(),
        ];
        self.rng.shuffle(&mut urls);
        urls.truncate(3);
        urls
    }

    /// Brings objects to servers that this repository names: all to some, or some to each.
    fn bring(&mut self, repo: &RepoId, objects: &[ObjectId]) -> Vec<(Duration, Deed)> {
        let hosts = self.listed.get(repo).cloned().unwrap_or_default();
        let split = self.rng.u8(0..3) == 0;
        let mut deeds = Vec::new();
        for host in hosts {
            if self.rng.u8(0..3) == 0 {
                continue;
            }
            let rng = &mut self.rng;
            let taken = objects.iter().copied().filter(|_| !split || rng.bool());
            let objects: Vec<ObjectId> = taken.collect();
            deeds.push(self.upload(host, path(repo), objects));
        }
        deeds
    }

    fn upload(&mut self, host: usize, path: String, objects: Vec<ObjectId>) -> (Duration, Deed) {
        let most = match self.rng.u8(0..5) {
            0 => 900_000,
            1 => 100_000,
            _ => 2_000,
        };
        let pause = Duration::from_millis(self.rng.u64(0..most));
        let deed = Deed::Upload {
            host,
            path,
            objects,
        };
        (pause, deed)
    }
}

impl People {
    /// What its author does beside pushing, and whether it is done instead.
    pub(crate) fn bring_state(&mut self, state: &Event) -> (bool, Vec<(Duration, Deed)>) {
        let read = State::read(state).ok();
        let targets = read.and_then(|read| Some((read.identifier, read.refs.ok()?)));
        let Some((identifier, targets)) = targets else {
            return (false, Vec::new());
        };
        let how = match self.mirrors.is_empty() {
            true => 0,
            false => self.mirrors.rng.u8(0..10),
        };
        if how < 2 {
            return (false, Vec::new());
        }
        let mut repos = self.repos();
        let rng = &mut self.mirrors.rng;
        repos.retain(|repo| {
            repo.identifier == identifier && (repo.owner == state.pubkey || rng.u8(0..4) == 0)
        });
        let objects = targets.objects();
        let deeds = repos
            .iter()
            .flat_map(|repo| self.mirrors.bring(repo, &objects));
        (how < 7, deeds.collect())
    }

    /// A pull request may say where its commit is.
    pub(crate) fn with_fork(
        &mut self,
        event: Arc<Event>,
        tip: ObjectId,
    ) -> (Arc<Event>, bool, Vec<(Duration, Deed)>) {
        let mirrors = &mut self.mirrors;
        if mirrors.is_empty() || mirrors.rng.bool() {
            return (event, false, Vec::new());
        }
        mirrors.forks += 1;
        let path = format!("fork-{}/{}.git", mirrors.forks, event.pubkey.npub());
        let hosts = mirrors.some();
        let mut urls: Vec<String> = Vec::new();
        let mut deeds = Vec::new();
        for host in hosts {
            urls.extend(mirrors.spell(host, &path));
            if mirrors.rng.u8(0..4) != 0 {
                deeds.push(mirrors.upload(host, path.clone(), vec![tip]));
            }
        }
        if mirrors.rng.u8(0..4) == 0 {
            urls.extend(mirrors.nonsense());
        }
        let instead = mirrors.rng.bool();
        (forge::with_clones(&event, &urls), instead, deeds)
    }

    /// A state that is signed without us, its objects at other servers.
    pub(crate) fn state_elsewhere(&mut self, now: u64) -> Vec<(Duration, Deed)> {
        if self.mirrors.is_empty() || self.mirrors.rng.u8(0..3) != 0 {
            return Vec::new();
        }
        let mut rng = self.mirrors.rng.fork();
        let Some(repo) = rng.choice(self.repos()) else {
            return Vec::new();
        };
        let commit = self.new_commit();
        let refs = [("refs/heads/main", commit.to_string())];
        let refs = refs.each_ref().map(|(name, id)| (*name, id.as_str()));
        let d = repo.identifier.as_str();
        let event = forge::state(repo.owner, d, now, &refs);
        self.has_signed(&event);
        let mut deeds = self.mirrors.bring(&repo, &[commit]);
        deeds.push((
            Duration::from_millis(rng.u64(0..5_000)),
            Deed::Spread(event),
        ));
        deeds
    }
}

fn path(repo: &RepoId) -> String {
    format!("{}/{}.git", repo.owner.npub(), repo.identifier)
}
