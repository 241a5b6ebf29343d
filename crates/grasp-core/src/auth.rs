//! NIP-42: is this event a valid answer to our challenge?

use std::time::Duration;

use crate::clock::Timestamp;
use crate::event::{Event, Kind};
use crate::id::Pubkey;
use crate::service::Service;

/// How far the client's clock may be from ours.
const WINDOW: Duration = Duration::from_secs(10 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("invalid: AUTH takes an event of kind 22242")]
    WrongKind,
    #[error("invalid: this is not the challenge of this connection")]
    WrongChallenge,
    #[error("invalid: the relay tag does not name this relay")]
    WrongRelay,
    #[error("invalid: created_at is more than 10 minutes from the relay's clock")]
    WrongTime,
}

/// The event's signature is the caller's to check. An empty challenge is nobody's.
pub fn check(
    event: &Event,
    challenge: &str,
    us: &Service,
    now: Timestamp,
) -> Result<Pubkey, AuthError> {
    if event.kind != Kind::AUTH {
        return Err(AuthError::WrongKind);
    }
    if challenge.is_empty() || event.tag("challenge") != Some(challenge) {
        return Err(AuthError::WrongChallenge);
    }
    if !event.tag("relay").is_some_and(|url| us.is_relay_url(url)) {
        return Err(AuthError::WrongRelay);
    }
    if event.created_at > now.saturating_add(WINDOW)
        || event.created_at < now.saturating_sub(WINDOW)
    {
        return Err(AuthError::WrongTime);
    }
    Ok(event.pubkey)
}
