//! Refs are written in one step and read as git reads them.

use std::os::unix::fs::MetadataExt as _;

use grasp_core::git::{ObjectId, RefName, Refs};
use grasp_git::GitError;

use crate::support::{Place, files, git, name, refs};

#[tokio::test]
async fn git_reads_what_was_written_with_tags_peeled() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    place.run(&["tag", "-a", "v1", "-m", "v1"]);
    place.run(&["tag", "-a", "v2", "-m", "of a tag", "v1"]);
    let (v1, v2) = (place.id("v1"), place.id("v2"));
    place.bring(v2).await;
    let wanted = refs(&[
        ("refs/heads/master", commit),
        ("refs/tags/v1", v1),
        ("refs/tags/v2", v2),
    ]);
    place.repo.write_refs(&wanted).unwrap();

    let ours = std::fs::read(place.repo.dir().join("packed-refs")).unwrap();
    place.bare(&["pack-refs", "--all"]);
    let gits = std::fs::read(place.repo.dir().join("packed-refs")).unwrap();
    assert_eq!(
        String::from_utf8(ours).unwrap(),
        String::from_utf8(gits).unwrap()
    );

    let found = place.repo.refs().unwrap();
    assert_eq!(found.ids(), wanted);
    assert_eq!(found.head_id(), Some(commit));
    let peeled: Vec<_> = found.refs.values().map(|one| one.peeled).collect();
    assert_eq!(peeled, [None, Some(commit), Some(commit)]);
}

#[tokio::test]
async fn a_branch_becomes_a_folder_of_branches_in_one_step() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    place.bring(commit).await;
    place
        .repo
        .write_refs(&refs(&[("refs/heads/a", commit)]))
        .unwrap();
    let edit = |refs: &mut Refs| {
        refs.remove("refs/heads/a");
        refs.insert(name("refs/heads/a/b"), commit);
    };
    place.repo.edit_refs(edit).unwrap();
    let listed = place.bare(&["for-each-ref", "--format=%(refname)"]);
    assert_eq!(listed, "refs/heads/a/b");
    let both = refs(&[("refs/heads/a", commit), ("refs/heads/a/b", commit)]);
    assert!(matches!(
        place.repo.write_refs(&both),
        Err(GitError::RefConflict(..))
    ));
    assert_eq!(place.repo.refs().unwrap().refs.len(), 1);
}

#[tokio::test]
async fn ten_thousand_refs_are_one_write() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    place.bring(commit).await;
    let many: Refs = (0..10_000)
        .map(|n| (name(&format!("refs/heads/topic/{n}")), commit))
        .collect();
    place.repo.write_refs(&many).unwrap();
    assert_eq!(place.repo.refs().unwrap().ids(), many);
    assert_eq!(
        place.bare(&["for-each-ref", "--count=0"]).lines().count(),
        10_000
    );
    place.repo.write_refs(&Refs::new()).unwrap();
    assert!(place.repo.refs().unwrap().refs.is_empty());
    assert_eq!(place.bare(&["for-each-ref"]), "");
}

#[test]
fn no_ref_ever_names_an_object_that_is_not_here() {
    let place = Place::new();
    let absent = ObjectId([7; 20]);
    let result = place.repo.write_refs(&refs(&[("refs/heads/a", absent)]));
    assert!(matches!(result, Err(GitError::MissingObject(id)) if id == absent));
    assert_eq!(
        files(place.repo.dir()),
        ["HEAD", "config", "objects/info/gate"],
        "and no lock is left"
    );
}

#[tokio::test]
async fn loose_refs_of_an_operator_win_and_are_packed_at_the_next_write() {
    let place = Place::new();
    let first = place.commit("a", "1");
    let second = place.commit("b", "2");
    place.run(&["tag", "-a", "v1", "-m", "v1"]);
    place.bring(place.id("v1")).await;
    place
        .repo
        .write_refs(&refs(&[("refs/heads/deep/er", first)]))
        .unwrap();
    place.bare(&["update-ref", "refs/heads/deep/er", &second.to_string()]);
    place.bare(&["update-ref", "refs/tags/v1", &place.id("v1").to_string()]);
    place.bare(&["update-ref", "refs/pull/1/head", &second.to_string()]);

    let found = place.repo.refs().unwrap();
    let v1 = found.refs[&name("refs/tags/v1")];
    assert_eq!(found.refs[&name("refs/heads/deep/er")].id, second);
    assert_eq!(v1.peeled, Some(second));
    assert_eq!(found.refs.len(), 2);

    let edit = |refs: &mut Refs| {
        refs.insert(name("refs/heads/deep"), first);
    };
    assert!(place.repo.edit_refs(edit).is_err(), "beside its own folder");
    place
        .repo
        .edit_refs(|refs| {
            refs.remove("refs/heads/deep/er");
            refs.insert(name("refs/heads/deep"), first);
        })
        .unwrap();
    let loose: Vec<_> = files(&place.repo.dir().join("refs"));
    assert_eq!(loose, ["pull/1/head"]);
    let ids = place.repo.refs().unwrap().ids();
    assert_eq!(
        ids,
        refs(&[("refs/heads/deep", first), ("refs/tags/v1", v1.id)])
    );
    assert_eq!(
        place.bare(&["rev-parse", "refs/heads/deep"]),
        first.to_string()
    );
}

#[test]
fn damage_is_an_error_that_says_where() {
    let place = Place::new();
    let packed = place.repo.dir().join("packed-refs");
    std::fs::write(&packed, "not a ref\n").unwrap();
    assert!(place.repo.refs().unwrap_err().is_damaged());
    assert!(
        place
            .repo
            .write_refs(&Refs::new())
            .unwrap_err()
            .is_damaged()
    );
    std::fs::remove_file(&packed).unwrap();
    std::fs::write(place.repo.dir().join("refs/heads/x"), "garbage").unwrap();
    assert!(
        place
            .repo
            .refs()
            .unwrap_err()
            .to_string()
            .contains("refs/heads/x")
    );
    std::fs::remove_file(place.repo.dir().join("refs/heads/x")).unwrap();
    std::fs::write(place.repo.dir().join("HEAD"), "\0").unwrap();
    assert!(place.repo.refs().unwrap_err().is_damaged());
    place.repo.set_head(&name("refs/heads/main")).unwrap();
    assert_eq!(place.bare(&["symbolic-ref", "HEAD"]), "refs/heads/main");
}

#[test]
fn a_lock_that_somebody_holds_is_busy_and_not_broken() {
    let place = Place::new();
    let lock = place.repo.dir().join("packed-refs.lock");
    std::fs::write(&lock, "").unwrap();
    assert!(place.repo.write_refs(&Refs::new()).unwrap_err().is_busy());
    assert!(lock.exists());
}

#[tokio::test]
async fn readers_see_all_of_a_change_or_nothing() {
    let place = Place::new();
    let one = place.commit("a", "1");
    let two = place.commit("b", "2");
    place.bring(two).await;
    let all = |id| -> Refs {
        let named = |n| (name(&format!("refs/heads/{n}")), id);
        (0..200).map(named).collect()
    };
    place.repo.write_refs(&all(one)).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..200 {
                let found = place.repo.refs().unwrap().ids();
                assert!(found == all(one) || found == all(two));
            }
        });
        for turn in 0..50 {
            let id = if turn % 2 == 0 { two } else { one };
            place.repo.write_refs(&all(id)).unwrap();
        }
        reader.join().unwrap();
    });
    let listed = git(&["for-each-ref"], place.repo.dir(), &[]);
    assert_eq!(listed.split(|byte| *byte == b'\n').count(), 201);
}

#[tokio::test]
async fn a_damaged_file_is_mended_kept_and_what_is_lost_is_counted() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    place.run(&["tag", "-a", "v1", "-m", "v1"]);
    let tag = place.id("v1");
    place.bring(tag).await;
    let wanted = refs(&[("refs/heads/a", commit), ("refs/tags/v1", tag)]);
    place.repo.write_refs(&wanted).unwrap();
    assert_eq!(place.repo.mend_refs().unwrap(), None);

    let packed = place.repo.dir().join("packed-refs");
    let absent = ObjectId([7; 20]);
    let mut damaged = std::fs::read(&packed).unwrap();
    damaged.extend_from_slice(b"\0\0\0\xff\n");
    damaged.extend_from_slice(format!("{absent} refs/heads/lost\n").as_bytes());
    damaged.extend_from_slice(format!("{commit} refs/pull/1/head\n").as_bytes());
    damaged.extend_from_slice(format!("{commit} refs/heads/a/b\n").as_bytes());
    damaged.extend_from_slice(format!("{commit} refs/heads/cut").as_bytes());
    std::fs::write(&packed, &damaged).unwrap();

    let mended = place.repo.mend_refs().unwrap().unwrap();
    assert_eq!(mended.dropped, 4);
    assert_eq!(std::fs::read(&mended.kept_as).unwrap(), damaged);
    let found = place.repo.refs().unwrap();
    assert_eq!(found.ids(), wanted);
    assert_eq!(found.refs[&name("refs/tags/v1")].peeled, Some(commit));
    place.bare(&["fsck", "--full"]);
    assert_eq!(place.repo.mend_refs().unwrap(), None);
}

#[test]
fn only_the_newest_damaged_files_are_kept() {
    let place = Place::new();
    for n in 1..6 {
        let old = place
            .repo
            .dir()
            .join(format!("packed-refs.damaged-100000000{n}"));
        std::fs::write(old, "").unwrap();
    }
    std::fs::write(place.repo.dir().join("packed-refs"), "junk\n").unwrap();
    let mended = place.repo.mend_refs().unwrap().unwrap();
    let mut left = files(place.repo.dir());
    left.retain(|file| file.starts_with("packed-refs.damaged-"));
    assert_eq!(left.len(), 3);
    assert_eq!(
        left[..2],
        [
            "packed-refs.damaged-1000000004",
            "packed-refs.damaged-1000000005"
        ]
    );
    assert!(mended.kept_as.ends_with(&left[2]));
}

/// What `packed-refs` is as a file: another one after it was written.
fn packed_file(place: &Place) -> (u64, u64) {
    let found = std::fs::metadata(place.repo.dir().join("packed-refs")).unwrap();
    (found.ino(), found.len())
}

fn set(place: &Place, name: RefName, id: ObjectId) -> Result<(), GitError> {
    let edit = |refs: &mut Refs| {
        refs.insert(name, id);
    };
    place.repo.edit_refs(edit)
}

fn unset(place: &Place, name: &str) {
    let edit = |refs: &mut Refs| {
        refs.remove(name);
    };
    place.repo.edit_refs(edit).unwrap();
}

fn tip(n: usize) -> RefName {
    name(&format!("refs/nostr/{n:064x}"))
}

/// A repository with so many tips of pull requests, and a branch.
async fn crowded(tips: usize) -> (Place, [ObjectId; 2], Refs) {
    let place = Place::new();
    let (one, two) = (place.commit("a", "1"), place.commit("b", "2"));
    place.bring(two).await;
    let mut all: Refs = (0..tips).map(|n| (tip(n), one)).collect();
    all.insert(name("refs/heads/main"), one);
    place.repo.write_refs(&all).unwrap();
    (place, [one, two], all)
}

fn assert_refs(place: &Place, wanted: &Refs) {
    assert_eq!(place.repo.refs().unwrap().ids(), *wanted);
    let lines = wanted.iter().map(|(name, id)| format!("{id} {name}"));
    let format = "--format=%(objectname) %(refname)";
    let listed = place.bare(&["for-each-ref", format]);
    assert_eq!(
        listed,
        lines.collect::<Vec<_>>().join("\n"),
        "as git sees it"
    );
}

#[tokio::test]
async fn a_branch_that_moves_does_not_rewrite_thousands_of_tips() {
    let (place, [one, two], mut all) = crowded(2_000).await;
    let before = packed_file(&place);
    for (branch, id) in [
        ("main", two),
        ("topic/a", one),
        ("main", one),
        ("main", two),
    ] {
        let branch = name(&format!("refs/heads/{branch}"));
        all.insert(branch.clone(), id);
        set(&place, branch, id).unwrap();
        assert_refs(&place, &all);
    }
    assert_eq!(packed_file(&place), before);
    // A branch that only its file has goes with it, and what is packed too is not seen again.
    all.remove("refs/heads/topic/a");
    unset(&place, "refs/heads/topic/a");
    assert_refs(&place, &all);
    assert_eq!(packed_file(&place), before);
    all.remove("refs/heads/main");
    unset(&place, "refs/heads/main");
    assert_refs(&place, &all);
    // Many at once are one transaction, as ever; a folder of a branch is in nobody's way.
    all.insert(name("refs/heads/topic"), two);
    all.insert(name("refs/heads/main"), two);
    place.repo.write_refs(&all).unwrap();
    assert_refs(&place, &all);
    assert!(files(&place.repo.dir().join("refs")).is_empty());
}

#[tokio::test]
async fn tips_of_pull_requests_are_packed_in_batches() {
    let (place, [one, _], mut all) = crowded(2_000).await;
    let mut written = 0;
    let mut last = packed_file(&place);
    for n in 2_000..2_200 {
        set(&place, tip(n), one).unwrap();
        all.insert(tip(n), one);
        let now = packed_file(&place);
        if now != last {
            written += now.1;
            last = now;
        }
    }
    assert_refs(&place, &all);
    assert!(written / 200 < last.1 / 30, "{written} bytes for 200 tips");
}

#[tokio::test]
async fn an_annotated_tag_is_peeled_in_a_crowded_repository_too() {
    let (place, [_, two], mut all) = crowded(2_000).await;
    place.run(&["tag", "-a", "v1", "-m", "v1"]);
    let tag = place.id("v1");
    place.bring(tag).await;
    for tagged in [name("refs/tags/v1"), tip(9_999)] {
        set(&place, tagged.clone(), tag).unwrap();
        all.insert(tagged.clone(), tag);
        let found = place.repo.refs().unwrap();
        assert_eq!(found.refs[&tagged].peeled, Some(two));
    }
    let missing = ObjectId([9; 20]);
    let refused = set(&place, tip(1), missing);
    assert!(
        matches!(refused, Err(GitError::MissingObject(_))),
        "{refused:?}"
    );
    assert_refs(&place, &all);
}

#[tokio::test]
async fn readers_of_a_crowded_repository_see_all_of_a_change_or_nothing() {
    let (place, [one, two], all) = crowded(1_000).await;
    let both = |id| {
        let mut all = all.clone();
        all.insert(name("refs/heads/main"), id);
        all.insert(name("refs/heads/next"), id);
        all
    };
    place.repo.write_refs(&both(one)).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..100 {
                let found = place.repo.refs().unwrap().ids();
                let (main, next) = (found["refs/heads/main"], found["refs/heads/next"]);
                // Alone it moves to two and back; together both do.
                assert!(next == one || main == two, "{main} {next}");
            }
        });
        for _ in 0..25 {
            set(&place, name("refs/heads/main"), two).unwrap();
            set(&place, name("refs/heads/main"), one).unwrap();
            place.repo.write_refs(&both(two)).unwrap();
            place.repo.write_refs(&both(one)).unwrap();
        }
        reader.join().unwrap();
    });
}
