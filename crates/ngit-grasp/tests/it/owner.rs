//! Commands of root on the data of a server that has a user of its own, as the packaged one has.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Author, Client, Project, Server, WorkTree, now};

use crate::hosted::{GRASP, await_served};
use crate::support::{bin, run, script, to_json};

/// `nobody`: no other file of these tests belongs to it.
const USER: u32 = 65534;

/// Whether this test can be two users at all.
fn can_switch(test: &str) -> bool {
    let tried = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(bin())
        .arg("--version")
        .output();
    let can = tried.is_ok_and(|tried| tried.status.success());
    if !can {
        eprintln!("skipped: {test} needs root, setpriv and a binary that everybody can run");
    }
    can
}

/// A server of that user, in a directory that belongs to it.
fn start_as_user(scripts: &Path) -> Server {
    let become_user = format!(
        "chown {USER}:{USER} .\n\
         exec setpriv --reuid={USER} --regid={USER} --clear-groups '{}'\n",
        bin().display()
    );
    Server::start(&script(scripts, "as-user.sh", &become_user), GRASP)
}

/// Everything below that does not belong to the user.
fn strange(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        if (meta.uid(), meta.gid()) != (USER, USER) {
            found.push(path.clone());
        }
        if meta.is_dir() {
            found.extend(strange(&path));
        }
    }
    found
}

/// Where the packaged server keeps its data: in a directory of its user, in one of root.
fn state_dir(private: &Path) -> PathBuf {
    fs::set_permissions(private, fs::Permissions::from_mode(0o700)).unwrap();
    let state = private.join("ngit-grasp");
    fs::create_dir(&state).unwrap();
    chown(&state, Some(USER), Some(USER)).unwrap();
    state
}

#[tokio::test(flavor = "multi_thread")]
async fn what_root_imports_belongs_to_the_server() {
    if !can_switch("what_root_imports_belongs_to_the_server") {
        return;
    }
    let (roots_own, tree) = (tempfile::tempdir().unwrap(), WorkTree::new());
    let scripts = tempfile::tempdir().unwrap();
    let mut server = start_as_user(scripts.path());
    server.terminate();
    let project = Project::new(&Author::new(1), "imported");
    let head = tree.commit("README", b"first");
    let state = project.state(&project.owner, now() - 90, &[("refs/heads/main", &head)]);
    let lines = format!(
        "{}\n{}\n",
        to_json(&project.announcement(now() - 100)),
        to_json(&state)
    );
    let file = roots_own.path().join("events.jsonl");
    fs::write(&file, lines).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let imported = run(
        &["import", file.to_str().unwrap()],
        GRASP,
        server.data_dir(),
    );
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    let repaired = run(&["check", "--repair"], GRASP, server.data_dir());
    assert_eq!(repaired.code, Some(0), "{}", repaired.stderr);
    assert_eq!(strange(server.data_dir()), [""; 0].map(PathBuf::from));
    server.restart();
    tree.git(&["push", "-q", &project.url(&server), "main"]);
    let mut client = Client::connect(&server.ws_url()).await;
    await_served(&mut client, &state, true, "pushed").await;
}

#[test]
fn what_root_restores_belongs_to_the_server_and_is_for_nobody_else() {
    if !can_switch("what_root_restores_belongs_to_the_server_and_is_for_nobody_else") {
        return;
    }
    let (from, private) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut source = crate::support::start(&[]);
    source.terminate();
    let backup = from.path().join("backup");
    let backup = backup.to_str().unwrap();
    let made = run(&["backup", backup], &[], source.data_dir());
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let state = state_dir(private.path());
    let restored = run(&["restore", backup], &[], &state);
    assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    assert_eq!(strange(&state), [""; 0].map(PathBuf::from));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state.join("relay")), 0o700);
    assert_eq!(mode(&state.join("relay/data.mdb")), 0o600);
    assert_eq!(mode(&state.join("relay/owner.nsec")), 0o600);
}

/// Git runs there, too, and it is only in root's folder that its user cannot enter.
#[test]
fn a_folder_that_only_root_may_enter_is_no_obstacle() {
    if !can_switch("a_folder_that_only_root_may_enter_is_no_obstacle") {
        return;
    }
    let private = tempfile::tempdir().unwrap();
    let state = state_dir(private.path());
    let project = Project::new(&Author::new(2), "private");
    let file = private.path().join("events.jsonl");
    fs::write(&file, to_json(&project.announcement(now())).to_string()).unwrap();
    let imported = run(&["import", file.to_str().unwrap()], GRASP, &state);
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    let looked = run(&["check", "--repair"], GRASP, &state);
    assert_eq!(looked.code, Some(0), "{}", looked.stderr);
    assert!(
        looked.stderr.contains("1 repositories checked"),
        "{}",
        looked.stderr
    );
    assert_eq!(strange(&state), [""; 0].map(PathBuf::from));
}

/// A look makes the file in which LMDB counts its readers, if the server is not there.
#[test]
fn what_root_looks_at_stays_the_servers() {
    if !can_switch("what_root_looks_at_stays_the_servers") {
        return;
    }
    let (scripts, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut server = start_as_user(scripts.path());
    server.terminate();
    let backup = out.path().join("backup");
    let looks: [&[&str]; 5] = [
        &["backup", backup.to_str().unwrap()],
        &["export"],
        &["repos"],
        &["check"],
        &["purge"],
    ];
    for look in looks {
        fs::remove_file(server.data_dir().join("relay/lock.mdb")).unwrap();
        let looked = run(look, GRASP, server.data_dir());
        assert_eq!(looked.code, Some(0), "{look:?}: {}", looked.stderr);
        assert_eq!(
            strange(server.data_dir()),
            [""; 0].map(PathBuf::from),
            "{look:?}"
        );
    }
    assert_eq!(backup.metadata().unwrap().uid(), 0, "who made it keeps it");
    server.restart();
}

#[test]
fn data_of_two_users_is_told_and_not_made_worse() {
    if !can_switch("data_of_two_users_is_told_and_not_made_worse") {
        return;
    }
    let scripts = tempfile::tempdir().unwrap();
    let mut server = start_as_user(scripts.path());
    server.terminate();
    let doctor = || run(&["doctor"], &[], server.data_dir()).stdout;
    assert!(doctor().contains("ok    git data"), "{}", doctor());
    let repository = server.data_dir().join("git/npub1/one.git");
    fs::create_dir_all(&repository).unwrap();
    let said = doctor();
    assert!(said.contains("FAIL  git data"), "{said}");
    let advice = format!("chown -R {USER}:{USER} {}/git", server.data_dir().display());
    assert!(said.contains(&advice), "{said}");
    chown(server.data_dir().join("git"), Some(0), Some(0)).unwrap();
    let refused = run(&["check", "--repair"], &[], server.data_dir());
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("chown -R"), "{}", refused.stderr);
}
