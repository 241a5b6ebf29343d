//! The wire, seen from the client: what relays send is parsed strictly and within bounds, what we
//! send is written. Nothing a relay sends is more than this file makes of it.

use std::borrow::Cow;
use std::fmt;

use grasp_core::id::{hex_to_vec, to_hex};
use grasp_core::{EventId, Filter, SubNo};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Longest challenge that we sign (NIP-42).
const MAX_CHALLENGE: usize = 1024;
/// Longest reason that is looked at.
const MAX_REASON: usize = 1024;

/// A relay's message.
#[derive(Debug, PartialEq, Eq)]
pub enum Said<'a> {
    Event {
        sub: Sub,
        json: &'a str,
    },
    Eose {
        sub: Sub,
        /// Nothing older is there (NIP-67).
        complete: bool,
    },
    Closed {
        sub: Sub,
        reason: String,
    },
    Notice(String),
    Ok {
        id: EventId,
        accepted: bool,
    },
    Auth(String),
    NegMsg {
        sub: Sub,
        frame: Vec<u8>,
    },
    NegErr {
        sub: Sub,
        reason: String,
    },
    /// Of a kind that we do not know.
    Unknown,
}

/// The subscription that a message names: one that we may have opened, or somebody's fancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sub {
    Ours(SubNo),
    Foreign,
}

/// `None` for what is no message at all.
pub fn parse(text: &str) -> Option<Said<'_>> {
    let Parts([kind, first, second]) = serde_json::from_str(text).ok()?;
    let kind: Cow<'_, str> = read_text(kind?)?;
    Some(match &*kind {
        "EVENT" => Said::Event {
            sub: sub(first?)?,
            json: second?.get(),
        },
        "EOSE" => Said::Eose {
            sub: sub(first?)?,
            complete: second.is_some_and(is_finish),
        },
        "CLOSED" => Said::Closed {
            sub: sub(first?)?,
            reason: reason(second),
        },
        "NOTICE" => Said::Notice(reason(first)),
        "OK" => Said::Ok {
            id: serde_json::from_str(first?.get()).ok()?,
            accepted: serde_json::from_str(second?.get()).ok()?,
        },
        "AUTH" => {
            let challenge = read_text(first?)?;
            if challenge.is_empty() || challenge.len() > MAX_CHALLENGE {
                return None;
            }
            Said::Auth(challenge.into_owned())
        }
        "NEG-MSG" => Said::NegMsg {
            sub: sub(first?)?,
            frame: hex_to_vec(&read_text(second?)?).ok()?,
        },
        "NEG-ERR" => Said::NegErr {
            sub: sub(first?)?,
            reason: reason(second),
        },
        _ => Said::Unknown,
    })
}

/// The first parts of a message; whatever follows them is not kept.
struct Parts<'a>([Option<&'a RawValue>; 3]);

impl<'de> Deserialize<'de> for Parts<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Parts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Parts<'de>, A::Error> {
                let mut parts = [None; 3];
                for part in &mut parts {
                    *part = list.next_element()?;
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Parts(parts))
            }
        }
        deserializer.deserialize_seq(List)
    }
}

fn read_text(part: &RawValue) -> Option<Cow<'_, str>> {
    /// Borrowed where nothing is escaped.
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str(part.get()).ok().map(|Text(text)| text)
}

fn reason(part: Option<&RawValue>) -> String {
    let text = part.and_then(read_text).unwrap_or_default();
    text.chars().take(MAX_REASON).collect()
}

fn is_finish(hint: &RawValue) -> bool {
    let words: Option<Vec<Cow<'_, str>>> = serde_json::from_str(hint.get()).ok();
    words.is_some_and(|words| words.iter().any(|word| word == "finish"))
}

/// Our names have one spelling.
fn sub(part: &RawValue) -> Option<Sub> {
    let text = read_text(part)?;
    let number = text.strip_prefix(PREFIX).and_then(|n| n.parse().ok());
    Some(match number.map(SubNo) {
        Some(sub) if name(sub) == text => Sub::Ours(sub),
        _ => Sub::Foreign,
    })
}

const PREFIX: &str = "g";

/// What a subscription is called on the wire.
pub fn name(sub: SubNo) -> String {
    format!("{PREFIX}{}", sub.0)
}

pub fn req(sub: SubNo, filters: &[Filter]) -> String {
    let mut frame = format!(r#"["REQ","{}""#, name(sub));
    for filter in filters {
        frame.push(',');
        frame.push_str(&json(filter));
    }
    frame.push(']');
    frame
}

pub fn close(sub: SubNo) -> String {
    format!(r#"["CLOSE","{}"]"#, name(sub))
}

/// `event` is JSON already.
pub fn auth(event: &str) -> String {
    format!(r#"["AUTH",{event}]"#)
}

pub fn neg_open(sub: SubNo, filter: &Filter, frame: &[u8]) -> String {
    let (name, filter, hex) = (name(sub), json(filter), to_hex(frame));
    format!(r#"["NEG-OPEN","{name}",{filter},"{hex}"]"#)
}

pub fn neg_msg(sub: SubNo, frame: &[u8]) -> String {
    format!(r#"["NEG-MSG","{}","{}"]"#, name(sub), to_hex(frame))
}

pub fn neg_close(sub: SubNo) -> String {
    format!(r#"["NEG-CLOSE","{}"]"#, name(sub))
}

fn json(filter: &Filter) -> String {
    // Texts and numbers always serialise.
    serde_json::to_string(filter).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::message;
    use grasp_core::Limits;

    const ID: &str = "dc90c95f09947507c1044e8f48bcf6350aa6bff1507dd4acfc755b9239b5c962";

    #[test]
    fn every_message_of_a_relay_is_understood() {
        let ours = |n| Sub::Ours(SubNo(n));
        let id = EventId::from_hex(ID).unwrap();
        let accepted = format!(r#"["OK","{ID}",true,""]"#);
        let refused = format!(r#"["OK","{ID}",false]"#);
        let cases = [
            (
                r#"["EVENT","g7", {"x":[1]} ]"#,
                Said::Event {
                    sub: ours(7),
                    json: r#"{"x":[1]}"#,
                },
            ),
            (
                r#"["EOSE","g0"]"#,
                Said::Eose {
                    sub: ours(0),
                    complete: false,
                },
            ),
            (
                r#"["EOSE","g4294967295",["finish"]]"#,
                Said::Eose {
                    sub: ours(u32::MAX),
                    complete: true,
                },
            ),
            (
                r#" [ "EOSE" , "g1" , [ "more" ] , 1, 2, 3 ] "#,
                Said::Eose {
                    sub: ours(1),
                    complete: false,
                },
            ),
            (
                r#"["CLOSED","g1","error: \u0041"]"#,
                Said::Closed {
                    sub: ours(1),
                    reason: "error: A".to_owned(),
                },
            ),
            (
                r#"["CLOSED","\u0067\u0031"]"#,
                Said::Closed {
                    sub: ours(1),
                    reason: String::new(),
                },
            ),
            (r#"["NOTICE","hi"]"#, Said::Notice("hi".to_owned())),
            (r#"["NOTICE",7]"#, Said::Notice(String::new())),
            (&accepted, Said::Ok { id, accepted: true }),
            (
                &refused,
                Said::Ok {
                    id,
                    accepted: false,
                },
            ),
            (r#"["AUTH","abc"]"#, Said::Auth("abc".to_owned())),
            (
                r#"["NEG-MSG","g2","61ff"]"#,
                Said::NegMsg {
                    sub: ours(2),
                    frame: vec![0x61, 0xff],
                },
            ),
            (
                r#"["NEG-ERR","g2","blocked: no"]"#,
                Said::NegErr {
                    sub: ours(2),
                    reason: "blocked: no".to_owned(),
                },
            ),
            (r#"["COUNT","g2",{"count":1}]"#, Said::Unknown),
            (r#"["HELLO"]"#, Said::Unknown),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn names_that_are_not_ours_are_foreign() {
        for name in [
            "",
            "1",
            "g",
            "g01",
            "g+1",
            "g-1",
            "G1",
            "g1 ",
            "g4294967296",
        ] {
            let text = format!(r#"["EOSE","{name}"]"#);
            let expected = Said::Eose {
                sub: Sub::Foreign,
                complete: false,
            };
            assert_eq!(parse(&text), Some(expected), "{name}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let long = format!(r#"["AUTH","{}"]"#, "x".repeat(MAX_CHALLENGE + 1));
        let deep = format!("[{}", "[".repeat(100_000));
        for text in [
            "",
            "{}",
            "[]",
            "[1]",
            r#"["EVENT"]"#,
            r#"["EVENT","g1"]"#,
            r#"["EVENT",1,{}]"#,
            r#"["EOSE"]"#,
            r#"["OK","abc",true,""]"#,
            r#"["OK"]"#,
            r#"["AUTH"]"#,
            r#"["AUTH",""]"#,
            r#"["AUTH",{}]"#,
            r#"["NEG-MSG","g1","6"]"#,
            r#"["NEG-MSG","g1","zz"]"#,
            r#"["NEG-MSG","g1"]"#,
            r#"["EOSE","g1"]]"#,
            r#"["EOSE","g1""#,
            &long,
            &deep,
        ] {
            assert_eq!(parse(text), None, "{text:.80}");
        }
    }

    #[test]
    fn our_own_server_understands_what_we_write() {
        let filter = Filter::parse(r##"{"kinds":[1],"#a":["a\"b"],"since":5}"##).unwrap();
        let limits = Limits::default();
        let sub = SubNo(12);
        for frame in [
            req(sub, &[filter.clone(), Filter::default()]),
            close(sub),
            neg_open(sub, &filter, &[0x61]),
            neg_msg(sub, &[0x61, 0]),
            neg_close(sub),
            auth("{}"),
        ] {
            assert!(message::parse(&frame, &limits).is_ok(), "{frame}");
        }
    }
}
