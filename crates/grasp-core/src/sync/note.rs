//! What operators are told.

use serde::Serialize;

use super::io::{Complaint, End, Fault};
use crate::clock::Timestamp;
use crate::id::EventId;
use crate::nip34::RepoId;
use crate::relay_url::RelayUrl;

/// How an event was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Somebody handed it to us.
    Direct,
    Live,
    /// By asking for what was missed, or for the past.
    CatchUp,
    Daily,
}

impl Source {
    /// All that `label` says.
    pub const LABELS: [&'static str; 4] = ["direct", "live", "catchup", "daily"];

    /// A short, stable word for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Source::Direct => "direct",
            Source::Live => "live",
            Source::CatchUp => "catchup",
            Source::Daily => "daily",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    Connected {
        relay: RelayUrl,
    },
    /// It failed so many times in a row, and is tried again after so many seconds.
    ConnectFailed {
        relay: RelayUrl,
        end: End,
        attempt: u32,
        retry_secs: u64,
    },
    Lost {
        relay: RelayUrl,
        end: End,
    },
    /// Nothing but failures for so many seconds.
    Dead {
        relay: RelayUrl,
        failing_secs: u64,
    },
    /// No repository names it any more.
    Left {
        relay: RelayUrl,
    },
    /// Its line went to a relay that more owners name, or to one of an owner with fewer lines.
    GaveWay {
        relay: RelayUrl,
    },
    /// It was away for so long that everything is compared again.
    Stale {
        relay: RelayUrl,
    },
    /// Everything is compared again, as every day.
    Daily {
        relay: RelayUrl,
    },
    /// So many filters are packed anew.
    Consolidating {
        relay: RelayUrl,
        filters: usize,
    },
    /// A new event came from there. A gap, if it should have come live.
    Found {
        relay: RelayUrl,
        id: EventId,
        source: Source,
        gap: bool,
    },
    /// It lacks so many events of ours.
    Lacks {
        relay: RelayUrl,
        repo: Option<RepoId>,
        count: u32,
    },
    /// It does not compare sets (NIP-77): its history is read page by page.
    NoNegentropy {
        relay: RelayUrl,
    },
    /// It refused something, which is asked again after so many seconds.
    Refused {
        relay: RelayUrl,
        why: Complaint,
        retry_secs: u64,
    },
    Misbehaved {
        relay: RelayUrl,
        fault: Fault,
    },
    /// It misbehaved so often that we hung up.
    Shunned {
        relay: RelayUrl,
    },
    /// A second with more events than it gives at once, however it is asked.
    SecondTooFull {
        relay: RelayUrl,
        at: Timestamp,
    },
    /// More relays are named than are taken in.
    TooManyRelays,
    /// More issues, patches and pull requests than are watched.
    TooManyRoots,
}
