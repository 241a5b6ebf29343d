use std::io::Write;
use std::sync::{Mutex, PoisonError};

use grasp_core::Timestamp;
use grasp_core::sync::io::End;
use grasp_core::sync::status::{Next, RelayStatus, State};
use grasp_core::sync::{Capabilities, Record, RelayHealth};

use super::ration::{ALL_LINES, LINES, PERIOD};
use super::*;

/// What a test's own thread logs.
#[derive(Clone, Default)]
pub(in crate::notes) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(in crate::notes) fn of(run: impl FnOnce()) -> Vec<String> {
        let log = Self::default();
        let lines = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .without_time()
            .with_ansi(false)
            .with_target(false)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, run);
        let bytes = lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes);
        text.lines().map(|line| line.trim().to_owned()).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn notes() -> Notes {
    Notes::new(Arc::new(Metrics::new().unwrap()), &SyncLimits::default())
}

fn url() -> RelayUrl {
    RelayUrl::parse("wss://a.example").unwrap()
}

fn found(source: Source, gap: bool) -> Note {
    Note::Found {
        relay: url(),
        id: EventId([7; 32]),
        source,
        gap,
    }
}

fn status(state: State) -> Status {
    let relay = RelayStatus {
        url: url().to_string(),
        bootstrap: false,
        state,
        why: None,
        since: Timestamp(0),
        health: RelayHealth::default(),
        capabilities: Capabilities::unknown(&SyncLimits::default()),
        repositories: 1,
        roots: 2,
        live: 3,
        not_live: 4,
        open_filters: 3,
        paged: 0,
        reconciled: 3,
        missing: 0,
        read: 0,
        covered: None,
        lag_ms: None,
        record: Record::default(),
        coverage: None,
        uptime: None,
        next: Next::default(),
    };
    Status {
        relays_tracked: 1,
        relays: vec![relay],
        ..Status::default()
    }
}

/// E19, E20.
#[test]
fn the_way_in_which_an_event_was_found_decides_how_loud_it_is() {
    let lines = Log::of(|| {
        let (mut notes, now) = (notes(), Instant::now());
        for note in [
            found(Source::Live, false),
            found(Source::CatchUp, false),
            found(Source::CatchUp, true),
            found(Source::Daily, true),
        ] {
            notes.take(note, now);
        }
        let mut status = status(State::Connected);
        status.events.direct = 1;
        notes.show(&status, now);
        let text = notes.metrics.render();
        for metric in [
            r#"ngit_sync_events_total{source="direct"} 1"#,
            r#"ngit_sync_events_total{source="live"} 1"#,
            r#"ngit_sync_events_total{source="catchup"} 2"#,
            r#"ngit_sync_events_total{source="daily"} 1"#,
            r#"ngit_sync_gap_events_total{relay="wss://a.example"} 2"#,
        ] {
            assert!(text.contains(metric), "{metric}");
        }
    });
    let levels = lines.iter().map(|line| line.split(' ').next().unwrap());
    let levels: Vec<&str> = levels.collect();
    assert_eq!(levels, ["DEBUG", "DEBUG", "WARN", "ERROR"]);
    assert!(lines[2].contains("Sync gap detected: event found during catchup"));
    assert!(lines[3].contains("Sustained sync gap: event found during daily catchup"));
}

#[test]
fn many_gaps_become_a_few_lines_and_one_that_counts_the_rest() {
    let lines = Log::of(|| {
        let (mut notes, now) = (notes(), Instant::now());
        for _ in 0..1_000 {
            notes.take(found(Source::CatchUp, true), now);
        }
        notes.show(&Status::default(), now + PERIOD / 2);
        notes.show(&Status::default(), now + PERIOD);
        notes.take(found(Source::CatchUp, true), now + PERIOD);
    });
    assert_eq!(lines.len(), LINES as usize + 2, "{lines:?}");
    let summary = &lines[LINES as usize];
    assert!(summary.contains("count=990"), "{summary}");
    assert!(summary.contains("relay=wss://a.example"), "{summary}");
}

/// Strangers name two thousand relays that nobody answers at.
#[test]
fn many_relays_become_a_few_lines_and_one_that_counts_the_rest() {
    let lines = Log::of(|| {
        let (mut notes, now) = (notes(), Instant::now());
        for n in 0..2_000 {
            let relay = RelayUrl::parse(&format!("wss://r{n}.example")).unwrap();
            notes.take(
                Note::ConnectFailed {
                    relay: relay.clone(),
                    end: End::Refused,
                    attempt: 1,
                    retry_secs: 5,
                },
                now,
            );
            let failing_secs = 86_400;
            notes.take(
                Note::Dead {
                    relay,
                    failing_secs,
                },
                now,
            );
        }
        notes.show(&Status::default(), now + PERIOD);
    });
    assert_eq!(lines.len(), 2 * ALL_LINES as usize + 2, "{lines:?}");
    for summary in [
        "WARN more connections failed count=1900",
        "WARN more relays are dead count=1900",
    ] {
        assert!(lines.iter().any(|line| line == summary), "{lines:#?}");
    }
}

/// E20.
#[test]
fn lines_that_operators_know_stay_as_they_are() {
    let relay = url();
    let cases = [
        (
            Note::Consolidating {
                relay: relay.clone(),
                filters: 71,
            },
            "INFO Consolidating filters for wss://a.example (count > 70) filters=71",
        ),
        (
            Note::Daily {
                relay: relay.clone(),
            },
            "INFO Daily sync triggered for wss://a.example",
        ),
        (
            Note::Left {
                relay: relay.clone(),
            },
            "INFO Disconnecting relay wss://a.example (no repos)",
        ),
        (
            Note::Stale {
                relay: relay.clone(),
            },
            "INFO Reconnect after >15min for wss://a.example, clearing state for fresh sync",
        ),
        (
            Note::ConnectFailed {
                relay: relay.clone(),
                end: End::Refused,
                attempt: 2,
                retry_secs: 10,
            },
            "WARN connection failed relay=wss://a.example why=Refused attempt=2 retry_secs=10",
        ),
        (
            Note::Dead {
                relay: relay.clone(),
                failing_secs: 86_400,
            },
            "ERROR relay is dead relay=wss://a.example failing_secs=86400",
        ),
        (
            Note::Lacks {
                relay,
                repo: None,
                count: 3,
            },
            r#"WARN relay is missing events that are here relay=wss://a.example repo="-" count=3"#,
        ),
    ];
    for (note, expected) in cases {
        let lines = Log::of(|| notes().take(note, Instant::now()));
        assert_eq!(lines, [expected]);
    }
}

/// E19.
#[test]
fn labels_of_a_relay_that_is_gone_go_with_it() {
    let mut notes = notes();
    let now = Instant::now();
    notes.take(Note::Connected { relay: url() }, now);
    notes.show(&status(State::Connected), now);
    let text = notes.metrics.render();
    for metric in [
        r#"ngit_sync_connection_attempts_total{relay="wss://a.example",result="success"} 1"#,
        r#"ngit_sync_connection_attempts_total{relay="wss://a.example",result="failure"} 0"#,
        r#"ngit_sync_gap_events_total{relay="wss://a.example"} 0"#,
        r#"ngit_sync_relay_connected{relay="wss://a.example"} 1"#,
        r#"ngit_sync_relay_status{relay="wss://a.example"} 1"#,
        r#"ngit_sync_relay_failures{relay="wss://a.example"} 0"#,
        "ngit_sync_relays_tracked_total 1",
        "ngit_sync_live_items 3",
        "ngit_sync_not_live_items 4",
    ] {
        assert!(text.contains(metric), "{metric}");
    }
    notes.show(&Status::default(), now);
    assert!(!notes.metrics.render().contains("a.example"));
}
