//! Where sync meets the rest: it hears of repositories, roots and verdicts, and what it asks for
//! becomes effects.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::hold::{MAX_NAMED, caused_by, causes};
use super::known::Here;
use super::{Answer, Change, Core, Effect, Errand};
use crate::admit::{self, Cause, Needs, Origin, Refusal};
use crate::clock::{Now, Timestamp};
use crate::event::{Address, Event, Kind};
use crate::facts::{Facts, RootRow, Seq};
use crate::id::EventId;
use crate::nip34::{self, PullRequest, RepoId, Target, targets};
use crate::purgatory::{Held, Holder};
use crate::registry::Standing;
use crate::sync::io::FromRelay;
use crate::sync::{self, Fate, News, Outcome, REST, Stage, SyncEffect};
use crate::ticket::{ConnNo, RelayNo, Ticket};

/// How long those are left alone whose git data was nowhere: the next daily run brings them again.
const REST_WITHOUT_DATA: Duration = Duration::from_secs(20 * 60 * 60);
/// The same for those that came beyond a day's share.
const REST_OF_QUOTA: Duration = Duration::from_secs(6 * 60 * 60);
/// Causes that an early event is found by, besides its own address: about 50 bytes each.
const MAX_MARKS: usize = 4;

/// How each repository of ours stood when sync heard of it last: about 150 bytes for each that is
/// announced. A new version that changes nothing of it costs no walk through what names it.
#[derive(Debug, Default)]
pub struct Told(FxHashMap<RepoId, Standing>);

impl Told {
    /// How it stood before.
    fn set(&mut self, repo: &RepoId, standing: Option<Standing>) -> Option<Standing> {
        match standing {
            Some(standing) => self.0.insert(repo.clone(), standing),
            None => self.0.remove(repo),
        }
    }
}

impl Core {
    pub(super) fn on_remote(
        &mut self,
        relay: RelayNo,
        conn: ConnNo,
        word: FromRelay,
        facts: &dyn Facts,
    ) {
        self.with_sync(facts, |sync, now, here| {
            sync.handle(relay, conn, word, now, here);
        });
    }

    pub(super) fn on_sync_timeout(&mut self, facts: &dyn Facts) {
        self.with_sync(facts, |sync, now, here| sync.handle_timeout(now, here));
    }

    fn with_sync(
        &mut self,
        facts: &dyn Facts,
        call: impl FnOnce(&mut sync::Sync, Now, &dyn sync::Here),
    ) {
        let here = Here {
            facts,
            in_flight: &self.in_flight,
            purgatory: &self.purgatory,
        };
        call(&mut self.sync, self.now, &here);
    }

    /// After every turn: sync hears what has changed, and its wishes become effects.
    pub(super) fn keep_in_step(&mut self, facts: &dyn Facts) {
        for repo in self.registry.take_changed() {
            let news = self.standing_of(repo.clone());
            let stands = self.registry.hosting(&repo);
            let stood = self.told.set(&repo, stands);
            self.sync.news(news, self.now.mono);
            let cause = mark(&Cause::Announced(repo.identifier.clone()));
            self.sync.look_again(&[cause], self.now);
            let became = |standing| stood < Some(standing) && stands >= Some(standing);
            if became(Standing::Served) && self.sync.is_on() {
                self.watch_roots(&repo, facts);
            }
            if became(Standing::Held) {
                self.look_again_at_updates(&repo, facts);
            }
        }
        self.with_sync(facts, |sync, now, here| sync.turn(now, here));
        self.drain_sync();
    }

    /// What was stored about a repository before it was served here.
    fn watch_roots(&mut self, repo: &RepoId, facts: &dyn Facts) {
        for root in facts.roots(repo, &nip34::ROOTS) {
            // Its other repositories heard of it when they came.
            let news = News::Root {
                id: root.id,
                repos: vec![repo.clone()],
                at: root.created_at,
            };
            self.sync.news(news, self.now.mono);
        }
    }

    fn watch_root(&mut self, event: &Event, facts: &dyn Facts) {
        if let Some(news) = self.root(event, facts) {
            self.sync.news(news, self.now.mono);
        }
    }

    fn watch_update(&mut self, update: &RootRow, facts: &dyn Facts) {
        if let Some(row) = facts.pull_request(&update.id) {
            let news = News::Root {
                id: update.id,
                repos: self.places(row.says, facts),
                at: update.created_at,
            };
            self.sync.news(news, self.now.mono);
        }
    }

    /// An update of a pull request that came while none of its repositories was here names only
    /// the pull request.
    fn look_again_at_updates(&mut self, repo: &RepoId, facts: &dyn Facts) {
        if !self.sync.expects_early() {
            return;
        }
        let roots = facts.roots(repo, &[nip34::PULL_REQUEST]);
        let came = |root: &RootRow| mark(&Cause::Came(Target::Event(root.id)));
        let causes: Vec<u64> = roots.iter().map(came).collect();
        self.sync.look_again(&causes, self.now);
    }

    fn drain_sync(&mut self) {
        let mut changes = Vec::new();
        while let Some(effect) = self.sync.poll_effect() {
            match effect {
                SyncEffect::Ask { relay, conn, what } => {
                    let ask = what;
                    self.effects.push_back(Effect::Remote { relay, conn, ask });
                }
                SyncEffect::Note(note) => self.effects.push_back(Effect::Noted(note)),
                SyncEffect::Remember(memory) => changes.push(Change::Relay(memory)),
                SyncEffect::Forget(url) => changes.push(Change::ForgetRelay(url)),
                SyncEffect::Dismiss(row) => changes.push(Change::Dismiss(row)),
                SyncEffect::Recall(id) => changes.push(Change::Recall(id)),
            }
        }
        if !changes.is_empty() {
            // If the disk refuses, it is written with the next change, or learned anew.
            self.commit(changes, Errand::Done);
        }
    }

    pub(super) fn start_sync(&mut self, facts: &dyn Facts) {
        self.keep_in_step(facts);
        self.sync.start(&self.policy.bootstrap, self.now);
    }

    pub(super) fn stop_sync(&mut self) {
        self.sync.wind_down(self.now);
        self.drain_sync();
    }

    fn standing_of(&self, repo: RepoId) -> News {
        let stage = match self.registry.hosting(&repo) {
            Some(Standing::Served) => Stage::Served,
            Some(Standing::Held) => Stage::Announced,
            Some(Standing::Remembered) | None => return News::Gone(repo),
        };
        let announcement = self.registry.announcement(&repo);
        News::Announced {
            relays: announcement.map_or_else(Vec::new, |found| found.relays.clone()),
            repo,
            stage,
        }
    }

    pub(super) fn restore_repository(&mut self, repo: RepoId, seq: Seq) {
        self.told.set(&repo, self.registry.hosting(&repo));
        let news = self.standing_of(repo);
        self.sync.restore(news, seq);
    }

    pub(super) fn restore_root(&mut self, event: &Event, seq: Seq, facts: &dyn Facts) {
        if let Some(news) = self.root(event, facts) {
            self.sync.restore(news, seq);
        }
    }

    /// An event is stored: it may be a root, it may be about one, and others may have waited for
    /// it.
    pub(super) fn tell_sync_stored(&mut self, event: &Event, seq: Seq, facts: &dyn Facts) {
        self.sync.stored(seq);
        self.watch_root(event, facts);
        if event.kind == nip34::PULL_REQUEST {
            // They may have been stored first, and belong where it does.
            for update in facts.updates(&event.id) {
                self.watch_update(&update, facts);
            }
        }
        let about = targets(event).filter_map(|target| match target {
            Target::Event(id) => Some(id),
            Target::Address(_) => None,
        });
        self.sync.touch(about, event.created_at);
        self.tell_sync_accepted(event);
    }

    /// An event is stored or held.
    pub(super) fn tell_sync_accepted(&mut self, event: &Event) {
        let mut marks: Vec<u64> = caused_by(event).iter().map(mark).collect();
        let mut named = Vec::new();
        for target in targets(event).take(MAX_NAMED) {
            match target {
                Target::Event(id) => named.push(id),
                Target::Address(address) => marks.push(mark_named(&address)),
            }
        }
        self.sync.accepted(&event.id, &marks, &named, self.now);
    }

    /// A held event has waited in vain: it need not be fetched again at once.
    pub(super) fn tell_sync_expired(&mut self, event: &Event, needs: &Needs) {
        let waited_for_events = matches!(needs, Needs::Arrival(_) | Needs::Release(_));
        let (rest, marks) = match waited_for_events {
            true => (REST, marks(event)),
            // Announcements and states come and go: those that waited in vain would take the
            // place of those that never had a chance. Only what names it brings it back.
            false => {
                let named = event.address().as_ref().map(mark_named);
                (REST_WITHOUT_DATA, named.into_iter().collect())
            }
        };
        let until = self.now.unix.saturating_add(rest);
        self.sync.dismiss(event, Fate::Rests(until, marks));
    }

    /// What a held event waited for will not come; something else may.
    pub(super) fn tell_sync_given_up(&mut self, event: &Event, refusal: &Refusal) {
        if refusal.is_early() {
            self.sync.dismiss(event, Fate::Early(marks(event)));
        }
    }

    /// A held event has made way for another. What a relay brought is asked for again.
    pub(super) fn tell_sync_evicted(&mut self, held: &Held) {
        if let Some(Holder::Relay(relay)) = held.holder {
            self.sync.ask_again_later(held.event.id, relay, self.now);
        }
    }

    /// Another relay brings an event: one that need not come again is not judged again.
    pub(super) fn is_dismissed(
        &mut self,
        ticket: Ticket,
        event: &Arc<Event>,
        origin: &Origin,
    ) -> bool {
        let Origin::Sync(delivery) = origin else {
            return false;
        };
        let (now, id) = (self.now.unix, event.id);
        self.sync.arrived(ticket, Arc::clone(event), *delivery, now);
        // One that is not stored would go round between servers that watch each other for ever.
        let passing = event.kind.is_ephemeral();
        let dismissed = passing || self.sync.dismisses(&id, now);
        if dismissed {
            self.answer(ticket, Answer::Duplicate);
        }
        dismissed
    }

    pub(super) fn tell_sync_answered(&mut self, ticket: Ticket, answer: &Answer) {
        let new = matches!(answer, Answer::Accepted | Answer::Held);
        match self.sync.arrival(ticket) {
            Some(event) => {
                let outcome = outcome(event, answer, self.now.unix);
                self.sync.judged(ticket, outcome);
            }
            None if new => self.sync.count_direct(),
            None => {}
        }
    }

    fn root(&self, event: &Event, facts: &dyn Facts) -> Option<News> {
        let repos = match event.kind {
            nip34::PULL_REQUEST | nip34::PULL_REQUEST_UPDATE => {
                self.places(PullRequest::read(event)?, facts)
            }
            nip34::PATCH | nip34::ISSUE => {
                let named = targets(event).filter_map(|target| match target {
                    Target::Address(address) => RepoId::of_address(&address),
                    Target::Event(_) => None,
                });
                admit::hosted_here(named, &self.registry)
            }
            _ => return None,
        };
        Some(News::Root {
            id: event.id,
            repos,
            at: event.created_at,
        })
    }
}

impl sync::Here for Here<'_> {
    fn has(&self, id: &EventId) -> bool {
        let held = self.purgatory.get(id);
        self.in_flight.contains_key(id)
            || held.is_some_and(|held| !matches!(held.needs, Needs::Arrival(_)))
            || self.facts.kind_of(id).is_some()
    }

    fn held_announcements(&self) -> Vec<(Timestamp, EventId)> {
        let held = self.purgatory.iter().filter(|held| {
            matches!(held.event.kind, Kind::ANNOUNCEMENT | Kind::STATE)
                && !matches!(held.needs, Needs::Arrival(_))
        });
        let mut held: Vec<_> = held
            .map(|held| (held.event.created_at, held.event.id))
            .collect();
        held.sort_unstable();
        held
    }

    fn released(&self) -> u64 {
        self.purgatory.released()
    }

    fn repository_of(&self, id: &EventId) -> Option<RepoId> {
        repository_named_by(&*self.facts.event(id)?)
    }
}

/// The repository that an event announces, or else the first that it names.
pub(super) fn repository_named_by(event: &Event) -> Option<RepoId> {
    let own = event.address().and_then(|own| RepoId::of_address(&own));
    own.or_else(|| {
        targets(event).find_map(|target| match target {
            Target::Address(address) => RepoId::of_address(&address),
            Target::Event(_) => None,
        })
    })
}

/// What an answer means to whoever fetched the event.
fn outcome(event: &Event, answer: &Answer, now: Timestamp) -> Outcome {
    let refusal = match answer {
        Answer::Accepted | Answer::Held => return Outcome::New,
        Answer::Duplicate => return Outcome::Known,
        Answer::Refused(refusal) => refusal,
    };
    match refusal {
        early if early.is_early() => Outcome::Dismissed(Fate::Early(marks(event))),
        Refusal::TooFarAhead(ahead) => {
            let until = event.created_at.saturating_sub(*ahead);
            Outcome::Dismissed(Fate::Rests(until, Vec::new()))
        }
        Refusal::AddressRate(_)
        | Refusal::KeyRate(_)
        | Refusal::TooManyHeld
        | Refusal::TooManyHeldFromAddress
        | Refusal::PurgatoryFull
        | Refusal::Evicted
        | Refusal::PublishedQuota
        | Refusal::DiskFull
        | Refusal::StoreFailed => Outcome::NotNow,
        Refusal::SyncQuota => {
            Outcome::Dismissed(Fate::Rests(now.saturating_add(REST_OF_QUOTA), Vec::new()))
        }
        // The operator may think otherwise one day, and other pull requests may go.
        Refusal::RepositoryBlocked
        | Refusal::AuthorBlocked
        | Refusal::TooManyTips
        | Refusal::TooOld(_) => {
            Outcome::Dismissed(Fate::Rests(now.saturating_add(REST), marks(event)))
        }
        _ => Outcome::Dismissed(Fate::ForGood),
    }
}

/// What may change the verdict on an event that came too early: something that it waits for, or
/// something that names it.
fn marks(event: &Event) -> Vec<u64> {
    let causes = causes(event);
    let marks = causes.iter().take(MAX_MARKS).map(mark);
    marks
        .chain(event.address().as_ref().map(mark_named))
        .collect()
}

fn mark(cause: &Cause) -> u64 {
    number(&match cause {
        Cause::Announced(identifier) => format!("announced {identifier}"),
        Cause::Came(Target::Event(id)) => format!("event {id}"),
        Cause::Came(Target::Address(address)) => format!("address {}", spelled(address)),
    })
}

/// Somebody names the address; another version of what is there does not.
fn mark_named(address: &Address) -> u64 {
    number(&format!("named {}", spelled(address)))
}

fn spelled(address: &Address) -> String {
    format!("{}:{}:{}", address.kind, address.pubkey, address.d)
}

/// The same in every version of this program (FNV-1a).
fn number(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
