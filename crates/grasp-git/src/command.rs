//! The only place that starts git: no configuration of the user or the system, no prompts, no
//! hooks, no environment but what is listed here. Flags are constants and everything else is a
//! type, so that a stranger's text cannot become an argument.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::task::JoinHandle;

use crate::error::GitError;

/// The git binary on the path.
#[derive(Debug, Clone, Copy, Default)]
pub struct Git;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

/// Where no file is found, whatever git looks for.
const NOWHERE: &str = "/nonexistent";
const ENVIRONMENT: &[(&str, &str)] = &[
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("HOME", NOWHERE),
    ("XDG_CONFIG_HOME", NOWHERE),
    ("LC_ALL", "C"),
];
/// Said on every command line, so that a repository that an operator brought from elsewhere
/// behaves like one of ours.
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "safe.directory=*",
];
/// The end of what git says is what matters.
const STDERR_KEPT: usize = 4 * 1024;
/// A grandchild can hold stderr open after git itself is gone.
const STDERR_GRACE: Duration = Duration::from_secs(1);

impl Git {
    pub fn version(self) -> Result<Version, GitError> {
        let output = scrubbed()?
            .arg("version")
            .stdin(Stdio::null())
            .output()
            .map_err(GitError::Spawn)?;
        if !output.status.success() {
            return Err(GitError::Failed {
                args: "version".to_owned(),
                stderr: tidy(&output.stderr),
            });
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Version::parse(&text).ok_or(GitError::Unexpected(text))
    }
}

impl Version {
    /// Reads `git version 2.47.3` and its dressed-up forms (`2.39.5 (Apple Git-154)`).
    fn parse(text: &str) -> Option<Self> {
        let numbers = text.trim().strip_prefix("git version ")?;
        let mut numbers = numbers
            .split([' ', '.', '-'])
            .map_while(|part| part.parse().ok());
        Some(Self {
            major: numbers.next()?,
            minor: numbers.next()?,
            patch: numbers.next().unwrap_or(0),
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A git command in the making.
pub(crate) struct GitCommand {
    name: &'static str,
    settings: Vec<&'static str>,
    git_dir: PathBuf,
    args: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
    memory: Option<u64>,
    cpu_seconds: Option<u64>,
    priority: Option<i32>,
}

impl GitCommand {
    /// `git_dir` must be absolute: it can then not be taken for an option.
    pub fn new(name: &'static str, git_dir: &Path) -> Self {
        Self {
            name,
            settings: SETTINGS.to_vec(),
            git_dir: git_dir.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            memory: None,
            cpu_seconds: None,
            priority: None,
        }
    }

    pub fn settings(mut self, settings: &[&'static str]) -> Self {
        self.settings.extend_from_slice(settings);
        self
    }

    pub fn flag(mut self, flag: &'static str) -> Self {
        self.args.push(flag.into());
        self
    }

    /// `flag` ends with `=`.
    pub fn number(mut self, flag: &'static str, value: u64) -> Self {
        self.args.push(format!("{flag}{value}").into());
        self
    }

    /// The repository once more, for commands that want it as an argument.
    pub fn directory(mut self) -> Self {
        self.args.push("--end-of-options".into());
        self.args.push(self.git_dir.clone().into());
        self
    }

    /// The name of a pack that is here, without its ending. `flag` ends with `=`.
    pub fn pack(mut self, flag: &'static str, pack: &OsStr) -> Self {
        let mut arg = OsString::from(flag);
        arg.push(pack);
        arg.push(".pack");
        self.args.push(arg);
        self
    }

    /// Where to put something; the last argument, and absolute.
    pub fn path(mut self, path: &Path) -> Self {
        self.args.push("--end-of-options".into());
        self.args.push(path.into());
        self
    }

    pub fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name, value.as_ref().to_owned()));
        self
    }

    /// Private memory that the process and its children may each have.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Processor time that the process may have; then it is ended.
    pub fn cpu_seconds(mut self, seconds: u64) -> Self {
        self.cpu_seconds = Some(seconds);
        self
    }

    /// Above 0 it gives way to others.
    pub fn priority(mut self, nice: i32) -> Self {
        self.priority = (nice > 0).then_some(nice);
        self
    }

    pub fn spawn(self, stdin: Stdio, stdout: Stdio) -> Result<Running, GitError> {
        let mut command = scrubbed()?;
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let mut git_dir = OsString::from("--git-dir=");
        git_dir.push(&self.git_dir);
        command
            .arg(git_dir)
            .arg(self.name)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(stdin)
            .stdout(stdout)
            .stderr(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        let mut child = command
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(GitError::Spawn)?;
        let stderr = child.stderr.take();
        PROCESSES.fetch_add(1, Ordering::Relaxed);
        let running = Running {
            name: self.name,
            stderr: Some(tokio::spawn(
                async move { tail_of(stderr, STDERR_KEPT).await },
            )),
            child,
        };
        running.limit_memory(self.memory)?;
        if let (Some(seconds), Some(process)) = (self.cpu_seconds, running.cpu_time()) {
            process.allow(seconds);
        }
        running.go_first();
        running.set_priority(self.priority);
        Ok(running)
    }

    /// Runs it to its end with `input` on stdin and gives back at most `keep` bytes of the end of
    /// its stdout.
    pub async fn run(
        self,
        input: Vec<u8>,
        keep: usize,
        deadline: Duration,
    ) -> Result<(Finished, Vec<u8>), GitError> {
        let name = self.name;
        let work = async {
            let mut running = self.spawn(Stdio::piped(), Stdio::piped())?;
            let stdin = running.take_stdin();
            let stdout = running.take_stdout();
            // A process that leaves early does not read its input; its status says why.
            let (_, printed) = tokio::join!(give(stdin, input), tail_of(stdout, keep));
            Ok((running.finish().await?, printed))
        };
        match tokio::time::timeout(deadline, work).await {
            Ok(result) => result,
            Err(_) => Err(GitError::TimedOut {
                args: name.to_owned(),
                after: deadline,
            }),
        }
    }
}

/// A git process and its group. All of it ends when this is dropped.
pub(crate) struct Running {
    name: &'static str,
    child: Child,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

/// How a process ended, and the last that it said.
#[derive(Debug)]
pub(crate) struct Finished {
    pub name: &'static str,
    pub status: ExitStatus,
    pub stderr: String,
}

impl Running {
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    pub async fn finish(&mut self) -> Result<Finished, GitError> {
        let status = self.child.wait().await.map_err(GitError::Spawn)?;
        let stderr = match self.stderr.take() {
            Some(task) => tokio::time::timeout(STDERR_GRACE, task).await,
            None => Ok(Ok(Vec::new())),
        };
        let stderr = stderr.ok().and_then(Result::ok).unwrap_or_default();
        Ok(Finished {
            name: self.name,
            status,
            stderr: tidy(&stderr),
        })
    }

    /// Set from outside: a limit set in the child would force a fork of this whole process. The
    /// child has nothing to work on yet, so that it cannot outrun the limit.
    #[cfg(target_os = "linux")]
    fn limit_memory(&self, bytes: Option<u64>) -> Result<(), GitError> {
        use rustix::process::{Resource, Rlimit, prlimit};
        let (Some(bytes), Some(pid)) = (bytes, self.pid()) else {
            return Ok(());
        };
        let limit = Rlimit {
            current: Some(bytes),
            maximum: Some(bytes),
        };
        match prlimit(Some(pid), Resource::Data, limit) {
            Ok(_) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(GitError::Spawn(error.into())),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn limit_memory(&self, _bytes: Option<u64>) -> Result<(), GitError> {
        Ok(())
    }

    /// To give it more processor time as it has more to do. Only until it has been waited for.
    pub fn cpu_time(&self) -> Option<CpuTime> {
        self.pid().map(CpuTime)
    }

    /// Where memory runs out, the kernel ends something: rather one request than the server.
    fn go_first(&self) {
        if let Some(pid) = self.child.id() {
            // A system without it chooses by size, which is mostly the same.
            let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), before_us());
        }
    }

    fn set_priority(&self, nice: Option<i32>) {
        if let (Some(nice), Some(pid)) = (nice, self.pid()) {
            // A favour to others; without it the work is the same.
            let _ = rustix::process::setpriority_process(Some(pid), nice);
        }
    }

    /// None once it has been waited for: the number may then belong to somebody else.
    fn pid(&self) -> Option<rustix::process::Pid> {
        let id = i32::try_from(self.child.id()?).ok()?;
        rustix::process::Pid::from_raw(id)
    }
}

/// How much processor time a process may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuTime(
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))] rustix::process::Pid,
);

impl CpuTime {
    /// In all. Set from outside, like the limit of memory, so that nothing has to fork.
    #[cfg(target_os = "linux")]
    pub fn allow(self, seconds: u64) {
        use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
        let maximum = getrlimit(Resource::Cpu).maximum;
        let seconds = seconds.max(1);
        let limit = Rlimit {
            current: Some(maximum.map_or(seconds, |most| most.min(seconds))),
            maximum,
        };
        // Fails when the process is gone.
        let _ = prlimit(Some(self.0), Resource::Cpu, limit);
    }

    /// The deadline bounds it there.
    #[cfg(not(target_os = "linux"))]
    pub fn allow(self, _seconds: u64) {}
}

/// As if half of all memory were its own, beside what counts against us.
fn before_us() -> &'static str {
    static SCORE: OnceLock<String> = OnceLock::new();
    SCORE.get_or_init(|| {
        let ours = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
        let ours: i32 = ours.trim().parse().unwrap_or(0);
        ours.saturating_add(500).min(1_000).to_string()
    })
}

/// Git processes that run now.
pub fn processes() -> usize {
    PROCESSES.load(Ordering::Relaxed)
}

static PROCESSES: AtomicUsize = AtomicUsize::new(0);

impl Drop for Running {
    fn drop(&mut self) {
        PROCESSES.fetch_sub(1, Ordering::Relaxed);
        if let Some(task) = &self.stderr {
            task.abort();
        }
        if let Some(group) = self.pid() {
            // Fails only if the group is gone, which is what is wanted.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl Finished {
    pub fn is_ok(&self) -> bool {
        self.status.success()
    }

    /// Ended by a signal, as when memory is refused or the kernel needs it back.
    fn was_killed(&self) -> bool {
        self.status.code().is_none()
    }

    /// Ended by the limit of its processor time.
    pub fn ran_out_of_time(&self) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        self.status.signal() == Some(rustix::process::Signal::XCPU.as_raw())
    }

    pub fn ran_out_of_memory(&self) -> bool {
        let says = |words: &str| self.stderr.contains(words);
        self.was_killed() || says("ut of memory") || says("mmap failed")
    }

    pub fn into_error(self) -> GitError {
        GitError::Failed {
            args: self.name.to_owned(),
            stderr: self.stderr,
        }
    }
}

/// Named by its path, because a bare name together with a fresh environment makes the standard
/// library fork instead of spawn, which takes 100 ms in a large process.
fn scrubbed() -> Result<std::process::Command, GitError> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let git = FOUND.get_or_init(find_git).as_ref().ok_or_else(|| {
        let text = "there is no git on the path";
        GitError::Spawn(std::io::Error::new(std::io::ErrorKind::NotFound, text))
    })?;
    let mut command = std::process::Command::new(git);
    command.env_clear().envs(ENVIRONMENT.iter().copied());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    Ok(command)
}

fn find_git() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter_map(|folder| std::path::absolute(folder.join("git")).ok())
        .find(|candidate| candidate.is_file())
}

async fn give(stdin: Option<ChildStdin>, input: Vec<u8>) -> std::io::Result<()> {
    use tokio::io::AsyncWriteExt;
    match stdin {
        Some(mut stdin) => stdin.write_all(&input).await,
        None => Ok(()),
    }
}

/// Reads to the end and keeps the last `keep` bytes.
pub(crate) async fn tail_of(source: Option<impl AsyncRead + Unpin>, keep: usize) -> Vec<u8> {
    let Some(mut source) = source else {
        return Vec::new();
    };
    let mut kept = Vec::new();
    while let Ok(read) = source.read_buf(&mut kept).await {
        if read == 0 {
            break;
        }
        if kept.len() > keep.saturating_mul(2) {
            kept.drain(..kept.len() - keep);
        }
    }
    let extra = kept.len().saturating_sub(keep);
    kept.drain(..extra);
    kept
}

fn tidy(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_in_every_dress() {
        for (text, expected) in [
            ("git version 2.47.3\n", Some("2.47.3")),
            ("git version 2.39.5 (Apple Git-154)", Some("2.39.5")),
            ("git version 2.51.GIT", Some("2.51.0")),
            ("git version 2.45.1.windows.1", Some("2.45.1")),
            ("fatal: no", None),
            ("", None),
        ] {
            let version = Version::parse(text).map(|version| version.to_string());
            assert_eq!(version.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_real_git_answers() {
        assert!(Git.version().unwrap().major >= 2);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_process_is_bounded_gives_way_and_goes_before_the_server() {
        let repo = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("git")
            .args(["init", "-q", "--bare"])
            .arg(repo.path())
            .status();
        assert!(made.unwrap().success());
        let waiting = GitCommand::new("cat-file", repo.path())
            .flag("--batch")
            .memory(1 << 30)
            .priority(10)
            .spawn(Stdio::piped(), Stdio::piped())
            .unwrap();
        let of = |file: &str| {
            let path = format!("/proc/{}/{file}", waiting.child.id().unwrap());
            std::fs::read_to_string(path).unwrap()
        };
        assert_eq!(of("oom_score_adj").trim(), before_us());
        let limits = of("limits");
        let memory = limits
            .lines()
            .find(|line| line.starts_with("Max data size"));
        assert!(memory.unwrap().contains("1073741824"), "{limits}");
        assert_eq!(of("stat").split(' ').nth(18), Some("10"));
    }

    #[tokio::test]
    async fn only_the_end_of_a_long_output_is_kept() {
        let long: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        let kept = tail_of(Some(long.as_slice()), 10).await;
        assert_eq!(kept, long[long.len() - 10..]);
        assert_eq!(tail_of(Some(&b"short"[..]), 10).await, b"short");
    }
}
