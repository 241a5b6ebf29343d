//! Disks that lose objects while the server is down: what is served has its data here.

use std::fs;
use std::path::Path;

use grasp_core::Event;
use testkit::{Author, Client, Project, Server, WorkTree};

use crate::hosted::{
    GRASP, await_served, directory, grasp, held, hosted, next_state, remote_ref, served,
};
use crate::support::{Ran, get, run};

/// The server was down, and its disk came back without the objects.
async fn come_back_without_objects(server: &mut Server, project: &Project) -> Client {
    server.terminate();
    let objects = directory(server, project).join("objects");
    fs::remove_dir_all(objects.join("pack")).unwrap();
    fs::create_dir(objects.join("pack")).unwrap();
    for entry in fs::read_dir(&objects).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.len() == 2 {
            fs::remove_dir_all(path).unwrap();
        }
    }
    server.restart();
    Client::connect(&server.ws_url()).await
}

fn metric(server: &Server, line: &str) -> bool {
    get(server.addr(), "/metrics").body.contains(line)
}

fn repos(data: &Path) -> String {
    let Ran { stdout, .. } = run(&["repos"], GRASP, data);
    stdout
}

async fn pull_request(client: &mut Client, project: &Project, tree: &WorkTree, url: &str) -> Event {
    tree.git(&["checkout", "-q", "-b", "feature"]);
    let tip = tree.commit("feature", b"one");
    tree.git(&["checkout", "-q", "main"]);
    let event = project.pull_request(&Author::new(3), &tip);
    held(client, &event).await;
    tree.git(&["push", "-q", url, &format!("{tip}:refs/nostr/{}", event.id)]);
    event
}

#[tokio::test]
async fn what_has_lost_its_objects_is_not_served_until_they_are_back() {
    let mut server = grasp();
    let (project, tree) = (Project::new(&Author::new(1), "lost"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let (head, state) = next_state(&mut client, &project, &tree, testkit::now()).await;
    let url = project.url(&server);
    tree.git(&["push", "-q", &url, "main"]);
    let pull_request = pull_request(&mut client, &project, &tree, &url).await;
    assert!(served(&mut client, &state).await && served(&mut client, &pull_request).await);

    let mut client = come_back_without_objects(&mut server, &project).await;
    await_served(&mut client, &state, false, "without objects").await;
    await_served(&mut client, &pull_request, false, "without its commit").await;
    let url = project.url(&server);
    assert_eq!(remote_ref(&url, "refs/heads/main"), None);
    assert!(metric(&server, "ngit_repairs_total{what=\"hidden\"} 2"));
    assert!(repos(server.data_dir()).contains("2 not served because theirs is gone"));

    let mut watcher = Client::connect(&server.ws_url()).await;
    tree.git(&["push", "-q", &url, "main"]);
    await_served(&mut watcher, &state, true, "with its objects").await;
    assert_eq!(remote_ref(&url, "refs/heads/main"), Some(head));
    let name = format!("refs/nostr/{}", pull_request.id);
    tree.git(&["push", "-q", &url, &format!("feature:{name}")]);
    await_served(&mut watcher, &pull_request, true, "with its commit").await;
}
