//! Objects that nobody needs go, and no others.

use std::time::Duration;

use grasp_core::{GitTask, Limits};
use grasp_sim::forge::{self, commit};

use crate::scene::{CAROL, DEV, MAIN, MINUTE, Scene, served, state, tool};
use crate::stage::ALICE;

const HOUR: Duration = MINUTE.saturating_mul(60);

fn scene(prune_every: Duration) -> Scene {
    Scene::with(grasp_sim::policy(Limits {
        prune_every,
        ..Limits::default()
    }))
}

fn has(scene: &Scene, n: u32) -> bool {
    scene.repo(&tool(ALICE)).objects.contains(&commit(n))
}

#[test]
fn what_a_tip_without_its_event_brought_goes_after_it() {
    let mut scene = scene(HOUR);
    served(&mut scene, ALICE, &[]);
    let name = format!("refs/nostr/{}", "a".repeat(64));
    scene
        .push(&tool(ALICE), &[(&name, Some(commit(7)))])
        .unwrap();
    scene.pass(10 * MINUTE);
    assert!(has(&scene, 7), "its event may still come");
    scene.pass(2 * HOUR);
    assert!(!has(&scene, 7) && has(&scene, 1));
}

#[test]
fn what_a_held_event_waits_for_stays_as_long_as_it_waits() {
    let mut scene = scene(10 * MINUTE);
    served(&mut scene, ALICE, &[]);
    let both = state(&scene, ALICE, &[(MAIN, commit(2)), (DEV, commit(3))]);
    scene.publish(&both);
    let tip = commit(4).to_string();
    let request = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &tip);
    scene
        .git
        .take(&tool(ALICE), [commit(2), commit(4), commit(5)]);
    scene.publish(&request);
    scene.pass(25 * MINUTE);
    assert!(has(&scene, 2), "half of a state that waits");
    assert!(has(&scene, 4), "of a pull request that is served");
    assert!(!has(&scene, 5), "of nothing");
    scene.pass(HOUR);
    assert!(!has(&scene, 2) && has(&scene, 4));
}

#[test]
fn a_state_that_comes_while_it_is_prepared_puts_it_off() {
    let mut scene = scene(HOUR);
    served(&mut scene, ALICE, &[]);
    scene.git.take(&tool(ALICE), [commit(2)]);
    scene.holds_prepared = true;
    scene.pass(HOUR);
    let next = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&next);
    scene.let_go();
    assert!(scene.serves(&next) && has(&scene, 2));
    let dropped = |(_, task): &(_, GitTask)| *task == GitTask::DropPrune;
    assert!(scene.tasks.iter().any(dropped));
}
