//! The other git servers of the world: what each has, and how it answers.

mod address;
mod traits;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use fastrand::Rng;
use grasp_core::git::ObjectId;
use grasp_core::hunt::io::{FetchAsk, FetchEnd, Fetched, PART};
use grasp_core::{DomainLimits, HuntLimits};

pub(crate) use self::address::{Site, site, spell};
pub(crate) use self::traits::Traits;
use self::traits::{Manner, accident, own_fault};

const MINUTE: Duration = Duration::from_secs(60);
/// Bytes of one object, for the sums.
const SIZE: u64 = 1_000;

/// How many there are, what they are like, and how much we ask of them.
pub(crate) struct Places {
    pub(crate) traits: Vec<Traits>,
    pub(crate) limits: HuntLimits,
    /// Of 1,000 fetches in a storm, how many go wrong because of us.
    pub(crate) own_faults: u32,
    /// Mean time between two moves of a repository to another server; none if zero.
    pub(crate) moves: Duration,
}

pub(crate) struct Hosts {
    rng: Rng,
    hosts: Vec<Host>,
    own_faults: u32,
}

pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) traits: Traits,
    repos: BTreeMap<String, Shelf>,
    asked: VecDeque<Duration>,
    /// When it last failed us, as far as this life of ours knows.
    pub(crate) failed_at: Option<Duration>,
}

/// A repository at a server.
#[derive(Default)]
struct Shelf {
    /// Shown to nobody.
    absent: bool,
    objects: BTreeMap<ObjectId, Duration>,
    /// Parts that were sent already.
    sent: u8,
}

/// What is heard of a pack while it comes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Flow {
    /// So many bytes so far.
    Came(u64),
    /// All of it, and we are at work on it.
    Whole,
}

/// How a fetch goes if nobody stops it.
pub(crate) struct Course {
    pub(crate) flows: Vec<(Duration, Flow)>,
    pub(crate) ends: Duration,
    pub(crate) end: FetchEnd,
}

impl Places {
    pub(crate) fn none() -> Self {
        Self {
            traits: Vec::new(),
            limits: HuntLimits::default(),
            own_faults: 0,
            moves: Duration::ZERO,
        }
    }

    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let many = match rng.u8(0..8) {
            0 => rng.usize(12..40),
            _ => rng.usize(1..12),
        };
        let odd = match rng.u8(0..4) {
            0 => 0,
            _ => rng.u32(0..70),
        };
        Self {
            traits: (0..many).map(|_| Traits::draw(rng, odd)).collect(),
            limits: limits(rng),
            own_faults: if rng.bool() { rng.u32(0..100) } else { 0 },
            moves: match rng.bool() {
                true => Duration::from_secs(rng.u64(20..200)),
                false => Duration::ZERO,
            },
        }
    }
}

fn limits(rng: &mut Rng) -> HuntLimits {
    let plain = HuntLimits::default();
    if rng.u8(0..3) != 0 {
        return plain;
    }
    let domain = |rng: &mut Rng| DomainLimits {
        concurrent: rng.u32(1..4),
        per_minute: rng.u32(2..12),
    };
    let own = grasp_core::clone_url::Domain::parse("g0.example");
    HuntLimits {
        domain: domain(rng),
        domains: own.into_iter().map(|own| (own, domain(rng))).collect(),
        fetches: rng.usize(1..6),
        ..plain
    }
}

impl Hosts {
    pub(crate) fn new(mut rng: Rng, places: &Places) -> Self {
        let host = |(n, traits): (usize, &Traits)| Host {
            name: name(&mut rng, n),
            traits: traits.clone(),
            repos: BTreeMap::new(),
            asked: VecDeque::new(),
            failed_at: None,
        };
        let hosts = places.traits.iter().enumerate().map(host).collect();
        Self {
            rng,
            hosts,
            own_faults: places.own_faults,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    pub(crate) fn at(&self, site: &Site) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == site.domain)
    }

    /// Somebody brings objects to a server.
    pub(crate) fn put(&mut self, host: usize, path: &str, objects: &[ObjectId], now: Duration) {
        let rng = &mut self.rng;
        let Some(host) = self.hosts.get_mut(host) else {
            return;
        };
        let (absent, loses) = (host.traits.absent, host.traits.loses);
        let shelf = host.repos.entry(path.to_owned());
        let shelf = shelf.or_insert_with(|| Shelf {
            absent: rng.u32(0..100) < absent,
            ..Shelf::default()
        });
        for id in objects {
            if rng.u32(0..100) >= loses {
                shelf.objects.entry(*id).or_insert(now);
            }
        }
    }

    /// A repository goes to another server, which may be one that nobody names.
    pub(crate) fn move_one(&mut self, now: Duration) -> Option<String> {
        let to = self.rng.usize(0..self.hosts.len());
        let from = self.rng.usize(0..self.hosts.len());
        let paths = self.hosts.get(from)?.repos.keys().cloned();
        let path = self.rng.choice(paths.collect::<Vec<_>>())?;
        let shelf = self.hosts.get_mut(from)?.repos.remove(&path)?;
        let objects: Vec<ObjectId> = shelf.objects.into_keys().collect();
        self.put(to, &path, &objects, now);
        Some(format!("{path} moves from server {from} to {to}"))
    }

    /// Our process is gone, and forgets how it went.
    pub(crate) fn forget_us(&mut self) {
        for host in &mut self.hosts {
            host.failed_at = None;
        }
    }

    /// A request reaches its server.
    pub(crate) fn ask(&mut self, ask: &FetchAsk, now: Duration, calm: bool) -> Course {
        let rng = &mut self.rng;
        let site = site(ask.url.as_str());
        let mut hosts = self.hosts.iter_mut();
        let host = hosts.find(|host| site.as_ref().is_some_and(|site| site.domain == host.name));
        let (Some(host), Some(site)) = (host, site) else {
            return Course::at_once(FetchEnd::Unreachable);
        };
        let usual = about(rng, host.traits.latency);
        let mut course = Course::of(rng, &host.traits, usual);
        if !calm && rng.u32(0..1_000) < self.own_faults {
            course.end = own_fault(rng);
            return course;
        }
        if !calm && rng.u32(0..1_000) < host.traits.flaky {
            course.end = accident(rng);
            return course;
        }
        if let Some((end, ends)) = host.traits.manner.failure(rng, course.ends) {
            let mut flows = course.flows;
            flows.retain(|(at, _)| end == FetchEnd::Spoiled && *at < ends);
            return Course { flows, ends, end };
        }
        course.end = host.judge(&site.path, now);
        if course.end == FetchEnd::Answered {
            course.be_worked_on(host.traits.work());
        }
        course
    }

    /// What a fetch brings when it ends this way; `present` is in our repository already.
    pub(crate) fn answer(
        &mut self,
        ask: &FetchAsk,
        end: FetchEnd,
        present: &BTreeSet<ObjectId>,
        now: Duration,
    ) -> Fetched {
        let rng = &mut self.rng;
        let site = site(ask.url.as_str());
        let site = site.as_ref();
        let mut hosts = self.hosts.iter_mut();
        let mut host = hosts.find(|host| site.is_some_and(|site| site.domain == host.name));
        if let Some(host) = host.as_mut().filter(|_| is_failure(end)) {
            host.failed_at = Some(now);
        }
        let usual = host.as_ref().map_or(1, |host| host.traits.requests);
        let shelf = host.and_then(|host| host.repos.get(&site?.path));
        let shelf = shelf.filter(|shelf| !shelf.absent);
        let has = |id: &ObjectId| shelf.is_some_and(|shelf| shelf.objects.contains_key(id));
        let wants = ask.wants.iter().copied();
        let (here, open): (Vec<_>, Vec<_>) = wants.partition(|id| present.contains(id));
        let (has, lacks): (Vec<ObjectId>, Vec<ObjectId>) = open.into_iter().partition(has);
        // Nobody is asked for what is here.
        let requests = match has.is_empty() && lacks.is_empty() && end == FetchEnd::Answered {
            true => 0,
            false => usual,
        };
        let all = end == FetchEnd::Answered;
        // What came before it went wrong is kept.
        let some = !all && comes_to_objects(end) && rng.u8(0..4) == 0;
        let came = has.into_iter().filter(|_| all || some && rng.bool());
        let came: Vec<ObjectId> = came.collect();
        Fetched {
            bytes: SIZE * came.len() as u64,
            requests,
            got: came,
            here,
            lacking: if all { lacks } else { Vec::new() },
            end,
            problem: None,
        }
    }

    pub(crate) fn draw(&mut self) -> &mut Rng {
        &mut self.rng
    }
}

impl Host {
    /// Since when it shows an object there.
    pub(crate) fn shows(&self, path: &str, id: &ObjectId) -> Option<Duration> {
        let shelf = self.repos.get(path).filter(|shelf| !shelf.absent)?;
        shelf.objects.get(id).copied()
    }

    fn judge(&mut self, path: &str, now: Duration) -> FetchEnd {
        if let Manner::Strict(most, patience) = self.traits.manner {
            self.asked.retain(|at| *at + MINUTE > now);
            if self.asked.len() >= most {
                return FetchEnd::Busy(patience);
            }
            self.asked.push_back(now);
        }
        let Some(shelf) = self.repos.get_mut(path).filter(|shelf| !shelf.absent) else {
            return FetchEnd::Absent;
        };
        match self.traits.manner {
            Manner::Large(parts) if shelf.sent < parts => {
                shelf.sent += 1;
                FetchEnd::Cut { kept: true }
            }
            _ => {
                shelf.sent = 0;
                FetchEnd::Answered
            }
        }
    }
}

impl Course {
    fn at_once(end: FetchEnd) -> Self {
        Self {
            flows: Vec::new(),
            ends: Duration::from_millis(20),
            end,
        }
    }

    fn of(rng: &mut Rng, traits: &Traits, usual: Duration) -> Self {
        let late = match traits.slow_start {
            true => Duration::from_secs(rng.u64(1..20)),
            false => Duration::ZERO,
        };
        let begins = (rng.u8(0..4) != 0).then_some(late + usual / 2);
        let mut flows: Vec<(Duration, Flow)> = Vec::new();
        flows.extend(begins.map(|at| (at, Flow::Came(0))));
        let mut ends = late + usual;
        for part in 1..=traits.drips.parts {
            flows.push((ends, Flow::Came(u64::from(part) * PART)));
            ends += traits.drips.every;
        }
        Self {
            flows,
            ends,
            end: FetchEnd::Answered,
        }
    }

    /// All has come, and it takes us so long to put it together.
    fn be_worked_on(&mut self, work: Duration) {
        if !work.is_zero() {
            self.flows.push((self.ends, Flow::Whole));
            self.ends += work;
        }
    }
}

/// It counts against the server.
fn is_failure(end: FetchEnd) -> bool {
    matches!(
        end,
        FetchEnd::Unreachable
            | FetchEnd::Failed
            | FetchEnd::TooSlow
            | FetchEnd::Spoiled
            | FetchEnd::Busy(_)
            | FetchEnd::Cut { kept: false }
    )
}

fn comes_to_objects(end: FetchEnd) -> bool {
    matches!(
        end,
        FetchEnd::TooSlow | FetchEnd::Spoiled | FetchEnd::Cut { .. } | FetchEnd::Stopped
    )
}

fn about(rng: &mut Rng, mean: Duration) -> Duration {
    let micros = u64::try_from(mean.as_micros()).unwrap_or(u64::MAX / 2);
    Duration::from_micros(rng.u64(0..=micros * 2))
}

/// Some are at another port of the same machine.
fn name(rng: &mut Rng, n: usize) -> String {
    match rng.u8(0..6) {
        0 if n > 0 => format!("g{}.example:{}", n - 1, 3_000 + n),
        1 => format!("g{n}.example:8443"),
        _ => format!("g{n}.example"),
    }
}
