//! The status page: whether all is well, in words and numbers, and for the operator every relay,
//! held event, hunt, git server and disk. The stream of updates sends the same part of the page.

mod rows;

use std::sync::Arc;

use askama::Template;

use self::rows::{
    DomainRow, HeldRow, HuntRow, RelayRow, domain_row, drawn, held_row, hunt_row, relay_rows,
};
use super::network::{Look, Picture};
use super::render;
use super::words::{bytes, grouped, kind_words, moment};
use crate::disk::{Disk, Room};
use crate::inspect::span;
use crate::status::verdict::{Verdict, plural};
use crate::status::{Audience, Coverage, Form, Snapshot};

/// Rows of each table, for the operator and for others.
const MOST_ROWS: usize = 100;
const MOST_PUBLIC_ROWS: usize = 24;
const MOST_HUNTS: usize = 20;

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
    let longest = format!("{} ms", grouped(machine.longest_turn_ms));
    let note = "since the start; nobody is answered meanwhile".to_owned();
    tiles.push(tile("Longest decision", "longest-turn", longest, note));
    tiles
}

fn held_kinds(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let held = snapshot.report.held.iter();
    held.map(|(kind, count)| (kind_words(kind, *count), grouped(*count as u64)))
        .collect()
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
