//! Whose data it is. A packaged server has a user of its own, and its operator works as root: what
//! a command of root writes must belong to that user, or the server could not use it; and what that
//! user put there is opened with its rights, so that no link of it leads to what is root's.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::geteuid;

#[cfg(target_os = "linux")]
mod linux;

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
        Ok(Self::in_metadata(&path.metadata()?))
    }

    fn in_metadata(meta: &std::fs::Metadata) -> Self {
        let (uid, gid) = (meta.uid(), meta.gid());
        Self { uid, gid }
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
        // Somebody to whom a folder on the way belongs decides what is found behind it.
        let there = nearest(place);
        let there = Owner::of(there).map(|owner| (there.to_owned(), owner));
        for (place, owner) in first_other(place).into_iter().chain(there.ok()) {
            match &found {
                Some((first, of)) if of.uid != owner.uid => {
                    return Err(OwnerError::Divided(first.clone(), *of, place, owner));
                }
                Some(_) => {}
                None => found = Some((place, owner)),
            }
        }
    }
    Ok(found.filter(|(_, owner)| owner.uid != 0))
}

/// Links that are followed on one way, as the kernel does.
const MAX_LINKS: usize = 40;

/// The first thing on the way there that is not root's: a folder, or a link. Nobody but root can
/// change what is before it.
fn first_other(place: &Path) -> Option<(PathBuf, Owner)> {
    let mut left: Vec<PathBuf> = parts(&std::path::absolute(place).ok()?);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = left.pop() {
        if part.as_os_str() == ".." {
            at.pop();
            continue;
        }
        at.push(part);
        let meta = at.symlink_metadata().ok()?;
        if meta.uid() != 0 {
            return Some((at, Owner::in_metadata(&meta)));
        }
        if meta.is_symlink() {
            links += 1;
            let target = at.read_link().ok().filter(|_| links <= MAX_LINKS)?;
            at.pop();
            left.extend(parts(&target));
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
        }
    }
    None
}

/// The last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().rev();
    let parts = parts.filter(|part| !matches!(part, std::path::Component::RootDir));
    parts.map(|part| PathBuf::from(part.as_os_str())).collect()
}

/// Root becomes the user to whom these places belong, with no right of root's left. Threads are
/// users each by itself: it must be called while there is one.
pub fn act_for(places: &[&Path]) -> Result<(), OwnerError> {
    match other(places)? {
        Some((path, owner)) => switch(places, path, owner),
        None => Ok(()),
    }
}

/// Does something as the user to whom these places belong, while whoever asks stays root: opens
/// what is read for a file of root's.
pub fn as_owner<T: Send>(
    places: &[&Path],
    work: impl FnOnce() -> T + Send,
) -> Result<T, OwnerError> {
    let Some((path, owner)) = other(places)? else {
        return Ok(work());
    };
    let done = std::thread::scope(|scope| {
        let acting = scope.spawn(|| switch(places, path, owner).map(|()| work()));
        acting.join()
    });
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The user whose rights counted last.
static ACTING: AtomicU32 = AtomicU32::new(u32::MAX);

/// As whom files were opened, for an error that tells of it.
pub fn acting() -> u32 {
    match ACTING.load(Ordering::Relaxed) {
        u32::MAX => geteuid().as_raw(),
        uid => uid,
    }
}

fn switch(places: &[&Path], path: PathBuf, owner: Owner) -> Result<(), OwnerError> {
    become_user(places, owner).map_err(|source| OwnerError::Stuck {
        path,
        owner,
        source,
    })?;
    ACTING.store(owner.uid, Ordering::Relaxed);
    Ok(())
}

#[cfg(target_os = "linux")]
fn become_user(places: &[&Path], owner: Owner) -> io::Result<()> {
    linux::open_the_way(places, owner)?;
    linux::become_user(owner)
}

#[cfg(not(target_os = "linux"))]
fn become_user(_: &[&Path], _: Owner) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
