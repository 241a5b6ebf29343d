//! Our own public name, and whether a URL means us. URLs are parsed, never searched.

use url::Url;

use crate::clone_url::CloneUrl;
use crate::id::Pubkey;
use crate::relay_url::RelayUrl;

/// The host and port that the world knows us by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    host: String,
    port: u16,
}

impl Service {
    /// Reads any URL of ours; `None` if it has no host.
    pub fn of_url(url: &str) -> Option<Self> {
        let url = Url::parse(url).ok()?;
        Self::of(&url)
    }

    /// Without a port, the default ports mean us.
    pub fn of_host(host: &str, port: Option<u16>) -> Self {
        Self {
            host: host.to_ascii_lowercase(),
            port: comparable(port.unwrap_or(443)),
        }
    }

    fn of(url: &Url) -> Option<Self> {
        if !matches!(url.scheme(), "ws" | "wss" | "http" | "https") || !url.username().is_empty() {
            return None;
        }
        Some(Self {
            host: url.host_str()?.trim_end_matches('.').to_owned(),
            port: comparable(url.port_or_known_default()?),
        })
    }

    /// A websocket URL of this relay.
    pub fn is_relay_url(&self, text: &str) -> bool {
        self.own(text, &["ws", "wss"])
            .is_some_and(|url| url.path() == "/")
    }

    /// An address on our own host and port, whatever the path: dialling it would be talking to
    /// ourselves.
    pub fn is_at(&self, url: &RelayUrl) -> bool {
        let url = Url::parse(url.as_str()).ok();
        url.is_some_and(|url| Self::of(&url).as_ref() == Some(self))
    }

    /// A git server on our own host and port, whatever the path.
    pub fn is_clone_at(&self, url: &CloneUrl) -> bool {
        let url = Url::parse(url.as_str()).ok();
        url.is_some_and(|url| Self::of(&url).as_ref() == Some(self))
    }

    /// The URL under which we serve that repository: `/<npub>/<percent-encoded identifier>.git`.
    pub fn is_clone_url(&self, text: &str, owner: &Pubkey, identifier: &str) -> bool {
        let Some(url) = self.own(text, &["http", "https"]) else {
            return false;
        };
        let path = url.path();
        let mut parts = path.strip_suffix('/').unwrap_or(path).split('/').skip(1);
        let (npub, name, end) = (parts.next(), parts.next(), parts.next());
        let name = name.and_then(|name| name.strip_suffix(".git"));
        end.is_none()
            && npub == Some(owner.npub().as_str())
            && name.and_then(percent_decoded).as_deref() == Some(identifier)
    }

    fn own(&self, text: &str, schemes: &[&str]) -> Option<Url> {
        let url = Url::parse(text.trim()).ok()?;
        let plain = url.query().is_none() && url.fragment().is_none() && url.password().is_none();
        let ours = Self::of(&url)? == *self && schemes.contains(&url.scheme()) && plain;
        ours.then_some(url)
    }
}

/// A proxy in front may have changed the scheme, so that both default ports are one.
fn comparable(port: u16) -> u16 {
    if port == 80 { 443 } else { port }
}

/// `None` when an escape is broken or the bytes are not UTF-8.
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            let digits = std::str::from_utf8(&digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us() -> Service {
        Service::of_url("wss://relay.example").unwrap()
    }

    #[test]
    fn one_relay_in_several_spellings() {
        for url in [
            "wss://Relay.example",
            "wss://relay.example/",
            "wss://relay.example:443",
            "ws://relay.example:80/",
        ] {
            assert!(us().is_relay_url(url), "{url}");
        }
        for url in [
            "wss://relay.example.evil.org",
            "wss://evil.org/relay.example",
            "wss://evil.org/?wss://relay.example",
            "wss://relay.example@evil.org",
            "wss://user@relay.example",
            "wss://relay.example:7334",
            "wss://relay.example/other",
            "https://relay.example",
            "relay.example",
            "",
        ] {
            assert!(!us().is_relay_url(url), "{url}");
        }
    }

    /// E1: our own address is never dialled, in any spelling.
    #[test]
    fn our_own_address_is_known_in_any_spelling() {
        for url in [
            "wss://relay.example",
            "ws://RELAY.example.:80/path",
            "wss://relay.example:443/",
        ] {
            assert!(us().is_at(&RelayUrl::parse(url).unwrap()), "{url}");
        }
        for url in ["wss://relay.example:7334", "wss://other.example"] {
            assert!(!us().is_at(&RelayUrl::parse(url).unwrap()), "{url}");
        }
    }

    #[test]
    fn a_clone_url_names_owner_and_identifier_exactly() {
        let owner = Pubkey([1; 32]);
        let npub = owner.npub();
        for good in [
            format!("https://relay.example/{npub}/my%20repo.git"),
            format!("http://RELAY.example:80/{npub}/my repo.git"),
            format!("https://relay.example/{npub}/%6dy%20repo.git/"),
        ] {
            assert!(us().is_clone_url(&good, &owner, "my repo"), "{good}");
        }
        let other = Pubkey([2; 32]).npub();
        for bad in [
            format!("https://relay.example/{npub}/my%20repo"),
            format!("https://relay.example/{npub}/other.git"),
            format!("https://relay.example/{other}/my%20repo.git"),
            format!("https://relay.example/x/{npub}/my%20repo.git"),
            format!("https://evil.org/relay.example/{npub}/my%20repo.git"),
            format!("https://relay.example:444/{npub}/my%20repo.git"),
            format!("ssh://relay.example/{npub}/my%20repo.git"),
            format!("https://relay.example/{npub}/my%20repo.git?x"),
            format!("https://relay.example/{npub}/my%zzrepo.git"),
        ] {
            assert!(!us().is_clone_url(&bad, &owner, "my repo"), "{bad}");
        }
    }
}
