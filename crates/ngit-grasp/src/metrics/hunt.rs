//! What the operator can watch of the hunt. Of the domains that are asked, a bounded number has
//! labels, and all others share one: whoever announces a repository chooses its servers.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use grasp_core::clone_url::Domain;
use grasp_core::hunt::io::FetchEnd;
use grasp_core::hunt::status::{DomainHunt, HuntTotals};
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use rustc_hash::FxHashMap;

use super::{Closed, Label, Maker, SECONDS, number};

/// Domains with a label of their own.
const MAX_LABELS: usize = 100;
/// What was not asked for so long gives its label to another: at most so many new ones in that time.
const LABEL_FOR: Duration = Duration::from_secs(60 * 60);
/// All other domains.
const OTHER: &str = "other";

pub struct HuntMetrics {
    queue_size: IntGauge,
    attempts: IntCounter,
    oids_fetched: IntCounter,
    domain_in_flight: IntGaugeVec,
    domain_requests: IntCounterVec,
    in_flight: IntGauge,
    in_line: IntGauge,
    missing: IntGauge,
    fetches: Closed<IntCounterVec>,
    received_bytes: IntCounter,
    fetch_seconds: Histogram,
    resting: IntGauge,
    rests: Closed<IntCounterVec>,
    throttled: IntCounter,
    paused: IntGauge,
    /// Domains with labels, and when each was asked last.
    labels: Mutex<FxHashMap<String, Instant>>,
}

impl HuntMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            queue_size: make.gauge(
                "ngit_purgatory_sync_queue_size",
                "Repositories whose git data is looked for at other servers",
            )?,
            attempts: make.counter(
                "ngit_purgatory_sync_attempts_total",
                "Attempts to find the git data of a repository",
            )?,
            oids_fetched: make.counter(
                "ngit_purgatory_sync_oids_fetched_total",
                "Wanted objects that other servers had",
            )?,
            domain_in_flight: make.open_gauges(
                "ngit_purgatory_domain_in_flight",
                "Fetches under way, by the server's host and port",
                &[Label::open("domain")],
            )?,
            domain_requests: make.open_counters(
                "ngit_purgatory_domain_requests_total",
                "Fetches that ended, by the server's host and port",
                &[Label::open("domain")],
            )?,
            in_flight: make.gauge("ngit_hunt_in_flight", "Fetches under way")?,
            in_line: make.gauge(
                "ngit_hunt_in_line",
                "Repositories and domains that wait because too many fetches are under way",
            )?,
            missing: make.gauge("ngit_hunt_missing_objects", "Objects that are looked for")?,
            fetches: make.counters(
                "ngit_hunt_fetches_total",
                "Fetches from other servers, by how they ended",
                Label::closed("end", &FetchEnd::LABELS),
            )?,
            received_bytes: make.counter(
                "ngit_hunt_received_bytes_total",
                "Bytes that other git servers sent",
            )?,
            fetch_seconds: make.histogram(
                "ngit_hunt_fetch_seconds",
                "Duration of fetches from other servers",
                &SECONDS,
            )?,
            resting: make.gauge(
                "ngit_hunt_domains_resting",
                "Git servers that are left alone for a while",
            )?,
            rests: make.counters(
                "ngit_hunt_rests_total",
                "Times that a git server was left alone, by reason",
                Label::closed("why", &FetchEnd::LABELS),
            )?,
            throttled: make.counter(
                "ngit_hunt_throttled_total",
                "Times that a git server was at its limits, and repositories began to wait for it",
            )?,
            paused: make.gauge(
                "ngit_hunt_paused",
                "1 while nothing is fetched because the disk is nearly full, else 0",
            )?,
            labels: Mutex::default(),
        };
        metrics.domain_in_flight.with_label_values(&[OTHER]);
        metrics.domain_requests.with_label_values(&[OTHER]);
        Ok(metrics)
    }

    pub fn began(&self) {
        self.attempts.inc();
    }

    pub fn fetched(&self, from: &Domain, fetch: &Ended, now: Instant) {
        let label = self.label(from.as_str(), now);
        self.domain_requests.with_label_values(&[label]).inc();
        self.fetches.at(fetch.end.label()).inc();
        self.oids_fetched.inc_by(fetch.got as u64);
        self.received_bytes.inc_by(fetch.bytes);
        self.fetch_seconds.observe(fetch.took.as_secs_f64());
    }

    pub fn rests(&self, why: FetchEnd) {
        self.rests.at(why.label()).inc();
    }

    pub fn throttled(&self) {
        self.throttled.inc();
    }

    pub fn show(&self, totals: &HuntTotals, domains: &[DomainHunt]) {
        self.queue_size.set(number(totals.repositories));
        self.in_flight.set(number(totals.in_flight));
        self.in_line.set(number(totals.in_line));
        self.missing.set(number(totals.missing));
        self.paused.set(i64::from(totals.paused_secs.is_some()));
        let resting = domains
            .iter()
            .filter(|domain| domain.resting_secs.is_some());
        self.resting.set(number(resting.count()));
        self.show_domains(domains);
    }

    fn show_domains(&self, domains: &[DomainHunt]) {
        let labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        let mut flights: FxHashMap<&str, i64> = labels.keys().map(|of| (of.as_str(), 0)).collect();
        let mut others = 0;
        for domain in domains {
            let flying = i64::from(domain.in_flight);
            match flights.get_mut(domain.domain.as_str()) {
                Some(count) => *count = flying,
                None => others += flying,
            }
        }
        for (domain, count) in flights.into_iter().chain([(OTHER, others)]) {
            self.domain_in_flight
                .with_label_values(&[domain])
                .set(count);
        }
    }

    /// Its own, or that of all others.
    fn label<'d>(&self, domain: &'d str, now: Instant) -> &'d str {
        if domain == OTHER {
            return OTHER;
        }
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        if labels.len() >= MAX_LABELS && !labels.contains_key(domain) {
            let oldest = labels.iter().min_by_key(|(_, asked)| **asked);
            let idle = oldest.filter(|(_, asked)| now.duration_since(**asked) >= LABEL_FOR);
            let Some(idle) = idle.map(|(idle, _)| idle.clone()) else {
                return OTHER;
            };
            labels.remove(&idle);
            let _ = self.domain_in_flight.remove_label_values(&[&idle]);
            let _ = self.domain_requests.remove_label_values(&[&idle]);
        }
        labels.insert(domain.to_owned(), now);
        domain
    }
}

/// How a fetch went.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub end: FetchEnd,
    pub got: usize,
    pub bytes: u64,
    pub took: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn ended() -> Ended {
        Ended {
            end: FetchEnd::Answered,
            got: 1,
            bytes: 2,
            took: Duration::from_secs(3),
        }
    }

    fn domain(n: usize) -> Domain {
        Domain::parse(&format!("git{n}.example")).unwrap()
    }

    fn in_flight(domain: &Domain) -> DomainHunt {
        DomainHunt {
            domain: domain.to_string(),
            in_flight: 1,
            concurrent: 5,
            last_minute: 1,
            per_minute: 30,
            failures: 0,
            resting_secs: None,
            why: None,
            waiting: 0,
        }
    }

    /// G10: label sets are bounded.
    #[test]
    fn strangers_cannot_add_labels_without_end() {
        let metrics = Metrics::new().unwrap();
        let now = Instant::now();
        for n in 0..3 * MAX_LABELS {
            metrics.hunt.fetched(&domain(n), &ended(), now);
        }
        let domains: Vec<DomainHunt> = (0..3 * MAX_LABELS).map(|n| in_flight(&domain(n))).collect();
        metrics.hunt.show(&HuntTotals::default(), &domains);
        let text = metrics.render();
        for name in [
            "ngit_purgatory_domain_requests_total",
            "ngit_purgatory_domain_in_flight",
        ] {
            let series = text.matches(&format!("{name}{{")).count();
            assert_eq!(series, MAX_LABELS + 1, "{name}");
            let other = format!("{name}{{domain=\"other\"}} {}", 2 * MAX_LABELS);
            assert!(text.contains(&other), "{other}");
        }
    }

    #[test]
    fn a_label_that_was_long_idle_goes_to_another() {
        let metrics = Metrics::new().unwrap();
        let now = Instant::now();
        for n in 0..MAX_LABELS {
            metrics.hunt.fetched(&domain(n), &ended(), now);
        }
        metrics.hunt.fetched(&domain(0), &ended(), now + LABEL_FOR);
        metrics
            .hunt
            .fetched(&domain(MAX_LABELS), &ended(), now + LABEL_FOR);
        metrics.hunt.show(&HuntTotals::default(), &[]);
        let text = metrics.render();
        let name = "ngit_purgatory_domain_requests_total";
        assert_eq!(text.matches(&format!("{name}{{")).count(), MAX_LABELS + 1);
        assert!(text.contains(&format!("{name}{{domain=\"git0.example\"}} 2")));
        assert!(text.contains(&format!("{name}{{domain=\"git100.example\"}} 1")));
        assert!(text.contains(&format!("{name}{{domain=\"other\"}} 0")));
    }
}
