//! The oracle: a relay's store as one would write it from NIP-01, 09, 40 and 62 in an afternoon.
//! A list of JSON events, every rule a loop, no index and no code of the product, so that
//! agreement with the real store means something.

use serde_json::Value;

/// What happened to a submitted event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Stored,
    Duplicate,
    Replaced,
    Deleted,
    Vanished,
}

/// Everything that is stored, and everything that must be remembered about what is not.
#[derive(Debug, Clone, Default)]
pub struct Model {
    events: Vec<Value>,
    /// All replaceable and addressable events that ever won their slot, present or not.
    winners: Vec<Value>,
    /// All deletions and requests to vanish that were ever stored, present or not.
    deletions: Vec<Value>,
    vanishings: Vec<Value>,
}

impl Model {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn submit(&mut self, event: &Value) -> Verdict {
        if self.events.iter().any(|stored| id(stored) == id(event)) {
            return Verdict::Duplicate;
        }
        if self
            .vanishings
            .iter()
            .any(|request| vanishes(request, event))
        {
            return Verdict::Vanished;
        }
        if self
            .deletions
            .iter()
            .any(|deletion| deletes(deletion, event))
        {
            return Verdict::Deleted;
        }
        if self.winners.iter().any(|winner| replaces(winner, event)) {
            return Verdict::Replaced;
        }
        self.store(event);
        Verdict::Stored
    }

    /// Forgets events that expired, as a store does to get its space back.
    pub fn sweep(&mut self, until: u64) -> usize {
        let before = self.events.len();
        self.events.retain(|event| !is_expired(event, until));
        before - self.events.len()
    }

    /// Ids of the matches, newest first with ties by lowest id, at most `max` of them.
    pub fn query(&self, filter: &Value, now: u64, max: usize) -> Vec<String> {
        let mut found: Vec<&Value> = self
            .events
            .iter()
            .filter(|event| !is_expired(event, now) && matches(filter, event))
            .collect();
        found.sort_by(|a, b| {
            let newest_first = created_at(b).cmp(&created_at(a));
            newest_first.then_with(|| id(a).cmp(id(b)))
        });
        let limit = filter["limit"].as_u64().map_or(max, |limit| limit as usize);
        found.truncate(limit.min(max));
        found
            .into_iter()
            .map(|event| id(event).to_owned())
            .collect()
    }

    /// The filters' results one after the other, each event once. What an earlier filter has
    /// sent counts toward a later filter's limit.
    pub fn query_all(&self, filters: &[Value], now: u64, max: usize) -> Vec<String> {
        let mut sent = Vec::new();
        for filter in filters {
            for id in self.query(filter, now, max) {
                if !sent.contains(&id) {
                    sent.push(id);
                }
            }
        }
        sent
    }

    /// NIP-45: an event that matches several filters counts once.
    pub fn count(&self, filters: &[Value], now: u64, max: usize) -> usize {
        self.query_all(filters, now, max).len()
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    fn store(&mut self, event: &Value) {
        match kind(event) {
            5 => {
                self.events.retain(|stored| !deletes(event, stored));
                self.deletions.push(event.clone());
            }
            62 => {
                self.events.retain(|stored| !vanishes(event, stored));
                self.vanishings.push(event.clone());
            }
            _ if slot(event).is_some() => {
                self.events.retain(|stored| !replaces(event, stored));
                self.winners.push(event.clone());
            }
            _ => {}
        }
        self.events.push(event.clone());
    }
}

/// NIP-01: all fields of a filter must match, one value of each list is enough.
pub fn matches(filter: &Value, event: &Value) -> bool {
    let fields = filter.as_object().expect("a filter is an object");
    fields.iter().all(|(name, wanted)| match name.as_str() {
        "ids" => lists(wanted, &event["id"]),
        "authors" => lists(wanted, &event["pubkey"]),
        "kinds" => lists(wanted, &event["kind"]),
        "since" => created_at(event) >= number(wanted),
        "until" => created_at(event) <= number(wanted),
        "limit" => true,
        tag => {
            let letter = tag.strip_prefix('#').expect("a known filter field");
            first_values(event, letter).any(|value| lists(wanted, value))
        }
    })
}

/// NIP-09: only the author's own events, never deletions or requests to vanish.
fn deletes(deletion: &Value, event: &Value) -> bool {
    if deletion["pubkey"] != event["pubkey"] || matches!(kind(event), 5 | 62) {
        return false;
    }
    let by_id = first_values(deletion, "e").any(|named| *named == event["id"]);
    let by_address = slot(event).is_some_and(|slot| {
        created_at(event) <= created_at(deletion)
            && first_values(deletion, "a").any(|named| named == slot.as_str())
    });
    by_id || by_address
}

/// NIP-62: all that the author wrote up to the request, and gift wraps to the author.
fn vanishes(request: &Value, event: &Value) -> bool {
    let written = event["pubkey"] == request["pubkey"];
    let wrapped =
        kind(event) == 1059 && first_values(event, "p").any(|to| *to == request["pubkey"]);
    created_at(event) <= created_at(request) && (written || wrapped)
}

/// NIP-01: the newer version stays; in one second the one with the lower id.
fn replaces(winner: &Value, event: &Value) -> bool {
    slot(event).is_some()
        && slot(winner) == slot(event)
        && (created_at(winner) > created_at(event)
            || (created_at(winner) == created_at(event) && id(winner) <= id(event)))
}

/// The address, in its one spelling, of an event that is alone at it.
fn slot(event: &Value) -> Option<String> {
    let d = match kind(event) {
        0 | 3 | 10_000..=19_999 => "",
        30_000..=39_999 => first_values(event, "d")
            .next()
            .map_or("", |d| d.as_str().expect("tags are texts")),
        _ => return None,
    };
    let pubkey = event["pubkey"].as_str().expect("an event has a pubkey");
    Some(format!("{}:{pubkey}:{d}", kind(event)))
}

/// NIP-40.
fn is_expired(event: &Value, now: u64) -> bool {
    first_values(event, "expiration")
        .next()
        .and_then(|at| at.as_str()?.parse::<u64>().ok())
        .is_some_and(|at| at <= now)
}

/// The first value of every tag of that name; a tag without a value has none.
fn first_values<'a>(event: &'a Value, name: &'a str) -> impl Iterator<Item = &'a Value> {
    let tags = event["tags"].as_array().expect("an event has tags");
    tags.iter()
        .filter(move |tag| tag[0] == name)
        .filter_map(|tag| tag.get(1))
}

fn lists(wanted: &Value, value: &Value) -> bool {
    wanted.as_array().expect("a list").contains(value)
}

fn id(event: &Value) -> &str {
    event["id"].as_str().expect("an event has an id")
}

fn kind(event: &Value) -> u64 {
    number(&event["kind"])
}

fn created_at(event: &Value) -> u64 {
    number(&event["created_at"])
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a whole number")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(id: &str, kind: u64, created_at: u64, tags: Value) -> Value {
        json!({"id": id, "pubkey": "alice", "kind": kind, "created_at": created_at, "tags": tags})
    }

    #[test]
    fn only_the_first_value_of_a_tag_matches() {
        let event = event("1", 1, 10, json!([["t", "x", "y"], ["t"], []]));
        assert!(matches(&json!({"#t": ["x"]}), &event));
        assert!(!matches(&json!({"#t": ["y"]}), &event));
        assert!(!matches(&json!({"#T": ["x"]}), &event));
        assert!(!matches(&json!({"#t": []}), &event));
        assert!(matches(&json!({}), &event));
    }

    #[test]
    fn a_loser_does_not_return_when_the_winner_is_deleted() {
        let mut model = Model::new();
        let old = event("1", 30617, 10, json!([["d", "x"]]));
        let new = event("2", 30617, 11, json!([["d", "x"]]));
        assert_eq!(model.submit(&new), Verdict::Stored);
        assert_eq!(model.submit(&old), Verdict::Replaced);
        let deletion = event("3", 5, 12, json!([["e", "2"]]));
        assert_eq!(model.submit(&deletion), Verdict::Stored);
        assert_eq!(model.submit(&new), Verdict::Deleted);
        assert_eq!(model.submit(&old), Verdict::Replaced);
        assert_eq!(model.query(&json!({}), 20, 9), ["3"]);
    }

    #[test]
    fn an_event_of_an_earlier_filter_uses_up_the_limit_of_a_later_one() {
        let mut model = Model::new();
        for (id, at) in [("1", 10), ("2", 11), ("3", 12)] {
            model.submit(&event(id, 1, at, json!([])));
        }
        let filters = [json!({"ids": ["3"]}), json!({"limit": 2})];
        assert_eq!(model.query_all(&filters, 20, 9), ["3", "2"]);
        assert_eq!(model.count(&filters, 20, 9), 2);
    }
}
