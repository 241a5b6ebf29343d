//! How much room the disks have, judged by what the server leaves free on them.

use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use serde::Serialize;

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
        let Ok(found) = statvfs(there) else {
            continue;
        };
        if seen.contains(&found.f_fsid) {
            continue;
        }
        seen.push(found.f_fsid);
        disks.push(Disk {
            path: there.to_owned(),
            free: found.f_bavail.saturating_mul(found.f_frsize),
            least,
        });
    }
    disks
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
}
