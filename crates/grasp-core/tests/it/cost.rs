//! What one input costs the only thread that decides, in events that are read whole.

use std::sync::Arc;

use grasp_core::admit::Refusal;
use grasp_core::{Answer, Event, EventId, Kind, Pubkey};
use grasp_sim::forge::{self, commit};

use crate::scene::{CAROL, MALLORY, MINUTE, Scene, announce, served, tool};
use crate::stage::ALICE;

/// Of everybody else.
fn key(n: u8) -> Pubkey {
    let mut key = [200; 32];
    key[0] = n;
    Pubkey(key)
}

/// Pull requests at a commit that is here, which are served at once.
fn propose(scene: &mut Scene, many: u64) -> Vec<Arc<Event>> {
    let tip = commit(1).to_string();
    let made = |n| forge::pull_request(CAROL, scene.unix() - n, &[tool(ALICE)], &tip);
    let made: Vec<_> = (0..many).map(made).collect();
    for event in &made {
        scene.import(event);
        assert!(scene.serves(event));
    }
    made
}

/// A2.
#[test]
fn an_event_that_names_many_others_reads_none_of_them() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let mut tags = Vec::new();
    for n in 0..64 {
        let list = forge::about(key(n), 10_317, scene.unix(), "g", "wss://relay.example");
        assert_eq!(scene.publish(&list), Answer::Accepted);
        tags.push(forge::tag(&["a", &format!("10317:{}:", key(n))]));
    }
    scene.reads.take_most();
    let orphan = forge::event(MALLORY, Kind(1), scene.unix(), tags);
    assert_eq!(scene.publish(&orphan), Answer::Refused(Refusal::Orphan));
    assert_eq!(scene.reads.take_most(), 0);
}

/// A3.
#[test]
fn a_new_version_of_an_announcement_reads_no_pull_request() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    propose(&mut scene, 100);
    // Somebody's update waits elsewhere for a pull request that is not here.
    let early = forge::update(
        CAROL,
        scene.unix(),
        &EventId([77; 32]),
        &commit(1).to_string(),
    );
    assert_eq!(scene.sync(&early), Answer::Refused(Refusal::Orphan));
    scene.reads.take_most();
    for _ in 0..3 {
        scene.pass(MINUTE);
        scene.publish(&announce(&scene, ALICE, &[]));
        scene.publish(&announce(&scene, ALICE, &[key(1)]));
    }
    let most = scene.reads.take_most();
    assert!(most <= 4, "{most}");
}

/// A3: the repository goes and comes back, with all that is known of it.
#[test]
fn a_repository_that_comes_back_without_its_objects_reads_few_pull_requests_at_once() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    propose(&mut scene, 100);
    scene.pass(MINUTE);
    scene.reads.take_most();
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    let deletion = forge::deletion(ALICE, scene.unix(), "a", &address);
    assert_eq!(scene.publish(&deletion), Answer::Accepted);
    assert!(scene.git.get(&tool(ALICE)).is_none());
    scene.pass(MINUTE);
    scene.publish(&announce(&scene, ALICE, &[]));
    scene.pass(MINUTE);
    let most = scene.reads.take_most();
    assert!(most <= 20, "{most}");
}

/// A3: every repository is compared with its disk, at the start and when something changes.
#[test]
fn a_check_of_a_repository_reads_no_pull_request() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let made = propose(&mut scene, 100);
    scene.reads.take_most();
    scene.restart();
    assert!(made.iter().all(|event| scene.serves(event)));
    let most = scene.reads.take_most();
    assert!(most <= 4, "{most}");
}
