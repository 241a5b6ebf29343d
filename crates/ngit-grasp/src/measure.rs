//! What is not counted but looked at now and then: the size of the store, and the room on the
//! disks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use grasp_store::Store;

use crate::config::Config;
use crate::disk;
use crate::metrics::{GIT_DISK, Metrics, RELAY_DISK};

const EVERY: Duration = Duration::from_secs(15);

pub struct Measure {
    store: Arc<Store>,
    metrics: Arc<Metrics>,
    disks: [(&'static str, PathBuf); 2],
    least: u64,
}

impl Measure {
    pub fn new(config: &Config, store: Arc<Store>, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            metrics,
            disks: [
                (GIT_DISK, config.git_data_path.clone()),
                (RELAY_DISK, config.relay_data_path.clone()),
            ],
            least: config.min_free_bytes.as_u64(),
        }
    }

    /// Waits for the disk.
    pub fn measure(&self) {
        let metrics = &self.metrics.store;
        if let Ok(stats) = self.store.stats() {
            metrics.show(stats);
        }
        for (name, path) in &self.disks {
            for disk in disk::of(&[path], self.least) {
                metrics.show_disk(name, &disk);
            }
        }
    }

    pub async fn keep_measuring(self: Arc<Self>) {
        loop {
            tokio::time::sleep(EVERY).await;
            let measure = Arc::clone(&self);
            let _ = tokio::task::spawn_blocking(move || measure.measure()).await;
        }
    }
}
