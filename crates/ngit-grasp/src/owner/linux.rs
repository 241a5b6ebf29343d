//! How a thread of root becomes another user on Linux.

use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, set_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::Owner;

/// All of it: user, group, further groups, and every capability.
pub fn become_user(owner: Owner) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    Ok(())
}

/// systemd keeps the data of such users in a folder that only root may enter, and shows a service
/// its own part of it. The same is done here, for this thread and those that it starts: an empty
/// folder in the place of that one, and in it only the way to the data.
pub fn open_the_way(places: &[&Path], owner: Owner) -> io::Result<()> {
    let ways = places.iter().filter_map(|place| Way::to(place, owner));
    let mut ways: Vec<Way> = ways.collect();
    ways.sort_by(|a, b| a.shut.cmp(&b.shut).then(a.open.cmp(&b.open)));
    ways.dedup();
    if ways.is_empty() {
        return Ok(());
    }
    let here = std::env::current_dir();
    unshare_mounts()?;
    // By descriptors: the names lead elsewhere as soon as the first is hidden.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = ways.iter().map(|way| open(&way.open, flags, Mode::empty()));
    let opened: Vec<OwnedFd> = opened.collect::<Result<_, _>>()?;
    let mut hidden: Option<&Path> = None;
    for (way, folder) in ways.iter().zip(&opened) {
        if hidden != Some(way.shut.as_path()) {
            let options = c"mode=0755";
            mount("none", &way.shut, "tmpfs", MountFlags::NOSUID, options)?;
            hidden = Some(&way.shut);
        }
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755).create(&way.open)?;
        mount_bind(format!("/proc/self/fd/{}", folder.as_raw_fd()), &way.open)?;
    }
    // Where we stood may be hidden; git wants to know where it is.
    let back = here.and_then(std::env::set_current_dir);
    back.or_else(|_| std::env::set_current_dir("/"))
}

fn unshare_mounts() -> io::Result<()> {
    // Only a shared table of open files makes this call unsafe, and that stays shared.
    #[allow(deprecated)]
    rustix::thread::unshare(UnshareFlags::NEWNS)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount_change("/", private)?)
}

/// What keeps a user from a place that is its own.
#[derive(Debug, PartialEq, Eq)]
struct Way {
    /// The first folder on the way that the user may not enter.
    shut: PathBuf,
    /// The first one behind all such folders.
    open: PathBuf,
}

impl Way {
    fn to(place: &Path, owner: Owner) -> Option<Self> {
        let (place, _) = super::first_other(place)?;
        let above: Vec<&Path> = place.ancestors().skip(1).collect();
        let is_shut = |dir: &&&Path| {
            let meta = dir.metadata();
            meta.is_ok_and(|meta| !may_enter(&meta, owner))
        };
        let shut = above.iter().rev().find(is_shut)?.to_path_buf();
        let deepest = above.iter().find(is_shut)?;
        let open = place.ancestors().take_while(|dir| dir != deepest).last()?;
        let open = open.to_owned();
        Some(Self { shut, open })
    }
}

fn may_enter(folder: &Metadata, owner: Owner) -> bool {
    let bit = match (folder.uid(), folder.gid()) {
        (uid, _) if uid == owner.uid => 0o100,
        (_, gid) if gid == owner.gid => 0o010,
        _ => 0o001,
    };
    folder.mode() & bit != 0
}
