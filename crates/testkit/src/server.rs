//! The real server as a child process in a directory of its own, which goes when the test does.
//! Whatever it waits for has a deadline, and a failure shows the server's log.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const START_DEADLINE: Duration = Duration::from_secs(30);
const STOP_DEADLINE: Duration = Duration::from_secs(30);
const COMMAND_DEADLINE: Duration = Duration::from_secs(60);
const GREETING: &str = "listening on http://";

#[derive(Debug)]
pub struct Server {
    bin: PathBuf,
    env: Vec<(String, String)>,
    dir: TempDir,
    child: Child,
    log: Arc<Log>,
    addr: SocketAddr,
}

impl Server {
    /// Starts the binary on a free port and waits until it listens. `env` adds to the defaults
    /// and wins over them.
    pub fn start(bin: &Path, env: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let env: Vec<(String, String)> = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let (child, log, addr) = launch(bin, &env, dir.path());
        Self {
            bin: bin.to_owned(),
            env,
            dir,
            child,
            log,
            addr,
        }
    }

    /// Runs a command of the binary in a directory, with the same defaults as a server there.
    pub fn run(bin: &Path, args: &[&str], env: &[(&str, &str)], dir: &Path) -> Output {
        let child = command(bin, dir)
            .args(args)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", bin.display()));
        let pid = child.id();
        let (done, output) = mpsc::channel();
        thread::spawn(move || done.send(child.wait_with_output()));
        match output.recv_timeout(COMMAND_DEADLINE) {
            Ok(output) => output.expect("the output of the command"),
            Err(_) => {
                signal(pid, "KILL");
                panic!("{args:?} did not end within {COMMAND_DEADLINE:?}");
            }
        }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn ws_url(&self) -> String {
        format!("ws://{}", self.addr)
    }

    pub fn http_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server's working directory; its data is below it.
    pub fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// What the process wrote to stderr since it was started last.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until the log has a line with that text.
    pub fn wait_for_log(&self, text: &str) {
        let found = self
            .log
            .wait_for(START_DEADLINE, |log| log.contains(text).then_some(()));
        if found.is_none() {
            panic!("no {text:?} in the log:\n{}", self.log());
        }
    }

    /// The end that leaves no time to tidy up.
    pub fn kill9(&mut self) {
        self.child.kill().expect("kill the server");
        self.child.wait().expect("the server's end");
    }

    /// True once the process has ended, whoever ended it.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the server's state").is_some()
    }

    /// Waits until the process has ended by itself.
    pub fn wait_for_end(&mut self) {
        if !self.log.wait_for_end(STOP_DEADLINE) {
            panic!("still running after {STOP_DEADLINE:?}:\n{}", self.log());
        }
        self.child.wait().expect("the server's exit status");
    }

    /// A variable of the next start.
    pub fn set(&mut self, name: &str, value: &str) {
        self.env.retain(|(found, _)| found != name);
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Asks the server to stop and waits until it has.
    pub fn terminate(&mut self) -> ExitStatus {
        signal(self.pid(), "TERM");
        if !self.log.wait_for_end(STOP_DEADLINE) {
            panic!(
                "still running {STOP_DEADLINE:?} after SIGTERM:\n{}",
                self.log()
            );
        }
        self.child.wait().expect("the server's exit status")
    }

    /// Starts again in the same directory, on another port. Stops it first if it still runs.
    pub fn restart(&mut self) {
        if !self.has_ended() {
            self.terminate();
        }
        let (child, log, addr) = launch(&self.bin, &self.env, self.dir.path());
        self.child = child;
        self.log = log;
        self.addr = addr;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nothing of the developer's environment but the way to git. A general relay, so that tests of
/// the relay need no repository; tests of GRASP's own rules set it otherwise.
fn command(bin: &Path, dir: &Path) -> Command {
    let mut command = Command::new(bin);
    command
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("NGIT_BIND_ADDRESS", "127.0.0.1:0")
        .env("NGIT_ACCEPT_UNRELATED_EVENTS", "true")
        .env("NGIT_RELAY_DATA_PATH", dir.join("relay"))
        .env("NGIT_GIT_DATA_PATH", dir.join("git"));
    command
}

fn launch(bin: &Path, env: &[(String, String)], dir: &Path) -> (Child, Arc<Log>, SocketAddr) {
    let mut child = command(bin, dir)
        .envs(env.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", bin.display()));
    let log = Log::of(child.stderr.take().expect("stderr is piped"));
    match log.wait_for(START_DEADLINE, listening_address) {
        Some(addr) => (child, log, addr),
        None => {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the server does not listen:\n{}", log.text());
        }
    }
}

fn listening_address(log: &str) -> Option<SocketAddr> {
    let (_, rest) = log.split_once(GREETING)?;
    // A half-written line has a port without its last digits.
    let (line, _) = rest.split_once('\n')?;
    let end = line
        .find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\u{1b}'))
        .unwrap_or(line.len());
    line[..end].parse().ok()
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .status()
        .expect("run kill");
    assert!(sent.success(), "kill -{name} {pid}: {sent}");
}

/// A child's stderr, read to its end by a thread so that the child never waits for us.
#[derive(Debug, Default)]
struct Log {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    text: String,
    ended: bool,
}

impl Log {
    fn of(stderr: impl Read + Send + 'static) -> Arc<Self> {
        let log = Arc::new(Self::default());
        let writer = Arc::clone(&log);
        thread::spawn(move || writer.fill(BufReader::new(stderr)));
        log
    }

    fn fill(&self, mut stderr: impl BufRead) {
        let mut line = Vec::new();
        while let Ok(1..) = stderr.read_until(b'\n', &mut line) {
            self.change(|state| state.text.push_str(&String::from_utf8_lossy(&line)));
            line.clear();
        }
        self.change(|state| state.ended = true);
    }

    fn text(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = state.text.clone();
        if state.ended {
            let _ = writeln!(text, "(the process has ended)");
        }
        text
    }

    /// What `look` finds in the log before the deadline and the end of the process.
    fn wait_for<T>(&self, patience: Duration, look: impl Fn(&str) -> Option<T>) -> Option<T> {
        let mut found = None;
        self.wait(patience, |state| {
            found = look(&state.text);
            found.is_some() || state.ended
        });
        found
    }

    fn wait_for_end(&self, patience: Duration) -> bool {
        self.wait(patience, |state| state.ended)
    }

    fn wait(&self, patience: Duration, mut enough: impl FnMut(&LogState) -> bool) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if enough(&state) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn change(&self, change: impl FnOnce(&mut LogState)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::ExitStatusExt as _;
    use std::sync::MutexGuard;

    use super::*;

    /// A file that is being written cannot be executed, and a child that another test forks
    /// meanwhile holds it open: one test at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn script(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("server.sh");
        fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Waits for ever on a pipe that nobody writes.
    const LISTENS: &str = r#"
[ -p fifo ] || mkfifo fifo
echo "INFO listening on http://127.0.0.1:1234 with $FLAVOUR" >&2
read -r line <fifo
"#;

    #[test]
    fn a_server_is_started_stopped_and_started_again() {
        let _alone = alone();
        let bins = tempfile::tempdir().unwrap();
        let bin = script(bins.path(), LISTENS);
        let mut server = Server::start(&bin, &[("FLAVOUR", "salt")]);
        assert_eq!(server.ws_url(), "ws://127.0.0.1:1234");
        server.wait_for_log("with salt");
        assert_eq!(server.terminate().signal(), Some(15));
        server.restart();
        assert_eq!(server.log().matches(GREETING).count(), 1, "a fresh log");
        assert!(
            server.data_dir().join("fifo").exists(),
            "the same directory"
        );
        server.kill9();
        assert_eq!(server.child.wait().unwrap().signal(), Some(9));
    }

    #[test]
    #[should_panic(expected = "no such setting")]
    fn a_server_that_does_not_listen_shows_its_log() {
        let _alone = alone();
        let bins = tempfile::tempdir().unwrap();
        Server::start(&script(bins.path(), "echo no such setting >&2"), &[]);
    }

    #[test]
    fn a_command_runs_beside_the_data() {
        let _alone = alone();
        let bins = tempfile::tempdir().unwrap();
        let bin = script(
            bins.path(),
            r#"echo "$1 $NGIT_RELAY_DATA_PATH $USER"; exit 2"#,
        );
        let output = Server::run(&bin, &["check"], &[], bins.path());
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stdout).unwrap();
        let relay = bins.path().join("relay");
        assert_eq!(text.trim(), format!("check {}", relay.display()));
    }
}
