//! `ngit-grasp doctor` beside a real server, a stopped one, and somebody else's.

use std::path::Path;

use testkit::{Server, Value};

use crate::support::{Ran, run, start};

fn doctor(server: &Server, dir: &Path) -> (Ran, Value) {
    let address = server.addr().to_string();
    let env = [("NGIT_BIND_ADDRESS", address.as_str())];
    let ran = run(&["doctor", "--json"], &env, dir);
    let report = ran.stdout.parse().unwrap();
    (ran, report)
}

/// What was said about one thing.
fn finding<'r>(report: &'r Value, about: &str) -> &'r Value {
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["about"] == about);
    found.unwrap_or_else(|| panic!("nothing about {about}: {report:#}"))
}

#[test]
fn a_server_that_is_well_gets_no_complaint_but_of_its_name() {
    let server = start(&[]);
    let (ran, report) = doctor(&server, server.data_dir());
    assert_eq!(ran.code, Some(0), "{report:#}");
    for about in [
        "git",
        "git data",
        "relay data",
        "owner key",
        "server",
        "dns",
        "address",
        "websocket",
    ] {
        assert_eq!(finding(&report, about)["verdict"], "ok", "{report:#}");
    }
    assert_eq!(finding(&report, "domain")["verdict"], "warn");
    assert_eq!(report["ok"], true);
}

#[test]
fn a_server_that_is_down_or_another_one_fails() {
    let mut server = start(&[]);
    let other = start(&[]);
    let (ran, report) = doctor(&server, other.data_dir());
    assert_eq!(ran.code, Some(1));
    let address = finding(&report, "address");
    assert!(
        address["found"]
            .as_str()
            .unwrap()
            .contains("another server"),
        "{address}"
    );
    server.terminate();
    let (ran, report) = doctor(&server, server.data_dir());
    assert_eq!(ran.code, Some(1));
    assert_eq!(report["ok"], false);
    assert_eq!(finding(&report, "server")["verdict"], "warn");
    let address = finding(&report, "address");
    assert_eq!(address["verdict"], "fail");
    assert_eq!(address["advice"], "start the server", "no word of proxies");
}

#[test]
fn what_others_can_read_or_nobody_can_resolve_fails_with_advice() {
    let server = start(&[]);
    let key = server.data_dir().join("relay/owner.nsec");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&key, open).unwrap();
    let address = server.addr().to_string();
    let env = [
        ("NGIT_BIND_ADDRESS", address.as_str()),
        ("NGIT_DOMAIN", "no-such-host.invalid"),
    ];
    let ran = run(&["doctor"], &env, server.data_dir());
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    for text in [
        "FAIL  owner key",
        "→ chmod 600 ",
        "FAIL  dns",
        "warn  proxy",
        "NGIT_TRUSTED_PROXIES=127.0.0.1",
    ] {
        assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
    }
    assert!(!ran.stdout.contains('\u{1b}'), "no colours in a pipe");
}

#[test]
fn a_settings_file_with_a_secret_is_for_its_owner_only() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("settings.env");
    let said = |text: &str, mode| {
        std::fs::write(&file, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&file, mode).unwrap();
        run(&["doctor", "--env-file", "settings.env"], &[], dir.path()).stdout
    };
    let secret = "NGIT_STATUS_TOKEN=correct-horse-battery\n";
    let fails = |text: &str| text.contains("FAIL  settings") && text.contains("chmod 600 ");
    assert!(fails(&said(secret, 0o640)), "{}", said(secret, 0o640));
    assert!(!fails(&said(secret, 0o600)));
    assert!(!fails(&said("NGIT_RELAY_NAME=mine\n", 0o644)));
}
