//! How the server stands, as JSON over HTTP and as a table for people.

use std::io::{Read as _, Write as _};

use testkit::grasp::DOMAIN;
use testkit::{Client, GitFault, GitHost, Project, Rogue, Value, WorkTree, json, now};

use crate::hosted::{await_served, grasp, grasp_with, held};
use crate::support::{author, eventually, get, metric, relay, run, start};

fn told(body: &str) -> Value {
    serde_json::from_str(body).expect("a status is JSON")
}

#[test]
fn the_status_is_told_to_pages_of_any_origin() {
    let server = relay();
    let answer = get(server.addr(), "/api/status");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    let status = told(&answer.body);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert!(status["uptime_secs"].is_u64(), "{status}");
    assert!(status["held"].is_object(), "{status}");
    let longest = &status["machine"]["longest_turn_ms"];
    assert!(longest.is_u64(), "{status}");
    assert_eq!(status["sync"]["relays_tracked"], 0);
    assert_eq!(status["sync"]["relays"], json!([]));
    let hunt = &status["hunt"];
    assert_eq!(hunt["enabled"], true, "{status}");
    for list in ["held", "repositories", "domains"] {
        assert!(hunt[list].is_array(), "{list}: {status}");
    }
}

#[test]
fn an_operator_may_keep_it_private() {
    let server = start(&[("NGIT_STATUS_ENABLED", "false")]);
    for path in [
        "/api/status",
        "/status",
        "/status/details",
        "/status/events",
    ] {
        assert_eq!(get(server.addr(), path).status, 404, "{path}");
    }
    assert!(!get(server.addr(), "/").body.contains("/status"));
    let address = server.addr().to_string();
    let env = [("NGIT_BIND_ADDRESS", address.as_str())];
    let ran = run(&["status"], &env, server.data_dir());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("NGIT_STATUS_ENABLED"), "{}", ran.stderr);
}

#[test]
fn the_command_asks_the_running_server() {
    let server = relay();
    let address = format!("0.0.0.0:{}", server.addr().port());
    let env = [("NGIT_BIND_ADDRESS", address.as_str())];
    let ran = run(&["status"], &env, server.data_dir());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("0 relays known"), "{}", ran.stdout);
    assert!(ran.stdout.contains("longest decision"), "{}", ran.stdout);
    let ran = run(&["status", "--json"], &env, server.data_dir());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(told(&ran.stdout)["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_server_that_is_not_well_is_a_failure() {
    let server = start(&[("NGIT_MIN_FREE_BYTES", "1048576GiB")]);
    let address = server.addr().to_string();
    let env = [("NGIT_BIND_ADDRESS", address.as_str())];
    let ran = run(&["status"], &env, server.data_dir());
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.starts_with("Look here: "), "{}", ran.stdout);
    assert_eq!(ran.stderr, "");
    let ran = run(&["status", "--json"], &env, server.data_dir());
    assert_eq!(ran.code, Some(1));
    assert_eq!(told(&ran.stdout)["verdict"]["well"], false);
}

/// Where there is a token, being on this machine is not enough.
#[test]
fn the_command_shows_the_token_or_that_it_can_read_the_key() {
    let token = ("NGIT_STATUS_TOKEN", "correct horse battery");
    let server = start(&[token, ("NGIT_SYNC_ENABLED", "true")]);
    let elsewhere = tempfile::tempdir().unwrap();
    let address = server.addr().to_string();
    let bind = ("NGIT_BIND_ADDRESS", address.as_str());
    let sees_all = |env: &[(&str, &str)], dir: &std::path::Path| {
        let ran = run(&["status"], env, dir);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout.contains("RELAY  STATE")
    };
    assert!(sees_all(&[bind, token], elsewhere.path()));
    assert!(sees_all(&[bind], server.data_dir()));
    assert!(!sees_all(&[bind], elsewhere.path()));
}

#[test]
fn another_web_server_is_not_taken_for_ours() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in other.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.0 404 Not Found\r\n\r\n<html>nginx</html>");
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let ran = run(&["status"], &[("NGIT_BIND_ADDRESS", &address)], dir.path());
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("is not ngit-grasp"), "{}", ran.stderr);
    assert!(
        !ran.stderr.contains("NGIT_STATUS_ENABLED"),
        "{}",
        ran.stderr
    );
}

#[test]
fn without_a_server_the_command_says_so() {
    let mut server = start(&[]);
    let address = server.addr().to_string();
    server.terminate();
    let env = [("NGIT_BIND_ADDRESS", address.as_str())];
    let ran = run(&["status"], &env, server.data_dir());
    assert_eq!(ran.code, Some(1));
    let expected = format!("no server answers at http://{address}");
    assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_connected_is_shown_everywhere() {
    let other = Rogue::honest().await;
    let url = other.ws_url();
    let server = start(&[
        ("NGIT_SYNC_ENABLED", "true"),
        ("NGIT_SYNC_BOOTSTRAP_RELAY_URL", &url),
    ]);
    let shown = || async {
        let status = told(&get(server.addr(), "/api/status").body);
        let relay = &status["sync"]["relays"][0];
        relay["url"] == url.as_str() && relay["state"] == "connected"
    };
    eventually("the relay is connected and nothing is missing", shown).await;
    other.wait("a request", |seen| seen.reqs() > 0).await;
    let address = server.addr().to_string();
    let env = [("NGIT_BIND_ADDRESS", address.as_str())];
    let ran = run(&["status"], &env, server.data_dir());
    let line = ran.stdout.lines().find(|line| line.starts_with(&url));
    let line = line.unwrap_or_else(|| panic!("{}", ran.stdout));
    assert!(
        line.contains("connected") && line.contains("healthy"),
        "{line}"
    );
    server.wait_for_log("connected");
    let connected = format!("ngit_sync_relay_connected{{relay=\"{url}\"}}");
    eventually("the metrics show it, too", || async {
        metric(&server, &connected) == 1.0
            && metric(&server, "ngit_sync_relays_tracked_total") == 1.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_waits_for_its_push_is_shown_with_what_it_needs() {
    let server = grasp();
    let project = Project::new(&author(), "waiting");
    let mut client = Client::connect(&server.ws_url()).await;
    held(&mut client, &project.announcement(now())).await;
    let commit = "0123456789012345678901234567890123456789";
    let state = project.state(&project.owner, now(), &[("refs/heads/main", commit)]);
    held(&mut client, &state).await;
    // What was told a moment ago may be told again.
    eventually("the state is shown", || async {
        let status = told(&get(server.addr(), "/api/status").body);
        let hunt = &status["hunt"];
        let events = hunt["held"].as_array().cloned().unwrap_or_default();
        let event = events.iter().find(|event| event["kind"] == "state");
        let repo = &hunt["repositories"][0];
        event.is_some_and(|event| {
            event["id"] == state.id.to_string()
                && event["objects"] == json!([commit])
                && event["repositories"][0] == repo["repository"]
        }) && repo["state"] == "waiting"
            && repo["next_secs"].as_u64().is_some_and(|secs| secs <= 180)
            && hunt["repositories_waiting"] == 1
            && hunt["events_held"] == 2
    })
    .await;
    let address = server.addr().to_string();
    let env = [("NGIT_BIND_ADDRESS", address.as_str())];
    let ran = run(&["status"], &env, server.data_dir());
    assert!(ran.stdout.contains("1 repositories lack"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("git data (1 objects)"),
        "{}",
        ran.stdout
    );
    eventually("the metrics show it, too", || async {
        metric(&server, "ngit_purgatory_sync_queue_size") == 1.0
    })
    .await;
}

/// A git server that the operator knows fails at first, and has the data then.
#[tokio::test(flavor = "multi_thread")]
async fn whom_data_was_looked_for_at_and_why_it_did_not_come_is_shown() {
    let host = GitHost::start(&[GitFault::Status(500)]).await;
    let domain = host.addr().to_string();
    let server = grasp_with(&[
        ("NGIT_HUNT_TRUSTED_DOMAINS", &domain),
        ("NGIT_HUNT_USER_DELAY_SECS", "0"),
        ("NGIT_HUNT_BASE_BACKOFF_SECS", "1"),
        ("NGIT_HUNT_MAX_BACKOFF_SECS", "1"),
        ("NGIT_HUNT_BASE_REST_SECS", "1"),
        ("NGIT_HUNT_MAX_REST_SECS", "1"),
    ]);
    let (project, tree) = (Project::new(&author(), "elsewhere"), WorkTree::new());
    let commit = tree.commit("README", b"elsewhere");
    let mut client = Client::connect(&server.ws_url()).await;
    let hosts = [DOMAIN.to_owned(), domain.clone()];
    held(&mut client, &project.announcement_at(now(), &hosts, &[])).await;
    let state = project.state(&project.owner, now(), &[("refs/heads/main", &commit)]);
    held(&mut client, &state).await;
    let name = format!("{}/elsewhere.git", project.owner.npub());
    eventually("the server and its failure are shown", || async {
        let status = told(&get(server.addr(), "/api/status").body);
        let repo = &status["hunt"]["repositories"][0];
        let tried = &repo["servers"][0];
        let health = &status["hunt"]["domains"][0];
        tried["url"] == host.url(&name)
            && tried["last"]["end"] == "failed"
            && repo["missing"] == 1
            && health["domain"] == domain.as_str()
            && health["failures"]
                .as_u64()
                .is_some_and(|failures| failures > 0)
    })
    .await;
    server.wait_for_log("Failed to fetch OIDs");
    host.publish(&name, &tree, &["main:refs/heads/main"]);
    host.behave(&[]);
    await_served(&mut client, &state, true, "its data is there now").await;
    eventually("the metrics tell the story", || async {
        let failed = metric(&server, r#"ngit_hunt_fetches_total{end="failed"}"#);
        let requests = format!("ngit_purgatory_domain_requests_total{{domain=\"{domain}\"}}");
        failed >= 1.0
            && metric(&server, &requests) > failed
            && metric(&server, "ngit_purgatory_sync_oids_fetched_total") == 1.0
            && metric(&server, "ngit_purgatory_sync_queue_size") == 0.0
    })
    .await;
    server.wait_for_log("removed from sync queue");
}
