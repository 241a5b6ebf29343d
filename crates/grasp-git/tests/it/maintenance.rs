//! Repacking keeps everything and disturbs nobody.

use std::time::Duration;

use grasp_core::git::ObjectKind;
use grasp_git::Problem;

use crate::support::{PATIENCE, Place, bring, files, refs};

fn packs(place: &Place) -> usize {
    let pack = place.repo.dir().join("objects/pack");
    files(&pack)
        .iter()
        .filter(|file| file.ends_with(".pack"))
        .count()
}

#[tokio::test]
async fn many_small_packs_become_few_and_unreachable_objects_stay() {
    let place = Place::new();
    let mut tip = place.commit("a", "0");
    place.bring(tip).await;
    let open = place.repo.objects().unwrap();
    let mut all = vec![tip];
    for n in 1..40 {
        let next = place.commit("a", &n.to_string());
        bring(&place.repo, &place.pack(&[next], &[tip], &[]), next).await;
        tip = next;
        all.push(tip);
    }
    // No ref names any of it.
    assert_eq!(packs(&place), 40);
    assert!(place.repo.needs_repack().unwrap());
    place.repo.repack(PATIENCE).await.unwrap();
    assert!(packs(&place) < 5, "{}", packs(&place));
    assert!(!place.repo.needs_repack().unwrap());
    for id in &all {
        assert!(open.contains(id).unwrap(), "{id} in a store opened before");
        assert!(open.commit_summary(id, |_| true).unwrap().is_some());
    }
    place
        .repo
        .write_refs(&refs(&[("refs/heads/master", tip)]))
        .unwrap();
    place.bare(&["fsck", "--full"]);
}

#[tokio::test]
async fn loose_objects_are_packed() {
    let place = Place::new();
    let tip = place.commit("a", "1");
    let from = grasp_git::Repo::open(&place.work().join(".git")).unwrap();
    grasp_git::share(&from, &place.repo).unwrap();
    let sample = place.repo.dir().join("objects/17");
    std::fs::create_dir_all(&sample).unwrap();
    for n in 0..5 {
        std::fs::write(sample.join(format!("{n:038}")), "").unwrap();
    }
    assert!(place.repo.needs_repack().unwrap());
    std::fs::remove_dir_all(&sample).unwrap();
    place.repo.repack(PATIENCE).await.unwrap();
    assert_eq!(packs(&place), 1);
    assert!(place.repo.objects().unwrap().contains(&tip).unwrap());
    let loose = files(&place.repo.dir().join("objects"));
    assert!(
        loose
            .iter()
            .all(|file| file.starts_with("pack/") || file.starts_with("info/"))
    );
}

#[tokio::test]
async fn only_one_repack_runs_and_a_killed_one_does_not_block_the_next() {
    let place = Place::new();
    let tip = place.commit("a", "1");
    place.bring(tip).await;
    let file = std::fs::File::create(place.repo.dir().join("repacking")).unwrap();
    file.lock().unwrap();
    assert!(place.repo.repack(PATIENCE).await.unwrap_err().is_busy());
    // Closing is not enough: a process that is just being started has the file open too.
    file.unlock().unwrap();
    place.repo.repack(PATIENCE).await.unwrap();
    let error = place.repo.repack(Duration::ZERO).await.unwrap_err();
    assert!(error.is_timeout());
    place.repo.repack(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn missing_objects_are_found_and_named() {
    let place = Place::new();
    let tip = place.commit("a", "1");
    place.bring(tip).await;
    place
        .repo
        .write_refs(&refs(&[("refs/heads/master", tip)]))
        .unwrap();
    assert_eq!(place.repo.fsck_connectivity(PATIENCE).await.unwrap(), []);

    let blob = place.id("HEAD:a");
    let pack = place.repo.dir().join("objects/pack");
    let file = files(&pack)
        .into_iter()
        .find(|file| file.ends_with(".pack"))
        .unwrap();
    let aside = place.path().join(&file);
    std::fs::rename(pack.join(&file), &aside).unwrap();
    for other in files(&pack) {
        std::fs::remove_file(pack.join(other)).unwrap();
    }
    let content = std::fs::read(&aside).unwrap();
    crate::support::git(&["unpack-objects", "-q"], place.repo.dir(), &content);
    let blob_text = blob.to_string();
    let loose = format!("objects/{}/{}", &blob_text[..2], &blob_text[2..]);
    std::fs::remove_file(place.repo.dir().join(loose)).unwrap();
    let problems = place.repo.fsck_connectivity(PATIENCE).await.unwrap();
    let missing = Problem::Missing {
        kind: ObjectKind::Blob,
        id: blob,
    };
    assert!(problems.contains(&missing), "{problems:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_and_repacks_at_the_same_time_lose_nothing() {
    let place = Place::new();
    let mut tip = place.commit("a", "0");
    place.bring(tip).await;
    let repo = place.repo.clone();
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let repacking = tokio::spawn(async move {
        let mut rounds = 0;
        while stopped.try_recv().is_err() {
            repo.repack(PATIENCE).await.unwrap();
            rounds += 1;
        }
        rounds
    });
    let open = place.repo.objects().unwrap();
    for n in 1..30 {
        let next = place.commit("a", &n.to_string());
        let pack = place.pack(&[next], &[tip], &["--thin"]);
        bring(&place.repo, &pack, next).await;
        place
            .repo
            .write_refs(&refs(&[("refs/heads/master", next)]))
            .unwrap();
        assert!(open.contains(&next).unwrap() && open.contains(&tip).unwrap());
        tip = next;
    }
    stop.send(()).unwrap();
    assert!(repacking.await.unwrap() > 0);
    place.bare(&["fsck", "--full"]);
    assert_eq!(place.bare(&["rev-list", "--count", "master"]), "30");
}
