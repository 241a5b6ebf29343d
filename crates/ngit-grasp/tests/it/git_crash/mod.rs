//! The end of the process at any moment from announcement to release. After the restart nothing
//! acknowledged is lost, nothing is served without its objects, and every ref has somebody who
//! signed it. Here is who takes part and how that is checked; when the end comes is in `random`
//! and `points`.

mod points;
mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use grasp_core::Event;
use testkit::git::{missing, try_git};
use testkit::{Author, Client, Project, Server, Value, WorkTree, json, now};

use crate::hosted::{directory, leftovers};
use crate::support::{DEADLINE, stored};

type Heads = BTreeMap<String, String>;

/// What people sent, and what they were told.
#[derive(Default)]
struct Ledger {
    states: Vec<Signed>,
    requests: Vec<Request>,
}

/// A state of somebody's repository.
#[derive(Clone)]
struct Signed {
    project: Project,
    event: Event,
    heads: Heads,
    acknowledged: bool,
    pushed: bool,
}

#[derive(Clone)]
struct Request {
    event: Event,
    tip: String,
    acknowledged: bool,
    pushed: bool,
}

#[derive(Clone)]
struct Person {
    author: Author,
    tree: Arc<WorkTree>,
}

impl Person {
    fn new(seed: u64) -> Self {
        Self {
            author: Author::new(seed),
            tree: Arc::new(WorkTree::new_with_commit()),
        }
    }
}

/// One repository of two maintainers, and a new one of somebody else's in each round.
struct World {
    server: Server,
    alice: Person,
    bob: Person,
    carol: Person,
    dave: Person,
    ledger: Arc<Mutex<Ledger>>,
    /// Each event a second later than the one before, so that the newest is never in doubt.
    clock: Arc<AtomicU64>,
    story: String,
}

impl World {
    fn new(server: Server, seed: u64) -> Self {
        Self {
            server,
            alice: Person::new(seed.wrapping_add(1)),
            bob: Person::new(seed.wrapping_add(2)),
            carol: Person::new(seed.wrapping_add(3)),
            dave: Person::new(seed.wrapping_add(4)),
            ledger: Arc::default(),
            clock: Arc::new(AtomicU64::new(now() - 100_000)),
            story: "the start".to_owned(),
        }
    }

    fn hers(&self) -> Project {
        Project::new(&self.alice.author, "shared").with(&[&self.bob.author])
    }

    fn his(&self) -> Project {
        Project::new(&self.bob.author, "shared").with(&[&self.alice.author])
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Once the start has settled: nothing served without its objects, no ref without somebody
    /// who signed it, nothing left lying about.
    async fn assert_whole(&self, projects: &[Project]) {
        let mut client = Client::connect(&self.server.ws_url()).await;
        let deadline = Instant::now() + DEADLINE;
        loop {
            let kinds = json!({"kinds": [30618, 1618]});
            let events = stored(&mut client, &[kinds]).await;
            let faults = self.faults(projects, &events);
            if faults.is_empty() {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{}: {faults:#?}\n{}",
                self.story,
                self.server.log()
            );
            tokio::task::yield_now().await;
        }
        for project in projects {
            let dir = directory(&self.server, project);
            if dir.exists() {
                let said = try_git(&dir, &["fsck", "--connectivity-only", "--no-dangling"]);
                assert!(said.ok, "{}: {said:?}", self.story);
            }
        }
    }

    fn faults(&self, projects: &[Project], events: &[Value]) -> Vec<String> {
        let mut faults: Vec<String> = leftovers(&self.server.data_dir().join("git"))
            .iter()
            .map(|path| format!("left: {}", path.display()))
            .collect();
        for project in projects {
            let dir = directory(&self.server, project);
            if dir.exists() {
                faults.extend(self.faults_of(project, &dir, events));
            }
        }
        faults
    }

    fn faults_of(&self, project: &Project, dir: &Path, events: &[Value]) -> Vec<String> {
        let ledger = self.ledger();
        let mut faults = Vec::new();
        let mut needed = BTreeSet::new();
        let mut newest: Option<&Signed> = None;
        for event in events {
            let id = event["id"].as_str().unwrap();
            if let Some(state) = ledger.state(id, &project.identifier) {
                // In the repository that it was pushed to; one that a newer state has passed by
                // needs them no more.
                if state.project.owner.pubkey() == project.owner.pubkey() {
                    needed.extend(state.heads.values().cloned());
                }
                if newest.is_none_or(|other| other.event.created_at < state.event.created_at) {
                    newest = Some(state);
                }
            }
            if project.owner.pubkey() == self.alice.author.pubkey()
                && let Some(request) = ledger.request(id)
            {
                needed.insert(request.tip.clone());
            }
        }
        let needed: Vec<&str> = needed.iter().map(String::as_str).collect();
        let absent = missing(dir, &needed);
        faults.extend(
            absent
                .iter()
                .map(|id| format!("{id} is not in {}", dir.display())),
        );
        let (heads, tips) = refs_on_disk(dir);
        let expected = newest.map(|state| state.heads.clone()).unwrap_or_default();
        if heads != expected {
            faults.push(format!(
                "{}: {heads:?}, newest served {expected:?}",
                dir.display()
            ));
        }
        for (name, tip) in tips {
            let event = name.trim_start_matches("refs/nostr/");
            if ledger
                .request(event)
                .is_none_or(|request| request.tip != tip)
            {
                faults.push(format!("{}: {name} is nobody's", dir.display()));
            }
        }
        faults
    }
}

impl Ledger {
    fn lengths(&self) -> (usize, usize) {
        (self.states.len(), self.requests.len())
    }

    fn since(&self, (states, requests): (usize, usize)) -> (Vec<Signed>, Vec<Request>) {
        (
            self.states[states..].to_vec(),
            self.requests[requests..].to_vec(),
        )
    }

    fn state(&self, id: &str, identifier: &str) -> Option<&Signed> {
        let mut states = self.states.iter();
        states.find(|one| one.event.id.to_string() == id && one.project.identifier == identifier)
    }

    fn request(&self, id: &str) -> Option<&Request> {
        self.requests
            .iter()
            .find(|one| one.event.id.to_string() == id)
    }
}

/// The next commit, and the branch that is always one behind.
fn next_state(person: &Person, project: &Project, at: u64) -> Signed {
    let before = person.tree.head();
    let main = person.tree.commit("README", at.to_string().as_bytes());
    let refs = [
        ("refs/heads/main", main.as_str()),
        ("refs/heads/topic", &before),
    ];
    let heads = refs.map(|(name, id)| (name.to_owned(), id.to_owned()));
    Signed {
        project: project.clone(),
        event: project.state(&person.author, at, &refs),
        heads: heads.into(),
        acknowledged: false,
        pushed: false,
    }
}

fn push_state(person: Person, url: &str, heads: &Heads) -> Result<(), String> {
    let refspecs = heads.iter().map(|(name, id)| format!("+{id}:{name}"));
    let refspecs: Vec<String> = refspecs.collect();
    let mut args = vec!["push", "-q", url];
    args.extend(refspecs.iter().map(String::as_str));
    let said = person.tree.try_git(&args);
    if said.ok { Ok(()) } else { Err(said.stderr) }
}

/// Heads and tags, and tips of pull requests.
fn refs_on_disk(dir: &Path) -> (Heads, Heads) {
    let said = try_git(dir, &["for-each-ref", "--format=%(refname) %(objectname)"]);
    assert!(said.ok, "{said:?}");
    let lines = said.stdout.lines().filter_map(|line| line.split_once(' '));
    let all = lines.map(|(name, id)| (name.to_owned(), id.to_owned()));
    all.partition(|(name, _)| !name.starts_with("refs/nostr/"))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("it ends")
}
