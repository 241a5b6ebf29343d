//! The wire: client messages parsed strictly, server messages written. What is refused says
//! how: a NOTICE, or the message that ends the thing that was asked for.

use axum::extract::ws::Utf8Bytes;
use grasp_core::event::EventError;
use grasp_core::id::{hex_to_vec, to_hex};
use grasp_core::{Answer, EventId, Filter, Limits};
use grasp_store::Completeness;
use serde_json::value::RawValue;

use crate::ingest::Word;

/// Longest subscription id, in characters (NIP-01).
pub const MAX_SUB_ID: usize = 64;

#[derive(Debug)]
pub enum ClientMessage<'a> {
    Event(&'a str),
    Req {
        sub: String,
        filters: Vec<Filter>,
    },
    Count {
        sub: String,
        filters: Vec<Filter>,
    },
    Close {
        sub: String,
    },
    Auth(&'a str),
    NegOpen {
        sub: String,
        filter: Box<Filter>,
        frame: Vec<u8>,
    },
    NegMsg {
        sub: String,
        frame: Vec<u8>,
    },
    NegClose {
        sub: String,
    },
}

impl ClientMessage<'_> {
    /// All that `label` says.
    pub const LABELS: [&'static str; 8] = [
        "EVENT",
        "REQ",
        "COUNT",
        "CLOSE",
        "AUTH",
        "NEG-OPEN",
        "NEG-MSG",
        "NEG-CLOSE",
    ];

    /// A closed set of words for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            ClientMessage::Event(_) => "EVENT",
            ClientMessage::Req { .. } => "REQ",
            ClientMessage::Count { .. } => "COUNT",
            ClientMessage::Close { .. } => "CLOSE",
            ClientMessage::Auth(_) => "AUTH",
            ClientMessage::NegOpen { .. } => "NEG-OPEN",
            ClientMessage::NegMsg { .. } => "NEG-MSG",
            ClientMessage::NegClose { .. } => "NEG-CLOSE",
        }
    }
}

/// How a message is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    Notice(String),
    Closed { sub: String, reason: String },
    NegErr { sub: String, reason: String },
}

impl Rejected {
    pub fn frame(&self) -> Utf8Bytes {
        match self {
            Rejected::Notice(reason) => notice(reason),
            Rejected::Closed { sub, reason } => closed(&quote(sub), reason),
            Rejected::NegErr { sub, reason } => neg_err(&quote(sub), reason),
        }
    }
}

pub fn parse<'a>(text: &'a str, limits: &Limits) -> Result<ClientMessage<'a>, Rejected> {
    if text.len() > limits.message_bytes {
        let most = limits.message_bytes;
        return Err(Rejected::Notice(format!(
            "invalid: message is larger than {most} bytes"
        )));
    }
    let parts: Vec<&RawValue> =
        serde_json::from_str(text).map_err(|_| bad("a message is a JSON array"))?;
    let mut parts = parts.into_iter().map(RawValue::get);
    let kind: String = parts
        .next()
        .and_then(|part| serde_json::from_str(part).ok())
        .ok_or_else(|| bad("a message starts with its type"))?;
    match kind.as_str() {
        "EVENT" => one(&mut parts, "EVENT takes an event").map(ClientMessage::Event),
        "AUTH" => one(&mut parts, "AUTH takes an event").map(ClientMessage::Auth),
        "CLOSE" => sub_id(&mut parts, "CLOSE").map(|sub| ClientMessage::Close { sub }),
        "REQ" => {
            let (sub, filters) = filters(&mut parts, "REQ", limits)?;
            Ok(ClientMessage::Req { sub, filters })
        }
        "COUNT" => {
            let (sub, filters) = filters(&mut parts, "COUNT", limits)?;
            Ok(ClientMessage::Count { sub, filters })
        }
        "NEG-OPEN" => neg_open(&mut parts, limits),
        "NEG-MSG" => {
            let sub = sub_id(&mut parts, "NEG-MSG")?;
            let frame = neg_frame(&mut parts, &sub)?;
            Ok(ClientMessage::NegMsg { sub, frame })
        }
        "NEG-CLOSE" => sub_id(&mut parts, "NEG-CLOSE").map(|sub| ClientMessage::NegClose { sub }),
        _ => Err(bad("unknown message type")),
    }
}

/// The id that a broken event claims, so that its OK can name it.
pub fn claimed_id(event_json: &str) -> Option<EventId> {
    #[derive(serde::Deserialize)]
    struct Claim {
        id: EventId,
    }
    serde_json::from_str::<Claim>(event_json)
        .ok()
        .map(|claim| claim.id)
}

fn bad(why: &str) -> Rejected {
    Rejected::Notice(format!("invalid: {why}"))
}

fn one<'a>(parts: &mut impl Iterator<Item = &'a str>, what: &str) -> Result<&'a str, Rejected> {
    parts.next().ok_or_else(|| bad(what))
}

fn sub_id<'a>(parts: &mut impl Iterator<Item = &'a str>, kind: &str) -> Result<String, Rejected> {
    let sub: String = parts
        .next()
        .and_then(|part| serde_json::from_str(part).ok())
        .ok_or_else(|| bad(&format!("{kind} takes a subscription id")))?;
    if (1..=MAX_SUB_ID).contains(&sub.chars().count()) {
        return Ok(sub);
    }
    let reason = format!("invalid: a subscription id has 1 to {MAX_SUB_ID} characters");
    Err(if kind.starts_with("NEG") {
        Rejected::NegErr { sub, reason }
    } else {
        Rejected::Closed { sub, reason }
    })
}

fn filters<'a>(
    parts: &mut impl Iterator<Item = &'a str>,
    kind: &str,
    limits: &Limits,
) -> Result<(String, Vec<Filter>), Rejected> {
    let sub = sub_id(parts, kind)?;
    let closed = |reason: String| Rejected::Closed {
        sub: sub.clone(),
        reason,
    };
    let mut filters = Vec::new();
    for part in parts {
        if filters.len() == limits.filters {
            return Err(closed(format!(
                "blocked: more than {} filters",
                limits.filters
            )));
        }
        filters.push(filter(part, limits).map_err(closed)?);
    }
    if filters.is_empty() {
        return Err(closed(format!("invalid: {kind} takes at least one filter")));
    }
    Ok((sub, filters))
}

fn filter(json: &str, limits: &Limits) -> Result<Filter, String> {
    let filter = Filter::parse(json).map_err(|error| error.to_string())?;
    if filter.value_count() > limits.filter_values {
        return Err(format!(
            "blocked: more than {} values in a filter",
            limits.filter_values
        ));
    }
    Ok(filter)
}

fn neg_open<'a>(
    parts: &mut impl Iterator<Item = &'a str>,
    limits: &Limits,
) -> Result<ClientMessage<'a>, Rejected> {
    let sub = sub_id(parts, "NEG-OPEN")?;
    let parsed = match parts.next() {
        Some(json) => filter(json, limits),
        None => Err("invalid: NEG-OPEN takes a filter".to_owned()),
    };
    let filter = parsed.map_err(|reason| Rejected::NegErr {
        sub: sub.clone(),
        reason,
    })?;
    let frame = neg_frame(parts, &sub)?;
    Ok(ClientMessage::NegOpen {
        sub,
        filter: Box::new(filter),
        frame,
    })
}

fn neg_frame<'a>(
    parts: &mut impl Iterator<Item = &'a str>,
    sub: &str,
) -> Result<Vec<u8>, Rejected> {
    parts
        .next()
        .and_then(|part| serde_json::from_str::<std::borrow::Cow<'_, str>>(part).ok())
        .and_then(|hex| hex_to_vec(&hex).ok())
        .ok_or_else(|| Rejected::NegErr {
            sub: sub.to_owned(),
            reason: "invalid: a negentropy message is lower-case hex".to_owned(),
        })
}

/// A JSON string.
pub fn quote(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// `sub` and `json` are JSON already.
pub fn event(sub: &str, json: &str) -> Utf8Bytes {
    let mut frame = String::with_capacity(12 + sub.len() + json.len());
    frame.push_str(r#"["EVENT","#);
    frame.push_str(sub);
    frame.push(',');
    frame.push_str(json);
    frame.push(']');
    frame.into()
}

pub fn ok(id: &EventId, word: &Word) -> Utf8Bytes {
    match word {
        Word::Answer(Answer::Accepted) => ok_text(id, true, ""),
        Word::Answer(Answer::Held) => ok_text(
            id,
            true,
            "purgatory: won't be served until git data arrives",
        ),
        Word::Answer(Answer::Duplicate) => ok_text(id, true, "duplicate: already have this event"),
        Word::Answer(Answer::Refused(refusal)) => ok_text(id, false, &refusal.to_string()),
        Word::Unverifiable(error) => ok_error(id, error),
    }
}

pub fn ok_error(id: &EventId, error: &EventError) -> Utf8Bytes {
    ok_text(id, false, &error.to_string())
}

pub fn ok_text(id: &EventId, accepted: bool, text: &str) -> Utf8Bytes {
    format!(r#"["OK","{id}",{accepted},{}]"#, quote(text)).into()
}

/// With the hint of NIP-67 where it is known.
pub fn eose(sub: &str, completeness: Completeness) -> Utf8Bytes {
    match completeness {
        Completeness::Finish => format!(r#"["EOSE",{sub},["finish"]]"#),
        Completeness::More => format!(r#"["EOSE",{sub},["more"]]"#),
        Completeness::Unknown => format!(r#"["EOSE",{sub}]"#),
    }
    .into()
}

pub fn closed(sub: &str, reason: &str) -> Utf8Bytes {
    format!(r#"["CLOSED",{sub},{}]"#, quote(reason)).into()
}

pub fn notice(text: &str) -> Utf8Bytes {
    format!(r#"["NOTICE",{}]"#, quote(text)).into()
}

pub fn auth(challenge: &str) -> Utf8Bytes {
    format!(r#"["AUTH",{}]"#, quote(challenge)).into()
}

pub fn count(sub: &str, count: usize, approximate: bool) -> Utf8Bytes {
    if approximate {
        format!(r#"["COUNT",{sub},{{"count":{count},"approximate":true}}]"#).into()
    } else {
        format!(r#"["COUNT",{sub},{{"count":{count}}}]"#).into()
    }
}

pub fn neg_msg(sub: &str, frame: &[u8]) -> Utf8Bytes {
    format!(r#"["NEG-MSG",{sub},"{}"]"#, to_hex(frame)).into()
}

pub fn neg_err(sub: &str, reason: &str) -> Utf8Bytes {
    format!(r#"["NEG-ERR",{sub},{}]"#, quote(reason)).into()
}
