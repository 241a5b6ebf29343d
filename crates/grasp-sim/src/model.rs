//! What must be true at the end, by set algebra: every admissible event that its user did not
//! give up is on disk, and nothing else is but what users gave up after the disk had it.

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
        let held: BTreeSet<EventId> = disk.ids().copied().collect();
        if let Some(id) = self.wanted.difference(&held).next() {
            return Err(format!("{id} was published and is not stored"));
        }
        match held.difference(&self.wanted).next() {
            Some(id) => Err(format!("{id} is stored and should not be")),
            None => Ok(()),
        }
    }

    pub(crate) fn is_forbidden(&self, id: &EventId) -> bool {
        self.forbidden.contains(id)
    }
}
