//! Announcements and states that came too early and are wanted now: who showed them, and what
//! follows when nobody delivers them.

use std::collections::BTreeSet;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::batch::Via;
use super::items::Items;
use super::memory::REST;
use super::{Sync, Timer};
use crate::clock::{Mono, Now, Timestamp};
use crate::id::EventId;
use crate::ticket::RelayNo;

/// Events that are sought, and as many that were in vain, about 150 bytes each: 3 MB. Beyond it the
/// daily comparison finds them.
const MAX_SOUGHT: usize = 10_000;

#[derive(Debug, Default)]
pub struct Sought {
    open: FxHashMap<EventId, Shown>,
    /// Nobody delivered these: they cause no other comparison before then.
    vain: FxHashMap<EventId, Mono>,
    /// The same in the order of their rests.
    rests: BTreeSet<(Mono, EventId)>,
    /// The oldest time from which announcements and states are to be compared anew.
    stale_since: Option<Timestamp>,
    /// When they may be.
    not_before: Mono,
}

#[derive(Debug, Clone, Copy)]
struct Shown {
    by: RelayNo,
    at: Timestamp,
}

impl Sought {
    /// It is asked for where it was shown.
    pub fn add(&mut self, id: EventId, by: RelayNo, at: Timestamp) {
        if self.open.len() < MAX_SOUGHT {
            self.open.insert(id, Shown { by, at });
        }
    }

    pub fn is_shown_by(&self, id: &EventId, relay: RelayNo) -> bool {
        self.open.get(id).is_some_and(|shown| shown.by == relay)
    }

    pub fn came(&mut self, id: &EventId) {
        self.open.remove(id);
    }

    /// It is stored or held.
    pub fn accepted(&mut self, id: &EventId) {
        if let Some(until) = self.vain.remove(id) {
            self.rests.remove(&(until, *id));
        }
    }

    /// Those who were asked did not deliver it.
    fn missed(&mut self, id: EventId, now: Mono) {
        if let Some(shown) = self.open.remove(&id) {
            self.compare_for(id, shown.at, now);
        }
    }

    /// Nobody knows who has it. Whoever shows it again, it is looked for everywhere once.
    fn compare_for(&mut self, id: EventId, at: Timestamp, now: Mono) {
        if self.vain.get(&id).is_some_and(|until| *until > now) {
            return;
        }
        self.accepted(&id);
        if self.vain.len() >= MAX_SOUGHT
            && let Some((_, oldest)) = self.rests.pop_first()
        {
            self.vain.remove(&oldest);
        }
        let until = now + REST;
        self.vain.insert(id, until);
        self.rests.insert((until, id));
        self.stale_since = Some(self.stale_since.map_or(at, |since| since.min(at)));
    }

    /// From when on announcements and states are to be compared now; then not for so long.
    fn take_stale(&mut self, now: Mono, pause: Duration) -> Option<Timestamp> {
        if self.not_before > now {
            return None;
        }
        let since = self.stale_since.take()?;
        self.not_before = now + pause;
        Some(since)
    }

    /// Something is to be compared anew.
    pub fn is_stale(&self) -> bool {
        self.stale_since.is_some()
    }
}

impl Sync {
    /// Those that were asked did not deliver what somebody had shown before.
    pub(super) fn after_vain(&mut self, now: Now) {
        for id in self.downloads.take_vain() {
            self.sought.missed(id, now.mono);
        }
    }

    pub(super) fn look_everywhere_for(&mut self, id: EventId, at: Timestamp, now: Now) {
        self.sought.compare_for(id, at, now.mono);
    }

    /// What becomes stale together is compared together, and no more often than what cannot be
    /// watched: whoever shows what he does not have would keep all relays comparing.
    pub(super) fn remind_to_compare(&mut self, now: Now) {
        if self.sought.is_stale() {
            let at = now.mono + self.limits.quiet;
            let at = at.max(self.sought.not_before);
            self.agenda.add(at, Timer::Announcements);
        }
    }

    pub(super) fn compare_announcements(&mut self, now: Now) {
        let pause = self.limits.reconcile_every;
        let Some(since) = self.sought.take_stale(now.mono, pause) else {
            return;
        };
        let relays: Vec<RelayNo> = self.peers.keys().copied().collect();
        for relay in relays {
            let known = self.targets.relays.get(relay);
            let pending = known.is_some_and(|known| known.pending.announcements);
            match self.peers.get_mut(&relay).filter(|_| pending) {
                Some(peer) => {
                    let before = peer.stale_since.unwrap_or(since);
                    peer.stale_since = Some(before.min(since));
                }
                None => self.doubt_since(relay, &Items::announcements(), since, Via::Turn),
            }
            self.again.insert(relay);
        }
    }

    /// The batch that was on its way is over, with everything else that it brought.
    pub(super) fn doubt_stale(&mut self, relay: RelayNo) {
        let peer = self.peers.get_mut(&relay);
        if let Some(since) = peer.and_then(|peer| peer.stale_since.take()) {
            self.doubt_since(relay, &Items::announcements(), since, Via::Turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u32) -> EventId {
        let mut id = [0; 32];
        id[..4].copy_from_slice(&n.to_be_bytes());
        EventId(id)
    }

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    #[test]
    fn the_oldest_time_is_compared_from_and_then_nothing_for_a_while() {
        let mut sought = Sought::default();
        let pause = Duration::from_secs(600);
        for (n, when) in [(1, 50), (2, 20), (3, 70)] {
            sought.add(id(n), RelayNo(1), Timestamp(when));
            sought.missed(id(n), at(0));
        }
        assert_eq!(sought.take_stale(at(0), pause), Some(Timestamp(20)));
        sought.compare_for(id(4), Timestamp(90), at(1));
        assert_eq!(sought.take_stale(at(599), pause), None);
        assert!(sought.is_stale());
        assert_eq!(sought.take_stale(at(600), pause), Some(Timestamp(90)));
    }

    #[test]
    fn what_rests_is_bounded_and_the_oldest_goes() {
        let mut sought = Sought::default();
        for n in 0..MAX_SOUGHT as u32 + 5 {
            sought.compare_for(id(n), Timestamp(1), at(u64::from(n)));
        }
        assert_eq!(sought.vain.len(), MAX_SOUGHT);
        assert_eq!(sought.rests.len(), MAX_SOUGHT);
        assert!(!sought.vain.contains_key(&id(4)) && sought.vain.contains_key(&id(5)));
        sought.accepted(&id(5));
        assert_eq!(sought.vain.len(), sought.rests.len());
    }
}
