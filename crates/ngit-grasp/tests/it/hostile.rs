//! Requests that no git would send: whatever they are, they reach no repository but the one they
//! name, move nothing that nobody signed, cost little, and the next clone is served.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use async_compression::tokio::bufread::GzipEncoder;
use bech32::{Bech32, Hrp};
use testkit::{Author, Client, Project, Server, WorkTree, now, pack};
use tokio::io::AsyncReadExt as _;

use crate::hosted::{
    GRASP, HELD, HalfPush, NULL, commands, directory, grasp, held, hosted, leftovers, memory,
    next_state, path, pkt, post, post_chunked, remote_ref, served,
};
use crate::support::{
    Reply, Shared, author, eventually, exchange, get, head, read_reply, request, tcp,
};

static GRASP_SERVER: Shared = Shared::new(GRASP);

/// A hosted repository that must come through unharmed.
struct Target {
    server: Arc<Server>,
    client: Client,
    project: Project,
    tree: WorkTree,
    path: String,
    first: String,
}

impl Target {
    async fn new() -> Self {
        Self::named("target").await
    }

    async fn named(identifier: &str) -> Self {
        let (server, tree) = (GRASP_SERVER.get(), WorkTree::new());
        let project = Project::new(&author(), identifier);
        let client = hosted(&server, &project, &tree).await;
        Self {
            path: path(&server, &project),
            first: tree.head(),
            server,
            client,
            project,
            tree,
        }
    }

    fn url(&self) -> String {
        self.project.url(&self.server)
    }

    fn push(&self, body: &[u8]) -> Reply {
        self.push_with(&[], body)
    }

    fn push_with(&self, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let path = format!("{}/git-receive-pack", self.path);
        post(self.server.addr(), &path, headers, body)
    }

    fn fetch_with(&self, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let path = format!("{}/git-upload-pack", self.path);
        post(self.server.addr(), &path, headers, body)
    }

    /// Still served, still where it was, and nothing lies about.
    fn assert_unharmed(&self, after: &str) {
        self.assert_at(&self.first, after);
    }

    fn assert_at(&self, main: &str, after: &str) {
        let copy = WorkTree::clone_of(&self.url(), &[]);
        assert_eq!(copy.head(), main, "after {after}");
        let dir = directory(&self.server, &self.project);
        assert_eq!(leftovers(&dir), Vec::<std::path::PathBuf>::new(), "{after}");
    }

    /// Refused in its head: before the core was asked and before any pack.
    fn assert_not_read(&self, what: &str, body: &[u8], says: &str) {
        let reply = self.push(body);
        assert_eq!(reply.status, 400, "{what}: {reply:?}");
        assert!(reply.body.contains(says), "{what}: {reply:?}");
        reply.assert_cors();
    }
}

#[tokio::test]
async fn no_spelling_of_a_path_reaches_another_repository() {
    let target = Target::new().await;
    let npub = target.project.owner.npub();
    let hex = target.project.owner.pubkey().to_string();
    let hrp = Hrp::parse("nsec").unwrap();
    let nsec = bech32::encode::<Bech32>(hrp, &target.project.owner.pubkey().0).unwrap();
    let other = author().npub();
    let (upper, mixed) = (npub.to_uppercase(), npub.replace("npub1", "Npub1"));
    let long = "x".repeat(201);
    let very_long = "%2e".repeat(4_000);
    let spellings = [
        format!("/{other}/../{npub}/target.git"),
        format!("/{other}/%2e%2e/{npub}/target.git"),
        format!("/{other}/%2E%2E%2F{npub}%2Ftarget.git"),
        format!("/{other}/..%2f{npub}%2ftarget.git"),
        format!("/{other}/..%5c{npub}%5ctarget.git"),
        format!("/{other}/%252e%252e%252f{npub}%252ftarget.git"),
        format!("/{npub}/other.git/../target.git"),
        format!("/{npub}/./target.git"),
        format!("/{npub}/%2e/target.git"),
        format!("/{npub}/target.git%00"),
        format!("/{npub}/target%00.git"),
        format!("/{npub}/target%0a.git"),
        format!("/{npub}/target%ff.git"),
        format!("/{npub}/target%2.git"),
        format!("/{npub}/target%2Egit"),
        format!("/{npub}/target.git.git"),
        format!("/{npub}/target.git%2f"),
        format!("/{npub}/target.GIT"),
        format!("/{npub}/Target.git"),
        format!("/{npub}/target"),
        format!("/{npub}/target%20.git"),
        format!("/{npub}/target+.git"),
        format!("/{npub}/.git"),
        format!("/{npub}/..git"),
        format!("/{npub}/%2e%2e.git"),
        format!("/{npub}//target.git"),
        format!("//{npub}/target.git"),
        format!("/{npub}%2ftarget.git"),
        format!("/prs/{npub}/target.git"),
        format!("/.retired/{npub}/target.git"),
        format!("/{upper}/target.git"),
        format!("/{mixed}/target.git"),
        format!("/{hex}/target.git"),
        format!("/{nsec}/target.git"),
        format!("/nostr:{npub}/target.git"),
        format!("/{npub}%20/target.git"),
        format!("/{npub}/{long}.git"),
        format!("/{npub}/{very_long}.git"),
        format!("/{npub}/--upload-pack=touch.git"),
    ];
    for spelling in &spellings {
        for below in [
            "/info/refs?service=git-upload-pack",
            "/info/refs?service=git-receive-pack",
            "",
        ] {
            let reply = get(target.server.addr(), &format!("{spelling}{below}"));
            let refused = matches!(reply.status, 400 | 404 | 414);
            assert!(refused, "{spelling}{below}: {reply:?}");
            assert!(!reply.body.contains(&target.first), "{spelling}{below}");
        }
        let fetch = format!("{spelling}/git-upload-pack");
        let reply = post(target.server.addr(), &fetch, &[], b"0000");
        assert!(matches!(reply.status, 400 | 404 | 414), "{spelling}");
    }
    target.assert_unharmed("spellings");
}

#[tokio::test]
async fn only_the_smart_protocol_is_served() {
    let target = Target::new().await;
    let addr = target.server.addr();
    for below in [
        "/HEAD",
        "/config",
        "/description",
        "/packed-refs",
        "/objects/info/packs",
        "/objects/info/alternates",
        "/refs/heads/main",
        "/info/refs/",
        "/info//refs?service=git-upload-pack",
        "/info/refs%00?service=git-upload-pack",
        "/info/refs/../refs?service=git-upload-pack",
        "/git-upload-pack/",
        "/git-upload-archive",
    ] {
        let reply = get(addr, &format!("{}{below}", target.path));
        assert_eq!(reply.status, 404, "{below}: {reply:?}");
        reply.assert_cors();
        assert!(!reply.body.contains(&target.first), "{below}: {reply:?}");
    }
    for query in [
        "",
        "?",
        "?service=",
        "?service=git-upload-archive",
        "?service=--upload-pack",
        "?service=git-upload-pack%00",
        "?service=git-upload-pack/../git-receive-pack",
        "?service=upload-pack",
        "?SERVICE=git-upload-pack",
        "?xservice=git-upload-pack",
    ] {
        let reply = get(addr, &format!("{}/info/refs{query}", target.path));
        assert_eq!(reply.status, 403, "{query}: {reply:?}");
        reply.assert_cors();
    }
    let reply = get(
        addr,
        &format!("{}/info/refs?x=1&service=git-upload-pack", target.path),
    );
    assert!(
        reply.status == 200 && reply.body.contains(&target.first),
        "{reply:?}"
    );
    target.assert_unharmed("dumb requests");
}

#[tokio::test]
async fn each_endpoint_takes_its_methods_and_no_other() {
    let target = Target::new().await;
    let addr = target.server.addr();
    let refs = format!("{}/info/refs?service=git-upload-pack", target.path);
    let fetch = format!("{}/git-upload-pack", target.path);
    let push = format!("{}/git-receive-pack", target.path);
    for (method, path, status) in [
        ("HEAD", &refs, 200),
        ("GET", &refs, 200),
        ("POST", &refs, 405),
        ("PUT", &refs, 405),
        ("DELETE", &refs, 405),
        ("PROPFIND", &refs, 405),
        ("GET", &fetch, 405),
        ("HEAD", &fetch, 405),
        ("PUT", &fetch, 405),
        ("GET", &push, 405),
        ("DELETE", &push, 405),
        ("OPTIONS", &refs, 204),
        ("OPTIONS", &fetch, 204),
        ("OPTIONS", &push, 204),
        ("OPTIONS", &target.path, 204),
        ("HEAD", &target.path, 200),
    ] {
        let reply = request(addr, method, path, &[]);
        assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
        reply.assert_cors();
    }
    let reply = request(addr, "HEAD", &refs, &[]);
    let kind = "application/x-git-upload-pack-advertisement";
    assert_eq!(reply.header("content-type"), Some(kind));
    assert_eq!(reply.body, "");
    let absolute = head(
        "GET",
        &format!("http://git.test{refs}"),
        &[("Connection", "close")],
    );
    assert_eq!(exchange(addr, &absolute).status, 200);
    target.assert_unharmed("methods");
}

#[tokio::test]
async fn an_unknown_repository_is_not_found_whatever_is_asked() {
    let target = Target::new().await;
    let nobody = format!("/{}/nothing.git", target.project.owner.npub());
    let addr = target.server.addr();
    for below in [
        "",
        "/info/refs",
        "/info/refs?service=git-upload-pack",
        "/info/refs?service=git-receive-pack",
        "/HEAD",
    ] {
        let reply = get(addr, &format!("{nobody}{below}"));
        assert_eq!(reply.status, 404, "{below}: {reply:?}");
        reply.assert_cors();
    }
    for below in ["/git-upload-pack", "/git-receive-pack"] {
        let reply = post(addr, &format!("{nobody}{below}"), &[], b"0000");
        assert_eq!(reply.status, 404, "{below}: {reply:?}");
        reply.assert_cors();
    }
    let dir = target
        .server
        .data_dir()
        .join("git")
        .join(target.project.owner.npub());
    assert!(!dir.join("nothing.git").exists());
}

#[tokio::test]
async fn a_head_that_is_no_list_of_commands_is_refused() {
    let target = Target::new().await;
    let first = target.first.as_str();
    let line = |text: &str| [pkt(text), b"0000".to_vec()].concat();
    let one = format!("{first} {first} refs/heads/main");
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing", Vec::new(), "ends within"),
        ("a cut length", b"00".to_vec(), "ends within"),
        ("a cut line", b"00a0abc".to_vec(), "ends within"),
        ("no end", pkt(&one), "ends within"),
        ("no hex", b"zzzz".to_vec(), "four hex digits"),
        (
            "a pack at once",
            b"PACK\0\0\0\x02".to_vec(),
            "four hex digits",
        ),
        ("length three", b"0003".to_vec(), "3 bytes long"),
        ("too long a packet", b"ffffabc".to_vec(), "65535 bytes long"),
        ("a delimiter", b"0001".to_vec(), "not a command"),
        ("an empty line", b"00040000".to_vec(), "not a command"),
        ("words", line("hello"), "not a command"),
        (
            "two spaces",
            line(&format!("{first}  {first} refs/heads/main")),
            "not a command",
        ),
        (
            "no name",
            line(&format!("{first} {first} ")),
            "not a command",
        ),
        (
            "short ids",
            line("1234 5678 refs/heads/main"),
            "not a command",
        ),
        (
            "no hex ids",
            line(&format!("{NULL} {} refs/heads/x", "g".repeat(40))),
            "not a command",
        ),
        (
            "upper-case ids",
            line(&format!("{NULL} {} refs/heads/x", first.to_uppercase())),
            "not a command",
        ),
        (
            "an option as id",
            line(&format!("--help {first} refs/heads/x")),
            "not a command",
        ),
        (
            "a control character",
            line(&format!("{NULL} {first} refs/heads/\u{1b}[2J")),
            "not a command",
        ),
        (
            "two lines in one",
            line(&format!("{one}\n{one}")),
            "not a command",
        ),
        (
            "a certificate",
            line("push-cert\0report-status"),
            "signed pushes",
        ),
        (
            "a certificate's capability",
            line(&format!("{one}\0push-cert=x")),
            "signed pushes",
        ),
        (
            "push options",
            line(&format!("{one}\0report-status push-options")),
            "push options",
        ),
        (
            "sha256",
            line(&format!("{one}\0object-format=sha256")),
            "object format",
        ),
        (
            "a bad shallow line",
            line("shallow --help"),
            "not a command",
        ),
        (
            "a ref twice",
            commands(&[
                (first, first, "refs/heads/main"),
                (first, NULL, "refs/heads/main"),
            ]),
            "named twice",
        ),
    ];
    for (what, body, says) in &cases {
        target.assert_not_read(what, body, says);
    }
    let many: Vec<String> = (0..=20_000).map(|n| format!("refs/heads/{n}")).collect();
    let many: Vec<_> = many
        .iter()
        .map(|name| (NULL, first, name.as_str()))
        .collect();
    target.assert_not_read(
        "20,001 commands",
        &commands(&many),
        "more than 20000 commands",
    );
    let long = "x".repeat(60_000);
    let large: Vec<String> = (0..80).map(|n| format!("refs/heads/{n}{long}")).collect();
    let large: Vec<_> = large
        .iter()
        .map(|name| (NULL, first, name.as_str()))
        .collect();
    target.assert_not_read("5 MB of commands", &commands(&large), "bytes of commands");
    target.assert_unharmed("heads that are none");
}

#[tokio::test]
async fn an_empty_list_asks_whether_and_does_nothing() {
    let target = Target::new().await;
    let asked = target.push(b"0000");
    assert_eq!((asked.status, asked.body.as_str()), (200, ""));
    assert_eq!(
        asked.header("content-type"),
        Some("application/x-git-receive-pack-result")
    );
    target.assert_not_read("a list and more", b"0000garbage", "empty");
    let pack = target.tree.pack(&["main"]);
    let body = [b"0000".as_slice(), &pack].concat();
    target.assert_not_read("a pack without commands", &body, "empty");
    target.assert_unharmed("empty lists");
}

#[tokio::test]
async fn names_that_may_not_be_are_refused_each_in_words() {
    let target = Target::new().await;
    let first = target.first.as_str();
    for name in [
        "--upload-pack=touch",
        "-c",
        "-ccore.sshCommand=touch",
        "HEAD",
        "main",
        "refs/heads/../../config",
        "refs/heads/a..b",
        "refs/heads/.hidden",
        "refs/heads/x.lock",
        "refs/heads/a:b",
        "refs/heads/a b",
        "refs/heads/",
        "refs/notes/commits",
        "refs/remotes/origin/main",
        "refs/replace/x",
        "refs/nostr/abc",
        &format!("refs/nostr/{}", "AB".repeat(32)),
        &format!("refs/nostr/{}/x", "ab".repeat(32)),
        "objects/info/alternates",
        "/etc/passwd",
    ] {
        let reply = target.push(&commands(&[(NULL, first, name)]));
        assert_eq!(reply.status, 200, "{name}: {reply:?}");
        let refused = format!("ng {name} only refs/heads/, refs/tags/ and refs/nostr/");
        assert!(reply.body.contains(&refused), "{name}: {reply:?}");
    }
    // One that could be, which nobody has signed.
    for name in ["refs/heads/-x", "refs/heads/--help", "refs/tags/-c"] {
        let reply = target.push(&commands(&[(NULL, first, name)]));
        assert!(
            reply.body.contains(&format!("ng {name} no state event")),
            "{reply:?}"
        );
    }
    // One bad name spoils the list.
    let both = [
        (first, first, "refs/heads/main"),
        (NULL, first, "refs/notes/x"),
    ];
    let reply = target.push(&commands(&both));
    assert!(reply.body.contains("ng refs/heads/main") && reply.body.contains("ng refs/notes/x"));
    assert!(!target.server.data_dir().join("touch").exists());
    target.assert_unharmed("names");
}

#[tokio::test]
async fn a_push_may_arrive_in_pieces_of_any_size() {
    let mut target = Target::new().await;
    let mut before = target.first.clone();
    let mut dice = fastrand::Rng::with_seed(7);
    let addr = target.server.addr();
    let push = format!("{}/git-receive-pack", target.path);
    for (at, most) in [(50, 1), (40, 3), (30, 1_000)] {
        let (tree, project) = (&target.tree, &target.project);
        let (next, state) = next_state(&mut target.client, project, tree, now() - at).await;
        let mut body = commands(&[(&before, &next, "refs/heads/main")]);
        body.extend(target.tree.pack(&[&next, &format!("^{before}")]));
        let reply = post_chunked(addr, &push, &body, || dice.usize(1..=most));
        assert!(reply.body.contains("ok refs/heads/main"), "{reply:?}");
        assert!(served(&mut target.client, &state).await);
        before = next;
    }
    // Each byte a segment of its own, as far as the network keeps them apart.
    let (tree, project) = (&target.tree, &target.project);
    let (next, _) = next_state(&mut target.client, project, tree, now()).await;
    let mut body = commands(&[(&before, &next, "refs/heads/main")]);
    body.extend(target.tree.pack(&[&next, &format!("^{before}")]));
    let (begun, rest) = body.split_at(3);
    let mut half = HalfPush::begin(addr, &target.path, body.len(), begun);
    for byte in &rest[..rest.len() - 1] {
        half.more(&[*byte]);
    }
    let reply = half.end(&rest[rest.len() - 1..]);
    assert!(reply.body.contains("ok refs/heads/main"), "{reply:?}");
    target.assert_at(&next, "pieces");
}

#[tokio::test]
async fn a_client_that_waits_for_leave_gets_it() {
    let mut target = Target::new().await;
    let (tree, project) = (&target.tree, &target.project);
    let (next, _) = next_state(&mut target.client, project, tree, now()).await;
    let mut body = commands(&[(&target.first, &next, "refs/heads/main")]);
    body.extend(target.tree.pack(&[&next, &format!("^{}", target.first)]));
    let mut stream = tcp(target.server.addr());
    let headers = [
        ("Content-Length", body.len().to_string()),
        ("Expect", "100-continue".to_owned()),
        ("Connection", "close".to_owned()),
    ];
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let text = head(
        "POST",
        &format!("{}/git-receive-pack", target.path),
        &headers,
    );
    stream.write_all(text.as_bytes()).unwrap();
    let expected = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut leave = [0; 25];
    stream.read_exact(&mut leave).unwrap();
    assert_eq!(leave, *expected);
    stream.write_all(&body).unwrap();
    let reply = read_reply(&mut stream);
    assert!(reply.body.contains("ok refs/heads/main"), "{reply:?}");
    target.assert_at(&next, "leave to send");
}

#[tokio::test]
async fn a_bad_pack_moves_nothing_and_the_good_one_after_it_does() {
    let mut target = Target::new().await;
    let (tree, project) = (&target.tree, &target.project);
    let (next, state) = next_state(&mut target.client, project, tree, now()).await;
    let head = commands(&[(&target.first, &next, "refs/heads/main")]);
    let pack = target.tree.pack(&[&next, &format!("^{}", target.first)]);
    let mut flipped = pack.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x55;
    let empty = pack::pack(&[]);
    let count = |n: u32| [b"PACK\0\0\0\x02".as_slice(), &n.to_be_bytes()].concat();
    for (what, bytes) in [
        ("no pack at all", Vec::new()),
        ("garbage", b"this is not a pack, it is words".to_vec()),
        ("a cut header", pack[..7].to_vec()),
        ("half a pack", pack[..pack.len() / 2].to_vec()),
        (
            "a pack without its trailer",
            pack[..pack.len() - 20].to_vec(),
        ),
        (
            "a pack without its last byte",
            pack[..pack.len() - 1].to_vec(),
        ),
        ("a flipped byte", flipped),
        ("a byte too many", [pack.as_slice(), b"x"].concat()),
        ("two packs", [pack.as_slice(), &pack].concat()),
        (
            "a megabyte too many",
            [pack.clone(), vec![0; 1 << 20]].concat(),
        ),
        ("an empty pack", empty),
        ("an unknown version", b"PACK\0\0\0\x09\0\0\0\x01".to_vec()),
        ("four billion objects", count(u32::MAX)),
        (
            "another history's objects",
            WorkTree::new_with_commit().pack(&["main"]),
        ),
    ] {
        let reply = target.push(&[head.clone(), bytes].concat());
        assert_eq!(reply.status, 200, "{what}: {reply:?}");
        assert!(
            reply.body.contains("ng refs/heads/main"),
            "{what}: {reply:?}"
        );
        assert!(!reply.body.contains("unpack ok"), "{what}: {reply:?}");
        assert!(!served(&mut target.client, &state).await, "{what}");
        target.assert_unharmed(what);
    }
    let reply = target.push(&[head, pack].concat());
    assert!(reply.body.contains("ok refs/heads/main"), "{reply:?}");
    assert!(served(&mut target.client, &state).await);
    target.assert_at(&next, "the good pack");
}

#[tokio::test]
async fn a_delta_that_grows_without_end_is_stopped() {
    let mut target = Target::new().await;
    let (tree, project) = (&target.tree, &target.project);
    let (next, state) = next_state(&mut target.client, project, tree, now()).await;
    let head = commands(&[(&target.first, &next, "refs/heads/main")]);
    // 300 kB that say: copy these 64 kB a hundred thousand times.
    let bomb = pack::pack(&[
        pack::Object::Blob(vec![0; 0xffff]),
        pack::Object::Repeat { times: 100_000 },
    ]);
    let before = memory(&target.server, "VmRSS");
    let reply = target.push(&[head, bomb].concat());
    assert!(reply.body.contains("ng refs/heads/main"), "{reply:?}");
    assert!(reply.body.contains("too much memory"), "{reply:?}");
    let grown = memory(&target.server, "VmRSS").saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} kB");
    assert!(!served(&mut target.client, &state).await);
    target.assert_unharmed("a delta bomb");
}

async fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut encoder = GzipEncoder::new(bytes);
    encoder.read_to_end(&mut packed).await.unwrap();
    packed
}

const GZIP: &[(&str, &str)] = &[("Content-Encoding", "gzip")];

#[tokio::test]
async fn a_body_that_unpacks_to_much_more_costs_no_memory() {
    let server = grasp();
    let (project, tree) = (Project::new(&Author::new(1), "bombed"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let first = tree.head();
    let path = path(&server, &project);
    let (fetch, push) = (
        format!("{path}/git-upload-pack"),
        format!("{path}/git-receive-pack"),
    );
    let (next, state) = next_state(&mut client, &project, &tree, now()).await;

    let zeros = gzip(&vec![0; 256 << 20]).await;
    let lines = pkt(&format!("want {first}\n")).repeat(2_000_000);
    let wants = gzip(&lines).await;
    let mut commands = commands(&[(&first, &next, "refs/heads/main")]);
    commands.extend(b"PACK\0\0\0\x02\0\0\0\x01");
    commands.extend(vec![0; 256 << 20]);
    let commands = gzip(&commands).await;
    let have =
        gzip(&pkt(&format!("{NULL} {first} refs/heads/{}", "x".repeat(900))).repeat(200_000)).await;
    let before = memory(&server, "VmRSS");
    for (path, body) in [
        (&fetch, &zeros),
        (&fetch, &wants),
        (&push, &zeros),
        (&push, &commands),
        (&push, &have),
    ] {
        let reply = post(server.addr(), path, GZIP, body);
        assert!(matches!(reply.status, 200 | 400 | 413), "{path}: {reply:?}");
        assert!(!reply.body.contains("ok refs/heads/main"), "{reply:?}");
        let version2 = [GZIP, &[("Git-Protocol", "version=2")]].concat();
        let reply = post(server.addr(), path, &version2, body);
        assert!(matches!(reply.status, 200 | 400 | 413), "{path}: {reply:?}");
    }
    let grown = memory(&server, "VmHWM").saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} kB");
    assert!(!served(&mut client, &state).await);
    assert_eq!(WorkTree::clone_of(&project.url(&server), &[]).head(), first);
    let none_left = || async { leftovers(&directory(&server, &project)).is_empty() };
    eventually("the quarantines go", none_left).await;
}

#[tokio::test]
async fn encodings_are_gzip_or_none() {
    let mut target = Target::new().await;
    let body = commands(&[(NULL, &target.first, "refs/heads/x")]);
    for encoding in ["br", "deflate", "zstd", "gzip, gzip", "gzip;q=1", "x"] {
        let headers = [("Content-Encoding", encoding)];
        for reply in [
            target.push_with(&headers, &body),
            target.fetch_with(&headers, &body),
        ] {
            assert_eq!(reply.status, 415, "{encoding}: {reply:?}");
            reply.assert_cors();
        }
    }
    let reply = target.push_with(GZIP, b"not gzip at all");
    assert_eq!(reply.status, 400, "{reply:?}");
    let reply = target.push_with(GZIP, &gzip(&body).await[..20]);
    assert_eq!(reply.status, 400, "{reply:?}");
    let (tree, project) = (&target.tree, &target.project);
    let (next, _) = next_state(&mut target.client, project, tree, now()).await;
    let mut body = commands(&[(&target.first, &next, "refs/heads/main")]);
    body.extend(target.tree.pack(&[&next]));
    for encoding in ["gzip", "x-gzip"] {
        let headers = [("Content-Encoding", encoding)];
        let reply = target.push_with(&headers, &gzip(&body).await);
        assert!(reply.body.contains("ok refs/heads/main"), "{reply:?}");
    }
    target.assert_at(&next, "encodings");
}

#[tokio::test]
async fn a_malformed_fetch_gets_an_answer_and_an_end() {
    let target = Target::new().await;
    let first = &target.first;
    let version2 = [("Git-Protocol", "version=2")];
    for body in [
        b"".to_vec(),
        b"zzzz".to_vec(),
        b"0003".to_vec(),
        b"00".to_vec(),
        b"ffff".to_vec(),
        pkt("want --upload-pack=touch\n"),
        [pkt("want HEAD\n"), b"0000".to_vec()].concat(),
        [pkt(&format!("want {}\n", "0".repeat(40))), b"0000".to_vec()].concat(),
        [
            pkt(&format!("want {}\n", "ab".repeat(20))),
            b"0000".to_vec(),
            pkt("done\n"),
        ]
        .concat(),
        [
            pkt(&format!("want {first} filter\n")),
            pkt("filter --help\n"),
            b"0000".to_vec(),
        ]
        .concat(),
        [
            pkt(&format!("want {first}\n")),
            pkt("deepen -1\n"),
            b"0000".to_vec(),
        ]
        .concat(),
        [pkt("command=--help\n"), b"0000".to_vec()].concat(),
        [
            pkt("command=ls-refs\n"),
            pkt("agent=x\n"),
            b"0001".to_vec(),
            pkt("rm -rf\n"),
        ]
        .concat(),
        [pkt("command=ls-refs\n"), b"0001".to_vec(), b"zzzz".to_vec()].concat(),
        pkt("command=ls-refs\n"),
        [
            pkt("command=fetch\n"),
            b"0001".to_vec(),
            pkt("want --help\n"),
            b"0000".to_vec(),
        ]
        .concat(),
    ] {
        let shown = String::from_utf8_lossy(&body).into_owned();
        for headers in [&[][..], &version2] {
            let reply = target.fetch_with(headers, &body);
            assert!(matches!(reply.status, 200 | 400), "{shown:?}: {reply:?}");
            assert!(!reply.body.contains("PACK"), "{shown:?}: {reply:?}");
            reply.assert_cors();
        }
    }
    assert!(!target.server.data_dir().join("touch").exists());
    target.assert_unharmed("malformed fetches");
}

#[tokio::test]
async fn values_that_are_no_object_ids_are_held_and_never_served() {
    let mut target = Target::new().await;
    let owner = target.project.owner.clone();
    let first = target.first.clone();
    let short = &first[..39];
    let mut at = now() - 90;
    for (name, value) in [
        ("refs/heads/main", "--upload-pack=touch"),
        ("refs/heads/main", "--help"),
        ("refs/heads/main", "-c"),
        ("refs/heads/main", "HEAD"),
        ("refs/heads/main", "refs/heads/main"),
        ("refs/heads/main", "ref: refs/heads/main"),
        ("refs/heads/main", short),
        ("refs/heads/main", &first.to_uppercase()),
        ("refs/heads/main", &format!("{first}\n")),
        ("refs/heads/main", &format!("{first} ")),
        ("refs/heads/main", NULL),
        ("refs/heads/main", ""),
        ("refs/heads/--help", "--help"),
        ("refs/heads/../../config", &first),
        ("refs/heads/a.lock", &first),
        ("refs/heads/main:refs/heads/x", &first),
        ("refs/replace/x", &first),
        ("HEAD", "--help"),
        ("HEAD", "ref: refs/heads/../../config"),
    ] {
        at += 1;
        let good = ("refs/tags/good", first.as_str());
        let state = target.project.state(&owner, at, &[good, (name, value)]);
        held(&mut target.client, &state).await;
    }
    assert_eq!(remote_ref(&target.url(), "refs/tags/good"), None);
    let mut requests = Vec::new();
    for tip in [
        "--help",
        "-c",
        "--upload-pack=touch",
        "HEAD",
        "main",
        short,
        &first.to_uppercase(),
        NULL,
        "",
    ] {
        let event = target.project.pull_request(&author(), tip);
        held(&mut target.client, &event).await;
        // Nothing can be pushed under its name either.
        let name = format!("refs/nostr/{}", event.id);
        let reply = target.push(&commands(&[(NULL, &first, &name)]));
        assert!(
            reply.body.contains(&format!("ng {name}")),
            "{tip}: {reply:?}"
        );
        requests.push(event);
    }
    for event in &requests {
        assert!(!served(&mut target.client, event).await);
        assert_eq!(target.client.publish(event).await, (true, HELD.to_owned()));
    }
    assert!(!target.server.data_dir().join("touch").exists());
    target.assert_unharmed("odd values");
    // A good state is not held up by them.
    let (tree, project) = (&target.tree, &target.project);
    let (next, state) = next_state(&mut target.client, project, tree, now()).await;
    target.tree.git(&["push", "-q", &target.url(), "main"]);
    assert!(served(&mut target.client, &state).await);
    target.assert_at(&next, "odd values");
}

#[tokio::test]
async fn capabilities_of_strangers_change_nothing() {
    let target = Target::new().await;
    let first = target.first.as_str();
    let words = "report-status report-status-v2 atomic quiet foo bar=--help agent=\u{1b}[31m";
    let line = format!("{first} {first} refs/heads/main\0{words}\n");
    let reply = target.push(&[pkt(&line), b"0000".to_vec()].concat());
    assert!(reply.body.contains("ok refs/heads/main"), "{reply:?}");
    assert!(!reply.body.contains('\u{1b}'));
    // Without a wish for a report there is none.
    let line = format!("{first} {first} refs/heads/main\n");
    let reply = target.push(&[pkt(&line), b"0000".to_vec()].concat());
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(!reply.body.contains("refs/heads/main"), "{reply:?}");
    // From nothing to nothing.
    let reply = target.push(&commands(&[(NULL, NULL, "refs/heads/none")]));
    assert!(reply.body.contains("ok refs/heads/none"), "{reply:?}");
    target.assert_unharmed("capabilities");
}
