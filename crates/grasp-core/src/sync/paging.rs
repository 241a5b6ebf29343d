//! History without NIP-77: pages of a filter from the newest to the oldest. Relays cut answers
//! without a word, repeat and reorder them, and may have more events in one second than they give
//! at once; nothing may be lost by any of it, and it must come to an end.

use std::collections::BTreeSet;

use super::capabilities::Capabilities;
use crate::clock::Timestamp;
use crate::id::EventId;

/// Ids of one second that are told apart; a second with more is full, whatever the relay says.
const MAX_EDGE: usize = 5_000;

/// Pages of one filter: ten million events, if each is full.
const MAX_PAGES: u32 = 20_000;

/// One filter's way through time. Every page asks for less: an older second, or the same one with
/// more of its events known.
#[derive(Debug)]
pub struct Paging {
    until: Timestamp,
    /// What is known of the second `until`.
    edge: BTreeSet<EventId>,
    page: BTreeSet<(Timestamp, EventId)>,
    pages: u32,
    /// Events that the page asks for at most.
    limit: u32,
}

/// How a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paged {
    /// Ask for the next page.
    More,
    /// This second has more than the relay gives at once: it must be asked for in parts. What is
    /// older is the next page. How many of its events are known.
    FullSecond(Timestamp, usize),
    Done,
}

/// What the relay said at the end of a page.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageEnd {
    /// Nothing older is there.
    pub complete: bool,
    /// It said nothing: there may be more, whatever the number of events.
    pub unsure: bool,
}

impl Paging {
    pub fn new(until: Timestamp) -> Self {
        Self {
            until,
            edge: BTreeSet::new(),
            page: BTreeSet::new(),
            pages: 0,
            limit: u32::MAX,
        }
    }

    /// The next page is asked for, with so many events at most.
    pub fn ask(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// The newest second that the next page asks for.
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// An event of the page, in any order and any number of times. Those that were not asked for
    /// do not count.
    pub fn took(&mut self, id: EventId, at: Timestamp) {
        if at <= self.until {
            self.page.insert((at, id));
        }
    }

    /// The page is complete.
    pub fn end(&mut self, end: PageEnd, capabilities: &mut Capabilities) -> Paged {
        let page = std::mem::take(&mut self.page);
        let count = u32::try_from(page.len()).unwrap_or(u32::MAX);
        let may_be_cut = capabilities.prove(count, self.limit) || end.unsure;
        self.pages += 1;
        let more = !end.complete && may_be_cut && self.pages < MAX_PAGES;
        let Some((oldest, _)) = page.first().copied().filter(|_| more) else {
            return Paged::Done;
        };
        let at_oldest = page.iter().take_while(|(at, _)| *at == oldest);
        let at_oldest: BTreeSet<EventId> = at_oldest.map(|(_, id)| *id).collect();
        if oldest < self.until {
            // That second may have more than the page had room for.
            (self.until, self.edge) = (oldest, at_oldest);
            return Paged::More;
        }
        let before = self.edge.len();
        self.edge.extend(at_oldest);
        if self.edge.len() > before && self.edge.len() <= MAX_EDGE {
            return Paged::More;
        }
        self.leave(oldest)
    }

    fn leave(&mut self, second: Timestamp) -> Paged {
        let known = self.edge.len();
        self.edge.clear();
        self.until = Timestamp(second.0.saturating_sub(1));
        match second.0 {
            0 => Paged::Done,
            _ => Paged::FullSecond(second, known),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: PageEnd = PageEnd {
        complete: true,
        unsure: false,
    };
    use crate::limits::SyncLimits;

    /// Events with a value each, so that a filter can be split.
    struct Relay {
        events: Vec<(Timestamp, EventId, u8)>,
        cap: usize,
        /// What we ask for at most, but for full seconds.
        limit: usize,
        rng: fastrand::Rng,
    }

    impl Relay {
        fn new(seed: u64) -> Self {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (cap, seconds) = (rng.usize(2..12), rng.u64(1..40));
            let limit = rng.usize(2..20);
            let mut events = Vec::new();
            for n in 0..rng.u32(0..200) {
                let mut id = [0; 32];
                id[..4].copy_from_slice(&n.to_be_bytes());
                let at = Timestamp(1_000 + rng.u64(0..seconds));
                let value = rng.u8(0..16);
                let same = |(t, _, v): &&(Timestamp, EventId, u8)| *t == at && *v == value;
                // One value of one second fits a page, or nothing would help.
                if events.iter().filter(same).count() < cap {
                    events.push((at, EventId(id), value));
                }
            }
            Self {
                events,
                cap,
                limit,
                rng,
            }
        }

        fn answer(
            &mut self,
            values: &[u8],
            (since, until): (u64, u64),
            limit: usize,
        ) -> Vec<(Timestamp, EventId)> {
            let wanted = |(at, _, value): &&(Timestamp, EventId, u8)| {
                values.contains(value) && (since..=until).contains(&at.0)
            };
            let found = self.events.iter().filter(wanted);
            let mut found: Vec<_> = found.map(|(at, id, _)| (*at, *id)).collect();
            found.sort_by_key(|(at, id)| (std::cmp::Reverse(*at), *id));
            found.truncate(self.cap.min(limit));
            if self.rng.bool() {
                found.extend(found.first().copied());
            }
            self.rng.shuffle(&mut found);
            found
        }
    }

    /// Pages through everything, asking for full seconds in halves.
    fn fetch(
        relay: &mut Relay,
        values: &[u8],
        (since, until): (u64, u64),
        capabilities: &mut Capabilities,
        found: &mut BTreeSet<EventId>,
    ) -> usize {
        let mut paging = Paging::new(Timestamp(until));
        let mut pages = 0;
        let limit = match since == until {
            true => 5_000,
            false => relay.limit,
        };
        loop {
            pages += 1;
            paging.ask(limit as u32);
            for (at, id) in relay.answer(values, (since, paging.until().0), limit) {
                found.insert(id);
                paging.took(id, at);
            }
            match paging.end(PageEnd::default(), capabilities) {
                Paged::Done => return pages,
                Paged::More => {}
                Paged::FullSecond(at, _) => {
                    let (one, two) = values.split_at(values.len() / 2);
                    for half in [one, two].iter().filter(|half| half.len() < values.len()) {
                        let second = (at.0, at.0);
                        pages += fetch(relay, half, second, capabilities, found);
                    }
                }
            }
            if paging.until().0 < since {
                return pages;
            }
        }
    }

    #[test]
    fn whatever_the_relay_cuts_repeats_or_reorders_everything_is_found() {
        for seed in 0..2_000 {
            let mut relay = Relay::new(seed);
            let mut capabilities = Capabilities::unknown(&SyncLimits::default());
            let values: Vec<u8> = (0..16).collect();
            let mut found = BTreeSet::new();
            let all = (0, 2_000);
            let pages = fetch(&mut relay, &values, all, &mut capabilities, &mut found);
            let events = relay.events.len();
            assert_eq!(found.len(), events, "seed {seed}, cap {}", relay.cap);
            assert!(pages <= 4 * events + 40, "seed {seed}: {pages} pages");
        }
    }

    #[test]
    fn a_full_second_is_told_and_left_behind() {
        let mut capabilities = Capabilities::unknown(&SyncLimits::default());
        let mut paging = Paging::new(Timestamp(50));
        let page = |paging: &mut Paging| {
            for n in 0..3 {
                paging.took(EventId([n; 32]), Timestamp(40));
            }
        };
        page(&mut paging);
        assert_eq!(
            paging.end(PageEnd::default(), &mut capabilities),
            Paged::More
        );
        assert_eq!(paging.until(), Timestamp(40));
        page(&mut paging);
        let full = Paged::FullSecond(Timestamp(40), 3);
        assert_eq!(paging.end(PageEnd::default(), &mut capabilities), full);
        assert_eq!(paging.until(), Timestamp(39));
        assert_eq!(
            paging.end(PageEnd::default(), &mut capabilities),
            Paged::Done
        );
    }

    #[test]
    fn a_relay_that_says_it_is_all_or_answers_off_the_question_is_not_asked_again() {
        let mut capabilities = Capabilities::unknown(&SyncLimits::default());
        let mut paging = Paging::new(Timestamp(50));
        paging.took(EventId([1; 32]), Timestamp(40));
        assert_eq!(paging.end(ALL, &mut capabilities), Paged::Done);
        let mut paging = Paging::new(Timestamp(50));
        paging.took(EventId([1; 32]), Timestamp(60));
        assert_eq!(
            paging.end(PageEnd::default(), &mut capabilities),
            Paged::Done
        );
    }

    #[test]
    fn a_relay_that_makes_up_events_without_end_is_left_at_last() {
        let mut capabilities = Capabilities::unknown(&SyncLimits::default());
        let mut paging = Paging::new(Timestamp(3));
        let mut pages = 0;
        for n in 0u64.. {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&n.to_be_bytes());
            paging.took(EventId(id), paging.until());
            pages += 1;
            if paging.end(PageEnd::default(), &mut capabilities) == Paged::Done {
                break;
            }
        }
        assert!(pages <= 4 * (MAX_EDGE + 2), "{pages}");
    }
}
