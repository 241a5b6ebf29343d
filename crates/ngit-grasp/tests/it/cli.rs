//! What the commands do that need no server: settings files, completions, the man page.

use crate::support::run;

#[test]
fn init_writes_a_file_that_a_server_takes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("etc/ngit-grasp.env");
    let file = file.to_str().unwrap();
    let made = run(
        &["init", "--env-file", file, "--domain", "git.example.com"],
        &[],
        dir.path(),
    );
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert!(made.stderr.contains("doctor"), "{}", made.stderr);
    let again = run(&["init", "--env-file", file], &[], dir.path());
    assert_eq!(again.code, Some(1), "{}", again.stderr);
    assert!(again.stderr.contains("--force"), "{}", again.stderr);
    let shown = run(&["config", "--env-file", file], &[], dir.path());
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    let line = shown
        .stdout
        .lines()
        .find(|line| line.starts_with("NGIT_DOMAIN "));
    let line = line.unwrap();
    assert!(
        line.contains(".env") && line.contains("git.example.com"),
        "{line}"
    );
}

#[test]
fn a_settings_file_that_was_named_must_be_there() {
    let dir = tempfile::tempdir().unwrap();
    let shown = run(&["--env-file", "no.env", "config"], &[], dir.path());
    assert_eq!(shown.code, Some(1));
    assert_eq!(shown.stderr, "ngit-grasp: no.env is not there\n");
}

#[test]
fn wrong_settings_and_wrong_commands_are_told_apart_from_failures() {
    let dir = tempfile::tempdir().unwrap();
    let code = |args: &[&str]| run(args, &[], dir.path()).code;
    assert_eq!(code(&["config"]), Some(0));
    assert_eq!(code(&["--domain", "https://a.example", "config"]), Some(2));
    assert_eq!(code(&["init", "--domain", "https://a.example"]), Some(2));
    assert_eq!(code(&["no-such-command"]), Some(2));
    assert_eq!(code(&["status", "--bind-address", "127.0.0.1:1"]), Some(1));
}
