//! What can be seen on this machine: settings, git, folders, disk, limits.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{Resource, geteuid, getrlimit};

use super::Finding;
use crate::app::usable_git;
use crate::config::file::has_secrets;
use crate::config::{Config, DatabaseBackend, Loaded};
use crate::disk::{self, Disk, Room};
use crate::identity::{PUBLIC_FILE, SECRET_FILE};
use crate::inspect::human;
use crate::owner::{Owner, nearest};

/// Of a folder that are looked at for their owner: a second's work.
const MAX_ENTRIES: usize = 20_000;
/// `<npub>/<identifier>.git/<objects>`: whoever made a repository made these.
const MAX_DEPTH: usize = 3;
/// Files of the store, pipes of git processes, and whatever else is open.
const SPARE_FILES: u64 = 512;

pub fn settings(loaded: &Loaded) -> Vec<Finding> {
    let mut findings: Vec<Finding> = loaded
        .warnings
        .iter()
        .map(|warning| Finding::warn("settings", warning, "correct it or take it out"))
        .collect();
    if findings.is_empty() {
        findings.push(Finding::ok(
            "settings",
            "no contradictions, no unknown names",
        ));
    }
    let config = &loaded.config;
    if config.database_backend == DatabaseBackend::Memory {
        findings.push(Finding::warn(
            "settings",
            "events are kept in memory and are gone when the server stops",
            "set NGIT_DATABASE_BACKEND=lmdb",
        ));
    }
    findings.extend(settings_file(loaded));
    findings.extend(domain(config));
    findings
}

/// A file with a secret is for its owner only.
fn settings_file(loaded: &Loaded) -> Option<Finding> {
    let path = loaded.file.as_ref().filter(|_| has_secrets(loaded))?;
    let shown = path.display();
    match path.metadata() {
        Ok(meta) if meta.permissions().mode() & 0o077 != 0 => Some(Finding::fail(
            "settings",
            format!("others can read {shown}, and it holds a secret"),
            format!("chmod 600 {shown}"),
        )),
        _ => None,
    }
}

fn domain(config: &Config) -> Vec<Finding> {
    let Some(domain) = config.domain.as_ref().filter(|of| !of.is_loopback()) else {
        return vec![Finding::warn(
            "domain",
            format!("{}: only this machine can reach it", config.domain()),
            "set NGIT_DOMAIN to the public name; repositories are hosted if they name it",
        )];
    };
    let mut findings = vec![Finding::ok("domain", domain.to_string())];
    let listens = config.bind_address;
    if listens.ip().is_loopback() && config.trusted_proxies.is_empty() {
        findings.push(Finding::warn(
            "proxy",
            "every client seems to be the proxy on this machine, so no limit per address holds",
            format!("set NGIT_TRUSTED_PROXIES={}", listens.ip()),
        ));
    }
    findings
}

pub fn git() -> Finding {
    match usable_git() {
        Ok(version) => Finding::ok("git", format!("version {version}")),
        Err(trouble) => Finding::fail("git", trouble.to_string(), "the server does not start so"),
    }
}

pub fn folders(config: &Config) -> Vec<Finding> {
    let mut findings = vec![folder("git data", &config.git_data_path)];
    if config.database_backend == DatabaseBackend::Lmdb {
        findings.push(folder("relay data", &config.relay_data_path));
    }
    findings.extend(key(config));
    findings
}

/// The folder, or where it will be made.
fn folder(about: &'static str, path: &Path) -> Finding {
    let shown = path.display();
    let there = nearest(path);
    if !there.is_dir() {
        let what = format!("{} is not a directory", there.display());
        return Finding::fail(about, what, "choose another path, or move that file away");
    }
    if access(there, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let what = format!("{} cannot be written by this user", there.display());
        return Finding::fail(
            about,
            what,
            "give it to the user of the server, and run doctor as that user",
        );
    }
    if there != path {
        return Finding::ok(about, format!("{shown} will be made at the first start"));
    }
    let Ok(owner) = Owner::of(path) else {
        return Finding::ok(about, shown.to_string());
    };
    if let Some((stray, of)) = stray(path, owner) {
        return divided(about, path, owner, &stray, of);
    }
    let me = geteuid().as_raw();
    // A packaged server has a user of its own, and root looks after it.
    if owner.uid != me && me != 0 {
        return Finding::warn(
            about,
            format!(
                "{shown} belongs to user {}, and this is user {me}",
                owner.uid
            ),
            "run doctor, and the server, as the user to whom the data belongs",
        );
    }
    Finding::ok(about, shown.to_string())
}

/// Something in the folder that belongs to another user than the folder itself.
fn stray(folder: &Path, owner: Owner) -> Option<(PathBuf, Owner)> {
    let mut left = MAX_ENTRIES;
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries.take(left) {
            left = left.saturating_sub(1);
            let path = entry.path();
            let Ok(meta) = path.symlink_metadata() else {
                continue;
            };
            if meta.uid() != owner.uid {
                let (uid, gid) = (meta.uid(), meta.gid());
                return Some((path, Owner { uid, gid }));
            }
            if meta.is_dir() && depth + 1 < MAX_DEPTH {
                folders.push((path, depth + 1));
            }
        }
    }
    None
}

fn divided(about: &'static str, path: &Path, owner: Owner, stray: &Path, of: Owner) -> Finding {
    // The server's user is hardly root where there is another.
    let Owner { uid, gid } = if owner.uid == 0 { of } else { owner };
    Finding::fail(
        about,
        format!(
            "{} belongs to user {}, and {} to user {}: the server cannot use both",
            path.display(),
            owner.uid,
            stray.display(),
            of.uid
        ),
        format!(
            "with the server stopped: chown -R {uid}:{gid} {}",
            path.display()
        ),
    )
}

fn key(config: &Config) -> Option<Finding> {
    let path = config.relay_data_path.join(SECRET_FILE);
    let shown = path.display();
    match path.metadata() {
        Ok(meta) if meta.permissions().mode() & 0o077 != 0 => Some(Finding::fail(
            "owner key",
            format!("others can read {shown}"),
            format!("chmod 600 {shown}"),
        )),
        Ok(_) => Some(Finding::ok("owner key", shown.to_string())),
        Err(_) if config.relay_owner_nsec.is_some() => Some(Finding::ok("owner key", "is set")),
        Err(_) if config.relay_data_path.join(PUBLIC_FILE).exists() => Some(Finding::fail(
            "owner key",
            format!("{shown} is missing, and this server had one"),
            "put it back from a backup, or set NGIT_RELAY_OWNER_NSEC",
        )),
        Err(_) => None,
    }
}

pub fn disk(config: &Config) -> Vec<Finding> {
    let least = config.min_free_bytes.as_u64();
    let paths = [&*config.git_data_path, &*config.relay_data_path];
    let disks = disk::of(&paths, least).into_iter();
    disks.map(|disk| room(&disk)).collect()
}

fn room(disk: &Disk) -> Finding {
    let found = format!("{} free at {}", human(disk.free), disk.path.display());
    match disk.room() {
        Room::None => {
            let advice = "below NGIT_MIN_FREE_BYTES: pushes are refused; free some or lower it";
            Finding::fail("disk", found, advice)
        }
        Room::Little => Finding::warn("disk", found, "little is left for repositories to grow"),
        Room::Enough => Finding::ok("disk", found),
    }
}

pub fn open_files(config: &Config) -> Finding {
    let needed = config.max_connections as u64 + SPARE_FILES;
    let needed = needed.saturating_add(config.sync_max_relays as u64);
    let needed = needed.saturating_add(4 * config.git_concurrent as u64);
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => Finding::warn(
            "open files",
            format!("{limit} at once in this shell, and the limits of the server need {needed}"),
            format!(
                "ulimit -n {needed}, or LimitNOFILE= in its unit; or lower NGIT_MAX_CONNECTIONS"
            ),
        ),
        Some(limit) => Finding::ok("open files", format!("{limit} at once in this shell")),
        None => Finding::ok("open files", "no limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_folder_is_there_or_can_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let verdict = |path: &Path| folder("git data", path).verdict;
        assert_eq!(verdict(dir.path()), Verdict::Ok);
        assert_eq!(verdict(&dir.path().join("a/b")), Verdict::Ok);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(verdict(&file), Verdict::Fail);
        assert_eq!(verdict(&file.join("below")), Verdict::Fail);
    }

    #[test]
    fn a_disk_is_judged_by_what_the_server_leaves_free() {
        let verdict = |free| {
            let (path, least) = ("/data".into(), 100);
            room(&Disk { path, free, least }).verdict
        };
        assert_eq!(verdict(99), Verdict::Fail);
        assert_eq!(verdict(100), Verdict::Warn);
        assert_eq!(verdict(400), Verdict::Ok);
    }
}
