//! Objects from another server, with the real git on its side.

mod everything;
mod faults;
mod host;
mod slices;

use grasp_core::git::ObjectId;
use grasp_core::hunt::io::FetchEnd;
use grasp_git::Repo;
use grasp_git::fetch::Version;

use self::host::Host;
use crate::support::{Place, name, noise, refs};

/// A work tree is the other server, the bare repository beside it is ours.
struct Pair {
    place: Place,
    host: Host,
}

impl Pair {
    fn new() -> Self {
        let place = Place::new();
        let host = Host::of(&place.work());
        Self { place, host }
    }

    fn repo(&self) -> &Repo {
        &self.place.repo
    }

    fn has(&self, id: ObjectId) -> bool {
        self.repo().objects().unwrap().contains(&id).unwrap()
    }

    /// Nothing unfinished lies among the objects, and git finds nothing wrong.
    fn is_tidy(&self) {
        let objects = self.repo().dir().join("objects");
        for entry in std::fs::read_dir(objects).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(["info", "pack"].contains(&name.as_str()), "{name}");
        }
        self.place.bare(&["fsck", "--full", "--strict"]);
    }
}

fn stranger(n: u8) -> ObjectId {
    ObjectId([n; 20])
}

#[tokio::test]
async fn only_what_is_missing_travels_and_no_ref_moves() {
    for version in [Version::V2, Version::V0] {
        let mut pair = Pair::new();
        pair.host.version = version;
        let first = pair.place.commit("large", &noise(200_000));
        pair.place.bring(first).await;
        let ours = refs(&[("refs/heads/master", first)]);
        pair.repo().write_refs(&ours).unwrap();
        let second = pair.place.commit("small", "a few bytes");

        let fetched = pair.host.fetch(&pair.place.repo, &[second, first]).await;
        assert_eq!(fetched.end, FetchEnd::Answered, "{version:?}");
        assert_eq!((fetched.here, fetched.got), (vec![first], vec![second]));
        assert_eq!(fetched.lacking, []);
        assert!(fetched.bytes < 20_000, "{}", fetched.bytes);
        assert!(pair.has(second));
        assert_eq!(pair.repo().refs().unwrap().ids(), ours);
        let asked = pair.host.pack_requests();
        assert_eq!(asked.len(), 1);
        assert!(
            asked[0].contains(&format!("have {first}"))
                && !asked[0].contains(&format!("want {first}"))
        );
        pair.is_tidy();
    }
}

#[tokio::test]
async fn a_server_is_not_asked_for_what_is_here() {
    let mut pair = Pair::new();
    let tip = pair.place.commit("a", "a");
    pair.place.bring(tip).await;
    let fetched = pair.host.fetch(&pair.place.repo, &[tip]).await;
    assert_eq!((fetched.here, fetched.got), (vec![tip], vec![]));
    assert_eq!((fetched.requests, fetched.bytes), (0, 0));
    assert_eq!(fetched.end, FetchEnd::Answered);
    assert!(pair.host.asked.is_empty());
}

#[tokio::test]
async fn what_the_server_lacks_spoils_nothing() {
    for version in [Version::V2, Version::V0] {
        let mut pair = Pair::new();
        pair.host.version = version;
        let tip = pair.place.commit("a", "a");
        let wants = [stranger(1), tip, stranger(0xff)];
        let fetched = pair.host.fetch(&pair.place.repo, &wants).await;
        assert_eq!(fetched.end, FetchEnd::Answered, "{version:?}");
        assert_eq!(fetched.got, [tip]);
        assert_eq!(fetched.lacking, [stranger(1), stranger(0xff)]);
        pair.is_tidy();
    }
}

#[tokio::test]
async fn what_no_ref_names_is_given_where_the_server_allows_it() {
    let strict = (Version::V0, vec![], false);
    let open = (
        Version::V0,
        vec!["uploadpack.allowReachableSHA1InWant=true"],
        true,
    );
    for (version, settings, given) in [strict, open, (Version::V2, vec![], true)] {
        let mut pair = Pair::new();
        (pair.host.version, pair.host.settings) = (version, settings);
        let old = pair.place.commit("a", "a");
        let tip = pair.place.commit("b", "b");
        let fetched = pair.host.fetch(&pair.place.repo, &[old]).await;
        assert_eq!(fetched.end, FetchEnd::Answered);
        assert_eq!(
            (pair.has(old), pair.has(tip)),
            (given, false),
            "{version:?}"
        );
        let (expected, other) = match given {
            true => (fetched.got, fetched.lacking),
            false => (fetched.lacking, fetched.got),
        };
        assert_eq!((expected, other), (vec![old], vec![]));
    }
}

#[tokio::test]
async fn a_tag_is_fetched_as_the_object_that_it_is() {
    for version in [Version::V2, Version::V0] {
        let mut pair = Pair::new();
        pair.host.version = version;
        let commit = pair.place.commit("a", "a");
        pair.place.run(&["tag", "-a", "-m", "first", "v1"]);
        let tag = pair.place.id("refs/tags/v1");
        let fetched = pair.host.fetch(&pair.place.repo, &[tag]).await;
        assert_eq!((fetched.end, fetched.got), (FetchEnd::Answered, vec![tag]));
        assert!(tag != commit && pair.has(tag) && pair.has(commit));
    }
}

#[tokio::test]
async fn the_tip_of_a_pull_request_is_found_where_it_is_kept() {
    let mut pair = Pair::new();
    let event = "ab".repeat(32);
    let tip = pair.place.commit("a", "a");
    let kept = format!("refs/nostr/{event}");
    pair.place.run(&["update-ref", &kept, &tip.to_string()]);
    pair.place.run(&["update-ref", "-d", "refs/heads/master"]);
    pair.host.version = Version::V0;
    let fetched = pair.host.fetch(&pair.place.repo, &[tip]).await;
    assert_eq!((fetched.end, fetched.got), (FetchEnd::Answered, vec![tip]));
    assert!(pair.repo().refs().unwrap().refs.is_empty());
    assert_eq!(name(&kept).event().unwrap().to_string(), event);
}

#[tokio::test]
async fn refs_that_are_shown_but_not_there_spoil_nothing() {
    let mut pair = Pair::new();
    let tip = pair.place.commit("a", "a");
    pair.host.twist_refs = Some(Box::new(|answer| {
        let line = format!("{} refs/heads/liar\n", stranger(3));
        [format!("{:04x}{line}", line.len() + 4).as_bytes(), &answer].concat()
    }));
    let fetched = pair.host.fetch(&pair.place.repo, &[tip, stranger(3)]).await;
    assert_eq!(fetched.end, FetchEnd::Answered);
    assert_eq!(
        (fetched.got, fetched.lacking),
        (vec![tip], vec![stranger(3)])
    );
    assert_eq!(pair.host.pack_requests().len(), 2);
}

#[tokio::test]
async fn questions_for_single_objects_are_bounded_and_say_where_they_ended() {
    let mut pair = Pair::new();
    pair.place.commit("a", "a");
    let wants: Vec<_> = (1..=20).map(stranger).collect();
    let fetched = pair.host.fetch(&pair.place.repo, &wants).await;
    assert_eq!(fetched.end, FetchEnd::Answered);
    assert_eq!(fetched.lacking, wants[..8]);
    assert_eq!(pair.host.pack_requests().len(), 8);
}

#[tokio::test]
async fn a_server_that_went_another_way_is_met_at_an_ancestor() {
    let mut pair = Pair::new();
    pair.place.commit("large", &noise(200_000));
    for n in 0..40 {
        pair.place.commit("common", &format!("{n}"));
    }
    pair.place.run(&["branch", "ours"]);
    let theirs = pair.place.commit("theirs", "theirs");
    pair.place.run(&["checkout", "-q", "ours"]);
    for n in 0..10 {
        pair.place.commit("own", &format!("{n}"));
    }
    let own = pair.place.id("HEAD");
    pair.place.bring(own).await;
    let ours = refs(&[("refs/heads/master", own)]);
    pair.repo().write_refs(&ours).unwrap();
    // The other server has never seen what is only here.
    pair.place.run(&["checkout", "-q", "master"]);
    pair.place.run(&["branch", "-q", "-D", "ours"]);
    pair.place
        .run(&["reflog", "expire", "--expire=now", "--all"]);
    pair.place.run(&["gc", "-q", "--prune=now"]);

    let fetched = pair.host.fetch(&pair.place.repo, &[theirs]).await;
    assert_eq!(
        (fetched.end, fetched.got),
        (FetchEnd::Answered, vec![theirs])
    );
    assert!(fetched.bytes < 20_000, "{}", fetched.bytes);
}

#[tokio::test]
async fn an_empty_server_lacks_everything() {
    for version in [Version::V2, Version::V0] {
        let mut pair = Pair::new();
        pair.host.version = version;
        let fetched = pair.host.fetch(&pair.place.repo, &[stranger(9)]).await;
        assert_eq!(fetched.end, FetchEnd::Answered, "{version:?}");
        assert_eq!(fetched.lacking, [stranger(9)]);
    }
}

#[tokio::test]
async fn a_server_whose_own_history_is_cut_lacks_what_it_reaches() {
    let pair = Pair::new();
    pair.place.commit("a", "a");
    let other = pair.place.commit("b", "b");
    pair.place.run(&["branch", "other"]);
    let tip = pair.place.commit("c", "c");
    let url = format!("file://{}", pair.place.work().display());
    let shallow = pair.place.path().join("shallow");
    let to = shallow.to_str().unwrap();
    pair.place.run(&[
        "clone",
        "-q",
        "--bare",
        "--depth=1",
        "--no-single-branch",
        &url,
        to,
    ]);
    let mut host = Host::of(&shallow);
    let fetched = host.fetch(&pair.place.repo, &[tip, other]).await;
    let mut lacking = fetched.lacking;
    lacking.sort();
    let mut wanted = vec![tip, other];
    wanted.sort();
    assert_eq!((fetched.end, lacking), (FetchEnd::Answered, wanted));
    assert!(!pair.has(tip));
}
