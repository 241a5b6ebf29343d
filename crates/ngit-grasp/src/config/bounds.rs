//! Writes `docs/reference/bounds.md`: the bounds of the core, and those that only the server has.

use grasp_core::Limits;
use grasp_core::limits::{Amount, Bound};

use super::settings::specs;
use crate::http::{
    LISTS_OF_REFS, PAGE_SLOTS, PAGES_PER_NETWORK, STATUS_STREAMS, STATUS_STREAMS_PER_NETWORK,
};

const INTRO: &str = "\
# Bounds

<!-- Generated from the limits in the code; edits here are overwritten. -->

What strangers share has a bound, and where the table names one, a share for each network or key,
so that none takes it from the others; a dash means that there is no such share. These are the defaults; [configuration](../configuration.md) changes them.

A network is an IPv4 address or an IPv6 /64; all /64 of a /56 together have twice its share, and
all of a /48 four times. Loopback addresses and trusted proxies are not counted by network.

| what | in all | per network | per key | who makes way |
|---|---|---|---|---|
";

/// The whole page.
pub fn markdown() -> String {
    let mut bounds = Limits::default().bounds();
    bounds.extend(of_the_server());
    let rows = bounds.iter().map(row);
    format!("{INTRO}{}", rows.collect::<String>())
}

/// What the core knows nothing of.
fn of_the_server() -> Vec<Bound> {
    let row = |what, in_all: u64, per_network: u64, makes_way| Bound {
        what,
        in_all: Amount::Number(in_all),
        per_network: Amount::Number(per_network),
        per_key: Amount::None,
        makes_way,
    };
    let git = |what, times, makes_way| {
        let in_all = default_of("NGIT_GIT_CONCURRENT") * times;
        let per_network = default_of("NGIT_GIT_CONCURRENT_PER_IP") * times;
        row(what, in_all, per_network, makes_way)
    };
    vec![
        git(
            "fetches and pushes of git clients",
            1,
            "of fetches the slowest of the network with most, or one that takes less than 64 KiB a second; \
             of pushes one of the network with most. A quarter is for each, and what nobody \
             signed has half of all slots at most",
        ),
        git(
            "lists of refs that are read",
            LISTS_OF_REFS as u64,
            "nobody; they are quick, and a new one is told to come back",
        ),
        row(
            "pages that are made",
            PAGE_SLOTS as u64,
            PAGES_PER_NETWORK,
            "nobody; networks take turns, and 64 may wait",
        ),
        row(
            "status pages that follow",
            STATUS_STREAMS as u64,
            STATUS_STREAMS_PER_NETWORK as u64,
            "the newest of the network with most; operators have 16 of their own",
        ),
    ]
}

fn default_of(setting: &str) -> u64 {
    let spec = specs().iter().find(|spec| spec.env == setting);
    let number = spec.and_then(|spec| spec.default.parse().ok());
    number.unwrap_or(0)
}

fn row(bound: &Bound) -> String {
    let Bound {
        what,
        in_all,
        per_network,
        per_key,
        makes_way,
    } = bound;
    format!("| {what} | {in_all} | {per_network} | {per_key} | {makes_way} |\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_a_row_names_exists() {
        for bound in of_the_server() {
            assert_ne!(bound.in_all, Amount::Number(0), "{}", bound.what);
            assert_ne!(bound.per_network, Amount::Number(0), "{}", bound.what);
        }
    }
}
