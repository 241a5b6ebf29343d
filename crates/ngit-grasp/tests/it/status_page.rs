//! The status page and its stream: who is told what, and that it stays true while one looks.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use testkit::{Client, Project, Rogue, Value, now};

use crate::hosted::{grasp, held};
use crate::support::{
    DEADLINE, accept, ask_to_stop, author, client, eventually, get, head, relay, request, start,
    tcp,
};

const TOKEN: &str = "correct horse battery staple";
/// Somebody behind a proxy on this machine.
const STRANGER: (&str, &str) = ("X-Forwarded-For", "203.0.113.9");

fn told(body: &str) -> Value {
    serde_json::from_str(body).expect("a status is JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_told_a_summary_and_the_operator_everything() {
    let other = Rogue::honest().await;
    let url = other.ws_url();
    let server = start(&[
        ("NGIT_SYNC_ENABLED", "true"),
        ("NGIT_SYNC_BOOTSTRAP_RELAY_URL", &url),
        ("NGIT_STATUS_TOKEN", TOKEN),
    ]);
    let addr = server.addr();
    let bearer = format!("Bearer {TOKEN}");
    let with_token = [STRANGER, ("Authorization", bearer.as_str())];
    eventually("the operator sees the relay by name", || async {
        let page = request(addr, "GET", "/status", &with_token).body;
        page.contains(&url)
    })
    .await;
    for path in [
        "/status",
        "/status/details",
        "/status/details/json",
        "/api/status",
    ] {
        let whole = request(addr, "GET", path, &with_token);
        assert_eq!(whole.status, 200, "{path}");
        assert!(whole.body.contains(&url), "{path}");
        assert_eq!(whole.header("cache-control"), Some("no-store"), "{path}");
    }
    let metrics = request(addr, "GET", "/metrics", &with_token);
    assert!(metrics.body.contains(&url), "{}", metrics.body);
    // Where there is a token, a proxy that names nobody does not pass for the operator.
    for (path, headers) in [
        ("/status", &[STRANGER][..]),
        ("/api/status", &[STRANGER]),
        ("/metrics", &[STRANGER]),
        ("/status", &[]),
        ("/api/status", &[]),
        ("/metrics", &[]),
    ] {
        let summary = request(addr, "GET", path, headers);
        assert_eq!(summary.status, 200, "{path}");
        let port = other.addr().port().to_string();
        assert!(!summary.body.contains(&url), "{path}: {}", summary.body);
        assert!(!summary.body.contains(&port), "{path}: {}", summary.body);
    }
    let summary = request(addr, "GET", "/api/status", &[STRANGER]).body;
    let summary = told(&summary);
    assert_eq!(summary["sync"]["relays_tracked"], 1);
    assert_eq!(summary["sync"]["relays"], Value::Null);
    assert_eq!(summary["machine"]["disks"], Value::Null);
    assert_eq!(summary["machine"]["longest_turn_ms"], Value::Null);
    for path in [
        "/status/details",
        "/status/details/json",
        "/status/details/events",
    ] {
        let refused = request(addr, "GET", path, &[STRANGER]);
        assert_eq!(refused.status, 401, "{path}");
        let asks = refused.header("www-authenticate").unwrap_or_default();
        assert!(asks.starts_with("Basic "), "{asks}");
        let guess = [STRANGER, ("Authorization", "Bearer correct horse battery")];
        assert_eq!(request(addr, "GET", path, &guess).status, 401, "{path}");
    }
}

#[test]
fn without_a_token_nobody_elsewhere_is_the_operator() {
    let server = relay();
    let refused = request(server.addr(), "GET", "/status/details", &[STRANGER]);
    assert_eq!(refused.status, 403);
    assert_eq!(refused.header("www-authenticate"), None);
    assert_eq!(get(server.addr(), "/status/details").status, 200);
}

#[test]
fn a_page_of_another_site_reads_no_more_than_a_stranger() {
    let server = relay();
    for header in [("Origin", "https://evil.example"), ("Host", "evil.example")] {
        let text = format!(
            "GET /api/status HTTP/1.1\r\n{}: {}\r\nConnection: close\r\n\r\n",
            header.0, header.1
        );
        let text = match header.0 {
            "Host" => text,
            _ => text.replace("\r\nConnection", "\r\nHost: localhost\r\nConnection"),
        };
        let reply = crate::support::exchange(server.addr(), &text);
        assert_eq!(
            told(&reply.body)["sync"]["relays"],
            Value::Null,
            "{header:?}"
        );
    }
}

#[test]
fn the_page_runs_one_script_and_nothing_inline() {
    let server = relay();
    let page = get(server.addr(), "/status");
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'"), "{policy}");
    assert!(policy.contains("script-src 'self';"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.body.matches("<script").count(), 1, "{}", page.body);
    for inline in [" style=", "<style", " onclick=", "javascript:"] {
        assert!(!page.body.contains(inline), "{inline}");
    }
    let script = get(server.addr(), "/assets/status.js");
    assert_eq!(script.status, 200);
    let kind = script.header("content-type").unwrap_or_default();
    assert!(kind.starts_with("text/javascript"), "{kind}");
    assert!(get(server.addr(), "/").body.contains("href=\"/status\""));
}

/// Every number says what it means, and every link leads somewhere.
#[test]
fn links_of_the_page_lead_to_a_place_on_it() {
    let server = relay();
    for (headers, least) in [(&[][..], 15), (&[STRANGER][..], 13)] {
        let page = request(server.addr(), "GET", "/status", headers).body;
        let links: Vec<&str> = page
            .split("href=\"#")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        assert!(links.len() >= least, "{links:?}");
        for link in links {
            assert!(page.contains(&format!("id=\"{link}\"")), "{link}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stranger_wrote_is_text_on_the_page_and_in_the_stream() {
    let server = grasp();
    let name = "<script>alert(1)</script>\"'";
    let project = Project::new(&author(), name);
    let mut client = Client::connect(&server.ws_url()).await;
    let hosts = [testkit::grasp::DOMAIN.to_owned()];
    held(&mut client, &project.announcement_at(now(), &hosts, &[])).await;
    eventually("it is shown", || async {
        get(server.addr(), "/status").body.contains("alert(1)")
    })
    .await;
    let page = get(server.addr(), "/status").body;
    assert_eq!(page.matches("<script").count(), 1, "{page}");
    let mut stream = Stream::open(server.addr(), "/status/details/events", &[]);
    let update = stream.until("alert(1)");
    assert!(!update.contains("<script"), "{update}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_brings_what_happens_and_ends_with_the_server() {
    let mut server = start(&[]);
    let mut stream = Stream::open(server.addr(), "/status/events", &[STRANGER]);
    assert!(stream.until("\r\n\r\n").contains("text/event-stream"));
    let events = |count: u32| format!(r##"href=\"#m-events\">Events</a></dt><dd>{count}</dd>"##);
    stream.until(&events(0));
    let mut client = client(&server).await;
    accept(&mut client, &author().event(1, now(), &[], "")).await;
    stream.until(&events(1));
    client.close().await;
    let begun = Instant::now();
    ask_to_stop(&server);
    stream.until_closed();
    server.wait_for_end();
    assert!(begun.elapsed() < Duration::from_secs(4), "it waited");
    assert!(
        !server.log().contains("did not end in time"),
        "{}",
        server.log()
    );
}

#[test]
fn one_address_has_a_few_streams_and_the_operator_always_finds_room() {
    let server = start(&[
        ("NGIT_TRUSTED_PROXIES", "127.0.0.1"),
        ("NGIT_STATUS_TOKEN", TOKEN),
    ]);
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut stream = Stream::open(server.addr(), "/status/events", &[STRANGER]);
        stream.until("event: status");
        open.push(stream);
    }
    let fifth = request(server.addr(), "GET", "/status/events", &[STRANGER]);
    assert_eq!(fifth.status, 503);
    assert_eq!(fifth.header("retry-after"), Some("60"));
    let another = [("X-Forwarded-For", "203.0.113.10")];
    Stream::open(server.addr(), "/status/events", &another).until("event: status");
    let bearer = format!("Bearer {TOKEN}");
    let operator = [("Authorization", bearer.as_str())];
    Stream::open(server.addr(), "/status/details/events", &operator).until("event: status");
    drop(open.pop());
    let deadline = Instant::now() + DEADLINE;
    // The server sees that somebody is gone when it sends the next update.
    while request_status(server.addr()) == 503 {
        assert!(Instant::now() < deadline, "a place is never given back");
    }
}

fn request_status(addr: SocketAddr) -> u16 {
    let mut stream = Stream::open(addr, "/status/events", &[STRANGER]);
    let head = stream.until("\r\n\r\n");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    status.expect("a status")
}

/// A stream of events as a browser reads it.
struct Stream {
    tcp: TcpStream,
    text: String,
}

impl Stream {
    fn open(addr: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut tcp = tcp(addr);
        let text = head("GET", path, headers);
        tcp.write_all(text.as_bytes()).expect("the request is sent");
        Self {
            tcp,
            text: String::new(),
        }
    }

    /// What came up to this text and a little more.
    fn until(&mut self, wanted: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        let mut chunk = [0; 65_536];
        while !self.text.contains(wanted) {
            assert!(Instant::now() < deadline, "no {wanted}: {}", self.text);
            let read = self.tcp.read(&mut chunk).expect("more of the stream");
            assert!(read > 0, "ended before {wanted}: {}", self.text);
            self.text.push_str(&String::from_utf8_lossy(&chunk[..read]));
        }
        std::mem::take(&mut self.text)
    }

    fn until_closed(&mut self) {
        let mut rest = Vec::new();
        self.tcp.read_to_end(&mut rest).expect("the end");
    }
}
