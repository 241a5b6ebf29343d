//! Where another relay is, in one spelling.

use std::fmt;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

/// Longer ones are nobody's address.
const MAX_LEN: usize = 256;

/// A websocket address in its canonical spelling. Two that differ only in their scheme mean one
/// relay: see [`RelayUrl::key`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayUrl {
    text: Arc<str>,
    /// Where in the text host, port and path begin.
    rest: usize,
}

impl RelayUrl {
    /// `None` for what is no plain websocket address: other schemes, names and passwords,
    /// queries, fragments.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() > MAX_LEN {
            return None;
        }
        let url = Url::parse(text).ok()?;
        let plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if !matches!(url.scheme(), "ws" | "wss") || !plain {
            return None;
        }
        let host = url.host_str()?;
        let host = host.strip_suffix('.').unwrap_or(host);
        if host.is_empty() {
            return None;
        }
        let port = match url.port() {
            // A proxy in front may have changed the scheme, so that both default ports are one.
            None | Some(80 | 443) => String::new(),
            Some(port) => format!(":{port}"),
        };
        let path = url.path().trim_end_matches('/');
        let scheme = url.scheme();
        let text: Arc<str> = format!("{scheme}://{host}{port}{path}").into();
        let rest = scheme.len() + 3;
        (text.len() <= MAX_LEN).then_some(Self { text, rest })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Equal for all addresses of one relay, with or without encryption.
    pub fn key(&self) -> &str {
        self.text.get(self.rest..).unwrap_or_default()
    }

    pub fn is_tls(&self) -> bool {
        self.text.starts_with("wss:")
    }
}

impl fmt::Display for RelayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for RelayUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for RelayUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not the address of a relay"))
    }
}

impl fmt::Debug for RelayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_relay_in_many_spellings() {
        for spelling in [
            "wss://relay.example",
            "wss://RELAY.example/",
            " wss://relay.example:443/ ",
            "wss://relay.example.",
            "ws://relay.example:80",
            "ws://relay.example:443//",
        ] {
            let url = RelayUrl::parse(spelling).unwrap();
            assert_eq!(url.key(), "relay.example", "{spelling}");
        }
        let url = RelayUrl::parse("wss://B\u{fc}cher.example:7777/Inbox/").unwrap();
        assert_eq!(url.as_str(), "wss://xn--bcher-kva.example:7777/Inbox");
        assert!(url.is_tls());
        assert_eq!(RelayUrl::parse(url.as_str()), Some(url));
    }

    #[test]
    fn what_is_no_address_of_a_relay_is_refused() {
        let long = format!("wss://{}.example", "a".repeat(MAX_LEN));
        for bad in [
            "",
            "relay.example",
            "https://relay.example",
            "file:///etc/passwd",
            "wss://",
            "wss://user@relay.example",
            "wss://user:secret@relay.example",
            "wss://relay.example/?x=1",
            "wss://relay.example/#x",
            "wss://relay example",
            &long,
        ] {
            assert_eq!(RelayUrl::parse(bad), None, "{bad}");
        }
    }
}
