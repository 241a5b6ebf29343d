//! What waits: its bounds, its end, and what a deletion does to it.

use grasp_core::admit::Refusal;
use grasp_core::{Answer, Kind, Limits};
use grasp_sim::forge::{self, commit};

use crate::scene::{CAROL, MAIN, MALLORY, MINUTE, Scene, announce, served, state, tool};
use crate::stage::{ALICE, BOB};

#[test]
fn a_second_copy_is_answered_like_the_first() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    assert_eq!(scene.publish(&announcement), Answer::Held);
    assert_eq!(scene.publish(&announcement), Answer::Held);
    assert_eq!(scene.disk.held.len(), 1);
}

#[test]
fn a_deletion_by_id_reaches_held_events_of_its_author() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&event);
    let id = event.id.to_string();
    scene.publish(&forge::deletion(MALLORY, scene.unix(), "e", &id));
    assert!(scene.holds(&event));
    scene.publish(&forge::deletion(ALICE, scene.unix(), "e", &id));
    assert!(!scene.holds(&event));
    assert_eq!(scene.publish(&event), Answer::Refused(Refusal::Deleted));
    assert!(
        scene
            .push(&tool(ALICE), &[(MAIN, Some(commit(2)))])
            .is_err()
    );
}

#[test]
fn a_deletion_by_address_reaches_held_events_up_to_its_time() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    let before = forge::deletion(ALICE, scene.unix() - 1, "a", &address);
    scene.publish(&before);
    assert!(scene.holds(&announcement));
    let after = forge::deletion(ALICE, scene.unix(), "a", &address);
    scene.publish(&after);
    assert!(!scene.holds(&announcement));
    assert!(scene.git.get(&tool(ALICE)).is_none(), "with its repository");
    assert_eq!(
        scene.publish(&announcement),
        Answer::Refused(Refusal::Deleted)
    );
}

#[test]
fn one_author_cannot_fill_it() {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        held_per_key: 2,
        ..Limits::default()
    }));
    served(&mut scene, ALICE, &[]);
    let mut ask = |author, n: u32| {
        let tip = commit(100 + n).to_string();
        let event = forge::pull_request(author, scene.unix(), &[tool(ALICE)], &tip);
        scene.publish(&event)
    };
    assert_eq!(ask(CAROL, 1), Answer::Held);
    assert_eq!(ask(CAROL, 2), Answer::Held);
    assert_eq!(ask(CAROL, 3), Answer::Refused(Refusal::TooManyHeld));
    assert_eq!(ask(BOB, 4), Answer::Held);
}

#[test]
fn all_authors_together_cannot_overfill_it() {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        held_events: 1,
        ..Limits::default()
    }));
    let one = announce(&scene, ALICE, &[]);
    let other = announce(&scene, BOB, &[]);
    assert_eq!(scene.publish(&one), Answer::Held);
    assert_eq!(
        scene.publish(&other),
        Answer::Refused(Refusal::PurgatoryFull)
    );
    assert!(scene.git.get(&tool(BOB)).is_none());
    scene.pass(26 * 60 * MINUTE);
    assert_eq!(scene.publish(&other), Answer::Held);
}

#[test]
fn a_held_state_goes_after_half_an_hour() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&event);
    scene.pass(29 * MINUTE);
    assert!(scene.holds(&event));
    scene.pass(2 * MINUTE);
    assert!(!scene.holds(&event));
    assert!(
        scene
            .push(&tool(ALICE), &[(MAIN, Some(commit(2)))])
            .is_err()
    );
}
