//! What must hold at every step, whatever the weather.

use std::collections::{BTreeMap, BTreeSet};

use grasp_core::{Answer, Core, Effect, EventId, Ticket};

use crate::disk::Disk;
use crate::model::Model;

/// Watches one life of the process; a crash begins a new one.
#[derive(Default)]
pub(crate) struct Checkers {
    /// Tickets without an answer.
    open: BTreeMap<Ticket, EventId>,
    announced: BTreeSet<EventId>,
    /// Effects that the world has not answered yet.
    commits: BTreeSet<Ticket>,
    pub(crate) sweeps: usize,
}

impl Checkers {
    pub(crate) fn submitted(&mut self, ticket: Ticket, id: EventId) {
        self.open.insert(ticket, id);
    }

    pub(crate) fn committed(&mut self, ticket: Ticket) {
        self.commits.remove(&ticket);
    }

    pub(crate) fn effect(
        &mut self,
        effect: &Effect,
        disk: &Disk,
        model: &Model,
    ) -> Result<(), String> {
        match effect {
            Effect::Store { ticket, event } => {
                if model.is_forbidden(&event.id) {
                    return Err(format!("{} goes to disk against the rules", event.id));
                }
                self.commits.insert(*ticket);
            }
            Effect::Answer { ticket, answer } => {
                let Some(id) = self.open.remove(ticket) else {
                    return Err(format!("{ticket:?} is answered twice or was never asked"));
                };
                let durable = disk.holds(&id) || model.is_forbidden(&id);
                if matches!(answer, Answer::Accepted | Answer::Duplicate) && !durable {
                    return Err(format!("{id} is acknowledged and not durable"));
                }
            }
            Effect::Announce { event, seq } => {
                if seq.is_some() != disk.holds(&event.id) {
                    return Err(format!("{} is announced and not durable", event.id));
                }
                if seq.is_some() && !self.announced.insert(event.id) {
                    return Err(format!("{} is announced twice", event.id));
                }
            }
            Effect::Sweep { .. } => self.sweeps += 1,
        }
        Ok(())
    }

    /// Every waiting state has an effect in flight or a deadline.
    pub(crate) fn nothing_is_stuck(&self, core: &Core) -> Result<(), String> {
        if let Some((ticket, id)) = self
            .open
            .iter()
            .find(|(ticket, _)| !self.commits.contains(ticket))
        {
            return Err(format!("{ticket:?} for {id} waits for nothing"));
        }
        if core.storing() != self.commits.len() {
            let (core, world) = (core.storing(), self.commits.len());
            return Err(format!(
                "the core waits for {core} commits, the world works on {world}"
            ));
        }
        if core.poll_timeout().is_none() && self.sweeps == 0 {
            return Err("no deadline and nothing in flight".to_owned());
        }
        Ok(())
    }
}
