use grasp_core::{Identifier, Pubkey};

use super::super::ration::{ALL_LINES, LINES, PERIOD};
use super::super::tests::Log;
use super::*;

fn notes() -> HuntNotes {
    HuntNotes::new(Arc::new(Metrics::new().unwrap()))
}

fn repo() -> RepoId {
    RepoId::new(Pubkey([7; 32]), Identifier::parse("grasp").unwrap())
}

fn fetched(host: &str, end: FetchEnd) -> HuntNote {
    HuntNote::Fetched {
        repo: repo(),
        url: CloneUrl::parse(&format!("https://{host}/grasp.git")).unwrap(),
        end,
        got: 2,
        lacking: 1,
        bytes: 1_000,
        took: Duration::from_millis(700),
        problem: None,
    }
}

/// G10, and every line of the log.
#[test]
fn the_story_of_a_hunt_is_told_as_loud_as_it_matters() {
    let (repo, domain) = (repo(), Domain::parse("a.example").unwrap());
    let seconds = Duration::from_secs;
    let story = [
        HuntNote::Expected {
            repo: repo.clone(),
            delay: seconds(180),
        },
        HuntNote::Began {
            repo: repo.clone(),
            attempt: 1,
            servers: 2,
            objects: 3,
        },
        fetched("a.example", FetchEnd::TooSlow),
        HuntNote::Resting {
            domain: domain.clone(),
            why: FetchEnd::TooSlow,
            failures: 2,
            rest: seconds(30),
        },
        fetched("b.example", FetchEnd::Absent),
        HuntNote::Throttled {
            domain: domain.clone(),
        },
        HuntNote::Incomplete {
            repo: repo.clone(),
            attempts: 2,
            objects: 1,
            retry: seconds(40),
        },
        HuntNote::Healed { domain },
        fetched("a.example", FetchEnd::Answered),
        HuntNote::Over { repo, came: 3 },
        HuntNote::DiskLow { pause: seconds(60) },
        HuntNote::TooMany,
    ];
    let lines = Log::of(|| {
        let (mut notes, now) = (notes(), Instant::now());
        story.into_iter().for_each(|note| notes.take(note, now));
        let totals = HuntTotals {
            repositories: 4,
            in_flight: 5,
            in_line: 6,
            missing: 7,
            paused_secs: Some(60),
            ..HuntTotals::default()
        };
        let resting = DomainHunt {
            domain: "a.example".into(),
            in_flight: 3,
            concurrent: 5,
            last_minute: 2,
            per_minute: 30,
            failures: 2,
            resting_secs: Some(30),
            why: Some("too_slow"),
            waiting: 1,
        };
        notes.show(&totals, &[resting], now);
        let text = notes.metrics.render();
        for metric in [
            "ngit_purgatory_sync_queue_size 4",
            "ngit_purgatory_sync_attempts_total 1",
            "ngit_purgatory_sync_oids_fetched_total 6",
            r#"ngit_purgatory_domain_in_flight{domain="a.example"} 3"#,
            r#"ngit_purgatory_domain_requests_total{domain="a.example"} 2"#,
            r#"ngit_purgatory_domain_requests_total{domain="b.example"} 1"#,
            "ngit_hunt_in_flight 5",
            "ngit_hunt_in_line 6",
            "ngit_hunt_missing_objects 7",
            r#"ngit_hunt_fetches_total{end="answered"} 1"#,
            r#"ngit_hunt_fetches_total{end="absent"} 1"#,
            r#"ngit_hunt_fetches_total{end="too_slow"} 1"#,
            "ngit_hunt_received_bytes_total 3000",
            r#"ngit_hunt_fetch_seconds_bucket{le="0.5"} 0"#,
            r#"ngit_hunt_fetch_seconds_bucket{le="1"} 3"#,
            "ngit_hunt_domains_resting 1",
            r#"ngit_hunt_rests_total{why="too_slow"} 1"#,
            "ngit_hunt_throttled_total 1",
            "ngit_hunt_paused 1",
        ] {
            assert!(text.contains(&format!("\n{metric}\n")), "{metric}\n{text}");
        }
    });
    let levels = lines.iter().map(|line| line.split(' ').next().unwrap());
    let levels: Vec<&str> = levels.collect();
    let expected = [
        "DEBUG", "DEBUG", "WARN", "WARN", "DEBUG", "DEBUG", "DEBUG", "INFO", "DEBUG", "INFO",
        "WARN", "WARN",
    ];
    assert_eq!(levels, expected, "{lines:#?}");
    assert!(lines[0].contains("delay_secs=180"), "{}", lines[0]);
    assert!(lines[2].contains("error=\"too_slow\""), "{}", lines[2]);
    assert!(lines[6].contains("attempt_count=2"), "{}", lines[6]);
    assert!(lines[6].contains("next_backoff_secs=40"), "{}", lines[6]);
}

#[test]
fn servers_that_fail_all_the_time_do_not_fill_the_log() {
    let lines = Log::of(|| {
        let (mut notes, now) = (notes(), Instant::now());
        for _ in 0..LINES + 5 {
            notes.take(fetched("a.example", FetchEnd::Unreachable), now);
        }
        for n in 0..ALL_LINES {
            let host = format!("b{n}.example");
            notes.take(fetched(&host, FetchEnd::Unreachable), now);
        }
        notes.show(&HuntTotals::default(), &[], now + PERIOD / 2);
        notes.show(&HuntTotals::default(), &[], now + PERIOD);
        notes.take(fetched("a.example", FetchEnd::Unreachable), now + PERIOD);
    });
    assert_eq!(lines.len(), ALL_LINES as usize + 2, "{lines:#?}");
    let summary = &lines[ALL_LINES as usize];
    assert!(
        summary.contains("more fetches of git data failed"),
        "{summary}"
    );
    assert!(summary.contains("count=15"), "{summary}");
}
