//! Everything else: it must name something that is here, or be named by it.

use super::{Cause, Known, Needs, Policy, Presence, Refusal, Verdict, is_free};
use crate::event::{Event, Kind};
use crate::nip34::{RepoId, Target, targets};
use crate::registry::{Registry, Standing};

/// Targets of one event that are looked up; each is one row or two of the store, 2 us.
const MAX_TARGETS: usize = 64;

pub fn judge(event: &Event, policy: &Policy, registry: &Registry, known: &dyn Known) -> Verdict {
    let mut held = Vec::new();
    for target in targets(event).take(MAX_TARGETS) {
        match presence(&target, registry, known) {
            Presence::Stored(kind) if !is_free(kind) => return Verdict::Store,
            Presence::Held => held.push(Cause::Came(target)),
            Presence::Stored(_) | Presence::Unknown => {}
        }
    }
    if policy.takes_unrelated || known.is_named(event) {
        return Verdict::Store;
    }
    if held.is_empty() || event.kind.is_ephemeral() {
        return Verdict::Drop(Refusal::Orphan);
    }
    Verdict::Hold(Needs::Release(held))
}

fn presence(target: &Target, registry: &Registry, known: &dyn Known) -> Presence {
    match target {
        Target::Event(id) => known.event(id),
        Target::Address(address) if address.kind == Kind::ANNOUNCEMENT => {
            let repo = RepoId::of_address(address);
            match repo.and_then(|repo| registry.standing(&repo)) {
                Some(Standing::Served) => Presence::Stored(address.kind),
                // An older version may be served while a newer one waits.
                Some(Standing::Held) => known.address(address),
                Some(Standing::Remembered) | None => Presence::Unknown,
            }
        }
        Target::Address(address) => known.address(address),
    }
}
