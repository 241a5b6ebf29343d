//! The one state machine. Rules live in the modules before it; here they are put in order.

mod checking;
mod deletion;
mod disk;
mod effect;
mod expiry;
mod hold;
mod hosting;
mod hunting;
mod input;
mod known;
mod lacking;
mod landing;
mod lost;
mod pruning;
mod pushing;
mod restore;
mod retry;
mod settle;
mod state_cache;
mod syncing;
mod tips;
mod unanswered;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use self::checking::Check;
use self::disk::{Charge, PublishedBytes, SyncedBytes};
pub use self::effect::{Answer, Change, Effect, GitTask, Repair};
use self::hold::Line;
use self::hunting::Sought;
pub use self::input::{Failed, GitDone, Input, Restore};
use self::landing::Landing;
use self::lost::{Lost, Promises};
use self::pruning::Prunes;
use self::pushing::Push;
use self::retry::{Again, Discard, Retries};
use self::settle::Settle;
use self::state_cache::StateCache;
use self::syncing::Told;
use self::tips::{TipChange, Tips};
use self::unanswered::Unanswered;
use crate::admit::{self, Refusal, Verdict};
pub use crate::admit::{Lists, Origin, Policy, RepoPattern};
use crate::clock::{BelievedClock, Mono, Now};
use crate::event::{Event, Kind};
pub use crate::facts::{Facts, Seq, StoreOutcome};
use crate::hunt::{Hunt, Order};
use crate::id::{EventId, Pubkey};
use crate::limiter::{Limiter, Rate};
use crate::nip34::{Identifier, RepoId};
use crate::purgatory::{EarlyTips, Holder, Purgatory};
use crate::registry::Registry;
use crate::sync::{Sync, Timer};
pub use crate::ticket::{Job, PushId, Ticket};

/// Expired and deleted events are hidden from readers at once; the sweep only gives their space
/// back.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// So that machines started together do not all sweep in the same second.
const SWEEP_JITTER: Duration = Duration::from_secs(10);
/// Keys with a rate bucket: 200,000 x 72 bytes = 15 MB.
const MAX_RATED_KEYS: usize = 200_000;

/// What the next deadline is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    SweepExpired,
    /// A held event or a tip without its event has waited long enough.
    Expire,
    /// A submitter has waited long enough for git.
    AnswerHeld,
    /// Something failed and is tried again.
    Retry,
    /// Many events waited for one that has come, and not all of them were looked at.
    LookAgain,
    /// A repository may have objects that nobody needs.
    Prune,
    /// Something is due with another relay.
    Sync(Timer),
    /// Git data is to be looked for elsewhere.
    Hunt,
}

/// Decides; does nothing.
///
/// The contract:
/// - First every [`Input::Restore`], then [`Input::Restored`], then anything.
/// - Call [`Core::handle`] for everything that happens and [`Core::handle_timeout`] when the
///   deadline of [`Core::poll_timeout`] has passed. Time never goes back between calls.
/// - After each call, drain [`Core::poll_effect`] until it returns `None` and carry the
///   effects out in that order.
/// - Every `Store`, `Sweep`, `Commit` and `Git` is answered by exactly one input. Every
///   `Input::Event` leads to exactly one `Answer`, every `Input::Push` to one `Decide`, and every
///   push that is not refused at once to one `Report`.
/// - Tasks of one repository are carried out in their order.
/// - A restart is a new `Core`: what was not answered may be submitted again.
#[derive(Debug)]
pub struct Core {
    policy: Policy,
    rng: fastrand::Rng,
    effects: VecDeque<Effect>,
    /// Bounded by the submitters: each has a bounded number of unanswered events.
    storing: FxHashMap<Ticket, (Arc<Event>, Charge)>,
    /// Events between the verdict and the commit: whoever comes after may lean on them.
    in_flight: FxHashMap<EventId, Kind>,
    keys: Limiter<Pubkey>,
    sweep: Sweep,
    registry: Registry,
    purgatory: Purgatory,
    unanswered: Unanswered,
    jobs: FxHashMap<Job, Errand>,
    next_job: u64,
    /// One at a time for repositories that hang together, by their identifier and the owner of the
    /// first of them; those that must be looked at again wait beside.
    settling: FxHashMap<Identifier, BTreeMap<Pubkey, Settle>>,
    settle_again: BTreeMap<Identifier, BTreeSet<RepoId>>,
    landing: FxHashMap<EventId, Landing>,
    pushes: FxHashMap<PushId, Push>,
    /// Tips that were pushed before their event came.
    early_tips: EarlyTips,
    to_look_at: Line,
    tips: Tips,
    /// Repositories that git is making, and how often it was asked to.
    creating: FxHashMap<RepoId, usize>,
    /// Repositories whose refs may not be those of the state applied last.
    out_of_step: FxHashSet<RepoId>,
    retries: Retries,
    /// Repositories that a start found on disk.
    on_disk: BTreeSet<RepoId>,
    /// Repositories that are to be looked at, whether disk and store agree.
    unchecked: BTreeSet<RepoId>,
    checking: FxHashMap<RepoId, Check>,
    /// Those that could not be judged because they were settling.
    check_settled: FxHashMap<Identifier, BTreeSet<RepoId>>,
    /// Repositories that were looked at since they are hosted.
    checked: FxHashSet<RepoId>,
    lost: Lost,
    prunes: Prunes,
    /// Stored events that no reader sees, because their objects are gone.
    hidden: FxHashSet<EventId>,
    sync: Sync,
    synced_bytes: SyncedBytes,
    published_bytes: PublishedBytes,
    /// Of repositories in which a change of tips is under way: those that wait for its end.
    tip_changes: FxHashMap<RepoId, Vec<TipChange>>,
    disk_low: bool,
    told: Told,
    hunt: Hunt,
    sought: Sought,
    states: StateCache,
    now: Now,
    /// For what is given up when its time is over. Events are judged by the wall clock itself.
    clock: BelievedClock,
}

/// What an answer of the store or of git goes on with.
#[derive(Debug, Clone)]
enum Errand {
    Created(RepoId),
    Discarded(Discard),
    /// Of the group that begins with this repository, the n-th.
    Settle(RepoId, usize),
    Settled(RepoId),
    Land(EventId, usize),
    Landed(Arc<Event>),
    LookedForTips(RepoId, Vec<EventId>),
    /// Held events become durable.
    WrittenDown(Vec<EventId>),
    /// An event is held no longer.
    Unheld(EventId),
    /// It is written which state a repository has.
    Recorded(RepoId),
    /// A held event that needed no git data is stored.
    Joined(Arc<Event>),
    PushedTips(PushId),
    ChangedTips(RepoId, Vec<TipChange>),
    RemovedTips(RepoId, Vec<EventId>),
    SetTips(RepoId, Vec<EventId>),
    Checked(RepoId),
    /// Whether the objects of what is served are there.
    Verified(RepoId, Arc<Promises>),
    /// Refs are set to what they should be.
    Mended(RepoId),
    Hidden(EventId),
    Shown(EventId),
    PrunePrepared(RepoId),
    Pruned(RepoId),
    /// Nothing follows.
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    /// Before the first call we do not know the time.
    Unscheduled,
    At(Mono),
    Running,
}

impl Core {
    pub fn new(policy: Policy, seed: u64) -> Self {
        let rate = Rate::per_minute(policy.limits.events_per_minute_per_key);
        let synced_bytes = SyncedBytes::new(&policy.limits.sync);
        let published_bytes = PublishedBytes::new(&policy.limits);
        let sync = Sync::new(policy.limits.sync.clone(), seed);
        let hunt = Hunt::new(policy.limits.hunt.clone());
        Self {
            registry: Registry::new(policy.rule),
            policy,
            rng: fastrand::Rng::with_seed(seed),
            effects: VecDeque::new(),
            storing: FxHashMap::default(),
            in_flight: FxHashMap::default(),
            keys: Limiter::new(rate, MAX_RATED_KEYS),
            sweep: Sweep::Unscheduled,
            purgatory: Purgatory::default(),
            unanswered: Unanswered::default(),
            jobs: FxHashMap::default(),
            next_job: 0,
            settling: FxHashMap::default(),
            settle_again: BTreeMap::new(),
            landing: FxHashMap::default(),
            pushes: FxHashMap::default(),
            early_tips: EarlyTips::default(),
            to_look_at: Line::default(),
            tips: Tips::default(),
            creating: FxHashMap::default(),
            out_of_step: FxHashSet::default(),
            retries: Retries::default(),
            on_disk: BTreeSet::new(),
            unchecked: BTreeSet::new(),
            checking: FxHashMap::default(),
            check_settled: FxHashMap::default(),
            checked: FxHashSet::default(),
            lost: Lost::default(),
            hidden: FxHashSet::default(),
            prunes: Prunes::default(),
            sync,
            synced_bytes,
            published_bytes,
            tip_changes: FxHashMap::default(),
            disk_low: false,
            told: Told::default(),
            hunt,
            sought: Sought::default(),
            states: StateCache::default(),
            now: Now::default(),
            clock: BelievedClock::default(),
        }
    }

    pub fn handle(&mut self, input: Input, now: Now, facts: &dyn Facts) {
        self.set_time(now);
        self.schedule_first_sweep();
        match input {
            Input::Restore(restore) => self.on_restore(restore, facts),
            Input::Restored => self.on_restored(facts),
            Input::Event {
                ticket,
                event,
                origin,
            } => self.on_event(ticket, event, &origin, facts),
            Input::Committed { ticket, outcome } => self.on_committed(ticket, outcome, facts),
            Input::Swept { more } => self.on_swept(more, facts),
            Input::Written { job, outcomes } => self.on_written(job, outcomes, facts),
            Input::Git { job, outcome } => self.on_git(job, outcome, facts),
            Input::Push {
                push,
                repo,
                commands,
                present,
                network,
            } => self.on_push(push, repo, &commands, &present, network, facts),
            Input::PushTaken { push, taken } => self.on_push_taken(push, taken, facts),
            Input::DiskLow(low) => self.disk_low = low,
            Input::Remote { relay, conn, word } => self.on_remote(relay, conn, word, facts),
            Input::Flowing { fetch, bytes } => self.on_flowing(fetch, bytes),
            Input::Arrived(fetch) => self.hunt.on_arrived(fetch, self.now.mono),
            Input::Fetched { fetch, fetched } => self.on_fetched(fetch, &fetched, facts),
        }
        self.keep_in_step(facts);
        self.follow_hunt(facts);
    }

    pub fn handle_timeout(&mut self, now: Now, facts: &dyn Facts) {
        self.set_time(now);
        self.schedule_first_sweep();
        if matches!(self.sweep, Sweep::At(deadline) if deadline <= now.mono) {
            self.keys.forget_full(now.mono);
            self.sweep = Sweep::Running;
            let until = self.surely_past();
            self.effects.push_back(Effect::Sweep { until });
        }
        self.answer_overdue();
        self.look_at_next(facts);
        self.expire(facts);
        self.retry(facts);
        self.prune(facts);
        self.on_sync_timeout(facts);
        self.on_hunt_timeout(facts);
        self.keep_in_step(facts);
        self.follow_hunt(facts);
    }

    #[must_use]
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to call [`Core::handle_timeout`] next, and what for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Mono, Wake)> {
        let sweep = match self.sweep {
            Sweep::Unscheduled => Some(Mono::default()),
            Sweep::At(deadline) => Some(deadline),
            Sweep::Running => None,
        };
        let retry = self.retries.next();
        let again = (!self.to_look_at.is_empty()).then_some(self.now.mono);
        let sync = self.sync.poll_timeout();
        [
            sweep.map(|at| (at, Wake::SweepExpired)),
            self.next_expiry().map(|at| (at, Wake::Expire)),
            self.unanswered.next().map(|at| (at, Wake::AnswerHeld)),
            retry.map(|at| (at, Wake::Retry)),
            again.map(|at| (at, Wake::LookAgain)),
            self.prunes.next().map(|at| (at, Wake::Prune)),
            sync.map(|(at, timer)| (at, Wake::Sync(timer))),
            self.hunt.poll_timeout().map(|at| (at, Wake::Hunt)),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|(at, _)| *at)
    }

    /// Submissions and errands that wait for the store or for git.
    pub fn under_way(&self) -> usize {
        self.storing.len() + self.jobs.len()
    }

    /// Begins nothing more that a later start would do as well.
    pub fn wind_down(&mut self) {
        self.unchecked.clear();
        self.checking.clear();
        self.stop_pruning();
        self.stop_sync();
        self.hunt.wind_down();
        while let Some(Order::Stop(fetch)) = self.hunt.poll_order() {
            self.effects.push_back(Effect::StopFetch(fetch));
        }
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub fn purgatory(&self) -> &Purgatory {
        &self.purgatory
    }

    pub fn sync(&self) -> &Sync {
        &self.sync
    }

    pub fn hunt(&self) -> &Hunt {
        &self.hunt
    }

    fn on_event(&mut self, ticket: Ticket, event: Arc<Event>, origin: &Origin, facts: &dyn Facts) {
        let limited = matches!(origin, Origin::Client { .. });
        if limited && !self.keys.allow(event.pubkey, self.now.mono) {
            let rate = self.policy.limits.events_per_minute_per_key;
            return self.refuse(ticket, Refusal::KeyRate(rate));
        }
        if self.is_dismissed(ticket, &event, origin) {
            return;
        }
        if self.is_held_already(ticket, &event.id, facts) {
            return;
        }
        let verdict = self.judge(&event, origin, facts);
        let charge = match verdict {
            Verdict::Drop(_) => Charge::Nobody,
            Verdict::Store | Verdict::Hold(_) => match self.check_disk(&event, origin, facts) {
                Ok(charge) => charge,
                Err(refusal) => return self.refuse(ticket, refusal),
            },
        };
        match verdict {
            Verdict::Drop(refusal) => self.on_refused(ticket, event, origin, refusal),
            Verdict::Hold(needs) => {
                let id = event.id;
                let holder = Holder::of(origin);
                if self.on_hold(ticket, &event, needs, holder, facts) {
                    self.charge(&event, charge);
                }
                self.expect_data(&id, hunting::source(origin));
            }
            Verdict::Store if event.kind.is_ephemeral() => {
                self.answer(ticket, Answer::Accepted);
                self.effects
                    .push_back(Effect::Announce { event, seq: None });
            }
            Verdict::Store => {
                // It came too early once; now it has its own way.
                self.purgatory.remove(&event.id);
                self.in_flight.insert(event.id, event.kind);
                self.storing.insert(ticket, (Arc::clone(&event), charge));
                self.effects.push_back(Effect::Store { ticket, event });
            }
        }
    }

    fn judge(&self, event: &Event, origin: &Origin, facts: &dyn Facts) -> Verdict {
        let known = self.known(facts);
        let (policy, registry) = (&self.policy, &self.registry);
        admit::judge(event, origin, policy, registry, &known, self.now.unix)
    }

    fn on_committed(&mut self, ticket: Ticket, outcome: StoreOutcome, facts: &dyn Facts) {
        // A second word on the same ticket has nobody to tell.
        let Some((event, charge)) = self.storing.remove(&ticket) else {
            return;
        };
        self.in_flight.remove(&event.id);
        self.answer(ticket, answer_of(outcome));
        if let StoreOutcome::Stored(seq) = outcome {
            self.charge(&event, charge);
            self.on_accepted(&event, seq, facts);
        }
    }

    /// An event has become part of what is served: tell the world, and look again at everything
    /// that waited for it.
    fn on_accepted(&mut self, event: &Arc<Event>, seq: Seq, facts: &dyn Facts) {
        self.effects.push_back(Effect::Announce {
            event: Arc::clone(event),
            seq: Some(seq),
        });
        match event.kind {
            Kind::ANNOUNCEMENT => self.on_announced(event, facts),
            Kind::DELETION | Kind::VANISH => self.on_deletion(event, facts),
            _ => self.give_up_older(event, facts),
        }
        self.tell_sync_stored(event, seq, facts);
        self.look_again_after(event, facts);
        self.look_at_named(event, facts);
    }

    fn on_written(
        &mut self,
        job: Job,
        outcomes: Result<Vec<StoreOutcome>, Failed>,
        facts: &dyn Facts,
    ) {
        match self.jobs.remove(&job) {
            Some(Errand::Settled(first)) => self.on_settled(&first, outcomes, facts),
            Some(Errand::Landed(event)) => self.on_landed(&event, outcomes, facts),
            Some(Errand::WrittenDown(ids)) => {
                self.on_written_down(job, &ids, outcomes.is_ok(), facts);
            }
            Some(Errand::Recorded(repo)) => self.on_recorded(repo, outcomes.is_ok(), facts),
            Some(Errand::Unheld(id)) => self.on_unheld(id, outcomes.is_ok()),
            Some(Errand::Joined(event)) => self.on_joined(&event, outcomes, facts),
            Some(Errand::Hidden(id)) => self.on_hidden(id, outcomes.is_ok(), facts),
            Some(Errand::Shown(id)) => self.on_shown(id, outcomes.is_ok(), facts),
            _ => {}
        }
    }

    fn on_git(&mut self, job: Job, outcome: Result<GitDone, Failed>, facts: &dyn Facts) {
        if let Some(errand) = self.jobs.remove(&job) {
            self.on_git_errand(errand, outcome, facts);
        }
    }

    fn on_git_errand(
        &mut self,
        errand: Errand,
        outcome: Result<GitDone, Failed>,
        facts: &dyn Facts,
    ) {
        match errand {
            Errand::ChangedTips(repo, changes) => {
                self.on_changed_tips(&repo, changes, outcome, facts);
            }
            Errand::Created(repo) => self.on_created(&repo, outcome.is_ok(), facts),
            Errand::Discarded(discard) => self.on_discarded(discard, outcome.is_ok()),
            Errand::RemovedTips(repo, ids) => {
                self.on_removed_tips(&repo, ids, outcome.is_ok());
            }
            Errand::SetTips(repo, ids) if outcome.is_err() => {
                for id in ids {
                    self.retry_later(Again::SetTip(repo.clone(), id));
                }
            }
            Errand::Settle(first, n) => self.on_settle_step(&first, n, outcome, facts),
            Errand::LookedForTips(repo, ids) => {
                self.on_looked_for_tips(repo, &ids, outcome, facts);
            }
            Errand::Land(id, n) => self.on_land_step(&id, n, outcome, facts),
            Errand::PushedTips(push) => self.on_pushed_tips(push, outcome.is_ok(), facts),
            Errand::Checked(repo) => self.on_checked(&repo, outcome, facts),
            Errand::Verified(repo, promises) => {
                self.on_verified(&repo, &promises, outcome, facts);
            }
            Errand::PrunePrepared(repo) => {
                self.on_prune_prepared(&repo, outcome.is_ok(), facts);
            }
            Errand::Pruned(repo) => self.on_pruned(&repo, outcome.is_ok()),
            Errand::Mended(repo) if outcome.is_err() => {
                self.retry_later(Again::Check(repo));
            }
            _ => {}
        }
    }

    fn on_swept(&mut self, more: bool, facts: &dyn Facts) {
        self.unhost_swept(facts);
        let pause = if more {
            Duration::from_millis(100)
        } else {
            SWEEP_INTERVAL + self.jitter()
        };
        self.sweep = Sweep::At(self.now.mono + pause);
    }

    fn schedule_first_sweep(&mut self) {
        if self.sweep == Sweep::Unscheduled {
            self.sweep = Sweep::At(self.now.mono + self.jitter());
        }
    }

    fn jitter(&mut self) -> Duration {
        Duration::from_millis(self.rng.u64(..SWEEP_JITTER.as_millis() as u64))
    }

    fn ask_git(&mut self, repo: &RepoId, task: GitTask, errand: Errand) {
        let job = self.new_job(errand);
        self.effects.push_back(Effect::Git {
            job,
            repo: repo.clone(),
            task,
        });
    }

    fn commit(&mut self, changes: Vec<Change>, errand: Errand) {
        let job = self.new_job(errand);
        self.effects.push_back(Effect::Commit { job, changes });
    }

    fn new_job(&mut self, errand: Errand) -> Job {
        let job = Job(self.next_job);
        self.next_job += 1;
        self.jobs.insert(job, errand);
        job
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.tell_sync_answered(ticket, &answer);
        self.effects.push_back(Effect::Answer { ticket, answer });
    }

    fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        self.answer(ticket, Answer::Refused(refusal));
    }
}

fn answer_of(outcome: StoreOutcome) -> Answer {
    match outcome {
        StoreOutcome::Stored(_) => Answer::Accepted,
        StoreOutcome::Duplicate => Answer::Duplicate,
        StoreOutcome::Replaced => Answer::Refused(Refusal::Replaced),
        StoreOutcome::Deleted => Answer::Refused(Refusal::Deleted),
        StoreOutcome::Vanished => Answer::Refused(Refusal::Vanished),
        StoreOutcome::Failed => Answer::Refused(Refusal::StoreFailed),
    }
}
