//! Another git server, as good or as bad as a test wants it: the real `git upload-pack` behind the
//! smallest web server that it needs. It remembers who asked for what, when, and how many at once.

mod answer;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::git::{WorkTree, try_git};

/// Far beyond anything that a healthy server takes, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

/// One thing that a git server does wrong, or differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitFault {
    /// This status to every request.
    Status(u16),
    /// 429, and for how many seconds.
    Busy(Option<u64>),
    /// Something for people instead of every answer.
    Page,
    /// Reads the request, and says nothing.
    Tarpit,
    /// A byte of every answer now and then.
    Drip,
    /// Half of the answer with the pack.
    TruncatedPack,
    /// One bit of it is wrong.
    CorruptPack,
    /// A sound pack of something else.
    WrongObjects,
    /// Sound objects, and no end of them.
    EndlessPack,
    /// Shows a ref to this object, whether it has it or not.
    Shows(String),
    /// Knows no other protocol than the first.
    OldProtocol,
    /// The list of refs is below this address.
    MovedTo(String),
    /// The same for one name only.
    Renamed { from: String, to: String },
    /// Holds every pack back until this is taken away.
    HoldsPacks,
    /// The same after half of it.
    HoldsHalves,
}

/// What a server has seen so far.
#[derive(Debug, Clone, Default)]
pub struct GitSeen {
    /// Method and path with its query, in order, and when they came.
    pub requests: Vec<(Instant, String)>,
    pub connections: usize,
    /// Answers under way, and the most that ever were.
    pub open: usize,
    pub most_open: usize,
    /// Of bodies, sent.
    pub bytes: u64,
}

impl GitSeen {
    /// Each fetch begins with one of these.
    pub fn discoveries(&self) -> usize {
        self.count("GET ")
    }

    /// Questions for refs and packs.
    pub fn posts(&self) -> usize {
        self.count("POST ")
    }

    fn count(&self, beginning: &str) -> usize {
        let fits = |(_, line): &&(Instant, String)| line.starts_with(beginning);
        self.requests.iter().filter(fits).count()
    }

    /// The most fetches that began within a time as long as this.
    pub fn busiest(&self, window: Duration) -> usize {
        let began = self.requests.iter();
        let began: Vec<Instant> = began
            .filter(|(_, line)| line.starts_with("GET "))
            .map(|(at, _)| *at)
            .collect();
        let within = |first: &Instant| {
            let in_window = |at: &&Instant| **at >= *first && **at - *first < window;
            began.iter().filter(in_window).count()
        };
        began.iter().map(within).max().unwrap_or(0)
    }
}

/// Ends, with all its connections, when it is dropped.
#[derive(Debug)]
pub struct GitHost {
    addr: SocketAddr,
    shared: Arc<Shared>,
    serving: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    root: TempDir,
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    faults: Vec<GitFault>,
    seen: GitSeen,
}

impl GitHost {
    pub async fn honest() -> Self {
        Self::start(&[]).await
    }

    pub async fn start(faults: &[GitFault]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let inner = Inner {
            faults: faults.to_vec(),
            seen: GitSeen::default(),
        };
        let shared = Arc::new(Shared {
            root: tempfile::tempdir().expect("a temporary directory"),
            inner: Mutex::new(inner),
            changed: Notify::new(),
        });
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self {
            addr,
            shared,
            serving: serving.abort_handle(),
        }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn base(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Where a repository is cloned from.
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.base())
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        self.shared.root.path().join(name)
    }

    /// From now on it behaves like this.
    pub fn behave(&self, faults: &[GitFault]) {
        self.shared.lock().faults = faults.to_vec();
        self.shared.changed.notify_waiters();
    }

    /// Serves what a work tree has, with these refs (`<revision>:<full name>`); the repository is
    /// made when it is not there yet.
    pub fn publish(&self, name: &str, tree: &WorkTree, refs: &[&str]) {
        let dir = self.dir(name);
        if !dir.exists() {
            let path = dir.to_str().expect("UTF-8");
            run(
                self.shared.root.path(),
                &["init", "-q", "--bare", "-b", "main", path],
            );
        }
        let from = tree.path().to_str().expect("UTF-8");
        let refs: Vec<String> = refs.iter().map(|one| format!("+{one}")).collect();
        let mut args = vec!["fetch", "-q", "--no-tags", from];
        args.extend(refs.iter().map(String::as_str));
        run(&dir, &args);
    }

    pub fn seen(&self) -> GitSeen {
        self.shared.lock().seen.clone()
    }

    /// Waits until what was seen is enough.
    pub async fn wait(&self, purpose: &str, enough: impl Fn(&GitSeen) -> bool) -> GitSeen {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                let seen = self.seen();
                if enough(&seen) {
                    return seen;
                }
                changed.await;
            }
        };
        match timeout(DEADLINE, waiting).await {
            Ok(seen) => seen,
            Err(_) => panic!("waited {DEADLINE:?} for {purpose}; seen: {:?}", self.seen()),
        }
    }
}

impl Drop for GitHost {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, change: impl FnOnce(&mut GitSeen)) {
        change(&mut self.lock().seen);
        self.changed.notify_waiters();
    }

    fn has(&self, fault: &GitFault) -> bool {
        self.lock().faults.contains(fault)
    }

    fn find<T>(&self, look: impl Fn(&GitFault) -> Option<T>) -> Option<T> {
        self.lock().faults.iter().find_map(look)
    }

    async fn until_not(&self, fault: &GitFault) {
        loop {
            let changed = self.changed.notified();
            if !self.has(fault) {
                return;
            }
            changed.await;
        }
    }
}

/// Counts one answer for as long as it takes, whatever ends it.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>, line: String) -> Self {
        shared.see(|seen| {
            seen.requests.push((Instant::now(), line));
            seen.open += 1;
            seen.most_open = seen.most_open.max(seen.open);
        });
        Self(Arc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.see(|seen| seen.open -= 1);
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Its tasks end with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        shared.see(|seen| seen.connections += 1);
        connections.spawn(async move {
            // The other side may be gone at any moment.
            let _ = answer::requests(stream, &shared).await;
        });
    }
}

fn run(dir: &Path, args: &[&str]) {
    let said = try_git(dir, args);
    assert!(said.ok, "git {args:?}: {}", said.stderr);
}

#[cfg(test)]
mod tests;
