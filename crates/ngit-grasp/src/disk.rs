//! How much room the disks have, judged by what the server leaves free on them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use serde::Serialize;
use tokio::runtime::Handle;

/// How old a figure may be while somebody writes. In that time a fast disk takes some 100 MB.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often the floor is compared with what is free, for those who do not ask. Events come slower
/// than packs: verified, not more than some 50 MB in that time.
const WATCH_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// Something of ours on it.
    pub path: PathBuf,
    pub free: u64,
    /// Below it nothing more is taken.
    pub least: u64,
}

/// From best to worst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Room {
    #[default]
    Enough,
    /// Less than four times what must stay free.
    Little,
    /// Pushes and fetches are refused.
    None,
}

impl Disk {
    pub fn room(&self) -> Room {
        if self.free < self.least {
            Room::None
        } else if self.free < self.least.saturating_mul(4) {
            Room::Little
        } else {
            Room::Enough
        }
    }
}

/// Each disk once. What does not exist yet is looked for where it would be made; what the system
/// cannot tell of is left out.
pub fn of(paths: &[&Path], least: u64) -> Vec<Disk> {
    let mut seen = Vec::new();
    let mut disks = Vec::new();
    for path in paths {
        let there = path.ancestors().find(|dir| dir.is_dir());
        let there = there.filter(|dir| !dir.as_os_str().is_empty());
        let there = there.unwrap_or(Path::new("."));
        // Not by `f_fsid`, which some file systems leave at zero.
        let (Ok(found), Some(free)) = (there.metadata(), free_at(there)) else {
            continue;
        };
        if seen.contains(&found.dev()) {
            continue;
        }
        seen.push(found.dev());
        disks.push(Disk {
            path: there.to_owned(),
            free,
            least,
        });
    }
    disks
}

fn free_at(path: &Path) -> Option<u64> {
    let found = statvfs(path).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// What a disk keeps free, for those who write on it and must not wait to hear it.
#[derive(Debug)]
pub struct Floor {
    root: PathBuf,
    least: u64,
    /// As it was at the last look.
    free: AtomicU64,
    looking: AtomicBool,
    since: Instant,
    /// Milliseconds.
    next_look: AtomicU64,
}

impl Floor {
    pub fn new(root: PathBuf, least: u64) -> Arc<Self> {
        Arc::new(Self {
            root,
            least,
            free: AtomicU64::new(u64::MAX),
            looking: AtomicBool::new(false),
            since: Instant::now(),
            next_look: AtomicU64::new(0),
        })
    }

    /// With so many bytes more on it, as of the last look; a figure that is old is looked up anew
    /// for the next who asks. False also if the system cannot say.
    pub fn is_low(self: &Arc<Self>, more: u64) -> bool {
        let due = self.age() >= self.next_look.load(Ordering::Relaxed);
        // A disk that does not answer is asked once.
        if due && !self.looking.swap(true, Ordering::Relaxed) {
            self.look_elsewhere();
        }
        self.free.load(Ordering::Relaxed) < self.least.saturating_add(more)
    }

    /// Less than four times what must stay free, as of the last look.
    pub fn is_filling_up(&self) -> bool {
        self.free.load(Ordering::Relaxed) < self.least.saturating_mul(4)
    }

    /// Waits for the disk.
    pub fn look(&self) {
        let free = free_at(&self.root).unwrap_or(u64::MAX);
        self.free.store(free, Ordering::Relaxed);
        let next = self.age().saturating_add(millis(LOOK_EVERY));
        self.next_look.store(next, Ordering::Relaxed);
        self.looking.store(false, Ordering::Relaxed);
    }

    /// Says when the floor is crossed, from now on, for as long as it is polled.
    pub async fn watch(self: Arc<Self>, tell: impl Fn(bool)) {
        let mut was_low = false;
        loop {
            let floor = Arc::clone(&self);
            let _ = tokio::task::spawn_blocking(move || floor.look()).await;
            let low = self.free.load(Ordering::Relaxed) < self.least;
            if low != was_low {
                tell(low);
                was_low = low;
            }
            tokio::time::sleep(WATCH_EVERY).await;
        }
    }

    fn look_elsewhere(self: &Arc<Self>) {
        let floor = Arc::clone(self);
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || floor.look())),
            Err(_) => floor.look(),
        }
    }

    fn age(&self) -> u64 {
        millis(self.since.elapsed())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_judged_by_what_must_stay_free() {
        let room = |free| {
            let path = PathBuf::new();
            let least = 100;
            Disk { path, free, least }.room()
        };
        assert_eq!(room(99), Room::None);
        assert_eq!(room(100), Room::Little);
        assert_eq!(room(399), Room::Little);
        assert_eq!(room(400), Room::Enough);
    }

    #[test]
    fn two_places_on_one_disk_are_one() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("a/b"), dir.path().join("c")];
        let disks = of(&[&paths[0], &paths[1]], 1);
        assert_eq!(disks.len(), 1);
        assert_eq!(disks[0].path, dir.path());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn two_disks_are_two() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(of(&[dir.path(), Path::new("/proc")], 1).len(), 2);
    }

    #[test]
    fn a_floor_is_above_what_is_free_or_below_it() {
        for (least, more, is_low) in [
            (0, 0, false),
            (1, 0, false),
            (u64::MAX, 0, true),
            (0, u64::MAX, true),
        ] {
            let floor = Floor::new(std::env::temp_dir(), least);
            floor.look();
            assert_eq!(floor.is_low(more), is_low, "{least} {more}");
        }
        let nowhere = Floor::new(PathBuf::from("/nonexistent"), u64::MAX);
        nowhere.look();
        assert!(!nowhere.is_low(0));
    }

    #[tokio::test]
    async fn whoever_asks_does_not_look() {
        let floor = Floor::new(std::env::temp_dir(), u64::MAX);
        assert!(!floor.is_low(0), "nobody has looked");
        let looked = async {
            while !floor.is_low(0) {
                tokio::task::yield_now().await;
            }
        };
        let patience = Duration::from_secs(20);
        tokio::time::timeout(patience, looked).await.unwrap();
    }
}
