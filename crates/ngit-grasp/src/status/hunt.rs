//! How the hunt for git data stands: what is held and for what, whom it was looked for at and why
//! it did not come, what happens next, and how each git server is. Whatever strangers can make
//! many of is told in part, those that have waited longest first, and counted in whole.

use grasp_core::admit::Needs;
use grasp_core::git::ObjectId;
use grasp_core::hunt::status::{DomainHunt, RepoHunt};
use grasp_core::purgatory::Held;
use grasp_core::{Core, EventId, Now, RepoId, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::{count, table, word};
use crate::inspect::span;
use crate::perform::held_kind;

/// Of each list, in JSON: a repository with its servers has 10 kB at most, an event and a domain
/// half a kB: less than 3 MB.
const MOST: usize = 200;
/// Of each list, for people.
const MOST_LINES: usize = 20;
/// Repositories and objects of one event.
const MOST_OF_EVENT: usize = 8;

#[derive(Debug, Clone, Serialize)]
pub struct HuntReport {
    pub enabled: bool,
    /// Our disk is nearly full: nothing is fetched for so long.
    pub paused_secs: Option<u64>,
    pub in_flight: usize,
    /// What would be asked if more fetches were allowed.
    pub in_line: usize,
    pub events_held: usize,
    pub repositories_waiting: usize,
    pub objects_missing: u64,
    pub domains_resting: usize,
    pub held: Vec<HeldEvent>,
    pub repositories: Vec<RepoHunt>,
    /// Those about which there is something to say.
    pub domains: Vec<DomainHunt>,
}

#[derive(Debug, Clone, Serialize)]
pub struct HeldEvent {
    pub id: EventId,
    pub kind: &'static str,
    pub waiting_secs: u64,
    pub expires_secs: u64,
    pub waits_for: &'static str,
    /// The first of them.
    pub repositories: Vec<String>,
    /// Objects that are not here, as far as somebody has looked.
    pub missing: usize,
    /// The first of them.
    pub objects: Vec<String>,
}

impl HuntReport {
    pub fn of(core: &Core, now: Now) -> Self {
        let (hunt, at) = (core.hunt(), now.mono);
        let totals = hunt.totals(at);
        let mut domains = hunt.domains(at);
        let resting = domains
            .iter()
            .filter(|domain| domain.resting_secs.is_some());
        let domains_resting = resting.count();
        domains.sort_by_key(|domain| {
            let busy = (domain.waiting, u64::from(domain.in_flight));
            std::cmp::Reverse((busy, domain.failures))
        });
        domains.truncate(MOST);
        Self {
            enabled: totals.enabled,
            paused_secs: totals.paused_secs,
            in_flight: totals.in_flight,
            in_line: totals.in_line,
            events_held: waiting(core).count(),
            repositories_waiting: totals.repositories,
            objects_missing: totals.missing,
            domains_resting,
            held: held(core, core.believed()),
            repositories: hunt.longest(MOST, at),
            domains,
        }
    }
}

/// An announcement whose time is over is remembered, and waits for nothing.
pub(super) fn waiting(core: &Core) -> impl Iterator<Item = &Held> {
    core.purgatory().iter().filter(|held| !held.remembered)
}

/// Those that go first.
fn held(core: &Core, now: Timestamp) -> Vec<HeldEvent> {
    let mut all: Vec<&Held> = waiting(core).collect();
    let age = |held: &&Held| (held.until, held.event.id);
    if MOST < all.len() {
        all.select_nth_unstable_by_key(MOST, age);
        all.truncate(MOST);
    }
    all.sort_unstable_by_key(age);
    let held_for = core.policy().limits.held_for.as_secs();
    let all = all.into_iter();
    all.map(|held| HeldEvent::of(held, held_for, now)).collect()
}

impl HeldEvent {
    fn of(held: &Held, held_for: u64, now: Timestamp) -> Self {
        let (waits_for, repositories, objects) = needs(held);
        let expires_secs = held.until.0.saturating_sub(now.0);
        let shown = objects.iter().take(MOST_OF_EVENT);
        Self {
            id: held.event.id,
            kind: held_kind(held.event.kind),
            waiting_secs: held_for.saturating_sub(expires_secs),
            expires_secs,
            waits_for,
            repositories,
            missing: objects.len(),
            objects: shown.map(ToString::to_string).collect(),
        }
    }
}

fn needs(held: &Held) -> (&'static str, Vec<String>, Vec<ObjectId>) {
    match &held.needs {
        Needs::Refs(state) => {
            let repo = RepoId::new(state.author, state.identifier.clone());
            let all = || state.refs.as_ref().map(|refs| refs.objects());
            let missing = held.missing.as_ref().map(|missing| missing.to_vec());
            let missing = missing.unwrap_or_else(|| all().unwrap_or_default());
            ("git data", vec![repo.to_string()], missing)
        }
        Needs::Tip { tip, repos } => {
            let repos = repos.iter().take(MOST_OF_EVENT);
            (
                "git data",
                repos.map(ToString::to_string).collect(),
                vec![*tip],
            )
        }
        Needs::State(announcement) => {
            let repo = announcement.repo.to_string();
            ("a state with its git data", vec![repo], Vec::new())
        }
        Needs::Release(_) => ("a held event", Vec::new(), Vec::new()),
        Needs::Arrival(_) => ("an event that is not here", Vec::new(), Vec::new()),
        Needs::Nothing => ("nothing that can come", Vec::new(), Vec::new()),
    }
}

const EVENTS: [&str; 6] = ["EVENT", "KIND", "HELD", "EXPIRES", "WAITS FOR", "OF"];
const SERVERS: [&str; 8] = [
    "REPOSITORY",
    "WAITS",
    "EVENTS",
    "MISSING",
    "TRIES",
    "NEXT",
    "SERVER",
    "LAST",
];
const DOMAINS: [&str; 6] = ["DOMAIN", "NOW", "MINUTE", "FAILURES", "RESTS", "WAITING"];

/// For people: tables of what is held, of the repositories with their servers, and of the domains,
/// as far as there are any, and a line for all.
pub fn render(hunt: &Value) -> String {
    let list = |name: &str| hunt[name].as_array().map_or(&[][..], Vec::as_slice);
    let mut text = String::new();
    section(&mut text, EVENTS, list("held"), |event| {
        vec![event_row(event)]
    });
    section(&mut text, SERVERS, list("repositories"), server_rows);
    section(&mut text, DOMAINS, list("domains"), |domain| {
        vec![domain_row(domain)]
    });
    text.push_str(&summary(hunt));
    text
}

fn section<const N: usize>(
    text: &mut String,
    columns: [&str; N],
    list: &[Value],
    rows_of: impl Fn(&Value) -> Vec<[String; N]>,
) {
    if list.is_empty() {
        return;
    }
    let shown = list.iter().take(MOST_LINES);
    let rows: Vec<[String; N]> = [columns.map(str::to_owned)]
        .into_iter()
        .chain(shown.flat_map(rows_of))
        .collect();
    text.push_str(&table(&rows));
    if list.len() > MOST_LINES {
        text.push_str("… (--json tells more)\n");
    }
    text.push('\n');
}

fn event_row(event: &Value) -> [String; EVENTS.len()] {
    let missing = count(event, "/missing");
    let waits_for = match missing {
        0 => word(event, "/waits_for").to_owned(),
        _ => format!("{} ({missing} objects)", word(event, "/waits_for")),
    };
    [
        word(event, "/id").to_owned(),
        word(event, "/kind").to_owned(),
        span(count(event, "/waiting_secs")),
        format!("in {}", span(count(event, "/expires_secs"))),
        waits_for,
        word(event, "/repositories/0").to_owned(),
    ]
}

/// A line for each server; what is about the repository stands in the first.
fn server_rows(repo: &Value) -> Vec<[String; SERVERS.len()]> {
    let next = match (word(repo, "/state"), repo["next_secs"].as_u64()) {
        (_, Some(secs)) => format!("in {}", span(secs)),
        ("ready", None) => "when there is room".to_owned(),
        (state, None) => state.to_owned(),
    };
    let number = |name: &str| count(repo, name).to_string();
    let mut head = [
        word(repo, "/repository").to_owned(),
        span(count(repo, "/waiting_secs")),
        number("/events"),
        number("/missing"),
        number("/attempts"),
        next,
    ];
    let servers = repo["servers"].as_array().map_or(&[][..], Vec::as_slice);
    let mut cells: Vec<[String; 2]> = servers
        .iter()
        .map(|server| [word(server, "/url").to_owned(), last(server)])
        .collect();
    if cells.is_empty() {
        cells.push(["-".to_owned(), "-".to_owned()]);
    }
    let row = |[server, last]: [String; 2]| {
        let [repository, waits, events, missing, tries, next] = std::mem::take(&mut head);
        [
            repository, waits, events, missing, tries, next, server, last,
        ]
    };
    cells.into_iter().map(row).collect()
}

/// How it went with a server, and what it does now if it does something.
fn last(server: &Value) -> String {
    let last = &server["last"];
    let ended = last["secs_ago"].as_u64().map(|ago| {
        let brought = match (count(last, "/got"), count(last, "/lacking")) {
            (0, 0) => String::new(),
            (got, lacking) => format!(", had {got}, lacked {lacking}"),
        };
        let problem = match word(last, "/problem") {
            "" => String::new(),
            problem => format!(" ({problem})"),
        };
        format!(
            "{}{problem}{brought}, {} ago",
            word(last, "/end"),
            span(ago)
        )
    });
    match (word(server, "/state"), ended) {
        ("asked", _) => "being asked".to_owned(),
        ("waits for its domain", Some(ended)) => format!("waits for its domain ({ended})"),
        ("waits for its domain", None) => "waits for its domain".to_owned(),
        (_, ended) => ended.unwrap_or_else(|| "-".to_owned()),
    }
}

fn domain_row(domain: &Value) -> [String; DOMAINS.len()] {
    let of = |now: &str, most: &str| format!("{}/{}", count(domain, now), count(domain, most));
    let rest = domain["resting_secs"].as_u64();
    let rest = rest.map(|secs| format!("{} ({})", span(secs), word(domain, "/why")));
    [
        word(domain, "/domain").to_owned(),
        of("/in_flight", "/concurrent"),
        of("/last_minute", "/per_minute"),
        count(domain, "/failures").to_string(),
        rest.unwrap_or_else(|| "-".to_owned()),
        count(domain, "/waiting").to_string(),
    ]
}

fn summary(hunt: &Value) -> String {
    if hunt["enabled"] != true {
        return "the hunt for git data is switched off\n".to_owned();
    }
    let number = |name: &str| count(hunt, &format!("/{name}"));
    let paused = hunt["paused_secs"].as_u64();
    let paused =
        paused.map(|secs| format!("; THE DISK IS NEARLY FULL: nothing is fetched for {secs} s"));
    format!(
        "{} repositories lack {} objects; {} fetches under way, {} wait for room; {} domains rest{}\n",
        number("repositories_waiting"),
        number("objects_missing"),
        number("in_flight"),
        number("in_line"),
        number("domains_resting"),
        paused.unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn people_see_what_is_held_where_it_was_looked_for_and_what_comes_next() {
        let text = render(&json!({
            "enabled": true, "in_flight": 1, "in_line": 0, "repositories_waiting": 2,
            "objects_missing": 3, "domains_resting": 1,
            "held": [{
                "id": "ab12", "kind": "state", "waiting_secs": 60, "expires_secs": 1740,
                "waits_for": "git data", "missing": 3, "repositories": ["npub1x/a"],
            }],
            "repositories": [
                {"repository": "npub1x/a", "waiting_secs": 60, "events": 1, "missing": 3,
                 "attempts": 2, "state": "waiting", "next_secs": 40, "servers": [
                    {"url": "https://a.example/a.git", "state": "done", "last":
                        {"secs_ago": 5, "end": "spoiled", "got": 0, "lacking": 0,
                         "problem": "object ab has a fault: contains '.git'"}},
                    {"url": "https://b.example/a.git", "state": "waits for its domain", "last":
                        {"secs_ago": 6, "end": "answered", "got": 1, "lacking": 2}},
                    {"url": "https://c.example/a.git", "state": "asked", "last": null},
                 ]},
                {"repository": "npub1y/b", "waiting_secs": 1, "state": "ready", "servers": []},
            ],
            "domains": [{
                "domain": "a.example", "in_flight": 2, "concurrent": 5, "last_minute": 12,
                "per_minute": 30, "failures": 2, "resting_secs": 30, "why": "too_slow", "waiting": 4,
            }],
        }));
        let lines: Vec<String> = text.lines().map(words).collect();
        let expected = [
            "EVENT KIND HELD EXPIRES WAITS FOR OF",
            "ab12 state 60 s in 29 min git data (3 objects) npub1x/a",
            "",
            "REPOSITORY WAITS EVENTS MISSING TRIES NEXT SERVER LAST",
            "npub1x/a 60 s 1 3 2 in 40 s https://a.example/a.git spoiled (object ab has a fault: contains '.git'), 5 s ago",
            "https://b.example/a.git waits for its domain (answered, had 1, lacked 2, 6 s ago)",
            "https://c.example/a.git being asked",
            "npub1y/b 1 s 0 0 0 when there is room - -",
            "",
            "DOMAIN NOW MINUTE FAILURES RESTS WAITING",
            "a.example 2/5 12/30 2 30 s (too_slow) 4",
            "",
            "2 repositories lack 3 objects; 1 fetches under way, 0 wait for room; 1 domains rest",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn nothing_to_tell_is_one_line() {
        let text = render(&json!({"enabled": true, "paused_secs": 42}));
        assert_eq!(text.lines().count(), 1);
        assert!(text.ends_with("nothing is fetched for 42 s\n"), "{text}");
        let text = render(&json!({"enabled": false}));
        assert_eq!(text, "the hunt for git data is switched off\n");
    }

    #[test]
    fn people_get_no_more_lines_than_they_can_read() {
        let domain = json!({"domain": "a.example"});
        let text = render(&json!({"enabled": true, "domains": vec![domain; 50]}));
        assert_eq!(text.lines().count(), 1 + MOST_LINES + 1 + 1 + 1);
        assert!(text.contains("--json"), "{text}");
    }
}
