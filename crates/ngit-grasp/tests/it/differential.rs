//! Live delivery against the naive engine: random subscriptions on one connection, random events
//! on another, and each subscription gets exactly what the naive engine says, once.

use std::collections::BTreeMap;

use grasp_core::Event;
use testkit::random::Events;
use testkit::{Author, Client, Value, json, naive, now};

use crate::support::{client, id_of, start, to_json};

const SEEDS: u64 = 3;
const PHASES: usize = 3;
const NEW_SUBSCRIPTIONS: usize = 40;
const EVENTS: usize = 60;
const EPHEMERAL: u16 = 20_001;
const MARKER: u16 = 29_999;

#[tokio::test]
async fn every_subscription_gets_exactly_what_the_naive_engine_says() {
    let start_seed = fastrand::u64(..);
    println!("seed {start_seed}");
    let mut pairs = 0;
    let mut deliveries = 0;
    for n in 0..SEEDS {
        let run = run(start_seed.wrapping_add(n)).await;
        pairs += run.pairs;
        deliveries += run.deliveries;
    }
    assert!(pairs > 10_000, "{pairs} pairs");
    assert!(deliveries > 1_000, "{deliveries} deliveries");
}

#[derive(Default)]
struct Run {
    pairs: usize,
    deliveries: usize,
}

async fn run(seed: u64) -> Run {
    let server = start(&[
        ("NGIT_DATABASE_BACKEND", "memory"),
        ("NGIT_EVENTS_PER_MINUTE_PER_KEY", "0"),
        ("NGIT_MAX_OUTBOX_BYTES", "1GiB"),
    ]);
    let mut world = World::new(seed);
    let mut reader = client(&server).await;
    let mut writer = client(&server).await;
    let mut open: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut run = Run::default();
    for phase in 0..PHASES {
        for n in 0..NEW_SUBSCRIPTIONS {
            let (name, filters) = (format!("{phase}.{n}"), world.filters());
            assert_eq!(reader.request(&name, &filters).await, [Value::Null; 0]);
            open.insert(name, filters);
        }
        let delivered = world.publish(&mut writer).await;
        let seen = read_to_marker(&mut reader, open.len()).await;
        for (name, filters) in &open {
            let wanted = expected(filters, &delivered);
            let found = seen.get(name).cloned().unwrap_or_default();
            let mut sorted = found.clone();
            sorted.sort();
            assert_eq!(
                sorted, wanted,
                "seed {seed}, phase {phase}, subscription {name}: {filters:?}"
            );
            run.pairs += delivered.len();
            run.deliveries += found.len();
        }
        // Half of them go, so that later ones take their places in the index.
        let gone: Vec<String> = open.keys().step_by(2).cloned().collect();
        for name in gone {
            reader.send(&json!(["CLOSE", name])).await;
            open.remove(&name);
        }
    }
    run
}

fn expected(filters: &[Value], delivered: &[Value]) -> Vec<String> {
    let wanted = delivered
        .iter()
        .filter(|event| filters.iter().any(|filter| naive::matches(filter, event)));
    let mut ids: Vec<String> = wanted.map(id_of).collect();
    ids.sort();
    ids
}

/// What came for each subscription before its marker.
async fn read_to_marker(
    reader: &mut Client,
    subscriptions: usize,
) -> BTreeMap<String, Vec<String>> {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut ended = Vec::new();
    while ended.len() < subscriptions {
        let message = reader.expect("EVENT").await;
        let name = message[1].as_str().expect("a name").to_owned();
        assert!(!ended.contains(&name), "after the marker: {message}");
        if message[2]["kind"] == MARKER {
            ended.push(name);
        } else {
            seen.entry(name).or_default().push(id_of(&message[2]));
        }
    }
    seen
}

/// The testkit's world with ephemeral events in it.
struct World {
    events: Events,
    authors: Vec<Author>,
    markers: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            events: Events::new(seed).signed(),
            authors: (0..3).map(Author::new).collect(),
            markers: 0,
        }
    }

    /// Live only, and each with a filter for the marker.
    fn filters(&mut self) -> Vec<Value> {
        let count = self.events.rng().usize(1..4);
        let mut filters = self.events.some_filters(count);
        for filter in &mut filters {
            filter["limit"] = json!(0);
            let ephemeral = self.events.rng().bool();
            if let (true, Some(kinds)) = (ephemeral, filter["kinds"].as_array_mut()) {
                kinds.push(json!(EPHEMERAL));
            } else if filter["kinds"].is_null() {
                filter.as_object_mut().expect("a filter").remove("kinds");
            }
        }
        filters.push(json!({"kinds": [MARKER], "limit": 0}));
        filters
    }

    fn next(&mut self) -> Event {
        loop {
            let event = self.events.next().expect("an endless supply");
            let is_ephemeral = self.events.rng().u8(0..5) == 0;
            let author = self
                .authors
                .iter()
                .find(|author| author.pubkey() == event.pubkey);
            match event.kind.0 {
                // One request to vanish would end the story of its author.
                62 => {}
                _ if is_ephemeral => {
                    let author = author.expect("one of three authors");
                    let content = self.events.rng().u64(..).to_string();
                    let (time, tags) = (event.created_at.0, event.tags.clone());
                    return author.event_tags(EPHEMERAL, time, tags, &content);
                }
                _ => return event,
            }
        }
    }

    /// Publishes some events and a marker; returns those that readers must see.
    async fn publish(&mut self, writer: &mut Client) -> Vec<Value> {
        let mut delivered = Vec::new();
        for _ in 0..EVENTS {
            let event = self.next();
            let (accepted, text) = writer.publish(&event).await;
            if accepted && text.is_empty() {
                delivered.push(to_json(&event));
            }
        }
        self.markers += 1;
        let marker = self.authors[0].event(MARKER, now(), &[], &self.markers.to_string());
        assert!(writer.publish(&marker).await.0);
        delivered
    }
}
