//! The sync machine, and relays that do what the story says.

#![allow(clippy::expect_used, reason = "a story that breaks off has failed")]

use std::time::Duration;

use grasp_core::sync::io::{End, FromRelay, ToRelay};
use grasp_core::sync::{Link, News, Note, Stage, Sync, SyncEffect};
use grasp_core::{
    ConnNo, EventId, Identifier, Mono, Now, Pubkey, RelayNo, RelayUrl, RepoId, SyncLimits,
    Timestamp,
};

pub const SECOND: Duration = Duration::from_secs(1);
pub const HOUR: Duration = Duration::from_secs(60 * 60);

const EPOCH: u64 = 1_700_000_000;

pub struct Peers {
    pub sync: Sync,
    pub now: Duration,
    pub notes: Vec<Note>,
    asked: Vec<(RelayNo, ConnNo, ToRelay)>,
}

impl Peers {
    pub fn new() -> Self {
        Self::with(SyncLimits::default(), &[])
    }

    pub fn with(limits: SyncLimits, bootstrap: &[&str]) -> Self {
        let bootstrap: Vec<RelayUrl> = bootstrap.iter().map(|text| url(text)).collect();
        let mut peers = Self {
            sync: Sync::new(limits),
            now: Duration::ZERO,
            notes: Vec::new(),
            asked: Vec::new(),
        };
        peers.sync.start(&bootstrap, peers.clock());
        peers.take();
        peers
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
            self.sync.handle_timeout(self.clock());
            self.take();
        }
        self.now = end;
    }

    pub fn say(&mut self, name: &str, word: FromRelay) {
        let relay = self.relay(name);
        let link = self.sync.link(relay);
        let conn = link.and_then(|link| link.conn()).expect("there is a line");
        self.say_on(relay, conn, word);
    }

    pub fn say_on(&mut self, relay: RelayNo, conn: ConnNo, word: FromRelay) {
        self.sync.handle(relay, conn, word, self.clock());
        self.take();
    }

    pub fn fail(&mut self, name: &str) {
        self.say(name, FromRelay::Down(End::Refused));
    }

    pub fn relay(&self, name: &str) -> RelayNo {
        let found = self.sync.targets().relays.find(&url(name));
        found.expect("the relay is known")
    }

    pub fn link(&self, name: &str) -> Link {
        let link = self.sync.link(self.relay(name));
        link.expect("the relay was looked at")
    }

    /// The addresses that were dialled since this was asked last.
    pub fn dialled(&mut self) -> Vec<String> {
        let asked = std::mem::take(&mut self.asked).into_iter();
        let dialled = asked.filter_map(|(_, _, what)| match what {
            ToRelay::Dial { url, .. } => Some(url.to_string()),
            _ => None,
        });
        dialled.collect()
    }

    pub fn hung_up(&mut self) -> usize {
        let asked = std::mem::take(&mut self.asked).into_iter();
        asked
            .filter(|(_, _, what)| *what == ToRelay::HangUp)
            .count()
    }

    fn take(&mut self) {
        while let Some(effect) = self.sync.poll_effect() {
            match effect {
                SyncEffect::Ask { relay, asked } => {
                    self.asked.push((relay, asked.conn, asked.what));
                }
                SyncEffect::Note(note) => self.notes.push(note),
            }
        }
        self.sync.audit().expect("the sums add up");
    }

    fn clock(&self) -> Now {
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
