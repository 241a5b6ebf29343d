use grasp_core::{Event, Filter, Network};

use super::*;
use crate::relay::live::ConnId;
use crate::relay::live::prepared::Keyed;

/// An index with its hash key.
#[derive(Default)]
struct Filing {
    keyed: Keyed,
    index: Index<String>,
}

impl Filing {
    fn insert(&mut self, name: &str, holder: Holder, json: &[&str]) -> Result<SubRef, Crowded> {
        let filter = |json: &&str| self.keyed.prepare(Filter::parse(json).unwrap());
        let filters = json.iter().map(filter).collect();
        self.index.insert(name.to_owned(), holder, filters)
    }

    /// Who wants the event, and how many filters were compared to tell.
    fn matches(&mut self, event: &Event) -> (Vec<String>, usize) {
        let found = self.index.matches(&self.keyed.probe(event));
        let mut owners: Vec<String> = found.owners.into_iter().cloned().collect();
        owners.sort();
        (owners, found.compared)
    }
}

fn at(conn: u64, ip: &str) -> Holder {
    Holder {
        conn: ConnId(conn),
        network: Some(Network::of(ip.parse().unwrap())),
    }
}

const HOSTILE: &str = "203.0.113.9";

fn reader() -> Holder {
    at(1_000_000, "198.51.100.20")
}

fn event(kind: u16, tags: &[&[&str]]) -> Event {
    testkit::Author::new(1).event(kind, 100, tags, "")
}

/// As many tags as an event may have.
fn with_tags(values: usize) -> Event {
    let tags = (0..values).map(|n| vec!["t".to_owned(), n.to_string()]);
    testkit::Author::new(1).event_tags(1, 100, tags.collect(), "")
}

#[test]
fn a_subscription_is_found_once_whatever_matches() {
    let mut filing = Filing::default();
    let wanting = [r#"{"kinds":[1]}"#, "{}", r##"{"#t":["x","y"]}"##];
    filing.insert("a", reader(), &wanting).unwrap();
    filing
        .insert("b", reader(), &[r##"{"#t":["z"]}"##])
        .unwrap();
    let event = event(1, &[&["t", "x"], &["t", "y"]]);
    assert_eq!(filing.matches(&event).0, ["a"]);
    assert_eq!(filing.matches(&event).0, ["a"]);
}

#[test]
fn nothing_is_left_of_a_removed_subscription() {
    let mut filing = Filing::default();
    let filters = [
        r#"{"kinds":[1]}"#,
        "{}",
        r##"{"#t":["x"]}"##,
        r#"{"ids":[]}"#,
    ];
    let sub = filing.insert("a", reader(), &filters).unwrap();
    filing.index.remove(sub);
    filing.index.remove(sub);
    assert!(filing.matches(&event(1, &[&["t", "x"]])).0.is_empty());
    assert!(filing.index.buckets.is_empty());
    filing.insert("b", reader(), &["{}"]).unwrap();
    assert_eq!(filing.matches(&event(1, &[])).0, ["b"]);
    assert_eq!(filing.index.subs.len(), 1, "places are used again");
    assert_eq!(filing.index.filters.len(), 4, "also those of filters");
}

#[test]
fn whatever_it_is_filed_under_a_filter_finds_what_it_matches() {
    let mut filing = Filing::default();
    let author = testkit::Author::new(1).pubkey();
    let long: Vec<String> = (0..500).map(|n| format!("\"{n}\"")).collect();
    let filters = [
        "{}".to_owned(),
        r#"{"kinds":[1,2],"since":100}"#.to_owned(),
        r#"{"kinds":[1],"since":101}"#.to_owned(),
        format!(r#"{{"authors":["{author}"],"until":100}}"#),
        format!(r##"{{"authors":["{author}"],"#t":["7","x"],"#x":["y"]}}"##),
        format!(r##"{{"#t":[{}]}}"##, long.join(",")),
        r##"{"#t":["7"],"kinds":[1]}"##.to_owned(),
        r##"{"#t":["7"],"kinds":[2]}"##.to_owned(),
        r##"{"#T":["7"]}"##.to_owned(),
    ];
    // Each often enough that the usual list is full and another one is taken.
    for (n, json) in filters.iter().enumerate() {
        for k in 0..40 {
            filing
                .insert(&format!("{n}-{k}"), reader(), &[json])
                .unwrap();
        }
    }
    for event in [event(1, &[&["t", "7"]]), event(2, &[]), with_tags(2_000)] {
        let wants = |json: &String| Filter::parse(json).unwrap().matches(&event);
        let wanting = filters.iter().filter(|json| wants(json)).count() * 40;
        assert_eq!(filing.matches(&event).0.len(), wanting);
    }
}

#[test]
fn filters_that_share_one_value_are_told_apart_by_another() {
    let mut filing = Filing::default();
    filing
        .insert("reader", reader(), &[r##"{"#t":["hot"]}"##])
        .unwrap();
    for n in 0..120_000_u64 {
        let filter = match n % 3 {
            0 => format!(r##"{{"#t":["hot"],"#x":["{n}"]}}"##),
            1 => format!(r##"{{"#t":["hot"],"authors":["{n:064x}"]}}"##),
            _ => format!(r##"{{"#t":["hot"],"kinds":[{}]}}"##, 100 + n % 60_000),
        };
        let holder = at(n / 16_384, HOSTILE);
        filing.insert("hostile", holder, &[&filter]).unwrap();
    }
    let (found, compared) = filing.matches(&event(1, &[&["t", "hot"]]));
    assert_eq!(found, ["reader"]);
    assert!(compared <= 1 + FILED_PER_NETWORK as usize, "{compared}");
}

#[test]
fn filters_that_nothing_tells_apart_are_refused_beyond_a_share() {
    let mut filing = Filing::default();
    let mut refused = 0;
    for n in 0..100_000_u64 {
        let filter = format!(r##"{{"#t":["hot"],"kinds":[1],"until":{}}}"##, n % 90);
        let holder = at(n / 1_000, HOSTILE);
        refused += usize::from(filing.insert("hostile", holder, &[&filter]).is_err());
    }
    // A value, or a kind.
    let filed = 2 * FILED_PER_NETWORK as usize;
    assert_eq!(refused, 100_000 - filed);
    let reader = filing.insert("reader", reader(), &[r##"{"#t":["hot"],"kinds":[1]}"##]);
    assert!(reader.is_ok(), "somebody else is not refused");
    let (found, compared) = filing.matches(&event(1, &[&["t", "hot"]]));
    assert_eq!((found, compared), (vec!["reader".to_owned()], filed + 1));
}

#[test]
fn a_refused_subscription_leaves_nothing_behind() {
    let mut filing = Filing::default();
    let vain = r#"{"until":1}"#;
    for _ in 0..FILED_PER_CONNECTION {
        filing.insert("a", at(1, HOSTILE), &[vain]).unwrap();
    }
    let refused = filing.insert("b", at(1, HOSTILE), &[r#"{"kinds":[1]}"#, vain]);
    assert_eq!(refused, Err(Crowded));
    assert!(filing.matches(&event(1, &[])).0.is_empty());
    // Other connections of the address have some left, until its share is used up as well.
    let more = (2..10).map(|conn| filing.insert("c", at(conn, HOSTILE), &[vain; 200]).is_ok());
    assert_eq!(more.filter(|filed| *filed).count(), 3);
}

#[test]
fn many_values_and_many_tags_do_not_multiply() {
    let mut filing = Filing::default();
    let values: Vec<String> = (0..1_900).map(|n| format!("\"{n}\"")).collect();
    let filter = format!(r##"{{"#t":[{}],"kinds":[7]}}"##, values.join(","));
    for n in 0..200 {
        filing
            .insert("hostile", at(n, HOSTILE), &[&filter])
            .unwrap();
    }
    let (found, compared) = filing.matches(&with_tags(2_400));
    assert!(found.is_empty());
    assert!(
        compared <= 200,
        "each filter once, not once for each value: {compared}"
    );
}

#[test]
fn a_million_hostile_filters_cost_an_event_what_their_shares_allow() {
    let mut filing = Filing::default();
    let mut filed = 0;
    // As many networks as may hold all filter values together, each with filters that name the hot
    // value, and another that tells them apart.
    for conn in 0..400_u64 {
        let holder = at(conn, &format!("203.0.113.{}", conn % 25));
        for n in 0..2_500 {
            let filter = format!(r##"{{"#t":["hot"],"#x":["{conn}-{n}"]}}"##);
            filed += usize::from(filing.insert("hostile", holder, &[&filter]).is_ok());
        }
    }
    assert_eq!(filed, 1_000_000);
    filing
        .insert("mine", reader(), &[r##"{"#t":["hot"]}"##])
        .unwrap();
    let (wanted, compared) = filing.matches(&event(1, &[&["t", "hot"]]));
    assert_eq!(wanted, ["mine"]);
    assert!(compared <= 25 * FILED_PER_NETWORK as usize, "{compared}");
    let (wanted, compared) = filing.matches(&event(1, &[&["t", "cold"]]));
    assert_eq!((wanted.len(), compared), (0, 0));
}
