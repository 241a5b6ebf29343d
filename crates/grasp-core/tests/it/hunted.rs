//! Git data that is looked for at other git servers, seen from the whole core (G1, G2, G6, G7, G8, G11).

use grasp_core::Answer;
use grasp_sim::forge;

use crate::scene::{CAROL, DEV, MAIN, MINUTE, Scene, V1, refs, served, state, state_at, tool};
use crate::stage::{ALICE, BOB};

const ONE: &str = "https://one.example/tool.git";
const TWO: &str = "https://two.example/tool.git";
const MOMENT: std::time::Duration = std::time::Duration::from_millis(500);

/// Alice's "tool", announced with other servers, and nothing of it is here.
fn announced(scene: &mut Scene, clones: &[&str]) {
    let announcement = forge::announcement_with_clones(&tool(ALICE), scene.unix(), &[], clones);
    assert_eq!(scene.sync(&announcement), Answer::Held);
}

#[test]
fn a_repository_fills_itself_from_its_announcement_and_state() {
    let mut scene = Scene::new();
    announced(&mut scene, &[ONE]);
    let first = state(
        &scene,
        ALICE,
        &[(MAIN, forge::commit(1)), (V1, forge::tag_object(2))],
    );
    assert_eq!(scene.sync(&first), Answer::Held);
    assert!(scene.fetches.is_empty(), "bursts end within half a second");
    scene.pass(MOMENT);
    assert_eq!(scene.asked_of(), [ONE]);
    scene.fetched(ONE, &[forge::commit(1), forge::tag_object(2)]);
    assert!(scene.serves(&first), "G6: at once, and nobody pushed");
    let expected = refs(&[(MAIN, forge::commit(1)), (V1, forge::tag_object(2))]);
    assert_eq!(scene.refs(&tool(ALICE)), expected);
    assert!(scene.core.hunt().is_empty(), "G8");
}

/// The state is looked for in the repository of its author as soon as there is one.
#[test]
fn the_hunt_follows_a_state_to_another_repository() {
    let mut scene = Scene::new();
    let bobs = forge::announcement(&tool(BOB), scene.unix(), true, &[ALICE]);
    let alices = forge::announcement(&tool(ALICE), scene.unix(), false, &[BOB]);
    scene.sync(&bobs);
    scene.sync(&alices);
    let first = state(&scene, ALICE, &[(MAIN, forge::commit(1))]);
    assert_eq!(scene.sync(&first), Answer::Held);
    scene.pass(MINUTE);
    let later = scene.unix();
    let here = forge::announcement_with_clones(&tool(ALICE), later, &[BOB], &[ONE]);
    assert_eq!(scene.sync(&here), Answer::Held);
    scene.pass(MINUTE);
    let asked = scene.fetches.iter().map(|(_, ask)| ask);
    let mut asked = asked.filter(|ask| ask.repo == tool(ALICE));
    assert!(asked.any(|ask| ask.url.as_str() == ONE));
}

#[test]
fn after_a_users_event_the_push_has_three_minutes() {
    let mut scene = Scene::new();
    announced(&mut scene, &[ONE]);
    let first = state(&scene, ALICE, &[(MAIN, forge::commit(1))]);
    scene.publish(&first);
    scene.pass(2 * MINUTE);
    assert!(scene.fetches.is_empty());
    scene.pass(MINUTE);
    assert_eq!(scene.asked_of(), [ONE]);
}

#[test]
fn a_push_that_brings_the_data_ends_the_hunt() {
    let mut scene = Scene::new();
    announced(&mut scene, &[ONE]);
    let first = state(&scene, ALICE, &[(MAIN, forge::commit(1))]);
    scene.sync(&first);
    scene.pass(MOMENT);
    let fetch = scene.fetches[0].0;
    scene
        .push(&tool(ALICE), &[(MAIN, Some(forge::commit(1)))])
        .unwrap();
    assert!(scene.serves(&first));
    assert_eq!(scene.stopped, [fetch]);
    assert!(scene.core.hunt().is_empty());
}

#[test]
fn parts_come_from_several_servers_and_each_event_by_its_own_objects() {
    let mut scene = Scene::new();
    announced(&mut scene, &[ONE, TWO]);
    let at = scene.unix();
    let older = state_at(ALICE, at - 1, &[(MAIN, forge::commit(1))]);
    let newer = state_at(
        ALICE,
        at,
        &[(MAIN, forge::commit(2)), (DEV, forge::commit(3))],
    );
    scene.sync(&newer);
    scene.sync(&older);
    scene.pass(MOMENT);
    let wants = |scene: &Scene| scene.fetches[0].1.wants.len();
    assert_eq!((scene.asked_of(), wants(&scene)), (vec![ONE], 3));
    scene.fetched(ONE, &[forge::commit(1), forge::commit(3)]);
    assert!(scene.serves(&older) && !scene.serves(&newer));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, forge::commit(1))]));
    assert_eq!((scene.asked_of(), wants(&scene)), (vec![TWO], 1));
    scene.fetched(TWO, &[forge::commit(2)]);
    assert!(scene.serves(&newer));
    let expected = refs(&[(MAIN, forge::commit(2)), (DEV, forge::commit(3))]);
    assert_eq!(scene.refs(&tool(ALICE)), expected);
}

#[test]
fn what_is_here_is_not_asked_for() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    scene.pass(MINUTE);
    let again = forge::announcement_with_clones(&tool(ALICE), scene.unix(), &[], &[ONE]);
    scene.sync(&again);
    let next = state(
        &scene,
        ALICE,
        &[(MAIN, forge::commit(2)), (DEV, forge::commit(1))],
    );
    scene.sync(&next);
    scene.pass(MOMENT);
    let wants: Vec<_> = scene.fetches[0].1.wants.to_vec();
    assert_eq!(wants, [forge::commit(2)]);
}

#[test]
fn a_pull_request_is_looked_for_where_it_says_and_put_in_every_repository_that_it_names() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    served(&mut scene, BOB, &[]);
    let repos = [tool(ALICE), tool(BOB)];
    let tip = forge::commit(9);
    let plain = forge::pull_request(CAROL, scene.unix(), &repos, &tip.to_string());
    let mut tags = plain.tags.clone();
    tags.push(forge::tag(&["clone", TWO]));
    let request = forge::event(CAROL, plain.kind, scene.unix(), tags);
    assert_eq!(scene.sync(&request), Answer::Held);
    scene.pass(MOMENT);
    assert_eq!(scene.asked_of(), [TWO, TWO], "for each of the two");
    scene.fetched(TWO, &[tip]);
    assert!(scene.serves(&request));
    scene.fetched(TWO, &[tip]);
    for repo in &repos {
        assert_eq!(scene.repo(repo).tips.get(&request.id), Some(&tip));
    }
}

/// A pull request may say that its commit is something else, which is here.
#[test]
fn what_is_here_and_no_commit_is_not_looked_for() {
    let mut scene = Scene::new();
    announced(&mut scene, &[ONE]);
    let tag = forge::tag_object(2);
    let both = [(MAIN, forge::commit(1)), (V1, tag)];
    let first = state(&scene, ALICE, &both);
    scene.sync(&first);
    scene.pass(MOMENT);
    scene.fetched(ONE, &[forge::commit(1), tag]);
    let request = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &tag.to_string());
    assert_eq!(scene.sync(&request), Answer::Held);
    scene.pass(MINUTE);
    assert!(scene.fetches.is_empty() && scene.holds(&request));
}

/// What found no room in the hunt is looked for when there is room again.
#[test]
fn repositories_that_were_too_many_have_their_turn() {
    let mut scene = Scene::new();
    scene.policy.limits.hunt.repositories = 1;
    scene.restart();
    announced(&mut scene, &[ONE]);
    let bobs = forge::announcement_with_clones(&tool(BOB), scene.unix(), &[], &[TWO]);
    assert_eq!(scene.sync(&bobs), Answer::Held);
    scene.sync(&state(&scene, ALICE, &[(MAIN, forge::commit(1))]));
    scene.sync(&state(&scene, BOB, &[(MAIN, forge::commit(2))]));
    scene.pass(MINUTE);
    assert_eq!(scene.asked_of(), [ONE]);
    scene.fetched(ONE, &[forge::commit(1)]);
    scene.pass(MOMENT);
    assert_eq!(scene.asked_of(), [TWO]);
}

/// Strangers with many pull requests are in nobody's way.
#[test]
fn of_many_pull_requests_some_of_every_author_are_looked_for() {
    let mut scene = Scene::new();
    announced(&mut scene, &[ONE]);
    let repos = [tool(ALICE)];
    let request = |scene: &Scene, author, n| {
        let tip = forge::commit(n).to_string();
        forge::pull_request(author, scene.unix(), &repos, &tip)
    };
    for n in 0..300 {
        for author in [BOB, CAROL] {
            let event = request(&scene, author, 1_000 + 2 * n + u32::from(author == BOB));
            assert_eq!(scene.sync(&event), Answer::Held);
        }
    }
    let own = request(&scene, ALICE, 1);
    scene.sync(&own);
    scene.pass(MOMENT);
    let wants = &scene.fetches[0].1.wants;
    assert_eq!(wants.len(), 512);
    assert!(wants.contains(&forge::commit(1)));
}

#[test]
fn a_commit_that_has_come_is_not_asked_for_while_its_repository_waits() {
    let mut scene = Scene::new();
    announced(&mut scene, &[ONE]);
    let tip = forge::commit(9);
    let request = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &tip.to_string());
    assert_eq!(scene.sync(&request), Answer::Held);
    scene.pass(MOMENT);
    scene.fetched(ONE, &[tip]);
    scene.pass(5 * MINUTE);
    assert!(scene.holds(&request) && scene.fetches.is_empty());
}

#[test]
fn a_restart_goes_on_with_what_is_held() {
    let mut scene = Scene::new();
    announced(&mut scene, &[ONE]);
    let first = state(&scene, ALICE, &[(MAIN, forge::commit(1))]);
    scene.sync(&first);
    scene.fetches.clear();
    scene.restart();
    scene.pass(MOMENT);
    scene.fetched(ONE, &[forge::commit(1)]);
    assert!(scene.serves(&first), "G11");
}

#[test]
fn what_expires_is_hunted_no_longer() {
    let mut scene = Scene::new();
    announced(&mut scene, &[ONE]);
    let first = state(&scene, ALICE, &[(MAIN, forge::commit(1))]);
    scene.sync(&first);
    scene.pass(MOMENT);
    scene.pass(31 * MINUTE);
    assert!(!scene.holds(&first));
    assert!(scene.core.hunt().is_empty(), "G8");
    assert_eq!(scene.stopped.len(), 1);
}

#[test]
fn data_that_a_disk_has_lost_is_hunted_too() {
    let mut scene = Scene::new();
    announced(&mut scene, &[ONE]);
    let first = state(&scene, ALICE, &[(MAIN, forge::commit(1))]);
    scene.sync(&first);
    scene
        .push(&tool(ALICE), &[(MAIN, Some(forge::commit(1)))])
        .unwrap();
    scene.git.lose_objects(&tool(ALICE), |_| true);
    scene.restart();
    assert!(
        !scene.serves(&first),
        "nothing is served whose data is not here"
    );
    scene.pass(MINUTE);
    assert_eq!(scene.asked_of(), [ONE]);
    scene.fetched(ONE, &[forge::commit(1)]);
    scene.pass(MINUTE);
    assert!(scene.serves(&first));
    assert_eq!(scene.refs(&tool(ALICE)), refs(&[(MAIN, forge::commit(1))]));
}

/// A server that keeps a copy may be down when a disk has lost something.
#[test]
fn what_was_lost_is_looked_for_again_every_hour() {
    let mut scene = Scene::new();
    announced(&mut scene, &[ONE]);
    let first = state(&scene, ALICE, &[(MAIN, forge::commit(1))]);
    scene.sync(&first);
    scene
        .push(&tool(ALICE), &[(MAIN, Some(forge::commit(1)))])
        .unwrap();
    scene.git.lose_objects(&tool(ALICE), |_| true);
    scene.restart();
    scene.pass(MINUTE);
    scene.pass(40 * MINUTE);
    scene.fetched(ONE, &[]);
    assert!(scene.core.hunt().is_empty(), "as long as for a held event");
    for _ in 0..2 {
        scene.pass(60 * MINUTE);
        assert_eq!(scene.asked_of(), [ONE]);
        scene.fetched(ONE, &[]);
    }
    scene.pass(60 * MINUTE);
    scene.fetched(ONE, &[forge::commit(1)]);
    scene.pass(MINUTE);
    assert!(scene.serves(&first));
    scene.pass(120 * MINUTE);
    assert!(scene.fetches.is_empty(), "it is here");
}

/// A pull request that names a repository which was elsewhere for a while.
#[test]
fn a_pull_request_is_looked_for_in_a_repository_that_comes_back() {
    let mut scene = Scene::new();
    served(&mut scene, BOB, &[ALICE]);
    announced(&mut scene, &[ONE]);
    let tip = forge::commit(9).to_string();
    let request = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE), tool(BOB)], &tip);
    assert_eq!(scene.sync(&request), Answer::Held);
    scene.pass(MOMENT);
    scene.fetched(ONE, &[]);
    scene.pass(MOMENT);
    let elsewhere = forge::announcement(&tool(ALICE), scene.unix() + 1, false, &[BOB]);
    assert_eq!(scene.sync(&elsewhere), Answer::Accepted);
    scene.pass(2 * MINUTE);
    let asked_for_alices = |scene: &Scene| {
        let mut asked = scene.fetches.iter();
        asked.any(|(_, ask)| ask.repo == tool(ALICE))
    };
    assert!(!asked_for_alices(&scene));
    let back = forge::announcement_with_clones(&tool(ALICE), scene.unix(), &[], &[TWO]);
    scene.sync(&back);
    scene.pass(MINUTE);
    assert!(scene.holds(&request) && asked_for_alices(&scene));
}

/// A pull request is served from one of its repositories, and the other has its commit later.
#[test]
fn a_commit_that_one_repository_lacks_is_looked_for_again_every_hour() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    served(&mut scene, BOB, &[]);
    let tip = forge::commit(9);
    let repos = [tool(ALICE), tool(BOB)];
    let plain = forge::pull_request(CAROL, scene.unix(), &repos, &tip.to_string());
    let mut tags = plain.tags.clone();
    tags.push(forge::tag(&["clone", TWO]));
    let request = forge::event(CAROL, plain.kind, scene.unix(), tags);
    scene.sync(&request);
    scene.pass(MOMENT);
    scene.fetched(TWO, &[tip]);
    assert!(scene.serves(&request));
    scene.fetched(TWO, &[]);
    scene.pass(40 * MINUTE);
    while !scene.fetches.is_empty() {
        scene.fetched(TWO, &[]);
    }
    assert!(scene.core.hunt().is_empty(), "as long as for a held event");
    scene.pass(60 * MINUTE);
    scene.fetched(TWO, &[]);
    scene.pass(60 * MINUTE);
    scene.fetched(TWO, &[tip]);
    for repo in &repos {
        assert_eq!(scene.repo(repo).tips.get(&request.id), Some(&tip));
    }
    scene.pass(120 * MINUTE);
    assert!(scene.fetches.is_empty(), "it is here");
}

/// G7: the servers of every maintainer and of the pull request itself, those first that whoever
/// signed it names.
#[test]
fn servers_are_those_of_every_maintainer_and_of_the_pull_request() {
    let mut scene = Scene::new();
    let at = scene.unix();
    let alices = forge::announcement_with_clones(&tool(ALICE), at, &[BOB], &[ONE]);
    let bobs = forge::announcement_with_clones(&tool(BOB), at, &[ALICE], &[TWO]);
    scene.sync(&alices);
    scene.sync(&bobs);
    let of_bob = state(&scene, BOB, &[(MAIN, forge::commit(1))]);
    scene.sync(&of_bob);
    scene.pass(MOMENT);
    assert_eq!(scene.asked_of(), [TWO], "who signed it names it");
    scene.fetched(TWO, &[]);
    assert_eq!(scene.asked_of(), [ONE], "and so does the other maintainer");
    scene.fetched(ONE, &[forge::commit(1)]);
    assert!(scene.serves(&of_bob));
    let tip = forge::commit(9);
    let plain = forge::pull_request(CAROL, scene.unix(), &[tool(ALICE)], &tip.to_string());
    let fork = "https://fork.example/tool.git";
    let mut tags = plain.tags.clone();
    tags.push(forge::tag(&["clone", fork]));
    let request = forge::event(CAROL, plain.kind, scene.unix(), tags);
    scene.sync(&request);
    scene.pass(MOMENT);
    let mut asked = Vec::new();
    while let Some(url) = scene.asked_of().first() {
        let url = (*url).to_owned();
        scene.fetched(&url, &[]);
        asked.push(url);
    }
    assert_eq!(asked.first().map(String::as_str), Some(fork));
    asked.sort();
    assert_eq!(asked, [fork, ONE, TWO]);
}

/// What is lost is looked for in one of its repositories, until that one leaves.
#[test]
fn lost_data_is_hunted_in_the_repository_that_is_left() {
    let mut scene = Scene::new();
    let at = scene.unix();
    let alices = forge::announcement_with_clones(&tool(ALICE), at, &[BOB], &[ONE]);
    let bobs = forge::announcement(&tool(BOB), at, true, &[ALICE]);
    scene.sync(&alices);
    scene.sync(&bobs);
    let first = state(&scene, ALICE, &[(MAIN, forge::commit(1))]);
    scene.sync(&first);
    scene
        .push(&tool(ALICE), &[(MAIN, Some(forge::commit(1)))])
        .unwrap();
    scene.pass(MINUTE);
    for repo in [tool(ALICE), tool(BOB)] {
        scene.git.lose_objects(&repo, |_| true);
    }
    scene.fetches.clear();
    scene.restart();
    scene.pass(5 * MINUTE);
    assert!(!scene.serves(&first), "nobody has it");
    let asked = scene.fetches.iter().map(|(_, ask)| ask.repo.clone());
    let asked: std::collections::BTreeSet<_> = asked.collect();
    assert_eq!(asked.len(), 1, "it comes to the others from there");
    let place = asked.first().unwrap();
    let (gone, left) = match *place == tool(BOB) {
        true => (&bobs, ALICE),
        false => (&alices, BOB),
    };
    scene.fetches.clear();
    let deletion = forge::deletion(gone.pubkey, scene.unix(), "e", &gone.id.to_string());
    assert_eq!(scene.publish(&deletion), Answer::Accepted);
    scene.pass(5 * MINUTE);
    let mut asked = scene.fetches.iter();
    assert!(asked.any(|(_, ask)| ask.repo == tool(left)));
}
