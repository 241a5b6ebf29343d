//! A client that behaves as ngit does: the state first, then libgit2 for fetch and push, with its
//! no-op commands, its ties within one second and its indirect references.

use grasp_core::Event;
use testkit::{Author, Client, Project, Server, Value, WorkTree, json, libgit, now};

use crate::hosted::{HELD, grasp, held, hosted, path, served};
use crate::support::{get, ids_of, stored};

/// Somebody with a working copy and a connection.
struct Person {
    author: Author,
    tree: WorkTree,
    client: Client,
}

impl Person {
    async fn new(server: &Server, seed: u64) -> Self {
        Self {
            author: Author::new(seed),
            tree: WorkTree::new(),
            client: Client::connect(&server.ws_url()).await,
        }
    }

    /// Publishes what waits for git data.
    async fn sign(&mut self, event: &Event) {
        held(&mut self.client, event).await;
    }

    /// Publishes what is served at once.
    async fn say(&mut self, event: &Event) {
        assert_eq!(self.client.publish(event).await, (true, String::new()));
        assert!(served(&mut self.client, event).await);
    }

    async fn sees(&mut self, event: &Event) -> bool {
        served(&mut self.client, event).await
    }

    fn push(&self, url: &str, refspecs: &[&str]) {
        let told = libgit::push(self.tree.path(), url, refspecs);
        assert!(told.is_ok(), "{refspecs:?}: {told:?}");
        assert_eq!(told.refs.len(), refspecs.len(), "{told:?}");
    }

    fn fetch(&self, url: &str, refspec: &str) {
        libgit::fetch(self.tree.path(), url, &[refspec]);
    }

    /// Takes over what the repository has.
    fn catch_up(&self, url: &str) {
        self.fetch(url, "+refs/heads/*:refs/remotes/origin/*");
        self.tree
            .git(&["checkout", "-q", "-B", "main", "refs/remotes/origin/main"]);
    }
}

/// What ngit asks right after an announcement's OK, to see that the repository is there.
fn assert_polls(server: &Server, project: &Project) {
    for service in ["git-upload-pack", "git-receive-pack"] {
        let path = format!("{}/info/refs?service={service}", path(server, project));
        let reply = get(server.addr(), &path);
        assert_eq!(reply.status, 200, "{service}: {reply:?}");
        assert!(reply.body.contains(&format!("# service={service}")));
    }
}

fn at(url: &str, name: &str) -> Option<String> {
    let list = libgit::list(url);
    list.into_iter()
        .find(|one| one.name == name)
        .map(|one| one.id)
}

/// The same state with an id below another's, as ngit mines it to win a tie.
fn mined(project: &Project, by: &Author, below: &Event, refs: &[(&str, &str)]) -> Event {
    let tries = (0..10_000).map(|nonce: u32| {
        let nonce = nonce.to_string();
        let refs = [refs, &[("nonce", nonce.as_str())]].concat();
        project.state(by, below.created_at.0, &refs)
    });
    let mut lower = tries.filter(|state| state.id < below.id);
    lower.next().expect("a lower id")
}

const MAIN: &str = "refs/heads/main:refs/heads/main";
const FORCED: &str = "+refs/heads/main:refs/heads/main";

#[tokio::test]
async fn two_maintainers_and_an_author_of_pull_requests_from_start_to_finish() {
    let server = grasp();
    let mut alice = Person::new(&server, 1).await;
    let mut bob = Person::new(&server, 2).await;
    let mut carol = Person::new(&server, 3).await;
    let hers = Project::new(&alice.author, "tool").with(&[&bob.author]);
    let his = Project::new(&bob.author, "tool").with(&[&alice.author]);
    let (at_hers, at_his) = (hers.url(&server), his.url(&server));
    let started = now() - 300;

    // Both announce, and look at once whether the repository is there.
    let announcements = [hers.announcement(started), his.announcement(started)];
    alice.sign(&announcements[0]).await;
    assert_polls(&server, &hers);
    bob.sign(&announcements[1]).await;
    assert_polls(&server, &his);

    // The state, then the push; what it completes is readable when it returns.
    let first = alice.tree.commit("README", b"tool");
    alice.tree.git(&["tag", "-a", "v1", "-m", "one"]);
    let v1 = alice.tree.rev("v1");
    let refs = [
        ("refs/heads/main", first.as_str()),
        ("refs/tags/v1", &v1),
        ("refs/tags/v1^{}", &first),
    ];
    let state = hers.state(&alice.author, started + 10, &refs);
    alice.sign(&state).await;
    alice.push(&at_hers, &[MAIN, "refs/tags/v1:refs/tags/v1"]);
    for event in announcements.iter().chain([&state]) {
        assert!(alice.sees(event).await, "{event:?}");
    }
    // Only what changed goes to Bob's, which was empty a moment ago; nothing is left to do there.
    alice.push(&at_his, &[MAIN]);
    assert_eq!(libgit::list(&at_his), libgit::list(&at_hers));
    let symbolic = libgit::list(&at_his)
        .into_iter()
        .find(|one| one.name == "HEAD");
    assert_eq!(
        symbolic.and_then(|head| head.target).as_deref(),
        Some("refs/heads/main")
    );

    // Bob works on, with a clock a little ahead, and pushes a new branch alone to his own.
    bob.catch_up(&at_his);
    bob.tree.git(&["checkout", "-q", "-b", "dev"]);
    let dev = bob.tree.commit("dev", b"by bob");
    let refs = [
        ("refs/heads/main", first.as_str()),
        ("refs/heads/dev", &dev),
        ("refs/tags/v1", &v1),
    ];
    let state = his.state(&bob.author, now() + 5, &refs);
    bob.sign(&state).await;
    bob.push(&at_his, &["refs/heads/dev:refs/heads/dev"]);
    assert!(bob.sees(&state).await);
    assert_eq!(at(&at_hers, "refs/heads/dev"), Some(dev.clone()));
    // The same to Alice's asks for nothing any more, and neither do these.
    bob.push(&at_hers, &["refs/heads/dev:refs/heads/dev", MAIN]);

    let (request, update) = propose(&server, &hers, &mut carol).await;
    assert_conversation(&mut carol, &mut alice, &request).await;

    // Alice fetches the update's tip as ngit does, merges and says so.
    alice.catch_up(&at_hers);
    let name = format!("refs/nostr/{}", update.id);
    alice.fetch(&at_hers, &format!("{name}:refs/heads/pr"));
    alice
        .tree
        .git(&["merge", "-q", "--no-ff", "-m", "merge", "pr"]);
    let merged = alice.tree.head();
    let refs = [
        ("refs/heads/main", merged.as_str()),
        ("refs/heads/dev", &dev),
        ("refs/tags/v1", &v1),
    ];
    let state = hers.state(&alice.author, now() + 6, &refs);
    alice.sign(&state).await;
    alice.push(&at_hers, &[MAIN]);
    assert!(alice.sees(&state).await);
    let tags: [&[&str]; 2] = [
        &["e", &request.id.to_string(), "", "root"],
        &["merge-commit", &merged],
    ];
    let status = alice.author.event(1631, now(), &tags, "");
    alice.say(&status).await;
    assert_eq!(at(&at_his, "refs/heads/main"), Some(merged.clone()));

    // A branch goes, and history is rewritten.
    alice.tree.git(&["reset", "-q", "--hard", &first]);
    let rewritten = alice.tree.commit("README", b"another history");
    let refs = [
        ("refs/heads/main", rewritten.as_str()),
        ("refs/tags/v1", &v1),
    ];
    let state = hers.state(&alice.author, now() + 7, &refs);
    alice.sign(&state).await;
    alice.push(&at_hers, &[FORCED, ":refs/heads/dev"]);
    assert!(alice.sees(&state).await);
    for url in [&at_hers, &at_his] {
        assert_eq!(at(url, "refs/heads/main"), Some(rewritten.clone()));
        assert_eq!(at(url, "refs/heads/dev"), None);
    }
    let copy = WorkTree::clone_of(&at_his, &[]);
    assert_eq!(copy.head(), rewritten);
}

/// A pull request whose tip comes first, as nak does it, and its update, whose event does.
async fn propose(server: &Server, project: &Project, carol: &mut Person) -> (Event, Event) {
    let url = project.url(server);
    carol.catch_up(&url);
    let tip = carol.tree.commit("feature", b"one");
    let request = project.pull_request(&carol.author, &tip);
    let name = format!("refs/nostr/{}", request.id);
    carol.push(&url, &[&format!("refs/heads/main:{name}")]);
    assert_eq!(at(&url, &name), Some(tip.clone()));
    carol.say(&request).await;
    assert_eq!(at(&url, &name), Some(tip));

    let next = carol.tree.commit("feature", b"two");
    let root = request.id.to_string();
    let tags: [&[&str]; 2] = [&["E", &root], &["c", &next]];
    let update = carol.author.event(1619, now(), &tags, "");
    carol.sign(&update).await;
    let name = format!("refs/nostr/{}", update.id);
    carol.push(&url, &[&format!("refs/heads/main:{name}")]);
    assert!(carol.sees(&update).await);
    assert_eq!(at(&url, &name), Some(next));
    (request, update)
}

/// Comments and statuses that name the repository only through the pull request.
async fn assert_conversation(carol: &mut Person, alice: &mut Person, request: &Event) {
    let root = request.id.to_string();
    let comment = alice.author.event(
        1111,
        now(),
        &[&["E", &root], &["K", "1618"], &["e", &root]],
        "why?",
    );
    alice.say(&comment).await;
    let parent = comment.id.to_string();
    let reply = carol
        .author
        .event(1111, now(), &[&["E", &root], &["e", &parent]], "because");
    carol.say(&reply).await;
    for kind in [1633, 1630] {
        let tags: [&[&str]; 1] = [&["e", &root, "", "root"]];
        let status = carol.author.event(kind, now(), &tags, "");
        carol.say(&status).await;
    }
}

#[tokio::test]
async fn one_subscription_of_thirteen_filters_ends_its_stored_events() {
    let server = grasp();
    let mut alice = Person::new(&server, 1).await;
    let project = Project::new(&alice.author, "tool");
    let _client = hosted(&server, &project, &alice.tree).await;
    let issue = alice
        .author
        .event(1621, now(), &[&["a", &project.address()]], "an issue");
    alice.say(&issue).await;
    let id = issue.id.to_string();
    let comment = alice.author.event(1111, now(), &[&["E", &id]], "a comment");
    alice.say(&comment).await;
    let (address, key) = (project.address(), alice.author.pubkey());
    let filters: Vec<Value> = vec![
        json!({"kinds": [30617], "#d": ["tool"]}),
        json!({"kinds": [30618], "#d": ["tool"]}),
        json!({"kinds": [30617, 30618], "authors": [key]}),
        json!({"kinds": [1617], "#a": [address]}),
        json!({"kinds": [1618], "#a": [address]}),
        json!({"kinds": [1619], "#E": [id]}),
        json!({"kinds": [1621], "#a": [address]}),
        json!({"kinds": [1111], "#E": [id]}),
        json!({"kinds": [1111], "#A": [address]}),
        json!({"kinds": [1630, 1631, 1632, 1633], "#e": [id]}),
        json!({"kinds": [5], "#a": [address]}),
        json!({"kinds": [5], "#e": [id]}),
        json!({"kinds": [10317], "authors": [key]}),
    ];
    let found = stored(&mut alice.client, &filters).await;
    let found = ids_of(&found);
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found.contains(&id) && found.contains(&comment.id.to_string()));
}

#[tokio::test]
async fn two_pushes_in_one_second_end_with_the_lower_id() {
    let server = grasp();
    let mut alice = Person::new(&server, 1).await;
    let project = Project::new(&alice.author, "ties");
    let _client = hosted(&server, &project, &alice.tree).await;
    let url = project.url(&server);
    let second = now();
    let one = alice.tree.commit("README", b"one");
    let first = project.state(&alice.author, second, &[("refs/heads/main", &one)]);
    alice.sign(&first).await;
    alice.push(&url, &[MAIN]);
    assert!(alice.sees(&first).await);

    let two = alice.tree.commit("README", b"two");
    let lower = mined(
        &project,
        &alice.author,
        &first,
        &[("refs/heads/main", &two)],
    );
    alice.sign(&lower).await;
    alice.push(&url, &[MAIN]);
    assert!(alice.sees(&lower).await);
    assert!(!alice.sees(&first).await);
    assert_eq!(at(&url, "refs/heads/main"), Some(two.clone()));

    // The loser does not come back, and a higher id of the same second does not win.
    let (taken, why) = alice.client.publish(&first).await;
    assert!(!taken && why.starts_with("replaced:"), "{why}");
    let told = libgit::push(
        alice.tree.path(),
        &url,
        &[&format!("+{one}:refs/heads/main")],
    );
    assert!(!told.is_ok(), "{told:?}");
    assert_eq!(at(&url, "refs/heads/main"), Some(two));
}

#[tokio::test]
async fn two_states_that_wait_in_one_second_end_with_the_lower_id() {
    let server = grasp();
    let mut alice = Person::new(&server, 1).await;
    let project = Project::new(&alice.author, "waiting ties");
    let _client = hosted(&server, &project, &alice.tree).await;
    let url = project.url(&server);
    let one = alice.tree.commit("README", b"one");
    let two = alice.tree.commit("README", b"two");
    let first = project.state(&alice.author, now(), &[("refs/heads/main", &one)]);
    let lower = mined(
        &project,
        &alice.author,
        &first,
        &[("refs/heads/main", &two)],
    );
    alice.sign(&first).await;
    alice.sign(&lower).await;
    // The push brings the objects of both, and names the older.
    let told = libgit::push(
        alice.tree.path(),
        &url,
        &[&format!("{one}:refs/heads/main")],
    );
    assert!(told.is_ok(), "{told:?}");
    assert!(alice.sees(&first).await);
    alice.push(&url, &[MAIN]);
    assert!(alice.sees(&lower).await);
    assert_eq!(at(&url, "refs/heads/main"), Some(two));
}

#[tokio::test]
async fn a_refusal_is_readable_for_a_client_of_libgit2() {
    let server = grasp();
    let mut alice = Person::new(&server, 1).await;
    let carol = Person::new(&server, 3).await;
    let project = Project::new(&alice.author, "words");
    let _client = hosted(&server, &project, &alice.tree).await;
    let url = project.url(&server);
    let next = alice.tree.commit("README", b"next");

    let told = libgit::push(alice.tree.path(), &url, &[MAIN]);
    let why = told
        .refusal("refs/heads/main")
        .unwrap_or_else(|| panic!("{told:?}"));
    assert!(why.contains("no state event"), "{told:?}");
    assert!(told.words.contains("no state event"), "{told:?}");

    // A state with more than is pushed names what is missing.
    alice.tree.git(&["tag", "-a", "v1", "-m", "one"]);
    let v1 = alice.tree.rev("v1");
    let refs = [("refs/heads/main", next.as_str()), ("refs/tags/v1", &v1)];
    let state = project.state(&alice.author, now(), &refs);
    alice.sign(&state).await;
    let told = libgit::push(alice.tree.path(), &url, &[MAIN]);
    let why = told
        .refusal("refs/heads/main")
        .unwrap_or_else(|| panic!("{told:?}"));
    assert!(
        why.contains("refs/tags/v1") && why.contains(&alice.author.npub()),
        "{told:?}"
    );

    // A stranger's push says whose state was expected.
    carol.catch_up(&url);
    carol.tree.commit("README", b"by a stranger");
    let told = libgit::push(carol.tree.path(), &url, &[MAIN]);
    let why = told
        .refusal("refs/heads/main")
        .unwrap_or_else(|| panic!("{told:?}"));
    assert!(why.contains(&state.id.to_string()), "{told:?}");

    // Names that are not hosted.
    for name in ["refs/notes/x", "refs/nostr/abc"] {
        let told = libgit::push(
            alice.tree.path(),
            &url,
            &[&format!("refs/heads/main:{name}")],
        );
        assert!(
            told.refusal(name)
                .is_some_and(|why| why.contains("refs/nostr/")),
            "{told:?}"
        );
    }
    assert_eq!(at(&url, "refs/heads/main"), Some(alice.tree.rev("HEAD~1")));
    alice.push(&url, &[MAIN, "refs/tags/v1:refs/tags/v1"]);
    assert!(alice.sees(&state).await);
}

#[tokio::test]
async fn a_pull_request_and_its_tip_may_cross() {
    let server = grasp();
    let mut alice = Person::new(&server, 1).await;
    let mut carol = Person::new(&server, 3).await;
    let project = Project::new(&alice.author, "crossing");
    let _client = hosted(&server, &project, &alice.tree).await;
    let url = project.url(&server);
    carol.catch_up(&url);
    for n in 0..5 {
        let tip = carol.tree.commit("feature", format!("{n}").as_bytes());
        let request = project.pull_request(&carol.author, &tip);
        let (to, path) = (url.clone(), carol.tree.path().to_owned());
        let refspec = format!("{tip}:refs/nostr/{}", request.id);
        let pushing = tokio::task::spawn_blocking(move || libgit::push(&path, &to, &[&refspec]));
        let (taken, why) = carol.client.publish(&request).await;
        assert!(taken && (why.is_empty() || why == HELD), "{why}");
        let told = pushing.await.unwrap();
        assert!(told.is_ok(), "{told:?}");
        assert!(carol.sees(&request).await);
        assert!(alice.sees(&request).await);
        assert_eq!(at(&url, &format!("refs/nostr/{}", request.id)), Some(tip));
    }
}

#[tokio::test]
async fn a_push_is_not_told_no_when_its_objects_complete_the_state() {
    let server = grasp();
    let mut alice = Person::new(&server, 1).await;
    let project = Project::new(&alice.author, "complete");
    let _client = hosted(&server, &project, &alice.tree).await;
    let url = project.url(&server);
    let next = alice.tree.commit("README", b"next");
    let refs = [("refs/heads/main", next.as_str()), ("refs/tags/v1", &next)];
    let state = project.state(&alice.author, now(), &refs);
    alice.sign(&state).await;
    let told = libgit::push(alice.tree.path(), &url, &[MAIN]);
    // All that the state names is here now, and so it is applied: the answer must not deny it.
    assert!(told.is_ok(), "{told:?}");
    assert_eq!(at(&url, "refs/heads/main"), Some(next));
    assert!(alice.sees(&state).await);
}
