//! The git side of the server: bare repositories on disk, their refs and objects read and written
//! in this process, packs through the `git` binary behind typed arguments and a scrubbed
//! environment. Nothing here knows nostr, and nothing here decides.

mod adopt;
mod advert;
mod chains;
mod command;
mod commands;
mod deadline;
mod error;
pub mod fetch;
mod files;
mod garbage;
mod gate;
mod ls_refs;
mod maintain;
mod objects;
pub mod pktline;
mod prune;
mod quarantine;
mod refs;
mod repo;
mod report;
mod serve;
pub mod text;
mod wants;

pub use adopt::share;
pub use advert::{Protocol, Service, advertise};
pub use command::{Git, Version, processes};
pub use commands::{Capabilities, Command, CommandLimits, CommandReader, PushHead, Refusal};
pub use error::{GitError, PackFault};
pub use ls_refs::{LsRefs, LsRefsError};
pub use maintain::Problem;
pub use objects::{CommitSummary, Objects};
pub use prune::{PreparedPrune, PruneLimits, Pruned};
pub use quarantine::{CpuLimit, PackLimits, Quarantine, Received};
pub use refs::{MendedRefs, Ref, RefSet};
pub use repo::{Leftovers, Repo};
pub use report::Report;
pub use serve::{ServeLimits, Served, upload_pack};
pub use wants::WalkLimits;
