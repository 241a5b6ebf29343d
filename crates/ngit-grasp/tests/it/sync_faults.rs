//! Relays that do what no relay should: we take what is good of them, and live.

use std::time::Duration;

use testkit::{Fault, Project, Rogue, now};

use crate::network::{Node, comment, hosted_at, issue};
use crate::support::author;

/// What a relay has comes in spite of its faults.
async fn comes_in_spite_of(faults: &[Fault]) {
    let relay = Rogue::start(faults).await;
    let project = Project::new(&author(), "tool");
    let root = issue(&author(), &[&project], now() - 50);
    let old = comment(&author(), &root, now() - 40);
    relay.publish(&root);
    relay.publish(&old);
    let node = Node::start_with(&[("NGIT_SYNC_REQUEST_TIMEOUT_SECS", "2")]).await;
    hosted_at(&[&node], &project, &[relay.ws_url()]).await;
    node.awaits(&root, "the issue").await;
    node.awaits(&old, "the old comment").await;
    let live = comment(&author(), &root, now());
    relay.publish(&live);
    node.awaits(&live, "the live comment").await;
}

/// Nothing comes of it, and what an honest relay has comes all the same.
async fn harms_nobody(fault: Fault) {
    let (rogue, honest) = (Rogue::start(&[fault]).await, Rogue::honest().await);
    let project = Project::new(&author(), "tool");
    let root = issue(&author(), &[&project], now() - 50);
    let said = comment(&author(), &root, now() - 40);
    for relay in [&rogue, &honest] {
        relay.publish(&root);
        relay.publish(&said);
    }
    let node = Node::start_with(&[("NGIT_SYNC_REQUEST_TIMEOUT_SECS", "2")]).await;
    let relays = [rogue.ws_url(), honest.ws_url()];
    hosted_at(&[&node], &project, &relays).await;
    node.awaits(&root, "the issue").await;
    node.awaits(&said, "the comment").await;
    let live = comment(&author(), &root, now());
    honest.publish(&live);
    node.awaits(&live, "the live comment").await;
    assert!(node.status()["sync"]["relays_tracked"] == 2);
}

#[tokio::test]
async fn a_relay_that_says_eose_twice() {
    comes_in_spite_of(&[Fault::EoseTwice]).await;
}

#[tokio::test]
async fn a_relay_that_says_eose_late() {
    comes_in_spite_of(&[Fault::EoseLate(Duration::from_millis(800))]).await;
}

#[tokio::test]
async fn a_relay_that_never_says_eose() {
    comes_in_spite_of(&[Fault::EoseNever, Fault::NoNegentropy]).await;
}

#[tokio::test]
async fn a_relay_that_repeats_itself() {
    comes_in_spite_of(&[Fault::Repeats]).await;
}

#[tokio::test]
async fn a_relay_that_sends_what_nobody_asked_for() {
    comes_in_spite_of(&[Fault::OffFilter]).await;
}

#[tokio::test]
async fn a_relay_that_hides_most_of_what_it_has() {
    comes_in_spite_of(&[Fault::SilentCap(1), Fault::NoNegentropy]).await;
}

#[tokio::test]
async fn a_relay_that_wants_to_know_who_we_are() {
    comes_in_spite_of(&[Fault::DemandsAuth]).await;
}

#[tokio::test]
async fn a_relay_that_drops_the_line_again_and_again() {
    comes_in_spite_of(&[Fault::DropsAfter(20)]).await;
}

#[tokio::test]
async fn a_relay_whose_signatures_are_wrong() {
    harms_nobody(Fault::BadSignatures).await;
}

#[tokio::test]
async fn a_relay_that_sends_without_end() {
    harms_nobody(Fault::Endless).await;
}

#[tokio::test]
async fn a_relay_that_refuses_everything() {
    harms_nobody(Fault::RateLimited).await;
}

#[tokio::test]
async fn a_relay_that_has_room_for_little() {
    comes_in_spite_of(&[Fault::TooManyReqs(3)]).await;
}

#[tokio::test]
async fn a_relay_that_says_nothing() {
    harms_nobody(Fault::Mute).await;
}

#[tokio::test]
async fn a_relay_that_sends_a_frame_of_any_size() {
    harms_nobody(Fault::Oversized).await;
}
