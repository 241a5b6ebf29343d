//! How much is asked of one domain, and who is next (G3, G5, G9).

#![allow(clippy::unwrap_used, reason = "a story that breaks off has failed")]

use std::time::Duration;

use grasp_core::clone_url::Domain;
use grasp_core::hunt::io::FetchEnd;
use grasp_core::hunt::{HuntNote, Source};
use grasp_core::{DomainLimits, HuntLimits, RepoId};

use super::field::{Field, MINUTE, MS, SECOND, Server, repo};

fn limited(domain: &str, concurrent: u32, per_minute: u32) -> HuntLimits {
    let own = DomainLimits {
        concurrent,
        per_minute,
    };
    let mut limits = HuntLimits::default();
    limits.domains.insert(Domain::parse(domain).unwrap(), own);
    limits
}

fn hold_many(field: &mut Field, repos: std::ops::Range<u32>, servers: &[&str]) {
    for n in repos {
        field.hold(&repo(n), n, servers, Source::Synced);
    }
}

/// G5, the seed's example: five at once, and the next the moment that one ends.
#[test]
fn five_at_once_and_the_next_when_one_ends() {
    let mut field = Field::new();
    field.server("hub", Server::with(&[]).after(SECOND).flowing());
    hold_many(&mut field, 0..8, &["hub"]);
    field.pass_to(SECOND);
    assert_eq!(field.open().len(), 5);
    let status = field.hunt.status(field.clock());
    let hub = &status.domains[0];
    assert_eq!((hub.in_flight, hub.waiting, hub.last_minute), (5, 3, 5));
    field.pass_to(3 * SECOND);
    assert_eq!(
        field.times(),
        [500, 500, 500, 500, 500, 1_500, 1_500, 1_500]
    );
    let asked: std::collections::BTreeSet<RepoId> = field.repos().into_iter().collect();
    assert_eq!(asked.len(), 8);
}

/// G5: thirty in any minute; the window's end is a deadline, not a question asked every second.
#[test]
fn thirty_in_a_minute_and_the_rest_when_it_has_passed() {
    let mut field = Field::new();
    field.server("hub", Server::with(&[]).after(Duration::ZERO));
    hold_many(&mut field, 0..40, &["hub"]);
    field.pass_to(SECOND);
    assert_eq!(field.asked.len(), 30);
    // Forty repositories have their next attempts meanwhile, and do not wait twice.
    field.pass_to(61 * SECOND);
    assert_eq!(field.asked.len(), 30);
    let status = field.hunt.status(field.clock());
    assert_eq!(status.domains[0].waiting, 40);
    field.pass_to(61_500 * MS);
    assert_eq!(field.asked.len(), 60);
    let first: Vec<RepoId> = field.repos()[30..40].to_vec();
    let waited_longest: Vec<RepoId> = field.repos()[..30].to_vec();
    assert!(first.iter().all(|repo| !waited_longest.contains(repo)));
}

/// What a fetch asks for beyond the usual counts like further fetches.
#[test]
fn a_fetch_of_many_requests_counts_as_many() {
    let mut field = Field::new();
    let many = Server {
        requests: 13,
        ..Server::with(&[]).after(MS)
    };
    for n in 0..30 {
        let name = format!("hub/{n}");
        field.server(&name, many.clone());
        field.hold(&repo(n), n, &[&name], Source::Synced);
    }
    field.pass_to(SECOND);
    assert_eq!(field.asked.len(), 7, "three times eleven are too many");
    field.pass_to(61 * SECOND);
    assert_eq!(field.asked.len(), 7);
    field.pass_to(62 * SECOND);
    assert!(field.asked.len() > 7);
}

/// A fetch that never reached its server does not count.
#[test]
fn what_was_not_asked_does_not_count() {
    let mut field = Field::new();
    let full = Server {
        requests: 0,
        ..Server::ends(FetchEnd::Full).after(MS)
    };
    field.server("hub", full);
    hold_many(&mut field, 0..40, &["hub"]);
    field.pass_to(SECOND);
    assert_eq!(field.asked.len(), 40);
}

/// G9: `github.com:10,60`.
#[test]
fn limits_may_be_set_for_each_domain() {
    let mut field = Field::with(limited("big", 10, 60));
    for host in ["big", "small"] {
        field.server(host, Server::with(&[]).after(MINUTE).flowing());
    }
    hold_many(&mut field, 0..11, &["big"]);
    hold_many(&mut field, 11..17, &["small"]);
    field.pass_to(SECOND);
    let of = |host: &str| {
        let open = field.open();
        let of = open
            .iter()
            .filter(|asked| asked.ask.url.domain().as_str() == host);
        of.count()
    };
    assert_eq!((of("big"), of("small")), (10, 5));
}

/// G5: a domain is one, whatever its spelling.
#[test]
fn other_spellings_win_nothing() {
    let mut field = Field::new();
    let spellings = [
        "https://hub.example/a.git",
        "http://hub.example/a.git",
        "https://HUB.example:443/a.git",
        "http://hub.example.:80/a.git",
    ];
    for spelling in spellings {
        field.server(spelling, Server::with(&[]).after(MINUTE).flowing());
    }
    for n in 0..12 {
        let spelling = spellings[n as usize % 4];
        field.hold(&repo(n), n, &[spelling], Source::Synced);
    }
    field.pass_to(SECOND);
    assert_eq!(field.open().len(), 5);
    assert_eq!(field.hunt.status(field.clock()).domains.len(), 1);
}

/// G5, the seed's table: A, B, C, A, B, C; each with one URL at a time.
#[test]
fn waiting_repositories_take_turns() {
    let mut field = Field::with(limited("hub", 1, 30));
    let urls = ["hub/one", "hub/two", "hub/three"];
    for at in ["hub/one", "hub/two", "hub/three", "hub/busy"] {
        field.server(at, Server::with(&[]).after(SECOND).flowing());
    }
    field.hold(&repo(9), 9, &["hub/busy"], Source::Synced);
    field.pass(MS);
    for n in 0..3 {
        field.hold(&repo(n), n, &urls, Source::Synced);
        field.pass(MS);
    }
    field.pass_to(10 * SECOND);
    let turns = [9, 0, 1, 2, 0, 1, 2, 0, 1, 2].map(repo);
    assert_eq!(field.repos()[..10], turns);
    let urls: Vec<String> = field.asked[1..10]
        .iter()
        .map(|asked| asked.ask.url.as_str().replace("https://hub/", ""))
        .collect();
    let thrice = |name: &str| std::iter::repeat_n(name.to_owned(), 3);
    let expected: Vec<String> = ["one.git", "two.git", "three.git"]
        .iter()
        .flat_map(|name| thrice(name))
        .collect();
    assert_eq!(urls, expected);
}

/// G3: servers that have room are asked at once; a throttled one is left to its queue.
#[test]
fn a_full_domain_holds_up_no_other_server() {
    let mut field = Field::with(limited("hub", 1, 30));
    field.server("hub", Server::with(&[2]).after(MINUTE).flowing());
    field.server("other", Server::with(&[]));
    field.hold(&repo(1), 1, &["hub"], Source::Synced);
    field.pass(MS);
    field.hold(&repo(2), 2, &["hub", "other"], Source::Synced);
    field.pass_to(SECOND);
    let asked = [(500, "hub".to_owned()), (501, "other".to_owned())];
    assert_eq!(field.asked_at(), asked);
    let status = field.hunt.status_of(&repo(2), field.clock()).unwrap();
    assert_eq!((status.attempts, status.state), (1, "waiting"));
    assert_eq!(status.servers[0].state, "waits for its domain");
    field.pass_to(60_500 * MS);
    assert_eq!(
        field.repos().last(),
        Some(&repo(2)),
        "its turn comes with the slot"
    );
    field.pass_to(121 * SECOND);
    assert_eq!(field.released_at(2), Some(120_500));
}

/// G3: one URL at a time: who has a fetch under way is passed over, and woken at its end.
#[test]
fn a_repository_with_a_fetch_under_way_is_passed_over() {
    let mut field = Field::with(limited("hub", 1, 30));
    field.server("hub", Server::with(&[]).after(2 * SECOND).flowing());
    field.server("slow", Server::with(&[]).after(4 * SECOND).flowing());
    field.hold(&repo(1), 1, &["hub"], Source::Synced);
    field.pass(MS);
    field.hold(&repo(2), 2, &["hub", "slow"], Source::Synced);
    field.pass(MS);
    field.hold(&repo(3), 3, &["hub"], Source::Synced);
    field.pass_to(10 * SECOND);
    let asked = [
        (500, "hub".to_owned()),
        (501, "slow".to_owned()),
        (2_500, "hub".to_owned()),
        (4_501, "hub".to_owned()),
    ];
    assert_eq!(field.asked_at(), asked);
    assert_eq!(field.repos(), [1, 2, 3, 2].map(repo));
}

/// G8: who needs nothing more leaves every queue.
#[test]
fn a_push_takes_a_repository_out_of_the_queues() {
    let mut field = Field::with(limited("hub", 1, 30));
    field.server("hub", Server::with(&[]).after(SECOND).flowing());
    hold_many(&mut field, 0..4, &["hub"]);
    field.pass_to(SECOND);
    let open = field.open()[0].ask.repo.clone();
    let waiting = (0..4).find(|n| repo(*n) != open).unwrap();
    field.push(&repo(waiting), &[waiting]);
    assert_eq!(field.hunt.status(field.clock()).domains[0].waiting, 2);
    field.pass_to(4 * SECOND);
    assert!(!field.repos().contains(&repo(waiting)));
}

/// Dead hosts are asked less: from the second failure on a domain rests, longer each time, and
/// then one fetch shows whether it is back.
#[test]
fn a_dead_domain_rests_and_one_answer_heals_it() {
    let mut field = Field::new();
    field.server("dead", Server::ends(FetchEnd::Unreachable).after(MS));
    hold_many(&mut field, 0..10, &["dead"]);
    field.pass_to(SECOND);
    assert_eq!(field.asked.len(), 6, "those that were under way together");
    let status = field.hunt.status(field.clock());
    let dead = &status.domains[0];
    assert_eq!((dead.failures, dead.why), (2, Some("unreachable")));
    assert_eq!((dead.resting_secs, dead.waiting), (Some(29), 4));
    field.pass_to(10 * MINUTE);
    let probes: Vec<u128> = field.times()[6..].iter().map(|at| at / 1_000).collect();
    assert_eq!(probes, [30, 90, 210, 450]);
    let mut probed: Vec<RepoId> = field.repos()[6..].to_vec();
    probed.dedup();
    assert_eq!(probed.len(), 4, "in turns");
    field.server("dead", Server::with(&[]).after(MS));
    field.pass_to(16 * MINUTE);
    assert!(
        field
            .notes
            .iter()
            .any(|note| matches!(note, HuntNote::Healed { .. }))
    );
    let asked: std::collections::BTreeSet<RepoId> = field.repos()[10..].iter().cloned().collect();
    assert_eq!(asked.len(), 10, "everybody, as soon as it is back");
}

/// A busy server is left alone for as long as it asks, by everybody.
#[test]
fn a_busy_server_is_given_the_time_it_asks_for() {
    let mut field = Field::new();
    let busy = FetchEnd::Busy(Some(90 * SECOND));
    field.server("hub", Server::ends(busy).after(Duration::ZERO));
    field.server("hub/b", Server::with(&[2]));
    field.hold(&repo(1), 1, &["hub"], Source::Synced);
    field.pass_to(SECOND);
    field.hold(&repo(2), 2, &["hub/b"], Source::Synced);
    field.pass_to(90 * SECOND);
    assert_eq!(field.times(), [500]);
    field.pass_to(100 * SECOND);
    assert_eq!(field.times()[1], 90_500);
    assert_eq!(field.released_at(2), Some(90_600));
}

/// A repository whose every server rests has its attempts, and is served when one wakes.
#[test]
fn who_waits_for_a_resting_server_is_asked_for_when_it_wakes() {
    let mut field = Field::new();
    let busy = FetchEnd::Busy(Some(50 * SECOND));
    field.server("hub", Server::ends(busy).after(Duration::ZERO));
    field.hold(&repo(1), 1, &["hub"], Source::Synced);
    field.pass_to(SECOND);
    field.server("hub", Server::with(&[1]));
    field.pass_to(MINUTE);
    assert_eq!(field.released_at(1), Some(50_600));
}

/// Nobody is asked thirty times before a restart and thirty times after it.
#[test]
fn a_restart_begins_slowly() {
    let mut field = Field::new();
    field.hunt.begin_slowly(field.clock());
    field.server("hub", Server::with(&[]).after(Duration::ZERO));
    hold_many(&mut field, 0..40, &["hub"]);
    field.pass_to(60 * SECOND);
    assert_eq!(field.asked.len(), 5);
    field.pass_to(61_400 * MS);
    assert_eq!(field.asked.len(), 30);
    field.server("late", Server::with(&[]).after(Duration::ZERO));
    hold_many(&mut field, 100..140, &["late"]);
    field.pass(SECOND);
    let late = field.asked_at().into_iter();
    assert_eq!(late.filter(|(_, host)| host == "late").count(), 30);
}
