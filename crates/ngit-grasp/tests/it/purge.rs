//! What the operator does not want here goes, and nothing else.

use testkit::{Author, Project, WorkTree, json, now};

use crate::hosted::{grasp, held, hosted, served};
use crate::support::{accept, author, get, run};

#[tokio::test(flavor = "multi_thread")]
async fn what_the_lists_refuse_is_removed_with_all_that_is_said_about_it() {
    let mut server = grasp();
    let (bad, good, user) = (Author::new(71), Author::new(72), author());
    let (unwanted, wanted) = (Project::new(&bad, "one"), Project::new(&good, "two"));
    let (tree, other) = (WorkTree::new(), WorkTree::new());
    let mut client = hosted(&server, &unwanted, &tree).await;
    hosted(&server, &wanted, &other).await;
    let (one, two) = (unwanted.address(), wanted.address());
    let issue = user.event(1621, now(), &[&["a", &one]], "of the unwanted");
    let root = issue.id.to_string();
    let comment = user.event(1111, now(), &[&["E", &root], &["e", &root]], "on it");
    let kept = user.event(1621, now(), &[&["a", &two]], "of the wanted");
    let both = user.event(1621, now(), &[&["a", &one], &["a", &two]], "of both");
    for event in [&issue, &comment, &kept, &both] {
        accept(&mut client, event).await;
    }
    let other_root = kept.id.to_string();
    let compares = user.event(1111, now(), &[&["E", &other_root], &["e", &root]], "both");
    accept(&mut client, &compares).await;
    let waiting = unwanted.state(&bad, now(), &[("refs/heads/main", &"1".repeat(40))]);
    held(&mut client, &waiting).await;
    drop(client);
    assert!(server.terminate().success());

    let npub = bad.pubkey().npub();
    let list = [("NGIT_REPOSITORY_BLACKLIST", npub.as_str())];
    let dir = server.data_dir();
    let shown = run(&["purge"], &list, dir);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    assert!(
        shown
            .stdout
            .contains(&format!("{}/one", bad.pubkey().npub()))
    );
    let expected = "to be removed with --yes: 1 repository, 4 events and 1 held event";
    assert!(shown.stdout.contains(expected), "{}", shown.stdout);
    let removed = run(&["purge", "--yes", "--json"], &list, dir);
    let told: testkit::Value = serde_json::from_str(&removed.stdout).expect("JSON");
    assert_eq!(
        (&told["events"], &told["removed"]),
        (&json!(4), &json!(true))
    );
    let again = run(&["purge", "--json"], &list, dir);
    let told: testkit::Value = serde_json::from_str(&again.stdout).expect("JSON");
    assert_eq!((&told["events"], &told["held"]), (&json!(0), &json!(0)));
    assert_eq!(told["repositories"], json!([]));

    server.set("NGIT_REPOSITORY_BLACKLIST", &npub);
    server.restart();
    let mut client = testkit::Client::connect(&server.ws_url()).await;
    assert!(!served(&mut client, &issue).await && !served(&mut client, &comment).await);
    assert!(served(&mut client, &kept).await && served(&mut client, &both).await);
    assert!(
        served(&mut client, &compares).await,
        "it speaks of another, too"
    );
    let path = |project: &Project| {
        let url = project.url(&server);
        url.strip_prefix(&server.http_url())
            .expect("a path")
            .to_owned()
    };
    assert_eq!(get(server.addr(), &path(&unwanted)).status, 404);
    assert_eq!(get(server.addr(), &path(&wanted)).status, 200);
    let (taken, why) = client.publish(&unwanted.announcement(now())).await;
    assert!(!taken && why.starts_with("blocked"), "{why}");
}
