//! What the operator can watch of sync. Labels that are addresses of relays go when the relay
//! does: there are never more than relays that are known.

use grasp_core::sync::io::{Complaint, Fault};
use grasp_core::sync::status::{RelayStatus, State};
use grasp_core::sync::{Health, Source, Status};
use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{Closed, Label, Maker, number};
use crate::status::Coverage;

pub struct SyncMetrics {
    tracked: IntGauge,
    connected: IntGauge,
    dead: IntGauge,
    wanted: IntGauge,
    remembered: IntGauge,
    live_items: IntGauge,
    not_live_items: IntGauge,
    coverage: Gauge,
    relay_connected: IntGaugeVec,
    relay_status: IntGaugeVec,
    relay_failures: IntGaugeVec,
    attempts: IntCounterVec,
    events: Closed<IntCounterVec>,
    gaps: IntCounterVec,
    misbehaviour: Closed<IntCounterVec>,
    refusals: Closed<IntCounterVec>,
    /// What came by websocket, unpacked from TLS and frames.
    pub received_bytes: IntCounter,
}

const SUCCESS: &str = "success";
const FAILURE: &str = "failure";

impl SyncMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, prometheus::Error> {
        let relay = [Label::open("relay")];
        let metrics = Self {
            tracked: make.gauge(
                "ngit_sync_relays_tracked_total",
                "Other relays that are known",
            )?,
            connected: make.gauge(
                "ngit_sync_relays_connected_total",
                "Other relays that are connected",
            )?,
            dead: make.gauge(
                "ngit_sync_relays_dead_total",
                "Other relays that have failed for long",
            )?,
            wanted: make.gauge("ngit_sync_wanted", "Events that are known to be missing")?,
            remembered: make.gauge(
                "ngit_sync_refused_remembered",
                "Events that are not fetched again",
            )?,
            live_items: make.gauge(
                "ngit_sync_live_items",
                "Repositories and roots that are watched live, summed over relays",
            )?,
            not_live_items: make.gauge(
                "ngit_sync_not_live_items",
                "Those that are compared now and then, because a relay has no room for them",
            )?,
            coverage: make.ratio(
                "ngit_sync_coverage_ratio",
                "How much is here of what other relays are known to have; 1 is all",
            )?,
            relay_connected: make.open_gauges(
                "ngit_sync_relay_connected",
                "1 while the relay is connected, else 0",
                &relay,
            )?,
            relay_status: make.open_gauges(
                "ngit_sync_relay_status",
                "1 healthy, 2 degraded, 3 dead",
                &relay,
            )?,
            relay_failures: make.open_gauges(
                "ngit_sync_relay_failures",
                "Failed connections in a row",
                &relay,
            )?,
            attempts: make.open_counters(
                "ngit_sync_connection_attempts_total",
                "Connections to other relays, by result",
                &[
                    Label::open("relay"),
                    Label::closed("result", &[SUCCESS, FAILURE]),
                ],
            )?,
            events: make.counters(
                "ngit_sync_events_total",
                "New events, by how they were found",
                Label::closed("source", &Source::LABELS),
            )?,
            gaps: make.open_counters(
                "ngit_sync_gap_events_total",
                "Events that should have come live and were found later",
                &relay,
            )?,
            misbehaviour: make.counters(
                "ngit_sync_misbehaviour_total",
                "Wrong things that other relays sent",
                Label::closed("fault", &Fault::LABELS),
            )?,
            refusals: make.counters(
                "ngit_sync_refusals_total",
                "Requests that other relays refused",
                Label::closed("reason", &Complaint::LABELS),
            )?,
            received_bytes: make.counter(
                "ngit_sync_bytes_received_total",
                "Bytes of the messages of other relays",
            )?,
        };
        metrics.coverage.set(ratio(Coverage::default()));
        Ok(metrics)
    }

    pub fn attempt(&self, relay: &str, succeeded: bool) {
        let result = if succeeded { SUCCESS } else { FAILURE };
        self.attempts.with_label_values(&[relay, result]).inc();
    }

    pub fn event(&self, source: Source) {
        self.events.at(source.label()).inc();
    }

    pub fn gap(&self, relay: &str) {
        self.gaps.with_label_values(&[relay]).inc();
    }

    pub fn misbehaved(&self, fault: &'static str) {
        self.misbehaviour.at(fault).inc();
    }

    pub fn refused(&self, reason: &'static str) {
        self.refusals.at(reason).inc();
    }

    pub fn show(&self, status: &Status) {
        self.tracked.set(number(status.relays_tracked));
        self.connected.set(number(status.relays_connected));
        self.dead.set(number(status.relays_dead));
        self.wanted.set(number(status.wanted));
        self.remembered.set(number(status.dismissed));
        let live = status.relays.iter().map(|relay| relay.live).sum::<u64>();
        self.live_items.set(number(live));
        let not_live = status.relays.iter().map(|relay| relay.not_live);
        self.not_live_items.set(number(not_live.sum::<u64>()));
        self.coverage.set(ratio(Coverage::of(&status.relays)));
        // What users bring is not told one by one.
        let direct = self.events.at(Source::Direct.label());
        direct.inc_by(status.events.direct.saturating_sub(direct.get()));
        for relay in &status.relays {
            self.show_relay(relay);
        }
    }

    fn show_relay(&self, relay: &RelayStatus) {
        let url = relay.url.as_str();
        let label = &[url];
        let connected = matches!(relay.state, State::Syncing | State::Connected);
        let health = match relay.health.health {
            Health::Healthy => 1,
            Health::Degraded => 2,
            Health::Dead => 3,
        };
        self.relay_connected
            .with_label_values(label)
            .set(i64::from(connected));
        self.relay_status.with_label_values(label).set(health);
        self.relay_failures
            .with_label_values(label)
            .set(i64::from(relay.health.failures));
        // They begin with the relay: a counter that begins at one has not risen.
        self.gaps.with_label_values(label);
        for result in [SUCCESS, FAILURE] {
            self.attempts.with_label_values(&[url, result]);
        }
    }

    /// The relay is not known any more. What has no such label does not mind.
    pub fn forget(&self, relay: &str) {
        for gauges in [
            &self.relay_connected,
            &self.relay_status,
            &self.relay_failures,
        ] {
            let _ = gauges.remove_label_values(&[relay]);
        }
        let _ = self.gaps.remove_label_values(&[relay]);
        for result in [SUCCESS, FAILURE] {
            let _ = self.attempts.remove_label_values(&[relay, result]);
        }
    }
}

/// All is here while nothing is wanted.
fn ratio(coverage: Coverage) -> f64 {
    match coverage.known {
        0 => 1.0,
        known => coverage.have as f64 / known as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_wants_nothing_has_all_of_it() {
        assert_eq!(ratio(Coverage::default()), 1.0);
        assert_eq!(ratio(Coverage { have: 1, known: 4 }), 0.25);
    }
}
