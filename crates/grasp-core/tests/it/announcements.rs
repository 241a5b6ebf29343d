//! Which repositories are hosted, from when, and until when.

use std::time::Duration;

use grasp_core::admit::Refusal;
use grasp_core::push::PushRefusal;
use grasp_core::registry::Standing;
use grasp_core::{Answer, GitTask, Lists, Policy, RepoPattern};
use grasp_sim::forge::{self, commit};

use crate::scene::{MAIN, MINUTE, Scene, announce, refs, served, state, tool};
use crate::stage::{ALICE, BOB, NOON};

#[test]
fn an_announcement_must_list_us_as_relay_and_as_git_server() {
    let mut scene = Scene::new();
    let elsewhere = forge::announcement(&tool(ALICE), NOON, false, &[]);
    assert_eq!(
        scene.publish(&elsewhere),
        Answer::Refused(Refusal::NotListed)
    );
    let npub = ALICE.npub();
    let good = format!("https://relay.example/{npub}/tool.git");
    for (clone, relay, taken) in [
        (good.as_str(), "wss://relay.example", true),
        (good.as_str(), "wss://elsewhere.example", false),
        (
            "https://relay.example/tool.git",
            "wss://relay.example",
            false,
        ),
        (good.as_str(), "wss://relay.example.evil.org", false),
        (good.as_str(), "", false),
    ] {
        let tags = [["d", "tool"], ["clone", clone], ["relays", relay]];
        let tags = tags.iter().map(|tag| forge::tag(tag)).collect();
        let event = forge::event(ALICE, grasp_core::Kind::ANNOUNCEMENT, NOON, tags);
        let answer = Scene::new().publish(&event);
        assert_eq!(answer == Answer::Held, taken, "{clone} {relay}: {answer:?}");
    }
}

#[test]
fn the_repository_is_there_before_its_owner_hears_that_the_announcement_is_held() {
    let mut scene = Scene::new();
    let event = announce(&scene, ALICE, &[]);
    assert_eq!(scene.publish(&event), Answer::Held);
    assert_eq!(scene.tasks.first(), Some(&(tool(ALICE), GitTask::Create)));
    assert!(scene.holds(&event) && !scene.serves(&event));
    assert_eq!(scene.announced, []);

    scene.git_fails = true;
    let other = announce(&scene, BOB, &[]);
    assert_eq!(
        scene.publish(&other),
        Answer::Refused(Refusal::StoreFailed),
        "no repository, no promise"
    );
    assert!(!scene.holds(&other));
}

#[test]
fn a_state_and_its_push_release_an_announcement() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    let state = state(&scene, ALICE, &[(MAIN, commit(1))]);
    assert_eq!(scene.publish(&state), Answer::Held);
    let push = scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]);
    assert_eq!(push, Ok(()));
    assert!(scene.serves(&announcement) && scene.serves(&state));
    assert!(scene.disk.held.is_empty());
    assert_eq!(scene.announced, [announcement.id, state.id]);
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(1))]));
}

#[test]
fn neither_a_tip_nor_a_push_of_nothing_nor_an_empty_state_releases_an_announcement() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    let empty = state(&scene, ALICE, &[]);
    assert_eq!(scene.publish(&empty), Answer::Held);
    let tip = format!("refs/nostr/{}", "a".repeat(64));
    assert_eq!(scene.push(&tool(ALICE), &[(&tip, Some(commit(5)))]), Ok(()));
    assert_eq!(scene.push(&tool(ALICE), &[(MAIN, None)]), Ok(()));
    assert!(!scene.serves(&announcement) && !scene.serves(&empty));
}

#[test]
fn an_announcement_that_replaces_a_served_one_is_stored_at_once() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let newer = announce(&scene, ALICE, &[BOB]);
    assert_eq!(scene.publish(&newer), Answer::Accepted);
    assert!(scene.serves(&newer));
    let older = forge::announcement(&tool(ALICE), NOON + 1, true, &[]);
    assert_eq!(scene.publish(&older), Answer::Refused(Refusal::Replaced));
    assert_eq!(scene.publish(&newer), Answer::Duplicate);
}

#[test]
fn a_newer_held_announcement_stands_in_place_of_the_older() {
    let mut scene = Scene::new();
    let older = announce(&scene, ALICE, &[]);
    scene.publish(&older);
    scene.pass(MINUTE);
    let newer = announce(&scene, ALICE, &[BOB]);
    assert_eq!(scene.publish(&newer), Answer::Held);
    assert!(scene.holds(&newer) && !scene.holds(&older));
    assert_eq!(scene.publish(&older), Answer::Refused(Refusal::Replaced));
}

#[test]
fn after_half_an_hour_the_repository_goes_and_its_announcement_is_remembered_for_a_day() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    scene.pass(29 * MINUTE);
    assert!(scene.git.get(&tool(ALICE)).is_some());
    scene.pass(2 * MINUTE);
    assert!(scene.git.get(&tool(ALICE)).is_none());
    assert!(scene.holds(&announcement), "kept in mind");
    let push = scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]);
    assert_eq!(push, Err(PushRefusal::NotHosted));

    scene.pass(25 * 60 * MINUTE);
    assert!(!scene.holds(&announcement));
    assert_eq!(scene.core.registry().standing(&tool(ALICE)), None);
}

#[test]
fn a_late_state_revives_a_remembered_announcement() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    scene.pass(5 * 60 * MINUTE);
    assert!(scene.git.get(&tool(ALICE)).is_none());
    let state = state(&scene, ALICE, &[(MAIN, commit(1))]);
    assert_eq!(scene.publish(&state), Answer::Held);
    let push = scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]);
    assert_eq!(push, Ok(()));
    assert!(scene.serves(&announcement) && scene.serves(&state));
}

#[test]
fn a_remembered_announcement_that_comes_again_is_hosted_again() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    scene.pass(60 * MINUTE);
    assert_eq!(scene.publish(&announcement), Answer::Held);
    assert!(scene.git.get(&tool(ALICE)).is_some());
    let row = scene.disk.held.get(&announcement.id).unwrap();
    assert!(!row.remembered);
}

#[test]
fn a_state_that_still_waits_keeps_the_repository_for_its_own_half_hour() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    scene.pass(20 * MINUTE);
    let state = state(&scene, ALICE, &[(MAIN, commit(1))]);
    scene.publish(&state);
    scene.pass(25 * MINUTE);
    let push = scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]);
    assert_eq!(push, Ok(()));
    assert!(scene.serves(&announcement));
}

#[test]
fn two_owners_of_one_identifier_have_nothing_to_do_with_each_other() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let held = announce(&scene, BOB, &[]);
    assert_eq!(scene.publish(&held), Answer::Held);
    let of_bob = state(&scene, BOB, &[(MAIN, commit(2))]);
    scene.publish(&of_bob);
    let push = scene.push(&tool(ALICE), &[(MAIN, Some(commit(2)))]);
    assert!(matches!(push, Err(PushRefusal::NoState)), "{push:?}");
    assert_eq!(scene.push(&tool(BOB), &[(MAIN, Some(commit(2)))]), Ok(()));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(1))]));
    assert_eq!(scene.refs(&tool(BOB)), refs(&[(MAIN, commit(2))]));
}

#[test]
fn the_operators_lists_decide_which_repositories_and_authors_are_taken() {
    let with = |lists: Lists| Policy {
        lists,
        ..grasp_sim::policy(grasp_core::Limits::default())
    };
    let refused = |lists: Lists| {
        let mut scene = Scene::with(with(lists));
        let event = announce(&scene, ALICE, &[]);
        match scene.publish(&event) {
            Answer::Refused(refusal) => Some(refusal),
            _ => None,
        }
    };
    let only = |pattern| Lists {
        repositories: vec![pattern],
        ..Lists::default()
    };
    let never = |pattern| Lists {
        no_repositories: vec![pattern],
        ..Lists::default()
    };
    let blocked = Some(Refusal::RepositoryBlocked);
    assert_eq!(refused(only(RepoPattern::Owner(ALICE))), None);
    assert_eq!(refused(only(RepoPattern::Owner(BOB))), blocked);
    assert_eq!(refused(never(RepoPattern::Repo(tool(ALICE)))), blocked);
    assert_eq!(refused(never(RepoPattern::Repo(tool(BOB)))), None);
    assert_eq!(
        refused(never(RepoPattern::Identifier("tool".to_owned()))),
        blocked
    );
    let authors = Lists {
        no_authors: vec![ALICE],
        ..Lists::default()
    };
    assert_eq!(refused(authors), Some(Refusal::AuthorBlocked));
}

#[test]
fn an_owner_who_moves_elsewhere_takes_the_repository_away() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[BOB]);
    served(&mut scene, BOB, &[ALICE]);
    let moved = forge::announcement(&tool(BOB), scene.unix(), false, &[ALICE]);
    assert_eq!(
        scene.publish(&moved),
        Answer::Accepted,
        "a served repository invites its author"
    );
    assert!(scene.git.get(&tool(BOB)).is_none());
    assert_eq!(scene.core.registry().hosting(&tool(BOB)), None);
    assert!(scene.core.registry().is_maintainer(&tool(ALICE), &BOB));
    let served = scene.core.registry().hosting(&tool(ALICE));
    assert_eq!(served, Some(Standing::Served));
}

#[test]
fn a_repository_that_comes_back_after_its_deletion_takes_the_same_state_again() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let address = forge::address(grasp_core::Kind::ANNOUNCEMENT, &tool(ALICE));
    let deletion = forge::deletion(ALICE, scene.unix(), "a", &address);
    assert_eq!(scene.publish(&deletion), Answer::Accepted);
    assert!(scene.git.get(&tool(ALICE)).is_none(), "put aside");

    scene.pass(Duration::from_secs(5));
    let again = announce(&scene, ALICE, &[]);
    assert_eq!(scene.publish(&again), Answer::Held);
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[]));
    let push = scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]);
    assert_eq!(push, Ok(()), "the state in the store still says so");
    assert!(scene.serves(&again));
}

#[test]
fn a_repository_ends_when_its_announcement_says_so() {
    for restarts in [false, true] {
        let mut scene = Scene::new();
        let plain = announce(&scene, ALICE, &[]);
        let mut tags = plain.tags.clone();
        let end = scene.unix() + 3600;
        tags.push(vec!["expiration".to_owned(), end.to_string()]);
        let announcement = forge::event(ALICE, plain.kind, plain.created_at.0, tags);
        scene.publish(&announcement);
        let first = state(&scene, ALICE, &[(MAIN, commit(1))]);
        scene.publish(&first);
        assert_eq!(scene.push(&tool(ALICE), &[(MAIN, Some(commit(1)))]), Ok(()));
        if restarts {
            scene.restart();
        }
        scene.pass(58 * MINUTE);
        assert!(scene.core.registry().is_hosted(&tool(ALICE)));
        scene.pass(5 * MINUTE);
        assert!(!scene.serves(&announcement));
        assert!(!scene.core.registry().is_hosted(&tool(ALICE)));
        assert!(scene.git.get(&tool(ALICE)).is_none(), "put aside");
        let again = announce(&scene, ALICE, &[]);
        assert_eq!(scene.publish(&again), Answer::Held, "it begins anew");
    }
}
