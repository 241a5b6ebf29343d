//! Everything that is known of one relay but what is wanted of it.

use std::time::Duration;

use super::batch::{Batch, Doubt, Doubts, Via};
use super::capabilities::{Capabilities, Reconciles};
use super::downloads::BatchNo;
use super::health::RelayHealth;
use super::items::Items;
use super::link::{Link, Why};
use super::memory::{Record, RelayMemory};
use super::session::Session;
use crate::clock::{Mono, Now, Timestamp};
use crate::facts::Seq;
use crate::limits::SyncLimits;
use crate::relay_url::RelayUrl;

/// A line that was up for less than this has not proven anything.
const FLAP: Duration = Duration::from_secs(30);
/// A relay that misbehaved waits as if it had failed so often.
const SHUNNED: u32 = 6;

#[derive(Debug)]
pub struct Peer {
    pub link: Link,
    /// In this state since.
    pub since: Timestamp,
    pub health: RelayHealth,
    pub capabilities: Capabilities,
    /// When it described itself last.
    pub described: Option<Timestamp>,
    pub doubts: Doubts,
    /// Announcements and states are in doubt from then on, when those on their way are here.
    pub stale_since: Option<Timestamp>,
    pub settled: Option<Seq>,
    pub next_full: Option<Timestamp>,
    /// When what is not watched is compared next.
    pub next_turn: Option<Mono>,
    pub turned: Timestamp,
    pub record: Record,
    /// What is known of it comes from an earlier life.
    pub restored: bool,
    /// Refusals in a row, and until when nothing is asked.
    pub refusals: u32,
    pub paused: Option<Mono>,
    /// It is left alone because it was silent, not because it asked for that.
    pub silent: bool,
    /// No large batch is begun before.
    pub not_before: Option<Mono>,
    /// Batches in a row that found more than there was room for.
    pub overflows: u32,
    /// It was said that it does not compare sets.
    pub warned: bool,
    /// When the last line was heard last.
    pub lost_at: Option<Mono>,
    /// Lines in a row that were lost soon after they came up.
    pub flaps: u32,
    pub lag_ms: Option<u64>,
    /// What is known has changed since it was written down.
    pub dirty: bool,
}

impl Peer {
    pub fn new(limits: &SyncLimits, now: Timestamp) -> Self {
        Self {
            link: Link::Down {
                retry: None,
                why: Why::New,
            },
            since: now,
            health: RelayHealth::default(),
            capabilities: Capabilities::unknown(limits),
            described: None,
            doubts: Doubts::default(),
            stale_since: None,
            settled: None,
            next_full: None,
            next_turn: None,
            turned: now,
            record: Record::default(),
            restored: false,
            refusals: 0,
            paused: None,
            silent: false,
            not_before: None,
            overflows: 0,
            warned: false,
            lost_at: None,
            flaps: 0,
            lag_ms: None,
            dirty: false,
        }
    }

    pub fn session(&self) -> Option<&Session> {
        match &self.link {
            Link::Up(session) => Some(session),
            Link::Down { .. } | Link::Connecting { .. } => None,
        }
    }

    pub fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.link {
            Link::Up(session) => Some(session),
            Link::Down { .. } | Link::Connecting { .. } => None,
        }
    }

    pub fn batch_mut(&mut self, no: BatchNo) -> Option<&mut Batch> {
        self.session_mut()?.batches.get_mut(&no)
    }

    pub fn set_link(&mut self, link: Link, now: Timestamp) {
        let passed = now.0.saturating_sub(self.since.0);
        match self.link {
            Link::Up(_) => self.record.up_secs += passed,
            Link::Down { .. } | Link::Connecting { .. } => self.record.down_secs += passed,
        }
        self.link = link;
        self.since = now;
        self.dirty = true;
    }

    pub fn is_paused(&self, now: Mono) -> bool {
        self.paused.is_some_and(|until| until > now)
    }

    /// Begins nothing large for so long.
    pub fn wait(&mut self, now: Mono, span: Duration) {
        if !span.is_zero() {
            self.not_before = Some(now + span);
        }
    }

    /// A batch is over: the next one may have to wait.
    pub fn end_batch(&mut self, overflowed: bool, now: Mono, limits: &SyncLimits) {
        self.overflows = match overflowed {
            true => self.overflows.saturating_add(1),
            false => 0,
        };
        let pause = limits.refusal.delay(self.overflows);
        self.wait(now, pause.max(limits.batch_delay));
    }

    /// Leaves it alone for a while, longer each time.
    pub fn pause(&mut self, now: Mono, limits: &SyncLimits) -> Duration {
        self.refusals = self.refusals.saturating_add(1);
        let wait = limits.refusal.delay(self.refusals);
        self.paused = Some(now + wait);
        wait
    }

    /// It answered: what was refused before is forgotten.
    pub fn answered(&mut self) {
        if self.paused.is_none() {
            self.refusals = 0;
        }
    }

    /// Everything that it had before this is known; `oldest` is when the oldest event came that
    /// is not judged yet.
    pub fn covered(&self, oldest: Option<Timestamp>, limits: &SyncLimits) -> Option<Timestamp> {
        let doubted = match self.doubts.oldest() {
            Some(None) => return None,
            Some(Some(since)) => Some(since.saturating_add(limits.overlap)),
            None => None,
        };
        let heard = self.session().map(|session| session.heard_unix);
        // Nothing in doubt and no line: nothing was ever settled.
        doubted.into_iter().chain(heard).chain(oldest).min()
    }

    /// The line was lost: how many times in a row so soon.
    pub fn count_flap(&mut self, up_since: Mono, now: Mono, shunned: bool) {
        let lasted = now.0.saturating_sub(up_since.0);
        self.flaps = match (shunned, lasted < FLAP) {
            (true, _) => self.flaps.max(SHUNNED) + 1,
            (false, true) => self.flaps + 1,
            (false, false) => 0,
        };
        self.health.failures = self.health.failures.max(self.flaps.saturating_sub(1));
    }

    /// It is back after too long a time: everything is compared again, or as far back as that is
    /// wanted. True if there was something.
    pub fn doubt_all(&mut self, since: Option<Timestamp>, via: Via) -> bool {
        let mut items = Items::default();
        while let Some(oldest) = self.doubts.take_any() {
            items.add(&oldest.items);
        }
        let any = !items.is_empty();
        if any {
            self.doubts.add(Doubt { items, since, via });
        }
        any
    }

    pub fn memory(
        &self,
        url: &RelayUrl,
        oldest: Option<Timestamp>,
        now: Now,
        limits: &SyncLimits,
    ) -> RelayMemory {
        let mut record = self.record;
        let passed = now.unix.0.saturating_sub(self.since.0);
        match self.link {
            Link::Up(_) => record.up_secs += passed,
            Link::Down { .. } | Link::Connecting { .. } => record.down_secs += passed,
        }
        RelayMemory {
            url: url.clone(),
            health: self.health,
            capabilities: self.capabilities.clone(),
            covered: self.covered(oldest, limits),
            settled: self.settled,
            next_full: self.next_full,
            record,
        }
    }

    pub fn compares(&self, limits: &SyncLimits) -> bool {
        limits.negentropy && self.capabilities.reconciles != Reconciles::No
    }
}
