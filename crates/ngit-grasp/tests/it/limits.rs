//! Every limit: what is just within it is served, what is beyond it is refused in clear words,
//! and the connection or at least the server lives on.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use grasp_core::Event;
use testkit::{Author, Client, Server, Value, json, now};
use tokio_tungstenite::tungstenite::Message;

use crate::support::{
    DEADLINE, Farewell, HANDSHAKE, Shared, Socket, accept, assert_alive, author, by, client,
    eventually, exchange, get, head, id_of, limited, metric, read_reply, read_until_closed, refuse,
    request, start, stored, tcp, to_json,
};

static TIGHT: Shared = Shared::new(&[
    ("NGIT_MAX_MESSAGE_BYTES", "16KiB"),
    ("NGIT_MAX_EVENT_BYTES", "8KiB"),
    ("NGIT_MAX_CONTENT_BYTES", "4KiB"),
    ("NGIT_MAX_EVENT_TAGS", "10"),
    ("NGIT_CREATED_AT_AHEAD_SECS", "60"),
    ("NGIT_CREATED_AT_BEHIND_SECS", "3600"),
    ("NGIT_MAX_SUBSCRIPTIONS", "3"),
    ("NGIT_MAX_FILTERS", "2"),
    ("NGIT_MAX_FILTER_VALUES", "5"),
    ("NGIT_MAX_CONNECTION_VALUES", "12"),
    ("NGIT_MAX_QUERY_RESULTS", "3"),
    ("NGIT_MAX_NEG_SESSIONS", "2"),
    ("NGIT_MAX_NEG_ITEMS", "4"),
    ("NGIT_MAX_HTTP_BODY_BYTES", "1KiB"),
]);

fn starts(value: &Value, prefix: &str) -> bool {
    value.as_str().is_some_and(|text| text.starts_with(prefix))
}

// What one message may hold

#[tokio::test]
async fn a_message_just_too_large_gets_a_notice_and_the_connection_lives_on() {
    let server = TIGHT.get();
    let mut client = client(&server).await;
    let sized = |bytes: usize| {
        let text = r#"["COUNT","alive",{"kinds":[7]}]"#;
        format!("{text}{}", " ".repeat(bytes - text.len()))
    };
    client.send_text(&sized(16 * 1024)).await;
    client.expect("COUNT").await;
    for bytes in [16 * 1024 + 1, 32 * 1024] {
        client.send_text(&sized(bytes)).await;
        let notice = client.expect("NOTICE").await;
        assert!(notice[1].to_string().contains("16384 bytes"), "{notice}");
    }
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn a_message_far_too_large_ends_the_connection_with_the_reason() {
    let server = TIGHT.get();
    for bytes in [32 * 1024 + 1, 1024 * 1024] {
        let mut socket = Socket::connect(&server, &[]).await;
        // It may be cut before all of it is sent.
        let _ = socket.try_send(Message::text(" ".repeat(bytes))).await;
        let notice = socket.next().await.expect("a NOTICE");
        assert_eq!(notice[0], "NOTICE");
        assert!(notice[1].to_string().contains("16384 bytes"), "{notice}");
        let Farewell { code, reason } = socket.next().await.unwrap_err().expect("a reason");
        assert_eq!(code, 1009);
        assert!(reason.contains("16384 bytes"), "{reason}");
    }
    assert_alive(&mut client(&server).await).await;
}

#[tokio::test]
async fn an_event_that_is_too_large_is_refused() {
    let (server, author) = (TIGHT.get(), author());
    let mut client = client(&server).await;
    let sized = |bytes: usize| {
        let empty = author.event(1, now(), &[&["x", ""]], "");
        let padding = "x".repeat(bytes - empty.json().len());
        author.event(1, now(), &[&["x", &padding]], "")
    };
    let largest = sized(8 * 1024);
    assert_eq!(largest.json().len(), 8 * 1024);
    accept(&mut client, &largest).await;
    let text = refuse(&mut client, &sized(8 * 1024 + 1), "invalid: ").await;
    assert!(text.contains("8192 bytes"), "{text}");
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn content_that_is_too_long_is_refused() {
    let (server, author) = (TIGHT.get(), author());
    let mut client = client(&server).await;
    let content = |bytes| author.event(1, now(), &[], &"x".repeat(bytes));
    accept(&mut client, &content(4096)).await;
    let text = refuse(&mut client, &content(4097), "invalid: ").await;
    assert!(text.contains("4096 bytes"), "{text}");
}

#[tokio::test]
async fn too_many_tags_are_refused() {
    let (server, author) = (TIGHT.get(), author());
    let mut client = client(&server).await;
    let tags = |count| author.event_tags(1, now(), vec![vec!["t".to_owned()]; count], "");
    accept(&mut client, &tags(10)).await;
    let text = refuse(&mut client, &tags(11), "invalid: ").await;
    assert!(text.contains("10 tags"), "{text}");
}

#[tokio::test]
async fn an_event_dated_too_far_ahead_or_behind_is_refused() {
    let (server, author) = (TIGHT.get(), author());
    let mut client = client(&server).await;
    let dated = |time| author.event(1, time, &[], "");
    accept(&mut client, &dated(now() + 50)).await;
    accept(&mut client, &dated(now() - 3_500)).await;
    let text = refuse(&mut client, &dated(now() + 120), "invalid: ").await;
    assert!(text.contains("created_at"), "{text}");
    let text = refuse(&mut client, &dated(now() - 3_700), "invalid: ").await;
    assert!(text.contains("created_at"), "{text}");
    refuse(&mut client, &dated(u64::MAX), "invalid: ").await;
    refuse(&mut client, &dated(0), "invalid: ").await;
}

#[tokio::test]
async fn by_default_an_event_may_be_fifteen_minutes_ahead_and_of_any_age() {
    let (server, author) = (start(&[]), author());
    let mut client = client(&server).await;
    accept(&mut client, &author.event(1, now() + 890, &[], "")).await;
    accept(&mut client, &author.event(1, 0, &[], "")).await;
    refuse(
        &mut client,
        &author.event(1, now() + 960, &[], ""),
        "invalid: ",
    )
    .await;
}

// What one connection may ask

#[tokio::test]
async fn too_many_subscriptions_are_refused_until_one_is_closed() {
    let server = TIGHT.get();
    let mut client = client(&server).await;
    for sub in ["1", "2", "3", "3"] {
        client.request(sub, &[json!({"kinds": [7]})]).await;
    }
    client.send(&json!(["REQ", "4", {"kinds": [7]}])).await;
    let reason = client.closed_reason().await;
    assert!(
        reason.starts_with("blocked: ") && reason.contains('3'),
        "{reason}"
    );
    client.send(&json!(["CLOSE", "2"])).await;
    client.request("4", &[json!({"kinds": [7]})]).await;
}

#[tokio::test]
async fn too_many_filters_or_values_are_refused() {
    let server = TIGHT.get();
    let mut client = client(&server).await;
    let values = |count: u64| {
        let kinds: Vec<u64> = (1..count).collect();
        json!({"#t": ["nobody has this"], "kinds": kinds})
    };
    client.request("two", &[values(5), values(5)]).await;
    client.send(&json!(["CLOSE", "two"])).await;
    let cases = [
        (json!(["REQ", "many", {}, {}, {}]), "2 filters"),
        (json!(["COUNT", "many", {}, {}, {}]), "2 filters"),
        (json!(["REQ", "many", values(6)]), "5 values"),
        (json!(["COUNT", "many", {}, values(6)]), "5 values"),
    ];
    for (message, named) in cases {
        client.send(&message).await;
        let reason = client.closed_reason().await;
        assert!(
            reason.starts_with("blocked: ") && reason.contains(named),
            "{reason}"
        );
    }
    client
        .send(&json!(["NEG-OPEN", "many", values(6), "61"]))
        .await;
    assert!(starts(&client.expect("NEG-ERR").await[2], "blocked: "));
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn too_many_values_in_all_subscriptions_are_refused_until_some_are_closed() {
    let server = TIGHT.get();
    let mut client = client(&server).await;
    let five = json!({"kinds": [7, 8, 9, 10, 11]});
    let five = std::slice::from_ref(&five);
    client.request("a", five).await;
    client.request("b", five).await;
    client.send(&json!(["REQ", "c", five[0]])).await;
    let reason = client.closed_reason().await;
    assert!(
        reason.starts_with("blocked: ") && reason.contains("12"),
        "{reason}"
    );
    client.send(&json!(["CLOSE", "a"])).await;
    client.request("c", five).await;
}

#[tokio::test]
async fn a_request_sends_no_more_than_the_limit_and_the_newest_of_them() {
    let (server, author) = (TIGHT.get(), author());
    let mut client = client(&server).await;
    let events: Vec<Event> = (0..6)
        .map(|n| author.event(1, now() - n, &[], ""))
        .collect();
    for event in &events {
        accept(&mut client, event).await;
    }
    let newest: Vec<String> = events[..3]
        .iter()
        .map(|event| event.id.to_string())
        .collect();
    for filter in [
        by(&author),
        json!({"authors": [author.pubkey()], "limit": 1000}),
    ] {
        let found = stored(&mut client, &[filter]).await;
        assert_eq!(found.iter().map(id_of).collect::<Vec<_>>(), newest);
    }
}

#[tokio::test]
async fn too_many_reconciliations_are_refused_until_one_is_closed() {
    let server = TIGHT.get();
    let mut client = client(&server).await;
    let open = |sub: &str| json!(["NEG-OPEN", sub, {"kinds": [7]}, "61"]);
    for sub in ["1", "2", "2"] {
        client.send(&open(sub)).await;
        client.expect("NEG-MSG").await;
    }
    client.send(&open("3")).await;
    let error = client.expect("NEG-ERR").await;
    assert!(starts(&error[2], "blocked: "), "{error}");
    client.send(&json!(["NEG-CLOSE", "1"])).await;
    client.send(&open("3")).await;
    client.expect("NEG-MSG").await;
}

#[tokio::test]
async fn a_reconciliation_of_too_many_events_is_refused_with_the_number() {
    let (server, author) = (TIGHT.get(), author());
    let mut client = client(&server).await;
    for n in 0..4 {
        accept(&mut client, &author.event(1, now(), &[], &n.to_string())).await;
    }
    client
        .send(&json!(["NEG-OPEN", "n", by(&author), "61"]))
        .await;
    client.expect("NEG-MSG").await;
    accept(&mut client, &author.event(1, now(), &[], "one more")).await;
    client
        .send(&json!(["NEG-OPEN", "n", by(&author), "61"]))
        .await;
    let error = client.expect("NEG-ERR").await;
    assert!(starts(&error[2], "blocked: "), "{error}");
    assert!(error[2].to_string().contains('4'), "{error}");
    client.send(&json!(["NEG-MSG", "n", "61"])).await;
    assert!(starts(&client.expect("NEG-ERR").await[2], "closed: "));
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn all_reconciliations_together_hold_no_more_than_their_share() {
    let server = start(&[
        ("NGIT_MAX_NEG_ITEMS", "5"),
        ("NGIT_MAX_NEG_ITEMS_TOTAL", "5"),
    ]);
    let author = author();
    let mut first = client(&server).await;
    let mut second = client(&server).await;
    for n in 0..3 {
        accept(&mut first, &author.event(1, now(), &[], &n.to_string())).await;
    }
    let open = json!(["NEG-OPEN", "n", by(&author), "61"]);
    first.send(&open).await;
    first.expect("NEG-MSG").await;
    second.send(&open).await;
    let error = second.expect("NEG-ERR").await;
    assert!(starts(&error[2], "rate-limited: "), "{error}");
    // Whoever leaves makes room.
    first.close().await;
    eventually("there is room again", async || {
        let mut third = client(&server).await;
        third.send(&open).await;
        third.next().await[0] == "NEG-MSG"
    })
    .await;
}

// Who may connect, and how much

#[tokio::test]
async fn too_many_connections_are_turned_away_until_one_ends() {
    let server = start(&[("NGIT_MAX_CONNECTIONS", "3")]);
    let mut open = vec![
        client(&server).await,
        client(&server).await,
        client(&server).await,
    ];
    for client in &mut open {
        assert_alive(client).await;
    }
    let reply = exchange(server.addr(), &head("GET", "/", &HANDSHAKE));
    assert_eq!(reply.status, 503, "{reply:?}");
    assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
    assert!(reply.header("retry-after").is_some());
    assert!(reply.body.contains("too many connections"));
    for client in &mut open {
        assert_alive(client).await;
    }
    open.pop().expect("a client").close().await;
    eventually("a place is free", async || {
        get(server.addr(), "/healthz").status == 200
    })
    .await;
    // The connection of the last question may still have its place.
    eventually("it is counted", async || {
        metric(&server, r#"ngit_connections_refused_total{reason="full"}"#) >= 1.0
    })
    .await;
}

#[tokio::test]
async fn too_many_connections_of_one_address_are_refused_and_another_is_served() {
    let server = start(&[
        ("NGIT_TRUSTED_PROXIES", "127.0.0.1"),
        ("NGIT_MAX_CONNECTIONS_PER_IP", "2"),
    ]);
    let from = |ip: &'static str| [("x-forwarded-for", ip)];
    let customers = [
        (["203.0.113.7", "203.0.113.7", "203.0.113.7"], "203.0.113.8"),
        (
            ["2001:db8::1", "2001:db8::2", "2001:db8::3"],
            "2001:db8:1::1",
        ),
    ];
    for (addresses, neighbour) in customers {
        let first = Socket::connect(&server, &from(addresses[0])).await;
        let _second = Socket::connect(&server, &from(addresses[1])).await;
        let third = Socket::try_connect(&server, &from(addresses[2])).await;
        assert_eq!(third.err(), Some(429));
        Socket::connect(&server, &from(neighbour)).await;
        first.close().await;
        eventually("a place is free", async || {
            Socket::try_connect(&server, &from(addresses[2]))
                .await
                .is_ok()
        })
        .await;
    }
    // The proxy itself is not one customer.
    for _ in 0..5 {
        assert_alive(&mut client(&server).await).await;
    }
}

#[tokio::test]
async fn events_beyond_the_rate_of_an_address_are_refused_and_another_is_served() {
    let server = start(&[
        ("NGIT_TRUSTED_PROXIES", "127.0.0.1"),
        ("NGIT_EVENTS_PER_MINUTE_PER_IP", "5"),
    ]);
    let author = author();
    let event = |n: u64| author.event(1, now(), &[], &n.to_string());
    let mut socket = Socket::from(&server, "203.0.113.7").await;
    for n in 0..5 {
        assert!(socket.publish(&event(n)).await.0);
    }
    // Also over a second connection.
    for mut socket in [socket, Socket::from(&server, "203.0.113.7").await] {
        let (accepted, text) = socket.publish(&event(6)).await;
        assert!(!accepted && text.starts_with("rate-limited: "), "{text}");
        assert!(text.contains('5'), "{text}");
    }
    let mut other = Socket::from(&server, "203.0.113.8").await;
    assert!(other.publish(&event(7)).await.0);
    let mut local = client(&server).await;
    for n in 10..20 {
        accept(&mut local, &event(n)).await;
    }
}

#[tokio::test]
async fn events_beyond_the_rate_of_a_key_are_refused_and_another_is_served() {
    let server = start(&[("NGIT_EVENTS_PER_MINUTE_PER_KEY", "5")]);
    let (author, other) = (author(), author());
    let mut client = client(&server).await;
    for n in 0..5 {
        accept(&mut client, &author.event(1, now(), &[], &n.to_string())).await;
    }
    let text = refuse(
        &mut client,
        &author.event(1, now(), &[], "6"),
        "rate-limited: ",
    )
    .await;
    assert!(text.contains('5'), "{text}");
    accept(&mut client, &other.event(1, now(), &[], "")).await;
}

// Time

#[test]
fn half_a_request_is_not_waited_for() {
    let server = start(&[("NGIT_HEADER_TIMEOUT_SECS", "1")]);
    for text in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: localhost\r\nAcc"] {
        let mut stream = tcp(server.addr());
        stream.write_all(text.as_bytes()).unwrap();
        read_until_closed(&mut stream);
    }
    assert_eq!(get(server.addr(), "/healthz").status, 200);
}

#[test]
fn an_idle_http_connection_is_closed() {
    let server = start(&[("NGIT_HTTP_IDLE_SECS", "1")]);
    let mut stream = tcp(server.addr());
    stream
        .write_all(head("GET", "/healthz", &[]).as_bytes())
        .unwrap();
    let text = read_until_closed(&mut stream);
    assert!(text.starts_with(b"HTTP/1.1 200"));
}

/// Reads what comes and answers no ping.
fn silent_websocket(addr: SocketAddr) -> Vec<u8> {
    let mut stream = tcp(addr);
    stream
        .write_all(head("GET", "/", &HANDSHAKE).as_bytes())
        .unwrap();
    read_until_closed(&mut stream)
}

#[tokio::test]
async fn a_websocket_that_answers_no_ping_is_dropped_and_one_that_does_is_not() {
    let server = start(&[
        ("NGIT_PING_INTERVAL_SECS", "1"),
        ("NGIT_WEBSOCKET_IDLE_SECS", "2"),
    ]);
    let addr = server.addr();
    let mut quiet = client(&server).await;
    let silent = tokio::task::spawn_blocking(move || silent_websocket(addr));
    // Reading is what makes a client answer pings.
    let (said, nothing) = tokio::join!(silent, quiet.try_next(Duration::from_secs(4)));
    let said = String::from_utf8_lossy(&said.unwrap()).into_owned();
    assert!(said.contains("idle for too long"), "{said}");
    assert_eq!(nothing, None);
    assert_alive(&mut quiet).await;
}

// HTTP

#[test]
fn a_body_that_is_too_large_is_refused() {
    let server = TIGHT.get();
    for path in ["/", "/metrics", "/nothing-here"] {
        let reply = request(server.addr(), "POST", path, &[("Content-Length", "1025")]);
        assert_eq!(reply.status, 413, "{path}");
        reply.assert_cors();
    }
    let small = head(
        "POST",
        "/",
        &[("Content-Length", "4"), ("Connection", "close")],
    );
    assert_eq!(exchange(server.addr(), &(small + "body")).status, 405);
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let server = TIGHT.get();
    let long = "x".repeat(300_000);
    let reply = request(server.addr(), "GET", "/", &[("X-Long", &long)]);
    assert_eq!(reply.status, 431);
    assert_eq!(get(server.addr(), "/healthz").status, 200);
}

// Readers that do not keep up

/// Publishes until the server has dropped a reader. The other one has read each event before
/// the next is published, so that it is never slow, however busy the machine is.
async fn publish_until_a_reader_is_dropped(server: &Server, author: &Author, quick: &mut Client) {
    const MOST: usize = 3_000;
    let mut writer = client(server).await;
    let content = "x".repeat(15_000);
    for n in 0..MOST {
        let event = author.event(20_001, now(), &[&["n", &n.to_string()]], &content);
        accept(&mut writer, &event).await;
        assert_eq!(quick.expect("EVENT").await[2], to_json(&event));
        if n % 5 == 0 && metric(server, "ngit_slow_readers_dropped_total") >= 1.0 {
            return;
        }
    }
    panic!("{MOST} events of 15 kB wait for a reader who is not dropped");
}

#[tokio::test]
async fn a_reader_who_stops_reading_is_dropped_with_the_reason_and_another_misses_nothing() {
    let server = start(&[
        ("NGIT_MAX_EVENT_BYTES", "16KiB"),
        ("NGIT_MAX_CONTENT_BYTES", "16KiB"),
        ("NGIT_MAX_OUTBOX_BYTES", "64KiB"),
        ("NGIT_EVENTS_PER_MINUTE_PER_KEY", "0"),
    ]);
    let author = author();
    let mut slow = slow_socket(server.addr()).await;
    subscribe(&mut slow, &author).await;
    let mut quick = client(&server).await;
    quick.request("all", &[by(&author)]).await;
    publish_until_a_reader_is_dropped(&server, &author, &mut quick).await;
    let (notice, farewell) = last_words(&mut slow).await;
    assert!(notice.contains("too slow"), "{notice}");
    assert_eq!(farewell.map(|(code, _)| code), Some(1008));
    assert_alive(&mut quick).await;
    assert_eq!(metric(&server, "ngit_slow_readers_dropped_total"), 1.0);
}

type Slow = tokio_tungstenite::WebSocketStream<tokio::net::TcpStream>;

/// With a small window, so that little is on its way.
async fn slow_socket(addr: SocketAddr) -> Slow {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 * 1024).unwrap();
    let stream = socket.connect(addr).await.unwrap();
    let (socket, _) = tokio_tungstenite::client_async(format!("ws://{addr}"), stream)
        .await
        .unwrap();
    socket
}

async fn subscribe(socket: &mut Slow, author: &Author) {
    let request = json!(["REQ", "all", by(author)]).to_string();
    socket.send(Message::text(request)).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        if message
            .to_text()
            .is_ok_and(|text| text.starts_with(r#"["EOSE""#))
        {
            return;
        }
    }
    panic!("no EOSE");
}

/// Reads to the end: the last NOTICE, and the close frame.
async fn last_words(socket: &mut Slow) -> (String, Option<(u16, String)>) {
    let mut notice = String::new();
    loop {
        let next = tokio::time::timeout(DEADLINE, socket.next()).await;
        match next.expect("the end in time") {
            Some(Ok(Message::Close(frame))) => {
                let frame = frame.map(|frame| (frame.code.into(), frame.reason.to_string()));
                return (notice, frame);
            }
            Some(Ok(Message::Text(text))) if text.starts_with(r#"["NOTICE""#) => {
                notice = text.to_string();
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return (notice, None),
        }
    }
}

/// More than fits into the window of queries and the buffers of the system.
#[tokio::test]
async fn a_reader_who_takes_in_nothing_of_a_query_is_dropped_in_time() {
    let server = start(&[
        ("NGIT_MAX_QUERY_RESULTS", "1000"),
        ("NGIT_WRITE_TIMEOUT_SECS", "1"),
    ]);
    let author = author();
    let mut writer = client(&server).await;
    let content = "x".repeat(100_000);
    for n in 0..120 {
        let event = author.event(1, now(), &[&["n", &n.to_string()]], &content);
        accept(&mut writer, &event).await;
    }
    let mut slow = slow_socket(server.addr()).await;
    let request = json!(["REQ", "all", by(&author)]).to_string();
    slow.send(Message::text(request)).await.unwrap();
    eventually("the reader is dropped", async || {
        metric(&server, "ngit_slow_readers_dropped_total") >= 1.0
    })
    .await;
    assert_eq!(stored(&mut writer, &[by(&author)]).await.len(), 120);
}

// The system's own limits

#[tokio::test]
async fn running_out_of_file_descriptors_is_waited_out() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&limited(dir.path(), "-n 40"), &[]);
    let open: Vec<_> = (0..60).map(|_| tcp(server.addr())).collect();
    server.wait_for_log("cannot accept connections");
    drop(open);
    // The server has not closed all of its ends yet, and its store needs some, too.
    let ready = async || get(server.addr(), "/readyz").status == 200;
    eventually("ready again", ready).await;
    let mut stream = tcp(server.addr());
    let text = head("GET", "/readyz", &[("Connection", "close")]);
    stream.write_all(text.as_bytes()).unwrap();
    assert_eq!(read_reply(&mut stream).status, 200);
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0);
}

#[tokio::test]
async fn a_connection_that_was_open_works_while_there_are_no_file_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&limited(dir.path(), "-n 40"), &[]);
    let author = author();
    let mut client = client(&server).await;
    assert_alive(&mut client).await;
    let _open: Vec<_> = (0..60).map(|_| tcp(server.addr())).collect();
    server.wait_for_log("cannot accept connections");
    let event = author.event(1, now(), &[], "");
    accept(&mut client, &event).await;
    assert_eq!(stored(&mut client, &[by(&author)]).await.len(), 1);
}
