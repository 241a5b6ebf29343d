//! What nobody reaches goes, and nothing else ever does.

use std::collections::BTreeSet;
use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant, SystemTime};

use grasp_core::git::ObjectId;
use grasp_git::{
    GitError, PackLimits, Protocol, PruneLimits, Pruned, Quarantine, Repo, ServeLimits, share,
    upload_pack,
};

#[cfg(target_os = "linux")]
use crate::packs::git_works_on;
use crate::support::{PATIENCE, Place, bring, files, git, noise, refs, within};

const NOW: Duration = Duration::ZERO;
const HOUR: Duration = Duration::from_secs(3_600);

/// A repository with a branch, and a commit of some size that no ref names.
struct Littered {
    place: Place,
    branch: ObjectId,
    junk: ObjectId,
    junk_pack: Vec<u8>,
}

impl Littered {
    async fn new() -> Self {
        let place = Place::new();
        let branch = place.commit("a", "1");
        place.bring(branch).await;
        let junk = place.commit("junk", &noise(100_000));
        let junk_pack = place.pack(&[junk], &[branch], &[]);
        bring(&place.repo, &junk_pack, junk).await;
        let wanted = refs(&[("refs/heads/master", branch)]);
        place.repo.write_refs(&wanted).unwrap();
        Self {
            place,
            branch,
            junk,
            junk_pack,
        }
    }

    fn repo(&self) -> &Repo {
        &self.place.repo
    }

    fn has(&self, id: ObjectId) -> bool {
        self.repo().objects().unwrap().contains(&id).unwrap()
    }

    async fn prune(&self) -> Result<Pruned, GitError> {
        self.repo().prune(&[], within(NOW)).await
    }
}

fn packs(repo: &Repo) -> BTreeSet<String> {
    let all = files(&repo.dir().join("objects/pack"));
    all.into_iter()
        .filter(|file| file.ends_with(".pack"))
        .collect()
}

/// Makes everything that is here an hour and more old.
fn age(repo: &Repo) {
    let objects = repo.dir().join("objects");
    for file in files(&objects) {
        age_file(&objects.join(file));
    }
}

fn age_file(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    file.set_modified(SystemTime::now() - 2 * HOUR).unwrap();
}

fn count(repo: &Repo, tip: ObjectId) -> usize {
    let args = ["rev-list", "--objects", &tip.to_string()];
    let listed = git(&args, repo.dir(), &[]);
    listed.split(|byte| *byte == b'\n').count() - 1
}

#[tokio::test]
async fn what_nobody_reaches_is_dropped_and_all_else_stays() {
    let littered = Littered::new().await;
    let place = &littered.place;
    let kept = place.commit("kept", "kept");
    bring(
        &place.repo,
        &place.pack(&[kept], &[littered.junk], &[]),
        kept,
    )
    .await;
    place.run(&["checkout", "-q", "--orphan", "other"]);
    let gone = place.commit("gone", &noise(50_000));
    bring(&place.repo, &place.pack(&[gone], &[], &[]), gone).await;
    place.run(&["tag", "-a", "v1", "-m", "v1", &kept.to_string()]);
    let tag = place.id("v1");
    bring(&place.repo, &place.pack(&[tag], &[kept], &[]), tag).await;

    let before = place.repo.size().unwrap();
    let blob = place.id(&format!("{}:a", littered.branch));
    let keep = [ObjectId([9; 20]), tag, blob];
    let pruned = place.repo.prune(&keep, within(NOW)).await.unwrap();
    assert!(pruned.freed > 30_000, "{pruned:?}");
    let note = keep.len() as u64 * 41;
    let shrunk = before - place.repo.size().unwrap();
    assert_eq!(shrunk + note, pruned.freed);
    assert!(!littered.has(gone));
    for id in [littered.branch, littered.junk, kept, tag, blob] {
        assert!(littered.has(id), "{id}");
    }
    assert_eq!(count(&place.repo, tag), 10);
    place.bare(&["fsck", "--full", "--strict"]);

    let pruned = littered.prune().await.unwrap();
    assert!(pruned.freed > 60_000, "{pruned:?}");
    assert!(!littered.has(tag) && !littered.has(littered.junk));
    assert_eq!(count(&place.repo, littered.branch), 3);
    assert_eq!(packs(&place.repo).len(), 1);
    assert_eq!(littered.prune().await.unwrap(), Pruned::default());
    place.bare(&["fsck", "--full", "--strict"]);
}

#[tokio::test]
async fn a_repository_of_which_nothing_is_reached_becomes_empty() {
    let littered = Littered::new().await;
    littered.repo().write_refs(&refs(&[])).unwrap();
    littered.prune().await.unwrap();
    let left = files(&littered.repo().dir().join("objects"));
    assert_eq!(left, ["info/gate"]);
    littered.place.bring(littered.junk).await;
    assert_eq!(count(littered.repo(), littered.junk), 6);
}

#[tokio::test]
async fn what_is_young_stays_with_all_that_it_leans_on() {
    let littered = Littered::new().await;
    let place = &littered.place;
    let other = place.commit("other", "other");
    place.bring(other).await;
    place.run(&["checkout", "-q", "--orphan", "alone"]);
    let old = place.commit("old", &noise(20_000));
    place.bring(old).await;
    age(&place.repo);
    place.run(&["checkout", "-q", &littered.junk.to_string()]);
    let young = place.commit("young", "young");
    bring(
        &place.repo,
        &place.pack(&[young], &[littered.junk], &[]),
        young,
    )
    .await;
    let untouched = packs(&place.repo);

    place.repo.prune(&[], within(HOUR)).await.unwrap();
    assert!(!littered.has(old) && !littered.has(other));
    assert_eq!(count(&place.repo, young), 9);
    let left = packs(&place.repo);
    let left: Vec<_> = left.intersection(&untouched).collect();
    assert_eq!(left.len(), 1);
    place.bare(&["fsck", "--full", "--strict"]);

    // What it leans on is no younger for having been packed again.
    age_file(&place.repo.dir().join("objects/pack").join(left[0]));
    place.repo.prune(&[], within(HOUR)).await.unwrap();
    assert!(!littered.has(young) && !littered.has(littered.junk));
    assert_eq!(packs(&place.repo).len(), 1);
}

#[tokio::test]
async fn young_loose_objects_are_reached_and_old_ones_go() {
    let littered = Littered::new().await;
    let place = &littered.place;
    let pack = |content: &[u8]| git(&["unpack-objects", "-q"], place.repo.dir(), content);
    place.run(&["checkout", "-q", "--orphan", "alone"]);
    let old = place.commit("old", &noise(20_000));
    pack(&place.pack(&[old], &[], &[]));
    age(&place.repo);
    place.run(&["checkout", "-q", "-f", &littered.junk.to_string()]);
    let young = place.commit("young", "young");
    pack(&place.pack(&[young], &[littered.junk], &[]));

    place.repo.prune(&[], within(HOUR)).await.unwrap();
    assert!(!littered.has(old));
    assert_eq!(count(&place.repo, young), 9);
    place.bare(&["fsck", "--full", "--strict"]);
}

#[tokio::test]
async fn a_pack_that_an_operator_keeps_stays() {
    let littered = Littered::new().await;
    let folder = littered.repo().dir().join("objects/pack");
    for pack in packs(littered.repo()) {
        std::fs::write(folder.join(pack).with_extension("keep"), "").unwrap();
    }
    assert_eq!(littered.prune().await.unwrap(), Pruned::default());
    assert!(littered.has(littered.junk));
}

#[tokio::test]
async fn what_was_just_brought_again_or_shared_is_young() {
    let littered = Littered::new().await;
    age(littered.repo());
    let other = littered.place.path().join("other.git");
    let other = Repo::create(&other).unwrap().0;
    bring(littered.repo(), &littered.junk_pack, littered.junk).await;
    littered.repo().prune(&[], within(HOUR)).await.unwrap();
    assert!(littered.has(littered.junk));

    age(littered.repo());
    share(littered.repo(), &other).unwrap();
    other.prune(&[], within(HOUR)).await.unwrap();
    assert_eq!(count(&other, littered.junk), 6);
}

#[tokio::test]
async fn pushes_and_shares_that_are_open_stop_it() {
    let littered = Littered::new().await;
    let before = files(littered.repo().dir());
    let open = Quarantine::begin(littered.repo()).unwrap();
    assert!(littered.prune().await.unwrap_err().is_busy());
    drop(open);

    let staging = littered.repo().dir().join("objects/adopt-x");
    std::fs::create_dir(&staging).unwrap();
    assert!(littered.prune().await.unwrap_err().is_busy());
    std::fs::remove_dir(&staging).unwrap();

    let repacking = std::fs::File::create(littered.repo().dir().join("repacking")).unwrap();
    repacking.lock().unwrap();
    assert!(littered.prune().await.unwrap_err().is_busy());
    repacking.unlock().unwrap();
    let mut after = files(littered.repo().dir());
    after.retain(|file| file != "repacking" && file != "objects/info/nobody-came");
    assert_eq!(after, before);
    littered.prune().await.unwrap();
}

/// Polls until git works on the new pack, and no further.
async fn until_it_packs(repo: &Repo, mut pruning: Pin<&mut impl Future<Output: std::fmt::Debug>>) {
    let objects = repo.dir().join("objects");
    let began = || {
        std::fs::read_dir(&objects)
            .unwrap()
            .any(|entry| entry.unwrap().path().join("pack").is_dir())
    };
    while !began() {
        tokio::select! {
            biased;
            result = &mut pruning => panic!("{result:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
}

/// Something happens while git makes the new pack: the prune gives up and nothing is lost.
async fn gives_up(meanwhile: impl AsyncFnOnce(&Littered)) {
    let littered = Littered::new().await;
    let repo = littered.repo();
    let mut pruning = pin!(repo.prune(&[], within(NOW)));
    until_it_packs(repo, pruning.as_mut()).await;
    meanwhile(&littered).await;
    let before = packs(repo);
    assert!(pruning.await.unwrap_err().is_busy());
    assert_eq!(packs(repo), before, "its own pack is thrown away");
    assert_eq!(count(repo, littered.junk), 6);
    littered.place.bare(&["fsck", "--full", "--strict"]);
    repo.write_refs(&refs(&[("refs/heads/junk", littered.junk)]))
        .unwrap();
    littered.prune().await.unwrap();
    assert_eq!(count(repo, littered.junk), 6);
}

#[tokio::test]
async fn it_gives_up_for_a_push_that_is_still_open() {
    let littered = Littered::new().await;
    let repo = littered.repo();
    let mut pruning = pin!(repo.prune(&[], within(NOW)));
    until_it_packs(repo, pruning.as_mut()).await;
    let mut quarantine = Quarantine::begin(repo).unwrap();
    assert!(pruning.await.unwrap_err().is_busy());
    let next = littered.place.commit("next", "next");
    let thin = littered.place.pack(&[next], &[littered.junk], &["--thin"]);
    quarantine
        .receive_pack(&thin[..], &PackLimits::default())
        .await
        .unwrap();
    quarantine.migrate().unwrap();
    assert_eq!(count(repo, next), 9);
}

#[tokio::test]
async fn it_gives_up_for_a_push_that_came_and_went() {
    gives_up(async |littered| {
        let next = littered.place.commit("next", "next");
        let thin = littered.place.pack(&[next], &[littered.junk], &["--thin"]);
        bring(littered.repo(), &thin, next).await;
    })
    .await;
}

#[tokio::test]
async fn it_gives_up_for_a_push_of_what_was_here_already() {
    gives_up(async |littered| {
        bring(littered.repo(), &littered.junk_pack, littered.junk).await;
    })
    .await;
}

#[tokio::test]
async fn it_gives_up_for_a_ref_that_comes_to_reach_more() {
    gives_up(async |littered| {
        let wanted = refs(&[("refs/heads/junk", littered.junk)]);
        littered.repo().write_refs(&wanted).unwrap();
    })
    .await;
}

#[tokio::test]
async fn it_gives_up_for_a_ref_that_an_operator_sets() {
    gives_up(async |littered| {
        let junk = littered.junk.to_string();
        littered
            .place
            .bare(&["update-ref", "refs/heads/junk", &junk]);
    })
    .await;
}

#[tokio::test]
async fn it_gives_up_for_a_share() {
    gives_up(async |littered| {
        let from = Repo::open(&littered.place.work().join(".git")).unwrap();
        share(&from, littered.repo()).unwrap();
    })
    .await;
}

#[tokio::test]
async fn one_that_is_broken_off_leaves_nothing_and_changes_nothing() {
    let littered = Littered::new().await;
    let before = files(&littered.repo().dir().join("objects/pack"));
    {
        let mut pruning = pin!(littered.repo().prune(&[], within(NOW)));
        until_it_packs(littered.repo(), pruning.as_mut()).await;
    }
    let left = files(&littered.repo().dir().join("objects"));
    assert!(left.iter().all(|file| !file.starts_with("pruning-")));
    assert_eq!(files(&littered.repo().dir().join("objects/pack")), before);
    let late = littered
        .repo()
        .prune(
            &[],
            PruneLimits {
                deadline: Duration::ZERO,
                ..within(NOW)
            },
        )
        .await;
    assert!(late.unwrap_err().is_timeout());
    assert!(littered.has(littered.junk));
    littered.prune().await.unwrap();
}

/// As a kill leaves it at each step between the new pack and the end of the old ones.
#[tokio::test]
async fn a_kill_at_any_step_loses_nothing() {
    let littered = Littered::new().await;
    let repo = littered.repo();
    let objects = repo.dir().join("objects");
    let aside = littered.place.path().join("aside");
    let copy = |from: &Path, to: &Path| {
        std::fs::create_dir_all(to).unwrap();
        for file in files(from) {
            let _ = std::fs::copy(from.join(&file), to.join(&file));
        }
    };
    copy(&objects.join("pack"), &aside);
    littered.prune().await.unwrap();
    let new = files(&objects.join("pack"));
    let mut old = files(&aside);
    old.retain(|file| !new.contains(file));
    let later = SystemTime::now() + HOUR;
    let whole = || {
        repo.clear_leftovers(later).unwrap();
        assert_eq!(count(repo, littered.branch), 3);
        littered.place.bare(&["fsck", "--full", "--strict"]);
    };
    // The new pack is not in yet, ...
    copy(&objects.join("pack"), &objects.join("pruning-x/pack"));
    whole();
    assert!(!objects.join("pruning-x").exists());
    // ... both are there, one index after the other goes, and then the rest.
    copy(&aside, &objects.join("pack"));
    whole();
    for file in old.iter().filter(|file| file.ends_with("idx")) {
        std::fs::remove_file(objects.join("pack").join(file)).unwrap();
        assert_eq!(count(repo, littered.branch), 3);
    }
    whole();
    assert_eq!(packs(repo).len(), 1, "a start clears what was hidden");
}

const VICTIM: &str = "pruning::a_process_that_prunes_until_it_is_killed";
const VICTIMS_REPO: &str = "GRASP_GIT_TEST_REPO";

/// Not a test: what the next one starts and kills.
#[tokio::test]
#[ignore = "is started by another test"]
async fn a_process_that_prunes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(VICTIMS_REPO) else {
        return;
    };
    let repo = Repo::open(Path::new(&dir)).unwrap();
    let _ = repo.prune(&[], within(NOW)).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_that_is_killed_at_any_moment_loses_nothing() {
    let littered = Littered::new().await;
    let (place, repo) = (&littered.place, littered.repo());
    for round in 0..24 {
        let junk = place.commit("junk", &format!("{round} {}", noise(20_000)));
        place.bring(junk).await;
        let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", VICTIM])
            .env(VICTIMS_REPO, repo.dir())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        while started.elapsed() < round * Duration::from_millis(4) {
            tokio::task::yield_now().await;
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        // Its git outlives it for a moment.
        while git_works_on(place) {
            assert!(started.elapsed() < PATIENCE);
            tokio::task::yield_now().await;
        }
        assert_eq!(count(repo, littered.branch), 3, "round {round}");
        repo.clear_leftovers(SystemTime::now() + HOUR).unwrap();
        place.bare(&["fsck", "--full", "--strict"]);
    }
    littered.prune().await.unwrap();
    assert_eq!(packs(repo).len(), 1);
    assert_eq!(count(repo, littered.branch), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_clone_goes_on_over_it() {
    let littered = Littered::new().await;
    let place = &littered.place;
    let mut tip = littered.junk;
    let text = noise(3_200_000);
    for n in 0..8 {
        let part = &text[n * 400_000..(n + 1) * 400_000];
        let next = place.commit(&format!("big-{n}"), part);
        bring(&place.repo, &place.pack(&[next], &[tip], &[]), next).await;
        tip = next;
    }
    let gone = place.commit("gone", &noise(1_000_000));
    bring(&place.repo, &place.pack(&[gone], &[tip], &[]), gone).await;
    let wanted = refs(&[("refs/heads/master", tip)]);
    place.repo.write_refs(&wanted).unwrap();

    let want = format!("0032want {tip}\n");
    let request = format!("0012command=fetch\n00010010no-progress\n{want}0009done\n0000");
    let body = std::io::Cursor::new(request);
    let mut served = upload_pack(&place.repo, Protocol::V2, body, &ServeLimits::default())
        .await
        .unwrap();
    let mut response = served.chunk().await.unwrap().unwrap().to_vec();
    assert!(littered.place.repo.prune(&[], within(NOW)).await.is_ok());
    assert!(!littered.has(gone));
    assert_eq!(packs(&place.repo).len(), 1);
    while let Some(chunk) = served.chunk().await.unwrap() {
        response.extend_from_slice(&chunk);
    }
    assert!(response.len() > 2_000_000, "{}", response.len());
    assert!(response.ends_with(b"0000"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_and_prunes_at_the_same_time_lose_nothing() {
    let place = Place::new();
    let mut tip = place.commit("a", "0");
    place.bring(tip).await;
    let wanted = refs(&[("refs/heads/master", tip)]);
    place.repo.write_refs(&wanted).unwrap();
    let repo = place.repo.clone();
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let pruning = tokio::spawn(async move {
        let mut rounds = 0;
        while stopped.try_recv().is_err() {
            match repo.prune(&[], within(NOW)).await {
                Ok(_) => rounds += 1,
                Err(error) => assert!(error.is_busy(), "{error}"),
            }
        }
        rounds
    });
    for n in 1..30 {
        let next = place.commit("a", &n.to_string());
        let pack = place.pack(&[next], &[tip], &["--thin"]);
        let mut quarantine = Quarantine::begin(&place.repo).unwrap();
        let limits = PackLimits::default();
        quarantine.receive_pack(&pack[..], &limits).await.unwrap();
        // The ref follows before anything can be dropped.
        let open = Quarantine::begin(&place.repo).unwrap();
        quarantine.migrate().unwrap();
        let wanted = refs(&[("refs/heads/master", next)]);
        place.repo.write_refs(&wanted).unwrap();
        drop(open);
        tip = next;
    }
    stop.send(()).unwrap();
    pruning.await.unwrap();
    place.repo.prune(&[], within(NOW)).await.unwrap();
    place.bare(&["fsck", "--full"]);
    assert_eq!(place.bare(&["rev-list", "--count", "master"]), "30");
}

/// Two repositories with a history of two packs in common.
async fn sharing() -> (Place, Repo, ObjectId) {
    let place = Place::new();
    let first = place.commit("a", &noise(100_000));
    place.bring(first).await;
    let tip = place.commit("b", "b");
    bring(&place.repo, &place.pack(&[tip], &[first], &[]), tip).await;
    let other = Repo::create(&place.path().join("other.git")).unwrap().0;
    share(&place.repo, &other).unwrap();
    for repo in [&place.repo, &other] {
        repo.write_refs(&refs(&[("refs/heads/master", tip)]))
            .unwrap();
    }
    (place, other, tip)
}

fn links(repo: &Repo) -> Vec<u64> {
    let folder = repo.dir().join("objects/pack");
    let names = packs(repo).into_iter();
    let links = names.map(|pack| std::fs::metadata(folder.join(pack)).unwrap().nlink());
    links.collect()
}

#[tokio::test]
async fn what_is_shared_stays_shared_where_there_is_nothing_to_drop() {
    let (place, other, tip) = sharing().await;
    for repo in [&place.repo, &other] {
        let before = packs(repo);
        let prepared = repo.prepare_prune(&[], within(NOW)).await.unwrap();
        assert!(prepared.is_none());
        assert_eq!(packs(repo), before);
        assert_eq!(links(repo), [2, 2]);
    }
    // It is remembered, and git is not asked again: with no time at all it says the same.
    let no_time = PruneLimits {
        deadline: Duration::ZERO,
        ..within(NOW)
    };
    assert!(other.prepare_prune(&[], no_time).await.unwrap().is_none());
    // Something has changed, and is too little.
    let little = place.commit("c", "c");
    bring(&other, &place.pack(&[little], &[tip], &[]), little).await;
    assert!(other.prepare_prune(&[], no_time).await.is_err());
    assert_eq!(
        other.prune(&[], within(NOW)).await.unwrap(),
        Pruned::default()
    );
    assert!(other.objects().unwrap().contains(&little).unwrap());
    assert_eq!(links(&place.repo), [2, 2]);
}

#[tokio::test]
async fn files_that_are_young_and_nobodys_are_no_reason_to_pack_the_rest() {
    let (place, other, _) = sharing().await;
    age(&other);
    let text = place.path().join("alone");
    std::fs::write(&text, format!("alone {}", noise(200_000))).unwrap();
    let text = text.to_string_lossy();
    git(&["hash-object", "-w", "--", &text], other.dir(), &[]);
    assert_eq!(
        other.prune(&[], within(HOUR)).await.unwrap(),
        Pruned::default()
    );
    assert_eq!(links(&other), [2, 2]);
}

#[tokio::test]
async fn it_does_not_fill_the_disk() {
    let littered = Littered::new().await;
    let full = PruneLimits {
        min_free: u64::MAX,
        ..within(NOW)
    };
    let before = packs(littered.repo());
    let error = littered.repo().prune(&[], full).await.unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert_eq!(packs(littered.repo()), before);
    // Without anything to write there is nothing to wait for.
    littered.repo().write_refs(&refs(&[])).unwrap();
    littered.repo().prune(&[], full).await.unwrap();
    assert!(packs(littered.repo()).is_empty());
}
