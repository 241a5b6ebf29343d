//! What must be true of the general relay at the end, by set algebra: every admissible event that
//! its user did not give up is on disk, and nothing that breaks a rule is.

use std::collections::BTreeSet;

use grasp_core::{Event, EventId};

use crate::disk::Disk;
use crate::workload::Intent;

#[derive(Default)]
pub(crate) struct Model {
    /// Must be stored.
    wanted: BTreeSet<EventId>,
    /// Must never be stored.
    forbidden: BTreeSet<EventId>,
}

impl Model {
    pub(crate) fn published(&mut self, event: &Event, intent: Intent) {
        let stored = intent.is_admitted() && intent != Intent::Ephemeral;
        let set = if stored {
            &mut self.wanted
        } else {
            &mut self.forbidden
        };
        set.insert(event.id);
    }

    pub(crate) fn compare(&self, disk: &Disk) -> Result<(), String> {
        if let Some(id) = self.wanted.iter().find(|id| !disk.is_stored(id)) {
            return Err(format!("{id} was published and is not stored"));
        }
        match self.forbidden.iter().find(|id| disk.is_stored(id)) {
            Some(id) => Err(format!("{id} is stored and should not be")),
            None => Ok(()),
        }
    }

    pub(crate) fn is_forbidden(&self, id: &EventId) -> bool {
        self.forbidden.contains(id)
    }
}
