//! How bad the weather is: drawn from the seed once, so that some runs are all crashes and some
//! are all duplicates.

use std::time::Duration;

use fastrand::Rng;
use grasp_core::{Limits, Lists, MaintainerRule, Policy, Service};

use crate::forge::US;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Climate {
    /// How long the storm lasts.
    pub(crate) storm: Duration,
    /// Users of a general relay; none where only what belongs to a repository is taken.
    pub(crate) users: usize,
    /// People with repositories.
    pub(crate) people: u8,
    /// Mean time between two deeds of one user or person.
    pub(crate) pace: Duration,
    /// Longest commit.
    pub(crate) slow_disk: Duration,
    /// Of 1,000 commits, how many fail.
    pub(crate) full_disk: u32,
    /// Longest task of git.
    pub(crate) slow_git: Duration,
    /// Of 1,000 tasks of git, how many fail.
    pub(crate) broken_git: u32,
    /// Longest transfer of a push.
    pub(crate) slow_push: Duration,
    /// Mean time between crashes; none if zero.
    pub(crate) crashes: Duration,
    /// Of 100 events, how many are sent again before they are answered.
    pub(crate) impatience: u32,
    /// Of 100 deeds, how many break a rule.
    pub(crate) mischief: u32,
    /// Of 100 events of people, how many the operator brings along in a file.
    pub(crate) imports: u32,
    /// Of 100 crashes, after how many the disk has lost some objects.
    pub(crate) damage: u32,
    pub(crate) prune_every: Duration,
    pub(crate) rule: MaintainerRule,
    pub(crate) held_for: Duration,
    pub(crate) held_per_key: usize,
}

impl Climate {
    pub(crate) fn draw(rng: &mut Rng, damage: &mut Rng) -> Self {
        let millis = |rng: &mut Rng, low, high| Duration::from_millis(rng.u64(low..high));
        let sometimes = |rng: &mut Rng, most| if rng.bool() { rng.u32(0..most) } else { 0 };
        let general = rng.u8(0..4) == 0;
        Self {
            storm: millis(rng, 60_000, 900_000),
            users: if general { rng.usize(1..20) } else { 0 },
            people: rng.u8(1..6),
            pace: millis(rng, 1_000, 20_000),
            slow_disk: millis(rng, 1, 5_000),
            full_disk: sometimes(rng, 300),
            slow_git: millis(rng, 1, 3_000),
            broken_git: sometimes(rng, 200),
            slow_push: millis(rng, 1, 20_000),
            crashes: if rng.bool() {
                millis(rng, 2_000, 120_000)
            } else {
                Duration::ZERO
            },
            impatience: rng.u32(0..50),
            mischief: rng.u32(0..50),
            imports: sometimes(rng, 50),
            damage: sometimes(damage, 40),
            prune_every: millis(damage, 30_000, 7_200_000),
            rule: if rng.bool() {
                MaintainerRule::Reciprocal
            } else {
                MaintainerRule::Listed
            },
            held_for: Duration::from_secs(if rng.bool() { 1_800 } else { 240 }),
            held_per_key: if rng.u8(0..4) == 0 { 6 } else { 500 },
        }
    }

    pub(crate) fn policy(&self) -> Policy {
        let limits = Limits {
            events_per_minute_per_key: 60,
            held_for: self.held_for,
            tip_for: self.held_for * 2 / 3,
            held_per_key: self.held_per_key,
            prune_every: self.prune_every,
            ..Limits::default()
        };
        Policy {
            rule: self.rule,
            takes_unrelated: self.users > 0,
            ..policy(limits)
        }
    }
}

/// The policy of a plain GRASP server under the name of this world.
pub fn policy(limits: Limits) -> Policy {
    let Some(service) = Service::of_url(&format!("wss://{US}")) else {
        unreachable!("our own name is a good one");
    };
    Policy {
        service,
        rule: MaintainerRule::Reciprocal,
        lists: Lists::default(),
        takes_unrelated: false,
        bootstrap: Vec::new(),
        limits,
    }
}
