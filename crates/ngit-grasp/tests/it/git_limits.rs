//! Bounds on git work: places, room in a repository, room on the disk. Whoever meets one is told.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Author, Client, Project, WorkTree, now};

use crate::git_load::{Slow, assert_nothing_left};
use crate::hosted::{
    HalfPush, NULL, commands, directory, grasp_with, held, hosted, leftovers, next_state, path,
    post, remote_ref, served,
};
use crate::support::{Reply, accept, eventually, get, metric, refuse, request};

fn assert_busy(reply: &Reply, who: &str) {
    assert_eq!(reply.status, 503, "{reply:?}");
    let retry = reply
        .header("retry-after")
        .and_then(|secs| secs.parse().ok());
    assert!(retry.is_some_and(|secs: u32| secs > 0), "{reply:?}");
    assert!(reply.body.contains(who), "{reply:?}");
    reply.assert_cors();
}

/// A push that has begun takes a place; the next request is told to come back, until it ends.
async fn assert_limit(setting: &str, who: &str, other_is_served: bool, headers: &[(&str, &str)]) {
    let server = grasp_with(&[(setting, "1"), ("NGIT_TRUSTED_PROXIES", "127.0.0.1")]);
    let tree = WorkTree::new();
    let one = Project::new(&Author::new(1), "one");
    let two = Project::new(&Author::new(2), "two");
    hosted(&server, &one, &tree).await;
    hosted(&server, &two, &WorkTree::new()).await;
    let first = tree.head();
    let (path_one, path_two) = (path(&server, &one), path(&server, &two));
    let body = commands(&[(&first, &first, "refs/heads/main")]);
    let addr = server.addr();
    let half = HalfPush::begin_with(addr, &path_one, headers, body.len(), &body[..20]);
    let running = |n: f64| {
        let server = &server;
        move || async move { metric(server, "ngit_git_running") == n }
    };
    eventually("a place is taken", running(1.0)).await;

    let ask = |path: &str, below: &str| post(addr, &format!("{path}/{below}"), headers, b"0000");
    assert_busy(&ask(&path_one, "git-upload-pack"), who);
    assert_busy(&ask(&path_one, "git-receive-pack"), who);
    let reply = ask(&path_two, "git-receive-pack");
    match other_is_served {
        true => assert_eq!(reply.status, 200, "{reply:?}"),
        false => assert_busy(&reply, who),
    }
    // Questions about refs have places of their own.
    let refs = format!("{path_one}/info/refs?service=git-upload-pack");
    assert_eq!(get(addr, &refs).status, 200);
    half.vanish();
    eventually("the place is free", running(0.0)).await;
    let copy = WorkTree::clone_of(&one.url(&server), &[]);
    assert_eq!(copy.head(), first);
}

#[tokio::test]
async fn the_server_does_so_much_git_at_once_and_no_more() {
    assert_limit("NGIT_GIT_CONCURRENT", "this server", false, &[]).await;
}

#[tokio::test]
async fn a_repository_does_so_much_git_at_once_and_no_more() {
    let setting = "NGIT_GIT_CONCURRENT_PER_REPOSITORY";
    assert_limit(setting, "this repository", true, &[]).await;
}

#[tokio::test]
async fn an_address_gets_so_much_git_at_once_and_no_more() {
    let headers = [("X-Forwarded-For", "198.51.100.7")];
    assert_limit(
        "NGIT_GIT_CONCURRENT_PER_IP",
        "your address",
        false,
        &headers,
    )
    .await;
}

/// A pipe in the place of a repository's refs: whoever looks at them waits.
struct HeldRefs {
    refs: PathBuf,
    pipe: PathBuf,
    kept: PathBuf,
}

impl HeldRefs {
    fn of(dir: &Path) -> Self {
        let held = Self {
            refs: dir.join("packed-refs"),
            pipe: dir.join("pipe"),
            kept: dir.join("kept"),
        };
        let made = Command::new("mkfifo").arg(&held.pipe).status().unwrap();
        assert!(made.success(), "{made}");
        fs::rename(&held.refs, &held.kept).unwrap();
        fs::rename(&held.pipe, &held.refs).unwrap();
        held
    }

    /// Whoever looks from now on sees the refs.
    fn let_go(&self) {
        fs::rename(&self.refs, &self.pipe).unwrap();
        fs::rename(&self.kept, &self.refs).unwrap();
    }

    /// Whoever waits at the pipe finds it empty.
    fn wake(&self) {
        let mut both_ends = fs::File::options();
        both_ends.read(true).write(true);
        drop(both_ends.open(&self.pipe).unwrap());
    }
}

/// Lists of refs and pages are held up, so that they are many at once.
#[tokio::test]
async fn a_flood_of_looks_is_told_to_come_back() {
    let server = grasp_with(&[
        ("NGIT_GIT_CONCURRENT_PER_IP", "1"),
        ("NGIT_TRUSTED_PROXIES", "127.0.0.1"),
    ]);
    let (project, tree) = (Project::new(&Author::new(1), "seen"), WorkTree::new());
    let other = Project::new(&Author::new(2), "other");
    hosted(&server, &project, &tree).await;
    hosted(&server, &other, &WorkTree::new()).await;
    let (addr, page) = (server.addr(), path(&server, &project));
    let refs = format!("{page}/info/refs?service=git-upload-pack");
    let ask = move |path: &str, from: &str| {
        let headers = [("X-Forwarded-For", from)];
        request(addr, "GET", path, &headers)
    };
    let one = "198.51.100.7";
    let held = HeldRefs::of(&directory(&server, &project));
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let refs = refs.clone();
            std::thread::spawn(move || ask(&refs, one).status)
        })
        .collect();
    let looking = || async { metric(&server, "ngit_git_looking") == 4.0 };
    eventually("all places are taken", looking).await;
    assert_busy(&ask(&refs, one), "your address");
    assert_busy(&ask(&page, one), "your address");
    let elsewhere = path(&server, &other);
    assert_eq!(ask(&elsewhere, "198.51.100.8").status, 200);
    held.let_go();
    let ended = || async {
        held.wake();
        waiting.iter().all(std::thread::JoinHandle::is_finished)
    };
    eventually("all have had their look", ended).await;
    for look in waiting {
        assert_eq!(look.join().unwrap(), 200);
    }
    assert_eq!(ask(&page, one).status, 200);
}

/// Its pack is on the way when the answer comes.
#[tokio::test]
async fn a_push_without_a_place_hears_so_from_stock_git() {
    let server = grasp_with(&[("NGIT_GIT_CONCURRENT", "1")]);
    let (project, tree) = (Project::new(&Author::new(1), "later"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let tip = tree.commit_noise("noise", 1, 7 << 20);
    let state = project.state(&project.owner, now(), &[("refs/heads/main", &tip)]);
    held(&mut client, &state).await;
    let url = project.url(&server);
    let half = HalfPush::begin(server.addr(), &path(&server, &project), 1000, b"00");
    let running = || async { metric(&server, "ngit_git_running") == 1.0 };
    eventually("a place is taken", running).await;
    // In one piece, and more than lies between us.
    let whole = "http.postBuffer=16m";
    for _ in 0..3 {
        let said = tree.try_git(&["-c", whole, "push", "-q", &url, "main"]);
        assert!(said.stderr.contains("HTTP 503"), "{}", said.stderr);
        assert!(!said.stderr.contains("pipe"), "{}", said.stderr);
    }
    // A client that reads no answer before it has sent everything finds no broken pipe either.
    let (body, address) = (vec![0; 7 << 20], path(&server, &project));
    let whole = HalfPush::begin(server.addr(), &address, body.len(), &body);
    assert_busy(&whole.end(b""), "this server");
    half.vanish();
    let running = || async { metric(&server, "ngit_git_running") == 0.0 };
    eventually("the place is free", running).await;
    tree.git(&["push", "-q", &url, "main"]);
    assert!(served(&mut client, &state).await);
}

#[tokio::test]
async fn a_push_beyond_the_limit_is_refused_and_leaves_no_trace() {
    let server = grasp_with(&[("NGIT_MAX_PUSH_BYTES", "4MiB")]);
    let (project, tree) = (Project::new(&Author::new(1), "limited"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let first = tree.head();
    let tip = tree.commit_noise("noise", 1, 6 << 20);
    let state = project.state(&project.owner, now(), &[("refs/heads/main", &tip)]);
    held(&mut client, &state).await;
    let url = project.url(&server);
    let said = tree.try_git(&["push", &url, "main"]);
    assert!(
        !said.ok && said.stderr.contains("remote rejected"),
        "{}",
        said.stderr
    );
    assert_eq!(remote_ref(&url, "refs/heads/main"), Some(first));
    assert_nothing_left(&server, &project).await;
}

/// A pull request of so much noise, and its push in two parts.
async fn noisy_request(
    client: &mut Client,
    project: &Project,
    tree: &WorkTree,
    seed: u64,
    bytes: usize,
) -> Slow {
    let first = tree.rev("main");
    tree.git(&["checkout", "-q", "--detach", &first]);
    let tip = tree.commit_noise("noise", seed, bytes);
    let request = project.pull_request(&project.owner, &tip);
    held(client, &request).await;
    let name = format!("refs/nostr/{}", request.id);
    let mut body = commands(&[(NULL, &tip, &name)]);
    body.extend(tree.pack(&[&tip, &format!("^{first}")]));
    let middle = body.len() / 2;
    Slow { body, middle }
}

#[tokio::test]
async fn pushes_at_once_share_the_room_of_their_repository() {
    // Pull requests have four fifths of it.
    let server = grasp_with(&[("NGIT_MAX_REPOSITORY_BYTES", "5MiB")]);
    let (project, tree) = (Project::new(&Author::new(1), "narrow"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let (addr, dir) = (server.addr(), path(&server, &project));
    let mut slow = Vec::new();
    for (seed, bytes) in [(1, 2500 << 10), (2, 2500 << 10), (3, 1000 << 10)] {
        slow.push(noisy_request(&mut client, &project, &tree, seed, bytes).await);
    }
    let [one, two, three] = slow.as_slice() else {
        panic!("three pushes");
    };
    // Each alone has room; each is half here before the other is whole.
    let begin =
        |push: &Slow| HalfPush::begin(addr, &dir, push.body.len(), &push.body[..push.middle]);
    let halves = (begin(one), begin(two));
    let both = || async { leftovers(&directory(&server, &project)).len() == 2 };
    eventually("both are under way", both).await;
    let replies = [one.end(halves.0), two.end(halves.1)];
    let refused = |reply: &&Reply| reply.body.contains("may not become larger");
    assert_eq!(replies.iter().filter(refused).count(), 1, "{replies:?}");
    // What the refused one had brought is free again.
    let reply = three.end(begin(three));
    assert!(reply.body.contains("ok refs/nostr/"), "{reply:?}");
    assert_nothing_left(&server, &project).await;
}

#[tokio::test]
async fn strangers_do_not_close_a_repository_to_its_owner() {
    let server = grasp_with(&[("NGIT_MAX_REPOSITORY_BYTES", "5MiB")]);
    let (project, tree) = (Project::new(&Author::new(1), "open"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let (url, first) = (project.url(&server), tree.head());
    let push = |seed: u64, bytes: usize| {
        tree.git(&["checkout", "-q", "--detach", &first]);
        let tip = tree.commit_noise("noise", seed, bytes);
        let name = format!("refs/nostr/{}", format!("{seed:02}").repeat(32));
        (tree.try_git(&["push", &url, &format!("{tip}:{name}")]), tip)
    };
    // Without an event: three fifths, in one push or in several.
    let refused = "not without its event: publish the pull request first";
    let (said, _) = push(1, 3200 << 10);
    assert!(!said.ok && said.stderr.contains(refused), "{said:?}");
    let (said, _) = push(2, 2400 << 10);
    assert!(said.ok, "{said:?}");
    let (said, tip) = push(3, 700 << 10);
    assert!(!said.ok && said.stderr.contains(refused), "{said:?}");
    // With one: more.
    let request = project.pull_request(&Author::new(3), &tip);
    held(&mut client, &request).await;
    let name = format!("refs/nostr/{}", request.id);
    tree.git(&["push", "-q", &url, &format!("{tip}:{name}")]);
    assert!(served(&mut client, &request).await);

    tree.git(&["checkout", "-q", "main"]);
    let tip = tree.commit_noise("noise", 4, 1200 << 10);
    let state = project.state(&project.owner, now(), &[("refs/heads/main", &tip)]);
    held(&mut client, &state).await;
    tree.git(&["push", "-q", &url, "main"]);
    assert!(served(&mut client, &state).await);
    assert_nothing_left(&server, &project).await;
}

/// Maintainers go on: their states wait for a disk with space.
#[tokio::test]
async fn a_disk_that_is_almost_full_takes_no_push_and_no_events_of_strangers() {
    let mut server = grasp_with(&[]);
    let (project, tree) = (Project::new(&Author::new(1), "late"), WorkTree::new());
    hosted(&server, &project, &tree).await;
    server.terminate();
    server.set("NGIT_MIN_FREE_BYTES", "1024TiB");
    server.restart();
    server.wait_for_log("nearly full");
    let mut client = Client::connect(&server.ws_url()).await;
    let issue = |by: &Author| by.event(1621, now(), &[&["a", &project.address()]], "issue");
    refuse(&mut client, &issue(&Author::new(2)), "error: the disk").await;
    let stranger = Project::new(&Author::new(2), "new");
    refuse(
        &mut client,
        &stranger.announcement(now()),
        "error: the disk",
    )
    .await;
    accept(&mut client, &issue(&project.owner)).await;
    next_state(&mut client, &project, &tree, now()).await;
    let said = tree.try_git(&["push", &project.url(&server), "main"]);
    assert!(
        !said.ok && said.stderr.contains("disk is almost full"),
        "{}",
        said.stderr
    );
    assert_nothing_left(&server, &project).await;
}
