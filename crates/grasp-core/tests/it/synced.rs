//! Events that other relays bring, and relays that announcements name, seen from the whole core
//! (E1, E2, E4, E16).

use grasp_core::admit::Refusal;
use grasp_core::sync::io::ToRelay;
use grasp_core::{Answer, Event, Kind, Pubkey};
use grasp_sim::forge;

use crate::scene::{CAROL, MAIN, MALLORY, MINUTE, Scene, served, state, state_at, tool};
use crate::stage::{ALICE, BOB};

#[test]
fn a_synced_event_is_judged_like_any_other() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    let issue = forge::about(CAROL, 1621, scene.unix(), "a", &address);
    assert_eq!(scene.sync(&issue), Answer::Accepted);
    assert_eq!(scene.sync(&issue), Answer::Duplicate);
    let elsewhere = forge::address(Kind::ANNOUNCEMENT, &tool(MALLORY));
    let orphan = forge::about(CAROL, 1621, scene.unix(), "a", &elsewhere);
    assert_eq!(scene.sync(&orphan), Answer::Refused(Refusal::Orphan));
    let held = state(&scene, ALICE, &[(MAIN, forge::commit(2))]);
    scene.sync(&held);
    assert!(scene.holds(&held) && !scene.serves(&held));
}

#[test]
fn no_rate_of_a_key_holds_back_what_is_synced() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    let limit = u64::from(scene.policy.limits.events_per_minute_per_key);
    for n in 0..2 * limit {
        let issue = forge::about(CAROL, 1621, scene.unix() - n, "a", &address);
        assert_eq!(scene.sync(&issue), Answer::Accepted, "{n}");
    }
}

#[test]
fn a_protected_event_does_not_come_by_sync() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    let tags = vec![forge::tag(&["a", &address]), forge::tag(&["-"])];
    let issue = forge::event(CAROL, Kind(1621), scene.unix(), tags);
    let refused = Answer::Refused(Refusal::NotTheAuthor);
    assert_eq!(scene.sync(&issue), refused);
}

#[test]
fn what_is_not_stored_does_not_go_round_between_servers() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    let passing = forge::about(CAROL, 20_001, scene.unix(), "a", &address);
    scene.sync(&passing);
    assert!(!scene.announced.contains(&passing.id));
}

#[test]
fn relays_of_an_announcement_are_dialled_and_we_ourselves_are_not() {
    let mut scene = Scene::new();
    let us = scene.policy.service.clone();
    let relays = [
        "wss://other.example",
        "wss://OTHER.example:443/",
        "nonsense",
    ];
    let own = [
        "wss://relay.example",
        "ws://RELAY.EXAMPLE/",
        "wss://relay.example:443",
    ];
    assert!(own.iter().all(|url| us.is_relay_url(url)));
    let named = relays.iter().chain(&own).map(|url| (*url).to_owned());
    let named = named.collect();
    let announcement = forge::announcement_at(&tool(ALICE), scene.unix(), true, &[], named);
    assert_eq!(scene.publish(&announcement), Answer::Held);
    scene.pass(std::time::Duration::from_secs(6));
    let dialled = scene.asked.iter().filter_map(|ask| match ask {
        ToRelay::Dial { url, .. } => Some(url.to_string()),
        _ => None,
    });
    assert_eq!(dialled.collect::<Vec<_>>(), ["wss://other.example"]);
}

#[test]
fn a_state_that_waited_in_vain_does_not_come_back_with_an_older_one() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let newer = state(&scene, ALICE, &[(MAIN, forge::commit(2))]);
    assert_eq!(scene.sync(&newer), Answer::Held);
    scene.pass(scene.policy.limits.held_for + MINUTE);
    assert!(!scene.holds(&newer));
    let older = state_at(ALICE, newer.created_at.0 - 1, &[(MAIN, forge::commit(3))]);
    assert_eq!(scene.sync(&older), Answer::Held);
    assert_eq!(scene.sync(&newer), Answer::Duplicate, "it had its turn");
    scene.pass(24 * 60 * MINUTE);
    assert_eq!(scene.sync(&newer), Answer::Held, "once a day");
}

#[test]
fn an_update_that_came_before_the_repository_of_its_pull_request_is_taken_then() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    let (first, second) = (forge::commit(2), forge::commit(3).to_string());
    let repos = [tool(ALICE)];
    let request = forge::pull_request(CAROL, scene.unix(), &repos, &first.to_string());
    scene.sync(&request);
    let name = format!("refs/nostr/{}", request.id);
    scene.push(&tool(ALICE), &[(&name, Some(first))]).unwrap();
    assert!(scene.serves(&request));
    let gone = forge::deletion(ALICE, scene.unix() + 1, "a", &address);
    scene.publish(&gone);
    let update = forge::update(CAROL, scene.unix(), &request.id, &second);
    assert_eq!(scene.sync(&update), Answer::Refused(Refusal::Orphan));
    scene.pass(MINUTE);
    served(&mut scene, ALICE, &[]);
    assert_eq!(scene.sync(&update), Answer::Held);
}

#[test]
fn a_repository_that_left_and_came_back_at_once_keeps_its_issues() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    let issue = forge::about(CAROL, 1621, scene.unix(), "a", &address);
    scene.publish(&issue);
    scene.pass(MINUTE);
    scene.publish(&forge::deletion(ALICE, scene.unix(), "a", &address));
    scene.publish(&forge::announcement(
        &tool(ALICE),
        scene.unix() + 1,
        true,
        &[],
    ));
    scene.publish(&state_at(
        ALICE,
        scene.unix() + 1,
        &[(MAIN, forge::commit(1))],
    ));
    if scene.refs(&tool(ALICE)).is_empty() {
        let push = scene.push(&tool(ALICE), &[(MAIN, Some(forge::commit(1)))]);
        assert_eq!(push, Ok(()));
    }
    scene.pass(MINUTE);
    assert!(watches(&scene, &issue));
}

#[test]
fn an_update_that_was_stored_before_its_pull_request_is_watched_with_it() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let [first, second] = [7, 8].map(forge::commit);
    let request = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &first.to_string());
    let update = forge::update(CAROL, scene.unix(), &request.id, &second.to_string());
    scene.publish(&request);
    scene.publish(&update);
    let tip = |event: &Event| format!("refs/nostr/{}", event.id);
    scene
        .push(&tool(ALICE), &[(&tip(&update), Some(second))])
        .unwrap();
    assert!(scene.serves(&update) && scene.holds(&request));
    // A start knows what is stored before it knows what waits.
    scene.restart();
    scene
        .push(&tool(ALICE), &[(&tip(&request), Some(first))])
        .unwrap();
    assert!(scene.serves(&request));
    scene.pass(MINUTE);
    assert!(watches(&scene, &update) && watches(&scene, &request));
}

/// E4: an issue that names several repositories counts for all of them.
#[test]
fn an_issue_of_two_repositories_is_watched_for_both() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    served(&mut scene, BOB, &[]);
    let addresses = [ALICE, BOB].map(|of| forge::address(Kind::ANNOUNCEMENT, &tool(of)));
    let tags = addresses.iter().map(|address| forge::tag(&["a", address]));
    let issue = forge::event(CAROL, Kind(1621), scene.unix(), tags.collect());
    assert_eq!(scene.publish(&issue), Answer::Accepted);
    scene.pass(MINUTE);
    for owner in [ALICE, BOB] {
        assert!(watches_for(&scene, owner, &issue));
    }
    let gone = forge::deletion(BOB, scene.unix() + 1, "a", &addresses[1]);
    scene.publish(&gone);
    scene.pass(MINUTE);
    assert!(watches(&scene, &issue), "Alice's is still here");
    assert!(!watches_for(&scene, BOB, &issue));
}

/// Whether comments on it are asked for at the relays of Alice's repository.
fn watches(scene: &Scene, root: &Event) -> bool {
    watches_for(scene, ALICE, root)
}

fn watches_for(scene: &Scene, owner: Pubkey, root: &Event) -> bool {
    let repos = &scene.core.sync().targets().repos;
    let needs = repos.find(&tool(owner)).and_then(|ix| repos.get(ix));
    let root = repos.find_root(&root.id);
    root.is_some_and(|root| needs.is_some_and(|needs| needs.roots.contains(root.0)))
}
