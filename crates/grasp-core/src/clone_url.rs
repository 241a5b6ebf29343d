//! Where another git server has a repository, in one spelling.

use std::fmt;
use std::sync::Arc;

use url::Url;

/// Longer ones are nobody's address.
const MAX_LEN: usize = 512;

/// An address that git clones from over the web, in its canonical spelling.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloneUrl {
    text: Arc<str>,
    domain: Domain,
}

/// Host and port of a git server, whatever the scheme: what is asked with care.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(Arc<str>);

impl CloneUrl {
    /// `None` for what is no plain web address: other schemes, names and passwords, queries,
    /// fragments, and a server without a path.
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
        if !matches!(url.scheme(), "http" | "https") || !plain {
            return None;
        }
        let host = url.host_str()?;
        let host = host.strip_suffix('.').unwrap_or(host);
        let path = url.path().trim_end_matches('/');
        if host.is_empty() || path.is_empty() {
            return None;
        }
        let port = match url.port() {
            None => String::new(),
            Some(port) => format!(":{port}"),
        };
        let text: Arc<str> = format!("{}://{host}{port}{path}", url.scheme()).into();
        let domain = match url.port() {
            // With and without encryption it is one machine.
            None | Some(80 | 443) => Domain(host.into()),
            Some(_) => Domain(format!("{host}{port}").into()),
        };
        (text.len() <= MAX_LEN).then_some(Self { text, domain })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl Domain {
    /// As an operator writes it: `git.example`, `git.example:8080`.
    pub fn parse(text: &str) -> Option<Self> {
        let url = CloneUrl::parse(&format!("https://{text}/x"))?;
        (url.as_str().matches('/').count() == 3).then_some(url.domain)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The machine, whatever the port.
    pub fn host(&self) -> &str {
        match self.0.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &self.0,
        }
    }
}

macro_rules! shown_as_text {
    ($($name:ty),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )*};
}

shown_as_text!(CloneUrl, Domain);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_whatever_the_port() {
        for (text, host) in [
            ("git.example", "git.example"),
            ("git.example:8080", "git.example"),
            ("192.0.2.1:99", "192.0.2.1"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("[2001:db8::1]:8080", "[2001:db8::1]"),
        ] {
            assert_eq!(Domain::parse(text).unwrap().host(), host, "{text}");
        }
    }

    #[test]
    fn a_domain_is_one_whatever_the_spelling() {
        for same in [
            "https://git.example/npub1x/a.git",
            "http://git.example/npub1x/a.git/",
            "HTTPS://Git.Example.:443/b.git",
            "http://git.example:443/c",
        ] {
            let url = CloneUrl::parse(same).unwrap();
            assert_eq!(url.domain().as_str(), "git.example", "{same}");
        }
        let other = CloneUrl::parse("http://git.example:8080/a.git").unwrap();
        assert_eq!(other.domain().as_str(), "git.example:8080");
        assert_eq!(Domain::parse("Git.Example:8080"), Some(other.domain));
        assert_eq!(Domain::parse("git.example/x"), None);
    }

    #[test]
    fn only_plain_web_addresses_are_clone_urls() {
        for bad in [
            "",
            "git.example/a.git",
            "ssh://git@git.example/a.git",
            "git://git.example/a.git",
            "file:///etc/passwd",
            "ext::sh -c x",
            "https://user@git.example/a.git",
            "https://:pw@git.example/a.git",
            "https://git.example",
            "https://git.example/",
            "https://git.example/a.git?x=1",
            "https://git.example/a.git#x",
            "https://./a.git",
        ] {
            assert_eq!(CloneUrl::parse(bad), None, "{bad}");
        }
        assert_eq!(
            CloneUrl::parse(&format!("https://a.example/{}", "x".repeat(600))),
            None
        );
    }
}
