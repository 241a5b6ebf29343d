//! Live events come in time to everybody, however many filters others have filed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use testkit::{Author, Client, FROM_ELSEWHERE, Server, Value, json, now};

use crate::support::{author, start};

const HOSTILE: &str = "203.0.113.9";
const READER: &str = "198.51.100.20";

/// Subscriptions of 64 filters each that all name the value which is published next, and another
/// that never is: each is looked at, and none matches.
async fn file_in_vain(server: &Server, connections: usize) -> Vec<Client> {
    let mut open = Vec::new();
    for n in 0..connections {
        let mut client = Client::connect_from(&server.ws_url(), HOSTILE).await;
        for sub in 0..256 {
            let filter =
                |k: usize| json!({"#t": ["hot"], "#x": [format!("{n}-{sub}-{k}")], "limit": 1});
            let mut request = vec![json!("REQ"), json!(sub.to_string())];
            request.extend((0..64).map(filter));
            client.send(&Value::Array(request)).await;
        }
        open.push(client);
    }
    for client in &mut open {
        let mut answered = BTreeSet::new();
        while answered.len() < 256 {
            let answer = client.next().await;
            answered.insert(answer[1].as_str().map(str::to_owned));
        }
    }
    open
}

/// As many tags as an event may have, the hot one last.
fn with_many_tags(author: &Author, n: u64) -> grasp_core::Event {
    let tag = |k: u64| vec!["t".to_owned(), format!("{n}-{k}")];
    let mut tags: Vec<Vec<String>> = (0..2_400).map(tag).collect();
    tags.push(vec!["t".to_owned(), "hot".to_owned()]);
    author.event_tags(1, now(), tags, "")
}

#[tokio::test]
async fn a_hundred_thousand_filters_for_one_value_hold_up_nobody() {
    let server = start(&[FROM_ELSEWHERE]);
    let mut reader = Client::connect_from(&server.ws_url(), READER).await;
    let author = author();
    reader
        .request("live", &[json!({"authors": [author.pubkey()]})])
        .await;
    let _hostile = file_in_vain(&server, 8).await;
    let began = Instant::now();
    for n in 0..6 {
        let event = with_many_tags(&author, n);
        let (accepted, text) = reader.publish(&event).await;
        assert!(accepted, "{text}");
    }
    for _ in 0..6 {
        reader.expect("EVENT").await;
    }
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(5), "{waited:?}");
}
