//! Moving data in and out by the command line, beside a server that runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use grasp_core::Event;
use testkit::random::Events;
use testkit::{Author, Client, Project, Server, Value, json, now};

use crate::hosted::GRASP;
use crate::support::{
    accept, author, by, client, eventually, ids, ids_of, run, sorted, start, stored, to_json,
};

/// Publishes a mixed world: notes, versions, deletions, requests to vanish.
async fn fill(server: &Server, seed: u64, count: usize) {
    let mut client = client(server).await;
    for event in Events::new(seed).signed().take(count) {
        client.publish(&event).await;
    }
}

/// Everything a server serves, each event as its text.
async fn everything(server: &Server) -> BTreeSet<String> {
    let mut client = client(server).await;
    let all = stored(&mut client, &[json!({})]).await;
    all.iter().map(Value::to_string).collect()
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().expect("UTF-8").to_owned()
}

const MANY: (&str, &str) = ("NGIT_MAX_QUERY_RESULTS", "100000");
const FREE: (&str, &str) = ("NGIT_EVENTS_PER_MINUTE_PER_KEY", "0");

#[tokio::test]
async fn an_export_beside_a_running_server_imports_to_the_same_set() {
    let source = start(&[MANY, FREE]);
    fill(&source, 3, 200).await;
    let wanted = everything(&source).await;
    assert!(wanted.len() > 20, "{} events", wanted.len());
    let file = path(source.data_dir(), "events.jsonl");
    let exported = run(&["export", &file], &[], source.data_dir());
    assert_eq!(exported.code, Some(0), "{}", exported.stderr);
    assert!(
        exported
            .stderr
            .contains(&format!("{} events", wanted.len()))
    );

    let to_stdout = run(&["export"], &[], source.data_dir());
    assert_eq!(to_stdout.stdout, fs::read_to_string(&file).unwrap());
    let again = run(&["export", &file], &[], source.data_dir());
    assert_eq!(
        again.code,
        Some(1),
        "a file that is there is not overwritten"
    );

    let mut target = start(&[MANY, FREE]);
    target.terminate();
    for new in [wanted.len(), 0] {
        let imported = run(&["import", &file], &[], target.data_dir());
        assert_eq!(imported.code, Some(0), "{}", imported.stderr);
        let count = format!("{new} events imported");
        assert!(imported.stderr.contains(&count), "{}", imported.stderr);
    }
    target.restart();
    assert_eq!(everything(&target).await, wanted);
}

#[tokio::test]
async fn an_import_reports_broken_lines_and_goes_on() {
    let mut server = start(&[]);
    server.terminate();
    let author = author();
    let (one, two) = (
        author.event(1, now(), &[], "one"),
        author.event(1, now(), &[&["-"]], "two, protected"),
    );
    let mut forged = to_json(&one);
    forged["content"] = json!("forged");
    let long = author.event(1, now(), &[], &"x".repeat(300_000));
    let forged = forged.to_string();
    let lines = [
        one.json().as_bytes(),
        b"not an event",
        b"",
        forged.as_bytes(),
        b"\xff\xfe",
        long.json().as_bytes(),
        one.json().as_bytes(),
        two.json().as_bytes(),
    ];
    let file = path(server.data_dir(), "broken.jsonl");
    fs::write(&file, lines.join(&b'\n')).unwrap();
    let imported = run(&["import", &file], &[], server.data_dir());
    assert_eq!(imported.code, Some(1));
    for line in ["line 2: ", "line 4: ", "line 5: ", "line 6: "] {
        assert!(imported.stderr.contains(line), "{line}{}", imported.stderr);
    }
    let summary = "2 events imported, 0 wait for git data, 1 were here already, 0 replaced or deleted, 4 refused";
    assert!(imported.stderr.contains(summary), "{}", imported.stderr);
    server.restart();
    let mut client = client(&server).await;
    let found = stored(&mut client, &[by(&author)]).await;
    assert_eq!(sorted(ids_of(&found)), sorted(ids(&[one, two])));
}

#[test]
fn an_import_of_a_file_that_is_not_there_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let refused = run(&["import", "typo.jsonl"], &[], dir.path());
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("typo.jsonl"), "{}", refused.stderr);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_import_beside_a_running_server_is_refused_in_clear_words() {
    let server = start(&[]);
    let file = path(server.data_dir(), "events.jsonl");
    fs::write(&file, "").unwrap();
    let refused = run(&["import", &file], &[], server.data_dir());
    assert_eq!(refused.code, Some(1));
    let last = refused.stderr.lines().last().expect("a line");
    assert!(last.contains("must be stopped"), "{last}");
    assert!(last.contains(&server.pid().to_string()), "{last}");
}

#[test]
fn transfers_need_events_on_disk_and_files_that_exist() {
    let dir = tempfile::tempdir().unwrap();
    let backup = path(dir.path(), "backup");
    let memory = [("NGIT_DATABASE_BACKEND", "memory")];
    for command in ["export", "backup", "import", "restore"] {
        let args: &[&str] = match command {
            "export" => &[command],
            _ => &[command, &backup],
        };
        let refused = run(args, &memory, dir.path());
        assert_eq!(refused.code, Some(1), "{command}");
        assert!(refused.stderr.contains("lmdb"), "{}", refused.stderr);
        let missing = run(args, &[], dir.path());
        assert_eq!(missing.code, Some(1), "{command}: {}", missing.stderr);
    }
}

/// Publishes until told to stop; returns what was acknowledged.
async fn write_on(
    url: String,
    author: Author,
    mut stop: tokio::sync::oneshot::Receiver<()>,
) -> Vec<Event> {
    let mut client = Client::connect(&url).await;
    let mut told = Vec::new();
    while stop.try_recv().is_err() {
        let event = author.event(1, now(), &[], &told.len().to_string());
        accept(&mut client, &event).await;
        told.push(event);
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_writes_restores_to_what_the_server_had() {
    let mut server = start(&[MANY, FREE]);
    let (author, before) = (author(), author());
    let mut first = client(&server).await;
    for n in 0..50 {
        accept(&mut first, &before.event(1, now(), &[], &n.to_string())).await;
    }
    let (stop, stopping) = tokio::sync::oneshot::channel();
    let writing = tokio::spawn(write_on(server.ws_url(), author.clone(), stopping));
    eventually("the writer is at work", async || {
        let mut client = client(&server).await;
        stored(&mut client, &[by(&author)]).await.len() > 5
    })
    .await;
    let backup = path(server.data_dir(), "backup");
    let made = run(&["backup", &backup], &[], server.data_dir());
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let _ = stop.send(());
    let told = writing.await.unwrap();
    let wanted = everything(&server).await;
    let again = run(&["backup", &backup], &[], server.data_dir());
    assert_eq!(again.code, Some(1), "a backup is not overwritten");

    let other = tempfile::tempdir().unwrap();
    let restored = run(&["restore", &backup], &[], other.path());
    assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    let copied = run(&["export"], &[], other.path()).stdout;
    let copied: Vec<Value> = copied
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(copied.len() >= 50);
    let copied_ids: BTreeSet<String> = ids_of(&copied).into_iter().collect();
    // The copy is one moment of the server: of one writer's events, the first so many.
    let mine: Vec<bool> = told
        .iter()
        .map(|event| copied_ids.contains(&event.id.to_string()))
        .collect();
    let cut = mine.iter().filter(|there| **there).count();
    assert!(
        cut > 5 && mine[..cut].iter().all(|there| *there),
        "{mine:?}"
    );
    let texts: BTreeSet<String> = copied.iter().map(Value::to_string).collect();
    assert!(texts.is_subset(&wanted));

    server.terminate();
    let whole = path(server.data_dir(), "whole");
    assert_eq!(
        run(&["backup", &whole], &[], server.data_dir()).code,
        Some(0)
    );
    fs::remove_dir_all(server.data_dir().join("relay")).unwrap();
    let restored = run(&["restore", &whole], &[], server.data_dir());
    assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    server.restart();
    assert_eq!(everything(&server).await, wanted);
    assert!(!server.log().contains("made a new owner key"));
}

#[tokio::test]
async fn a_restore_over_existing_events_is_refused() {
    let mut server = start(&[]);
    let author = author();
    let mut client = client(&server).await;
    accept(&mut client, &author.event(1, now(), &[], "")).await;
    let backup = path(server.data_dir(), "backup");
    assert_eq!(
        run(&["backup", &backup], &[], server.data_dir()).code,
        Some(0)
    );
    let running = run(&["restore", &backup], &[], server.data_dir());
    assert_eq!(running.code, Some(1));
    assert!(
        running.stderr.contains("must be stopped"),
        "{}",
        running.stderr
    );
    accept(&mut client, &author.event(1, now(), &[], "since")).await;
    server.terminate();
    let occupied = run(&["restore", &backup], &[], server.data_dir());
    assert_eq!(occupied.code, Some(1));
    assert!(
        occupied.stderr.contains("already holds"),
        "{}",
        occupied.stderr
    );
    server.restart();
    let mut client = self::client(&server).await;
    assert_eq!(stored(&mut client, &[by(&author)]).await.len(), 2);
}

#[test]
fn a_damaged_backup_is_not_restored() {
    let mut server = start(&[]);
    server.terminate();
    let backup = path(server.data_dir(), "backup");
    assert_eq!(
        run(&["backup", &backup], &[], server.data_dir()).code,
        Some(0)
    );
    let data = server.data_dir().join("backup/events.mdb");
    let mut bytes = fs::read(&data).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&data, bytes).unwrap();
    let other = tempfile::tempdir().unwrap();
    let refused = run(&["restore", &backup], &[], other.path());
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("MANIFEST"), "{}", refused.stderr);
    fs::remove_file(server.data_dir().join("backup/MANIFEST")).unwrap();
    assert_eq!(run(&["restore", &backup], &[], other.path()).code, Some(1));
    let left = fs::read_dir(other.path()).unwrap().count();
    assert_eq!(left, 0, "not even the key");
}

/// A server that was started once has no events, and a key of its own.
#[test]
fn a_restore_into_another_server_says_whose_key_stays() {
    let (mut source, mut target) = (start(&[]), start(&[]));
    source.terminate();
    target.terminate();
    let backup = path(source.data_dir(), "backup");
    let made = run(&["backup", &backup, "--json"], &[], source.data_dir());
    let made: Value = made.stdout.parse().unwrap();
    assert_eq!((&made["events"], &made["held"]), (&json!(0), &json!(0)));
    let restored = run(&["restore", &backup], &[], target.data_dir());
    assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    let warning = restored.stderr.lines().find(|of| of.contains("WARNING"));
    let npub = |server: &Server| fs::read_to_string(server.data_dir().join("relay/owner.npub"));
    let warning = warning.unwrap_or_else(|| panic!("{}", restored.stderr));
    assert!(warning.contains(&format!("stays {}", npub(&target).unwrap().trim())));
    assert!(warning.contains(&format!("is of {}", npub(&source).unwrap().trim())));
    target.restart();
}

#[test]
fn an_import_takes_events_that_stand_before_what_they_belong_to() {
    let ada = author();
    let project = Project::new(&ada, "hello");
    let tip = "1".repeat(40);
    let announcement = project.announcement(now());
    let state = project.state(&ada, now(), &[("refs/heads/main", &tip)]);
    let (a, none) = (project.address(), "0".repeat(64));
    let issue = author().event(1621, now(), &[&["a", &a]], "it does not work");
    let comment = author().event(1111, now(), &[&["E", &issue.id.to_string()]], "nor here");
    let stranger = author().event(1111, now(), &[&["E", &none]], "about nothing");
    let events = [&comment, &issue, &stranger, &state, &announcement];
    let lines: String = events
        .iter()
        .map(|event| format!("{}\n", to_json(event)))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let file = path(dir.path(), "events.jsonl");
    fs::write(&file, lines).unwrap();
    let env = GRASP;
    let imported = run(&["import", &file], env, dir.path());
    assert_eq!(imported.code, Some(1), "{}", imported.stderr);
    let summary = "0 events imported, 4 wait for git data, 0 were here already, 0 replaced or deleted, 1 refused";
    assert!(imported.stderr.contains(summary), "{}", imported.stderr);
    assert!(
        imported.stderr.contains("line 3: restricted: "),
        "{}",
        imported.stderr
    );
    // They were acknowledged, so they go where the others go.
    let exported = run(&["export"], env, dir.path());
    let said = "4 events exported, 4 of them wait for git data";
    assert!(exported.stderr.contains(said), "{}", exported.stderr);
    let made = run(&["backup", &path(dir.path(), "backup")], env, dir.path());
    let said = "0 events and 4 that wait for git data, ";
    assert!(made.stderr.contains(said), "{}", made.stderr);
    let (again, copy) = (tempfile::tempdir().unwrap(), path(dir.path(), "copy.jsonl"));
    fs::write(&copy, exported.stdout).unwrap();
    let imported = run(&["import", "--json", &copy], env, again.path());
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    let expected = json!({"imported": 0, "held": 4, "known": 0, "superseded": 0, "refused": 0});
    assert_eq!(imported.stdout.parse::<Value>().unwrap(), expected);
}
