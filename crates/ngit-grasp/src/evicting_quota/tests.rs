use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use grasp_core::Limits;
use tokio::time::timeout;

use super::*;
use crate::relay::outbox::{Out, Outbox, SubKey};

const KIB: usize = 1024;
const SLOW: &str = "203.0.113.1";

/// A share is 1 MiB.
fn limits() -> Limits {
    Limits {
        outbox_bytes: 512 * KIB,
        query_window_bytes: 512 * KIB,
        outbox_bytes_total: 8 * 1024 * KIB,
        ..Limits::default()
    }
}

fn quota() -> Arc<EvictingQuota> {
    EvictingQuota::new(limits().outbox_shares(), Scarce::Outbox)
}

type Queue = tokio::sync::mpsc::UnboundedReceiver<Out>;

fn reader(quota: &Arc<EvictingQuota>, ip: &str) -> (Outbox, Queue) {
    let network = Network::of(ip.parse().unwrap());
    Outbox::new(&limits(), Some(network), &Eviction::default(), quota)
}

/// One slice, as a query sends it; `false` when the query has to wait.
async fn sends(outbox: &Outbox, bytes: usize) -> bool {
    let waits = timeout(Duration::from_secs(1), outbox.reserve()).await;
    let Ok(Some(window)) = waits else {
        return false;
    };
    let frames = vec![Utf8Bytes::from("x".repeat(bytes))];
    outbox.stored(SubKey(0), frames, window);
    true
}

/// Readers of one address that take nothing, until its queries wait.
async fn fill(quota: &Arc<EvictingQuota>, ip: &str) -> Vec<(Outbox, Queue)> {
    let mut readers = Vec::new();
    for _ in 0..64 {
        let (outbox, queue) = reader(quota, ip);
        if !sends(&outbox, 200 * KIB).await {
            break;
        }
        readers.push((outbox, queue));
    }
    readers
}

#[tokio::test(start_paused = true)]
async fn slow_readers_of_one_address_hold_no_more_than_its_share() {
    let quota = quota();
    let slow = fill(&quota, SLOW).await;
    assert_eq!(slow.len(), 4, "one more would be beyond 1 MiB");
    assert!(quota.state().shares.total() <= 1024 * KIB as u64);
    let (other, _queue) = reader(&quota, "198.51.100.20");
    assert!(sends(&other, 200 * KIB).await);
    assert!(slow.iter().all(|(outbox, _)| !outbox.is_evicted()));
}

#[tokio::test(start_paused = true)]
async fn a_query_goes_on_when_its_own_readers_have_taken_something() {
    let quota = quota();
    let mut slow = fill(&quota, SLOW).await;
    let (outbox, _queue) = reader(&quota, SLOW);
    let waiting = tokio::spawn({
        let outbox = outbox.clone();
        async move { outbox.reserve().await.is_some() }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    let (_, queue) = slow.last_mut().unwrap();
    drop(queue.try_recv());
    assert!(
        timeout(Duration::from_secs(1), waiting)
            .await
            .unwrap()
            .unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn when_all_is_held_the_largest_makes_way_and_never_a_bystander() {
    let quota = quota();
    let mut slow = Vec::new();
    for n in 0..12 {
        slow.extend(fill(&quota, &format!("203.0.113.{n}")).await);
    }
    let (bystander, _queue) = reader(&quota, "198.51.100.20");
    for _ in 0..2 {
        assert!(sends(&bystander, 200 * KIB).await);
    }
    let (last, _last_queue) = reader(&quota, "198.51.100.21");
    for _ in 0..2 {
        assert!(sends(&last, 255 * KIB).await, "and others still do");
    }
    let dropped = slow.iter().filter(|(outbox, _)| outbox.is_evicted());
    let (dropped, all) = (dropped.count(), slow.len());
    assert!(dropped > 0 && dropped < all / 2, "{dropped} of {all}");
    assert!(!bystander.is_evicted() && !last.is_evicted());
    assert!(quota.state().shares.total() <= 8 * 1024 * KIB as u64);
}

#[tokio::test(start_paused = true)]
async fn live_events_that_nobody_takes_are_counted_and_drop_the_slowest() {
    let quota = quota();
    let network = Some(Network::of(SLOW.parse().unwrap()));
    let evictions = [(); 3].map(|()| Eviction::default());
    let [one, two, three] = [0, 1, 2].map(|n| quota.join(network, &evictions[n]));
    let evicted = || [0, 1, 2].map(|n| evictions[n].is_evicted());
    let mut held = vec![one.add(500 * KIB), two.add(400 * KIB), three.add(100 * KIB)];
    assert_eq!(evicted(), [false; 3]);
    held.push(three.add(100 * KIB));
    assert_eq!(evicted(), [true, false, false]);
    assert_eq!(quota.state().shares.total(), 600 * KIB as u64);
    drop(held);
    assert_eq!(quota.state().shares.total(), 0);
    drop((one, two, three));
    assert!(quota.state().holders.is_empty() && quota.state().queues.is_empty());
}

#[test]
fn whoever_holds_most_makes_way_for_what_is_taken_at_once() {
    let limits = ShareLimits {
        in_all: 12,
        per_network: 6,
    };
    let quota = EvictingQuota::new(limits, Scarce::SessionItems);
    let evictions = [(); 4].map(|()| Eviction::default());
    let join = |n: usize| {
        let network = Network::of([203, 0, 113, n as u8].into());
        quota.join(Some(network), &evictions[n])
    };
    let [one, two, three, four] = [0, 1, 2, 3].map(join);
    let evicted = || [0, 1, 2, 3].map(|n| evictions[n].is_evicted());
    let mut held = vec![
        one.take(6).unwrap(),
        two.take(3).unwrap(),
        three.take(3).unwrap(),
    ];
    assert_eq!(one.take(1).unwrap_err(), Exceeded::Network);
    assert_eq!(
        three.take(3).unwrap_err(),
        Exceeded::InAll,
        "nobody has more"
    );
    assert_eq!(evicted(), [false; 4]);
    held.push(three.take(1).unwrap());
    assert_eq!(evicted(), [true, false, false, false]);
    held.push(four.take(5).unwrap());
    assert_eq!(four.take(2).unwrap_err(), Exceeded::Network);
    held.push(two.take(1).unwrap());
    assert_eq!(evicted(), [true, false, false, true]);
    assert_eq!(quota.state().shares.total(), 8);
    drop(held);
    assert_eq!(quota.state().shares.total(), 0);
}
