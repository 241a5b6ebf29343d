//! Writes `docs/reference/bounds.md`: the bounds of the core, and those that only the server has.

use grasp_core::Limits;
use grasp_core::limits::{Amount, Bound};

use super::settings::specs;

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
    vec![Bound {
        what: "fetches and pushes of git clients",
        in_all: default_of("NGIT_GIT_CONCURRENT"),
        per_network: default_of("NGIT_GIT_CONCURRENT_PER_IP"),
        per_key: Amount::None,
        makes_way: "pushes of the network with most; a quarter is for pushes, of which what \
                    nobody signed has half of all slots at most; a new fetch is told to come back",
    }]
}

fn default_of(setting: &str) -> Amount {
    let spec = specs().iter().find(|spec| spec.env == setting);
    let number = spec.and_then(|spec| spec.default.parse().ok());
    number.map_or(Amount::None, Amount::Number)
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
            assert_ne!(bound.in_all, Amount::None, "{}", bound.what);
            assert_ne!(bound.per_network, Amount::None, "{}", bound.what);
        }
    }
}
