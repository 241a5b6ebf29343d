//! A thousand repositories at fifty hosts, half of them dead: nobody starves, and no host is ever
//! asked more than its limits (the field measures that at every step).

#![allow(clippy::unwrap_used, reason = "a story that breaks off has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use grasp_core::hunt::io::FetchEnd;
use grasp_core::hunt::{HuntNote, Source};
use grasp_core::{Identifier, RepoId};

use super::field::{Field, MINUTE, MS, SECOND, Server, repo};

const REPOS: u32 = 1_000;
const HOSTS: u32 = 50;

fn is_dead(host: u32) -> bool {
    host % 2 == 1
}

/// Each repository names four hosts in an order of its own, one path for each repository; the
/// last living one of them has the data.
fn crowd() -> Field {
    let mut field = Field::new();
    let mut rng = fastrand::Rng::with_seed(1);
    for n in 0..REPOS {
        let hosts: Vec<u32> = (0..4).map(|_| rng.u32(..HOSTS)).collect();
        let hosts = [hosts, vec![2 * rng.u32(..HOSTS / 2)]].concat();
        let living = hosts.iter().rev().find(|host| !is_dead(**host));
        let names: Vec<String> = hosts.iter().map(|host| format!("h{host}/r{n}")).collect();
        for (host, name) in hosts.iter().zip(&names) {
            let server = match () {
                () if is_dead(*host) => Server::ends(FetchEnd::Unreachable).after(10 * SECOND),
                () if Some(host) == living => Server::with(&[n]).after(SECOND).flowing(),
                () => Server::with(&[]).after(SECOND).flowing(),
            };
            field.server(name, server);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        field.hold(&repo(n), n, &names, Source::Synced);
    }
    field
}

#[test]
fn nobody_starves_among_dead_hosts() {
    let mut field = crowd();
    field.pass_to(29 * MINUTE);
    let late: Vec<u32> = (0..REPOS)
        .filter(|n| field.released_at(*n).is_none())
        .collect();
    assert!(late.is_empty(), "{} still wait: {late:?}", late.len());
    assert!(field.hunt.is_empty());
    let mut dead: BTreeMap<String, usize> = BTreeMap::new();
    for asked in &field.asked {
        *dead.entry(asked.ask.url.domain().to_string()).or_default() += 1;
    }
    let asked_of_dead = dead.iter().filter(|(host, _)| {
        let number: u32 = host.trim_start_matches('h').parse().unwrap();
        is_dead(number)
    });
    let most = asked_of_dead.map(|(_, count)| *count).max();
    assert!(most <= Some(12), "a dead host was asked {most:?} times");
    let last = field.released.values().max().copied().unwrap_or_default();
    assert!(
        last < Duration::from_secs(15 * 60),
        "the last after {last:?}"
    );
}

/// Histories that come in slices take hours, and those of others do not wait so long.
#[test]
fn large_histories_take_turns_with_small_ones() {
    let mut field = Field::new();
    for n in 0..16 {
        let name = format!("large{n}");
        let cut = Server::ends(FetchEnd::Cut { kept: true });
        field.server(&name, cut.after(9 * MINUTE).flowing());
        field.hold(&repo(n), n, &[&name], Source::Synced);
    }
    field.pass_to(MINUTE);
    for n in 16..96 {
        let name = format!("small{n}");
        field.server(&name, Server::with(&[n]));
        field.hold(&repo(n), n, &[&name], Source::Synced);
    }
    field.pass_to(29 * MINUTE);
    let late = (16..96).filter(|n| field.released_at(*n).is_none());
    assert_eq!(late.count(), 0);
    assert_eq!(field.open().len(), 16, "the large ones go on");
}

/// The end of one fetch costs the same, however many wait.
#[test]
fn the_end_of_a_fetch_looks_at_few_repositories() {
    let mut field = Field::new();
    field.server("hub", Server::with(&[]).after(SECOND).flowing());
    for n in 0..2_000 {
        field.hold(&repo(n), n, &["hub"], Source::Synced);
    }
    field.pass_to(1_499 * MS);
    assert_eq!(field.open().len(), 5);
    for _ in 0..5 {
        let before = field.ground.asked.get();
        field.now = 1_500 * MS;
        field.step();
        let looked = field.ground.asked.get() - before;
        assert!(looked <= 3, "{looked} repositories");
    }
}

/// Ten minutes, and never below the pace at which others make way.
fn steady() -> Server {
    Server::ends(FetchEnd::Cut { kept: false })
        .after(10 * MINUTE)
        .flowing()
}

/// New repositories of one owner each.
fn strangers(field: &mut Field, numbers: std::ops::Range<u32>, host: impl Fn(u32) -> String) {
    for n in numbers {
        let name = host(n);
        field.server(&name, steady());
        field.hold_new(&repo(n), n, &[&name]);
    }
}

fn another_of_the_first_owner(n: u32) -> RepoId {
    RepoId::new(repo(0).owner, Identifier::parse(&format!("r{n}")).unwrap())
}

fn held_against_somebody(field: &Field) -> bool {
    let is = |note: &HuntNote| matches!(note, HuntNote::Resting { .. });
    field.notes.iter().any(is)
}

/// Anybody may announce a repository, and listen on many ports.
#[test]
fn strangers_on_many_ports_of_one_host_have_no_more_than_one_domain_has() {
    let mut field = Field::new();
    strangers(&mut field, 0..40, |n| {
        format!("evil:{}/r{n}", 1_000 + n % 4)
    });
    field.pass_to(MINUTE);
    assert_eq!(field.open().len(), 5, "and no fewer, if nobody else waits");
    field.server("main", Server::with(&[99]));
    field.hold(&repo(99), 99, &["main"], Source::Synced);
    field.pass_to(2 * MINUTE);
    assert_eq!(field.released_at(99), Some(60_600));
    field.pass_to(29 * MINUTE);
    let repos: BTreeSet<RepoId> = field.repos().into_iter().collect();
    assert!(
        repos.len() > 10,
        "the others have their turns: {}",
        repos.len()
    );
}

#[test]
fn strangers_with_many_hosts_leave_a_quarter_to_repositories_that_are_served() {
    let mut field = Field::new();
    strangers(&mut field, 0..40, |n| format!("evil{n}"));
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

#[test]
fn new_repositories_and_pull_requests_together_leave_some_to_those_that_are_served() {
    let mut field = Field::new();
    for n in 200..240 {
        let name = format!("fork{n}");
        field.server(&name, steady());
        field.hold_tip(&repo(n), n, &[&name], Source::Synced);
    }
    strangers(&mut field, 0..40, |n| format!("evil{n}"));
    field.pass_to(MINUTE);
    assert_eq!(field.open().len(), 14);
    field.server("main", Server::with(&[99]));
    field.hold(&repo(99), 99, &["main"], Source::Synced);
    field.pass_to(2 * MINUTE);
    assert_eq!(field.released_at(99), Some(60_600));
}

#[test]
fn one_owners_new_repositories_wait_behind_others() {
    let mut field = Field::new();
    for n in 0..40 {
        let name = format!("evil{n}");
        field.server(&name, steady());
        field.hold_new(&another_of_the_first_owner(n), n, &[&name]);
    }
    field.server("good", Server::with(&[98]));
    field.hold_new(&repo(98), 98, &["good"]);
    field.pass_to(MINUTE);
    assert_eq!(field.released_at(98), Some(600), "the last to come");
    assert_eq!(field.open().len(), 12, "and then there is nobody else");
    field.server("other", Server::with(&[99]));
    field.hold_new(&repo(99), 99, &["other"]);
    field.pass_to(2 * MINUTE);
    let released = field.released_at(99).unwrap();
    assert!(
        released < 61_200,
        "those who had their time make way: {released}"
    );
    assert!(!held_against_somebody(&field));
}

#[test]
fn a_host_with_many_new_repositories_makes_way_for_others_and_goes_on() {
    let mut field = Field::new();
    strangers(&mut field, 0..60, |n| format!("large{}/r{n}", n % 3));
    field.pass_to(30 * SECOND);
    assert_eq!(field.open().len(), 12);
    for n in 100..110 {
        let name = format!("small{n}");
        field.server(&name, Server::with(&[n]));
        field.hold_new(&repo(n), n, &[&name]);
    }
    field.pass_to(61 * SECOND);
    for n in 100..110 {
        let released = field.released_at(n).unwrap();
        assert!((60_000..61_000).contains(&released), "{n}: {released}");
    }
    let first = field.asked.first().unwrap();
    assert_eq!(first.over, None, "the first goes on to its end");
    assert!(!held_against_somebody(&field));
}

#[test]
fn nobody_makes_way_for_whoever_has_gone() {
    let mut field = Field::new();
    strangers(&mut field, 0..12, |n| format!("large{}/r{n}", n % 3));
    field.pass_to(SECOND);
    field.hold_new(&repo(50), 50, &["small"]);
    field.pass_to(30 * SECOND);
    field.expire(&repo(50));
    field.pass_to(2 * MINUTE);
    assert!(field.stopped.is_empty());
}
