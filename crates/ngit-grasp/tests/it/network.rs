//! Several servers that mirror each other, each behind a line that can be cut.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use grasp_core::Event;
use testkit::{Author, Client, Project, Proxy, Server, Value, WorkTree, json, now};

use crate::hosted::GRASP;
use crate::support::{DEADLINE, start};

/// Quick to try again, so that no test waits for long.
const SYNC: &[(&str, &str)] = &[
    ("NGIT_SYNC_ENABLED", "true"),
    ("NGIT_ALLOW_PRIVATE_ADDRESSES", "true"),
    ("NGIT_SYNC_BASE_BACKOFF_SECS", "1"),
    ("NGIT_SYNC_MAX_BACKOFF_SECS", "2"),
    ("NGIT_EVENTS_PER_MINUTE_PER_KEY", "0"),
    ("NGIT_EVENTS_PER_MINUTE_PER_IP", "0"),
    ("RUST_LOG", "info"),
];

/// A server with the address under which the others know it.
pub struct Node {
    pub server: Server,
    pub line: Proxy,
}

impl Node {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(env: &[(&str, &str)]) -> Self {
        let line = Proxy::to_nowhere().await;
        let domain = line.addr().to_string();
        let own = [("NGIT_DOMAIN", domain.as_str())];
        let server = start(&[GRASP, SYNC, &own, env].concat());
        line.lead_to(server.addr());
        Self { server, line }
    }

    pub fn host(&self) -> String {
        self.line.addr().to_string()
    }

    /// A client that is not bothered by what happens to the line.
    pub async fn client(&self) -> Client {
        Client::connect(&self.server.ws_url()).await
    }

    pub fn restart(&mut self) {
        self.server.restart();
        self.line.lead_to(self.server.addr());
    }

    pub async fn publish(&self, event: &Event) {
        let (taken, says) = self.client().await.publish(event).await;
        assert!(taken, "{says}: {event:?}\n{}", self.server.log());
    }

    /// Waits until an event is served here.
    pub async fn awaits(&self, event: &Event, what: &str) {
        let ids = json!({"ids": [event.id]});
        self.awaits_count(&ids, 1, what).await;
    }

    /// Waits until so many events of a filter are served here.
    pub async fn awaits_count(&self, filter: &Value, wanted: u64, what: &str) {
        let mut client = self.client().await;
        let deadline = Instant::now() + 2 * DEADLINE;
        let mut looks = tokio::time::interval(Duration::from_millis(50));
        loop {
            client.send(&json!(["COUNT", "count", filter])).await;
            let found = client.expect("COUNT").await[2]["count"].as_u64();
            if found == Some(wanted) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{what}: {found:?} of {wanted}\n{:#}\n{}",
                self.status()["sync"],
                self.server.log()
            );
            looks.tick().await;
        }
    }

    /// What the server says of the relays that it knows.
    pub fn status(&self) -> Value {
        let reply = crate::support::get(self.server.addr(), "/api/status");
        serde_json::from_str(&reply.body).expect("the status is JSON")
    }

    /// Waits until every relay that it knows is connected and nothing is missing.
    pub async fn in_step(&self, relays: usize) {
        let deadline = Instant::now() + 2 * DEADLINE;
        let mut looks = tokio::time::interval(Duration::from_millis(50));
        loop {
            let status = self.status();
            let known = status["sync"]["relays"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let connected = known.iter().filter(|relay| relay["state"] == "connected");
            if known.len() == relays && connected.count() == relays {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{status:#}\n{}",
                self.server.log()
            );
            looks.tick().await;
        }
    }
}

/// A repository that is pushed to every node.
pub async fn hosted_at(nodes: &[&Node], project: &Project, more: &[String]) -> WorkTree {
    let tree = WorkTree::new();
    let first = tree.commit("README", project.identifier.as_bytes());
    let hosts: Vec<String> = nodes.iter().map(|node| node.host()).collect();
    let announcement = project.announcement_at(now() - 100, &hosts, more);
    let state = project.state(&project.owner, now() - 100, &[("refs/heads/main", &first)]);
    for node in nodes {
        node.publish(&announcement).await;
        node.publish(&state).await;
        tree.git(&["push", "-q", &project.url(&node.server), "main"]);
        node.awaits(&announcement, "the pushed repository").await;
    }
    tree
}

pub fn issue(by: &Author, projects: &[&Project], at: u64) -> Event {
    let tags = projects
        .iter()
        .map(|project| vec!["a".to_owned(), project.address()]);
    by.event_tags(1621, at, tags.collect(), "It does not work")
}

pub fn comment(by: &Author, root: &Event, at: u64) -> Event {
    let id = root.id.to_string();
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let text = format!("I see that too ({})", NEXT.fetch_add(1, Ordering::Relaxed));
    by.event(1111, at, &[&["E", &id], &["K", "1621"], &["e", &id]], &text)
}
