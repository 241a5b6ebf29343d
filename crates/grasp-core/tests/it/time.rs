//! Deadlines: nothing waits without one, and each says what it is for.

use std::time::Duration;

use grasp_core::{Core, Effect, Input, Limits, Timestamp, Wake};

use crate::stage::{NOON, Stage};

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
