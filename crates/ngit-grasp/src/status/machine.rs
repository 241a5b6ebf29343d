//! What the server itself knows beside the core: store, disks, git traffic.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use grasp_store::Store;
use serde::Serialize;

use crate::config::Config;
use crate::disk::{self, Disk, Room};
use crate::metrics::Metrics;

/// Where to look.
pub struct Watch {
    store: Arc<Store>,
    metrics: Arc<Metrics>,
    paths: [PathBuf; 2],
    least: u64,
    looking: Mutex<()>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Machine {
    /// Events in the store: all of them are served.
    pub events: u64,
    pub store_bytes: u64,
    pub connections: u64,
    pub subscriptions: u64,
    pub git: GitTraffic,
    /// Of the one thread that decides, since the start.
    pub longest_turn_ms: u64,
    /// That of the fullest disk.
    pub room: Room,
    pub disks: Vec<Disk>,
}

/// Since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct GitTraffic {
    /// Pushes and clones at this moment.
    pub running: u64,
    pub pushes: u64,
    pub pushes_refused: u64,
    pub clones: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

impl Watch {
    pub fn new(config: &Config, store: Arc<Store>, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            metrics,
            paths: [config.git_data_path.clone(), config.relay_data_path.clone()],
            least: config.min_free_bytes.as_u64(),
            looking: Mutex::new(()),
        }
    }

    /// Waits for the disk. `None` while another waits: a disk that hangs holds one thread.
    pub fn look(&self) -> Option<Machine> {
        let _one = self.looking.try_lock().ok()?;
        let stats = self.store.stats().ok();
        let [git, relay] = &self.paths;
        let disks = disk::of(&[git, relay], self.least);
        let metrics = &self.metrics;
        Some(Machine {
            events: stats.map_or(0, |stats| stats.events),
            store_bytes: stats.map_or(0, |stats| stats.disk_bytes),
            connections: metrics.relay.connections.get().unsigned_abs(),
            subscriptions: metrics.relay.subscriptions.get().unsigned_abs(),
            git: metrics.git.traffic(),
            longest_turn_ms: millis(metrics.driver.longest_turn()),
            room: disks.iter().map(Disk::room).max().unwrap_or_default(),
            disks,
        })
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
