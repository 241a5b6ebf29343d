//! What the operator can watch of the relay: who is connected, and what becomes of events.

use std::time::Duration;

use grasp_core::admit::Refusal;
use prometheus::{Error, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{Closed, LATENCY, Label, Maker, number};
use crate::perform::HELD_KINDS;
use crate::relay::message::ClientMessage;

pub struct RelayMetrics {
    pub connections: IntGauge,
    pub subscriptions: IntGauge,
    pub neg_sessions: IntGauge,
    pub events_received: IntCounter,
    pub events_stored: IntCounter,
    pub events_duplicate: IntCounter,
    pub events_held: IntCounter,
    pub releases: IntCounter,
    pub live_deliveries: IntCounter,
    pub slow_readers: IntCounter,
    connections_refused: Closed<IntCounterVec>,
    messages: Closed<IntCounterVec>,
    refused: Closed<IntCounterVec>,
    query_seconds: Closed<HistogramVec>,
    held: Closed<IntGaugeVec>,
    held_oldest: Closed<IntGaugeVec>,
}

impl RelayMetrics {
    pub(super) fn new(make: &Maker) -> Result<Self, Error> {
        let types = [&ClientMessage::LABELS[..], &["invalid"]].concat();
        let refusals = [&Refusal::LABELS[..], &["malformed", "signature"]].concat();
        let kinds = Label::closed("kind", &HELD_KINDS.map(|(_, name)| name));
        Ok(Self {
            connections: make.gauge("ngit_connections", "Open websocket connections")?,
            subscriptions: make.gauge("ngit_subscriptions", "Open subscriptions")?,
            neg_sessions: make.gauge("ngit_neg_sessions", "Open NIP-77 sessions")?,
            events_received: make
                .counter("ngit_events_received_total", "EVENT messages received")?,
            events_stored: make.counter("ngit_events_stored_total", "Events accepted")?,
            events_duplicate: make.counter(
                "ngit_events_duplicate_total",
                "Events that were here already",
            )?,
            events_held: make.counter(
                "ngit_events_held_total",
                "Events taken to wait for their git data",
            )?,
            releases: make.counter(
                "ngit_releases_total",
                "Held events that were stored because their git data came",
            )?,
            live_deliveries: make.counter(
                "ngit_live_deliveries_total",
                "Events handed to live subscriptions",
            )?,
            slow_readers: make.counter(
                "ngit_slow_readers_dropped_total",
                "Connections dropped because they did not read",
            )?,
            connections_refused: make.counters(
                "ngit_connections_refused_total",
                "Connections refused, or ended to make way for others, by reason",
                Label::closed("reason", &["full", "per_ip", "evicted"]),
            )?,
            messages: make.counters(
                "ngit_messages_total",
                "Client messages by type",
                Label::closed("type", &types),
            )?,
            refused: make.counters(
                "ngit_events_refused_total",
                "Events refused, by reason",
                Label::closed("reason", &refusals),
            )?,
            query_seconds: make.histograms(
                "ngit_query_seconds",
                "From question to last answer",
                Label::closed("type", &["REQ", "COUNT", "NEG"]),
                &LATENCY,
            )?,
            held: make.gauges(
                "ngit_held_events",
                "Events that wait for their git data, by kind",
                kinds.clone(),
            )?,
            held_oldest: make.gauges(
                "ngit_held_oldest_seconds",
                "How long the oldest event of a kind has waited for its git data",
                kinds,
            )?,
        })
    }

    pub fn connection_refused(&self, reason: &'static str) {
        self.connections_refused.at(reason).inc();
    }

    pub fn message(&self, kind: &'static str) {
        self.messages.at(kind).inc();
    }

    pub fn refused(&self, reason: &'static str) {
        self.refused.at(reason).inc();
    }

    pub fn query(&self, kind: &'static str, took: Duration) {
        let queries = self.query_seconds.at(kind);
        queries.observe(took.as_secs_f64());
    }

    pub fn set_held(&self, kind: &'static str, count: usize, oldest: u64) {
        self.held.at(kind).set(number(count));
        let held_oldest = self.held_oldest.at(kind);
        held_oldest.set(number(oldest));
    }
}
