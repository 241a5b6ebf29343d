//! What the refs shall be: which states are applied, which wait, which come too late.

use grasp_core::admit::Refusal;
use grasp_core::git::ObjectId;
use grasp_core::{Answer, Limits};
use grasp_sim::forge::{self, commit, tag_object, tree};

use crate::scene::{
    CAROL, DEV, MAIN, MALLORY, MINUTE, Scene, V1, announce, refs, served, state, state_at, tool,
};
use crate::stage::{ALICE, BOB, NOON};

#[test]
fn a_state_whose_objects_are_here_is_applied_when_it_comes() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let head = ("HEAD", "ref: refs/heads/dev");
    let first = commit(1).to_string();
    let both = [(MAIN, first.as_str()), (DEV, first.as_str()), head];
    let event = forge::state(ALICE, "tool", scene.unix(), &both);
    assert_eq!(scene.publish(&event), Answer::Accepted);
    assert_eq!(
        scene.refs(&tool(ALICE)),
        refs(&[(MAIN, commit(1)), (DEV, commit(1))])
    );
    let head = scene.repo(&tool(ALICE)).head.clone().unwrap();
    assert_eq!(head.as_str(), DEV);
}

#[test]
fn a_state_by_a_stranger_is_refused() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let event = state(&scene, MALLORY, &[(MAIN, commit(1))]);
    assert_eq!(
        scene.publish(&event),
        Answer::Refused(Refusal::NotMaintainer)
    );
}

#[test]
fn in_one_second_the_lower_id_wins_whichever_comes_first() {
    let at = NOON + 60;
    let one = state_at(ALICE, at, &[(MAIN, commit(2))]);
    let other = state_at(ALICE, at, &[(MAIN, commit(3))]);
    let winner = if one.id < other.id { 2 } else { 3 };
    for order in [[&one, &other], [&other, &one]] {
        let mut scene = Scene::new();
        served(&mut scene, ALICE, &[]);
        for event in order {
            scene.publish(event);
        }
        for n in [2, 3] {
            scene.push(&tool(ALICE), &[(MAIN, Some(commit(n)))]).ok();
        }
        assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(winner))]));
        let (winner, loser) = match one.id < other.id {
            true => (&one, &other),
            false => (&other, &one),
        };
        assert!(scene.serves(winner) && !scene.serves(loser));
        assert_eq!(scene.publish(loser), Answer::Refused(Refusal::Replaced));
    }
}

#[test]
fn an_older_state_rewinds_nothing() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[BOB]);
    served(&mut scene, BOB, &[ALICE]);
    let newer = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&newer);
    assert_eq!(scene.push(&tool(ALICE), &[(MAIN, Some(commit(2)))]), Ok(()));

    let replayed = state_at(ALICE, NOON, &[(MAIN, commit(1))]);
    assert_eq!(scene.publish(&replayed), Answer::Refused(Refusal::Replaced));
    let of_another = state_at(BOB, NOON + 90, &[(MAIN, commit(1))]);
    assert_eq!(
        scene.publish(&of_another),
        Answer::Accepted,
        "true when it was signed, and its objects are here"
    );
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(2))]));
    let push = scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]);
    assert!(push.is_err());
    assert_eq!(scene.refs(&tool(BOB)), refs(&[(MAIN, commit(2))]));
}

#[test]
fn one_state_deletes_and_adds() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let event = state(&scene, ALICE, &[(DEV, commit(2)), (V1, commit(1))]);
    scene.publish(&event);
    let commands = [(MAIN, None), (DEV, Some(commit(2))), (V1, Some(commit(1)))];
    assert_eq!(scene.push(&tool(ALICE), &commands), Ok(()));
    assert_eq!(
        scene.refs(&tool(ALICE)),
        refs(&[(DEV, commit(2)), (V1, commit(1))])
    );
}

#[test]
fn an_annotated_tag_is_the_tag_object_and_its_peeled_line_is_ignored() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let (first, tag) = (commit(1).to_string(), tag_object(1).to_string());
    let peeled = "refs/tags/v1^{}";
    let event = [(MAIN, first.as_str()), (V1, &tag), (peeled, &first)];
    let event = forge::state(ALICE, "tool", scene.unix(), &event);
    scene.publish(&event);
    let push = scene.push(&tool(ALICE), &[(V1, Some(tag_object(1)))]);
    assert_eq!(push, Ok(()));
    assert_eq!(
        scene.refs(&tool(ALICE)),
        refs(&[(MAIN, commit(1)), (V1, tag_object(1))])
    );
}

#[test]
fn an_empty_state_empties_a_served_repository_if_it_is_newer() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[BOB]);
    served(&mut scene, BOB, &[ALICE]);
    let stale = state_at(BOB, NOON - 10, &[]);
    scene.publish(&stale);
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(1))]));
    let empty = state(&scene, BOB, &[]);
    assert_eq!(scene.publish(&empty), Answer::Accepted);
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[]));
    assert_eq!(scene.refs(&tool(BOB)), refs(&[]));
}

#[test]
fn a_state_that_cannot_be_applied_is_held_and_expires() {
    let first = commit(1).to_string();
    let a_tree = tree(1).to_string();
    for bad in [
        ("refs/heads/../x", first.as_str()),
        ("refs/heads/main/below", &first),
        ("refs/heads/x", "1234"),
        ("refs/heads/x", "--upload-pack=touch"),
        ("refs/heads/x", &a_tree),
        ("refs/heads/main", &first),
    ] {
        let mut scene = Scene::new();
        served(&mut scene, ALICE, &[]);
        scene.git.take(&tool(ALICE), [tree(1)]);
        let event = forge::state(ALICE, "tool", scene.unix(), &[(MAIN, &first), bad]);
        assert_eq!(scene.publish(&event), Answer::Held, "{bad:?}");
        scene.pass(29 * MINUTE);
        assert!(scene.holds(&event));
        scene.pass(2 * MINUTE);
        assert!(!scene.holds(&event) && !scene.serves(&event), "{bad:?}");
        assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(1))]));
    }
}

#[test]
fn ten_thousand_refs_are_applied_and_one_more_is_too_many() {
    let names: Vec<String> = (0..=10_000).map(|n| format!("refs/heads/b{n}")).collect();
    let all: Vec<(&str, ObjectId)> = names
        .iter()
        .map(|name| (name.as_str(), commit(2)))
        .collect();
    let policy = grasp_sim::policy(Limits {
        held_bytes: usize::MAX,
        ..Limits::default()
    });
    let mut scene = Scene::with(policy);
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    let too_many = state(&scene, ALICE, &all);
    assert_eq!(scene.publish(&too_many), Answer::Held);
    let most = all.get(..10_000).unwrap();
    let event = state(&scene, ALICE, most);
    assert_eq!(scene.publish(&event), Answer::Held);
    let commands: Vec<_> = most.iter().map(|(name, id)| (*name, Some(*id))).collect();
    assert_eq!(scene.push(&tool(ALICE), &commands), Ok(()));
    assert_eq!(scene.refs(&tool(ALICE)).len(), 10_000);
    assert!(scene.serves(&event) && !scene.serves(&too_many));
}

#[test]
fn a_release_is_brought_to_every_repository_that_the_state_speaks_for() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[BOB, CAROL]);
    let invited = announce(&scene, BOB, &[ALICE]);
    assert_eq!(scene.publish(&invited), Answer::Held);
    assert!(
        scene.serves(&invited),
        "what Alice signed speaks for Bob, and its objects are here"
    );
    assert_eq!(scene.refs(&tool(BOB)), refs(&[(MAIN, commit(1))]));

    scene.pass(MINUTE);
    let event = state(&scene, BOB, &[(MAIN, commit(2)), (DEV, commit(1))]);
    scene.publish(&event);
    let commands = [(MAIN, Some(commit(2))), (DEV, Some(commit(1)))];
    assert_eq!(scene.push(&tool(BOB), &commands), Ok(()));
    for owner in [ALICE, BOB] {
        let wanted = refs(&[(MAIN, commit(2)), (DEV, commit(1))]);
        assert_eq!(scene.refs(&tool(owner)), wanted);
    }
}

#[test]
fn two_repositories_complete_a_state_between_them() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[BOB]);
    served(&mut scene, BOB, &[ALICE]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2)), (DEV, commit(3))]);
    scene.publish(&event);
    assert!(
        scene
            .push(&tool(ALICE), &[(MAIN, Some(commit(2)))])
            .is_err()
    );
    assert!(!scene.serves(&event));
    scene.push(&tool(BOB), &[(DEV, Some(commit(3)))]).ok();
    assert!(scene.serves(&event));
    for owner in [ALICE, BOB] {
        let wanted = refs(&[(MAIN, commit(2)), (DEV, commit(3))]);
        assert_eq!(scene.refs(&tool(owner)), wanted);
    }
}

#[test]
fn of_many_states_of_one_author_the_newest_few_wait() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let at = scene.unix();
    let many = (0..10).map(|n: u32| state_at(ALICE, at + u64::from(n), &[(MAIN, commit(10 + n))]));
    let many: Vec<_> = many.collect();
    let (oldest, rest) = many.split_first().unwrap();
    for event in rest {
        assert_eq!(scene.publish(event), Answer::Held);
    }
    let kept: Vec<bool> = rest.iter().map(|event| scene.holds(event)).collect();
    assert_eq!(
        kept,
        [false, true, true, true, true, true, true, true, true]
    );
    let outnumbered = Answer::Refused(Refusal::TooManyHeld);
    assert_eq!(scene.publish(oldest), outnumbered);
    let of_bob = forge::announcement(&tool(BOB), scene.unix(), true, &[]);
    scene.publish(&of_bob);
    let of_bob = state(&scene, BOB, &[(MAIN, commit(2))]);
    assert_eq!(
        scene.publish(&of_bob),
        Answer::Held,
        "others have their own"
    );

    scene.restart();
    assert!(
        scene
            .push(&tool(ALICE), &[(MAIN, Some(commit(11)))])
            .is_err()
    );
    assert_eq!(
        scene.push(&tool(ALICE), &[(MAIN, Some(commit(12)))]),
        Ok(())
    );
    assert_eq!(
        scene.push(&tool(ALICE), &[(MAIN, Some(commit(19)))]),
        Ok(())
    );
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(19))]));
}

#[test]
fn in_one_second_the_highest_id_makes_way() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let at = scene.unix();
    let many = (0..9).map(|n: u32| state_at(ALICE, at, &[(MAIN, commit(10 + n))]));
    let mut many: Vec<_> = many.collect();
    for event in &many {
        scene.publish(event);
    }
    many.sort_by_key(|event| event.id);
    let (last, first) = many.split_last().unwrap();
    assert!(!scene.holds(last));
    assert!(first.iter().all(|event| scene.holds(event)));
}

#[test]
fn an_empty_state_that_was_signed_before_there_were_refs_empties_nothing() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    let first = state_at(ALICE, scene.unix() - 10, &[(MAIN, commit(1))]);
    let empty = state(&scene, ALICE, &[]);
    assert_eq!(scene.publish(&empty), Answer::Held);
    assert_eq!(scene.publish(&first), Answer::Held);
    scene.pass(MINUTE);
    assert_eq!(scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]), Ok(()));
    assert!(scene.serves(&first) && !scene.serves(&empty));
    assert!(scene.push(&tool(ALICE), &[(MAIN, None)]).is_err());

    scene.pass(40 * MINUTE);
    assert!(!scene.holds(&empty));
    scene.restart();
    assert_eq!(
        scene.publish(&empty),
        Answer::Held,
        "somebody plays it back"
    );
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(1))]));
    let later = state(&scene, ALICE, &[]);
    assert_eq!(scene.publish(&later), Answer::Accepted);
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[]));
}
