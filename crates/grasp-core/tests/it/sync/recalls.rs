//! Announcements that came too early, are wanted now, and are not where they were shown.

#![allow(clippy::unwrap_used, reason = "a story that breaks off has failed")]

use std::sync::Arc;

use grasp_core::sync::io::{Fault, FromRelay, ToRelay};
use grasp_core::sync::{Fate, Note, Outcome};
use grasp_core::{Event, EventId, Filter, Kind, SubNo, Timestamp};
use grasp_sim::forge;

use super::peers::{HOUR, MINUTE, Peers, SECOND, repo};

const ONE: &str = "wss://one.example";
const TWO: &str = "wss://two.example";

/// What the early announcements wait for.
const CAUSE: u64 = 77;

fn junk(n: u8) -> Arc<Event> {
    let tags = vec![forge::tag(&["d", "zz"])];
    forge::event(forge::key(n), Kind::ANNOUNCEMENT, 1, tags)
}

/// The relay shows it, and it is not wanted yet.
fn show(peers: &mut Peers, name: &str, event: &Arc<Event>) {
    let ticket = peers.deliver(name, SubNo(0), event);
    peers.judge(ticket, Outcome::Dismissed(Fate::Early(vec![CAUSE])));
}

/// What it waited for comes.
fn recall(peers: &mut Peers) {
    let now = peers.clock();
    peers.sync.accepted(&EventId([8; 32]), &[CAUSE], &[], now);
    for name in [ONE, TWO] {
        peers.say(name, FromRelay::Heard);
    }
}

/// The relay has nothing; how often it was asked to compare announcements, and from when on.
fn answer(peers: &mut Peers, name: &str) -> Vec<Option<Timestamp>> {
    let mut compared = Vec::new();
    loop {
        let asked = peers.asked(name);
        if asked.is_empty() {
            return compared;
        }
        for what in asked {
            match what {
                ToRelay::Subscribe { sub, .. } => peers.eose(name, sub, 0),
                ToRelay::Reconcile { sub, filter, .. } => {
                    if of_announcements(&filter) {
                        compared.push(filter.since);
                    }
                    peers.reconciled(name, sub);
                }
                _ => {}
            }
        }
    }
}

fn of_announcements(filter: &Filter) -> bool {
    let kinds = filter.kinds.iter().flatten();
    kinds.into_iter().any(|kind| *kind == Kind::ANNOUNCEMENT)
}

fn is_confirmed(peers: &Peers, name: &str) -> bool {
    let targets = peers.sync.targets();
    let ix = targets.repos.find(&repo(1)).unwrap();
    let relay = targets.relays.get(peers.relay(name)).unwrap();
    relay.confirmed.repos.contains(ix.0)
}

fn in_step() -> Peers {
    let mut peers = Peers::both(ONE, TWO);
    for _ in 0..3 {
        answer(&mut peers, ONE);
        answer(&mut peers, TWO);
    }
    assert!(is_confirmed(&peers, ONE) && is_confirmed(&peers, TWO));
    peers
}

#[test]
fn what_one_relay_shows_and_withholds_has_others_compare_once() {
    let mut peers = in_step();
    let mut compared = Vec::new();
    for n in 0..20 {
        show(&mut peers, ONE, &junk(n));
        recall(&mut peers);
        for _ in 0..3 {
            answer(&mut peers, ONE);
            compared.extend(answer(&mut peers, TWO));
        }
        peers.pass(3 * SECOND);
    }
    for name in [ONE, TWO] {
        peers.say(name, FromRelay::Heard);
        answer(&mut peers, name);
    }
    assert_eq!(compared, [Some(Timestamp(1))]);
    assert!(is_confirmed(&peers, TWO));
    // What was left out meanwhile is looked for in the end.
    let mut later = Vec::new();
    for _ in 0..10 {
        peers.pass_with(ONE, MINUTE);
        peers.say(TWO, FromRelay::Heard);
        later.extend(answer(&mut peers, TWO));
        answer(&mut peers, ONE);
    }
    assert_eq!(later, [Some(Timestamp(1))]);
}

#[test]
fn what_is_on_its_way_is_not_spoiled_by_what_is_to_be_compared_anew() {
    let mut peers = Peers::both(ONE, TWO);
    answer(&mut peers, ONE);
    let running = peers.compared(TWO);
    let (sub, filter) = running.first().unwrap();
    assert!(of_announcements(filter));
    show(&mut peers, ONE, &junk(1));
    recall(&mut peers);
    for (fetch, filters) in [peers.subscribed(ONE), peers.subscribed(TWO)].concat() {
        assert!(filters[0].ids.is_some());
        peers.eose(ONE, fetch, 0);
    }
    let second = peers.subscribed(TWO).remove(0);
    peers.eose(TWO, second.0, 0);
    peers.pass(SECOND);
    peers.reconciled(TWO, *sub);
    let mut compared = Vec::new();
    while !is_confirmed(&peers, TWO) {
        let (sub, filter) = peers.compared(TWO).remove(0);
        compared.push(of_announcements(&filter));
        peers.reconciled(TWO, sub);
    }
    assert!(!compared.contains(&true), "the repository comes first");
    assert_eq!(answer(&mut peers, TWO), [Some(Timestamp(1))]);
}

#[test]
fn what_a_relay_showed_and_does_not_have_is_its_fault_but_ends_no_connection() {
    let mut peers = in_step();
    for n in 0..200 {
        show(&mut peers, ONE, &junk(n));
        recall(&mut peers);
        answer(&mut peers, ONE);
        answer(&mut peers, TWO);
        peers.pass(10 * SECOND);
    }
    let hollow = |note: &&Note| matches!(note, Note::Misbehaved { relay, fault } if relay.to_string() == ONE && *fault == Fault::Hollow);
    assert_eq!(peers.notes.iter().filter(hollow).count(), 1);
    let blamed =
        |note: &&Note| matches!(note, Note::Misbehaved { relay, .. } if relay.to_string() == TWO);
    assert_eq!(peers.notes.iter().filter(blamed).count(), 0);
    assert!(
        peers.link(ONE).is_up(),
        "somebody may have replaced what he published there"
    );
}

#[test]
fn what_was_looked_for_in_vain_is_not_looked_for_everywhere_again() {
    let mut peers = in_step();
    let mut compared = Vec::new();
    for _ in 0..24 {
        show(&mut peers, ONE, &junk(1));
        recall(&mut peers);
        for _ in 0..3 {
            answer(&mut peers, ONE);
            compared.extend(answer(&mut peers, TWO));
            peers.pass(SECOND);
        }
        let end = peers.now + HOUR / 2;
        while peers.now < end {
            peers.pass(MINUTE);
            peers.say(ONE, FromRelay::Heard);
            peers.say(TWO, FromRelay::Heard);
            answer(&mut peers, ONE);
            compared.extend(answer(&mut peers, TWO));
        }
    }
    assert_eq!(compared, [Some(Timestamp(1))]);
}
