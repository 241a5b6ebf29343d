//! Refs are written in one step and read as git reads them.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use grasp_core::git::{ObjectId, RefName, Refs};
use grasp_git::GitError;

use crate::packs::stored;
use crate::support::{PATIENCE, Place, bring, files, git, name, refs};

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

/// Every tag at the end of the chain takes as long as all tags before it, and a few kB are enough
/// for thousands of them.
#[tokio::test]
async fn tags_that_are_slow_to_read_end_an_edit_in_time() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    place.bring(commit).await;
    let chain = Chain::new(commit, 1_900_000, 200, 500);
    bring(&place.repo, &chain.pack, commit).await;
    let wanted: Refs = chain.refs().collect();

    let began = Instant::now();
    let timeout = Duration::from_millis(300);
    let edited = place
        .repo
        .edit_refs_within(timeout, |refs| refs.extend(wanted));
    let error = edited.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    let took = began.elapsed();
    assert!(took < PATIENCE / 4, "one tag takes milliseconds: {took:?}");
    assert!(place.repo.refs().unwrap().refs.is_empty());
}

#[tokio::test]
async fn a_tag_that_costs_too_much_to_read_is_refused_in_words() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    place.bring(commit).await;
    let wanted = |chain: &Chain| -> Refs { chain.refs().collect() };
    for (size, links, words) in [
        (1_000, 300, "301 deltas"),
        (1_100_000, 0, "1048576 bytes"),
        (7_000_000, 10, "memory"),
    ] {
        let ends = if links == 0 { 0 } else { 1 };
        let chain = Chain::new(commit, size, links, ends);
        bring(&place.repo, &chain.pack, commit).await;
        let error = place.repo.write_refs(&wanted(&chain)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    // As deep as the most patient of clients packs them.
    let chain = Chain::new(commit, 1_000, 249, 1);
    bring(&place.repo, &chain.pack, commit).await;
    place.repo.write_refs(&wanted(&chain)).unwrap();
}

/// A pack with a large tag, so many deltas, each of the one before it, and small tags that are deltas
/// of the last.
struct Chain {
    pack: Vec<u8>,
    /// The small ones, or the large tag if there are none.
    ends: Vec<ObjectId>,
}

impl Chain {
    fn new(commit: ObjectId, size: usize, links: u32, ends: u32) -> Self {
        let head = |n: u32| {
            format!("object {commit}\ntype commit\ntag t{n:06}\ntagger A <a@b.c> 1 +0000\n\n")
        };
        let length = head(0).len();
        let first = head(0) + &"x".repeat(size - length);
        let mut pack = b"PACK\0\0\0\x02".to_vec();
        pack.extend((1 + links + ends).to_be_bytes());
        let mut before = pack.len();
        put_header(&mut pack, 4, first.len());
        pack.extend(stored(first.as_bytes()));
        let delta = |pack: &mut Vec<u8>, n: u32, base: usize, base_size: usize, rest: usize| {
            let at = pack.len();
            let mut content = Vec::new();
            put_size(&mut content, base_size);
            put_size(&mut content, length + rest);
            content.push(length as u8);
            content.extend(head(n).bytes());
            if rest > 0 {
                // From after the header on, so much.
                content.extend([0b1111_0001, length as u8]);
                content.extend(&rest.to_le_bytes()[..3]);
            }
            put_header(pack, 6, content.len());
            put_distance(pack, at - base);
            pack.extend(stored(&content));
            at
        };
        for n in 1..=links {
            before = delta(&mut pack, n, before, size, size - length);
        }
        let mut found = Vec::new();
        for n in links + 1..=links + ends {
            delta(&mut pack, n, before, size, 0);
            found.push(tag_name(head(n).as_bytes()));
        }
        if ends == 0 {
            found.push(tag_name(first.as_bytes()));
        }
        let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
        hasher.update(&pack);
        pack.extend(hasher.try_finalize().unwrap().as_slice());
        Self { pack, ends: found }
    }

    fn refs(&self) -> impl Iterator<Item = (RefName, ObjectId)> {
        let ends = self.ends.iter().enumerate();
        ends.map(|(n, id)| (name(&format!("refs/tags/t{n}")), *id))
    }
}

fn tag_name(content: &[u8]) -> ObjectId {
    let (sha1, tag) = (gix_hash::Kind::Sha1, gix_object::Kind::Tag);
    let name = gix_object::compute_hash(sha1, tag, content).unwrap();
    ObjectId(name.as_slice().try_into().unwrap())
}

/// Kind and size of an entry of a pack: four bits of the size, then seven at a time.
fn put_header(pack: &mut Vec<u8>, kind: u8, size: usize) {
    let more = |rest: usize| if rest > 0 { 0x80 } else { 0 };
    pack.push(more(size >> 4) | kind << 4 | (size & 15) as u8);
    if size >> 4 > 0 {
        put_size(pack, size >> 4);
    }
}

/// Seven bits at a time, the lowest first.
fn put_size(to: &mut Vec<u8>, mut size: usize) {
    while size > 0x7f {
        to.push(0x80 | (size & 0x7f) as u8);
        size >>= 7;
    }
    to.push(size as u8);
}

/// How far back the base of a delta begins: seven bits at a time, the highest first, and each byte
/// but the last counts from one.
fn put_distance(pack: &mut Vec<u8>, mut distance: usize) {
    let mut bytes = vec![(distance & 0x7f) as u8];
    distance >>= 7;
    while distance > 0 {
        distance -= 1;
        bytes.push(0x80 | (distance & 0x7f) as u8);
        distance >>= 7;
    }
    bytes.reverse();
    pack.extend(bytes);
}
