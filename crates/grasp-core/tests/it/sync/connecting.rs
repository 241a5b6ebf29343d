//! Who is dialled and when (E1, E7, E14, E15).

use grasp_core::SyncLimits;
use grasp_core::backoff::Backoff;
use grasp_core::sync::io::{End, FromRelay};
use grasp_core::sync::{Health, Link, News, Note, Why};

use super::peers::{HOUR, Peers, SECOND, repo, root};

const ONE: &str = "wss://one.example";
const TWO: &str = "wss://two.example";

#[test]
fn relays_come_from_announcements_and_are_dialled_once() {
    let mut peers = Peers::new();
    peers.announce(&repo(1), &[ONE, TWO]);
    peers.announce(&repo(2), &["wss://ONE.example:443/", "ws://one.example"]);
    assert_eq!(peers.dialled(), [""; 0], "news are gathered first");
    peers.pass(SECOND);
    assert_eq!(peers.dialled(), [ONE, TWO]);
    peers.say(ONE, FromRelay::Up);
    peers.news(root(1, &[repo(1)]));
    peers.pass(SECOND);
    assert_eq!(peers.dialled(), [""; 0], "one line for each relay");
}

#[test]
fn a_bootstrap_relay_is_dialled_at_once_and_never_left() {
    let mut peers = Peers::with(SyncLimits::default(), &[ONE]);
    assert_eq!(peers.dialled(), [ONE]);
    peers.say(ONE, FromRelay::Up);
    for _ in 0..60 {
        peers.pass(60 * SECOND);
        peers.say(ONE, FromRelay::Heard);
    }
    assert!(peers.link(ONE).is_up());
}

#[test]
fn an_empty_relay_is_left_within_a_minute() {
    let mut peers = Peers::new();
    peers.announce(&repo(1), &[ONE]);
    peers.announce(&repo(2), &[TWO]);
    peers.pass(SECOND);
    peers.say(ONE, FromRelay::Up);
    peers.say(TWO, FromRelay::Up);
    peers.dialled();
    peers.news(News::Gone(repo(1)));
    peers.pass(61 * SECOND);
    assert_eq!(peers.hung_up(), 1);
    assert_eq!(peers.sync.targets().relays.len(), 1);
    assert!(peers.link(TWO).is_up());
    // And dialled again when somebody names it.
    peers.announce(&repo(3), &[ONE]);
    peers.pass(5 * SECOND);
    assert_eq!(peers.dialled(), [ONE]);
}

#[test]
fn attempts_come_after_5_10_20_seconds_and_then_every_hour() {
    let mut peers = Peers::new();
    peers.announce(&repo(1), &[ONE]);
    peers.pass(SECOND);
    for wait in [5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600] {
        assert_eq!(peers.dialled(), [ONE]);
        peers.fail(ONE);
        peers.pass((wait - 1) * SECOND);
        assert_eq!(peers.dialled(), [""; 0], "not before {wait} s");
        peers.pass(SECOND);
    }
}

#[test]
fn a_relay_that_fails_for_a_day_is_dead_and_tried_once_a_day() {
    let mut peers = Peers::new();
    peers.announce(&repo(1), &[ONE, TWO]);
    peers.pass(SECOND);
    peers.say(TWO, FromRelay::Up);
    let mut attempts = 0;
    while peers.now < 40 * HOUR {
        if matches!(peers.link(ONE), Link::Connecting { .. }) {
            attempts += 1;
            peers.fail(ONE);
        }
        peers.pass(5 * SECOND);
        peers.say(TWO, FromRelay::Heard);
    }
    let one = peers.relay(ONE);
    assert_eq!(peers.sync.health(one).unwrap().health, Health::Dead);
    let died = |note: &&Note| matches!(note, Note::Dead { .. });
    assert_eq!(peers.notes.iter().filter(died).count(), 1);
    assert!((30..40).contains(&attempts), "{attempts}");
    // One success and all is forgotten.
    while !matches!(peers.link(ONE), Link::Connecting { .. }) {
        peers.pass(5 * SECOND);
    }
    assert!(peers.now > 47 * HOUR, "{:?}", peers.now);
    peers.say(ONE, FromRelay::Up);
    assert_eq!(peers.sync.health(one).unwrap().health, Health::Healthy);
}

#[test]
fn a_line_that_never_answers_or_falls_silent_is_given_up() {
    let mut peers = Peers::new();
    peers.announce(&repo(1), &[ONE, TWO]);
    peers.pass(SECOND);
    peers.say(TWO, FromRelay::Up);
    peers.dialled();
    peers.pass(30 * SECOND);
    assert_eq!(peers.hung_up(), 1, "no answer");
    let failing = |link: &Link| {
        matches!(
            link,
            Link::Down {
                why: Why::Failing,
                ..
            }
        )
    };
    assert!(failing(peers.link(ONE)));
    assert!(peers.link(TWO).is_up());
    peers.pass(90 * SECOND);
    assert!(failing(peers.link(TWO)), "silent for two minutes");
}

#[test]
fn what_an_earlier_line_still_says_is_not_heard() {
    let mut peers = Peers::new();
    peers.announce(&repo(1), &[ONE]);
    peers.pass(SECOND);
    let (one, first) = (peers.relay(ONE), peers.conn(ONE));
    peers.fail(ONE);
    peers.say_on(one, first, FromRelay::Up);
    assert!(!peers.link(ONE).is_up());
    peers.pass(5 * SECOND);
    peers.say(ONE, FromRelay::Up);
    peers.say_on(one, first, FromRelay::Down(End::Closed));
    assert!(peers.link(ONE).is_up());
}

#[test]
fn there_are_no_more_lines_than_allowed_but_for_those_that_the_operator_names() {
    let limits = SyncLimits {
        connections: 1,
        ..SyncLimits::default()
    };
    let mut peers = Peers::with(limits, &[TWO]);
    assert_eq!(peers.dialled(), [TWO]);
    peers.announce(&repo(1), &[ONE]);
    peers.pass(SECOND);
    assert_eq!(peers.dialled(), [""; 0]);
    let no_room = |link: &Link| {
        matches!(
            link,
            Link::Down {
                why: Why::NoRoom,
                ..
            }
        )
    };
    assert!(no_room(peers.link(ONE)));
    peers.fail(TWO);
    peers.pass(2 * HOUR);
    assert!(!no_room(peers.link(ONE)) || !no_room(peers.link(TWO)));
}

#[test]
fn the_lines_of_one_owner_give_way_to_those_of_others() {
    let limits = SyncLimits {
        connections: 3,
        ..SyncLimits::default()
    };
    let mut peers = Peers::with(limits, &[]);
    let own = ["wss://a.example", "wss://b.example", "wss://c.example"];
    peers.announce(&repo(1), &own);
    peers.pass(SECOND);
    assert_eq!(peers.dialled().len(), 3);
    for name in own {
        peers.say(name, FromRelay::Up);
    }
    // Another owner has none yet: one of three goes to him, and then one of two is no more than his.
    peers.announce(&repo(2), &[ONE, TWO]);
    peers.pass(6 * SECOND);
    assert_eq!(peers.dialled().len(), 1);
    let up = own.iter().filter(|name| peers.link(name).is_up()).count();
    assert_eq!(up, 2);
    // One that two owners name comes before one that one does.
    let shared = "wss://shared.example";
    peers.announce(&repo(3), &[shared]);
    peers.announce(&repo(4), &[shared]);
    peers.pass(6 * SECOND);
    assert!(peers.dialled().contains(&shared.to_owned()));
    assert_eq!(peers.sync.audit(), Ok(()));
}

/// What several owners name is not worth an owner's only line.
#[test]
fn an_owners_only_line_gives_way_to_nobody() {
    let limits = SyncLimits {
        connections: 2,
        ..SyncLimits::default()
    };
    let mut peers = Peers::with(limits, &[]);
    peers.announce(&repo(1), &[ONE]);
    peers.announce(&repo(2), &[TWO]);
    peers.pass(SECOND);
    peers.say(ONE, FromRelay::Up);
    peers.say(TWO, FromRelay::Up);
    let shared = "wss://shared.example";
    peers.announce(&repo(3), &[shared]);
    peers.announce(&repo(4), &[shared]);
    peers.pass(6 * SECOND);
    assert!(peers.link(ONE).is_up() && peers.link(TWO).is_up());
    assert!(!peers.dialled().contains(&shared.to_owned()));
}

/// A relay that we left for others has done nothing wrong.
#[test]
fn a_line_that_gives_way_is_no_failure_of_its_relay() {
    let plain = SyncLimits::default();
    let limits = SyncLimits {
        connections: 2,
        empty_check: 5 * SECOND,
        // Whoever waits for room looks for it so often.
        backoff: Backoff {
            max: plain.backoff.base,
            ..plain.backoff
        },
        ..plain
    };
    let mut peers = Peers::with(limits, &[]);
    peers.announce(&repo(1), &[ONE, TWO]);
    peers.pass(SECOND);
    let other = "wss://other.example";
    let mut evicted = 0;
    for _ in 0..4 {
        while !(peers.link(ONE).is_up() && peers.link(TWO).is_up()) {
            peers.pass(SECOND);
            for name in [ONE, TWO] {
                match peers.link(name) {
                    Link::Connecting { .. } => peers.say(name, FromRelay::Up),
                    Link::Up(_) => peers.say(name, FromRelay::Heard),
                    Link::Down { .. } => {}
                }
            }
        }
        peers.announce(&repo(2), &[other]);
        peers.pass(6 * SECOND);
        evicted += [ONE, TWO]
            .iter()
            .filter(|name| !peers.link(name).is_up())
            .count();
        peers.announce(&repo(2), &[]);
    }
    assert_eq!(evicted, 4);
    let status = peers.sync.status(peers.clock());
    let failures = status.relays.iter().map(|relay| relay.health.failures);
    assert_eq!(failures.sum::<u32>(), 0);
}
