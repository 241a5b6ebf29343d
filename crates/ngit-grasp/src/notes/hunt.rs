//! What the hunt has to tell becomes lines of the log and metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use grasp_core::RepoId;
use grasp_core::clone_url::{CloneUrl, Domain};
use grasp_core::hunt::HuntNote;
use grasp_core::hunt::io::FetchEnd;
use grasp_core::hunt::status::{DomainHunt, HuntTotals};

use super::ration::{Ration, Untold};
use crate::metrics::{Ended, Metrics};

pub struct HuntNotes {
    metrics: Arc<Metrics>,
    ration: Ration<Matter, Domain>,
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

impl HuntNotes {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            ration: Ration::new(),
        }
    }

    pub fn take(&mut self, note: HuntNote, now: Instant) {
        match note {
            HuntNote::Expected { .. }
            | HuntNote::Began { .. }
            | HuntNote::Fetched { .. }
            | HuntNote::Incomplete { .. }
            | HuntNote::Over { .. } => self.on_attempt(note, now),
            HuntNote::Throttled { .. } | HuntNote::Resting { .. } | HuntNote::Healed { .. } => {
                self.on_domain(note, now);
            }
            HuntNote::DiskLow { .. } | HuntNote::TooMany => self.on_limits(&note, now),
        }
    }

    fn on_attempt(&mut self, note: HuntNote, now: Instant) {
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
                problem,
            } => {
                let ended = Ended {
                    end,
                    got,
                    bytes,
                    took,
                };
                let problem = problem.as_deref();
                self.fetched(&repo, &url, &ended, lacking, problem, now);
            }
            HuntNote::Incomplete {
                repo,
                attempts,
                objects,
                retry,
            } => incomplete(&repo, attempts, objects, retry),
            HuntNote::Over { repo, came } if self.may_tell(Matter::End, None, now) => {
                let fetched = came;
                tracing::info!(%repo, fetched, "removed from sync queue: nothing waits for its data");
            }
            _ => {}
        }
    }

    fn on_domain(&mut self, note: HuntNote, now: Instant) {
        match note {
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
            HuntNote::Healed { domain } if self.may_tell(Matter::Recovery, Some(&domain), now) => {
                tracing::info!(%domain, "git server answers again");
            }
            _ => {}
        }
    }

    fn on_limits(&mut self, note: &HuntNote, now: Instant) {
        match note {
            HuntNote::DiskLow { pause } => {
                let pause_secs = pause.as_secs();
                tracing::warn!(
                    pause_secs,
                    "the disk is nearly full (NGIT_MIN_FREE_BYTES): no git data is fetched"
                );
            }
            HuntNote::TooMany if self.may_tell(Matter::Crowd, None, now) => tracing::warn!(
                "more repositories lack git data than are taken in (NGIT_HUNT_MAX_REPOSITORIES)"
            ),
            _ => {}
        }
    }

    fn fetched(
        &mut self,
        repo: &RepoId,
        url: &CloneUrl,
        fetch: &Ended,
        lacking: usize,
        problem: Option<&str>,
        now: Instant,
    ) {
        self.metrics.hunt.fetched(url.domain(), fetch, now);
        let (end, got, bytes) = (fetch.end.label(), fetch.got, fetch.bytes);
        let took_ms = fetch.took.as_millis() as u64;
        if !is_failure(fetch.end) {
            tracing::debug!(%repo, %url, end, got, lacking, bytes, took_ms, "Fetched OIDs");
        } else if self.may_tell(Matter::Failure, Some(url.domain()), now) {
            tracing::warn!(%repo, %url, error = end, problem, bytes, took_ms, "Failed to fetch OIDs");
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
        self.ration.may_tell(matter, domain, now)
    }

    /// Counts what was not told, and shows how the hunt stands.
    pub fn show(&mut self, totals: &HuntTotals, domains: &[DomainHunt], now: Instant) {
        for Untold { matter, count, .. } in self.ration.untold(now) {
            tracing::warn!(count, "{}", matter.summary());
        }
        self.metrics.hunt.show(totals, domains);
    }
}

fn incomplete(repo: &RepoId, attempt_count: u32, objects: usize, retry: Duration) {
    let next_backoff_secs = retry.as_secs();
    tracing::debug!(
        %repo,
        attempt_count,
        objects,
        next_backoff_secs,
        "Sync incomplete - applying backoff"
    );
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
mod tests;
