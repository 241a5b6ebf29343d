//! From the moment in which a state is served at one server to that in which another serves its
//! refs, next to a plain `git fetch` of the same objects.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use grasp_core::Event;
use serde_json::json;
use tempfile::TempDir;
use testkit::git::try_git;
use testkit::{Author, Client, Project, Server, WorkTree, now};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

use super::MAIN;
use crate::git::ls_refs;
use crate::load::{Wire, get};
use crate::process::{cpu_of_children, cpu_seconds, unlimited};
use crate::report::{Report, percentile};

const REPOS: usize = 6;
const STATES: usize = 60;
/// What came from another relay is looked for after this long.
const DELAY_MS: f64 = 500.0;
const DEADLINE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

pub fn measure(runtime: &Runtime, bin: &Path, scale: usize, report: &mut Report) {
    let states = STATES / scale;
    let name = "pushed at A, served by B";
    eprintln!("{name}, {states} states");
    let (a, b) = (start(bin), start(bin));
    let mut copies: Vec<Copy> = (0..REPOS)
        .map(|n| runtime.block_on(Copy::new(&a, &b, n)))
        .collect();
    let mut ears = runtime.block_on(Ears::new(&a, &b));
    let before = Spent::of(&b);
    let (mut totals, mut fetches, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..states {
        let copy = &mut copies[n % REPOS];
        let total = runtime.block_on(copy.next(&mut ears));
        let fetch = copy.fetch();
        totals.push(total);
        fetches.push(fetch);
        ours.push(total - DELAY_MS - fetch);
    }
    let spent = Spent::of(&b).since(&before);
    for (label, share) in [("p50", 0.5), ("p99", 0.99)] {
        let total = percentile(&mut totals, share);
        report.note(format!("{name}: {label}"), total, "ms");
        let fetch = percentile(&mut fetches, share);
        report.note(format!("the same with git fetch: {label}"), fetch, "ms");
        let own = percentile(&mut ours, share);
        let label = format!("{name}: beyond 500 ms and git fetch, {label}");
        match share > 0.5 {
            true => report.note(label, own, "ms"),
            false => report.at_most(label, own, "ms", 100.0),
        }
    }
    let each = 1e3 / spent.fetches;
    report.note("a fetch as B counts it: mean", spent.fetching * each, "ms");
    report.note(
        "fetches of B for each state",
        spent.fetches / states as f64,
        "",
    );
    report.note("CPU of B per fetch", spent.own * each, "ms");
    let children = spent.children * each;
    report.note("CPU of the git processes of B per fetch", children, "ms");
}

/// A server under an address of its own, which asks another as often as it likes.
fn start(bin: &Path) -> Server {
    let addr = free_port().to_string();
    let own = [
        ("NGIT_BIND_ADDRESS", addr.as_str()),
        ("NGIT_DOMAIN", addr.as_str()),
        ("NGIT_ACCEPT_UNRELATED_EVENTS", "false"),
        ("NGIT_ALLOW_PRIVATE_ADDRESSES", "true"),
        ("NGIT_SYNC_DOMAIN_RATE_LIMIT", "1000"),
    ];
    Server::start(bin, &[&unlimited()[..], &own].concat())
}

fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}

/// One repository at both, and a plain copy of it.
struct Copy {
    project: Project,
    tree: WorkTree,
    clock: u64,
    /// Where A has it.
    url: String,
    /// To ask B for its refs.
    path: String,
    refs: TcpStream,
    plain: TempDir,
}

impl Copy {
    /// Announced at both, pushed to A, and served by B.
    async fn new(a: &Server, b: &Server, n: usize) -> Self {
        let project = Project::new(&Author::new(50_000 + n as u64), &format!("mirrored-{n}"));
        let hosts = [a.addr().to_string(), b.addr().to_string()];
        let clock = now() - 10_000;
        let announcement = project.announcement_at(clock, &hosts, &[]);
        let tree = WorkTree::new();
        let first = tree.commit("README", project.identifier.as_bytes());
        let state = project.state(&project.owner, clock, &[(MAIN, &first)]);
        publish(a, &announcement).await;
        publish(b, &announcement).await;
        publish(a, &state).await;
        let url = project.url(a);
        tree.git(&["push", "-q", &url, "main"]);
        served(b, &state).await;
        let plain = tempfile::tempdir().expect("a folder");
        let said = try_git(plain.path(), &["clone", "-q", "--bare", &url, "."]);
        assert!(said.ok, "{}", said.stderr);
        let path = project.url(b).replace(&b.http_url(), "");
        let refs = TcpStream::connect(b.addr()).expect("B listens");
        refs.set_nodelay(true).expect("a TCP option");
        Self {
            project,
            tree,
            clock,
            url,
            path,
            refs,
            plain,
        }
    }

    /// One more commit: milliseconds from its state being served at A to its refs at B.
    async fn next(&mut self, ears: &mut Ears) -> f64 {
        self.clock += 1;
        let tip = self.tree.commit("note", self.clock.to_string().as_bytes());
        let by = &self.project.owner;
        let state = self.project.state(by, self.clock, &[(MAIN, &tip)]);
        let frame = format!(r#"["EVENT",{}]"#, state.json());
        ears.speak.send(frame).await;
        let answer = ears.speak.next_of("OK").await;
        assert_eq!(answer[2], true, "{answer}");
        self.tree.git(&["push", "-q", &self.url, "main"]);
        let began = ears.a.hear(&state).await;
        ears.b.hear(&state).await;
        while !ls_refs(&mut self.refs, &self.path).contains(&tip) {
            assert!(began.elapsed() < DEADLINE, "{tip} is not shown");
        }
        began.elapsed().as_secs_f64() * 1e3
    }

    /// Milliseconds in which git itself fetches that commit from A.
    fn fetch(&self) -> f64 {
        let started = Instant::now();
        let refs = "+refs/heads/main:refs/heads/main";
        let said = try_git(self.plain.path(), &["fetch", "-q", &self.url, refs]);
        assert!(said.ok, "{}", said.stderr);
        started.elapsed().as_secs_f64() * 1e3
    }
}

/// Somebody who publishes at A, and who listens at both.
struct Ears {
    speak: Wire,
    a: Ear,
    b: Ear,
}

impl Ears {
    async fn new(a: &Server, b: &Server) -> Self {
        Self {
            speak: Wire::connect(&a.ws_url()).await,
            a: Ear::new(a).await,
            b: Ear::new(b).await,
        }
    }
}

/// Which states a server has begun to serve, and when.
struct Ear {
    heard: UnboundedReceiver<(Instant, String)>,
    listening: JoinHandle<()>,
}

impl Ear {
    async fn new(server: &Server) -> Self {
        let mut wire = Wire::connect(&server.ws_url()).await;
        let question = r#"["REQ","states",{"kinds":[30618],"limit":0}]"#;
        wire.send(question.to_owned()).await;
        wire.next_of("EOSE").await;
        let (sender, heard) = unbounded_channel();
        let listening = tokio::spawn(async move {
            loop {
                let text = wire.next().await;
                let _ = sender.send((Instant::now(), text));
            }
        });
        Self { heard, listening }
    }

    async fn hear(&mut self, state: &Event) -> Instant {
        let id = state.id.to_string();
        loop {
            let heard = timeout(DEADLINE, self.heard.recv()).await;
            let (at, text) = heard.expect("it is served in time").expect("a server");
            if text.contains(&id) {
                return at;
            }
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// What a server has used up so far, in seconds.
struct Spent {
    own: f64,
    children: f64,
    fetches: f64,
    fetching: f64,
}

impl Spent {
    fn of(server: &Server) -> Self {
        let metrics = get(server.addr(), "/metrics");
        let metric = |name: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            line.map_or(0.0, |value| value.trim().parse().expect("a number"))
        };
        Self {
            own: cpu_seconds(server.pid()),
            children: cpu_of_children(server.pid()),
            fetches: metric("ngit_hunt_fetch_seconds_count"),
            fetching: metric("ngit_hunt_fetch_seconds_sum"),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            own: self.own - before.own,
            children: self.children - before.children,
            fetches: self.fetches - before.fetches,
            fetching: self.fetching - before.fetching,
        }
    }
}

async fn publish(server: &Server, event: &Event) {
    let mut client = Client::connect(&server.ws_url()).await;
    let (taken, why) = client.publish(event).await;
    assert!(taken, "{why}");
    client.close().await;
}

/// Looks until an event is served.
async fn served(server: &Server, event: &Event) {
    let mut client = Client::connect(&server.ws_url()).await;
    let deadline = Instant::now() + DEADLINE;
    let mut looks = interval(LOOK);
    let count = json!(["COUNT", "here", {"ids": [event.id]}]);
    loop {
        client.send(&count).await;
        if client.expect("COUNT").await[2]["count"] == 1 {
            return client.close().await;
        }
        assert!(Instant::now() < deadline, "{}", server.log());
        looks.tick().await;
    }
}
