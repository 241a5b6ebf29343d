//! Pull requests and `refs/nostr/`: either side may come first.

use std::sync::Arc;

use grasp_core::admit::Refusal;
use grasp_core::limits::Limits;
use grasp_core::push::PushRefusal;
use grasp_core::{Answer, Event, EventId, Network, Pubkey};
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

/// Tips without an event, of somebody at that address.
fn strangers(scene: &mut Scene, host: u8, tips: std::ops::Range<u8>) -> Result<(), PushRefusal> {
    let network = Some(Network::of([192, 0, 2, host].into()));
    let names: Vec<String> = tips.map(|n| name(&EventId([n; 32]))).collect();
    let tips: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), Some(commit(7))))
        .collect();
    scene.push_from(network, &tool(ALICE), &tips)
}

#[test]
fn one_network_has_a_quarter_of_the_tips_that_wait_and_hears_so_before_its_pack() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    assert_eq!(strangers(&mut scene, 1, 0..64), Ok(()));
    let network = Some(Network::of([192, 0, 2, 1].into()));
    let one_more = [(name(&EventId([200; 32])), Some(commit(7)))];
    let one_more = one_more.each_ref().map(|(name, tip)| (name.as_str(), *tip));
    let refused = scene.begin_push_from(network, &tool(ALICE), &one_more);
    assert_eq!(refused.err(), Some(PushRefusal::TooManyTips));
    assert_eq!(strangers(&mut scene, 2, 64..65), Ok(()), "somebody else");
    assert_eq!(scene.repo(&tool(ALICE)).tips.len(), 65);
    scene.pass(21 * MINUTE);
    assert_eq!(strangers(&mut scene, 1, 200..201), Ok(()));
}

#[test]
fn the_oldest_tip_of_whoever_holds_most_makes_way() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    // Two have 64, three fewer: 255 of 256 places.
    for (host, tips) in [
        (1, 0..1),
        (1, 1..64),
        (2, 64..128),
        (3, 128..188),
        (4, 188..248),
    ] {
        assert_eq!(strangers(&mut scene, host, tips), Ok(()));
        scene.pass(MINUTE / 4);
    }
    assert_eq!(strangers(&mut scene, 5, 248..255), Ok(()));
    let before = scene.repo(&tool(ALICE)).tips.clone();
    assert_eq!(before.len(), 255);
    let newcomer = [
        forge::pull_request(CAROL, 1, &[], "").id,
        EventId([255; 32]),
    ];
    let names = newcomer.map(|id| name(&id));
    let tips = names
        .each_ref()
        .map(|name| (name.as_str(), Some(commit(7))));
    let network = Some(Network::of([192, 0, 2, 6].into()));
    assert_eq!(scene.push_from(network, &tool(ALICE), &tips), Ok(()));
    let after = &scene.repo(&tool(ALICE)).tips;
    let gone = before.keys().filter(|id| !after.contains_key(*id));
    assert_eq!(
        gone.collect::<Vec<_>>(),
        [&EventId([64; 32])],
        "of equals the last"
    );
    assert!(newcomer.iter().all(|id| after.contains_key(id)));
    assert_eq!(after.len(), 256);
}

#[test]
fn tips_that_wait_over_a_restart_make_way_like_others() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    filled(&mut scene);
    scene.restart();
    scene.pass(MINUTE);
    let id = forge::pull_request(CAROL, 1, &[], "").id;
    let network = Some(Network::of([192, 0, 2, 1].into()));
    let push = scene.push_from(network, &tool(ALICE), &[(&name(&id), Some(commit(7)))]);
    assert_eq!(push, Ok(()));
    assert_eq!(scene.repo(&tool(ALICE)).tips.len(), 256);
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

/// A repository that takes eight tips, two of them only of its maintainers, and three of a stranger.
fn narrow() -> Scene {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        tips_per_repository: 8,
        tips_per_author: 3,
        ..Limits::default()
    }));
    served(&mut scene, ALICE, &[]);
    scene
}

/// A pull request whose commit is here.
fn ask(scene: &mut Scene, author: Pubkey, n: u64) -> (Arc<Event>, Answer) {
    let at = scene.unix() - 60 + n;
    let event = forge::pull_request(author, at, &[tool(ALICE)], &commit(1).to_string());
    let answer = scene.publish(&event);
    (event, answer)
}

#[test]
fn pull_requests_in_a_repository_have_a_bound_for_each_stranger_and_for_all() {
    let mut scene = narrow();
    let full = Answer::Refused(Refusal::TooManyTips);
    let mut first = None;
    for (author, restart) in [(CAROL, true), (MALLORY, false)] {
        for n in 0..3 {
            let (event, answer) = ask(&mut scene, author, n);
            assert_eq!(answer, Answer::Accepted);
            first.get_or_insert(event);
        }
        assert_eq!(ask(&mut scene, author, 3).1, full);
        if restart {
            scene.restart();
            assert_eq!(ask(&mut scene, author, 4).1, full);
        }
    }
    // What is left is for those who maintain it.
    let stranger = Pubkey([88; 32]);
    assert_eq!(ask(&mut scene, stranger, 0).1, full);
    assert_eq!(ask(&mut scene, ALICE, 0).1, Answer::Accepted);
    assert_eq!(ask(&mut scene, ALICE, 1).1, Answer::Accepted);
    assert_eq!(ask(&mut scene, ALICE, 2).1, full);
    assert_eq!(scene.repo(&tool(ALICE)).tips.len(), 8);
    // Whoever deletes one may have another, as far as strangers have room.
    let first = first.unwrap();
    for n in 0..3 {
        let event = forge::pull_request(
            CAROL,
            first.created_at.0 + n,
            &[tool(ALICE)],
            &commit(1).to_string(),
        );
        let id = event.id.to_string();
        scene.publish(&forge::about(CAROL, 5, scene.unix(), "e", &id));
    }
    assert_eq!(scene.repo(&tool(ALICE)).tips.len(), 5);
    assert_eq!(ask(&mut scene, stranger, 0).1, Answer::Accepted);
    assert_eq!(ask(&mut scene, stranger, 1).1, full);
}

#[test]
fn a_push_hears_before_its_pack_that_a_repository_has_enough_pull_requests() {
    let mut scene = narrow();
    let tip = commit(7);
    let events: Vec<_> = (0..4)
        .map(|n| {
            let at = scene.unix() + n;
            let event = forge::pull_request(CAROL, at, &[tool(ALICE)], &tip.to_string());
            assert_eq!(scene.publish(&event), Answer::Held);
            event
        })
        .collect();
    let names: Vec<String> = events.iter().map(|event| name(&event.id)).collect();
    let all: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), Some(tip)))
        .collect();
    let push = scene.begin_push(&tool(ALICE), &all);
    assert_eq!(push.err(), Some(PushRefusal::TipsFull(events[3].id)));
    assert_eq!(scene.push(&tool(ALICE), &all[..3]), Ok(()));
    assert!(!scene.serves(&events[3]), "it waits in vain");
    assert_eq!(scene.repo(&tool(ALICE)).tips.len(), 3);
}

/// Pushing first and publishing then is no way around.
#[test]
fn tips_that_came_before_their_events_count_for_their_author() {
    let mut scene = narrow();
    let tip = commit(7);
    let mut answers = Vec::new();
    for n in 0..4 {
        let at = scene.unix() + n;
        let event = forge::pull_request(CAROL, at, &[tool(ALICE)], &tip.to_string());
        let push = scene.push(&tool(ALICE), &[(&name(&event.id), Some(tip))]);
        assert_eq!(push, Ok(()));
        answers.push(scene.publish(&event));
    }
    assert_eq!(
        answers[..3],
        [Answer::Accepted, Answer::Accepted, Answer::Accepted]
    );
    assert_eq!(answers[3], Answer::Refused(Refusal::TooManyTips));
    scene.pass(21 * MINUTE);
    assert_eq!(scene.repo(&tool(ALICE)).tips.len(), 3);
}
