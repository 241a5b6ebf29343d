//! How the server ends: first it stops taking new work, then, if somebody holds it up, it cuts.

use tokio::sync::watch;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    #[default]
    Running,
    /// No new connections and no new messages; answers on their way are sent.
    Stopping,
    /// Whatever is still open is dropped.
    Cut,
}

/// Completes when that phase is reached; a sender that is gone means the last one.
pub async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    let _ = phase.wait_for(|now| *now >= wanted).await;
}
