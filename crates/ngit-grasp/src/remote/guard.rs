//! The one door for connections that we open. Addresses come from strangers: they must not lead
//! us to machines that only we can reach, nor to our own and those beside it. A name is resolved once, every answer is looked at, and
//! what was looked at is dialled.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::http::Uri;
use grasp_core::sync::io::End;

use super::local::{Local, LocalNetworks};
use super::lookup::LookUps;
use super::ports::is_of_others;
use crate::config::ProxyNet;

/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 4;

/// A URL taken apart: what is needed to dial it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub tls: bool,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    /// As in a `Host` header.
    pub authority: String,
    /// Begins with a slash.
    pub path: String,
}

impl Target {
    /// `None` for other schemes than those of web and websocket, and for what names nobody.
    pub fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let tls = match uri.scheme_str()? {
            "wss" | "https" => true,
            "ws" | "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?;
        if authority.as_str().contains('@') {
            return None;
        }
        let host = authority.host();
        let port = match authority.as_str().strip_prefix(host)? {
            "" if tls => 443,
            "" => 80,
            port => port.strip_prefix(':')?.parse().ok()?,
        };
        let host = host.strip_prefix('[').unwrap_or(host);
        let host = host.strip_suffix(']').unwrap_or(host);
        if host.is_empty() || port == 0 {
            return None;
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Some(Self {
            tls,
            host: host.to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            path: path.to_owned(),
        })
    }
}

/// Where the operator lets us go.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// Also to private and local addresses that strangers name.
    pub allow_private: bool,
    /// Never there, whoever names it.
    pub deny: Vec<ProxyNet>,
    /// The host that clients know us by: where it leads is here, or our router.
    pub own_host: Option<String>,
}

#[derive(Clone)]
pub struct Guard {
    allow_private: bool,
    deny: Vec<ProxyNet>,
    local: Arc<Local>,
    lookups: LookUps,
}

impl Guard {
    pub fn new(reach: Reach) -> Self {
        Self::with(reach, LookUps::new(), LocalNetworks::of_this_machine)
    }

    fn with(reach: Reach, lookups: LookUps, list: fn() -> LocalNetworks) -> Self {
        Self {
            allow_private: reach.allow_private,
            deny: reach.deny,
            local: Arc::new(Local::new(reach.own_host, list)),
            lookups,
        }
    }

    /// The addresses of a name that may be dialled; never none. `trusted` is what the operator
    /// named, wherever it is.
    pub async fn resolve(&self, target: &Target, trusted: bool) -> Result<Vec<SocketAddr>, End> {
        let any = self.allow_private || trusted;
        if !any && is_of_others(target.port) {
            return Err(End::Blocked);
        }
        let found = self.look_up(target.host.clone(), target.port).await?;
        let local = match any {
            true => Arc::default(),
            false => self.local.current(&self.lookups).await,
        };
        let mut may: Vec<SocketAddr> = found
            .into_iter()
            .filter(|address| !self.is_denied(address.ip()))
            .filter(|address| any || is_strange(address.ip(), &local))
            .collect();
        may.truncate(MAX_ADDRESSES);
        if may.is_empty() {
            return Err(End::Blocked);
        }
        Ok(may)
    }

    fn is_denied(&self, ip: IpAddr) -> bool {
        spellings(ip).any(|ip| self.deny.iter().any(|net| net.contains(ip)))
    }

    async fn look_up(&self, host: String, port: u16) -> Result<Vec<SocketAddr>, End> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        self.lookups.find(host, port).await
    }
}

/// Whether strangers may lead us there: anybody can reach it, and from here it is not nearer than
/// from anywhere else.
fn is_strange(ip: IpAddr, local: &LocalNetworks) -> bool {
    is_public(ip) && !spellings(ip).any(|ip| local.contains(ip))
}

/// An address, and the IPv4 address that it stands for.
fn spellings(ip: IpAddr) -> impl Iterator<Item = IpAddr> {
    let inner = match ip {
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) => inner_v4(ip),
    };
    [Some(ip), inner.map(IpAddr::V4)].into_iter().flatten()
}

/// True for addresses that anybody on the internet can reach.
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

/// Reserved by the IANA registry of special addresses, and what is no single machine.
const NOT_PUBLIC_V4: [(Ipv4Addr, u32); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let within = |(network, bits): &(Ipv4Addr, u32)| {
        (ip.to_bits() ^ network.to_bits()).checked_shr(32 - bits) == Some(0)
    };
    !NOT_PUBLIC_V4.iter().any(within)
}

/// Public addresses are in 2000::/3; of these the ones that are not.
const NOT_PUBLIC_V6: [(Ipv6Addr, u32); 3] = [
    // Tunnels, test networks and hashes that look like addresses.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

const GLOBAL: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

fn is_public_v6(ip: Ipv6Addr) -> bool {
    if let Some(inner) = inner_v4(ip) {
        return is_public_v4(inner);
    }
    let within = |(network, bits): &(Ipv6Addr, u32)| {
        (ip.to_bits() ^ network.to_bits()).checked_shr(128 - bits) == Some(0)
    };
    within(&GLOBAL) && !NOT_PUBLIC_V6.iter().any(within)
}

/// The IPv4 address that a packet to this address ends at: mapped, NAT64, 6to4.
fn inner_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match ip.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] => Some(v4(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_everybody_can_reach_is_public() {
        for ip in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:200::1",
            "2a00::1",
            "3ffe::1",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
        ] {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
        for ip in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::127.0.0.1",
            "::1.1.1.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::127.0.0.1",
            "64:ff9b::192.168.0.1",
            "64:ff9b:1::1.1.1.1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:c0a8:101::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn urls_are_taken_apart_or_refused() {
        let target = Target::parse("wss://relay.example/inbox").unwrap();
        assert_eq!((target.host.as_str(), target.port), ("relay.example", 443));
        assert_eq!(target.authority, "relay.example");
        assert!(target.tls && target.path == "/inbox");
        let target = Target::parse("http://[::1]:8080").unwrap();
        assert_eq!((target.host.as_str(), target.port), ("::1", 8080));
        assert_eq!(target.authority, "[::1]:8080");
        assert!(!target.tls && target.path == "/");
        for bad in [
            "",
            "relay.example",
            "/path",
            "file:///etc/passwd",
            "ftp://relay.example",
            "gopher://relay.example",
            "ssh://git@relay.example",
            "https://user:secret@relay.example",
            "wss://relay.example:0",
            "wss://relay.example:99999",
        ] {
            assert_eq!(Target::parse(bad), None, "{bad}");
        }
    }

    async fn resolved(url: &str, allow_private: bool, trusted: bool) -> Result<usize, End> {
        let target = Target::parse(url).unwrap();
        let guard = Guard::new(Reach {
            allow_private,
            ..Reach::default()
        });
        let found = guard.resolve(&target, trusted).await;
        found.map(|found| found.len())
    }

    #[tokio::test]
    async fn no_stranger_makes_us_talk_to_a_mail_server() {
        for (url, found) in [
            ("http://1.1.1.1:25/a.git", Err(End::Blocked)),
            ("https://1.1.1.1:6667/a.git", Err(End::Blocked)),
            ("wss://1.1.1.1:22", Err(End::Blocked)),
            ("http://1.1.1.1/a.git", Ok(1)),
            ("https://1.1.1.1:8443/a.git", Ok(1)),
        ] {
            assert_eq!(resolved(url, false, false).await, found, "{url}");
            assert_eq!(resolved(url, false, true).await, Ok(1), "{url}");
        }
    }

    #[tokio::test]
    async fn private_addresses_are_dialled_only_when_the_operator_says_so() {
        for url in [
            "ws://127.0.0.1:1",
            "ws://localhost:1",
            "ws://[::1]:1",
            "ws://[::ffff:10.0.0.1]",
        ] {
            assert_eq!(
                resolved(url, false, false).await,
                Err(End::Blocked),
                "{url}"
            );
            assert!(resolved(url, true, false).await.is_ok(), "{url}");
            assert!(resolved(url, false, true).await.is_ok(), "{url}");
        }
        // Other spellings of a number are no number here; whatever the resolver makes of them is
        // looked at like any answer.
        for url in ["ws://2130706433", "ws://0x7f000001", "ws://127.1"] {
            let found = resolved(url, false, false).await;
            assert!(
                matches!(found, Err(End::Blocked | End::NoSuchHost)),
                "{url}"
            );
        }
    }

    /// A machine with a public address of each kind, a router that is not on its network, and a
    /// tunnel to everywhere.
    fn neighbourhood() -> LocalNetworks {
        let interface = |ip: &str, prefix| (ip.parse().unwrap(), prefix);
        let interfaces = [
            interface("9.9.9.9", 24),
            interface("8.8.4.4", 32),
            interface("2606:4700:1::5", 64),
            interface("2606:4700:2::5", 128),
            interface("2606:4700:3::5", 48),
            interface("11.0.0.1", 0),
            interface("::ffff:12.0.0.1", 120),
        ];
        let routers = ["7.7.7.7", "2606:4700:9::1"].map(|ip| ip.parse().unwrap());
        LocalNetworks::new(interfaces, routers)
    }

    #[test]
    fn what_is_beside_us_is_not_for_strangers_to_name() {
        let local = neighbourhood();
        for near in [
            "9.9.9.9",
            "9.9.9.200",
            "8.8.4.4",
            "7.7.7.7",
            "11.0.0.1",
            "12.0.0.200",
            "2606:4700:1::5",
            "2606:4700:1::ffff",
            "2606:4700:2::1",
            "2606:4700:3:ffff::1",
            "2606:4700:9::1",
            "::ffff:9.9.9.9",
            "64:ff9b::9.9.9.9",
            "2002:909:909::1",
        ] {
            let ip = near.parse().unwrap();
            assert!(is_public(ip) && !is_strange(ip, &local), "{near}");
        }
        for far in [
            "9.9.8.9",
            "8.8.4.5",
            "11.0.0.2",
            "1.1.1.1",
            "7.7.7.8",
            "2606:4700:1:1::5",
            "2606:4700:2:1::5",
            "2606:4700:4::5",
            "2606:4700:9::2",
        ] {
            assert!(is_strange(far.parse().unwrap(), &local), "{far}");
        }
    }

    fn named(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        let ip = match host {
            "git.example" | "other.example" => "1.2.3.4",
            "beside.example" => "9.9.9.10",
            _ => "1.1.1.1",
        };
        Ok(vec![SocketAddr::new(ip.parse().unwrap(), port)])
    }

    async fn guarded(reach: Reach, url: &str, trusted: bool) -> Result<usize, End> {
        let guard = Guard::with(reach, LookUps::by(named), neighbourhood);
        let found = guard.resolve(&Target::parse(url).unwrap(), trusted).await;
        found.map(|found| found.len())
    }

    #[tokio::test]
    async fn no_name_leads_a_stranger_to_ourselves_or_our_neighbours() {
        let reach = || Reach {
            own_host: Some("git.example".into()),
            ..Reach::default()
        };
        for url in [
            "https://git.example",
            "http://other.example:8080",
            "http://1.2.3.4:8080",
            "http://[::ffff:1.2.3.4]:8080",
            "wss://beside.example",
        ] {
            assert_eq!(guarded(reach(), url, false).await, Err(End::Blocked));
            assert_eq!(guarded(reach(), url, true).await, Ok(1), "{url}");
            let open = Reach {
                allow_private: true,
                ..reach()
            };
            assert_eq!(guarded(open, url, false).await, Ok(1), "{url}");
        }
        let far = "wss://relay.example";
        assert_eq!(guarded(reach(), far, false).await, Ok(1));
    }

    #[tokio::test]
    async fn a_denied_network_is_dialled_for_nobody() {
        let deny = ["1.2.0.0/16", "10.0.0.0/8", "2a00::/16"];
        let reach = |allow_private| Reach {
            allow_private,
            deny: deny.map(|net| ProxyNet::read(net).unwrap()).to_vec(),
            own_host: None,
        };
        for url in [
            "https://other.example",
            "http://1.2.255.1",
            "http://[::ffff:10.0.0.1]",
            "http://[64:ff9b::1.2.3.4]",
            "http://[2a00::1]",
        ] {
            for (allow_private, trusted) in [(false, false), (true, false), (true, true)] {
                let found = guarded(reach(allow_private), url, trusted).await;
                assert_eq!(found, Err(End::Blocked), "{url}");
            }
        }
        let fine = "https://relay.example";
        assert_eq!(guarded(reach(false), fine, false).await, Ok(1));
    }
}
