//! Servers that fill themselves: events by sync, git data by the hunt, and nobody pushes there
//! (G1-G7, G11).

use std::time::{Duration, Instant};

use grasp_core::Event;
use serde_json::json;
use testkit::git::try_git;
use testkit::{GitFault, GitHost, Project, WorkTree, now};

use crate::hosted::{directory, leftovers};
use crate::network::{Node, hosted_at, issue};
use crate::support::{DEADLINE, author, eventually};

const MAIN: &str = "refs/heads/main";
/// States that are pushed one after the other.
const ROUNDS: u64 = 5;

/// A server that looks for what a user brings as quickly as for what another relay brings.
async fn node() -> Node {
    Node::start_with(&[("NGIT_HUNT_USER_DELAY_SECS", "1")]).await
}

/// The refs that a server shows of a repository.
fn refs(node: &Node, project: &Project) -> String {
    let tree = WorkTree::new();
    let said = try_git(tree.path(), &["ls-remote", &project.url(&node.server)]);
    said.stdout
}

/// Waits until a server shows the same refs as another.
async fn awaits_refs(node: &Node, project: &Project, wanted: &str) {
    let began = Instant::now();
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    while refs(node, project) != wanted {
        assert!(
            began.elapsed() < 2 * DEADLINE,
            "{}\nis not\n{wanted}\n{:#}\n{}",
            refs(node, project),
            node.status()["hunt"],
            node.server.log()
        );
        looks.tick().await;
    }
}

/// Announced at both, pushed to the first.
async fn shared(nodes: &[&Node], project: &Project) -> (WorkTree, Event) {
    let hosts: Vec<String> = nodes.iter().map(|node| node.host()).collect();
    let announcement = project.announcement_at(now() - 100, &hosts, &[]);
    let tree = WorkTree::new();
    let first = tree.commit("README", project.identifier.as_bytes());
    let state = project.state(&project.owner, now() - 90, &[(MAIN, &first)]);
    for node in nodes {
        node.publish(&announcement).await;
    }
    if let Some(first) = nodes.first() {
        first.publish(&state).await;
        tree.git(&["push", "-q", &project.url(&first.server), "main"]);
        first.awaits(&announcement, "the pushed repository").await;
    }
    (tree, state)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_pushed_at_one_server_is_served_by_the_others_with_equal_refs() {
    let (one, two, three) = (node().await, node().await, node().await);
    let project = Project::new(&author(), "tool");
    let (tree, state) = shared(&[&one, &two, &three], &project).await;
    for other in [&two, &three] {
        other.awaits(&state, "the first state").await;
        awaits_refs(other, &project, &refs(&one, &project)).await;
    }
    let first = tree.head();
    tree.git(&["tag", "v1"]);
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let next = tree.commit("more", round.to_string().as_bytes());
        let tips = [(MAIN, &*next), ("refs/tags/v1", &*first)];
        let state = project.state(&project.owner, now() - 80 + round, &tips);
        one.publish(&state).await;
        tree.git(&["push", "-q", &project.url(&one.server), "main", "v1"]);
        let wanted = refs(&one, &project);
        assert!(wanted.contains(&next));
        let began = Instant::now();
        for other in [&two, &three] {
            awaits_refs(other, &project, &wanted).await;
        }
        took.push(began.elapsed());
        for other in [&two, &three] {
            other.awaits(&state, "the next state").await;
            let copy = WorkTree::clone_of(&project.url(&other.server), &[]);
            assert_eq!(copy.head(), next);
        }
    }
    // A busy machine delays some of them; a delay of ours would delay them all.
    let best = took.iter().min();
    assert!(best < Some(&Duration::from_secs(2)), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_server_that_a_maintainer_adds_fills_itself() {
    let (old, new) = (node().await, node().await);
    let alice = author();
    let projects: Vec<Project> = (0..30)
        .map(|n| Project::new(&alice, &format!("tool-{n}")))
        .collect();
    let mut roots = Vec::new();
    for project in &projects {
        hosted_at(&[&old], project, &[]).await;
        let root = issue(&author(), &[project], now() - 50);
        old.publish(&root).await;
        roots.push(root);
    }
    // One word at the old server: the new one hears of the first and of nothing else.
    let hosts = [old.host(), new.host()];
    for project in &projects {
        let again = project.announcement_at(now(), &hosts, &[]);
        old.publish(&again).await;
    }
    let first = projects.first().expect("thirty");
    new.publish(&first.announcement_at(now() + 1, &hosts, &[]))
        .await;
    for (project, root) in projects.iter().zip(&roots) {
        awaits_refs(&new, project, &refs(&old, project)).await;
        new.awaits(root, "the issue").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_comes_from_the_server_that_it_names() {
    let host = GitHost::honest().await;
    let (one, two) = (node().await, node().await);
    let project = Project::new(&author(), "tool");
    let tree = hosted_at(&[&one, &two], &project, &[]).await;
    tree.git(&["checkout", "-q", "-b", "feature"]);
    let tip = tree.commit("feature", b"new");
    host.publish("fork.git", &tree, &["feature"]);
    let carol = author();
    let tags = vec![
        vec!["a".to_owned(), project.address()],
        vec!["c".to_owned(), tip.clone()],
        vec!["clone".to_owned(), host.url("fork.git")],
    ];
    let request = carol.event_tags(1618, now(), tags, "");
    one.publish(&request).await;
    for node in [&one, &two] {
        node.awaits(&request, "the pull request").await;
        let shown = refs(node, &project);
        assert!(
            shown.contains(&format!("{tip}\trefs/nostr/{}", request.id)),
            "{shown}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_come_from_three_servers_and_a_bad_one_harms_nothing() {
    let hosts = [
        GitHost::honest().await,
        GitHost::honest().await,
        GitHost::start(&[GitFault::CorruptPack]).await,
        GitHost::start(&[GitFault::Status(500)]).await,
        GitHost::honest().await,
    ];
    let node = node().await;
    let project = Project::new(&author(), "tool");
    let tree = WorkTree::new();
    let first = tree.commit("one", b"1");
    tree.git(&["checkout", "-q", "-b", "two"]);
    let second = tree.commit("two", b"2");
    tree.git(&["checkout", "-q", "-b", "three", "main"]);
    let third = tree.commit("three", b"3");
    for (host, branch) in hosts.iter().zip(["main", "two", "three", "three", "three"]) {
        host.publish("tool.git", &tree, &[branch]);
    }
    let clones: Vec<String> = hosts.iter().map(|host| host.url("tool.git")).collect();
    let announcement = announced(&project, &node, &clones);
    let wanted = [
        (MAIN, first.as_str()),
        ("refs/heads/two", second.as_str()),
        ("refs/heads/three", third.as_str()),
    ];
    let state = project.state(&project.owner, now(), &wanted);
    node.publish(&announcement).await;
    node.publish(&state).await;
    node.awaits(&state, "the state").await;
    let shown = refs(&node, &project);
    for (name, id) in wanted {
        assert!(shown.contains(&format!("{id}\t{name}")), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_is_larger_than_one_fetch_comes_in_several() {
    let host = GitHost::honest().await;
    let small = [
        ("NGIT_HUNT_USER_DELAY_SECS", "1"),
        ("NGIT_HUNT_BASE_BACKOFF_SECS", "1"),
        ("NGIT_HUNT_FETCH_BYTES", "1MiB"),
    ];
    let node = Node::start_with(&small).await;
    let project = Project::new(&author(), "tool");
    let tree = WorkTree::new();
    let mut tip = String::new();
    for n in 0..16 {
        tip = tree.commit_noise("noise", n, 200_000);
    }
    host.publish("tool.git", &tree, &["main"]);
    let clones = [host.url("tool.git")];
    node.publish(&announced(&project, &node, &clones)).await;
    let state = project.state(&project.owner, now(), &[(MAIN, &tip)]);
    node.publish(&state).await;
    node.awaits(&state, "the state").await;
    let copy = WorkTree::clone_of(&project.url(&node.server), &[]);
    let count = copy.git(&["rev-list", "--count", &tip]).stdout;
    assert_eq!(count.trim(), "16");
    let seen = host.seen();
    assert!(seen.discoveries() > 4, "{:?}", seen.requests);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_host_is_asked_more_often_than_it_may_be() {
    let host = GitHost::honest().await;
    let limits = [
        ("NGIT_HUNT_USER_DELAY_SECS", "1"),
        ("NGIT_SYNC_DOMAIN_CONCURRENT", "2"),
        ("NGIT_SYNC_DOMAIN_RATE_LIMIT", "6"),
    ];
    let node = Node::start_with(&limits).await;
    let alice = author();
    for n in 0..12 {
        let project = Project::new(&alice, &format!("tool-{n}"));
        let tree = WorkTree::new();
        let first = tree.commit("README", project.identifier.as_bytes());
        let clones = [host.url(&format!("tool-{n}.git"))];
        node.publish(&announced(&project, &node, &clones)).await;
        let state = project.state(&alice, now(), &[(MAIN, &first)]);
        node.publish(&state).await;
    }
    // The others wait for the next minute.
    let began = Instant::now();
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    loop {
        let domain = node.status()["hunt"]["domains"][0].clone();
        if domain["waiting"] == 6 && domain["in_flight"] == 0 {
            break;
        }
        assert!(began.elapsed() < DEADLINE, "{domain:#}");
        looks.tick().await;
    }
    let seen = host.seen();
    assert_eq!(seen.discoveries(), 6, "{:?}", seen.requests);
    assert!(seen.most_open <= 2, "{} at once", seen.most_open);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_the_middle_of_a_fetch_leaves_nothing_and_loses_nothing() {
    let host = GitHost::start(&[GitFault::HoldsHalves]).await;
    let mut node = node().await;
    let project = Project::new(&author(), "tool");
    let tree = WorkTree::new();
    // Many packets of it.
    let mut large = vec![0; 1_000_000];
    fastrand::Rng::with_seed(7).fill(&mut large);
    let first = tree.commit("README", &large);
    host.publish("tool.git", &tree, &["main"]);
    let clones = [host.url("tool.git")];
    let announcement = announced(&project, &node, &clones);
    let state = project.state(&project.owner, now(), &[(MAIN, &first)]);
    node.publish(&announcement).await;
    node.publish(&state).await;
    let repository = directory(&node.server, &project);
    eventually("a pack comes", || async {
        !leftovers(&repository).is_empty()
    })
    .await;
    node.server.kill9();
    assert!(!leftovers(&repository).is_empty(), "in the middle of it");
    host.behave(&[]);
    node.restart();
    node.awaits(&state, "the state").await;
    node.awaits(&announcement, "the announcement").await;
    let filter = json!({"kinds": [30617, 30618]});
    node.awaits_count(&filter, 2, "both").await;
    // Neither what the killed one left, nor anything of the one that followed.
    eventually("nothing is left", || async {
        leftovers(&repository).is_empty()
    })
    .await;
}

/// Listed here, with other git servers.
fn announced(project: &Project, node: &Node, clones: &[String]) -> Event {
    let plain = project.announcement_at(now() - 100, &[node.host()], &[]);
    let mut tags = plain.tags.clone();
    for tag in tags
        .iter_mut()
        .filter(|tag| tag.first().is_some_and(|name| name == "clone"))
    {
        tag.extend(clones.iter().cloned());
    }
    project.owner.event_tags(30617, now() - 100, tags, "")
}
