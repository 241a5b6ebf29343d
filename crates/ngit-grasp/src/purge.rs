//! Removes what the operator's lists do not take any more: repositories with what is said about
//! them, and events of blocked authors. Lists keep it from coming back.

use std::io::{self, Write as _};

use grasp_core::core::Restore;
use grasp_core::event::{Address, Event, Kind};
use grasp_core::{Change, EventId, Filter, Identifier, Lists, RepoId};
use grasp_git::GitError;
use grasp_store::{Budget, Progress, Query, Store, StoreError, Want};
use rustc_hash::FxHashSet;
use serde::Serialize;

use crate::app::open_store;
use crate::clock::unix_now;
use crate::config::Config;
use crate::hosting::Repositories;
use crate::owner;
use crate::status::verdict::plural;
use crate::transfer::{TransferError, on_disk, stopped};

/// Events that leave in one transaction.
const AT_ONCE: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum PurgeError {
    #[error(transparent)]
    Transfer(#[from] TransferError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

/// What goes, or would go.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Purge {
    pub repositories: Vec<String>,
    pub events: usize,
    pub held: usize,
    pub removed: bool,
}

pub fn purge(config: &Config, really: bool, as_json: bool) -> Result<(), PurgeError> {
    let data = on_disk(config)?;
    owner::act_for(&[data, &config.git_data_path]).map_err(TransferError::from)?;
    let store = open_store(config).map_err(stopped)?;
    let repositories = Repositories::new(config.git_data_path.clone());
    let unwanted = Unwanted::find(&store, &repositories, &config.policy().lists)?;
    if really {
        unwanted.remove(&store, &repositories)?;
    }
    let purge = unwanted.told(really);
    let mut out = io::stdout();
    match as_json {
        true => writeln!(out, "{}", serde_json::json!(purge))?,
        false => purge.write(&mut out)?,
    }
    Ok(())
}

impl Purge {
    fn write(&self, out: &mut impl io::Write) -> io::Result<()> {
        for repository in &self.repositories {
            writeln!(out, "{repository}")?;
        }
        let repositories = plural(self.repositories.len(), "repository", "repositories");
        let events = plural(self.events, "event", "events");
        let held = plural(self.held, "held event", "held events");
        let what = format!("{repositories}, {events} and {held}");
        match self.removed {
            true => writeln!(out, "removed: {what}"),
            false => writeln!(out, "to be removed with --yes: {what}"),
        }
    }
}

/// What the lists do not take.
#[derive(Debug, Default)]
struct Unwanted {
    repositories: Vec<RepoId>,
    events: FxHashSet<EventId>,
    held: FxHashSet<EventId>,
}

impl Unwanted {
    fn find(store: &Store, repositories: &Repositories, lists: &Lists) -> Result<Self, PurgeError> {
        let on_disk = repositories.list_all().map_err(|source| GitError::Io {
            path: repositories.root().to_owned(),
            source,
        })?;
        let refused = on_disk.into_iter().filter(|repo| is_refused(repo, lists));
        let mut unwanted = Self {
            repositories: refused.collect(),
            ..Self::default()
        };
        // Who answers a comment that goes, goes with it, and so on.
        loop {
            let before = unwanted.events.len();
            each_event(store, |event| {
                if unwanted.takes(event, lists) {
                    unwanted.events.insert(event.id);
                }
            })?;
            if unwanted.events.len() == before {
                break;
            }
        }
        let mut held = Vec::new();
        store.kept(|row| {
            if let Restore::Held { event, .. } = row {
                held.push(event);
            }
        })?;
        let held = held.iter().filter(|event| unwanted.takes(event, lists));
        unwanted.held = held.map(|event| event.id).collect();
        Ok(unwanted)
    }

    fn takes(&self, event: &Event, lists: &Lists) -> bool {
        if lists.blocks_author(&event.pubkey) {
            return true;
        }
        if matches!(event.kind, Kind::ANNOUNCEMENT | Kind::STATE) {
            let identifier = event.tag("d").and_then(|d| Identifier::parse(d).ok());
            let repo = identifier.map(|identifier| RepoId::new(event.pubkey, identifier));
            return repo.is_some_and(|repo| is_refused(&repo, lists));
        }
        let named: Vec<RepoId> = repositories_of(event).collect();
        match named.is_empty() {
            // What speaks to repositories goes when all of them do.
            false => named.iter().all(|repo| is_refused(repo, lists)),
            true => {
                let about = event.tag_values("e").chain(event.tag_values("E"));
                let about = about.filter_map(|id| EventId::from_hex(id).ok());
                let mut about = about.peekable();
                // What is said about something else as well stays.
                about.peek().is_some() && about.all(|id| self.events.contains(&id))
            }
        }
    }

    /// Repositories last: as long as there is one, this can be done again.
    fn remove(&self, store: &Store, repositories: &Repositories) -> Result<(), PurgeError> {
        let events: Vec<EventId> = self.events.iter().copied().collect();
        for some in events.chunks(AT_ONCE) {
            store.remove(some)?;
        }
        let held: Vec<Change> = self.held.iter().map(|id| Change::Unhold(*id)).collect();
        for some in held.chunks(AT_ONCE) {
            store.commit([some])?;
        }
        for repo in &self.repositories {
            repositories.remove_for_good(repo)?;
        }
        Ok(())
    }

    fn told(&self, removed: bool) -> Purge {
        Purge {
            repositories: self.repositories.iter().map(ToString::to_string).collect(),
            events: self.events.len(),
            held: self.held.len(),
            removed,
        }
    }
}

fn is_refused(repo: &RepoId, lists: &Lists) -> bool {
    !lists.takes_repository(repo) || lists.blocks_author(&repo.owner)
}

/// Those that it names by address.
fn repositories_of(event: &Event) -> impl Iterator<Item = RepoId> {
    let named = event.tag_values("a").chain(event.tag_values("A"));
    let named = named.filter_map(Address::parse);
    let named = named.filter(|address| address.kind == Kind::ANNOUNCEMENT);
    named.filter_map(|address| {
        Some(RepoId::new(
            address.pubkey,
            Identifier::parse(&address.d).ok()?,
        ))
    })
}

fn each_event(store: &Store, mut visit: impl FnMut(&Event)) -> Result<(), StoreError> {
    let mut query = Query::new(vec![Filter::default()], usize::MAX, Want::Ids).with_hidden();
    loop {
        let mut ids = Vec::new();
        let progress = store.advance(&mut query, Budget::SLICE, unix_now(), |found| {
            ids.push(found.id);
        })?;
        for event in ids
            .iter()
            .filter_map(|id| grasp_core::Facts::event(store, id))
        {
            visit(&event);
        }
        if progress == Progress::Done {
            return Ok(());
        }
    }
}
