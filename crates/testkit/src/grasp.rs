//! A repository as its people see it: announcements, states and pull requests for one server.

use grasp_core::Event;

use crate::author::{Author, now};
use crate::server::Server;

/// The name under which test servers are announced; they are dialled by their address.
pub const DOMAIN: &str = "git.test";

/// One person's repository on one server.
#[derive(Debug, Clone)]
pub struct Project {
    pub owner: Author,
    pub identifier: String,
    pub maintainers: Vec<Author>,
}

impl Project {
    pub fn new(owner: &Author, identifier: &str) -> Self {
        Self {
            owner: owner.clone(),
            identifier: identifier.to_owned(),
            maintainers: Vec::new(),
        }
    }

    pub fn with(mut self, maintainers: &[&Author]) -> Self {
        self.maintainers = maintainers.iter().map(|author| (*author).clone()).collect();
        self
    }

    /// Where that server has it.
    pub fn url(&self, server: &Server) -> String {
        format!("{}{}", server.http_url(), self.path())
    }

    pub fn address(&self) -> String {
        format!("30617:{}:{}", self.owner.pubkey(), self.identifier)
    }

    /// Below a server's address.
    pub fn path(&self) -> String {
        let name: String = self
            .identifier
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                    char::from(byte).to_string()
                }
                _ => format!("%{byte:02X}"),
            })
            .collect();
        format!("/{}/{name}.git", self.owner.npub())
    }

    pub fn announcement(&self, created_at: u64) -> Event {
        let clone = format!("https://{DOMAIN}{}", self.path());
        self.announced(created_at, vec![clone], vec![format!("wss://{DOMAIN}")])
    }

    /// Hosted by all of these, and mirrored by these relays besides.
    pub fn announcement_at(&self, created_at: u64, hosts: &[String], more: &[String]) -> Event {
        let clone = |host: &String| format!("http://{host}{}", self.path());
        let relays = hosts.iter().map(|host| format!("ws://{host}"));
        self.announced(
            created_at,
            hosts.iter().map(clone).collect(),
            relays.chain(more.iter().cloned()).collect(),
        )
    }

    fn announced(&self, created_at: u64, clone: Vec<String>, relays: Vec<String>) -> Event {
        let named = |name: &str, values: Vec<String>| {
            let name = std::iter::once(name.to_owned());
            name.chain(values).collect::<Vec<String>>()
        };
        let mut tags = vec![
            vec!["d".to_owned(), self.identifier.clone()],
            vec!["name".to_owned(), format!("The {}", self.identifier)],
            named("clone", clone),
            named("relays", relays),
        ];
        if !self.maintainers.is_empty() {
            let mut tag = vec!["maintainers".to_owned()];
            tag.extend(self.maintainers.iter().map(|key| key.pubkey().to_string()));
            tags.push(tag);
        }
        self.owner.event_tags(30617, created_at, tags, "")
    }

    /// A state that its author signs; refs as full names and ids.
    pub fn state(&self, by: &Author, created_at: u64, refs: &[(&str, &str)]) -> Event {
        let mut tags = vec![vec!["d".to_owned(), self.identifier.clone()]];
        for (name, id) in refs {
            tags.push(vec![(*name).to_owned(), (*id).to_owned()]);
        }
        tags.push(vec!["HEAD".to_owned(), "ref: refs/heads/main".to_owned()]);
        by.event_tags(30618, created_at, tags, "")
    }

    pub fn pull_request(&self, by: &Author, tip: &str) -> Event {
        let tags = vec![
            vec!["a".to_owned(), self.address()],
            vec!["c".to_owned(), tip.to_owned()],
            vec!["subject".to_owned(), "please merge".to_owned()],
        ];
        by.event_tags(1618, now(), tags, "")
    }
}
