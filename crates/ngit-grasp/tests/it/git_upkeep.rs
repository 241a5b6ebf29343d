//! What becomes of repositories over time: expiry, deletion, lists, and the operator's commands.

use std::path::Path;

use grasp_core::Event;
use testkit::git::{missing, try_git};
use testkit::{Author, Client, Project, Server, WorkTree, now};

use crate::hosted::{
    GRASP, HELD, NULL, directory, grasp, grasp_with, held, hosted, leftovers, next_state, path,
    remote_ref, served,
};
use crate::support::{Ran, eventually, get, refuse, run};

fn status(server: &Server, project: &Project) -> u16 {
    let path = path(server, project);
    get(
        server.addr(),
        &format!("{path}/info/refs?service=git-upload-pack"),
    )
    .status
}

#[tokio::test]
async fn a_deleted_announcement_takes_the_repository_and_a_new_one_brings_one() {
    let server = grasp();
    let (alice, tree) = (Author::new(1), WorkTree::new());
    let project = Project::new(&alice, "deleted");
    let mut client = hosted(&server, &project, &tree).await;
    let deletion = alice.event(5, now() - 50, &[&["a", &project.address()]], "");
    assert!(client.publish(&deletion).await.0);
    eventually("not found", || async { status(&server, &project) == 404 }).await;
    assert!(!directory(&server, &project).exists());
    let said = tree.try_git(&["push", &project.url(&server), "main"]);
    assert!(
        !said.ok && said.stderr.contains("not found"),
        "{}",
        said.stderr
    );
    // What was deleted does not come back.
    refuse(&mut client, &project.announcement(now() - 100), "blocked:").await;
    assert_eq!(status(&server, &project), 404);

    let again = project.announcement(now() - 40);
    held(&mut client, &again).await;
    assert_eq!(status(&server, &project), 200);
    let (next, state) = next_state(&mut client, &project, &tree, now()).await;
    tree.git(&["push", "-q", &project.url(&server), "main"]);
    assert!(served(&mut client, &again).await && served(&mut client, &state).await);
    assert_eq!(WorkTree::clone_of(&project.url(&server), &[]).head(), next);
}

#[tokio::test]
async fn a_held_announcement_can_be_deleted_too() {
    let server = grasp();
    let mut client = Client::connect(&server.ws_url()).await;
    let alice = Author::new(1);
    let project = Project::new(&alice, "held");
    let announcement = project.announcement(now() - 10);
    held(&mut client, &announcement).await;
    assert_eq!(status(&server, &project), 200);
    let deletion = alice.event(5, now(), &[&["e", &announcement.id.to_string()]], "");
    assert!(client.publish(&deletion).await.0);
    eventually("not found", || async { status(&server, &project) == 404 }).await;
    let state = project.state(&alice, now(), &[]);
    refuse(&mut client, &state, "restricted:").await;
}

#[tokio::test]
async fn a_repository_without_a_push_expires_and_a_late_state_revives_it() {
    let server = grasp_with(&[("NGIT_PURGATORY_EXPIRY_SECS", "3")]);
    let mut client = Client::connect(&server.ws_url()).await;
    let (alice, tree) = (Author::new(1), WorkTree::new_with_commit());
    let project = Project::new(&alice, "late");
    let announcement = project.announcement(now());
    held(&mut client, &announcement).await;
    let dir = directory(&server, &project);
    assert!(dir.exists());
    eventually("the directory goes", || async { !dir.exists() }).await;
    assert_eq!(status(&server, &project), 404);
    let root = server.data_dir().join("git");
    eventually("nothing is left", || async { leftovers(&root).is_empty() }).await;

    let state = project.state(&alice, now(), &[("refs/heads/main", &tree.head())]);
    assert_eq!(client.publish(&state).await, (true, HELD.to_owned()));
    tree.git(&["push", "-q", &project.url(&server), "main"]);
    assert!(served(&mut client, &announcement).await && served(&mut client, &state).await);
}

#[tokio::test]
async fn a_tip_whose_event_never_comes_goes() {
    let server = grasp_with(&[("NGIT_PURGATORY_TIP_EXPIRY_SECS", "1")]);
    let (project, tree) = (Project::new(&Author::new(1), "tips"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let carol = Author::new(3);
    let url = project.url(&server);
    let tip = tree.commit("feature", b"one");
    let kept = project.pull_request(&carol, &tip);
    held(&mut client, &kept).await;
    let lost = format!("refs/nostr/{}", "ab".repeat(32));
    let with_event = format!("refs/nostr/{}", kept.id);
    tree.git(&[
        "push",
        "-q",
        &url,
        &format!("{tip}:{lost}"),
        &format!("{tip}:{with_event}"),
    ]);
    eventually("the tip goes", || async {
        remote_ref(&url, &lost).is_none()
    })
    .await;
    assert_eq!(remote_ref(&url, &with_event), Some(tip));
    assert!(served(&mut client, &kept).await);
}

#[tokio::test]
async fn an_event_that_says_otherwise_removes_the_tip() {
    let server = grasp();
    let (project, tree) = (Project::new(&Author::new(1), "mismatch"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let url = project.url(&server);
    let first = tree.head();
    let tip = tree.commit("feature", b"one");
    let request = project.pull_request(&Author::new(3), &tip);
    let name = format!("refs/nostr/{}", request.id);
    tree.git(&["push", "-q", &url, &format!("{first}:{name}")]);
    assert_eq!(remote_ref(&url, &name), Some(first));
    held(&mut client, &request).await;
    eventually("the tip goes", || async {
        remote_ref(&url, &name).is_none()
    })
    .await;
}

#[tokio::test]
async fn black_and_white_lists_say_what_is_hosted() {
    let (alice, bob, carol) = (Author::new(1), Author::new(2), Author::new(3));
    let black = format!("{},{}/one,spam", bob.npub(), carol.npub());
    let server = grasp_with(&[
        ("NGIT_REPOSITORY_BLACKLIST", &black),
        ("NGIT_EVENT_BLACKLIST", &Author::new(4).npub()),
    ]);
    let mut client = Client::connect(&server.ws_url()).await;
    let announce = |author: &Author, name: &str| Project::new(author, name).announcement(now());
    for refused in [
        announce(&bob, "any"),
        announce(&carol, "one"),
        announce(&alice, "spam"),
    ] {
        refuse(&mut client, &refused, "blocked:").await;
    }
    refuse(&mut client, &announce(&Author::new(4), "x"), "blocked:").await;
    refuse(
        &mut client,
        &Author::new(4).event(10317, now(), &[], ""),
        "blocked:",
    )
    .await;
    held(&mut client, &announce(&carol, "two")).await;
    held(&mut client, &announce(&alice, "one")).await;
    assert_eq!(status(&server, &Project::new(&bob, "any")), 404);

    let white = format!("{},{}/one", alice.npub(), bob.npub());
    let server = grasp_with(&[("NGIT_REPOSITORY_WHITELIST", &white)]);
    let mut client = Client::connect(&server.ws_url()).await;
    held(&mut client, &announce(&alice, "any")).await;
    held(&mut client, &announce(&bob, "one")).await;
    refuse(&mut client, &announce(&bob, "two"), "blocked:").await;
    refuse(&mut client, &announce(&carol, "one"), "blocked:").await;
}

#[tokio::test]
async fn whether_a_listed_key_must_answer_is_a_setting() {
    let (alice, bob) = (Author::new(1), Author::new(2));
    for (rule, at_once) in [("reciprocal", false), ("listed", true)] {
        let server = grasp_with(&[("NGIT_MAINTAINER_RULE", rule)]);
        let tree = WorkTree::new();
        let project = Project::new(&alice, "ruled").with(&[&bob]);
        let mut client = hosted(&server, &project, &tree).await;
        let next = tree.commit("README", b"by bob");
        let state = project.state(&bob, now(), &[("refs/heads/main", &next)]);
        let url = project.url(&server);
        if at_once {
            held(&mut client, &state).await;
        } else {
            refuse(&mut client, &state, "restricted:").await;
            assert!(!tree.try_git(&["push", "-q", &url, "main"]).ok);
            // His own announcement, which needs not list this server, makes him one.
            let tags: [&[&str]; 2] = [
                &["d", "ruled"],
                &["maintainers", &alice.pubkey().to_string()],
            ];
            let answer = bob.event(30617, now(), &tags, "");
            assert_eq!(client.publish(&answer).await, (true, String::new()));
            held(&mut client, &state).await;
        }
        tree.git(&["push", "-q", &url, "main"]);
        assert!(served(&mut client, &state).await);
        assert_eq!(status(&server, &Project::new(&bob, "ruled")), 404);
    }
}

fn command(server: &Server, args: &[&str]) -> Ran {
    run(args, GRASP, server.data_dir())
}

fn text(ran: &Ran) -> String {
    format!("{:?}\n{}{}", ran.code, ran.stdout, ran.stderr)
}

#[tokio::test]
async fn repositories_are_listed_and_checked_beside_the_server() {
    let server = grasp();
    let (alice, tree) = (Author::new(1), WorkTree::new());
    let project = Project::new(&alice, "listed");
    let mut client = hosted(&server, &project, &tree).await;
    let waiting = Project::new(&alice, "waiting");
    held(&mut client, &waiting.announcement(now())).await;

    let listed = command(&server, &["repos"]);
    assert_eq!(listed.code, Some(0), "{}", text(&listed));
    let line = |name: &str| {
        let ending = format!("{}/{name}", alice.npub());
        let found = listed.stdout.lines().find(|line| line.ends_with(&ending));
        found
            .unwrap_or_else(|| panic!("{}", text(&listed)))
            .to_owned()
    };
    assert!(line("listed").contains("served") && line("listed").contains("yes"));
    assert!(line("waiting").contains("held"));
    assert!(
        listed.stdout.contains("2 repositories, 1 events held"),
        "{}",
        text(&listed)
    );

    let checked = command(&server, &["check"]);
    assert_eq!(checked.code, Some(0), "{}", text(&checked));
    assert!(
        text(&checked).contains("2 repositories checked, 0 with problems"),
        "{}",
        text(&checked)
    );
    // A repair is not for beside a server.
    let repair = command(&server, &["check", "--repair"]);
    assert_ne!(repair.code, Some(0), "{}", text(&repair));
    tree.git(&["ls-remote", &project.url(&server)]);
}

fn update_ref(dir: &Path, name: &str, id: &str) {
    let args: &[&str] = match id {
        NULL => &["update-ref", "-d", name],
        _ => &["update-ref", name, id],
    };
    let said = try_git(dir, args);
    assert!(said.ok, "{said:?}");
}

#[tokio::test]
async fn a_repair_brings_refs_back_to_what_was_signed() {
    let mut server = grasp();
    let (alice, tree) = (Author::new(1), WorkTree::new());
    let project = Project::new(&alice, "damaged");
    let mut client = hosted(&server, &project, &tree).await;
    let first = tree.head();
    let (next, _) = next_state(&mut client, &project, &tree, now()).await;
    tree.git(&["push", "-q", &project.url(&server), "main"]);
    let other = Project::new(&alice, "well");
    hosted(&server, &other, &WorkTree::new()).await;
    drop(client);
    server.terminate();

    let dir = directory(&server, &project);
    let damages: [(&str, &str); 3] = [
        ("refs/heads/main", first.as_str()),
        ("refs/heads/main", NULL),
        ("refs/heads/nobodys", first.as_str()),
    ];
    for (name, id) in damages {
        update_ref(&dir, name, id);
        std::fs::create_dir_all(dir.join("objects/incoming-dead/pack")).unwrap();
        std::fs::write(dir.join("packed-refs.lock"), b"").unwrap();
        let found = command(&server, &["check"]);
        assert_eq!(found.code, Some(1), "{name} {id}: {}", text(&found));
        assert!(
            text(&found).contains("its refs are not those"),
            "{}",
            text(&found)
        );
        assert!(
            text(&found).contains("2 repositories checked, 1 with"),
            "{}",
            text(&found)
        );
        let listed = command(&server, &["repos"]);
        assert!(listed.stdout.contains("NO"), "{}", text(&listed));
        let mended = command(&server, &["check", "--repair"]);
        assert_eq!(mended.code, Some(0), "{name} {id}: {}", text(&mended));
        let said = try_git(&dir, &["for-each-ref", "--format=%(objectname) %(refname)"]);
        assert_eq!(said.stdout, format!("{next} refs/heads/main\n"));
        assert_eq!(leftovers(&dir), Vec::<std::path::PathBuf>::new());
    }
    // A start does the same.
    update_ref(&dir, "refs/heads/main", &first);
    server.restart();
    let url = project.url(&server);
    let mended = || async { remote_ref(&url, "refs/heads/main").as_ref() == Some(&next) };
    eventually("the start mends", mended).await;
}

/// A repository with a state and a pull request, whose directory is lost before the next start.
async fn lost(server: &mut Server, project: &Project, tree: &WorkTree) -> (Event, Event) {
    let mut client = hosted(server, project, tree).await;
    let url = project.url(server);
    let (next, state) = next_state(&mut client, project, tree, now()).await;
    tree.git(&["push", "-q", &url, "main"]);
    let request = project.pull_request(&Author::new(3), &next);
    let name = format!("refs/nostr/{}", request.id);
    tree.git(&["push", "-q", &url, &format!("{next}:{name}")]);
    assert!(client.publish(&request).await.0);
    assert!(served(&mut client, &state).await && served(&mut client, &request).await);
    drop(client);
    server.terminate();
    std::fs::remove_dir_all(directory(server, project)).unwrap();
    let found = command(server, &["check"]);
    assert_eq!(found.code, Some(1), "{}", text(&found));
    server.restart();
    let there = || async { status(server, project) == 200 };
    eventually("hosted, and empty", there).await;
    (state, request)
}

#[tokio::test]
async fn a_repository_that_a_disk_has_lost_can_be_pushed_again() {
    let mut server = grasp();
    let (project, tree) = (Project::new(&Author::new(1), "lost"), WorkTree::new());
    let (state, request) = lost(&mut server, &project, &tree).await;
    let url = project.url(&server);
    tree.git(&["push", "-q", &url, "main"]);
    let name = format!("refs/nostr/{}", request.id);
    tree.git(&["push", "-q", &url, &format!("main:{name}")]);
    let mut client = Client::connect(&server.ws_url()).await;
    assert!(served(&mut client, &state).await && served(&mut client, &request).await);
    let copy = WorkTree::clone_of(&url, &[]);
    assert_eq!(copy.head(), tree.head());
}

#[tokio::test]
async fn objects_that_nobody_needs_are_dropped() {
    let server = grasp_with(&[
        ("NGIT_PURGATORY_TIP_EXPIRY_SECS", "1"),
        ("NGIT_PRUNE_INTERVAL_SECS", "1"),
        ("NGIT_PRUNE_GRACE_SECS", "0"),
    ]);
    let (project, tree) = (Project::new(&Author::new(1), "pruned"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let (head, state) = next_state(&mut client, &project, &tree, now()).await;
    let url = project.url(&server);
    tree.git(&["push", "-q", &url, "main"]);
    let junk = tree.commit_noise("junk", 7, 100_000);
    let name = format!("refs/nostr/{}", "ab".repeat(32));
    tree.git(&["push", "-q", &url, &format!("{junk}:{name}")]);
    let dir = directory(&server, &project);
    eventually("the junk goes", || async {
        missing(&dir, &[&junk]) == [junk.clone()]
    })
    .await;
    assert!(missing(&dir, &[&head]).is_empty());
    assert!(served(&mut client, &state).await);
    assert_eq!(WorkTree::clone_of(&url, &[]).head(), head);
}
