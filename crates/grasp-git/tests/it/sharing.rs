//! Objects given to another repository belong to both.

use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use grasp_git::{Repo, share};

use crate::support::{Place, bring, files, refs, within};

fn second(place: &Place) -> Repo {
    Repo::create(&place.path().join("other: one.git"))
        .unwrap()
        .0
}

#[tokio::test]
async fn shared_objects_outlive_the_repository_they_came_from() {
    let place = Place::new();
    let first = place.commit("a", "1");
    place.bring(first).await;
    let tip = place.commit("b", "2");
    bring(&place.repo, &place.pack(&[tip], &[first], &[]), tip).await;
    let other = second(&place);
    assert!(share(&place.repo, &other).unwrap());
    assert!(
        !share(&place.repo, &other).unwrap(),
        "nothing new the second time"
    );
    let pack = files(&other.dir().join("objects/pack")).remove(0);
    let linked = std::fs::metadata(other.dir().join("objects/pack").join(pack)).unwrap();
    assert_eq!(linked.nlink(), 2, "not a copy");

    Repo::remove(place.repo.dir()).unwrap();
    other
        .write_refs(&refs(&[("refs/heads/master", tip)]))
        .unwrap();
    assert_eq!(
        other
            .objects()
            .unwrap()
            .commit_summary(&tip, |_| true)
            .unwrap()
            .unwrap()
            .subject,
        "Add b"
    );
    crate::support::git(&["fsck", "--full", "--strict"], other.dir(), &[]);
    assert!(!other.dir().join("objects/info/alternates").exists());
}

#[tokio::test]
async fn loose_objects_are_shared_as_well() {
    let place = Place::new();
    let tip = place.commit("a", "1");
    let from = Repo::open(&place.work().join(".git")).unwrap();
    assert!(share(&from, &place.repo).unwrap());
    place
        .repo
        .write_refs(&refs(&[("refs/heads/master", tip)]))
        .unwrap();
    place.bare(&["fsck", "--full", "--strict"]);
}

#[tokio::test]
async fn objects_that_the_giver_borrows_are_given_too() {
    let place = Place::new();
    let tip = place.commit("a", "1");
    place.bring(tip).await;
    let borrower = second(&place);
    let line = format!("{}\n", place.repo.dir().join("objects").display());
    std::fs::write(borrower.dir().join("objects/info/alternates"), line).unwrap();
    let third = Repo::create(&place.path().join("third.git")).unwrap().0;
    share(&borrower, &third).unwrap();
    assert!(third.objects().unwrap().contains(&tip).unwrap());
}

#[tokio::test]
async fn a_taking_over_that_was_cut_short_is_finished_or_forgotten() {
    let place = Place::new();
    let tip = place.commit("a", "1");
    place.bring(tip).await;
    let other = second(&place);
    let objects = other.dir().join("objects");
    // As a crash leaves it before anything was visible, ...
    copy(
        &place.repo.dir().join("objects/pack"),
        &objects.join("adopt-one/pack"),
    );
    assert_eq!(
        other
            .clear_leftovers(SystemTime::UNIX_EPOCH)
            .unwrap()
            .adoptions,
        0
    );
    assert!(!other.objects().unwrap().contains(&tip).unwrap());
    assert!(!objects.join("adopt-one").exists());
    // ... and after, in a folder that has been moved since.
    copy(
        &place.repo.dir().join("objects/pack"),
        &objects.join("adopt-two/pack"),
    );
    std::fs::write(
        objects.join("info/alternates"),
        "/moved/objects/adopt-two\n",
    )
    .unwrap();
    assert_eq!(
        other
            .clear_leftovers(SystemTime::UNIX_EPOCH)
            .unwrap()
            .adoptions,
        1
    );
    assert!(other.objects().unwrap().contains(&tip).unwrap());
    assert!(!objects.join("adopt-two").exists());
    assert!(!objects.join("info/alternates").exists());
}

#[tokio::test]
async fn what_is_being_taken_over_is_visible_as_a_whole() {
    let place = Place::new();
    let tip = place.commit("a", "1");
    place.bring(tip).await;
    let other = second(&place);
    let objects = other.dir().join("objects");
    let open = other.objects().unwrap();
    assert!(!open.contains(&tip).unwrap());
    copy(
        &place.repo.dir().join("objects/pack"),
        &objects.join("adopt-x/pack"),
    );
    assert!(!open.contains(&tip).unwrap());
    let line = format!("{}\n", objects.join("adopt-x").display());
    std::fs::write(objects.join("info/alternates"), line).unwrap();
    assert!(
        open.contains(&tip).unwrap(),
        "one line makes it visible, also to an open store"
    );
    let said = crate::support::git(&["cat-file", "-t", &tip.to_string()], other.dir(), &[]);
    assert_eq!(said, b"commit\n");
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in files(from) {
        std::fs::copy(from.join(&file), to.join(&file)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharing_from_a_repository_that_is_being_repacked_gives_all_of_it() {
    let place = Place::new();
    let mut tip = place.commit("a", "0");
    place.bring(tip).await;
    for n in 1..20 {
        let next = place.commit("a", &n.to_string());
        bring(&place.repo, &place.pack(&[next], &[tip], &[]), next).await;
        tip = next;
    }
    let repo = place.repo.clone();
    let repacking = tokio::spawn(async move {
        repo.repack(crate::support::PATIENCE).await.unwrap();
    });
    for round in 0.. {
        let done = repacking.is_finished();
        let to = place.path().join(format!("to-{round}.git"));
        let to = Repo::create(&to).unwrap().0;
        share(&place.repo, &to).unwrap();
        to.write_refs(&refs(&[("refs/heads/master", tip)])).unwrap();
        let count = crate::support::git(
            &["rev-list", "--count", "--objects", "master"],
            to.dir(),
            &[],
        );
        assert_eq!(crate::support::text(&count), "60");
        if done {
            break;
        }
    }
}

#[tokio::test]
async fn a_pack_that_brings_nothing_is_not_linked() {
    let place = Place::new();
    let first = place.commit("a", "1");
    place.bring(first).await;
    let tip = place.commit("b", "2");
    bring(&place.repo, &place.pack(&[tip], &[first], &[]), tip).await;
    let other = second(&place);
    // All of it, in one pack of another name.
    bring(&other, &place.pack(&[tip], &[], &[]), tip).await;
    let before = files(&other.dir().join("objects/pack"));
    assert!(!share(&place.repo, &other).unwrap());
    let next = place.commit("c", "3");
    bring(&place.repo, &place.pack(&[next], &[tip], &[]), next).await;
    assert!(share(&place.repo, &other).unwrap());
    let after = files(&other.dir().join("objects/pack"));
    assert_eq!(after.len(), before.len() * 2, "one pack more");
    other
        .write_refs(&refs(&[("refs/heads/master", next)]))
        .unwrap();
    crate::support::git(&["fsck", "--full", "--strict"], other.dir(), &[]);
}

#[tokio::test]
async fn a_repository_that_lives_from_shares_is_repacked_and_the_giver_keeps_its_own() {
    let place = Place::new();
    let other = second(&place);
    let mut tip = place.commit("a", "0");
    place.bring(tip).await;
    for n in 1..40 {
        share(&place.repo, &other).unwrap();
        let next = place.commit("a", &n.to_string());
        bring(&place.repo, &place.pack(&[next], &[tip], &[]), next).await;
        tip = next;
    }
    share(&place.repo, &other).unwrap();
    assert!(other.needs_repack().unwrap());
    let given = files(&place.repo.dir().join("objects/pack"));
    let patience = crate::support::PATIENCE;
    other.repack(patience).await.unwrap();
    assert!(!other.needs_repack().unwrap());
    assert_eq!(files(&place.repo.dir().join("objects/pack")), given);
    assert!(
        !share(&place.repo, &other).unwrap(),
        "nothing comes back after a repack"
    );
    for repo in [&place.repo, &other] {
        repo.write_refs(&refs(&[("refs/heads/master", tip)]))
            .unwrap();
        crate::support::git(&["fsck", "--full", "--strict"], repo.dir(), &[]);
    }
    // And when one drops what the other still has.
    other.write_refs(&refs(&[])).unwrap();
    let now = std::time::Duration::ZERO;
    other.prune(&[], within(now)).await.unwrap();
    assert!(!other.objects().unwrap().contains(&tip).unwrap());
    crate::support::git(&["fsck", "--full", "--strict"], place.repo.dir(), &[]);
}
