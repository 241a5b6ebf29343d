//! What one new issue costs the planner of sync, and what repositories and issues cost in memory:
//! the real machine in virtual time, with relays that have nothing and answer at once. The scale is
//! that of E22, ten times over, and the cost of an issue must not grow with it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use grasp_core::sync::io::{Description, End, FromRelay, ToRelay};
use grasp_core::sync::{Here, News, Stage, Sync, SyncEffect};
use grasp_core::{
    ConnNo, EventId, Identifier, Mono, Now, Pubkey, RelayNo, RelayUrl, RepoId, SyncLimits,
    Timestamp,
};
use rustix::time::{ClockId, clock_gettime};

use crate::process::memory_mb;
use crate::report::{Report, percentile};

const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];
const RELAYS: usize = 500;
/// Relays of one repository, each from its own hundred.
const RELAYS_EACH: usize = 5;
/// Issues of one repository before the measurement.
const ROOTS_EACH: usize = 10;
/// News that are told at once while a world is made.
const AT_ONCE: usize = 5_000;
const ROUNDS: usize = 40;
const PER_ROUND: usize = 100;

pub fn run(scale: usize) -> Report {
    let mut report = Report::default();
    // The largest first, in fresh memory.
    let mut worlds = Vec::new();
    for (n, size) in SIZES.iter().rev().enumerate() {
        let mut world = World::new((size / scale).max(SIZES[0]));
        match n {
            0 => world.weigh(&mut report),
            _ => world.grow(),
        }
        worlds.push(world);
    }
    worlds.reverse();
    // In turn, so that all see the same weather.
    for _ in 0..ROUNDS {
        for world in &mut worlds {
            world.measure();
        }
    }
    let all = worlds.iter_mut();
    let costs: Vec<Cost> = all.map(|world| world.cost(&mut report)).collect();
    let (small, large) = (&costs[0], &costs[SIZES.len() - 1]);
    let name = "a new issue: the most repositories over the fewest";
    report.at_most(name, large.told / small.told, "times", 2.0);
    let ratio = large.answered / small.answered;
    report.at_most(format!("{name}, with answers"), ratio, "times", 2.0);
    report
}

struct World {
    sync: Sync,
    limits: SyncLimits,
    now: Now,
    rng: Rng,
    repos: Vec<RepoId>,
    /// Half of the relays answer.
    reachable: bool,
    /// Lines that are up.
    lines: BTreeMap<RelayNo, ConnNo>,
    /// Microseconds from an issue to the requests for it, and to the end of their answers.
    told: Vec<f64>,
    answered: Vec<f64>,
}

/// Means, in microseconds.
struct Cost {
    told: f64,
    answered: f64,
}

/// Nothing is stored: relays have nothing either.
struct Nothing;

impl Here for Nothing {
    fn has(&self, _: &EventId) -> bool {
        false
    }

    fn held_announcements(&self) -> Vec<(Timestamp, EventId)> {
        Vec::new()
    }

    fn released(&self) -> u64 {
        0
    }

    fn repository_of(&self, _: &EventId) -> Option<RepoId> {
        None
    }
}

impl World {
    fn new(size: usize) -> Self {
        let limits = SyncLimits::default();
        Self {
            sync: Sync::new(limits.clone(), 1),
            limits,
            now: Now {
                mono: Mono(Duration::from_secs(1)),
                unix: Timestamp(1_700_000_000),
            },
            rng: Rng::with_seed(size as u64),
            repos: (0..size).map(repo).collect(),
            reachable: false,
            lines: BTreeMap::new(),
            told: Vec::new(),
            answered: Vec::new(),
        }
    }

    fn grow(&mut self) {
        eprintln!("{} repositories", self.repos.len());
        self.sync.start(&[], self.now);
        self.announce();
        self.issues();
        self.connect();
    }

    /// Grows, and weighs what that takes.
    fn weigh(&mut self, report: &mut Report) {
        let own = || memory_mb(std::process::id(), "RssAnon") * 1024.0 * 1024.0;
        let count = self.repos.len() as f64;
        let roots = count * ROOTS_EACH as f64;
        eprintln!("{count} repositories, weighed");
        self.sync.start(&[], self.now);
        let empty = own();
        self.announce();
        let announced = own();
        let name = format!("memory of a repository at {RELAYS_EACH} relays");
        report.note(&name, (announced - empty) / count, "bytes");
        self.issues();
        let told = own();
        report.note("memory of an issue", (told - announced) / roots, "bytes");
        self.connect();
        let name = "memory of an issue, with what is watched at half of its relays";
        report.note(name, (own() - announced) / roots, "bytes");
    }

    fn announce(&mut self) {
        for first in (0..self.repos.len()).step_by(AT_ONCE) {
            let last = (first + AT_ONCE).min(self.repos.len());
            for n in first..last {
                let news = News::Announced {
                    repo: self.repos[n].clone(),
                    relays: relays(n),
                    stage: Stage::Served,
                };
                self.sync.news(news, self.now.mono);
            }
            self.pass(self.limits.batch_window);
        }
        assert_eq!(self.sync.targets().repos.len(), self.repos.len());
        assert_eq!(self.sync.targets().relays.len(), RELAYS);
    }

    fn issues(&mut self) {
        let all = self.repos.len() * ROOTS_EACH;
        for first in (0..all).step_by(AT_ONCE) {
            for n in first..(first + AT_ONCE).min(all) {
                let news = self.issue(n % self.repos.len());
                self.sync.news(news, self.now.mono);
            }
            self.pass(self.limits.batch_window);
        }
        assert_eq!(self.sync.targets().repos.roots(), all);
    }

    fn issue(&mut self, repo: usize) -> News {
        let mut id = [0; 32];
        self.rng.fill(&mut id);
        News::Root {
            id: EventId(id),
            repos: vec![self.repos[repo].clone()],
            at: self.now.unix,
        }
    }

    /// Half of the relays are there from now on, and everything is in step with them.
    fn connect(&mut self) {
        let started = Instant::now();
        self.reachable = true;
        self.pass(self.limits.backoff.max);
        let waiting = |world: &Self| {
            let relays = world.sync.targets().relays.iter();
            let up = relays.filter(|(no, _)| is_there(*no));
            up.filter(|(_, relay)| !(relay.missing().is_empty() && relay.pending.is_empty()))
                .count()
        };
        while self.lines.len() < RELAYS / 2 || waiting(self) > 0 {
            self.pass(Duration::from_secs(10));
            assert!(
                started.elapsed() < Duration::from_secs(600),
                "never in step"
            );
        }
        eprintln!("  in step after {:?}", started.elapsed());
    }

    fn pass(&mut self, span: Duration) {
        self.skip(span);
        self.sync.handle_timeout(self.now, &Nothing);
        self.settle();
    }

    fn skip(&mut self, span: Duration) {
        let before = self.now.mono.0.as_secs();
        self.now.mono = self.now.mono + span;
        self.now.unix.0 += self.now.mono.0.as_secs() - before;
    }

    fn settle(&mut self) {
        loop {
            let effects = self.drain();
            if effects.is_empty() {
                return;
            }
            self.answer(effects);
        }
    }

    fn drain(&mut self) -> Vec<SyncEffect> {
        std::iter::from_fn(|| self.sync.poll_effect()).collect()
    }

    fn answer(&mut self, effects: Vec<SyncEffect>) {
        for effect in effects {
            let SyncEffect::Ask { relay, conn, what } = effect else {
                continue;
            };
            let word = match what {
                ToRelay::Dial { .. } if is_there(relay) && self.reachable => {
                    self.lines.insert(relay, conn);
                    FromRelay::Up
                }
                ToRelay::Dial { .. } => FromRelay::Down(End::Refused),
                ToRelay::Describe => FromRelay::Described(Some(description())),
                ToRelay::Subscribe { sub, .. } => FromRelay::Eose {
                    sub,
                    sent: 0,
                    complete: true,
                },
                ToRelay::Reconcile { sub, .. } => FromRelay::Reconciled {
                    sub,
                    from: Timestamp(0),
                    compared: 0,
                    lacks: 0,
                    some: Vec::new(),
                },
                ToRelay::HangUp
                | ToRelay::Unsubscribe(_)
                | ToRelay::EndReconcile(_)
                | ToRelay::Authenticate { .. } => continue,
            };
            self.sync.handle(relay, conn, word, self.now, &Nothing);
        }
    }

    fn measure(&mut self) {
        for _ in 0..PER_ROUND {
            let repo = self.rng.usize(..self.repos.len());
            let news = self.issue(repo);
            let started = cpu_us();
            self.sync.news(news, self.now.mono);
            self.skip(self.limits.quiet);
            self.sync.handle_timeout(self.now, &Nothing);
            let effects = self.drain();
            self.told.push(cpu_us() - started);
            self.answer(effects);
            self.settle();
            self.answered.push(cpu_us() - started);
        }
        // All lines are alive.
        let lines: Vec<_> = self.lines.iter().map(|(no, conn)| (*no, *conn)).collect();
        for (relay, conn) in lines {
            let word = FromRelay::Heard;
            self.sync.handle(relay, conn, word, self.now, &Nothing);
        }
        self.settle();
    }

    fn cost(&mut self, report: &mut Report) -> Cost {
        let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len() as f64;
        let name = format!("a new issue, {} repositories", self.repos.len());
        let cost = Cost {
            told: mean(&self.told),
            answered: mean(&self.answered),
        };
        report.note(&name, cost.told, "us");
        let p99 = percentile(&mut self.told, 0.99);
        report.note(format!("{name}: p99"), p99, "us");
        let worst = percentile(&mut self.told, 1.0);
        report.note(format!("{name}: worst"), worst, "us");
        report.note(format!("{name}, with answers"), cost.answered, "us");
        cost
    }
}

/// What this thread has worked: others on the machine do not count.
fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn repo(n: usize) -> RepoId {
    let mut owner = [7; 32];
    owner[..8].copy_from_slice(&(n as u64 / 4).to_be_bytes());
    let name = Identifier::parse(&format!("repository-{n}")).expect("a name");
    RepoId::new(Pubkey(owner), name)
}

/// A hundred repositories name all relays; more of them name each as often.
fn relays(repo: usize) -> Vec<RelayUrl> {
    let each = RELAYS / RELAYS_EACH;
    let relay = |k: usize| each * k + (repo + k * (repo / each)) % each;
    let url = |n: usize| RelayUrl::parse(&format!("wss://relay{n}.example"));
    let urls = (0..RELAYS_EACH).map(|k| url(relay(k)).expect("an address"));
    urls.collect()
}

fn is_there(relay: RelayNo) -> bool {
    relay.0.is_multiple_of(2)
}

/// As our own server describes itself.
fn description() -> Description {
    Description {
        subscriptions: Some(256),
        filters: Some(64),
        message_bytes: Some(512 * 1024),
        limit: Some(500),
        filter_values: Some(2_000),
        connection_values: Some(40_000),
        reconciles: true,
    }
}
