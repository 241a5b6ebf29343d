//! What clients in use ask for, byte for byte where stock git would ask otherwise.

use testkit::{Author, Project, Value, WorkTree, json, now};

use crate::hosted::{
    await_served, grasp, grasp_with, held, hosted, path, pkt, post, remote_refs, served,
};
use crate::nips;

/// As a page in a browser asks over protocol 0.
const BROWSER: &str =
    "multi_ack_detailed side-band-64k shallow object-format=sha1 filter agent=page";
/// The head of a pack of one object.
const ONE: &str = "PACK\0\0\0\u{2}\0\0\0\u{1}";

fn wants(id: &str, more: &[&str]) -> Vec<u8> {
    let mut body = pkt(&format!("want {id} {BROWSER}\n"));
    for line in more {
        body.extend(pkt(&format!("{line}\n")));
    }
    body.extend_from_slice(b"0000");
    body.extend(pkt("done\n"));
    body
}

#[tokio::test]
async fn a_page_gets_one_commit_one_folder_or_one_file() {
    let server = grasp();
    let (alice, tree) = (Author::new(1), WorkTree::new());
    let project = Project::new(&alice, "browsed");
    let mut client = hosted(&server, &project, &tree).await;
    let second = tree.commit("src", b"second");
    let state = project.state(&alice, now(), &[("refs/heads/main", &second)]);
    held(&mut client, &state).await;
    tree.git(&["push", "-q", &project.url(&server), "main"]);

    let to = format!("{}/git-upload-pack", path(&server, &project));
    let ask = |id: &str, more: &[&str]| {
        let kind = [("Content-Type", "application/x-git-upload-pack-request")];
        post(server.addr(), &to, &kind, &wants(id, more))
    };
    // The newest commit without its files, and nothing before it.
    let reply = ask(&second, &["deepen 1", "filter tree:0"]);
    assert_eq!(reply.status, 200);
    assert!(reply.body.contains(&format!("shallow {second}")));
    assert!(reply.body.contains("NAK") && reply.body.contains(ONE));
    assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
    // An older commit, its folder, one file: none of them the tip of a ref.
    for name in ["HEAD~1", "HEAD~1^{tree}", "HEAD:src"] {
        let reply = ask(&tree.rev(name), &["deepen 1", "filter tree:0"]);
        assert!(reply.body.contains(ONE), "{name}: {}", reply.body);
    }
    // What is not here is said, and the page need not come back.
    let absent = "5".repeat(40);
    let reply = ask(&absent, &["deepen 1"]);
    assert!(reply.body.contains("ERR"), "{}", reply.body);
}

#[tokio::test]
async fn ten_thousand_refs_come_in_one_state_where_the_operator_allows_it() {
    let server = grasp_with(&[
        ("NGIT_MAX_EVENT_TAGS", "20000"),
        ("NGIT_MAX_EVENT_BYTES", "1000KiB"),
        ("NGIT_MAX_MESSAGE_BYTES", "1100KiB"),
    ]);
    let (alice, tree) = (Author::new(1), WorkTree::new());
    let project = Project::new(&alice, "wide");
    let mut client = hosted(&server, &project, &tree).await;
    let head = tree.head();
    let names: Vec<String> = (0..9_999).map(|n| format!("refs/tags/v{n}")).collect();
    let mut refs = vec![("refs/heads/main", head.as_str())];
    refs.extend(names.iter().map(|name| (name.as_str(), head.as_str())));
    let state = project.state(&alice, now(), &refs);
    // All objects are here: it is applied as it comes.
    assert!(client.publish(&state).await.0);
    await_served(&mut client, &state, true, "applied").await;
    let listed = remote_refs(&project.url(&server));
    assert_eq!(listed.len(), 10_001, "and HEAD");

    // One more is more than a repository may have: it waits, and moves nothing.
    refs.push(("refs/tags/one-more", &head));
    let wider = project.state(&alice, now() + 1, &refs);
    client.publish(&wider).await;
    assert!(!served(&mut client, &wider).await);
    assert_eq!(remote_refs(&project.url(&server)), listed);
}

#[test]
fn what_is_accepted_is_told_as_it_is_set() {
    let npub = Author::new(1).npub();
    let document = |env: &[(&str, &str)]| nips::document(&grasp_with(env));
    let told = |document: &Value| {
        let text = document["repo_acceptance_criteria"].as_str();
        text.expect("told").to_owned()
    };
    let open = document(&[]);
    assert!(open.get("curation").is_none(), "{open}");
    assert!(!told(&open).contains("operator"));
    let excluding = document(&[("NGIT_REPOSITORY_BLACKLIST", &npub)]);
    assert!(excluding.get("curation").is_none());
    assert!(told(&excluding).contains("unless the operator has excluded them"));
    let curated = document(&[("NGIT_REPOSITORY_WHITELIST", &npub)]);
    assert!(curated["curation"].is_string());
    assert!(told(&curated).contains("on the operator's list"));
    for document in [open, excluding, curated] {
        assert_eq!(
            document["supported_grasps"],
            json!(["GRASP-01", "GRASP-02"])
        );
    }
}
