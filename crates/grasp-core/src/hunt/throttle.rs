//! How often one domain may be asked: so many fetches at once, and so many in any minute.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Mono;
use crate::limits::DomainLimits;

const MINUTE: Duration = Duration::from_secs(60);
/// One request is longer on its way than the next: so much more than a minute lies between the
/// first and the one after the last, so that the server never sees more in a minute of its own.
const WAY: Duration = Duration::from_secs(1);

/// Requests of a fetch: what it speaks, what it has, and its pack.
const USUAL: u32 = 3;

#[derive(Debug)]
pub struct DomainThrottle {
    limits: DomainLimits,
    in_flight: u32,
    /// When the latest fetches began, and what counts as one, as many as a minute allows, the
    /// oldest first.
    begun: VecDeque<Mono>,
}

impl DomainThrottle {
    pub fn new(limits: DomainLimits) -> Self {
        let limits = DomainLimits {
            concurrent: limits.concurrent.max(1),
            per_minute: limits.per_minute.max(1),
        };
        Self {
            limits,
            in_flight: 0,
            begun: VecDeque::new(),
        }
    }

    /// As if most of this minute were used up: no more is left than is asked at once. What was
    /// asked before a start is not known, and a restart must not ask as much again.
    pub fn used(mut self, at: Mono) -> Self {
        let left = self.limits.concurrent.min(self.limits.per_minute);
        for _ in left..self.limits.per_minute {
            self.count(at);
        }
        self
    }

    pub fn limits(&self) -> DomainLimits {
        self.limits
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// From when on the minute allows one more.
    pub fn opens(&self) -> Mono {
        let full = self.begun.len() >= self.limits.per_minute as usize;
        let oldest = self.begun.front().filter(|_| full);
        oldest.map_or(Mono::default(), |begun| *begun + MINUTE + WAY)
    }

    pub fn begin(&mut self, now: Mono) {
        self.count(now);
        self.in_flight += 1;
    }

    /// A fetch that began then took so many requests. More than usual count like further fetches;
    /// without any there was none.
    pub fn end(&mut self, begun: Mono, requests: u32, now: Mono) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if requests == 0
            && let Some(at) = self.begun.iter().rposition(|at| *at == begun)
        {
            self.begun.remove(at);
        }
        for _ in USUAL..requests.min(USUAL.saturating_add(self.limits.per_minute)) {
            self.count(now);
        }
    }

    fn count(&mut self, now: Mono) {
        if self.begun.len() >= self.limits.per_minute as usize {
            self.begun.pop_front();
        }
        self.begun.push_back(now);
    }

    /// Fetches that began within the last minute.
    pub fn lately(&self, now: Mono) -> usize {
        let recent = |begun: &&Mono| now.since(**begun) < MINUTE;
        self.begun.iter().rev().take_while(recent).count()
    }

    /// Nothing here limits the next fetch.
    pub fn is_idle(&self, now: Mono) -> bool {
        let over = |begun: &Mono| *begun + MINUTE + WAY <= now;
        self.in_flight == 0 && self.begun.back().is_none_or(over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    /// G5, the seed's table: thirty requests a second apart, the next when the first is aged out.
    #[test]
    fn thirty_in_any_minute() {
        let mut throttle = DomainThrottle::new(DomainLimits::default());
        for second in 0..30 {
            assert!(throttle.opens() <= at(second), "request {}", second + 1);
            throttle.begin(at(second));
            throttle.end(at(second), USUAL, at(second));
        }
        assert_eq!(throttle.lately(at(31)), 30);
        for (second, open) in [(31, false), (59, false), (60, false), (61, true)] {
            assert_eq!(throttle.opens() <= at(second), open, "at {second}");
        }
        throttle.begin(at(61));
        assert_eq!(throttle.opens(), at(62));
        assert_eq!(throttle.lately(at(61)), 29, "those at 0 and 1 are aged out");
    }

    #[test]
    fn many_requests_count_as_many_fetches_and_none_as_none() {
        let mut throttle = DomainThrottle::new(DomainLimits::default());
        throttle.begin(at(0));
        throttle.end(at(0), 0, at(1));
        assert_eq!(throttle.lately(at(1)), 0);
        throttle.begin(at(2));
        throttle.end(at(2), USUAL + 28, at(4));
        assert_eq!((throttle.lately(at(4)), throttle.opens()), (29, at(0)));
        throttle.begin(at(5));
        assert_eq!(throttle.opens(), at(63));
        throttle.end(at(5), u32::MAX, at(6));
        assert_eq!((throttle.lately(at(6)), throttle.opens()), (30, at(67)));
    }

    #[test]
    fn a_limit_of_zero_is_one() {
        let none = DomainLimits {
            concurrent: 0,
            per_minute: 0,
        };
        let mut throttle = DomainThrottle::new(none);
        assert_eq!(throttle.opens(), at(0));
        throttle.begin(at(5));
        assert_eq!((throttle.in_flight(), throttle.opens()), (1, at(66)));
    }
}
