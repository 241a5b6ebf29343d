//! NIP-01 filters, parsed strictly: what is not understood is refused, never widened.

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::clock::Timestamp;
use crate::event::{Event, Kind};
use crate::id::{EventId, Pubkey};

/// Lists are sorted and without duplicates; an empty list matches nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub ids: Option<Vec<EventId>>,
    pub authors: Option<Vec<Pubkey>>,
    pub kinds: Option<Vec<Kind>>,
    /// Letter and values; every letter once.
    pub tags: Vec<(u8, Vec<String>)>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub limit: Option<usize>,
}

/// Why a text is not a filter that we can answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("unsupported: filter field {0} is not supported")]
    UnknownField(String),
    #[error("invalid: {0}")]
    Malformed(String),
}

impl Filter {
    pub fn parse(json: &str) -> Result<Self, FilterError> {
        let checked: Checked = serde_json::from_str(json)
            .map_err(|error| FilterError::Malformed(error.to_string()))?;
        checked.0
    }

    pub fn matches(&self, event: &Event) -> bool {
        self.matches_apart_from_tags(event)
            && self.tags.iter().all(|(letter, values)| {
                event.indexed_tags().any(|(found, value)| {
                    found == *letter && values.binary_search_by(|v| v.as_str().cmp(value)).is_ok()
                })
            })
    }

    /// For callers who compare tags in a way of their own.
    pub fn matches_apart_from_tags(&self, event: &Event) -> bool {
        contains(&self.ids, &event.id)
            && contains(&self.authors, &event.pubkey)
            && contains(&self.kinds, &event.kind)
            && self.since.is_none_or(|since| event.created_at >= since)
            && self.until.is_none_or(|until| event.created_at <= until)
    }

    /// All values of all lists: what one filter costs to keep and to answer.
    pub fn value_count(&self) -> usize {
        self.ids.as_ref().map_or(0, Vec::len)
            + self.authors.as_ref().map_or(0, Vec::len)
            + self.kinds.as_ref().map_or(0, Vec::len)
            + self
                .tags
                .iter()
                .map(|(_, values)| values.len())
                .sum::<usize>()
    }

    /// True for a filter that no event can match.
    pub fn is_void(&self) -> bool {
        self.ids.as_ref().is_some_and(Vec::is_empty)
            || self.authors.as_ref().is_some_and(Vec::is_empty)
            || self.kinds.as_ref().is_some_and(Vec::is_empty)
            || self.tags.iter().any(|(_, values)| values.is_empty())
            || matches!((self.since, self.until), (Some(since), Some(until)) if since > until)
    }

    fn set(&mut self, name: &str, value: Field) -> Result<(), String> {
        match (name, value) {
            ("since", Field::Number(n)) => self.since = Some(Timestamp(n)),
            ("until", Field::Number(n)) => self.until = Some(Timestamp(n)),
            ("limit", Field::Number(n)) => {
                self.limit = Some(usize::try_from(n).unwrap_or(usize::MAX))
            }
            ("since" | "until" | "limit", _) => {
                return Err(format!("{name} must be a whole number"));
            }
            ("ids", Field::Texts(texts)) => {
                self.ids = Some(parse_list(name, &texts, EventId::from_hex)?)
            }
            ("authors", Field::Texts(texts)) => {
                self.authors = Some(parse_list(name, &texts, Pubkey::from_hex)?);
            }
            ("kinds", Field::Numbers(numbers)) => {
                let kind = |n: u64| {
                    u16::try_from(n)
                        .map(Kind)
                        .map_err(|_| format!("{n} is not a kind"))
                };
                let kinds = numbers.into_iter().map(kind).collect::<Result<_, _>>()?;
                self.kinds = Some(sorted(kinds));
            }
            // An empty list has no type of its own.
            ("kinds", Field::Texts(texts)) if texts.is_empty() => self.kinds = Some(Vec::new()),
            ("ids" | "authors" | "kinds", _) => {
                return Err(format!("{name} has values of the wrong type"));
            }
            (tag, Field::Texts(texts)) => {
                if matches!(tag, "#e" | "#p") {
                    parse_list(tag, &texts, EventId::from_hex)?;
                }
                let letter = tag.bytes().last().unwrap_or_default();
                self.tags.push((letter, sorted(texts)));
            }
            (tag, _) => return Err(format!("{tag} must be a list of texts")),
        }
        Ok(())
    }
}

fn contains<T: Ord>(list: &Option<Vec<T>>, value: &T) -> bool {
    list.as_ref()
        .is_none_or(|list| list.binary_search(value).is_ok())
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list
}

fn parse_list<T: Ord, E: fmt::Display>(
    name: &str,
    texts: &[String],
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, String> {
    let list: Result<Vec<T>, String> = texts
        .iter()
        .map(|text| parse(text).map_err(|error| format!("{name}: each value {error}")))
        .collect();
    list.map(sorted)
}

fn is_known(name: &str) -> bool {
    match name.as_bytes() {
        [b'#', letter] => letter.is_ascii_alphabetic(),
        _ => matches!(
            name,
            "ids" | "authors" | "kinds" | "since" | "until" | "limit"
        ),
    }
}

/// A field's value before its meaning is known.
enum Field {
    Number(u64),
    Numbers(Vec<u64>),
    Texts(Vec<String>),
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Shape {
            Number(u64),
            Texts(Vec<String>),
            Numbers(Vec<u64>),
        }
        Shape::deserialize(deserializer)
            .map_err(|_| {
                D::Error::custom(
                    "a filter field must be a whole number or a list of texts or whole numbers",
                )
            })
            .map(|shape| match shape {
                Shape::Number(n) => Field::Number(n),
                Shape::Texts(texts) => Field::Texts(texts),
                Shape::Numbers(numbers) => Field::Numbers(numbers),
            })
    }
}

/// Keeps "unsupported" apart from "malformed" through serde, whose errors are only text.
struct Checked(Result<Filter, FilterError>);

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FilterVisitor;
        impl<'de> Visitor<'de> for FilterVisitor {
            type Value = Checked;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a filter object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Checked, A::Error> {
                let mut filter = Filter::default();
                let mut seen = Vec::new();
                let mut unknown = None;
                while let Some(name) = map.next_key::<String>()? {
                    if !is_known(&name) {
                        map.next_value::<serde::de::IgnoredAny>()?;
                        unknown.get_or_insert(name);
                        continue;
                    }
                    if seen.contains(&name) {
                        return Err(A::Error::custom(format_args!(
                            "filter field {name} is given twice"
                        )));
                    }
                    filter
                        .set(&name, map.next_value()?)
                        .map_err(A::Error::custom)?;
                    seen.push(name);
                }
                filter.tags.sort_unstable();
                Ok(Checked(match unknown {
                    Some(name) => Err(FilterError::UnknownField(name)),
                    None => Ok(filter),
                }))
            }
        }
        deserializer.deserialize_map(FilterVisitor)
    }
}

impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        if let Some(ids) = &self.ids {
            map.serialize_entry("ids", ids)?;
        }
        if let Some(authors) = &self.authors {
            map.serialize_entry("authors", authors)?;
        }
        if let Some(kinds) = &self.kinds {
            map.serialize_entry("kinds", kinds)?;
        }
        for (letter, values) in &self.tags {
            map.serialize_entry(&format!("#{}", char::from(*letter)), values)?;
        }
        if let Some(since) = self.since {
            map.serialize_entry("since", &since)?;
        }
        if let Some(until) = self.until {
            map.serialize_entry("until", &until)?;
        }
        if let Some(limit) = self.limit {
            map.serialize_entry("limit", &limit)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_read_and_written_back() {
        let key = "3bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d";
        let json = format!(
            r##"{{"ids":["{key}"],"authors":["{key}"],"kinds":[1,30617],"#A":["x"],"#e":["{key}"],"since":1,"until":2,"limit":3}}"##
        );
        let filter = Filter::parse(&json).unwrap();
        assert_eq!(serde_json::to_string(&filter).unwrap(), json);
        assert_eq!(filter.value_count(), 6);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for json in [
            r##"{"#foo":["x"]}"##,
            r##"{"search":"x"}"##,
            r##"{"&t":["x"]}"##,
            r##"{"#1":["x"],"kinds":[1]}"##,
        ] {
            assert!(
                matches!(Filter::parse(json), Err(FilterError::UnknownField(_))),
                "{json}"
            );
        }
        for json in [
            r#"{"ids":["3BF0C63FCB93463407AF97A5E5EE64FA883D107EF9E558472C4EB9AAAEFA459D"]}"#,
            r#"{"ids":["3bf0"]}"#,
            r##"{"#e":["3bf0"]}"##,
            r##"{"#p":["3BF0C63FCB93463407AF97A5E5EE64FA883D107EF9E558472C4EB9AAAEFA459D"]}"##,
            r#"{"kinds":["1"]}"#,
            r#"{"kinds":[65536]}"#,
            r#"{"kinds":1}"#,
            r#"{"since":-1}"#,
            r#"{"since":"1"}"#,
            r#"{"limit":1.5}"#,
            r#"{"kinds":[1],"kinds":[2]}"#,
            r#"{"authors":null}"#,
            "[]",
            "{",
        ] {
            assert!(
                matches!(Filter::parse(json), Err(FilterError::Malformed(_))),
                "{json}"
            );
        }
    }

    #[test]
    fn empty_lists_match_nothing() {
        for json in [
            r#"{"ids":[]}"#,
            r#"{"kinds":[]}"#,
            r##"{"#t":[]}"##,
            r#"{"since":2,"until":1}"#,
        ] {
            assert!(Filter::parse(json).unwrap().is_void(), "{json}");
        }
        assert!(!Filter::parse("{}").unwrap().is_void());
    }
}
