use super::*;

/// A host with one commit, and that commit's id.
async fn host(faults: &[GitFault]) -> (GitHost, WorkTree, String) {
    let tree = WorkTree::new();
    let id = tree.commit("file", b"content");
    let host = GitHost::start(faults).await;
    host.publish("a.git", &tree, &["HEAD:refs/heads/main"]);
    (host, tree, id)
}

/// What the real git says to a fetch from it.
async fn fetched(host: &GitHost) -> bool {
    let url = host.url("a.git");
    let tree = WorkTree::new();
    let fetching = tokio::task::spawn_blocking(move || {
        let fetch = tree.try_git(&["fetch", "-q", &url, "refs/heads/main"]);
        fetch.ok
    });
    fetching.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn git_clones_from_an_honest_one() {
    for faults in [&[][..], &[GitFault::OldProtocol]] {
        let (host, tree, first) = host(faults).await;
        assert!(fetched(&host).await);
        let seen = host.seen();
        assert_eq!((seen.discoveries(), seen.most_open), (1, 1));
        assert!(seen.posts() > 0 && seen.bytes > 0);
        let second = tree.commit("file", b"more");
        host.publish("a.git", &tree, &["HEAD:refs/heads/main"]);
        assert_ne!(first, second);
        assert!(fetched(&host).await);
        assert_eq!(host.seen().busiest(Duration::from_secs(3_600)), 2);
        assert_eq!(host.seen().busiest(Duration::ZERO), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn git_clones_from_no_rogue() {
    for fault in [
        GitFault::Status(404),
        GitFault::Busy(Some(1)),
        GitFault::TruncatedPack,
        GitFault::CorruptPack,
        GitFault::WrongObjects,
    ] {
        let (host, ..) = host(std::slice::from_ref(&fault)).await;
        assert!(!fetched(&host).await, "{fault:?}");
        host.behave(&[]);
        assert!(fetched(&host).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn git_follows_one_that_moved() {
    let (good, ..) = host(&[]).await;
    let moved = GitHost::start(&[GitFault::MovedTo(good.url("a.git"))]).await;
    assert!(fetched(&moved).await);
    assert_eq!((moved.seen().posts(), good.seen().discoveries()), (0, 1));
}
