//! 30618: it must speak for a repository here. Whether it can be applied shows later; one that
//! never can be is held until it expires.

use super::{Needs, Refusal, Verdict};
use crate::event::Event;
use crate::nip34::State;
use crate::registry::Registry;

pub fn judge(event: &Event, registry: &Registry) -> Verdict {
    let state = match State::read(event) {
        Ok(state) => state,
        Err(error) => return Verdict::Drop(Refusal::Identifier(error)),
    };
    if registry
        .maintained_by(&state.author, &state.identifier)
        .is_empty()
    {
        return Verdict::Drop(Refusal::NotMaintainer);
    }
    Verdict::Hold(match state.refs {
        Ok(_) => Needs::Refs(state),
        Err(_) => Needs::Nothing,
    })
}
