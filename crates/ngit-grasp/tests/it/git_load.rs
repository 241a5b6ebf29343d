//! Many at once, much at once, and clients that leave in the middle.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use testkit::{Author, Client, Project, Server, WorkTree, now};

use crate::hosted::{
    HalfPush, NULL, commands, directory, git_processes, grasp, grasp_with, held, hosted, leftovers,
    memory, next_state, path, pkt, remote_ref, served,
};
use crate::support::{Reply, eventually, get, head, metric, tcp};

/// A push of one commit, to be sent in two parts.
pub struct Slow {
    pub body: Vec<u8>,
    pub middle: usize,
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

    pub fn end(&self, half: HalfPush) -> Reply {
        half.end(&self.body[self.middle..])
    }
}

pub async fn assert_nothing_left(server: &Server, project: &Project) {
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

#[tokio::test]
async fn a_push_that_breaks_off_is_not_in_the_way_of_the_next() {
    let server = grasp();
    let (project, tree) = (Project::new(&Author::new(1), "again"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let first = tree.head();
    let (next, state) = next_state(&mut client, &project, &tree, now()).await;
    let slow = Slow::new(&tree, &first, &next);
    slow.begin(&server, &project).await.vanish();
    tree.git(&["push", "-q", &project.url(&server), "main"]);
    assert!(served(&mut client, &state).await);
    assert_nothing_left(&server, &project).await;
}

#[tokio::test]
async fn a_push_that_breaks_off_keeps_nothing_from_expiring() {
    let server = grasp_with(&[("NGIT_PURGATORY_EXPIRY_SECS", "3")]);
    let (project, tree) = (Project::new(&Author::new(1), "brief"), WorkTree::new());
    let mut client = Client::connect(&server.ws_url()).await;
    held(&mut client, &project.announcement(now())).await;
    let (tip, _) = next_state(&mut client, &project, &tree, now()).await;
    let mut body = commands(&[(NULL, &tip, "refs/heads/main")]);
    let start = body.len();
    body.extend(tree.pack(&[&tip]));
    let middle = start + (body.len() - start) / 2;
    let slow = Slow { body, middle };
    slow.begin(&server, &project).await.vanish();
    let dir = directory(&server, &project);
    eventually("the directory goes", || async { !dir.exists() }).await;
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

fn packs(dir: &Path) -> usize {
    let found = std::fs::read_dir(dir.join("objects/pack")).expect("packs");
    let names = found.flatten().map(|entry| entry.file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(".pack"))
        .count()
}

/// Alice's repository has its objects from pushes, Bob's from hers.
#[tokio::test]
async fn many_small_pushes_leave_few_packs() {
    let server = grasp();
    let (alice, bob, tree) = (Author::new(1), Author::new(2), WorkTree::new());
    let hers = Project::new(&alice, "many").with(&[&bob]);
    let his = Project::new(&bob, "many").with(&[&alice]);
    let mut client = hosted(&server, &hers, &tree).await;
    assert!(client.publish(&his.announcement(now() - 95)).await.0);
    let urls = [hers.url(&server), his.url(&server)];
    for n in 0..60 {
        next_state(&mut client, &hers, &tree, now() - 90 + n).await;
        tree.git(&["push", "-q", &urls[0], "main"]);
        assert_eq!(remote_ref(&urls[0], "refs/heads/main"), Some(tree.head()));
    }
    for (project, url) in [&hers, &his].into_iter().zip(&urls) {
        let dir = directory(&server, project);
        // One repack after every thirty.
        eventually("few packs", || async { packs(&dir) <= 40 }).await;
        let copy = WorkTree::clone_of(url, &[]);
        assert_eq!(copy.head(), tree.head());
        assert_nothing_left(&server, project).await;
    }
}
