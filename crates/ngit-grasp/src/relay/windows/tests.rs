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

fn windows() -> Arc<Windows> {
    Arc::new(Windows::new(limits().outbox_shares()))
}

type Queue = tokio::sync::mpsc::UnboundedReceiver<Out>;

fn reader(windows: &Arc<Windows>, ip: &str) -> (Outbox, Queue) {
    let network = Network::of(ip.parse().unwrap());
    Outbox::new(&limits(), Some(network), windows)
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
async fn fill(windows: &Arc<Windows>, ip: &str) -> Vec<(Outbox, Queue)> {
    let mut readers = Vec::new();
    for _ in 0..64 {
        let (outbox, queue) = reader(windows, ip);
        if !sends(&outbox, 200 * KIB).await {
            break;
        }
        readers.push((outbox, queue));
    }
    readers
}

#[tokio::test(start_paused = true)]
async fn slow_readers_of_one_address_hold_no_more_than_its_share() {
    let windows = windows();
    let slow = fill(&windows, SLOW).await;
    assert_eq!(slow.len(), 4, "one more would be beyond 1 MiB");
    assert!(windows.state().shares.total() <= 1024 * KIB as u64);
    let (other, _queue) = reader(&windows, "198.51.100.20");
    assert!(sends(&other, 200 * KIB).await);
    assert!(slow.iter().all(|(outbox, _)| !outbox.is_too_slow()));
}

#[tokio::test(start_paused = true)]
async fn a_query_goes_on_when_its_own_readers_have_taken_something() {
    let windows = windows();
    let mut slow = fill(&windows, SLOW).await;
    let (outbox, _queue) = reader(&windows, SLOW);
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
    let windows = windows();
    let mut slow = Vec::new();
    for n in 0..12 {
        slow.extend(fill(&windows, &format!("203.0.113.{n}")).await);
    }
    let (bystander, _queue) = reader(&windows, "198.51.100.20");
    for _ in 0..2 {
        assert!(sends(&bystander, 200 * KIB).await);
    }
    let (last, _last_queue) = reader(&windows, "198.51.100.21");
    for _ in 0..2 {
        assert!(sends(&last, 255 * KIB).await, "and others still do");
    }
    let dropped = slow.iter().filter(|(outbox, _)| outbox.is_too_slow());
    let (dropped, all) = (dropped.count(), slow.len());
    assert!(dropped > 0 && dropped < all / 2, "{dropped} of {all}");
    assert!(!bystander.is_too_slow() && !last.is_too_slow());
    assert!(windows.state().shares.total() <= 8 * 1024 * KIB as u64);
}

#[tokio::test(start_paused = true)]
async fn live_events_that_nobody_takes_are_counted_and_drop_the_slowest() {
    let windows = windows();
    let parts = [(); 3].map(|()| windows.join(Some(Network::of(SLOW.parse().unwrap()))));
    let [one, two, three] = parts;
    let mut held = vec![one.add(500 * KIB), two.add(400 * KIB), three.add(100 * KIB)];
    assert!(!one.is_too_slow());
    held.push(three.add(100 * KIB));
    assert!(one.is_too_slow() && !two.is_too_slow() && !three.is_too_slow());
    assert_eq!(windows.state().shares.total(), 600 * KIB as u64);
    drop(held);
    assert_eq!(windows.state().shares.total(), 0);
    drop((one, two, three));
    assert!(windows.state().readers.is_empty() && windows.state().queues.is_empty());
}
