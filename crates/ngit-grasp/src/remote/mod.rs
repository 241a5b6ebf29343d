//! The hands of sync: connections to other relays, opened and used as the core asks. One task
//! keeps them all, one task each lives with one relay.

pub mod auth;
pub mod codec;
mod connection;
pub mod dial;
pub mod guard;
pub mod http;
mod local;
mod lookup;
pub mod nip11;
mod oversize;
mod ports;
mod reconcile;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::bounded;
use grasp_core::sync::io::{End, FromRelay, ToRelay};
use grasp_core::{ConnNo, Limits, RelayNo};
use grasp_store::Store;
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;

use self::auth::Signer;
use self::connection::Line;
use self::dial::Dialer;
use self::guard::{Guard, Reach, Target};
use self::nip11::Document;
use self::reconcile::Desk;
use crate::driver::{self, Turn};
use crate::ingest::Ingest;
use crate::metrics::Metrics;

pub const USER_AGENT: &str = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));

/// How long connections may take to end in order.
const FAREWELL: Duration = Duration::from_millis(500);
/// With a little more for the task that waits for them.
const STOP: Duration = Duration::from_secs(1);

/// Often enough for a core that gives up on silence after minutes.
pub const BEAT: Duration = Duration::from_secs(10);

/// How other relays are reached.
#[derive(Clone)]
pub struct Options {
    pub reach: Reach,
    /// For the look-up of the name, and again from there to the open websocket.
    pub connect_timeout: Duration,
    /// So often it is said that a relay still speaks; every third time it is asked to (ping).
    pub beat: Duration,
    /// `None`: challenges are not answered.
    pub signer: Option<Signer>,
    /// What our own NIP-11 document says, so that we know ourselves behind any name.
    pub instance: String,
}

/// What all connections share.
struct Shared {
    guard: Guard,
    dialer: Dialer,
    connect_timeout: Duration,
    beat: Duration,
    signer: Option<Signer>,
    instance: String,
    limits: Limits,
    desk: Arc<Desk>,
    ingest: Ingest,
    driver: driver::Handle,
    metrics: Arc<Metrics>,
}

/// Where a relay is, once found.
#[derive(Debug, Clone)]
struct Place {
    target: Target,
    address: SocketAddr,
}

enum Order {
    Ask(Line, ToRelay),
    /// Whoever asks hears when all connections have ended.
    Stop(crossbeam_channel::Sender<()>),
}

/// Carries what the core asks of other relays to them.
#[derive(Clone)]
pub struct Remotes {
    orders: mpsc::UnboundedSender<Order>,
    driver: driver::Handle,
}

impl Remotes {
    /// Needs a runtime to run on.
    pub fn start(
        options: Options,
        limits: Limits,
        store: &Arc<Store>,
        ingest: Ingest,
        driver: driver::Handle,
        metrics: &Arc<Metrics>,
    ) -> std::io::Result<Self> {
        let (orders, queue) = mpsc::unbounded_channel();
        let shared = Shared {
            guard: Guard::new(options.reach),
            dialer: Dialer::new(options.connect_timeout).map_err(std::io::Error::other)?,
            connect_timeout: options.connect_timeout,
            beat: options.beat,
            signer: options.signer,
            instance: options.instance,
            desk: Arc::new(Desk::new(Arc::clone(store), limits.sync.request_timeout)),
            limits,
            ingest,
            driver: driver.clone(),
            metrics: Arc::clone(metrics),
        };
        tokio::spawn(Hub::new(shared).run(queue));
        Ok(Self { orders, driver })
    }

    /// For work that no other relay has a part in.
    pub fn none(driver: driver::Handle) -> Self {
        let (orders, _) = mpsc::unbounded_channel();
        Self { orders, driver }
    }

    /// Never waits.
    pub fn perform(&self, relay: RelayNo, conn: ConnNo, ask: ToRelay) {
        let order = Order::Ask(Line { relay, conn }, ask);
        if let Err(mpsc::error::SendError(Order::Ask(line, ask))) = self.orders.send(order) {
            unreachable(&self.driver, line, &ask);
        }
    }

    /// Ends every connection; after that nothing comes from other relays. Waits, but not long.
    pub fn stop(&self) {
        let (done, ended) = bounded(1);
        if self.orders.send(Order::Stop(done)).is_ok() && ended.recv_timeout(STOP).is_err() {
            tracing::warn!("connections to other relays did not end in order");
        }
    }
}

/// A dial that nobody carries out has its answer, too.
fn unreachable(driver: &driver::Handle, line: Line, ask: &ToRelay) {
    if matches!(ask, ToRelay::Dial { .. }) {
        let down = FromRelay::Down(End::Failed);
        driver.remote(line.relay, line.conn, down, Turn::None);
    }
}

/// Owns the connections. Whatever becomes of one, its `Down` is said here, once.
struct Hub {
    shared: Arc<Shared>,
    open: FxHashMap<ConnNo, mpsc::UnboundedSender<ToRelay>>,
    tasks: JoinSet<End>,
    lines: FxHashMap<Id, Line>,
}

impl Hub {
    fn new(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
            open: FxHashMap::default(),
            tasks: JoinSet::new(),
            lines: FxHashMap::default(),
        }
    }

    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let done = loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Ask(line, ask)) => self.ask(line, ask),
                    Some(Order::Stop(done)) => break Some(done),
                    None => break None,
                },
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended),
            }
        };
        orders.close();
        while let Ok(order) = orders.try_recv() {
            if let Order::Ask(line, ask) = order {
                unreachable(&self.shared.driver, line, &ask);
            }
        }
        self.end_all().await;
        drop(self);
        if let Some(done) = done {
            let _ = done.send(());
        }
    }

    fn ask(&mut self, line: Line, ask: ToRelay) {
        match ask {
            ToRelay::Dial { url, trusted } => {
                let (sender, asks) = mpsc::unbounded_channel();
                let shared = Arc::clone(&self.shared);
                let connection = connection::run(shared, line, url, trusted, asks);
                self.open.insert(line.conn, sender);
                let task = self.tasks.spawn(connection);
                self.lines.insert(task.id(), line);
            }
            // What is asked of one that is down is ignored.
            ask => {
                if let Some(sender) = self.open.get(&line.conn) {
                    let _ = sender.send(ask);
                }
            }
        }
    }

    fn ended(&mut self, ended: Result<(Id, End), JoinError>) {
        let (id, end) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), End::Failed),
        };
        if let Some(line) = self.lines.remove(&id) {
            self.open.remove(&line.conn);
            let down = FromRelay::Down(end);
            self.shared
                .driver
                .remote(line.relay, line.conn, down, Turn::None);
        }
    }

    /// Without anybody who could ask, every connection ends; those that take too long are cut.
    async fn end_all(&mut self) {
        self.open.clear();
        let in_order = async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                self.ended(ended);
            }
        };
        if timeout(FAREWELL, in_order).await.is_err() {
            self.tasks.abort_all();
            while let Some(ended) = self.tasks.join_next_with_id().await {
                self.ended(ended);
            }
        }
    }
}

/// The NIP-11 document of a relay, from where its websocket is.
async fn describe(shared: Arc<Shared>, place: Place) -> Option<Document> {
    let addresses = [place.address];
    let (dialer, target) = (&shared.dialer, &place.target);
    let page = http::get(dialer, target, &addresses, nip11::TYPE, nip11::MAX_BYTES).await?;
    (page.status == 200).then(|| nip11::read(&page.body))?
}
