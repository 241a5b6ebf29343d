//! The event heap, the clock and the steps: whatever happens, happens here, in one order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use grasp_core::admit::Refusal;
use grasp_core::git::ObjectId;
use grasp_core::hunt::io::Fetched;
use grasp_core::nip34::State;
use grasp_core::push::{Command, Decision};
use grasp_core::{
    Answer, Change, Core, Effect, Event, EventId, FetchNo, GitTask, Input, Job, Kind, Mono,
    Network, Now, Origin, Policy, PushId, RelayUrl, RepoId, Restore, Ticket, Timestamp,
};

use crate::checkers::{self, Checkers, View};
use crate::climate::Climate;
use crate::company::{Company, Neighbours};
use crate::crowd::Crowd;
use crate::disk::Disk;
use crate::ending;
use crate::git::Git;
use crate::hosts::{Flow, Hosts, Places};
use crate::hunt_checks::HuntChecks;
use crate::hunt_model::HuntModel;
use crate::mirrors::Mirrors;
use crate::model::Model;
use crate::net::{Net, Stir};
use crate::people::{self, Deed, People};
use crate::sync_checks::SyncChecks;
use crate::sync_model::Since;
use crate::trace::Trace;
use crate::workload::{self, Intent};

mod hands;
mod hosting;
mod network;
mod strangers;

use self::hosting::Fetching;
use self::strangers::Strangers;

const EPOCH: u64 = 1_700_000_000;
/// A user who heard nothing tries again.
const PATIENCE: Duration = Duration::from_secs(30);
/// After the storm everything must come right within this time, and whatever cannot be served
/// have expired.
const CALM: Duration = Duration::from_secs(70 * 60);
/// With other relays about, some things are said hours later.
const LONG_CALM: Duration = Duration::from_secs(5 * 60 * 60);
/// After a last restart in fair weather nothing may change.
const AFTERMATH: Duration = Duration::from_secs(25 * 60);
/// Then the day passes for which expired announcements are remembered.
const DAY: Duration = Duration::from_secs(26 * 60 * 60);
/// The answer of disk or git is on its way for up to this time.
const LAG: Duration = Duration::from_millis(50);

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub steps: u64,
    pub published: u64,
    pub pushes: u64,
    pub pushed: u64,
    pub crashes: u64,
    /// Events that came from other relays.
    pub synced: u64,
    /// Requests to other git servers, and objects that they brought.
    pub fetches: u64,
    pub fetched: u64,
    pub stored: usize,
    pub hosted: usize,
}

/// Why a run is wrong, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub seed: u64,
    pub at: Duration,
    pub what: String,
}

/// Runs one world from its seed to the end of its calm.
pub fn run(seed: u64, company: Company, trace: &mut Trace) -> Result<Summary, Failure> {
    let mut world = World::new(seed, company, trace);
    world.play().map_err(|what| Failure {
        seed,
        at: world.now,
        what,
    })
}

enum Happening {
    Publish {
        user: usize,
    },
    Act {
        person: usize,
    },
    Do(Deed),
    /// A user looks whether its event was answered.
    Retry {
        event: Arc<Event>,
    },
    /// The disk finishes what is first in its queue.
    Write {
        life: u64,
    },
    /// Git finishes what is first in the queue of that repository.
    Work {
        life: u64,
        repo: RepoId,
    },
    /// The core hears of it.
    Hear {
        life: u64,
        input: Input,
    },
    /// The objects of a push are through, or the client is gone.
    Transfer {
        life: u64,
        push: PushId,
    },
    SweepDone {
        life: u64,
        until: Timestamp,
    },
    /// Something is said at other relays.
    Gossip,
    Post {
        relay: usize,
        event: Arc<Event>,
    },
    /// Something is on its way between us and another relay.
    Stir {
        life: u64,
        stir: Stir,
    },
    /// Something comes of a pack.
    Flow {
        life: u64,
        fetch: FetchNo,
        flow: Flow,
    },
    /// A fetch is over, at the latest.
    FetchEnds {
        life: u64,
        fetch: FetchNo,
    },
    /// The core hears of it.
    Fetched {
        life: u64,
        fetch: FetchNo,
        fetched: Fetched,
    },
    /// A repository goes from one git server to another.
    Move,
    /// Somebody asks whether the hunt has brought what it could.
    Look,
    Trouble,
    Jump,
    /// Hostile clients flood us.
    Attack,
    /// A newcomer comes.
    Arrive,
    Crash,
    Calm,
}

/// One commit under way.
enum Write {
    Store(Ticket, Arc<Event>),
    Commit(Job, Vec<Change>),
}

struct Push {
    repo: RepoId,
    objects: Vec<ObjectId>,
}

struct World<'t> {
    rng: Rng,
    damage: Rng,
    outside: Rng,
    climate: Climate,
    company: Neighbours,
    places: Places,
    policy: Policy,
    now: Duration,
    /// By how many seconds the wall clock was set.
    clock_off: i64,
    /// The latest that it ever was: what expired then is gone.
    latest: Timestamp,
    calm: bool,
    restarted: bool,
    /// Events that were to be held, whether or not the disk took them.
    waited: BTreeSet<EventId>,
    heap: BinaryHeap<Reverse<(Duration, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    next: u64,

    core: Core,
    /// How often the process was started; what an earlier life began comes to nothing.
    life: u64,
    /// When it was started last.
    born: Duration,
    disk: Disk,
    git: Git,
    writes: Vec<Write>,
    writing: bool,
    tasks: BTreeMap<RepoId, VecDeque<(Job, GitTask)>>,
    pushes: BTreeMap<PushId, Push>,
    net: Net,
    hosts: Hosts,
    fetching: BTreeMap<FetchNo, Fetching>,
    /// Fetches that have ended without the core's knowledge.
    unheard: usize,
    checkers: Checkers,
    sync_checks: SyncChecks,
    hunt_checks: HuntChecks,
    hunt_model: HuntModel,
    model: Model,
    people: People,
    strangers: Option<Strangers>,
    states: BTreeMap<EventId, State>,
    /// Events whose users wait for an answer.
    unanswered: BTreeMap<EventId, Arc<Event>>,
    /// Events that were answered as held.
    acknowledged: BTreeMap<EventId, Arc<Event>>,
    tickets: BTreeMap<Ticket, Arc<Event>>,
    /// Submissions by sync.
    synced: BTreeMap<Ticket, Arc<Event>>,
    next_ticket: u64,
    summary: Summary,
    trace: &'t mut Trace,
}

impl<'t> World<'t> {
    fn new(seed: u64, company: Company, trace: &'t mut Trace) -> Self {
        let mut rng = Rng::with_seed(seed);
        // Drawn apart, so that older seeds keep their weather.
        let mut damage = Rng::with_seed(!seed);
        let climate = Climate::draw(&mut rng, &mut damage);
        trace.note(Duration::ZERO, format_args!("seed {seed}: {climate:?}"));
        let mut outside = Rng::with_seed(seed.rotate_left(32));
        let mut elsewhere = Rng::with_seed(!seed.rotate_left(16));
        let places = match company {
            Company::Alone => Places::none(),
            Company::Hosts | Company::Relays | Company::Hostile => Places::draw(&mut elsewhere),
        };
        let hostility = Rng::with_seed(seed.rotate_left(48));
        let strangers = (company == Company::Hostile).then(|| Strangers::draw(hostility));
        let company = match company {
            Company::Alone | Company::Hosts => Neighbours::none(),
            Company::Relays | Company::Hostile => Neighbours::draw(&mut outside),
        };
        let hosts = Hosts::new(elsewhere.fork(), &places);
        let known = hosts.iter().map(|host| host.name.clone()).collect();
        let mirrors = Mirrors::new(elsewhere.fork(), known);
        let net = Net::new(outside.fork(), company.relays.clone());
        let names: Vec<String> = net.relays().iter().map(|to| to.name.clone()).collect();
        let named = names.iter().take(company.bootstrap);
        let mut policy = climate.policy();
        policy.bootstrap = named.filter_map(|name| address(name)).collect();
        policy.limits.sync = company.limits.clone();
        policy.limits.hunt = places.limits.clone();
        if let Some(strangers) = &strangers {
            strangers.limits(&mut policy.limits);
        }
        let crowd = Crowd::new(outside.fork(), names, company.list);
        Self {
            core: Core::new(policy.clone(), rng.u64(..)),
            rng,
            damage,
            outside,
            people: People::new(&climate, crowd, mirrors),
            climate,
            company,
            places,
            hunt_checks: HuntChecks::new(policy.limits.hunt.clone()),
            hunt_model: HuntModel::default(),
            policy,
            now: Duration::ZERO,
            clock_off: 0,
            latest: Timestamp(EPOCH),
            calm: false,
            restarted: false,
            waited: BTreeSet::new(),
            heap: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            next: 0,
            life: 0,
            born: Duration::ZERO,
            disk: Disk::default(),
            git: Git::default(),
            writes: Vec::new(),
            writing: false,
            tasks: BTreeMap::new(),
            pushes: BTreeMap::new(),
            net,
            hosts,
            fetching: BTreeMap::new(),
            unheard: 0,
            checkers: Checkers::default(),
            sync_checks: SyncChecks::default(),
            model: Model::default(),
            strangers,
            states: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            tickets: BTreeMap::new(),
            synced: BTreeMap::new(),
            next_ticket: 0,
            summary: Summary::default(),
            trace,
        }
    }

    fn play(&mut self) -> Result<Summary, String> {
        for user in 0..self.climate.users {
            self.after_about(self.climate.pace, Happening::Publish { user });
        }
        for person in 0..usize::from(self.climate.people) {
            self.after_about(self.climate.pace, Happening::Act { person });
        }
        if !self.climate.crashes.is_zero() {
            self.after_about(self.climate.crashes, Happening::Crash);
        }
        self.after(self.climate.storm, Happening::Calm);
        self.begin_hostility();
        self.begin_company();
        self.begin_hosting();
        let calm = match self.company.relays.is_empty() {
            true => CALM,
            false => LONG_CALM,
        };
        self.feed(Input::Restored)?;
        self.run_until(self.climate.storm + calm)?;
        self.all_is_well()?;
        self.sync_brought_everything(Since::Storm)?;
        self.note(format_args!("a last restart"));
        self.restarted = true;
        self.restart()?;
        self.run_until(self.now + AFTERMATH)?;
        self.all_is_well()?;
        self.sync_brought_everything(Since::Storm)?;
        self.run_until(self.now + DAY)?;
        self.all_is_well()?;
        self.sync_brought_everything(Since::Day)?;
        self.nothing_is_held_for_ever()?;
        self.summary.stored = self.disk.stored().count();
        self.summary.hosted = self.core.registry().hosted().count();
        Ok(self.summary)
    }

    /// Other relays may show again any day what has waited in vain.
    fn nothing_is_held_for_ever(&self) -> Result<(), String> {
        let now = self.clock().unix;
        let alone = self.company.relays.is_empty();
        let purgatory = self.core.purgatory();
        let overdue = |id: &EventId| {
            let held = purgatory.get(id);
            held.is_none_or(|held| held.until.saturating_add(PATIENCE * 4) < now)
        };
        let mut held = self.disk.held.iter();
        match held.find(|(id, _)| alone || overdue(id)) {
            Some((id, _)) => Err(format!("{id} is held for ever")),
            None => Ok(()),
        }
    }

    fn run_until(&mut self, end: Duration) -> Result<(), String> {
        while self.now < end && self.step()? {}
        Ok(())
    }

    fn all_is_well(&mut self) -> Result<(), String> {
        self.finish_what_is_begun()?;
        if let Some(id) = self.unanswered.keys().next() {
            return Err(format!("{id} never got its answer"));
        }
        if self.checkers.open_pushes() > 0 {
            return Err("a push never got its report".to_owned());
        }
        checkers::nothing_is_lost(&self.acknowledged, &self.disk, self.latest())?;
        self.model.compare(&self.disk)?;
        ending::compare(&self.view())
    }

    /// Other relays go on showing us things, and other servers bring them: disk and core agree
    /// when nothing is on its way.
    fn finish_what_is_begun(&mut self) -> Result<(), String> {
        let alone = self.company.relays.is_empty() && self.hosts.is_empty();
        let mut steps = 10_000;
        while !alone && self.checkers.outstanding + self.unheard > 0 && steps > 0 {
            self.step()?;
            steps -= 1;
        }
        Ok(())
    }

    /// The next thing on the heap or the core's own deadline, whichever is first.
    fn step(&mut self) -> Result<bool, String> {
        let next = self.heap.peek().map(|Reverse((at, _))| *at);
        let deadline = self.core.poll_timeout().map(|(at, _)| at.0.max(self.now));
        self.summary.steps += 1;
        match (next, deadline) {
            (None, None) => return Ok(false),
            (next, Some(deadline)) if next.is_none_or(|next| deadline <= next) => {
                self.now = deadline;
                let now = self.clock();
                self.core.handle_timeout(now, &self.disk);
                self.perform()?;
            }
            _ => {
                let Some(Reverse((at, key))) = self.heap.pop() else {
                    return Ok(false);
                };
                self.now = at;
                if let Some(happening) = self.happenings.remove(&key) {
                    self.happen(happening)?;
                }
            }
        }
        self.checkers.nothing_is_stuck(&self.core)?;
        self.newcomers_are_served()?;
        self.sync_is_sound()?;
        self.hunt_is_sound()?;
        // A start takes in what is on disk, rows included that a full disk would not let go.
        if self.life == 0 {
            checkers::quotas(&self.core, &self.policy.limits)?;
        }
        Ok(true)
    }

    fn happen(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::Publish { user } => self.publish(user),
            Happening::Act { person } => self.act(person),
            Happening::Do(deed) => self.do_deed(deed),
            Happening::Retry { event } if self.unanswered.contains_key(&event.id) => {
                self.note(format_args!("retry {}", short(&event)));
                self.submit(event)
            }
            Happening::Retry { .. } => Ok(()),
            Happening::Write { life } if life == self.life => self.write(),
            Happening::Work { life, repo } if life == self.life => self.work(&repo),
            Happening::Hear { life, input } if life == self.life => {
                self.checkers.outstanding -= usize::from(!matches!(input, Input::Fetched { .. }));
                self.checkers.heard(&input);
                self.feed(input)
            }
            Happening::Transfer { life, push } if life == self.life => self.transfer(push),
            Happening::SweepDone { life, until } if life == self.life => self.sweep_done(until),
            Happening::Stir { life, stir } if life == self.life => self.stir(stir),
            Happening::Gossip => {
                self.gossip();
                Ok(())
            }
            Happening::Post { relay, event } => self.post(relay, &event),
            Happening::Flow { life, fetch, flow } if life == self.life => self.flow(fetch, flow),
            Happening::FetchEnds { life, fetch } if life == self.life => {
                self.fetch_ends(fetch);
                Ok(())
            }
            Happening::Fetched {
                life,
                fetch,
                fetched,
            } if life == self.life => self.fetched(fetch, fetched),
            Happening::Move => {
                self.move_one();
                Ok(())
            }
            Happening::Look => self.look_at_hunt(),
            Happening::Trouble => self.trouble(),
            Happening::Jump => {
                self.jump();
                Ok(())
            }
            Happening::Attack => self.attack(),
            Happening::Arrive => self.arrive(),
            Happening::Stir { .. }
            | Happening::Flow { .. }
            | Happening::FetchEnds { .. }
            | Happening::Fetched { .. }
            | Happening::Write { .. }
            | Happening::Work { .. }
            | Happening::Hear { .. }
            | Happening::Transfer { .. }
            | Happening::SweepDone { .. } => Ok(()),
            Happening::Crash if self.calm => Ok(()),
            Happening::Crash => {
                self.after_about(self.climate.crashes, Happening::Crash);
                self.note(format_args!("crash"));
                self.summary.crashes += 1;
                self.restart()
            }
            Happening::Calm => {
                self.note(format_args!("calm"));
                self.calm = true;
                Ok(())
            }
        }
    }

    fn publish(&mut self, user: usize) -> Result<(), String> {
        if self.calm {
            return Ok(());
        }
        self.after_about(self.climate.pace, Happening::Publish { user });
        let intent = Intent::draw(&mut self.rng, self.climate.mischief);
        let unix = self.clock().unix;
        let event = workload::event(&mut self.rng, user, intent, unix);
        self.note(format_args!(
            "user {user} publishes {} ({intent:?})",
            short(&event)
        ));
        self.model.published(&event, intent);
        self.send(event)
    }

    fn act(&mut self, person: usize) -> Result<(), String> {
        if self.calm {
            return Ok(());
        }
        self.after_about(self.climate.pace, Happening::Act { person });
        let unix = self.clock().unix.0;
        for (pause, deed) in self.people.draw(&mut self.rng, person, unix) {
            self.do_later(pause, deed);
        }
        Ok(())
    }

    fn do_later(&mut self, pause: Duration, deed: Deed) {
        if let Deed::Publish(event) | Deed::Spread(event) = &deed
            && let Ok(state) = State::read(event)
            && event.kind == Kind::STATE
        {
            self.states.insert(event.id, state);
        }
        self.after(pause, Happening::Do(deed));
    }

    fn do_deed(&mut self, deed: Deed) -> Result<(), String> {
        match deed {
            Deed::Publish(event) => self.publish_somewhere(event),
            Deed::Spread(event) => {
                self.spread(&event);
                Ok(())
            }
            Deed::Push { repo, state, how } => {
                let present = self.git.refs(&repo);
                let commands = people::commands(&mut self.rng, &present, &state, how);
                self.note(format_args!(
                    "push {how:?} of {} to {repo:?}",
                    short(&state)
                ));
                self.push(repo, commands)
            }
            Deed::Upload {
                host,
                path,
                objects,
            } => {
                self.upload(host, &path, &objects);
                Ok(())
            }
            Deed::PushTip { repo, event, tip } => {
                self.note(format_args!("push of tip {tip} for {event} to {repo:?}"));
                let name = grasp_core::git::RefName::nostr(&event);
                let new = Some(tip);
                self.push(repo, vec![Command { name, new }])
            }
        }
    }

    fn send(&mut self, event: Arc<Event>) -> Result<(), String> {
        self.unanswered.insert(event.id, Arc::clone(&event));
        self.summary.published += 1;
        if self.rng.u32(0..100) < self.climate.impatience {
            self.submit(Arc::clone(&event))?;
        }
        self.submit(event)
    }

    fn submit(&mut self, event: Arc<Event>) -> Result<(), String> {
        self.after(
            PATIENCE,
            Happening::Retry {
                event: Arc::clone(&event),
            },
        );
        let imported = self.climate.users == 0 && self.rng.u32(0..100) < self.climate.imports;
        let origin = if imported {
            Origin::Import
        } else {
            Origin::anonymous()
        };
        self.hand_in(event, origin)
    }

    fn hand_in(&mut self, event: Arc<Event>, origin: Origin) -> Result<(), String> {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.checkers.submitted(ticket, event.id);
        self.tickets.insert(ticket, Arc::clone(&event));
        self.hunt_checks.shown(&event);
        self.feed(Input::Event {
            ticket,
            event,
            origin,
        })
    }

    fn push(&mut self, repo: RepoId, commands: Vec<Command>) -> Result<(), String> {
        self.push_from(repo, commands, None)
    }

    fn push_from(
        &mut self,
        repo: RepoId,
        commands: Vec<Command>,
        network: Option<Network>,
    ) -> Result<(), String> {
        let push = PushId(self.next_ticket);
        self.next_ticket += 1;
        self.summary.pushes += 1;
        let objects = commands.iter().filter_map(|command| command.new).collect();
        let present = self.git.refs(&repo);
        self.pushes.insert(
            push,
            Push {
                repo: repo.clone(),
                objects,
            },
        );
        self.checkers.pushed(push);
        self.feed(Input::Push {
            push,
            repo,
            commands,
            present,
            network,
        })
    }

    fn transfer(&mut self, push: PushId) -> Result<(), String> {
        let Some(Push { repo, objects }) = self.pushes.get(&push) else {
            return Ok(());
        };
        let vanishes = self.rng.u32(0..100) < self.climate.impatience / 4;
        let taken = if vanishes {
            Err("the client is gone".to_owned())
        } else if self.git.take(repo, objects.iter().copied()) {
            Ok(())
        } else {
            Err("the repository is gone".to_owned())
        };
        self.note(format_args!("{push:?} taken: {taken:?}"));
        self.checkers.taken(push);
        self.feed(Input::PushTaken { push, taken })
    }

    /// The process dies and is started again; some of what it was doing had happened, nobody
    /// knows which.
    fn restart(&mut self) -> Result<(), String> {
        let written = self.rng.usize(0..=self.writes.len());
        self.writing = false;
        for write in std::mem::take(&mut self.writes).into_iter().take(written) {
            self.make_durable(write)?;
        }
        for (repo, mut tasks) in std::mem::take(&mut self.tasks) {
            if let Some((_, task)) = tasks.pop_front()
                && self.rng.bool()
            {
                self.git.perform(&repo, &task).ok();
            }
        }
        self.lose_fetches();
        checkers::nothing_is_lost(&self.acknowledged, &self.disk, self.latest())?;
        if !self.calm && self.damage.u32(0..100) < self.climate.damage {
            self.lose_objects();
        }
        self.git.forget_prepared();
        self.forget_waiting();
        self.life += 1;
        self.born = self.now;
        self.net.cut_all();
        self.checkers = Checkers::default();
        self.sync_checks = SyncChecks::default();
        self.tickets.clear();
        self.forget_newcomers();
        self.synced.clear();
        self.pushes.clear();
        self.core = Core::new(self.policy.clone(), self.rng.u64(..));
        let repos: Vec<RepoId> = self.git.repos().map(|(repo, _)| repo.clone()).collect();
        let found = repos.into_iter().map(Restore::Repository);
        for restore in self.disk.restore().into_iter().chain(found) {
            self.feed(Input::Restore(restore))?;
        }
        self.feed(Input::Restored)
    }

    /// The disk comes back without some objects of a repository. Somebody may push them again.
    fn lose_objects(&mut self) {
        let repos: Vec<RepoId> = self.git.repos().map(|(repo, _)| repo.clone()).collect();
        let Some(repo) = self.damage.choice(repos) else {
            return;
        };
        let everything = self.damage.bool();
        let damage = &mut self.damage;
        self.git
            .lose_objects(&repo, |_| everything || damage.bool());
        self.note(format_args!("{repo:?} loses objects, all: {everything}"));
        let rank = self.disk.applied.get(&repo);
        let state = rank.and_then(|rank| grasp_core::Facts::event(&self.disk, &rank.id));
        if let Some(state) = state.filter(|_| self.damage.bool()) {
            let how = people::How::Complete;
            let pause = Duration::from_secs(self.damage.u64(1..600));
            self.after(pause, Happening::Do(Deed::Push { repo, state, how }));
        }
    }

    fn feed(&mut self, input: Input) -> Result<(), String> {
        let now = self.clock();
        self.core.handle(input, now, &self.disk);
        self.perform()
    }

    fn perform(&mut self) -> Result<(), String> {
        while let Some(effect) = self.core.poll_effect() {
            let view = View {
                core: &self.core,
                disk: &self.disk,
                git: &self.git,
                model: &self.model,
                states: &self.states,
                restarted: self.restarted,
            };
            self.checkers.effect(&effect, &view)?;
            match effect {
                Effect::Store { ticket, event } => self.enqueue(Write::Store(ticket, event)),
                Effect::Commit { job, changes } => {
                    self.note_waiting(&changes);
                    self.enqueue(Write::Commit(job, changes));
                }
                Effect::Git { job, repo, task } => self.assign(job, repo, task),
                Effect::Answer { ticket, answer } => {
                    self.stranger_answered(ticket, &answer)?;
                    self.answered(ticket, &answer);
                }
                Effect::Evicted(id) => self.evicted(&id)?,
                Effect::Announce { event, .. } => {
                    self.note(format_args!("announce {}", short(&event)));
                }
                Effect::Sweep { until } => {
                    let life = self.life;
                    self.after_about(self.climate.slow_disk, Happening::SweepDone { life, until });
                }
                Effect::Repaired { repo, what } => {
                    self.note(format_args!("repaired {repo:?}: {what:?}"));
                }
                Effect::Remote { relay, conn, ask } => self.ask_relay(relay, conn, ask)?,
                Effect::Noted(note) => self.note(format_args!("noted: {note:?}")),
                Effect::Fetch { fetch, ask } => self.fetch(fetch, ask)?,
                Effect::StopFetch(fetch) => self.stop_fetch(fetch)?,
                Effect::LeaveHunt(repo) => self.note(format_args!("leave {repo:?}")),
                Effect::Hunted(note) => self.note(format_args!("hunt: {note:?}")),
                Effect::Decide { push, decision } => {
                    self.stranger_decided(push, &decision)?;
                    self.decided(push, &decision);
                }
                Effect::Report { push, result } => {
                    self.note(format_args!("{push:?} ends: {result:?}"));
                    self.summary.pushed += u64::from(result.is_ok());
                    self.pushes.remove(&push);
                }
            }
        }
        Ok(())
    }

    fn decided(&mut self, push: PushId, decision: &Decision) {
        self.note(format_args!("{push:?}: {decision:?}"));
        if matches!(decision, Decision::Refuse(_)) {
            self.pushes.remove(&push);
        } else {
            let life = self.life;
            self.after_about(self.climate.slow_push, Happening::Transfer { life, push });
        }
    }

    fn sweep_done(&mut self, until: Timestamp) -> Result<(), String> {
        self.disk.sweep(until);
        self.checkers.sweeps -= 1;
        let more = self.rng.u8(0..10) == 0;
        self.feed(Input::Swept { more })
    }

    fn answered(&mut self, ticket: Ticket, answer: &Answer) {
        if let Some(event) = self.synced.remove(&ticket) {
            self.note(format_args!("synced {}: {answer:?}", short(&event)));
            if *answer == Answer::Held {
                self.acknowledged.insert(event.id, event);
            }
            return;
        }
        let Some(event) = self.tickets.remove(&ticket) else {
            return;
        };
        self.note(format_args!("answer {}: {answer:?}", short(&event)));
        if *answer == Answer::Held {
            self.acknowledged.insert(event.id, Arc::clone(&event));
        }
        // A user who is told to try later does so.
        let later = matches!(
            answer,
            Answer::Refused(Refusal::StoreFailed | Refusal::KeyRate(_))
        );
        if !later {
            self.unanswered.remove(&event.id);
        }
    }

    fn view(&self) -> View<'_> {
        View {
            core: &self.core,
            disk: &self.disk,
            git: &self.git,
            model: &self.model,
            states: &self.states,
            restarted: self.restarted,
        }
    }

    fn after(&mut self, delay: Duration, happening: Happening) {
        let key = self.next;
        self.next += 1;
        self.heap.push(Reverse((self.now + delay, key)));
        self.happenings.insert(key, happening);
    }

    fn after_about(&mut self, mean: Duration, happening: Happening) {
        let micros = u64::try_from(mean.as_micros()).unwrap_or(u64::MAX / 2);
        let delay = Duration::from_micros(self.rng.u64(0..=micros * 2));
        self.after(delay, happening);
    }

    fn clock(&self) -> Now {
        Now {
            mono: Mono(self.now),
            unix: Timestamp((EPOCH + self.now.as_secs()).saturating_add_signed(self.clock_off)),
        }
    }

    fn latest(&self) -> Timestamp {
        self.latest.max(self.clock().unix)
    }

    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.now, what);
    }
}

fn address(place: &str) -> Option<RelayUrl> {
    RelayUrl::parse(&format!("wss://{place}"))
}

fn short(event: &Event) -> String {
    event.id.to_string().chars().take(8).collect()
}
