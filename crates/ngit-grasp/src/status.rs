//! How the server stands: `GET /api/status` tells it as JSON, and `ngit-grasp status` asks there
//! and prints it for people.

mod command;
mod coverage;
mod hunt;
mod machine;
mod pace;
mod repository;
mod snapshot;
pub mod verdict;

use std::collections::BTreeMap;
use std::time::Duration;

use grasp_core::registry::Standing;
use grasp_core::sync::Status;
use grasp_core::{Core, Now, Timestamp};
use serde::Serialize;

pub use self::command::{StatusError, reachable, status};
use self::command::{count, table, word};
pub use self::coverage::Coverage;
pub use self::hunt::{HeldEvent, HuntReport};
pub use self::machine::{GitTraffic, Machine, Watch};
pub use self::pace::{Counts, Lately, Pace};
pub use self::repository::{RepoRelay, RepoSync};
#[cfg(test)]
pub use self::snapshot::fresh;
pub use self::snapshot::{Audience, Form, Lookout, Snapshot};
use crate::perform::held_kind;

/// The longest that the driver or a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub version: &'static str,
    pub uptime_secs: u64,
    pub now: Timestamp,
    /// Events that wait for their git data, by kind.
    pub held: BTreeMap<&'static str, usize>,
    pub repositories: Hosted,
    pub coverage: Coverage,
    pub lately: Lately,
    pub sync: Status,
    pub hunt: HuntReport,
}

/// Repositories here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Hosted {
    pub served: usize,
    /// Announced, and without their git data yet.
    pub waiting: usize,
}

impl Report {
    /// `lately` says what the core's sums came to in the last minute.
    pub fn of(core: &Core, lately: impl FnOnce(&Status) -> Lately, now: Now) -> Self {
        let mut repositories = Hosted::default();
        for (_, standing) in core.registry().hosted() {
            match standing {
                Standing::Served => repositories.served += 1,
                Standing::Held => repositories.waiting += 1,
                Standing::Remembered => {}
            }
        }
        let sync = core.sync().status(now);
        let mut held = BTreeMap::new();
        for waiting in hunt::waiting(core) {
            *held.entry(held_kind(waiting.event.kind)).or_default() += 1;
        }
        Self {
            version: env!("CARGO_PKG_VERSION"),
            uptime_secs: now.mono.0.as_secs(),
            now: now.unix,
            held,
            repositories,
            coverage: Coverage::of(&sync.relays),
            lately: lately(&sync),
            sync,
            hunt: HuntReport::of(core, now),
        }
    }
}
