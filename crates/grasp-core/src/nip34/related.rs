//! Which other things an event names.

use crate::event::{Address, Event};
use crate::id::EventId;

/// One thing that an event names through `a A e E q`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    Event(EventId),
    Address(Address),
}

impl Target {
    fn parse(text: &str) -> Option<Self> {
        match EventId::from_hex(text) {
            Ok(id) => Some(Target::Event(id)),
            Err(_) => Address::parse(text).map(Target::Address),
        }
    }
}

/// Every target of an event, in the order of its tags. Those of a stranger may be many: callers
/// look at a bounded number of them.
pub fn targets(event: &Event) -> impl Iterator<Item = Target> {
    event.tags.iter().filter_map(|tag| match tag.as_slice() {
        [name, value, ..] if matches!(name.as_str(), "a" | "A" | "e" | "E" | "q") => {
            Target::parse(value)
        }
        _ => None,
    })
}
