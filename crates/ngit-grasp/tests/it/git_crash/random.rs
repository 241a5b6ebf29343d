//! kill -9 at random moments, with several people at work.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use grasp_core::Event;
use testkit::{Client, Project, json};

use super::{Ledger, Person, Request, Signed, World, blocking, next_state, push_state};
use crate::hosted::{await_served, grasp_with, remote_ref, served};
use crate::support::{eventually, get, stored};

/// A hundred rounds in all; in four worlds, because a round waits for the disk more than it works.
const WORLDS: u64 = 4;
const ROUNDS: usize = 25;
/// Long enough for a few pushes of each.
const LONGEST_ROUND: u64 = 400;
const STEPS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_kill_at_any_moment_of_a_release_loses_nothing() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let worlds = (0..WORLDS).map(|n| tokio::spawn(rounds(seed.wrapping_add(n))));
    let (mut requests, mut repositories) = (0, 0);
    for world in worlds.collect::<Vec<_>>() {
        let done = world.await.unwrap();
        requests += done.0;
        repositories += done.1;
    }
    let enough = WORLDS as usize * ROUNDS / 8;
    assert!(requests > enough && repositories > enough);
}

/// Pull requests and repositories that were acknowledged.
async fn rounds(seed: u64) -> (usize, usize) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut world = World::with_two_maintainers(seed).await;
    for round in 0..ROUNDS {
        world.story = format!("seed {seed}, round {round}");
        let from = world.ledger().lengths();
        let fresh = Project::new(&world.dave.author, &format!("fresh-{round}"));
        let mut work = tokio::spawn(world.everybody(&fresh));
        let moment = Duration::from_millis(dice.u64(0..LONGEST_ROUND));
        // Whatever is under way at that moment is cut.
        let early = tokio::time::timeout(moment, &mut work).await;
        world.server.kill9();
        let announced = match early {
            Ok(done) => done.unwrap(),
            Err(_) => work.await.unwrap(),
        };
        world.server.restart();
        world.complete(from, &fresh, announced).await;
        let projects = [world.hers(), world.his(), fresh];
        world.assert_whole(&projects).await;
    }
    world.assert_at_the_end().await
}

impl World {
    async fn with_two_maintainers(seed: u64) -> Self {
        let server = grasp_with(&[
            ("NGIT_EVENTS_PER_MINUTE_PER_KEY", "0"),
            ("NGIT_MAX_QUERY_RESULTS", "5000"),
        ]);
        let world = Self::new(server, seed);
        let mut client = Client::connect(&world.server.ws_url()).await;
        for project in [world.hers(), world.his()] {
            let announcement = project.announcement(world.tick());
            assert!(client.publish(&announcement).await.0);
        }
        // A pull request waits for its repository; this one is served from now on.
        let mut first = next_state(&world.alice, &world.hers(), world.tick());
        assert!(client.publish(&first.event).await.0);
        let url = world.hers().url(&world.server);
        let pushed = push_state(world.alice.clone(), &url, &first.heads);
        assert!(pushed.is_ok(), "{pushed:?}");
        (first.acknowledged, first.pushed) = (true, true);
        world.ledger().states.push(first);
        world
    }

    /// Everybody works until the server is gone. Was the new repository acknowledged?
    fn everybody(&self, fresh: &Project) -> impl Future<Output = bool> + Send + 'static {
        let at = |project: &Project| At {
            ws: self.server.ws_url(),
            url: project.url(&self.server),
            project: project.clone(),
            ledger: Arc::clone(&self.ledger),
            clock: Arc::clone(&self.clock),
        };
        let (hers, his) = (at(&self.hers()), at(&self.his()));
        let (pulls, fresh) = (at(&self.hers()), at(fresh));
        let (alice, bob) = (self.alice.clone(), self.bob.clone());
        let (carol, dave) = (self.carol.clone(), self.dave.clone());
        async move {
            let (_, _, _, announced) = tokio::join!(
                hers.maintain(alice),
                his.maintain(bob),
                pulls.propose(carol),
                fresh.begin(dave),
            );
            announced
        }
    }

    /// What was acknowledged and is not served must be held: its push is taken.
    async fn complete(&self, from: (usize, usize), fresh: &Project, announced: bool) {
        let mut client = Client::connect(&self.server.ws_url()).await;
        let (states, requests) = self.ledger().since(from);
        for identifier in ["shared", &fresh.identifier] {
            let newest = states
                .iter()
                .filter(|state| state.acknowledged && state.project.identifier == identifier)
                .max_by_key(|state| state.event.created_at);
            if let Some(newest) = newest {
                self.complete_state(&mut client, newest).await;
            }
        }
        if announced {
            self.complete_fresh(&mut client, fresh).await;
        }
        for request in &requests {
            self.complete_request(&mut client, request).await;
        }
    }

    async fn complete_state(&self, client: &mut Client, state: &Signed) {
        let story = &self.story;
        let is_served = served(client, &state.event).await;
        if state.pushed {
            assert!(
                is_served,
                "{story}: pushed and not served: {:?}",
                state.event
            );
        }
        if !is_served {
            let said = push_state(
                self.person(&state.event).clone(),
                &state.project.url(&self.server),
                &state.heads,
            );
            assert!(said.is_ok(), "{story}: {:?} is lost: {said:?}", state.event);
            // Refs that had moved before the kill leave git nothing to push; the start releases.
            await_served(client, &state.event, true, story).await;
        }
        let main = remote_ref(&state.project.url(&self.server), "refs/heads/main");
        assert_eq!(main.as_ref(), state.heads.get("refs/heads/main"), "{story}");
    }

    /// An announcement that was acknowledged takes a state and a push.
    async fn complete_fresh(&self, client: &mut Client, fresh: &Project) {
        let path = format!(
            "/{}/{}.git/info/refs?service=git-receive-pack",
            fresh.owner.npub(),
            fresh.identifier
        );
        let is_there = || async { get(self.server.addr(), &path).status == 200 };
        eventually(&format!("{}: the repository", self.story), is_there).await;
        let signed = next_state(&self.dave, fresh, self.tick());
        self.ledger().states.push(signed.clone());
        let (taken, why) = client.publish(&signed.event).await;
        assert!(taken, "{}: the announcement is lost: {why}", self.story);
        let said = push_state(self.dave.clone(), &fresh.url(&self.server), &signed.heads);
        assert!(said.is_ok(), "{}: {said:?}", self.story);
        assert!(served(client, &signed.event).await, "{}", self.story);
    }

    async fn complete_request(&self, client: &mut Client, request: &Request) {
        let story = &self.story;
        let url = self.hers().url(&self.server);
        let name = format!("refs/nostr/{}", request.event.id);
        if request.pushed {
            let found = remote_ref(&url, &name);
            assert_eq!(
                found.as_deref(),
                Some(request.tip.as_str()),
                "{story}: a pushed tip"
            );
        }
        if request.acknowledged && request.pushed {
            // The server listens before its start has settled everything.
            await_served(client, &request.event, true, story).await;
        } else if request.acknowledged {
            let refspec = format!("+{}:{name}", request.tip);
            let said = self.carol.tree.try_git(&["push", "-q", &url, &refspec]);
            assert!(said.ok, "{story}: {:?} is lost: {said:?}", request.event);
        } else {
            let (taken, why) = client.publish(&request.event).await;
            assert!(taken, "{story}: {why}");
        }
        if request.acknowledged || request.pushed {
            // The server listens before its start has settled everything.
            await_served(client, &request.event, true, story).await;
        }
    }

    fn person(&self, event: &Event) -> &Person {
        let all = [&self.alice, &self.bob, &self.carol, &self.dave];
        let author = all
            .into_iter()
            .find(|one| one.author.pubkey() == event.pubkey);
        author.expect("one of us")
    }

    /// Everything that was ever acknowledged, and every repository.
    async fn assert_at_the_end(&mut self) -> (usize, usize) {
        self.story.push_str(", at the end");
        self.server.restart();
        let mut projects = vec![self.hers(), self.his()];
        let root = self
            .server
            .data_dir()
            .join("git")
            .join(self.dave.author.npub());
        let fresh = std::fs::read_dir(root).into_iter().flatten().flatten();
        let names: Vec<PathBuf> = fresh.map(|entry| entry.path()).collect();
        for name in &names {
            let identifier = name.file_stem().unwrap().to_string_lossy();
            projects.push(Project::new(&self.dave.author, &identifier));
        }
        self.assert_whole(&projects).await;
        let mut client = Client::connect(&self.server.ws_url()).await;
        let events = stored(&mut client, &[json!({"kinds": [1618]})]).await;
        let served: BTreeSet<&str> = events
            .iter()
            .filter_map(|event| event["id"].as_str())
            .collect();
        let (_, requests) = self.ledger().since((0, 0));
        let acknowledged: Vec<_> = requests.iter().filter(|one| one.acknowledged).collect();
        for request in &acknowledged {
            let id = request.event.id.to_string();
            assert!(
                served.contains(id.as_str()),
                "{}: {:?}",
                self.story,
                request.event
            );
        }
        println!(
            "{} repositories, {} states, {} pull requests",
            projects.len(),
            self.ledger().states.len(),
            acknowledged.len()
        );
        (acknowledged.len(), names.len())
    }
}

/// Somebody at work on one repository.
struct At {
    ws: String,
    url: String,
    project: Project,
    ledger: Arc<Mutex<Ledger>>,
    clock: Arc<AtomicU64>,
}

impl At {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn note(&self, change: impl FnOnce(&mut Ledger)) {
        change(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// State, push, state, push.
    async fn maintain(&self, person: Person) {
        let Some(mut client) = Client::try_connect(&self.ws).await else {
            return;
        };
        for _ in 0..STEPS {
            if self.sign_and_push(&mut client, &person).await.is_none() {
                return;
            }
        }
    }

    async fn sign_and_push(&self, client: &mut Client, person: &Person) -> Option<()> {
        let (copy, project, at) = (person.clone(), self.project.clone(), self.tick());
        let signed = blocking(move || next_state(&copy, &project, at)).await;
        let (event, heads) = (signed.event.clone(), signed.heads.clone());
        self.note(|ledger| ledger.states.push(signed));
        let change = |change: fn(&mut Signed)| {
            self.note(|ledger| {
                let mut states = ledger.states.iter_mut();
                change(
                    states
                        .find(|one| one.event.id == event.id)
                        .expect("it is noted"),
                );
            });
        };
        let (taken, why) = client.try_publish(&event).await?;
        // The other maintainer was faster with a newer one.
        if !taken {
            assert!(why.starts_with("replaced:"), "{why}");
            return Some(());
        }
        change(|state| state.acknowledged = true);
        let (person, url) = (person.clone(), self.url.clone());
        if blocking(move || push_state(person, &url, &heads))
            .await
            .is_ok()
        {
            change(|state| state.pushed = true);
        }
        Some(())
    }

    /// Announcement, then as a maintainer does. Was the announcement acknowledged?
    async fn begin(&self, person: Person) -> bool {
        let Some(mut client) = Client::try_connect(&self.ws).await else {
            return false;
        };
        let announcement = self.project.announcement(self.tick());
        match client.try_publish(&announcement).await {
            Some((taken, why)) => assert!(taken, "{why}"),
            None => return false,
        }
        for _ in 0..2 {
            if self.sign_and_push(&mut client, &person).await.is_none() {
                break;
            }
        }
        true
    }

    /// Pull requests, the tip before the event and after it.
    async fn propose(&self, person: Person) {
        let Some(mut client) = Client::try_connect(&self.ws).await else {
            return;
        };
        for n in 0..STEPS {
            let at = self.tick();
            let copy = person.clone();
            let tip =
                blocking(move || copy.tree.commit("feature", at.to_string().as_bytes())).await;
            let event = self.project.pull_request(&person.author, &tip);
            let id = event.id;
            let request = Request {
                event: event.clone(),
                tip: tip.clone(),
                acknowledged: false,
                pushed: false,
            };
            self.note(|ledger| ledger.requests.push(request));
            let change = |change: fn(&mut Request)| {
                self.note(|ledger| {
                    let mut requests = ledger.requests.iter_mut();
                    change(
                        requests
                            .find(|one| one.event.id == id)
                            .expect("it is noted"),
                    );
                });
            };
            for step in 0..2 {
                if (n + step) % 2 == 0 {
                    match client.try_publish(&event).await {
                        Some((taken, why)) => assert!(taken, "{why}"),
                        None => return,
                    }
                    change(|request| request.acknowledged = true);
                } else {
                    let (url, tree) = (self.url.clone(), Arc::clone(&person.tree));
                    let refspec = format!("+{tip}:refs/nostr/{id}");
                    let said =
                        blocking(move || tree.try_git(&["push", "-q", &url, &refspec])).await;
                    if !said.ok {
                        return;
                    }
                    change(|request| request.pushed = true);
                }
            }
        }
    }
}
