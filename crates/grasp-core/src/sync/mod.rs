//! Proactive sync (GRASP-02): which relays each repository has, what is to be watched and fetched
//! there, and what is missing. No sockets: [`io`] says what is asked of other relays and heard of
//! them.

mod agenda;
mod capabilities;
pub mod downloads;
pub mod filters;
mod gather;
mod health;
mod index;
pub mod io;
mod items;
mod link;
mod memory;
mod note;
pub mod paging;
mod relays;
pub mod status;
mod targets;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use self::agenda::Agenda;
pub use self::agenda::Timer;
pub use self::capabilities::{Capabilities, Reconciles};
pub use self::gather::{Gathered, News};
pub use self::health::{Health, RelayHealth};
pub use self::index::{RepoSyncIndex, RepoSyncNeeds, Stage};
use self::io::{Asked, End, FromRelay, ToRelay};
pub use self::items::{Items, RepoIx, RootIx};
pub use self::link::{Link, Session, Why};
pub use self::memory::{Dismissed, Fate, Record, RelayMemory};
pub use self::note::{Note, Source};
pub use self::relays::{Relay, RelaySyncIndex};
pub use self::status::Status;
pub use self::targets::Targets;
use crate::clock::{Mono, Now};
use crate::facts::Seq;
use crate::limits::SyncLimits;
use crate::relay_url::RelayUrl;
use crate::ticket::{ConnNo, RelayNo};

/// One relay's line, and how it has fared so far.
#[derive(Debug)]
struct Peer {
    link: Link,
    health: RelayHealth,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncEffect {
    Ask { relay: RelayNo, asked: Asked },
    Note(Note),
}

/// The part of the core that keeps us in step with other relays. Called like the core itself:
/// handle what happens, then take the effects; call again when the next deadline has passed.
#[derive(Debug)]
pub struct Sync {
    limits: SyncLimits,
    targets: Targets,
    gathered: Gathered,
    peers: BTreeMap<RelayNo, Peer>,
    agenda: Agenda,
    connected: usize,
    next_conn: u64,
    effects: VecDeque<SyncEffect>,
}

impl Sync {
    pub fn new(limits: SyncLimits) -> Self {
        Self {
            limits,
            targets: Targets::default(),
            gathered: Gathered::default(),
            peers: BTreeMap::new(),
            agenda: Agenda::default(),
            connected: 0,
            next_conn: 0,
            effects: VecDeque::new(),
        }
    }

    /// The past is complete: relays are dialled from now on.
    pub fn start(&mut self, bootstrap: &[RelayUrl], now: Now) {
        if !self.limits.enabled {
            return;
        }
        for url in bootstrap {
            self.targets.bootstrap(url);
        }
        self.act_on_news(now);
        self.agenda
            .add(now.mono + self.limits.empty_check, Timer::Empty);
    }

    /// What was stored before the start, in its place in the order of commits.
    pub fn restore(&mut self, news: News, _seq: Seq) {
        self.apply(news);
    }

    pub fn restore_relay(&mut self, _memory: Arc<RelayMemory>) {}

    pub fn restore_dismissed(&mut self, _row: Dismissed) {}

    /// Something happened here itself.
    pub fn news(&mut self, news: News, now: Mono) {
        if !self.limits.enabled {
            return;
        }
        self.gathered.add(news, now);
        self.remind_of_news();
    }

    pub fn handle(&mut self, relay: RelayNo, conn: ConnNo, word: FromRelay, now: Now) {
        let peer = self.peers.get_mut(&relay);
        // What an earlier connection still says is of no interest.
        let Some(peer) = peer.filter(|peer| peer.link.conn() == Some(conn)) else {
            return;
        };
        if let Link::Up(session) = &mut peer.link {
            session.heard = now.mono;
        }
        match word {
            FromRelay::Up => self.on_up(relay, conn, now),
            FromRelay::Down(end) => self.on_down(relay, end, now),
            _ => {}
        }
    }

    pub fn handle_timeout(&mut self, now: Now) {
        while let Some(timer) = self.agenda.take(now.mono) {
            match timer {
                Timer::Gathered => {
                    let due = self.gathered.due(self.is_fetching(), &self.limits);
                    if due.is_some_and(|due| due <= now.mono) {
                        self.act_on_news(now);
                    } else {
                        self.remind_of_news();
                    }
                }
                Timer::Link(relay) => self.look_at(relay, now),
                Timer::Empty => {
                    self.leave_empty();
                    self.agenda
                        .add(now.mono + self.limits.empty_check, Timer::Empty);
                }
            }
        }
    }

    pub fn poll_effect(&mut self) -> Option<SyncEffect> {
        self.effects.pop_front()
    }

    pub fn poll_timeout(&self) -> Option<(Mono, Timer)> {
        self.agenda.next()
    }

    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    pub fn link(&self, relay: RelayNo) -> Option<Link> {
        self.peers.get(&relay).map(|peer| peer.link)
    }

    pub fn health(&self, relay: RelayNo) -> Option<RelayHealth> {
        self.peers.get(&relay).map(|peer| peer.health)
    }

    /// Sums that are kept up, against sums made anew.
    pub fn audit(&self) -> Result<(), String> {
        let connected = self.peers.values().filter(|peer| peer.link.is_up()).count();
        let trying = |peer: &&Peer| matches!(peer.link, Link::Connecting { .. });
        let connecting = self.peers.values().filter(trying).count();
        if connected + connecting != self.connected {
            return Err("connections are miscounted".to_owned());
        }
        self.targets.audit()
    }

    /// History is on its way, and may bring more news.
    fn is_fetching(&self) -> bool {
        false
    }

    fn remind_of_news(&mut self) {
        if let Some(due) = self.gathered.due(self.is_fetching(), &self.limits) {
            self.agenda.add(due, Timer::Gathered);
        }
    }

    fn act_on_news(&mut self, now: Now) {
        for news in self.gathered.take() {
            self.apply(news);
        }
        for relay in self.targets.take_changed() {
            self.look_at(relay, now);
        }
    }

    fn apply(&mut self, news: News) {
        match news {
            News::Announced {
                repo,
                relays,
                stage,
            } => self.targets.announce(&repo, &relays, stage, &self.limits),
            News::Gone(repo) => self.targets.forget(&repo),
            News::Root { id, repos, at } => {
                self.targets.add_root(id, &repos, at, &self.limits);
            }
        }
    }

    /// How it stands, for the operator.
    pub fn status(&self, _now: Now) -> Status {
        Status {
            enabled: self.limits.enabled,
            repositories: self.targets.repos.len(),
            roots: self.targets.repos.roots(),
            relays_tracked: self.targets.relays.len(),
            relays_connected: self.peers.values().filter(|peer| peer.link.is_up()).count(),
            ..Status::default()
        }
    }

    /// Dials if it is time to, hangs up on one that has been silent for too long, and is reminded
    /// to look again otherwise.
    fn look_at(&mut self, relay: RelayNo, now: Now) {
        let Some(known) = self.targets.relays.get(relay) else {
            return;
        };
        let empty = known.is_empty();
        let peer = self.peers.entry(relay).or_insert(Peer {
            link: Link::Down {
                retry: None,
                why: Why::New,
            },
            health: RelayHealth::default(),
        });
        match peer.link {
            Link::Down { .. } if empty => {}
            Link::Down {
                retry: Some(at), ..
            } if at > now.mono => self.agenda.add(at, Timer::Link(relay)),
            Link::Down { .. } => self.dial(relay, now),
            Link::Connecting { deadline, .. } if deadline > now.mono => {
                self.agenda.add(deadline, Timer::Link(relay));
            }
            Link::Connecting { conn, .. } => {
                self.ask(relay, conn, ToRelay::HangUp);
                self.on_down(relay, End::TimedOut, now);
            }
            Link::Up(session) => {
                let silent_at = session.heard + self.limits.silence;
                if silent_at > now.mono {
                    self.agenda.add(silent_at, Timer::Link(relay));
                } else {
                    self.ask(relay, session.conn, ToRelay::HangUp);
                    self.on_down(relay, End::Silent, now);
                }
            }
        }
    }

    fn dial(&mut self, relay: RelayNo, now: Now) {
        let Some(known) = self.targets.relays.get(relay) else {
            return;
        };
        let (url, trusted) = (known.url.clone(), known.bootstrap);
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        // Those that the operator names have their place whatever else there is.
        if self.connected >= self.limits.connections && !trusted {
            let at = now.mono + self.limits.backoff.max;
            peer.link = Link::Down {
                retry: Some(at),
                why: Why::NoRoom,
            };
            return self.agenda.add(at, Timer::Link(relay));
        }
        let conn = ConnNo(self.next_conn);
        self.next_conn += 1;
        self.connected += 1;
        let deadline = now.mono + self.limits.connect_timeout;
        peer.link = Link::Connecting { conn, deadline };
        self.agenda.add(deadline, Timer::Link(relay));
        self.ask(relay, conn, ToRelay::Dial { url, trusted });
    }

    fn on_up(&mut self, relay: RelayNo, conn: ConnNo, now: Now) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        if !matches!(peer.link, Link::Connecting { .. }) {
            return;
        }
        peer.health.success(now.unix);
        peer.link = Link::Up(Session {
            conn,
            since: now.unix,
            heard: now.mono,
        });
        self.agenda
            .add(now.mono + self.limits.silence, Timer::Link(relay));
        self.tell(relay, |relay| Note::Connected { relay });
    }

    fn on_down(&mut self, relay: RelayNo, end: End, now: Now) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        let was_up = match peer.link {
            Link::Down { .. } => return,
            Link::Connecting { .. } => false,
            Link::Up(_) => true,
        };
        self.connected -= 1;
        let was_dead = peer.health.health == Health::Dead;
        let wait = peer.health.failure(now.unix, &self.limits);
        let health = peer.health;
        let at = now.mono + wait;
        peer.link = Link::Down {
            retry: Some(at),
            why: Why::Failing,
        };
        self.agenda.add(at, Timer::Link(relay));
        if was_up {
            return self.tell(relay, |relay| Note::Lost { relay, end });
        }
        if health.health == Health::Dead && !was_dead {
            let since = health.failing_since.unwrap_or(now.unix);
            let failing_secs = now.unix.0.saturating_sub(since.0);
            self.tell(relay, |relay| Note::Dead {
                relay,
                failing_secs,
            });
        }
        let (attempt, retry_secs) = (health.failures, wait.as_secs());
        self.tell(relay, |relay| Note::ConnectFailed {
            relay,
            end,
            attempt,
            retry_secs,
        });
    }

    fn leave_empty(&mut self) {
        let relays = self.targets.relays.iter();
        let empty = relays.filter(|(_, relay)| relay.is_empty());
        let empty: Vec<RelayNo> = empty.map(|(no, _)| no).collect();
        for relay in empty {
            let peer = self.peers.remove(&relay);
            if let Some(conn) = peer.and_then(|peer| peer.link.conn()) {
                self.connected -= 1;
                self.ask(relay, conn, ToRelay::HangUp);
            }
            self.tell(relay, |relay| Note::Left { relay });
            self.targets.relays.leave(relay);
        }
    }

    fn ask(&mut self, relay: RelayNo, conn: ConnNo, what: ToRelay) {
        let asked = Asked { conn, what };
        self.effects.push_back(SyncEffect::Ask { relay, asked });
    }

    fn tell(&mut self, relay: RelayNo, note: impl FnOnce(RelayUrl) -> Note) {
        if let Some(relay) = self.targets.relays.get(relay) {
            let note = note(relay.url.clone());
            self.effects.push_back(SyncEffect::Note(note));
        }
    }
}
