//! Fetches, events and capabilities that make no sense.

use testkit::now;

use super::Target;
use crate::hosted::{HELD, NULL, commands, held, next_state, pkt, remote_ref, served};
use crate::support::author;

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
