//! Everything that can happen to us.

use std::sync::Arc;

use crate::admit::Origin;
use crate::clock::Timestamp;
use crate::event::Event;
use crate::facts::{Seq, StoreOutcome};
use crate::git::{ObjectId, ObjectKind, Refs};
use crate::hunt::io::Fetched;
use crate::id::EventId;
use crate::network::Network;
use crate::nip34::state::Targets;
use crate::nip34::{Rank, RepoId};
use crate::push::Command;
use crate::sync::io::FromRelay;
use crate::sync::{Dismissed, RelayMemory};
use crate::ticket::{ConnNo, FetchNo, Job, PushId, RelayNo, Ticket};

#[derive(Debug, Clone)]
pub enum Input {
    /// Something that was so before the start; all of them come before [`Input::Restored`].
    Restore(Restore),
    /// The past is complete: time to see whether disk and store agree.
    Restored,
    /// An event whose id and signature are right.
    Event {
        ticket: Ticket,
        event: Arc<Event>,
        origin: Origin,
    },
    /// What became of an [`crate::Effect::Store`]: it is on disk, or it never will be.
    Committed {
        ticket: Ticket,
        outcome: StoreOutcome,
    },
    /// A sweep ended; `more` when it stopped at its bound.
    Swept { more: bool },
    /// What became of an [`crate::Effect::Commit`]: one word for each stored event, in order.
    Written {
        job: Job,
        outcomes: Result<Vec<StoreOutcome>, Failed>,
    },
    /// What became of an [`crate::Effect::Git`].
    Git {
        job: Job,
        outcome: Result<GitDone, Failed>,
    },
    /// Somebody wants to push. `present` are the heads and tags that the client could see.
    Push {
        push: PushId,
        repo: RepoId,
        commands: Vec<Command>,
        present: Refs,
        /// `None` is not counted: this machine.
        network: Option<Network>,
    },
    /// Whether less than what must stay free is left on the disk.
    DiskLow(bool),
    /// Another relay, or the line to it, says something.
    Remote {
        relay: RelayNo,
        conn: ConnNo,
        word: FromRelay,
    },
    /// The pack of an [`crate::Effect::Fetch`] has begun to come, or another part of it
    /// ([`crate::hunt::io::PART`]): so many bytes so far.
    Flowing { fetch: FetchNo, bytes: u64 },
    /// All that an [`crate::Effect::Fetch`] asked for has come, and we are at work on it.
    Arrived(FetchNo),
    /// What became of an [`crate::Effect::Fetch`], also of one that was stopped.
    Fetched { fetch: FetchNo, fetched: Fetched },
    /// The objects of a push are in the repository, whole; or the reason why not.
    PushTaken {
        push: PushId,
        taken: Result<(), String>,
    },
}

/// What the store kept for the core.
#[derive(Debug, Clone)]
pub enum Restore {
    /// A stored announcement.
    Announcement { event: Arc<Event>, seq: Seq },
    /// A stored issue, patch, pull request or update of one, after all announcements.
    Root { event: Arc<Event>, seq: Seq },
    /// The state that a repository has, and since when it has had refs.
    Applied {
        repo: RepoId,
        rank: Rank,
        since: Timestamp,
    },
    /// A stored event whose objects were gone.
    Hidden(EventId),
    /// A repository that is on disk.
    Repository(RepoId),
    /// A held event; announcements come before the others.
    Held {
        event: Arc<Event>,
        until: Timestamp,
        remembered: bool,
    },
    /// What was known of another relay.
    Relay(Arc<RelayMemory>),
    /// An event that need not be fetched again.
    Dismissed(Dismissed),
}

/// It did not happen; the log says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitDone {
    Done,
    /// The kind of each object asked for, `None` for those that are not there.
    Probed(Vec<Option<ObjectKind>>),
    /// What heads, tags and HEAD are, and tips of pull requests.
    Refs {
        found: Targets,
        tips: Vec<(EventId, ObjectId)>,
    },
}
