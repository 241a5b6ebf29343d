//! What one input costs the only thread that decides, in events that are read whole.

use std::sync::Arc;

use grasp_core::admit::Refusal;
use grasp_core::{Answer, Event, EventId, GitTask, Input, Kind, Limits, Pubkey, RepoId};
use grasp_sim::forge::{self, commit};

use crate::scene::{CAROL, DEV, MAIN, MALLORY, MINUTE, Scene, announce, served, state, tool};
use crate::stage::{ALICE, BOB};

/// Of everybody else.
fn key(n: u8) -> Pubkey {
    let mut key = [200; 32];
    key[0] = n;
    Pubkey(key)
}

/// Pull requests at a commit that is here, which are served at once.
fn propose(scene: &mut Scene, many: u64, author: Pubkey) -> Vec<Arc<Event>> {
    let tip = commit(1).to_string();
    let made = |n| forge::pull_request(author, scene.unix() - n, &[tool(ALICE)], &tip);
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
    propose(&mut scene, 100, CAROL);
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
    propose(&mut scene, 100, CAROL);
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
    let made = propose(&mut scene, 100, CAROL);
    scene.reads.take_most();
    scene.restart();
    assert!(made.iter().all(|event| scene.serves(event)));
    let most = scene.reads.take_most();
    assert!(most <= 4, "{most}");
}

/// Pull requests of many authors at a commit that is here, as many as a repository has tips.
fn propose_many(scene: &mut Scene, repos: &[RepoId], many: u64) -> Vec<Arc<Event>> {
    let tip = commit(1).to_string();
    let made = |n: u64| {
        let author = key((n / 100) as u8);
        forge::pull_request(author, scene.unix() - n, repos, &tip)
    };
    let made: Vec<_> = (0..many).map(made).collect();
    for event in &made {
        scene.import(event);
        assert!(scene.serves(event));
    }
    made
}

/// A3: whoever fills a repository with tips does not hold up everybody else.
#[test]
fn a_check_of_a_repository_with_many_tips_goes_in_steps() {
    let mut scene = Scene::new();
    crowd(&mut scene, 40);
    propose_many(&mut scene, &[tool(ALICE)], 2_000);
    scene.pass(MINUTE);
    scene.reads.take_most();
    scene.reads.take_most_rows();
    scene.restart();
    scene.pass(MINUTE);
    let (rows, most) = (scene.reads.take_most_rows(), scene.reads.take_most());
    assert!(rows <= 300, "{rows} rows");
    assert!(most <= 4, "{most} events");
}

/// What was served from a repository that goes is looked for elsewhere.
#[test]
fn a_repository_that_goes_with_many_pull_requests_costs_little_at_once() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    served(&mut scene, BOB, &[]);
    let made = propose_many(&mut scene, &[tool(ALICE), tool(BOB)], 700);
    scene.pass(MINUTE);
    scene.git.lose_objects(&tool(BOB), |id| *id == commit(1));
    scene.reads.take_most_rows();
    let address = forge::address(Kind::ANNOUNCEMENT, &tool(ALICE));
    let deletion = forge::deletion(ALICE, scene.unix(), "a", &address);
    assert_eq!(scene.publish(&deletion), Answer::Accepted);
    let rows = scene.reads.take_most_rows();
    assert!(rows <= 300, "{rows} rows");
    scene.pass(10 * MINUTE);
    let served = made.iter().filter(|event| scene.serves(event));
    assert_eq!(served.count(), 0, "the other one has lost them");
}

#[test]
fn an_author_who_vanishes_with_many_tips_is_swept_in_steps() {
    let mut policy = grasp_sim::policy(Limits::default());
    policy.limits.tips_per_author = 2_000;
    let mut scene = Scene::with(policy);
    served(&mut scene, ALICE, &[]);
    propose(&mut scene, 1_600, CAROL);
    scene.pass(MINUTE);
    scene.reads.take_most_looked_for();
    let request = forge::about(CAROL, 62, scene.unix(), "relay", "ALL_RELAYS");
    assert_eq!(scene.publish(&request), Answer::Accepted);
    scene.pass(MINUTE);
    let looked_for = scene.reads.take_most_looked_for();
    assert!(looked_for <= 530, "{looked_for}");
    assert!(scene.repo(&tool(ALICE)).tips.is_empty());
}

/// Who may delete when the disk is nearly full is asked of rows.
#[test]
fn a_deletion_that_names_others_events_reads_none_of_them() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let made = propose(&mut scene, 8, CAROL);
    scene.pass(MINUTE);
    scene.feed(Input::DiskLow(true));
    scene.reads.take_most();
    let tags = made
        .iter()
        .map(|event| forge::tag(&["e", &event.id.to_string()]));
    let tags: Vec<_> = tags.collect();
    let deletion = |author| forge::event(author, Kind::DELETION, scene.unix(), tags.clone());
    let (others, own) = (deletion(MALLORY), deletion(CAROL));
    let refused = scene.publish(&others);
    assert!(matches!(refused, Answer::Refused(_)), "{refused:?}");
    assert_eq!(scene.reads.take_most(), 0);
    assert_eq!(scene.publish(&own), Answer::Accepted);
}

/// Deadlines that fall together are dealt with in turns.
#[test]
fn events_that_expire_together_take_several_turns() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    for n in 0..600 {
        let tip = commit(100 + n).to_string();
        let author = key((n / 100) as u8);
        let event = forge::pull_request(author, scene.unix(), &[tool(ALICE)], &tip);
        assert_eq!(scene.import(&event), Answer::Held);
    }
    let held = |scene: &Scene| scene.core.purgatory().iter().count();
    assert_eq!(held(&scene), 600);
    let until = scene.now() + 2 * 24 * 60 * MINUTE;
    let (mut before, mut most) = (held(&scene), 0);
    while scene.wake(until) {
        let left = held(&scene);
        most = most.max(before - left);
        before = left;
    }
    assert_eq!(before, 0);
    assert!(most <= 256, "{most} in one turn");
}

#[test]
fn an_author_who_vanishes_costs_what_he_had_and_little_at_once() {
    let mut scene = Scene::new();
    served(&mut scene, ALICE, &[]);
    let mut made = propose(&mut scene, 300, CAROL);
    made.extend(propose(&mut scene, 300, BOB));
    scene.pass(MINUTE);
    scene.reads.take_most_looked_for();
    let vanish = |scene: &mut Scene, author| {
        let request = forge::about(author, 62, scene.unix(), "relay", "ALL_RELAYS");
        assert_eq!(scene.publish(&request), Answer::Accepted);
        scene.pass(MINUTE);
        scene.reads.take_most_looked_for()
    };
    let looked_for = vanish(&mut scene, MALLORY);
    assert!(looked_for <= 4, "{looked_for} for a stranger");
    let looked_for = vanish(&mut scene, CAROL);
    assert!((300..=310).contains(&looked_for), "{looked_for}");
    let has_tip = |event: &Arc<Event>| scene.repo(&tool(ALICE)).tips.contains_key(&event.id);
    assert_eq!(made.iter().filter(|event| has_tip(event)).count(), 300);
}

/// Everybody maintains everybody's "tool", and each has signed the state that it has.
fn crowd(scene: &mut Scene, many: u8) -> Vec<Pubkey> {
    let members: Vec<Pubkey> = (1..many).map(key).collect();
    served(scene, ALICE, &members);
    for member in &members {
        scene.publish(&announce(scene, *member, &[ALICE]));
    }
    for member in &members {
        scene.pass(MINUTE);
        let event = state(scene, *member, &[(MAIN, commit(1))]);
        scene.publish(&event);
        assert!(scene.serves(&event));
    }
    members
}

/// A4.
#[test]
fn a_push_reads_no_state_that_is_older_than_the_one_applied() {
    let mut scene = Scene::new();
    crowd(&mut scene, 40);
    scene.reads.take_most();
    let push = scene.push(&tool(ALICE), &[(DEV, Some(commit(9)))]);
    assert!(push.is_err());
    let most = scene.reads.take_most();
    assert!(most <= 1, "{most}");
    assert!(scene.push(&tool(ALICE), &[(DEV, Some(commit(9)))]).is_err());
    assert_eq!(scene.reads.take_most(), 0, "what was read is remembered");
}

/// A4.
#[test]
fn a_state_reads_those_of_no_other_maintainer_without_need() {
    let mut scene = Scene::new();
    let members = crowd(&mut scene, 40);
    scene.pass(MINUTE);
    scene.reads.take_most();
    let event = state(&scene, members[0], &[(MAIN, commit(1)), (DEV, commit(1))]);
    scene.publish(&event);
    assert!(scene.serves(&event));
    let most = scene.reads.take_most();
    assert!(most <= 4, "{most}");
}

/// A4: whoever signs more than one round looks at waits for the next, and is not forgotten.
#[test]
fn states_with_too_many_objects_for_one_round_are_released_in_several() {
    let mut scene = Scene::new();
    let members: Vec<Pubkey> = (1..6).map(key).collect();
    served(&mut scene, ALICE, &members);
    for member in &members {
        let listed = forge::announcement(&tool(*member), scene.unix(), false, &[ALICE]);
        assert_eq!(scene.publish(&listed), Answer::Accepted);
    }
    let refs: Vec<String> = (0..9_000).map(|n| format!("refs/heads/{n}")).collect();
    let mut made = Vec::new();
    for member in &members {
        scene.pass(MINUTE);
        let first = 10_000 * u32::from(member.0[0]);
        let at = refs.iter().zip(first..);
        let at: Vec<_> = at.map(|(name, n)| (name.as_str(), commit(n))).collect();
        let event = state(&scene, *member, &at);
        assert_eq!(scene.import(&event), Answer::Held);
        made.push((event, at.into_iter().map(|(_, id)| id).collect::<Vec<_>>()));
    }
    let asked = |task: &GitTask| match task {
        GitTask::Probe(objects) => objects.len(),
        _ => 0,
    };
    assert!(scene.tasks.iter().all(|(_, task)| asked(task) <= 32_768));
    for (_, objects) in &made {
        scene.git.take(&tool(ALICE), objects.iter().copied());
    }
    let (newest, objects) = made.last().unwrap();
    let names = refs.iter().map(String::as_str);
    let mut commands: Vec<_> = names.zip(objects.iter().copied().map(Some)).collect();
    commands.push((MAIN, None));
    assert_eq!(scene.push(&tool(ALICE), &commands), Ok(()));
    assert!(scene.serves(newest));
    let served = made.iter().filter(|(event, _)| scene.serves(event));
    assert_eq!(
        served.count(),
        made.len(),
        "the others in the rounds after it"
    );
    assert!(scene.tasks.iter().all(|(_, task)| asked(task) <= 32_768));
}
