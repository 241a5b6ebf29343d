//! A thousand repositories that are held at once, and fifty git hosts, of which half are dead in
//! one way or another. Each repository names a few of them, and one at least that has its data.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use grasp_core::Event;
use testkit::grasp::DOMAIN;
use testkit::{Author, GitFault, GitHost, GitSeen, Project, Server, WorkTree, now};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;
use tokio::time::timeout_at;

use super::MAIN;
use crate::load::{Wire, get};
use crate::process::{cpu_of_children, cpu_seconds, memory_mb, unlimited};
use crate::report::{Report, percentile};

const REPOS: usize = 1_000;
const LIVING: usize = 25;
/// Of each kind: those that refuse connections, those that fail, and those that say nothing.
const DEAD: [usize; 3] = [9, 8, 8];
const OWNERS: usize = 20;
const MINUTE: Duration = Duration::from_secs(60);
/// Longer than it would take by far if all that the hosts allow were used.
const END: Duration = Duration::from_secs(240);
/// One host may be asked so often in a minute, and so often at once.
const PER_MINUTE: f64 = 30.0;
const AT_ONCE: f64 = 5.0;

pub fn measure(runtime: &Runtime, bin: &Path, scale: usize, report: &mut Report) {
    let count = REPOS / scale;
    eprintln!("{count} repositories held at once");
    let tree = WorkTree::new();
    let tip = tree.commit("README", b"the same everywhere");
    let hosts = runtime.block_on(Hosts::new(&tree));
    let mut server = start(bin);
    let messages = hosts.messages(count, &tip);
    runtime.block_on(async {
        let mut wire = Wire::connect(&server.ws_url()).await;
        wire.publish(messages).await;
    });
    server.terminate();
    server.set("NGIT_HUNT_ENABLED", "true");
    server.restart();
    let began = Instant::now();
    report.note(
        format!("{count} held: own memory at the start"),
        memory_mb(server.pid(), "RssAnon"),
        "MB",
    );
    let waits = runtime.block_on(watch(&server, began, count));
    waited(report, &waits, count);
    asked(report, &hosts, began);
    spent(report, &server, waits.len());
}

/// Hunts only when it is told to.
fn start(bin: &Path) -> Server {
    let own = [
        ("NGIT_DOMAIN", DOMAIN),
        ("NGIT_ACCEPT_UNRELATED_EVENTS", "false"),
        ("NGIT_ALLOW_PRIVATE_ADDRESSES", "true"),
        ("NGIT_SYNC_ENABLED", "false"),
        ("NGIT_HUNT_ENABLED", "false"),
    ];
    Server::start(bin, &[&unlimited()[..], &own].concat())
}

/// Seconds until each state was served, as far as it was.
async fn watch(server: &Server, began: Instant, count: usize) -> Vec<f64> {
    let mut wire = Wire::connect(&server.ws_url()).await;
    let question = r#"["REQ","states",{"kinds":[30618]}]"#;
    wire.send(question.to_owned()).await;
    let mut waits = Vec::new();
    let end = (began + END).into();
    while waits.len() < count
        && let Ok(text) = timeout_at(end, wire.next()).await
    {
        if text.starts_with(r#"["EVENT""#) {
            waits.push(began.elapsed().as_secs_f64());
        }
    }
    if waits.len() < count {
        eprintln!("{}", get(server.addr(), "/api/status"));
    }
    waits
}

fn waited(report: &mut Report, waits: &[f64], count: usize) {
    let mut waits = waits.to_vec();
    for minute in 1..=3 {
        let until = f64::from(minute) * 60.0;
        let served = waits.iter().filter(|wait| **wait <= until).count();
        let label = format!("{count} held: served after {minute} min");
        report.note(label, served as f64, "");
    }
    let served = waits.len() as f64;
    report.at_least(
        format!("{count} held: served after {} s", END.as_secs()),
        served,
        "",
        count as f64,
    );
    // Whoever was not served has waited until the end, at least.
    waits.resize(count, END.as_secs_f64());
    let p50 = percentile(&mut waits, 0.5);
    report.note(format!("{count} held: wait, p50"), p50, "s");
    let longest = percentile(&mut waits, 1.0);
    report.at_most(format!("{count} held: longest wait"), longest, "s", 180.0);
}

/// What the hosts saw.
fn asked(report: &mut Report, hosts: &Hosts, began: Instant) {
    for (label, hosts) in [
        ("living", &hosts.living),
        ("failing", &hosts.failing),
        ("silent", &hosts.silent),
    ] {
        let seen: Vec<GitSeen> = hosts.iter().map(GitHost::seen).collect();
        let at_once = seen.iter().map(|seen| seen.most_open).max();
        let name = format!("{} {label} hosts: fetches", hosts.len());
        let at_once = at_once.unwrap_or(0) as f64;
        report.at_most(format!("{name} at once at most"), at_once, "", AT_ONCE);
        let busiest = seen.iter().map(|seen| seen.busiest(MINUTE)).max();
        let busiest = busiest.unwrap_or(0) as f64;
        let label = format!("{name} in any minute at most");
        report.at_most(label, busiest, "", PER_MINUTE);
        let all: usize = seen.iter().map(GitSeen::discoveries).sum();
        report.note(format!("{name} in all"), all as f64, "");
        let first = seen.iter().map(|seen| within(seen, began + MINUTE));
        let share = first.sum::<usize>() as f64 / (hosts.len() as f64 * PER_MINUTE);
        let label = format!("{name} in the first minute, of what is allowed");
        report.note(label, share * 100.0, "%");
    }
}

/// Fetches that began before then.
fn within(seen: &GitSeen, end: Instant) -> usize {
    let fits = |(at, line): &&(Instant, String)| *at < end && line.starts_with("GET ");
    seen.requests.iter().filter(fits).count()
}

fn spent(report: &mut Report, server: &Server, served: usize) {
    let pid = server.pid();
    let each = 1e3 / served.max(1) as f64;
    let cpu = cpu_seconds(pid);
    report.note("CPU of the server", cpu, "s");
    report.note("CPU of the server for each repository", cpu * each, "ms");
    let children = cpu_of_children(pid) * each;
    let label = "CPU of its git processes for each repository";
    report.note(label, children, "ms");
    report.note("RSS at most", memory_mb(pid, "VmHWM"), "MB");
    let own = memory_mb(pid, "RssAnon");
    report.note("own memory at the end", own, "MB");
}

struct Hosts {
    living: Vec<GitHost>,
    failing: Vec<GitHost>,
    silent: Vec<GitHost>,
    /// Nobody listens there.
    closed: Vec<(TcpSocket, SocketAddr)>,
}

impl Hosts {
    async fn new(tree: &WorkTree) -> Self {
        let [closed, failing, silent] = DEAD;
        let hosts = Self {
            living: start_hosts(LIVING, &[]).await,
            failing: start_hosts(failing, &[GitFault::Status(500)]).await,
            silent: start_hosts(silent, &[GitFault::Tarpit]).await,
            closed: (0..closed).map(|_| closed_port()).collect(),
        };
        for host in &hosts.living {
            host.publish("all.git", tree, &["main"]);
        }
        hosts
    }

    /// Announcements and states, as they are sent.
    fn messages(&self, count: usize, tip: &str) -> Vec<String> {
        let mut rng = Rng::with_seed(11);
        let owners: Vec<Author> = (0..OWNERS as u64)
            .map(|n| Author::new(60_000 + n))
            .collect();
        let mut messages = Vec::new();
        for n in 0..count {
            let owner = &owners[n % OWNERS];
            let project = Project::new(owner, &format!("held-{n}"));
            let clones = self.clones(&format!("held-{n}.git"), &mut rng);
            let state = project.state(owner, now() - 90, &[(MAIN, tip)]);
            for event in [announced(&project, &clones), state] {
                messages.push(format!(r#"["EVENT",{}]"#, event.json()));
            }
        }
        messages
    }

    /// Two to four hosts in any order, of which one at least is alive and has the repository.
    fn clones(&self, name: &str, rng: &mut Rng) -> Vec<String> {
        let mut clones = vec![self.living_url(rng.usize(..LIVING), name)];
        let others = rng.usize(1..=3);
        while clones.len() <= others {
            let url = self.url(rng.usize(..2 * LIVING), name);
            if !clones.contains(&url) {
                clones.push(url);
            }
        }
        rng.shuffle(&mut clones);
        clones
    }

    fn url(&self, n: usize, name: &str) -> String {
        if n < LIVING {
            return self.living_url(n, name);
        }
        let dead = self.failing.iter().chain(&self.silent);
        let dead = dead.map(GitHost::addr);
        let mut dead = dead.chain(self.closed.iter().map(|(_, addr)| *addr));
        let addr = dead.nth(n - LIVING).expect("as many as live");
        format!("http://{addr}/{name}")
    }

    /// One repository under many names costs nothing to set up.
    fn living_url(&self, n: usize, name: &str) -> String {
        let host = &self.living[n];
        let dir = host.dir(name);
        if !dir.exists() {
            std::os::unix::fs::symlink(host.dir("all.git"), dir).expect("a link");
        }
        host.url(name)
    }
}

async fn start_hosts(count: usize, faults: &[GitFault]) -> Vec<GitHost> {
    let mut hosts = Vec::new();
    for _ in 0..count {
        hosts.push(GitHost::start(faults).await);
    }
    hosts
}

/// Taken, and not listened at.
fn closed_port() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(any).expect("a port");
    let addr = socket.local_addr().expect("an address");
    (socket, addr)
}

/// Listed at the server, with other git servers.
fn announced(project: &Project, clones: &[String]) -> Event {
    let at = now() - 100;
    let mut tags = project.announcement(at).tags.clone();
    for tag in tags.iter_mut().filter(|tag| tag[0] == "clone") {
        tag.extend(clones.iter().cloned());
    }
    project.owner.event_tags(30617, at, tags, "")
}
