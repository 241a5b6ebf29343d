//! A whole server in virtual time: the core with a disk and git that do at once what they are
//! asked, unless the story says otherwise.

#![allow(clippy::expect_used, reason = "a story that breaks off has failed")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use grasp_core::git::{ObjectId, RefName, Refs};
use grasp_core::hunt::io::{FetchAsk, FetchEnd, Fetched};
use grasp_core::push::{Command, Decision, PushRefusal};
use grasp_core::sync::io::ToRelay;
use grasp_core::{
    Answer, Change, ConnNo, Core, Delivery, Effect, Event, EventId, Failed, FetchNo, GitTask,
    Input, Limits, Mono, Network, Now, Origin, Policy, Pubkey, PushId, RelayNo, Repair, RepoId,
    Restore, StoreOutcome, SubNo, Ticket, Timestamp,
};
use grasp_sim::disk::Disk;
use grasp_sim::forge;
use grasp_sim::git::{Git, Repo};

use crate::counted::Reads;
use crate::stage::NOON;

pub const MINUTE: Duration = Duration::from_secs(60);
pub const CAROL: Pubkey = Pubkey([3; 32]);
pub const MALLORY: Pubkey = Pubkey([66; 32]);

pub struct Scene {
    pub core: Core,
    pub disk: Disk,
    /// Events that the core reads whole.
    pub reads: Reads,
    pub git: Git,
    pub policy: Policy,
    pub git_fails: bool,
    pub disk_fails: bool,
    /// A prune that is prepared is not heard of before [`Scene::let_go`].
    pub holds_prepared: bool,
    /// Git answers for all others, and for this one not before [`Scene::let_go`].
    pub busy: Option<RepoId>,
    unheard: Vec<Input>,
    /// What was asked of git and of the disk, in order.
    pub tasks: Vec<(RepoId, GitTask)>,
    pub commits: Vec<Vec<Change>>,
    pub announced: Vec<EventId>,
    pub repairs: Vec<Repair>,
    /// What was asked of other relays; none of them answers.
    pub asked: Vec<ToRelay>,
    /// Fetches from other git servers that nobody has answered, and those that were called off.
    pub fetches: Vec<(FetchNo, FetchAsk)>,
    pub stopped: Vec<FetchNo>,
    answers: BTreeMap<Ticket, Answer>,
    decisions: BTreeMap<PushId, Decision>,
    reports: BTreeMap<PushId, Result<(), PushRefusal>>,
    now: Duration,
    /// Seconds by which the wall clock is wrong.
    pub clock_off: i64,
    next: u64,
}

impl Scene {
    pub fn new() -> Self {
        Self::with(grasp_sim::policy(Limits::default()))
    }

    pub fn with(policy: Policy) -> Self {
        let mut scene = Self {
            core: Core::new(policy.clone(), 7),
            disk: Disk::default(),
            reads: Reads::default(),
            git: Git::default(),
            policy,
            git_fails: false,
            disk_fails: false,
            holds_prepared: false,
            busy: None,
            unheard: Vec::new(),
            tasks: Vec::new(),
            commits: Vec::new(),
            announced: Vec::new(),
            repairs: Vec::new(),
            asked: Vec::new(),
            fetches: Vec::new(),
            stopped: Vec::new(),
            answers: BTreeMap::new(),
            decisions: BTreeMap::new(),
            reports: BTreeMap::new(),
            now: Duration::ZERO,
            clock_off: 0,
            next: 0,
        };
        scene.feed(Input::Restored);
        scene
    }

    /// Seconds since the epoch, for what is signed now.
    pub fn unix(&self) -> u64 {
        (NOON + self.now.as_secs()).saturating_add_signed(self.clock_off)
    }

    pub fn publish(&mut self, event: &Arc<Event>) -> Answer {
        self.submit(event, Origin::anonymous())
    }

    pub fn import(&mut self, event: &Arc<Event>) -> Answer {
        self.submit(event, Origin::Import)
    }

    /// Another relay brings it.
    pub fn sync(&mut self, event: &Arc<Event>) -> Answer {
        let from = Delivery {
            relay: RelayNo(0),
            conn: ConnNo(0),
            sub: SubNo(0),
        };
        self.submit(event, Origin::Sync(from))
    }

    /// As a client at that address.
    pub fn publish_from(&mut self, ip: &str, event: &Arc<Event>) -> Answer {
        let ip = ip.parse().expect("an address");
        let origin = Origin::Client {
            authenticated: Vec::new(),
            network: Some(Network::of(ip)),
        };
        self.submit(event, origin)
    }

    fn submit(&mut self, event: &Arc<Event>, origin: Origin) -> Answer {
        let ticket = self.hand_in(event, origin);
        self.answer_to(ticket).expect("every event is answered")
    }

    /// Somebody publishes it and does not wait for the answer.
    pub fn post(&mut self, event: &Arc<Event>) -> Ticket {
        self.hand_in(event, Origin::anonymous())
    }

    pub fn answer_to(&mut self, ticket: Ticket) -> Option<Answer> {
        self.answers.remove(&ticket)
    }

    fn hand_in(&mut self, event: &Arc<Event>, origin: Origin) -> Ticket {
        let ticket = Ticket(self.next());
        let event = Arc::clone(event);
        self.feed(Input::Event {
            ticket,
            event,
            origin,
        });
        ticket
    }

    /// A push from beginning to end; every object that it names comes with it.
    pub fn push(&mut self, repo: &RepoId, refs: &[(&str, Option<ObjectId>)]) -> Pushed {
        self.push_from(None, repo, refs)
    }

    /// The same by somebody at that address.
    pub fn push_from(
        &mut self,
        network: Option<Network>,
        repo: &RepoId,
        refs: &[(&str, Option<ObjectId>)],
    ) -> Pushed {
        match self.begin_push_from(network, repo, refs) {
            Ok(push) => self.end_push(push, repo, refs),
            Err(refusal) => Err(refusal),
        }
    }

    /// As far as the decision: the objects are on their way.
    pub fn begin_push(
        &mut self,
        repo: &RepoId,
        refs: &[(&str, Option<ObjectId>)],
    ) -> Result<PushId, PushRefusal> {
        self.begin_push_from(None, repo, refs)
    }

    pub fn begin_push_from(
        &mut self,
        network: Option<Network>,
        repo: &RepoId,
        refs: &[(&str, Option<ObjectId>)],
    ) -> Result<PushId, PushRefusal> {
        let push = PushId(self.next());
        let command = |(name, new): &(&str, Option<ObjectId>)| Command {
            name: RefName::parse(name).expect("a story's ref name is good"),
            new: *new,
        };
        self.feed(Input::Push {
            push,
            repo: repo.clone(),
            commands: refs.iter().map(command).collect(),
            present: self.git.refs(repo),
            network,
        });
        match self.decisions.remove(&push).expect("every push is decided") {
            Decision::Refuse(refusal) => Err(refusal),
            Decision::Take(_) | Decision::KeepObjects(_) => Ok(push),
        }
    }

    pub fn end_push(
        &mut self,
        push: PushId,
        repo: &RepoId,
        refs: &[(&str, Option<ObjectId>)],
    ) -> Pushed {
        self.git.take(repo, refs.iter().filter_map(|(_, new)| *new));
        self.finish_push(push, Ok(()))
    }

    pub fn finish_push(&mut self, push: PushId, taken: Result<(), String>) -> Pushed {
        self.feed(Input::PushTaken { push, taken });
        self.reports.remove(&push).expect("every push is reported")
    }

    /// Pushes whose objects came in the same moment, and how each of them ended.
    pub fn finish_together(&mut self, pushes: &[PushId]) -> Vec<Pushed> {
        for push in pushes {
            let (push, taken) = (*push, Ok(()));
            let input = Input::PushTaken { push, taken };
            let (now, facts) = (self.clock(), self.reads.of_one_input(&self.disk));
            self.core.handle(input, now, &facts);
        }
        self.perform();
        let report = |push| self.reports.remove(push).expect("every push is reported");
        pushes.iter().map(report).collect()
    }

    /// Time passes, deadline by deadline.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.wake(end) {}
        self.now = end;
    }

    /// What is due by then has its turn, the next thing alone; false if nothing is due.
    pub fn wake(&mut self, until: Duration) -> bool {
        let next = self.core.poll_timeout();
        let Some((at, _)) = next.filter(|(at, _)| at.0 <= until) else {
            return false;
        };
        self.now = self.now.max(at.0);
        let (now, facts) = (self.clock(), self.reads.of_one_input(&self.disk));
        self.core.handle_timeout(now, &facts);
        self.perform();
        true
    }

    /// Since the story began.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Where fetches are under way to.
    pub fn asked_of(&self) -> Vec<&str> {
        let asks = self.fetches.iter().map(|(_, ask)| ask.url.as_str());
        asks.collect()
    }

    /// Git answers what it was asked so far, and goes on being slow.
    pub fn hear_git(&mut self) {
        for input in std::mem::take(&mut self.unheard) {
            self.feed(input);
        }
    }

    /// A git server has these of what it is asked for, and says so of the rest.
    pub fn fetched(&mut self, url: &str, has: &[ObjectId]) {
        let at = self
            .fetches
            .iter()
            .position(|(_, ask)| ask.url.as_str() == url);
        let (fetch, ask) = self.fetches.remove(at.expect("it was asked"));
        let (got, lacking): (Vec<_>, Vec<_>) = ask.wants.iter().partition(|id| has.contains(id));
        self.git.take(&ask.repo, got.iter().copied());
        let (bytes, end) = (0, FetchEnd::Answered);
        let fetched = Fetched {
            got,
            here: Vec::new(),
            lacking,
            bytes,
            requests: 3,
            end,
            problem: None,
        };
        self.feed(Input::Fetched { fetch, fetched });
    }

    pub fn let_go(&mut self) {
        self.holds_prepared = false;
        self.busy = None;
        self.hear_git();
    }

    /// Killed and started again.
    pub fn restart(&mut self) {
        self.core = Core::new(self.policy.clone(), 8);
        let repos: Vec<RepoId> = self.git.repos().map(|(repo, _)| repo.clone()).collect();
        let found = repos.into_iter().map(Restore::Repository);
        for restore in self.disk.restore().into_iter().chain(found) {
            self.feed(Input::Restore(restore));
        }
        self.feed(Input::Restored);
    }

    pub fn serves(&self, event: &Event) -> bool {
        self.disk.is_served(&event.id)
    }

    pub fn holds(&self, event: &Event) -> bool {
        self.disk.held.contains_key(&event.id)
    }

    /// How many events of an author are held.
    pub fn held_by(&self, author: &Pubkey) -> usize {
        let held = self.disk.held.values();
        held.filter(|row| row.event.pubkey == *author).count()
    }

    pub fn repo(&self, repo: &RepoId) -> &Repo {
        self.git.get(repo).expect("the repository is there")
    }

    pub fn refs(&self, repo: &RepoId) -> Refs {
        self.git.refs(repo)
    }

    pub fn feed(&mut self, input: Input) {
        let (now, facts) = (self.clock(), self.reads.of_one_input(&self.disk));
        self.core.handle(input, now, &facts);
        self.perform();
    }

    fn perform(&mut self) {
        let mut heard = VecDeque::new();
        loop {
            while let Some(effect) = self.core.poll_effect() {
                heard.extend(self.carry_out(effect));
            }
            match heard.pop_front() {
                Some(input) => {
                    let (now, facts) = (self.clock(), self.reads.of_one_input(&self.disk));
                    self.core.handle(input, now, &facts);
                }
                None => return,
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::Store { ticket, event } => {
                let outcome = match self.disk_fails {
                    true => StoreOutcome::Failed,
                    false => self.disk.store(&event),
                };
                return Some(Input::Committed { ticket, outcome });
            }
            Effect::Commit { job, changes } => {
                let outcomes = match self.disk_fails {
                    true => Err(Failed),
                    false => Ok(self.disk.commit(&changes)),
                };
                self.commits.push(changes);
                return Some(Input::Written { job, outcomes });
            }
            Effect::Git { job, repo, task } => {
                let outcome = match self.git_fails {
                    true => Err(Failed),
                    false => self.git.perform(&repo, &task),
                };
                let prepared = matches!(task, GitTask::PreparePrune(_));
                let is_busy = self.busy.as_ref() == Some(&repo);
                self.tasks.push((repo, task));
                let input = Input::Git { job, outcome };
                if prepared && self.holds_prepared || is_busy {
                    self.unheard.push(input);
                    return None;
                }
                return Some(input);
            }
            Effect::Sweep { until } => {
                self.disk.sweep(until);
                return Some(Input::Swept { more: false });
            }
            Effect::Answer { ticket, answer } => {
                self.answers.insert(ticket, answer);
            }
            Effect::Announce { event, .. } => self.announced.push(event.id),
            Effect::Decide { push, decision } => {
                self.decisions.insert(push, decision);
            }
            Effect::Report { push, result } => {
                self.reports.insert(push, result);
            }
            Effect::Evicted(_) => {}
            Effect::Repaired { what, .. } => self.repairs.push(what),
            Effect::Remote { ask, .. } => self.asked.push(ask),
            Effect::Fetch { fetch, ask } => self.fetches.push((fetch, ask)),
            Effect::StopFetch(fetch) => self.stopped.push(fetch),
            Effect::LeaveHunt(_) => {}
            Effect::Noted(_) | Effect::Hunted(_) => {}
        }
        None
    }

    fn clock(&self) -> Now {
        Now {
            mono: Mono(self.now),
            unix: Timestamp(self.unix()),
        }
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

pub type Pushed = Result<(), PushRefusal>;

/// The repository "tool" of somebody.
pub fn tool(owner: Pubkey) -> RepoId {
    forge::repo(owner, "tool")
}

pub fn announce(scene: &Scene, owner: Pubkey, maintainers: &[Pubkey]) -> Arc<Event> {
    forge::announcement(&tool(owner), scene.unix(), true, maintainers)
}

/// A state of "tool", signed now.
pub fn state(scene: &Scene, author: Pubkey, refs: &[(&str, ObjectId)]) -> Arc<Event> {
    state_at(author, scene.unix(), refs)
}

pub fn state_at(author: Pubkey, at: u64, refs: &[(&str, ObjectId)]) -> Arc<Event> {
    let refs: Vec<(&str, String)> = refs.iter().map(|(n, id)| (*n, id.to_string())).collect();
    let refs: Vec<(&str, &str)> = refs.iter().map(|(n, id)| (*n, id.as_str())).collect();
    forge::state(author, "tool", at, &refs)
}

/// Somebody's "tool" with `main` at the first commit, announced, pushed and served.
pub fn served(scene: &mut Scene, owner: Pubkey, maintainers: &[Pubkey]) {
    let announcement = announce(scene, owner, maintainers);
    assert_eq!(scene.publish(&announcement), Answer::Held);
    let first = state(scene, owner, &[(MAIN, forge::commit(1))]);
    scene.publish(&first);
    if scene.refs(&tool(owner)).is_empty() {
        let push = scene.push(&tool(owner), &[(MAIN, Some(forge::commit(1)))]);
        assert_eq!(push, Ok(()));
    }
    assert!(scene.serves(&announcement) && scene.serves(&first));
    scene.pass(MINUTE);
}

pub const MAIN: &str = "refs/heads/main";
pub const DEV: &str = "refs/heads/dev";
pub const V1: &str = "refs/tags/v1";

/// Exactly these refs and no others.
pub fn refs(wanted: &[(&str, ObjectId)]) -> Refs {
    let named = |(name, id): &(&str, ObjectId)| (RefName::parse(name).expect("good"), *id);
    wanted.iter().map(named).collect()
}
