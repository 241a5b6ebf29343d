//! Requests that no git would send: whatever they are, they reach no repository but the one they
//! name, move nothing that nobody signed, cost little, and the next clone is served.

mod heads;
mod packs;
mod paths;
mod values;

use std::sync::Arc;

use testkit::{Client, Project, Server, WorkTree};

use crate::hosted::{GRASP, directory, hosted, leftovers, path, post};
use crate::support::{Reply, Shared, author};

static GRASP_SERVER: Shared = Shared::new(GRASP);

/// A hosted repository that must come through unharmed.
struct Target {
    server: Arc<Server>,
    client: Client,
    project: Project,
    tree: WorkTree,
    path: String,
    first: String,
}

impl Target {
    async fn new() -> Self {
        Self::named("target").await
    }

    async fn named(identifier: &str) -> Self {
        let (server, tree) = (GRASP_SERVER.get(), WorkTree::new());
        let project = Project::new(&author(), identifier);
        let client = hosted(&server, &project, &tree).await;
        Self {
            path: path(&server, &project),
            first: tree.head(),
            server,
            client,
            project,
            tree,
        }
    }

    fn url(&self) -> String {
        self.project.url(&self.server)
    }

    fn push(&self, body: &[u8]) -> Reply {
        self.push_with(&[], body)
    }

    fn push_with(&self, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let path = format!("{}/git-receive-pack", self.path);
        post(self.server.addr(), &path, headers, body)
    }

    fn fetch_with(&self, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let path = format!("{}/git-upload-pack", self.path);
        post(self.server.addr(), &path, headers, body)
    }

    /// Still served, still where it was, and nothing lies about.
    fn assert_unharmed(&self, after: &str) {
        self.assert_at(&self.first, after);
    }

    fn assert_at(&self, main: &str, after: &str) {
        let copy = WorkTree::clone_of(&self.url(), &[]);
        assert_eq!(copy.head(), main, "after {after}");
        let dir = directory(&self.server, &self.project);
        assert_eq!(leftovers(&dir), Vec::<std::path::PathBuf>::new(), "{after}");
    }

    /// Refused in its head: before the core was asked and before any pack.
    fn assert_not_read(&self, what: &str, body: &[u8], says: &str) {
        let reply = self.push(body);
        assert_eq!(reply.status, 400, "{what}: {reply:?}");
        assert!(reply.body.contains(says), "{what}: {reply:?}");
        reply.assert_cors();
    }
}
