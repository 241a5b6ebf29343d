//! What operators are told.

use std::sync::Arc;
use std::time::Duration;

use super::io::FetchEnd;
use crate::clone_url::{CloneUrl, Domain};
use crate::nip34::RepoId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HuntNote {
    /// A repository lacks data that is looked for after so long.
    Expected { repo: RepoId, delay: Duration },
    /// So many servers may be asked for so many objects.
    Began {
        repo: RepoId,
        attempt: u32,
        servers: usize,
        objects: usize,
    },
    /// One server was asked.
    Fetched {
        repo: RepoId,
        url: CloneUrl,
        end: FetchEnd,
        got: usize,
        lacking: usize,
        bytes: u64,
        took: Duration,
        problem: Option<Arc<str>>,
    },
    /// So many objects are still missing after so many attempts; the next one is so far away.
    Incomplete {
        repo: RepoId,
        attempts: u32,
        objects: usize,
        retry: Duration,
    },
    /// Nothing waits for data of this repository any more: so many
    /// objects were fetched, the others came another way, or nobody wants them.
    Over { repo: RepoId, came: usize },
    /// A domain has no room for us, or rests: repositories wait for it from now on.
    Throttled { domain: Domain },
    /// It is left alone for so long.
    Resting {
        domain: Domain,
        why: FetchEnd,
        failures: u32,
        rest: Duration,
    },
    /// It answers again.
    Healed { domain: Domain },
    /// There is too little room on our disk: nothing is fetched for so long.
    DiskLow { pause: Duration },
    /// More repositories lack data than are taken in.
    TooMany,
}
