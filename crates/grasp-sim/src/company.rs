//! How many other relays there are, what they are like, and how much happens there: drawn apart
//! from the rest, so that a seed has the same weather with them and without.

use std::time::Duration;

use fastrand::Rng;
use grasp_core::SyncLimits;
use grasp_core::backoff::Backoff;

use crate::net::Traits;

/// Whether there is a world outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    Alone,
    /// Other git servers only.
    Hosts,
    /// Other relays and git servers.
    Relays,
    /// The same, and clients who would take the server from others.
    Hostile,
}

pub(crate) struct Neighbours {
    pub(crate) relays: Vec<Traits>,
    /// Of these, the first few are named by the operator.
    pub(crate) bootstrap: usize,
    /// Relays in one announcement, at most.
    pub(crate) list: usize,
    /// Mean time between two things said at other relays.
    pub(crate) gossip: Duration,
    /// Mean time between two troubles of the net; none if zero.
    pub(crate) trouble: Duration,
    /// The wall clock jumps now and then.
    pub(crate) jumps: bool,
    pub(crate) limits: SyncLimits,
}

impl Neighbours {
    pub(crate) fn none() -> Self {
        Self {
            relays: Vec::new(),
            bootstrap: 0,
            list: 0,
            gossip: Duration::ZERO,
            trouble: Duration::ZERO,
            jumps: false,
            limits: SyncLimits::default(),
        }
    }

    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let many = match rng.u8(0..20) {
            0 => rng.usize(100..300),
            1..5 => rng.usize(8..30),
            _ => rng.usize(1..8),
        };
        let odd = match rng.u8(0..4) {
            0 => 0,
            _ => rng.u32(0..40),
        };
        let secs = |rng: &mut Rng, from, to| Duration::from_millis(rng.u64(from..to));
        Self {
            relays: (0..many).map(|_| Traits::draw(rng, odd)).collect(),
            bootstrap: rng.usize(0..3).min(many),
            list: match rng.u8(0..4) {
                0 => 25,
                _ => 4,
            },
            gossip: secs(rng, 2_000, 60_000),
            trouble: if rng.bool() {
                secs(rng, 5_000, 120_000)
            } else {
                Duration::ZERO
            },
            jumps: rng.u8(0..4) == 0,
            limits: limits(rng),
        }
    }
}

/// Patience as the world needs it, and bounds that few events meet.
fn limits(rng: &mut Rng) -> SyncLimits {
    let plain = SyncLimits {
        silence: Duration::from_secs(25 * 60),
        refusal: Backoff {
            base: Duration::from_secs(30),
            max: Duration::from_secs(600),
        },
        ..SyncLimits::default()
    };
    if rng.bool() {
        return plain;
    }
    let small = |rng: &mut Rng, small: usize, plain: usize| if rng.bool() { small } else { plain };
    let count = |rng: &mut Rng, small: u32, plain: u32| if rng.bool() { small } else { plain };
    SyncLimits {
        tags_per_filter: small(rng, 3, plain.tags_per_filter),
        consolidate_at: small(rng, 9, plain.consolidate_at),
        page: count(rng, 5, plain.page),
        fetch_ids: small(rng, 3, plain.fetch_ids),
        wants: small(rng, 20, plain.wants),
        remembered: small(rng, 10, plain.remembered),
        subscriptions: count(rng, 4, plain.subscriptions),
        filters: count(rng, 6, plain.filters),
        reconcile_items: count(rng, 5, plain.reconcile_items),
        negentropy: rng.u8(0..4) != 0,
        ..plain
    }
}
