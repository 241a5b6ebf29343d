//! What tests of hosting share: a server under GRASP's rules, a repository with its first commit,
//! what is held and served, and git requests that are sent byte for byte.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use grasp_core::Event;
use testkit::git::try_git;
use testkit::grasp::DOMAIN;
use testkit::{Client, Project, Server, WorkTree, json, now};

use crate::support::{DEADLINE, Reply, head, ids_of, read_reply, start, stored, tcp};

/// The rules of GRASP, under a name that outlives a restart.
pub const GRASP: &[(&str, &str)] = &[
    ("NGIT_DOMAIN", DOMAIN),
    ("NGIT_ACCEPT_UNRELATED_EVENTS", "false"),
];
/// The answer to an event that waits.
pub const HELD: &str = "purgatory: won't be served until git data arrives";
/// No object.
pub const NULL: &str = "0000000000000000000000000000000000000000";
/// What stock git asks for when it pushes.
pub const CAPABILITIES: &str = "report-status side-band-64k object-format=sha1 agent=test";

pub fn grasp() -> Server {
    start(GRASP)
}

pub fn grasp_with(env: &[(&str, &str)]) -> Server {
    start(&[GRASP, env].concat())
}

/// Taken, and not served.
pub async fn held(client: &mut Client, event: &Event) {
    assert_eq!(client.publish(event).await, (true, HELD.to_owned()));
    assert!(!served(client, event).await);
}

pub async fn served(client: &mut Client, event: &Event) -> bool {
    let id = event.id.to_string();
    let found = client.request("served", &[json!({"ids": [id]})]).await;
    // An earlier question stays open, and its event may come live in between.
    ids_of(&found).contains(&id)
}

/// Looks until an event is served, or is not any more.
pub async fn await_served(client: &mut Client, event: &Event, wanted: bool, what: &str) {
    let deadline = Instant::now() + DEADLINE;
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let ids = json!({"ids": [event.id]});
    while stored(client, std::slice::from_ref(&ids)).await.is_empty() == wanted {
        assert!(Instant::now() < deadline, "{what}: {event:?}");
        looks.tick().await;
    }
}

/// A served repository with one commit on main.
pub async fn hosted(server: &Server, project: &Project, tree: &WorkTree) -> Client {
    let mut client = Client::connect(&server.ws_url()).await;
    held(&mut client, &project.announcement(now() - 100)).await;
    let first = tree.commit("README", b"first");
    let state = project.state(&project.owner, now() - 100, &[("refs/heads/main", &first)]);
    held(&mut client, &state).await;
    tree.git(&["push", "-q", &project.url(server), "main"]);
    assert!(served(&mut client, &state).await);
    client
}

/// A state for the present commit of main is held; the commit and the state.
pub async fn next_state(
    client: &mut Client,
    project: &Project,
    tree: &WorkTree,
    created_at: u64,
) -> (String, Event) {
    let next = tree.commit("README", format!("at {created_at}").as_bytes());
    let refs = [("refs/heads/main", next.as_str())];
    let state = project.state(&project.owner, created_at, &refs);
    held(client, &state).await;
    (next, state)
}

/// Lines of `ls-remote`.
pub fn remote_refs(url: &str) -> Vec<String> {
    let said = try_git(&std::env::temp_dir(), &["ls-remote", url]);
    assert!(said.ok, "{said:?}");
    said.stdout.lines().map(str::to_owned).collect()
}

/// What `ls-remote` says of one ref.
pub fn remote_ref(url: &str, name: &str) -> Option<String> {
    remote_refs(url).iter().find_map(|line| {
        let (id, found) = line.split_once('\t')?;
        (found == name).then(|| id.to_owned())
    })
}

/// Where the server keeps it.
pub fn directory(server: &Server, project: &Project) -> PathBuf {
    let owner = server.data_dir().join("git").join(project.owner.npub());
    owner.join(format!("{}.git", project.identifier))
}

/// The path of a repository's URL.
pub fn path(server: &Server, project: &Project) -> String {
    project.url(server).replace(&server.http_url(), "")
}

/// Lock files, quarantines and half-written files anywhere in a repository.
pub fn leftovers(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        // Something at work may remove what was listed.
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let unfinished = ["incoming-", "tmp_", ".tmp-", ".creating-", ".removing-"];
            let left = name.ends_with(".lock") || unfinished.iter().any(|it| name.starts_with(it));
            if left {
                found.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    found
}

/// Git processes at work on the server's repositories, by what they were started as.
pub fn git_processes(server: &Server) -> Vec<String> {
    let root = server.data_dir().join("git");
    let shown = root.to_string_lossy();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(words) = std::fs::read_to_string(entry.path().join("cmdline")) else {
            continue;
        };
        let inside = std::fs::read_link(entry.path().join("cwd"));
        let inside = inside.is_ok_and(|cwd| cwd.starts_with(&root));
        if inside || words.contains(&*shown) {
            found.push(words.replace('\0', " "));
        }
    }
    found
}

/// A line of `/proc/<pid>/status` in kB.
pub fn memory(server: &Server, line: &str) -> u64 {
    let path = format!("/proc/{}/status", server.pid());
    let status = std::fs::read_to_string(path).expect("the server's status");
    let found = status.lines().find_map(|found| found.strip_prefix(line));
    let digits = found.expect("the line").trim_start_matches(':').trim();
    let number = digits.split(' ').next().and_then(|kb| kb.parse().ok());
    number.expect("a number of kB")
}

pub fn pkt(text: &str) -> Vec<u8> {
    let mut line = format!("{:04x}", text.len() + 4).into_bytes();
    line.extend_from_slice(text.as_bytes());
    line
}

/// The commands of a push with their end, and capabilities on the first.
pub fn commands(list: &[(&str, &str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (n, (old, new, name)) in list.iter().enumerate() {
        let words = if n == 0 {
            format!("\0{CAPABILITIES}")
        } else {
            String::new()
        };
        body.extend(pkt(&format!("{old} {new} {name}{words}")));
    }
    body.extend_from_slice(b"0000");
    body
}

/// Sends a body as it is and reads the answer.
pub fn post(addr: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let length = body.len().to_string();
    let more = [("Content-Length", length.as_str()), ("Connection", "close")];
    let mut stream = tcp(addr);
    let text = head("POST", path, &[headers, &more].concat());
    // A server that turns us away does not wait for all of it.
    let _ = stream.write_all(text.as_bytes());
    let _ = stream.write_all(body);
    read_reply(&mut stream)
}

/// Sends a body in chunks of the sizes that come next.
pub fn post_chunked(
    addr: SocketAddr,
    path: &str,
    body: &[u8],
    mut size: impl FnMut() -> usize,
) -> Reply {
    let headers = [("Transfer-Encoding", "chunked"), ("Connection", "close")];
    let mut stream = tcp(addr);
    let mut text = head("POST", path, &headers).into_bytes();
    let mut rest = body;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(size().clamp(1, rest.len()));
        text.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        text.extend_from_slice(chunk);
        text.extend_from_slice(b"\r\n");
        rest = after;
    }
    text.extend_from_slice(b"0\r\n\r\n");
    let _ = stream.write_all(&text);
    read_reply(&mut stream)
}

/// A push whose body is begun and not ended.
pub struct HalfPush(TcpStream);

impl HalfPush {
    pub fn begin(addr: SocketAddr, path: &str, whole: usize, part: &[u8]) -> Self {
        Self::begin_with(addr, path, &[], whole, part)
    }

    pub fn begin_with(
        addr: SocketAddr,
        path: &str,
        headers: &[(&str, &str)],
        whole: usize,
        part: &[u8],
    ) -> Self {
        let length = whole.to_string();
        let more = [("Content-Length", length.as_str()), ("Connection", "close")];
        let headers = [headers, &more].concat();
        let path = format!("{path}/git-receive-pack");
        let mut stream = tcp(addr);
        let text = head("POST", &path, &headers);
        stream
            .set_nodelay(true)
            .expect("segments as they are written");
        stream.write_all(text.as_bytes()).expect("send the head");
        stream.write_all(part).expect("send the first part");
        Self(stream)
    }

    pub fn more(&mut self, part: &[u8]) {
        self.0.write_all(part).expect("send a part");
        self.0.flush().expect("send a part");
    }

    /// One byte, if the server still wants it.
    pub fn drip(&mut self, byte: u8) {
        let _ = self.0.write_all(&[byte]);
    }

    pub fn into_stream(self) -> TcpStream {
        self.0
    }

    pub fn end(mut self, rest: &[u8]) -> Reply {
        self.0.write_all(rest).expect("send the rest");
        read_reply(&mut self.0)
    }

    pub fn vanish(self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
