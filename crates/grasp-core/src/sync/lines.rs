//! Lines to relays: who is dialled when, what a lost line means, who is left.

use std::collections::BTreeMap;
use std::time::Duration;

use super::batch::{Batch, Doubt, Via};
use super::capabilities::Reconciles;
use super::downloads::BatchNo;
use super::health::Health;
use super::io::{End, ToRelay};
use super::link::{Link, Why};
use super::note::Note;
use super::peer::Peer;
use super::session::Session;
use super::{Sync, Timer};
use crate::clock::{Now, Timestamp};
use crate::id::Pubkey;
use crate::ticket::{ConnNo, RelayNo};

/// A document older than this is asked for again.
const DESCRIBED: u64 = 24 * 60 * 60;

impl Sync {
    /// Dials if it is time to, hangs up on one that has been silent for too long, and is reminded
    /// to look again otherwise.
    pub(super) fn look_at(&mut self, relay: RelayNo, now: Now) {
        let Some(known) = self.targets.relays.get(relay) else {
            return;
        };
        let empty = known.is_empty();
        let limits = &self.limits;
        let peer = self
            .peers
            .entry(relay)
            .or_insert_with(|| Peer::new(limits, now.unix));
        match &peer.link {
            Link::Down { .. } if empty => {}
            Link::Down {
                retry: Some(at), ..
            } if *at > now.mono => self.agenda.add(*at, Timer::Link(relay)),
            Link::Down { .. } => self.dial(relay, now),
            Link::Connecting { deadline, .. } if *deadline > now.mono => {
                self.agenda.add(*deadline, Timer::Link(relay));
            }
            Link::Connecting { conn, .. } => {
                let conn = *conn;
                self.hang_up(relay, conn, End::TimedOut, now);
            }
            Link::Up(session) => {
                let (conn, silent_at) = (session.conn, session.heard + self.limits.silence);
                if silent_at > now.mono {
                    self.agenda.add(silent_at, Timer::Link(relay));
                } else {
                    self.hang_up(relay, conn, End::Silent, now);
                }
            }
        }
    }

    fn hang_up(&mut self, relay: RelayNo, conn: ConnNo, end: End, now: Now) {
        self.ask(relay, conn, ToRelay::HangUp);
        self.on_down(relay, end, now);
    }

    /// It has misbehaved for long enough.
    pub(super) fn shun(&mut self, relay: RelayNo, now: Now) {
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        let conn = session.conn;
        self.tell(relay, |relay| Note::Shunned { relay });
        self.hang_up(relay, conn, End::Failed, now);
    }

    fn dial(&mut self, relay: RelayNo, now: Now) {
        let Some(known) = self.targets.relays.get(relay) else {
            return;
        };
        let (url, trusted) = (known.url.clone(), known.bootstrap);
        // Those that the operator names have their place whatever else there is.
        let full = self.connected >= self.limits.connections && !trusted;
        if full && !self.make_room(relay, now) {
            return self.wait_for_room(relay, now);
        }
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        let conn = ConnNo(self.next_conn);
        self.next_conn += 1;
        self.connected += 1;
        let deadline = now.mono + self.limits.connect_timeout;
        peer.record.attempts += 1;
        peer.set_link(Link::Connecting { conn, deadline }, now.unix);
        self.agenda.add(deadline, Timer::Link(relay));
        self.ask(relay, conn, ToRelay::Dial { url, trusted });
    }

    /// The owner with the most lines that nobody else asked for gives one of them to a relay that
    /// several owners name, or to an owner with fewer.
    fn make_room(&mut self, relay: RelayNo, now: Now) -> bool {
        let sole = |relay: RelayNo| self.targets.relays.get(relay)?.sole_owner();
        let mut lines: BTreeMap<Pubkey, Vec<RelayNo>> = BTreeMap::new();
        for (other, peer) in &self.peers {
            if let Some(owner) = sole(*other).filter(|_| peer.link.conn().is_some()) {
                lines.entry(owner).or_default().push(*other);
            }
        }
        let own = sole(relay).map(|owner| lines.get(&owner).map_or(0, Vec::len) + 1);
        let Some(most) = lines.values().max_by_key(|lines| lines.len()) else {
            return false;
        };
        // Nobody's only line goes, whoever asks.
        if most.len() < 2 || own.is_some_and(|own| own >= most.len()) {
            return false;
        }
        // One that nothing is being asked of, if there is one.
        let is_busy = |relay: &&RelayNo| {
            let peer = self.peers.get(*relay);
            let session = peer.and_then(|peer| peer.session());
            session.is_some_and(|session| !session.batches.is_empty())
        };
        let Some(other) = most.iter().min_by_key(is_busy).copied() else {
            return false;
        };
        self.give_way(other, now);
        true
    }

    fn give_way(&mut self, relay: RelayNo, now: Now) {
        let Some(conn) = self.peers.get(&relay).and_then(|peer| peer.link.conn()) else {
            return;
        };
        self.ask(relay, conn, ToRelay::HangUp);
        self.connected -= 1;
        self.drop_session(relay, None, now);
        self.tell(relay, |relay| Note::GaveWay { relay });
        self.wait_for_room(relay, now);
    }

    fn wait_for_room(&mut self, relay: RelayNo, now: Now) {
        let at = now.mono + self.limits.backoff.max;
        if let Some(peer) = self.peers.get_mut(&relay) {
            let link = Link::Down {
                retry: Some(at),
                why: Why::NoRoom,
            };
            peer.set_link(link, now.unix);
            self.agenda.add(at, Timer::Link(relay));
        }
    }

    pub(super) fn on_up(&mut self, relay: RelayNo, conn: ConnNo, now: Now) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        if !matches!(peer.link, Link::Connecting { .. }) {
            return;
        }
        peer.health.success(now.unix);
        let stale = self.limits.stale_after;
        let covered = peer.covered(None, &self.limits);
        let session = Session::new(conn, now.mono, now.unix);
        peer.set_link(Link::Up(Box::new(session)), now.unix);
        peer.paused = None;
        let away = covered.is_some_and(|covered| now.unix > covered.saturating_add(stale));
        // One that cannot compare would send all of its history again after every restart.
        let spared = peer.restored && peer.capabilities.reconciles == Reconciles::No;
        let began_anew = away && !spared && peer.doubt_all(None, Via::CatchUp);
        if !began_anew {
            // By the steady clock, whatever the other did meanwhile.
            let away = peer.lost_at.map(|lost| now.mono.0.saturating_sub(lost.0));
            let away = away.unwrap_or_default() + self.limits.overlap;
            let back = away.max(self.limits.lookback);
            peer.doubts.reach_back(now.unix.saturating_sub(back));
        }
        peer.restored = false;
        if covered.is_some() {
            peer.wait(now.mono, self.limits.reconnect_delay);
        }
        let described = peer.described.unwrap_or_default();
        if now.unix.0 >= described.0.saturating_add(DESCRIBED) {
            self.ask(relay, conn, ToRelay::Describe);
        }
        self.agenda
            .add(now.mono + self.limits.silence, Timer::Link(relay));
        self.tell(relay, |relay| Note::Connected { relay });
        if began_anew {
            self.tell(relay, |relay| Note::Stale { relay });
        }
        self.plan_full(relay, now);
        self.again.insert(relay);
    }

    /// When everything is compared next: the time that was drawn, or one that is drawn now.
    fn plan_full(&mut self, relay: RelayNo, now: Now) {
        let (min, max) = (self.limits.full_min, self.limits.full_max.as_secs());
        let latest = Timestamp(now.unix.0.saturating_add(max));
        let span = max.saturating_sub(min.as_secs());
        let drawn = now.unix.saturating_add(min).0 + self.rng.u64(0..=span);
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        let next = peer.next_full.filter(|next| *next <= latest);
        let next = next.unwrap_or(Timestamp(drawn));
        peer.next_full = Some(next);
        let wait = Duration::from_secs(next.0.saturating_sub(now.unix.0));
        self.agenda.add(now.mono + wait, Timer::Full(relay));
    }

    /// Once a day: what was missed by whatever mishap is found.
    pub(super) fn compare_all(&mut self, relay: RelayNo, now: Now) {
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        if peer.session().is_none() {
            return;
        }
        let Some(known) = self.targets.relays.get_mut(relay) else {
            return;
        };
        if peer.next_full.is_some_and(|next| next > now.unix) {
            return self.plan_full(relay, now);
        }
        peer.next_full = None;
        peer.capabilities.forget_refusals(&self.limits);
        peer.warned = false;
        peer.described = None;
        (peer.record.lacks, peer.record.compared) = (0, 0);
        let all = known.target.clone();
        let mut items = known.doubt(&all);
        items.add(&peer.doubts.items());
        peer.doubts.add(Doubt {
            items,
            since: None,
            via: Via::Daily,
        });
        peer.dirty = true;
        if let Some(session) = peer.session_mut() {
            session.fail(&all);
            session.refused_watches = 0;
            session.unwatched = true;
        }
        let conn = peer.link.conn();
        if let Some(conn) = conn {
            self.ask(relay, conn, ToRelay::Describe);
        }
        self.tell(relay, |relay| Note::Daily { relay });
        self.plan_full(relay, now);
        self.again.insert(relay);
    }

    pub(super) fn on_down(&mut self, relay: RelayNo, end: End, now: Now) {
        let was_up = match self.peers.get(&relay).map(|peer| &peer.link) {
            None | Some(Link::Down { .. }) => return,
            Some(Link::Connecting { .. }) => false,
            Some(Link::Up(_)) => true,
        };
        self.connected -= 1;
        if was_up {
            self.drop_session(relay, Some(end), now);
        }
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        peer.record.failures += 1;
        let was_dead = peer.health.health == Health::Dead;
        let wait = match (peer.health.failure(now.unix, &self.limits), end) {
            (_, End::Ourselves) => self.limits.dead_retry,
            (wait, _) => wait,
        };
        let health = peer.health;
        let at = now.mono + wait;
        let link = Link::Down {
            retry: Some(at),
            why: Why::Failing,
        };
        peer.set_link(link, now.unix);
        self.agenda.add(at, Timer::Link(relay));
        if was_up {
            return self.tell(relay, |relay| Note::Lost { relay, end });
        }
        let (attempt, retry_secs) = (health.failures, wait.as_secs());
        self.tell(relay, |relay| Note::ConnectFailed {
            relay,
            end,
            attempt,
            retry_secs,
        });
        if health.health == Health::Dead && !was_dead {
            let since = health.failing_since.unwrap_or(now.unix);
            let failing_secs = now.unix.0.saturating_sub(since.0);
            self.tell(relay, |relay| Note::Dead {
                relay,
                failing_secs,
            });
        }
        // Perhaps it is there without encryption, or with it.
        if let Some(known) = self.targets.relays.get_mut(relay)
            && health.last_success.is_none()
            && !known.bootstrap
        {
            known.try_other_url();
        }
    }

    /// What was on its way comes to nothing, and everything that was here is in doubt from the
    /// last moment that was really covered. Without an end it was we who left.
    fn drop_session(&mut self, relay: RelayNo, end: Option<End>, now: Now) {
        let oldest = self.oldest_arrival(relay);
        let Some(peer) = self.peers.get_mut(&relay) else {
            return;
        };
        let Some(session) = peer.session_mut() else {
            return;
        };
        let batches = std::mem::take(&mut session.batches);
        let (up_since, unbearable) = (session.began, session.exceeded_fault_budget());
        let (heard, heard_mono) = (session.heard_unix, session.heard);
        peer.lost_at = Some(heard_mono);
        if let Some(end) = end {
            peer.count_flap(up_since, now.mono, unbearable || end == End::Ourselves);
        }
        let Some(known) = self.targets.relays.get_mut(relay) else {
            return;
        };
        for batch in batches.values() {
            known.give_back(&batch.items);
        }
        let all = known.target.clone();
        let items = known.doubt(&all);
        let covered = oldest.map_or(heard, |oldest| oldest.min(heard));
        peer.doubts.add(Doubt {
            items,
            since: Some(covered.saturating_sub(self.limits.overlap)),
            via: Via::CatchUp,
        });
        self.doubt_stale(relay);
        self.end_batches(relay, &batches, now);
    }

    pub(super) fn leave_empty(&mut self, now: Now) {
        let relays = self.targets.relays.iter();
        let empty = relays.filter(|(_, relay)| relay.is_empty());
        let empty: Vec<RelayNo> = empty.map(|(no, _)| no).collect();
        for relay in empty {
            self.leave(relay, now);
        }
    }

    fn leave(&mut self, relay: RelayNo, now: Now) {
        if let Some(conn) = self.peers.get(&relay).and_then(|peer| peer.link.conn()) {
            self.connected -= 1;
            self.ask(relay, conn, ToRelay::HangUp);
        }
        self.forget_session(relay, now);
        self.tell(relay, |relay| Note::Left { relay });
        self.write_off(relay);
        self.peers.remove(&relay);
        self.targets.relays.leave(relay);
    }

    fn forget_session(&mut self, relay: RelayNo, now: Now) {
        let Some(session) = self.session_mut(relay) else {
            return;
        };
        let batches = std::mem::take(&mut session.batches);
        self.end_batches(relay, &batches, now);
    }

    /// Nothing more comes of them, nor of anything else that the relay was asked for.
    fn end_batches(&mut self, relay: RelayNo, batches: &BTreeMap<BatchNo, Batch>, now: Now) {
        for (no, batch) in batches {
            self.batches.remove(no);
            self.downloads.forget(*no);
            self.end_lead(&batch.leads);
        }
        let ended = self.downloads.lost(relay);
        self.after_downloads(ended, now);
    }
}
