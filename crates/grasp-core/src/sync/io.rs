//! What other relays say to us and we to them, as far as the rules must know. Bytes, sockets and
//! NIP-77 frames stay with whoever carries this out.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::event::Kind;
use crate::filter::Filter;
use crate::id::EventId;
use crate::relay_url::RelayUrl;
use crate::ticket::SubNo;

/// Asked of a connection to another relay. What is asked of one that is down is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToRelay {
    /// Answered by one `Up` or `Down`; an `Up` by one later `Down`.
    Dial {
        url: RelayUrl,
        /// The operator named it: it may be on a private network.
        trusted: bool,
    },
    HangUp,
    /// Answered by `Described`.
    Describe,
    Subscribe {
        sub: SubNo,
        filters: Arc<[Filter]>,
        /// Events before its EOSE; more is a flood.
        most: Option<u32>,
    },
    Unsubscribe(SubNo),
    /// Compare what is stored with what the relay has (NIP-77). Answered by any number of `Needs`,
    /// then `Reconciled` or `Unreconciled`.
    Reconcile {
        sub: SubNo,
        filter: Box<Filter>,
        /// What counts as ours though it is not stored, of this stretch of time or any other.
        aside: Arc<[(Timestamp, EventId)]>,
        /// Of our own events, the newest; whole seconds only.
        most: u32,
    },
    EndReconcile(SubNo),
    Authenticate {
        challenge: String,
    },
}

/// Heard of a connection, in order, except that the events of a subscription may come after its
/// EOSE: each takes its time to be verified. Every EVENT frame of a known subscription becomes
/// exactly one submission, `Known`, `TooLarge` or `Bad`; but one that was left out unread, because
/// the message is larger than any we take, is a `Bad` without a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromRelay {
    Up,
    Down(End),
    /// It still speaks; every ten seconds or so.
    Heard,
    /// Its NIP-11 document; `None` if it has none that can be read.
    Described(Option<Description>),
    /// `sent` EVENT frames came before it.
    Eose {
        sub: SubNo,
        sent: u32,
        /// Nothing older is there (NIP-67).
        complete: bool,
    },
    Closed {
        sub: SubNo,
        sent: u32,
        why: Complaint,
    },
    Notice(Complaint),
    /// An event that is stored already.
    Known {
        sub: SubNo,
        id: EventId,
        at: Timestamp,
    },
    /// An event that was asked for, whose id and signature are right, and that is larger than we
    /// take. Whoever planted it, the relay is not to blame.
    TooLarge {
        sub: SubNo,
        id: EventId,
        at: Timestamp,
        kind: Kind,
    },
    Bad {
        sub: Option<SubNo>,
        /// What it claims to be.
        id: Option<EventId>,
        fault: Fault,
    },
    Challenge(String),
    Authenticated(bool),
    /// What it has and we have not. None at all: the comparison goes on, or waits for us; that is
    /// no sign of the relay.
    Needs {
        sub: SubNo,
        ids: Vec<EventId>,
    },
    /// Everything from that second on is compared.
    Reconciled {
        sub: SubNo,
        from: Timestamp,
        /// Our own events in it.
        compared: u32,
        /// Of these, how many it has not; the first few by name.
        lacks: u32,
        some: Vec<EventId>,
    },
    Unreconciled {
        sub: SubNo,
        why: Complaint,
    },
}

impl FromRelay {
    /// The relay has spoken.
    pub fn is_heard(&self) -> bool {
        match self {
            Self::Down(_) => false,
            Self::Needs { ids, .. } => !ids.is_empty(),
            Self::Unreconciled { why, .. } => *why != Complaint::Ours,
            _ => true,
        }
    }
}

/// Why a connection is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Refused,
    TimedOut,
    NoSuchHost,
    /// Not an address that we dial.
    Blocked,
    Tls,
    Http(u16),
    Closed,
    Silent,
    TooLarge,
    Ourselves,
    Failed,
}

/// The limits of a NIP-11 document, as far as it names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Description {
    pub subscriptions: Option<u32>,
    pub filters: Option<u32>,
    pub message_bytes: Option<u32>,
    pub limit: Option<u32>,
    pub filter_values: Option<u32>,
    pub connection_values: Option<u32>,
    /// It lists NIP-77.
    pub reconciles: bool,
}

/// What is wrong with an EVENT frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Malformed,
    WrongId,
    WrongSignature,
    TooLarge,
    OffFilter,
    UnknownSubscription,
    Flood,
    /// It named events that it does not deliver.
    Hollow,
}

impl Fault {
    /// All that `label` says.
    pub const LABELS: [&'static str; 8] = [
        "malformed",
        "wrong_id",
        "wrong_signature",
        "too_large",
        "off_filter",
        "unknown_subscription",
        "flood",
        "hollow",
    ];

    /// A short, stable word for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Fault::Malformed => "malformed",
            Fault::WrongId => "wrong_id",
            Fault::WrongSignature => "wrong_signature",
            Fault::TooLarge => "too_large",
            Fault::OffFilter => "off_filter",
            Fault::UnknownSubscription => "unknown_subscription",
            Fault::Flood => "flood",
            Fault::Hollow => "hollow",
        }
    }
}

/// Why a relay refuses something, read from words that no two relays choose alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Complaint {
    RateLimited,
    TooManySubscriptions,
    TooManyFilters,
    TooLarge,
    /// More events than it will compare at once.
    TooManyEvents,
    AuthRequired,
    /// Not for us, whoever we are.
    Restricted,
    Unsupported,
    Invalid,
    Other,
    /// No complaint of the relay: we cannot do our own part now.
    Ours,
}

/// A message is understood by its beginning.
const MAX_READ: usize = 512;

impl Complaint {
    /// All that `label` says.
    pub const LABELS: [&'static str; 11] = [
        "rate_limited",
        "too_many_subscriptions",
        "too_many_filters",
        "too_large",
        "too_many_events",
        "auth_required",
        "restricted",
        "unsupported",
        "invalid",
        "other",
        "ours",
    ];

    /// A short, stable word for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Complaint::RateLimited => "rate_limited",
            Complaint::TooManySubscriptions => "too_many_subscriptions",
            Complaint::TooManyFilters => "too_many_filters",
            Complaint::TooLarge => "too_large",
            Complaint::TooManyEvents => "too_many_events",
            Complaint::AuthRequired => "auth_required",
            Complaint::Restricted => "restricted",
            Complaint::Unsupported => "unsupported",
            Complaint::Invalid => "invalid",
            Complaint::Other => "other",
            Complaint::Ours => "ours",
        }
    }

    /// The prefix of NIP-01 where there is one, else words that relays are known to use.
    pub fn read(text: &str) -> Self {
        let text: String = text.chars().take(MAX_READ).collect();
        let text = text.to_lowercase();
        let says = |phrases: &[&str]| phrases.iter().any(|phrase| text.contains(phrase));
        // Whatever the prefix, this one is mended by asking for less.
        if says(TOO_MANY_EVENTS) {
            return Complaint::TooManyEvents;
        }
        let prefix = text.split_once(':').map_or("", |(prefix, _)| prefix);
        let more = MORE_THAN.iter().find(|(_, word)| text.contains(word));
        let words = match more.filter(|_| text.contains("more than ")) {
            Some((complaint, _)) => Some(complaint),
            None => {
                let known = WORDS.iter().find(|(_, phrases)| says(phrases));
                known.map(|(complaint, _)| complaint)
            }
        };
        match prefix {
            "rate-limited" => Complaint::RateLimited,
            "auth-required" => Complaint::AuthRequired,
            "unsupported" => Complaint::Unsupported,
            _ => match (words, prefix) {
                (Some(complaint), _) => *complaint,
                (None, "restricted" | "blocked") => Complaint::Restricted,
                (None, "invalid") => Complaint::Invalid,
                (None, _) => Complaint::Other,
            },
        }
    }
}

const TOO_MANY_EVENTS: &[&str] = &[
    "too many query results",
    "too many events",
    "too many results",
    "too many records",
    "query is too big",
    "events match, narrow the filter",
];

/// "more than 20 subscriptions", as our own server says it.
const MORE_THAN: &[(Complaint, &str)] = &[
    (Complaint::RateLimited, "neg sessions"),
    (Complaint::TooManyFilters, "values in a filter"),
    (Complaint::TooManySubscriptions, "subscriptions"),
    (Complaint::TooManyFilters, "filters"),
];

const WORDS: &[(Complaint, &[&str])] = &[
    (
        Complaint::TooManySubscriptions,
        &[
            "too many concurrent reqs",
            "too many subscriptions",
            "subscription limit",
            "maximum concurrent subscription",
            "max_subscriptions",
        ],
    ),
    (
        Complaint::TooManyFilters,
        &["too many filters", "max_filters", "filter items"],
    ),
    (
        Complaint::TooLarge,
        &["too large", "too big", "message size", "too long"],
    ),
    (
        Complaint::RateLimited,
        &[
            "rate limit",
            "rate-limit",
            "slow down",
            "too fast",
            "too many requests",
        ],
    ),
    (
        Complaint::AuthRequired,
        &["auth-required", "authentication required", "please auth"],
    ),
    (
        Complaint::Unsupported,
        &[
            "negentropy disabled",
            "unknown message",
            "unknown command",
            "unknown cmd",
            "unrecognised",
            "unrecognized",
            "unsupported",
            "not supported",
            "invalid message type",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_understood_by_prefix_or_by_known_words() {
        for (text, expected) in [
            (
                "rate-limited: you are noting too much",
                Complaint::RateLimited,
            ),
            (
                "auth-required: we only serve friends",
                Complaint::AuthRequired,
            ),
            ("restricted: not allowed", Complaint::Restricted),
            ("blocked: you are banned here", Complaint::Restricted),
            (
                "unsupported: filter contains unknown elements",
                Complaint::Unsupported,
            ),
            (
                "ERROR: too many concurrent REQs",
                Complaint::TooManySubscriptions,
            ),
            (
                "error: Too many subscriptions: 20",
                Complaint::TooManySubscriptions,
            ),
            (
                "ERROR: bad req: too many filters",
                Complaint::TooManyFilters,
            ),
            ("blocked: too many query results", Complaint::TooManyEvents),
            ("blocked: this query is too big", Complaint::TooManyEvents),
            ("too many query results", Complaint::TooManyEvents),
            (
                "ERROR: bad msg: negentropy disabled",
                Complaint::Unsupported,
            ),
            ("bad msg: unknown cmd", Complaint::Unsupported),
            (
                "could not parse command: unknown message type NEG-OPEN",
                Complaint::Unsupported,
            ),
            ("invalid: message too large", Complaint::TooLarge),
            ("invalid: no", Complaint::Invalid),
            (
                "blocked: more than 256 subscriptions",
                Complaint::TooManySubscriptions,
            ),
            (
                "blocked: more than 40000 filter values in all subscriptions",
                Complaint::TooManySubscriptions,
            ),
            ("blocked: more than 64 filters", Complaint::TooManyFilters),
            (
                "blocked: more than 2000 values in a filter",
                Complaint::TooManyFilters,
            ),
            ("blocked: more than 16 NEG sessions", Complaint::RateLimited),
            (
                "blocked: more than 1000000 events match, narrow the filter",
                Complaint::TooManyEvents,
            ),
            ("slow down please", Complaint::RateLimited),
            ("", Complaint::Other),
            ("hello", Complaint::Other),
        ] {
            assert_eq!(Complaint::read(text), expected, "{text}");
        }
        let long = "\u{fc}".repeat(10_000);
        assert_eq!(Complaint::read(&long), Complaint::Other);
    }
}
