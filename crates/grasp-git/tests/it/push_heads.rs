//! The head of a push: strict, bounded, and the same however it is cut into chunks.

use bytes::BytesMut;
use grasp_core::git::ObjectId;
use grasp_git::{CommandLimits, CommandReader, PushHead, Refusal, pktline};
use proptest::prelude::*;

const NULL: &str = "0000000000000000000000000000000000000000";
const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn body(lines: &[&str], rest: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    for line in lines {
        pktline::put_text(&mut out, line);
    }
    pktline::put_flush(&mut out);
    out.extend_from_slice(rest);
    out.to_vec()
}

fn read(body: &[u8]) -> Result<PushHead, Refusal> {
    let mut reader = CommandReader::new(CommandLimits::default());
    match reader.feed(body)? {
        Some(head) => Ok(head),
        None => Err(reader.end()),
    }
}

fn refused(lines: &[&str]) -> Refusal {
    read(&body(lines, b"PACK")).unwrap_err()
}

#[test]
fn commands_and_capabilities_are_read_and_the_pack_is_left_alone() {
    let first = format!(
        "{NULL} {A} refs/heads/a\0 report-status side-band-64k atomic quiet object-format=sha1 agent=git/2.47.3 unheard-of"
    );
    let delete = format!("{B} {NULL} refs/tags/b\n");
    let nothing = format!("{NULL} {NULL} refs/heads/none");
    let same = format!("{A} {A} refs/heads/same");
    let odd = format!("{A} {B} refs/heads/a..b");
    let shallow = format!("shallow {B}");
    let body = body(
        &[&shallow, &first, &delete, &nothing, &same, &odd],
        b"PACK....",
    );
    let head = read(&body).unwrap();
    assert_eq!(&head.rest[..], b"PACK....");
    assert!(head.capabilities.report_status && head.capabilities.side_band_64k);
    assert!(head.capabilities.atomic && head.capabilities.quiet);
    assert_eq!(head.capabilities.agent.as_deref(), Some("git/2.47.3"));
    assert_eq!(head.shallow, [ObjectId([0xbb; 20])]);
    assert_eq!(head.commands[0].new, Some(ObjectId([0xaa; 20])));
    assert_eq!(head.commands[1].new, None);
    assert_eq!(
        head.commands[1].target.as_ref().unwrap().as_str(),
        "refs/tags/b"
    );
    assert!(head.commands[2].is_no_op() && head.commands[3].is_no_op());
    assert_eq!(head.commands[4].name, "refs/heads/a..b");
    assert_eq!(head.commands[4].target, None);
}

#[test]
fn every_way_to_cut_it_gives_the_same_head() {
    let first = format!("{NULL} {A} refs/heads/größe\0report-status agent=x");
    let second = format!("{A} {B} refs/tags/b\n");
    let whole = body(&[&first, &second], b"PACK and more");
    let expected = read(&whole).unwrap();
    for cut in 0..=whole.len() {
        let mut reader = CommandReader::new(CommandLimits::default());
        let (start, end) = whole.split_at(cut);
        let head = match reader.feed(start).unwrap() {
            Some(mut head) => {
                head.rest = [&head.rest[..], end].concat().into();
                head
            }
            None => reader.feed(end).unwrap().unwrap(),
        };
        assert_eq!(head, expected, "cut at {cut}");
    }
    let mut reader = CommandReader::new(CommandLimits::default());
    let mut left = whole.iter();
    let mut head = left
        .find_map(|byte| reader.feed(&[*byte]).unwrap())
        .unwrap();
    head.rest = left.copied().collect::<Vec<u8>>().into();
    assert_eq!(head, expected);
}

#[test]
fn what_git_sends_to_ask_whether_it_may_push_is_an_empty_list() {
    let head = read(b"0000").unwrap();
    assert!(head.commands.is_empty() && head.rest.is_empty());
    assert_eq!(read(b""), Err(Refusal::Truncated));
    assert_eq!(read(b"00"), Err(Refusal::Truncated));
}

#[test]
fn what_is_not_a_command_is_refused_by_name() {
    let good = format!("{NULL} {A} refs/heads/a");
    for bad in [
        "",
        "\n",
        "hello",
        &format!("{NULL} {A}"),
        &format!("{NULL} {A} "),
        &format!("{NULL}  {A} refs/heads/a"),
        &format!("{NULL} {} refs/heads/a", A.to_uppercase()),
        &format!("{NULL} {A}a refs/heads/a"),
        &format!("{NULL} {A} refs/heads/a\nb"),
        &format!("{NULL} {A} refs/heads/\u{1b}[31m"),
        &format!("{NULL}\t{A} refs/heads/a"),
        "shallow xyz",
        "shallow 0000000000000000000000000000000000000000",
    ] {
        assert!(matches!(refused(&[bad]), Refusal::Malformed(_)), "{bad:?}");
        assert!(
            matches!(refused(&[&good, bad]), Refusal::Malformed(_)),
            "{bad:?}"
        );
    }
    let again = format!("{NULL} {A} refs/heads/b\0report-status");
    assert!(matches!(refused(&[&good, &again]), Refusal::Malformed(_)));
    assert!(matches!(refused(&[&good, &good]), Refusal::Duplicate(_)));
    for certificate in ["push-cert\0report-status", "push-cert", "push-cert-end\n"] {
        assert_eq!(refused(&[certificate]), Refusal::PushCertificate);
    }
    let options = format!("{good}\0report-status push-options");
    assert_eq!(refused(&[&options]), Refusal::PushOptions);
    let sha256 = format!("{good}\0object-format=sha256");
    assert!(matches!(refused(&[&sha256]), Refusal::ObjectFormat(_)));
    let delimiter = [
        &body(&[&good], b"")[..body(&[&good], b"").len() - 4],
        b"0001",
    ]
    .concat();
    assert!(matches!(read(&delimiter), Err(Refusal::Malformed(_))));
    assert!(matches!(read(b"PACK"), Err(Refusal::Packet(_))));
    assert!(matches!(read(b"0003"), Err(Refusal::Packet(_))));
}

#[test]
fn a_name_longer_than_any_that_can_be_hosted_is_refused() {
    let line = |length: usize| format!("{NULL} {A} refs/heads/{}", "x".repeat(length - 11));
    assert_eq!(read(&body(&[&line(1_024)], b"")).unwrap().commands.len(), 1);
    assert!(matches!(refused(&[&line(1_025)]), Refusal::Malformed(_)));
}

#[test]
fn long_lists_end_at_the_limit() {
    let limits = CommandLimits {
        max_commands: 10,
        max_bytes: 100_000,
    };
    let line = |n: usize| format!("{NULL} {A} refs/heads/{n}");
    let list = |count: usize| {
        let lines: Vec<_> = (0..count).map(line).collect();
        body(&lines.iter().map(String::as_str).collect::<Vec<_>>(), b"")
    };
    assert!(
        CommandReader::new(limits)
            .feed(&list(10))
            .unwrap()
            .is_some()
    );
    assert_eq!(
        CommandReader::new(limits).feed(&list(11)),
        Err(Refusal::TooManyCommands(10))
    );
    let shallow: Vec<_> = (0..11).map(|_| format!("shallow {A}")).collect();
    let shallow: Vec<_> = shallow.iter().map(String::as_str).collect();
    assert!(
        CommandReader::new(limits)
            .feed(&body(&shallow, b""))
            .is_err()
    );

    let small = CommandLimits {
        max_commands: 10,
        max_bytes: 200,
    };
    assert_eq!(
        CommandReader::new(small).feed(&list(9)),
        Err(Refusal::TooLarge(200))
    );
    // One line that is announced and never ends.
    let mut reader = CommandReader::new(small);
    let mut result = reader.feed(b"fff0");
    while let Ok(None) = result {
        result = reader.feed(&[b'x'; 100]);
    }
    assert_eq!(result, Err(Refusal::TooLarge(200)));
}

/// The core judges them all at once. A state has 10,000 refs at most.
#[test]
fn a_push_has_no_more_commands_than_a_state_can_have_refs() {
    let lines: Vec<_> = (0..=10_000)
        .map(|n| format!("{NULL} {A} refs/heads/{n}"))
        .collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    assert_eq!(
        read(&body(&lines[1..], b"")).unwrap().commands.len(),
        10_000
    );
    let refusal = read(&body(&lines, b"")).unwrap_err();
    assert_eq!(refusal, Refusal::TooManyCommands(10_000));
    assert!(refusal.to_string().contains("fewer refs at once"));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..10)) {
        let mut reader = CommandReader::new(CommandLimits::default());
        for chunk in chunks {
            if !matches!(reader.feed(&chunk), Ok(None)) {
                break;
            }
        }
    }

    #[test]
    fn no_line_makes_it_panic(line in "\\PC{0,60}") {
        let _ = read(&body(&[&line], b""));
    }
}
