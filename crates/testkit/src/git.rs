//! The real git binary in a directory of its own: working copies, commits and pushes, with
//! nothing of the developer's configuration.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

#[derive(Debug)]
pub struct WorkTree {
    dir: TempDir,
}

/// What a git command printed.
#[derive(Debug)]
pub struct Said {
    pub ok: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Default for WorkTree {
    fn default() -> Self {
        Self::new()
    }
}

impl WorkTree {
    /// An empty repository on branch `main`.
    pub fn new() -> Self {
        let tree = Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
        };
        tree.git(&["init", "-q", "-b", "main"]);
        tree
    }

    /// A repository with a history of its own.
    pub fn new_with_commit() -> Self {
        let tree = Self::new();
        tree.commit("other", b"another history");
        tree
    }

    /// A clone; panics with git's words if it fails.
    pub fn clone_of(url: &str, options: &[&str]) -> Self {
        let tree = Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
        };
        let args = [&["clone", "-q"], options, &[url, "."]].concat();
        tree.git(&args);
        tree
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file and commits it; the commit's id.
    pub fn commit(&self, file: &str, content: &[u8]) -> String {
        let path = self.dir.path().join(file);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        std::fs::write(path, content).expect("a file");
        self.git(&["add", "--", file]);
        self.git(&["commit", "-q", "-m", &format!("change {file}")]);
        self.head()
    }

    /// Commits bytes that no compression makes smaller, without trying to.
    pub fn commit_noise(&self, file: &str, seed: u64, bytes: usize) -> String {
        let mut dice = fastrand::Rng::with_seed(seed);
        let path = self.dir.path().join(file);
        let mut out = std::fs::File::create(path).expect("a file");
        let mut chunk = vec![0; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            dice.fill(&mut chunk);
            let part = left.min(chunk.len());
            out.write_all(&chunk[..part]).expect("write the file");
            left -= part;
        }
        drop(out);
        self.git(&["-c", "core.compression=0", "add", "--", file]);
        self.git(&["commit", "-q", "-m", &format!("noise in {file}")]);
        self.head()
    }

    pub fn head(&self) -> String {
        self.rev("HEAD")
    }

    pub fn rev(&self, name: &str) -> String {
        self.git(&["rev-parse", name]).stdout.trim().to_owned()
    }

    /// Runs git; panics with its words if it fails.
    pub fn git(&self, args: &[&str]) -> Said {
        let said = self.try_git(args);
        assert!(said.ok, "git {args:?}: {}{}", said.stdout, said.stderr);
        said
    }

    pub fn try_git(&self, args: &[&str]) -> Said {
        try_git(self.dir.path(), args)
    }

    /// The pack that a push of these revisions sends (`^x` for what the other side has).
    pub fn pack(&self, revisions: &[&str]) -> Vec<u8> {
        let args = ["pack-objects", "-q", "--revs", "--stdout", "--thin"];
        with_input(self.dir.path(), &args, revisions)
    }
}

/// Runs git in a directory.
pub fn try_git(dir: &Path, args: &[&str]) -> Said {
    let output = command(dir, args).output().expect("git runs");
    said(output)
}

/// Those of the objects that a repository does not have.
pub fn missing(dir: &Path, ids: &[&str]) -> Vec<String> {
    let said = with_input(dir, &["cat-file", "--batch-check=%(objectname)"], ids);
    let said = String::from_utf8(said).expect("UTF-8");
    let lines = said.lines();
    lines
        .filter_map(|line| line.strip_suffix(" missing"))
        .map(str::to_owned)
        .collect()
}

/// Runs git with lines to read; what it printed.
fn with_input(dir: &Path, args: &[&str], lines: &[&str]) -> Vec<u8> {
    let mut child = command(dir, args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("git runs");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("git ends");
    let written = writer.join().expect("the writer ends");
    assert!(output.status.success(), "git {args:?}");
    written.expect("git reads");
    output.stdout
}

/// A git command that is not run yet, for tests that end it early.
pub fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(dir)
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home(dir))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_AUTHOR_NAME", "Tester")
        .env("GIT_AUTHOR_EMAIL", "tester@example.com")
        .env("GIT_COMMITTER_NAME", "Tester")
        .env("GIT_COMMITTER_EMAIL", "tester@example.com")
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

fn home(dir: &Path) -> PathBuf {
    dir.join(".nobody")
}

fn said(output: Output) -> Said {
    Said {
        ok: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
