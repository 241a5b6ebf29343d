//! Objects from other servers: a small client of git's smart HTTP protocol that asks for exact
//! ids. It knows no sockets, decides nothing about whom to ask, and moves no refs.
//!
//! What holds: objects enter the repository only when all that they reach is there; a pack is never
//! in memory; what the server lacks never spoils the rest; dropped at any point, nothing is left.

mod advert;
mod answer;
mod haves;
mod meter;
mod packets;
mod progress;
mod request;
mod run;
mod slices;
mod slicing;
#[cfg(test)]
mod tests;
mod transport;

use std::time::Duration;

use grasp_core::clone_url::CloneUrl;
use grasp_core::git::ObjectId;
use grasp_core::hunt::io::{FetchEnd, Fetched};
use grasp_core::push::Backing;

pub use self::advert::AdvertLimits;
pub use self::meter::Pace;
pub(crate) use self::slices::SLICES;
pub use self::slices::clear_slices;
pub use self::transport::{
    ADVERT_TYPE, NoReply, Question, REQUEST_TYPE, RESULT_TYPE, Reply, Transport, Version,
};
use crate::error::{GitError, PackFault};
use crate::quarantine::PackLimits;
use crate::repo::Repo;

#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// Of everything that one fetch receives.
    pub max_bytes: u64,
    /// Until the last byte.
    pub deadline: Duration,
    /// For the list of refs, and again until the first bytes of a pack, which a small machine may
    /// need its time for.
    pub patience: Duration,
    pub pace: Pace,
    pub advert: AdvertLimits,
    /// Of the pack; bytes and time are those above where they are less.
    pub pack: PackLimits,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            max_bytes: 256 * 1024 * 1024,
            deadline: Duration::from_secs(600),
            patience: Duration::from_secs(90),
            pace: Pace::default(),
            advert: AdvertLimits::default(),
            pack: PackLimits::default(),
        }
    }
}

/// Somebody who looks on while a pack comes, and may end it.
pub trait Watch: Sync {
    /// Its first bytes are here.
    fn flowing(&self);

    /// So many bytes more.
    fn took(&self, bytes: u64) -> Result<(), FetchEnd>;

    /// Everything has come that was asked for last: what follows is our own work.
    fn arrived(&self);

    /// A pack is not taken, and that is why.
    fn refused(&self, _fault: &PackFault) {}

    /// So many bytes that came before are about to be written once more, and then go.
    fn copies(&self, bytes: u64) -> Result<(), FetchEnd>;
}

/// Tells of a pack that is not taken.
fn tell_refused<T>(watch: &impl Watch, result: &Result<T, GitError>) {
    if let Err(GitError::Pack(fault)) = result {
        watch.refused(fault);
    }
}

/// How much of what the wanted objects reach is to come.
#[derive(Debug, Clone, Copy)]
pub enum Extent<'a> {
    /// What is not here. Parts of a large history wait for more from the same address, and those
    /// that anybody's pull request asks for apart from those of states.
    Missing(&'a CloneUrl, Backing),
    /// All of it, though much may be here: a disk has lost something of it. In one piece, or not.
    Everything,
}

/// Brings what the repository lacks of the wanted objects, as far as the server has them. At most
/// one request for those that refs name, and one for each of the others, up to a bound: what is
/// beyond it is in neither list of the answer, and may be asked for again. An answer of
/// `Answered` has at least one of the wanted objects in its lists.
pub async fn fetch<T: Transport>(
    repo: &Repo,
    extent: Extent<'_>,
    wants: &[ObjectId],
    transport: &mut T,
    watch: &impl Watch,
    limits: &FetchLimits,
) -> Fetched {
    run::Run::new(repo, extent, transport, watch, limits)
        .carry_out(wants)
        .await
}
