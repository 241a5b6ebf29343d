//! What the operator can watch of sync. Labels that are addresses of relays go when the relay
//! does: there are never more than relays that are known.

use grasp_core::sync::status::{RelayStatus, State};
use grasp_core::sync::{Health, Source, Status};
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{Maker, number};

pub struct SyncMetrics {
    tracked: IntGauge,
    connected: IntGauge,
    dead: IntGauge,
    wanted: IntGauge,
    remembered: IntGauge,
    live_items: IntGauge,
    not_live_items: IntGauge,
    relay_connected: IntGaugeVec,
    relay_status: IntGaugeVec,
    relay_failures: IntGaugeVec,
    attempts: IntCounterVec,
    events: IntCounterVec,
    gaps: IntCounterVec,
    misbehaviour: IntCounterVec,
    refusals: IntCounterVec,
    /// What came by websocket, unpacked from TLS and frames.
    pub received_bytes: IntCounter,
}

const SUCCESS: &str = "success";
const FAILURE: &str = "failure";
const SOURCES: [Source; 4] = [Source::Direct, Source::Live, Source::CatchUp, Source::Daily];

impl SyncMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, prometheus::Error> {
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
            relay_connected: make.gauges(
                "ngit_sync_relay_connected",
                "1 while the relay is connected, else 0",
                &["relay"],
            )?,
            relay_status: make.gauges(
                "ngit_sync_relay_status",
                "1 healthy, 2 degraded, 3 dead",
                &["relay"],
            )?,
            relay_failures: make.gauges(
                "ngit_sync_relay_failures",
                "Failed connections in a row",
                &["relay"],
            )?,
            attempts: make.counters(
                "ngit_sync_connection_attempts_total",
                "Connections to other relays, by result",
                &["relay", "result"],
            )?,
            events: make.counters(
                "ngit_sync_events_total",
                "New events, by how they were found",
                &["source"],
            )?,
            gaps: make.counters(
                "ngit_sync_gap_events_total",
                "Events that should have come live and were found later",
                &["relay"],
            )?,
            misbehaviour: make.counters(
                "ngit_sync_misbehaviour_total",
                "Wrong things that other relays sent",
                &["fault"],
            )?,
            refusals: make.counters(
                "ngit_sync_refusals_total",
                "Requests that other relays refused",
                &["reason"],
            )?,
            received_bytes: make.counter(
                "ngit_sync_bytes_received_total",
                "Bytes of the messages of other relays",
            )?,
        };
        for source in SOURCES {
            metrics.events.with_label_values(&[source.label()]);
        }
        Ok(metrics)
    }

    pub fn attempt(&self, relay: &str, succeeded: bool) {
        let result = if succeeded { SUCCESS } else { FAILURE };
        self.attempts.with_label_values(&[relay, result]).inc();
    }

    pub fn event(&self, source: Source) {
        self.events.with_label_values(&[source.label()]).inc();
    }

    pub fn gap(&self, relay: &str) {
        self.gaps.with_label_values(&[relay]).inc();
    }

    pub fn misbehaved(&self, fault: &'static str) {
        self.misbehaviour.with_label_values(&[fault]).inc();
    }

    pub fn refused(&self, reason: &'static str) {
        self.refusals.with_label_values(&[reason]).inc();
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
        // What users bring is not told one by one.
        let direct = self.events.with_label_values(&[Source::Direct.label()]);
        direct.inc_by(status.events.direct.saturating_sub(direct.get()));
        for relay in &status.relays {
            self.show_relay(relay);
        }
    }

    fn show_relay(&self, relay: &RelayStatus) {
        let label = &[relay.url.as_str()];
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
