//! Kills, broken git and full disks: nothing acknowledged is lost, and what failed is tried again.

use std::time::Duration;

use grasp_core::admit::Refusal;
use grasp_core::push::PushRefusal;
use grasp_core::{Answer, Change, GitTask, Kind};
use grasp_sim::forge::{self, commit};

use crate::scene::{CAROL, DEV, MAIN, MINUTE, Scene, announce, refs, served, state, tool};
use crate::stage::{ALICE, BOB};

const RETRY: Duration = Duration::from_secs(31);

#[test]
fn what_is_held_survives_a_kill_and_is_released_after_it() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[BOB]);
    let invited = forge::announcement(&tool(BOB), scene.unix(), false, &[ALICE]);
    let of_bob = state(&scene, BOB, &[(MAIN, commit(1))]);
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    let issue = forge::about(CAROL, 1621, scene.unix(), "a", &address);
    let held = [&announcement, &invited, &of_bob, &issue];
    for event in held {
        assert_eq!(scene.publish(event), Answer::Held);
    }
    scene.restart();
    scene
        .push(&tool(ALICE), &[(MAIN, Some(commit(1)))])
        .unwrap();
    for event in held {
        assert!(scene.serves(event), "{event:?}");
    }
}

#[test]
fn expiry_goes_on_after_a_kill() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    scene.pass(20 * MINUTE);
    scene.restart();
    assert!(scene.git.get(&tool(ALICE)).is_some());
    scene.pass(11 * MINUTE);
    assert!(scene.git.get(&tool(ALICE)).is_none());
    scene.restart();
    let late = state(&scene, ALICE, &[(MAIN, commit(1))]);
    assert_eq!(scene.publish(&late), Answer::Held, "still remembered");
    scene.restart();
    scene
        .push(&tool(ALICE), &[(MAIN, Some(commit(1)))])
        .unwrap();
    assert!(scene.serves(&announcement));
}

#[test]
fn a_tip_without_its_event_is_found_again_after_a_kill() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let name = format!("refs/nostr/{}", "a".repeat(64));
    scene
        .push(&tool(ALICE), &[(&name, Some(commit(7)))])
        .unwrap();
    scene.restart();
    scene.pass(21 * MINUTE);
    assert!(scene.repo(&tool(ALICE)).tips.is_empty());
}

#[test]
fn after_a_kill_no_rank_is_forgotten() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[BOB]);
    let answer = forge::announcement(&tool(BOB), scene.unix(), false, &[ALICE]);
    scene.publish(&answer);
    let older = state(&scene, BOB, &[(MAIN, commit(2))]);
    scene.pass(MINUTE);
    let newer = state(&scene, ALICE, &[(MAIN, commit(3))]);
    scene.publish(&newer);
    scene
        .push(&tool(ALICE), &[(MAIN, Some(commit(3)))])
        .unwrap();
    scene.restart();
    scene.publish(&older);
    assert!(
        scene
            .push(&tool(ALICE), &[(MAIN, Some(commit(2)))])
            .is_err()
    );
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(3))]));
}

/// The refs are there, the commit is not: the next start finishes what was begun.
#[test]
fn a_kill_between_refs_and_store_is_made_good_at_the_start() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&event);
    let commands = [(MAIN, Some(commit(2)))];
    let push = scene.begin_push(&tool(ALICE), &commands).unwrap();
    scene.git.take(&tool(ALICE), [commit(2)]);
    let targets = grasp_core::nip34::State::read(&event)
        .unwrap()
        .refs
        .unwrap();
    let moved = scene.git.perform(&tool(ALICE), &GitTask::Apply(targets));
    assert!(moved.is_ok(), "{push:?}");
    assert!(!scene.serves(&event));
    scene.restart();
    assert!(scene.serves(&event));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(2))]));
}

#[test]
fn refs_that_follow_no_state_are_set_right_at_the_start() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let stray = state(&scene, ALICE, &[(DEV, commit(1))]);
    let targets = grasp_core::nip34::State::read(&stray)
        .unwrap()
        .refs
        .unwrap();
    let moved = scene.git.perform(&tool(ALICE), &GitTask::Apply(targets));
    assert!(moved.is_ok());
    scene.restart();
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(1))]));
}

#[test]
fn a_broken_git_is_asked_again_within_half_a_minute() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&event);
    let commands = [(MAIN, Some(commit(2)))];
    let push = scene.begin_push(&tool(ALICE), &commands).unwrap();
    scene.git_fails = true;
    let result = scene.end_push(push, &tool(ALICE), &commands);
    assert_eq!(result, Err(PushRefusal::Failed));
    assert!(scene.holds(&event));
    scene.git_fails = false;
    scene.pass(RETRY);
    assert!(scene.serves(&event));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(2))]));
}

#[test]
fn a_full_disk_is_asked_again_within_half_a_minute() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    let event = state(&scene, ALICE, &[(MAIN, commit(1))]);
    scene.publish(&event);
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    let issue = forge::about(CAROL, 1621, scene.unix(), "a", &address);
    scene.publish(&issue);
    scene.disk_fails = true;
    let push = scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]);
    assert_eq!(
        push,
        Err(PushRefusal::Failed),
        "refs moved, and nobody can read why"
    );
    assert!(!scene.serves(&event));
    scene.disk_fails = false;
    scene.pass(RETRY);
    assert!(scene.serves(&announcement) && scene.serves(&event));
    scene.pass(RETRY);
    assert!(scene.serves(&issue));
}

#[test]
fn what_a_full_disk_did_not_take_is_not_acknowledged() {
    let mut scene = Scene::new();
    scene.disk_fails = true;
    let announcement = announce(&scene, ALICE, &[]);
    assert_eq!(
        scene.publish(&announcement),
        Answer::Refused(Refusal::StoreFailed)
    );
    scene.disk_fails = false;
    assert_eq!(scene.core.registry().standing(&tool(ALICE)), None);
    assert_eq!(scene.publish(&announcement), Answer::Held);
}

#[test]
fn a_repository_that_git_would_not_remove_is_removed_later() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    scene.git_fails = true;
    scene.pass(31 * MINUTE);
    assert!(scene.git.get(&tool(ALICE)).is_some());
    scene.git_fails = false;
    scene.pass(RETRY);
    assert!(scene.git.get(&tool(ALICE)).is_none());
}

/// The order of a release: objects, refs, then the store, in one commit.
#[test]
fn a_release_moves_refs_first_and_stores_everything_in_one_commit() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    let event = state(&scene, ALICE, &[(MAIN, commit(1))]);
    scene.publish(&event);
    let commands = [(MAIN, Some(commit(1)))];
    let push = scene.begin_push(&tool(ALICE), &commands).unwrap();
    scene.git.take(&tool(ALICE), [commit(1)]);
    scene.tasks.clear();
    scene.commits.clear();
    assert_eq!(scene.finish_push(push, Ok(())), Ok(()));
    let changes = scene.commits.clone();
    assert!(matches!(
        scene.tasks.as_slice(),
        [(_, GitTask::Probe(_)), (_, GitTask::Apply(_))]
    ));
    let [changes] = changes.as_slice() else {
        panic!("one commit: {changes:?}");
    };
    let stored = changes.iter().filter_map(|change| match change {
        Change::Store(event) => Some(event.id),
        _ => None,
    });
    assert_eq!(stored.collect::<Vec<_>>(), [announcement.id, event.id]);
    assert!(
        changes
            .iter()
            .any(|change| matches!(change, Change::Applied { .. }))
    );
}
