//! What waits: its bounds, its end, and what a deletion does to it.

use grasp_core::admit::Refusal;
use grasp_core::{Answer, Kind, Limits, Pubkey, RepoId};
use grasp_sim::forge::{self, commit};

use crate::scene::{CAROL, MAIN, MALLORY, MINUTE, Scene, announce, refs, served, state, tool};
use crate::stage::{ALICE, BOB};

#[test]
fn a_second_copy_is_answered_like_the_first() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    assert_eq!(scene.publish(&announcement), Answer::Held);
    assert_eq!(scene.publish(&announcement), Answer::Held);
    assert_eq!(scene.disk.held.len(), 1);
}

#[test]
fn a_deletion_by_id_reaches_held_events_of_its_author() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&event);
    let id = event.id.to_string();
    scene.publish(&forge::deletion(MALLORY, scene.unix(), "e", &id));
    assert!(scene.holds(&event));
    scene.publish(&forge::deletion(ALICE, scene.unix(), "e", &id));
    assert!(!scene.holds(&event));
    assert_eq!(scene.publish(&event), Answer::Refused(Refusal::Deleted));
    assert!(
        scene
            .push(&tool(ALICE), &[(MAIN, Some(commit(2)))])
            .is_err()
    );
}

#[test]
fn a_deletion_by_address_reaches_held_events_up_to_its_time() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    scene.publish(&announcement);
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    let before = forge::deletion(ALICE, scene.unix() - 1, "a", &address);
    scene.publish(&before);
    assert!(scene.holds(&announcement));
    let after = forge::deletion(ALICE, scene.unix(), "a", &address);
    scene.publish(&after);
    assert!(!scene.holds(&announcement));
    assert!(scene.git.get(&tool(ALICE)).is_none(), "with its repository");
    assert_eq!(
        scene.publish(&announcement),
        Answer::Refused(Refusal::Deleted)
    );
}

#[test]
fn held_events_are_found_by_their_address_without_a_look_at_the_others() {
    let mut scene = Scene::new();
    let repos: Vec<_> = (0..50)
        .map(|n| forge::repo(ALICE, &format!("r{n}")))
        .collect();
    for repo in &repos {
        scene.publish(&forge::announcement(repo, scene.unix(), true, &[]));
    }
    let at = |scene: &Scene, repo| {
        let address = RepoId::address(repo, Kind::ANNOUNCEMENT);
        scene.core.purgatory().at(&address).count()
    };
    assert!(repos.iter().all(|repo| at(&scene, repo) == 1));
    let deleted = repos.iter().skip(1);
    let named = deleted.map(|repo| forge::address(Kind::ANNOUNCEMENT, repo));
    let tags =
        named.flat_map(|address| [forge::tag(&["a", &address]), forge::tag(&["a", &address])]);
    let deletion = forge::event(ALICE, Kind::DELETION, scene.unix(), tags.collect());
    scene.publish(&deletion);
    assert_eq!(scene.core.purgatory().len(), 1);
    assert_eq!(at(&scene, &repos[0]), 1);
    assert_eq!(at(&scene, &repos[1]), 0);
}

#[test]
fn one_author_cannot_fill_it() {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        held_per_key: 2,
        ..Limits::default()
    }));
    served(&mut scene, ALICE, &[]);
    let mut ask = |author, n: u32| {
        let tip = commit(100 + n).to_string();
        let event = forge::pull_request(author, scene.unix(), &[tool(ALICE)], &tip);
        scene.publish(&event)
    };
    assert_eq!(ask(CAROL, 1), Answer::Held);
    assert_eq!(ask(CAROL, 2), Answer::Held);
    assert_eq!(ask(CAROL, 3), Answer::Refused(Refusal::TooManyHeld));
    assert_eq!(ask(BOB, 4), Answer::Held);
}

#[test]
fn all_authors_together_cannot_overfill_it() {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        held_events: 1,
        ..Limits::default()
    }));
    let one = announce(&scene, ALICE, &[]);
    let other = announce(&scene, BOB, &[]);
    assert_eq!(scene.publish(&one), Answer::Held);
    assert_eq!(
        scene.publish(&other),
        Answer::Refused(Refusal::PurgatoryFull)
    );
    assert!(scene.git.get(&tool(BOB)).is_none());
    scene.pass(26 * 60 * MINUTE);
    assert_eq!(scene.publish(&other), Answer::Held);
}

#[test]
fn a_held_state_goes_after_half_an_hour() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    scene.publish(&event);
    scene.pass(29 * MINUTE);
    assert!(scene.holds(&event));
    scene.pass(2 * MINUTE);
    assert!(!scene.holds(&event));
    assert!(
        scene
            .push(&tool(ALICE), &[(MAIN, Some(commit(2)))])
            .is_err()
    );
}

/// Keys that nobody knows.
fn strangers(n: u8) -> impl Iterator<Item = Pubkey> {
    (0..n).map(|n| Pubkey([200 + n; 32]))
}

#[test]
fn what_has_expired_takes_nobodys_room() {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        held_events: 4,
        held_per_key: 1,
        ..Limits::default()
    }));
    for stranger in strangers(3) {
        let announcement = announce(&scene, stranger, &[]);
        assert_eq!(scene.publish(&announcement), Answer::Held);
    }
    let late = announce(&scene, ALICE, &[]);
    let full = Answer::Refused(Refusal::PurgatoryFull);
    assert_eq!(scene.publish(&late), full);
    scene.pass(31 * MINUTE);
    assert_eq!(scene.publish(&late), Answer::Held);
    let again = strangers(1).map(|stranger| forge::repo(stranger, "other"));
    for repo in again {
        let other = forge::announcement(&repo, scene.unix(), true, &[]);
        assert_eq!(
            scene.publish(&other),
            Answer::Held,
            "nor that of its author"
        );
    }
}

#[test]
fn of_too_many_that_have_expired_the_oldest_is_forgotten() {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        remembered_announcements: 2,
        ..Limits::default()
    }));
    let mut announcements = Vec::new();
    for stranger in strangers(3) {
        let announcement = announce(&scene, stranger, &[]);
        assert_eq!(scene.publish(&announcement), Answer::Held);
        announcements.push(announcement);
        scene.pass(MINUTE);
    }
    scene.pass(31 * MINUTE);
    let kept: Vec<bool> = announcements.iter().map(|kept| scene.holds(kept)).collect();
    assert_eq!(kept, [false, true, true]);
    let first = announcements.first().unwrap();
    assert!(scene.disk.has_rested(&first.id), "sync leaves it alone");
    scene.restart();
    let late = |owner| state(&scene, owner, &[(MAIN, commit(1))]);
    let late: Vec<_> = strangers(3).map(late).collect();
    let answers: Vec<Answer> = late.iter().map(|state| scene.publish(state)).collect();
    let unknown = Answer::Refused(Refusal::NotMaintainer);
    assert_eq!(answers, [unknown, Answer::Held, Answer::Held]);
    assert_eq!(scene.core.purgatory().kept_in_mind().events, 0);
}

/// Announcements of strangers who all use one address.
fn flood(scene: &mut Scene, ip: &str, identifiers: usize) -> Vec<Answer> {
    let mut answers = Vec::new();
    for stranger in strangers(12) {
        for n in 0..identifiers {
            let repo = forge::repo(stranger, &format!("r{n}"));
            let announcement = forge::announcement(&repo, scene.unix(), true, &[]);
            answers.push(scene.publish_from(ip, &announcement));
        }
    }
    answers
}

fn held(answers: &[Answer]) -> usize {
    let held = answers.iter().filter(|answer| **answer == Answer::Held);
    held.count()
}

#[test]
fn one_address_with_many_keys_cannot_fill_it() {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        held_events: 160,
        ..Limits::default()
    }));
    let answers = flood(&mut scene, "192.0.2.1", 15);
    assert_eq!(held(&answers), 10, "a sixteenth");
    let refused = Answer::Refused(Refusal::TooManyHeldFromAddress);
    assert_eq!(answers.last(), Some(&refused));
    let announcement = announce(&scene, ALICE, &[]);
    assert_eq!(scene.publish_from("192.0.2.2", &announcement), Answer::Held);
}

#[test]
fn when_it_is_full_whoever_holds_most_loses_the_oldest() {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        held_events: 64,
        held_per_key: 1,
        ..Limits::default()
    }));
    // Sixteen addresses with three events each: all that strangers may have.
    let mut waiting = Vec::new();
    for n in 0..48_u8 {
        let announcement = announce(&scene, Pubkey([100 + n; 32]), &[]);
        let ip = format!("192.0.2.{}", n / 3);
        assert_eq!(scene.publish_from(&ip, &announcement), Answer::Held);
        waiting.push(announcement);
        scene.pass(std::time::Duration::from_secs(1));
    }
    let late = announce(&scene, ALICE, &[]);
    assert_eq!(scene.publish_from("198.51.100.1", &late), Answer::Held);
    let lost: Vec<usize> = (0..48).filter(|n| !scene.holds(&waiting[*n])).collect();
    assert_eq!(lost, [45], "the oldest of the last of equals");
    let more = announce(&scene, BOB, &[]);
    let full = Answer::Refused(Refusal::PurgatoryFull);
    let answer = scene.publish_from("192.0.2.3", &more);
    assert_eq!(answer, full, "nobody loses to an equal");
}

#[test]
fn an_announcement_that_waits_is_small() {
    let mut scene = Scene::new();
    let announcement = announce(&scene, ALICE, &[]);
    let mut tags = announcement.tags.clone();
    tags.push(vec!["description".to_owned(), "x".repeat(32 * 1024)]);
    let (kind, at) = (announcement.kind, announcement.created_at.0);
    let large = forge::event(ALICE, kind, at + 1, tags);
    let refused = Answer::Refused(Refusal::TooLargeToHold(32 * 1024));
    assert_eq!(scene.publish(&large), refused);
    assert_eq!(scene.publish(&announcement), Answer::Held);
}

#[test]
fn one_author_cannot_fill_it_with_large_events() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let text = "x".repeat(180 * 1024);
    let tip = commit(9).to_string();
    let mut ask = |author, n: u64| {
        let event = forge::pull_request(author, scene.unix() + n, &[tool(ALICE)], &tip);
        let mut tags = event.tags.clone();
        tags.push(vec!["alt".to_owned(), text.clone()]);
        scene.publish(&forge::event(author, event.kind, event.created_at.0, tags))
    };
    let answers: Vec<Answer> = (0..23).map(|n| ask(CAROL, n)).collect();
    let (last, before) = answers.split_last().unwrap();
    assert!(before.iter().all(|answer| *answer == Answer::Held));
    assert_eq!(*last, Answer::Refused(Refusal::TooManyHeld), "4 MiB");
    assert_eq!(ask(BOB, 0), Answer::Held);
}

#[test]
fn strangers_cannot_stop_pushes_to_a_served_repository() {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        held_events: 4,
        ..Limits::default()
    }));
    served(&mut scene, ALICE, &[]);
    for stranger in strangers(3) {
        let announcement = announce(&scene, stranger, &[]);
        assert_eq!(scene.publish(&announcement), Answer::Held);
    }
    let full = Answer::Refused(Refusal::PurgatoryFull);
    let one_more = announce(&scene, CAROL, &[]);
    assert_eq!(scene.publish(&one_more), full);
    let first = strangers(1).next().unwrap();
    let of_held = state(&scene, first, &[(MAIN, commit(2))]);
    assert_eq!(scene.publish(&of_held), full);

    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    assert_eq!(scene.publish(&event), Answer::Held);
    assert_eq!(scene.push(&tool(ALICE), &[(MAIN, Some(commit(2)))]), Ok(()));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, commit(2))]));
}

#[test]
fn maintainers_of_ones_own_repository_do_not_fill_it_for_the_others() {
    let mut scene = Scene::with(grasp_sim::policy(Limits {
        held_events: 64,
        ..Limits::default()
    }));
    served(&mut scene, ALICE, &[]);
    served(&mut scene, MALLORY, &[]);
    // What a relay of his own brings for his own repository, more than there is room for.
    let tip = commit(9).to_string();
    let flood = |scene: &mut Scene, n: u64| {
        let at = scene.unix() + n;
        scene.sync(&forge::pull_request(MALLORY, at, &[tool(MALLORY)], &tip))
    };
    let answers: Vec<Answer> = (0..70).map(|n| flood(&mut scene, n)).collect();
    assert_eq!(held(&answers), 64, "what is free is anybody's");
    let announcement = announce(&scene, CAROL, &[]);
    assert_eq!(scene.publish_from("192.0.2.1", &announcement), Answer::Held);
    let event = state(&scene, ALICE, &[(MAIN, commit(2))]);
    assert_eq!(scene.publish_from("192.0.2.2", &event), Answer::Held);
    let full = Answer::Refused(Refusal::PurgatoryFull);
    assert_eq!(flood(&mut scene, 100), full, "he has most of all");
    // A quarter is for maintainers: his, and the state of the other one.
    for n in 0..60_u8 {
        let announcement = announce(&scene, Pubkey([100 + n; 32]), &[]);
        scene.publish_from(&format!("192.0.2.{}", 10 + n), &announcement);
    }
    assert_eq!(scene.held_by(&MALLORY) + scene.held_by(&ALICE), 16);
}
