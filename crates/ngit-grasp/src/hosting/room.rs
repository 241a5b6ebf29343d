//! How much a push or a fetch may bring: what its repository may still grow by, which all that are
//! under way to it share, and what the disk keeps free. The last part of a repository is for those
//! behind whom a maintainer stands, so that strangers never close it.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use grasp_core::byte_quota::ByteQuota;
use grasp_core::push::Backing;
use grasp_core::{Network, RepoId};
use rustc_hash::FxHashMap;
use tokio::io::{AsyncRead, ReadBuf};

use crate::clock::Clock;
use crate::config::Config;
use crate::disk::Floor;

/// Of one push that nobody has signed for: enough for the changes of most pull requests.
const MOST_UNSIGNED: u64 = 256 * 1024 * 1024;

pub struct Rooms {
    repository_bytes: u64,
    disk: Arc<Floor>,
    brought: Arc<Brought>,
    /// What each repository with a push under way may still grow by.
    left: Mutex<FxHashMap<RepoId, Weak<AtomicU64>>>,
}

/// What has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    #[error("this repository may not become larger here")]
    Repository,
    #[error("this repository may not become larger here by pull requests; make it smaller")]
    PullRequests,
    #[error("not without its event: publish the pull request first, or make it smaller")]
    Unsigned,
    #[error("the server's disk is almost full, try again later")]
    Disk,
    #[error("the server's disk is filling up, and much of it came from your address today")]
    Network,
}

/// What one network may bring in a day while the disk is filling up.
const FAIR_BYTES: u64 = 256 * 1024 * 1024;
/// Bytes of a push are counted in steps of so many.
const COUNTED: u64 = 1024 * 1024;
/// Networks whose bytes are remembered: 10,000 x 80 bytes = 800 kB.
const MAX_NETWORKS: usize = 10_000;

/// What networks have brought in a day.
struct Brought {
    clock: Clock,
    by_network: Mutex<ByteQuota<Network>>,
}

impl Brought {
    fn new() -> Self {
        Self {
            clock: Clock::start(),
            by_network: Mutex::new(ByteQuota::new(FAIR_BYTES, MAX_NETWORKS)),
        }
    }

    fn is_fair(&self, network: Network) -> bool {
        self.by_network()
            .allows(&network.widest(), 0, self.clock.mono())
    }

    fn add(&self, network: Network, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.by_network()
            .spend(network.widest(), bytes, self.clock.mono());
    }

    fn by_network(&self) -> MutexGuard<'_, ByteQuota<Network>> {
        self.by_network
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a push may take of its repository's room.
#[derive(Debug, Clone, Copy)]
struct Share {
    /// Bytes that it leaves to others.
    reserved: u64,
    most: u64,
    /// What it hears when that is not enough.
    full: Full,
}

impl Share {
    /// Of a repository of so many bytes at most.
    fn new(repository_bytes: u64, backing: Backing) -> Self {
        let fifth = repository_bytes / 5;
        let (filled, most, full) = match backing {
            Backing::None => (fifth * 3, MOST_UNSIGNED, Full::Unsigned),
            Backing::PullRequests => (fifth * 4, u64::MAX, Full::PullRequests),
            Backing::State => (repository_bytes, u64::MAX, Full::Repository),
        };
        let reserved = repository_bytes - filled;
        Self {
            reserved,
            most,
            full,
        }
    }
}

/// One push's part. Unless it is kept, its bytes are given back when it is dropped.
pub struct Room {
    left: Arc<AtomicU64>,
    share: Share,
    disk: Arc<Floor>,
    brought: Arc<Brought>,
    /// Who brings it; nobody for a fetch of ours.
    network: Option<Network>,
    taken: AtomicU64,
    full: OnceLock<Full>,
}

impl Rooms {
    pub fn of(config: &Config) -> Self {
        let min_free = config.min_free_bytes.as_u64();
        let root = config.git_data_path.clone();
        Self::new(config.max_repository_bytes.as_u64(), root, min_free)
    }

    /// The disk on which `root` lies keeps `min_free` bytes.
    pub fn new(repository_bytes: u64, root: PathBuf, min_free: u64) -> Self {
        Self {
            repository_bytes,
            disk: Floor::new(root, min_free),
            brought: Arc::new(Brought::new()),
            left: Mutex::default(),
        }
    }

    /// `size` is the repository's on disk, with what other pushes have brought so far. While the
    /// disk is filling up, a network has a day's share, so that none fills it for the others. Waits
    /// for the disk.
    pub fn enter(
        &self,
        repo: &RepoId,
        size: u64,
        backing: Backing,
        network: Option<Network>,
    ) -> Result<Room, Full> {
        self.disk.look();
        if self.disk.is_low(0) {
            return Err(Full::Disk);
        }
        if self.disk.is_filling_up() && !network.is_none_or(|network| self.brought.is_fair(network))
        {
            return Err(Full::Network);
        }
        let share = Share::new(self.repository_bytes, backing);
        let now = self.repository_bytes.saturating_sub(size);
        let mut repos = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        repos.retain(|_, left| left.strong_count() > 0);
        let shared = repos.get(repo).and_then(Weak::upgrade);
        let left = shared.unwrap_or_else(|| Arc::new(AtomicU64::new(now)));
        // What git adds to a pack shows on the disk alone.
        if left.fetch_min(now, Ordering::Relaxed).min(now) <= share.reserved {
            return Err(share.full);
        }
        repos.insert(repo.clone(), Arc::downgrade(&left));
        Ok(Room {
            left,
            share,
            disk: Arc::clone(&self.disk),
            brought: Arc::clone(&self.brought),
            network,
            taken: AtomicU64::new(0),
            full: OnceLock::new(),
        })
    }
}

impl Room {
    pub fn left(&self) -> u64 {
        let left = self.left.load(Ordering::Relaxed);
        left.saturating_sub(self.share.reserved)
            .min(self.share.most)
    }

    /// What to say to a push that needs more than is left.
    pub fn too_little(&self) -> Full {
        self.share.full
    }

    /// What ended a push that could not be read to its end.
    pub fn full(&self) -> Option<Full> {
        self.full.get().copied()
    }

    /// Its bytes stay in the repository.
    pub fn keep(self) {
        self.taken.store(0, Ordering::Relaxed);
    }

    /// Fails where a pack finds no room any more.
    pub fn count<R>(&self, inner: R) -> Counted<'_, R> {
        Counted { inner, room: self }
    }

    /// So many bytes that are counted already are about to be there twice for a while.
    pub fn copy(&self, bytes: u64) -> Result<(), Full> {
        match self.disk.is_low(bytes) {
            true => Err(Full::Disk),
            false => Ok(()),
        }
    }

    /// So many bytes more have come.
    pub fn take(&self, bytes: u64) -> Result<(), Full> {
        let enough = |left: &u64| *left >= self.share.reserved;
        let less = |left: u64| left.checked_sub(bytes).filter(enough);
        let order = Ordering::Relaxed;
        let fits = self.left.fetch_update(order, order, less).is_ok();
        if !fits {
            return Err(*self.full.get_or_init(|| self.share.full));
        }
        self.taken.fetch_add(bytes, order);
        if self.disk.is_low(0) {
            return Err(*self.full.get_or_init(|| Full::Disk));
        }
        if self.has_brought_too_much(bytes) {
            return Err(*self.full.get_or_init(|| Full::Network));
        }
        Ok(())
    }
}

impl Room {
    /// Counts it for its network, whatever becomes of it: it was written.
    fn has_brought_too_much(&self, bytes: u64) -> bool {
        let Some(network) = self.network else {
            return false;
        };
        let before = self.taken.load(Ordering::Relaxed).saturating_sub(bytes);
        let steps = (before + bytes) / COUNTED - before / COUNTED;
        if steps > 0 {
            self.brought.add(network, steps * COUNTED);
        }
        self.disk.is_filling_up() && !self.brought.is_fair(network)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let taken = *self.taken.get_mut();
        self.left.fetch_add(taken, Ordering::Relaxed);
    }
}

pub struct Counted<'a, R> {
    inner: R,
    room: &'a Room,
}

impl<R: AsyncRead + Unpin> AsyncRead for Counted<'_, R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let read = (buffer.filled().len() - before) as u64;
        Poll::Ready(self.room.take(read).map_err(io::Error::other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::{Identifier, Pubkey};

    fn rooms(repository_bytes: u64, min_free: u64) -> Rooms {
        Rooms::new(repository_bytes, std::env::temp_dir(), min_free)
    }

    fn repo(n: u8) -> RepoId {
        RepoId::new(Pubkey([n; 32]), Identifier::parse("r").unwrap())
    }

    #[test]
    fn pushes_to_one_repository_share_its_room() {
        let rooms = rooms(100, 0);
        let enter = |repo: &RepoId, size| rooms.enter(repo, size, Backing::State, None);
        let one = enter(&repo(1), 20).unwrap();
        let two = enter(&repo(1), 20).unwrap();
        let other = enter(&repo(2), 20).unwrap();
        assert_eq!(one.take(50), Ok(()));
        assert_eq!(two.take(50), Err(Full::Repository));
        assert_eq!(two.full(), Some(Full::Repository));
        assert_eq!(two.take(30), Ok(()));
        assert_eq!(other.left(), 80);
        // Refused, its bytes are somebody else's; kept, they are on the disk.
        drop(two);
        assert_eq!(one.left(), 30);
        one.keep();
        assert_eq!(enter(&repo(1), 70).unwrap().left(), 30);
        assert_eq!(enter(&repo(1), 100).err(), Some(Full::Repository));
    }

    #[test]
    fn strangers_leave_room_for_the_owner() {
        let rooms = rooms(100, 0);
        let enter = |size, backing| rooms.enter(&repo(1), size, backing, None);
        let left = |size, backing| enter(size, backing).map(|room| room.left());
        for (size, backing, expected) in [
            (0, Backing::None, Ok(60)),
            (59, Backing::None, Ok(1)),
            (60, Backing::None, Err(Full::Unsigned)),
            (60, Backing::PullRequests, Ok(20)),
            (80, Backing::PullRequests, Err(Full::PullRequests)),
            (80, Backing::State, Ok(20)),
            (100, Backing::None, Err(Full::Unsigned)),
            (100, Backing::State, Err(Full::Repository)),
        ] {
            assert_eq!(left(size, backing), expected, "{size} {backing:?}");
        }
    }

    #[test]
    fn strangers_at_once_leave_it_too() {
        let rooms = rooms(100, 0);
        let enter = |backing| rooms.enter(&repo(1), 0, backing, None).unwrap();
        let (one, two) = (enter(Backing::None), enter(Backing::None));
        let request = enter(Backing::PullRequests);
        let owner = enter(Backing::State);
        assert_eq!(one.take(55), Ok(()));
        assert_eq!(two.take(6), Err(Full::Unsigned));
        assert_eq!(request.take(26), Err(Full::PullRequests));
        assert_eq!(request.take(25), Ok(()));
        assert_eq!((one.left(), request.left(), owner.left()), (0, 0, 20));
        assert_eq!(two.take(1), Err(Full::Unsigned));
        assert_eq!(owner.take(20), Ok(()));
        assert_eq!(owner.take(1), Err(Full::Repository));
    }

    #[test]
    fn what_nobody_has_signed_for_is_not_large() {
        let rooms = rooms(u64::MAX, 0);
        let left = |backing| rooms.enter(&repo(1), 0, backing, None).unwrap().left();
        assert_eq!(left(Backing::None), MOST_UNSIGNED);
        assert_eq!(left(Backing::PullRequests), u64::MAX / 5 * 4);
    }

    #[test]
    fn a_disk_that_is_almost_full_takes_nothing() {
        let entered = rooms(100, u64::MAX).enter(&repo(1), 0, Backing::State, None);
        assert_eq!(entered.err(), Some(Full::Disk));
    }

    #[test]
    fn a_network_does_not_fill_the_disk_for_the_others() {
        let free = crate::disk::of(&[&std::env::temp_dir()], 0)[0].free;
        let network = |n: u8| Some(Network::of([203, 0, 113, n].into()));
        for (min_free, fills_up) in [(free / 2, true), (0, false)] {
            let rooms = rooms(u64::MAX, min_free);
            let enter = |n| rooms.enter(&repo(n), 0, Backing::State, network(n));
            let greedy = enter(1).unwrap();
            let taken = greedy.take(FAIR_BYTES + 1);
            let full = fills_up.then_some(Full::Network);
            assert_eq!((taken.err(), enter(1).err()), (full, full));
            assert_eq!(enter(2).unwrap().take(FAIR_BYTES / 2), Ok(()));
            let ours = rooms.enter(&repo(3), 0, Backing::State, None).unwrap();
            assert_eq!(ours.take(FAIR_BYTES * 2), Ok(()), "a fetch of ours");
        }
    }

    #[test]
    fn a_copy_needs_room_on_the_disk_alone() {
        let room = rooms(100, 0)
            .enter(&repo(1), 0, Backing::State, None)
            .unwrap();
        assert_eq!(room.copy(1_000), Ok(()));
        assert_eq!(room.copy(u64::MAX), Err(Full::Disk));
        assert_eq!(room.left(), 100);
    }
}
