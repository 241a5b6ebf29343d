//! Servers that keep each other in step: publish at one, read at all.

use std::io::Write as _;

use grasp_core::Event;
use testkit::{Fault, Project, Rogue, json, now};

use crate::network::{Node, comment, hosted_at, issue};
use crate::support::{author, run};

#[tokio::test]
async fn in_a_ring_what_is_published_at_one_is_read_at_all() {
    let (a, b, c) = (
        Node::start().await,
        Node::start().await,
        Node::start().await,
    );
    let owner = author();
    let ab = Project::new(&owner, "ab");
    let bc = Project::new(&owner, "bc");
    let ca = Project::new(&owner, "ca");
    hosted_at(&[&a, &b], &ab, &[]).await;
    hosted_at(&[&b, &c], &bc, &[]).await;
    hosted_at(&[&c, &a], &ca, &[]).await;
    let root = issue(&author(), &[&ab, &bc, &ca], now());
    a.publish(&root).await;
    for node in [&b, &c] {
        node.awaits(&root, "the issue").await;
    }
    // And what is said about it, wherever it is said.
    for (n, node) in [&b, &c, &a].into_iter().enumerate() {
        let said = comment(&author(), &root, now() + n as u64);
        node.publish(&said).await;
        for other in [&a, &b, &c] {
            other.awaits(&said, "the comment").await;
        }
    }
}

#[tokio::test]
async fn in_a_star_the_hub_carries_from_one_to_the_others() {
    let (hub, a, b) = (
        Node::start().await,
        Node::start().await,
        Node::start().await,
    );
    let owner = author();
    let left = Project::new(&owner, "left");
    let right = Project::new(&owner, "right");
    hosted_at(&[&hub, &a], &left, &[]).await;
    hosted_at(&[&hub, &b], &right, &[]).await;
    let root = issue(&author(), &[&left, &right], now());
    a.publish(&root).await;
    b.awaits(&root, "the issue, by way of the hub").await;
    let said = comment(&author(), &root, now());
    b.publish(&said).await;
    a.awaits(&said, "the answer, all the way back").await;
}

#[tokio::test]
async fn what_was_missed_behind_a_cut_line_is_caught_up_with() {
    let (a, b) = (Node::start().await, Node::start().await);
    let project = Project::new(&author(), "tool");
    hosted_at(&[&a, &b], &project, &[]).await;
    let root = issue(&author(), &[&project], now());
    a.publish(&root).await;
    b.awaits(&root, "the issue").await;
    b.in_step(1).await;
    // Each is behind its line for the other.
    a.line.part();
    b.line.part();
    let unseen = comment(&author(), &root, now());
    a.publish(&unseen).await;
    let elsewhere = comment(&author(), &root, now() + 1);
    b.publish(&elsewhere).await;
    a.line.mend();
    b.line.mend();
    b.awaits(&unseen, "what was said behind the cut").await;
    a.awaits(&elsewhere, "what was said on this side of it")
        .await;
    // A line that stalls loses nothing either.
    a.line.stall();
    let late = comment(&author(), &root, now() + 2);
    a.publish(&late).await;
    a.line.resume();
    b.awaits(&late, "what was stalled").await;
}

#[tokio::test]
async fn a_server_that_was_killed_catches_up() {
    let (a, mut b) = (Node::start().await, Node::start().await);
    let project = Project::new(&author(), "tool");
    hosted_at(&[&a, &b], &project, &[]).await;
    let root = issue(&author(), &[&project], now());
    a.publish(&root).await;
    b.awaits(&root, "the issue").await;
    b.server.kill9();
    let missed = comment(&author(), &root, now());
    a.publish(&missed).await;
    b.restart();
    b.awaits(&missed, "what was said meanwhile").await;
    let live = comment(&author(), &root, now() + 1);
    a.publish(&live).await;
    b.awaits(&live, "what is said now").await;
}

#[tokio::test]
async fn a_plain_relay_without_nip77_is_read_page_by_page() {
    let relay = Rogue::start(&[Fault::NoNegentropy, Fault::SilentCap(7)]).await;
    let project = Project::new(&author(), "tool");
    let root = issue(&author(), &[&project], now() - 50);
    relay.publish(&root);
    let talker = author();
    for n in 0..40 {
        // Several in each second, more than one page in some.
        relay.publish(&comment(&talker, &root, now() - 40 + n / 6));
    }
    let node = Node::start().await;
    hosted_at(&[&node], &project, &[relay.ws_url()]).await;
    node.awaits(&root, "the issue").await;
    let about = json!({"#E": [root.id], "kinds": [1111]});
    node.awaits_count(&about, 40, "all comments").await;
    let live = comment(&author(), &root, now());
    relay.publish(&live);
    node.awaits(&live, "and live ones").await;
}

/// Stops a server, puts events into its store, and starts it again.
fn import(node: &mut Node, events: &[Event]) {
    node.server.terminate();
    let path = node.server.data_dir().join("events.jsonl");
    let file = std::fs::File::create(&path).unwrap();
    let mut file = std::io::BufWriter::new(file);
    for event in events {
        writeln!(file, "{}", event.json()).unwrap();
    }
    file.into_inner().unwrap();
    let dir = node.server.data_dir().to_owned();
    let env = [("NGIT_ACCEPT_UNRELATED_EVENTS", "true")];
    let ran = run(&["import", path.to_str().unwrap()], &env, &dir);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    node.restart();
}

#[tokio::test]
async fn a_restart_transfers_the_difference_and_not_the_history() {
    let project = Project::new(&author(), "tool");
    let (mut source, mut node) = (Node::start().await, Node::start().await);
    let (people, at) = (author(), now() - 30_000);
    let roots: Vec<Event> = (0..20)
        .map(|n| issue(&people, &[&project], at + n))
        .collect();
    let comments = (0..19_980).map(|n| {
        let root = &roots[usize::try_from(n % 20).unwrap()];
        comment(&people, root, at + n)
    });
    let events: Vec<Event> = roots.iter().cloned().chain(comments).collect();
    import(&mut source, &events);
    hosted_at(&[&node], &project, &[source.line.ws_url()]).await;
    let by_people = json!({"authors": [people.pubkey()]});
    node.awaits_count(&by_people, 20_000, "the whole history")
        .await;
    node.in_step(1).await;
    let first = source.line.bytes_from_server();
    node.server.terminate();
    let missed = comment(&author(), &roots[3], now());
    source.publish(&missed).await;
    let before = source.line.bytes_from_server();
    node.restart();
    node.awaits(&missed, "what was said meanwhile").await;
    node.in_step(1).await;
    let again = source.line.bytes_from_server() - before;
    assert!(50 * again < first, "{again} of {first} bytes");
}
