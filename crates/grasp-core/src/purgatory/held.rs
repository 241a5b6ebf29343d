//! One held event.

use std::sync::Arc;

use super::{Guest, Holder};
use crate::admit::Needs;
use crate::clock::Timestamp;
use crate::clone_url::CloneUrl;
use crate::event::Event;
use crate::git::ObjectId;
use crate::nip34::RepoId;
use crate::ticket::{Job, Ticket};

#[derive(Debug, Clone)]
pub struct Held {
    pub event: Arc<Event>,
    pub needs: Needs,
    pub until: Timestamp,
    /// An announcement that has expired, and is only kept in mind.
    pub remembered: bool,
    /// Who it came from; `None` is this machine.
    pub holder: Option<Holder>,
    /// What its author was when it came.
    pub guest: Guest,
    /// Who has not been answered yet.
    pub submitters: Vec<Ticket>,
    pub durability: Durability,
    /// Objects that no repository here had when somebody looked last.
    pub missing: Option<Arc<[ObjectId]>>,
    /// Git servers that a pull request names, once they were read. As long as the event at most.
    pub servers: Option<Arc<[CloneUrl]>>,
    /// Repositories that had what a pull request says is its commit when somebody looked last.
    pub landed_in: Vec<RepoId>,
}

/// Whether a kill would lose it. Only what is on disk is acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    #[default]
    InMemory,
    /// By this errand; an answer to an earlier one is about an earlier stay.
    Writing(Job),
    OnDisk,
}

impl Held {
    pub fn new(event: Arc<Event>, needs: Needs, until: Timestamp) -> Self {
        Self {
            event,
            needs,
            until,
            remembered: false,
            holder: None,
            guest: Guest::Anybody,
            submitters: Vec::new(),
            durability: Durability::default(),
            missing: None,
            servers: None,
            landed_in: Vec::new(),
        }
    }
}
