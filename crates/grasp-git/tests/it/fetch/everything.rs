//! Repositories that a disk has robbed: what is lost lies below what is there.

use std::path::PathBuf;

use grasp_core::git::ObjectId;
use grasp_core::hunt::io::{FetchEnd, Fetched};
use grasp_git::fetch::{Extent, FetchLimits, fetch};

use super::Pair;
use super::host::Onlooker;
use crate::support::refs;

/// Ours has three commits, and every object is a file of its own.
async fn loose(pair: &Pair) -> ObjectId {
    for n in 0..3 {
        pair.place.commit(&format!("file-{n}"), &format!("{n}"));
    }
    let tip = pair.place.id("HEAD");
    pair.place.bring(tip).await;
    let ours = refs(&[("refs/heads/master", tip)]);
    pair.repo().write_refs(&ours).unwrap();
    let pack = pair.place.pack(&[tip], &[], &[]);
    let packs = pair.repo().dir().join("objects/pack");
    std::fs::remove_dir_all(&packs).unwrap();
    std::fs::create_dir(&packs).unwrap();
    crate::support::git(&["unpack-objects", "-q"], pair.repo().dir(), &pack);
    tip
}

fn path(pair: &Pair, id: ObjectId) -> PathBuf {
    let name = id.to_string();
    let (folder, rest) = name.split_at(2);
    pair.repo().dir().join("objects").join(folder).join(rest)
}

async fn everything(pair: &mut Pair, wants: &[ObjectId]) -> Fetched {
    let repo = pair.place.repo.clone();
    let (onlooker, limits) = (Onlooker::default(), FetchLimits::default());
    let extent = Extent::Everything;
    fetch(&repo, extent, wants, &mut pair.host, &onlooker, &limits).await
}

#[tokio::test]
async fn what_is_lost_below_a_tip_comes_back() {
    for lost in ["HEAD:file-0", "HEAD~1^{tree}", "HEAD~2", "HEAD"] {
        for damaged in [false, true] {
            let mut pair = Pair::new();
            let tip = loose(&pair).await;
            let lost = path(&pair, pair.place.id(lost));
            std::fs::remove_file(&lost).unwrap();
            if damaged {
                std::fs::write(&lost, b"").unwrap();
            }
            let fetched = everything(&mut pair, &[tip]).await;
            assert_eq!((fetched.end, fetched.got), (FetchEnd::Answered, vec![tip]));
            pair.place
                .bare(&["rev-list", "--objects", "--quiet", "HEAD"]);
            pair.place.bare(&["cat-file", "-p", "HEAD:file-0"]);
        }
    }
}

#[tokio::test]
async fn a_server_that_has_lost_the_same_brings_nothing() {
    let mut pair = Pair::new();
    let tip = loose(&pair).await;
    let blob = pair.place.id("HEAD:file-0");
    std::fs::remove_file(path(&pair, blob)).unwrap();
    // It sends all but the one.
    let all = ["rev-list", "--objects", "--no-object-names", "HEAD"];
    let all = pair.place.run(&all);
    let rest: Vec<ObjectId> = all.lines().filter_map(ObjectId::parse).collect();
    let rest: Vec<ObjectId> = rest.into_iter().filter(|id| *id != blob).collect();
    let pack = pair.place.pack_of(&rest);
    pair.host.twist = Some(Box::new(move |answer| {
        super::host::with_pack(&answer, &pack)
    }));
    let fetched = everything(&mut pair, &[tip]).await;
    assert_eq!((fetched.end, fetched.got), (FetchEnd::Spoiled, vec![]));
    assert!(!pair.has(blob));
}

#[tokio::test]
async fn a_second_tip_does_not_travel_with_the_whole_again() {
    let mut pair = Pair::new();
    let tip = loose(&pair).await;
    let old = pair.place.id("HEAD~1");
    pair.place.run(&["checkout", "-q", "--detach"]);
    let unnamed = pair.place.commit("more", "more");
    pair.place.run(&["checkout", "-q", "master"]);
    pair.host.settings = vec!["uploadpack.allowAnySHA1InWant=true"];
    let fetched = everything(&mut pair, &[tip, unnamed, old]).await;
    assert_eq!(fetched.end, FetchEnd::Answered);
    assert_eq!(fetched.got.len(), 3);
    let asked = pair.host.pack_requests();
    assert!(!asked[0].contains("have "));
    assert!(asked[1].contains(&format!("have {tip}")));
    assert!(pair.has(unnamed));
}
