//! Another relay's information document, as far as it limits what we may ask.

use grasp_core::sync::io::Description;
use serde_json::Value;

pub const TYPE: &str = "application/nostr+json";
/// A longer document is none.
pub const MAX_BYTES: usize = 64 * 1024;

/// A document that can be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Document {
    pub limits: Description,
    /// The process that wrote it, if that is one of ours.
    pub instance: Option<String>,
}

/// Beyond it a number says no more than "plenty".
const PLENTY: u64 = 1 << 30;

/// `None` for what is no document.
pub fn read(body: &[u8]) -> Option<Document> {
    let document: Value = serde_json::from_slice(body).ok()?;
    let fields = document.as_object()?;
    let limitation = fields.get("limitation");
    // Nothing is no limit that anybody means.
    let limit = |name: &str, least: u64| {
        let number = limitation?.get(name)?.as_u64().filter(|n| *n > 0)?;
        u32::try_from(number.clamp(least, PLENTY)).ok()
    };
    let nips = fields.get("supported_nips").and_then(Value::as_array);
    let lists = |nip: u64| nips.is_some_and(|nips| nips.iter().any(|n| n.as_u64() == Some(nip)));
    let version = fields.get("negentropy").and_then(Value::as_u64);
    let instance = fields.get("instance").and_then(Value::as_str);
    Some(Document {
        limits: Description {
            subscriptions: limit("max_subscriptions", 1),
            filters: limit("max_filters", 1),
            // A request of one filter with one value fits, whatever is said.
            message_bytes: limit("max_message_length", 1024),
            limit: limit("max_limit", 1),
            filter_values: limit("max_filter_values", 1),
            connection_values: limit("max_connection_filter_values", 1),
            reconciles: lists(77) || version.is_some_and(|version| version > 0),
        },
        instance: instance.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_where_they_make_sense() {
        let document = read(
            br#"{"name":"x","supported_nips":[1,11,77],"instance":"me","limitation":{
            "max_subscriptions":20,"max_filters":99999999999,"max_message_length":1,
            "max_limit":-5,"max_filter_values":"many","max_connection_filter_values":0}}"#,
        );
        let expected = Description {
            subscriptions: Some(20),
            filters: Some(1 << 30),
            message_bytes: Some(1024),
            limit: None,
            filter_values: None,
            connection_values: None,
            reconciles: true,
        };
        let document = document.unwrap();
        assert_eq!(document.limits, expected);
        assert_eq!(document.instance.as_deref(), Some("me"));
    }

    #[test]
    fn a_document_may_say_nothing_but_must_be_one() {
        for empty in [
            &b"{}"[..],
            br#"{"limitation":null,"supported_nips":"77"}"#,
            br#"{"limitation":[],"supported_nips":[null,"77",-1,7.5]}"#,
        ] {
            let document = read(empty).unwrap();
            assert_eq!(document.limits, Description::default());
            assert_eq!(document.instance, None);
        }
        assert!(read(br#"{"negentropy":1}"#).unwrap().limits.reconciles);
        let deep = "[".repeat(10_000);
        for bad in [
            &b""[..],
            b"[]",
            b"<html>",
            b"{",
            deep.as_bytes(),
            b"\xff\xfe",
        ] {
            assert_eq!(read(bad), None);
        }
    }
}
