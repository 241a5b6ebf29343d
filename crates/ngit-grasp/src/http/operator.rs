//! Who is the operator: somebody who has the token, or a command that can read the owner's key.
//! Where there is no token and no proxy, also whoever is on this machine and speaks for nobody else.

use std::net::IpAddr;

use axum::http::HeaderMap;
use axum::http::header::{self, HeaderName};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::config::{Config, ProxyNet, Secret};
use crate::status::Audience;

/// What only those send who pass on what others say. With any of them a peer on this machine is a
/// proxy, trusted or not.
const PASSED_ON: [HeaderName; 3] = [
    HeaderName::from_static("x-real-ip"),
    header::FORWARDED,
    header::VIA,
];
const PASSED_ON_BEGINS: &str = "x-forwarded-";

pub(super) struct Operator {
    token: Option<Secret>,
    /// What commands on this machine show.
    pass: String,
    /// Where somebody else's words may come from.
    proxies: Vec<ProxyNet>,
    /// Our own address, if we listen at one only: what comes from it comes from this machine.
    own: Option<IpAddr>,
}

impl Operator {
    pub(super) fn new(config: &Config, pass: String) -> Self {
        let own = config.bind_address.ip();
        Self {
            token: config.status_token.clone(),
            pass,
            proxies: config.trusted_proxies.clone(),
            own: (!own.is_unspecified()).then_some(own),
        }
    }

    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(super) fn audience(&self, peer: IpAddr, headers: &HeaderMap) -> Audience {
        if self.is_local(peer, headers) || self.shows_token(headers) {
            Audience::Operator
        } else {
            Audience::Public
        }
    }

    /// Some proxies say nothing of whom they speak for, so that a stranger looks as if he were
    /// here: where the operator has named a proxy or set a token, being here is not enough. A page
    /// of another site that is open in the operator's browser has an `Origin`, or, if its name was
    /// made to lead to this machine, a `Host` that is a name.
    fn is_local(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        let here = peer.to_canonical().is_loopback() || self.own == Some(peer);
        let may_be_proxy = self.proxies.iter().any(|net| net.contains(peer));
        let host = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        here && self.token.is_none()
            && !may_be_proxy
            && !headers.keys().any(tells_of_a_proxy)
            && !headers.contains_key(header::ORIGIN)
            && host.is_some_and(is_no_name)
    }

    fn shows_token(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION);
        let shown = shown.and_then(|value| shown_token(value.to_str().ok()?));
        let Some(shown) = shown else {
            return false;
        };
        let token = self.token.as_ref().map(Secret::reveal);
        let known = token.into_iter().chain([self.pass.as_str()]);
        known.fold(false, |found, one| found | same(one.as_bytes(), &shown))
    }
}

fn tells_of_a_proxy(name: &HeaderName) -> bool {
    PASSED_ON.contains(name) || name.as_str().starts_with(PASSED_ON_BEGINS)
}

/// An address, or this machine's own name: nobody else can make it lead elsewhere.
fn is_no_name(host: &str) -> bool {
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

/// `Bearer` and the token, or what a browser asks its user for: any name, and the token.
fn shown_token(value: &str) -> Option<Vec<u8>> {
    let (scheme, rest) = value.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(rest).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded.get(colon + 1..)?.to_vec())
}

/// Takes as long for a token that is nearly right as for one that is all wrong.
fn same(one: &[u8], other: &[u8]) -> bool {
    let (one, other) = (Sha256::digest(one), Sha256::digest(other));
    let differ = one.iter().zip(other.iter()).map(|(a, b)| a ^ b);
    differ.fold(0, |all, byte| all | byte) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::for_tests;

    const PASS: &str = "made from the key";

    fn audience(env: &[(&str, &str)], peer: &str, headers: &[(&'static str, &str)]) -> Audience {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let operator = Operator::new(&for_tests(env), PASS.to_owned());
        operator.audience(peer.parse().unwrap(), &map)
    }

    #[test]
    fn whoever_is_on_this_machine_is_the_operator() {
        let of = |peer, host| audience(&[], peer, &[("host", host)]);
        assert_eq!(of("127.0.0.1", "127.0.0.1:7334"), Audience::Operator);
        assert_eq!(of("::1", "[::1]:7334"), Audience::Operator);
        assert_eq!(of("::ffff:127.0.0.1", "localhost"), Audience::Operator);
        assert_eq!(audience(&[], "127.0.0.1", &[]), Audience::Public);
        assert_eq!(of("192.0.2.1", "127.0.0.1"), Audience::Public);
        let own = [("NGIT_BIND_ADDRESS", "192.0.2.1:80")];
        let host = [("host", "192.0.2.1")];
        assert_eq!(audience(&own, "192.0.2.1", &host), Audience::Operator);
    }

    /// Also one that is not in the list of trusted proxies.
    #[test]
    fn whoever_comes_through_a_proxy_is_not() {
        for (name, value) in [
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-for", ""),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=127.0.0.1"),
            ("x-real-ip", "127.0.0.1"),
            ("via", "1.1 proxy"),
        ] {
            let headers = [("host", "localhost"), (name, value)];
            let of = audience(&[], "127.0.0.1", &headers);
            assert_eq!(of, Audience::Public, "{name}: {value}");
        }
    }

    /// A plain `proxy_pass` of nginx sends what somebody on this machine would.
    #[test]
    fn where_a_proxy_or_a_token_is_set_being_here_is_not_enough() {
        let host = [("host", "127.0.0.1:7334")];
        for env in [
            ("NGIT_TRUSTED_PROXIES", "127.0.0.1"),
            ("NGIT_STATUS_TOKEN", "correct horse battery"),
        ] {
            assert_eq!(audience(&[env], "127.0.0.1", &host), Audience::Public);
        }
        let elsewhere = [("NGIT_TRUSTED_PROXIES", "192.0.2.7")];
        assert_eq!(audience(&elsewhere, "127.0.0.1", &host), Audience::Operator);
    }

    #[test]
    fn a_command_that_can_read_the_key_is_the_operator() {
        let env = [("NGIT_TRUSTED_PROXIES", "127.0.0.1")];
        let of = |value: &str| audience(&env, "127.0.0.1", &[("authorization", value)]);
        assert_eq!(of(&format!("Bearer {PASS}")), Audience::Operator);
        assert_eq!(of("Bearer made from another"), Audience::Public);
    }

    #[test]
    fn a_page_of_another_site_in_the_operators_browser_is_not() {
        let of = |name, value| {
            let headers = [("host", "localhost"), (name, value)];
            audience(&[], "127.0.0.1", &headers)
        };
        assert_eq!(of("origin", "https://evil.example"), Audience::Public);
        assert_eq!(of("origin", "null"), Audience::Public);
        let of = |host| audience(&[], "127.0.0.1", &[("host", host)]);
        assert_eq!(of("evil.example:7334"), Audience::Public);
        assert_eq!(of("127.0.0.1.evil.example"), Audience::Public);
        assert_eq!(of(""), Audience::Public);
    }

    #[test]
    fn whoever_has_the_token_is_the_operator() {
        let token = "correct: horse battery";
        let env = [("NGIT_STATUS_TOKEN", token)];
        let of = |value: &str| audience(&env, "192.0.2.1", &[("authorization", value)]);
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert_eq!(of(&format!("Bearer {token}")), Audience::Operator);
        assert_eq!(of(&format!("bearer {token}")), Audience::Operator);
        assert_eq!(of(&basic(&format!("me:{token}"))), Audience::Operator);
        assert_eq!(of(&basic(&format!(":{token}"))), Audience::Operator);
        for wrong in [
            "Bearer",
            "Bearer ",
            "Basic",
            "Basic !",
            "Bearer correct: horse",
        ] {
            assert_eq!(of(wrong), Audience::Public, "{wrong}");
        }
        assert_eq!(of(&basic(token)), Audience::Public);
        assert_eq!(of(&basic("me")), Audience::Public);
        let nobody = audience(&[], "192.0.2.1", &[("authorization", "Bearer ")]);
        assert_eq!(nobody, Audience::Public, "without a token nobody has it");
    }
}
