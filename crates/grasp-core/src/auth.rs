//! NIP-42: is this event a valid answer to our challenge?

use std::time::Duration;

use crate::clock::Timestamp;
use crate::event::{Event, Kind};
use crate::id::Pubkey;

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
    our_url: &str,
    now: Timestamp,
) -> Result<Pubkey, AuthError> {
    if event.kind != Kind::AUTH {
        return Err(AuthError::WrongKind);
    }
    if challenge.is_empty() || event.tag("challenge") != Some(challenge) {
        return Err(AuthError::WrongChallenge);
    }
    if !event
        .tag("relay")
        .is_some_and(|url| names_relay(url, our_url))
    {
        return Err(AuthError::WrongRelay);
    }
    if event.created_at > now.saturating_add(WINDOW)
        || event.created_at < now.saturating_sub(WINDOW)
    {
        return Err(AuthError::WrongTime);
    }
    Ok(event.pubkey)
}

/// Same host and port; scheme, case of the host, default ports and a trailing slash do not
/// matter: a proxy in front may have changed the scheme.
pub fn names_relay(url: &str, our_url: &str) -> bool {
    match (host_and_port(url), host_and_port(our_url)) {
        (Some(theirs), Some(ours)) => theirs == ours,
        _ => false,
    }
}

fn host_and_port(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let default_port = match scheme.to_ascii_lowercase().as_str() {
        "ws" | "http" => 80,
        "wss" | "https" => 443,
        _ => return None,
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
        return None;
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, default_port),
    };
    let port = if matches!(port, 80 | 443) { 443 } else { port };
    Some((host.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::names_relay;

    #[test]
    fn one_relay_in_several_spellings() {
        for url in [
            "wss://Relay.example",
            "wss://relay.example/",
            "wss://relay.example:443",
            "ws://relay.example:80/",
        ] {
            assert!(names_relay(url, "wss://relay.example"), "{url}");
        }
        for url in [
            "wss://relay.example.evil.org",
            "wss://evil.org/relay.example",
            "wss://relay.example@evil.org",
            "wss://relay.example:7334",
            "relay.example",
            "ftp://relay.example",
            "",
        ] {
            assert!(!names_relay(url, "wss://relay.example"), "{url}");
        }
        assert!(names_relay("ws://[::1]:7334", "ws://[::1]:7334/"));
    }
}
