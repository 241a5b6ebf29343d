//! The subscriptions of one connection: first what is stored, then EOSE, then what is live, and
//! no event in both.

use std::sync::Arc;

use grasp_core::{Filter, Seq};
use grasp_store::Completeness;
use rustc_hash::FxHashMap;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::Batch;
use super::values::{Named, Values};
use crate::evicting_quota::QuotaMember;
use crate::relay::live::ConnId;
use crate::relay::message::{self, Rejected};
use crate::relay::outbox::{LiveEvent, Outbox, SubKey};
use crate::relay::{Relay, query};

pub(super) struct Subscriptions {
    relay: Arc<Relay>,
    conn: ConnId,
    outbox: Outbox,
    names: FxHashMap<String, SubKey>,
    subs: FxHashMap<SubKey, Sub>,
    next: u64,
    values: Values,
    /// Subscriptions on their way into the index.
    opening: Arc<Semaphore>,
}

struct Sub {
    /// As JSON.
    name: Arc<str>,
    _values: Named,
    query: AbortHandle,
    stage: Stage,
}

enum Stage {
    /// The query runs; live events wait for its end.
    Stored { held: Vec<LiveEvent> },
    /// The query saw everything below `from`.
    Live { from: Seq },
}

/// Subscriptions that are opened again before the index has filed the ones that they replace.
const SPARE: usize = 64;

impl Subscriptions {
    pub(super) fn new(
        relay: Arc<Relay>,
        conn: ConnId,
        values: Arc<QuotaMember>,
        outbox: Outbox,
    ) -> Self {
        let opening = Arc::new(Semaphore::new(relay.limits.subscriptions + SPARE));
        Self {
            conn,
            outbox,
            names: FxHashMap::default(),
            subs: FxHashMap::default(),
            next: 0,
            values: Values::new(&relay.limits, values),
            opening,
            relay,
        }
    }

    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    /// Opens, or replaces the one of that name.
    pub(super) fn open(&mut self, name: String, filters: Vec<Filter>) -> Result<(), Rejected> {
        self.close(&name);
        let mut values = match self.room_for(&filters) {
            Ok(values) => values,
            Err(reason) => return Err(Rejected::Closed { sub: name, reason }),
        };
        let Ok(opening) = Arc::clone(&self.opening).try_acquire_owned() else {
            let reason =
                "rate-limited: subscriptions are opened faster than they can be".to_owned();
            return Err(Rejected::Closed { sub: name, reason });
        };
        let key = SubKey(self.next);
        self.next += 1;
        let quoted: Arc<str> = message::quote(&name).into();
        // First live, then the query: nothing falls between them.
        let in_all = values.in_all();
        self.relay
            .live
            .subscribe(self.conn, key, filters.clone(), in_all, opening);
        let task = query::stored(
            Arc::clone(&self.relay),
            self.outbox.clone(),
            key,
            Arc::clone(&quoted),
            filters,
        );
        let sub = Sub {
            name: quoted,
            _values: values,
            query: tokio::spawn(task).abort_handle(),
            stage: Stage::Stored { held: Vec::new() },
        };
        self.names.insert(name, key);
        self.subs.insert(key, sub);
        Ok(())
    }

    pub(super) fn close(&mut self, name: &str) {
        if let Some(key) = self.names.remove(name) {
            self.relay.live.unsubscribe(self.conn, key);
            self.forget(key);
        }
    }

    pub(super) fn is_open(&self, key: SubKey) -> bool {
        self.subs.contains_key(&key)
    }

    pub(super) fn query_done(
        &mut self,
        key: SubKey,
        result: Result<(Seq, Completeness), String>,
        batch: &mut Batch,
    ) {
        let Some(sub) = self.subs.get_mut(&key) else {
            return;
        };
        match result {
            Ok((from, completeness)) => {
                batch.frames.push(message::eose(&sub.name, completeness));
                let before = std::mem::replace(&mut sub.stage, Stage::Live { from });
                if let Stage::Stored { held } = before {
                    for live in held {
                        self.live(live, batch);
                    }
                }
            }
            Err(reason) => {
                batch.frames.push(message::closed(&sub.name, &reason));
                self.names.retain(|_, named| *named != key);
                self.relay.live.unsubscribe(self.conn, key);
                self.forget(key);
            }
        }
    }

    pub(super) fn live(&mut self, live: LiveEvent, batch: &mut Batch) {
        let Some(sub) = self.subs.get_mut(&live.sub) else {
            return self.outbox.live_done(live.bytes());
        };
        match &mut sub.stage {
            Stage::Stored { held } => held.push(live),
            Stage::Live { from } => {
                self.outbox.live_done(live.bytes());
                if live.seq.is_none_or(|seq| seq >= *from) {
                    let frame = message::event(&sub.name, live.event.json());
                    batch.frames.push(frame);
                    batch.held.extend(live.held);
                }
            }
        }
    }

    /// Or the reason why there is none.
    fn room_for(&self, filters: &[Filter]) -> Result<Named, String> {
        let most = self.relay.limits.subscriptions;
        if self.subs.len() >= most {
            return Err(format!("blocked: more than {most} subscriptions"));
        }
        self.values.take(filters)
    }

    fn forget(&mut self, key: SubKey) {
        let Some(sub) = self.subs.remove(&key) else {
            return;
        };
        sub.query.abort();
        if let Stage::Stored { held } = sub.stage {
            for live in held {
                self.outbox.live_done(live.bytes());
            }
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        for sub in self.subs.values() {
            sub.query.abort();
        }
    }
}
