//! Repositories come and go whole.

use std::time::{Duration, SystemTime};

use grasp_git::{GitError, Repo};

use crate::support::{Place, files};

#[test]
fn a_new_repository_is_one_to_git_and_starts_at_master() {
    let place = Place::new();
    assert_eq!(place.bare(&["rev-parse", "--is-bare-repository"]), "true");
    assert_eq!(place.bare(&["symbolic-ref", "HEAD"]), "refs/heads/master");
    assert_eq!(files(place.repo.dir()), ["HEAD", "config"]);
    assert_eq!(place.bare(&["fsck"]), "");
    let refs = place.repo.refs().unwrap();
    assert!(refs.refs.is_empty());
    assert_eq!(refs.head.unwrap().as_str(), "refs/heads/master");
    assert!(place.repo.size().unwrap() < 2_000);
}

#[test]
fn creating_twice_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("a/b: ü.git");
    assert!(Repo::create(&dir).unwrap().1);
    std::fs::write(dir.join("description"), "kept").unwrap();
    assert!(!Repo::create(&dir).unwrap().1);
    assert_eq!(std::fs::read(dir.join("description")).unwrap(), b"kept");
    let left = std::fs::read_dir(dir.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1);
}

#[test]
fn a_head_that_is_lost_or_damaged_is_made_anew() {
    let place = Place::new();
    let head = place.repo.dir().join("HEAD");
    for damaged in [None, Some("junk"), Some("")] {
        match damaged {
            None => std::fs::remove_file(&head).unwrap(),
            Some(content) => std::fs::write(&head, content).unwrap(),
        }
        assert!(!Repo::create(place.repo.dir()).unwrap().1);
        assert_eq!(place.bare(&["symbolic-ref", "HEAD"]), "refs/heads/master");
    }
    std::fs::write(&head, "ref: refs/heads/main\n").unwrap();
    Repo::create(place.repo.dir()).unwrap();
    assert_eq!(place.bare(&["symbolic-ref", "HEAD"]), "refs/heads/main");
}

#[test]
fn many_creators_at_once_make_one_repository() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("x.git");
    let made: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| usize::from(Repo::create(&dir).unwrap().1)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(made, 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_removed_repository_is_gone_and_what_was_never_there_is_no_error() {
    let place = Place::new();
    let dir = place.repo.dir().to_owned();
    assert!(Repo::remove(&dir).unwrap());
    assert!(!Repo::remove(&dir).unwrap());
    assert!(Repo::open(&dir).unwrap_err().is_not_found());
    assert_eq!(
        std::fs::read_dir(place.path()).unwrap().count(),
        1,
        "only the work tree"
    );
}

#[test]
fn what_is_not_a_repository_is_called_damaged() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Repo::open(folder.path()).unwrap_err().is_damaged());
    assert!(matches!(
        Repo::open(&folder.path().join("no")),
        Err(GitError::NotFound(_))
    ));
}

#[test]
fn what_a_killed_process_left_is_cleared_and_nothing_else() {
    let place = Place::new();
    let dir = place.repo.dir();
    for folder in ["objects/incoming-abc/pack", "objects/17"] {
        std::fs::create_dir_all(dir.join(folder)).unwrap();
    }
    let kept = "objects/17/1111111111111111111111111111111111111f";
    for file in [
        "packed-refs.lock",
        "HEAD.lock",
        "objects/incoming-abc/pack/tmp_pack_1",
        "objects/pack/tmp_pack_XYZ",
        "objects/pack/.tmp-77-pack-1.pack",
        "objects/pack/pack-1234.pack",
        "objects/17/tmp_obj_abc",
        kept,
    ] {
        std::fs::write(dir.join(file), "x").unwrap();
    }
    let past = SystemTime::now() - Duration::from_secs(60);
    let none = place.repo.clear_leftovers(past).unwrap();
    assert_eq!(none, grasp_git::Leftovers::default());

    let later = SystemTime::now() + Duration::from_secs(60);
    let cleared = place.repo.clear_leftovers(later).unwrap();
    assert_eq!((cleared.files, cleared.quarantines), (6, 1));
    assert_eq!(files(dir), ["HEAD", "config", kept]);
}

#[test]
fn what_a_killed_create_or_remove_left_is_cleared() {
    let place = Place::new();
    for name in [".creating-abc", ".removing-abc"] {
        std::fs::create_dir_all(place.path().join(name).join("objects")).unwrap();
    }
    let later = SystemTime::now() + Duration::from_secs(60);
    assert_eq!(Repo::clear_abandoned(&place.path(), later).unwrap(), 2);
    assert!(Repo::open(place.repo.dir()).is_ok());
}
