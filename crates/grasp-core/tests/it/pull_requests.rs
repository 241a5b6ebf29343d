//! Pull requests and `refs/nostr/`: either side may come first.

use grasp_core::admit::Refusal;
use grasp_core::push::PushRefusal;
use grasp_core::{Answer, EventId};
use grasp_sim::forge::{self, commit};

use crate::scene::{CAROL, MAIN, MALLORY, MINUTE, Scene, announce, served, state, tool};
use crate::stage::{ALICE, BOB};

fn name(id: &EventId) -> String {
    format!("refs/nostr/{id}")
}

#[test]
fn an_event_before_its_tip_is_held_until_the_tip_is_pushed() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let tip = commit(7);
    let event = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &tip.to_string());
    assert_eq!(scene.publish(&event), Answer::Held);
    let wrong = scene.push(&tool(ALICE), &[(&name(&event.id), Some(commit(8)))]);
    assert!(matches!(wrong, Err(PushRefusal::WrongTip { .. })));
    let push = scene.push(&tool(ALICE), &[(&name(&event.id), Some(tip))]);
    assert_eq!(push, Ok(()));
    assert!(scene.serves(&event), "before the push has returned");
    assert_eq!(scene.repo(&tool(ALICE)).tips.get(&event.id), Some(&tip));
}

#[test]
fn a_tip_before_its_event_waits_for_it() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let tip = commit(7);
    let event = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &tip.to_string());
    let push = scene.push(&tool(ALICE), &[(&name(&event.id), Some(tip))]);
    assert_eq!(push, Ok(()));
    scene.pass(19 * MINUTE);
    assert_eq!(scene.publish(&event), Answer::Accepted);
    scene.pass(60 * MINUTE);
    assert_eq!(scene.repo(&tool(ALICE)).tips.get(&event.id), Some(&tip));
}

#[test]
fn a_tip_without_its_event_goes_after_twenty_minutes() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let nobody = EventId([9; 32]);
    scene
        .push(&tool(ALICE), &[(&name(&nobody), Some(commit(7)))])
        .unwrap();
    scene.pass(19 * MINUTE);
    assert!(scene.repo(&tool(ALICE)).tips.contains_key(&nobody));
    scene.pass(2 * MINUTE);
    assert!(scene.repo(&tool(ALICE)).tips.is_empty());
}

#[test]
fn an_event_with_another_commit_removes_the_tip_that_came_before_it() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let said = commit(8).to_string();
    let event = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &said);
    scene
        .push(&tool(ALICE), &[(&name(&event.id), Some(commit(7)))])
        .unwrap();
    assert_eq!(scene.publish(&event), Answer::Held);
    assert!(scene.repo(&tool(ALICE)).tips.is_empty());
}

#[test]
fn an_event_that_comes_while_its_tip_is_on_its_way_decides() {
    for (said, ok) in [(7, true), (8, false)] {
        let mut scene = Scene::new();
        served(&mut scene, ALICE, &[]);
        let event = forge::pull_request(
            CAROL,
            scene.unix(),
            &[tool(ALICE)],
            &commit(said).to_string(),
        );
        let name = name(&event.id);
        let commands = [(name.as_str(), Some(commit(7)))];
        let push = scene.begin_push(&tool(ALICE), &commands).unwrap();
        assert_eq!(scene.publish(&event), Answer::Held);
        let result = scene.end_push(push, &tool(ALICE), &commands);
        assert_eq!(result.is_ok(), ok, "{result:?}");
        assert_eq!(scene.serves(&event), ok);
        let tips = &scene.repo(&tool(ALICE)).tips;
        assert_eq!(tips.contains_key(&event.id), ok);
    }
}

#[test]
fn a_pull_request_without_its_commit_goes_after_half_an_hour() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    for said in [commit(7).to_string(), "--upload-pack=x".to_owned()] {
        let event = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &said);
        assert_eq!(scene.publish(&event), Answer::Held);
        scene.pass(29 * MINUTE);
        assert!(scene.holds(&event));
        scene.pass(2 * MINUTE);
        assert!(!scene.holds(&event) && !scene.serves(&event));
    }
}

#[test]
fn an_update_that_names_only_its_root_goes_where_the_root_is() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let tip = commit(7).to_string();
    let root = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &tip);
    scene.publish(&root);
    let update = forge::update(CAROL, scene.unix(), &root.id, &commit(8).to_string());
    assert_eq!(scene.publish(&update), Answer::Held, "its root is held too");
    scene
        .push(&tool(ALICE), &[(&name(&update.id), Some(commit(8)))])
        .unwrap();
    assert!(scene.serves(&update) && !scene.serves(&root));
    let stray = forge::update(CAROL, scene.unix(), &EventId([5; 32]), &tip);
    assert_eq!(scene.publish(&stray), Answer::Refused(Refusal::Orphan));
}

#[test]
fn a_pull_request_to_a_held_repository_is_served_with_it() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    let tip = commit(7);
    let event = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &tip.to_string());
    assert_eq!(scene.publish(&event), Answer::Held);
    scene
        .push(&tool(ALICE), &[(&name(&event.id), Some(tip))])
        .unwrap();
    assert!(!scene.serves(&event));
    let first = state(&scene, ALICE, &[(MAIN, commit(1))]);
    scene.publish(&first);
    scene
        .push(&tool(ALICE), &[(MAIN, Some(commit(1)))])
        .unwrap();
    assert!(scene.serves(&event));
}

#[test]
fn a_tip_is_brought_to_every_repository_that_the_event_names() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[BOB]);
    served(&mut scene, BOB, &[ALICE]);
    let tip = commit(7);
    let repos = [tool(ALICE), tool(BOB)];
    let event = forge::pull_request(CAROL, scene.unix(), &repos, &tip.to_string());
    scene.publish(&event);
    scene
        .push(&tool(BOB), &[(&name(&event.id), Some(tip))])
        .unwrap();
    for repo in &repos {
        assert_eq!(scene.repo(repo).tips.get(&event.id), Some(&tip));
    }
}

#[test]
fn a_deletion_takes_the_tips_along_and_no_push_does() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let tip = commit(7);
    let event = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &tip.to_string());
    scene.publish(&event);
    let name = name(&event.id);
    scene.push(&tool(ALICE), &[(&name, Some(tip))]).unwrap();
    let push = scene.push(&tool(ALICE), &[(&name, None)]);
    assert_eq!(push, Err(PushRefusal::NostrDelete));

    let id = event.id.to_string();
    scene.publish(&forge::deletion(MALLORY, scene.unix(), "e", &id));
    assert!(scene.repo(&tool(ALICE)).tips.contains_key(&event.id));
    scene.publish(&forge::deletion(CAROL, scene.unix(), "e", &id));
    assert!(scene.repo(&tool(ALICE)).tips.is_empty());
}

#[test]
fn a_request_to_vanish_takes_tips_and_repositories_along() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    served(&mut scene, CAROL, &[]);
    let tip = commit(7);
    let event = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &tip.to_string());
    scene.publish(&event);
    scene
        .push(&tool(ALICE), &[(&name(&event.id), Some(tip))])
        .unwrap();
    let vanish = forge::about(CAROL, 62, scene.unix(), "relay", "ALL_RELAYS");
    scene.publish(&vanish);
    scene.pass(MINUTE);
    assert!(scene.repo(&tool(ALICE)).tips.is_empty());
    assert!(scene.git.get(&tool(CAROL)).is_none());
}

/// Strangers fill the room for tips without an event, and the first of them.
fn filled(scene: &mut Scene) -> EventId {
    let names: Vec<String> = (0..=255).map(|n| name(&EventId([n; 32]))).collect();
    for part in names.chunks(64) {
        let tips: Vec<_> = part
            .iter()
            .map(|name| (name.as_str(), Some(commit(7))))
            .collect();
        assert_eq!(scene.push(&tool(ALICE), &tips), Ok(()));
    }
    EventId([0; 32])
}

#[test]
fn tips_without_an_event_have_a_bound_and_come_in_all_or_none() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let first = filled(&mut scene);
    let (one, other) = (EventId([7; 32]), forge::pull_request(CAROL, 1, &[], "").id);
    let push = scene.push(
        &tool(ALICE),
        &[
            (&name(&one), Some(commit(7))),
            (&name(&other), Some(commit(7))),
        ],
    );
    assert_eq!(push, Err(PushRefusal::TooManyTips));
    assert!(!scene.repo(&tool(ALICE)).tips.contains_key(&other));
    let again = scene.push(&tool(ALICE), &[(&name(&first), Some(commit(7)))]);
    assert_eq!(again, Ok(()), "it takes no more room than before");
    scene.pass(21 * MINUTE);
    assert_eq!(
        scene.push(&tool(ALICE), &[(&name(&other), Some(commit(7)))]),
        Ok(())
    );
}

#[test]
fn a_tip_whose_event_is_here_needs_no_room_among_those_without() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    filled(&mut scene);
    let tip = commit(8);
    let event = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &tip.to_string());
    assert_eq!(scene.publish(&event), Answer::Held);
    let push = scene.push(&tool(ALICE), &[(&name(&event.id), Some(tip))]);
    assert_eq!(push, Ok(()));
    assert!(scene.serves(&event));
}

#[test]
fn a_tip_that_is_pushed_again_has_no_more_time() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let nobody = name(&EventId([9; 32]));
    for n in [7, 7, 8] {
        let push = scene.push(&tool(ALICE), &[(&nobody, Some(commit(n)))]);
        assert_eq!(push, Ok(()));
        scene.pass(6 * MINUTE);
    }
    assert!(!scene.repo(&tool(ALICE)).tips.is_empty());
    scene.pass(3 * MINUTE);
    assert!(scene.repo(&tool(ALICE)).tips.is_empty());
}
