//! A Nostr event: parsed strictly, hashed once, kept with the one JSON text in which it is
//! stored and sent. The text is ours, not the sender's, so unknown fields, duplicate keys and
//! odd spellings never travel on.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::Timestamp;
use crate::id::{EventId, Pubkey, Signature};
use crate::limits::Limits;

/// What a kind number means for storage (NIP-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Kind(pub u16);

impl Kind {
    pub const DELETION: Kind = Kind(5);
    pub const VANISH: Kind = Kind(62);
    pub const GIFT_WRAP: Kind = Kind(1059);
    pub const AUTH: Kind = Kind(22242);
    pub const ANNOUNCEMENT: Kind = Kind(30617);
    pub const STATE: Kind = Kind(30618);

    pub fn is_ephemeral(self) -> bool {
        matches!(self.0, 20_000..=29_999)
    }

    /// One event per author and kind.
    pub fn is_replaceable(self) -> bool {
        matches!(self.0, 0 | 3 | 10_000..=19_999)
    }

    /// One event per author, kind and `d`.
    pub fn is_addressable(self) -> bool {
        matches!(self.0, 30_000..=39_999)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `kind:pubkey:d`: the slot that an event occupies alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    pub kind: Kind,
    pub pubkey: Pubkey,
    pub d: String,
}

impl Address {
    /// Reads an `a` tag's value. A replaceable kind has no `d`, whatever the text says.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let kind_text = parts.next()?;
        let kind = Kind(kind_text.parse().ok()?);
        if kind.to_string() != kind_text {
            return None;
        }
        let pubkey = Pubkey::from_hex(parts.next()?).ok()?;
        let d = parts.next()?;
        if kind.is_addressable() {
            Some(Self {
                kind,
                pubkey,
                d: d.to_owned(),
            })
        } else if kind.is_replaceable() && d.is_empty() {
            Some(Self {
                kind,
                pubkey,
                d: String::new(),
            })
        } else {
            None
        }
    }
}

/// An event whose id and signature are right, or one that we stored when they were.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    pub id: EventId,
    pub pubkey: Pubkey,
    pub created_at: Timestamp,
    pub kind: Kind,
    pub tags: Vec<Vec<String>>,
    pub sig: Signature,
    json: Arc<str>,
}

/// Why a text is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    #[error("invalid: {0}")]
    Malformed(String),
    #[error("invalid: event is larger than {0} bytes")]
    TooLarge(usize),
    #[error("invalid: content is larger than {0} bytes")]
    ContentTooLarge(usize),
    #[error("invalid: more than {0} tags")]
    TooManyTags(usize),
    #[error("invalid: more than {0} values in all tags")]
    TooManyTagValues(usize),
    #[error("invalid: event id is not the hash of the event")]
    WrongId,
    #[error("invalid: signature does not match")]
    WrongSignature,
}

#[derive(Deserialize)]
struct Wire {
    id: EventId,
    pubkey: Pubkey,
    created_at: Timestamp,
    kind: Kind,
    tags: Vec<Vec<String>>,
    content: String,
    sig: Signature,
}

/// A well-formed event that claims an author. Only [`Unverified::verify`] makes it an [`Event`].
#[derive(Debug, Clone)]
pub struct Unverified {
    event: Event,
    digest: EventId,
}

impl Unverified {
    pub fn parse(json: &str, limits: &Limits) -> Result<Self, EventError> {
        if json.len() > limits.event_bytes {
            return Err(EventError::TooLarge(limits.event_bytes));
        }
        let wire: Wire =
            serde_json::from_str(json).map_err(|error| EventError::Malformed(error.to_string()))?;
        if wire.content.len() > limits.content_bytes {
            return Err(EventError::ContentTooLarge(limits.content_bytes));
        }
        if wire.tags.len() > limits.tags {
            return Err(EventError::TooManyTags(limits.tags));
        }
        if wire.tags.iter().map(Vec::len).sum::<usize>() > limits.tag_values {
            return Err(EventError::TooManyTagValues(limits.tag_values));
        }
        Ok(Self::from_wire(wire))
    }

    /// Reads back what [`Event::json`] wrote and the store kept, for whoever doubts it: no limits.
    pub fn from_stored(json: &str) -> Result<Self, EventError> {
        let wire: Wire =
            serde_json::from_str(json).map_err(|error| EventError::Malformed(error.to_string()))?;
        Ok(Self::from_wire(wire))
    }

    pub fn id(&self) -> EventId {
        self.event.id
    }

    pub fn pubkey(&self) -> Pubkey {
        self.event.pubkey
    }

    pub fn sig(&self) -> Signature {
        self.event.sig
    }

    /// What it takes in memory: the JSON, about as much again for the texts in it, and each tag and
    /// each of its values.
    pub fn memory(&self) -> usize {
        let tags = &self.event.tags;
        let values: usize = tags.iter().map(Vec::len).sum();
        2 * self.event.json.len() + (tags.len() + values) * size_of::<String>()
    }

    /// What it says of itself, not proven.
    pub fn claim(&self) -> &Event {
        &self.event
    }

    /// `signed` says whether the signature over the id is the author's.
    pub fn verify(self, signed: impl FnOnce(&Event) -> bool) -> Result<Event, EventError> {
        if self.digest != self.event.id {
            return Err(EventError::WrongId);
        }
        if !signed(&self.event) {
            return Err(EventError::WrongSignature);
        }
        Ok(self.event)
    }

    fn from_wire(wire: Wire) -> Self {
        let tags = to_json(&wire.tags);
        let content = to_json(&wire.content);
        let digest = digest(&wire.pubkey, wire.created_at, wire.kind, &tags, &content);
        let json = format!(
            r#"{{"id":"{}","pubkey":"{}","created_at":{},"kind":{},"tags":{},"content":{},"sig":"{}"}}"#,
            wire.id, wire.pubkey, wire.created_at.0, wire.kind, tags, content, wire.sig
        );
        Self {
            digest,
            event: Event {
                id: wire.id,
                pubkey: wire.pubkey,
                created_at: wire.created_at,
                kind: wire.kind,
                tags: wire.tags,
                sig: wire.sig,
                json: json.into(),
            },
        }
    }
}

impl Event {
    /// Reads back what [`Event::json`] wrote and the store kept: no limits, no proof again.
    pub fn from_stored(json: &str) -> Result<Self, EventError> {
        Ok(Unverified::from_stored(json)?.event)
    }

    /// The text that is stored and sent.
    pub fn json(&self) -> &Arc<str> {
        &self.json
    }

    /// The first value of the first tag of that name.
    pub fn tag(&self, name: &str) -> Option<&str> {
        self.tag_values(name).next()
    }

    /// The first value of every tag of that name.
    pub fn tag_values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.tags
            .iter()
            .filter_map(move |tag| match tag.as_slice() {
                [found, value, ..] if found == name => Some(value.as_str()),
                _ => None,
            })
    }

    /// What filters can ask for: the name and first value of single-letter tags.
    pub fn indexed_tags(&self) -> impl Iterator<Item = (u8, &str)> {
        self.tags.iter().filter_map(|tag| match tag.as_slice() {
            [name, value, ..] => match name.as_bytes() {
                [letter] if letter.is_ascii_alphabetic() => Some((*letter, value.as_str())),
                _ => None,
            },
            _ => None,
        })
    }

    /// The slot of a replaceable or addressable event.
    pub fn address(&self) -> Option<Address> {
        let d = if self.kind.is_addressable() {
            self.tag("d").unwrap_or_default().to_owned()
        } else if self.kind.is_replaceable() {
            String::new()
        } else {
            return None;
        };
        Some(Address {
            kind: self.kind,
            pubkey: self.pubkey,
            d,
        })
    }

    /// NIP-40. A value that is not a plain number, or the largest there is, is no expiration.
    pub fn expiration(&self) -> Option<Timestamp> {
        let text = self.tag("expiration")?;
        let plain = text.bytes().all(|byte| byte.is_ascii_digit());
        let at = text.parse().ok().filter(|at| plain && *at < u64::MAX)?;
        Some(Timestamp(at))
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expiration().is_some_and(|at| at <= now)
    }

    /// NIP-70: only its author may publish it.
    pub fn is_protected(&self) -> bool {
        self.tags
            .iter()
            .any(|tag| tag.first().is_some_and(|name| name == "-"))
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.json)
    }
}

/// The id that an event of this content has: SHA-256 of its NIP-01 serialisation.
pub fn event_id(
    pubkey: &Pubkey,
    created_at: Timestamp,
    kind: Kind,
    tags: &[Vec<String>],
    content: &str,
) -> EventId {
    digest(pubkey, created_at, kind, &to_json(tags), &to_json(content))
}

fn digest(
    pubkey: &Pubkey,
    created_at: Timestamp,
    kind: Kind,
    tags_json: &str,
    content_json: &str,
) -> EventId {
    let mut hasher = Sha256::new();
    hasher.update(format!(r#"[0,"{pubkey}",{},{kind},"#, created_at.0));
    hasher.update(tags_json);
    hasher.update(",");
    hasher.update(content_json);
    hasher.update("]");
    EventId(hasher.finalize().into())
}

fn to_json<T: Serialize + ?Sized>(value: &T) -> String {
    // Strings and lists of strings always serialise.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REAL: &str = r#"{"kind":1,"id":"dc90c95f09947507c1044e8f48bcf6350aa6bff1507dd4acfc755b9239b5c962","pubkey":"3bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d","created_at":1644271588,"tags":[],"content":"now that https://blueskyweb.org/blog/2-7-2022-overview was announced we can stop working on nostr?","sig":"230e9d8f0ddaf7eb70b5f7741ccfa37e87a455c9a469282e3464e2052d3192cd63a167e196e381ef9d7e69e9ea43af2443b839974dc85d8aaab9efe1d9296524","extra":1}"#;

    #[test]
    fn the_id_is_over_the_exact_serialisation() {
        let event = Unverified::parse(REAL, &Limits::default())
            .unwrap()
            .verify(|_| true)
            .unwrap();
        assert_eq!(event.created_at, Timestamp(1644271588));
        assert!(
            !event.json().contains("extra"),
            "unknown fields stay behind"
        );
        assert_eq!(Event::from_stored(event.json()).unwrap(), event);
    }

    #[test]
    fn a_changed_event_is_refused() {
        let forged = REAL.replace("stop working", "go on working");
        let parsed = Unverified::parse(&forged, &Limits::default()).unwrap();
        assert_eq!(parsed.verify(|_| true), Err(EventError::WrongId));
        let parsed = Unverified::parse(REAL, &Limits::default()).unwrap();
        assert_eq!(parsed.verify(|_| false), Err(EventError::WrongSignature));
    }

    #[test]
    fn short_values_are_counted_by_the_memory_they_take() {
        let limits = Limits::default();
        let with_values = |count: usize| {
            let values = vec![r#""""#; count].join(",");
            REAL.replace(r#""tags":[]"#, &format!(r#""tags":[[{values}]]"#))
        };
        let most = Unverified::parse(&with_values(limits.tag_values), &limits).unwrap();
        assert!(most.memory() > limits.tag_values * 24);
        let more = Unverified::parse(&with_values(limits.tag_values + 1), &limits);
        assert_eq!(
            more.err(),
            Some(EventError::TooManyTagValues(limits.tag_values))
        );
    }

    #[test]
    fn malformed_events_say_why() {
        let parse = |json: &str| Unverified::parse(json, &Limits::default()).map(|_| ());
        for json in [
            "{}",
            "[]",
            "1",
            "",
            &REAL.replace("1644271588", "-1"),
            &REAL.replace("\"kind\":1,", "\"kind\":65536,"),
            &REAL.replace("\"kind\":1,", "\"kind\":1,\"kind\":2,"),
            &REAL.replace("\"tags\":[]", "\"tags\":[1]"),
            &REAL.replace("3bf0c6", "3BF0C6"),
        ] {
            assert!(
                matches!(parse(json), Err(EventError::Malformed(_))),
                "{json}"
            );
        }
        let limits = Limits {
            event_bytes: 100,
            ..Limits::default()
        };
        assert!(matches!(
            Unverified::parse(REAL, &limits),
            Err(EventError::TooLarge(100))
        ));
    }

    #[test]
    fn addresses_have_one_spelling() {
        let key = "3bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d";
        let address = Address::parse(&format!("30617:{key}:a:b")).unwrap();
        assert_eq!(address.d, "a:b");
        assert!(Address::parse(&format!("10317:{key}:")).is_some());
        assert!(Address::parse(&format!("10317:{key}:x")).is_none());
        assert!(Address::parse(&format!("+30617:{key}:x")).is_none());
        assert!(Address::parse(&format!("030617:{key}:x")).is_none());
        assert!(Address::parse(&format!("1:{key}:")).is_none());
        assert!(Address::parse("30617").is_none());
        assert!(Address::parse(&format!("10317:{key}")).is_none());
    }
}
