//! `ngit-grasp status`: asks the running server how it stands and prints that for people.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use serde_json::Value;

use super::{PATIENCE, hunt};
use crate::config::Config;
use crate::identity::Identity;
use crate::inspect::span;
use crate::owner;

/// Two thousand relays at a kilobyte each, what the hunt tells, and then some.
const MAX_ANSWER: u64 = 64 * 1024 * 1024;
const SUMMARY: &str = "Relays are named to the operator only: set NGIT_STATUS_TOKEN as the server \
                       has it, or ask as a user who can read its key.\n";

#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    #[error("no server answers at http://{0}")]
    NoServer(SocketAddr),
    #[error(
        "the server at http://{0} does not tell its status; NGIT_STATUS_ENABLED is false there"
    )]
    NotTold(SocketAddr),
    #[error(
        "what answers at http://{0} is not ngit-grasp (it says {1} to /api/status); is \
         NGIT_BIND_ADDRESS that of the server?"
    )]
    Strange(SocketAddr, u16),
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

/// Asks the running server and prints what it says. True if it says that all is well.
pub fn status(config: &Config, as_json: bool) -> Result<bool, StatusError> {
    let address = reachable(config.bind_address);
    let pass = pass(config);
    let asked = ask(address, "/api/status", "application/json", pass.as_deref());
    let (code, body) = asked.map_err(|_| StatusError::NoServer(address))?;
    let report: Option<Value> = serde_json::from_str(&body).ok();
    let report = report.filter(|report| report["version"].is_string());
    let report = match (code, report) {
        (200, Some(report)) => report,
        (404, _) if is_ours(address) => return Err(StatusError::NotTold(address)),
        _ => return Err(StatusError::Strange(address, code)),
    };
    let text = match as_json {
        true => format!("{report:#}\n"),
        false => render(&report),
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(is_well(&report))
}

/// What shows that we are the operator: the token, or what only those know who can read the key.
fn pass(config: &Config) -> Option<String> {
    if let Some(token) = &config.status_token {
        return Some(token.reveal().to_owned());
    }
    let setting = config.relay_owner_nsec.as_ref().map(|key| key.reveal());
    let data = &config.relay_data_path;
    let identity = owner::as_owner(&[data], || Identity::present(setting, data));
    identity.ok().flatten().map(|identity| identity.pass())
}

/// Another web server answers 404 as well.
fn is_ours(address: SocketAddr) -> bool {
    let asked = ask(address, "/", "application/nostr+json", None);
    let document = asked.ok().and_then(|(_, body)| body.parse::<Value>().ok());
    document.is_some_and(|document| word(&document, "/software") == env!("CARGO_PKG_NAME"))
}

/// Where a server can be asked that listens there.
pub fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// HTTP/1.0: the answer ends with the connection.
fn ask(
    address: SocketAddr,
    path: &str,
    accept: &str,
    pass: Option<&str>,
) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let pass = pass.map(|pass| format!("Authorization: Bearer {pass}\r\n"));
    let pass = pass.unwrap_or_default();
    // In one piece: some answer after the first.
    let request =
        format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n{pass}\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer)?;
    let strange = || io::Error::from(io::ErrorKind::InvalidData);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(strange)?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.ok_or_else(strange)?, body.to_owned()))
}

const COLUMNS: [&str; 12] = [
    "RELAY", "STATE", "HEALTH", "SINCE", "REPOS", "ROOTS", "LIVE", "MISSING", "EVENTS", "GAPS",
    "LAG", "NEXT",
];

/// For people: a line for each relay, those of the operator with a star, and one for all; then the
/// hunt for git data.
fn render(report: &Value) -> String {
    let sync = &report["sync"];
    let now = count(report, "/now");
    let relays = sync["relays"].as_array().map_or(&[][..], Vec::as_slice);
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(relays.iter().map(|relay| row(relay, now)));
    let mut text = verdict(report);
    if sync["enabled"] != true {
        text.push_str("sync is switched off\n");
    } else if sync["relays"].is_array() {
        text.push_str(&table(&rows));
    } else {
        text.push_str(SUMMARY);
    }
    let held = report["held"].as_object().into_iter();
    let held: u64 = held
        .flat_map(|held| held.values())
        .filter_map(Value::as_u64)
        .sum();
    let number = |name: &str| count(sync, &format!("/{name}"));
    text.push_str(&format!(
        "{} relays known, {} connected, {} dead, {} not taken in; {} repositories, {} roots; \
         {} events missing, {held} held for git data; new events: {} direct, {} live, {} catch-up, \
         {} daily; version {}, up {}\n",
        number("relays_tracked"),
        number("relays_connected"),
        number("relays_dead"),
        number("relays_over_limit"),
        number("repositories"),
        number("roots"),
        number("wanted"),
        count(sync, "/events/direct"),
        count(sync, "/events/live"),
        count(sync, "/events/catchup"),
        count(sync, "/events/daily"),
        word(report, "/version"),
        span(count(report, "/uptime_secs")),
    ));
    if let Some(longest) = report.pointer("/machine/longest_turn_ms") {
        text.push_str(&format!("longest decision since the start: {longest} ms\n"));
    }
    if let Some(hunt) = report.get("hunt") {
        text.push('\n');
        text.push_str(&hunt::render(hunt));
    }
    text
}

/// One line, if the server has a verdict, and one for what is worth knowing.
fn verdict(report: &Value) -> String {
    let points = |name: &str| {
        let points = report.pointer(name).and_then(Value::as_array);
        let points = points.into_iter().flatten().filter_map(Value::as_str);
        points.collect::<Vec<_>>().join("; ")
    };
    let mut text = match report.pointer("/verdict/well") {
        None => return String::new(),
        Some(_) if is_well(report) => "All is well.\n".to_owned(),
        Some(_) => format!("Look here: {}.\n", points("/verdict/troubles")),
    };
    match points("/verdict/notes") {
        notes if notes.is_empty() => {}
        notes => text.push_str(&format!("To know: {notes}.\n")),
    }
    text
}

/// A server that does not say is well.
fn is_well(report: &Value) -> bool {
    report.pointer("/verdict/well") != Some(&Value::Bool(false))
}

fn row(relay: &Value, now: u64) -> [String; COLUMNS.len()] {
    let state = match relay["why"].as_str() {
        Some(why) => format!("{} ({why})", word(relay, "/state")),
        None => word(relay, "/state").to_owned(),
    };
    let record = &relay["record"];
    let events = ["live", "catch_up", "daily"]
        .map(|source| count(record, &format!("/{source}")).to_string());
    let lag = relay["lag_ms"].as_u64();
    let bootstrap = if relay["bootstrap"] == true { "*" } else { "" };
    let number = |name: &str| count(relay, &format!("/{name}")).to_string();
    [
        format!("{}{bootstrap}", word(relay, "/url")),
        state,
        word(relay, "/health/health").to_owned(),
        span(now.saturating_sub(count(relay, "/since"))),
        number("repositories"),
        number("roots"),
        number("live"),
        number("missing"),
        events.join("/"),
        count(record, "/gaps").to_string(),
        lag.map_or_else(|| "-".to_owned(), |lag| format!("{lag} ms")),
        next(&relay["next"], now),
    ]
}

fn next(next: &Value, now: u64) -> String {
    let mut text = word(next, "/what").to_owned();
    if let Some(at) = next["at"].as_u64() {
        text.push_str(&format!(" in {}", span(at.saturating_sub(now))));
    }
    match word(next, "/why") {
        "" => text,
        why => format!("{text} ({why})"),
    }
}

/// Columns as wide as their widest text.
pub(super) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = text.chars().count().max(*width);
        }
    }
    let mut table = String::new();
    for row in rows {
        let cells = row.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(text, width)| format!("{text:width$}"))
            .collect();
        table.push_str(cells.join("  ").trim_end());
        table.push('\n');
    }
    table
}

pub(super) fn count(value: &Value, at: &str) -> u64 {
    let found = value.pointer(at).and_then(Value::as_u64);
    found.unwrap_or_default()
}

pub(super) fn word<'v>(value: &'v Value, at: &str) -> &'v str {
    let found = value.pointer(at).and_then(Value::as_str);
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_on_every_interface_is_asked_on_this_machine() {
        let at = |text: &str| reachable(text.parse().unwrap()).to_string();
        assert_eq!(at("0.0.0.0:7334"), "127.0.0.1:7334");
        assert_eq!(at("[::]:7334"), "[::1]:7334");
        assert_eq!(at("192.0.2.1:80"), "192.0.2.1:80");
    }

    #[test]
    fn the_verdict_comes_first_and_whoever_has_none_is_well() {
        let said = |verdict: Value| {
            let report = json!({"verdict": verdict, "sync": {"relays": []}});
            let first = render(&report)
                .lines()
                .take(2)
                .collect::<Vec<_>>()
                .join("|");
            (first, is_well(&report))
        };
        let well = json!({"well": true, "troubles": [], "notes": ["1 event waits"]});
        let expected = "All is well.|To know: 1 event waits.".to_owned();
        assert_eq!(said(well), (expected, true));
        let ill = json!({"well": false, "troubles": ["no room", "no relay"], "notes": []});
        let expected = "Look here: no room; no relay.|sync is switched off".to_owned();
        assert_eq!(said(ill), (expected, false));
        assert!(is_well(&json!({})));
    }

    #[test]
    fn people_get_a_line_for_each_relay_and_one_for_all() {
        let relay = json!({
            "url": "wss://a.example", "state": "connected", "why": null, "since": 100,
            "health": {"health": "healthy"}, "repositories": 1, "roots": 2, "live": 3,
            "missing": 0, "lag_ms": 12,
            "record": {"live": 5, "catch_up": 6, "daily": 7, "gaps": 8},
            "next": {"what": "daily sync", "at": 100_000, "why": ""},
        });
        let down = json!({
            "url": "ws://long-name.example", "bootstrap": true, "state": "disconnected", "why": "failing",
            "since": 150, "health": {"health": "dead"},
            "next": {"what": "dial", "at": 220, "why": "backoff"},
        });
        let text = render(&json!({
            "version": "1.2.3", "uptime_secs": 5, "now": 200, "held": {"state": 1, "other": 2},
            "sync": {"enabled": true, "relays_tracked": 2, "events": {"direct": 9},
                     "relays": [relay, down]},
        }));
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[0]), COLUMNS.join(" "));
        assert_eq!(
            words(lines[1]),
            "wss://a.example connected healthy 100 s 1 2 3 0 5/6/7 8 12 ms daily sync in 27 h"
        );
        assert_eq!(
            words(lines[2]),
            "ws://long-name.example* disconnected (failing) dead 50 s 0 0 0 0 0/0/0 0 - \
             dial in 20 s (backoff)"
        );
        assert_eq!(lines[0].find("STATE"), lines[1].find("connected"));
        assert!(lines[3].starts_with("2 relays known"), "{}", lines[3]);
        assert!(lines[3].contains("3 held for git data"), "{}", lines[3]);
        assert!(lines[3].ends_with("version 1.2.3, up 5 s"), "{}", lines[3]);
    }
}
