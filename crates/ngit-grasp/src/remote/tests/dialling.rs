use std::time::Duration;

use grasp_core::sync::io::{Description, End, FromRelay, ToRelay};

use super::stage::{INSTANCE, Stage, options};
use crate::remote::Options;
use crate::remote::guard::Reach;

fn document(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
}

#[test]
fn a_dial_that_fails_says_why() {
    let stage = Stage::new();
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    stage.dial(&format!("ws://{nobody}"));
    stage.ends_with(End::Refused);
    // No name server needs to be asked about a label that long.
    stage.dial(&format!("ws://{}.invalid", "a".repeat(64)));
    stage.ends_with(End::NoSuchHost);
    for (answer, end) in [
        (
            "HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            End::Http(302),
        ),
        (
            "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n",
            End::Http(429),
        ),
        ("HTTP/1.1 200 OK\r\n\r\nhello", End::Http(200)),
        ("SSH-2.0-OpenSSH_9.9\r\n\r\n", End::Failed),
        ("", End::Closed),
    ] {
        stage.dial_here();
        let stream = stage.accept();
        let head = stage.answer_http(stream, answer);
        assert!(!head.to_lowercase().contains("permessage-deflate"));
        stage.ends_with(end);
    }
    stage.dial(&format!("wss://{}", stage.address()));
    drop(stage.accept());
    stage.ends_with(End::Tls);
}

#[test]
fn strangers_lead_us_to_no_private_address_but_the_operator_may() {
    let stage = Stage::with(Options {
        reach: Reach::default(),
        ..options()
    });
    stage.dial_here();
    stage.ends_with(End::Blocked);
    let url = format!("ws://{}", stage.address());
    let url = grasp_core::RelayUrl::parse(&url).unwrap();
    stage.ask(ToRelay::Dial { url, trusted: true });
    let stream = stage.accept();
    let _socket = stage.wait(tokio_tungstenite::accept_async(stream)).unwrap();
    assert_eq!(stage.word(), FromRelay::Up);
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for() {
    let stage = Stage::with(Options {
        connect_timeout: Duration::from_millis(100),
        ..options()
    });
    stage.dial_here();
    let _silent = stage.accept();
    stage.ends_with(End::TimedOut);
}

#[test]
fn hanging_up_while_dialling_has_one_answer() {
    let stage = Stage::new();
    stage.dial_here();
    let _silent = stage.accept();
    stage.ask(ToRelay::HangUp);
    stage.ends_with(End::Closed);
    assert!(stage.is_quiet());
}

#[test]
fn a_relay_is_described_beside_its_websocket() {
    let stage = Stage::new();
    let _peer = stage.connected();
    let described = |answer: &str| {
        stage.ask(ToRelay::Describe);
        let head = stage.answer_http(stage.accept(), answer);
        assert!(
            head.to_lowercase()
                .contains("accept: application/nostr+json")
        );
    };
    described(&document(
        r#"{"supported_nips":[77],"limitation":{"max_limit":500}}"#,
    ));
    let limits = Description {
        limit: Some(500),
        reconciles: true,
        ..Description::default()
    };
    assert_eq!(stage.word(), FromRelay::Described(Some(limits)));
    let long = document(&format!(r#"{{"name":"{}"}}"#, "x".repeat(64 * 1024)));
    for answer in [
        "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<!DOCTYPE",
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}",
        &long,
    ] {
        described(answer);
        assert_eq!(stage.word(), FromRelay::Described(None), "{answer:.60}");
    }
    described(&document(&format!(r#"{{"instance":"{INSTANCE}"}}"#)));
    stage.ends_with(End::Ourselves);
}

#[test]
fn at_the_end_every_connection_is_down() {
    let stage = Stage::new();
    let _peer = stage.connected();
    stage.remotes.stop();
    stage.ends_with(End::Closed);
    stage.dial_here();
    stage.ends_with(End::Failed);
}
