//! Commands of root on the data of a server that has a user of its own, as the packaged one has.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Author, Client, Project, Server, WorkTree, now};

use crate::hosted::{GRASP, await_served, directory};
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

/// Something that only root may read, and the user of the server would like to have.
fn roots_secret(dir: &Path) -> PathBuf {
    let secret = dir.join("secret");
    fs::write(&secret, "only for root").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    secret
}

/// Puts a link of the user where the server has a file.
fn plant(target: &Path, link: &Path) {
    let _ = fs::remove_file(link);
    symlink(target, link).unwrap();
    std::os::unix::fs::lchown(link, Some(USER), Some(USER)).unwrap();
}

/// Whether a text is anywhere below.
fn holds(dir: &Path, text: &str) -> bool {
    let Ok(entries) = fs::read_dir(dir) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => holds(&path, text),
            false => fs::read(&path).is_ok_and(|bytes| {
                let mut windows = bytes.windows(text.len());
                windows.any(|window| window == text.as_bytes())
            }),
        }
    })
}

/// C1: the user of the server plants a link, and waits for root to follow it.
#[test]
fn no_command_of_root_follows_a_link_that_the_servers_user_planted() {
    if !can_switch("no_command_of_root_follows_a_link_that_the_servers_user_planted") {
        return;
    }
    let (scripts, roots_own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut server = start_as_user(scripts.path());
    server.terminate();
    let secret = roots_secret(roots_own.path());
    let before = secret.metadata().unwrap();
    let relay = server.data_dir().join("relay");
    let backups = roots_own.path().join("backups");
    fs::create_dir(&backups).unwrap();
    for (name, attempt) in [("lock.mdb", 0), ("data.mdb", 1), ("owner.nsec", 2)] {
        let (file, aside) = (relay.join(name), roots_own.path().join(name));
        fs::rename(&file, &aside).unwrap();
        plant(&secret, &file);
        let backup = backups.join(attempt.to_string());
        let refused = run(
            &["backup", backup.to_str().unwrap()],
            GRASP,
            server.data_dir(),
        );
        assert_eq!(refused.code, Some(1), "{name}: {}", refused.stderr);
        let told = refused.stderr.contains(&format!("relay/{name}"));
        assert!(told, "{name} is not named: {}", refused.stderr);
        for look in [&["export"], &["repos"], &["check"]] {
            run(look, GRASP, server.data_dir());
        }
        run(&["doctor"], GRASP, server.data_dir());
        let after = secret.metadata().unwrap();
        assert_eq!((after.uid(), after.mode()), (0, before.mode()), "{name}");
        assert_eq!(fs::read(&secret).unwrap(), b"only for root", "{name}");
        fs::remove_file(&file).unwrap();
        fs::rename(&aside, &file).unwrap();
    }
    assert!(
        !holds(&backups, "only for root"),
        "root's secret is in a backup"
    );
}

/// C1: the whole folder may be a link, to one that is root's.
#[test]
fn a_data_directory_that_leads_to_roots_files_is_told() {
    if !can_switch("a_data_directory_that_leads_to_roots_files_is_told") {
        return;
    }
    let (scripts, roots_own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut server = start_as_user(scripts.path());
    server.terminate();
    let (relay, target) = (
        server.data_dir().join("relay"),
        roots_own.path().join("root"),
    );
    fs::rename(&relay, &target).unwrap();
    for entry in fs::read_dir(&target).unwrap() {
        chown(entry.unwrap().path(), Some(0), Some(0)).unwrap();
    }
    chown(&target, Some(0), Some(0)).unwrap();
    plant(&target, &relay);
    let backup = roots_own.path().join("backup");
    let commands: [&[&str]; 3] = [
        &["backup", backup.to_str().unwrap()],
        &["export"],
        &["check", "--repair"],
    ];
    for command in commands {
        let refused = run(command, GRASP, server.data_dir());
        assert_eq!(refused.code, Some(1), "{command:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("chown -R"), "{}", refused.stderr);
    }
    assert!(!backup.join("events.mdb").exists());
}

/// C1 and C2: what git could read as root, it does not read for the user of the server.
#[tokio::test(flavor = "multi_thread")]
async fn git_has_no_more_rights_than_the_servers_user_when_root_looks() {
    if !can_switch("git_has_no_more_rights_than_the_servers_user_when_root_looks") {
        return;
    }
    let (scripts, roots_own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut server = start_as_user(scripts.path());
    let (project, tree) = (Project::new(&Author::new(3), "linked"), WorkTree::new());
    let head = tree.commit("README", b"first");
    let mut client = Client::connect(&server.ws_url()).await;
    let state = project.state(&project.owner, now(), &[("refs/heads/main", &head)]);
    for event in [project.announcement(now() - 1), state.clone()] {
        client.publish(&event).await;
    }
    tree.git(&["push", "-q", &project.url(&server), "main"]);
    await_served(&mut client, &state, true, "pushed").await;
    server.terminate();

    // Whatever git is started, it says with which rights.
    fs::set_permissions(scripts.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let told = scripts.path().join("told");
    fs::write(&told, "").unwrap();
    fs::set_permissions(&told, fs::Permissions::from_mode(0o666)).unwrap();
    let git = which("git");
    let spy = format!(
        "grep -h -E '^(Uid|Cap(Eff|Prm|Inh|Amb)):' /proc/self/status >> '{}'\nexec '{}' \"$@\"\n",
        told.display(),
        git.display()
    );
    script(scripts.path(), "git", &spy);
    let path = format!("{}:/usr/bin:/bin", scripts.path().display());
    let env = [GRASP, &[("PATH", path.as_str())]].concat();
    let checked = run(&["check"], &env, server.data_dir());
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let told = fs::read_to_string(&told).unwrap();
    assert!(told.contains("Uid:"), "git was never asked");
    for line in told.lines() {
        let (name, value) = line.split_once(':').unwrap();
        match name {
            "Uid" => assert_eq!(value.trim(), "65534\t65534\t65534\t65534"),
            _ => assert_eq!(u64::from_str_radix(value.trim(), 16), Ok(0), "{line}"),
        }
    }

    // A repository of root's is not shown where a link of the user leads to it.
    let repository = directory(&server, &project);
    let target = roots_own.path().join("private.git");
    fs::rename(&repository, &target).unwrap();
    let mut owned = Command::new("chown");
    owned.args(["-R", "0:0"]).arg(&target);
    assert!(owned.status().unwrap().success());
    fs::set_permissions(&target, fs::Permissions::from_mode(0o700)).unwrap();
    plant(&target, &repository);
    let rows = run(&["repos", "--json"], GRASP, server.data_dir());
    let rows: testkit::Value = serde_json::from_str(&rows.stdout).unwrap();
    let row = rows.pointer("/repositories/0").unwrap();
    assert_eq!(row["refs"], testkit::Value::Null, "{row}");
}

fn which(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut found = std::env::split_paths(&path).map(|dir| dir.join(name));
    found.find(|file| file.is_file()).unwrap()
}
