//! What an event may take of the disk.

use std::sync::Arc;

use grasp_core::admit::Refusal;
use grasp_core::{Answer, Event, Input, Kind, Limits, Pubkey, SyncLimits, nip34};
use grasp_sim::forge::{self, commit};

use crate::scene::{CAROL, MAIN, MALLORY, Scene, announce, served, state, tool};
use crate::stage::{ALICE, BOB};

const FULL: Answer = Answer::Refused(Refusal::DiskFull);

fn issue(scene: &Scene, by: Pubkey, text: &str) -> Arc<Event> {
    let tags = vec![
        forge::tag(&["a", &forge::address(Kind::ANNOUNCEMENT, &tool(ALICE))]),
        forge::tag(&["subject", text]),
    ];
    forge::event(by, nip34::ISSUE, scene.unix(), tags)
}

#[test]
fn on_a_full_disk_only_maintainers_and_deletions_are_written() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let written = issue(&scene, CAROL, "before");
    assert_eq!(scene.publish(&written), Answer::Accepted);
    scene.feed(Input::DiskLow(true));
    let by_stranger = issue(&scene, CAROL, "after");
    assert_eq!(scene.publish(&by_stranger), FULL);
    let announcement = announce(&scene, BOB, &[]);
    assert_eq!(scene.publish(&announcement), FULL);
    let by_owner = issue(&scene, ALICE, "mine");
    assert_eq!(scene.publish(&by_owner), Answer::Accepted);
    let next = state(&scene, ALICE, &[(MAIN, commit(2))]);
    assert_eq!(scene.publish(&next), Answer::Held);
    let deletion = forge::deletion(CAROL, scene.unix(), "e", &written.id.to_string());
    assert_eq!(scene.publish(&deletion), Answer::Accepted);
    let of_nothing = forge::deletion(MALLORY, scene.unix(), "e", &written.id.to_string());
    assert_eq!(scene.publish(&of_nothing), FULL);
    scene.feed(Input::DiskLow(false));
    assert_eq!(scene.publish(&by_stranger), Answer::Accepted);
}

#[test]
fn what_sync_brings_in_a_day_is_bounded_for_a_key_and_for_a_repository() {
    let sync = SyncLimits {
        key_bytes_per_day: 10_000,
        repository_bytes_per_day: 20_000,
        ..SyncLimits::default()
    };
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        sync,
        ..Limits::default()
    }));
    served(&mut scene, ALICE, &[]);
    let mut flood = |by| -> Vec<bool> {
        let text = |n: usize| format!("{n} {}", "x".repeat(2_000));
        let mut brought = |n| {
            let event = issue(&scene, by, &text(n));
            scene.sync(&event) == Answer::Accepted
        };
        (0..5).map(&mut brought).collect()
    };
    // Three kilobytes and more for each: three of a key, six of a repository.
    assert_eq!(flood(MALLORY), [true, true, false, false, false]);
    assert_eq!(flood(CAROL), [true, true, false, false, false]);
    assert_eq!(flood(BOB).iter().filter(|taken| **taken).count(), 1);
    let own = issue(&scene, ALICE, &"x".repeat(2_000));
    assert_eq!(scene.sync(&own), Answer::Accepted, "a maintainer");
    let own = issue(&scene, MALLORY, "by a client");
    assert_eq!(scene.publish(&own), Answer::Accepted);
}

#[test]
fn what_a_client_publishes_in_a_day_is_bounded_for_its_address_and_for_a_key() {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        published_bytes_per_day_per_ip: 20_000,
        published_bytes_per_day_per_key: 10_000,
        ..Limits::default()
    }));
    served(&mut scene, ALICE, &[]);
    let mut flood = |by, from: &str| -> usize {
        let text = |n: usize| format!("{from} {n} {}", "x".repeat(2_000));
        let mut taken = |n: &usize| {
            let event = issue(&scene, by, &text(*n));
            scene.publish_from(from, &event) == Answer::Accepted
        };
        (0..5).filter(&mut taken).count()
    };
    // Three kilobytes and more for each.
    assert_eq!(flood(MALLORY, "203.0.113.1"), 2);
    assert_eq!(flood(MALLORY, "203.0.113.2"), 0, "of the key");
    assert_eq!(flood(CAROL, "203.0.113.1"), 2);
    assert_eq!(flood(BOB, "203.0.113.1"), 1, "of the address");
    assert_eq!(
        flood(ALICE, "203.0.113.1"),
        1,
        "a maintainer has his own day"
    );
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    let mut tags = vec![forge::tag(&["a", &address])];
    tags.extend((0..100).map(|n| forge::tag(&["t", &n.to_string()])));
    let many_rows = forge::event(BOB, nip34::ISSUE, scene.unix(), tags);
    assert!(many_rows.json().len() < 3_000);
    let answer = scene.publish_from("203.0.113.3", &many_rows);
    assert_eq!(
        answer,
        Answer::Refused(Refusal::PublishedQuota),
        "rows count"
    );
}

#[test]
fn whoever_replays_what_an_author_deleted_uses_up_nobodys_day() {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        published_bytes_per_day_per_key: 20_000,
        ..Limits::default()
    }));
    served(&mut scene, ALICE, &[]);
    let gone = issue(&scene, CAROL, &"x".repeat(2_000));
    assert_eq!(scene.publish(&gone), Answer::Accepted);
    let deletion = forge::deletion(CAROL, scene.unix(), "e", &gone.id.to_string());
    assert_eq!(scene.publish(&deletion), Answer::Accepted);
    for _ in 0..20 {
        let again = scene.publish_from("203.0.113.1", &gone);
        assert_eq!(again, Answer::Refused(Refusal::Deleted));
    }
    let next = issue(&scene, CAROL, &"y".repeat(2_000));
    assert_eq!(scene.publish(&next), Answer::Accepted);
}
