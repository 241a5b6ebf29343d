//! Pushes and fetches that come drop by drop: they end, and meanwhile they keep nobody else out.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use testkit::{Author, Bystander, FROM_ELSEWHERE, Project, Server, WorkTree, now};

use crate::hosted::{
    HalfPush, NULL, commands, git_processes, grasp_with, hosted, leftovers, next_state, path, pkt,
};
use crate::support::{Reply, eventually, head, metric, read_reply, tcp};

/// A server that loses patience soon.
fn hasty() -> Server {
    grasp_with(&[("NGIT_GIT_SLOW_GRACE_SECS", "1")])
}

/// Sends a byte now and then until the server has answered.
async fn drip(mut stream: TcpStream, bytes: Vec<u8>) -> Reply {
    let mut writer = stream.try_clone().expect("two ends");
    let dripping = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        for byte in bytes {
            ticks.tick().await;
            if writer.write_all(&[byte]).is_err() {
                break;
            }
        }
    });
    let reply = tokio::task::spawn_blocking(move || read_reply(&mut stream)).await;
    assert!(!dripping.is_finished(), "answered when all was there");
    dripping.abort();
    reply.expect("an answer")
}

async fn assert_no_slot_is_taken(server: &Server) {
    let running = || async { metric(server, "ngit_git_running") == 0.0 };
    eventually("no slot is taken", running).await;
    eventually("no git", || async { git_processes(server).is_empty() }).await;
}

#[tokio::test]
async fn a_push_that_comes_too_slowly_is_told_so_and_frees_its_slot() {
    let server = hasty();
    let (project, tree) = (Project::new(&Author::new(1), "drip"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let first = tree.head();
    tree.commit_noise("noise", 1, 1 << 20);
    let (next, _) = next_state(&mut client, &project, &tree, now()).await;
    let pack = tree.pack(&[&next, &format!("^{first}")]);
    let mut body = commands(&[(&first, &next, "refs/heads/main")]);
    body.extend_from_slice(&pack[..1000]);
    let push = HalfPush::begin(server.addr(), &path(&server, &project), 1 << 20, &body);
    let reply = drip(push.into_stream(), pack[1000..].to_vec()).await;
    assert!(reply.body.contains("ng refs/heads/main"), "{reply:?}");
    assert!(reply.body.contains("the push was too slow"), "{reply:?}");
    assert_no_slot_is_taken(&server).await;
    tree.git(&["push", "-q", &project.url(&server), "main"]);
}

#[tokio::test]
async fn a_fetch_whose_question_comes_too_slowly_is_told_so_and_frees_its_slot() {
    let server = hasty();
    let (project, tree) = (Project::new(&Author::new(1), "ask"), WorkTree::new());
    hosted(&server, &project, &tree).await;
    let path = format!("{}/git-upload-pack", path(&server, &project));
    let want = pkt(&format!("want {} agent=test\n", tree.head()));
    let command = |name: &str| [pkt(&format!("command={name}")), b"0001".to_vec()].concat();
    let haves = pkt(&format!("have {}\n", "12".repeat(20))).repeat(100);
    let prefixes = pkt("ref-prefix refs/heads/\n").repeat(100);
    for (version, beginning, rest) in [
        ("version=2", command("ls-refs"), prefixes),
        ("version=2", command("fetch"), haves.clone()),
        ("version=0", [want, b"0000".to_vec()].concat(), haves),
    ] {
        let headers = [("Content-Length", "100000"), ("Git-Protocol", version)];
        let mut stream = tcp(server.addr());
        let text = head("POST", &path, &headers);
        stream.write_all(text.as_bytes()).unwrap();
        stream.write_all(&beginning).unwrap();
        let reply = drip(stream, rest).await;
        assert!(reply.body.contains("too slow"), "{version}: {reply:?}");
        assert_no_slot_is_taken(&server).await;
    }
}

/// A stranger's push that never comes to its end.
struct Drops {
    push: HalfPush,
    rest: Vec<u8>,
}

impl Drops {
    fn fall(&mut self) {
        if let Some(byte) = self.rest.pop() {
            self.push.drip(byte);
        }
    }
}

/// Every address begins as many pushes as it may: half of them do not even show their commands,
/// the others have one tip that nobody has signed for.
async fn flood(server: &Server, repository: &str, addresses: usize) -> Vec<Drops> {
    let path = repository.replace(&server.http_url(), "");
    let tree = WorkTree::new();
    let tip = tree.commit_noise("noise", 1, 1 << 20);
    let pack = tree.pack(&[&tip]);
    let mut all = Vec::new();
    for n in 0..addresses * 16 {
        let address = format!("203.0.113.{}", n / 16);
        let headers = [("x-forwarded-for", address.as_str())];
        let name = format!("refs/nostr/{n:064x}");
        let mut body = commands(&[(NULL, &tip, &name)]);
        let begun = match n % 2 {
            0 => 10,
            _ => body.len() + 1000,
        };
        body.extend_from_slice(&pack);
        let (addr, whole) = (server.addr(), body.len());
        let push = HalfPush::begin_with(addr, &path, &headers, whole, &body[..begun]);
        let mut rest = body.split_off(begun);
        rest.reverse();
        all.push(Drops { push, rest });
        // Those of one address one after the other, as a patient stranger would.
        tokio::task::yield_now().await;
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dripping_pushes_of_strangers_keep_no_maintainer_out() {
    let server = grasp_with(&[FROM_ELSEWHERE]);
    let mut bystander = Bystander::settle(&server).await;
    let repository = bystander.repository().to_owned();
    let mut drops = flood(&server, &repository, 6).await;
    let running = || async { metric(&server, "ngit_git_running") >= 4.0 };
    eventually("many slots are taken", running).await;
    let attack = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        for _ in 0..20 {
            ticks.tick().await;
            drops.iter_mut().for_each(Drops::fall);
        }
    };
    let ((), waits) = bystander.during(attack).await;
    let longest = waits.longest();
    assert!(longest < Duration::from_secs(5), "{waits:?}");
    for drops in drops {
        drops.push.vanish();
    }
    assert_no_slot_is_taken(&server).await;
    let dir = server.data_dir().join("git");
    eventually("nothing is left", || async { leftovers(&dir).is_empty() }).await;
}

/// A clone of all of it whose answer nobody reads.
fn deaf_fetch(server: &Server, project: &Project, tip: &str, address: &str) -> TcpStream {
    let question = [pkt(&format!("want {tip} agent=test\n")), b"0000".to_vec()].concat();
    let question = [question, pkt("done\n")].concat();
    let length = question.len().to_string();
    let headers = [
        ("Content-Length", length.as_str()),
        ("x-forwarded-for", address),
    ];
    let path = format!("{}/git-upload-pack", path(server, project));
    let mut stream = tcp(server.addr());
    let text = head("POST", &path, &headers);
    stream.write_all(text.as_bytes()).unwrap();
    stream.write_all(&question).unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_clones_that_read_nothing_keep_nobody_from_cloning() {
    let server = grasp_with(&[FROM_ELSEWHERE]);
    let mut bystander = Bystander::settle(&server).await;
    let mut deaf = Vec::new();
    // As many as three networks may have, in as many repositories as that takes.
    for n in 0..3 {
        let (project, tree) = (Project::new(&Author::new(n), "large"), WorkTree::new());
        let mut client = hosted(&server, &project, &tree).await;
        // More than the buffers of a connection take.
        tree.commit_noise("noise", n, 16 << 20);
        let (tip, _) = next_state(&mut client, &project, &tree, now()).await;
        tree.git(&["push", "-q", &project.url(&server), "main"]);
        let address = format!("203.0.113.{n}");
        deaf.extend((0..16).map(|_| deaf_fetch(&server, &project, &tip, &address)));
    }
    let running = || async { metric(&server, "ngit_git_running") >= 48.0 };
    eventually("all slots for fetches are taken", running).await;
    let ((), waits) = bystander.during(std::future::ready(())).await;
    let longest = waits.longest();
    assert!(longest < Duration::from_secs(5), "{waits:?}");
    assert!(metric(&server, "ngit_git_running") >= 40.0, "few make way");
    drop(deaf);
    assert_no_slot_is_taken(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fetches_whose_question_drips_keep_nobody_from_cloning() {
    let server = grasp_with(&[FROM_ELSEWHERE]);
    let mut bystander = Bystander::settle(&server).await;
    let path = bystander.repository().replace(&server.http_url(), "");
    let path = format!("{path}/git-upload-pack");
    let beginning = [pkt("command=fetch"), b"0001".to_vec()].concat();
    let mut drips = Vec::new();
    // One each, so that nobody holds more than his share.
    for n in 0..24 {
        let address = format!("203.0.113.{n}");
        let headers = [
            ("Content-Length", "100000"),
            ("Git-Protocol", "version=2"),
            ("x-forwarded-for", address.as_str()),
        ];
        let mut stream = tcp(server.addr());
        let text = head("POST", &path, &headers);
        stream.write_all(text.as_bytes()).unwrap();
        stream.write_all(&beginning).unwrap();
        drips.push(stream);
    }
    let running = || async { metric(&server, "ngit_git_running") >= 24.0 };
    eventually("all slots of the repository are taken", running).await;
    // The minimum pace is kept, and the slot held.
    let have = pkt(&format!("have {}\n", "12".repeat(20))).repeat(20);
    let mut ticks = tokio::time::interval(Duration::from_millis(250));
    for _ in 0..42 {
        ticks.tick().await;
        drips
            .iter_mut()
            .for_each(|stream| stream.write_all(&have).unwrap_or_default());
    }
    let ((), waits) = bystander.during(std::future::ready(())).await;
    assert!(waits.longest() < Duration::from_secs(5), "{waits:?}");
}
