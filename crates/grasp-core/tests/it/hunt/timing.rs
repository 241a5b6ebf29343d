//! When a repository is tried: the timelines of the seed.

use std::time::Duration;

use grasp_core::hunt::io::FetchEnd;
use grasp_core::hunt::{HuntNote, Source};

use super::field::{Field, MINUTE, MS, SECOND, Server, object, repo};

const THREE: [&str; 3] = ["one", "two", "three"];

/// Timeline A (G2, G8): the push that was expected comes.
#[test]
fn a_push_within_three_minutes_ends_the_hunt_before_it_begins() {
    let mut field = Field::new();
    field.hold(&repo(1), 1, &THREE, Source::User);
    field.pass(30 * SECOND);
    field.push(&repo(1), &[1]);
    assert_eq!(field.released_at(1), Some(30_000));
    assert!(field.hunt.is_empty());
    assert_eq!(field.hunt.poll_timeout(), None);
    field.pass(60 * MINUTE);
    assert!(field.asked.is_empty());
}

/// Timeline A, without the push: others are asked after three minutes and not before.
#[test]
fn a_users_event_is_hunted_for_after_three_minutes() {
    let mut field = Field::new();
    field.server("one", Server::with(&[1]));
    field.hold(&repo(1), 1, &THREE, Source::User);
    field.pass(10 * MINUTE);
    assert_eq!(field.times(), [180_000]);
    assert_eq!(field.released_at(1), Some(180_100));
    assert!(field.hunt.is_empty());
}

/// Timeline B: the data was there first.
#[test]
fn a_repository_that_needs_nothing_asks_nobody() {
    let mut field = Field::new();
    field.push(&repo(1), &[1]);
    field.hunt.expect(&repo(1), Source::Synced, field.clock());
    field.pass(MINUTE);
    assert!(field.asked.is_empty() && field.hunt.is_empty());
}

/// Timeline C (G2, G6): found on the second server, released at once.
#[test]
fn a_synced_event_is_hunted_for_after_half_a_second() {
    let mut field = Field::new();
    field.server("one", Server::with(&[]).after(4 * SECOND));
    field.server("two", Server::with(&[1]).after(40_500 * MS).flowing());
    field.server("three", Server::with(&[1]));
    field.hold(&repo(1), 1, &THREE, Source::Synced);
    field.pass(10 * MINUTE);
    let asked = [(500, "one".to_owned()), (4_500, "two".to_owned())];
    assert_eq!(field.asked_at(), asked);
    assert_eq!(field.released_at(1), Some(45_000));
    assert!(field.hunt.is_empty());
}

/// Timeline D (G4, G8): 0.5 s, then after 20, 40, 80, 120, 120 s; thirty minutes, and it is over.
#[test]
fn data_that_never_arrives_is_looked_for_until_the_event_expires() {
    let mut field = Field::new();
    let instantly = |server: Server| server.after(Duration::ZERO);
    field.server("one", instantly(Server::with(&[])));
    field.server("two", instantly(Server::ends(FetchEnd::TooSlow)));
    field.server("three", instantly(Server::ends(FetchEnd::Absent)));
    field.hold(&repo(1), 1, &THREE, Source::Synced);
    field.pass(10 * SECOND);
    field.server("two", instantly(Server::with(&[])));
    field.pass_to(30 * MINUTE);
    let mut times = field.times();
    assert!(
        times
            .chunks(3)
            .all(|three| three.iter().all(|at| *at == three[0]))
    );
    times.dedup();
    let first = [500, 20_500, 60_500, 140_500, 260_500, 380_500];
    assert_eq!(times[..6], first);
    assert!(
        times[6..]
            .iter()
            .zip(7..)
            .all(|(at, n)| *at == 380_500 + 120_000 * (n - 6))
    );
    field.expire(&repo(1));
    assert!(field.hunt.is_empty());
    let asked = field.asked.len();
    field.pass(60 * MINUTE);
    assert_eq!(field.asked.len(), asked);
    assert_eq!(field.hunt.poll_timeout(), None);
}

/// G2, the seed's burst: three events, one request for all of them.
#[test]
fn a_burst_of_events_makes_one_attempt() {
    let mut field = Field::new();
    field.server("one", Server::with(&[1, 2, 3]));
    for n in 1..=3 {
        field.hold(&repo(1), n, &["one"], Source::Synced);
        field.pass(100 * MS);
    }
    field.pass(MINUTE);
    assert_eq!(field.times(), [500]);
    assert_eq!(*field.asked[0].ask.wants, [1, 2, 3].map(object));
    assert!(field.released.len() == 3 && field.hunt.is_empty());
}

/// G2, the seed's example: attempts at 180 and 200 s, a new event at 210 s.
#[test]
fn a_new_event_makes_a_fresh_start() {
    let mut field = Field::new();
    field.server("one", Server::with(&[]).after(Duration::ZERO));
    field.hold(&repo(1), 1, &["one"], Source::User);
    field.pass_to(210 * SECOND);
    assert_eq!(field.times(), [180_000, 200_000]);
    let status = field.hunt.status_of(&repo(1), field.clock()).unwrap();
    assert_eq!((status.attempts, status.next_secs), (2, Some(30)));
    field.hold(&repo(1), 2, &["one"], Source::Synced);
    field.pass(100 * SECOND);
    let after = [210_500, 230_500, 270_500];
    assert_eq!(field.times()[2..], after, "the waits begin anew");
}

/// G2: a user's event, which may wait three minutes, does not make others wait.
#[test]
fn a_later_event_never_delays_an_attempt() {
    let mut field = Field::new();
    field.server("one", Server::with(&[]).after(Duration::ZERO));
    field.hold(&repo(1), 1, &["one"], Source::Synced);
    field.hold(&repo(1), 2, &["one"], Source::User);
    field.pass(SECOND);
    field.hold(&repo(1), 3, &["one"], Source::User);
    field.pass(30 * SECOND);
    assert_eq!(field.times(), [500, 20_500]);
}

/// G2: the running attempt goes on with the new event.
#[test]
fn an_event_during_an_attempt_joins_it() {
    let mut field = Field::new();
    field.server("one", Server::with(&[2]).after(2 * SECOND));
    field.hold(&repo(1), 1, &["one"], Source::Synced);
    field.pass(SECOND);
    field.hold(&repo(1), 2, &["one"], Source::Synced);
    field.pass(10 * SECOND);
    assert_eq!(field.times(), [500, 2_500]);
    assert_eq!(*field.asked[1].ask.wants, [object(2)]);
    assert_eq!(field.released_at(2), Some(4_500));
}

/// The last word tells whether the hunt was of use.
#[test]
fn the_end_says_what_came() {
    let mut field = Field::new();
    field.server("one", Server::with(&[1, 2]));
    field.hold_all(&repo(1), 1, &[1, 2, 3], &["one"], Source::Synced);
    field.pass(5 * SECOND);
    field.expire(&repo(1));
    let over = HuntNote::Over {
        repo: repo(1),
        came: 2,
    };
    assert_eq!(field.notes.last(), Some(&over));
}

/// G8: everybody is told how it stands.
#[test]
fn what_happens_is_noted() {
    let mut field = Field::new();
    field.server("one", Server::with(&[]));
    field.hold(&repo(1), 1, &["one"], Source::Synced);
    field.pass(5 * SECOND);
    field.push(&repo(1), &[1]);
    let notes = &field.notes;
    assert!(matches!(notes[0], HuntNote::Expected { delay, .. } if delay == 500 * MS));
    let began = HuntNote::Began {
        repo: repo(1),
        attempt: 1,
        servers: 1,
        objects: 1,
    };
    assert_eq!(notes[1], began);
    assert!(matches!(notes[2], HuntNote::Fetched { lacking: 1, .. }));
    let incomplete = HuntNote::Incomplete {
        repo: repo(1),
        attempts: 1,
        objects: 1,
        retry: 20 * SECOND,
    };
    assert_eq!(notes[3], incomplete);
    assert_eq!(
        notes[4..],
        [HuntNote::Over {
            repo: repo(1),
            came: 0
        }]
    );
}

/// G12: nothing is remembered that a restart would need.
#[test]
fn a_restart_begins_anew() {
    let mut before = Field::new();
    before.server("one", Server::with(&[]));
    before.hold(&repo(1), 1, &["one"], Source::Synced);
    before.pass_to(550 * MS);
    before.hunt.wind_down();
    before.take();
    assert_eq!(before.stopped.len(), 1);
    before.pass(MINUTE);
    assert_eq!(before.asked.len(), 1, "nothing is begun any more");
    assert_eq!(before.hunt.poll_timeout(), None);

    let mut field = Field::new();
    field.ground = before.ground;
    field.server("one", Server::with(&[1]));
    field.hunt.expect(&repo(1), Source::Synced, field.clock());
    field.pass(SECOND);
    assert_eq!(field.released_at(1), Some(600));
}

#[test]
fn those_that_have_waited_longest_are_told_first_and_all_are_counted() {
    let mut field = Field::new();
    for n in 0..5 {
        field.hold(&repo(9 - n), n, &THREE, Source::User);
        field.pass(SECOND);
    }
    let waits = |most| {
        let told = field.hunt.longest(most, field.clock());
        told.iter()
            .map(|told| told.waiting_secs)
            .collect::<Vec<_>>()
    };
    assert_eq!(waits(2), [5, 4]);
    assert_eq!(waits(50), [5, 4, 3, 2, 1]);
    assert_eq!(field.hunt.longest(1, field.clock())[0].id, repo(9));
    let (totals, status) = (
        field.hunt.totals(field.clock()),
        field.hunt.status(field.clock()),
    );
    assert_eq!(totals.repositories, status.repositories.len());
    assert_eq!(totals.in_flight, status.in_flight);
    assert!(totals.enabled && totals.paused_secs.is_none());
}
