//! Issues, comments, patches, statuses: they come in with what they belong to.

use std::time::Duration;

use grasp_core::admit::Refusal;
use grasp_core::{Answer, Kind, Limits};
use grasp_sim::forge::{self, commit};

use crate::scene::{CAROL, MAIN, MINUTE, Scene, announce, served, state, tool};
use crate::stage::ALICE;

fn address() -> String {
    forge::address(Kind::ANNOUNCEMENT, &tool(ALICE))
}

#[test]
fn what_names_something_served_is_accepted_through_every_tag() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let issue = forge::about(CAROL, 1621, scene.unix(), "a", &address());
    assert_eq!(scene.publish(&issue), Answer::Accepted);
    let id = issue.id.to_string();
    for (kind, name, value) in [
        (1111, "A", address()),
        (1111, "E", id.clone()),
        (1630, "e", id.clone()),
        (1617, "a", address()),
        (1, "q", address()),
    ] {
        let event = forge::about(CAROL, kind, scene.unix(), name, &value);
        assert_eq!(scene.publish(&event), Answer::Accepted, "{kind} {name}");
    }
}

#[test]
fn an_unknown_event_that_a_served_one_names_is_accepted_when_it_comes() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let note = forge::about(CAROL, 1, scene.unix(), "t", "git");
    assert_eq!(scene.publish(&note), Answer::Refused(Refusal::Orphan));
    let tags = vec![
        forge::tag(&["a", &address()]),
        forge::tag(&["q", &note.id.to_string()]),
    ];
    let names_it = forge::event(CAROL, Kind(1111), scene.unix(), tags);
    scene.publish(&names_it);
    assert_eq!(scene.publish(&note), Answer::Accepted);
}

#[test]
fn orphans_are_refused_and_what_is_free_is_not() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let orphan = forge::about(CAROL, 1621, scene.unix(), "a", "30617:x:y");
    assert_eq!(scene.publish(&orphan), Answer::Refused(Refusal::Orphan));
    let list = forge::about(CAROL, 10_317, scene.unix(), "g", "wss://relay.example");
    assert_eq!(scene.publish(&list), Answer::Accepted);
    let about_it = forge::about(CAROL, 1, scene.unix(), "e", &list.id.to_string());
    assert_eq!(
        scene.publish(&about_it),
        Answer::Refused(Refusal::Orphan),
        "what anybody may store proves nothing"
    );
}

#[test]
fn what_is_about_a_held_repository_is_held_and_released_with_it() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    let issue = forge::about(CAROL, 1621, scene.unix(), "a", &address());
    assert_eq!(scene.publish(&issue), Answer::Held);
    let comment = forge::about(CAROL, 1111, scene.unix(), "E", &issue.id.to_string());
    assert_eq!(scene.publish(&comment), Answer::Held);
    let first = state(&scene, ALICE, &[(MAIN, commit(1))]);
    scene.publish(&first);
    scene
        .push(&tool(ALICE), &[(MAIN, Some(commit(1)))])
        .unwrap();
    assert!(scene.serves(&issue) && scene.serves(&comment));
    assert!(scene.disk.held.is_empty());
}

#[test]
fn what_is_about_a_held_repository_expires_like_it() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    let issue = forge::about(CAROL, 1621, scene.unix(), "a", &address());
    scene.publish(&issue);
    scene.pass(31 * MINUTE);
    assert!(!scene.holds(&issue) && !scene.serves(&issue));
    assert_eq!(scene.publish(&issue), Answer::Refused(Refusal::Orphan));
}

#[test]
fn an_import_in_the_wrong_order_comes_right() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    let first = state(&scene, ALICE, &[(MAIN, commit(1))]);
    let issue = forge::about(CAROL, 1621, scene.unix(), "a", &address());
    let comment = forge::about(CAROL, 1111, scene.unix(), "E", &issue.id.to_string());
    assert_eq!(scene.import(&comment), Answer::Refused(Refusal::Orphan));
    assert_eq!(scene.import(&issue), Answer::Refused(Refusal::Orphan));
    assert_eq!(
        scene.import(&first),
        Answer::Refused(Refusal::NotMaintainer)
    );
    assert_eq!(scene.import(&announcement), Answer::Held);
    for event in [&first, &issue, &comment] {
        assert!(scene.holds(event), "{event:?}");
    }
    scene
        .push(&tool(ALICE), &[(MAIN, Some(commit(1)))])
        .unwrap();
    for event in [&announcement, &first, &issue, &comment] {
        assert!(scene.serves(event), "{event:?}");
    }
}

#[test]
fn an_imported_event_comes_in_with_the_one_that_names_it() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let note = forge::about(CAROL, 1, scene.unix(), "t", "git");
    scene.import(&note);
    let tags = vec![
        forge::tag(&["a", &address()]),
        forge::tag(&["e", &note.id.to_string()]),
    ];
    scene.publish(&forge::event(CAROL, Kind(1111), scene.unix(), tags));
    assert!(scene.serves(&note));
}

#[test]
fn what_came_too_early_is_not_kept_for_ever() {
    let mut scene = Scene::new();
    let issue = forge::about(CAROL, 1621, scene.unix(), "a", &address());
    scene.import(&issue);
    assert_eq!(scene.core.purgatory().len(), 1);
    scene.pass(31 * MINUTE);
    assert!(scene.core.purgatory().is_empty());
}

#[test]
fn of_many_that_waited_for_one_some_come_with_it_and_the_others_right_after() {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        held_per_key: 2_000,
        events_per_minute_per_key: 10_000,
        ..Limits::default()
    }));
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    let first = state(&scene, ALICE, &[(MAIN, commit(1))]);
    scene.publish(&first);
    let issue = |n| forge::about(CAROL, 1621, scene.unix() - n, "a", &address());
    let issues: Vec<_> = (0..1_200).map(issue).collect();
    for issue in &issues {
        let answer = scene.import(issue);
        assert_eq!(answer, Answer::Held);
    }
    scene
        .push(&tool(ALICE), &[(MAIN, Some(commit(1)))])
        .unwrap();
    let served = |scene: &Scene| issues.iter().filter(|issue| scene.serves(issue)).count();
    assert_eq!(served(&scene), 512);
    scene.pass(Duration::ZERO);
    assert_eq!(served(&scene), 1_200);
}
