//! The commands of a push.

use std::io::{Read as _, Write as _};

use testkit::now;

use super::Target;
use crate::hosted::{HalfPush, NULL, commands, memory, next_state, pkt, post_chunked, served};
use crate::support::{head, read_reply, tcp};

#[tokio::test]
async fn a_head_that_is_cut_or_no_packet_is_refused() {
    let target = Target::new().await;
    let one = format!("{0} {0} refs/heads/main", target.first);
    let cases: [(&str, &[u8], &str); 8] = [
        ("nothing", b"", "ends within"),
        ("a cut length", b"00", "ends within"),
        ("a cut line", b"00a0abc", "ends within"),
        ("no end", &pkt(&one), "ends within"),
        ("no hex", b"zzzz", "four hex digits"),
        ("a pack at once", b"PACK\0\0\0\x02", "four hex digits"),
        ("length three", b"0003", "3 bytes long"),
        ("too long a packet", b"ffffabc", "65535 bytes long"),
    ];
    for (what, body, says) in cases {
        target.assert_not_read(what, body, says);
    }
    target.assert_unharmed("heads that are none");
}

fn line(text: &str) -> Vec<u8> {
    [pkt(text), b"0000".to_vec()].concat()
}

#[tokio::test]
async fn a_line_that_is_no_command_is_refused() {
    let target = Target::new().await;
    let first = target.first.as_str();
    let one = format!("{first} {first} refs/heads/main");
    let upper = first.to_uppercase();
    let cases = [
        ("words", "hello".to_owned()),
        ("two spaces", format!("{first}  {first} refs/heads/main")),
        ("no name", format!("{first} {first} ")),
        ("short ids", "1234 5678 refs/heads/main".to_owned()),
        (
            "no hex ids",
            format!("{NULL} {} refs/heads/x", "g".repeat(40)),
        ),
        ("upper-case ids", format!("{NULL} {upper} refs/heads/x")),
        ("an option as id", format!("--help {first} refs/heads/x")),
        (
            "a control character",
            format!("{NULL} {first} refs/heads/\u{1b}[2J"),
        ),
        ("two lines in one", format!("{one}\n{one}")),
        ("a bad shallow line", "shallow --help".to_owned()),
    ];
    for (what, text) in &cases {
        target.assert_not_read(what, &line(text), "not a command");
    }
    target.assert_not_read("a delimiter", b"0001", "not a command");
    target.assert_not_read("an empty line", b"00040000", "not a command");
    let twice = [
        (first, first, "refs/heads/main"),
        (first, NULL, "refs/heads/main"),
    ];
    target.assert_not_read("a ref twice", &commands(&twice), "named twice");
    target.assert_unharmed("lines that are no commands");
}

#[tokio::test]
async fn what_is_not_supported_in_a_head_is_refused() {
    let target = Target::new().await;
    let one = format!("{0} {0} refs/heads/main", target.first);
    let cases = [
        ("push-cert\0report-status".to_owned(), "signed pushes"),
        (format!("{one}\0push-cert=x"), "signed pushes"),
        (format!("{one}\0report-status push-options"), "push options"),
        (format!("{one}\0object-format=sha256"), "object format"),
    ];
    for (text, says) in &cases {
        target.assert_not_read(text, &line(text), says);
    }
    target.assert_unharmed("capabilities that are not offered");
}

#[tokio::test]
async fn a_head_beyond_its_bounds_is_refused() {
    let target = Target::new().await;
    let creating = |names: &[String]| {
        let first = target.first.as_str();
        let list = names.iter().map(|name| (NULL, first, name.as_str()));
        commands(&list.collect::<Vec<_>>())
    };
    let many: Vec<String> = (0..=10_000).map(|n| format!("refs/heads/{n}")).collect();
    let says = "more than 10000 commands";
    target.assert_not_read("10,001 commands", &creating(&many), says);
    let long = "x".repeat(1_000);
    let large = (0..5_000).map(|n| format!("refs/heads/{n}{long}"));
    let large: Vec<String> = large.collect();
    target.assert_not_read("5 MB of commands", &creating(&large), "bytes of commands");
    target.assert_unharmed("heads without an end");
}

/// One long name among very many commands, which the answer names one by one.
#[tokio::test]
async fn a_long_name_is_not_said_again_for_each_command() {
    let target = Target::new().await;
    let first = target.first.as_str();
    let names: Vec<String> = (1..10_000).map(|n| format!("refs/heads/{n}")).collect();
    let with = |long: &str| {
        let long = std::iter::once(long).chain(names.iter().map(String::as_str));
        commands(&long.map(|name| (NULL, first, name)).collect::<Vec<_>>())
    };
    let before = memory(&target.server, "VmHWM");
    let too_long = format!("refs/notes/{}", "x".repeat(60_000));
    target.assert_not_read("a name of 60 kB", &with(&too_long), "not a command");
    let longest = format!("refs/notes/{}", "x".repeat(1_013));
    let reply = target.push(&with(&longest));
    assert_eq!(reply.status, 200, "{}", reply.body.len());
    assert!(reply.body.contains(&format!("ng {longest} only refs/")));
    assert!(reply.body.contains("ng refs/heads/9999 only refs/heads/"));
    assert!(reply.body.len() < 4_000_000, "{}", reply.body.len());
    let grown = memory(&target.server, "VmHWM") - before;
    assert!(grown < 300_000, "{grown} kB");
    target.assert_unharmed("long names");
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
