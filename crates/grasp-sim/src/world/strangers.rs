//! Hostile clients, who fill what is bounded from a few addresses, and newcomers at other addresses,
//! who must be served all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use fastrand::Rng;
use grasp_core::admit::Refusal;
use grasp_core::git::RefName;
use grasp_core::push::{Command, Decision, PushRefusal};
use grasp_core::{
    Answer, EventId, Limits, Network, Origin, Pubkey, PushId, RepoId, Ticket, Timestamp,
};

use super::{Happening, World};
use crate::forge;

/// A newcomer has its answer by then, however slow the disk is.
const DEADLINE: Duration = Duration::from_secs(60);
/// So few that the attackers together can take them all.
const HELD_EVENTS: usize = 64;

/// Everybody who is not one of the people.
pub(super) struct Strangers {
    rng: Rng,
    addresses: u8,
    /// Events of one flood.
    flood: usize,
    pace: Duration,
    keys: u32,
    /// What attackers sent, by their address.
    sent: BTreeMap<EventId, Network>,
    newcomers: BTreeMap<Ticket, Duration>,
    pushes: BTreeSet<PushId>,
}

impl Strangers {
    pub(super) fn draw(mut rng: Rng) -> Self {
        Self {
            addresses: rng.u8(1..30),
            flood: rng.usize(1..40),
            pace: Duration::from_millis(rng.u64(500..10_000)),
            keys: 0,
            sent: BTreeMap::new(),
            newcomers: BTreeMap::new(),
            pushes: BTreeSet::new(),
            rng,
        }
    }

    /// Bounds that can be reached.
    pub(super) fn limits(&self, limits: &mut Limits) {
        limits.held_events = HELD_EVENTS;
    }

    /// A key that nobody has used.
    fn key(&mut self) -> Pubkey {
        self.keys += 1;
        let mut key = [200; 32];
        for (byte, part) in key.iter_mut().zip(self.keys.to_be_bytes()) {
            *byte = part;
        }
        Pubkey(key)
    }

    fn attacker(&mut self) -> Network {
        let last = self.rng.u8(0..self.addresses);
        Network::of(Ipv4Addr::new(192, 0, 2, last).into())
    }

    /// An address that nobody has used.
    fn newcomer(&self) -> Network {
        let [_, second, third, fourth] = self.keys.to_be_bytes();
        Network::of(Ipv4Addr::new(100, second, third, fourth).into())
    }
}

impl World<'_> {
    pub(super) fn begin_hostility(&mut self) {
        let Some(pace) = self.strangers.as_ref().map(|strangers| strangers.pace) else {
            return;
        };
        self.after(pace, Happening::Attack);
        self.after(pace, Happening::Arrive);
    }

    /// One address announces many repositories, each with another key, and pushes tips.
    pub(super) fn attack(&mut self) -> Result<(), String> {
        if self.calm {
            return Ok(());
        }
        let Some(strangers) = &mut self.strangers else {
            return Ok(());
        };
        let (network, pace) = (strangers.attacker(), strangers.pace);
        let owners: Vec<Pubkey> = (0..strangers.flood).map(|_| strangers.key()).collect();
        self.after(pace, Happening::Attack);
        for owner in owners {
            let (event, _) = self.announce_from(owner, network)?;
            if let Some(strangers) = &mut self.strangers {
                strangers.sent.insert(event, network);
            }
            self.push_tip_from(owner, network)?;
        }
        Ok(())
    }

    /// Somebody whom nobody knows begins to use the server.
    pub(super) fn arrive(&mut self) -> Result<(), String> {
        if self.calm {
            return Ok(());
        }
        let Some(strangers) = &mut self.strangers else {
            return Ok(());
        };
        let (owner, pace) = (strangers.key(), strangers.pace);
        let network = strangers.newcomer();
        self.after(pace * 5, Happening::Arrive);
        let next = self.next_ticket;
        if let Some(strangers) = &mut self.strangers {
            strangers.newcomers.insert(Ticket(next), self.now);
        }
        self.announce_from(owner, network)?;
        let push = PushId(self.next_ticket);
        if let Some(strangers) = &mut self.strangers {
            strangers.pushes.insert(push);
        }
        self.push_tip_from(owner, network)
    }

    fn announce_from(
        &mut self,
        owner: Pubkey,
        network: Network,
    ) -> Result<(EventId, Ticket), String> {
        let at = self.clock().unix.0;
        let event = forge::announcement(&forge::repo(owner, "new"), at, true, &[]);
        let ticket = Ticket(self.next_ticket);
        let id = event.id;
        self.hand_in(
            event,
            Origin::Client {
                authenticated: Vec::new(),
                network: Some(network),
            },
        )?;
        Ok((id, ticket))
    }

    /// The tip of a pull request whose event nobody has seen, to some repository.
    fn push_tip_from(&mut self, key: Pubkey, network: Network) -> Result<(), String> {
        let hosted = self.core.registry().hosted();
        let mut hosted: Vec<RepoId> = hosted.map(|(repo, _)| repo.clone()).collect();
        hosted.sort_unstable();
        let Some(strangers) = &mut self.strangers else {
            return Ok(());
        };
        let Some(repo) = strangers.rng.choice(hosted) else {
            return Ok(());
        };
        let name = RefName::nostr(&EventId(key.0));
        let new = Some(forge::commit(7_777));
        self.push_from(repo, vec![Command { name, new }], Some(network))
    }

    /// Nobody waits beyond the deadline, answered or not.
    pub(super) fn newcomers_are_served(&self) -> Result<(), String> {
        let strangers = self.strangers.iter();
        let mut waiting = strangers.flat_map(|strangers| &strangers.newcomers);
        match waiting.find(|(_, came)| **came + DEADLINE < self.now) {
            Some((_, came)) => Err(format!("a newcomer waits since {came:?}")),
            None => Ok(()),
        }
    }

    /// Whoever asked before the process died has lost the connection.
    pub(super) fn forget_newcomers(&mut self) {
        if let Some(strangers) = &mut self.strangers {
            strangers.newcomers.clear();
            strangers.pushes.clear();
        }
    }

    pub(super) fn stranger_answered(
        &mut self,
        ticket: Ticket,
        answer: &Answer,
    ) -> Result<(), String> {
        let Some(strangers) = &mut self.strangers else {
            return Ok(());
        };
        let Some(came) = strangers.newcomers.remove(&ticket) else {
            return Ok(());
        };
        if came + DEADLINE < self.now {
            return Err(format!("a newcomer waited for {:?}", self.now - came));
        }
        let lacks_room = matches!(
            answer,
            Answer::Refused(
                Refusal::PurgatoryFull | Refusal::TooManyHeld | Refusal::TooManyHeldFromAddress
            )
        );
        match lacks_room {
            true => self.nobody_has_more("held events", self.held_by_attackers()),
            false => Ok(()),
        }
    }

    pub(super) fn stranger_decided(
        &mut self,
        push: PushId,
        decision: &Decision,
    ) -> Result<(), String> {
        let newcomer = self.strangers.as_mut();
        let newcomer = newcomer.is_some_and(|strangers| strangers.pushes.remove(&push));
        match decision {
            Decision::Refuse(PushRefusal::TooManyTips) if newcomer => {
                Err("a newcomer's tip is refused for lack of room".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn held_by_attackers(&self) -> BTreeMap<Network, usize> {
        let mut held = BTreeMap::new();
        let sent = self.strangers.iter().flat_map(|strangers| &strangers.sent);
        for (_, network) in sent.filter(|(id, _)| {
            let held = self.core.purgatory().get(id);
            held.is_some_and(|held| !held.remembered)
        }) {
            *held.entry(*network).or_default() += 1;
        }
        held
    }

    /// A newcomer who is turned away must find nobody who holds more than it would.
    fn nobody_has_more(&self, what: &str, held: BTreeMap<Network, usize>) -> Result<(), String> {
        match held.iter().max_by_key(|(_, count)| **count) {
            Some((network, count)) if *count > 1 => Err(format!(
                "a newcomer is turned away while {network} has {count} {what}"
            )),
            _ => Ok(()),
        }
    }

    /// What made way did so because all places were taken. That its holder had most is shown by the
    /// tests of the holders, not here.
    pub(super) fn evicted(&mut self, id: &EventId) -> Result<(), String> {
        let limits = &self.policy.limits;
        let waiting = self.core.purgatory().waiting().events;
        if waiting + 1 < limits.held_of_strangers().events {
            return Err(format!("{id} makes way, and {waiting} wait"));
        }
        // This stay is over. If it is held again, the promise is another one.
        self.acknowledged.remove(id);
        if let Some(row) = self.disk.once_held.get_mut(id) {
            row.until = Timestamp(0);
        }
        Ok(())
    }
}
