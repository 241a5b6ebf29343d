//! The Nostr relay: connections, queries, reconciliation and live delivery. Events that come in
//! leave through `ingest`; reads go straight to the store and never near the core.

pub mod connection;
pub mod live;
pub mod message;
pub mod negentropy;
pub mod outbox;
mod query;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use grasp_core::limiter::{Limiter, Rate};
use grasp_core::shares::{Exceeded, ShareLimits};
use grasp_core::{Limits, Network, Service};
use grasp_store::Store;
use tokio::sync::watch;

use self::live::ConnId;
use crate::clock::Clock;
use crate::evicting_quota::EvictingQuota;
use crate::eviction::Scarce;
use crate::fair_slots::FairSlots;
use crate::ingest::Ingest;
use crate::metrics::Metrics;
use crate::phase::Phase;

/// Networks with a rate bucket, three for an IPv6 address: 100,000 x 80 bytes = 8 MB.
const MAX_RATED_NETWORKS: usize = 100_000;

/// What all connections share.
pub struct Relay {
    pub store: Arc<Store>,
    pub ingest: Ingest,
    pub live: live::Handle,
    pub limits: Limits,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    pub service: Service,
    pub phase: watch::Receiver<Phase>,
    /// Slices of queries at once; each waits for its turn anew, and networks take turns.
    readers: Arc<FairSlots>,
    /// Events that NEG sessions and COUNTs of several filters may keep in mind.
    session_items: Arc<EvictingQuota>,
    /// What is on its way to all readers.
    pub outboxes: Arc<EvictingQuota>,
    /// Values that filters of subscriptions and waiting COUNTs name.
    filter_values: Arc<EvictingQuota>,
    network_rate: Mutex<Limiter<Network>>,
    next_conn: AtomicU64,
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum NotRead {
    /// A part of the server that the relay cannot do without is gone; only during shutdown.
    #[error("error: shutting down")]
    Gone,
    #[error("rate-limited: too many queries wait, try again later")]
    Busy,
}

impl Relay {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        store: Arc<Store>,
        ingest: Ingest,
        live: live::Handle,
        limits: Limits,
        metrics: Arc<Metrics>,
        clock: Clock,
        service: Service,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let rate = Rate::per_minute(limits.events_per_minute_per_ip);
        Self {
            readers: FairSlots::new(cores.max(2), max_waiting(&limits)),
            session_items: EvictingQuota::new(limits.neg_item_shares(), Scarce::SessionItems),
            outboxes: EvictingQuota::new(limits.outbox_shares(), Scarce::Outbox),
            filter_values: EvictingQuota::new(limits.filter_value_shares(), Scarce::FilterValues),
            network_rate: Mutex::new(Limiter::new(rate, MAX_RATED_NETWORKS)),
            next_conn: AtomicU64::new(0),
            store,
            ingest,
            live,
            limits,
            metrics,
            clock,
            service,
            phase,
        }
    }

    fn next_conn(&self) -> ConnId {
        ConnId(self.next_conn.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes one event from an address's allowance.
    fn may_publish(&self, network: Option<Network>) -> bool {
        let rate = self.network_rate.lock();
        let mut rate = rate.unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.mono();
        let mut levels = network.into_iter().flat_map(Network::levels);
        levels.all(|(level, shares)| rate.allow_share(level, shares, now))
    }

    /// Runs one slice of reading on a thread that may wait for the disk. Whoever asked for it may
    /// be gone before it ends: the permit is the thread's.
    async fn read<T: Send + 'static>(
        &self,
        network: Option<Network>,
        slice: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, NotRead> {
        let permit = self.readers.acquire(network).await;
        let permit = permit.map_err(|_| NotRead::Busy)?;
        let store = Arc::clone(&self.store);
        let running = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            slice(&store)
        });
        running.await.map_err(|_| NotRead::Gone)
    }
}

/// Why somebody cannot have more of something.
fn too_many(exceeded: Exceeded, shares: ShareLimits, what: &str) -> String {
    let (most, whose) = match exceeded {
        Exceeded::Network => (shares.per_network, "from your address"),
        Exceeded::InAll => (shares.in_all, "on this relay"),
    };
    format!("rate-limited: more than {most} {what} {whose}, try again later")
}

/// Each connection has one slice at most of each query that is worked on, and of each NEG session:
/// 1,000 x (4 + 16) = 20,000 x 100 bytes = 2 MB.
fn max_waiting(limits: &Limits) -> usize {
    let per_connection = limits.queries_at_once.saturating_add(limits.neg_sessions);
    limits.connections.saturating_mul(per_connection).max(1)
}

#[cfg(test)]
mod tests;
