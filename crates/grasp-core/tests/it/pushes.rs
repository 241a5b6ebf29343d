//! A push brings objects; a signed state moves refs.

use grasp_core::push::PushRefusal;
use grasp_core::{Answer, Pubkey, PushId};
use grasp_sim::forge::commit;

use crate::scene::{CAROL, DEV, MAIN, MINUTE, Scene, announce, refs, served, state, tool};
use crate::stage::{ALICE, BOB};

#[test]
fn a_push_that_nobody_has_signed_for_is_refused() {
    let mut scene = Scene::new();
    let nowhere = scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]);
    assert_eq!(nowhere, Err(PushRefusal::NotHosted));
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    let unsigned = scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]);
    assert_eq!(unsigned, Err(PushRefusal::NoState));
    assert_eq!(scene.push(&tool(ALICE), &[]), Err(PushRefusal::Empty));
}

#[test]
fn a_push_that_differs_from_the_state_hears_what_was_expected() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&event);
    let push = scene.push(&tool(ALICE), &[(MAIN, Some(commit(3)))]);
    let Err(PushRefusal::Differs {
        state,
        author,
        differences,
    }) = push
    else {
        panic!("{push:?}");
    };
    assert_eq!((state, author), (event.id, ALICE));
    assert_eq!(differences, [format!("{MAIN} at {}", commit(2))]);
    assert!(!scene.repo(&tool(ALICE)).objects.contains(&commit(3)));
}

#[test]
fn a_partial_push_is_refused_with_what_is_missing_and_its_objects_are_kept() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2)), (DEV, commit(3))]);
    scene.publish(&event);
    let push = scene.push(&tool(ALICE), &[(MAIN, Some(commit(2)))]);
    let Err(PushRefusal::Partial { missing, .. }) = push else {
        panic!("{push:?}");
    };
    assert_eq!(missing, [DEV]);
    assert!(scene.repo(&tool(ALICE)).objects.contains(&commit(2)));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(1))]));

    let rest = [(MAIN, Some(commit(2))), (DEV, Some(commit(3)))];
    assert_eq!(scene.push(&tool(ALICE), &rest), Ok(()));
    assert!(scene.serves(&event));
}

#[test]
fn commands_that_change_nothing_are_welcome() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let zero_to_zero = scene.push(&tool(ALICE), &[("refs/heads/gone", None)]);
    assert_eq!(zero_to_zero, Ok(()));
    let old_is_new = scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]);
    assert_eq!(old_is_new, Ok(()));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(1))]));
}

#[test]
fn one_name_twice_is_refused() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let push = scene.push(&tool(ALICE), &[(MAIN, Some(commit(2))), (MAIN, None)]);
    assert!(matches!(push, Err(PushRefusal::Twice(_))));
}

#[test]
fn a_newer_state_in_the_middle_of_a_push_wins_when_its_objects_are_here() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let older = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&older);
    let commands = [(MAIN, Some(commit(2)))];
    let push = scene.begin_push(&tool(ALICE), &commands).unwrap();
    scene.pass(MINUTE);
    let newer = state(&scene, ALICE, &[(DEV, commit(1))]);
    assert_eq!(scene.publish(&newer), Answer::Accepted);
    let result = scene.end_push(push, &tool(ALICE), &commands);
    assert_eq!(result, Err(PushRefusal::Superseded(newer.id)));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(DEV, commit(1))]));
}

#[test]
fn of_two_pushes_at_once_the_one_of_the_newer_state_has_the_last_word() {
    for newer_first in [true, false] {
        let mut scene = Scene::new();
        served(&mut scene, ALICE, &[]);
        let older = state(&scene, ALICE, &[(MAIN, commit(2))]);
        scene.publish(&older);
        scene.pass(MINUTE);
        let newer = state(&scene, ALICE, &[(MAIN, commit(3))]);
        scene.publish(&newer);
        let (two, three) = ([(MAIN, Some(commit(2)))], [(MAIN, Some(commit(3)))]);
        let one = scene.begin_push(&tool(ALICE), &two).unwrap();
        let other = scene.begin_push(&tool(ALICE), &three).unwrap();
        if newer_first {
            assert_eq!(scene.end_push(other, &tool(ALICE), &three), Ok(()));
            let late = scene.end_push(one, &tool(ALICE), &two);
            assert_eq!(late, Err(PushRefusal::Superseded(newer.id)));
        } else {
            assert_eq!(scene.end_push(one, &tool(ALICE), &two), Ok(()));
            assert_eq!(scene.end_push(other, &tool(ALICE), &three), Ok(()));
        }
        assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(3))]));
    }
}

/// Everybody's own "tool", announced and signed, with a push whose objects are there.
fn arrived(scene: &mut Scene, owners: &[Pubkey]) -> Vec<PushId> {
    let commands = [(MAIN, Some(commit(1)))];
    let mut pushes = Vec::new();
    for owner in owners {
        let announcement = announce(scene, *owner, &[]);
        assert_eq!(scene.publish(&announcement), Answer::Held);
        let event = state(scene, *owner, &[(MAIN, commit(1))]);
        assert_eq!(scene.publish(&event), Answer::Held);
        pushes.extend(scene.begin_push(&tool(*owner), &commands));
        scene.git.take(&tool(*owner), [commit(1)]);
    }
    assert_eq!(pushes.len(), owners.len());
    pushes
}

#[test]
fn pushes_at_once_to_repositories_of_one_name_each_hear_of_their_own() {
    let mut scene = Scene::new();
    let pushes = arrived(&mut scene, &[ALICE, BOB, CAROL]);
    let results = scene.finish_together(&pushes);
    assert_eq!(results, [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn nobody_is_forgotten_among_many_that_push_to_one_name() {
    let mut scene = Scene::new();
    let owners: Vec<Pubkey> = (100..200).map(|n| Pubkey([n; 32])).collect();
    let pushes = arrived(&mut scene, &owners);
    let results = scene.finish_together(&pushes);
    assert_eq!(results, vec![Ok(()); owners.len()]);
}

#[test]
fn a_client_that_vanishes_changes_nothing() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&event);
    let push = scene
        .begin_push(&tool(ALICE), &[(MAIN, Some(commit(2)))])
        .unwrap();
    let gone = scene.finish_push(push, Err("the client is gone".to_owned()));
    assert!(matches!(gone, Err(PushRefusal::Objects(_))));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(1))]));
    assert_eq!(scene.push(&tool(ALICE), &[(MAIN, Some(commit(2)))]), Ok(()));
}

#[test]
fn a_state_does_not_expire_under_the_push_that_brings_it() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&event);
    scene.pass(29 * MINUTE);
    let commands = [(MAIN, Some(commit(2)))];
    let push = scene.begin_push(&tool(ALICE), &commands).unwrap();
    scene.pass(10 * MINUTE);
    assert_eq!(scene.end_push(push, &tool(ALICE), &commands), Ok(()));
    assert!(scene.serves(&event));
}

#[test]
fn a_push_to_a_maintainers_repository_follows_the_same_state() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[BOB]);
    served(&mut scene, BOB, &[ALICE]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&event);
    assert_eq!(scene.push(&tool(BOB), &[(MAIN, Some(commit(2)))]), Ok(()));
    let again = scene.push(&tool(ALICE), &[(MAIN, Some(commit(2)))]);
    assert_eq!(again, Ok(()), "there already: nothing to do, and no error");
}

#[test]
fn refs_that_a_disk_lost_can_be_pushed_again() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    scene.git.lose(&tool(ALICE));
    let push = scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]);
    assert_eq!(push, Ok(()));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(1))]));
}

#[test]
fn a_push_waits_for_no_stranger_who_uses_the_same_name() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[BOB]);
    served(&mut scene, BOB, &[ALICE]);
    served(&mut scene, CAROL, &[ALICE]);
    scene.busy = Some(tool(CAROL));
    let of_carol = state(&scene, CAROL, &[(MAIN, commit(3))]);
    let waits = scene.post(&of_carol);
    assert_eq!(scene.answer_to(waits), None, "git is busy with hers");

    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    assert_eq!(scene.publish(&event), Answer::Held);
    assert_eq!(scene.push(&tool(ALICE), &[(MAIN, Some(commit(2)))]), Ok(()));
    for owner in [ALICE, BOB] {
        assert_eq!(scene.refs(&tool(owner)), refs(&[(MAIN, commit(2))]));
    }
    scene.let_go();
    assert_eq!(scene.answer_to(waits), Some(Answer::Held));
    assert_eq!(scene.push(&tool(CAROL), &[(MAIN, Some(commit(3)))]), Ok(()));
}

#[test]
fn a_push_to_a_busy_group_has_its_turn_after_it() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[BOB]);
    served(&mut scene, BOB, &[ALICE]);
    scene.busy = Some(tool(BOB));
    let first = state(&scene, BOB, &[(MAIN, commit(2))]);
    let first = scene.post(&first);
    scene.pass(MINUTE);
    let second = state(&scene, ALICE, &[(MAIN, commit(3))]);
    let second = scene.post(&second);
    assert_eq!(
        (scene.answer_to(first), scene.answer_to(second)),
        (Some(Answer::Held), None),
        "the first has not waited for git, the second may still be in time"
    );
    scene.let_go();
    assert_eq!(scene.answer_to(second), Some(Answer::Held));
    assert_eq!(scene.push(&tool(ALICE), &[(MAIN, Some(commit(3)))]), Ok(()));
    assert_eq!(scene.refs(&tool(BOB)), refs(&[(MAIN, commit(3))]));
}
