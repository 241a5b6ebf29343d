//! What the commands do that need no server: settings files, completions, the man page.

use std::process::Stdio;

use testkit::{Client, Value, json, now};

use crate::support::{accept, author, bin, run, script, start};

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
fn init_throws_nothing_away() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(".env");
    std::fs::write(&file, "NGIT_DOMIAN=git.example.com\n").unwrap();
    let made = run(&["init", "--force", "--defaults"], &[], dir.path());
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let warning = "warning: NGIT_DOMIAN (.env): no setting of this version, ignored";
    assert!(made.stderr.contains(warning), "{}", made.stderr);
    assert!(made.stderr.contains("kept as .env.old"), "{}", made.stderr);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\n#NGIT_DOMIAN=git.example.com\n"), "{text}");
}

#[test]
fn a_settings_file_that_was_named_must_be_there() {
    let dir = tempfile::tempdir().unwrap();
    let shown = run(&["--env-file", "no.env", "config"], &[], dir.path());
    assert_eq!(shown.code, Some(2));
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
    let key = [("NGIT_RELAY_OWNER_NSEC", "nsec1typo")];
    for command in ["config", "doctor", "status"] {
        assert_eq!(run(&[command], &key, dir.path()).code, Some(2), "{command}");
    }
    assert_eq!(run(&[], &key, dir.path()).code, Some(2));
    assert_eq!(code(&["status", "--bind-address", "127.0.0.1:1"]), Some(1));
}

/// Without it no push could be taken, and nobody would know why.
#[test]
fn without_a_git_that_is_new_enough_the_server_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let bins = dir.path().to_str().unwrap();
    let start = || run(&[], &[("PATH", bins)], dir.path());
    let missing = start();
    assert_eq!(missing.code, Some(1), "{}", missing.stderr);
    assert!(
        missing.stderr.contains("install git 2.39"),
        "{}",
        missing.stderr
    );
    script(dir.path(), "git", "echo git version 2.38.9");
    let old = start();
    assert_eq!(old.code, Some(1), "{}", old.stderr);
    let said = "git 2.38.9 is too old: install git 2.39 or newer";
    assert!(old.stderr.contains(said), "{}", old.stderr);
    let examined = run(&["doctor"], &[("PATH", bins)], dir.path());
    let line = format!("FAIL  git  {said}");
    let tidy = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        tidy(&examined.stdout).contains(&tidy(&line)),
        "{}",
        examined.stdout
    );
    assert!(!dir.path().join("relay").exists(), "nothing was made");
}

#[test]
fn an_error_names_the_path_and_what_was_tried() {
    let dir = tempfile::tempdir().unwrap();
    let env = [("NGIT_RELAY_DATA_PATH", "/dev/null")];
    let failed = run(&["import", "/dev/null"], &env, dir.path());
    assert_eq!(failed.code, Some(1));
    let said = "ngit-grasp: cannot make or use the directory /dev/null: ";
    assert!(failed.stderr.contains(said), "{}", failed.stderr);
}

#[test]
fn completions_and_the_man_page_are_printed() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell], &[], dir.path());
        assert_eq!(script.code, Some(0), "{}", script.stderr);
        assert!(script.stdout.contains("ngit-grasp"), "{shell}");
    }
    assert_eq!(run(&["completions", "tcsh"], &[], dir.path()).code, Some(2));
    let page = run(&["man"], &[], dir.path());
    assert!(page.stdout.starts_with(".TH NGIT"), "{}", page.stdout);
}

#[test]
fn the_short_help_is_short_and_the_long_one_has_everything() {
    let dir = tempfile::tempdir().unwrap();
    let short = run(&["-h"], &[], dir.path()).stdout;
    let long = run(&["--help"], &[], dir.path()).stdout;
    assert!(short.contains("--domain") && !short.contains("--max-filters"));
    assert!(short.lines().count() < 100, "{short}");
    assert!(long.contains("--max-filters"), "{long}");
}

#[test]
fn the_help_of_a_command_is_about_that_command() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &["doctor", "--help"],
        &["doctor", "-h"],
        &["help", "doctor"],
    ] {
        let help = run(args, &[], dir.path()).stdout;
        assert!(
            help.contains("Usage: ngit-grasp doctor [OPTIONS]"),
            "{help}"
        );
        assert!(
            help.contains("--json") && help.contains("--env-file"),
            "{help}"
        );
        assert!(!help.contains("--domain"), "{help}");
        assert!(help.lines().count() < 20, "{help}");
    }
    let with = run(&["config", "--relay-name", "mine"], &[], dir.path());
    assert!(with.stdout.contains("flag         mine"), "{}", with.stdout);
}

#[test]
fn programs_can_read_what_is_hosted_and_whether_it_is_well() {
    let server = start(&[]);
    let repos = run(&["repos", "--json"], &[], server.data_dir());
    let repos: Value = repos.stdout.parse().unwrap();
    assert_eq!(repos["repositories"], json!([]));
    let check = run(&["check", "--json"], &[], server.data_dir());
    assert_eq!(check.code, Some(0), "{}", check.stderr);
    let check: Value = check.stdout.parse().unwrap();
    assert_eq!(check["ok"], true);
    assert_eq!(check["problems"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_names_an_event_that_the_disk_has_changed() {
    let mut server = start(&[]);
    let event = author().event(10317, now(), &[&["g", "wss://one.example"]], "");
    let mut client = Client::connect(&server.ws_url()).await;
    accept(&mut client, &event).await;
    drop(client);
    assert!(server.terminate().success());
    let well = run(&["check"], &[], server.data_dir());
    assert_eq!(well.code, Some(0), "{}", well.stderr);
    assert!(
        well.stderr.contains("1 event verified, 0 damaged"),
        "{}",
        well.stderr
    );

    let path = server.data_dir().join("relay/data.mdb");
    let mut data = std::fs::read(&path).unwrap();
    let (from, to) = (b"wss://one.example", b"wss://two.example");
    let at = data.windows(from.len()).position(|bytes| bytes == from);
    let at = at.expect("the event is in the file");
    data[at..at + to.len()].copy_from_slice(to);
    std::fs::write(&path, data).unwrap();
    let found = run(&["check"], &[], server.data_dir());
    assert_eq!(found.code, Some(1), "{}", found.stderr);
    let named = format!("event {} of kind 10317: its id is not", event.id);
    assert!(found.stderr.contains(&named), "{}", found.stderr);
    let told = run(&["check", "--json"], &[], server.data_dir());
    assert_eq!(told.code, Some(1), "{}", told.stderr);
    let told: Value = told.stdout.parse().unwrap();
    assert_eq!((&told["ok"], &told["events"]), (&json!(false), &json!(1)));
    assert_eq!(told["damaged_events"][0]["id"], event.id.to_string());
    assert_eq!(told["damaged_events"][0]["kind"], 10317);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut command = std::process::Command::new(bin());
    let command = command
        .arg("man")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert_eq!(ended.status.code(), Some(0));
}
