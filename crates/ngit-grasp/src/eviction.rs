//! Whether a connection has to make way for others, and what for: one for each, whatever it is
//! evicted from.

use std::sync::Arc;

use tokio::sync::watch;

/// What was scarce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scarce {
    /// Connections in all.
    Connections,
    /// Bytes on their way to readers.
    Outbox,
    /// Values in filters.
    FilterValues,
    /// Events in sessions and counts.
    SessionItems,
}

impl Scarce {
    /// For the person at the other end.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Connections => "made way: your address holds most of all connections",
            Self::Outbox => "too slow: events were waiting and not read",
            Self::FilterValues => "made way: your address holds most of all filter values",
            Self::SessionItems => "made way: your address holds most of all NEG sessions",
        }
    }

    /// For metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Outbox => "outbox",
            Self::FilterValues => "filter_values",
            Self::SessionItems => "session_items",
        }
    }
}

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Eviction {
    scarce: Arc<watch::Sender<Option<Scarce>>>,
}

impl Default for Eviction {
    fn default() -> Self {
        Self {
            scarce: Arc::new(watch::Sender::new(None)),
        }
    }
}

impl Eviction {
    /// The first reason stays.
    pub fn evict(&self, from: Scarce) {
        self.scarce.send_if_modified(|scarce| {
            let first = scarce.is_none();
            scarce.get_or_insert(from);
            first
        });
    }

    pub fn is_evicted(&self) -> bool {
        self.scarce.borrow().is_some()
    }

    /// Completes when the connection has to go.
    pub async fn evicted(&self) -> Scarce {
        let mut watching = self.scarce.subscribe();
        let evicted = watching.wait_for(Option::is_some).await;
        match evicted.ok().and_then(|scarce| *scarce) {
            Some(scarce) => scarce,
            // The sender is ours.
            None => std::future::pending().await,
        }
    }
}
