//! What another relay allows us: what its NIP-11 document says, what its complaints teach, and
//! what its answers prove.

use serde::{Deserialize, Serialize};

use super::filters::{Chunk, Cut};
use super::index::RepoSyncIndex;
use super::io::{Complaint, Description};
use crate::limits::SyncLimits;

/// Bytes of a REQ around its filters.
const ENVELOPE: usize = 1_024;
/// And around the values of one filter.
const AROUND: usize = 128;
/// One id in a filter, with quotes and a comma.
const ID: usize = 67;
/// More events than this are asked of nobody at once.
const MAX_LIMIT: u32 = 5_000;
/// A larger number than we ever need is no reason to use it.
const MAX_SUBSCRIPTIONS: u32 = 1_000;
const MAX_FILTERS: u32 = 200;
/// Less than this no relay means.
const MIN_MESSAGE: u32 = 4 * 1_024;

/// Whether it compares sets (NIP-77).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reconciles {
    #[default]
    Unknown,
    Yes,
    No,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub reconciles: Reconciles,
    pub subscriptions: u32,
    pub filters: u32,
    pub message_bytes: u32,
    /// Values of all filters of one connection, as far as it says.
    #[serde(default)]
    pub values: Option<u32>,
    /// Ids in one request, as far as it refused more.
    #[serde(default)]
    ids: Option<u32>,
    /// Events of one answer, as far as it says.
    pub limit: u32,
    /// The largest answer to one filter that it ever gave. A smaller one was not cut.
    pub proven_page: u32,
    /// What it said of itself last.
    #[serde(default)]
    said: Description,
}

impl Capabilities {
    /// Of a relay that has said nothing yet.
    pub fn unknown(limits: &SyncLimits) -> Self {
        Self {
            reconciles: Reconciles::Unknown,
            subscriptions: limits.subscriptions,
            filters: limits.filters,
            message_bytes: limits.message_bytes,
            values: None,
            ids: None,
            limit: limits.page,
            proven_page: 0,
            said: Description::default(),
        }
    }

    /// What it says of itself counts for more than our guess, within reason.
    pub fn learn(&mut self, said: &Description, limits: &SyncLimits) {
        let most = |said: Option<u32>, known: u32, most: u32| match said {
            Some(said) => said.clamp(1, most),
            None => known,
        };
        self.subscriptions = most(said.subscriptions, self.subscriptions, MAX_SUBSCRIPTIONS);
        self.filters = most(said.filters, self.filters, MAX_FILTERS);
        self.limit = most(said.limit, self.limit, limits.page);
        let bytes = most(said.message_bytes, self.message_bytes, limits.message_bytes);
        self.message_bytes = bytes.max(MIN_MESSAGE);
        self.values = said.connection_values.or(self.values);
        self.said = *said;
    }

    /// A refusal teaches; `open` subscriptions were there. False when nothing new is learned.
    pub fn teach(&mut self, why: Complaint, open: u32) -> bool {
        let before = (self.subscriptions, self.filters, self.message_bytes);
        match why {
            Complaint::TooManySubscriptions => {
                self.subscriptions = self.subscriptions.min(open.saturating_sub(1)).max(1);
            }
            Complaint::TooManyFilters => self.filters = (self.filters / 2).max(1),
            Complaint::TooLarge => {
                self.message_bytes = (self.message_bytes / 2).max(MIN_MESSAGE);
            }
            _ => {}
        }
        before != (self.subscriptions, self.filters, self.message_bytes)
    }

    /// A request by so many ids was refused. False if it cannot ask for fewer.
    pub fn teach_ids(&mut self, why: Complaint, asked: usize) -> bool {
        let for_itself = matches!(
            why,
            Complaint::TooLarge
                | Complaint::TooManyFilters
                | Complaint::Invalid
                | Complaint::Unsupported
        );
        if for_itself && asked > 1 {
            self.ids = u32::try_from(asked / 2).ok();
        }
        for_itself && asked > 1
    }

    /// What refusals taught is forgotten after a while: relays change.
    pub fn forget_refusals(&mut self, limits: &SyncLimits) {
        let reconciles = match self.reconciles {
            Reconciles::Yes => Reconciles::Yes,
            Reconciles::No | Reconciles::Unknown => Reconciles::Unknown,
        };
        let said = self.said;
        *self = Self {
            reconciles,
            ..Self::unknown(limits)
        };
        self.learn(&said, limits);
    }

    /// An answer had so many events, of filters that asked for at most `limit` each: could one
    /// of them have been cut?
    pub fn may_be_cut(&self, events: u32, limit: u32) -> bool {
        events >= self.proven_page.min(limit).max(1)
    }

    /// An answer to one filter had so many events. True if it may have been cut.
    pub fn prove(&mut self, events: u32, limit: u32) -> bool {
        let may_be_cut = self.may_be_cut(events, limit);
        self.proven_page = self.proven_page.max(events);
        may_be_cut
    }

    /// For what cannot be divided into pages.
    pub fn highest_limit(&self) -> u32 {
        let most = self.said.limit.unwrap_or(MAX_LIMIT).min(MAX_LIMIT);
        most.max(self.limit)
    }

    /// How much goes into one filter: three of them fit one message.
    pub fn cut(&self, limits: &SyncLimits) -> Cut {
        let said = self.said.filter_values.unwrap_or(u32::MAX) as usize;
        let room = (self.message_bytes as usize).saturating_sub(ENVELOPE);
        Cut {
            values: limits.tags_per_filter.min(said).max(1),
            bytes: (room / 3).saturating_sub(AROUND),
        }
    }

    /// Ids that fit one request.
    pub fn ids_at_once(&self, limits: &SyncLimits) -> usize {
        let room = (self.message_bytes as usize).saturating_sub(ENVELOPE);
        let allowed = self.ids.map_or(usize::MAX, |ids| ids as usize);
        limits.fetch_ids.min(room / ID).min(allowed).max(1)
    }

    /// So many items may be watched at once: each has a value in a filter of each letter. Some are
    /// left for history.
    pub fn may_watch(&self, items: u64) -> bool {
        let values = self.values.unwrap_or(u32::MAX);
        items.saturating_mul(3) <= u64::from(values - values / 4)
    }

    /// Puts chunks together into requests that the relay takes. A chunk that is too large for it
    /// alone goes alone.
    pub fn pack(&self, chunks: Vec<Chunk>, index: &RepoSyncIndex) -> Vec<Vec<Chunk>> {
        let room = (self.message_bytes as usize).saturating_sub(ENVELOPE);
        let mut requests: Vec<Vec<Chunk>> = Vec::new();
        let (mut filters, mut bytes) = (0, 0);
        for chunk in chunks {
            let (more, size) = cost(&chunk, index);
            let fits = filters + more <= self.filters as usize && bytes + size <= room;
            match requests.last_mut() {
                Some(request) if fits => request.push(chunk),
                _ => {
                    (filters, bytes) = (0, 0);
                    requests.push(vec![chunk]);
                }
            }
            filters += more;
            bytes += size;
        }
        requests
    }
}

/// Filters of a chunk, and their bytes.
fn cost(chunk: &Chunk, index: &RepoSyncIndex) -> (usize, usize) {
    let filters = chunk.filters(index, None);
    let size = |filter: &crate::filter::Filter| {
        let values = filter.tags.iter().flat_map(|(_, values)| values);
        // Quotes and a comma, and what is around the list.
        values.map(|value| value.len() + 3).sum::<usize>() + AROUND
    };
    (filters.len(), filters.iter().map(size).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::id::EventId;
    use crate::sync::filters::chunks;
    use crate::sync::items::Items;

    fn capabilities() -> Capabilities {
        Capabilities::unknown(&SyncLimits::default())
    }

    fn roots(count: u32) -> (RepoSyncIndex, Vec<Chunk>) {
        let mut index = RepoSyncIndex::default();
        let mut items = Items::default();
        for n in 0..count {
            let mut id = [0; 32];
            id[..4].copy_from_slice(&n.to_be_bytes());
            let root = index.enter_root(EventId(id), Timestamp(0));
            items.roots.insert(root.0);
        }
        let chunks = chunks(&items, &index, Cut::values(100));
        (index, chunks)
    }

    #[test]
    fn a_document_is_believed_within_reason() {
        let limits = SyncLimits::default();
        let mut known = capabilities();
        let said = Description {
            subscriptions: Some(0),
            filters: Some(7),
            message_bytes: Some(1),
            limit: Some(1_000_000),
            ..Description::default()
        };
        known.learn(&said, &limits);
        assert_eq!((known.subscriptions, known.filters), (1, 7));
        assert_eq!(
            (known.message_bytes, known.limit),
            (MIN_MESSAGE, limits.page)
        );
        known.learn(&Description::default(), &limits);
        assert_eq!(known.filters, 7, "silence changes nothing");
    }

    #[test]
    fn refusals_teach_and_never_down_to_nothing() {
        let mut known = capabilities();
        assert!(known.teach(Complaint::TooManySubscriptions, 11));
        assert_eq!(known.subscriptions, 10);
        for _ in 0..40 {
            known.teach(Complaint::TooManySubscriptions, 0);
            known.teach(Complaint::TooManyFilters, 0);
            known.teach(Complaint::TooLarge, 0);
        }
        assert_eq!((known.subscriptions, known.filters), (1, 1));
        assert_eq!(known.message_bytes, MIN_MESSAGE);
        assert!(!known.teach(Complaint::RateLimited, 3));
    }

    #[test]
    fn an_answer_smaller_than_the_largest_so_far_was_not_cut() {
        let mut known = capabilities();
        assert!(!known.prove(0, 500), "nothing is there");
        assert!(known.prove(30, 500));
        assert!(!known.prove(29, 500));
        assert!(known.prove(30, 500), "as many again: perhaps its cap");
        assert!(known.prove(100, 500));
        assert!(!known.prove(30, 500));
        assert!(known.prove(30, 30), "no more were asked for");
    }

    #[test]
    fn requests_keep_to_filters_and_bytes_and_leave_nothing_out() {
        let (index, chunks) = roots(1_050);
        let packed = capabilities().pack(chunks.clone(), &index);
        let sizes: Vec<usize> = packed.iter().map(Vec::len).collect();
        assert_eq!(sizes, [5, 6], "three filters of 6,828 bytes for each chunk");
        let known = Capabilities {
            filters: 6,
            ..capabilities()
        };
        let packed = known.pack(chunks.clone(), &index);
        assert!(packed.iter().all(|request| request.len() <= 2));
        assert_eq!(packed.concat(), chunks);
        let known = Capabilities {
            filters: 1,
            ..capabilities()
        };
        assert_eq!(known.pack(chunks, &index).len(), 11, "each alone");
    }
}
