//! What is asked of whoever fetches, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use crate::clone_url::CloneUrl;
use crate::git::ObjectId;
use crate::nip34::RepoId;
use crate::push::Backing;

/// Objects that a repository lacks, and one server that may have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchAsk {
    pub repo: RepoId,
    pub url: CloneUrl,
    /// Those that are here already are not asked for.
    pub wants: Arc<[ObjectId]>,
    /// Who wants it: a maintainer's state, or anybody's pull request.
    pub backing: Backing,
}

/// While a pack comes, a word is said of it when it begins and each time that so many bytes more
/// have come.
pub const PART: u64 = 1_024 * 1_024;

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Whole and durable in the repository now, with everything that they reach.
    pub got: Vec<ObjectId>,
    /// These were there before anybody was asked.
    pub here: Vec<ObjectId>,
    /// The server says that it does not have these.
    pub lacking: Vec<ObjectId>,
    /// Received in all.
    pub bytes: u64,
    /// Asked of the server over the web, also where it led us on; none if the fetch ended before.
    pub requests: u32,
    pub end: FetchEnd,
    /// What is wrong with what was sent, in words for the operator.
    pub problem: Option<Arc<str>>,
}

impl Fetched {
    /// What the repository has now, wherever it came from.
    pub fn present(&self) -> impl Iterator<Item = &ObjectId> {
        self.got.iter().chain(&self.here)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchEnd {
    /// The server answered everything that it was asked.
    Answered,
    /// It has no such repository, or shows it to nobody.
    Absent,
    /// It asks for patience, sometimes for how long.
    Busy(Option<Duration>),
    /// No connection, or none that speaks git.
    Unreachable,
    /// Its address is not one that we dial.
    Forbidden,
    /// An error of its own.
    Failed,
    /// Not one byte for too long, or all of it too slow.
    TooSlow,
    /// More than one fetch may bring. What came is kept for the next one, or it is not.
    Cut { kept: bool },
    /// What it sent is not what it should be.
    Spoiled,
    /// The repository or its owner would have more than it may.
    Full,
    /// There is too little room on our disk.
    DiskLow,
    /// We failed, not the server.
    Ours,
    /// We stopped it.
    Stopped,
}

impl FetchEnd {
    /// All that `label` says.
    pub const LABELS: [&'static str; 13] = [
        "answered",
        "absent",
        "busy",
        "unreachable",
        "forbidden",
        "failed",
        "too_slow",
        "cut",
        "spoiled",
        "full",
        "disk_low",
        "ours",
        "stopped",
    ];

    /// A short, stable word for metrics.
    pub fn label(self) -> &'static str {
        match self {
            FetchEnd::Answered => "answered",
            FetchEnd::Absent => "absent",
            FetchEnd::Busy(_) => "busy",
            FetchEnd::Unreachable => "unreachable",
            FetchEnd::Forbidden => "forbidden",
            FetchEnd::Failed => "failed",
            FetchEnd::TooSlow => "too_slow",
            FetchEnd::Cut { .. } => "cut",
            FetchEnd::Spoiled => "spoiled",
            FetchEnd::Full => "full",
            FetchEnd::DiskLow => "disk_low",
            FetchEnd::Ours => "ours",
            FetchEnd::Stopped => "stopped",
        }
    }
}
