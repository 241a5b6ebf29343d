//! Deadlines: nothing waits without one, and each says what it is for.

use std::time::Duration;

use grasp_core::git::ObjectId;
use grasp_core::{Core, Effect, Input, Limits, Timestamp, Wake};

use crate::scene::{Scene, announce, state};
use crate::stage::{ALICE, NOON, Stage};

#[test]
fn a_new_core_asks_to_be_woken() {
    let core = Core::new(grasp_sim::policy(Limits::default()), 1);
    assert!(matches!(core.poll_timeout(), Some((_, Wake::SweepExpired))));
}

#[test]
fn expired_events_are_swept_soon_after_the_start_and_then_every_minute() {
    let mut stage = Stage::new();
    let (first, _) = stage.core.poll_timeout().unwrap();
    assert!(first.0 <= Duration::from_secs(10));
    assert_eq!(
        stage.at(10).timeout(),
        [Effect::Sweep {
            until: Timestamp(NOON + 10)
        }]
    );
    assert_eq!(stage.core.poll_timeout(), None, "the sweep is under way");
    assert_eq!(stage.at(20).timeout(), [], "and not started twice");

    stage.at(21).feed(Input::Swept { more: false });
    let (next, _) = stage.core.poll_timeout().unwrap();
    let pause = next.0 - Duration::from_secs(21);
    assert!((60..70).contains(&pause.as_secs()), "{pause:?}");
}

#[test]
fn a_sweep_that_stopped_at_its_bound_goes_on_shortly() {
    let mut stage = Stage::new();
    stage.at(10).timeout();
    stage.feed(Input::Swept { more: true });
    let (next, _) = stage.core.poll_timeout().unwrap();
    assert_eq!(next.0, Duration::from_millis(10_100));
}

#[test]
fn a_timeout_before_its_time_does_nothing() {
    let mut stage = Stage::new();
    stage.at(10).timeout();
    stage.feed(Input::Swept { more: false });
    assert_eq!(stage.at(11).timeout(), []);
}

const MINUTE: Duration = Duration::from_secs(60);
const DAY: i64 = 24 * 60 * 60;

/// B4: a time server that is wrong for a while, or a person who sets the clock.
#[test]
fn a_clock_that_jumps_and_comes_back_gives_nothing_up() {
    for jump in [DAY, -DAY] {
        let mut scene = Scene::new();
        let announcement = announce(&scene, ALICE, &[]);
        let first = state(&scene, ALICE, &[("refs/heads/main", ObjectId([1; 20]))]);
        scene.publish(&announcement);
        scene.publish(&first);
        let held_for = scene.policy.limits.held_for;
        let is_held = |scene: &Scene| scene.holds(&announcement) && scene.holds(&first);
        scene.pass(MINUTE);
        scene.clock_off = jump;
        scene.pass(MINUTE * 5);
        assert!(is_held(&scene), "while it is off by {jump}");
        scene.clock_off = 0;
        scene.pass(held_for - MINUTE * 8);
        assert!(is_held(&scene), "after it was off by {jump}");
        // And nothing has gained by it.
        scene.pass(MINUTE * 3);
        assert!(!scene.holds(&first), "after it was off by {jump}");
    }
}

/// A machine that slept: its steady clock stood still.
#[test]
fn a_new_time_that_stands_is_believed_and_what_is_held_keeps_its_span() {
    for jump in [DAY, -DAY] {
        let mut scene = Scene::new();
        scene.pass(MINUTE);
        scene.clock_off = jump;
        scene.pass(MINUTE * 24 * 60 - MINUTE * 5);
        let late = announce(&scene, ALICE, &[]);
        let first = state(&scene, ALICE, &[("refs/heads/main", ObjectId([1; 20]))]);
        scene.publish(&late);
        scene.publish(&first);
        assert_ne!(scene.core.believed(), Timestamp(scene.unix()));
        scene.pass(MINUTE * 10);
        assert_eq!(scene.core.believed(), Timestamp(scene.unix()));
        assert!(scene.holds(&first), "believed after it was off by {jump}");
        scene.pass(scene.policy.limits.held_for - MINUTE * 11);
        assert!(scene.holds(&first));
        scene.pass(MINUTE * 2);
        assert!(!scene.holds(&first));
    }
}

/// B4: what says when it ends (NIP-40) is hidden by the wall clock, and removed when that is sure.
#[test]
fn a_clock_that_jumps_has_nothing_swept_that_has_not_ended() {
    let swept_until = |effects: Vec<Effect>| {
        effects.into_iter().find_map(|effect| match effect {
            Effect::Sweep { until } => Some(until.0),
            _ => None,
        })
    };
    let mut stage = Stage::new();
    assert_eq!(swept_until(stage.at(10).timeout()), Some(NOON + 10));
    let mut second = 10;
    for (off, believed) in [(DAY, 0), (-DAY, -DAY), (0, 0)] {
        stage.feed(Input::Swept { more: false });
        second += 100;
        stage.clock_off = off;
        let until = swept_until(stage.at(second).timeout());
        assert_eq!(until, Some((NOON + second).saturating_add_signed(believed)));
    }
}
