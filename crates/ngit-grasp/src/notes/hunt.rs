//! What the hunt has to tell becomes lines of the log and metrics. Strangers choose the servers
//! that fail: each gets a few lines in a minute, all together some more, then one counts the rest.

use std::sync::Arc;
use std::time::{Duration, Instant};

use grasp_core::RepoId;
use grasp_core::clone_url::{CloneUrl, Domain};
use grasp_core::hunt::HuntNote;
use grasp_core::hunt::io::FetchEnd;
use grasp_core::hunt::status::{DomainHunt, HuntTotals};
use rustc_hash::FxHashMap;

use super::{LINES, PERIOD};
use crate::metrics::{Ended, Metrics};

/// Lines on one matter, whatever the domain.
const ALL_LINES: u32 = 10 * LINES;

pub struct HuntNotes {
    metrics: Arc<Metrics>,
    told: FxHashMap<Matter, Told>,
}

/// What a line is about, where there may be too many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Matter {
    Failure,
    Rest,
    Recovery,
    End,
    Crowd,
}

impl Matter {
    fn summary(self) -> &'static str {
        match self {
            Matter::Failure => "more fetches of git data failed",
            Matter::Rest => "more git servers are left alone",
            Matter::Recovery => "more git servers answer again",
            Matter::End => "more repositories were removed from the sync queue",
            Matter::Crowd => "more often there were too many repositories that lack git data",
        }
    }
}

struct Told {
    since: Instant,
    lines: u32,
    untold: u64,
    /// Only of those that got lines: there are no more than lines.
    by_domain: FxHashMap<Domain, u32>,
}

impl HuntNotes {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            told: FxHashMap::default(),
        }
    }

    pub fn take(&mut self, note: HuntNote, now: Instant) {
        match note {
            HuntNote::Expected { repo, delay } => {
                let delay_secs = delay.as_secs_f64();
                tracing::debug!(%repo, delay_secs, "Added new sync queue entry");
            }
            HuntNote::Began {
                repo,
                attempt,
                servers,
                objects,
            } => {
                self.metrics.hunt.began();
                tracing::debug!(%repo, attempt, servers, objects, "Starting sync task");
            }
            HuntNote::Fetched {
                repo,
                url,
                end,
                got,
                lacking,
                bytes,
                took,
            } => {
                let ended = Ended {
                    end,
                    got,
                    bytes,
                    took,
                };
                self.fetched(&repo, &url, &ended, lacking, now);
            }
            HuntNote::Incomplete {
                repo,
                attempts: attempt_count,
                objects,
                retry,
            } => {
                let next_backoff_secs = retry.as_secs();
                tracing::debug!(
                    %repo,
                    attempt_count,
                    objects,
                    next_backoff_secs,
                    "Sync incomplete - applying backoff"
                );
            }
            HuntNote::Over { repo, came } => {
                if self.may_tell(Matter::End, None, now) {
                    let fetched = came;
                    tracing::info!(%repo, fetched, "removed from sync queue: nothing waits for its data");
                }
            }
            HuntNote::Throttled { domain } => {
                self.metrics.hunt.throttled();
                tracing::debug!(%domain, "git server at its limits: repositories wait for it");
            }
            HuntNote::Resting {
                domain,
                why,
                failures,
                rest,
            } => self.rests(&domain, why, failures, rest, now),
            HuntNote::Healed { domain } => {
                if self.may_tell(Matter::Recovery, Some(&domain), now) {
                    tracing::info!(%domain, "git server answers again");
                }
            }
            HuntNote::DiskLow { pause } => {
                let pause_secs = pause.as_secs();
                tracing::warn!(
                    pause_secs,
                    "the disk is nearly full (NGIT_MIN_FREE_BYTES): no git data is fetched"
                );
            }
            HuntNote::TooMany => {
                if self.may_tell(Matter::Crowd, None, now) {
                    tracing::warn!(
                        "more repositories lack git data than are taken in \
                         (NGIT_HUNT_MAX_REPOSITORIES)"
                    );
                }
            }
        }
    }

    fn fetched(
        &mut self,
        repo: &RepoId,
        url: &CloneUrl,
        fetch: &Ended,
        lacking: usize,
        now: Instant,
    ) {
        self.metrics.hunt.fetched(url.domain(), fetch, now);
        let (end, got, bytes) = (fetch.end.label(), fetch.got, fetch.bytes);
        let took_ms = fetch.took.as_millis() as u64;
        if !is_failure(fetch.end) {
            tracing::debug!(%repo, %url, end, got, lacking, bytes, took_ms, "Fetched OIDs");
        } else if self.may_tell(Matter::Failure, Some(url.domain()), now) {
            tracing::warn!(%repo, %url, error = end, bytes, took_ms, "Failed to fetch OIDs");
        }
    }

    fn rests(
        &mut self,
        domain: &Domain,
        why: FetchEnd,
        failures: u32,
        rest: Duration,
        now: Instant,
    ) {
        self.metrics.hunt.rests(why);
        let (why, rest_secs) = (why.label(), rest.as_secs());
        if self.may_tell(Matter::Rest, Some(domain), now) {
            tracing::warn!(%domain, why, failures, rest_secs, "git server is left alone");
        }
    }

    fn may_tell(&mut self, matter: Matter, domain: Option<&Domain>, now: Instant) -> bool {
        let told = self.told.entry(matter).or_insert_with(|| Told {
            since: now,
            lines: 0,
            untold: 0,
            by_domain: FxHashMap::default(),
        });
        let own = domain.and_then(|domain| told.by_domain.get(domain));
        if told.lines >= ALL_LINES || own.is_some_and(|lines| *lines >= LINES) {
            told.untold += 1;
            return false;
        }
        told.lines += 1;
        if let Some(domain) = domain {
            *told.by_domain.entry(domain.clone()).or_default() += 1;
        }
        true
    }

    /// Counts what was not told, and shows how the hunt stands.
    pub fn show(&mut self, totals: &HuntTotals, domains: &[DomainHunt], now: Instant) {
        self.told.retain(|matter, told| {
            let over = now.duration_since(told.since) >= PERIOD;
            if over && told.untold > 0 {
                tracing::warn!(count = told.untold, "{}", matter.summary());
            }
            !over
        });
        self.metrics.hunt.show(totals, domains);
    }
}

/// What an operator may want to look into. That a server has no such repository is an answer, and
/// what is our own fault is told where it is known.
fn is_failure(end: FetchEnd) -> bool {
    match end {
        FetchEnd::Busy(_)
        | FetchEnd::Unreachable
        | FetchEnd::Forbidden
        | FetchEnd::Failed
        | FetchEnd::TooSlow
        | FetchEnd::Cut { kept: false }
        | FetchEnd::Spoiled
        | FetchEnd::Full => true,
        FetchEnd::Answered
        | FetchEnd::Absent
        | FetchEnd::Cut { kept: true }
        | FetchEnd::DiskLow
        | FetchEnd::Ours
        | FetchEnd::Stopped => false,
    }
}

#[cfg(test)]
mod tests {
    use grasp_core::{Identifier, Pubkey};

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
}
