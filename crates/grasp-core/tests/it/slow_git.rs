//! Whoever hands in an event hears of it in time, however long git takes.

use std::time::Duration;

use grasp_core::admit::Refusal;
use grasp_core::{Answer, GitTask};
use grasp_sim::forge::{self, commit};

use crate::scene::{CAROL, DEV, MAIN, Scene, announce, refs, served, state, tool};
use crate::stage::ALICE;

/// A little more than submitters wait for git.
const PATIENCE: Duration = Duration::from_millis(2_001);

#[test]
fn an_announcement_is_answered_before_git_has_made_its_repository() {
    let mut scene = Scene::new();
    scene.busy = Some(tool(ALICE));
    let event = announce(&scene, ALICE, &[]);
    let ticket = scene.post(&event);
    scene.pass(PATIENCE / 2);
    assert_eq!(scene.answer_to(ticket), None, "git may still be in time");
    scene.pass(PATIENCE);
    assert_eq!(scene.answer_to(ticket), Some(Answer::Held));
    assert!(scene.holds(&event), "what was answered is durable");

    scene.let_go();
    let first = state(&scene, ALICE, &[(MAIN, commit(1))]);
    assert_eq!(scene.publish(&first), Answer::Held);
    let push = scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]);
    assert_eq!(push, Ok(()));
    assert!(scene.serves(&event) && scene.serves(&first));
    assert!(scene.disk.held.is_empty());
}

#[test]
fn a_state_is_answered_before_git_has_looked_and_released_when_it_has() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    scene.busy = Some(tool(ALICE));
    let event = state(&scene, ALICE, &[(MAIN, commit(1)), (DEV, commit(1))]);
    let ticket = scene.post(&event);
    scene.pass(PATIENCE);
    assert_eq!(scene.answer_to(ticket), Some(Answer::Held));
    assert!(scene.holds(&event) && !scene.serves(&event));

    scene.let_go();
    assert!(scene.serves(&event));
    assert!(scene.disk.held.is_empty(), "nothing is left of the hold");
    let both = refs(&[(MAIN, commit(1)), (DEV, commit(1))]);
    assert_eq!(scene.refs(&tool(ALICE)), both);
}

#[test]
fn a_pull_request_is_answered_before_git_has_looked_and_released_when_it_has() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    scene.busy = Some(tool(ALICE));
    let tip = commit(1).to_string();
    let event = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &tip);
    let ticket = scene.post(&event);
    let copy = scene.post(&event);
    scene.pass(PATIENCE);
    assert_eq!(scene.answer_to(ticket), Some(Answer::Held));
    assert_eq!(scene.answer_to(copy), Some(Answer::Held));

    scene.let_go();
    assert!(scene.serves(&event));
    assert!(scene.disk.held.is_empty());
}

#[test]
fn what_git_never_finished_is_worked_on_again_after_a_kill() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    scene.busy = Some(tool(ALICE));
    let event = state(&scene, ALICE, &[(DEV, commit(1))]);
    let ticket = scene.post(&event);
    scene.pass(PATIENCE);
    assert_eq!(scene.answer_to(ticket), Some(Answer::Held));
    scene.busy = None;
    scene.restart();
    assert!(scene.serves(&event));
}

#[test]
fn a_repository_that_could_not_be_made_in_the_end_is_tried_again() {
    let mut scene = Scene::new();
    scene.busy = Some(tool(ALICE));
    scene.git_fails = true;
    let event = announce(&scene, ALICE, &[]);
    let ticket = scene.post(&event);
    scene.pass(PATIENCE);
    assert_eq!(scene.answer_to(ticket), Some(Answer::Held));
    scene.let_go();
    assert!(scene.holds(&event), "it was promised");
    scene.git_fails = false;
    scene.pass(Duration::from_secs(31));
    assert!(scene.git.get(&tool(ALICE)).is_some());
    let made = scene
        .tasks
        .iter()
        .filter(|(_, task)| *task == GitTask::Create);
    assert!(made.count() > 1);
}

#[test]
fn without_a_disk_the_submitter_hears_that_and_a_later_copy_is_answered() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    scene.busy = Some(tool(ALICE));
    scene.disk_fails = true;
    let event = state(&scene, ALICE, &[(DEV, commit(1))]);
    let ticket = scene.post(&event);
    scene.pass(PATIENCE);
    let failed = Answer::Refused(Refusal::StoreFailed);
    assert_eq!(scene.answer_to(ticket), Some(failed));
    scene.disk_fails = false;
    let copy = scene.post(&event);
    scene.pass(PATIENCE);
    assert_eq!(scene.answer_to(copy), Some(Answer::Held));
    scene.let_go();
    assert!(scene.serves(&event));
}

#[test]
fn many_pull_requests_are_one_task_before_the_repositorys_own() {
    for fails in [false, true] {
        let mut scene = Scene::new();
        served(&mut scene, ALICE, &[]);
        scene.busy = Some(tool(ALICE));
        let tip = commit(1).to_string();
        let made = |n| forge::pull_request(CAROL, scene.unix() - n, &[tool(ALICE)], &tip);
        let made: Vec<_> = (0..50).map(made).collect();
        for event in &made {
            scene.post(event);
        }
        scene.tasks.clear();
        // Their commit is there.
        scene.hear_git();
        let next = state(&scene, ALICE, &[(MAIN, commit(1)), (DEV, commit(1))]);
        scene.post(&next);
        let tips = |scene: &Scene| -> Vec<usize> {
            let tasks = scene.tasks.iter().filter_map(|(_, task)| match task {
                GitTask::SetTips(tips) => Some(tips.len()),
                _ => None,
            });
            tasks.collect()
        };
        assert_eq!(tips(&scene), [1], "however many they are");
        scene.git_fails = fails;
        scene.hear_git();
        assert_eq!(tips(&scene), [1, 49]);
        scene.git_fails = false;
        scene.hear_git();
        scene.let_go();
        scene.pass(Duration::from_secs(60));
        let served = made.iter().filter(|event| scene.serves(event)).count();
        assert_eq!(served, 50, "none is lost by another's failure");
        assert!(scene.serves(&next));
        assert_eq!(scene.repo(&tool(ALICE)).tips.len(), 50);
    }
}
