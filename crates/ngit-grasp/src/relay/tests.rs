use std::sync::Condvar;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::driver;

/// A relay whose driver answers nothing, with threads that check events.
pub(super) fn silent(
    limits: Limits,
    threads: usize,
    watching: watch::Receiver<Phase>,
) -> (Relay, driver::Inbox) {
    let store = Arc::new(Store::in_memory());
    let metrics = Arc::new(Metrics::new().unwrap());
    let (driver, inbox) = driver::channel();
    let (ingest, _) =
        Ingest::start(threads, limits.ingest_shares(), &store, &driver, &metrics).unwrap();
    let (live, _) = live::start(Arc::clone(&metrics)).unwrap();
    let relay = Relay::new(
        store,
        ingest,
        live,
        limits,
        metrics,
        Clock::start(),
        Service::of_url("http://a.example").unwrap(),
        watching,
    );
    (relay, inbox)
}

fn relay() -> (Arc<Relay>, driver::Inbox) {
    let (_, watching) = watch::channel(Phase::Running);
    let (relay, inbox) = silent(Limits::default(), 0, watching);
    (Arc::new(relay), inbox)
}

fn permits() -> usize {
    std::thread::available_parallelism()
        .map_or(2, usize::from)
        .max(2)
}

fn network(ip: &str) -> Option<Network> {
    Some(Network::of(ip.parse().unwrap()))
}

/// Slices that run until they are let go.
#[derive(Default)]
struct Slow {
    is_open: Mutex<bool>,
    opened: Condvar,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl Slow {
    fn run(&self) {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        let is_open = self.is_open.lock().unwrap();
        drop(
            self.opened
                .wait_while(is_open, |is_open| !*is_open)
                .unwrap(),
        );
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// A query whose slices are slow.
    fn query(self: &Arc<Self>, relay: &Arc<Relay>) -> tokio::task::JoinHandle<()> {
        let (slow, relay) = (Arc::clone(self), Arc::clone(relay));
        let slice = async move { relay.read(network("192.0.2.1"), move |_| slow.run()).await };
        tokio::spawn(async move { slice.await.unwrap() })
    }
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_query_that_is_closed_and_opened_again_has_no_more_threads_than_permits() {
    let (relay, _inbox) = relay();
    let slow = Arc::new(Slow::default());
    for _ in 0..200 {
        let task = slow.query(&relay);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
    until(|| slow.running.load(Ordering::SeqCst) >= permits()).await;
    slow.open();
    relay.read(network("192.0.2.1"), |_| ()).await.unwrap();
    assert_eq!(slow.most.load(Ordering::SeqCst), permits());
    until(|| slow.running.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_bystander_is_next_but_one_behind_two_hundred_queries_of_one_network() {
    let (relay, _inbox) = relay();
    // One permit is left, so that one slice runs after the other.
    let (others, last) = (Arc::new(Slow::default()), Arc::new(Slow::default()));
    let mut tasks: Vec<_> = (1..permits()).map(|_| others.query(&relay)).collect();
    tasks.push(last.query(&relay));
    until(|| last.running.load(Ordering::SeqCst) == 1).await;

    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = 0;
    for from in std::iter::repeat_n("192.0.2.1", 200).chain(["192.0.2.2"]) {
        let (relay_, order) = (Arc::clone(&relay), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let slice = move |_: &Store| order.lock().unwrap().push(from);
            relay_.read(network(from), slice).await.unwrap();
        }));
        waiting += 1;
        until(|| relay.readers.waiting() == waiting).await;
    }
    last.open();
    until(|| order.lock().unwrap().len() == waiting).await;
    others.open();
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap();
    let place = order.iter().position(|from| *from == "192.0.2.2");
    assert!(place.is_some_and(|place| place <= 1), "{place:?}");
}

#[tokio::test]
async fn a_slice_that_panics_gives_its_permit_back() {
    let (relay, _inbox) = relay();
    for _ in 0..2 * permits() {
        let read = relay.read(None, |_| panic!("a defect"));
        assert!(matches!(read.await, Err(NotRead::Gone)));
    }
    relay.read(None, |_| ()).await.unwrap();
}
