//! The NEG sessions of one connection. They have names of their own, apart from subscriptions.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::ws::Utf8Bytes;
use grasp_core::Filter;
use negentropy::NegentropyStorageVector;
use rustc_hash::FxHashMap;
use tokio::task::AbortHandle;

use crate::evicting_quota::{QuotaMember, QuotaPermit};
use crate::relay::message::{self, Rejected};
use crate::relay::outbox::{Outbox, SubKey};
use crate::relay::{Relay, negentropy as neg};

pub(super) struct Sessions {
    relay: Arc<Relay>,
    outbox: Outbox,
    items: Arc<QuotaMember>,
    names: FxHashMap<String, SubKey>,
    sessions: FxHashMap<SubKey, Session>,
    next: u64,
}

struct Session {
    name: String,
    last_used: Instant,
    work: AbortHandle,
    stage: Stage,
}

enum Stage {
    Opening,
    Ready(Ready),
    Answering(Ready),
}

struct Ready {
    items: Arc<NegentropyStorageVector>,
    _held: Option<QuotaPermit>,
}

impl Sessions {
    pub(super) fn new(relay: Arc<Relay>, outbox: Outbox, items: Arc<QuotaMember>) -> Self {
        Self {
            relay,
            outbox,
            items,
            names: FxHashMap::default(),
            sessions: FxHashMap::default(),
            next: 0,
        }
    }

    /// Opens, or replaces the one of that name.
    pub(super) fn open(
        &mut self,
        name: String,
        filter: Filter,
        frame: Vec<u8>,
    ) -> Result<(), Rejected> {
        self.close(&name);
        let most = self.relay.limits.neg_sessions;
        if self.sessions.len() >= most {
            let reason = format!("blocked: more than {most} NEG sessions");
            return Err(Rejected::NegErr { sub: name, reason });
        }
        let key = SubKey(self.next);
        self.next += 1;
        let task = neg::open(
            Arc::clone(&self.relay),
            self.outbox.clone(),
            Arc::clone(&self.items),
            key,
            filter,
            frame,
        );
        let session = Session {
            name: name.clone(),
            last_used: Instant::now(),
            work: tokio::spawn(task).abort_handle(),
            stage: Stage::Opening,
        };
        self.names.insert(name, key);
        self.sessions.insert(key, session);
        self.relay.metrics.relay.neg_sessions.inc();
        Ok(())
    }

    pub(super) fn step(&mut self, name: String, frame: Vec<u8>) -> Result<(), Rejected> {
        let key = self.names.get(&name).copied();
        let session = key.and_then(|key| Some((key, self.sessions.get_mut(&key)?)));
        let Some((key, session)) = session else {
            let reason = "closed: there is no such session".to_owned();
            return Err(Rejected::NegErr { sub: name, reason });
        };
        match std::mem::replace(&mut session.stage, Stage::Opening) {
            Stage::Ready(ready) => {
                let (relay, outbox) = (Arc::clone(&self.relay), self.outbox.clone());
                let task = neg::step(relay, outbox, key, Arc::clone(&ready.items), frame);
                session.work = tokio::spawn(task).abort_handle();
                session.stage = Stage::Answering(ready);
                session.last_used = Instant::now();
                Ok(())
            }
            Stage::Opening | Stage::Answering(_) => {
                self.forget(key);
                let reason = "invalid: wait for the answer before the next message".to_owned();
                Err(Rejected::NegErr { sub: name, reason })
            }
        }
    }

    pub(super) fn close(&mut self, name: &str) {
        if let Some(key) = self.names.get(name).copied() {
            self.forget(key);
        }
    }

    pub(super) fn opened(
        &mut self,
        key: SubKey,
        result: Result<neg::Opened, String>,
    ) -> Option<Utf8Bytes> {
        let session = self.sessions.get_mut(&key)?;
        session.last_used = Instant::now();
        let name = message::quote(&session.name);
        match result {
            Ok(opened) => {
                session.stage = Stage::Ready(Ready {
                    items: opened.items,
                    _held: opened.held,
                });
                Some(message::neg_msg(&name, &opened.reply))
            }
            Err(reason) => self.failed(key, &reason),
        }
    }

    pub(super) fn replied(
        &mut self,
        key: SubKey,
        result: Result<Vec<u8>, String>,
    ) -> Option<Utf8Bytes> {
        let session = self.sessions.get_mut(&key)?;
        session.last_used = Instant::now();
        let name = message::quote(&session.name);
        match (
            result,
            std::mem::replace(&mut session.stage, Stage::Opening),
        ) {
            (Ok(reply), Stage::Answering(ready)) => {
                session.stage = Stage::Ready(ready);
                Some(message::neg_msg(&name, &reply))
            }
            (Ok(_), _) => self.failed(key, "error: the session failed"),
            (Err(reason), _) => self.failed(key, &reason),
        }
    }

    /// Ends the sessions that nobody used for too long, and says so.
    pub(super) fn close_idle(&mut self) -> Vec<Utf8Bytes> {
        let idle = self.relay.limits.neg_idle;
        let late = |session: &Session| {
            matches!(session.stage, Stage::Ready(_)) && session.last_used.elapsed() > idle
        };
        let keys = self
            .sessions
            .iter()
            .filter(|(_, session)| late(session))
            .map(|(key, _)| *key);
        let keys: Vec<SubKey> = keys.collect();
        keys.into_iter()
            .filter_map(|key| self.failed(key, "closed: the session was idle for too long"))
            .collect()
    }

    fn failed(&mut self, key: SubKey, reason: &str) -> Option<Utf8Bytes> {
        let session = self.forget(key)?;
        Some(message::neg_err(&message::quote(&session.name), reason))
    }

    fn forget(&mut self, key: SubKey) -> Option<Session> {
        let session = self.sessions.remove(&key)?;
        self.names.remove(&session.name);
        session.work.abort();
        self.relay.metrics.relay.neg_sessions.dec();
        Some(session)
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        for session in self.sessions.values() {
            session.work.abort();
            self.relay.metrics.relay.neg_sessions.dec();
        }
    }
}
