//! The sync machine, and relays that do what the story says.

#![allow(clippy::expect_used, reason = "a story that breaks off has failed")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use grasp_core::sync::io::{Complaint, End, FromRelay, ToRelay};
use grasp_core::sync::{Here, Link, News, Note, Outcome, RelayMemory, Stage, Sync, SyncEffect};
use grasp_core::{
    ConnNo, Delivery, Event, EventId, Filter, Identifier, Mono, Now, Pubkey, RelayNo, RelayUrl,
    RepoId, SubNo, SyncLimits, Ticket, Timestamp,
};
use grasp_sim::forge;

pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(60 * 60);

pub const EPOCH: u64 = 1_700_000_000;

pub struct Peers {
    pub sync: Sync,
    pub now: Duration,
    pub notes: Vec<Note>,
    pub memories: Vec<Arc<RelayMemory>>,
    /// Events that are stored or held here.
    pub here: Stored,
    asked: Vec<(RelayNo, ToRelay)>,
    next_ticket: u64,
}

#[derive(Default)]
pub struct Stored(pub BTreeSet<EventId>);

impl Here for Stored {
    fn has(&self, id: &EventId) -> bool {
        self.0.contains(id)
    }

    fn held_announcements(&self) -> Vec<(Timestamp, EventId)> {
        Vec::new()
    }

    fn released(&self) -> u64 {
        0
    }

    fn repository_of(&self, _id: &EventId) -> Option<RepoId> {
        None
    }
}

impl Peers {
    pub fn new() -> Self {
        Self::with(SyncLimits::default(), &[])
    }

    pub fn with(limits: SyncLimits, bootstrap: &[&str]) -> Self {
        let mut peers = Self::unstarted(limits);
        peers.start(bootstrap);
        peers
    }

    /// Before the past is complete.
    pub fn unstarted(limits: SyncLimits) -> Self {
        Self {
            sync: Sync::new(limits, 7),
            now: Duration::ZERO,
            notes: Vec::new(),
            memories: Vec::new(),
            here: Stored::default(),
            asked: Vec::new(),
            next_ticket: 0,
        }
    }

    pub fn start(&mut self, bootstrap: &[&str]) {
        let bootstrap: Vec<RelayUrl> = bootstrap.iter().map(|text| url(text)).collect();
        self.sync.start(&bootstrap, self.clock());
        self.take();
    }

    /// One relay that a served repository names, connected and without a word so far.
    pub fn connected(name: &str) -> Self {
        let mut peers = Self::new();
        peers.announce(&repo(1), &[name]);
        peers.pass(SECOND);
        peers.say(name, FromRelay::Up);
        peers
    }

    /// The same, with nothing on the relay and everything compared.
    pub fn in_step(name: &str) -> Self {
        let mut peers = Self::connected(name);
        peers.answer_all(name);
        peers.asked.clear();
        peers
    }

    /// Two relays of one repository, connected and without a word so far.
    pub fn both(one: &str, two: &str) -> Self {
        let mut peers = Self::new();
        peers.announce(&repo(1), &[one, two]);
        peers.pass(SECOND);
        peers.say(one, FromRelay::Up);
        peers.say(two, FromRelay::Up);
        peers
    }

    /// One relay without NIP-77, and the first page that is asked of it.
    pub fn paged(name: &str) -> (Self, SubNo) {
        let limits = SyncLimits {
            negentropy: false,
            ..SyncLimits::default()
        };
        let mut peers = Self::with(limits, &[]);
        peers.announce(&repo(1), &[name]);
        peers.pass(SECOND);
        peers.say(name, FromRelay::Up);
        let is_page = |filters: &[Filter]| filters.iter().any(|f| f.until.is_some());
        let subs = peers.subscribed(name);
        let page = subs.iter().find(|(_, filters)| is_page(filters));
        let page = page.map(|(page, _)| *page).expect("a page is asked for");
        (peers, page)
    }

    pub fn announce(&mut self, repo: &RepoId, relays: &[&str]) {
        let news = News::Announced {
            repo: repo.clone(),
            relays: relays.iter().map(|text| url(text)).collect(),
            stage: Stage::Served,
        };
        self.news(news);
    }

    pub fn news(&mut self, news: News) {
        self.sync.news(news, Mono(self.now));
        self.take();
    }

    /// Lets the time pass, and hears every deadline in it.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some((at, _)) = self.sync.poll_timeout().filter(|(at, _)| at.0 <= end) {
            self.now = self.now.max(at.0);
            self.sync.handle_timeout(self.clock(), &self.here);
            self.take();
        }
        self.now = end;
    }

    /// The same, with a relay that is there and says so.
    pub fn pass_with(&mut self, name: &str, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.pass(MINUTE.min(end - self.now));
            self.say(name, FromRelay::Heard);
        }
    }

    pub fn say(&mut self, name: &str, word: FromRelay) {
        let (relay, conn) = (self.relay(name), self.conn(name));
        self.say_on(relay, conn, word);
    }

    pub fn say_on(&mut self, relay: RelayNo, conn: ConnNo, word: FromRelay) {
        self.sync
            .handle(relay, conn, word, self.clock(), &self.here);
        self.take();
    }

    pub fn fail(&mut self, name: &str) {
        self.say(name, FromRelay::Down(End::Refused));
    }

    pub fn eose(&mut self, name: &str, sub: SubNo, sent: u32) {
        let complete = false;
        self.say(
            name,
            FromRelay::Eose {
                sub,
                sent,
                complete,
            },
        );
    }

    pub fn close(&mut self, name: &str, sub: SubNo, why: Complaint) {
        self.say(name, FromRelay::Closed { sub, sent: 0, why });
    }

    pub fn reconciled(&mut self, name: &str, sub: SubNo) {
        let word = FromRelay::Reconciled {
            sub,
            from: Timestamp(0),
            compared: 0,
            lacks: 0,
            some: Vec::new(),
        };
        self.say(name, word);
    }

    pub fn needs(&mut self, name: &str, sub: SubNo, ids: &[EventId]) {
        let ids = ids.to_vec();
        self.say(name, FromRelay::Needs { sub, ids });
    }

    /// An event comes and waits for its verdict.
    pub fn deliver(&mut self, name: &str, sub: SubNo, event: &Arc<Event>) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let from = Delivery {
            relay: self.relay(name),
            conn: self.conn(name),
            sub,
        };
        let at = self.clock().unix;
        self.sync.arrived(ticket, Arc::clone(event), from, at);
        ticket
    }

    pub fn judge(&mut self, ticket: Ticket, outcome: Outcome) {
        if outcome == Outcome::New
            && let Some(event) = self.sync.arrival(ticket)
        {
            self.here.0.insert(event.id);
        }
        self.sync.judged(ticket, outcome);
        self.sync.turn(self.clock(), &self.here);
        self.take();
    }

    /// An event comes and is taken.
    pub fn bring(&mut self, name: &str, sub: SubNo, event: &Arc<Event>) {
        let ticket = self.deliver(name, sub, event);
        self.judge(ticket, Outcome::New);
    }

    /// The relay has nothing of what it is asked for, and says so until it is asked no more.
    pub fn answer_all(&mut self, name: &str) {
        let relay = self.relay(name);
        loop {
            let asked = self.asked.iter();
            let next = asked.filter(|(to, _)| *to == relay).map(|(_, what)| what);
            let next: Vec<ToRelay> = next.cloned().collect();
            self.asked.retain(|(to, _)| *to != relay);
            if next.is_empty() {
                return;
            }
            for what in next {
                match what {
                    ToRelay::Subscribe { sub, .. } => self.eose(name, sub, 0),
                    ToRelay::Reconcile { sub, .. } => self.reconciled(name, sub),
                    _ => {}
                }
            }
        }
    }

    pub fn relay(&self, name: &str) -> RelayNo {
        let found = self.sync.targets().relays.find(&url(name));
        found.expect("the relay is known")
    }

    pub fn link(&self, name: &str) -> &Link {
        let link = self.sync.link(self.relay(name));
        link.expect("the relay was looked at")
    }

    pub fn conn(&self, name: &str) -> ConnNo {
        self.link(name).conn().expect("there is a line")
    }

    /// The addresses that were dialled since this was asked last.
    pub fn dialled(&mut self) -> Vec<String> {
        let asked = std::mem::take(&mut self.asked).into_iter();
        let dialled = asked.filter_map(|(_, what)| match what {
            ToRelay::Dial { url, .. } => Some(url.to_string()),
            _ => None,
        });
        dialled.collect()
    }

    pub fn hung_up(&mut self) -> usize {
        let asked = std::mem::take(&mut self.asked).into_iter();
        asked.filter(|(_, what)| *what == ToRelay::HangUp).count()
    }

    /// What was asked of one relay since this was asked last.
    pub fn asked(&mut self, name: &str) -> Vec<ToRelay> {
        let relay = self.relay(name);
        let asked = self.asked.iter().filter(|(to, _)| *to == relay);
        let asked = asked.map(|(_, what)| what.clone()).collect();
        self.asked.retain(|(to, _)| *to != relay);
        asked
    }

    /// The subscriptions among it.
    pub fn subscribed(&mut self, name: &str) -> Vec<(SubNo, Vec<Filter>)> {
        let asked = self.asked(name).into_iter();
        let subscribed = asked.filter_map(|what| match what {
            ToRelay::Subscribe { sub, filters, .. } => Some((sub, filters.to_vec())),
            _ => None,
        });
        subscribed.collect()
    }

    /// The comparisons among it.
    pub fn compared(&mut self, name: &str) -> Vec<(SubNo, Filter)> {
        let asked = self.asked(name).into_iter();
        let compared = asked.filter_map(|what| match what {
            ToRelay::Reconcile { sub, filter, .. } => Some((sub, *filter)),
            _ => None,
        });
        compared.collect()
    }

    fn take(&mut self) {
        while let Some(effect) = self.sync.poll_effect() {
            match effect {
                SyncEffect::Ask { relay, what, .. } => self.asked.push((relay, what)),
                SyncEffect::Note(note) => self.notes.push(note),
                SyncEffect::Remember(memory) => self.memories.push(memory),
                SyncEffect::Forget(_) | SyncEffect::Dismiss(_) | SyncEffect::Recall(_) => {}
            }
        }
        self.sync.audit().expect("the sums add up");
    }

    pub fn clock(&self) -> Now {
        Now {
            mono: Mono(self.now),
            unix: Timestamp(EPOCH + self.now.as_secs()),
        }
    }
}

pub fn url(text: &str) -> RelayUrl {
    RelayUrl::parse(text).expect("a story's address is good")
}

pub fn repo(owner: u8) -> RepoId {
    let identifier = Identifier::parse("tool").expect("a story's name is good");
    RepoId::new(Pubkey([owner; 32]), identifier)
}

pub fn root(n: u8, repos: &[RepoId]) -> News {
    News::Root {
        id: EventId([n; 32]),
        repos: repos.to_vec(),
        at: Timestamp(EPOCH),
    }
}

/// Something that somebody says.
pub fn note(n: u8, at: u64) -> Arc<Event> {
    forge::about(forge::key(n), 1111, at, "E", &EventId([9; 32]).to_string())
}
