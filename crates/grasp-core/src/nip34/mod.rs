//! NIP-34 read into types. What an event says is here; what follows from it is not.

pub mod announcement;
pub mod clones;
pub mod pull_request;
pub mod related;
pub mod repo;
pub mod state;

pub use announcement::Announcement;
pub use clones::{MAX_CLONES, clones};
pub use pull_request::PullRequest;
pub use related::{Target, targets};
pub use repo::{Identifier, IdentifierError, RepoId};
pub use state::{State, Unappliable};

use crate::clock::Timestamp;
use crate::event::{Event, Kind};
use crate::id::EventId;

pub const PATCH: Kind = Kind(1617);
pub const PULL_REQUEST: Kind = Kind(1618);
pub const PULL_REQUEST_UPDATE: Kind = Kind(1619);
pub const ISSUE: Kind = Kind(1621);

/// Kinds that others speak about: what names one of them belongs to its repository.
pub const ROOTS: [Kind; 4] = [PATCH, PULL_REQUEST, PULL_REQUEST_UPDATE, ISSUE];

/// Of these, those that wait for git data.
pub const PULL_REQUESTS: [Kind; 2] = [PULL_REQUEST, PULL_REQUEST_UPDATE];

pub fn is_root(kind: Kind) -> bool {
    ROOTS.contains(&kind)
}
/// A user's list of GRASP servers.
pub const GRASP_LIST: Kind = Kind(10317);

/// Which of two versions stands: the newer, and in one second the one with the lower id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    pub created_at: Timestamp,
    pub id: EventId,
}

impl Rank {
    pub fn of(event: &Event) -> Self {
        Self {
            created_at: event.created_at,
            id: event.id,
        }
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |rank: &Self| (rank.created_at, std::cmp::Reverse(rank.id));
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
