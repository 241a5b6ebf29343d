//! May this event come in? One function, one verdict.

mod announcement;
mod lists;
mod pull_request;
mod related;
mod state;
mod verdict;

pub use lists::{Lists, RepoPattern};
pub use pull_request::{hosted_here, places};
pub use verdict::{Cause, Needs, Refusal, Verdict};

use crate::clock::Timestamp;
use crate::event::{Address, Event, Kind};
use crate::id::{EventId, Pubkey};
use crate::limits::Limits;
use crate::network::Network;
use crate::nip34::{self, PullRequest};
use crate::registry::{MaintainerRule, Registry};
use crate::relay_url::RelayUrl;
use crate::service::Service;
use crate::ticket::Delivery;

/// Who hands us an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Client {
        /// The keys that this websocket client has proven to hold (NIP-42).
        authenticated: Vec<Pubkey>,
        /// `None` is not counted: this machine.
        network: Option<Network>,
    },
    /// Another relay, by sync.
    Sync(Delivery),
    /// The operator's own file.
    Import,
}

impl Origin {
    /// A client that has proven nothing.
    pub fn anonymous() -> Self {
        Origin::Client {
            authenticated: Vec::new(),
            network: None,
        }
    }
}

/// What the rules need to know of this server.
#[derive(Debug, Clone)]
pub struct Policy {
    pub service: Service,
    pub rule: MaintainerRule,
    pub lists: Lists,
    /// Events that belong to no repository are taken too, as a general relay does.
    pub takes_unrelated: bool,
    /// Relays that the operator names, whatever repositories say.
    pub bootstrap: Vec<RelayUrl>,
    pub limits: Limits,
}

/// What is here besides announcements, as far as the rules must ask.
pub trait Known {
    fn event(&self, id: &EventId) -> Presence;
    fn address(&self, address: &Address) -> Presence;
    /// What a pull request says that is stored or held.
    fn pull_request(&self, id: &EventId) -> Option<PullRequest>;
    /// A stored event names this one.
    fn is_named(&self, event: &Event) -> bool;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Unknown,
    Held,
    Stored(Kind),
}

pub fn judge(
    event: &Event,
    origin: &Origin,
    policy: &Policy,
    registry: &Registry,
    known: &dyn Known,
    now: Timestamp,
) -> Verdict {
    if let Some(refusal) = refusal(event, origin, policy, now) {
        return Verdict::Drop(refusal);
    }
    if policy.lists.blocks_author(&event.pubkey) {
        return Verdict::Drop(Refusal::AuthorBlocked);
    }
    match event.kind {
        Kind::ANNOUNCEMENT => announcement::judge(event, policy, registry),
        Kind::STATE => state::judge(event, registry),
        nip34::PULL_REQUEST | nip34::PULL_REQUEST_UPDATE => {
            pull_request::judge(event, registry, known)
        }
        // They speak of their author, not of a repository.
        kind if is_free(kind) => Verdict::Store,
        _ => related::judge(event, policy, registry, known),
    }
}

/// Accepted from anybody, so that belonging to one of these proves nothing.
pub fn is_free(kind: Kind) -> bool {
    matches!(kind, Kind::DELETION | Kind::VANISH | nip34::GRASP_LIST)
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
    if event.kind == Kind::VANISH && !moved && !asks_us_to_vanish(event, &policy.service) {
        return Some(Refusal::VanishElsewhere);
    }
    None
}

fn protected(event: &Event, origin: &Origin) -> Option<Refusal> {
    match origin {
        Origin::Import => None,
        Origin::Client { authenticated, .. } if authenticated.contains(&event.pubkey) => None,
        Origin::Client { authenticated, .. } if authenticated.is_empty() => {
            Some(Refusal::AuthRequired)
        }
        Origin::Client { .. } | Origin::Sync(_) => Some(Refusal::NotTheAuthor),
    }
}

fn asks_us_to_vanish(event: &Event, us: &Service) -> bool {
    event
        .tag_values("relay")
        .any(|url| url == "ALL_RELAYS" || us.is_relay_url(url))
}
