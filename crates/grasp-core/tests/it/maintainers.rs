//! Who may sign: reciprocal and listed, invited, removed.

use grasp_core::admit::Refusal;
use grasp_core::{Answer, Limits, MaintainerRule, Policy};
use grasp_sim::forge::{self, commit};

use crate::scene::{CAROL, MAIN, MINUTE, Scene, announce, refs, served, state, tool};
use crate::stage::{ALICE, BOB};

fn listed_rule() -> Scene {
    Scene::with(Policy {
        rule: MaintainerRule::Listed,
        ..grasp_sim::policy(Limits::default())
    })
}

#[test]
fn a_listed_key_signs_once_its_own_announcement_answers() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[BOB]);
    let early = state(&scene, BOB, &[(MAIN, commit(2))]);
    assert_eq!(
        scene.publish(&early),
        Answer::Refused(Refusal::NotMaintainer)
    );
    let answer = forge::announcement(&tool(BOB), scene.unix(), false, &[ALICE]);
    assert_eq!(
        scene.publish(&answer),
        Answer::Accepted,
        "invited by a served repository, so it need not list us"
    );
    assert!(scene.git.get(&tool(BOB)).is_none(), "and makes none here");
    assert_eq!(scene.publish(&early), Answer::Held);
    assert_eq!(scene.push(&tool(ALICE), &[(MAIN, Some(commit(2)))]), Ok(()));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(2))]));
}

#[test]
fn under_the_listed_rule_a_listed_key_signs_at_once() {
    let mut scene = listed_rule();
    served(&mut scene, ALICE, &[BOB]);
    let event = state(&scene, BOB, &[(MAIN, commit(2))]);
    assert_eq!(scene.publish(&event), Answer::Held);
    assert_eq!(scene.push(&tool(ALICE), &[(MAIN, Some(commit(2)))]), Ok(()));
}

#[test]
fn an_announcement_that_a_held_repository_invites_is_held_with_it_and_counts() {
    let mut scene = Scene::new();
    let owner = announce(&scene, ALICE, &[BOB]);
    scene.publish(&owner);
    let invited = forge::announcement(&tool(BOB), scene.unix(), false, &[ALICE]);
    assert_eq!(scene.publish(&invited), Answer::Held);
    let of_bob = state(&scene, BOB, &[(MAIN, commit(1))]);
    assert_eq!(scene.publish(&of_bob), Answer::Held);
    assert_eq!(scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]), Ok(()));
    for event in [&owner, &invited, &of_bob] {
        assert!(scene.serves(event), "{event:?}");
    }
}

#[test]
fn a_removed_maintainer_signs_nothing_more_and_refs_do_not_fall_back() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[BOB]);
    served(&mut scene, BOB, &[ALICE]);
    let of_bob = state(&scene, BOB, &[(MAIN, commit(2))]);
    scene.publish(&of_bob);
    assert_eq!(scene.push(&tool(ALICE), &[(MAIN, Some(commit(2)))]), Ok(()));

    scene.pass(MINUTE);
    let without = announce(&scene, ALICE, &[]);
    assert_eq!(scene.publish(&without), Answer::Accepted);
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(2))]));

    let later = state(&scene, BOB, &[(MAIN, commit(3))]);
    assert_eq!(
        scene.publish(&later),
        Answer::Held,
        "Bob still has a repository of his own"
    );
    assert!(
        scene
            .push(&tool(ALICE), &[(MAIN, Some(commit(3)))])
            .is_err()
    );
    assert_eq!(scene.push(&tool(BOB), &[(MAIN, Some(commit(3)))]), Ok(()));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(2))]));
}

#[test]
fn a_held_state_of_a_maintainer_who_is_removed_is_not_applied() {
    let mut scene = listed_rule();
    served(&mut scene, ALICE, &[BOB]);
    let held = state(&scene, BOB, &[(MAIN, commit(2))]);
    assert_eq!(scene.publish(&held), Answer::Held);
    scene.pass(MINUTE);
    let without = announce(&scene, ALICE, &[]);
    scene.publish(&without);
    assert!(
        scene
            .push(&tool(ALICE), &[(MAIN, Some(commit(2)))])
            .is_err()
    );
    scene.pass(31 * MINUTE);
    assert!(!scene.holds(&held) && !scene.serves(&held));
}

#[test]
fn a_new_maintainers_newer_state_is_applied_when_the_chain_closes() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    served(&mut scene, CAROL, &[ALICE]);
    let of_carol = state(&scene, CAROL, &[(MAIN, commit(2))]);
    scene.publish(&of_carol);
    assert_eq!(scene.push(&tool(CAROL), &[(MAIN, Some(commit(2)))]), Ok(()));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(1))]));
    let trusts = announce(&scene, ALICE, &[CAROL]);
    scene.publish(&trusts);
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(2))]));
}

#[test]
fn a_stranger_cannot_list_himself_in() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let uninvited = forge::announcement(&tool(BOB), scene.unix(), false, &[ALICE]);
    assert_eq!(
        scene.publish(&uninvited),
        Answer::Refused(Refusal::NotListed)
    );
    assert!(!scene.core.registry().is_maintainer(&tool(ALICE), &BOB));
}
