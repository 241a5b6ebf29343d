//! A work tree that makes objects with the real git, and repositories to put them in.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use grasp_core::git::{ObjectId, RefName, Refs};
use grasp_git::{PackLimits, PruneLimits, Quarantine, Repo};
use tempfile::TempDir;

pub const PATIENCE: Duration = Duration::from_secs(60);

/// Of a prune on a disk with room.
pub fn within(grace: Duration) -> PruneLimits {
    PruneLimits {
        grace,
        deadline: PATIENCE,
        min_free: 0,
    }
}

/// A folder with a work tree `work` and a bare repository `bare.git`.
pub struct Place {
    pub folder: TempDir,
    pub repo: Repo,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (repo, created) = Repo::create(&folder.path().join("bare.git")).unwrap();
        assert!(created);
        let place = Self { folder, repo };
        place.git(&["init", "-q", "-b", "master", "work"], &place.path());
        place
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Runs git in the work tree.
    pub fn run(&self, args: &[&str]) -> String {
        self.git(args, &self.work())
    }

    fn git(&self, args: &[&str], dir: &Path) -> String {
        text(&git(args, dir, &[]))
    }

    /// Commits a file of this name and content.
    pub fn commit(&self, name: &str, content: &str) -> ObjectId {
        std::fs::write(self.work().join(name), content).unwrap();
        self.run(&["add", "."]);
        self.run(&["commit", "-q", "-m", &format!("Add {name}")]);
        self.id("HEAD")
    }

    pub fn id(&self, revision: &str) -> ObjectId {
        id(&self.run(&["rev-parse", revision]))
    }

    /// A pack of what these revisions name (`^x` takes away), as a push would send it.
    pub fn pack(&self, revisions: &[ObjectId], without: &[ObjectId], flags: &[&str]) -> Vec<u8> {
        let mut input = String::new();
        for id in revisions {
            input.push_str(&format!("{id}\n"));
        }
        for id in without {
            input.push_str(&format!("^{id}\n"));
        }
        let mut args = vec!["pack-objects", "--revs", "--stdout", "-q"];
        args.extend_from_slice(flags);
        git(&args, &self.work(), input.as_bytes())
    }

    /// A pack of exactly these objects.
    pub fn pack_of(&self, ids: &[ObjectId]) -> Vec<u8> {
        let input: String = ids.iter().map(|id| format!("{id}\n")).collect();
        git(
            &["pack-objects", "--stdout", "-q"],
            &self.work(),
            input.as_bytes(),
        )
    }

    /// Brings a revision with all its history into the repository.
    pub async fn bring(&self, tip: ObjectId) {
        bring(&self.repo, &self.pack(&[tip], &[], &[]), tip).await;
    }

    /// Runs git in the bare repository.
    pub fn bare(&self, args: &[&str]) -> String {
        self.git(args, self.repo.dir())
    }
}

pub async fn bring(repo: &Repo, pack: &[u8], tip: ObjectId) {
    let mut quarantine = Quarantine::begin(repo).unwrap();
    quarantine
        .receive_pack(pack, &PackLimits::default())
        .await
        .unwrap();
    quarantine.check_connected(&[tip], PATIENCE).await.unwrap();
    quarantine.migrate().unwrap();
}

pub fn git(args: &[&str], dir: &Path, input: &[u8]) -> Vec<u8> {
    let output = git_output(args, dir, input);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {said}");
    output.stdout
}

pub fn git_output(args: &[&str], dir: &Path, input: &[u8]) -> std::process::Output {
    git_with(args, dir, input, &[])
}

/// The same with more environment.
pub fn git_with(
    args: &[&str],
    dir: &Path,
    input: &[u8],
    env: &[(&str, &str)],
) -> std::process::Output {
    let mut child = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .envs([
            ("GIT_AUTHOR_NAME", "A U Thor"),
            ("GIT_AUTHOR_EMAIL", "author@example.com"),
            ("GIT_AUTHOR_DATE", "1700000000 +0000"),
            ("GIT_COMMITTER_NAME", "C O Mitter"),
            ("GIT_COMMITTER_EMAIL", "committer@example.com"),
            ("GIT_COMMITTER_DATE", "1700000000 +0000"),
        ])
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

pub fn id(text: &str) -> ObjectId {
    ObjectId::parse(text.trim()).unwrap()
}

pub fn name(text: &str) -> RefName {
    RefName::parse(text).unwrap()
}

pub fn refs(pairs: &[(&str, ObjectId)]) -> Refs {
    pairs.iter().map(|(text, id)| (name(text), *id)).collect()
}

/// All files below a folder, as paths relative to it.
pub fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let relative = path.strip_prefix(folder).unwrap();
                found.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

/// Text that does not compress well, always the same.
pub fn noise(len: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'0' + (state % 75) as u8)
    };
    (0..len).map(|_| next()).collect()
}
