//! The network as a picture: we in the middle, other relays around. Health shows as shape and
//! colour, and how many events a relay brings as the width of its line.

use std::f64::consts::TAU;

use grasp_core::sync::Health;

/// On one ring more would touch each other.
pub const MOST: usize = 24;
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 320.0;
/// Of the ring.
const RADII: (f64, f64) = (195.0, 120.0);
const THINNEST: f64 = 1.5;
const WIDEST: f64 = 8.0;

/// How a relay is, as it is drawn and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Look {
    Failing,
    Dead,
    /// Not connected yet.
    Idle,
    /// Connected, and history is being fetched.
    Busy,
    /// Connected, and nothing is missing.
    Well,
}

impl Look {
    pub const ALL: [Look; 5] = [
        Look::Well,
        Look::Busy,
        Look::Idle,
        Look::Failing,
        Look::Dead,
    ];

    pub fn of(connected: bool, in_step: bool, health: Health) -> Self {
        match (connected, in_step, health) {
            (true, true, _) => Look::Well,
            (true, false, _) => Look::Busy,
            (false, _, Health::Dead) => Look::Dead,
            (false, _, Health::Degraded) => Look::Failing,
            (false, _, Health::Healthy) => Look::Idle,
        }
    }

    /// The name of its colour.
    pub fn class(self) -> &'static str {
        match self {
            Look::Well => "well",
            Look::Busy => "busy",
            Look::Idle => "idle",
            Look::Failing => "failing",
            Look::Dead => "dead",
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Look::Well => "in step",
            Look::Busy => "catching up",
            Look::Idle => "not connected",
            Look::Failing => "failing",
            Look::Dead => "silent for a day",
        }
    }

    pub fn is_connected(self) -> bool {
        matches!(self, Look::Well | Look::Busy)
    }

    /// An outline around 0,0: circle, hexagon, square, triangle, cross. Not by colour alone.
    pub fn outline(self) -> &'static str {
        match self {
            Look::Well => "M-13 0a13 13 0 1 0 26 0a13 13 0 1 0 -26 0z",
            Look::Busy => "M-13.5 0L-7 -12L7 -12L13.5 0L7 12L-7 12z",
            Look::Idle => "M-11.5 -11.5H11.5V11.5H-11.5z",
            Look::Failing => "M0 -17L16.5 12H-16.5z",
            Look::Dead => "M-14 -8L-8 -14L0 -9L8 -14L14 -8L9 0L14 8L8 14L0 9L-8 14L-14 8L-9 0z",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Relay {
    /// By which the table names it.
    pub number: usize,
    /// Empty for those who may not know it.
    pub name: String,
    pub look: Look,
    pub per_minute: u64,
}

pub struct Node {
    pub number: usize,
    pub x: String,
    pub y: String,
    /// Where its number stands: the middle of a triangle is lower.
    pub text_y: &'static str,
    pub line: String,
    pub class: &'static str,
    pub connected: bool,
    pub outline: &'static str,
    pub title: String,
}

pub struct Picture {
    pub nodes: Vec<Node>,
    pub more: usize,
    pub width: f64,
    pub height: f64,
    pub middle: (f64, f64),
}

impl Picture {
    /// Of many, those that are not well and those that bring most; each at a place that it keeps.
    pub fn of(relays: &[Relay]) -> Self {
        let mut shown: Vec<&Relay> = relays.iter().collect();
        shown.sort_by_key(|relay| {
            let well = relay.look.is_connected();
            (
                well,
                std::cmp::Reverse(relay.per_minute),
                relay.look,
                relay.number,
            )
        });
        shown.truncate(MOST);
        shown.sort_by_key(|relay| relay.number);
        let count = shown.len();
        let nodes = shown.into_iter().enumerate();
        let nodes = nodes.map(|(n, relay)| node(relay, n, count));
        Self {
            nodes: nodes.collect(),
            more: relays.len().saturating_sub(MOST),
            width: WIDTH,
            height: HEIGHT,
            middle: (WIDTH / 2.0, HEIGHT / 2.0),
        }
    }
}

fn node(relay: &Relay, n: usize, count: usize) -> Node {
    // The first is at the top, the others follow the clock.
    let angle = TAU * (n as f64 / count as f64) - TAU / 4.0;
    let what = format!(
        "{}, {} events a minute",
        relay.look.words(),
        relay.per_minute
    );
    Node {
        number: relay.number,
        x: format!("{:.1}", WIDTH / 2.0 + RADII.0 * angle.cos()),
        y: format!("{:.1}", HEIGHT / 2.0 + RADII.1 * angle.sin()),
        text_y: if relay.look == Look::Failing {
            "8"
        } else {
            "4.5"
        },
        line: format!("{:.1}", width(relay.per_minute)),
        class: relay.look.class(),
        connected: relay.look.is_connected(),
        outline: relay.look.outline(),
        title: match relay.name.as_str() {
            "" => what,
            name => format!("{name}: {what}"),
        },
    }
}

/// Ten times as many events are a bit more than twice the width.
fn width(per_minute: u64) -> f64 {
    let steps = (1.0 + per_minute as f64).log10();
    (THINNEST + 2.2 * steps).min(WIDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_relay_has_its_place_within_the_picture() {
        for count in [0, 1, 2, 7, MOST, MOST + 5] {
            let relay = |n| Relay {
                number: n as usize + 1,
                name: String::new(),
                look: Look::Well,
                per_minute: n,
            };
            let relays: Vec<Relay> = (0..count as u64).map(relay).collect();
            let picture = Picture::of(&relays);
            assert_eq!(picture.nodes.len() + picture.more, count);
            let mut places = Vec::new();
            for node in &picture.nodes {
                let (x, y): (f64, f64) = (node.x.parse().unwrap(), node.y.parse().unwrap());
                assert!((17.0..=WIDTH - 17.0).contains(&x), "{x}");
                assert!((17.0..=HEIGHT - 17.0).contains(&y), "{y}");
                for (a, b) in &places {
                    let apart: f64 = (x - a).hypot(y - b);
                    assert!(apart > 27.0, "{count}: {apart}");
                }
                places.push((x, y));
            }
        }
    }

    /// However many are well, one that fails is seen.
    #[test]
    fn those_that_fail_and_those_that_bring_most_are_drawn() {
        let relay = |number, look, per_minute| Relay {
            number,
            name: String::new(),
            look,
            per_minute,
        };
        let mut relays: Vec<Relay> = (1..=40).map(|n| relay(n, Look::Well, 0)).collect();
        relays.push(relay(41, Look::Failing, 0));
        relays.push(relay(42, Look::Well, 9));
        let numbers = |picture: Picture| -> Vec<usize> {
            picture.nodes.iter().map(|node| node.number).collect()
        };
        let drawn = numbers(Picture::of(&relays));
        assert_eq!(drawn.len(), MOST);
        assert!(drawn.ends_with(&[41, 42]), "{drawn:?}");
        assert!(drawn.is_sorted(), "{drawn:?}");
    }

    #[test]
    fn who_brings_more_has_the_wider_line() {
        assert!(width(0) < width(1) && width(1) < width(10) && width(10) < width(100));
        assert_eq!(width(u64::MAX), WIDEST);
    }
}
