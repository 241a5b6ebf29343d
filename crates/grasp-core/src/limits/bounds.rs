//! Everything bounded that strangers share, one row each: how much there is, how much of it one
//! network and one key may have, and who makes way when it is used up. `docs/reference/bounds.md`
//! is made from it.

use std::fmt;

use super::{EARLY_TIPS, FILED_PER_NETWORK, Limits, Load};
use crate::shares::ShareLimits;

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    pub what: &'static str,
    pub in_all: Amount,
    /// Of an IPv4 address or an IPv6 /64; a /56 has twice and a /48 four times as much.
    pub per_network: Amount,
    pub per_key: Amount,
    pub makes_way: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// Bounded by the other columns alone.
    None,
    Number(u64),
    Bytes(u64),
    PerMinute(u64),
    Events(Load),
}

use self::Amount::{Bytes, Events, None, Number, PerMinute};

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            None => f.write_str("–"),
            Number(number) => f.write_str(&grouped(number)),
            Bytes(bytes) => f.write_str(&size(bytes)),
            PerMinute(0) => f.write_str("–"),
            PerMinute(number) => write!(f, "{} a minute", grouped(number)),
            Events(Load { events, bytes }) => {
                write!(f, "{}, {}", grouped(events as u64), size(bytes as u64))
            }
        }
    }
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fits = |(unit, _): &&(u64, &str)| bytes >= *unit && bytes.is_multiple_of(*unit);
    match UNITS.iter().find(fits) {
        Some((unit, name)) => format!("{} {name}", grouped(bytes / unit)),
        Option::None => format!("{} bytes", grouped(bytes)),
    }
}

/// What each of so many connections may have.
fn times(one: usize, connections: usize) -> Amount {
    Number(one.saturating_mul(connections) as u64)
}

fn numbers(shares: ShareLimits) -> [Amount; 2] {
    [Number(shares.in_all), Number(shares.per_network)]
}

fn bytes(shares: ShareLimits) -> [Amount; 2] {
    [Bytes(shares.in_all), Bytes(shares.per_network)]
}

impl Limits {
    pub fn bounds(&self) -> Vec<Bound> {
        let connections = (self.connections, self.connections_per_ip);
        let each = |one| [times(one, connections.0), times(one, connections.1)];
        let row = |what, [in_all, per_network]: [Amount; 2], per_key, makes_way| Bound {
            what,
            in_all,
            per_network,
            per_key,
            makes_way,
        };
        vec![
            row(
                "connections",
                each(1),
                None,
                "the newest of the network with most; if none has more than the newcomer, it is told \
                 to come back",
            ),
            row(
                "events published",
                [None, PerMinute(self.events_per_minute_per_ip.into())],
                PerMinute(self.events_per_minute_per_key.into()),
                "nobody; an event beyond the rate is refused",
            ),
            row(
                "bytes of events published in a day, with their rows in the indexes",
                [None, Bytes(self.published_bytes_per_day_per_ip)],
                Bytes(self.published_bytes_per_day_per_key),
                "nobody; an event beyond it is refused. Maintainers of what it is about are not \
                 held to their network's share",
            ),
            row(
                "bytes of events on their way to an answer",
                bytes(self.ingest_shares()),
                None,
                "nobody; it is held for moments, and whoever has its share is not read until some of \
                 it is answered",
            ),
            row(
                "subscriptions",
                each(self.subscriptions),
                None,
                "nobody; a new one is refused",
            ),
            row(
                "values in filters of subscriptions and waiting COUNTs",
                numbers(self.filter_value_shares()),
                None,
                "the connection with most, of the network with most",
            ),
            row(
                "filters filed under one value",
                [None, Number(FILED_PER_NETWORK.into())],
                None,
                "nobody; a subscription that no other value tells apart is closed",
            ),
            row(
                "COUNTs that wait",
                each(self.counts),
                None,
                "nobody; a new one is refused",
            ),
            row(
                "events in NEG sessions and in COUNTs of several filters",
                numbers(self.neg_item_shares()),
                None,
                "the connection with most, of the network with most",
            ),
            row(
                "bytes on their way to readers",
                bytes(self.outbox_shares()),
                None,
                "the reader with most, of the network with most; a network's own queries wait for \
                 its share",
            ),
            row(
                "events that wait for git data",
                [Events(self.held_of_all()), Events(self.held_of_network())],
                Events(self.held_of_one()),
                "the network or relay with most; a quarter is for maintainers of served \
                 repositories",
            ),
            row(
                "tips of pull requests that were pushed before their event",
                [Number(EARLY_TIPS as u64), Number(EARLY_TIPS as u64 / 16)],
                None,
                "the oldest of the network with most, also in a repository, which has 256 and a \
                 network 64 of them",
            ),
            row(
                "tips of pull requests in one repository",
                [Number(self.tips_per_repository as u64), None],
                Number(self.tips_per_author as u64),
                "nobody; a quarter is for maintainers",
            ),
            row(
                "bytes of synced events in a day",
                [None, None],
                Bytes(self.sync.key_bytes_per_day),
                "nobody; what comes beyond it rests for six hours. A relay and a repository have \
                 bounds of their own, and maintainers are not held to the latter",
            ),
            row(
                "fetches from other git servers",
                [Number(self.hunt.fetches as u64), None],
                None,
                "pull requests and new repositories, for states of those that are served; a slow \
                 server, for others that wait; a host or an owner with many, after a minute, for \
                 those with fewer. All ports of a host have together what one domain has",
            ),
            row(
                "ids of events that were refused for good",
                [Number(self.sync.remembered as u64), None],
                None,
                "the oldest of the relay that brought most",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_for_people() {
        let written = |amount: Amount| amount.to_string();
        assert_eq!(written(Number(999)), "999");
        assert_eq!(written(Number(1_234_567)), "1,234,567");
        assert_eq!(written(Bytes(64 << 20)), "64 MiB");
        assert_eq!(written(Bytes(1_500)), "1,500 bytes");
        assert_eq!(written(PerMinute(0)), "–");
    }

    #[test]
    fn no_network_has_all_of_anything_that_is_shared() {
        for bound in Limits::default().bounds() {
            match (bound.in_all, bound.per_network) {
                (Number(all), Number(one)) | (Bytes(all), Bytes(one)) => {
                    assert!(one <= all / 4, "{}", bound.what);
                }
                _ => {}
            }
        }
    }
}
