//! Everything we may ask of the world.

use std::sync::Arc;

use crate::admit::Refusal;
use crate::clock::Timestamp;
use crate::event::Event;
use crate::facts::Seq;
use crate::git::ObjectId;
use crate::hunt::HuntNote;
use crate::hunt::io::FetchAsk;
use crate::id::EventId;
use crate::nip34::state::Targets;
use crate::nip34::{Rank, RepoId};
use crate::push::{Decision, PushRefusal};
use crate::relay_url::RelayUrl;
use crate::sync::io::ToRelay;
use crate::sync::{Dismissed, Note, RelayMemory};
use crate::ticket::{ConnNo, FetchNo, Job, PushId, RelayNo, Ticket};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Make the event durable; answered by `Input::Committed`.
    Store { ticket: Ticket, event: Arc<Event> },
    /// Tell the submitter; the ticket is spent.
    Answer { ticket: Ticket, answer: Answer },
    /// Deliver to live subscriptions. `None` for an event that is not stored.
    Announce { event: Arc<Event>, seq: Option<Seq> },
    /// Remove what expired up to `until`, and rows of what was deleted; answered by `Input::Swept`.
    Sweep { until: Timestamp },
    /// Make all these changes durable, or none; answered by `Input::Written`.
    Commit { job: Job, changes: Vec<Change> },
    /// Work on one repository, one task after the other; answered by `Input::Git`.
    Git {
        job: Job,
        repo: RepoId,
        task: GitTask,
    },
    /// What to do with a push that has shown its commands. Unless it is refused, its objects are
    /// taken, and `Input::PushTaken` follows.
    Decide { push: PushId, decision: Decision },
    /// The end of a push; the id is spent.
    Report {
        push: PushId,
        result: Result<(), PushRefusal>,
    },
    /// A held event has made way for another: all places were taken, and it came from whoever
    /// held most of them. For the operator.
    Evicted(EventId),
    /// Disk and store did not agree, and now they do. For the log and the operator.
    Repaired { repo: RepoId, what: Repair },
    /// Something is asked of another relay; [`FromRelay`](crate::sync::io::FromRelay) says what
    /// comes back.
    Remote {
        relay: RelayNo,
        conn: ConnNo,
        ask: ToRelay,
    },
    /// Sync has something to tell. For the log and the operator.
    Noted(Note),
    /// Ask another git server for objects; answered by `Input::Fetched`, perhaps after
    /// `Input::Flowing`. No ref moves by it.
    Fetch { fetch: FetchNo, ask: FetchAsk },
    /// Nobody needs what it fetches; it is answered soon.
    StopFetch(FetchNo),
    /// Nobody waits for data of this repository any more: what came of it in part may go.
    LeaveHunt(RepoId),
    /// The hunt for git data has something to tell. For the log and the operator.
    Hunted(HuntNote),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// Refs or HEAD were not those of the applied state.
    RefsSetBack,
    /// Refs had no authoriser, or pointed at objects that are gone.
    RefsDropped,
    /// A tip had no event, was not at its commit, or pointed at one that is gone.
    TipRemoved,
    /// The objects of a served event are gone.
    Hidden,
    /// They are back.
    Shown,
}

impl Repair {
    /// All that `label` says.
    pub const LABELS: [&'static str; 5] = [
        "refs_set_back",
        "refs_dropped",
        "tip_removed",
        "hidden",
        "shown",
    ];

    /// A short, stable word for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Repair::RefsSetBack => "refs_set_back",
            Repair::RefsDropped => "refs_dropped",
            Repair::TipRemoved => "tip_removed",
            Repair::Hidden => "hidden",
            Repair::Shown => "shown",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    /// Durable, and not served until its git data is here.
    Held,
    Duplicate,
    Refused(Refusal),
}

/// One durable change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Store(Arc<Event>),
    /// Keep beside the store, where no reader looks.
    Hold {
        event: Arc<Event>,
        until: Timestamp,
        remembered: bool,
    },
    Unhold(EventId),
    /// The repository's refs are those of this state; it has had some since then.
    Applied {
        repo: RepoId,
        rank: Rank,
        since: Timestamp,
    },
    /// Its objects are gone: stored, and shown to no reader.
    Hide(EventId),
    /// They are back.
    Show(EventId),
    /// What is known of another relay.
    Relay(Arc<RelayMemory>),
    ForgetRelay(RelayUrl),
    /// An event that need not be fetched again.
    Dismiss(Dismissed),
    /// It may be fetched again.
    Recall(EventId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitTask {
    /// Make the bare repository, if it is not there.
    Create,
    /// It expired: nothing in it was ever served.
    Remove,
    /// Nobody knows it: away with it, if nothing is in it.
    RemoveEmpty,
    /// Its announcement is gone: put it aside where git does not serve it.
    Retire,
    Probe(Arc<[ObjectId]>),
    /// Bring over the objects of another repository here.
    Share {
        from: RepoId,
    },
    /// Heads, tags and HEAD, in one transaction.
    Apply(Arc<Targets>),
    /// Refs under `refs/nostr/`; `None` removes.
    SetTips(Vec<(EventId, Option<ObjectId>)>),
    /// Tell what the refs are.
    Look,
    /// Get ready to drop what neither refs nor these objects reach. It may take long, and other
    /// tasks of the repository go on meanwhile.
    PreparePrune(Arc<[ObjectId]>),
    /// Drop it. Fails when objects or refs have changed since it was prepared.
    Prune,
    /// Do not drop it after all.
    DropPrune,
}
