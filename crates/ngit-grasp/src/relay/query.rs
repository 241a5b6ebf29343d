//! REQ and COUNT: the store is read slice by slice, and the next slice waits until the reader
//! has taken the last one.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::ws::Utf8Bytes;
use grasp_core::{Filter, Network, Seq};
use grasp_store::{Budget, Completeness, Progress, Query, Store, StoreError, Want};

use super::message;
use super::outbox::{Out, Outbox, SubKey};
use super::{NotRead, Relay, too_many};
use crate::clock::unix_now;
use crate::evicting_quota::{QuotaMember, QuotaPermit};

/// Sends the stored events of a subscription and then the end of its query.
pub(super) async fn stored(
    relay: Arc<Relay>,
    outbox: Outbox,
    sub: SubKey,
    name: Arc<str>,
    filters: Vec<Filter>,
) {
    let _turn = outbox.turn().await;
    let started = Instant::now();
    let result = send_stored(&relay, &outbox, sub, &name, filters).await;
    relay.metrics.relay.query("REQ", started.elapsed());
    outbox.send(Out::QueryDone { sub, result });
}

async fn send_stored(
    relay: &Relay,
    outbox: &Outbox,
    sub: SubKey,
    name: &Arc<str>,
    filters: Vec<Filter>,
) -> Result<(Seq, Completeness), String> {
    let mut query = Query::new(filters, relay.limits.query_results, Want::Json);
    loop {
        let name = Arc::clone(name);
        let window = outbox
            .reserve()
            .await
            .ok_or_else(|| NotRead::Gone.to_string())?;
        let slice = relay.read(outbox.network(), move |store| slice(store, query, &name));
        let Slice {
            query: rest,
            frames,
            progress,
        } = slice.await.map_err(|error| error.to_string())?;
        query = rest;
        if !frames.is_empty() {
            outbox.stored(sub, frames, window);
        }
        match progress {
            Ok(Progress::More) => {}
            Ok(Progress::Done) => {
                return Ok((query.bound().unwrap_or_default(), query.completeness()));
            }
            Err(error) => return Err(failed(&error)),
        }
    }
}

struct Slice {
    query: Query,
    frames: Vec<Utf8Bytes>,
    progress: Result<Progress, StoreError>,
}

fn slice(store: &Store, mut query: Query, name: &str) -> Slice {
    let mut frames = Vec::new();
    let progress = store.advance(&mut query, Budget::SLICE, unix_now(), |found| {
        frames.push(message::event(name, found.json));
    });
    Slice {
        query,
        frames,
        progress,
    }
}

/// Answers a COUNT (NIP-45); several filters count an event once.
pub(super) async fn count(
    relay: Arc<Relay>,
    outbox: Outbox,
    items: Arc<QuotaMember>,
    name: Arc<str>,
    filters: Vec<Filter>,
) {
    let _turn = outbox.turn().await;
    let started = Instant::now();
    let frame = match counted(&relay, outbox.network(), &items, filters).await {
        Ok((count, approximate)) => message::count(&name, count, approximate),
        Err(reason) => message::closed(&name, &reason),
    };
    relay.metrics.relay.query("COUNT", started.elapsed());
    outbox.send(Out::Text(frame));
}

async fn counted(
    relay: &Relay,
    network: Option<Network>,
    items: &Arc<QuotaMember>,
    filters: Vec<Filter>,
) -> Result<(usize, bool), String> {
    // A limit says how many events to send; a COUNT sends none.
    let filters = filters.into_iter().map(|filter| Filter {
        limit: None,
        ..filter
    });
    let mut query = Query::new(filters.collect(), relay.limits.count_results, Want::Ids);
    let (mut count, mut held) = (0, None);
    loop {
        let slice = relay.read(network, move |store| {
            let mut found = 0;
            let progress = store.advance(&mut query, Budget::SLICE, unix_now(), |_| found += 1);
            (query, found, progress)
        });
        let (rest, found, progress) = slice.await.map_err(|error| error.to_string())?;
        query = rest;
        count += found;
        if query.remembers() {
            hold_items(relay, items, found, &mut held)?;
        }
        match progress {
            Ok(Progress::More) => {}
            Ok(Progress::Done) => return Ok((count, query.completeness() != Completeness::Finish)),
            Err(error) => return Err(failed(&error)),
        }
    }
}

/// So many events more are kept in memory for a connection.
pub(super) fn hold_items(
    relay: &Relay,
    items: &Arc<QuotaMember>,
    count: usize,
    held: &mut Option<QuotaPermit>,
) -> Result<(), String> {
    let what = "events in open sessions and counts";
    let more = items.take(count);
    let more = more.map_err(|error| too_many(error, relay.limits.neg_item_shares(), what))?;
    match held {
        Some(held) => held.join(more),
        None => *held = Some(more),
    }
    Ok(())
}

/// The operator reads what broke, the client only that it did.
pub(super) fn failed(error: &StoreError) -> String {
    tracing::error!(%error, "query failed");
    "error: the query could not be answered".to_owned()
}
