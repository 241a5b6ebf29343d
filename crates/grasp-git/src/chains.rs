//! How deep the deltas of a pack are nested. Reading an object costs as many steps as its chain has
//! links, and index-pack takes any number of them.

use std::path::Path;

use gix_odb::pack;
use gix_odb::pack::data::entry::Header;
use grasp_core::git::ObjectId;

use crate::error::{GitError, PackFault};

/// Git itself makes chains of 50 links, and of 4,095 where somebody insists (`pack.depth`). A
/// look-up at the end of this one takes some 50 us.
pub(crate) const MAX_CHAIN: u32 = 4_096;

/// The object at the end of the longest chain, and the number of deltas that lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deepest {
    pub depth: u32,
    pub object: ObjectId,
}

/// None if no object of the pack is a delta. `index` is the path of its index, which says where
/// every object begins; only their headers are read, each once. Needs 12 bytes of memory for an object.
pub(crate) fn deepest(index: &Path) -> Result<Option<Deepest>, GitError> {
    let damaged = |error: &dyn std::fmt::Debug| GitError::damaged(index, format!("{error:?}"));
    let sha1 = gix_hash::Kind::Sha1;
    let opened = pack::index::File::at(index, sha1).map_err(|error| damaged(&error))?;
    let data = pack::data::File::at(index.with_extension("pack"), sha1);
    let data = data.map_err(|error| damaged(&error))?;
    let chains = Chains {
        offsets: opened.sorted_offsets(),
        index: &opened,
        data: &data,
    };
    let malformed = |what: &str| PackFault::Malformed(what.to_owned());
    let found = chains.deepest().map_err(malformed)?;
    let (offset, depth) = match found {
        Some((offset, depth)) if depth > 0 => (offset, depth),
        _ => return Ok(None),
    };
    let mut entries = 0..opened.num_objects();
    let at = entries.find(|n| opened.pack_offset_at_index(*n) == offset);
    let object = at.and_then(|n| opened.oid_at_index(n).as_bytes().try_into().ok());
    let object = object.map(ObjectId);
    let object = object.ok_or_else(|| damaged(&"an object without a name"))?;
    Ok(Some(Deepest { object, depth }))
}

struct Chains<'a> {
    /// Where the objects begin, in the order of the pack.
    offsets: Vec<u64>,
    index: &'a pack::index::File,
    data: &'a pack::data::File,
}

/// Not looked at yet.
const UNKNOWN: u32 = u32::MAX;

impl Chains<'_> {
    /// Where the object with the longest chain begins, and how long it is.
    fn deepest(&self) -> Result<Option<(u64, u32)>, &'static str> {
        let mut depths = vec![UNKNOWN; self.offsets.len()];
        let mut chain = Vec::new();
        let mut deepest = None;
        for first in 0..self.offsets.len() {
            let mut at = first;
            // Down to something whose depth is known, and up again.
            let mut depth = loop {
                match depths.get(at).copied() {
                    Some(UNKNOWN) => {}
                    Some(known) => break known,
                    None => return Err("an object outside of the pack"),
                }
                chain.push(at);
                match self.base(at)? {
                    Some(base) if chain.len() < depths.len() => at = base,
                    // Two objects of one name can lead back to each other.
                    Some(_) => return Err("deltas that go round in circles"),
                    None => break UNKNOWN,
                }
            };
            while let Some(at) = chain.pop() {
                depth = depth.wrapping_add(1);
                if let Some(known) = depths.get_mut(at) {
                    *known = depth;
                }
            }
            if deepest.is_none_or(|(_, found)| found < depth) {
                deepest = self.offsets.get(first).map(|offset| (*offset, depth));
            }
        }
        Ok(deepest)
    }

    /// The place of what it is a delta of. None for a whole object.
    fn base(&self, at: usize) -> Result<Option<usize>, &'static str> {
        let offset = *self
            .offsets
            .get(at)
            .ok_or("an object outside of the pack")?;
        let entry = self.data.entry(offset);
        let entry = entry.map_err(|_| "an object whose header cannot be read")?;
        let base = match entry.header {
            Header::OfsDelta { base_distance } => offset.checked_sub(base_distance),
            Header::RefDelta { base_id } => {
                let found = self.index.lookup(base_id);
                found.map(|n| self.index.pack_offset_at_index(n))
            }
            _ => return Ok(None),
        };
        let base = base.and_then(|base| self.offsets.binary_search(&base).ok());
        base.map(Some)
            .ok_or("a delta whose base is not in the pack")
    }
}
