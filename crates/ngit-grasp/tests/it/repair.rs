//! `check --repair` brings back from other git servers what a disk has lost.

use std::fs;
use std::path::{Path, PathBuf};

use grasp_core::Event;
use testkit::git::try_git;
use testkit::{Author, Client, GitHost, Project, Server, WorkTree, now};

use crate::hosted::{GRASP, await_served, directory, grasp_with, remote_ref};
use crate::support::{Ran, run};

const MAIN: &str = "refs/heads/main";
const PRIVATE: (&str, &str) = ("NGIT_ALLOW_PRIVATE_ADDRESSES", "true");

/// A repository that is served here, and that another git server has too.
struct Robbed {
    server: Server,
    project: Project,
    tree: WorkTree,
    state: Event,
    dir: PathBuf,
}

impl Robbed {
    /// The server is stopped, and each object is a file of its own.
    async fn new(host: &GitHost) -> Self {
        let mut server = grasp_with(&[PRIVATE]);
        let (project, tree) = (Project::new(&Author::new(1), "robbed"), WorkTree::new());
        for n in 0..3 {
            tree.commit(&format!("file-{n}"), format!("{n}").as_bytes());
        }
        let mut client = Client::connect(&server.ws_url()).await;
        let plain = project.announcement(now() - 100);
        let mut tags = plain.tags.clone();
        for tag in tags.iter_mut().filter(|tag| tag[0] == "clone") {
            tag.push(host.url("robbed.git"));
        }
        let announcement = project.owner.event_tags(30617, now() - 100, tags, "");
        let state = project.state(&project.owner, now() - 90, &[(MAIN, &tree.head())]);
        assert!(client.publish(&announcement).await.0 && client.publish(&state).await.0);
        tree.git(&["push", "-q", &project.url(&server), "main"]);
        await_served(&mut client, &state, true, "pushed").await;
        drop(client);
        server.terminate();
        let dir = directory(&server, &project);
        unpack(&dir);
        Self {
            server,
            project,
            tree,
            state,
            dir,
        }
    }

    fn check(&self, flags: &[&str]) -> Ran {
        let args = [&["check"], flags].concat();
        run(&args, &[GRASP, &[PRIVATE]].concat(), self.server.data_dir())
    }

    fn lose(&self, revision: &str) {
        let id = self.tree.git(&["rev-parse", revision]).stdout;
        let (folder, rest) = id.trim().split_at(2);
        fs::remove_file(self.dir.join("objects").join(folder).join(rest)).unwrap();
    }
}

fn unpack(dir: &Path) {
    let packs = dir.join("objects/pack");
    let aside = dir.join("aside");
    fs::rename(&packs, &aside).unwrap();
    fs::create_dir(&packs).unwrap();
    for entry in fs::read_dir(&aside).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "pack") {
            let mut unpacking = std::process::Command::new("git");
            unpacking.args(["unpack-objects", "-q"]).current_dir(dir);
            let pack = fs::File::open(path).unwrap();
            assert!(unpacking.stdin(pack).status().unwrap().success());
        }
    }
    fs::remove_dir_all(aside).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_comes_back_from_a_server_that_has_it() {
    let host = GitHost::honest().await;
    let mut robbed = Robbed::new(&host).await;
    for lost in ["HEAD:file-0", "HEAD~1^{tree}", "HEAD~2", "HEAD"] {
        robbed.lose(lost);
        let found = robbed.check(&[]);
        assert_eq!(found.code, Some(1), "{lost}: {}", found.stderr);
        // As long as nobody has it, it stays lost.
        let repaired = robbed.check(&["--repair"]);
        assert_eq!(repaired.code, Some(1), "{lost}: {}", repaired.stderr);
        assert!(repaired.stderr.contains("absent"), "{}", repaired.stderr);
        host.publish("robbed.git", &robbed.tree, &["main"]);
        let repaired = robbed.check(&["--repair"]);
        assert_eq!(repaired.code, Some(0), "{lost}: {}", repaired.stderr);
        let said = try_git(&robbed.dir, &["fsck", "--connectivity-only"]);
        assert!(said.ok, "{lost}: {said:?}");
        fs::remove_dir_all(host.dir("robbed.git")).unwrap();
        unpack(&robbed.dir);
    }
    robbed.server.restart();
    let mut client = Client::connect(&robbed.server.ws_url()).await;
    await_served(&mut client, &robbed.state, true, "after the repair").await;
    let url = robbed.project.url(&robbed.server);
    assert_eq!(remote_ref(&url, MAIN), Some(robbed.tree.head()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pull_request_has_lost_comes_back_from_where_it_came() {
    let host = GitHost::honest().await;
    let mut robbed = Robbed::new(&host).await;
    host.publish("robbed.git", &robbed.tree, &["main"]);
    robbed.tree.git(&["checkout", "-q", "-b", "feature"]);
    let tip = robbed.tree.commit("feature", b"new");
    host.publish("fork.git", &robbed.tree, &["feature"]);
    let tags = vec![
        vec!["a".to_owned(), robbed.project.address()],
        vec!["c".to_owned(), tip.clone()],
        vec!["clone".to_owned(), host.url("fork.git")],
    ];
    let request = Author::new(3).event_tags(1618, now(), tags, "");
    robbed.server.restart();
    let mut client = Client::connect(&robbed.server.ws_url()).await;
    assert!(client.publish(&request).await.0);
    let url = robbed.project.url(&robbed.server);
    let name = format!("{tip}:refs/nostr/{}", request.id);
    robbed.tree.git(&["push", "-q", &url, &name]);
    await_served(&mut client, &request, true, "pushed").await;
    drop(client);
    robbed.server.terminate();
    unpack(&robbed.dir);
    robbed.lose("feature:feature");
    assert_eq!(robbed.check(&[]).code, Some(1));
    let repaired = robbed.check(&["--repair"]);
    assert_eq!(repaired.code, Some(0), "{}", repaired.stderr);
    let asked = repaired
        .stderr
        .find("robbed.git: answered, had 1, lacked 1");
    let then = repaired.stderr.find("fork.git: answered, had 1, lacked 0");
    assert!(asked.is_some() && asked < then, "{}", repaired.stderr);
}
