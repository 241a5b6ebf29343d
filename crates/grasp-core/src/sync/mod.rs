//! Proactive sync (GRASP-02): which relays each repository has, what is to be watched and fetched
//! there, and what is missing. No sockets: [`io`] says what is asked of other relays and heard of
//! them.

mod agenda;
mod arrivals;
mod aside;
mod audit;
mod batch;
mod capabilities;
mod compared;
pub mod downloads;
pub mod filters;
mod gather;
mod health;
mod hear;
mod index;
pub mod io;
mod items;
mod lines;
mod link;
mod memo;
mod memory;
mod note;
pub mod paging;
mod peer;
mod refused;
mod relays;
mod remember;
mod session;
mod sought;
pub mod status;
mod subs;
mod targets;
mod watch;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;

use self::agenda::Agenda;
pub use self::agenda::Timer;
pub use self::arrivals::Outcome;
use self::arrivals::{Arrival, Later, REFUSED_PER_MINUTE};
use self::aside::Aside;
use self::batch::{Batch, Via};
pub use self::capabilities::{Capabilities, Reconciles};
use self::downloads::{BatchNo, Downloads};
pub use self::gather::{Gathered, News};
pub use self::health::{Health, RelayHealth};
pub use self::index::{RepoSyncIndex, RepoSyncNeeds, Stage};
use self::io::{FromRelay, ToRelay};
pub use self::items::{Items, RepoIx, RootIx};
pub use self::link::{Link, Why};
use self::memo::Memo;
pub use self::memory::{Dismissed, Fate, REST, Record, RelayMemory};
pub use self::note::{Note, Source};
use self::peer::Peer;
pub use self::relays::{Relay, RelaySyncIndex};
use self::remember::Restored;
pub use self::session::Session;
use self::sought::Sought;
use self::status::BySource;
pub use self::status::Status;
pub use self::subs::{Purpose, Sub};
pub use self::targets::Targets;
use crate::clock::{Mono, Now, Timestamp};
use crate::facts::Seq;
use crate::id::EventId;
use crate::limiter::{Limiter, Rate};
use crate::limits::SyncLimits;
use crate::nip34::RepoId;
use crate::relay_url::RelayUrl;
use crate::ticket::{ConnNo, RelayNo, Ticket};

/// What is here, as far as sync must ask.
pub trait Here {
    /// Stored, on its way into the store, or held.
    fn has(&self, id: &EventId) -> bool;

    /// Announcements and states that are held.
    fn held_announcements(&self) -> Vec<(Timestamp, EventId)>;

    /// Grows when something is held no longer.
    fn released(&self) -> u64;

    /// A repository that a stored event names.
    fn repository_of(&self, id: &EventId) -> Option<RepoId>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncEffect {
    Ask {
        relay: RelayNo,
        conn: ConnNo,
        what: ToRelay,
    },
    Note(Note),
    /// To be written down.
    Remember(Arc<RelayMemory>),
    Forget(RelayUrl),
    Dismiss(Dismissed),
    Recall(EventId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// What was known before is being heard; nobody is asked yet.
    Restoring,
    Running,
    Stopping,
}

/// The part of the core that keeps us in step with other relays. Called like the core itself:
/// handle what happens, then take the effects; call again when the next deadline has passed.
#[derive(Debug)]
pub struct Sync {
    limits: SyncLimits,
    rng: fastrand::Rng,
    targets: Targets,
    gathered: Gathered,
    peers: BTreeMap<RelayNo, Peer>,
    agenda: Agenda,
    connected: usize,
    next_conn: u64,
    /// Whose each batch is, and why it is fetched.
    batches: FxHashMap<BatchNo, (RelayNo, Via)>,
    next_batch: u64,
    downloads: Downloads,
    /// Items whose history has come from some relay.
    known: Items,
    /// Items whose history is on its way for the first time: other relays wait for it.
    leading: Items,
    waiting: BTreeSet<RelayNo>,
    /// Relays that there may be something to begin with.
    again: BTreeSet<RelayNo>,
    /// Relays whose history waits for room among the wanted events.
    blocked: BTreeSet<RelayNo>,
    /// Events of other relays that are not judged yet.
    arrivals: FxHashMap<Ticket, Arrival>,
    judged: VecDeque<(Arrival, Outcome)>,
    later: Later,
    /// Live events that were not taken.
    refused_live: Limiter<RelayNo>,
    sought: Sought,
    memo: Memo,
    aside: Option<Aside>,
    /// The newest commit.
    latest: Option<Seq>,
    restored: Restored,
    totals: BySource,
    phase: Phase,
    effects: VecDeque<SyncEffect>,
}

impl Sync {
    pub fn new(limits: SyncLimits, seed: u64) -> Self {
        Self {
            downloads: Downloads::new(limits.wants),
            memo: Memo::new(limits.remembered),
            refused_live: Limiter::new(
                Rate::per_minute(REFUSED_PER_MINUTE),
                2 * limits.relays.max(64),
            ),
            limits,
            rng: fastrand::Rng::with_seed(seed),
            targets: Targets::default(),
            gathered: Gathered::default(),
            peers: BTreeMap::new(),
            agenda: Agenda::default(),
            connected: 0,
            next_conn: 0,
            batches: FxHashMap::default(),
            // The first number is nobody's: see `NOBODY`.
            next_batch: 1,
            known: Items::default(),
            leading: Items::default(),
            waiting: BTreeSet::new(),
            again: BTreeSet::new(),
            blocked: BTreeSet::new(),
            arrivals: FxHashMap::default(),
            judged: VecDeque::new(),
            later: Later::default(),
            sought: Sought::default(),
            aside: None,
            latest: None,
            restored: Restored::default(),
            totals: BySource::default(),
            phase: Phase::Restoring,
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
        for news in self.gathered.take() {
            self.apply(news);
        }
        self.targets.take_changed();
        self.recollect(now);
        self.phase = Phase::Running;
        self.agenda
            .add(now.mono + self.limits.empty_check, Timer::Empty);
    }

    /// Something happened here itself.
    pub fn news(&mut self, news: News, now: Mono) {
        if self.is_on() {
            self.gathered.add(news, now);
            self.remind_of_news(now);
        }
    }

    pub fn handle(
        &mut self,
        relay: RelayNo,
        conn: ConnNo,
        word: FromRelay,
        now: Now,
        here: &dyn Here,
    ) {
        if !self.is_on() {
            return;
        }
        let peer = self.peers.get_mut(&relay);
        // What an earlier connection still says is of no interest.
        let Some(peer) = peer.filter(|peer| peer.link.conn() == Some(conn)) else {
            return;
        };
        if let Some(session) = peer.session_mut()
            && word.is_heard()
        {
            session.heard = now.mono;
            session.heard_unix = now.unix;
        }
        match word {
            FromRelay::Up => self.on_up(relay, conn, now),
            FromRelay::Down(end) => self.on_down(relay, end, now),
            word => self.on_word(relay, word, now, here),
        }
        self.turn(now, here);
    }

    pub fn handle_timeout(&mut self, now: Now, here: &dyn Here) {
        while let Some(timer) = self.agenda.take(now.mono) {
            match timer {
                Timer::Gathered => self.look_at_news(now),
                Timer::Link(relay) => self.look_at(relay, now),
                Timer::Work(relay) => self.look_at_work(relay, now),
                Timer::Lead(relay) => self.look_at_lead(relay, now),
                Timer::Full(relay) => self.compare_all(relay, now),
                Timer::Turn(relay) => self.take_turn(relay, now),
                Timer::Later => self.ask_later(now, here),
                Timer::Announcements => self.compare_announcements(now),
                Timer::Empty => {
                    self.leave_empty(now);
                    self.agenda
                        .add(now.mono + self.limits.empty_check, Timer::Empty);
                }
                Timer::Save => self.save(now),
            }
        }
        self.turn(now, here);
    }

    /// After everything that happens: events that were judged, and relays that there is something
    /// to begin with.
    pub fn turn(&mut self, now: Now, here: &dyn Here) {
        if self.phase != Phase::Running {
            return;
        }
        while let Some((arrival, outcome)) = self.judged.pop_front() {
            self.on_judged(&arrival, outcome, now);
        }
        if self.gathered.is_leaving() {
            self.act_on_news(now);
        }
        loop {
            while let Some(relay) = self.again.pop_first() {
                self.work(relay, now, here);
            }
            let blocked = std::mem::take(&mut self.blocked).into_iter();
            let (still, free) = blocked.partition(|relay| self.downloads.is_full(*relay));
            (self.blocked, self.again) = (still, free);
            if self.again.is_empty() {
                break;
            }
        }
        self.put_off_unasked(now);
        self.remind_to_compare(now);
        self.remind_of_news(now.mono);
        self.remind_to_save(now);
    }

    pub fn poll_effect(&mut self) -> Option<SyncEffect> {
        self.effects.pop_front()
    }

    pub fn poll_timeout(&self) -> Option<(Mono, Timer)> {
        self.agenda.next()
    }

    /// Hangs up everywhere and writes down what is known; nothing is begun any more.
    pub fn wind_down(&mut self, now: Now) {
        if !self.is_on() {
            return;
        }
        for peer in self.peers.values_mut() {
            peer.dirty = true;
        }
        self.save(now);
        self.phase = Phase::Stopping;
        self.agenda.clear();
        let lines = self.peers.iter();
        let lines = lines.filter_map(|(relay, peer)| Some((*relay, peer.link.conn()?)));
        let lines: Vec<_> = lines.collect();
        for (relay, conn) in lines {
            self.ask(relay, conn, ToRelay::HangUp);
        }
    }

    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    pub fn link(&self, relay: RelayNo) -> Option<&Link> {
        self.peers.get(&relay).map(|peer| &peer.link)
    }

    pub fn health(&self, relay: RelayNo) -> Option<RelayHealth> {
        self.peers.get(&relay).map(|peer| peer.health)
    }

    pub fn is_on(&self) -> bool {
        self.limits.enabled && self.phase != Phase::Stopping
    }

    /// History is on its way, and may bring more news.
    fn is_fetching(&self, now: Mono) -> bool {
        let brings = |peer: &Peer| {
            let session = peer.session().filter(|_| !peer.is_paused(now));
            session.is_some_and(|session| {
                !session.batches.is_empty() && now < session.progress + self.limits.batch_window
            })
        };
        !self.batches.is_empty() && self.peers.values().any(brings)
    }

    fn remind_of_news(&mut self, now: Mono) {
        if let Some(due) = self.gathered.due(self.is_fetching(now), &self.limits) {
            self.agenda.add(due, Timer::Gathered);
        }
    }

    fn look_at_news(&mut self, now: Now) {
        let due = self.gathered.due(self.is_fetching(now.mono), &self.limits);
        if due.is_some_and(|due| due <= now.mono) {
            self.act_on_news(now);
        } else {
            self.remind_of_news(now.mono);
        }
    }

    fn act_on_news(&mut self, now: Now) {
        for news in self.gathered.take() {
            self.apply(news);
        }
        for relay in self.targets.take_changed() {
            self.look_at(relay, now);
            self.again.insert(relay);
        }
    }

    fn apply(&mut self, news: News) {
        match news {
            News::Announced {
                repo,
                relays,
                stage,
            } => {
                let before = self.targets.over_limit;
                self.targets.announce(&repo, &relays, stage, &self.limits);
                if before == 0 && self.targets.over_limit > 0 {
                    self.effects
                        .push_back(SyncEffect::Note(Note::TooManyRelays));
                }
            }
            News::Gone(repo) => {
                let ix = self.targets.repos.find(&repo);
                let needs = ix.and_then(|ix| self.targets.repos.get(ix));
                let roots = needs.map(|needs| needs.roots.clone());
                self.targets.forget(&repo);
                if let Some(ix) = ix {
                    self.forget_repo(ix);
                }
                self.forget_roots(roots.unwrap_or_default());
            }
            News::Root { id, repos, at } => {
                let full = self.targets.is_full(id, &repos, &self.limits);
                self.targets.add_root(id, &repos, at, &self.limits);
                if full && !std::mem::replace(&mut self.targets.left_out_roots, true) {
                    self.effects.push_back(SyncEffect::Note(Note::TooManyRoots));
                }
            }
        }
    }

    /// Its number may soon be another's.
    fn forget_repo(&mut self, ix: RepoIx) {
        self.known.repos.remove(ix.0);
        self.leading.repos.remove(ix.0);
        for peer in self.peers.values_mut() {
            peer.doubts.forget_repo(ix.0);
            if let Some(session) = peer.session_mut() {
                session.forget_repo(ix.0);
            }
        }
    }

    /// Those that belonged to no other repository will never be asked about again.
    fn forget_roots(&mut self, roots: RoaringBitmap) {
        for root in roots {
            if self.targets.repos.root(RootIx(root)).is_none() {
                self.known.roots.remove(root);
            }
        }
    }

    fn session_mut(&mut self, relay: RelayNo) -> Option<&mut Session> {
        self.peers.get_mut(&relay)?.session_mut()
    }

    fn batch_mut(&mut self, relay: RelayNo, no: BatchNo) -> Option<&mut Batch> {
        self.peers.get_mut(&relay)?.batch_mut(no)
    }

    fn ask(&mut self, relay: RelayNo, conn: ConnNo, what: ToRelay) {
        self.effects
            .push_back(SyncEffect::Ask { relay, conn, what });
    }

    fn tell(&mut self, relay: RelayNo, note: impl FnOnce(RelayUrl) -> Note) {
        if let Some(relay) = self.targets.relays.get(relay) {
            let note = note(relay.url.clone());
            self.effects.push_back(SyncEffect::Note(note));
        }
    }
}
