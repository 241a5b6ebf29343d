//! Which server is asked for which objects (G3, G6).

use grasp_core::HuntLimits;
use grasp_core::hunt::io::{FetchEnd, Fetched};
use grasp_core::hunt::{MAX_SERVERS, MAX_WANTS, Source};

use super::field::{Field, MINUTE, MS, NEVER, SECOND, Server, object, repo};

/// G6: parts from several servers; each event is released the moment that its own data is whole.
#[test]
fn parts_come_from_several_servers() {
    let mut field = Field::new();
    field.server("one", Server::with(&[1, 2]));
    field.server("two", Server::with(&[3]));
    field.server("three", Server::with(&[4, 5]));
    let servers = ["one", "two", "three", "four"];
    field.hold_all(&repo(1), 1, &[1], &servers, Source::Synced);
    field.hold_all(&repo(1), 2, &[2, 3], &servers, Source::Synced);
    field.hold_all(&repo(1), 3, &[1, 4, 5], &servers, Source::Synced);
    field.pass(MINUTE);
    let released = [1, 2, 3].map(|n| field.released_at(n));
    assert_eq!(released, [Some(600), Some(700), Some(800)]);
    let wants: Vec<usize> = field.asked.iter().map(|at| at.ask.wants.len()).collect();
    assert_eq!(wants, [5, 3, 2], "what was found is not asked for again");
    assert!(field.hunt.is_empty(), "and the fourth is not asked at all");
}

/// What was fetched and is still being looked at is not asked for again.
#[test]
fn what_was_found_is_not_asked_for_while_it_is_looked_at() {
    let mut field = Field::new();
    (field.slow_release, field.ground.blind) = (true, true);
    field.server("one", Server::with(&[1]));
    field.server("two", Server::with(&[2]));
    field.hold_all(
        &repo(1),
        1,
        &[1, 2],
        &["one", "two", "three"],
        Source::Synced,
    );
    field.pass_to(10 * SECOND);
    assert_eq!(field.times(), [500, 600]);
    assert_eq!(*field.asked[1].ask.wants, [object(2)]);
    let status = field.hunt.status_of(&repo(1), field.clock()).unwrap();
    assert_eq!((status.missing, status.state), (0, "waiting"));
    field.ground.blind = false;
    field.push(&repo(1), &[]);
    assert!(field.hunt.is_empty() && field.released_at(1).is_some());
}

/// Objects of an event are asked of the servers that the event names, all events in one request.
#[test]
fn a_pull_requests_own_server_is_asked_for_its_tip_alone() {
    let mut field = Field::new();
    field.server("main", Server::with(&[1]));
    field.server("fork", Server::with(&[2]));
    field.hold(&repo(1), 1, &["main"], Source::Synced);
    field.hold(&repo(1), 2, &["fork", "main"], Source::Synced);
    field.pass(SECOND);
    let asked: Vec<_> = field.asked.iter().map(|at| at.ask.wants.to_vec()).collect();
    assert_eq!(asked, [vec![object(1), object(2)], vec![object(2)]]);
    assert_eq!(field.asked[1].ask.url.domain().as_str(), "fork");
}

/// More objects than one request carries: the rest next.
#[test]
fn many_objects_are_asked_for_in_several_requests() {
    let mut field = Field::new();
    let objects: Vec<u32> = (0..2_500).collect();
    field.server("one", Server::with(&objects[..2_400]));
    field.server("two", Server::with(&objects[2_400..]));
    field.hold_all(&repo(1), 1, &objects, &["one", "two"], Source::Synced);
    field.pass(MINUTE);
    let wants: Vec<usize> = field.asked.iter().map(|at| at.ask.wants.len()).collect();
    assert_eq!(wants, [MAX_WANTS, MAX_WANTS, 500, 100]);
    assert!(field.released_at(1).is_some());
}

/// A fetch that has too much to ask answers a part of it: the rest is asked for next.
#[test]
fn what_a_server_was_not_asked_for_is_asked_for_next() {
    let mut field = Field::new();
    let few = Server {
        answers: 8,
        requests: 10,
        ..Server::with(&[19])
    };
    field.server("one", few);
    for n in 0..20 {
        field.hold_tip(&repo(1), n, &["one"], Source::Synced);
    }
    field.pass_to(SECOND);
    let wants: Vec<usize> = field.asked.iter().map(|at| at.ask.wants.len()).collect();
    assert_eq!(wants, [20, 12, 4]);
    assert_eq!(field.released_at(19), Some(800));
}

/// Who had the data of a repository the last time is asked first the next time.
#[test]
fn who_had_the_last_data_is_asked_first() {
    let mut field = Field::new();
    field.server("three", Server::with(&[1, 2]));
    for n in [1, 2] {
        field.hold(&repo(1), n, &["one", "two", "three"], Source::Synced);
        field.pass(MINUTE);
    }
    let hosts: Vec<String> = field.asked_at().into_iter().map(|(_, host)| host).collect();
    assert_eq!(hosts, ["one", "two", "three", "three"]);
    assert!(field.hunt.is_empty());
}

/// A server that sends nothing for five seconds has the next one asked beside it; when that is
/// silent too, the first makes way for a third.
#[test]
fn a_silent_server_has_another_asked_beside_it() {
    let mut field = Field::new();
    field.server("one", Server::ends(FetchEnd::TooSlow).after(30 * SECOND));
    field.server("two", Server::ends(FetchEnd::TooSlow).after(40 * SECOND));
    field.server("three", Server::with(&[1]));
    field.hold(&repo(1), 1, &["one", "two", "three"], Source::Synced);
    field.pass_to(MINUTE);
    let asked = [
        (500, "one".to_owned()),
        (5_500, "two".to_owned()),
        (10_500, "three".to_owned()),
    ];
    assert_eq!(field.asked_at(), asked);
    assert_eq!(field.released_at(1), Some(10_600));
    assert_eq!(field.stopped.len(), 2, "neither is of use any more");
    assert!(field.open().is_empty());
}

/// Servers that never answer keep nobody waiting for a place, and are left alone after a while.
#[test]
fn silent_servers_make_room_for_others() {
    let limits = HuntLimits {
        fetches: 2,
        ..HuntLimits::default()
    };
    let mut field = Field::with(limits);
    for n in 1..=6 {
        let name = format!("tarpit{n}");
        field.server(&name, Server::ends(FetchEnd::TooSlow).after(90 * SECOND));
        field.hold(&repo(n), n, &[&name], Source::Synced);
    }
    field.server("good", Server::with(&[7]));
    field.hold(&repo(7), 7, &["good"], Source::Synced);
    field.pass_to(MINUTE);
    let released = field.released_at(7);
    assert!(released.is_some_and(|at| at < 20_000), "{released:?}");
}

/// A pack that flows is waited for, however long it is.
#[test]
fn a_pack_that_flows_is_not_fetched_twice() {
    let mut field = Field::new();
    field.server("one", Server::with(&[1]).after(5 * MINUTE).flowing());
    field.server("two", Server::with(&[1]));
    field.hold(&repo(1), 1, &["one", "two"], Source::Synced);
    field.pass(10 * MINUTE);
    assert_eq!(field.asked.len(), 1);
    assert_eq!(field.released_at(1), Some(300_500));
}

/// G8: a push that brings the data stops the fetch that is under way.
#[test]
fn a_push_stops_the_fetch() {
    let mut field = Field::new();
    field.server("one", Server::with(&[1]).after(NEVER).flowing());
    field.hold(&repo(1), 1, &["one"], Source::Synced);
    field.pass(10 * SECOND);
    field.push(&repo(1), &[1]);
    assert_eq!(field.stopped.len(), 1);
    assert!(field.hunt.is_empty());
    field.pass(SECOND);
    assert!(field.open().is_empty());
}

/// A push of something else stops nothing; one of all that is wanted, but not of all that is
/// needed, stops what is of no use.
#[test]
fn only_what_is_of_no_use_is_stopped() {
    let mut field = Field::new();
    field.server("fork", Server::with(&[]).after(NEVER).flowing());
    field.hold(&repo(1), 1, &["fork"], Source::Synced);
    field.pass(10 * SECOND);
    field.hold(&repo(1), 2, &["fork"], Source::User);
    field.push(&repo(1), &[9]);
    assert!(field.stopped.is_empty());
    field.push(&repo(1), &[1]);
    assert_eq!(field.stopped.len(), 1);
    assert_eq!(field.hunt.len(), 1);
}

/// What an earlier fetch of a repository that has come back brings is not taken for an answer to
/// the later one.
#[test]
fn a_stopped_fetch_ends_after_its_repository_came_back() {
    let mut field = Field::new();
    field.server("one", Server::with(&[1]).after(NEVER).flowing());
    field.hold(&repo(1), 1, &["one"], Source::Synced);
    field.pass(10 * SECOND);
    let no = field.asked[0].no;
    field.hunt.forget(&repo(1));
    assert!(field.hunt.is_empty());
    field.hunt.expect(&repo(1), Source::Synced, field.clock());
    let late = Fetched {
        got: vec![object(1)],
        here: Vec::new(),
        lacking: Vec::new(),
        bytes: 1,
        requests: 1,
        end: FetchEnd::Stopped,
        problem: None,
    };
    field.fetched(no, &late);
    assert!(field.hunt.is_empty(), "it brought everything all the same");
    assert!(field.released_at(1).is_some());
    let nobody = field
        .hunt
        .on_fetched(no, &late, field.clock(), &field.ground);
    assert_eq!(nobody, None);
}

/// More servers than are asked in one attempt: everybody's is asked in time.
#[test]
fn many_named_servers_crowd_nobody_out() {
    let mut field = Field::new();
    let names: Vec<String> = (0..100).map(|n| format!("h{n}")).collect();
    for (n, name) in (0..).zip(&names) {
        field.hold(&repo(1), n, &[name], Source::Synced);
    }
    field.server("h77", Server::with(&[77]));
    field.pass_to(1_100 * MS);
    assert!(field.asked.len() <= MAX_SERVERS);
    field.pass_to(30 * MINUTE);
    assert!(field.released_at(77).is_some());
}

/// What a push brought before the server was asked is not its merit.
#[test]
fn who_had_the_data_is_who_sent_it() {
    let ends = [
        (vec![], vec![object(1)], 0, FetchEnd::Answered),
        (vec![object(1)], vec![], 3, FetchEnd::Stopped),
    ];
    for (got, here, requests, end) in ends {
        let mut field = Field::new();
        field.server("one", Server::with(&[1]).after(NEVER));
        field.hold(&repo(1), 1, &["one"], Source::Synced);
        field.pass(SECOND);
        let no = field.asked[0].no;
        let (lacking, bytes) = (Vec::new(), 0);
        let fetched = Fetched {
            got,
            here,
            lacking,
            bytes,
            requests,
            end,
            problem: None,
        };
        field.fetched(no, &fetched);
        field.take();
        assert!(field.released_at(1).is_some());
        field.hold(&repo(1), 2, &["two", "one"], Source::Synced);
        field.pass(600 * MS);
        assert_eq!(field.asked_at()[1].1, "two", "{end:?}");
    }
}

/// Large repositories take their time before anything comes of them.
#[test]
fn whoever_makes_way_for_others_is_asked_again_after_them() {
    let mut field = Field::new();
    field.server("slow", Server::with(&[1]).after(15 * SECOND));
    let pits = ["pit1", "pit2", "pit3"];
    for pit in pits {
        let silent = Server::ends(FetchEnd::TooSlow).after(90 * SECOND);
        field.server(pit, silent);
    }
    let all = [&["slow"], &pits[..]].concat();
    field.hold(&repo(1), 1, &all, Source::Synced);
    field.pass_to(3 * MINUTE);
    let released = field.released_at(1).unwrap();
    assert!(released < 130_000, "{released}");
}

#[test]
fn what_is_wrong_with_a_servers_data_is_shown_with_it() {
    let mut field = Field::new();
    field.server("one", Server::with(&[1]).after(NEVER));
    field.hold(&repo(1), 1, &["one"], Source::Synced);
    field.pass(SECOND);
    let no = field.asked[0].no;
    let fetched = Fetched {
        got: Vec::new(),
        here: Vec::new(),
        lacking: Vec::new(),
        bytes: 1_000,
        requests: 3,
        end: FetchEnd::Spoiled,
        problem: Some("object ab has a fault".into()),
    };
    field.fetched(no, &fetched);
    let status = field.hunt.status_of(&repo(1), field.clock()).unwrap();
    let last = status.servers[0].last.clone().unwrap();
    assert_eq!(last.problem.as_deref(), Some("object ab has a fault"));
}
