//! NIP-77, the server's side. A session is a sealed list of times and ids; each message is
//! answered from it without other state. Bounded in items, in bytes per message and in time.

use std::sync::Arc;
use std::time::Instant;

use grasp_core::{EventId, Filter, Network, Timestamp};
use grasp_store::{Budget, Progress, Query, Want};
use negentropy::{Id, Negentropy, NegentropyStorageVector};

use super::Relay;
use super::outbox::{Out, Outbox, SubKey};
use super::query::{failed, hold_items};
use crate::clock::unix_now;
use crate::evicting_quota::{QuotaMember, QuotaPermit};

/// A session that is ready, with the answer to its first message.
pub struct Opened {
    pub items: Arc<NegentropyStorageVector>,
    pub held: Option<QuotaPermit>,
    pub reply: Vec<u8>,
}

/// Collects what matches and answers the first message.
pub(super) async fn open(
    relay: Arc<Relay>,
    outbox: Outbox,
    items: Arc<QuotaMember>,
    session: SubKey,
    filter: Filter,
    frame: Vec<u8>,
) {
    let _turn = outbox.turn().await;
    let started = Instant::now();
    let result = opened(&relay, outbox.network(), &items, filter, frame).await;
    relay.metrics.relay.query("NEG", started.elapsed());
    outbox.send(Out::NegOpened { session, result });
}

/// Answers a further message.
pub(super) async fn step(
    relay: Arc<Relay>,
    outbox: Outbox,
    session: SubKey,
    items: Arc<NegentropyStorageVector>,
    frame: Vec<u8>,
) {
    let limit = relay.limits.neg_frame_bytes;
    let read = relay.read(outbox.network(), move |_| reconcile(&items, &frame, limit));
    let result = match read.await {
        Ok(result) => result,
        Err(error) => Err(error.to_string()),
    };
    outbox.send(Out::NegReply { session, result });
}

async fn opened(
    relay: &Relay,
    network: Option<Network>,
    part: &Arc<QuotaMember>,
    filter: Filter,
    frame: Vec<u8>,
) -> Result<Opened, String> {
    let limit = relay.limits.neg_frame_bytes;
    let (found, held) = collect(relay, network, part, filter).await?;
    let slice = relay.read(network, move |_| {
        let items = seal(found)?;
        let reply = reconcile(&items, &frame, limit)?;
        Ok::<_, String>((items, reply))
    });
    let (items, reply) = slice.await.map_err(|error| error.to_string())??;
    Ok(Opened {
        items: Arc::new(items),
        held,
        reply,
    })
}

type Found = Vec<(Timestamp, EventId)>;

async fn collect(
    relay: &Relay,
    network: Option<Network>,
    part: &Arc<QuotaMember>,
    filter: Filter,
) -> Result<(Found, Option<QuotaPermit>), String> {
    let most = relay.limits.session_items(network);
    let mut query = Query::new(vec![filter], most.saturating_add(1), Want::Ids);
    let mut found = Vec::new();
    let mut held = None;
    loop {
        let before = found.len();
        let slice = relay.read(network, move |store| {
            let visit = |item: grasp_store::Found<'_>| found.push((item.created_at, item.id));
            let progress = store.advance(&mut query, Budget::SLICE, unix_now(), visit);
            (query, found, progress)
        });
        let progress;
        (query, found, progress) = slice.await.map_err(|error| error.to_string())?;
        if found.len() > most {
            return Err(format!(
                "blocked: more than {most} events match, narrow the filter"
            ));
        }
        hold_items(relay, part, found.len() - before, &mut held)?;
        match progress {
            Ok(Progress::More) => {}
            Ok(Progress::Done) => return Ok((found, held)),
            Err(error) => return Err(failed(&error)),
        }
    }
}

fn seal(found: Found) -> Result<NegentropyStorageVector, String> {
    let mut items = NegentropyStorageVector::with_capacity(found.len());
    // Newest first in the store, oldest first here.
    for (created_at, id) in found.into_iter().rev() {
        items
            .insert(created_at.0, Id::from_byte_array(id.0))
            .map_err(internal)?;
    }
    items.seal().map_err(internal)?;
    Ok(items)
}

fn internal(error: negentropy::Error) -> String {
    tracing::error!(%error, "negentropy session failed");
    "error: the session failed".to_owned()
}

/// Answers one message of the other side; also the entry point of the fuzzer.
pub fn reconcile(
    items: &NegentropyStorageVector,
    frame: &[u8],
    limit: usize,
) -> Result<Vec<u8>, String> {
    let mut side = Negentropy::borrowed(items, limit as u64).map_err(internal)?;
    side.reconcile(frame)
        .map_err(|error| format!("invalid: not a negentropy message: {error}"))
}
