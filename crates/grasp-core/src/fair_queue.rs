//! Who is next when many networks wait for one thing: each in turn, however many of its requests
//! wait. Pure: whoever uses it keeps it under a lock of its own.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::network::Network;
use crate::shares::{NetworkShares, ShareLimits};

/// In one round a network has one turn, and the wider ones around it as many as they have shares.
const TURNS: ShareLimits = ShareLimits {
    in_all: u64::MAX,
    per_network: 1,
};

/// Requests that wait, in the order of their networks. Those without a network (this machine, a
/// trusted proxy's own requests) are together one network more.
#[derive(Debug)]
pub struct FairQueue<T> {
    capacity: usize,
    len: usize,
    /// Never an empty list. Each network is in one of the three lists below, once.
    waiting: FxHashMap<Option<Network>, VecDeque<T>>,
    /// Those whose turn comes in this round.
    round: VecDeque<Option<Network>>,
    /// Those that gave way in this round, because networks around them had their turns.
    passed_over: VecDeque<Option<Network>>,
    /// Those that had their turn in this round, or came after it had begun.
    after: VecDeque<Option<Network>>,
    turns: NetworkShares,
}

impl<T> FairQueue<T> {
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            len: 0,
            waiting: FxHashMap::default(),
            round: VecDeque::new(),
            passed_over: VecDeque::new(),
            after: VecDeque::new(),
            turns: NetworkShares::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Behind the other requests of the same network. A full queue gives it back.
    pub fn push(&mut self, network: Option<Network>, request: T) -> Result<(), T> {
        if self.len >= self.capacity {
            return Err(request);
        }
        let queue = self.waiting.entry(network).or_insert_with(|| {
            self.after.push_back(network);
            VecDeque::new()
        });
        queue.push_back(request);
        self.len += 1;
        Ok(())
    }

    /// The next request that somebody still wants; those before it that nobody wants any more are
    /// dropped, and take no turn.
    pub fn pop(&mut self, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        loop {
            let Some(network) = self.round.pop_front() else {
                if !self.begin_round() {
                    return None;
                }
                continue;
            };
            if !self.has_wanted(network, &is_wanted) {
                self.waiting.remove(&network);
            } else if self.turns.take(network, 1, TURNS).is_err() {
                self.passed_over.push_back(network);
            } else {
                return self.pop_from(network);
            }
        }
    }

    /// Drops every request that nobody wants any more.
    pub fn retain(&mut self, is_wanted: impl Fn(&T) -> bool) {
        self.waiting.retain(|_, queue| {
            queue.retain(&is_wanted);
            !queue.is_empty()
        });
        self.len = self.waiting.values().map(VecDeque::len).sum();
        let waiting = &self.waiting;
        for list in [&mut self.round, &mut self.passed_over, &mut self.after] {
            list.retain(|network| waiting.contains_key(network));
        }
    }

    /// Everybody who waits takes part; those who gave way come first.
    fn begin_round(&mut self) -> bool {
        self.turns = NetworkShares::default();
        self.round.append(&mut self.passed_over);
        self.round.append(&mut self.after);
        !self.round.is_empty()
    }

    fn has_wanted(&mut self, network: Option<Network>, is_wanted: impl Fn(&T) -> bool) -> bool {
        let Some(queue) = self.waiting.get_mut(&network) else {
            return false;
        };
        while let Some(first) = queue.front() {
            if is_wanted(first) {
                return true;
            }
            queue.pop_front();
            self.len -= 1;
        }
        false
    }

    fn pop_from(&mut self, network: Option<Network>) -> Option<T> {
        let queue = self.waiting.get_mut(&network)?;
        let request = queue.pop_front()?;
        self.len -= 1;
        if queue.is_empty() {
            self.waiting.remove(&network);
        } else {
            self.after.push_back(network);
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(ip: &str) -> Option<Network> {
        Some(Network::of(ip.parse().unwrap()))
    }

    fn queue<'a>(requests: &[(&str, &'a str)]) -> FairQueue<&'a str> {
        let mut queue = FairQueue::new(10_000);
        for (ip, request) in requests {
            queue.push(network(ip), *request).unwrap();
        }
        queue
    }

    fn drain<T>(queue: &mut FairQueue<T>) -> Vec<T> {
        std::iter::from_fn(|| queue.pop(|_| true)).collect()
    }

    #[test]
    fn networks_take_turns_and_each_is_served_in_order() {
        let (a, b, c) = ("192.0.2.1", "192.0.2.2", "192.0.2.3");
        let mut queue = queue(&[
            (a, "a1"),
            (a, "a2"),
            (a, "a3"),
            (b, "b1"),
            (c, "c1"),
            (b, "b2"),
        ]);
        assert_eq!(drain(&mut queue), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn whoever_comes_late_is_next_but_one_behind_a_crowd_of_one_network() {
        let mut queue = FairQueue::new(10_000);
        for n in 0..200 {
            queue.push(network("192.0.2.1"), n).unwrap();
        }
        for served in 0..50 {
            assert_eq!(queue.pop(|_| true), Some(served));
        }
        queue.push(network("192.0.2.2"), 1_000).unwrap();
        queue.push(None, 1_001).unwrap();
        let next: Vec<i32> = (0..4).filter_map(|_| queue.pop(|_| true)).collect();
        assert_eq!(next, [50, 1_000, 1_001, 51]);
    }

    #[test]
    fn a_customer_with_many_prefixes_has_four_turns_in_a_round() {
        let mut queue = FairQueue::new(10_000);
        for prefix in 0..100_u16 {
            for _ in 0..3 {
                let address = format!("2001:db8:0:{:x}::1", prefix << 8);
                queue.push(network(&address), Some(prefix)).unwrap();
            }
        }
        queue.push(network("192.0.2.1"), None).unwrap();
        let served = drain(&mut queue);
        assert_eq!(served.len(), 301);
        assert_eq!(served.iter().position(Option::is_none), Some(4));
        // Of its prefixes none waits for another to be done.
        let mut first_hundred: Vec<u16> = served.into_iter().flatten().take(100).collect();
        first_hundred.sort_unstable();
        first_hundred.dedup();
        assert_eq!(first_hundred.len(), 100);
    }

    #[test]
    fn whoever_asks_again_and_again_waits_for_everybody_who_waits() {
        let mut queue = queue(&[("192.0.2.1", "a"), ("192.0.2.2", "b"), ("192.0.2.3", "c")]);
        queue.push(None, "here").unwrap();
        let mut served = Vec::new();
        for _ in 0..8 {
            let next = queue.pop(|_| true).unwrap();
            served.push(next);
            queue.push(network("192.0.2.9"), "again").unwrap();
        }
        assert_eq!(served[..4], ["a", "b", "c", "here"]);
        assert_eq!(served[4..], ["again"; 4]);
    }

    #[test]
    fn what_nobody_wants_any_more_takes_no_turn() {
        let mut queue = FairQueue::new(10_000);
        for n in 0..100 {
            queue.push(network("192.0.2.1"), n).unwrap();
        }
        queue.push(network("192.0.2.2"), 100).unwrap();
        assert_eq!(queue.pop(|n| *n >= 50), Some(50));
        assert_eq!(queue.len(), 50);
        assert_eq!(queue.pop(|n| *n >= 50), Some(100));
        assert_eq!(queue.pop(|_| false), None);
        assert!(queue.is_empty());
        queue.push(network("192.0.2.1"), 1).unwrap();
        assert_eq!(queue.pop(|_| true), Some(1), "it is known again");
    }

    #[test]
    fn a_full_queue_gives_back_what_comes() {
        let mut queue = FairQueue::new(3);
        for n in 0..3 {
            queue.push(network("192.0.2.1"), n).unwrap();
        }
        assert_eq!(queue.push(None, 3), Err(3));
        queue.retain(|n| *n == 1);
        assert_eq!(queue.len(), 1);
        queue.push(None, 3).unwrap();
        assert_eq!(drain(&mut queue), [1, 3]);
    }
}
