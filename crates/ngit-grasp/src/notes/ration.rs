//! How many lines the log gets. Strangers choose the relays and servers that give cause for them:
//! each gets a few in a minute on one matter, all together some more, then one counts the rest.

use std::hash::Hash;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

/// Lines on one matter that one of them causes.
pub const LINES: u32 = 10;
/// Lines on one matter, whoever causes them.
pub const ALL_LINES: u32 = 10 * LINES;
/// In this time.
pub const PERIOD: Duration = Duration::from_secs(60);

/// `M` is what a line is about, `K` who causes it.
#[derive(Debug)]
pub struct Ration<M, K> {
    told: FxHashMap<M, Told<K>>,
}

#[derive(Debug)]
struct Told<K> {
    since: Instant,
    lines: u32,
    /// Only of those that got lines: there are no more than lines.
    by_key: FxHashMap<K, u32>,
    untold: u64,
    whose: Whose<K>,
}

/// Who caused the lines that were left out.
#[derive(Debug, PartialEq, Eq)]
pub enum Whose<K> {
    Nobody,
    One(K),
    Many,
}

/// Lines that were left out.
#[derive(Debug, PartialEq, Eq)]
pub struct Untold<M, K> {
    pub matter: M,
    pub count: u64,
    pub whose: Whose<K>,
}

impl<M: Copy + Eq + Hash, K: Clone + Eq + Hash> Ration<M, K> {
    pub fn new() -> Self {
        Self {
            told: FxHashMap::default(),
        }
    }

    /// Takes one line.
    pub fn may_tell(&mut self, matter: M, key: Option<&K>, now: Instant) -> bool {
        let told = self.told.entry(matter).or_insert_with(|| Told::since(now));
        let own = key.and_then(|key| told.by_key.get(key));
        if told.lines >= ALL_LINES || own.is_some_and(|lines| *lines >= LINES) {
            told.leave_out(key);
            return false;
        }
        told.lines += 1;
        if let Some(key) = key {
            *told.by_key.entry(key.clone()).or_default() += 1;
        }
        true
    }

    /// What was left out in the times that are over; new ones begin.
    pub fn untold(&mut self, now: Instant) -> Vec<Untold<M, K>> {
        let is_over = |_: &M, told: &mut Told<K>| now.duration_since(told.since) >= PERIOD;
        let over = self.told.extract_if(is_over);
        let untold = over.map(|(matter, told)| Untold {
            matter,
            count: told.untold,
            whose: told.whose,
        });
        untold.filter(|untold| untold.count > 0).collect()
    }
}

impl<K: Clone + Eq> Told<K> {
    fn since(now: Instant) -> Self {
        Self {
            since: now,
            lines: 0,
            by_key: FxHashMap::default(),
            untold: 0,
            whose: Whose::Nobody,
        }
    }

    fn leave_out(&mut self, key: Option<&K>) {
        self.untold += 1;
        match (&self.whose, key) {
            (Whose::Nobody, Some(key)) => self.whose = Whose::One(key.clone()),
            (Whose::One(one), Some(key)) if one != key => self.whose = Whose::Many,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many lines are told.
    fn told(ration: &mut Ration<u8, u32>, keys: impl Iterator<Item = u32>, now: Instant) -> u32 {
        let told = keys.filter(|key| ration.may_tell(1, Some(key), now));
        u32::try_from(told.count()).unwrap()
    }

    #[test]
    fn each_gets_a_few_lines_and_all_together_some_more() {
        let (mut ration, now) = (Ration::new(), Instant::now());
        assert_eq!(told(&mut ration, (0..15).map(|_| 7), now), LINES);
        assert_eq!(told(&mut ration, 100..300, now), ALL_LINES - LINES);
        assert!(ration.may_tell(2, Some(&7), now), "another matter");

        assert_eq!(ration.untold(now + PERIOD / 2), []);
        let untold = Untold {
            matter: 1,
            count: 5 + 110,
            whose: Whose::Many,
        };
        assert_eq!(ration.untold(now + PERIOD), [untold]);
        assert!(ration.may_tell(1, Some(&7), now + PERIOD));
    }

    #[test]
    fn whoever_is_alone_with_it_is_named() {
        let (mut ration, now) = (Ration::new(), Instant::now());
        told(&mut ration, (0..12).map(|_| 7), now);
        let untold = ration.untold(now + PERIOD);
        assert_eq!(untold[0].whose, Whose::One(7));
    }
}
