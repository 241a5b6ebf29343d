//! To whom a stranger's work is charged: not to an address, which costs nothing where there are
//! 2^64 of them, but to the networks that one customer of a provider may hold.

use std::net::{IpAddr, Ipv6Addr};

/// The prefixes that providers give to one IPv6 customer, and how many shares each may hold: a
/// /48 has 65,536 times the addresses of a /64 and four times its share.
const LEVELS: [(u8, u64); 3] = [(64, 1), (56, 2), (48, 4)];

/// An IPv4 address, or an IPv6 prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

impl Network {
    /// The narrowest: an IPv4 address, or an IPv6 /64.
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(v4) => Self {
                base: IpAddr::V4(v4),
                prefix: 32,
            },
            IpAddr::V6(v6) => Self::v6(v6, LEVELS[0].0),
        }
    }

    /// This network and the wider ones around it, each with the number of shares it may hold.
    pub fn levels(self) -> impl Iterator<Item = (Network, u64)> {
        let own = std::iter::once((self, 1));
        let around = LEVELS.into_iter().skip(1);
        let around = around.filter_map(move |(prefix, shares)| match self.base {
            IpAddr::V6(v6) => Some((Self::v6(v6, prefix), shares)),
            IpAddr::V4(_) => None,
        });
        own.chain(around)
    }

    /// Everything that one customer may hold.
    pub fn widest(self) -> Self {
        let widest = self.levels().last();
        widest.map_or(self, |(widest, _)| widest)
    }

    fn v6(ip: Ipv6Addr, prefix: u8) -> Self {
        let mask = u128::MAX << (128 - u32::from(prefix));
        Self {
            base: IpAddr::V6((ip.to_bits() & mask).into()),
            prefix,
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.base {
            IpAddr::V4(v4) => v4.fmt(f),
            IpAddr::V6(v6) => write!(f, "{v6}/{}", self.prefix),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ip: &str) -> Network {
        Network::of(ip.parse().unwrap())
    }

    #[test]
    fn one_customer_is_one_network() {
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn a_prefix_is_counted_with_those_around_it() {
        let levels = |ip| -> Vec<String> {
            let levels = of(ip).levels();
            levels.map(|(net, n)| format!("{net} x{n}")).collect()
        };
        assert_eq!(levels("192.0.2.1"), ["192.0.2.1 x1"]);
        assert_eq!(
            levels("2001:db8:1:234::9"),
            [
                "2001:db8:1:234::/64 x1",
                "2001:db8:1:200::/56 x2",
                "2001:db8:1::/48 x4"
            ]
        );
        let widest = of("2001:db8:1:234::9").widest();
        assert_eq!(widest.to_string(), "2001:db8:1::/48");
    }
}
