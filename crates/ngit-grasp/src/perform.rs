//! Carries out what the core asks for: one match on `Effect`, nothing else decides here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use grasp_core::admit::Refusal;
use grasp_core::nip34;
use grasp_core::purgatory::Held;
use grasp_core::push::{Decision, PushRefusal};
use grasp_core::registry::Standing;
use grasp_core::sync::Status;
use grasp_core::{
    Answer, Core, Effect, EventId, Kind, Limits, Now, PushId, Repair, RepoId, StoreOutcome, Ticket,
    Timestamp,
};
use rustc_hash::FxHashMap;

use crate::driver::{Awaited, PushReply};
use crate::fetch::Fetcher;
use crate::hosting::worker;
use crate::ingest::{Reply, Room, Word};
use crate::metrics::{ACCEPTED, Metrics};
use crate::notes::{HuntNotes, Notes};
use crate::relay::live;
use crate::remote::Remotes;
use crate::status::{Counts, Lately, Pace};
use crate::writer::{self, Order};

/// The kinds that wait for git data, and all that wait with them.
pub const HELD_KINDS: [(Option<Kind>, &str); 5] = [
    (Some(Kind::ANNOUNCEMENT), "announcement"),
    (Some(Kind::STATE), "state"),
    (Some(nip34::PULL_REQUEST), "pull_request"),
    (Some(nip34::PULL_REQUEST_UPDATE), "pull_request_update"),
    (None, "other"),
];
pub const STANDINGS: [(Standing, &str); 3] = [
    (Standing::Served, "served"),
    (Standing::Held, "held"),
    (Standing::Remembered, "remembered"),
];

fn place_of(kind: Kind) -> usize {
    HELD_KINDS
        .iter()
        .position(|(found, _)| *found == Some(kind))
        .unwrap_or(HELD_KINDS.len() - 1)
}

/// The word for a kind that waits for git data.
pub fn held_kind(kind: Kind) -> &'static str {
    HELD_KINDS
        .get(place_of(kind))
        .map_or("other", |(_, name)| name)
}

/// Of each kind how many wait for git data, and for how many seconds the first of them has. What
/// has expired and is only kept in mind waits no more.
fn waiting<'a>(
    all: impl Iterator<Item = &'a Held>,
    held_for: Duration,
    now: Timestamp,
) -> [(usize, u64); HELD_KINDS.len()] {
    let mut waiting = [(0, 0); HELD_KINDS.len()];
    for held in all.filter(|held| !held.remembered) {
        let left = held.until.0.saturating_sub(now.0);
        let waited = held_for.as_secs().saturating_sub(left);
        if let Some((count, longest)) = waiting.get_mut(place_of(held.event.kind)) {
            *count += 1;
            *longest = waited.max(*longest);
        }
    }
    waiting
}

pub struct Performer {
    writer: writer::Handle,
    live: live::Handle,
    git: worker::Handle,
    remotes: Remotes,
    fetcher: Fetcher,
    metrics: Arc<Metrics>,
    notes: Notes,
    hunt_notes: HuntNotes,
    pace: Pace,
    held_for: Duration,
    waiting: FxHashMap<Ticket, Waiting>,
    pushes: FxHashMap<PushId, PushReply>,
    /// The room of the event that was answered last: its announcement follows.
    answered: Option<(EventId, Room)>,
    /// Handed to the writer at the end of the turn.
    batch: Vec<Order>,
}

struct Waiting {
    id: EventId,
    reply: Box<dyn Reply>,
    room: Room,
}

impl Performer {
    pub fn new(
        writer: writer::Handle,
        live: live::Handle,
        git: worker::Handle,
        remotes: Remotes,
        fetcher: Fetcher,
        metrics: Arc<Metrics>,
        limits: &Limits,
    ) -> Self {
        Self {
            writer,
            live,
            git,
            remotes,
            fetcher,
            notes: Notes::new(Arc::clone(&metrics), &limits.sync),
            hunt_notes: HuntNotes::new(Arc::clone(&metrics)),
            metrics,
            pace: Pace::default(),
            held_for: limits.held_for,
            waiting: FxHashMap::default(),
            pushes: FxHashMap::default(),
            answered: None,
            batch: Vec::new(),
        }
    }

    /// Remembers whom to answer.
    pub fn expect(&mut self, ticket: Ticket, id: EventId, reply: Box<dyn Reply>, room: Room) {
        self.waiting.insert(ticket, Waiting { id, reply, room });
    }

    pub fn expect_push(&mut self, push: PushId, reply: PushReply) {
        self.pushes.insert(push, reply);
    }

    pub fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Store { ticket, event } => self.batch.push(Order::event(ticket, event)),
            Effect::Commit { job, changes } => self.batch.push(Order::changes(job, changes)),
            Effect::Git { job, repo, task } => self.git.perform(job, repo, task),
            Effect::Decide { push, decision } => self.decide(push, decision),
            Effect::Report { push, result } => self.report(push, result),
            Effect::Answer { ticket, answer } => self.answer(ticket, answer),
            Effect::Announce { event, seq } => {
                let answered = self.answered.take().filter(|(id, _)| *id == event.id);
                let room = answered.map(|(_, room)| room);
                self.live.announce(event, seq, room);
            }
            Effect::Sweep { until } => self.writer.sweep(until),
            Effect::Evicted(id) => {
                self.metrics.relay.refused(Refusal::Evicted.label());
                tracing::debug!(%id, "a held event made way for others");
            }
            Effect::Repaired { repo, what } => self.note_repair(&repo, what),
            Effect::Noted(note) => self.notes.take(note, Instant::now()),
            Effect::Hunted(note) => self.hunt_notes.take(note, Instant::now()),
            Effect::Remote { relay, conn, ask } => self.remotes.perform(relay, conn, ask),
            Effect::Fetch { fetch, ask } => self.fetcher.start(fetch, ask),
            Effect::StopFetch(fetch) => self.fetcher.stop(fetch),
            Effect::LeaveHunt(repo) => self.fetcher.leave(repo),
        }
    }

    pub fn note_turn(&self, took: Duration) {
        self.metrics.driver.turned(took);
    }

    /// What an operator sees of the core.
    pub fn show(&mut self, core: &Core, now: Now) {
        let waiting = waiting(core.purgatory().iter(), self.held_for, core.believed());
        for ((_, name), (count, oldest)) in HELD_KINDS.iter().zip(waiting) {
            self.metrics.relay.set_held(name, count, oldest);
        }
        for (standing, name) in STANDINGS {
            let count = core.registry().hosted();
            let count = count.filter(|(_, found)| *found == standing).count();
            self.metrics.git.set_repositories(name, count);
        }
        let sync = core.sync().status(now);
        self.notes.show(&sync, Instant::now());
        self.pace.note(&sync, self.counts(), now.mono);
        let hunt = core.hunt();
        let (totals, domains) = (hunt.totals(now.mono), hunt.domains(now.mono));
        self.hunt_notes.show(&totals, &domains, Instant::now());
    }

    pub fn lately(&self, sync: &Status) -> Lately {
        self.pace.lately(sync, self.counts())
    }

    fn counts(&self) -> Counts {
        let git = self.metrics.git.traffic();
        Counts {
            pushes: git.pushes,
            clones: git.clones,
            store_failures: self.metrics.store.failures.get(),
            git_failures: self.metrics.git.failures.get(),
        }
    }

    fn note_repair(&self, repo: &RepoId, what: Repair) {
        self.metrics.git.repaired(what.label());
        match what {
            Repair::RefsSetBack => tracing::warn!(%repo, "refs set back to the applied state"),
            Repair::RefsDropped => tracing::warn!(%repo, "refs dropped that nothing stands behind"),
            Repair::TipRemoved => tracing::warn!(%repo, "tip of a pull request removed"),
            Repair::Hidden => {
                tracing::warn!(%repo, "objects of an event are gone: not served until they are back");
            }
            Repair::Shown => tracing::info!(%repo, "objects of an event are back: served again"),
        }
    }

    pub fn note_written(&self, outcomes: &[StoreOutcome]) {
        let stored = |outcome: &&StoreOutcome| matches!(outcome, StoreOutcome::Stored(_));
        let stored = outcomes.iter().filter(stored).count();
        self.metrics.relay.releases.inc_by(stored as u64);
    }

    pub fn flush(&mut self) {
        self.answered = None;
        if !self.batch.is_empty() {
            self.writer.write(std::mem::take(&mut self.batch));
        }
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        match &answer {
            Answer::Accepted => self.metrics.relay.events_stored.inc(),
            Answer::Held => self.metrics.relay.events_held.inc(),
            Answer::Duplicate => self.metrics.relay.events_duplicate.inc(),
            Answer::Refused(refusal) => self.metrics.relay.refused(refusal.label()),
        }
        if let Some(waiting) = self.waiting.remove(&ticket) {
            waiting.reply.send(waiting.id, Word::Answer(answer));
            self.answered = Some((waiting.id, waiting.room));
        }
    }

    fn decide(&mut self, push: PushId, decision: Decision) {
        if let Decision::Refuse(refusal) = &decision {
            self.metrics.git.push(refusal.label());
        }
        let refused = matches!(decision, Decision::Refuse(_));
        let Some(reply) = self.pushes.get_mut(&push) else {
            return;
        };
        if let Some(sender) = reply.decision.take() {
            // A client that is gone will not send its objects; dropping this tells the core.
            let awaited = Awaited::new(push, reply.driver.clone());
            let _ = sender.send((awaited, decision));
        }
        if refused {
            self.pushes.remove(&push);
        }
    }

    fn report(&mut self, push: PushId, result: Result<(), PushRefusal>) {
        match &result {
            Ok(()) => self.metrics.git.push(ACCEPTED),
            Err(refusal) => self.metrics.git.push(refusal.label()),
        }
        if let Some(reply) = self.pushes.remove(&push) {
            let _ = reply.report.send(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::admit::Needs;
    use grasp_core::git::ObjectId;

    #[test]
    fn what_is_only_kept_in_mind_does_not_wait() {
        let author = testkit::Author::new(1);
        let held = |n: u64, until| {
            let event = author.event(30_617, n, &[&["d", "r"]], "");
            let needs = Needs::Tip {
                tip: ObjectId([7; 20]),
                repos: Vec::new(),
            };
            Held::new(Arc::new(event), needs, Timestamp(until))
        };
        let (waits, waits_longer, mut expired) = (held(1, 1_090), held(2, 1_040), held(3, 1_020));
        expired.remembered = true;
        let all = [waits, waits_longer, expired];
        let found = waiting(all.iter(), Duration::from_secs(100), Timestamp(1_000));
        assert_eq!(found[0], (2, 60));
        assert_eq!(found[1..], [(0, 0); 4]);
    }
}
