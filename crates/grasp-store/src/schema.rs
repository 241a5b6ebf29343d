//! How events become rows. Every index key ends in the same 40 bytes, reversed time and id, so
//! that every index is read newest first with ties by lowest id, and covers `(created_at, id)`
//! without a look at the event.

use std::sync::Arc;

use grasp_core::event::{Address, Event};
use grasp_core::facts::Applied;
use grasp_core::nip34::Rank;
use grasp_core::sync::{Dismissed, Fate, RelayMemory};
use grasp_core::{EventId, Identifier, Kind, Pubkey, RepoId, Restore, Seq, Timestamp};
use sha2::{Digest, Sha256};

use crate::error::StoreError;
use crate::kv::Table;
use crate::relations;
use crate::tags::Tags;

pub(crate) const VERSION: u32 = 1;
pub(crate) const META_VERSION: &[u8] = b"version";
/// Events below it are in the log.
pub(crate) const META_NEXT_SEQ: &[u8] = b"next-seq";
/// Events below it are in the indexes too.
pub(crate) const META_INDEXED: &[u8] = b"indexed";
/// Of those, events below it have their rows in `ByTarget` and `PullRequests`. A version that did
/// not know these tables moves `META_INDEXED` alone: the next start makes the rows that lack.
pub(crate) const META_RELATED: &[u8] = b"related";

/// Reversed time, id.
pub(crate) const SUFFIX: usize = 8 + 32;

/// Place in the common order of all indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(pub(crate) [u8; SUFFIX]);

impl Place {
    pub(crate) fn new(created_at: Timestamp, id: &EventId) -> Self {
        let mut bytes = [0; SUFFIX];
        let (time, rest) = bytes.split_at_mut(8);
        time.copy_from_slice(&newest_from(created_at));
        rest.copy_from_slice(&id.0);
        Self(bytes)
    }

    pub(crate) fn of_key(key: &[u8]) -> Result<Self, StoreError> {
        key.last_chunk()
            .map(|bytes| Self(*bytes))
            .ok_or_else(damaged)
    }

    pub(crate) fn created_at(&self) -> Timestamp {
        let time = self.0.first_chunk().copied().unwrap_or_default();
        Timestamp(!u64::from_be_bytes(time))
    }

    pub(crate) fn id(&self) -> EventId {
        EventId(self.0.last_chunk().copied().unwrap_or_default())
    }
}

/// The first key bytes of events at or before that time.
pub(crate) fn newest_from(until: Timestamp) -> [u8; 8] {
    (!until.0).to_be_bytes()
}

/// The value of every index row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IndexValue {
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    pub(crate) expires: bool,
    /// Only in `ByTag`; elsewhere empty.
    pub(crate) cases: Cases,
}

/// Whether a tag's letter is there in lower case, in upper case, or both. Comments name the
/// same root in `e` and `E`, the same author in `p` and `P`: one row serves both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cases(u8);

impl Cases {
    const LOWER: u8 = 0b010;
    const UPPER: u8 = 0b100;

    pub(crate) fn of(letter: u8) -> Self {
        Self(if letter.is_ascii_uppercase() {
            Self::UPPER
        } else {
            Self::LOWER
        })
    }

    pub(crate) fn has(self, other: Cases) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn add(&mut self, other: Cases) {
        self.0 |= other.0;
    }
}

impl IndexValue {
    const EXPIRES: u8 = 0b001;
    pub(crate) const LEN: usize = 11;

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (seq, rest) = bytes.split_at_mut(8);
        seq.copy_from_slice(&self.seq.0.to_be_bytes());
        let (kind, flags) = rest.split_at_mut(2);
        kind.copy_from_slice(&self.kind.0.to_be_bytes());
        flags.fill(self.cases.0 | if self.expires { Self::EXPIRES } else { 0 });
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let (seq, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let (kind, flags) = rest.split_first_chunk().ok_or_else(damaged)?;
        let flags = flags.first().ok_or_else(damaged)?;
        Ok(Self {
            seq: Seq(u64::from_be_bytes(*seq)),
            kind: Kind(u16::from_be_bytes(*kind)),
            expires: flags & Self::EXPIRES != 0,
            cases: Cases(flags & (Cases::LOWER | Cases::UPPER)),
        })
    }
}

/// The value of a row of `Ids`: what an index row would say, and the time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdValue {
    pub(crate) index: IndexValue,
    pub(crate) created_at: Timestamp,
}

impl IdValue {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [&self.index.to_bytes()[..], &self.created_at.0.to_be_bytes()].concat()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let (index, time) = bytes
            .split_at_checked(IndexValue::LEN)
            .ok_or_else(damaged)?;
        Ok(Self {
            index: IndexValue::from_bytes(index)?,
            created_at: Timestamp(read_u64(time)?),
        })
    }
}

/// Kind and author.
const HEADER: usize = 2 + 32;

/// A row of `Events`: what queries check without parsing, then the JSON.
pub(crate) struct Record<'a> {
    pub(crate) pubkey: Pubkey,
    pub(crate) expires: Option<Timestamp>,
    /// Not looked at before somebody wants it: the header of a long event costs no more than that
    /// of a short one.
    json: &'a [u8],
}

impl<'a> Record<'a> {
    pub(crate) fn encode(event: &Event) -> Vec<u8> {
        let json = event.json();
        let mut bytes = Vec::with_capacity(42 + json.len());
        bytes.extend(event.kind.0.to_be_bytes());
        bytes.extend(event.pubkey.0);
        bytes.extend(event.expiration().map_or(u64::MAX, |at| at.0).to_be_bytes());
        bytes.extend(json.as_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, StoreError> {
        let (_, pubkey) = read_header(bytes)?;
        let rest = bytes.get(HEADER..).ok_or_else(damaged)?;
        let (expires, json) = rest.split_first_chunk().ok_or_else(damaged)?;
        let expires = u64::from_be_bytes(*expires);
        Ok(Self {
            pubkey,
            expires: (expires != u64::MAX).then_some(Timestamp(expires)),
            json,
        })
    }

    /// The text in which the event is sent.
    pub(crate) fn json(&self) -> Result<&'a str, StoreError> {
        std::str::from_utf8(self.json).map_err(|_| damaged())
    }

    pub(crate) fn tags(&self) -> Result<Tags<'a>, StoreError> {
        Tags::of(self.json)
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }

    pub(crate) fn event(&self) -> Result<Event, StoreError> {
        Event::from_stored(self.json()?).map_err(|error| StoreError::Damaged(error.to_string()))
    }
}

/// Kind and author of a record, without a look at its JSON: that may be long.
pub(crate) fn read_header(record: &[u8]) -> Result<(Kind, Pubkey), StoreError> {
    let (kind, rest) = record.split_first_chunk().ok_or_else(damaged)?;
    let pubkey = rest.first_chunk().ok_or_else(damaged)?;
    Ok((Kind(u16::from_be_bytes(*kind)), Pubkey(*pubkey)))
}

/// A row of `VanishJobs`: what an author's request to vanish covers, and where the sweep goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VanishJob {
    pub(crate) until: Timestamp,
    /// The number of the request: what is stored later was judged in the knowledge of it.
    pub(crate) before: Seq,
    /// Another request came when this pass had begun: it must be followed by one more.
    pub(crate) again: bool,
    pub(crate) cursor: Cursor,
}

/// The last key that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// In `ByAuthorKind`, of what the author wrote.
    Written(Vec<u8>),
    /// In `ByTag`, of what is addressed to the author.
    Addressed(Vec<u8>),
}

impl VanishJob {
    pub(crate) fn new(author: &Pubkey, until: Timestamp, before: Seq) -> Self {
        Self {
            until,
            before,
            again: false,
            cursor: Cursor::start(author),
        }
    }

    /// What is stored later is newer, or not the author's.
    pub(crate) fn covers(&self, created_at: Timestamp, seq: Seq) -> bool {
        created_at <= self.until && seq < self.before
    }

    /// The same of a row, for readers who ask often.
    pub(crate) fn row_covers(
        row: &[u8],
        created_at: Timestamp,
        seq: Seq,
    ) -> Result<bool, StoreError> {
        let (until, rest) = row.split_first_chunk().ok_or_else(damaged)?;
        let before = rest.first_chunk().ok_or_else(damaged)?;
        Ok(created_at.0 <= u64::from_be_bytes(*until) && seq.0 < u64::from_be_bytes(*before))
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (phase, key) = match &self.cursor {
            Cursor::Written(key) => (0, key),
            Cursor::Addressed(key) => (1, key),
        };
        let (until, before) = (self.until.0.to_be_bytes(), self.before.0.to_be_bytes());
        [&until[..], &before, &[u8::from(self.again), phase], key].concat()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let (until, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let (before, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let ([again, phase], key) = rest.split_first_chunk().ok_or_else(damaged)?;
        Ok(Self {
            until: Timestamp(u64::from_be_bytes(*until)),
            before: Seq(u64::from_be_bytes(*before)),
            again: *again != 0,
            cursor: match phase {
                0 => Cursor::Written(key.to_vec()),
                1 => Cursor::Addressed(key.to_vec()),
                _ => return Err(damaged()),
            },
        })
    }
}

impl Cursor {
    pub(crate) fn start(author: &Pubkey) -> Self {
        Cursor::Written(author.0.to_vec())
    }
}

/// Winner of a slot. It outlives the event, so that a loser never returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) created_at: Timestamp,
    pub(crate) id: EventId,
}

impl Slot {
    pub(crate) fn of(event: &Event) -> Self {
        Self {
            created_at: event.created_at,
            id: event.id,
        }
    }

    /// Newer wins; in the same second the lower id.
    pub(crate) fn beats(&self, other: &Slot) -> bool {
        (self.created_at, std::cmp::Reverse(self.id))
            > (other.created_at, std::cmp::Reverse(other.id))
    }

    pub(crate) fn to_bytes(self) -> [u8; SUFFIX] {
        Place::new(self.created_at, &self.id).0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let place = Place::of_key(bytes)?;
        Ok(Self {
            created_at: place.created_at(),
            id: place.id(),
        })
    }
}

/// Every index row of an event: table, key, and the cases of a tag's letter.
pub(crate) fn index_keys(event: &Event) -> Vec<(Table, Box<[u8]>, Cases)> {
    let place = Place::new(event.created_at, &event.id);
    let author_kind = author_kind_prefix(&event.pubkey, event.kind);
    let mut keys = vec![
        (Table::ByTime, key(&[], &place), Cases::default()),
        (
            Table::ByKind,
            key(&kind_prefix(event.kind), &place),
            Cases::default(),
        ),
        (
            Table::ByAuthorKind,
            key(&author_kind, &place),
            Cases::default(),
        ),
    ];
    let mut tags: Vec<([u8; 16], Cases)> = event
        .indexed_tags()
        .map(|(letter, value)| (tag_prefix(letter, value), Cases::of(letter)))
        .collect();
    tags.sort_unstable();
    tags.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1.add(later.1);
        }
        same
    });
    keys.extend(
        tags.into_iter()
            .map(|(prefix, cases)| (Table::ByTag, key(&prefix, &place), cases)),
    );
    keys.extend(relations::keys(event));
    keys
}

pub(crate) fn kind_prefix(kind: Kind) -> [u8; 2] {
    kind.0.to_be_bytes()
}

pub(crate) fn author_kind_prefix(author: &Pubkey, kind: Kind) -> [u8; 34] {
    let mut prefix = [0; 34];
    let (key, rest) = prefix.split_at_mut(32);
    key.copy_from_slice(&author.0);
    rest.copy_from_slice(&kind.0.to_be_bytes());
    prefix
}

/// The kind in a key of `ByAuthorKind`, if the key is that author's.
pub(crate) fn kind_after_author(key: &[u8], author: &Pubkey) -> Option<Kind> {
    let kind = key.strip_prefix(&author.0)?.first_chunk()?;
    Some(Kind(u16::from_be_bytes(*kind)))
}

/// 128 bits of SHA-256: nobody finds a second value with the same prefix, so that a row needs
/// no second look. Both cases of a letter share a prefix; [`Cases`] tells them apart.
pub(crate) fn tag_prefix(letter: u8, value: &str) -> [u8; 16] {
    let hash = Sha256::new()
        .chain_update([letter.to_ascii_lowercase()])
        .chain_update(value)
        .finalize();
    hash.first_chunk().copied().unwrap_or_default()
}

pub(crate) fn slot_key(address: &Address) -> [u8; 32] {
    Sha256::new()
        .chain_update(address.kind.0.to_be_bytes())
        .chain_update(address.pubkey.0)
        .chain_update(&address.d)
        .finalize()
        .into()
}

pub(crate) fn deleted_key(id: &EventId, author: &Pubkey) -> [u8; 64] {
    let mut key = [0; 64];
    let (first, second) = key.split_at_mut(32);
    first.copy_from_slice(&id.0);
    second.copy_from_slice(&author.0);
    key
}

pub(crate) fn expiry_key(at: Timestamp, seq: Seq) -> [u8; 16] {
    let mut key = [0; 16];
    let (first, second) = key.split_at_mut(8);
    first.copy_from_slice(&at.0.to_be_bytes());
    second.copy_from_slice(&seq.0.to_be_bytes());
    key
}

/// A row of `Held`.
pub(crate) fn held_row(event: &Event, until: Timestamp, remembered: bool) -> Vec<u8> {
    let mut row = until.0.to_be_bytes().to_vec();
    row.push(u8::from(remembered));
    row.extend(event.json().as_bytes());
    row
}

pub(crate) fn read_held(row: &[u8]) -> Result<Restore, StoreError> {
    let (until, rest) = row.split_first_chunk().ok_or_else(damaged)?;
    let (remembered, json) = rest.split_first().ok_or_else(damaged)?;
    let json = std::str::from_utf8(json).map_err(|_| damaged())?;
    let event = Event::from_stored(json).map_err(|error| StoreError::Damaged(error.to_string()))?;
    Ok(Restore::Held {
        event: Arc::new(event),
        until: Timestamp(u64::from_be_bytes(*until)),
        remembered: *remembered != 0,
    })
}

pub(crate) fn applied_key(repo: &RepoId) -> Vec<u8> {
    [&repo.owner.0[..], repo.identifier.as_str().as_bytes()].concat()
}

/// A row of `Applied`: since when there are refs, before the state that they are of.
pub(crate) fn applied_row(rank: &Rank, since: Timestamp) -> Vec<u8> {
    let place = Place::new(rank.created_at, &rank.id);
    [&since.0.to_be_bytes()[..], &place.0].concat()
}

/// In rows without the time, the state itself is the first that is known.
fn read_since(value: &[u8], rank: &Rank) -> Timestamp {
    let since = value.first_chunk().filter(|_| value.len() > SUFFIX);
    since.map_or(rank.created_at, |since| {
        Timestamp(u64::from_be_bytes(*since))
    })
}

pub(crate) fn read_applied(value: &[u8]) -> Result<Applied, StoreError> {
    let rank = read_rank(value)?;
    let since = read_since(value, &rank);
    Ok(Applied { rank, since })
}

pub(crate) fn read_applied_row(key: &[u8], value: &[u8]) -> Result<Restore, StoreError> {
    let (owner, identifier) = key.split_first_chunk().ok_or_else(damaged)?;
    let identifier = std::str::from_utf8(identifier).map_err(|_| damaged())?;
    let identifier = Identifier::parse(identifier).map_err(|_| damaged())?;
    let Applied { rank, since } = read_applied(value)?;
    Ok(Restore::Applied {
        repo: RepoId::new(Pubkey(*owner), identifier),
        rank,
        since,
    })
}

fn read_rank(value: &[u8]) -> Result<Rank, StoreError> {
    let place = Place::of_key(value)?;
    Ok(Rank {
        created_at: place.created_at(),
        id: place.id(),
    })
}

pub(crate) fn read_hidden(key: &[u8]) -> Result<Restore, StoreError> {
    let id = key.try_into().map_err(|_| damaged())?;
    Ok(Restore::Hidden(EventId(id)))
}

/// A row of `Relays`.
pub(crate) fn relay_row(memory: &RelayMemory) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(memory).map_err(|error| StoreError::Damaged(error.to_string()))
}

/// `None` for what another version wrote: it is learned again.
pub(crate) fn read_relay(row: &[u8]) -> Option<Restore> {
    let memory = serde_json::from_slice(row).ok()?;
    Some(Restore::Relay(Arc::new(memory)))
}

const FOR_GOOD: u8 = 0;
const EARLY: u8 = 1;
const RESTS: u8 = 2;

/// A row of `Dismissed`: time, announcement or not, fate, until when it rests, causes.
pub(crate) fn dismissed_row(dismissed: &Dismissed) -> Vec<u8> {
    let (fate, until, causes): (u8, u64, &[u64]) = match &dismissed.fate {
        Fate::ForGood => (FOR_GOOD, 0, &[]),
        Fate::Early(causes) => (EARLY, 0, causes),
        Fate::Rests(until, causes) => (RESTS, until.0, causes),
    };
    let mut row = dismissed.at.0.to_be_bytes().to_vec();
    row.extend([u8::from(dismissed.announcement), fate]);
    row.extend(until.to_be_bytes());
    row.extend(causes.iter().flat_map(|cause| cause.to_be_bytes()));
    row
}

pub(crate) fn read_dismissed(key: &[u8], row: &[u8]) -> Result<Restore, StoreError> {
    let id = EventId(key.try_into().map_err(|_| damaged())?);
    let (at, rest) = row.split_first_chunk().ok_or_else(damaged)?;
    let ([announcement, fate], rest) = rest.split_first_chunk().ok_or_else(damaged)?;
    let (until, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
    let until = Timestamp(u64::from_be_bytes(*until));
    let causes: Result<Vec<u64>, StoreError> = rest.chunks(8).map(read_u64).collect();
    let causes = causes?;
    Ok(Restore::Dismissed(Dismissed {
        id,
        at: Timestamp(u64::from_be_bytes(*at)),
        announcement: *announcement != 0,
        fate: match *fate {
            FOR_GOOD => Fate::ForGood,
            EARLY => Fate::Early(causes),
            RESTS => Fate::Rests(until, causes),
            _ => return Err(damaged()),
        },
    }))
}

pub(crate) fn read_pubkey(bytes: &[u8]) -> Result<Pubkey, StoreError> {
    let bytes = bytes.try_into().map_err(|_| damaged())?;
    Ok(Pubkey(bytes))
}

pub(crate) fn read_u64(bytes: &[u8]) -> Result<u64, StoreError> {
    let bytes: [u8; 8] = bytes.try_into().map_err(|_| damaged())?;
    Ok(u64::from_be_bytes(bytes))
}

pub(crate) fn key(prefix: &[u8], place: &Place) -> Box<[u8]> {
    [prefix, &place.0].concat().into()
}

pub(crate) fn damaged() -> StoreError {
    StoreError::Damaged("a row has the wrong length".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_a_time_begins_with_its_state() {
        let rank = Rank {
            created_at: Timestamp(7),
            id: EventId([3; 32]),
        };
        let row = applied_row(&rank, Timestamp(5));
        assert_eq!(read_rank(&row).unwrap(), rank);
        assert_eq!(read_since(&row, &rank), Timestamp(5));
        let (_, bare) = row.split_at(8);
        assert_eq!(read_rank(bare).unwrap(), rank);
        assert_eq!(read_since(bare, &rank), Timestamp(7));
    }
}
