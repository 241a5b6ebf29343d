//! GRASP-01 with real git: a signed event is the key.

use grasp_core::Event;
use testkit::grasp::DOMAIN;
use testkit::{Author, Client, Project, WorkTree, now};

use crate::hosted::{await_served, grasp, held, hosted, next_state, remote_refs, served};

#[tokio::test]
async fn a_repository_from_announcement_to_clone() {
    let server = grasp();
    let mut client = Client::connect(&server.ws_url()).await;
    let alice = Author::new(1);
    let project = Project::new(&alice, "hello");
    let announcement = project.announcement(now());
    held(&mut client, &announcement).await;

    let tree = WorkTree::new();
    let first = tree.commit("README", b"hello");
    let state = project.state(&alice, now(), &[("refs/heads/main", &first)]);
    held(&mut client, &state).await;

    let url = project.url(&server);
    tree.git(&["push", "-q", &url, "main"]);
    assert!(served(&mut client, &announcement).await);
    assert!(served(&mut client, &state).await);

    let copy = WorkTree::clone_of(&url, &[]);
    assert_eq!(copy.head(), first);
}

#[tokio::test]
async fn a_push_without_a_state_is_refused_in_words() {
    let server = grasp();
    let (alice, tree) = (Author::new(1), WorkTree::new());
    let project = Project::new(&alice, "words");
    let mut client = hosted(&server, &project, &tree).await;
    let url = project.url(&server);
    let before = remote_refs(&url);

    let second = tree.commit("README", b"second");
    let said = tree.try_git(&["push", &url, "main"]);
    assert!(!said.ok);
    assert!(said.stderr.contains("[remote rejected]"), "{}", said.stderr);
    assert!(
        said.stderr.contains("remote: no state event"),
        "{}",
        said.stderr
    );
    assert_eq!(remote_refs(&url), before);

    let state = project.state(&alice, now(), &[("refs/heads/main", &second)]);
    held(&mut client, &state).await;
    tree.commit("README", b"third");
    let said = tree.try_git(&["push", &url, "main"]);
    assert!(said.stderr.contains(&second), "{}", said.stderr);
    assert!(said.stderr.contains(&alice.npub()), "{}", said.stderr);
    assert_eq!(remote_refs(&url), before);

    tree.git(&["push", "-q", &url, &format!("{second}:refs/heads/main")]);
    assert!(served(&mut client, &state).await);
}

#[tokio::test]
async fn force_delete_and_tags_follow_the_state() {
    let server = grasp();
    let (alice, tree) = (Author::new(1), WorkTree::new());
    let project = Project::new(&alice, "moves");
    let mut client = hosted(&server, &project, &tree).await;
    let url = project.url(&server);
    let first = tree.head();

    tree.git(&["branch", "topic"]);
    tree.git(&["tag", "-a", "v1", "-m", "one"]);
    let (tag, topic) = (tree.rev("v1"), tree.commit("README", b"second"));
    let refs = [
        ("refs/heads/main", topic.as_str()),
        ("refs/heads/topic", &first),
        ("refs/tags/v1", &tag),
        ("refs/tags/v1^{}", &first),
    ];
    held(&mut client, &project.state(&alice, now() - 50, &refs)).await;
    tree.git(&["push", "-q", &url, "main", "topic", "v1"]);
    let listed = remote_refs(&url).join("\n");
    assert!(
        listed.contains(&format!("{first}\trefs/tags/v1^{{}}")),
        "{listed}"
    );

    // Rewritten main, `topic` gone, `topic/new` where it was.
    tree.git(&["reset", "-q", "--hard", &first]);
    let other = tree.commit("README", b"another history");
    let refs = [
        ("refs/heads/main", other.as_str()),
        ("refs/heads/topic/new", &first),
    ];
    held(&mut client, &project.state(&alice, now(), &refs)).await;
    let new = format!("{first}:refs/heads/topic/new");
    tree.git(&["push", "-q", "-f", &url, "main", ":topic", ":v1", &new]);
    let names: Vec<String> = remote_refs(&url)
        .iter()
        .map(|line| line.split('\t').next_back().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["HEAD", "refs/heads/main", "refs/heads/topic/new"]);
}

#[tokio::test]
async fn a_replayed_older_state_moves_nothing() {
    let server = grasp();
    let (alice, tree) = (Author::new(1), WorkTree::new());
    let project = Project::new(&alice, "rewind");
    let mut client = hosted(&server, &project, &tree).await;
    let (url, first) = (project.url(&server), tree.head());
    let second = tree.commit("README", b"second");
    held(
        &mut client,
        &project.state(&alice, now(), &[("refs/heads/main", &second)]),
    )
    .await;
    tree.git(&["push", "-q", &url, "main"]);

    let older = project.state(&alice, now() - 50, &[("refs/heads/main", &first)]);
    let (taken, why) = client.publish(&older).await;
    assert!(!taken && why.starts_with("replaced:"), "{why}");
    let said = tree.try_git(&["push", "-f", &url, &format!("{first}:refs/heads/main")]);
    assert!(!said.ok);
    assert!(remote_refs(&url)[0].starts_with(&second));
}

#[tokio::test]
async fn co_maintainers_share_one_history() {
    let server = grasp();
    let (alice, bob, tree) = (Author::new(1), Author::new(2), WorkTree::new());
    let hers = Project::new(&alice, "ours").with(&[&bob]);
    let his = Project::new(&bob, "ours").with(&[&alice]);
    let mut client = hosted(&server, &hers, &tree).await;
    // Bob's repository has its objects and refs from Alice's without a push.
    let announcement = his.announcement(now() - 60);
    assert!(client.publish(&announcement).await.0);
    await_served(&mut client, &announcement, true, "with its objects").await;
    assert_eq!(
        remote_refs(&his.url(&server)),
        remote_refs(&hers.url(&server))
    );

    // Bob signs a state and pushes to his own; Alice's follows.
    let second = tree.commit("README", b"by bob");
    let state = hers.state(&bob, now(), &[("refs/heads/main", &second)]);
    held(&mut client, &state).await;
    tree.git(&["push", "-q", &his.url(&server), "main"]);
    assert!(served(&mut client, &state).await);
    assert!(remote_refs(&hers.url(&server))[0].starts_with(&second));
    // The same push to the other repository has nothing left to do.
    tree.git(&["push", "-q", &hers.url(&server), "main"]);

    // Alice removes Bob: what he signs later is refused.
    let alone = Project::new(&alice, "ours").announcement(now());
    assert!(client.publish(&alone).await.0);
    let third = tree.commit("README", b"by bob again");
    let late = hers.state(&bob, now() + 5, &[("refs/heads/main", &third)]);
    client.publish(&late).await;
    let said = tree.try_git(&["push", &hers.url(&server), "main"]);
    assert!(!said.ok, "{}", said.stderr);
    assert!(remote_refs(&hers.url(&server))[0].starts_with(&second));
}

#[tokio::test]
async fn a_pull_request_lands_in_either_order() {
    let server = grasp();
    let (alice, carol, tree) = (Author::new(1), Author::new(3), WorkTree::new());
    let project = Project::new(&alice, "pulls");
    let mut client = hosted(&server, &project, &tree).await;
    let url = project.url(&server);

    let tip = tree.commit("feature", b"one");
    let first = project.pull_request(&carol, &tip);
    held(&mut client, &first).await;
    let to = |event: &Event| format!("refs/nostr/{}", event.id);
    let push = |tip: &str, event: &Event| {
        let refspec = format!("{tip}:{}", to(event));
        tree.try_git(&["push", "-f", &url, &refspec])
    };
    assert!(push(&tip, &first).ok);
    assert!(served(&mut client, &first).await);

    let next = tree.commit("feature", b"two");
    let second = project.pull_request(&carol, &next);
    assert!(push(&next, &second).ok);
    assert_eq!(client.publish(&second).await, (true, String::new()));
    assert!(remote_refs(&url).contains(&format!("{next}\t{}", to(&second))));

    // Another commit under a known event, a deletion, a name that is no event.
    let said = push(&tip, &second);
    assert!(!said.ok && said.stderr.contains(&next), "{}", said.stderr);
    assert!(
        !tree
            .try_git(&["push", &url, &format!(":{}", to(&second))])
            .ok
    );
    assert!(
        !tree
            .try_git(&["push", &url, &format!("{tip}:refs/nostr/abc")])
            .ok
    );
    assert!(
        !tree
            .try_git(&["push", &url, &format!("{tip}:refs/other/abc")])
            .ok
    );
}

#[tokio::test]
async fn what_belongs_to_nothing_here_is_refused() {
    let server = grasp();
    let (alice, carol, tree) = (Author::new(1), Author::new(3), WorkTree::new());
    let project = Project::new(&alice, "related");
    let mut client = hosted(&server, &project, &tree).await;
    for stranger in [
        carol.event(1, now(), &[], "hello"),
        carol.event(1621, now(), &[&["a", "30617:00:x"]], "an issue"),
        carol.event(1111, now(), &[&["E", &"ab".repeat(32)]], "a comment"),
        Project::new(&carol, "related").state(&carol, now(), &[]),
    ] {
        let (taken, why) = client.publish(&stranger).await;
        assert!(!taken && why.starts_with("restricted:"), "{why}");
    }
    let issue = carol.event(1621, now(), &[&["a", &project.address()]], "an issue");
    let id = issue.id.to_string();
    let comment = carol.event(1111, now(), &[&["E", &id], &["e", &id]], "a comment");
    let reply = alice.event(1111, now(), &[&["e", &comment.id.to_string()]], "a reply");
    for event in [&issue, &comment, &reply] {
        assert_eq!(client.publish(event).await, (true, String::new()));
    }
    let quoted = carol.event(1, now(), &[], "quoted later");
    assert!(!client.publish(&quoted).await.0);
    let quoting = alice.event(
        1,
        now(),
        &[&["q", &quoted.id.to_string()], &["e", &id]],
        "look",
    );
    assert!(client.publish(&quoting).await.0);
    assert!(client.publish(&quoted).await.0);
}

#[tokio::test]
async fn an_announcement_must_list_this_server_in_both_places() {
    let server = grasp();
    let mut client = Client::connect(&server.ws_url()).await;
    let alice = Author::new(1);
    let clone = format!("https://{DOMAIN}/{}/x.git", alice.npub());
    let evil = format!("https://evil.example/{DOMAIN}/{}/x.git", alice.npub());
    let relay = format!("wss://{DOMAIN}");
    for tags in [
        vec![vec!["clone", clone.as_str()]],
        vec![vec!["relays", relay.as_str()]],
        vec![vec!["clone", evil.as_str()], vec!["relays", relay.as_str()]],
        vec![
            vec!["clone", clone.as_str()],
            vec!["relays", "wss://git.test.evil.example"],
        ],
    ] {
        let mut all = vec![vec!["d", "x"]];
        all.extend(tags);
        let all: Vec<&[&str]> = all.iter().map(Vec::as_slice).collect();
        let (taken, why) = client.publish(&alice.event(30617, now(), &all, "")).await;
        assert!(!taken && why.starts_with("restricted:"), "{why}");
    }
    let path = format!("/{}/x.git/info/refs?service=git-upload-pack", alice.npub());
    assert_eq!(crate::support::get(server.addr(), &path).status, 404);
}

#[tokio::test]
async fn clones_of_every_kind() {
    let server = grasp();
    let (alice, tree) = (Author::new(1), WorkTree::new());
    let project = Project::new(&alice, "my repo 🦀");
    let mut client = hosted(&server, &project, &tree).await;
    let url = project.url(&server);
    for n in 0..20 {
        tree.commit("README", format!("{n}").as_bytes());
    }
    let head = tree.head();
    held(
        &mut client,
        &project.state(&alice, now(), &[("refs/heads/main", &head)]),
    )
    .await;
    tree.git(&["push", "-q", &url, "main"]);
    for version in ["0", "1", "2"] {
        let version = format!("protocol.version={version}");
        for options in [
            &["-c", &version][..],
            &["-c", &version, "--depth", "1"],
            &["-c", &version, "--filter=blob:none"],
            &["-c", &version, "--filter=tree:0", "--no-checkout"],
        ] {
            let copy = WorkTree::clone_of(&url, options);
            assert_eq!(copy.head(), head, "{options:?}");
            copy.git(&["-c", &version, "fetch", "-q", "origin"]);
        }
    }
    // One object that is reachable and not a tip, as browsers ask for it.
    let copy = WorkTree::new();
    let old = tree.rev("HEAD~5");
    copy.git(&["fetch", "-q", "--depth", "1", &url, &old]);
    assert_eq!(copy.rev("FETCH_HEAD"), old);
}

#[tokio::test]
async fn a_restart_forgets_nothing_that_was_acknowledged() {
    let mut server = grasp();
    let (alice, carol, tree) = (Author::new(1), Author::new(3), WorkTree::new());
    let project = Project::new(&alice, "again");
    let mut client = hosted(&server, &project, &tree).await;
    let second = tree.commit("README", b"second");
    let state = project.state(&alice, now(), &[("refs/heads/main", &second)]);
    held(&mut client, &state).await;
    let waiting = Project::new(&carol, "waiting");
    let announcement = waiting.announcement(now());
    held(&mut client, &announcement).await;
    drop(client);

    server.kill9();
    server.restart();
    let mut client = Client::connect(&server.ws_url()).await;
    assert!(!served(&mut client, &state).await);
    tree.git(&["push", "-q", &project.url(&server), "main"]);
    assert!(served(&mut client, &state).await);
    let state = waiting.state(&carol, now(), &[("refs/heads/main", &second)]);
    held(&mut client, &state).await;
    tree.git(&["push", "-q", &waiting.url(&server), "main"]);
    assert!(served(&mut client, &announcement).await);
}

#[tokio::test]
async fn pages_show_what_is_served_and_escape_it() {
    let server = grasp();
    let (alice, tree) = (Author::new(1), WorkTree::new());
    let project = Project::new(&alice, "<b>bold</b>");
    let path = project.url(&server).replace(&server.http_url(), "");
    assert_eq!(crate::support::get(server.addr(), &path).status, 404);
    let _client = hosted(&server, &project, &tree).await;
    let page = crate::support::get(server.addr(), &path);
    assert_eq!(page.status, 200);
    let text = page.body;
    assert!(
        text.contains("The &#60;b&#62;bold") && !text.contains("<b>bold"),
        "{text}"
    );
    assert!(text.contains(&alice.npub()) && text.contains("change README"));
}

#[tokio::test]
async fn pages_tell_what_is_open_and_what_waits() {
    let server = grasp();
    let (alice, bob, tree) = (Author::new(1), Author::new(2), WorkTree::new());
    let project = Project::new(&alice, "told");
    let path = project.url(&server).replace(&server.http_url(), "");
    let mut client = hosted(&server, &project, &tree).await;
    let address = project.address();
    let mut issues = Vec::new();
    for n in 0..3 {
        let issue = bob.event(1621, now() - n, &[&["a", &address]], "");
        assert!(client.publish(&issue).await.0);
        issues.push(issue.id.to_string());
    }
    let closed: &[&[&str]] = &[&["e", &issues[0], "", "root"], &["a", &address]];
    assert!(
        client
            .publish(&alice.event(1632, now(), closed, ""))
            .await
            .0
    );
    next_state(&mut client, &project, &tree, now()).await;
    let page = crate::support::get(server.addr(), &path).body;
    for told in [
        "<dt>Open issues</dt><dd>2</dd>",
        "<dt>Open pull requests</dt><dd>0</dd>",
        "1 event waits for git data",
        "git clone nostr://npub1",
        "Tester",
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
}
