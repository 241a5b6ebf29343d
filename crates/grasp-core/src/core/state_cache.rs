//! States that were read from the store, so that a push or a round of settling does not parse them
//! again. An event never changes: what is kept under its id is right for as long as it is asked for.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::Core;
use crate::event::Kind;
use crate::facts::Facts;
use crate::id::EventId;
use crate::limits::STATE_CACHE_BYTES;
use crate::nip34::{Rank, RepoId, State};

/// Of one state, besides its refs: id, author, identifier and the places in two maps.
const STATE_OVERHEAD: usize = 512;
/// Of one ref, besides its name: object id, pointers and a share of its tree's node.
const REF_OVERHEAD: usize = 96;

/// The one that nobody has asked for longest makes way.
#[derive(Debug, Default)]
pub struct StateCache(RefCell<Entries>);

#[derive(Debug, Default)]
struct Entries {
    states: FxHashMap<EventId, Entry>,
    /// When each was asked for last, in numbers that only grow.
    by_use: BTreeMap<u64, EventId>,
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    state: State,
    bytes: usize,
    used: u64,
}

impl StateCache {
    fn get(&self, id: &EventId) -> Option<State> {
        let entries = &mut *self.0.borrow_mut();
        let entry = entries.states.get_mut(id)?;
        entries.uses += 1;
        entries.by_use.remove(&entry.used);
        entries.by_use.insert(entries.uses, *id);
        entry.used = entries.uses;
        Some(entry.state.clone())
    }

    fn insert(&self, state: &State, most: usize) {
        let entries = &mut *self.0.borrow_mut();
        let (id, bytes) = (state.rank.id, size_of(state));
        if bytes > most || entries.states.contains_key(&id) {
            return;
        }
        while entries.bytes + bytes > most {
            let Some((_, oldest)) = entries.by_use.pop_first() else {
                break;
            };
            let gone = entries.states.remove(&oldest);
            entries.bytes -= gone.map_or(0, |gone| gone.bytes);
        }
        entries.uses += 1;
        entries.bytes += bytes;
        entries.by_use.insert(entries.uses, id);
        let entry = Entry {
            state: state.clone(),
            bytes,
            used: entries.uses,
        };
        entries.states.insert(id, entry);
    }
}

fn size_of(state: &State) -> usize {
    let refs = state.refs.iter().flat_map(|targets| targets.refs.keys());
    let refs = refs.map(|name| REF_OVERHEAD + name.as_str().len());
    STATE_OVERHEAD + refs.sum::<usize>()
}

impl Core {
    /// A stored state, if this is the id of one.
    pub(super) fn stored_state(&self, id: &EventId, facts: &dyn Facts) -> Option<State> {
        // What is kept may have been deleted since.
        if facts.kind_of(id) != Some(Kind::STATE) {
            return None;
        }
        self.states.get(id).or_else(|| {
            let state = State::read(&*facts.event(id)?).ok()?;
            self.states.insert(&state, STATE_CACHE_BYTES);
            Some(state)
        })
    }

    /// The stored state that a repository has refs of.
    pub(super) fn applied_state(&self, repo: &RepoId, facts: &dyn Facts) -> Option<State> {
        self.stored_state(&self.registry.applied(repo)?.id, facts)
    }

    /// Which state of somebody stands in the store.
    pub(super) fn stored_rank(&self, of: &RepoId, facts: &dyn Facts) -> Option<Rank> {
        facts.rank_at(&of.address(Kind::STATE))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::Timestamp;
    use crate::git::{ObjectId, RefName};
    use crate::id::Pubkey;
    use crate::nip34::Identifier;
    use crate::nip34::state::Targets;

    fn state(n: u8, refs: usize) -> State {
        let name = |n| RefName::parse(&format!("refs/heads/{n:04}")).unwrap();
        let refs = (0..refs).map(|n| (name(n), ObjectId([1; 20]))).collect();
        State {
            author: Pubkey([n; 32]),
            identifier: Identifier::parse("r").unwrap(),
            rank: Rank {
                created_at: Timestamp(1),
                id: EventId([n; 32]),
            },
            refs: Ok(Arc::new(Targets { refs, head: None })),
        }
    }

    #[test]
    fn the_least_recently_used_state_makes_way_by_bytes() {
        let cache = StateCache::default();
        let most = 3 * size_of(&state(0, 10));
        for n in 0..3 {
            cache.insert(&state(n, 10), most);
        }
        assert!(cache.get(&EventId([0; 32])).is_some());
        cache.insert(&state(3, 10), most);
        assert!(cache.get(&EventId([1; 32])).is_none());
        assert!(cache.get(&EventId([0; 32])).is_some());
        cache.insert(&state(4, 20), most);
        assert_eq!(cache.0.borrow().states.len(), 2, "a larger one takes more");
        cache.insert(&state(5, 1_000), most);
        assert!(cache.get(&EventId([5; 32])).is_none(), "it never fits");
        let entries = cache.0.borrow();
        assert!(entries.bytes <= most);
        assert_eq!(entries.by_use.len(), entries.states.len());
        let bytes: usize = entries.states.values().map(|entry| entry.bytes).sum();
        assert_eq!(entries.bytes, bytes);
    }
}
