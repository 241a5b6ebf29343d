//! Fetches from real git servers over real sockets on loopback.

use std::time::Duration;

use grasp_core::clone_url::{CloneUrl, Domain};
use grasp_core::git::ObjectId;
use grasp_core::push::Backing;
use grasp_core::{Identifier, Pubkey};
use grasp_git::Repo;
use grasp_git::fetch::Pace;
use tempfile::TempDir;
use testkit::{GitFault, GitHost, WorkTree};
use tokio::time::timeout;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);
const NAME: &str = "a.git";

/// A server with some history, and us without it.
struct Stage {
    host: GitHost,
    tree: WorkTree,
    tip: ObjectId,
    home: Home,
}

struct Home {
    folder: TempDir,
    repo: Repo,
    fetcher: Fetcher,
    words: mpsc::UnboundedReceiver<(FetchNo, Word)>,
}

fn options() -> Options {
    Options {
        reach: Reach {
            allow_private: true,
            ..Reach::default()
        },
        trusted: Vec::new(),
        connect_timeout: PATIENCE,
        limits: FetchLimits::default(),
        max_owner_bytes: None,
    }
}

fn id() -> RepoId {
    RepoId::new(Pubkey([7; 32]), Identifier::parse("a").unwrap())
}

impl Home {
    fn new(options: Options, repository_bytes: u64, min_free: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let repositories = Arc::new(Repositories::new(root.clone()));
        let (repo, _) = Repo::create(&repositories.dir(&id())).unwrap();
        let rooms = Arc::new(Rooms::new(repository_bytes, root, min_free));
        let (sender, words) = mpsc::unbounded_channel();
        let tell: Tell = Arc::new(move |fetch, word| drop(sender.send((fetch, word))));
        let fetcher = Fetcher::new(options, repositories, rooms, tell).unwrap();
        Self {
            folder,
            repo,
            fetcher,
            words,
        }
    }

    fn start(&self, number: u64, url: &str, want: ObjectId) {
        let ask = FetchAsk {
            repo: id(),
            url: CloneUrl::parse(url).unwrap(),
            wants: Arc::from([want]),
            backing: Backing::PullRequests,
        };
        self.fetcher.start(FetchNo(number), ask);
    }

    async fn word(&mut self) -> (FetchNo, Word) {
        let word = timeout(PATIENCE, self.words.recv()).await;
        word.expect("a word in time").unwrap()
    }

    /// How it ended, and whether its pack had begun.
    async fn done(&mut self) -> (Fetched, bool) {
        let mut flowed = false;
        loop {
            match self.word().await.1 {
                Word::Flowing(_) => flowed = true,
                Word::Arrived => {}
                Word::Done(fetched) => return (fetched, flowed),
            }
        }
    }

    fn has(&self, id: ObjectId) -> bool {
        self.repo.objects().unwrap().contains(&id).unwrap()
    }

    /// Nothing unfinished is left.
    fn is_tidy(&self) {
        for entry in std::fs::read_dir(self.repo.dir().join("objects")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.starts_with("incoming-"), "{name}");
        }
        assert!(self.folder.path().exists());
    }
}

impl Stage {
    async fn new(faults: &[GitFault]) -> Self {
        Self::with(faults, options()).await
    }

    async fn with(faults: &[GitFault], options: Options) -> Self {
        Self::within(faults, options, u64::MAX, 0).await
    }

    async fn within(
        faults: &[GitFault],
        options: Options,
        repository_bytes: u64,
        min_free: u64,
    ) -> Self {
        let host = GitHost::start(faults).await;
        let tree = WorkTree::new();
        tree.commit("file", b"content");
        let tip = tree.commit_noise("noise", 7, 300_000);
        host.publish(NAME, &tree, &["HEAD:refs/heads/main"]);
        Self {
            host,
            tree,
            tip: ObjectId::parse(&tip).unwrap(),
            home: Home::new(options, repository_bytes, min_free),
        }
    }

    fn url(&self) -> String {
        self.host.url(NAME)
    }

    async fn fetched(&mut self) -> (Fetched, bool) {
        self.home.start(1, &self.url(), self.tip);
        self.home.done().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_come_over_the_web() {
    let mut stage = Stage::new(&[]).await;
    let (fetched, flowed) = stage.fetched().await;
    assert_eq!(fetched.end, FetchEnd::Answered);
    assert_eq!((fetched.got, fetched.lacking), (vec![stage.tip], vec![]));
    assert!(flowed && fetched.bytes > 300_000 && stage.home.has(stage.tip));
    let seen = stage.host.seen();
    assert_eq!((seen.discoveries(), seen.posts()), (1, 2));
    assert_eq!((seen.bytes, seen.most_open), (fetched.bytes, 1));
    assert_eq!(seen.connections, 1, "one connection is enough");
    let next = stage.tree.commit("file", b"more");
    stage.tip = ObjectId::parse(&next).unwrap();
    let (fetched, _) = stage.fetched().await;
    assert_eq!(fetched.lacking, [stage.tip]);
    stage
        .host
        .publish(NAME, &stage.tree, &["HEAD:refs/heads/main"]);
    let (fetched, _) = stage.fetched().await;
    assert_eq!(fetched.got, [stage.tip]);
    stage.home.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_known_by_how_it_fails() {
    let busy = |seconds: Option<u64>| FetchEnd::Busy(seconds.map(Duration::from_secs));
    let stranger = "ab".repeat(20);
    for (fault, end) in [
        (GitFault::Status(404), FetchEnd::Absent),
        (GitFault::Status(401), FetchEnd::Absent),
        (GitFault::Status(500), FetchEnd::Failed),
        (GitFault::Busy(Some(9)), busy(Some(9))),
        (GitFault::Busy(None), busy(None)),
        (GitFault::Page, FetchEnd::Unreachable),
        (GitFault::TruncatedPack, FetchEnd::Spoiled),
        (GitFault::CorruptPack, FetchEnd::Spoiled),
        (GitFault::WrongObjects, FetchEnd::Spoiled),
        (GitFault::OldProtocol, FetchEnd::Answered),
        (GitFault::Shows(stranger), FetchEnd::Answered),
    ] {
        let mut stage = Stage::new(std::slice::from_ref(&fault)).await;
        let (fetched, _) = stage.fetched().await;
        assert_eq!(fetched.end, end, "{fault:?}");
        assert_eq!(stage.home.has(stage.tip), end == FetchEnd::Answered);
        stage.home.is_tidy();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_waited_for_without_end_or_heard_without_bound() {
    let usual = FetchLimits::default();
    let hasty = FetchLimits {
        patience: Duration::from_millis(100),
        pace: Pace {
            bytes: 1_000,
            window: Duration::from_millis(100),
        },
        ..usual
    };
    let small = FetchLimits {
        max_bytes: 1_000_000,
        ..usual
    };
    let cut = FetchEnd::Cut { kept: false };
    for (fault, limits, end) in [
        (GitFault::Tarpit, hasty, FetchEnd::TooSlow),
        (GitFault::Drip, hasty, FetchEnd::TooSlow),
        (GitFault::EndlessPack, small, cut),
    ] {
        let options = Options {
            limits,
            ..options()
        };
        let mut stage = Stage::with(std::slice::from_ref(&fault), options).await;
        let (fetched, _) = stage.fetched().await;
        assert_eq!(fetched.end, end, "{fault:?}");
        assert!(fetched.bytes < 1_200_000, "{}", fetched.bytes);
        stage.home.is_tidy();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_at_that_address_is_not_reached() {
    let mut stage = Stage::new(&[]).await;
    let url = stage.url();
    stage.host = GitHost::honest().await;
    stage.home.start(1, &url, stage.tip);
    assert_eq!(stage.home.done().await.0.end, FetchEnd::Unreachable);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_lead_us_to_no_private_address_but_the_operator_may() {
    let guarded = Options {
        reach: Reach::default(),
        ..options()
    };
    let mut stage = Stage::with(&[], guarded.clone()).await;
    assert_eq!(stage.fetched().await.0.end, FetchEnd::Forbidden);
    assert_eq!(stage.host.seen().requests.len(), 0);
    let domain = Domain::parse(&stage.host.addr().to_string()).unwrap();
    let trusting = Options {
        trusted: vec![domain],
        ..guarded
    };
    stage.home = Home::new(trusting, u64::MAX, 0);
    assert_eq!(stage.fetched().await.0.end, FetchEnd::Answered);
    // Where it leads is a stranger's word again, even to itself.
    stage.host.behave(&[GitFault::MovedTo(stage.url())]);
    stage.tip = ObjectId([9; 20]);
    assert_eq!(stage.fetched().await.0.end, FetchEnd::Forbidden);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_moved_is_found_at_its_new_place() {
    let mut stage = Stage::new(&[]).await;
    stage.host.behave(&[GitFault::Renamed {
        from: "old.git".to_owned(),
        to: stage.url(),
    }]);
    let old = stage.host.url("old.git");
    stage.home.start(1, &old, stage.tip);
    assert_eq!(stage.home.done().await.0.end, FetchEnd::Answered);
    assert_eq!(stage.host.seen().posts(), 2);
    assert!(stage.home.has(stage.tip));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_host_sends_us_to_another() {
    let mut stage = Stage::new(&[]).await;
    let moved = GitHost::start(&[GitFault::MovedTo(stage.url())]).await;
    stage.home.start(1, &moved.url("old.git"), stage.tip);
    assert_eq!(stage.home.done().await.0.end, FetchEnd::Unreachable);
    assert_eq!(stage.host.seen().requests.len(), 0, "it has its own budget");
}

#[tokio::test(flavor = "multi_thread")]
async fn not_every_way_is_followed() {
    let stage = Stage::new(&[]).await;
    let mut home = stage.home;
    for (leads_to, asked) in [
        (None, 4),
        (Some("file:///etc"), 1),
        (Some("ftp://127.0.0.1"), 1),
        (Some("https://user:secret@127.0.0.1/a"), 1),
        (Some("http://127.0.0.1/a#"), 1),
    ] {
        let host = GitHost::honest().await;
        let own = host.url("a.git");
        let to = leads_to.unwrap_or(&own).to_owned();
        host.behave(&[GitFault::MovedTo(to)]);
        home.start(1, &own, stage.tip);
        let (fetched, _) = home.done().await;
        assert_eq!(fetched.end, FetchEnd::Unreachable, "{leads_to:?}");
        assert_eq!(host.seen().requests.len(), asked, "{leads_to:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_is_stopped_says_so_once_and_leaves_nothing() {
    let mut stage = Stage::new(&[GitFault::HoldsPacks]).await;
    stage.home.start(4, &stage.url(), stage.tip);
    stage
        .host
        .wait("the pack is asked for", |seen| seen.posts() == 2)
        .await;
    stage.home.fetcher.stop(FetchNo(4));
    stage.home.fetcher.stop(FetchNo(4));
    stage.home.fetcher.stop(FetchNo(5));
    let stopped = Word::Done(nothing(FetchEnd::Stopped));
    assert_eq!(stage.home.word().await, (FetchNo(4), stopped));
    stage.host.behave(&[]);
    // The next word is of the next fetch.
    stage.home.start(6, &stage.url(), stage.tip);
    assert_eq!(stage.home.word().await, (FetchNo(6), Word::Flowing(0)));
    assert_eq!(stage.home.done().await.0.end, FetchEnd::Answered);
    stage.home.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_every_fetch_is_done() {
    let mut stage = Stage::new(&[GitFault::Tarpit]).await;
    for number in 0..20 {
        stage.home.start(number, &stage.url(), stage.tip);
    }
    stage
        .host
        .wait("all of them ask", |seen| seen.most_open == 20)
        .await;
    let fetcher = stage.home.fetcher.clone();
    let began = Instant::now();
    let ending = tokio::task::spawn_blocking(move || fetcher.shut_down());
    ending.await.unwrap();
    assert!(began.elapsed() < STOP);
    stage.home.start(20, &stage.url(), stage.tip);
    let mut numbers = Vec::new();
    for _ in 0..=20 {
        let (number, word) = stage.home.word().await;
        assert_eq!(word, Word::Done(nothing(FetchEnd::Stopped)));
        numbers.push(number.0);
    }
    numbers.sort();
    assert_eq!(numbers, (0..=20).collect::<Vec<_>>());
    assert!(stage.home.words.try_recv().is_err());
    // They are gone from the server, too.
    stage
        .host
        .wait("nobody asks any more", |seen| seen.open == 0)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_room_is_not_fetched() {
    let owned = Options {
        max_owner_bytes: Some(100),
        ..options()
    };
    for (name, options, repository_bytes, min_free, end, asked) in [
        (
            "disk",
            options(),
            u64::MAX,
            u64::MAX,
            FetchEnd::DiskLow,
            false,
        ),
        ("repository", options(), 100, 0, FetchEnd::Full, false),
        ("owner", owned, u64::MAX, 0, FetchEnd::Full, false),
        ("pack", options(), 200_000, 0, FetchEnd::Full, true),
        ("none", options(), 1_000_000, 0, FetchEnd::Answered, true),
    ] {
        let mut stage = Stage::within(&[], options, repository_bytes, min_free).await;
        let (fetched, _) = stage.fetched().await;
        assert_eq!(fetched.end, end, "{name}");
        assert_eq!(!stage.host.seen().requests.is_empty(), asked, "{name}");
        assert_eq!(stage.home.has(stage.tip), end == FetchEnd::Answered);
        stage.home.is_tidy();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_is_not_here_is_our_fault() {
    let mut stage = Stage::new(&[]).await;
    Repo::remove(stage.home.repo.dir()).unwrap();
    let (fetched, _) = stage.fetched().await;
    assert_eq!(fetched.end, FetchEnd::Ours);
    let none = Fetcher::none(Arc::clone(&stage.home.fetcher.tell));
    stage.home.fetcher = none;
    let (fetched, _) = stage.fetched().await;
    assert_eq!(fetched.end, FetchEnd::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_in_part_goes_when_nobody_waits_for_it() {
    let limits = FetchLimits {
        max_bytes: 200_000,
        ..FetchLimits::default()
    };
    let mut stage = Stage::with(
        &[],
        Options {
            limits,
            ..options()
        },
    )
    .await;
    let slices = stage.home.repo.dir().join("objects/slices");
    let cut = FetchEnd::Cut { kept: false };
    assert_eq!(stage.fetched().await.0.end, cut);
    assert!(slices.exists());
    stage.host.behave(&[GitFault::HoldsPacks]);
    stage.home.start(2, &stage.url(), stage.tip);
    stage
        .host
        .wait("a slice is asked for", |seen| seen.posts() == 4)
        .await;
    // While somebody may add to them they stay.
    stage.home.fetcher.leave(id());
    stage.home.fetcher.stop(FetchNo(2));
    assert_eq!(stage.home.done().await.0.end, FetchEnd::Stopped);
    timeout(PATIENCE, async {
        while slices.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("they go");
}
