//! One line to one relay, from the first attempt to the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use grasp_core::sync::io::{Fault, FromRelay};
use grasp_core::{Event, Filter, RelayNo, SubNo};

use super::relay::Session;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Dialling,
    Up,
    /// We hung up; the end is on its way.
    Closing,
}

pub(super) struct Line {
    pub(super) relay: RelayNo,
    /// Which of the relays of the world.
    pub(super) to: usize,
    pub(super) stage: Stage,
    pub(super) there: Way,
    pub(super) back: Way,
    /// What we are subscribed to.
    pub(super) asked: BTreeMap<SubNo, Asked>,
    pub(super) comparing: BTreeSet<SubNo>,
    pub(super) session: Session,
}

impl Line {
    pub(super) fn new(relay: RelayNo, to: usize) -> Self {
        Self {
            relay,
            to,
            stage: Stage::Dialling,
            there: Way::default(),
            back: Way::default(),
            asked: BTreeMap::new(),
            comparing: BTreeSet::new(),
            session: Session::default(),
        }
    }

    pub(super) fn stall(&mut self, until: Duration) {
        self.there.last = self.there.last.max(until);
        self.back.last = self.back.last.max(until);
    }

    pub(super) fn eose(&mut self, sub: SubNo) -> Option<FromRelay> {
        let asked = self.asked.get_mut(&sub)?;
        asked.ended = true;
        Some(FromRelay::Eose {
            sub,
            sent: asked.sent,
            complete: false,
        })
    }
}

/// One direction: nothing overtakes anything.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Way {
    last: Duration,
}

impl Way {
    /// How long from now until something sent now arrives.
    pub(super) fn next(&mut self, now: Duration, takes: Duration) -> Duration {
        self.last = self.last.max(now + takes);
        self.last.saturating_sub(now)
    }
}

pub(super) struct Asked {
    filters: Arc<[Filter]>,
    most: Option<u32>,
    pub(super) sent: u32,
    ended: bool,
}

impl Asked {
    pub(super) fn new(filters: &Arc<[Filter]>, most: Option<u32>) -> Self {
        Self {
            filters: Arc::clone(filters),
            most,
            sent: 0,
            ended: false,
        }
    }

    /// Counts an EVENT frame, and says what can be seen to be wrong with it at once.
    pub(super) fn judge(&mut self, event: &Event) -> Option<Fault> {
        self.sent += 1;
        if !self.ended && self.most.is_some_and(|most| self.sent > most) {
            return Some(Fault::Flood);
        }
        let fits = self.filters.iter().any(|filter| filter.matches(event));
        (!fits).then_some(Fault::OffFilter)
    }
}
