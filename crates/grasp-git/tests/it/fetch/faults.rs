//! Servers that are absent, busy, slow, broken or lying: each has its own end, and nothing of it
//! stays.

use std::time::Duration;

use grasp_core::hunt::io::FetchEnd;
use grasp_core::push::Backing;
use grasp_git::PackLimits;
use grasp_git::fetch::{AdvertLimits, Extent, FetchLimits, Pace, Version, fetch};

use super::host::{Onlooker, half, take_apart, with_pack};
use super::{Pair, stranger};
use crate::support::{git, id, noise};

#[tokio::test]
async fn a_status_says_what_a_server_means() {
    let busy = FetchEnd::Busy(Some(Duration::from_secs(7)));
    for (status, end) in [
        (404, FetchEnd::Absent),
        (401, FetchEnd::Absent),
        (403, FetchEnd::Absent),
        (410, FetchEnd::Absent),
        (429, busy),
        (503, busy),
        (500, FetchEnd::Failed),
        (502, FetchEnd::Failed),
        (302, FetchEnd::Unreachable),
    ] {
        let mut pair = Pair::new();
        pair.host.status = status;
        let fetched = pair.host.fetch(&pair.place.repo, &[stranger(1)]).await;
        assert_eq!(fetched.end, end, "{status}");
        assert_eq!((fetched.got, fetched.lacking), (vec![], vec![]));
    }
}

#[tokio::test]
async fn what_does_not_speak_git_is_not_reached() {
    let mut pair = Pair::new();
    pair.host.content_type = Some("text/plain; charset=utf-8");
    let fetched = pair.host.fetch(&pair.place.repo, &[stranger(1)]).await;
    assert_eq!(fetched.end, FetchEnd::Unreachable);
}

#[tokio::test]
async fn a_spoiled_pack_leaves_nothing() {
    type Spoil = fn(&Pair, &[u8]) -> Vec<u8>;
    let spoils: [(&str, Spoil); 6] = [
        ("truncated", |_, pack| pack[..pack.len() / 2].to_vec()),
        ("corrupt", |_, pack| {
            let mut pack = pack.to_vec();
            let middle = pack.len() / 2;
            pack[middle] ^= 0xff;
            pack
        }),
        ("no pack", |_, _| b"<!DOCTYPE html>".repeat(10)),
        ("more after its end", |_, pack| [pack, b"more"].concat()),
        ("other objects", |pair, _| {
            let blob = pair.place.run(&["hash-object", "-w", ".git/config"]);
            pair.place.pack_of(&[crate::support::id(&blob)])
        }),
        ("missing links", |pair, _| {
            let tip = pair.place.id("HEAD");
            pair.place.pack_of(&[tip])
        }),
    ];
    for version in [Version::V2, Version::V0] {
        for (name, spoil) in spoils {
            let mut pair = Pair::new();
            pair.host.version = version;
            pair.place.commit("a", "a");
            let tip = pair.place.commit("b", &noise(5_000));
            let pack = pair.place.pack(&[tip], &[], &[]);
            let spoiled = spoil(&pair, &pack);
            pair.host.twist = Some(Box::new(move |answer| {
                assert!(!take_apart(&answer).1.is_empty());
                with_pack(&answer, &spoiled)
            }));
            let fetched = pair.host.fetch(&pair.place.repo, &[tip]).await;
            assert_eq!(fetched.end, FetchEnd::Spoiled, "{name}");
            assert!(fetched.got.is_empty() && !pair.has(tip), "{name}");
            assert!(pair.repo().is_empty().unwrap(), "{name}");
            pair.is_tidy();
        }
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_spoiled_and_a_servers_own_error_is_its_own() {
    let fatal: &[u8] = b"0019\x03something went wrong";
    for (twist, end) in [
        (b"".as_slice(), FetchEnd::Spoiled),
        (b"000dpackfile\n0009\x01PACK", FetchEnd::Spoiled),
        (b"zzzz", FetchEnd::Spoiled),
        (b"0010ERR go away\n", FetchEnd::Failed),
        (&[b"000dpackfile\n", fatal].concat(), FetchEnd::Failed),
    ] {
        let mut pair = Pair::new();
        let tip = pair.place.commit("a", "a");
        let twisted = twist.to_vec();
        pair.host.twist = Some(Box::new(move |_| twisted.clone()));
        let fetched = pair.host.fetch(&pair.place.repo, &[tip]).await;
        assert_eq!(fetched.end, end, "{:?}", String::from_utf8_lossy(twist));
        pair.is_tidy();
    }
}

#[tokio::test]
async fn whatever_is_said_against_a_single_object_it_is_lacking() {
    let mut pair = Pair::new();
    pair.place.commit("a", "a");
    pair.host.twist = Some(Box::new(|_| b"0014ERR not for you\n".to_vec()));
    let wants = [stranger(1), stranger(2)];
    let fetched = pair.host.fetch(&pair.place.repo, &wants).await;
    assert_eq!(fetched.end, FetchEnd::Answered);
    assert_eq!(fetched.lacking, wants);
}

#[tokio::test]
async fn each_limit_has_its_own_end() {
    let usual = FetchLimits::default();
    let cut = FetchEnd::Cut { kept: false };
    let few = |max_objects| PackLimits {
        max_objects,
        ..usual.pack
    };
    let advert = |max_bytes, max_refs| AdvertLimits {
        max_bytes,
        max_refs,
    };
    let bounds = [
        (
            "bytes",
            FetchLimits {
                max_bytes: 20_000,
                ..usual
            },
            cut,
        ),
        (
            "objects",
            FetchLimits {
                pack: few(2),
                ..usual
            },
            cut,
        ),
        (
            "time",
            FetchLimits {
                deadline: Duration::ZERO,
                ..usual
            },
            cut,
        ),
        (
            "refs",
            FetchLimits {
                advert: advert(1_000_000, 2),
                ..usual
            },
            cut,
        ),
        (
            "list of refs",
            FetchLimits {
                advert: advert(60, 1_000),
                ..usual
            },
            cut,
        ),
        ("none", usual, FetchEnd::Answered),
    ];
    for (name, limits, end) in bounds {
        for version in [Version::V2, Version::V0] {
            let mut pair = Pair::new();
            pair.host.version = version;
            let tip = pair.place.commit("a", &noise(100_000));
            for branch in ["a", "b", "c", "d", "e", "f", "g", "h"] {
                pair.place.run(&["branch", branch]);
            }
            let repo = pair.place.repo.clone();
            let fetched = pair.host.fetch_within(&repo, &[tip], &limits).await;
            assert_eq!(fetched.end, end, "{name} {version:?}");
            assert_eq!(pair.has(tip), end == FetchEnd::Answered);
        }
    }
}

#[tokio::test]
async fn a_list_of_refs_is_not_waited_for_without_end() {
    let mut pair = Pair::new();
    let tip = pair.place.commit("a", "a");
    pair.host.twist_refs = Some(Box::new(|answer| answer[..answer.len() - 4].to_vec()));
    pair.host.hangs_at = Some(2);
    let limits = FetchLimits {
        patience: Duration::from_millis(50),
        ..FetchLimits::default()
    };
    let repo = pair.place.repo.clone();
    let fetched = pair.host.fetch_within(&repo, &[tip], &limits).await;
    assert_eq!(fetched.end, FetchEnd::TooSlow);
    assert_eq!(pair.host.asked.len(), 2);
}

#[tokio::test]
async fn a_server_may_take_its_time_before_a_pack_but_not_all_of_it() {
    let alive = b"0005\x01".repeat(100);
    for (hangs_at, end) in [(None, FetchEnd::Answered), (Some(3), FetchEnd::TooSlow)] {
        let mut pair = Pair::new();
        let tip = pair.place.commit("a", "a");
        let alive = alive.clone();
        pair.host.twist = Some(Box::new(move |answer| {
            let (head, pack) = take_apart(&answer);
            let head = [&head[..head.len().min(13)], &alive].concat();
            match hangs_at {
                None => [head, with_pack(b"", &pack)].concat(),
                Some(_) => head,
            }
        }));
        pair.host.hangs_at = hangs_at;
        let limits = FetchLimits {
            patience: Duration::from_millis(500),
            ..FetchLimits::default()
        };
        let repo = pair.place.repo.clone();
        let fetched = pair.host.fetch_within(&repo, &[tip], &limits).await;
        assert_eq!(fetched.end, end);
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_within_its_pack_is_left() {
    let mut pair = Pair::new();
    let tip = pair.place.commit("a", "a");
    pair.host.twist = Some(Box::new(|answer| answer[..answer.len() - 10].to_vec()));
    pair.host.hangs_at = Some(3);
    let pace = Pace {
        bytes: 1_000,
        window: Duration::from_millis(50),
    };
    let limits = FetchLimits {
        pace,
        ..FetchLimits::default()
    };
    let repo = pair.place.repo.clone();
    let fetched = pair.host.fetch_within(&repo, &[tip], &limits).await;
    assert_eq!(fetched.end, FetchEnd::TooSlow);
    pair.is_tidy();
}

#[tokio::test]
async fn whoever_looks_on_hears_of_it_and_may_end_it() {
    let mut pair = Pair::new();
    let tip = pair.place.commit("a", &noise(300_000));
    let onlooker = Onlooker {
        most: Some(100_000),
        ..Onlooker::default()
    };
    let limits = FetchLimits::default();
    let (repo, here) = (pair.place.repo.clone(), pair.host.url.clone());
    let fetched = fetch(
        &repo,
        Extent::Missing(&here, Backing::State),
        &[tip],
        &mut pair.host,
        &onlooker,
        &limits,
    )
    .await;
    assert_eq!(fetched.end, FetchEnd::Full);
    assert_eq!(onlooker.flowing.into_inner(), 1);
    pair.is_tidy();
    let onlooker = Onlooker::default();
    let fetched = fetch(
        &repo,
        Extent::Missing(&here, Backing::State),
        &[tip],
        &mut pair.host,
        &onlooker,
        &limits,
    )
    .await;
    assert_eq!(fetched.end, FetchEnd::Answered);
    let seen = onlooker.bytes.into_inner();
    assert!((225_000..=fetched.bytes).contains(&seen), "{seen}");
}

#[tokio::test]
async fn a_fetch_that_is_dropped_leaves_nothing() {
    let mut pair = Pair::new();
    let tip = pair.place.commit("a", &noise(100_000));
    pair.host.twist = Some(Box::new(|answer| half(&answer)));
    pair.host.hangs_at = Some(3);
    let (repo, here) = (pair.place.repo.clone(), pair.host.url.clone());
    let limits = FetchLimits::default();
    let onlooker = Onlooker::default();
    {
        let wants = [tip];
        let fetching = fetch(
            &repo,
            Extent::Missing(&here, Backing::State),
            &wants,
            &mut pair.host,
            &onlooker,
            &limits,
        );
        let mut fetching = std::pin::pin!(fetching);
        // As far as it comes.
        while onlooker.bytes.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            let step = Duration::from_millis(1);
            let ended = tokio::time::timeout(step, &mut fetching).await;
            assert!(ended.is_err());
        }
    }
    pair.is_tidy();
}

/// As a server would that checks nothing.
#[tokio::test]
async fn a_fault_in_what_a_server_sends_is_told_with_its_object() {
    let mut pair = Pair::new();
    let tip = pair.place.commit("a", "a");
    let blob = pair.place.id("HEAD:a");
    let entry = [b"100644 .git\0".as_slice(), blob.as_bytes()].concat();
    let args = ["hash-object", "-t", "tree", "--literally", "-w", "--stdin"];
    let bad = git(&args, &pair.place.work(), &entry);
    let bad = id(&String::from_utf8(bad).unwrap());
    let pack = pair
        .place
        .pack_of(&[tip, blob, pair.place.id("HEAD^{tree}"), bad]);
    pair.host.twist = Some(Box::new(move |answer| with_pack(&answer, &pack)));
    let (url, onlooker) = (pair.host.url.clone(), Onlooker::default());
    let extent = Extent::Missing(&url, Backing::State);
    let (repo, limits) = (&pair.place.repo, FetchLimits::default());
    let fetched = fetch(repo, extent, &[tip], &mut pair.host, &onlooker, &limits).await;
    assert_eq!(fetched.end, FetchEnd::Spoiled);
    let refused = onlooker.refused.lock().unwrap().clone();
    assert!(
        refused.iter().any(|words| words.contains(&bad.to_string())),
        "{refused:?}"
    );
}
