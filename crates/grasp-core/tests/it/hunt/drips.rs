//! Servers that send a little now and then: they hold up neither the other events of their
//! repository nor other repositories.

#![allow(clippy::unwrap_used, reason = "a story that breaks off has failed")]

use grasp_core::hunt::io::FetchEnd;
use grasp_core::hunt::{MAX_FLIGHTS, Source};

use super::field::{Field, MINUTE, MS, NEVER, SECOND, Server, repo};

/// Ten minutes, and never below the pace at which others make way.
fn steady() -> Server {
    Server::ends(FetchEnd::Cut { kept: false })
        .after(10 * MINUTE)
        .flowing()
}

fn drip() -> Server {
    steady().dripping()
}

#[test]
fn a_state_is_fetched_while_a_pull_requests_server_sends_without_end() {
    let mut field = Field::new();
    field.server("fork", steady());
    field.server("main", Server::with(&[2]));
    field.hold_tip(&repo(1), 1, &["fork", "main"], Source::Synced);
    field.pass_to(MINUTE);
    assert_eq!(field.asked_at(), [(500, "fork".to_owned())]);
    field.hold(&repo(1), 2, &["main"], Source::Synced);
    field.pass(SECOND);
    assert_eq!(field.released_at(2), Some(60_600));
    let asked = [(500, "fork".to_owned()), (60_500, "main".to_owned())];
    assert_eq!(field.asked_at(), asked);
}

#[test]
fn other_pull_requests_are_fetched_meanwhile_from_other_servers() {
    let mut field = Field::new();
    let drips: Vec<String> = (0..10).map(|n| format!("drip{n}")).collect();
    for name in &drips {
        field.server(name, steady());
    }
    field.server("fork", Server::with(&[99]));
    field.hold_tip(&repo(1), 0, &[&drips[0]], Source::Synced);
    field.hold_tip(&repo(1), 99, &["fork"], Source::Synced);
    field.pass_to(SECOND);
    assert_eq!(field.released_at(99), Some(600));
    for (n, name) in (1..10).zip(&drips[1..]) {
        field.hold_tip(&repo(1), n, &[name], Source::Synced);
    }
    field.pass_to(MINUTE);
    assert_eq!(field.open().len(), MAX_FLIGHTS - 1);
}

/// One place of a repository is kept for what its maintainers say.
#[test]
fn steady_pull_requests_leave_a_place_for_a_later_state() {
    let mut field = Field::new();
    for n in 0..6 {
        let name = format!("fork{n}");
        field.server(&name, steady());
        field.hold_tip(&repo(1), n, &[&name], Source::Synced);
    }
    field.server("main", Server::with(&[99]));
    field.pass_to(MINUTE);
    field.hold(&repo(1), 99, &["fork0", "main"], Source::Synced);
    field.pass_to(2 * MINUTE);
    assert_eq!(field.released_at(99), Some(60_600));
}

/// Of the servers that may be asked, those come first that a state names.
#[test]
fn a_state_is_asked_for_before_pull_requests_of_servers_that_come_first() {
    let mut field = Field::new();
    for n in 0..4 {
        let name = format!("fork{n}");
        field.server(&name, Server::with(&[n]).after(SECOND));
        field.hold_tip(&repo(1), n, &[&name], Source::Synced);
    }
    field.server("main", Server::with(&[99]));
    field.hold(&repo(1), 99, &["main"], Source::Synced);
    field.pass_to(SECOND);
    assert_eq!(field.asked_at()[0], (500, "main".to_owned()));
}

/// Anybody may sign a pull request, of any repository.
#[test]
fn pull_requests_leave_a_quarter_of_all_places_to_states() {
    let mut field = Field::new();
    for n in 0..64 {
        let name = format!("fork{n}");
        field.server(&name, steady());
        field.hold_tip(&repo(n), n, &[&name], Source::Synced);
    }
    field.pass_to(MINUTE);
    assert_eq!(field.open().len(), 12);
    for n in 100..140 {
        let name = format!("main{n}");
        field.server(&name, Server::with(&[n]));
        field.hold(&repo(n), n, &[&name], Source::Synced);
    }
    field.pass_to(2 * MINUTE);
    for n in 100..140 {
        let released = field.released_at(n).unwrap();
        assert!(released < 62_000, "{n}: {released}");
    }
}

/// Each fetch that makes room is one that somebody waits for.
#[test]
fn no_more_make_room_than_there_are_who_wait() {
    let mut field = Field::new();
    for n in 0..16 {
        let name = format!("drip{n}");
        field.server(&name, drip());
        field.hold(&repo(n), n, &[&name], Source::Synced);
    }
    field.pass_to(MINUTE);
    let slow = Server::with(&[]).after(NEVER).flowing();
    field.server("good", slow);
    field.halts_after = SECOND;
    field.hold(&repo(99), 99, &["good"], Source::Synced);
    field.pass(600 * MS);
    for n in 0..5 {
        field.hold(&repo(n), n, &["nobody"], Source::User);
        field.push(&repo(n), &[]);
        field.pass(10 * MS);
    }
    assert_eq!(field.stopped.len(), 1);
}

/// What a state brings is most of what pull requests are made of: it is not fetched twice.
#[test]
fn pull_requests_wait_for_the_state_of_their_repository() {
    let mut field = Field::new();
    field.server("main", Server::with(&[1]).after(MINUTE).flowing());
    field.server("fork", Server::with(&[2]));
    field.hold(&repo(1), 1, &["main"], Source::Synced);
    field.hold_tip(&repo(1), 2, &["fork", "main"], Source::Synced);
    field.pass_to(MINUTE);
    assert_eq!(field.asked_at(), [(500, "main".to_owned())]);
    field.server("main", Server::with(&[]));
    field.pass_to(2 * MINUTE);
    assert_eq!(field.released_at(2), Some(60_700));
}

/// Whoever sees a state elsewhere may have a pull request ask for its commit at a slow server.
#[test]
fn a_pull_request_for_the_commit_of_a_state_does_not_hold_it_up() {
    let mut field = Field::new();
    field.server("fork", steady());
    field.server("main", Server::with(&[1]));
    field.hold_tip(&repo(1), 1, &["fork"], Source::Synced);
    field.pass_to(10 * SECOND);
    field.hold(&repo(1), 1, &["main"], Source::Synced);
    field.pass(SECOND);
    assert_eq!(field.released_at(1), Some(10_600));
}

/// Another server is asked for the same beside a drip, and then it makes way.
#[test]
fn a_drip_has_another_server_asked_beside_it() {
    let mut field = Field::new();
    field.server("one", drip());
    field.server("two", drip());
    field.server("three", Server::with(&[1]));
    field.hold(&repo(1), 1, &["one", "two", "three"], Source::Synced);
    field.pass_to(MINUTE);
    let asked = [
        (500, "one".to_owned()),
        (16_500, "two".to_owned()),
        (32_500, "three".to_owned()),
    ];
    assert_eq!(field.asked_at(), asked);
    assert_eq!(field.released_at(1), Some(32_600));
}

#[test]
fn drips_in_every_place_make_room_for_others() {
    let mut field = Field::new();
    for n in 0..64 {
        let name = format!("drip{n}");
        field.server(&name, drip());
        field.hold(&repo(n), n, &[&name], Source::Synced);
    }
    field.pass_to(SECOND);
    assert_eq!(field.open().len(), 16);
    field.server("good", Server::with(&[99]));
    field.hold(&repo(99), 99, &["good"], Source::Synced);
    field.pass_to(2 * MINUTE);
    let released = field.released_at(99).unwrap();
    assert!(released < 80_000, "{released}");
}

/// A drip that nobody waits behind is listened to.
#[test]
fn a_slow_server_is_waited_for_when_nobody_else_wants_its_place() {
    let mut field = Field::new();
    let slow = Server::with(&[1]).after(5 * MINUTE).dripping();
    field.server("slow", slow);
    field.hold(&repo(1), 1, &["slow"], Source::Synced);
    field.pass_to(6 * MINUTE);
    assert_eq!(field.released_at(1), Some(300_500));
    assert!(field.stopped.is_empty());
}

/// Events that come one after the other do not have a server asked for what it is bringing.
#[test]
fn new_events_do_not_fetch_twice_what_is_on_its_way() {
    let mut field = Field::new();
    field.server("main", Server::with(&[1]).after(NEVER).flowing());
    field.server("other", Server::with(&[2, 3]).after(100 * MS));
    field.hold(&repo(1), 1, &["main"], Source::Synced);
    for n in [2, 3] {
        field.pass(10 * SECOND);
        field.hold(&repo(1), n, &["main", "other"], Source::Synced);
    }
    field.pass(10 * SECOND);
    let of_main = |(_, host): &(u128, String)| host == "main";
    assert_eq!(field.asked_at().into_iter().filter(of_main).count(), 1);
    let released = [2, 3].map(|n| field.released_at(n));
    assert_eq!(released, [Some(10_600), Some(20_600)]);
}

/// A large history that is put together takes our time, and not the server's.
#[test]
fn our_own_work_on_what_has_come_is_nobodys_slowness() {
    let mut field = Field::new();
    field.server("large", Server::with(&[1]).after(10 * MINUTE));
    field.server("other", Server::with(&[1]));
    field.hold(&repo(1), 1, &["large", "other"], Source::Synced);
    field.pass_to(SECOND);
    let no = field.asked[0].no;
    field.hunt.on_flowing(no, 0, field.clock());
    field.hunt.on_arrived(no, field.clock());
    field.take();
    for n in 10..40 {
        let name = format!("steady{n}");
        field.server(&name, steady());
        field.hold(&repo(n), n, &[&name], Source::Synced);
    }
    field.pass_to(9 * MINUTE);
    assert!(field.stopped.is_empty(), "nobody takes its place");
    assert_eq!(field.asked_at()[0], (500, "large".to_owned()));
    let of_repo = field.repos().into_iter().filter(|of| *of == repo(1));
    assert_eq!(of_repo.count(), 1, "nor is anybody asked beside it");
    // Another pack begins to come, and falls behind.
    field.hunt.on_flowing(no, 0, field.clock());
    field.pass(MINUTE);
    assert!(field.stopped.contains(&no));
}
