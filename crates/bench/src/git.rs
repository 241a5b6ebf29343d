//! Git's figures: clones, pushes and questions about refs, each next to `git http-backend` on the
//! same repository in the same run, in turn, so that both see the same weather.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tempfile::TempDir;
use testkit::git::try_git;
use testkit::grasp::DOMAIN;
use testkit::{Author, Client, Project, Server, WorkTree, now};
use tokio::runtime::Runtime;

use crate::cgi::Backend;
use crate::process::{build_server, memory_mb};
use crate::report::{Report, percentile};

pub fn run(scale: usize) -> Report {
    let runtime = Runtime::new().expect("a runtime");
    let server = Server::start(
        &build_server(),
        &[
            ("NGIT_DOMAIN", DOMAIN),
            ("NGIT_ACCEPT_UNRELATED_EVENTS", "false"),
            ("NGIT_EVENTS_PER_MINUTE_PER_KEY", "0"),
        ],
    );
    let folder = tempfile::tempdir().expect("a folder");
    let backend = Backend::start(folder.path().to_owned());
    let mut bench = Bench {
        report: Report::default(),
        runtime,
        server,
        folder,
        backend,
    };
    bench.large_clone(scale);
    bench.many_clones(scale);
    bench.small_pushes(scale);
    bench.questions();
    bench.report
}

struct Bench {
    report: Report,
    runtime: Runtime,
    server: Server,
    /// The repositories of the other side.
    folder: TempDir,
    backend: Backend,
}

/// One repository on both sides.
struct Pair {
    project: Project,
    tree: WorkTree,
    ours: String,
    theirs: String,
    clock: u64,
}

impl Bench {
    /// Announces, pushes to both.
    fn pair(&mut self, seed: u64, name: &str, tree: WorkTree) -> Pair {
        let project = Project::new(&Author::new(seed), name);
        let theirs = self.backend.url(&format!("{name}.git"));
        let path = self.folder.path().join(format!("{name}.git"));
        let bare = path.to_str().expect("a path").to_owned();
        tree.git(&["init", "-q", "--bare", "-b", "main", &bare]);
        let mut pair = Pair {
            ours: project.url(&self.server),
            theirs,
            project,
            tree,
            clock: now() - 10_000,
        };
        let announcement = pair.project.announcement(pair.clock);
        self.publish(&announcement);
        self.state(&mut pair);
        pair.tree.git(&["push", "-q", &pair.ours, "--all"]);
        pair.tree.git(&["push", "-q", &bare, "--all"]);
        pair
    }

    fn publish(&self, event: &grasp_core::Event) {
        self.runtime.block_on(async {
            let mut client = Client::connect(&self.server.ws_url()).await;
            let (taken, why) = client.publish(event).await;
            assert!(taken, "{why}");
            client.close().await;
        });
    }

    /// The state that the work tree's branches are.
    fn state(&self, pair: &mut Pair) {
        pair.clock += 1;
        let format = "--format=%(refname) %(objectname)";
        let listed = pair
            .tree
            .git(&["for-each-ref", format, "refs/heads"])
            .stdout;
        let refs: Vec<(&str, &str)> = listed
            .lines()
            .filter_map(|line| line.split_once(' '))
            .collect();
        let state = pair.project.state(&pair.project.owner, pair.clock, &refs);
        self.publish(&state);
    }

    fn large_clone(&mut self, scale: usize) {
        let size = 200 / scale;
        eprintln!("clones of {size} MB");
        let pair = self.pair(1, "large", history(1, size));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..7 {
            ours.push(clone(&pair.ours));
            theirs.push(clone(&pair.theirs));
        }
        let (ours, theirs) = (percentile(&mut ours, 0.5), percentile(&mut theirs, 0.5));
        self.report.note(format!("clone of {size} MB"), ours, "s");
        self.report
            .note(format!("clone of {size} MB, http-backend"), theirs, "s");
        self.report.at_most(
            "large clone over http-backend",
            ours / theirs,
            "times",
            1.05,
        );
        self.memory("after large clones");
    }

    fn many_clones(&mut self, scale: usize) {
        let size = 30 / scale;
        eprintln!("16 clones of {size} MB at once");
        let pair = self.pair(2, "many", history(2, size));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            ours.push(clones_at_once(&pair.ours, 16));
            theirs.push(clones_at_once(&pair.theirs, 16));
        }
        let (ours, theirs) = (percentile(&mut ours, 0.5), percentile(&mut theirs, 0.5));
        self.report.note("16 clones at once", ours, "s");
        self.report
            .note("16 clones at once, http-backend", theirs, "s");
        self.report
            .at_most("16 clones over http-backend", ours / theirs, "times", 1.0);
        self.memory("after 16 clones at once");
    }

    fn small_pushes(&mut self, scale: usize) {
        eprintln!("small pushes");
        let mut pair = self.pair(3, "small", history(3, 1));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..(60 / scale) {
            pair.tree.commit("note", format!("{round}").as_bytes());
            self.state(&mut pair);
            ours.push(push(&pair.tree, &pair.ours));
            theirs.push(push(&pair.tree, &pair.theirs));
        }
        for (label, share) in [("p50", 0.5), ("p90", 0.9)] {
            let (ours, theirs) = (percentile(&mut ours, share), percentile(&mut theirs, share));
            self.report.note(format!("small push, {label}"), ours, "ms");
            self.report
                .note(format!("small push, {label}, http-backend"), theirs, "ms");
            let name = format!("small push beyond http-backend, {label}");
            match label {
                "p50" => self.report.at_most(name, ours - theirs, "ms", 25.0),
                _ => self.report.note(name, ours - theirs, "ms"),
            }
        }
    }

    fn questions(&mut self) {
        eprintln!("questions about refs");
        let tree = history(4, 1);
        for n in 0..129 {
            tree.git(&["branch", &format!("topic-{n}")]);
        }
        let pair = self.pair(4, "refs", tree);
        let path = |url: &str| {
            let rest = url.strip_prefix("http://").expect("a plain URL");
            rest.split_once('/')
                .map(|(_, path)| format!("/{path}"))
                .expect("a path")
        };
        let ours = questions_per_second(self.server.addr(), &path(&pair.ours));
        let theirs = questions_per_second(self.backend.address(), &path(&pair.theirs));
        self.report.note("ls-remote, both requests", ours, "per s");
        self.report.note("ls-remote, http-backend", theirs, "per s");
        self.report
            .at_least("ls-remote over http-backend", ours / theirs, "times", 3.0);
        self.memory("at the end");
    }

    fn memory(&mut self, when: &str) {
        let rss = memory_mb(self.server.pid(), "VmRSS");
        self.report.note(format!("RSS {when}"), rss, "MB");
    }
}

/// A work tree whose objects take that many megabytes and do not compress.
fn history(seed: u64, megabytes: usize) -> WorkTree {
    let tree = WorkTree::new();
    let mut rng = Rng::with_seed(seed);
    let each = 1_000_000 / 20;
    for n in 0..megabytes.max(1) {
        for file in 0..20 {
            let content: Vec<u8> = (0..each).map(|_| rng.u8(..)).collect();
            let path = tree.path().join(format!("{n}-{file}"));
            std::fs::write(path, content).expect("a file");
        }
        tree.git(&["add", "."]);
        tree.git(&["commit", "-q", "-m", &format!("batch {n}")]);
    }
    tree
}

/// Seconds of one bare clone.
fn clone(url: &str) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let started = Instant::now();
    clone_into(folder.path(), url);
    started.elapsed().as_secs_f64()
}

fn clone_into(folder: &Path, url: &str) {
    let said = try_git(folder, &["clone", "-q", "--bare", url, "copy.git"]);
    assert!(said.ok, "{}", said.stderr);
}

fn clones_at_once(url: &str, count: usize) -> f64 {
    let folders: Vec<TempDir> = (0..count)
        .map(|_| tempfile::tempdir().expect("a folder"))
        .collect();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for folder in &folders {
            scope.spawn(|| clone_into(folder.path(), url));
        }
    });
    started.elapsed().as_secs_f64()
}

/// Milliseconds of one push.
fn push(tree: &WorkTree, url: &str) -> f64 {
    let started = Instant::now();
    tree.git(&["push", "-q", url, "main"]);
    started.elapsed().as_secs_f64() * 1e3
}

/// What `git ls-remote` asks, over connections that stay open: the advertisement, then the refs.
fn questions_per_second(address: SocketAddr, path: &str) -> f64 {
    const CLIENTS: usize = 4;
    const SPAN: Duration = Duration::from_secs(3);
    let asked = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let asked = Arc::clone(&asked);
            scope.spawn(move || {
                let mut stream = TcpStream::connect(address).expect("a server");
                stream.set_nodelay(true).expect("a TCP option");
                while started.elapsed() < SPAN {
                    ask(&mut stream, path);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    asked.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
}

fn ask(stream: &mut TcpStream, path: &str) {
    let refs = ls_refs(stream, path);
    assert!(refs.contains("refs/heads/topic-7"), "{refs}");
}

/// The answer to that question.
pub fn ls_refs(stream: &mut TcpStream, path: &str) -> String {
    let get = format!(
        "GET {path}/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: x\r\nGit-Protocol: version=2\r\n\r\n"
    );
    stream.write_all(get.as_bytes()).expect("a request");
    read_response(stream);
    let body = "0014command=ls-refs\n0016object-format=sha100010009peel\n000csymrefs\n0000";
    let post = format!(
        "POST {path}/git-upload-pack HTTP/1.1\r\nHost: x\r\nGit-Protocol: version=2\r\n\
         Content-Type: application/x-git-upload-pack-request\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(post.as_bytes()).expect("a request");
    String::from_utf8_lossy(&read_response(stream)).into_owned()
}

/// A whole response, chunked or of known length.
fn read_response(stream: &mut TcpStream) -> Vec<u8> {
    let mut read = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        let count = stream.read(&mut chunk).expect("an answer");
        assert!(count > 0, "the connection stays open");
        read.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&read);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let lower = head.to_ascii_lowercase();
        let length = lower
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .and_then(|text| text.trim().parse::<usize>().ok());
        let done = match length {
            Some(length) => body.len() >= length,
            None => body.ends_with("0\r\n\r\n"),
        };
        if done {
            return read;
        }
    }
}
