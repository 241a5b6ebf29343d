//! What must hold at every step, whatever the weather.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use grasp_core::git::{ObjectId, ObjectKind, Refs};
use grasp_core::nip34::state::Targets;
use grasp_core::nip34::{Announcement, PullRequest, State};
use grasp_core::push::Decision;
use grasp_core::{
    Answer, Change, Core, Effect, Event, EventId, GitDone, GitTask, Input, Job, Kind, Limits,
    PushId, RepoId, Service, StoreOutcome, Ticket, Timestamp,
};

use crate::disk::Disk;
use crate::forge::kind_of;
use crate::git::{Git, Repo};
use crate::model::Model;

/// Everything that a checker may look at.
pub(crate) struct View<'a> {
    pub(crate) core: &'a Core,
    pub(crate) disk: &'a Disk,
    pub(crate) git: &'a Git,
    pub(crate) model: &'a Model,
    /// Every state that anybody has signed.
    pub(crate) states: &'a BTreeMap<EventId, State>,
    /// The last start was in fair weather.
    pub(crate) restarted: bool,
}

/// Watches one life of the process; a crash begins a new one.
#[derive(Default)]
pub(crate) struct Checkers {
    /// Tickets without an answer.
    open: BTreeMap<Ticket, EventId>,
    /// Of these, what other relays brought: nobody is told a word about it.
    synced: BTreeSet<Ticket>,
    announced: BTreeSet<EventId>,
    /// Events that are to be seen again.
    shown: BTreeSet<EventId>,
    /// Effects that the world has not answered yet.
    pub(crate) outstanding: usize,
    pub(crate) sweeps: usize,
    pushes: BTreeMap<PushId, Pushing>,
    probes: BTreeMap<Job, (RepoId, Arc<[ObjectId]>)>,
    missing: Missing,
}

/// What git has said last of objects that were not there. Some may have come since, and the core
/// not have heard of it.
type Missing = BTreeMap<RepoId, BTreeSet<ObjectId>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pushing {
    Asked,
    Receiving,
    /// Its objects are in or never will be; the report must follow.
    Taken,
}

impl Checkers {
    pub(crate) fn submitted(&mut self, ticket: Ticket, id: EventId) {
        self.open.insert(ticket, id);
    }

    pub(crate) fn synced(&mut self, ticket: Ticket, id: EventId) {
        self.submitted(ticket, id);
        self.synced.insert(ticket);
    }

    pub(crate) fn pushed(&mut self, push: PushId) {
        self.pushes.insert(push, Pushing::Asked);
    }

    pub(crate) fn taken(&mut self, push: PushId) {
        self.pushes.insert(push, Pushing::Taken);
    }

    /// Git's answer reaches the core.
    pub(crate) fn heard(&mut self, input: &Input) {
        let Input::Git { job, outcome } = input else {
            return;
        };
        let Some((repo, objects)) = self.probes.remove(job) else {
            return;
        };
        let missing = self.missing.entry(repo).or_default();
        let Ok(GitDone::Probed(kinds)) = outcome else {
            return;
        };
        for (id, kind) in objects.iter().zip(kinds) {
            match kind {
                Some(_) => missing.remove(id),
                None => missing.insert(*id),
            };
        }
    }

    pub(crate) fn open_pushes(&self) -> usize {
        self.pushes.len()
    }

    pub(crate) fn effect(&mut self, effect: &Effect, view: &View<'_>) -> Result<(), String> {
        match effect {
            Effect::Store { event, .. } => {
                if view.model.is_forbidden(&event.id) {
                    return Err(format!("{} goes to disk against the rules", event.id));
                }
                self.outstanding += 1;
            }
            Effect::Answer { ticket, answer } => self.answer(*ticket, answer, view)?,
            Effect::Announce { event, seq } => {
                let shown = self.shown.contains(&event.id);
                if !shown && seq.is_some() != view.disk.once_stored.contains_key(&event.id) {
                    return Err(format!("{} is announced and not durable", event.id));
                }
                if seq.is_some() && !self.announced.insert(event.id) {
                    return Err(format!("{} is announced twice", event.id));
                }
            }
            Effect::Sweep { .. } => self.sweeps += 1,
            Effect::Commit { changes, .. } => {
                self.outstanding += 1;
                let shown = changes.iter().filter_map(|change| match change {
                    Change::Show(id) => Some(*id),
                    _ => None,
                });
                self.shown.extend(shown);
            }
            Effect::Repaired { .. }
            | Effect::Evicted(_)
            | Effect::Remote { .. }
            | Effect::Noted(_)
            | Effect::Fetch { .. }
            | Effect::StopFetch(_)
            | Effect::LeaveHunt(_)
            | Effect::Hunted(_) => {}
            Effect::Git { job, repo, task } => {
                self.outstanding += 1;
                match task {
                    GitTask::Apply(targets) => is_authorised(repo, targets, view, &self.missing)?,
                    GitTask::Probe(objects) => {
                        let asked = (repo.clone(), Arc::clone(objects));
                        self.probes.insert(*job, asked);
                    }
                    _ => {}
                }
            }
            Effect::Decide { push, decision } => self.decide(*push, decision)?,
            Effect::Report { push, .. } => match self.pushes.remove(push) {
                Some(Pushing::Taken) => {}
                other => return Err(format!("{push:?} is reported when it was {other:?}")),
            },
        }
        Ok(())
    }

    fn answer(&mut self, ticket: Ticket, answer: &Answer, view: &View<'_>) -> Result<(), String> {
        let Some(id) = self.open.remove(&ticket) else {
            return Err(format!("{ticket:?} is answered twice or was never asked"));
        };
        let stored = view.disk.once_stored.contains_key(&id);
        let synced = self.synced.remove(&ticket);
        let durable = match answer {
            Answer::Duplicate if synced => true,
            Answer::Accepted | Answer::Duplicate => stored || view.model.is_forbidden(&id),
            Answer::Held => stored || view.disk.once_held.contains_key(&id),
            Answer::Refused(_) => true,
        };
        if durable {
            Ok(())
        } else {
            Err(format!("{id} is answered {answer:?} and not durable"))
        }
    }

    fn decide(&mut self, push: PushId, decision: &Decision) -> Result<(), String> {
        let was = match decision {
            Decision::Refuse(_) => self.pushes.remove(&push),
            Decision::Take(_) | Decision::KeepObjects(_) => {
                self.pushes.insert(push, Pushing::Receiving)
            }
        };
        if was == Some(Pushing::Asked) {
            Ok(())
        } else {
            Err(format!("{push:?} is decided when it was {was:?}"))
        }
    }

    /// Every waiting state has an effect in flight or a deadline.
    pub(crate) fn nothing_is_stuck(&self, core: &Core) -> Result<(), String> {
        if core.under_way() != self.outstanding {
            let (core, world) = (core.under_way(), self.outstanding);
            return Err(format!(
                "the core waits for {core} answers, the world works on {world}"
            ));
        }
        if self.outstanding == 0 {
            if let Some((ticket, id)) = self.open.first_key_value() {
                return Err(format!("{ticket:?} for {id} waits for nothing"));
            }
            let mut pushes = self.pushes.iter();
            if let Some((push, _)) = pushes.find(|(_, stage)| **stage == Pushing::Taken) {
                return Err(format!("{push:?} waits for nothing"));
            }
        }
        if core.poll_timeout().is_none() && self.sweeps == 0 {
            return Err("no deadline and nothing in flight".to_owned());
        }
        Ok(())
    }
}

/// Refs move only to what a maintainer has signed, and to nothing that is not durable or about
/// to be.
fn is_authorised(
    repo: &RepoId,
    targets: &Targets,
    view: &View<'_>,
    missing: &Missing,
) -> Result<(), String> {
    let registry = view.core.registry();
    if targets.refs.is_empty() && !view.disk.applied.contains_key(repo) {
        return Ok(());
    }
    // What it had before is its own, whoever maintains it now.
    let applied = registry.applied(repo);
    let applied = applied.and_then(|rank| view.states.get(&rank.id));
    let found = view.git.get(repo);
    let missing = missing.get(repo);
    let is_lost = |id: &ObjectId| {
        found.is_none_or(|found| !found.objects.contains(id))
            || missing.is_some_and(|missing| missing.contains(id))
    };
    if applied.is_some_and(|state| says(state, targets, is_lost)) {
        return Ok(());
    }
    // Refs whose objects are gone are taken down, whatever became of the state that set them.
    if found.is_some_and(|found| is_part(&targets.refs, &found.refs, is_lost)) {
        return Ok(());
    }
    let here = |id: &EventId| {
        view.core.purgatory().get(id).is_some()
            || view.disk.held.contains_key(id)
            || view.disk.once_stored.contains_key(id)
    };
    let signs = |state: &State| {
        state.identifier == repo.identifier
            && says(state, targets, is_lost)
            && registry.is_maintainer(repo, &state.author)
            && here(&state.rank.id)
    };
    if view.states.values().any(signs) {
        Ok(())
    } else {
        Err(format!("refs of {repo:?} move to what nobody may sign"))
    }
}

/// These are the refs of that state, without those whose objects are lost.
fn says(state: &State, targets: &Targets, is_lost: impl Fn(&ObjectId) -> bool) -> bool {
    let Ok(signed) = &state.refs else {
        return false;
    };
    **signed == *targets || is_part(&targets.refs, &signed.refs, is_lost)
}

/// These are all of them but those whose objects are gone.
fn is_part(these: &Refs, all: &Refs, is_lost: impl Fn(&ObjectId) -> bool) -> bool {
    let mut set = these.iter();
    let mut left_out = all.iter();
    set.all(|(name, id)| all.get(name) == Some(id))
        && left_out.all(|(name, id)| these.contains_key(name) || is_lost(id))
}

/// Held events are within their bounds.
pub(crate) fn quotas(core: &Core, limits: &Limits) -> Result<(), String> {
    let purgatory = core.purgatory();
    let fits = |held: &grasp_core::purgatory::Held| {
        let own = purgatory.waiting_of(&held.event.pubkey);
        own.fits(limits.held_of_one())
    };
    let all_fit = purgatory.waiting().fits(limits.held_of_all())
        && purgatory.kept_in_mind().fits(limits.kept_in_mind())
        && purgatory.iter().all(fits);
    if !all_fit {
        return Err("purgatory is over its bounds".to_owned());
    }
    Ok(())
}

/// What a commit that was just made may not have done.
pub(crate) fn commit(
    changes: &[Change],
    outcomes: &[StoreOutcome],
    before: &BTreeMap<RepoId, grasp_core::nip34::Rank>,
    view: &View<'_>,
    us: &Service,
) -> Result<(), String> {
    let mut outcomes = outcomes.iter();
    for change in changes {
        match change {
            Change::Applied { repo, rank, .. } if before.get(repo) > Some(rank) => {
                return Err(format!("{repo:?} goes back to {}", rank.id));
            }
            Change::Store(event) => {
                if matches!(outcomes.next(), Some(StoreOutcome::Stored(_))) {
                    is_complete(event, view, us)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Nothing is served whose objects are not here.
fn is_complete(event: &Arc<Event>, view: &View<'_>, us: &Service) -> Result<(), String> {
    let has_them = |(_, repo): &(&RepoId, &Repo), state: &State| {
        let refs = state.refs.as_ref().map(|targets| &targets.refs);
        refs.is_ok_and(|refs| {
            refs.iter().all(|(name, id)| {
                let fits = !name.is_branch() || kind_of(id) == ObjectKind::Commit;
                fits && repo.objects.contains(id)
            })
        })
    };
    let mut repos = view.git.repos().chain(view.git.gone());
    let complete = match event.kind {
        Kind::STATE => State::read(event).is_ok_and(|state| {
            repos.any(|at| at.0.identifier == state.identifier && has_them(&at, &state))
        }),
        Kind(1618 | 1619) => {
            let tip = PullRequest::read(event).and_then(|pull_request| pull_request.tip);
            tip.is_some_and(|tip| repos.any(|(_, repo)| repo.tips.get(&event.id) == Some(&tip)))
        }
        Kind::ANNOUNCEMENT => Announcement::read(event, us)
            .is_ok_and(|read| !read.lists_us || view.disk.applied.contains_key(&read.repo)),
        _ => true,
    };
    if complete {
        Ok(())
    } else {
        Err(format!("{} is served without its git data", event.id))
    }
}

/// States of one author and identifier that are kept.
const NEWEST_STATES: usize = 8;

/// Held and acknowledged: still held, or served, or gone for a reason.
pub(crate) fn nothing_is_lost(
    acknowledged: &BTreeMap<EventId, Arc<Event>>,
    disk: &Disk,
    now: Timestamp,
) -> Result<(), String> {
    use grasp_core::Facts as _;
    for (id, event) in acknowledged {
        let here = disk.held.contains_key(id) || disk.once_stored.contains_key(id);
        let gone = disk.foresee(event).is_some() || event.is_expired(now);
        let in_time = disk.once_held.get(id).is_some_and(|row| now < row.until);
        let after = |row: &&crate::disk::Row| {
            row.event.address() == event.address()
                && grasp_core::nip34::Rank::of(&row.event) > grasp_core::nip34::Rank::of(event)
        };
        let newer = |row: &&crate::disk::Row| event.kind == Kind::ANNOUNCEMENT && after(row);
        let replaced = disk.once_held.values().any(|row| newer(&row));
        let outnumbered = event.kind == Kind::STATE
            && disk.once_held.values().filter(after).count() >= NEWEST_STATES;
        if !here && !gone && in_time && !replaced && !outnumbered {
            return Err(format!("{id} was acknowledged and is lost"));
        }
    }
    Ok(())
}
