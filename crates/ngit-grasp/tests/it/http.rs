//! Plain HTTP on the same port: pages, CORS, metrics, health, and the ways in which proxies and
//! browsers ask for a websocket.

use testkit::{json, now};

use crate::support::{
    HANDSHAKE, Socket, accept, assert_alive, author, by, client, eventually, exchange, get, head,
    metric, relay, request, start,
};

#[test]
fn the_landing_page_says_what_this_is_and_escapes_what_it_is_given() {
    let server = start(&[
        ("NGIT_RELAY_NAME", "<script>alert(1)</script>"),
        ("NGIT_RELAY_DESCRIPTION", "a & b"),
        ("NGIT_DOMAIN", "git.example.com"),
    ]);
    let page = get(server.addr(), "/");
    assert_eq!(page.status, 200);
    assert!(
        page.header("content-type")
            .is_some_and(|kind| kind.starts_with("text/html"))
    );
    assert!(page.body.contains("wss://git.example.com"));
    assert!(!page.body.contains("<script"), "{}", page.body);
    assert!(page.body.contains("&lt;script&gt;") || page.body.contains("&#60;script&#62;"));
    assert!(!page.body.contains("a & b"));
}

#[test]
fn pages_carry_a_policy_that_allows_no_script() {
    let server = relay();
    for path in ["/", "/no-such-page"] {
        let page = get(server.addr(), path);
        let policy = page.header("content-security-policy").expect("a policy");
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(!policy.contains("script-src"), "{policy}");
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    }
    let style = get(server.addr(), "/assets/style.css");
    assert_eq!(style.status, 200);
    assert!(
        style
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("text/css"))
    );
}

#[test]
fn every_response_may_be_read_by_any_origin() {
    let server = relay();
    let cases = [
        ("GET", "/", 200),
        ("GET", "/metrics", 200),
        ("GET", "/healthz", 200),
        ("GET", "/assets/style.css", 200),
        ("GET", "/no-such-page", 404),
        (
            "GET",
            "/npub1x/y.git/info/refs?service=git-upload-pack",
            404,
        ),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/%ff%00", 404),
        ("DELETE", "/", 405),
        ("PUT", "/metrics", 405),
    ];
    for (method, path, status) in cases {
        let reply = request(server.addr(), method, path, &[]);
        assert_eq!(reply.status, status, "{method} {path}");
        reply.assert_cors();
    }
    let huge = [("Content-Length", "99999999999")];
    let reply = request(server.addr(), "POST", "/", &huge);
    assert_eq!(reply.status, 413);
    reply.assert_cors();
}

#[test]
fn a_preflight_request_is_answered_everywhere() {
    let server = relay();
    for path in ["/", "/metrics", "/npub1x/y.git/git-upload-pack", "/no/such"] {
        let headers = [
            ("Origin", "https://client.example"),
            ("Access-Control-Request-Method", "POST"),
        ];
        let reply = request(server.addr(), "OPTIONS", path, &headers);
        assert_eq!((reply.status, reply.body.as_str()), (204, ""), "{path}");
        reply.assert_cors();
    }
}

#[test]
fn head_is_get_without_the_body() {
    let server = relay();
    for path in ["/", "/healthz", "/assets/style.css", "/no-such-page"] {
        let with = get(server.addr(), path);
        let without = request(server.addr(), "HEAD", path, &[]);
        assert_eq!(without.status, with.status, "{path}");
        assert_eq!(without.body, "", "{path}");
        assert_eq!(
            without.header("content-length"),
            with.header("content-length"),
            "{path}"
        );
        without.assert_cors();
    }
}

#[tokio::test]
async fn the_metrics_move_with_what_happens() {
    let server = start(&[]);
    let author = author();
    let mut client = client(&server).await;
    let event = author.event(1, now(), &[], "");
    accept(&mut client, &event).await;
    client.publish(&event).await;
    client.request("live", &[by(&author)]).await;
    client.request("also", &[json!({"limit": 0})]).await;
    accept(&mut client, &author.event(1, now(), &[], "live")).await;
    client.expect("EVENT").await;
    client.expect("EVENT").await;
    assert!(
        !client
            .publish(&author.event(1, 1, &[&["expiration", "2"]], ""))
            .await
            .0
    );
    client.send_text("nonsense").await;
    client.expect("NOTICE").await;
    client
        .send(&json!(["NEG-OPEN", "n", {"kinds": [7]}, "61"]))
        .await;
    client.expect("NEG-MSG").await;
    assert_alive(&mut client).await;
    let expected = [
        ("ngit_connections", 1.0),
        ("ngit_subscriptions", 2.0),
        ("ngit_neg_sessions", 1.0),
        ("ngit_events_received_total", 4.0),
        ("ngit_events_stored_total", 2.0),
        ("ngit_events_duplicate_total", 1.0),
        (r#"ngit_events_refused_total{reason="expired"}"#, 1.0),
        (r#"ngit_messages_total{type="EVENT"}"#, 4.0),
        (r#"ngit_messages_total{type="REQ"}"#, 2.0),
        (r#"ngit_messages_total{type="COUNT"}"#, 1.0),
        (r#"ngit_messages_total{type="NEG-OPEN"}"#, 1.0),
        (r#"ngit_messages_total{type="invalid"}"#, 1.0),
        (r#"ngit_query_seconds_count{type="REQ"}"#, 2.0),
        ("ngit_store_failures_total", 0.0),
    ];
    for (name, value) in expected {
        assert_eq!(metric(&server, name), value, "{name}");
    }
    assert!(metric(&server, "ngit_commit_seconds_count") >= 1.0);
    assert!(metric(&server, "ngit_driver_turn_seconds_count") >= 1.0);
    assert!(metric(&server, "ngit_driver_longest_turn_seconds") > 0.0);
    assert!(metric(&server, "ngit_live_deliveries_total") >= 2.0);
    let reply = get(server.addr(), "/metrics");
    assert!(
        reply
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("text/plain"))
    );
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        reply
            .body
            .contains(&format!(r#"ngit_build_info{{version="{version}"}} 1"#))
    );
    client.close().await;
    eventually("the gauges go back", async || {
        metric(&server, "ngit_connections") == 0.0
            && metric(&server, "ngit_subscriptions") == 0.0
            && metric(&server, "ngit_neg_sessions") == 0.0
    })
    .await;
}

#[test]
fn metrics_can_be_switched_off() {
    let server = start(&[("NGIT_METRICS_ENABLED", "false")]);
    let reply = get(server.addr(), "/metrics");
    assert_eq!(reply.status, 404);
    assert!(!reply.body.contains("ngit_"));
}

#[tokio::test]
async fn health_and_readiness_are_told() {
    let server = start(&[]);
    assert_eq!(get(server.addr(), "/healthz").body, "ok\n");
    let mut client = client(&server).await;
    accept(&mut client, &author().event(1, now(), &[], "")).await;
    let ready = get(server.addr(), "/readyz");
    assert_eq!(ready.status, 200);
    assert!(ready.body.contains("1 events"), "{}", ready.body);
}

// Websockets

fn handshake(path: &str, headers: &[(&str, &str)]) -> u16 {
    exchange(relay().addr(), &head("GET", path, headers)).status
}

#[test]
fn a_websocket_is_understood_in_every_spelling_that_is_in_use() {
    let rest = &HANDSHAKE[2..];
    let spellings: [&[(&str, &str)]; 6] = [
        &[("Connection", "Upgrade"), ("Upgrade", "websocket")],
        &[
            ("Connection", "keep-alive, Upgrade"),
            ("Upgrade", "websocket"),
        ],
        &[
            ("Connection", "keep-alive"),
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
        ],
        &[("connection", "upgrade"), ("upgrade", "websocket")],
        &[("CONNECTION", "UPGRADE"), ("UPGRADE", "WebSocket")],
        &[
            ("Connection", "upgrade,keep-alive"),
            ("Upgrade", "websocket"),
        ],
    ];
    let server = relay();
    for spelling in spellings {
        assert_eq!(
            handshake("/", &[spelling, rest].concat()),
            101,
            "{spelling:?}"
        );
    }
    let browser = [
        ("Sec-WebSocket-Extensions", "permessage-deflate"),
        ("Origin", "https://x"),
    ];
    assert_eq!(handshake("/", &[&HANDSHAKE[..], &browser].concat()), 101);
    // Also where the client asks for the document in the same breath.
    let accept = [("Accept", "application/nostr+json")];
    assert_eq!(handshake("/", &[&HANDSHAKE[..], &accept].concat()), 101);
    assert_eq!(handshake("/?a=b", &HANDSHAKE), 101);
    drop(server);
}

#[test]
fn an_offer_of_another_protocol_is_ignored() {
    let headers = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
    ];
    assert_eq!(handshake("/", &headers), 200);
}

#[test]
fn a_websocket_elsewhere_or_half_asked_for_is_refused() {
    let server = relay();
    for path in ["/relay", "/healthz", "/metrics", "//", "/npub1x/y.git"] {
        assert_ne!(handshake(path, &HANDSHAKE), 101, "{path}");
    }
    for missing in 0..HANDSHAKE.len() {
        let mut headers = HANDSHAKE.to_vec();
        let (name, _) = headers.remove(missing);
        headers.push(("X-Missing", name));
        if name != "Connection" {
            headers.push(("Connection", "close"));
        }
        let status = handshake("/", &headers);
        assert!(matches!(status, 200 | 400 | 426), "{name}: {status}");
    }
    let mut old = HANDSHAKE;
    old[2].1 = "8";
    assert!(matches!(handshake("/", &old), 400 | 426));
    drop(server);
}

#[tokio::test]
async fn a_forwarded_address_is_believed_only_from_a_trusted_proxy() {
    let limits = [("NGIT_MAX_CONNECTIONS_PER_IP", "1")];
    let trusting = start(&[limits[0], ("NGIT_TRUSTED_PROXIES", "127.0.0.1,10.0.0.0/8")]);
    let client = |chain: &'static str| [("x-forwarded-for", chain)];
    let _one = Socket::connect(&trusting, &client("203.0.113.7")).await;
    for chain in [
        "203.0.113.7",
        // What the client itself claims stands before what the proxies add.
        "198.51.100.1, 203.0.113.7",
        "203.0.113.7, 10.1.2.3",
    ] {
        let second = Socket::try_connect(&trusting, &client(chain)).await;
        assert_eq!(second.err(), Some(429), "{chain}");
    }
    Socket::connect(&trusting, &client("203.0.113.7, 198.51.100.1")).await;

    let other = start(&[limits[0], ("NGIT_TRUSTED_PROXIES", "192.0.2.1")]);
    let _one = Socket::connect(&other, &client("203.0.113.7")).await;
    let _two = Socket::connect(&other, &client("203.0.113.7")).await;
}
