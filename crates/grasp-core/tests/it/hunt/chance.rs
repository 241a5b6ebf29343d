//! Whatever happens in whatever order: the books are right, and no limit is passed. The field
//! audits and measures after every step.

#![allow(clippy::unwrap_used, reason = "a story that breaks off has failed")]

use grasp_core::hunt::Source;
use grasp_core::hunt::io::FetchEnd;
use grasp_core::{DomainLimits, HuntLimits};

use super::field::{Field, MINUTE, MS, SECOND, Server, repo};

const REPOS: u32 = 12;
const OBJECTS: u32 = 60;
const HOSTS: [&str; 6] = ["a", "b", "c", "d", "e:8080", "f"];

fn field(rng: &mut fastrand::Rng) -> Field {
    let limits = HuntLimits {
        domain: DomainLimits {
            concurrent: rng.u32(1..6),
            per_minute: rng.u32(1..31),
        },
        fetches: rng.usize(1..17),
        domains_known: rng.usize(2..10),
        repositories: rng.usize(6..20),
        ..HuntLimits::default()
    };
    Field::with(limits)
}

fn server(rng: &mut fastrand::Rng) -> Server {
    let ends = [
        FetchEnd::Absent,
        FetchEnd::Busy(None),
        FetchEnd::Busy(Some(3 * SECOND)),
        FetchEnd::Unreachable,
        FetchEnd::Forbidden,
        FetchEnd::Failed,
        FetchEnd::TooSlow,
        FetchEnd::Cut { kept: true },
        FetchEnd::Cut { kept: false },
        FetchEnd::Spoiled,
        FetchEnd::Full,
        FetchEnd::DiskLow,
        FetchEnd::Ours,
    ];
    let has: Vec<u32> = (0..OBJECTS).filter(|_| rng.bool()).collect();
    let mut server = Server::with(&has);
    if rng.u8(..3) == 0 {
        server = Server::ends(*rng.choice(&ends).unwrap());
    }
    server.flows = rng.bool().then(|| SECOND * rng.u32(1..40));
    let takes = [0, 1, 100, 3_000, 20_000];
    server.after(*rng.choice(&takes).unwrap() * MS)
}

fn at(rng: &mut fastrand::Rng) -> String {
    let host = rng.choice(&HOSTS).unwrap();
    format!("{host}/{}", rng.u8(..4))
}

fn something_happens(field: &mut Field, next: &mut u32, rng: &mut fastrand::Rng) {
    let repo = repo(rng.u32(..REPOS));
    match rng.u8(..12) {
        0..5 => {
            let objects: Vec<u32> = (0..rng.u32(1..5)).map(|_| rng.u32(..OBJECTS)).collect();
            let servers: Vec<String> = (0..rng.u8(..8)).map(|_| at(rng)).collect();
            let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
            let source = match rng.bool() {
                true => Source::User,
                false => Source::Synced,
            };
            *next += 1;
            field.hold_all(&repo, *next, &objects, &servers, source);
        }
        5..7 => field.push(&repo, &[rng.u32(..OBJECTS)]),
        7 => field.expire(&repo),
        8 => {
            field.ground.held.remove(&repo);
            field.hunt.forget(&repo);
            field.take();
        }
        9..11 => {
            let at = at(rng);
            field.server(&at, server(rng));
        }
        _ => field.slow_release = !field.slow_release,
    }
}

/// Every server has everything from now on: whatever waits is found. What names no server would
/// keep others out.
fn recover(field: &mut Field) {
    field.slow_release = false;
    for needs in field.ground.held.values_mut() {
        needs.retain(|need| !need.servers.is_empty());
    }
    let all: Vec<u32> = (0..OBJECTS).collect();
    for host in HOSTS {
        for path in 0..4 {
            field.server(&format!("{host}/{path}"), Server::with(&all));
        }
    }
    for _ in 0..10 {
        for n in 0..REPOS {
            field.push(&repo(n), &[]);
            if field.ground.held.contains_key(&repo(n)) {
                field.hunt.expect(&repo(n), Source::Synced, field.clock());
            }
        }
        field.pass(60 * MINUTE);
    }
}

#[test]
fn the_books_are_right_whatever_happens() {
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut field = field(&mut rng);
        for _ in 0..40 {
            let at = at(&mut rng);
            field.server(&at, server(&mut rng));
        }
        let mut next = 0;
        for _ in 0..300 {
            something_happens(&mut field, &mut next, &mut rng);
            let span = [0, 1, 500, 5_000, 60_000];
            field.pass(*rng.choice(&span).unwrap() * MS);
        }
        recover(&mut field);
        let waiting = field.ground.held.values().flatten();
        let forgotten = waiting.filter(|need| !need.servers.is_empty());
        assert_eq!(forgotten.count(), 0, "seed {seed}");
        for n in 0..REPOS {
            field.expire(&repo(n));
        }
        field.pass(2 * MINUTE);
        assert!(field.hunt.is_empty(), "seed {seed}");
        assert!(field.open().is_empty(), "seed {seed}");
        assert!(!field.asked.is_empty(), "seed {seed}");
    }
}
