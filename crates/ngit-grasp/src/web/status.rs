//! The status page: whether all is well, in words and numbers, and for the operator every relay,
//! held event, hunt, git server and disk. The stream of updates sends the same part of the page.

use std::sync::Arc;

use askama::Template;
use grasp_core::hunt::status::{DomainHunt, RepoHunt};
use grasp_core::sync::Health;
use grasp_core::sync::status::{RelayStatus, State};

use super::network::{Look, Picture, Relay};
use super::render;
use super::words::{bytes, grouped, kind_words, moment};
use crate::disk::{Disk, Room};
use crate::inspect::span;
use crate::status::verdict::{Verdict, plural};
use crate::status::{Audience, Coverage, Form, HeldEvent, Snapshot};

/// Rows of each table, for the operator and for others.
const MOST_ROWS: usize = 100;
const MOST_PUBLIC_ROWS: usize = 24;
/// Hunts have lines of their own: 20 of 5 servers with addresses of 512 bytes are 50 kB.
const MOST_HUNTS: usize = 20;
const MOST_SERVERS: usize = 5;

#[derive(Template)]
#[template(path = "status.html")]
struct Page<'a> {
    name: &'a str,
    part: Arc<str>,
    detailed: bool,
}

#[derive(Template)]
#[template(path = "status_part.html")]
struct Part<'a> {
    detailed: bool,
    as_of: String,
    as_of_iso: String,
    uptime: String,
    version: &'static str,
    verdict: &'a Verdict,
    tiles: Vec<Tile>,
    picture: Picture,
    legend: Vec<(Look, usize)>,
    relays: Vec<RelayRow>,
    more_relays: usize,
    held_kinds: Vec<(&'static str, String)>,
    held: Vec<HeldRow>,
    more_held: usize,
    hunting: String,
    hunts: Vec<HuntRow>,
    more_hunts: usize,
    domains: Vec<DomainRow>,
    git: Vec<Tile>,
    room: &'static str,
    disks: Vec<Tile>,
}

/// A number, and where it is explained.
struct Tile {
    label: &'static str,
    meaning: &'static str,
    value: String,
    note: String,
}

struct RelayRow {
    number: usize,
    url: String,
    bootstrap: bool,
    look: Look,
    why: String,
    coverage: String,
    per_cent: u64,
    per_minute: String,
    found: String,
    lag: String,
    next: String,
}

struct HeldRow {
    id: String,
    kind: &'static str,
    age: String,
    expires: String,
    waits_for: String,
    of: String,
    short_of: String,
}

struct HuntRow {
    repository: String,
    short: String,
    waiting: String,
    missing: u32,
    attempts: u32,
    next: String,
    done: usize,
    servers: usize,
    told: Vec<(String, String)>,
    more_servers: usize,
}

struct DomainRow {
    domain: String,
    now: String,
    minute: String,
    /// Per cent of the minute's budget.
    used: u64,
    failures: u32,
    rests: String,
    waiting: usize,
}

pub fn status_page(name: &str, snapshot: &Snapshot, audience: Audience) -> String {
    render(&Page {
        name,
        part: status_part(snapshot, audience),
        detailed: audience == Audience::Operator,
    })
}

/// Rendered once for all who are told the same.
pub fn status_part(snapshot: &Snapshot, audience: Audience) -> Arc<str> {
    snapshot.written(Form::Page, audience, |snapshot| {
        render(&part(snapshot, audience == Audience::Operator))
    })
}

fn part(snapshot: &Snapshot, detailed: bool) -> Part<'_> {
    let (report, machine) = (&snapshot.report, &snapshot.machine);
    let (sync, hunt) = (&report.sync, &report.hunt);
    let drawn = drawn(snapshot, detailed);
    let of = |wanted: Look| drawn.iter().filter(|one| one.look == wanted).count();
    let legend = Look::ALL.map(|look| (look, of(look)));
    let most = if detailed {
        MOST_ROWS
    } else {
        MOST_PUBLIC_ROWS
    };
    // Held events, hunts, domains and disks are the operator's.
    let own = |most: usize| if detailed { most } else { 0 };
    Part {
        detailed,
        as_of: moment(report.now.0),
        as_of_iso: format!("{}Z", moment(report.now.0).replace(' ', "T")),
        uptime: span(report.uptime_secs),
        version: report.version,
        verdict: &snapshot.verdict,
        tiles: glance(snapshot),
        picture: Picture::of(&drawn),
        legend: legend.into_iter().filter(|(_, n)| *n > 0).collect(),
        relays: relay_rows(snapshot, most),
        more_relays: sync.relays.len().saturating_sub(most),
        held_kinds: held_kinds(snapshot),
        held: hunt
            .held
            .iter()
            .take(own(MOST_ROWS))
            .map(held_row)
            .collect(),
        more_held: hunt.events_held.saturating_sub(MOST_ROWS),
        hunting: hunting(snapshot),
        hunts: hunt
            .repositories
            .iter()
            .take(own(MOST_HUNTS))
            .map(hunt_row)
            .collect(),
        more_hunts: hunt.repositories_waiting.saturating_sub(MOST_HUNTS),
        domains: hunt
            .domains
            .iter()
            .take(own(MOST_ROWS))
            .map(domain_row)
            .collect(),
        git: git(snapshot),
        room: room(machine.room),
        disks: if detailed {
            disks(snapshot)
        } else {
            Vec::new()
        },
    }
}

fn glance(snapshot: &Snapshot) -> Vec<Tile> {
    let (report, machine) = (&snapshot.report, &snapshot.machine);
    let (sync, hunt) = (&report.sync, &report.hunt);
    let count = |number: usize| grouped(number as u64);
    vec![
        tile("Events", "events", grouped(machine.events), {
            format!("{} came in the last minute", grouped(report.lately.events))
        }),
        tile(
            "Repositories",
            "repositories",
            count(report.repositories.served),
            {
                match report.repositories.waiting {
                    0 => "served".to_owned(),
                    waiting => format!("served, {waiting} more await their first push"),
                }
            },
        ),
        tile("Sync coverage", "coverage", share(report.coverage), {
            match sync.wanted {
                0 => "no event is known to be missing".to_owned(),
                wanted => format!("{} events on their way", count(wanted)),
            }
        }),
        tile("Relays", "relays", count(sync.relays_connected), {
            format!("connected of {}", count(sync.relays_tracked))
        }),
        tile("Held events", "held", count(hunt.events_held), {
            "wait for git data, and are not served".to_owned()
        }),
        tile("Hunts", "hunts", count(hunt.repositories_waiting), {
            let fetches = plural(hunt.in_flight, "fetch", "fetches");
            format!("{fetches} under way")
        }),
    ]
}

fn tile(label: &'static str, meaning: &'static str, value: String, note: String) -> Tile {
    Tile {
        label,
        meaning,
        value,
        note,
    }
}

fn share(coverage: Coverage) -> String {
    let per_cent = coverage.per_cent();
    per_cent.map_or_else(|| "–".to_owned(), |share| format!("{share} %"))
}

fn git(snapshot: &Snapshot) -> Vec<Tile> {
    let (git, lately) = (&snapshot.machine.git, &snapshot.report.lately);
    let in_minute = |count: u64| format!("{} in the last minute", grouped(count));
    vec![
        tile(
            "Pushes",
            "pushes",
            grouped(git.pushes),
            in_minute(lately.pushes),
        ),
        tile("Refused", "refused", grouped(git.pushes_refused), {
            "pushes that no signed state asked for".to_owned()
        }),
        tile(
            "Clones",
            "clones",
            grouped(git.clones),
            in_minute(lately.clones),
        ),
        tile(
            "Under way",
            "running",
            grouped(git.running),
            "pushes and clones".to_owned(),
        ),
        tile(
            "Received",
            "received",
            bytes(git.received_bytes),
            "by pushes".to_owned(),
        ),
        tile(
            "Sent",
            "sent",
            bytes(git.sent_bytes),
            "to clones".to_owned(),
        ),
    ]
}

fn room(room: Room) -> &'static str {
    match room {
        Room::Enough => "There is enough room.",
        Room::Little => "It is getting full.",
        Room::None => "It is full: pushes are refused until there is room.",
    }
}

fn disks(snapshot: &Snapshot) -> Vec<Tile> {
    let machine = &snapshot.machine;
    let free = |disk: &Disk| {
        let note = format!("{}; {} stay free", disk.path.display(), bytes(disk.least));
        tile("Free", "free", bytes(disk.free), note)
    };
    let mut tiles: Vec<Tile> = machine.disks.iter().map(free).collect();
    let note = "on disk".to_owned();
    tiles.push(tile(
        "Event store",
        "store",
        bytes(machine.store_bytes),
        note,
    ));
    tiles
}

fn look(relay: &RelayStatus) -> Look {
    match (relay.state, relay.health.health) {
        (State::Connected, _) => Look::Well,
        (State::Syncing, _) => Look::Busy,
        (_, Health::Dead) => Look::Dead,
        (_, Health::Degraded) => Look::Failing,
        (State::Connecting | State::Disconnected, Health::Healthy) => Look::Idle,
    }
}

fn per_minute(relay: &RelayStatus, snapshot: &Snapshot) -> u64 {
    let relays = &snapshot.report.lately.relays;
    relays.get(&relay.url).copied().unwrap_or_default()
}

/// Numbered by their addresses: a relay keeps its number whatever happens to it.
fn numbered(snapshot: &Snapshot) -> Vec<(usize, &RelayStatus)> {
    let mut all: Vec<&RelayStatus> = snapshot.report.sync.relays.iter().collect();
    all.sort_by(|one, other| one.url.cmp(&other.url));
    (1..).zip(all).collect()
}

fn drawn(snapshot: &Snapshot, detailed: bool) -> Vec<Relay> {
    let all = numbered(snapshot).into_iter();
    all.map(|(number, relay)| Relay {
        number,
        name: if detailed {
            relay.url.clone()
        } else {
            String::new()
        },
        look: look(relay),
        per_minute: per_minute(relay, snapshot),
    })
    .collect()
}

/// Those that need somebody first.
fn relay_rows(snapshot: &Snapshot, most: usize) -> Vec<RelayRow> {
    let mut all = numbered(snapshot);
    all.sort_by_key(|(number, relay)| (look(relay), *number));
    all.truncate(most);
    let rows = all.into_iter();
    rows.map(|(number, relay)| relay_row(number, relay, snapshot))
        .collect()
}

fn relay_row(number: usize, relay: &RelayStatus, snapshot: &Snapshot) -> RelayRow {
    let now = snapshot.report.now.0;
    // What a dead relay keeps to itself is not known to exist.
    let coverage = match relay.health.health {
        Health::Dead => Coverage::default(),
        Health::Healthy | Health::Degraded => Coverage::at(relay),
    };
    let record = &relay.record;
    let failures = relay.health.failures;
    let why = match (relay.why, failures) {
        (Some(why), 2..) => format!("{why}, {failures} in a row"),
        (why, _) => why.unwrap_or_default().to_owned(),
    };
    let next = match relay.next.at {
        Some(at) => format!("{} in {}", relay.next.what, span(at.0.saturating_sub(now))),
        None => relay.next.what.to_owned(),
    };
    RelayRow {
        number,
        url: relay.url.clone(),
        bootstrap: relay.bootstrap,
        look: look(relay),
        why,
        coverage: share(coverage),
        per_cent: coverage.per_cent().unwrap_or_default(),
        per_minute: grouped(per_minute(relay, snapshot)),
        found: grouped(record.live + record.catch_up + record.daily),
        lag: relay.lag_ms.map_or_else(|| "–".to_owned(), lag),
        next,
    }
}

fn lag(milliseconds: u64) -> String {
    match milliseconds {
        0..=9_999 => format!("{milliseconds} ms"),
        _ => span(milliseconds / 1_000),
    }
}

fn held_kinds(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let held = snapshot.report.held.iter();
    held.map(|(kind, count)| (kind_words(kind, *count), grouped(*count as u64)))
        .collect()
}

fn held_row(event: &HeldEvent) -> HeldRow {
    let waits_for = match event.missing {
        0 => event.waits_for.to_owned(),
        1 => format!("{}, 1 object", event.waits_for),
        missing => format!("{}, {missing} objects", event.waits_for),
    };
    HeldRow {
        id: event.id.to_string(),
        kind: kind_words(event.kind, 1),
        age: span(event.waiting_secs),
        expires: span(event.expires_secs),
        waits_for,
        short_of: event
            .repositories
            .first()
            .map_or_else(String::new, |of| short(of)),
        of: event.repositories.first().cloned().unwrap_or_default(),
    }
}

/// A key by its beginning, and the identifier.
fn short(repository: &str) -> String {
    match repository.split_once('/') {
        Some((owner, name)) => {
            let owner: String = owner.chars().take(10).collect();
            format!("{owner}…/{name}")
        }
        None => repository.to_owned(),
    }
}

fn hunting(snapshot: &Snapshot) -> String {
    let hunt = &snapshot.report.hunt;
    if !hunt.enabled {
        return "The hunt for git data is switched off.".to_owned();
    }
    match hunt.repositories_waiting {
        0 => "No git data is missing.".to_owned(),
        count => {
            let what = plural(count, "repository lacks", "repositories lack");
            let fetches = plural(hunt.in_flight, "fetch", "fetches");
            format!("{what} git data; {fetches} under way.")
        }
    }
}

fn hunt_row(hunt: &RepoHunt) -> HuntRow {
    let done = hunt.servers.iter().filter(|server| server.state == "done");
    let told = hunt.servers.iter().take(MOST_SERVERS).map(|server| {
        let last = server.last.as_ref().map(|last| {
            let end = last.end.replace('_', " ");
            format!("{end} {} ago", span(last.secs_ago))
        });
        let told = match (server.state, last) {
            ("asked", _) => "being asked".to_owned(),
            ("waits for its domain", _) => "waits for its server".to_owned(),
            (_, Some(last)) => last,
            (_, None) => "not asked yet".to_owned(),
        };
        (server.url.clone(), told)
    });
    HuntRow {
        short: short(&hunt.repository),
        repository: hunt.repository.clone(),
        waiting: span(hunt.waiting_secs),
        missing: hunt.missing,
        attempts: hunt.attempts,
        next: match (hunt.state, hunt.next_secs) {
            (_, Some(secs)) => format!("next try in {}", span(secs)),
            ("trying", None) => "being tried".to_owned(),
            (_, None) => "waits for room".to_owned(),
        },
        done: done.count(),
        servers: hunt.servers.len(),
        told: told.collect(),
        more_servers: hunt.servers.len().saturating_sub(MOST_SERVERS),
    }
}

fn domain_row(domain: &DomainHunt) -> DomainRow {
    let rest = domain.resting_secs.map(|secs| {
        let why = domain.why.unwrap_or_default().replace('_', " ");
        format!("for {}: {why}", span(secs))
    });
    DomainRow {
        domain: domain.domain.clone(),
        now: format!("{} of {}", domain.in_flight, domain.concurrent),
        minute: format!("{} of {}", domain.last_minute, domain.per_minute),
        used: (100 * domain.last_minute as u64 / u64::from(domain.per_minute).max(1)).min(100),
        failures: domain.failures,
        rests: rest.unwrap_or_else(|| "no".to_owned()),
        waiting: domain.waiting,
    }
}
