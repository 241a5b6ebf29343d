//! The world outside: other relays, what is said there, and what becomes of the lines to them.

use std::sync::Arc;
use std::time::Duration;

use grasp_core::sync::io::ToRelay;
use grasp_core::{
    Change, ConnNo, Delivery, Event, Input, Limits, Origin, RelayNo, SyncLimits, Ticket,
};

use super::{Happening, World, short};
use crate::net::{Moment, Stir, Word};
use crate::sync_model::{Expected, Since};

/// Sums made anew cost more than a step: with many relays only now and then.
const AUDIT_EVERY: u64 = 64;

/// The wall clock is never further off, in seconds: what was dated at one end must not be too far
/// ahead at the other.
const JUMP: i64 = 400;

impl World<'_> {
    pub(super) fn begin_company(&mut self) {
        if self.company.relays.is_empty() {
            return;
        }
        for n in 0..self.net.relays().len() {
            let told = self.net.relays().get(n).map(|relay| {
                let (name, traits) = (&relay.name, &relay.traits);
                format!("relay {n} is {name}: {traits:?}")
            });
            self.note(format_args!("{}", told.unwrap_or_default()));
        }
        self.after_net(self.company.gossip, Happening::Gossip);
        if !self.company.trouble.is_zero() {
            self.after_net(self.company.trouble, Happening::Trouble);
        }
        if self.company.jumps && self.climate.users == 0 {
            self.after_net(self.climate.storm / 4, Happening::Jump);
        }
    }

    fn after_net(&mut self, mean: Duration, happening: Happening) {
        let millis = u64::try_from(mean.as_millis()).unwrap_or(u64::MAX / 2);
        let delay = Duration::from_millis(self.outside.u64(0..=millis * 2));
        self.after(delay, happening);
    }

    pub(super) fn gossip(&mut self) {
        if self.calm {
            return;
        }
        self.after_net(self.company.gossip, Happening::Gossip);
        let unix = self.clock().unix.0;
        for (pause, deed) in self.people.gossip(unix) {
            self.do_later(pause, deed);
        }
    }

    pub(super) fn trouble(&mut self) -> Result<(), String> {
        if self.calm {
            return Ok(());
        }
        self.after_net(self.company.trouble, Happening::Trouble);
        let what = self.net.trouble(self.moment());
        self.note(format_args!("net: {what}"));
        self.after_net_stirs()
    }

    /// The wall clock is set, by a person or a server. The steady one goes on.
    pub(super) fn jump(&mut self) {
        if self.calm {
            return;
        }
        self.after_net(self.climate.storm / 4, Happening::Jump);
        self.latest = self.latest();
        self.clock_off = self.outside.i64(-JUMP..JUMP);
        let off = self.clock_off;
        self.note(format_args!("the clock is off by {off} s"));
    }

    /// People post an event here, elsewhere, or both.
    pub(super) fn publish_somewhere(&mut self, event: Arc<Event>) -> Result<(), String> {
        let places = self.people.crowd.places(&event);
        for relay in places.relays {
            self.post_soon(relay, &event);
        }
        if places.us {
            self.note(format_args!("publish {} {event:?}", short(&event)));
            self.send(event)?;
        }
        Ok(())
    }

    pub(super) fn spread(&mut self, event: &Arc<Event>) {
        for relay in self.people.crowd.somewhere(event) {
            self.post_soon(relay, event);
        }
    }

    fn post_soon(&mut self, relay: usize, event: &Arc<Event>) {
        let most = if self.outside.u8(0..4) == 0 {
            60_000
        } else {
            500
        };
        let delay = Duration::from_millis(self.outside.u64(0..most));
        let event = Arc::clone(event);
        self.after(delay, Happening::Post { relay, event });
    }

    pub(super) fn post(&mut self, relay: usize, event: &Arc<Event>) -> Result<(), String> {
        self.note(format_args!("at relay {relay}: {} {event:?}", short(event)));
        self.net.post(self.moment(), relay, event);
        self.after_net_stirs()
    }

    pub(super) fn ask_relay(
        &mut self,
        relay: RelayNo,
        conn: ConnNo,
        ask: ToRelay,
    ) -> Result<(), String> {
        self.note(format_args!("to {relay:?} over {conn:?}: {ask:?}"));
        self.sync_checks.asked(conn, &ask, self.now)?;
        let moment = self.moment();
        self.net.ask(moment, (relay, conn), ask, &self.disk);
        self.schedule_stirs();
        Ok(())
    }

    pub(super) fn stir(&mut self, stir: Stir) -> Result<(), String> {
        let moment = self.moment();
        self.net.stir(moment, stir, &self.disk);
        self.after_net_stirs()
    }

    fn schedule_stirs(&mut self) {
        let life = self.life;
        for (delay, stir) in self.net.take_later() {
            self.after(delay, Happening::Stir { life, stir });
        }
    }

    fn after_net_stirs(&mut self) -> Result<(), String> {
        self.schedule_stirs();
        while let Some(word) = self.net.next_word() {
            self.sync_checks.hears(&word);
            match word {
                Word::Said { relay, conn, word } => {
                    self.note(format_args!("from {relay:?} over {conn:?}: {word:?}"));
                    self.feed(Input::Remote { relay, conn, word })?;
                }
                Word::Event { by, event } => self.hand_over(by, event)?,
            }
        }
        Ok(())
    }

    fn hand_over(&mut self, by: Delivery, event: Arc<Event>) -> Result<(), String> {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.note(format_args!("from {by:?}: {}", short(&event)));
        self.checkers.synced(ticket, event.id);
        self.synced.insert(ticket, Arc::clone(&event));
        self.summary.synced += 1;
        self.hunt_checks.shown(&event);
        let origin = Origin::Sync(by);
        self.feed(Input::Event {
            ticket,
            event,
            origin,
        })
    }

    pub(super) fn sync_is_sound(&self) -> Result<(), String> {
        let few = self.company.relays.len() < 10;
        let judged = !self.company.relays.is_empty();
        if judged && (few || self.summary.steps.is_multiple_of(AUDIT_EVERY)) {
            self.core.sync().audit()?;
        }
        Ok(())
    }

    pub(super) fn sync_brought_everything(&self, since: Since) -> Result<(), String> {
        if self.company.relays.is_empty() {
            return Ok(());
        }
        let expected = Expected {
            view: &self.view(),
            net: &self.net,
            forbidden: &self.people.crowd.forbidden,
            now: self.clock().unix,
            since,
            calm_at: self.climate.storm,
            relays_per_repository: self.company.limits.relays_per_repository,
            bootstrap: self.company.bootstrap,
            compares: self.company.limits.negentropy,
            forgets: self.company.limits.remembered < SyncLimits::default().remembered,
            take_turns: self.climate.held_per_key < Limits::default().held_per_key,
            waited: &self.waited,
        };
        expected.compare()
    }

    pub(super) fn note_waiting(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::Hold { event, .. } = change {
                self.waited.insert(event.id);
            }
        }
    }

    /// What was held in memory alone is gone.
    pub(super) fn forget_waiting(&mut self) {
        let disk = &self.disk;
        self.waited
            .retain(|id| disk.once_held.contains_key(id) || disk.has_rested(id));
    }

    fn moment(&self) -> Moment {
        Moment {
            now: self.now,
            unix: self.clock().unix,
            calm: self.calm,
        }
    }
}
