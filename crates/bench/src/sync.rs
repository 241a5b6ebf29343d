//! The figures of sync with other relays: a server that hosts twenty repositories and has nothing
//! of what was said about them, and three relays that have all of it, each behind a line that
//! counts.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use grasp_core::Event;
use serde_json::{Value, json};
use testkit::grasp::DOMAIN;
use testkit::{Author, Client, Project, Proxy, Server, WorkTree, now};
use tokio::runtime::Runtime;
use tokio::time::{interval, timeout};

use crate::load::{Wire, get};
use crate::process::{build_server, cpu_seconds, fill, memory_mb, unlimited};
use crate::report::{Report, percentile};
use crate::synth::Synth;

const SOURCES: usize = 3;
const REPOS: usize = 20;
const ROOTS: usize = 100;
/// What was said long ago: a restart has no reason to ask for it.
const PAST: u64 = 1_700_000_000;
const DEADLINE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(50);
/// Longer than what is set as a long absence.
const ABSENCE: Duration = Duration::from_secs(3);
/// Between two events that are published while somebody listens.
const PACE: Duration = Duration::from_millis(10);

pub fn run(scale: usize) -> Report {
    let runtime = Runtime::new().expect("a runtime");
    let bin = build_server();
    let mut report = Report::default();
    let rooted = Said::new(ROOTS / scale, 5);
    let mut world = World::new(&runtime, &bin, &rooted, Lines::Counted, &[]);
    world.first(&mut report, "with NIP-77", 15.0, Some(1.3));
    drop(world);
    let without = ("NGIT_SYNC_DISABLE_NEGENTROPY", "true");
    let mut world = World::new(&runtime, &bin, &rooted, Lines::Counted, &[without]);
    world.first(&mut report, "without NIP-77", 30.0, None);
    drop(world);
    let mut world = World::new(&runtime, &bin, &rooted, Lines::Direct, &[]);
    world.live(&mut report, 1_000 / scale);
    drop(world);
    let rooted = Said::new(ROOTS / scale, 9);
    let mut world = World::new(&runtime, &bin, &rooted, Lines::Counted, &[]);
    let first = world.first(&mut report, "for the restarts", 25.0, Some(1.3));
    world.restarts(&mut report, first);
    report
}

/// Repositories, and everything that people say about them.
struct Said {
    projects: Vec<Project>,
    roots: Vec<Event>,
    comments: Vec<Event>,
}

impl Said {
    fn new(roots: usize, comments: usize) -> Self {
        let mut synth = Synth::new(5);
        let mut at = PAST;
        let mut said = Self {
            projects: (0..REPOS).map(project).collect(),
            roots: Vec::new(),
            comments: Vec::new(),
        };
        eprintln!("signing {} events", REPOS * roots * (1 + comments));
        for n in 0..roots {
            for project in &said.projects {
                at += 600;
                let by = Author::new(40_000 + n as u64 % 50);
                let tags = vec![
                    tag(&["a", &project.address()]),
                    tag(&["p", &project.owner.pubkey().to_string()]),
                    tag(&["subject", "something is not as it should be"]),
                ];
                let root = by.event_tags(1621, at, tags, &synth.text());
                for n in 0..comments {
                    let text = synth.text();
                    said.comments.push(comment(&root, at + 1 + n as u64, &text));
                }
                said.roots.push(root);
            }
        }
        said
    }

    fn all(&self) -> impl Iterator<Item = &Event> {
        self.roots.iter().chain(&self.comments)
    }

    fn len(&self) -> usize {
        self.roots.len() + self.comments.len()
    }

    /// Every event once, each in its frame.
    fn one_copy(&self) -> f64 {
        let frame = r#"["EVENT","12",]"#.len() + 4;
        let bytes: usize = self.all().map(|event| event.json().len() + frame).sum();
        bytes as f64
    }
}

fn project(n: usize) -> Project {
    let owner = Author::new(30_000 + n as u64);
    Project::new(&owner, &format!("repository-{n}"))
}

fn comment(root: &Event, at: u64, text: &str) -> Event {
    let id = root.id.to_string();
    let tags = vec![
        tag(&["E", &id]),
        tag(&["K", "1621"]),
        tag(&["P", &root.pubkey.to_string()]),
        tag(&["e", &id]),
        tag(&["k", "1621"]),
    ];
    Author::new(41_000 + at % 50).event_tags(1111, at, tags, text)
}

fn tag(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

/// How the target reaches the sources.
enum Lines {
    Counted,
    /// As fast as may be.
    Direct,
}

struct World<'a> {
    runtime: &'a Runtime,
    said: &'a Said,
    sources: Vec<Server>,
    lines: Vec<Proxy>,
    target: Server,
}

impl<'a> World<'a> {
    /// Sources with everything, and a target that hosts the repositories and has heard nothing yet.
    fn new(
        runtime: &'a Runtime,
        bin: &Path,
        said: &'a Said,
        lines: Lines,
        env: &[(&str, &str)],
    ) -> Self {
        let mut sources: Vec<Server> = (0..SOURCES).map(|_| source(bin)).collect();
        let lines: Vec<Proxy> = match lines {
            Lines::Counted => {
                let lead = |source: &Server| runtime.block_on(Proxy::start(source.addr()));
                sources.iter().map(lead).collect()
            }
            Lines::Direct => Vec::new(),
        };
        let relays: Vec<String> = match lines.is_empty() {
            true => sources.iter().map(Server::ws_url).collect(),
            false => lines.iter().map(Proxy::ws_url).collect(),
        };
        let grasp = [
            ("NGIT_DOMAIN", DOMAIN),
            ("NGIT_ACCEPT_UNRELATED_EVENTS", "false"),
            ("NGIT_ALLOW_PRIVATE_ADDRESSES", "true"),
            ("NGIT_SYNC_ENABLED", "false"),
        ];
        let mut target = Server::start(bin, &[&unlimited()[..], &grasp, env].concat());
        let mut kept: Vec<Event> = said.all().cloned().collect();
        for project in &said.projects {
            kept.extend(runtime.block_on(host(&target, project, &relays)));
        }
        for source in &mut sources {
            source.terminate();
            fill(&source.data_dir().join("relay"), kept.iter().cloned());
            source.restart();
        }
        target.terminate();
        target.set("NGIT_SYNC_ENABLED", "true");
        Self {
            runtime,
            said,
            sources,
            lines,
            target,
        }
    }

    /// Bytes that the target has received from the sources.
    fn received(&self) -> f64 {
        let bytes = self.lines.iter().map(Proxy::bytes_from_server);
        bytes.sum::<u64>() as f64
    }

    /// From the start to the last event. The bytes of it.
    fn first(&mut self, report: &mut Report, how: &str, seconds: f64, copies: Option<f64>) -> f64 {
        let count = self.said.len();
        let name = format!("first sync of {count} events {how}");
        eprintln!("{name}");
        let started = Instant::now();
        self.target.restart();
        self.runtime.block_on(self.complete());
        let taken = started.elapsed().as_secs_f64();
        report.at_most(&name, taken, "s", seconds);
        self.runtime.block_on(self.in_step());
        let taken = started.elapsed().as_secs_f64();
        report.note(format!("{name}: in step after"), taken, "s");
        let bytes = self.received();
        let ratio = bytes / self.said.one_copy();
        let label = format!("{name}: bytes over one copy");
        match copies {
            Some(limit) => report.at_most(label, ratio, "times", limit),
            None => report.note(label, ratio, "times"),
        }
        let pid = self.target.pid();
        report.note(format!("{name}: CPU"), cpu_seconds(pid), "s");
        report.note(format!("{name}: RSS"), memory_mb(pid, "VmRSS"), "MB");
        let own = memory_mb(pid, "RssAnon");
        report.note(format!("{name}: own memory"), own, "MB");
        bytes
    }

    /// Everything that was said is served by the target.
    async fn complete(&self) {
        let mut wire = Wire::connect(&self.target.ws_url()).await;
        let wanted = self.said.len() as u64;
        let mut looks = interval(LOOK);
        let deadline = Instant::now() + DEADLINE;
        loop {
            looks.tick().await;
            let question = r#"["COUNT","all",{"kinds":[1621,1111]}]"#;
            wire.send(question.to_owned()).await;
            let found = wire.next_of("COUNT").await[2]["count"].as_u64();
            if found == Some(wanted) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{found:?} of {wanted}\n{:#}\n{}",
                self.status(),
                self.target.log()
            );
        }
    }

    fn status(&self) -> Value {
        let body = get(self.target.addr(), "/api/status");
        let status: Value = serde_json::from_str(&body).expect("the status is JSON");
        status["sync"].clone()
    }

    /// All sources are connected, and nothing is missing.
    async fn in_step(&self) {
        let mut looks = interval(LOOK);
        let deadline = Instant::now() + DEADLINE;
        loop {
            looks.tick().await;
            let status = self.status();
            let relays = status["relays"].as_array().cloned().unwrap_or_default();
            let connected = relays.iter().filter(|relay| relay["state"] == "connected");
            if connected.count() == SOURCES {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{status:#}\n{}",
                self.target.log()
            );
        }
    }

    /// From the moment in which an event is published at a source to that in which somebody who
    /// listens at the target has it.
    fn live(&mut self, report: &mut Report, count: usize) {
        eprintln!("live, {count} events");
        self.target.restart();
        self.runtime.block_on(async {
            self.complete().await;
            self.in_step().await;
        });
        let at = now();
        let events: Vec<Event> = (0..count)
            .map(|n| {
                let root = &self.said.roots[n * 7 % self.said.roots.len()];
                comment(root, at, &format!("And once more: {n}"))
            })
            .collect();
        let (mut there, mut here) = self.runtime.block_on(async {
            let there = listen(&self.sources[0], count).await;
            let here = listen(&self.target, count).await;
            let mut wire = Wire::connect(&self.sources[0].ws_url()).await;
            let mut sent = HashMap::new();
            let mut pace = interval(PACE);
            for event in &events {
                let frame = format!(r#"["EVENT",{}]"#, event.json());
                pace.tick().await;
                sent.insert(event.id.to_string(), Instant::now());
                wire.send(frame).await;
            }
            let since = |heard: Vec<(String, Instant)>| {
                let since = heard.iter().map(|(id, at)| at.duration_since(sent[id]));
                let millis: Vec<f64> = since.map(|span| span.as_secs_f64() * 1e3).collect();
                millis
            };
            let there = there.await.expect("everything is heard at the source");
            let here = here.await.expect("everything is heard at the target");
            (since(there), since(here))
        });
        let name = "live, published at a source and heard";
        let p50 = percentile(&mut there, 0.5);
        report.note(format!("{name} there: p50"), p50, "ms");
        let p99 = percentile(&mut there, 0.99);
        report.note(format!("{name} there: p99"), p99, "ms");
        let p50 = percentile(&mut here, 0.5);
        report.at_most(format!("{name} at the target: p50"), p50, "ms", 5.0);
        let p99 = percentile(&mut here, 0.99);
        report.at_most(format!("{name} at the target: p99"), p99, "ms", 30.0);
    }

    /// What comes again after a restart, next to what came at first.
    fn restarts(&mut self, report: &mut Report, first: f64) {
        let count = self.said.len();
        self.target.terminate();
        let share = self.again() / first * 100.0;
        let name = format!("bytes after a restart, {count} events");
        report.at_most(&name, share, "%", 2.0);
        self.target.kill9();
        let share = self.again() / first * 100.0;
        report.note(format!("{name}, after kill -9"), share, "%");
        self.target.terminate();
        // So long an absence that everything is compared again.
        self.target.set("NGIT_SYNC_STALE_AFTER_SECS", "1");
        std::thread::sleep(ABSENCE);
        let share = self.again() / first * 100.0;
        self.target.wait_for_log("clearing state for fresh sync");
        report.note(format!("{name}, all compared again"), share, "%");
    }

    fn again(&mut self) -> f64 {
        let before = self.received();
        self.target.restart();
        self.runtime.block_on(async {
            self.in_step().await;
            self.complete().await;
        });
        self.received() - before
    }
}

/// A plain relay that keeps its address.
fn source(bin: &Path) -> Server {
    let env = [&unlimited()[..], &[("NGIT_SYNC_ENABLED", "false")]].concat();
    let mut source = Server::start(bin, &env);
    let addr = source.addr().to_string();
    source.set("NGIT_BIND_ADDRESS", &addr);
    source
}

/// Announces and pushes a repository. Its announcement and state.
async fn host(target: &Server, project: &Project, relays: &[String]) -> [Event; 2] {
    let tree = WorkTree::new();
    let first = tree.commit("README", project.identifier.as_bytes());
    let announcement = project.announcement_at(PAST, &[DOMAIN.to_owned()], relays);
    let state = project.state(&project.owner, PAST, &[("refs/heads/main", &first)]);
    let mut client = Client::connect(&target.ws_url()).await;
    for event in [&announcement, &state] {
        let (taken, why) = client.publish(event).await;
        assert!(taken, "{why}");
    }
    tree.git(&["push", "-q", &project.url(target), "main"]);
    let filter = json!({"ids": [announcement.id]});
    let found = client.request("served", &[filter]).await;
    assert_eq!(found.len(), 1, "the repository is served");
    client.close().await;
    [announcement, state]
}

/// Hears so many new comments at a server, and when.
async fn listen(server: &Server, count: usize) -> tokio::task::JoinHandle<Vec<(String, Instant)>> {
    let mut wire = Wire::connect(&server.ws_url()).await;
    let question = r#"["REQ","live",{"kinds":[1111],"limit":0}]"#;
    wire.send(question.to_owned()).await;
    wire.next_of("EOSE").await;
    tokio::spawn(async move {
        let mut heard = Vec::new();
        for _ in 0..count {
            let text = timeout(DEADLINE, wire.next()).await.expect("an event");
            let at = Instant::now();
            heard.push((text, at));
        }
        let id = |text: &str| {
            let frame: Value = serde_json::from_str(text).expect("JSON");
            frame[2]["id"].as_str().expect("an event").to_owned()
        };
        heard.iter().map(|(text, at)| (id(text), *at)).collect()
    })
}
