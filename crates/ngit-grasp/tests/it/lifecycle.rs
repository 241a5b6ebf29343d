//! Start, stop and start again: settings, the owner key, the data directory, and what a client
//! sees of a server that ends.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use grasp_core::Event;
use testkit::{Author, Client, Server, Value, json, now};
use tokio_tungstenite::tungstenite::{self, Message};

use crate::support::{
    HANDSHAKE, accept, ask_to_stop, author, by, client, eventually, get, head, ids, ids_of, metric,
    read_reply, request, run, sorted, start, stored, tcp,
};

/// What an operator, or the service manager, waits before it kills.
const PATIENCE: Duration = Duration::from_secs(10);

fn owner(server: &Server) -> String {
    let accept = [("Accept", "application/nostr+json")];
    let reply = request(server.addr(), "GET", "/", &accept);
    let document: Value = serde_json::from_str(&reply.body).unwrap();
    document["pubkey"].as_str().unwrap().to_owned()
}

/// Terminates, and checks that it was in time and in order.
fn stop(server: &mut Server) {
    let started = Instant::now();
    let status = server.terminate();
    let took = started.elapsed();
    assert_eq!(status.code(), Some(0), "{}", server.log());
    assert!(took < PATIENCE, "{took:?}\n{}", server.log());
}

// The end

#[tokio::test]
async fn what_was_acknowledged_before_sigterm_is_there_after_the_restart() {
    let mut server = start(&[("NGIT_EVENTS_PER_MINUTE_PER_KEY", "0")]);
    let author = author();
    let mut client = client(&server).await;
    let events: Vec<Event> = (0..300)
        .map(|n| author.event(1, now(), &[], &n.to_string()))
        .collect();
    for event in &events {
        accept(&mut client, event).await;
    }
    stop(&mut server);
    let farewell = client.disconnected().await;
    assert_eq!(farewell.map(|(code, _)| code), Some(1001));
    server.restart();
    let mut client = self::client(&server).await;
    let found = stored(&mut client, &[by(&author)]).await;
    assert_eq!(sorted(ids_of(&found)), sorted(ids(&events)));
}

/// Sends what needs no answer until it is told to stop: the close code, and why it could not send
/// any more.
async fn flood(url: String) -> (Option<u16>, tungstenite::Error) {
    let (socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let (mut sink, mut stream) = socket.split();
    let sending = tokio::spawn(async move {
        loop {
            if let Err(error) = sink.send(Message::text(r#"["CLOSE","nothing"]"#)).await {
                return error;
            }
        }
    });
    let mut farewell = None;
    while let Some(Ok(message)) = stream.next().await {
        if let Message::Close(frame) = message {
            farewell = frame.map(|frame| frame.code.into());
        }
    }
    (farewell, sending.await.unwrap())
}

#[tokio::test]
async fn who_is_still_sending_at_the_end_is_not_cut_off() {
    let server = start(&[]);
    let floods: Vec<_> = (0..4)
        .map(|_| tokio::spawn(flood(server.ws_url())))
        .collect();
    eventually("they send", async || {
        metric(&server, r#"ngit_messages_total{type="CLOSE"}"#) > 1_000.0
    })
    .await;
    ask_to_stop(&server);
    for flood in floods {
        let (farewell, error) = flood.await.unwrap();
        assert_eq!(farewell, Some(1001), "{error}");
        assert!(!matches!(error, tungstenite::Error::Io(_)), "{error}");
    }
}

/// Sends without pause; the server stops somewhere in the middle.
#[tokio::test]
async fn events_in_flight_at_the_end_get_their_ok_and_keep_it() {
    let mut server = start(&[("NGIT_EVENTS_PER_MINUTE_PER_KEY", "0")]);
    let author = author();
    let events: Vec<Event> = (0..4_000)
        .map(|n| author.event(1, now(), &[], &n.to_string()))
        .collect();
    let url = server.ws_url();
    let (socket, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
    let (mut sink, mut stream) = socket.split();
    let texts: Vec<String> = events
        .iter()
        .map(|event| format!(r#"["EVENT",{}]"#, event.json()))
        .collect();
    let sending = tokio::spawn(async move {
        for text in texts {
            if sink.send(Message::text(text)).await.is_err() {
                return;
            }
        }
    });
    let mut acknowledged = Vec::new();
    let mut stopping = false;
    let mut farewell = None;
    while let Some(Ok(message)) = stream.next().await {
        match message {
            Message::Text(text) => {
                let message: Value = serde_json::from_str(&text).unwrap();
                if message[0] == "OK" {
                    assert_eq!(message[2], true, "{message}");
                    acknowledged.push(message[1].as_str().unwrap().to_owned());
                }
            }
            Message::Close(frame) => {
                farewell = frame;
                break;
            }
            _ => {}
        }
        if acknowledged.len() >= 200 && !stopping {
            ask_to_stop(&server);
            stopping = true;
        }
    }
    drop(stream);
    sending.await.unwrap();
    assert_eq!(farewell.map(|frame| frame.code.into()), Some(1001_u16));
    assert!(acknowledged.len() >= 200);
    eventually("the server has ended", async || {
        server.log().contains("(the process has ended)")
    })
    .await;
    server.restart();
    let mut client = client(&server).await;
    for chunk in acknowledged.chunks(400) {
        let found = stored(&mut client, &[json!({"ids": chunk})]).await;
        assert_eq!(found.len(), chunk.len());
    }
    // What was taken in was answered: nothing is stored that its sender does not know of.
    client.send(&json!(["COUNT", "all", by(&author)])).await;
    assert_eq!(client.expect("COUNT").await[2]["count"], acknowledged.len());
}

#[tokio::test]
async fn the_end_does_not_wait_for_idle_connections() {
    let mut server = start(&[]);
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..5 {
        let mut client = client(&server).await;
        client.request("open", &[json!({"kinds": [1]})]).await;
        clients.push(client);
    }
    let mut kept_alive = tcp(server.addr());
    kept_alive
        .write_all(head("GET", "/healthz", &[]).as_bytes())
        .unwrap();
    stop(&mut server);
    for client in &mut clients {
        let farewell = client.disconnected().await;
        assert_eq!(farewell.map(|(code, _)| code), Some(1001));
    }
    assert_eq!(read_reply(&mut kept_alive).status, 200);
}

#[test]
fn the_end_does_not_wait_for_a_client_that_never_sends_its_request() {
    let mut server = start(&[("NGIT_HEADER_TIMEOUT_SECS", "60")]);
    let silent = tcp(server.addr());
    let mut half = tcp(server.addr());
    half.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
    assert_eq!(get(server.addr(), "/healthz").status, 200);
    stop(&mut server);
    drop((silent, half));
}

/// More than the buffers of the system take waits to be written when the server stops.
#[tokio::test]
async fn the_end_does_not_wait_for_a_client_that_does_not_read() {
    let mut server = start(&[
        ("NGIT_MAX_OUTBOX_BYTES", "1GiB"),
        ("NGIT_WRITE_TIMEOUT_SECS", "60"),
    ]);
    let author = author();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 * 1024).unwrap();
    let stream = socket.connect(server.addr()).await.unwrap();
    let (mut stuck, _) = tokio_tungstenite::client_async(server.ws_url(), stream)
        .await
        .unwrap();
    let request = json!(["REQ", "all", by(&author)]).to_string();
    stuck.send(Message::text(request)).await.unwrap();
    eventually("the subscription is open", async || {
        metric(&server, "ngit_subscriptions") == 1.0
    })
    .await;
    let mut writer = client(&server).await;
    let content = "x".repeat(180_000);
    for n in 0..100 {
        let event = author.event(20_001, now(), &[&["n", &n.to_string()]], &content);
        accept(&mut writer, &event).await;
    }
    stop(&mut server);
}

#[test]
fn a_server_told_to_stop_right_after_its_start_ends_in_order() {
    for _ in 0..10 {
        stop(&mut start(&[("NGIT_DATABASE_BACKEND", "memory")]));
    }
}

#[test]
fn a_server_with_nothing_to_do_stops_at_once() {
    let mut server = start(&[]);
    get(server.addr(), "/healthz");
    let started = Instant::now();
    stop(&mut server);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
}

// The data directory

#[test]
fn a_second_server_on_the_same_data_stops_and_names_the_first() {
    let server = start(&[]);
    let second = run(&[], &[], server.data_dir());
    assert_eq!(second.code, Some(1), "{}", second.stderr);
    let lines: Vec<&str> = second.stderr.lines().collect();
    let last = lines.last().expect("a line");
    assert!(last.contains("in use"), "{last}");
    assert!(last.contains(&server.pid().to_string()), "{last}");
    assert_eq!(get(server.addr(), "/readyz").status, 200);
}

#[test]
fn after_a_kill_the_data_is_not_locked() {
    let mut server = start(&[]);
    let owner = owner(&server);
    server.kill9();
    server.restart();
    assert_eq!(self::owner(&server), owner);
}

#[tokio::test]
async fn the_memory_backend_serves_and_forgets() {
    let mut server = start(&[("NGIT_DATABASE_BACKEND", "memory")]);
    let author = author();
    let mut client = client(&server).await;
    accept(&mut client, &author.event(1, now(), &[], "")).await;
    assert_eq!(stored(&mut client, &[by(&author)]).await.len(), 1);
    let owner = owner(&server);
    server.restart();
    let mut client = self::client(&server).await;
    assert_eq!(stored(&mut client, &[by(&author)]).await.len(), 0);
    assert_eq!(self::owner(&server), owner, "the key is kept on disk");
}

#[test]
fn an_address_that_is_taken_is_an_error_that_names_it() {
    let server = start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let address = server.addr().to_string();
    let second = run(&[], &[("NGIT_BIND_ADDRESS", &address)], dir.path());
    assert_eq!(second.code, Some(1));
    assert!(second.stderr.contains(&address), "{}", second.stderr);
}

// The owner key

#[test]
fn the_owner_key_is_made_once_for_its_owners_eyes_and_kept() {
    let mut server = start(&[]);
    let path = server.data_dir().join("relay/owner.nsec");
    let secret = fs::read_to_string(&path).unwrap();
    assert!(secret.starts_with("nsec1"));
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(server.log().contains("made a new owner key"));
    assert!(!server.log().contains(secret.trim()));
    let owner = owner(&server);
    server.restart();
    assert_eq!(self::owner(&server), owner);
    assert!(!server.log().contains("made a new owner key"));
    assert_eq!(fs::read_to_string(&path).unwrap(), secret);
}

#[test]
fn an_owner_key_that_has_gone_is_an_error_and_never_a_new_identity() {
    let mut server = start(&[]);
    let path = server.data_dir().join("relay/owner.nsec");
    let secret = fs::read_to_string(&path).unwrap();
    let owner = owner(&server);
    stop(&mut server);
    fs::write(&path, "").unwrap();
    let refused = run(&[], &[], server.data_dir());
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("owner.nsec"), "{}", refused.stderr);
    fs::remove_file(&path).unwrap();
    let refused = run(&[], &[], server.data_dir());
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("this server has been"),
        "{}",
        refused.stderr
    );
    assert!(!path.exists());
    fs::write(&path, secret).unwrap();
    server.restart();
    assert_eq!(self::owner(&server), owner);
}

#[test]
fn a_key_in_the_settings_is_used_and_not_written_down() {
    let author = Author::new(7);
    let server = start(&[("NGIT_RELAY_OWNER_NSEC", &author.secret_hex())]);
    assert_eq!(owner(&server), author.pubkey().to_string());
    assert!(!server.data_dir().join("relay/owner.nsec").exists());
    assert!(!server.log().contains(&author.secret_hex()));
}

// Settings

#[test]
fn wrong_settings_stop_the_start_with_one_line_each() {
    let dir = tempfile::tempdir().unwrap();
    let refused = run(
        &["--max-filters=many"],
        &[
            ("NGIT_BIND_ADDRESS", "nowhere"),
            ("NGIT_MAX_EVENT_BYTES", "1"),
            ("NGIT_LOG_LEVEL", "loud"),
        ],
        dir.path(),
    );
    assert_eq!(refused.code, Some(2));
    let lines: Vec<&str> = refused.stderr.lines().collect();
    assert_eq!(lines.len(), 4, "{}", refused.stderr);
    for named in [
        "NGIT_BIND_ADDRESS",
        "NGIT_MAX_EVENT_BYTES",
        "NGIT_LOG_LEVEL",
        "--max-filters",
    ] {
        assert!(
            lines.iter().any(|line| line.contains(named)),
            "{named}: {}",
            refused.stderr
        );
    }
    assert!(!dir.path().join("relay").exists(), "nothing was begun");
}

#[test]
fn settings_that_contradict_each_other_stop_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let env = [("NGIT_MAX_OUTBOX_BYTES", "64KiB")];
    let refused = run(&[], &env, dir.path());
    assert_eq!(refused.code, Some(2));
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("NGIT_MAX_OUTBOX_BYTES"));
    let unknown = run(&["--no-such-flag"], &[], dir.path());
    assert_eq!(unknown.code, Some(2));
}

#[test]
fn the_settings_in_effect_are_printed_with_their_sources_and_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let secret = Author::new(7).secret_hex();
    let text = format!("NGIT_RELAY_NAME=from the file\nNGIT_RELAY_OWNER_NSEC={secret}\n");
    fs::write(dir.path().join(".env"), text).unwrap();
    let env = [("NGIT_DOMAIN", "git.example.com"), ("NGIT_NO_SUCH", "1")];
    let printed = run(&["config", "--max-filters", "7"], &env, dir.path());
    assert_eq!(printed.code, Some(0));
    let row = |name: &str| {
        let mut lines = printed.stdout.lines();
        let line = lines.find(|line| line.split_whitespace().next() == Some(name));
        line.map(|line| {
            line.split_whitespace()
                .skip(1)
                .collect::<Vec<_>>()
                .join(" ")
        })
    };
    assert_eq!(row("NGIT_MAX_FILTERS").as_deref(), Some("flag 7"));
    assert_eq!(
        row("NGIT_DOMAIN").as_deref(),
        Some("environment git.example.com")
    );
    assert_eq!(
        row("NGIT_RELAY_NAME").as_deref(),
        Some(".env from the file")
    );
    assert_eq!(row("NGIT_MAX_EVENT_TAGS").as_deref(), Some("default 2500"));
    assert!(row("NGIT_RELAY_OWNER_NSEC").is_some_and(|row| row.starts_with(".env *")));
    assert!(
        printed.stderr.contains("NGIT_NO_SUCH"),
        "{}",
        printed.stderr
    );
    let json = run(&["config", "--json"], &env, dir.path());
    assert!(serde_json::from_str::<Value>(&json.stdout).is_ok());
    let said = [printed.stdout, printed.stderr, json.stdout, json.stderr].concat();
    assert!(!said.contains(&secret), "{said}");
    assert!(!dir.path().join("relay").exists(), "it only prints");
}

#[test]
fn a_websocket_is_refused_while_the_server_stops() {
    let mut server = start(&[]);
    let mut open = tcp(server.addr());
    open.write_all(head("GET", "/", &HANDSHAKE).as_bytes())
        .unwrap();
    assert_eq!(read_reply(&mut open).status, 101);
    stop(&mut server);
    assert!(std::net::TcpStream::connect(server.addr()).is_err());
}
