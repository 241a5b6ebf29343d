//! Many at once, much at once, and clients that leave in the middle.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use testkit::{Author, Client, Project, Server, WorkTree, now};

use crate::hosted::{
    HalfPush, NULL, commands, directory, git_processes, grasp, grasp_with, held, hosted, leftovers,
    memory, next_state, path, pkt, post, remote_ref, served,
};
use crate::support::{Reply, eventually, get, head, metric, request, tcp};

/// A push of one commit, to be sent in two parts.
struct Slow {
    body: Vec<u8>,
    middle: usize,
}

impl Slow {
    /// Its second half begins within the pack.
    fn new(tree: &WorkTree, old: &str, new: &str) -> Self {
        let mut body = commands(&[(old, new, "refs/heads/main")]);
        let start = body.len();
        body.extend(tree.pack(&[new, &format!("^{old}")]));
        let middle = start + (body.len() - start) / 2;
        Self { body, middle }
    }

    /// Returns when the server has begun to take the pack.
    async fn begin(&self, server: &Server, project: &Project) -> HalfPush {
        let (addr, path) = (server.addr(), path(server, project));
        let half = HalfPush::begin(addr, &path, self.body.len(), &self.body[..self.middle]);
        let dir = directory(server, project);
        let begun = || async { !leftovers(&dir).is_empty() };
        eventually("a quarantine", begun).await;
        half
    }

    fn end(&self, half: HalfPush) -> Reply {
        half.end(&self.body[self.middle..])
    }
}

async fn assert_nothing_left(server: &Server, project: &Project) {
    let dir = directory(server, project);
    eventually("no quarantine", || async { leftovers(&dir).is_empty() }).await;
    eventually("no git", || async { git_processes(server).is_empty() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_maintainers_pushing_at_once_end_at_the_newest_state() {
    let server = grasp();
    let (alice, bob) = (Author::new(1), Author::new(2));
    let hers = Project::new(&alice, "busy").with(&[&bob]);
    let his = Project::new(&bob, "busy").with(&[&alice]);
    let trees = [
        Arc::new(WorkTree::new()),
        Arc::new(WorkTree::new_with_commit()),
    ];
    let mut client = hosted(&server, &hers, &trees[0]).await;
    assert!(client.publish(&his.announcement(now() - 90)).await.0);
    let url = hers.url(&server);
    for round in 0..8 {
        let mut pushes = Vec::new();
        let mut states = Vec::new();
        for (n, author) in [&alice, &bob].into_iter().enumerate() {
            let at = now() - 80 + 2 * round + n as u64;
            let next = trees[n].commit("README", format!("{round} {n}").as_bytes());
            let state = hers.state(author, at, &[("refs/heads/main", &next)]);
            held(&mut client, &state).await;
            let (tree, url) = (Arc::clone(&trees[n]), url.clone());
            let refspec = format!("+{next}:refs/heads/main");
            states.push((next, state));
            pushes.push((tree, url, refspec));
        }
        let pushing: Vec<_> = pushes
            .into_iter()
            .map(|(tree, url, refspec)| {
                tokio::task::spawn_blocking(move || tree.try_git(&["push", "-q", &url, &refspec]))
            })
            .collect();
        let mut said = Vec::new();
        for push in pushing {
            said.push(push.await.unwrap());
        }
        // The newer one is always taken. The older one is, if it was first; if not, it hears so.
        assert!(said[1].ok, "{said:?}");
        assert!(
            said[0].ok || said[0].stderr.contains("rejected"),
            "{said:?}"
        );
        assert!(served(&mut client, &states[1].1).await);
        for project in [&hers, &his] {
            let main = remote_ref(&project.url(&server), "refs/heads/main");
            assert_eq!(main.as_ref(), Some(&states[1].0), "round {round}");
        }
    }
    assert_nothing_left(&server, &hers).await;
}

#[tokio::test]
async fn a_newer_state_that_comes_in_mid_push_does_not_stop_it() {
    let server = grasp();
    let (project, tree) = (Project::new(&Author::new(1), "midway"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let first = tree.head();
    let (one, older) = next_state(&mut client, &project, &tree, now() - 50).await;
    let slow = Slow::new(&tree, &first, &one);
    let half = slow.begin(&server, &project).await;
    // Its objects are not here: the older state is the newest that can be applied.
    let (two, newer) = next_state(&mut client, &project, &tree, now() - 40).await;
    let reply = slow.end(half);
    assert!(reply.body.contains("ok refs/heads/main"), "{reply:?}");
    assert!(served(&mut client, &older).await && !served(&mut client, &newer).await);
    let url = project.url(&server);
    assert_eq!(remote_ref(&url, "refs/heads/main"), Some(one));
    tree.git(&["push", "-q", &url, "main"]);
    assert!(served(&mut client, &newer).await && !served(&mut client, &older).await);
    assert_eq!(remote_ref(&url, "refs/heads/main"), Some(two));
}

#[tokio::test]
async fn a_push_that_is_overtaken_hears_so_and_rewinds_nothing() {
    let server = grasp();
    let (project, tree) = (Project::new(&Author::new(1), "overtaken"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let first = tree.head();
    let (one, older) = next_state(&mut client, &project, &tree, now() - 50).await;
    let slow = Slow::new(&tree, &first, &one);
    let half = slow.begin(&server, &project).await;
    let (two, newer) = next_state(&mut client, &project, &tree, now() - 40).await;
    let url = project.url(&server);
    tree.git(&["push", "-q", &url, "main"]);
    assert!(served(&mut client, &newer).await);
    let reply = slow.end(half);
    assert!(reply.body.contains("ng refs/heads/main"), "{reply:?}");
    assert!(reply.body.contains(&newer.id.to_string()), "{reply:?}");
    assert_eq!(remote_ref(&url, "refs/heads/main"), Some(two));
    assert!(!served(&mut client, &older).await);
    assert_nothing_left(&server, &project).await;
}

#[tokio::test]
async fn an_announcement_deleted_in_mid_push_leaves_no_repository() {
    let server = grasp();
    let (alice, tree) = (Author::new(1), WorkTree::new());
    let project = Project::new(&alice, "gone");
    let mut client = hosted(&server, &project, &tree).await;
    let first = tree.head();
    let (one, state) = next_state(&mut client, &project, &tree, now() - 50).await;
    let slow = Slow::new(&tree, &first, &one);
    let half = slow.begin(&server, &project).await;
    let deletion = alice.event(5, now(), &[&["a", &project.address()]], "");
    assert!(client.publish(&deletion).await.0);
    let reply = slow.end(half);
    assert!(reply.body.contains("ng refs/heads/main"), "{reply:?}");
    assert!(!served(&mut client, &state).await);
    let refs = format!(
        "{}/info/refs?service=git-upload-pack",
        path(&server, &project)
    );
    eventually("not found", || async {
        get(server.addr(), &refs).status == 404
    })
    .await;
    assert!(!directory(&server, &project).exists());
}

#[tokio::test]
async fn a_client_that_vanishes_in_mid_pack_leaves_nothing() {
    let server = grasp();
    let (project, tree) = (Project::new(&Author::new(1), "vanish"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let first = tree.head();
    let (next, state) = next_state(&mut client, &project, &tree, now()).await;
    let slow = Slow::new(&tree, &first, &next);
    for _ in 0..3 {
        slow.begin(&server, &project).await.vanish();
        assert_nothing_left(&server, &project).await;
        assert!(!served(&mut client, &state).await);
    }
    let running = || async { metric(&server, "ngit_git_running") == 0.0 };
    eventually("no place is taken", running).await;
    tree.git(&["push", "-q", &project.url(&server), "main"]);
    assert!(served(&mut client, &state).await);
}

/// Without an attempt to make it smaller, which takes a minute.
fn push_noise(tree: &WorkTree, url: &str) {
    let settings = ["-c", "pack.compression=0", "-c", "core.bigFileThreshold=1m"];
    tree.git(&[&settings[..], &["push", "-q", url, "main"]].concat());
}

/// A repository with a commit of incompressible data.
async fn noisy(server: &Server, project: &Project, tree: &WorkTree, bytes: usize) -> Client {
    let mut client = hosted(server, project, tree).await;
    let next = tree.commit_noise("noise", 1, bytes);
    let refs = [("refs/heads/main", next.as_str())];
    let state = project.state(&project.owner, now() - 50, &refs);
    held(&mut client, &state).await;
    let url = project.url(server);
    push_noise(tree, &url);
    client
}

/// Asks for everything and reads the beginning.
fn begin_clone(server: &Server, project: &Project, tree: &WorkTree) -> TcpStream {
    let words = "side-band-64k ofs-delta agent=test";
    let want = format!("want {} {words}\n", tree.head());
    let body = [pkt(&want), b"0000".to_vec(), pkt("done\n")].concat();
    let length = body.len().to_string();
    let path = format!("{}/git-upload-pack", path(server, project));
    let text = head("POST", &path, &[("Content-Length", &length)]);
    let mut stream = tcp(server.addr());
    stream.write_all(text.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    // The rest does not fit what lies between us, so that git is still at it.
    stream.read_exact(&mut [0; 10_000]).unwrap();
    stream
}

async fn assert_place_is_free(server: &Server) {
    eventually("no git", || async { git_processes(server).is_empty() }).await;
    let running = || async { metric(server, "ngit_git_running") == 0.0 };
    eventually("no place is taken", running).await;
}

#[tokio::test]
async fn a_clone_that_nobody_reads_is_given_up() {
    let server = grasp_with(&[("NGIT_WRITE_TIMEOUT_SECS", "1")]);
    let (project, tree) = (Project::new(&Author::new(1), "unread"), WorkTree::new());
    let _client = noisy(&server, &project, &tree, 32 << 20).await;
    let stream = begin_clone(&server, &project, &tree);
    assert!(!git_processes(&server).is_empty());
    assert_place_is_free(&server).await;
    drop(stream);
}

/// Always a little, never enough.
#[tokio::test]
async fn a_clone_that_is_read_too_slowly_ends_at_its_deadline() {
    let server = grasp_with(&[("NGIT_GIT_TIMEOUT_SECS", "10")]);
    let (project, tree) = (Project::new(&Author::new(1), "slow"), WorkTree::new());
    let _client = noisy(&server, &project, &tree, 64 << 20).await;
    let mut stream = begin_clone(&server, &project, &tree);
    let started = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let mut chunk = vec![0; 64 << 10];
    while !git_processes(&server).is_empty() {
        assert!(started.elapsed() < Duration::from_secs(30), "still served");
        ticks.tick().await;
        if stream.read(&mut chunk).unwrap_or(0) == 0 {
            break;
        }
    }
    assert!(started.elapsed() > Duration::from_secs(9));
    assert_place_is_free(&server).await;
}

#[tokio::test]
async fn a_client_that_vanishes_in_mid_clone_leaves_no_git_process() {
    let server = grasp();
    let (project, tree) = (Project::new(&Author::new(1), "half"), WorkTree::new());
    let _client = noisy(&server, &project, &tree, 32 << 20).await;
    for _ in 0..3 {
        let stream = begin_clone(&server, &project, &tree);
        assert!(!git_processes(&server).is_empty());
        drop(stream);
        eventually("no git", || async { git_processes(&server).is_empty() }).await;
    }
    let running = || async { metric(&server, "ngit_git_running") == 0.0 };
    eventually("no place is taken", running).await;
    let copy = WorkTree::clone_of(&project.url(&server), &[]);
    assert_eq!(copy.head(), tree.head());
}

#[tokio::test]
async fn sixteen_clones_at_once_are_all_whole() {
    let server = grasp();
    let (project, tree) = (Project::new(&Author::new(1), "popular"), WorkTree::new());
    let _client = noisy(&server, &project, &tree, 8 << 20).await;
    let url = project.url(&server);
    let before = memory(&server, "VmHWM");
    let clones: Vec<_> = (0..16)
        .map(|n| {
            let url = url.clone();
            std::thread::spawn(move || {
                let version = format!("protocol.version={}", n % 3);
                let copy = WorkTree::clone_of(&url, &["-c", &version]);
                copy.git(&["fsck", "--connectivity-only"]);
                copy.head()
            })
        })
        .collect();
    for clone in clones {
        assert_eq!(clone.join().unwrap(), tree.head());
    }
    let grown = memory(&server, "VmHWM") - before;
    assert!(grown < 64 * 1024, "{grown} kB");
    eventually("no git", || async { git_processes(&server).is_empty() }).await;
}

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

/// Lists of refs and pages are held up, so that they are many at once.
#[tokio::test]
async fn a_flood_of_looks_is_told_to_come_back() {
    let server = grasp_with(&[
        ("NGIT_GIT_CONCURRENT_PER_IP", "1"),
        ("NGIT_TRUSTED_PROXIES", "127.0.0.1"),
        ("FAILPOINTS", "before-refs=sleep(1000)"),
    ]);
    let (project, tree) = (Project::new(&Author::new(1), "seen"), WorkTree::new());
    hosted(&server, &project, &tree).await;
    let (addr, page) = (server.addr(), path(&server, &project));
    let refs = format!("{page}/info/refs?service=git-upload-pack");
    let ask = move |path: &str, from: &str| {
        let headers = [("X-Forwarded-For", from)];
        request(addr, "GET", path, &headers)
    };
    let one = "198.51.100.7";
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
    assert_eq!(ask(&page, "198.51.100.8").status, 200);
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
    let tip = tree.commit_noise("noise", 1, 900 << 10);
    let state = project.state(&project.owner, now(), &[("refs/heads/main", &tip)]);
    held(&mut client, &state).await;
    let url = project.url(&server);
    let half = HalfPush::begin(server.addr(), &path(&server, &project), 1000, b"00");
    let running = || async { metric(&server, "ngit_git_running") == 1.0 };
    eventually("a place is taken", running).await;
    for _ in 0..10 {
        let said = tree.try_git(&["push", "-q", &url, "main"]);
        assert!(said.stderr.contains("HTTP 503"), "{}", said.stderr);
        assert!(!said.stderr.contains("pipe"), "{}", said.stderr);
    }
    half.vanish();
    let running = || async { metric(&server, "ngit_git_running") == 0.0 };
    eventually("the place is free", running).await;
    tree.git(&["push", "-q", &url, "main"]);
    assert!(served(&mut client, &state).await);
}

#[tokio::test]
async fn a_large_push_and_its_clone_stream_through() {
    let server = grasp();
    let (project, tree) = (Project::new(&Author::new(1), "large"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let url = project.url(&server);
    for n in 0..5 {
        tree.commit_noise(&format!("noise {n}"), n, 60 << 20);
    }
    let tip = tree.head();
    let state = project.state(&project.owner, now(), &[("refs/heads/main", &tip)]);
    held(&mut client, &state).await;
    let before = memory(&server, "VmHWM");
    push_noise(&tree, &url);
    assert!(served(&mut client, &state).await);
    let grown = memory(&server, "VmHWM") - before;
    assert!(grown < 64 * 1024, "{grown} kB for a push of 300 MB");
    let copy = WorkTree::clone_of(&url, &["--bare"]);
    assert_eq!(copy.head(), tip);
    let grown = memory(&server, "VmHWM") - before;
    assert!(grown < 64 * 1024, "{grown} kB for a clone of 300 MB");
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
    let server = grasp_with(&[("NGIT_MAX_REPOSITORY_BYTES", "4MiB")]);
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
async fn a_disk_that_is_almost_full_takes_no_push() {
    let server = grasp_with(&[("NGIT_MIN_FREE_BYTES", "1024TiB")]);
    let (project, tree) = (Project::new(&Author::new(1), "late"), WorkTree::new());
    let mut client = Client::connect(&server.ws_url()).await;
    held(&mut client, &project.announcement(now() - 100)).await;
    next_state(&mut client, &project, &tree, now() - 50).await;
    let said = tree.try_git(&["push", &project.url(&server), "main"]);
    assert!(
        !said.ok && said.stderr.contains("disk is almost full"),
        "{}",
        said.stderr
    );
    assert_nothing_left(&server, &project).await;
}

fn packs(dir: &Path) -> usize {
    let found = std::fs::read_dir(dir.join("objects/pack")).expect("packs");
    let names = found.flatten().map(|entry| entry.file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(".pack"))
        .count()
}

#[tokio::test]
async fn many_small_pushes_leave_few_packs() {
    let server = grasp();
    let (project, tree) = (Project::new(&Author::new(1), "many"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let url = project.url(&server);
    for n in 0..60 {
        next_state(&mut client, &project, &tree, now() - 90 + n).await;
        tree.git(&["push", "-q", &url, "main"]);
        assert_eq!(remote_ref(&url, "refs/heads/main"), Some(tree.head()));
    }
    let dir = directory(&server, &project);
    // One repack after every thirty.
    eventually("few packs", || async { packs(&dir) <= 40 }).await;
    let copy = WorkTree::clone_of(&url, &[]);
    assert_eq!(copy.head(), tree.head());
    assert_nothing_left(&server, &project).await;
}
