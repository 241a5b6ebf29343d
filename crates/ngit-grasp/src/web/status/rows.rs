//! The rows of the status page's tables, in words.

use grasp_core::hunt::status::{DomainHunt, RepoHunt};
use grasp_core::sync::Health;
use grasp_core::sync::status::{RelayStatus, State};

use super::share;
use crate::inspect::span;
use crate::status::{Coverage, HeldEvent, Snapshot};
use crate::web::network::{Look, Relay};
use crate::web::words::{grouped, kind_words};

/// Of one hunt: 20 hunts of 5 servers with addresses of 512 bytes are 50 kB.
const MOST_SERVERS: usize = 5;

pub(super) struct RelayRow {
    pub(super) number: usize,
    pub(super) url: String,
    pub(super) bootstrap: bool,
    pub(super) look: Look,
    pub(super) why: String,
    pub(super) coverage: String,
    pub(super) per_cent: u64,
    pub(super) per_minute: String,
    pub(super) found: String,
    pub(super) lag: String,
    pub(super) next: String,
}

pub(super) struct HeldRow {
    pub(super) id: String,
    pub(super) kind: &'static str,
    pub(super) age: String,
    pub(super) expires: String,
    pub(super) waits_for: String,
    pub(super) of: String,
    pub(super) short_of: String,
}

pub(super) struct HuntRow {
    pub(super) repository: String,
    pub(super) short: String,
    pub(super) waiting: String,
    pub(super) missing: u32,
    pub(super) attempts: u32,
    pub(super) next: String,
    pub(super) done: usize,
    pub(super) servers: usize,
    pub(super) told: Vec<(String, String)>,
    pub(super) more_servers: usize,
}

pub(super) struct DomainRow {
    pub(super) domain: String,
    pub(super) now: String,
    pub(super) minute: String,
    /// Per cent of the minute's budget.
    pub(super) used: u64,
    pub(super) failures: u32,
    pub(super) rests: String,
    pub(super) waiting: usize,
}

fn look(relay: &RelayStatus) -> Look {
    let connected = matches!(relay.state, State::Connected | State::Syncing);
    let in_step = relay.state == State::Connected;
    Look::of(connected, in_step, relay.health.health)
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

pub(super) fn drawn(snapshot: &Snapshot, detailed: bool) -> Vec<Relay> {
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
pub(super) fn relay_rows(snapshot: &Snapshot, most: usize) -> Vec<RelayRow> {
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

pub(super) fn held_row(event: &HeldEvent) -> HeldRow {
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

pub(super) fn hunt_row(hunt: &RepoHunt) -> HuntRow {
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

pub(super) fn domain_row(domain: &DomainHunt) -> DomainRow {
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
