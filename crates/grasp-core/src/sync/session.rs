//! One connection while it lasts: what is open on it, and what is watched.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::batch::Batch;
use super::capabilities::Capabilities;
use super::downloads::BatchNo;
use super::io::{Complaint, Fault};
use super::items::Items;
use super::subs::{Purpose, Sub, Subs};
use crate::clock::{Mono, Timestamp};
use crate::id::EventId;
use crate::ticket::{ConnNo, SubNo};

/// Requests for history that are open on one relay at once.
const MAX_WORK: u32 = 4;
/// Watches that are refused before none is asked for any more.
const MAX_REFUSED: u32 = 4;
/// Faults of one connection before we hang up.
const FAULT_BUDGET: u32 = 100;
/// One fault is forgiven after so long: a hundred in an hour end a connection, a few each day
/// never do.
const FAULT_FADES: Duration = Duration::from_secs(36);

/// Whether we have shown who we are.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Auth {
    #[default]
    NotAsked,
    /// It may ask; nothing was refused for it yet.
    Challenged(String),
    /// Something was refused, and there is no challenge yet.
    Wanted,
    Sent,
    Done,
}

/// Watches that stay open until those in their place have been answered: what is on its way for
/// them comes nowhere else.
#[derive(Debug)]
pub struct Outgoing {
    pub old: BTreeSet<SubNo>,
    pub awaited: BTreeSet<SubNo>,
    /// All that they watch is watched by the new ones.
    pub covered: bool,
}

#[derive(Debug)]
pub struct Session {
    pub conn: ConnNo,
    pub began: Mono,
    /// The last word of it.
    pub heard: Mono,
    pub heard_unix: Timestamp,
    /// The last word that brought something on.
    pub progress: Mono,
    pub subs: Subs,
    /// What is watched.
    pub live: Items,
    pub batches: BTreeMap<BatchNo, Batch>,
    pub auth: Auth,
    /// Times that no EOSE came though the relay was there; of no account once one came.
    pub without_eose: u32,
    pub says_eose: bool,
    faults: u32,
    /// Until when faults have faded.
    faded: Mono,
    seen_faults: BTreeSet<Fault>,
    /// When it was last held against it that it does not have what it showed.
    blamed_shown: Option<Mono>,
    /// When it was last seen to whether what is watched could be packed better, and when it was.
    pub looked: Option<Mono>,
    pub repacked: Option<Mono>,
    pub outgoing: Option<Outgoing>,
    /// Something that should be watched is not.
    pub unwatched: bool,
    /// Watches that the relay refused or ended.
    pub refused_watches: u32,
}

impl Session {
    pub fn new(conn: ConnNo, mono: Mono, unix: Timestamp) -> Self {
        Self {
            conn,
            began: mono,
            heard: mono,
            heard_unix: unix,
            progress: mono,
            subs: Subs::default(),
            live: Items::default(),
            batches: BTreeMap::new(),
            auth: Auth::default(),
            without_eose: 0,
            says_eose: false,
            faults: 0,
            faded: mono,
            seen_faults: BTreeSet::new(),
            blamed_shown: None,
            looked: None,
            repacked: None,
            outgoing: None,
            unwatched: false,
            refused_watches: 0,
        }
    }

    pub fn open(&mut self, sub: Sub) -> SubNo {
        if let Some(batch) = sub.batch().and_then(|batch| self.batches.get_mut(&batch)) {
            batch.running += 1;
        }
        if let Purpose::Live { chunks, .. } = &sub.purpose {
            for chunk in chunks {
                self.live.add(&chunk.items());
            }
        }
        self.subs.open(sub)
    }

    /// Takes it off the table; what it watched is not watched any more.
    pub fn close(&mut self, no: SubNo) -> Option<Sub> {
        let sub = self.subs.close(no)?;
        if !sub.is_over()
            && let Some(batch) = sub.batch().and_then(|batch| self.batches.get_mut(&batch))
        {
            batch.running -= 1;
        }
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.old.remove(&no);
            outgoing.covered &= !outgoing.awaited.remove(&no);
        }
        if sub.is_live() {
            self.live = self.watched();
        }
        Some(sub)
    }

    /// The same for watches that nothing waits for.
    pub fn close_watches(&mut self, subs: &BTreeSet<SubNo>) {
        self.drop_watches(subs);
        self.live = self.watched();
    }

    fn drop_watches(&mut self, subs: &BTreeSet<SubNo>) {
        for no in subs {
            self.subs.close(*no);
        }
    }

    /// It goes on to watch.
    pub fn answered(&mut self, no: SubNo) {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.awaited.remove(&no);
        }
    }

    /// The watches whose successors have all been answered; they are closed.
    pub fn retire(&mut self) -> Option<Outgoing> {
        let outgoing = self
            .outgoing
            .take_if(|outgoing| outgoing.awaited.is_empty())?;
        match outgoing.covered {
            true => self.drop_watches(&outgoing.old),
            false => self.close_watches(&outgoing.old),
        }
        Some(outgoing)
    }

    fn is_outgoing(&self, no: SubNo) -> bool {
        let outgoing = self.outgoing.as_ref();
        outgoing.is_some_and(|outgoing| outgoing.old.contains(&no))
    }

    fn watched(&self) -> Items {
        let mut live = Items::default();
        for (_, sub) in self.subs.iter() {
            live.add(&sub.watched());
        }
        live
    }

    /// Those that watch, and stay.
    pub fn live(&self) -> impl DoubleEndedIterator<Item = (SubNo, &Sub)> {
        let subs = self.subs.iter();
        subs.filter(|(no, sub)| sub.is_live() && !self.is_outgoing(*no))
    }

    /// Those of few items.
    pub fn small(&self, most: u64) -> impl Iterator<Item = (SubNo, &Sub)> {
        let small = self.subs.smaller_than(most);
        small.filter(|(no, _)| !self.is_outgoing(*no))
    }

    fn outgoing(&self) -> impl Iterator<Item = &Sub> {
        let old = self.outgoing.iter().flat_map(|outgoing| &outgoing.old);
        old.filter_map(|no| self.subs.get(*no))
    }

    pub fn live_subs(&self) -> usize {
        self.subs.watches() - self.outgoing().count()
    }

    pub fn live_filters(&self) -> usize {
        self.subs.filters() - self.outgoing().map(Sub::filters).sum::<usize>()
    }

    /// Room for one more request for history.
    pub fn has_room_to_work(&self, allowed: &Capabilities) -> bool {
        let working = self.subs.len() - self.subs.watches();
        working < work_slots(allowed) && self.subs.len() < allowed.subscriptions as usize
    }

    /// It does not let us watch; what is new there is found by comparing from time to time.
    pub fn is_unwatchable(&self) -> bool {
        self.refused_watches >= MAX_REFUSED
    }

    /// Subscriptions that the relay allows for watching.
    pub fn watch_slots(&self, allowed: &Capabilities) -> usize {
        match self.is_unwatchable() {
            true => 0,
            false => (allowed.subscriptions as usize).saturating_sub(work_slots(allowed)),
        }
    }

    /// Subscriptions that may still be opened to watch.
    pub fn room_to_watch(&self, allowed: &Capabilities) -> usize {
        let slots = self.watch_slots(allowed);
        let room = (allowed.subscriptions as usize).saturating_sub(self.subs.len());
        slots.saturating_sub(self.live_subs()).min(room)
    }

    pub fn fetches(&self) -> usize {
        let is_fetch = |sub: &Sub| matches!(sub.purpose, Purpose::Fetch { .. });
        self.subs.busy().filter(|(_, sub)| is_fetch(sub)).count()
    }

    /// It was asked for, and the answer is not complete yet.
    pub fn fetches_event(&self, id: &EventId) -> bool {
        self.subs.busy().any(|(_, sub)| match &sub.purpose {
            Purpose::Fetch { asked, .. } => asked.contains(id),
            _ => false,
        })
    }

    /// The request that a refusal without a name is for: the newest, or the one with the most
    /// filters if they are too many.
    pub fn refused_by(&self, why: Complaint) -> Option<SubNo> {
        let mut unanswered = self.subs.busy().filter(|(_, sub)| sub.sent.is_none());
        let refused = match why {
            Complaint::TooManyFilters => unanswered.max_by_key(|(_, sub)| sub.filters()),
            _ => unanswered.next_back(),
        };
        refused.map(|(no, _)| no)
    }

    /// What is on its way for these may have passed something by: it is asked for again.
    pub fn fail(&mut self, items: &Items) {
        for batch in self.batches.values_mut() {
            batch.failed |= batch.items.overlaps(items);
        }
    }

    pub fn next_deadline(&self) -> Option<Mono> {
        let busy = self.subs.busy();
        busy.filter_map(|(_, sub)| sub.deadline()).min()
    }

    /// True for the first of its kind.
    pub fn note_fault(&mut self, fault: Fault, now: Mono) -> bool {
        self.fade_faults(now);
        self.faults += match fault {
            Fault::Malformed
            | Fault::OffFilter
            | Fault::UnknownSubscription
            | Fault::Hollow
            | Fault::TooLarge => 1,
            Fault::WrongId | Fault::WrongSignature => 5,
            Fault::Flood => 20,
        };
        self.seen_faults.insert(fault)
    }

    /// Whether it is held against the relay that it does not have what it showed: once in the time
    /// in which a fault fades, because anybody may publish at an honest relay, and replace it.
    pub fn may_blame_shown(&mut self, now: Mono) -> bool {
        let may = self.blamed_shown.is_none_or(|at| at + FAULT_FADES <= now);
        if may {
            self.blamed_shown = Some(now);
        }
        may
    }

    fn fade_faults(&mut self, now: Mono) {
        let fades = now.since(self.faded).as_secs() / FAULT_FADES.as_secs();
        let fades = u32::try_from(fades).unwrap_or(u32::MAX);
        self.faults = self.faults.saturating_sub(fades);
        self.faded = self.faded + FAULT_FADES.saturating_mul(fades);
    }

    /// Something was left out unread: whatever is being answered may be longer than it seems. It
    /// cannot be dismissed by its id and comes again with every pass, so that it counts for nothing:
    /// whoever planted it must not part us from the relay. True for the first.
    pub fn note_unread(&mut self) -> bool {
        self.subs.doubt_all();
        self.seen_faults.insert(Fault::TooLarge)
    }

    pub fn exceeded_fault_budget(&self) -> bool {
        self.faults >= FAULT_BUDGET
    }

    /// A repository is gone, and its number may soon be another's.
    pub fn forget_repo(&mut self, repo: u32) {
        self.live.repos.remove(repo);
        for batch in self.batches.values_mut() {
            batch.items.repos.remove(repo);
            batch.leads.repos.remove(repo);
        }
        self.subs.forget_repo(repo);
    }
}

/// A relay that lets us have one subscription has it for history.
fn work_slots(allowed: &Capabilities) -> usize {
    (allowed.subscriptions / 2).clamp(1, MAX_WORK) as usize
}
