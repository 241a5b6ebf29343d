//! Settings that are hosts and addresses: where to listen, what the server is called, which
//! peers to believe, how often other git servers are asked.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;

use grasp_core::clone_url::Domain as GitDomain;
use grasp_core::{DomainLimits, RelayUrl};

use super::value::{Rules, Setting, Shape, quoted, refusal};

impl Setting for SocketAddr {
    fn expects(_: &Rules) -> String {
        "an address with a port such as 127.0.0.1:7334, [::1]:7334 or :7334".into()
    }

    /// A missing host means every IPv4 interface. `localhost` is not looked up: the answer of
    /// a resolver must not decide which interface the server is reachable on.
    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        let named = |host: &str, ip: Ipv4Addr| {
            let port = text.strip_prefix(host)?.strip_prefix(':')?.parse().ok()?;
            Some(Self::from((ip, port)))
        };
        let address = text.parse().ok();
        address
            .or_else(|| named("localhost", Ipv4Addr::LOCALHOST))
            .or_else(|| named("", Ipv4Addr::UNSPECIFIED))
            .ok_or_else(|| refusal::<Self>(text, rules))
    }

    fn show(&self, _: &Rules) -> String {
        self.to_string()
    }
}

/// The public name of the server: a host and, if it is not the scheme's own, a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Lower case; an IPv6 address keeps its brackets.
    pub host: String,
    pub port: Option<u16>,
}

impl Domain {
    /// Names nobody can reach from another machine; they have no certificate either.
    pub fn is_loopback(&self) -> bool {
        let ip = self.host.trim_matches(['[', ']']).parse::<IpAddr>();
        ip.map_or_else(
            |_| self.host == "localhost" || self.host.ends_with(".localhost"),
            |ip| ip.to_canonical().is_loopback(),
        )
    }

    fn read(text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((ip, port)) => (format!("[{}]", ip.parse::<Ipv6Addr>().ok()?), port),
            None => {
                let end = text.find(':').unwrap_or(text.len());
                let (host, port) = text.split_at_checked(end)?;
                is_host_name(host).then(|| (host.to_ascii_lowercase(), port))?
            }
        };
        let port = match port.strip_prefix(':') {
            Some(number) => Some(number.parse::<NonZeroU16>().ok()?.get()),
            None if port.is_empty() => None,
            None => return None,
        };
        Some(Self { host, port })
    }
}

/// RFC 1123, and a name that ends in a number must be a whole IPv4 address, as browsers read it.
fn is_host_name(host: &str) -> bool {
    let label_is_fine = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let ends_in_number = host
        .rsplit('.')
        .next()
        .is_some_and(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
    host.len() <= 253
        && host.split('.').all(label_is_fine)
        && (!ends_in_number || host.parse::<Ipv4Addr>().is_ok())
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Setting for Domain {
    fn expects(_: &Rules) -> String {
        "a host name, with a port if needed, such as git.example.com".into()
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        let hint = if let Some((scheme, _)) = text.split_once("://") {
            format!("give only the host, without {scheme}://")
        } else if text.contains(['/', '?', '#']) {
            "give only the host, without a path".into()
        } else if text.parse::<Ipv6Addr>().is_ok() {
            format!("put the IPv6 address in brackets, [{text}]")
        } else if !text.is_ascii() {
            "give an international name in its xn-- form".into()
        } else {
            return Self::read(text).ok_or_else(|| refusal::<Self>(text, rules));
        };
        Err(format!("{hint}, not {}", quoted(text)))
    }

    fn show(&self, _: &Rules) -> String {
        self.to_string()
    }
}

/// An address range. IPv4 written as IPv6 (`::ffff:10.0.0.1`) counts as IPv4 on both sides,
/// because a socket that serves both reports IPv4 peers that way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyNet {
    addr: IpAddr,
    prefix: u8,
}

impl ProxyNet {
    /// `None` if the prefix is longer than the address. Of an IPv4 address written as IPv6 the
    /// prefix is that of IPv6.
    pub fn new(written: IpAddr, prefix: u8) -> Option<Self> {
        let addr = written.to_canonical();
        let longest = width(addr);
        // `::ffff:10.0.0.0/104` is 10.0.0.0/8.
        let prefix = prefix.checked_sub(width(written) - longest)?;
        (prefix <= longest).then(|| Self {
            addr: masked(addr, prefix),
            prefix,
        })
    }

    /// One address.
    pub fn only(ip: IpAddr) -> Self {
        let addr = ip.to_canonical();
        let prefix = width(addr);
        Self { addr, prefix }
    }

    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.addr.is_ipv4() && masked(ip, self.prefix) == self.addr
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        let (addr, prefix) = text
            .split_once('/')
            .map_or((text, None), |(addr, prefix)| (addr, Some(prefix)));
        let written: IpAddr = addr.trim().parse().ok()?;
        match prefix {
            Some(prefix) => Self::new(written, prefix.trim().parse().ok()?),
            None => Some(Self::only(written)),
        }
    }
}

fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn masked(ip: IpAddr, prefix: u8) -> IpAddr {
    let rest = u32::from(width(ip).saturating_sub(prefix));
    match ip {
        IpAddr::V4(ip) => {
            IpAddr::V4((ip.to_bits() & u32::MAX.checked_shl(rest).unwrap_or(0)).into())
        }
        IpAddr::V6(ip) => {
            IpAddr::V6((ip.to_bits() & u128::MAX.checked_shl(rest).unwrap_or(0)).into())
        }
    }
}

impl Setting for ProxyNet {
    fn expects(_: &Rules) -> String {
        "an IP address or a range such as 10.0.0.0/8".into()
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        Self::read(text).ok_or_else(|| refusal::<Self>(text, rules))
    }

    fn show(&self, _: &Rules) -> String {
        if self.prefix == width(self.addr) {
            return self.addr.to_string();
        }
        format!("{}/{}", self.addr, self.prefix)
    }
}

impl Setting for RelayUrl {
    fn expects(_: &Rules) -> String {
        "the address of a relay such as wss://relay.example.com".into()
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| refusal::<Self>(text, rules))
    }

    fn show(&self, _: &Rules) -> String {
        self.to_string()
    }
}

impl Setting for GitDomain {
    fn expects(_: &Rules) -> String {
        "a host, with its port if it is not the usual one, such as git.example.com:8080".into()
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| refusal::<Self>(text, rules))
    }

    fn show(&self, _: &Rules) -> String {
        self.to_string()
    }
}

/// Git servers that are asked more often than others, or less.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainOverrides(BTreeMap<GitDomain, DomainLimits>);

/// A larger number is rather a port, and the limit behind it was forgotten.
const MOST_AT_ONCE: u32 = 1_000;
const MOST_PER_MINUTE: u32 = 10_000;

impl DomainOverrides {
    pub fn limits(&self) -> BTreeMap<GitDomain, DomainLimits> {
        self.0.clone()
    }

    fn read(domain: &str, per_minute: &str) -> Option<(GitDomain, DomainLimits)> {
        let (domain, concurrent) = domain.rsplit_once(':')?;
        let number = |text: &str, most: u32| {
            let number = text.parse().ok();
            number.filter(|number| (1..=most).contains(number))
        };
        let limits = DomainLimits {
            concurrent: number(concurrent, MOST_AT_ONCE)?,
            per_minute: number(per_minute, MOST_PER_MINUTE)?,
        };
        Some((GitDomain::parse(domain)?, limits))
    }
}

impl Setting for DomainOverrides {
    const SHAPE: Shape = Shape::List;

    fn expects(_: &Rules) -> String {
        format!(
            "a comma-separated list, each a host, with its port if it is not the usual one, a colon, \
             how many at once (1 to {MOST_AT_ONCE}), a comma and how many in a minute (1 to \
             {MOST_PER_MINUTE}), such as github.com:10,60"
        )
    }

    /// The comma inside of an entry is that between entries: they are read in pairs.
    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim);
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        let mut overrides = BTreeMap::new();
        for entry in parts.chunks(2) {
            let read = match entry {
                [domain, per_minute] => Self::read(domain, per_minute),
                _ => None,
            };
            let wrong = || refusal::<Self>(&entry.join(","), rules);
            let (domain, limits) = read.ok_or_else(wrong)?;
            if overrides.insert(domain.clone(), limits).is_some() {
                return Err(format!("has {domain} twice"));
            }
        }
        Ok(Self(overrides))
    }

    fn show(&self, _: &Rules) -> String {
        let entry = |(domain, limits): (&GitDomain, &DomainLimits)| {
            format!("{domain}:{},{}", limits.concurrent, limits.per_minute)
        };
        let entries: Vec<String> = self.0.iter().map(entry).collect();
        entries.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules::of("NGIT_TEST")
    }

    fn read<T: Setting>(text: &str) -> Result<T, String> {
        T::parse(text, &rules())
    }

    fn shown<T: Setting>(text: &str) -> String {
        read::<T>(text).map_or_else(|error| error, |value| value.show(&rules()))
    }

    #[test]
    fn an_address_may_leave_out_the_host_or_say_localhost() {
        assert_eq!(shown::<SocketAddr>("localhost:7334"), "127.0.0.1:7334");
        assert_eq!(shown::<SocketAddr>(":7334"), "0.0.0.0:7334");
        assert_eq!(shown::<SocketAddr>("[::1]:80"), "[::1]:80");
        for text in [
            "7334",
            "127.0.0.1",
            "localhost",
            "example.com:80",
            ":99999",
            "::1:",
        ] {
            assert!(read::<SocketAddr>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_domain_is_a_host_with_an_optional_port_in_lower_case() {
        assert_eq!(shown::<Domain>("Git.Example.COM"), "git.example.com");
        assert_eq!(shown::<Domain>("localhost:7334"), "localhost:7334");
        assert_eq!(shown::<Domain>("[::1]:7334"), "[::1]:7334");
        assert_eq!(shown::<Domain>("192.0.2.1:80"), "192.0.2.1:80");
    }

    #[test]
    fn what_is_not_a_domain_gets_a_hint() {
        let cases = [
            (
                "https://a.b",
                "give only the host, without https://, not \"https://a.b\"",
            ),
            ("a.b/c", "give only the host, without a path, not \"a.b/c\""),
            (
                "::1",
                "put the IPv6 address in brackets, [::1], not \"::1\"",
            ),
            (
                "bücher.example",
                "give an international name in its xn-- form, not \"bücher.example\"",
            ),
        ];
        for (text, hint) in cases {
            assert_eq!(read::<Domain>(text), Err(hint.into()));
        }
        let senseless = [
            "a b",
            "a..b",
            "-a.b",
            "a.b.",
            "me@a.b",
            "a.b:",
            "a.b:0",
            "a.b:70000",
            "256.1.1.1",
            "[::1",
            "[::1]x",
            ":80",
            "*",
        ];
        for text in senseless {
            assert!(read::<Domain>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_names_are_known() {
        for text in [
            "localhost",
            "localhost:1",
            "git.localhost",
            "127.8.8.8",
            "[::1]:7334",
        ] {
            assert!(read::<Domain>(text).unwrap().is_loopback(), "{text}");
        }
        for text in [
            "notlocalhost",
            "localhost.example.com",
            "192.168.1.1",
            "[2001:db8::1]",
        ] {
            assert!(!read::<Domain>(text).unwrap().is_loopback(), "{text}");
        }
    }

    #[test]
    fn the_address_of_a_relay_is_shown_in_one_spelling() {
        let shown = shown::<Vec<RelayUrl>>("wss://Relay.example:443/, ws://127.0.0.1:7777");
        assert_eq!(shown, "wss://relay.example,ws://127.0.0.1:7777");
        assert!(<RelayUrl as Setting>::parse("relay.example", &rules()).is_err());
    }

    #[test]
    fn a_proxy_range_contains_its_addresses_and_no_others() {
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("::1", "::1", true),
            ("::1", "::2", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "::ffff:192.0.2.1", false),
            ("fd00::/8", "fdff::1", true),
        ];
        for (net, ip, contained) in cases {
            let net: ProxyNet = read(net).unwrap();
            assert_eq!(net.contains(ip.parse().unwrap()), contained, "{net:?} {ip}");
        }
        for text in [
            "10.0.0.0/33",
            "::/129",
            "proxy.example.com",
            "10.0.0.0/",
            "::ffff:0:0/95",
        ] {
            assert!(read::<ProxyNet>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_proxy_range_is_shown_without_what_its_prefix_cuts_off() {
        assert_eq!(shown::<ProxyNet>("10.1.2.3/8"), "10.0.0.0/8");
        assert_eq!(shown::<ProxyNet>("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(shown::<ProxyNet>("::1/128"), "::1");
    }

    #[test]
    fn overrides_are_read_in_pairs() {
        let text = "GitHub.com.:10,60, git.example:8080:1,2,[::1]:3,4";
        let overrides: DomainOverrides = read(text).unwrap();
        let limits = overrides.limits();
        let of = |domain: &str| limits[&GitDomain::parse(domain).unwrap()];
        assert_eq!(
            (of("github.com").concurrent, of("github.com").per_minute),
            (10, 60)
        );
        assert_eq!(of("git.example:8080").per_minute, 2);
        assert_eq!(of("[::1]").concurrent, 3);
        let shown = overrides.show(&rules());
        assert_eq!(read::<DomainOverrides>(&shown), Ok(overrides));
        assert_eq!(read::<DomainOverrides>(""), Ok(DomainOverrides::default()));
    }

    #[test]
    fn a_bad_override_is_named() {
        for (text, named) in [
            ("github.com", "\"github.com\""),
            ("a.example:1,2,github.com:10", "\"github.com:10\""),
            ("github.com,60", "\"github.com,60\""),
            ("github.com:0,60", "\"github.com:0,60\""),
            ("github.com:10,0", "\"github.com:10,0\""),
            ("git.example:8080,60", "\"git.example:8080,60\""),
            ("https://github.com:10,60", "\"https://github.com:10,60\""),
            ("github.com/x:10,60", "\"github.com/x:10,60\""),
        ] {
            let error = read::<DomainOverrides>(text).unwrap_err();
            assert!(error.ends_with(&format!("not {named}")), "{error}");
        }
        let twice = read::<DomainOverrides>("a.example:1,2,A.example:443:3,4");
        assert_eq!(twice, Err("has a.example twice".into()));
    }
}
