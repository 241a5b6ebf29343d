//! Somebody at another address who does ordinary things while others attack the server: publishes,
//! asks, pushes and clones, and remembers how long each took.

use std::future::Future;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::author::{Author, now};
use crate::client::{Client, FORWARDED_FOR};
use crate::git::WorkTree;
use crate::grasp::Project;
use crate::server::Server;

/// An address that nobody else in a test has.
const ADDRESS: &str = "198.51.100.77";
/// A key that nobody else in a test has.
const KEY: u64 = 7_700_000;

/// How long each thing took, in the order in which they were done.
#[derive(Debug, Clone, Default)]
pub struct Waits {
    pub publish: Vec<Duration>,
    pub request: Vec<Duration>,
    pub push: Vec<Duration>,
    pub clone: Vec<Duration>,
}

impl Waits {
    /// The longest of all.
    pub fn longest(&self) -> Duration {
        let all = [&self.publish, &self.request, &self.push, &self.clone];
        all.into_iter().flatten().max().copied().unwrap_or_default()
    }
}

/// The duration below which `percent` of them are; zero of none.
pub fn percentile(waits: &[Duration], percent: usize) -> Duration {
    let mut sorted = waits.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

/// The maintainer of a small repository that is served. The server must be started with
/// [`crate::FROM_ELSEWHERE`].
#[derive(Debug)]
pub struct Bystander {
    ws_url: String,
    repository: String,
    author: Author,
    project: Project,
    tree: WorkTree,
    client: Client,
    /// Of the last state; each needs a later second than the one before.
    signed: u64,
    done: u64,
}

impl Bystander {
    /// Announces a repository and pushes to it.
    pub async fn settle(server: &Server) -> Self {
        let author = Author::new(KEY);
        let project = Project::new(&author, "bystander");
        let mut bystander = Self {
            ws_url: server.ws_url(),
            repository: project.url(server),
            client: Client::connect_from(&server.ws_url(), ADDRESS).await,
            tree: WorkTree::new(),
            author,
            project,
            signed: now() - 600,
            done: 0,
        };
        let announcement = bystander.project.announcement(bystander.signed);
        let (accepted, text) = bystander.client.publish(&announcement).await;
        assert!(accepted, "the announcement: {text}");
        bystander.push().await;
        bystander
    }

    /// Of the repository.
    pub fn address(&self) -> String {
        self.project.address()
    }

    /// Where a server has the repository.
    pub fn path(&self) -> String {
        self.project.path()
    }

    /// The URL of the own repository, for those who attack it.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Does all four things over and over until the attack is over, once at least.
    pub async fn during<T>(&mut self, attack: impl Future<Output = T>) -> (T, Waits) {
        let mut waits = Waits::default();
        let mut attack = std::pin::pin!(attack);
        let mut over = None;
        loop {
            {
                let mut round = std::pin::pin!(self.round(&mut waits));
                loop {
                    tokio::select! {
                        result = &mut attack, if over.is_none() => over = Some(result),
                        () = &mut round => break,
                    }
                }
            }
            if let Some(result) = over {
                return (result, waits);
            }
        }
    }

    /// Each thing once.
    pub async fn round(&mut self, waits: &mut Waits) {
        waits.publish.push(self.publish().await);
        waits.request.push(self.request().await);
        waits.push.push(self.push().await);
        waits.clone.push(self.clone().await);
    }

    /// An issue of the own repository, until its OK.
    pub async fn publish(&mut self) -> Duration {
        self.done += 1;
        let (address, text) = (self.project.address(), format!("issue {}", self.done));
        let event = self.author.event(1621, now(), &[&["a", &address]], &text);
        let began = Instant::now();
        let (accepted, text) = self.client.publish(&event).await;
        assert!(accepted, "an issue is refused: {text}");
        began.elapsed()
    }

    /// The own repository's events over a new connection, until EOSE.
    pub async fn request(&mut self) -> Duration {
        let began = Instant::now();
        let mut client = Client::connect_from(&self.ws_url, ADDRESS).await;
        let filter = json!({"#a": [self.project.address()], "limit": 20});
        client.request("bystander", &[filter]).await;
        began.elapsed()
    }

    /// A commit, its state, and the push of it, until git is done.
    pub async fn push(&mut self) -> Duration {
        self.signed += 1;
        let content = self.signed.to_string();
        let tip = self.tree.commit("file", content.as_bytes());
        let refs = [("refs/heads/main", tip.as_str())];
        let state = self.project.state(&self.author, self.signed, &refs);
        let began = Instant::now();
        let (accepted, text) = self.client.publish(&state).await;
        assert!(accepted, "a state is refused: {text}");
        let args = ["push", "-q", &self.repository, "main"];
        self.git(&args).await;
        began.elapsed()
    }

    /// A clone into a new directory, until git is done.
    pub async fn clone(&mut self) -> Duration {
        let target = tempfile::tempdir().expect("a temporary directory");
        let path = target.path().to_string_lossy().into_owned();
        let began = Instant::now();
        self.git(&["clone", "-q", &self.repository, &path]).await;
        began.elapsed()
    }

    /// Runs git on a thread, so that an attack in the same runtime goes on.
    async fn git(&self, args: &[&str]) {
        let dir = self.tree.path().to_owned();
        let header = format!("http.extraHeader={FORWARDED_FOR}: {ADDRESS}");
        let mut all = vec!["-c".to_owned(), header];
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        let ran = tokio::task::spawn_blocking(move || {
            let args: Vec<&str> = all.iter().map(String::as_str).collect();
            let said = crate::git::try_git(&dir, &args);
            assert!(said.ok, "git {args:?}: {}{}", said.stdout, said.stderr);
        });
        ran.await.expect("git is run");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let waits: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&waits, 50), Duration::from_millis(51));
        assert_eq!(percentile(&waits, 99), Duration::from_millis(100));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }
}
