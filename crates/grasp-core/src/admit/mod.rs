//! May this event come in? One function, one verdict. GRASP rules join here; until then every
//! event that is valid and within the limits is admitted.

mod verdict;

pub use verdict::{Refusal, Verdict};

use crate::auth::names_relay;
use crate::clock::Timestamp;
use crate::event::{Event, Kind};
use crate::id::Pubkey;
use crate::limits::Limits;

/// Who hands us an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A websocket client and the keys it has proven to hold (NIP-42).
    Client { authenticated: Vec<Pubkey> },
    /// The operator's own file.
    Import,
}

impl Origin {
    /// A client that has proven nothing.
    pub fn anonymous() -> Self {
        Origin::Client {
            authenticated: Vec::new(),
        }
    }
}

/// What the rules need to know of this server.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Our websocket URL as the world knows it.
    pub relay_url: String,
    pub limits: Limits,
}

pub fn judge(event: &Event, origin: &Origin, policy: &Policy, now: Timestamp) -> Verdict {
    match refusal(event, origin, policy, now) {
        Some(refusal) => Verdict::Drop(refusal),
        None => Verdict::Store,
    }
}

fn refusal(event: &Event, origin: &Origin, policy: &Policy, now: Timestamp) -> Option<Refusal> {
    let limits = &policy.limits;
    if event.kind == Kind::AUTH {
        return Some(Refusal::AuthAsEvent);
    }
    if event.created_at > now.saturating_add(limits.created_at_ahead) {
        return Some(Refusal::TooFarAhead(limits.created_at_ahead));
    }
    let behind = limits.created_at_behind;
    if !behind.is_zero() && event.created_at < now.saturating_sub(behind) {
        return Some(Refusal::TooOld(behind));
    }
    if event.is_expired(now) {
        return Some(Refusal::Expired);
    }
    if event.is_protected() {
        return protected(event, origin);
    }
    // What an operator brings along was obeyed where it comes from, under another name perhaps.
    let moved = *origin == Origin::Import;
    if event.kind == Kind::VANISH && !moved && !asks_us_to_vanish(event, &policy.relay_url) {
        return Some(Refusal::VanishElsewhere);
    }
    None
}

fn protected(event: &Event, origin: &Origin) -> Option<Refusal> {
    match origin {
        Origin::Import => None,
        Origin::Client { authenticated } if authenticated.contains(&event.pubkey) => None,
        Origin::Client { authenticated } if authenticated.is_empty() => Some(Refusal::AuthRequired),
        Origin::Client { .. } => Some(Refusal::NotTheAuthor),
    }
}

fn asks_us_to_vanish(event: &Event, our_url: &str) -> bool {
    event
        .tag_values("relay")
        .any(|url| url == "ALL_RELAYS" || names_relay(url, our_url))
}
