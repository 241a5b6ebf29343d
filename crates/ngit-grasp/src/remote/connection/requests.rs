//! What the core asks of a connection.

use std::net::IpAddr;
use std::sync::Arc;

use grasp_core::sync::io::{Description, End, FromRelay, ToRelay};
use grasp_core::{Filter, Network, SubNo};
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::{Connection, Watch};
use crate::clock::unix_now;
use crate::quota::Account;
use crate::remote::nip11::Document;
use crate::remote::reconcile::{self, Desk, Step, Task};
use crate::remote::{codec, describe};

/// Messages that a relay may send in a comparison without waiting for ours.
const AHEAD: usize = 2;

impl Connection {
    /// Nobody who could ask means the same as being told to go.
    pub(super) fn on_ask(&mut self, ask: Option<ToRelay>) -> Result<(), End> {
        match ask {
            None | Some(ToRelay::HangUp) => return Err(End::Closed),
            Some(ToRelay::Dial { .. }) => {}
            Some(ToRelay::Describe) => {
                let (shared, place) = (Arc::clone(&self.shared), self.place.clone());
                self.describing.spawn(describe(shared, place));
            }
            Some(ToRelay::Subscribe { sub, filters, most }) => self.subscribe(sub, filters, most),
            Some(ToRelay::Unsubscribe(sub)) => {
                if self.subs.remove(&sub).is_some() {
                    self.send(codec::close(sub));
                }
            }
            Some(ToRelay::Reconcile {
                sub,
                filter,
                aside,
                most,
            }) => {
                self.newest = self.newest.max(Some(sub));
                self.comparisons.start(sub, *filter, aside, most);
            }
            Some(ToRelay::EndReconcile(sub)) => {
                if self.comparisons.forget(sub) {
                    self.send(codec::neg_close(sub));
                }
            }
            Some(ToRelay::Authenticate { challenge }) => self.authenticate(&challenge),
        }
        Ok(())
    }

    fn subscribe(&mut self, sub: SubNo, filters: Arc<[Filter]>, most: Option<u32>) {
        self.newest = self.newest.max(Some(sub));
        self.send(codec::req(sub, &filters));
        let watch = Watch {
            filters,
            most,
            sent: 0,
            live: false,
        };
        self.subs.insert(sub, watch);
    }

    fn authenticate(&mut self, challenge: &str) {
        let Some(signer) = &self.shared.signer else {
            return self.note(FromRelay::Authenticated(false));
        };
        let proof = signer.answer(self.url.as_str(), challenge, unix_now());
        self.proof = Some(proof.id);
        self.send(codec::auth(&proof.json));
    }

    pub(super) fn on_described(&mut self, document: Option<Document>) -> Result<(), End> {
        let Some(document) = document else {
            self.note(FromRelay::Described(None));
            return Ok(());
        };
        let ours = &self.shared.instance;
        if !ours.is_empty() && document.instance.as_ref() == Some(ours) {
            return Err(End::Ourselves);
        }
        self.comparisons.fit(&document.limits);
        self.note(FromRelay::Described(Some(document.limits)));
        Ok(())
    }

    /// Steps of a comparison that was given up meanwhile are nobody's any more.
    pub(super) fn on_step(&mut self, sub: SubNo, step: Step) {
        if !self.comparisons.is_open(sub) {
            return;
        }
        match step {
            Step::Say(frame) => self.send(frame),
            Step::Needs(ids) => self.note(FromRelay::Needs { sub, ids }),
            Step::Done {
                from,
                compared,
                lacks,
                some,
            } => {
                self.comparisons.forget(sub);
                self.note(FromRelay::Reconciled {
                    sub,
                    from,
                    compared,
                    lacks,
                    some,
                });
            }
            Step::Failed(why) => {
                self.comparisons.forget(sub);
                self.send(codec::neg_close(sub));
                self.note(FromRelay::Unreconciled { sub, why });
            }
        }
    }
}

/// The NIP-77 comparisons of one connection. They end with it.
pub(super) struct Comparisons {
    desk: Arc<Desk>,
    account: Account,
    open: FxHashMap<SubNo, Comparison>,
    tasks: JoinSet<()>,
    steps: mpsc::UnboundedSender<(SubNo, Step)>,
    next: mpsc::UnboundedReceiver<(SubNo, Step)>,
    frame: u32,
}

struct Comparison {
    said: mpsc::Sender<Vec<u8>>,
    task: AbortHandle,
}

impl Comparisons {
    /// With a relay that was found at this address.
    pub(super) fn new(desk: Arc<Desk>, address: IpAddr) -> Self {
        let (steps, next) = mpsc::unbounded_channel();
        Self {
            account: desk.account(Network::of(address)),
            desk,
            open: FxHashMap::default(),
            tasks: JoinSet::new(),
            steps,
            next,
            frame: reconcile::FRAME,
        }
    }

    /// Messages no longer than the relay takes.
    fn fit(&mut self, limits: &Description) {
        if let Some(bytes) = limits.message_bytes {
            self.frame = reconcile::frame_for(bytes);
        }
    }

    fn start(
        &mut self,
        sub: SubNo,
        filter: Filter,
        aside: Arc<[(grasp_core::Timestamp, grasp_core::EventId)]>,
        most: u32,
    ) {
        while self.tasks.try_join_next().is_some() {}
        let (said, heard) = mpsc::channel(AHEAD);
        let task = Task {
            sub,
            filter,
            aside,
            most,
            frame: self.frame,
            account: self.account.clone(),
        };
        let task = reconcile::run(Arc::clone(&self.desk), task, heard, self.steps.clone());
        let task = self.tasks.spawn(task);
        self.open.insert(sub, Comparison { said, task });
    }

    /// The next step of any of them.
    pub(super) async fn next(&mut self) -> (SubNo, Step) {
        match self.next.recv().await {
            Some(step) => step,
            None => std::future::pending().await,
        }
    }

    /// False if it is more than the comparison waits for.
    pub(super) fn heard(&mut self, sub: SubNo, frame: Vec<u8>) -> bool {
        match self.open.get(&sub) {
            Some(comparison) => comparison.said.try_send(frame).is_ok(),
            None => true,
        }
    }

    pub(super) fn is_open(&self, sub: SubNo) -> bool {
        self.open.contains_key(&sub)
    }

    /// True if there was one.
    pub(super) fn forget(&mut self, sub: SubNo) -> bool {
        match self.open.remove(&sub) {
            Some(comparison) => {
                comparison.task.abort();
                true
            }
            None => false,
        }
    }
}
