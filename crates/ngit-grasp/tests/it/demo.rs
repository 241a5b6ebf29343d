//! The first session of the README, with the files that it names.

use std::path::Path;
use std::process::Command;

use testkit::{Client, json};

use crate::support::start;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/demo");

#[tokio::test]
async fn the_first_session_of_the_readme_works() {
    let server = start(&[
        ("NGIT_DOMAIN", "localhost:7334"),
        ("NGIT_ACCEPT_UNRELATED_EVENTS", "false"),
    ]);
    let mut client = Client::connect(&server.ws_url()).await;
    for file in ["announcement.json", "state.json"] {
        let text = std::fs::read_to_string(Path::new(DEMO).join(file)).expect(file);
        client.send_text(text.trim()).await;
        let answer = client.expect("OK").await;
        assert_eq!(answer[2], true, "{answer}");
        assert!(
            answer[3]
                .as_str()
                .expect("a reason")
                .starts_with("purgatory:"),
            "{answer}"
        );
    }
    let dir = tempfile::tempdir().expect("a directory");
    let made = Command::new(format!("{DEMO}/commit.sh"))
        .current_dir(dir.path())
        .status();
    assert!(made.expect("the script runs").success());
    let npub = "npub1u7ztrkqg3rycy4uflrmsknu7hmt76tl03ffp5z55nfgysf6jn7cs8zm39x";
    let url = format!("{}/{npub}/hello.git", server.http_url());
    let hello = dir.path().join("hello");
    let refused = testkit::git::try_git(&hello, &["push", &url, "main:other"]);
    assert!(
        refused.stderr.contains("remote: the state 022f9ad8"),
        "{}",
        refused.stderr
    );
    let pushed = testkit::git::try_git(&hello, &["push", "-q", &url, "main"]);
    assert!(pushed.ok, "{}", pushed.stderr);
    let found = client
        .request("hello", &[json!({"kinds": [30617, 30618]})])
        .await;
    assert_eq!(found.len(), 2);
}
