//! Whose data it is. A packaged server has a user of its own, and its operator works as root: what
//! a command of root writes must belong to that user, or the server could not use it.

use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    #[error(
        "{} belongs to user {}, and {} to user {}: give both to the user of the server, with \
         chown -R", .0.display(), .1.uid, .2.display(), .3.uid
    )]
    Divided(PathBuf, Owner, PathBuf, Owner),
    #[error(
        "{} belongs to user {uid}, and root cannot become that user here ({source}); run it as \
         setpriv --reuid={uid} --regid={gid} --clear-groups ngit-grasp …",
        .path.display(), uid = .owner.uid, gid = .owner.gid
    )]
    Stuck {
        path: PathBuf,
        owner: Owner,
        source: io::Error,
    },
}

impl Owner {
    pub fn of(path: &Path) -> io::Result<Self> {
        let meta = path.metadata()?;
        let (uid, gid) = (meta.uid(), meta.gid());
        Ok(Self { uid, gid })
    }
}

/// The place itself, or the folder in which it will be made.
pub fn nearest(path: &Path) -> &Path {
    let there = path.ancestors().find(|dir| dir.exists());
    let there = there.filter(|dir| !dir.as_os_str().is_empty());
    there.unwrap_or(Path::new("."))
}

/// The user to whom these places belong, if we are root and it is somebody else.
pub fn other(places: &[&Path]) -> Result<Option<(PathBuf, Owner)>, OwnerError> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let mut found: Option<(PathBuf, Owner)> = None;
    for place in places {
        let place = nearest(place).to_owned();
        // What cannot be looked at is told by whoever opens it.
        let Ok(owner) = Owner::of(&place) else {
            continue;
        };
        match &found {
            Some((first, of)) if of.uid != owner.uid => {
                return Err(OwnerError::Divided(first.clone(), *of, place, owner));
            }
            Some(_) => {}
            None => found = Some((place, owner)),
        }
    }
    Ok(found.filter(|(_, owner)| owner.uid != 0))
}

/// Root becomes the user to whom these places belong. Threads are users each by itself: it must
/// be called while there is one.
pub fn act_for(places: &[&Path]) -> Result<(), OwnerError> {
    let Some((path, owner)) = other(places)? else {
        return Ok(());
    };
    become_user(owner).map_err(|source| OwnerError::Stuck {
        path,
        owner,
        source,
    })
}

/// A file that a look of root has made belongs to whoever has the folder.
pub fn hand_over(folder: &Path, name: &str) {
    if !geteuid().is_root() {
        return;
    }
    if let Ok(owner) = Owner::of(folder) {
        // It is not there, or nobody can change it: the doctor tells.
        let _ = chown(folder.join(name), Some(owner.uid), Some(owner.gid));
    }
}

/// The right to read everything is kept, for git processes too: a backup may be for root only, and
/// systemd puts the data of such users into a folder that only root may enter.
#[cfg(target_os = "linux")]
fn become_user(owner: Owner) -> io::Result<()> {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{
        CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
        configure_capability_in_ambient_set, set_capabilities, set_capabilities_secure_bits,
        set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    };

    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_keep_capabilities(true)?;
    // Else `access`, by which git looks for a repository, would not count what is kept.
    let _ = set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP);
    set_thread_res_uid(uid, uid, uid)?;
    let kept = capabilities(None)?.permitted & CapabilitySet::DAC_READ_SEARCH;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: kept,
    };
    set_capabilities(None, sets)?;
    if !kept.is_empty() {
        configure_capability_in_ambient_set(kept, true)?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn become_user(_: Owner) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
