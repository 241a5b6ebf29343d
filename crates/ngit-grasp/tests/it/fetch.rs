//! A server like this one is where most git data comes from: the hands of the hunt fetch from it.

use std::sync::Arc;
use std::time::Duration;

use grasp_core::clone_url::CloneUrl;
use grasp_core::git::ObjectId;
use grasp_core::hunt::io::{FetchAsk, FetchEnd, Fetched};
use grasp_core::push::Backing;
use grasp_core::{FetchNo, Identifier, Pubkey, RepoId};
use grasp_git::Repo;
use grasp_git::fetch::FetchLimits;
use ngit_grasp::fetch::{Fetcher, Options, Tell, Word};
use ngit_grasp::hosting::Repositories;
use ngit_grasp::hosting::room::Rooms;
use ngit_grasp::remote::guard::Reach;
use tempfile::TempDir;
use testkit::{Author, Project, WorkTree, now};
use tokio::sync::mpsc;

use crate::hosted::{grasp, hosted, next_state, served};
use crate::support::DEADLINE;

/// A repository without anything, and who brings it what it lacks.
struct Home {
    _folder: TempDir,
    repo: Repo,
    fetcher: Fetcher,
    words: mpsc::UnboundedReceiver<Word>,
}

impl Home {
    fn new(max_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let repositories = Arc::new(Repositories::new(root.clone()));
        let (repo, _) = Repo::create(&repositories.dir(&id())).unwrap();
        let rooms = Rooms::new(u64::MAX, root, 0);
        let (sender, words) = mpsc::unbounded_channel();
        let tell: Tell = Arc::new(move |_, word| drop(sender.send(word)));
        let options = Options {
            reach: Reach {
                allow_private: true,
                ..Reach::default()
            },
            trusted: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            limits: FetchLimits {
                max_bytes,
                ..FetchLimits::default()
            },
            max_owner_bytes: None,
        };
        let fetcher = Fetcher::new(options, repositories, Arc::new(rooms), tell).unwrap();
        Self {
            _folder: folder,
            repo,
            fetcher,
            words,
        }
    }

    async fn fetch(&mut self, url: &str, wants: &[ObjectId]) -> Fetched {
        let ask = FetchAsk {
            repo: id(),
            url: CloneUrl::parse(url).unwrap(),
            wants: Arc::from(wants),
            backing: Backing::PullRequests,
        };
        self.fetcher.start(FetchNo(1), ask);
        loop {
            let word = tokio::time::timeout(DEADLINE, self.words.recv()).await;
            if let Some(Word::Done(fetched)) = word.expect("an answer in time") {
                return fetched;
            }
        }
    }
}

fn id() -> RepoId {
    RepoId::new(Pubkey([7; 32]), Identifier::parse("copy").unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_come_from_a_server_like_this_one_at_once_or_in_slices() {
    let server = grasp();
    let project = Project::new(&Author::new(1), "source");
    let tree = WorkTree::new();
    let mut client = hosted(&server, &project, &tree).await;
    let mut old = String::new();
    for n in 0..12 {
        old = tree.commit_noise("noise", n, 100_000);
    }
    let (tip, state) = next_state(&mut client, &project, &tree, now() - 50).await;
    let url = project.url(&server);
    tree.git(&["push", "-q", &url, "main"]);
    assert!(served(&mut client, &state).await);
    let (tip, old) = (
        ObjectId::parse(&tip).unwrap(),
        ObjectId::parse(&old).unwrap(),
    );
    let stranger = ObjectId([9; 20]);

    let mut whole = Home::new(256 * 1024 * 1024);
    let fetched = whole.fetch(&url, &[stranger, old]).await;
    assert_eq!(fetched.end, FetchEnd::Answered);
    assert_eq!((fetched.got, fetched.lacking), (vec![old], vec![stranger]));
    let fetched = whole.fetch(&url, &[tip]).await;
    assert_eq!((fetched.end, fetched.got), (FetchEnd::Answered, vec![tip]));

    let mut sliced = Home::new(400_000);
    let fetched = sliced.fetch(&url, &[tip]).await;
    assert_eq!(fetched.end, FetchEnd::Cut { kept: false });
    let mut slices = 0;
    loop {
        let fetched = sliced.fetch(&url, &[tip]).await;
        if fetched.end == FetchEnd::Answered {
            break;
        }
        assert_eq!(fetched.end, FetchEnd::Cut { kept: true });
        slices += 1;
        assert!(slices < 64);
    }
    assert!(slices > 2, "{slices}");
    assert!(sliced.repo.objects().unwrap().contains(&tip).unwrap());
    let absent = url.replace("source", "nothing");
    let fetched = sliced.fetch(&absent, &[stranger]).await;
    assert_eq!(fetched.end, FetchEnd::Absent);
}
