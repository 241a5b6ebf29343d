//! Disks that lose objects: what is served has its data here, and comes back when the data does.

use grasp_core::git::{ObjectId, RefName};
use grasp_core::{GitTask, Kind, Repair};
use grasp_sim::forge::{self, commit};

use crate::scene::{CAROL, DEV, MAIN, MINUTE, Scene, refs, served, state, tool};
use crate::stage::{ALICE, BOB};

#[test]
fn a_state_whose_objects_are_lost_is_hidden_until_they_are_pushed_again() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2)), (DEV, commit(3))]);
    scene.publish(&event);
    let both = [(MAIN, Some(commit(2))), (DEV, Some(commit(3)))];
    scene.push(&tool(ALICE), &both).unwrap();
    assert!(scene.serves(&event));

    scene.git.lose_objects(&tool(ALICE), |id| *id == commit(3));
    scene.restart();
    assert!(!scene.serves(&event));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(2))]));
    assert!(scene.repairs.contains(&Repair::Hidden));
    assert!(scene.repairs.contains(&Repair::RefsDropped));

    scene.restart();
    assert!(!scene.serves(&event), "a second start changes nothing");
    scene.announced.clear();
    scene.push(&tool(ALICE), &[(DEV, Some(commit(3)))]).unwrap();
    assert!(scene.serves(&event));
    assert_eq!(scene.announced, [event.id], "news to those who came since");
    let whole = refs(&[(MAIN, commit(2)), (DEV, commit(3))]);
    assert_eq!(scene.refs(&tool(ALICE)), whole);
}

#[test]
fn a_pull_request_whose_commit_is_lost_goes_with_its_tip_and_comes_back_with_it() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let tip = commit(7);
    let event = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &tip.to_string());
    let name = format!("refs/nostr/{}", event.id);
    scene.push(&tool(ALICE), &[(&name, Some(tip))]).unwrap();
    scene.publish(&event);
    assert!(scene.serves(&event));

    scene.git.lose_objects(&tool(ALICE), |id| *id == tip);
    scene.restart();
    assert!(!scene.serves(&event));
    assert!(scene.repo(&tool(ALICE)).tips.is_empty());
    scene.pass(2 * 24 * 60 * MINUTE);
    scene.push(&tool(ALICE), &[(&name, Some(tip))]).unwrap();
    assert!(
        scene.serves(&event),
        "it was acknowledged, and waits for ever"
    );
    assert_eq!(scene.repo(&tool(ALICE)).tips.get(&event.id), Some(&tip));
}

#[test]
fn the_oldest_of_very_many_pull_requests_is_missed_as_the_newest_is() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let (at, lost) = (scene.unix() - 5_000, commit(7));
    let pull_request = |n: u64, tip: ObjectId| {
        let mut author = CAROL;
        author.0[0] = (n / 100) as u8;
        forge::pull_request(author, at + n, &[tool(ALICE)], &tip.to_string())
    };
    scene.git.take(&tool(ALICE), [lost]);
    let oldest = pull_request(0, lost);
    scene.import(&oldest);
    for n in 1..2_001 {
        scene.import(&pull_request(n, commit(1)));
    }
    assert!(scene.serves(&oldest));
    scene.git.lose_objects(&tool(ALICE), |id| *id == lost);
    scene.restart();
    scene.pass(MINUTE);
    assert!(!scene.serves(&oldest));
    assert!(!scene.repo(&tool(ALICE)).tips.contains_key(&oldest.id));
}

#[test]
fn another_maintainers_repository_gives_back_what_one_has_lost() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[BOB]);
    served(&mut scene, BOB, &[ALICE]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&event);
    scene
        .push(&tool(ALICE), &[(MAIN, Some(commit(2)))])
        .unwrap();
    scene.git.lose(&tool(ALICE));
    scene.restart();
    assert!(scene.serves(&event));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(2))]));
}

#[test]
fn a_lost_state_gives_way_to_a_newer_one() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    scene.git.lose(&tool(ALICE));
    scene.restart();
    let newer = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&newer);
    scene
        .push(&tool(ALICE), &[(MAIN, Some(commit(2)))])
        .unwrap();
    assert!(scene.serves(&newer));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(2))]));
}

#[test]
fn what_was_served_from_a_repository_that_is_gone_is_hidden_where_nobody_else_has_it() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    served(&mut scene, BOB, &[]);
    let tip = commit(7);
    let both = [tool(ALICE), tool(BOB)];
    let event = forge::pull_request(CAROL, scene.unix(), &both, &tip.to_string());
    let name = format!("refs/nostr/{}", event.id);
    scene.push(&tool(ALICE), &[(&name, Some(tip))]).unwrap();
    scene.publish(&event);
    assert!(scene.serves(&event));

    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    scene.publish(&forge::deletion(ALICE, scene.unix(), "a", &address));
    scene.pass(MINUTE);
    assert!(!scene.serves(&event), "the other repository never had it");
    scene.push(&tool(BOB), &[(&name, Some(tip))]).unwrap();
    assert!(scene.serves(&event));
}

#[test]
fn a_start_takes_away_what_a_kill_left_on_disk() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    served(&mut scene, BOB, &[]);
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    scene.git_fails = true;
    scene.publish(&forge::deletion(ALICE, scene.unix(), "a", &address));
    assert!(scene.git.get(&tool(ALICE)).is_some());
    scene.git_fails = false;
    // Made for an announcement that was never written.
    scene.git.perform(&tool(CAROL), &GitTask::Create).unwrap();
    scene.restart();
    assert!(scene.git.get(&tool(ALICE)).is_none());
    assert!(scene.git.get(&tool(CAROL)).is_none());
    assert!(scene.git.get(&tool(BOB)).is_some());
}

#[test]
fn a_start_sets_head_back_to_what_the_state_says() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let at = scene.unix();
    let tags = vec![
        forge::tag(&["d", "tool"]),
        forge::tag(&[MAIN, &commit(1).to_string()]),
        forge::tag(&["HEAD", &format!("ref: {MAIN}")]),
    ];
    let event = forge::event(ALICE, Kind::STATE, at, tags);
    scene.publish(&event);
    assert!(scene.serves(&event));
    let head = RefName::parse(MAIN);
    assert_eq!(scene.repo(&tool(ALICE)).head, head);

    scene.git.lose_head(&tool(ALICE));
    scene.restart();
    assert_eq!(scene.repo(&tool(ALICE)).head, head);
    assert_eq!(scene.repairs, [Repair::RefsSetBack]);
    scene.restart();
    assert_eq!(scene.repairs.len(), 1, "a second start finds it well");
}
