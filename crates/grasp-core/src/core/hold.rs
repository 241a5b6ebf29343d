//! Into purgatory and out of it again, for everything that is not decided by objects: writing
//! down, waiting for another event, coming back after one.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::retry::Again;
use super::settle::MAX_STATES;
use super::{Answer, Change, Core, Effect, Errand, Failed, answer_of};
use crate::admit::{Cause, Needs, Origin, Refusal, Verdict};
use crate::clock::Timestamp;
use crate::event::{Event, Kind};
use crate::facts::{Facts, StoreOutcome};
use crate::hunt::Source;
use crate::id::EventId;
use crate::nip34::{Announcement, Identifier, Rank, RepoId, State, Target, targets};
use crate::purgatory::{Durability, Guest, Held, Holder};
use crate::registry::Standing;
use crate::ticket::{Job, Ticket};

/// Causes that one early event is filed under.
const MAX_CAUSES: usize = 16;
/// Waiting events that are judged again in one turn. Each is a few reads of the store, 10 us and more:
/// together 5 ms.
const LOOKS_IN_A_TURN: usize = 512;
/// Events that one newcomer may displace, and that are looked at for one of them: the largest event
/// takes the place of 80 ordinary ones.
const MAX_EVICTIONS: usize = 128;
/// Things that an accepted event names and that may have come before it.
pub(super) const MAX_NAMED: usize = 64;

/// Waiting events whose verdict may have changed, each once, in the order in which it did. No more
/// than are held.
#[derive(Debug, Default)]
pub struct Line {
    next: VecDeque<EventId>,
    in_it: FxHashSet<EventId>,
}

impl Line {
    pub fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    fn extend(&mut self, ids: Vec<EventId>) {
        for id in ids {
            if self.in_it.insert(id) {
                self.next.push_back(id);
            }
        }
    }

    fn take_next(&mut self) -> Option<EventId> {
        let id = self.next.pop_front()?;
        self.in_it.remove(&id);
        Some(id)
    }
}

impl Core {
    /// A second copy of a held event is answered like the first.
    pub(super) fn is_held_already(
        &mut self,
        ticket: Ticket,
        id: &EventId,
        facts: &dyn Facts,
    ) -> bool {
        let Some(held) = self.purgatory.get_mut(id) else {
            return false;
        };
        if held.remembered || matches!(held.needs, Needs::Arrival(_)) {
            return false;
        }
        if held.durability == Durability::OnDisk && held.submitters.is_empty() {
            self.answer(ticket, Answer::Held);
            return true;
        }
        held.submitters.push(ticket);
        if held.durability == Durability::InMemory && !self.is_worked_on(id) {
            self.pursue(id, facts);
        }
        self.answer_in_time(id);
        true
    }

    /// What comes too early by import is kept in mind; a client hears why and may try again, and
    /// sync asks for it again when what it waits for has come.
    pub(super) fn on_refused(
        &mut self,
        ticket: Ticket,
        event: Arc<Event>,
        origin: &Origin,
        refusal: Refusal,
    ) {
        let early = refusal.is_early();
        let known = self.purgatory.get(&event.id).is_some();
        let limits = &self.policy.limits;
        let guest = Guest::Anybody;
        let room = self.purgatory.room_for(&event, None, guest, limits);
        let room = known || room.is_ok();
        if early && *origin == Origin::Import && !event.kind.is_ephemeral() && room {
            let until = self.believed().saturating_add(self.policy.limits.held_for);
            let causes = causes(&event);
            self.purgatory.insert(event, Needs::Arrival(causes), until);
        }
        self.refuse(ticket, refusal);
    }

    /// Whether it is held now, or was released at once.
    pub(super) fn on_hold(
        &mut self,
        ticket: Ticket,
        event: &Arc<Event>,
        needs: Needs,
        holder: Option<Holder>,
        facts: &dyn Facts,
    ) -> bool {
        if let Some(outcome) = facts.foresee(event) {
            self.answer(ticket, answer_of(outcome));
            return false;
        }
        if let Err(refusal) = self.may_hold(event, &needs, holder, facts) {
            self.refuse(ticket, refusal);
            return false;
        }
        let id = event.id;
        let until = self.believed().saturating_add(self.policy.limits.held_for);
        let held = Arc::clone(event);
        let guest = self.guest(event, &needs);
        self.purgatory
            .insert_from(held, needs, until, holder, guest);
        self.purgatory.revive(&id);
        if let Some(held) = self.purgatory.get_mut(&id) {
            held.submitters.push(ticket);
        }
        self.tell_sync_accepted(event);
        self.meet_early_tips(event, facts);
        self.pursue(&id, facts);
        self.answer_in_time(&id);
        self.look_again_after(event, facts);
        true
    }

    fn may_hold(
        &mut self,
        event: &Event,
        needs: &Needs,
        holder: Option<Holder>,
        facts: &dyn Facts,
    ) -> Result<(), Refusal> {
        if self.is_outnumbered(event) {
            return Err(Refusal::TooManyHeld);
        }
        if self.has_too_many_tips(event, needs) {
            return Err(Refusal::TooManyTips);
        }
        let waits = |held: &Held| !held.remembered;
        match self.purgatory.get(&event.id).is_some_and(waits) {
            true => Ok(()),
            false => self.find_room(event, needs, holder, facts),
        }
    }

    /// Room for one more event. Where all of it is taken, whoever holds most of it loses what has
    /// waited longest, but never to one that would hold as much.
    fn find_room(
        &mut self,
        event: &Event,
        needs: &Needs,
        holder: Option<Holder>,
        facts: &dyn Facts,
    ) -> Result<(), Refusal> {
        let largest = self.policy.limits.held_announcement_bytes;
        if matches!(needs, Needs::State(_)) && event.json().len() > largest {
            return Err(Refusal::TooLargeToHold(largest));
        }
        let guest = self.guest(event, needs);
        for _ in 0..MAX_EVICTIONS {
            let limits = &self.policy.limits;
            match self.purgatory.room_for(event, holder, guest, limits) {
                Err(Refusal::PurgatoryFull) => {}
                verdict => return verdict,
            }
            let evicted = self.evictable(event, holder, guest);
            let evicted = evicted.ok_or(Refusal::PurgatoryFull)?;
            self.evict(&evicted, facts);
        }
        Err(Refusal::PurgatoryFull)
    }

    fn evict(&mut self, id: &EventId, facts: &dyn Facts) {
        let held = self.purgatory.get(id).cloned();
        self.give_up(id, &Refusal::Evicted, facts);
        if let Some(held) = held {
            self.tell_sync_evicted(&held);
            self.effects.push_back(Effect::Evicted(*id));
        }
    }

    /// The first event of a larger holder, of those who make way, that is not about to be served.
    fn evictable(&self, event: &Event, holder: Option<Holder>, guest: Guest) -> Option<EventId> {
        let limits = &self.policy.limits;
        let makes_way = self.purgatory.who_makes_way(event, guest, limits);
        makes_way.iter().find_map(|of| {
            let mut oldest = self
                .purgatory
                .evictable(event, holder, *of)
                .take(MAX_EVICTIONS);
            let found = oldest.find(|held| !self.is_close(held));
            found.map(|held| held.event.id)
        })
    }

    /// Its objects are being looked at or pushed. That it is being written down, or that somebody
    /// pushes what nobody has signed, brings nothing closer: whoever floods us does both.
    fn is_close(&self, held: &Held) -> bool {
        let id = &held.event.id;
        let working = match &held.needs {
            Needs::State(announcement) => {
                let repo = &announcement.repo;
                self.is_settling(repo) || self.is_backed(repo)
            }
            Needs::Refs(_) | Needs::Tip { .. } => self.is_worked_on(id) || self.is_pushed(id),
            Needs::Release(_) | Needs::Arrival(_) | Needs::Nothing => false,
        };
        working || self.in_flight.contains_key(id)
    }

    /// Whether its author maintains a served repository that it is about.
    pub(super) fn guest(&self, event: &Event, needs: &Needs) -> Guest {
        let author = &event.pubkey;
        let is_served = |repo: &RepoId| self.registry.hosting(repo) == Some(Standing::Served);
        let own = match needs {
            Needs::Refs(state) => {
                let repos = self.registry.maintained_by(author, &state.identifier);
                repos.iter().any(is_served)
            }
            Needs::Tip { repos, .. } => {
                let mut repos = repos.iter().filter(|repo| is_served(repo));
                repos.any(|repo| self.registry.is_maintainer(repo, author))
            }
            _ => false,
        };
        match own {
            true => Guest::Maintainer,
            false => Guest::Anybody,
        }
    }

    /// Does for a held event what may bring it on.
    pub(super) fn pursue(&mut self, id: &EventId, facts: &dyn Facts) {
        let Some(held) = self.purgatory.get(id) else {
            return;
        };
        let event = Arc::clone(&held.event);
        match held.needs.clone() {
            Needs::State(announcement) => self.host(announcement, facts),
            Needs::Refs(state) => {
                let repos = self
                    .registry
                    .maintained_by(&state.author, &state.identifier);
                for repo in &repos {
                    self.revive(repo, facts);
                }
                self.settle(&state.identifier, repos, facts);
                let held = self.purgatory.get(id);
                if held.is_some_and(|held| self.is_unwritten(held)) && !self.is_worked_on(id) {
                    self.write_down(vec![*id]);
                }
            }
            Needs::Tip { .. } => self.land(id, facts),
            Needs::Release(_) => {
                self.count_in(&event, facts);
                self.write_down(vec![*id]);
            }
            Needs::Nothing => self.write_down(vec![*id]),
            Needs::Arrival(_) => {}
        }
    }

    /// An announcement that is held with the repository that invites its author has its say in
    /// who maintains.
    fn count_in(&mut self, event: &Event, facts: &dyn Facts) {
        if event.kind != Kind::ANNOUNCEMENT {
            return;
        }
        if let Ok(announcement) = Announcement::read(event, &self.policy.service) {
            let repo = announcement.repo.clone();
            self.announce(announcement, Standing::Held, facts);
            let maintained = self.registry.maintained_by(&repo.owner, &repo.identifier);
            self.settle(&repo.identifier, maintained, facts);
        }
    }

    /// Makes held events durable; their submitters are answered when they are.
    pub(super) fn write_down(&mut self, ids: Vec<EventId>) {
        let job = Job(self.next_job);
        let mut changes = Vec::new();
        for id in &ids {
            let Some(held) = self.purgatory.get_mut(id) else {
                continue;
            };
            if held.durability == Durability::InMemory {
                held.durability = Durability::Writing(job);
            }
            changes.push(Change::Hold {
                event: Arc::clone(&held.event),
                until: held.until,
                remembered: held.remembered,
            });
        }
        if !changes.is_empty() {
            self.commit(changes, Errand::WrittenDown(ids));
        }
    }

    pub(super) fn on_written_down(
        &mut self,
        job: Job,
        ids: &[EventId],
        written: bool,
        facts: &dyn Facts,
    ) {
        for id in ids {
            let Some(held) = self.purgatory.get_mut(id) else {
                continue;
            };
            match held.durability {
                Durability::OnDisk => {}
                Durability::Writing(by) if by == job => {}
                Durability::Writing(_) | Durability::InMemory => continue,
            }
            if written {
                held.durability = Durability::OnDisk;
                for ticket in std::mem::take(&mut held.submitters) {
                    self.answer(ticket, Answer::Held);
                }
                self.on_durable(id, facts);
            } else {
                self.not_written(id, facts);
            }
        }
    }

    /// What is on disk already stays, and what is being worked on may still get there.
    fn not_written(&mut self, id: &EventId, facts: &dyn Facts) {
        self.refuse_submitters(id, &Refusal::StoreFailed);
        let busy = self.is_busy(id);
        match self.purgatory.get_mut(id) {
            Some(held) if held.durability == Durability::OnDisk => {}
            Some(held) if busy => held.durability = Durability::InMemory,
            _ => self.give_up(id, &Refusal::StoreFailed, facts),
        }
    }

    /// An announcement is written down: the versions before it need not wait, and its refs may
    /// move.
    fn on_durable(&mut self, id: &EventId, facts: &dyn Facts) {
        let held = self.purgatory.get(id);
        if let Some(event) = held.map(|held| Arc::clone(&held.event)) {
            self.drop_outnumbered(&event, facts);
        }
        let Some(repo) = self.registry.repo_of(id).cloned() else {
            return;
        };
        for version in self.held_versions(&repo) {
            if version != *id {
                self.give_up(&version, &Refusal::Replaced, facts);
            }
        }
        self.settle(&repo.identifier, vec![repo.clone()], facts);
    }

    /// Other states of its author that are written down, the newest first.
    fn rivals(&self, event: &Event) -> Vec<&Held> {
        let state = State::identifier_of(event);
        let of = state.map(|identifier| RepoId::new(event.pubkey, identifier));
        let ids = of.iter().flat_map(|of| self.purgatory.states_of(of));
        let held = ids.filter_map(|id| self.purgatory.get(id));
        let mut rivals: Vec<&Held> = held
            .filter(|held| held.durability == Durability::OnDisk && held.event.id != event.id)
            .collect();
        rivals.sort_by_key(|held| Reverse(Rank::of(&held.event)));
        rivals
    }

    /// So many newer ones wait that this one would not be looked at.
    fn is_outnumbered(&self, event: &Event) -> bool {
        let rivals = self.rivals(event);
        let last = rivals.get(MAX_STATES - 1);
        last.is_some_and(|last| Rank::of(&last.event) > Rank::of(event))
    }

    /// A state is written down: those that it pushes out need not wait.
    fn drop_outnumbered(&mut self, event: &Event, facts: &dyn Facts) {
        let rivals = self.rivals(event).into_iter();
        // With this one, which may be any of them, one more waits.
        let surplus = rivals.skip(MAX_STATES - 1).map(|held| &held.event);
        let surplus: Vec<Arc<Event>> = surplus.cloned().collect();
        for rival in surplus {
            if self.is_outnumbered(&rival) && !self.is_busy(&rival.id) {
                self.give_up(&rival.id, &Refusal::Replaced, facts);
            }
        }
    }

    /// An event is served: versions before it will never be.
    pub(super) fn give_up_older(&mut self, event: &Event, facts: &dyn Facts) {
        let Some(address) = event.address() else {
            return;
        };
        let rank = Rank::of(event);
        for id in self.purgatory.at_address(&address, event.created_at) {
            let held = self.purgatory.get(&id);
            if held.is_some_and(|held| Rank::of(&held.event) < rank) {
                self.give_up(&id, &Refusal::Replaced, facts);
            }
        }
    }

    /// Forgets a held event and tells whoever waits.
    pub(super) fn give_up(&mut self, id: &EventId, refusal: &Refusal, facts: &dyn Facts) {
        self.refuse_submitters(id, refusal);
        let Some(held) = self.purgatory.remove(id) else {
            return;
        };
        self.tell_sync_given_up(&held.event, refusal);
        // Even one that was not written: the row of an earlier stay may be there.
        match &held.needs {
            Needs::Arrival(_) => return,
            _ if held.event.kind == Kind::ANNOUNCEMENT => {
                return self.withdraw(&held.event, Some(*id), facts);
            }
            _ => self.remove_tips_of(id, facts),
        }
        self.unhold(*id);
    }

    pub(super) fn refuse_submitters(&mut self, id: &EventId, refusal: &Refusal) {
        let Some(held) = self.purgatory.get_mut(id) else {
            return;
        };
        for ticket in std::mem::take(&mut held.submitters) {
            self.refuse(ticket, refusal.clone());
        }
    }

    /// Takes the row of an event away that is held no longer.
    pub(super) fn unhold(&mut self, id: EventId) {
        let held = self.purgatory.get(&id);
        if held.is_none_or(|held| matches!(held.needs, Needs::Arrival(_))) {
            self.commit(vec![Change::Unhold(id)], Errand::Unheld(id));
        }
    }

    pub(super) fn on_unheld(&mut self, id: EventId, done: bool) {
        if !done {
            self.retry_later(Again::Unhold(id));
        }
    }

    /// An announcement is served: its repository, and whom it trusts, may have changed.
    pub(super) fn on_announced(&mut self, event: &Event, facts: &dyn Facts) {
        let Ok(announcement) = Announcement::read(event, &self.policy.service) else {
            return;
        };
        let repo = announcement.repo.clone();
        self.give_up_older(event, facts);
        self.announce(announcement, Standing::Served, facts);
        let maintained = self.registry.maintained_by(&repo.owner, &repo.identifier);
        self.settle(&repo.identifier, maintained, facts);
        // A newer one that came while this one was being stored replaces it at once.
        for version in self.held_versions(&repo) {
            self.reconsider(&version, facts);
        }
    }

    /// Judges again whatever waited for that event, as many as there is time for in one turn; the
    /// others have the next ones.
    pub(super) fn look_again_after(&mut self, event: &Event, facts: &dyn Facts) {
        let others_first = !self.to_look_at.is_empty();
        self.line_up_after(event);
        if !others_first {
            self.look_at_next(facts);
        }
    }

    fn line_up_after(&mut self, event: &Event) {
        for cause in caused_by(event) {
            let waiting = self.purgatory.waiting_for(&cause);
            self.to_look_at.extend(waiting);
        }
    }

    pub(super) fn look_at_next(&mut self, facts: &dyn Facts) {
        for _ in 0..LOOKS_IN_A_TURN {
            let Some(id) = self.to_look_at.take_next() else {
                return;
            };
            if let Some(event) = self.reconsider(&id, facts) {
                self.line_up_after(&event);
            }
        }
    }

    /// What an accepted event names may come in, if it came too early.
    pub(super) fn look_at_named(&mut self, event: &Event, facts: &dyn Facts) {
        for target in targets(event).take(MAX_NAMED) {
            let ids = match target {
                Target::Event(id) => vec![id],
                Target::Address(address) => {
                    self.purgatory.at_address(&address, Timestamp(u64::MAX))
                }
            };
            for id in ids {
                let held = self.purgatory.get(&id);
                if held.is_some_and(|held| matches!(held.needs, Needs::Arrival(_))) {
                    self.reconsider(&id, facts);
                }
            }
        }
    }

    /// Judges a waiting event again, in the turn in which what it waited for came. The event, if
    /// it is held from now on.
    pub(super) fn reconsider(&mut self, id: &EventId, facts: &dyn Facts) -> Option<Arc<Event>> {
        let held = self.purgatory.get(id)?;
        if self.in_flight.contains_key(id) {
            return None;
        }
        let was_early = matches!(held.needs, Needs::Arrival(_));
        let (event, until) = (Arc::clone(&held.event), held.until);
        // It passed the checks on its submitter when it came.
        match self.judge(&event, &Origin::Import, facts) {
            Verdict::Drop(_) => return None,
            Verdict::Store => {
                self.join(&event);
                return None;
            }
            Verdict::Hold(needs) => {
                let same = |held: &Held| held.needs == needs;
                if self.purgatory.get(id).is_some_and(same) {
                    return None;
                }
                if was_early && facts.foresee(&event).is_some() {
                    self.purgatory.remove(id);
                    return None;
                }
                self.purgatory.insert(Arc::clone(&event), needs, until);
            }
        }
        self.meet_early_tips(&event, facts);
        self.pursue(id, facts);
        self.expect_data(id, Source::Synced);
        was_early.then_some(event)
    }

    /// What it waited for is served: so is it.
    pub(super) fn join(&mut self, event: &Arc<Event>) {
        self.in_flight.insert(event.id, event.kind);
        let changes = vec![Change::Store(Arc::clone(event)), Change::Unhold(event.id)];
        self.commit(changes, Errand::Joined(Arc::clone(event)));
    }

    pub(super) fn on_joined(
        &mut self,
        event: &Arc<Event>,
        outcomes: Result<Vec<StoreOutcome>, Failed>,
        facts: &dyn Facts,
    ) {
        self.in_flight.remove(&event.id);
        match outcomes.as_deref() {
            Ok([outcome, ..]) => self.released(event, *outcome, facts),
            _ => {
                self.refuse_submitters(&event.id, &Refusal::StoreFailed);
                self.retry_later(Again::Event(event.id));
            }
        }
    }

    /// A held event is in the store, or the store has said that it never will be.
    pub(super) fn released(
        &mut self,
        event: &Arc<Event>,
        outcome: StoreOutcome,
        facts: &dyn Facts,
    ) {
        self.leave(&event.id, outcome);
        self.on_left(event, outcome, facts);
    }

    /// It is held no longer; whoever waits is told.
    pub(super) fn leave(&mut self, id: &EventId, outcome: StoreOutcome) {
        let held = self.purgatory.remove(id);
        for ticket in held.into_iter().flat_map(|held| held.submitters) {
            self.answer(ticket, answer_of(outcome));
        }
    }

    pub(super) fn on_left(&mut self, event: &Arc<Event>, outcome: StoreOutcome, facts: &dyn Facts) {
        match outcome {
            StoreOutcome::Stored(seq) => self.on_accepted(event, seq, facts),
            // It stands in the registry and will not be stored.
            _ if event.kind == Kind::ANNOUNCEMENT => self.withdraw(event, None, facts),
            _ => self.remove_tips_of(&event.id, facts),
        }
    }
}

/// Whose verdict an event may change by being here.
pub(super) fn caused_by(event: &Event) -> Vec<Cause> {
    let mut causes = vec![Cause::Came(Target::Event(event.id))];
    if let Some(address) = event.address() {
        if let Some(repo) = RepoId::of_address(&address) {
            causes.push(Cause::Announced(repo.identifier));
        }
        causes.push(Cause::Came(Target::Address(address)));
    }
    causes
}

/// What an event that came too early waits for.
pub(super) fn causes(event: &Event) -> Vec<Cause> {
    if matches!(event.kind, Kind::ANNOUNCEMENT | Kind::STATE) {
        let identifier = Identifier::parse(event.tag("d").unwrap_or_default());
        return identifier.into_iter().map(Cause::Announced).collect();
    }
    targets(event).take(MAX_CAUSES).map(Cause::Came).collect()
}
