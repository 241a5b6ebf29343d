//! Whose address counts: the peer's, or, behind proxies that the operator trusts, the last one
//! in `X-Forwarded-For` that is not such a proxy.

use std::net::{IpAddr, SocketAddr};
use std::sync::Once;

use axum::http::HeaderMap;

use crate::config::ProxyNet;

const FORWARDED_FOR: &str = "x-forwarded-for";

pub(super) struct ClientIp {
    trusted: Vec<ProxyNet>,
    warned: Once,
}

impl ClientIp {
    pub(super) fn new(trusted: Vec<ProxyNet>) -> Self {
        Self {
            trusted,
            warned: Once::new(),
        }
    }

    pub(super) fn is_trusted(&self, ip: IpAddr) -> bool {
        self.trusted.iter().any(|net| net.contains(ip))
    }

    pub(super) fn of(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if !self.is_trusted(peer) {
            self.warn_about_proxy(peer, headers);
            return peer;
        }
        let values = headers
            .get_all(FORWARDED_FOR)
            .iter()
            .filter_map(|value| value.to_str().ok());
        let hops: Vec<&str> = values.flat_map(|value| value.split(',')).collect();
        let mut client = peer;
        for hop in hops.into_iter().rev() {
            let Some(ip) = address(hop.trim()) else {
                break;
            };
            client = ip;
            if !self.is_trusted(ip) {
                break;
            }
        }
        client
    }

    fn warn_about_proxy(&self, peer: IpAddr, headers: &HeaderMap) {
        if headers.contains_key(FORWARDED_FOR) && peer.is_loopback() {
            self.warned.call_once(|| {
                tracing::warn!(
                    %peer,
                    "a proxy sends X-Forwarded-For but is not in NGIT_TRUSTED_PROXIES: \
                     limits per address do not see its clients"
                );
            });
        }
    }
}

/// Some proxies add the port.
fn address(hop: &str) -> Option<IpAddr> {
    let with_port = || hop.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    hop.parse().ok().or_else(with_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(peer: &str, header: &str) -> String {
        let trusted = ["127.0.0.1", "10.0.0.0/8"];
        let trusted = trusted.map(|net| ProxyNet::read(net).unwrap()).to_vec();
        let mut headers = HeaderMap::new();
        headers.insert(FORWARDED_FOR, header.parse().unwrap());
        ClientIp::new(trusted)
            .of(peer.parse().unwrap(), &headers)
            .to_string()
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        assert_eq!(of("192.0.2.9", "198.51.100.1"), "192.0.2.9");
        assert_eq!(of("127.0.0.1", "198.51.100.1"), "198.51.100.1");
        assert_eq!(of("127.0.0.1", "203.0.113.5, 198.51.100.1"), "198.51.100.1");
        assert_eq!(of("127.0.0.1", "198.51.100.1, 10.1.2.3"), "198.51.100.1");
        assert_eq!(of("127.0.0.1", "10.1.2.3"), "10.1.2.3");
        assert_eq!(of("127.0.0.1", "198.51.100.1:1234"), "198.51.100.1");
        assert_eq!(of("127.0.0.1", "[2001:db8::1]:1234"), "2001:db8::1");
        assert_eq!(of("127.0.0.1", "nonsense"), "127.0.0.1");
        assert_eq!(of("127.0.0.1", "198.51.100.1, nonsense"), "127.0.0.1");
    }
}
