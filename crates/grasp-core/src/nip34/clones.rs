//! The `clone` tags of announcements and pull requests: where else the git data may be.

use super::announcement::all_values;
use crate::clone_url::CloneUrl;
use crate::event::Event;
use crate::service::Service;

/// Git servers of one event that are kept in mind: 32 x about 200 bytes = 6 kB. Most name three.
pub const MAX_CLONES: usize = 32;

/// The git servers that an event names, each once, without ourselves.
pub fn clones(event: &Event, us: &Service) -> Vec<CloneUrl> {
    let mut clones: Vec<CloneUrl> = Vec::new();
    let named = all_values(event, "clone").filter_map(CloneUrl::parse);
    for url in named.filter(|url| !us.is_clone_at(url)) {
        if clones.len() == MAX_CLONES {
            break;
        }
        if !clones.contains(&url) {
            clones.push(url);
        }
    }
    clones.shrink_to_fit();
    clones
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::event::{Kind, event_id};
    use crate::id::Pubkey;

    fn named(urls: &[String]) -> Vec<CloneUrl> {
        let mut clone = vec!["clone".to_owned()];
        clone.extend_from_slice(urls);
        let tags = vec![vec!["d".to_owned(), "r".to_owned()], clone];
        let key = Pubkey([1; 32]);
        let id = event_id(&key, Timestamp(1), Kind::ANNOUNCEMENT, &tags, "");
        let json = serde_json::json!({"id": id, "pubkey": key, "created_at": 1, "kind": 30617,
            "tags": tags, "content": "", "sig": "0".repeat(128)});
        let event = Event::from_stored(&json.to_string()).unwrap();
        clones(&event, &Service::of_url("wss://relay.example").unwrap())
    }

    #[test]
    fn other_servers_are_named_once_and_never_ourselves() {
        let urls = [
            "https://relay.example/npub1x/r.git",
            "http://RELAY.example.:80/other.git",
            "https://git.example/r.git",
            "HTTPS://git.example:443/r.git/",
            "ssh://git.example/r.git",
            "https://relay.example:444/r.git",
        ];
        let found = named(&urls.map(str::to_owned));
        let found: Vec<&str> = found.iter().map(CloneUrl::as_str).collect();
        assert_eq!(
            found,
            [
                "https://git.example/r.git",
                "https://relay.example:444/r.git"
            ]
        );
    }

    #[test]
    fn more_than_a_few_are_not_kept_in_mind() {
        let urls: Vec<String> = (0..100)
            .map(|n| format!("https://h{n}.example/r.git"))
            .collect();
        assert_eq!(named(&urls).len(), MAX_CLONES);
    }
}
