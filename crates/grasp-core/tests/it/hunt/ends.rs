//! What follows from each end of a fetch.

use std::time::Duration;

use grasp_core::hunt::io::FetchEnd;
use grasp_core::hunt::{HuntNote, MAX_CUTS, Source};

use super::field::{Field, MINUTE, MS, SECOND, Server, repo};

fn one_server(end: FetchEnd, takes: Duration) -> Field {
    let mut field = Field::new();
    field.server("one", Server::ends(end).after(takes));
    field.hold(&repo(1), 1, &["one", "two"], Source::Synced);
    field
}

/// Answers that are none say nothing against the domain.
#[test]
fn an_answer_without_data_is_no_ill_health() {
    let ends = [
        FetchEnd::Absent,
        FetchEnd::Answered,
        FetchEnd::Ours,
        FetchEnd::Full,
    ];
    for end in ends {
        let mut field = one_server(end, MS);
        field.pass(10 * MINUTE);
        let domains = field.hunt.status(field.clock()).domains;
        let ill = domains.iter().find(|domain| domain.failures > 0);
        assert_eq!(ill, None, "{end:?}");
    }
}

/// Failures are the domain's, whatever their kind.
#[test]
fn failures_are_counted_and_said() {
    let ends = [FetchEnd::Unreachable, FetchEnd::TooSlow, FetchEnd::Failed];
    for end in ends {
        let mut field = one_server(end, MS);
        field.pass(SECOND);
        let status = field.hunt.status_of(&repo(1), field.clock()).unwrap();
        let last = status.servers[0].last.as_ref().unwrap();
        assert_eq!((last.end, last.secs_ago), (end.label(), 0));
        field.pass(20 * SECOND);
        let resting = |note: &HuntNote| matches!(note, HuntNote::Resting { failures: 2, .. });
        assert!(field.notes.iter().any(resting), "{end:?}");
    }
}

const USELESS: [FetchEnd; 2] = [FetchEnd::Spoiled, FetchEnd::Cut { kept: false }];

/// What somebody has put on a server says nothing against the others there: only its own address
/// is left alone, longer and longer.
#[test]
fn a_useless_pack_rests_its_address_and_not_its_domain() {
    for end in USELESS {
        let mut field = Field::new();
        field.server("hub/mallory/bad", Server::ends(end).after(MS));
        field.hold(&repo(1), 1, &["hub/mallory/bad"], Source::Synced);
        field.pass_to(30 * MINUTE);
        let asked: Vec<u128> = field.times().iter().map(|at| at / 1_000).collect();
        assert_eq!(asked, [0, 20, 60, 140, 260, 500, 980], "{end:?}");
        field.server("hub/alice/good", Server::with(&[2]));
        field.hold(&repo(2), 2, &["hub/alice/good"], Source::Synced);
        field.pass(SECOND);
        assert!(field.released_at(2).is_some(), "{end:?}");
        let resting = |note: &HuntNote| matches!(note, HuntNote::Resting { .. });
        assert!(!field.notes.iter().any(resting), "{end:?}");
    }
}

/// One that spoils everybody's is left alone as a whole.
#[test]
fn a_server_whose_every_pack_is_useless_rests() {
    for end in USELESS {
        let mut field = Field::new();
        for n in 0..8 {
            let name = format!("hub/user{n}/r");
            field.server(&name, Server::ends(end).after(MS));
            field.hold(&repo(n), n, &[&name], Source::Synced);
        }
        field.pass_to(MINUTE);
        let resting = |note: &HuntNote| matches!(note, HuntNote::Resting { .. });
        assert!(field.notes.iter().any(resting), "{end:?}");
        field.server("hub/user0/r", Server::with(&[0]));
        field.pass_to(30 * MINUTE);
        assert!(field.released_at(0).is_some(), "{end:?}");
    }
}

/// A long history comes in pieces from one server, without waits between them.
#[test]
fn a_history_that_was_cut_goes_on_at_once() {
    let mut field = one_server(FetchEnd::Cut { kept: true }, SECOND);
    field.pass_to(5_400 * MS);
    field.server("one", Server::with(&[1]).after(SECOND));
    field.pass(10 * SECOND);
    assert_eq!(field.times(), [500, 1_500, 2_500, 3_500, 4_500]);
    assert_eq!(field.released_at(1), Some(5_500));
}

/// The same when it came from the queue of its domain.
#[test]
fn a_history_that_was_cut_goes_on_in_turns_on_a_full_domain() {
    let mut field = Field::new();
    for at in ["hub/long", "hub/a"] {
        field.server(at, Server::with(&[]).after(SECOND).flowing());
    }
    field.server(
        "hub/long",
        Server::ends(FetchEnd::Cut { kept: true }).after(SECOND),
    );
    for n in 1..=6 {
        field.hold(&repo(n), n, &["hub/a"], Source::Synced);
    }
    field.pass(MS);
    field.hold(&repo(9), 9, &["hub/long"], Source::Synced);
    field.pass_to(10 * SECOND);
    field.server("hub/long", Server::with(&[9]).after(SECOND));
    field.pass_to(15 * SECOND);
    let long = field.repos().iter().filter(|of| **of == repo(9)).count();
    assert!(long >= 9, "{long}");
    assert!(field.released_at(9).is_some());
}

/// An endless history is cut so many times in an attempt, and no more.
#[test]
fn an_endless_history_ends() {
    let mut field = one_server(FetchEnd::Cut { kept: true }, 10 * MS);
    field.pass_to(10 * MINUTE);
    let times = field.times();
    let pause = times.windows(2).position(|two| two[1] - two[0] >= 20_000);
    // The window of thirty in a minute stands between them, too.
    assert!(pause.is_some());
    let first: Vec<u128> = times.iter().copied().take_while(|at| *at < 620).collect();
    assert_eq!(first.len(), 12, "without waits at first");
    let attempts = field
        .notes
        .iter()
        .filter(|note| matches!(note, HuntNote::Began { .. }));
    assert!(attempts.count() >= 2 && times.len() > usize::from(MAX_CUTS));
}

/// An address that we do not dial is not asked for an hour; its domain is not blamed.
#[test]
fn a_forbidden_address_is_left_alone_for_an_hour() {
    let mut field = one_server(FetchEnd::Forbidden, MS);
    field.server("one/b", Server::with(&[2]));
    field.pass_to(59 * MINUTE);
    let of_one = |field: &mut Field| {
        let asked = field.asked_at().into_iter();
        asked.filter(|(_, host)| host == "one").count()
    };
    assert_eq!(of_one(&mut field), 1);
    field.hold(&repo(2), 2, &["one/b"], Source::Synced);
    field.pass_to(60 * MINUTE);
    assert!(field.released_at(2).is_some());
    field.pass_to(64 * MINUTE);
    assert_eq!(of_one(&mut field), 3);
}

/// A repository that may not grow asks nobody else in this attempt.
#[test]
fn a_full_repository_asks_no_other_server() {
    let mut field = one_server(FetchEnd::Full, MS);
    field.pass_to(20 * SECOND);
    assert_eq!(field.asked_at(), [(500, "one".to_owned())]);
}

/// A disk that is nearly full stops the whole hunt for a minute, with one word about it.
#[test]
fn a_low_disk_pauses_everything() {
    let mut field = Field::new();
    let low = Server::ends(FetchEnd::DiskLow).after(100 * MS);
    for host in ["one", "two"] {
        field.server(host, low.clone());
        field.server(&format!("{host}/b"), Server::with(&[3, 4]));
    }
    field.hold(&repo(1), 1, &["one"], Source::Synced);
    field.hold(&repo(2), 2, &["two"], Source::Synced);
    field.pass_to(SECOND);
    field.hold(&repo(3), 3, &["one/b"], Source::Synced);
    field.pass_to(MINUTE);
    assert_eq!(field.times(), [500, 500]);
    let low = |note: &&HuntNote| matches!(note, HuntNote::DiskLow { .. });
    assert_eq!(field.notes.iter().filter(low).count(), 1);
    assert!(field.hunt.status(field.clock()).paused_secs.is_some());
    field.server("one", Server::with(&[1]));
    field.server("two", Server::with(&[2]));
    field.pass_to(61 * SECOND);
    let released = [1, 2, 3].map(|n| field.released_at(n));
    assert_eq!(released, [Some(60_700); 3], "as soon as the pause is over");
}

/// Without a server to ask a repository waits like any other.
#[test]
fn a_repository_without_servers_waits() {
    let mut field = Field::new();
    field.hold(&repo(1), 1, &[], Source::Synced);
    field.pass_to(MINUTE);
    assert!(field.asked.is_empty());
    assert_eq!(field.hunt.len(), 1);
    let status = field.hunt.status_of(&repo(1), field.clock()).unwrap();
    assert_eq!((status.attempts, status.next_secs), (2, Some(0)));
}

/// A hunt that is switched off asks nobody and remembers nobody.
#[test]
fn a_hunt_that_is_off_does_nothing() {
    let limits = grasp_core::HuntLimits {
        enabled: false,
        ..Default::default()
    };
    let mut field = Field::with(limits);
    field.hold(&repo(1), 1, &["one"], Source::Synced);
    field.pass(MINUTE);
    assert!(field.asked.is_empty() && field.hunt.is_empty());
}
