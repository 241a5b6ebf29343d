//! The hunter, events that wait, and git servers that do what the story says.

#![allow(clippy::expect_used, reason = "a story that breaks off has failed")]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use grasp_core::clone_url::{CloneUrl, Domain};
use grasp_core::git::ObjectId;
use grasp_core::hunt::io::{FetchAsk, FetchEnd, Fetched, PART};
use grasp_core::hunt::{Grounds, Hunt, HuntNote, MAX_FLIGHTS, Need, Order, Source};
use grasp_core::push::Backing;
use grasp_core::{DomainLimits, EventId, FetchNo, HuntLimits, Identifier, Mono, Pubkey, RepoId};

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);
/// So long that no story waits for it.
pub const NEVER: Duration = Duration::from_secs(1_000_000);

pub struct Field {
    pub hunt: Hunt,
    pub now: Duration,
    pub ground: Ground,
    pub servers: BTreeMap<CloneUrl, Server>,
    /// Every fetch that was ordered.
    pub asked: Vec<Asked>,
    pub stopped: Vec<FetchNo>,
    pub notes: Vec<HuntNote>,
    /// Repositories that nobody waits for any more, in order.
    pub left: Vec<RepoId>,
    pub released: BTreeMap<EventId, Duration>,
    /// Events are released when the story says so.
    pub slow_release: bool,
    /// What is stopped ends so much later.
    pub halts_after: Duration,
    under_way: BTreeMap<(Duration, FetchNo), FetchAsk>,
    /// When the next part of a pack comes, and how many have come.
    parts: BTreeMap<(Duration, FetchNo), u64>,
    limits: HuntLimits,
}

pub struct Asked {
    pub at: Duration,
    pub no: FetchNo,
    pub ask: FetchAsk,
    pub over: Option<Duration>,
}

/// Events that wait, and the objects that are here.
#[derive(Default)]
pub struct Ground {
    pub held: BTreeMap<RepoId, Vec<Need>>,
    pub here: BTreeSet<(RepoId, ObjectId)>,
    /// What is here is found out when the story says so.
    pub blind: bool,
    /// Repositories whose data has not come before.
    pub unserved: BTreeSet<RepoId>,
    /// How often somebody asked.
    pub asked: Cell<usize>,
}

impl Grounds for Ground {
    fn needs(&self, repo: &RepoId) -> Vec<Need> {
        self.asked.set(self.asked.get() + 1);
        let held = self.held.get(repo).into_iter().flatten().cloned();
        let lacking = |id: &ObjectId| self.blind || !self.here.contains(&(repo.clone(), *id));
        held.map(|mut need| {
            need.objects.retain(lacking);
            need
        })
        .collect()
    }

    fn is_served(&self, repo: &RepoId) -> bool {
        !self.unserved.contains(repo)
    }
}

/// What a server does with whatever it is asked.
#[derive(Clone)]
pub struct Server {
    pub has: BTreeSet<ObjectId>,
    pub takes: Duration,
    /// Its pack begins to come at once, and then each part after so long.
    pub flows: Option<Duration>,
    pub end: FetchEnd,
    /// Over the web, for one fetch.
    pub requests: u32,
    /// So many objects are answered at a time.
    pub answers: usize,
}

impl Server {
    pub fn with(objects: &[u32]) -> Self {
        Self {
            has: objects.iter().copied().map(object).collect(),
            takes: 100 * MS,
            flows: None,
            end: FetchEnd::Answered,
            requests: 3,
            answers: usize::MAX,
        }
    }

    pub fn ends(end: FetchEnd) -> Self {
        Self {
            end,
            ..Self::with(&[])
        }
    }

    pub fn after(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }

    pub fn flowing(self) -> Self {
        Self {
            flows: Some(5 * SECOND),
            ..self
        }
    }

    /// Enough to be waited for if nobody else waits.
    pub fn dripping(self) -> Self {
        Self {
            flows: Some(30 * SECOND),
            ..self
        }
    }

    fn answer(&self, ask: &FetchAsk) -> Fetched {
        let has = |id: &ObjectId| self.has.contains(id);
        let wants = ask.wants.iter().copied().take(self.answers);
        let (got, lacking) = wants.partition(has);
        let answered = self.end == FetchEnd::Answered;
        let said = |ids: Vec<ObjectId>| if answered { ids } else { Vec::new() };
        Fetched {
            got: said(got),
            here: Vec::new(),
            lacking: said(lacking),
            bytes: 1_000,
            requests: self.requests,
            end: self.end,
            problem: None,
        }
    }
}

impl Field {
    pub fn new() -> Self {
        Self::with(HuntLimits::default())
    }

    pub fn with(limits: HuntLimits) -> Self {
        Self {
            hunt: Hunt::new(limits.clone()),
            now: Duration::ZERO,
            ground: Ground::default(),
            servers: BTreeMap::new(),
            asked: Vec::new(),
            stopped: Vec::new(),
            notes: Vec::new(),
            left: Vec::new(),
            released: BTreeMap::new(),
            slow_release: false,
            halts_after: Duration::ZERO,
            under_way: BTreeMap::new(),
            parts: BTreeMap::new(),
            limits,
        }
    }

    pub fn server(&mut self, at: &str, server: Server) {
        self.servers.insert(url(at), server);
    }

    /// An event arrives whose data is missing.
    pub fn hold(&mut self, repo: &RepoId, n: u32, servers: &[&str], source: Source) {
        self.hold_all(repo, n, &[n], servers, source);
    }

    /// The same for a repository that is not served yet.
    pub fn hold_new(&mut self, repo: &RepoId, n: u32, servers: &[&str]) {
        self.ground.unserved.insert(repo.clone());
        self.hold(repo, n, servers, Source::Synced);
    }

    /// A pull request arrives whose commit is missing.
    pub fn hold_tip(&mut self, repo: &RepoId, n: u32, servers: &[&str], source: Source) {
        self.hold_need(repo, need(n, &[n], Backing::PullRequests, servers), source);
    }

    pub fn hold_all(
        &mut self,
        repo: &RepoId,
        n: u32,
        objects: &[u32],
        servers: &[&str],
        source: Source,
    ) {
        self.hold_need(repo, need(n, objects, Backing::State, servers), source);
    }

    fn hold_need(&mut self, repo: &RepoId, need: Need, source: Source) {
        self.ground.held.entry(repo.clone()).or_default().push(need);
        self.hunt.expect(repo, source, self.clock());
        self.take();
    }

    /// Objects come by themselves: a push.
    pub fn push(&mut self, repo: &RepoId, objects: &[u32]) {
        let came = objects.iter().map(|n| (repo.clone(), object(*n)));
        self.ground.here.extend(came);
        self.release(repo);
        self.hunt.on_change(repo, self.clock(), &self.ground);
        self.take();
    }

    /// The events of a repository are given up.
    pub fn expire(&mut self, repo: &RepoId) {
        self.ground.held.remove(repo);
        self.hunt.on_change(repo, self.clock(), &self.ground);
        self.take();
    }

    /// Each event is judged by its own objects.
    pub fn release(&mut self, repo: &RepoId) {
        let here = &self.ground.here;
        let Some(held) = self.ground.held.get_mut(repo) else {
            return;
        };
        let whole = |need: &mut Need| {
            let mut objects = need.objects.iter();
            objects.all(|id| here.contains(&(repo.clone(), *id)))
        };
        for need in held.extract_if(.., whole) {
            self.released.insert(need.event, self.now);
        }
        if held.is_empty() {
            self.ground.held.remove(repo);
        }
    }

    /// Lets the time pass, and hears every deadline and every server in it.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.next().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.step();
        }
        self.now = end;
    }

    /// Until this moment.
    pub fn pass_to(&mut self, at: Duration) {
        self.pass(at - self.now);
    }

    pub fn next(&self) -> Option<Duration> {
        let answer = self.under_way.keys().next().map(|(at, _)| *at);
        let deadline = self.hunt.poll_timeout().map(|at| at.0);
        let part = self.parts.keys().next().map(|(at, _)| *at);
        answer.into_iter().chain(deadline).chain(part).min()
    }

    /// One part, one answer, or what is due.
    pub fn step(&mut self) {
        let part = self.parts.first_key_value();
        if let Some((&(at, no), &parts)) = part
            && at <= self.now
        {
            self.parts.remove(&(at, no));
            self.flow(no, parts);
            return self.take();
        }
        let answer = self.under_way.first_key_value();
        match answer.map(|(key, _)| *key) {
            Some((at, no)) if at <= self.now => {
                let ask = self.under_way.remove(&(at, no)).expect("it is under way");
                self.answer(no, &ask);
            }
            _ => self.hunt.handle_timeout(self.clock(), &self.ground),
        }
        self.take();
    }

    fn answer(&mut self, no: FetchNo, ask: &FetchAsk) {
        let server = self.servers.get(&ask.url);
        let mut fetched = match server {
            Some(server) => server.answer(ask),
            None => Server::ends(FetchEnd::Absent).answer(ask),
        };
        if self.stopped.contains(&no) {
            fetched = Server::ends(FetchEnd::Stopped).answer(ask);
        }
        self.fetched(no, &fetched);
    }

    pub fn fetched(&mut self, no: FetchNo, fetched: &Fetched) {
        let asked = self.asked.iter_mut().find(|asked| asked.no == no);
        let asked = asked.expect("it was asked for");
        asked.over = Some(self.now);
        let repo = asked.ask.repo.clone();
        let came = fetched.present().map(|id| (repo.clone(), *id));
        self.ground.here.extend(came);
        if !self.slow_release {
            self.release(&repo);
        }
        let now = self.clock();
        let of = self.hunt.on_fetched(no, fetched, now, &self.ground);
        assert_eq!(of, Some(repo));
    }

    pub fn take(&mut self) {
        while let Some(order) = self.hunt.poll_order() {
            match order {
                Order::Fetch(no, ask) => self.begin(no, ask),
                Order::Stop(no) => self.halt(no),
                Order::Leave(repo) => self.left.push(repo),
            }
        }
        while let Some(note) = self.hunt.poll_note() {
            self.notes.push(note);
        }
        self.hunt.audit(self.clock()).expect("all is in order");
    }

    fn begin(&mut self, no: FetchNo, ask: FetchAsk) {
        assert!(!ask.wants.is_empty() && ask.wants.is_sorted());
        let server = self.servers.get(&ask.url);
        let takes = server.map_or(100 * MS, |server| server.takes);
        self.under_way.insert((self.now + takes, no), ask.clone());
        let (at, over) = (self.now, None);
        self.asked.push(Asked { at, no, ask, over });
        self.flow(no, 0);
        self.measure();
    }

    /// Another part of a pack comes, unless it is over.
    fn flow(&mut self, no: FetchNo, parts: u64) {
        let Some((_, ask)) = self.under_way.iter().find(|((_, at), _)| *at == no) else {
            return;
        };
        let server = self.servers.get(&ask.url);
        if let Some(every) = server.and_then(|server| server.flows) {
            self.hunt.on_flowing(no, parts * PART, self.clock());
            self.parts.insert((self.now + every, no), parts + 1);
        }
    }

    fn halt(&mut self, no: FetchNo) {
        assert!(!self.stopped.contains(&no), "it is stopped once");
        let found = self.under_way.iter().find(|((_, at), _)| *at == no);
        let key = *found.expect("what is stopped is under way").0;
        let ask = self.under_way.remove(&key).expect("it is under way");
        self.under_way
            .insert((self.now + self.halts_after, no), ask);
        self.stopped.push(no);
    }

    /// The receiving side's view: no domain is ever asked more than its limits.
    fn measure(&self) {
        let last = self.asked.last().expect("something was asked");
        let domain = last.ask.url.domain();
        let limits = self.limits_of(domain);
        let open = self.asked.iter().filter(|asked| asked.over.is_none());
        assert!(open.clone().count() <= self.limits.fetches);
        let of_repo = open.clone().filter(|asked| asked.ask.repo == last.ask.repo);
        assert!(of_repo.count() <= MAX_FLIGHTS);
        let of_domain = open.filter(|asked| asked.ask.url.domain() == domain);
        assert!(of_domain.count() <= limits.concurrent as usize, "{domain}");
        let lately = self.asked.iter().rev();
        let lately = lately.take_while(|asked| self.now - asked.at <= MINUTE);
        let lately = lately.filter(|asked| asked.ask.url.domain() == domain);
        let reaches = |asked: &&Asked| {
            let server = self.servers.get(&asked.ask.url);
            server.is_none_or(|server| server.requests > 0)
        };
        let lately = lately.filter(reaches);
        assert!(lately.count() <= limits.per_minute as usize, "{domain}");
    }

    fn limits_of(&self, domain: &Domain) -> DomainLimits {
        let own = self.limits.domains.get(domain).copied();
        own.unwrap_or(self.limits.domain)
    }

    pub fn clock(&self) -> Mono {
        Mono(self.now)
    }

    /// When which server was asked, in milliseconds, since the story looked last.
    pub fn asked_at(&mut self) -> Vec<(u128, String)> {
        let asked = self.asked.iter();
        let seen = |asked: &Asked| {
            let host = asked.ask.url.domain().to_string();
            (asked.at.as_millis(), host)
        };
        asked.map(seen).collect()
    }

    /// When anybody was asked, in milliseconds.
    pub fn times(&self) -> Vec<u128> {
        self.asked
            .iter()
            .map(|asked| asked.at.as_millis())
            .collect()
    }

    /// Whose data was asked for, in order.
    pub fn repos(&self) -> Vec<RepoId> {
        self.asked
            .iter()
            .map(|asked| asked.ask.repo.clone())
            .collect()
    }

    pub fn open(&self) -> Vec<&Asked> {
        let asked = self.asked.iter();
        asked.filter(|asked| asked.over.is_none()).collect()
    }

    pub fn released_at(&self, n: u32) -> Option<u128> {
        self.released.get(&event(n)).map(Duration::as_millis)
    }
}

fn need(n: u32, objects: &[u32], backing: Backing, servers: &[&str]) -> Need {
    Need {
        event: event(n),
        objects: objects.iter().copied().map(object).collect(),
        backing,
        servers: servers.iter().map(|at| url(at)).collect(),
    }
}

pub fn repo(n: u32) -> RepoId {
    let mut key = [1; 32];
    key[..4].copy_from_slice(&n.to_be_bytes());
    RepoId::new(Pubkey(key), Identifier::parse("r").expect("it is one"))
}

pub fn object(n: u32) -> ObjectId {
    let mut id = [1; 20];
    id[..4].copy_from_slice(&n.to_be_bytes());
    ObjectId(id)
}

pub fn event(n: u32) -> EventId {
    let mut id = [1; 32];
    id[..4].copy_from_slice(&n.to_be_bytes());
    EventId(id)
}

/// `git.example` or `git.example/path`.
pub fn url(at: &str) -> CloneUrl {
    let full = match (at.contains("://"), at.contains('/')) {
        (true, _) => at.to_owned(),
        (false, true) => format!("https://{at}.git"),
        (false, false) => format!("https://{at}/r.git"),
    };
    CloneUrl::parse(&full).expect("it is an address")
}
