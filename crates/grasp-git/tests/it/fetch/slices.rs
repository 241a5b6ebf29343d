//! Histories that are larger than one fetch.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use grasp_core::git::ObjectId;
use grasp_core::hunt::io::FetchEnd;
use grasp_core::push::Backing;
use grasp_git::fetch::{Extent, FetchLimits, Version, clear_slices, fetch};

use super::Pair;
use super::host::{Host, Onlooker, half, url, with_pack};
use crate::support::{files, noise, refs};

const COMMITS: usize = 30;
/// Of which the whole history is some ten times as much, and a commit less than a quarter.
const BUDGET: u64 = 100_000;

fn limits() -> FetchLimits {
    FetchLimits {
        max_bytes: BUDGET,
        ..FetchLimits::default()
    }
}

/// Each commit replaces a file that does not compress.
fn long_history(pair: &Pair) -> ObjectId {
    let all = noise(COMMITS * 40_000);
    for n in 0..COMMITS {
        pair.place
            .commit("file", &all[n * 40_000..(n + 1) * 40_000]);
    }
    pair.place.id("HEAD")
}

fn folder(pair: &Pair) -> PathBuf {
    pair.repo().dir().join("objects/slices")
}

/// The folders of those who have sent something.
fn servers(pair: &Pair) -> Vec<String> {
    let found = std::fs::read_dir(folder(pair)).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = found.map(|one| name(one).into_string().unwrap()).collect();
    names.sort();
    names
}

/// How many are for states, and how many for pull requests.
fn count(pair: &Pair) -> (usize, usize) {
    let names = servers(pair);
    let of = |kind: &str| names.iter().filter(|name| name.starts_with(kind)).count();
    (of("states-from-"), of("requests-from-"))
}

/// The same repository elsewhere.
fn host_at(pair: &Pair, name: &str) -> Host {
    let mut host = Host::of(&pair.place.work());
    host.url = url(&format!("{name}/r.git"));
    host
}

/// Fetches until it is here.
async fn bring(pair: &mut Pair, tip: ObjectId) {
    let repo = pair.place.repo.clone();
    let mut rounds = 0;
    while !pair.has(tip) {
        pair.host.fetch_within(&repo, &[tip], &limits()).await;
        rounds += 1;
        assert!(rounds < 64);
    }
}

#[tokio::test]
async fn a_long_history_comes_in_slices() {
    let mut pair = Pair::new();
    let tip = long_history(&pair);
    let repo = pair.place.repo.clone();
    let first = pair.host.fetch_within(&repo, &[tip], &limits()).await;
    assert_eq!(first.end, FetchEnd::Cut { kept: false });
    let mut slices = 0;
    let last = loop {
        let fetched = pair.host.fetch_within(&repo, &[tip], &limits()).await;
        assert!(fetched.bytes <= BUDGET + 65_536, "{}", fetched.bytes);
        if fetched.end == FetchEnd::Answered {
            break fetched;
        }
        assert_eq!(fetched.end, FetchEnd::Cut { kept: true });
        // Nothing of it is anybody's before all is here.
        assert!(!pair.has(tip) && pair.repo().is_empty().unwrap());
        slices += 1;
        assert!(slices < 64);
    };
    assert!(slices > 5, "{slices}");
    assert_eq!(last.got, [tip]);
    pair.is_tidy();
    let count = pair.place.bare(&["rev-list", "--count", &tip.to_string()]);
    assert_eq!(count, COMMITS.to_string());
}

#[tokio::test]
async fn what_moved_meanwhile_is_not_begun_anew() {
    let mut pair = Pair::new();
    let old = long_history(&pair);
    let repo = pair.place.repo.clone();
    for _ in 0..6 {
        pair.host.fetch_within(&repo, &[old], &limits()).await;
    }
    assert!(folder(&pair).exists());
    let new = pair.place.commit("file", "small");
    let fetched = pair.host.fetch_within(&repo, &[new], &limits()).await;
    assert_eq!(fetched.end, FetchEnd::Cut { kept: true });
    let mut rounds = 0;
    while !pair.has(new) {
        pair.host.fetch_within(&repo, &[new], &limits()).await;
        rounds += 1;
        assert!(rounds < 30);
    }
    pair.is_tidy();
}

#[tokio::test]
async fn slices_lean_on_what_the_repository_has() {
    let mut pair = Pair::new();
    let base = pair.place.commit("large", &noise(300_000));
    pair.place.bring(base).await;
    let ours = refs(&[("refs/heads/master", base)]);
    pair.repo().write_refs(&ours).unwrap();
    let tip = long_history(&pair);
    let repo = pair.place.repo.clone();
    let mut rounds = 0;
    while !pair.has(tip) {
        let fetched = pair.host.fetch_within(&repo, &[tip], &limits()).await;
        assert!(fetched.bytes <= BUDGET + 65_536, "{}", fetched.bytes);
        rounds += 1;
        assert!(rounds < 64);
    }
    pair.is_tidy();
}

#[tokio::test]
async fn what_is_too_large_in_one_piece_is_not_kept() {
    let mut pair = Pair::new();
    let tip = pair.place.commit("file", &noise(400_000));
    let repo = pair.place.repo.clone();
    for begun in [true, false, true, false] {
        let fetched = pair.host.fetch_within(&repo, &[tip], &limits()).await;
        assert_eq!(fetched.end, FetchEnd::Cut { kept: false });
        assert_eq!(folder(&pair).exists(), begun);
    }
    // With more room it goes.
    let fetched = pair.host.fetch(&repo, &[tip]).await;
    assert_eq!(fetched.end, FetchEnd::Answered);
    pair.is_tidy();
}

#[tokio::test]
async fn slices_that_make_no_whole_are_given_up() {
    let mut pair = Pair::new();
    let tip = long_history(&pair);
    let repo = pair.place.repo.clone();
    pair.host.fetch_within(&repo, &[tip], &limits()).await;
    // One that says that nothing is missing, and brings next to nothing.
    let pack = pair.place.pack_of(&[tip]);
    pair.host.twist = Some(Box::new(move |_| with_pack(b"000dpackfile\n", &pack)));
    let fetched = pair.host.fetch_within(&repo, &[tip], &limits()).await;
    assert_eq!(fetched.end, FetchEnd::Spoiled);
    pair.is_tidy();
}

#[tokio::test]
async fn a_server_that_knows_no_slices_is_asked_for_the_whole() {
    let mut pair = Pair::new();
    pair.host.version = Version::V0;
    let tip = long_history(&pair);
    let repo = pair.place.repo.clone();
    for _ in 0..2 {
        let fetched = pair.host.fetch_within(&repo, &[tip], &limits()).await;
        assert_eq!(fetched.end, FetchEnd::Cut { kept: false });
    }
    assert!(!folder(&pair).exists());
}

#[tokio::test]
async fn a_slow_server_holds_up_nobody_but_itself() {
    let mut pair = Pair::new();
    let tip = long_history(&pair);
    let repo = pair.place.repo.clone();
    let mut other = host_at(&pair, "other.example");
    pair.host.fetch_within(&repo, &[tip], &limits()).await;
    other.fetch_within(&repo, &[tip], &limits()).await;
    let (wants, limits) = ([tip], limits());
    let mut slow = Host::of(&pair.place.work());
    let here = slow.url.clone();
    slow.twist = Some(Box::new(|answer| half(&answer)));
    slow.hangs_at = Some(3);
    let onlooker = Onlooker::default();
    {
        let mut fetching = pin!(fetch(
            &repo,
            Extent::Missing(&here, Backing::State),
            &wants,
            &mut slow,
            &onlooker,
            &limits
        ));
        while onlooker.bytes.load(Ordering::Relaxed) == 0 {
            let step = Duration::from_millis(1);
            let ended = tokio::time::timeout(step, &mut fetching).await;
            assert!(ended.is_err());
        }
        let fetched = pair.host.fetch_within(&repo, &wants, &limits).await;
        assert_eq!(fetched.end, FetchEnd::Stopped);
        let fetched = other.fetch_within(&repo, &wants, &limits).await;
        assert_eq!(fetched.end, FetchEnd::Cut { kept: true });
    }
    let fetched = pair.host.fetch_within(&repo, &wants, &limits).await;
    assert_eq!(fetched.end, FetchEnd::Cut { kept: true });
}

#[tokio::test]
async fn slices_that_nobody_asks_for_go() {
    let mut pair = Pair::new();
    let tip = long_history(&pair);
    let repo = pair.place.repo.clone();
    for _ in 0..3 {
        pair.host.fetch_within(&repo, &[tip], &limits()).await;
    }
    let some = files(&folder(&pair));
    assert!(some.iter().any(|name| name.ends_with(".pack")), "{some:?}");
    let hour = Duration::from_secs(3_600);
    assert!(!clear_slices(&repo, SystemTime::now() - hour).unwrap());
    assert!(clear_slices(&repo, SystemTime::now() + hour).unwrap());
    pair.is_tidy();
    pair.host.fetch_within(&repo, &[tip], &limits()).await;
    assert!(folder(&pair).exists());
    let cleared = repo.clear_leftovers(SystemTime::now() + hour).unwrap();
    assert_eq!(cleared.quarantines, 1);
    pair.is_tidy();
}

#[tokio::test]
async fn what_a_stranger_sends_is_nothing_to_the_others() {
    let mut pair = Pair::new();
    let tip = long_history(&pair);
    let repo = pair.place.repo.clone();
    for _ in 0..4 {
        pair.host.fetch_within(&repo, &[tip], &limits()).await;
    }
    // A stranger's history is long and light: it is soon asked for at a great depth.
    let elsewhere = Pair::new();
    let all = noise(400_000);
    for n in 0..200 {
        let text = all.get(n * 1_000..(n + 1) * 1_000).unwrap_or_default();
        elsewhere.place.commit("file", text);
    }
    let light = elsewhere.place.id("HEAD");
    // On a server of his own, and on the same forge.
    for name in ["stranger.example", "git.example"] {
        let mut stranger = host_at(&elsewhere, name);
        stranger.backing = Backing::PullRequests;
        for _ in 0..3 {
            stranger.fetch_within(&repo, &[light], &limits()).await;
        }
    }
    assert_eq!(servers(&pair).len(), 3);
    let fetched = pair.host.fetch_within(&repo, &[tip], &limits()).await;
    assert_eq!(fetched.end, FetchEnd::Cut { kept: true });
    bring(&mut pair, tip).await;
    assert_eq!(count(&pair), (0, 2));
}

/// Forks on one forge have one server and nothing else in common.
#[tokio::test]
async fn what_one_fork_sends_is_nothing_to_another_on_the_same_server() {
    let mut pair = Pair::new();
    let tip = long_history(&pair);
    let repo = pair.place.repo.clone();
    let elsewhere = Pair::new();
    let other = long_history(&elsewhere);
    let mut fork = Host::of(&elsewhere.place.work());
    (fork.url, fork.backing) = (url("git.example/fork.git"), Backing::PullRequests);
    pair.host.backing = Backing::PullRequests;
    for _ in 0..4 {
        fork.fetch_within(&repo, &[other], &limits()).await;
    }
    for _ in 0..3 {
        pair.host.fetch_within(&repo, &[tip], &limits()).await;
    }
    assert_eq!(count(&pair), (0, 2));
    let depth = |host: &Host| {
        let asked = host.pack_requests();
        let depths = asked.iter().flat_map(|text| text.split("deepen ").nth(1));
        let depths = depths.filter_map(|text| text.split('\n').next()?.parse::<u32>().ok());
        depths.min()
    };
    assert_eq!(depth(&pair.host), Some(1), "it begins at its own tip");
    bring(&mut pair, tip).await;
}

#[tokio::test]
async fn a_slice_without_anything_new_is_no_progress() {
    for again in [true, false] {
        let mut pair = Pair::new();
        let tip = long_history(&pair);
        let repo = pair.place.repo.clone();
        for _ in 0..2 {
            pair.host.fetch_within(&repo, &[tip], &limits()).await;
        }
        let sent: Vec<ObjectId> = again.then_some(tip).into_iter().collect();
        let pack = pair.place.pack_of(&sent);
        pair.host.twist = Some(Box::new(move |answer| with_pack(&answer, &pack)));
        let mut ends = Vec::new();
        for _ in 0..2 {
            let fetched = pair.host.fetch_within(&repo, &[tip], &limits()).await;
            ends.push(fetched.end);
            if fetched.end == FetchEnd::Spoiled {
                break;
            }
        }
        assert_eq!(ends.last(), Some(&FetchEnd::Spoiled), "{again} {ends:?}");
        assert!(!folder(&pair).exists());
    }
}

#[tokio::test]
async fn few_servers_at_once_have_slices_here_and_pull_requests_make_way() {
    let mut pair = Pair::new();
    let tip = long_history(&pair);
    let repo = pair.place.repo.clone();
    pair.host.fetch_within(&repo, &[tip], &limits()).await;
    for n in 0..4 {
        let mut other = host_at(&pair, &format!("{n}.example:8080"));
        other.backing = Backing::PullRequests;
        other.fetch_within(&repo, &[tip], &limits()).await;
    }
    assert_eq!(count(&pair), (1, 3));
    for n in 0..4 {
        let mut other = host_at(&pair, &format!("{n}.example"));
        other.fetch_within(&repo, &[tip], &limits()).await;
    }
    assert_eq!(count(&pair), (4, 0));
    let before = servers(&pair);
    let mut other = host_at(&pair, "last.example");
    other.backing = Backing::PullRequests;
    other.fetch_within(&repo, &[tip], &limits()).await;
    assert_eq!(servers(&pair), before);
}

#[tokio::test]
async fn slices_wait_for_a_disk_with_room_for_a_copy_and_count_once() {
    let mut pair = Pair::new();
    let tip = long_history(&pair);
    let (repo, here) = (pair.place.repo.clone(), pair.host.url.clone());
    let (wants, limits) = ([tip], limits());
    let full = Onlooker {
        room: Some(COMMITS as u64 * 30_000 - 1),
        ..Onlooker::default()
    };
    let mut rounds = 0;
    loop {
        let fetched = fetch(
            &repo,
            Extent::Missing(&here, Backing::State),
            &wants,
            &mut pair.host,
            &full,
            &limits,
        )
        .await;
        if fetched.end == FetchEnd::DiskLow {
            break;
        }
        rounds += 1;
        assert!(rounds < 64, "{:?}", fetched.end);
    }
    assert!(!pair.has(tip) && folder(&pair).exists());
    let roomy = Onlooker {
        room: Some(COMMITS as u64 * 45_000),
        ..Onlooker::default()
    };
    let fetched = fetch(
        &repo,
        Extent::Missing(&here, Backing::State),
        &wants,
        &mut pair.host,
        &roomy,
        &limits,
    )
    .await;
    assert_eq!((fetched.end, fetched.got), (FetchEnd::Answered, vec![tip]));
    assert!(roomy.bytes.into_inner() < 1_000);
    pair.is_tidy();
}
