//! Packs from strangers: taken when whole, refused by name when not.

use std::time::{Duration, Instant};

use grasp_core::git::{ObjectId, ObjectKind};
use grasp_git::{CpuLimit, GitError, PackFault, PackLimits, Quarantine, Received};
use tokio::io::AsyncReadExt;

use crate::support::{PATIENCE, Place, bring, files, git, id, noise, refs};

async fn receive(place: &Place, pack: &[u8]) -> Result<Received, GitError> {
    receive_within(place, pack, &PackLimits::default()).await
}

async fn receive_within(
    place: &Place,
    pack: &[u8],
    limits: &PackLimits,
) -> Result<Received, GitError> {
    let mut quarantine = Quarantine::begin(&place.repo)?;
    quarantine.receive_pack(pack, limits).await
}

fn fault(result: Result<Received, GitError>) -> PackFault {
    match result {
        Err(GitError::Pack(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn objects_are_seen_after_migration_and_not_before() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    let objects = place.repo.objects().unwrap();
    assert_eq!(objects.kind(&commit).unwrap(), None);

    let pack = place.pack(&[commit], &[], &[]);
    let mut quarantine = Quarantine::begin(&place.repo).unwrap();
    let received = quarantine
        .receive_pack(&pack[..], &PackLimits::default())
        .await
        .unwrap();
    assert_eq!((received.bytes, received.objects), (pack.len() as u64, 3));
    quarantine
        .check_connected(&[commit], PATIENCE)
        .await
        .unwrap();
    let inside = quarantine.objects().unwrap();
    assert_eq!(inside.kind(&commit).unwrap(), Some(ObjectKind::Commit));
    assert_eq!(objects.kind(&commit).unwrap(), None);

    quarantine.migrate().unwrap();
    let tree = place.id("HEAD^{tree}");
    let blob = place.id("HEAD:a");
    let kinds = objects
        .kinds(
            &[ObjectId([8; 20]), commit, tree, blob, ObjectId([9; 20])],
            Duration::from_secs(60),
        )
        .unwrap();
    assert_eq!(
        kinds,
        [
            None,
            Some(ObjectKind::Commit),
            Some(ObjectKind::Tree),
            Some(ObjectKind::Blob),
            None
        ]
    );
    let summary = objects.commit_summary(&commit, |_| true).unwrap().unwrap();
    assert_eq!(summary.subject, "Add a");
    assert_eq!(summary.author, "A U Thor");
    assert_eq!(summary.time, 1_700_000_000);
    assert_eq!(objects.commit_summary(&tree, |_| true).unwrap(), None);
    assert_eq!(
        objects.log(&commit, 10, |_| true).unwrap(),
        [(commit, summary)]
    );
    assert_eq!(objects.log(&commit, 0, |_| true).unwrap(), []);
    assert_eq!(objects.log(&tree, 10, |_| true).unwrap(), []);
    let left = files(&place.repo.dir().join("objects"));
    assert!(
        left.iter()
            .all(|file| file.starts_with("pack/pack-") || file == "info/gate"),
        "{left:?}"
    );
}

#[tokio::test]
async fn a_quarantine_that_is_dropped_leaves_nothing() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    receive(&place, &place.pack(&[commit], &[], &[]))
        .await
        .unwrap();
    assert_eq!(
        files(place.repo.dir()),
        ["HEAD", "config", "objects/info/gate"]
    );
    assert!(!place.repo.objects().unwrap().contains(&commit).unwrap());
}

#[tokio::test]
async fn a_thin_pack_is_completed_from_what_is_here() {
    let place = Place::new();
    let text: String = (0..2_000).map(|n| format!("line {n}\n")).collect();
    let first = place.commit("a", &text);
    let second = place.commit("a", &text.replace("line 1000\n", "changed\n"));
    let thin = place.pack(&[second], &[first], &["--thin", "--delta-base-offset"]);
    assert!(thin.len() < 2_000, "it is thin");
    let refused = fault(receive(&place, &thin).await);
    assert!(matches!(refused, PackFault::Incomplete(_)), "{refused:?}");

    place.bring(first).await;
    place
        .repo
        .write_refs(&refs(&[("refs/heads/master", first)]))
        .unwrap();
    bring(&place.repo, &thin, second).await;
    place
        .repo
        .write_refs(&refs(&[("refs/heads/master", second)]))
        .unwrap();
    place.bare(&["fsck", "--full", "--strict"]);
}

#[tokio::test]
async fn an_empty_pack_is_what_a_client_sends_that_has_nothing_new() {
    let place = Place::new();
    let empty = git(&["pack-objects", "--stdout", "-q"], &place.work(), &[]);
    assert_eq!(empty.len(), 32);
    let received = receive(&place, &empty).await.unwrap();
    assert_eq!(received.objects, 0);
    let mut quarantine = Quarantine::begin(&place.repo).unwrap();
    quarantine
        .receive_pack(&empty[..], &PackLimits::default())
        .await
        .unwrap();
    quarantine.migrate().unwrap();
    let mut wrong = empty.clone();
    wrong[31] ^= 1;
    assert!(matches!(
        fault(receive(&place, &wrong).await),
        PackFault::Malformed(_)
    ));
    let mut long = empty.clone();
    long.push(0);
    assert_eq!(
        fault(receive(&place, &long).await),
        PackFault::TrailingBytes
    );
}

#[tokio::test]
async fn every_byte_that_is_cut_off_or_changed_is_noticed() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    let pack = place.pack(&[commit], &[], &[]);
    for end in [0, 1, 4, 11, 12, 13, 40, pack.len() - 20, pack.len() - 1] {
        let refused = fault(receive(&place, &pack[..end]).await);
        assert_eq!(refused, PackFault::Truncated, "cut at {end}");
    }
    for at in (0..pack.len()).step_by(7) {
        let mut bent = pack.clone();
        bent[at] ^= 0x55;
        assert!(receive(&place, &bent).await.is_err(), "byte {at}");
    }
    assert_eq!(
        fault(receive(&place, b"GIF89a......").await),
        PackFault::NotAPack
    );
    let mut version = pack.clone();
    version[7] = 9;
    assert_eq!(
        fault(receive(&place, &version).await),
        PackFault::Version(9)
    );
}

#[tokio::test]
async fn a_header_that_lies_about_the_count_is_refused() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    let pack = place.pack(&[commit], &[], &[]);
    for count in [1_u32, 2, 4, 1_000_000] {
        let mut lying = pack.clone();
        lying[8..12].copy_from_slice(&count.to_be_bytes());
        fault(receive(&place, &lying).await);
    }
    let mut many = pack.clone();
    many[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(receive(&place, &many).await.unwrap_err().is_too_large());
}

#[tokio::test]
async fn bytes_after_the_pack_are_noticed_however_few_or_many() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    let pack = place.pack(&[commit], &[], &[]);
    for extra in [1, 20, 5_000, 200_000, 2_000_000] {
        let mut long = pack.clone();
        long.resize(pack.len() + extra, b'x');
        let refused = fault(receive(&place, &long).await);
        assert_eq!(refused, PackFault::TrailingBytes, "{extra}");
        // And when they come late, after git has read all that it wants.
        let slow = (&pack[..]).chain(Late::new(extra));
        let mut quarantine = Quarantine::begin(&place.repo).unwrap();
        let result = quarantine.receive_pack(slow, &PackLimits::default()).await;
        assert_eq!(fault(result), PackFault::TrailingBytes, "{extra} late");
    }
}

/// Bytes that come only after many turns of the event loop.
struct Late {
    turns: u32,
    left: usize,
}

impl Late {
    fn new(left: usize) -> Self {
        Self {
            turns: 20_000,
            left,
        }
    }
}

impl tokio::io::AsyncRead for Late {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        if self.turns > 0 {
            self.turns -= 1;
            cx.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        let now = self.left.min(buffer.remaining());
        buffer.put_slice(&vec![b'y'; now]);
        self.left -= now;
        std::task::Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn more_bytes_than_allowed_end_it() {
    let place = Place::new();
    let commit = place.commit("a", &noise(200_000));
    let pack = place.pack(&[commit], &[], &[]);
    let limits = PackLimits {
        max_bytes: pack.len() as u64 - 1,
        ..PackLimits::default()
    };
    let error = receive_within(&place, &pack, &limits).await.unwrap_err();
    assert!(error.is_too_large() && error.is_client_fault());
    let limits = PackLimits {
        max_bytes: pack.len() as u64,
        ..PackLimits::default()
    };
    receive_within(&place, &pack, &limits).await.unwrap();
    assert_eq!(
        files(place.repo.dir()),
        ["HEAD", "config", "objects/info/gate"]
    );
}

#[tokio::test]
async fn a_sender_that_stalls_is_cut_off_by_the_deadline() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    let pack = place.pack(&[commit], &[], &[]);
    let (mut sender, receiver) = tokio::io::duplex(1 << 16);
    tokio::io::AsyncWriteExt::write_all(&mut sender, &pack[..30])
        .await
        .unwrap();
    let limits = PackLimits {
        deadline: std::time::Duration::from_millis(50),
        ..PackLimits::default()
    };
    let mut quarantine = Quarantine::begin(&place.repo).unwrap();
    let error = quarantine
        .receive_pack(receiver, &limits)
        .await
        .unwrap_err();
    assert!(error.is_timeout());
}

#[tokio::test]
async fn a_sender_that_breaks_off_is_named_as_the_cause() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    let pack = place.pack(&[commit], &[], &[]);
    let broken = tokio_test_reader(pack[..60].to_vec());
    let mut quarantine = Quarantine::begin(&place.repo).unwrap();
    let result = quarantine
        .receive_pack(broken, &PackLimits::default())
        .await;
    assert!(matches!(result, Err(GitError::Body(_))), "{result:?}");
}

/// Gives the bytes and then an error, as a connection does that is reset.
fn tokio_test_reader(bytes: Vec<u8>) -> impl tokio::io::AsyncRead + Unpin {
    struct Reset;
    impl tokio::io::AsyncRead for Reset {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::task::Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into()))
        }
    }
    std::io::Cursor::new(bytes).chain(Reset)
}

#[tokio::test]
async fn a_pack_with_a_hole_is_refused_even_where_no_ref_points() {
    let place = Place::new();
    let first = place.commit("a", "1");
    let second = place.commit("b", "2");
    let tree = place.id("HEAD^{tree}");
    let blobs = [place.id("HEAD:a"), place.id("HEAD:b")];

    let without_parent = place.pack_of(&[second, tree, blobs[0], blobs[1]]);
    let refused = fault(receive(&place, &without_parent).await);
    assert!(matches!(refused, PackFault::Incomplete(_)), "{refused:?}");

    // The first commit is complete; the second, which nobody asks about, is not.
    let whole_and_stray = place.pack_of(&[first, place.id("HEAD~1^{tree}"), blobs[0], second]);
    let result = receive(&place, &whole_and_stray).await;
    assert!(result.as_ref().unwrap_err().is_incomplete(), "{result:?}");
}

#[tokio::test]
async fn a_tip_that_nobody_brought_is_not_connected() {
    let place = Place::new();
    let first = place.commit("a", "1");
    let second = place.commit("b", "2");
    let mut quarantine = Quarantine::begin(&place.repo).unwrap();
    let pack = place.pack(&[first], &[], &[]);
    quarantine
        .receive_pack(&pack[..], &PackLimits::default())
        .await
        .unwrap();
    quarantine
        .check_connected(&[first], PATIENCE)
        .await
        .unwrap();
    let error = quarantine
        .check_connected(&[second], PATIENCE)
        .await
        .unwrap_err();
    assert!(matches!(error, GitError::MissingObject(id) if id == second));
    assert!(error.is_incomplete());
}

#[tokio::test]
async fn a_repository_that_lost_an_object_can_be_mended() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    place.bring(commit).await;
    place
        .repo
        .write_refs(&refs(&[("refs/heads/master", commit)]))
        .unwrap();
    let packs = place.repo.dir().join("objects/pack");
    for file in files(&packs) {
        std::fs::remove_file(packs.join(file)).unwrap();
    }
    assert!(!place.repo.objects().unwrap().contains(&commit).unwrap());
    place.bring(commit).await;
    place.bare(&["fsck", "--full"]);
}

#[tokio::test]
async fn broken_objects_are_refused_and_old_sins_forgiven() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    let tree = place.id("HEAD^{tree}");
    let blob = place.id("HEAD:a");
    let write = |content: &str| {
        let args = [
            "hash-object",
            "-t",
            "commit",
            "--literally",
            "-w",
            "--stdin",
        ];
        id(&String::from_utf8(git(&args, &place.work(), content.as_bytes())).unwrap())
    };
    let old = write(&format!(
        "tree {tree}\nauthor A <a@b.c> 1000000000 +051800\ncommitter C <c@d.e> 1000000000 +0000\n\nx\n"
    ));
    receive(&place, &place.pack_of(&[old, tree, blob]))
        .await
        .unwrap();
    let bad = write(&format!(
        "tree {tree}\nauthor A\ncommitter C <c@d.e> 1 +0000\n\nx\n"
    ));
    let refused = fault(receive(&place, &place.pack_of(&[bad, tree, blob])).await);
    assert!(matches!(refused, PackFault::Fsck { .. }), "{refused:?}");
    receive(&place, &place.pack_of(&[commit, tree, blob]))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_fault_is_told_with_its_object_and_old_ones_that_harm_nobody_pass() {
    let place = Place::new();
    let blob = {
        place.commit("a", "1");
        place.id("HEAD:a")
    };
    let tree = |name: &str| {
        let entry = [format!("{name}\0").as_bytes(), blob.as_bytes()].concat();
        let args = ["hash-object", "-t", "tree", "--literally", "-w", "--stdin"];
        id(&String::from_utf8(git(&args, &place.work(), &entry)).unwrap())
    };
    let padded = tree("0100644 a");
    receive(&place, &place.pack_of(&[padded, blob]))
        .await
        .unwrap();
    for (entry, fault_name) in [
        ("100644 .git", "hasDotgit"),
        ("100644 .GIT", "hasDotgit"),
        ("100644 git~1", "hasDotgit"),
        ("100644 ..", "hasDotdot"),
        ("100644 a/b", "fullPathname"),
    ] {
        let bad = tree(entry);
        let refused = fault(receive(&place, &place.pack_of(&[bad, blob])).await);
        let PackFault::Fsck { object, fault, .. } = &refused else {
            panic!("{entry}: {refused:?}");
        };
        assert_eq!((*object, fault.as_str()), (bad, fault_name));
        let words = refused.to_string();
        assert!(words.contains(&bad.to_string()), "{words}");
    }
}

#[tokio::test]
async fn a_chain_of_deltas_that_is_slow_to_read_is_refused_by_name() {
    let place = Place::new();
    receive(&place, &chained(4_096, false)).await.unwrap();
    receive(&place, &chained(4_096, true)).await.unwrap();
    for by_name in [false, true] {
        let refused = fault(receive(&place, &chained(5_000, by_name)).await);
        let PackFault::DeepDelta { object, depth, .. } = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((object, depth), (link(5_000).0, 5_000));
        let words = refused.to_string();
        let last = link(5_000).0.to_string();
        assert!(words.contains(&last) && words.contains("5000"), "{words}");
    }
}

const LINK: usize = 64;

/// The content of the n-th object of a chain, and its name.
fn link(n: u32) -> (ObjectId, Vec<u8>) {
    let mut content = n.to_be_bytes().to_vec();
    content.resize(LINK, b'x');
    let (sha1, blob) = (gix_hash::Kind::Sha1, gix_object::Kind::Blob);
    let name = gix_object::compute_hash(sha1, blob, &content).unwrap();
    (ObjectId(name.as_slice().try_into().unwrap()), content)
}

/// A pack of one blob and so many deltas, each of the one before it, by its place or by its name.
fn chained(deltas: u32, by_name: bool) -> Vec<u8> {
    let mut pack = b"PACK\0\0\0\x02".to_vec();
    pack.extend((deltas + 1).to_be_bytes());
    let mut before = pack.len();
    // Of 64 bytes: the low bits 0, and 4 more bits above them.
    pack.extend([0b1011_0000, LINK as u8 >> 4]);
    pack.extend(stored(&link(0).1));
    for n in 1..=deltas {
        let at = pack.len();
        // 4 new bytes, then 60 of the base from 4 on.
        let mut delta = vec![LINK as u8, LINK as u8, 4];
        delta.extend(n.to_be_bytes());
        delta.extend([0b1001_0001, 4, LINK as u8 - 4]);
        match by_name {
            true => {
                pack.push(7 << 4 | delta.len() as u8);
                pack.extend(link(n - 1).0.as_bytes());
            }
            false => {
                pack.push(6 << 4 | delta.len() as u8);
                pack.push(u8::try_from(at - before).unwrap());
            }
        }
        pack.extend(stored(&delta));
        before = at;
    }
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    hasher.update(&pack);
    pack.extend(hasher.try_finalize().unwrap().as_slice());
    pack
}

/// As zlib has it, without compression.
pub fn stored(content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x78, 0x01];
    let mut blocks = content.chunks(usize::from(u16::MAX)).peekable();
    while let Some(block) = blocks.next() {
        let length = block.len() as u16;
        bytes.push(u8::from(blocks.peek().is_none()));
        bytes.extend(length.to_le_bytes());
        bytes.extend((!length).to_le_bytes());
        bytes.extend(block);
    }
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in content {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    bytes.extend((b << 16 | a).to_be_bytes());
    bytes
}

/// 512 MiB of nothing are half a MiB in a pack, and take seconds to hash.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn few_bytes_that_keep_the_processor_busy_are_refused_in_words() {
    let place = Place::new();
    let file = std::fs::File::create(place.path().join("zeros")).unwrap();
    file.set_len(512 * 1024 * 1024).unwrap();
    let blob = id(&place.run(&["hash-object", "-w", "../zeros"]));
    let pack = place.pack_of(&[blob]);
    assert!(pack.len() < 1024 * 1024);
    let limits = |per_mib| PackLimits {
        cpu: CpuLimit {
            base: Duration::from_secs(1),
            per_mib: Duration::from_secs(per_mib),
        },
        niceness: 10,
        ..PackLimits::default()
    };
    let refused = fault(receive_within(&place, &pack, &limits(0)).await);
    assert_eq!(refused, PackFault::TooMuchCpu { seconds: 1 });
    assert!(refused.to_string().contains("1 s of processor time"));
    receive_within(&place, &pack, &limits(600)).await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_object_that_inflates_beyond_the_limit_ends_git_and_nothing_else() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    let tree = place.id("HEAD^{tree}");
    let bomb = format!(
        "tree {tree}\nauthor A <a@b.c> 1 +0000\ncommitter C <c@d.e> 1 +0000\n\n{}\n",
        "x".repeat(300 * 1024 * 1024)
    );
    let args = ["hash-object", "-t", "commit", "-w", "--stdin"];
    let bomb = id(&String::from_utf8(git(&args, &place.work(), bomb.as_bytes())).unwrap());
    let pack = place.pack_of(&[bomb, tree, place.id("HEAD:a"), commit]);
    assert!(pack.len() < 2 * 1024 * 1024);
    let limits = PackLimits {
        max_memory: 200 * 1024 * 1024,
        ..PackLimits::default()
    };
    let refused = fault(receive_within(&place, &pack, &limits).await);
    assert!(matches!(refused, PackFault::TooCostly(_)), "{refused:?}");
    let limits = PackLimits {
        max_memory: 2 * 1024 * 1024 * 1024,
        ..PackLimits::default()
    };
    let mut quarantine = Quarantine::begin(&place.repo).unwrap();
    quarantine.receive_pack(&pack[..], &limits).await.unwrap();
    quarantine.migrate().unwrap();
    let objects = place.repo.objects().unwrap();
    assert_eq!(
        objects.commit_summary(&bomb, |_| true).unwrap(),
        None,
        "too large for a page"
    );
}

#[tokio::test]
async fn a_page_reads_no_large_commits() {
    let place = Place::new();
    let first = place.commit("a", "1");
    let message = place.work().join("message");
    let commit = |length: usize| {
        std::fs::write(&message, format!("Long\n\n{}\n", noise(length))).unwrap();
        place.run(&["commit", "-q", "--allow-empty", "-F", "message"]);
        place.id("HEAD")
    };
    let (fits, large, last) = (commit(64_000), commit(66_000), commit(10));
    place.bring(last).await;
    let objects = place.repo.objects().unwrap();
    assert_eq!(objects.commit_summary(&large, |_| true).unwrap(), None);
    let shown = |tip| -> Vec<ObjectId> {
        let log = objects.log(&tip, 10, |_| true).unwrap();
        log.into_iter().map(|(id, _)| id).collect()
    };
    assert_eq!(shown(fits), [fits, first]);
    let mut sizes = Vec::new();
    let log = objects.log(&fits, 10, |size| {
        sizes.push(size);
        size < 60_000
    });
    assert_eq!(log.unwrap(), [], "it was asked before it was read");
    assert!(sizes.len() == 1 && sizes[0] > 64_000, "{sizes:?}");
    assert_eq!(shown(last), [last]);
    assert_eq!(shown(large), []);
}

#[tokio::test]
async fn two_packs_in_one_quarantine_arrive_together() {
    let place = Place::new();
    let first = place.commit("a", "1");
    let second = place.commit("b", "2");
    let mut quarantine = Quarantine::begin(&place.repo).unwrap();
    for pack in [
        place.pack(&[first], &[], &[]),
        place.pack(&[second], &[first], &[]),
    ] {
        quarantine
            .receive_pack(&pack[..], &PackLimits::default())
            .await
            .unwrap();
    }
    quarantine
        .check_connected(&[second], PATIENCE)
        .await
        .unwrap();
    quarantine.migrate().unwrap();
    assert!(place.repo.objects().unwrap().contains(&second).unwrap());
    let left = files(&place.repo.dir().join("objects"));
    let stray: Vec<_> = left
        .iter()
        .filter(|file| !file.starts_with("pack/pack-"))
        .collect();
    assert_eq!(stray, ["info/adopting", "info/gate"], "{left:?}");
    assert_eq!(left.iter().filter(|file| file.ends_with(".idx")).count(), 2);
}

#[tokio::test]
async fn the_same_pack_twice_is_one_pack() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    place.bring(commit).await;
    let before = files(&place.repo.dir().join("objects"));
    place.bring(commit).await;
    assert_eq!(files(&place.repo.dir().join("objects")), before);
}

#[tokio::test]
async fn all_steps_of_one_intake_share_one_deadline() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    let pack = place.pack(&[commit], &[], &[]);
    let mut quarantine = Quarantine::begin(&place.repo).unwrap();
    let began = Instant::now();
    let limits = PackLimits::default();
    quarantine.receive_pack(&pack[..], &limits).await.unwrap();
    let spent = began.elapsed();
    // Enough for this step alone, had it not been spent on the one before.
    let error = quarantine
        .check_connected(&[commit], spent)
        .await
        .unwrap_err();
    assert!(error.is_timeout(), "{error}");
    quarantine
        .check_connected(&[commit], PATIENCE)
        .await
        .unwrap();

    let limits = PackLimits {
        deadline: Duration::ZERO,
        ..limits
    };
    let late = quarantine.receive_pack(&pack[..], &limits).await;
    assert!(late.unwrap_err().is_timeout());
    assert!(quarantine.migrate().unwrap_err().is_timeout());
    assert!(!place.repo.objects().unwrap().contains(&commit).unwrap());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_is_reached_is_checked_within_the_same_memory() {
    let place = Place::new();
    place.commit("a", "1");
    let tree = place.id("HEAD^{tree}");
    let write = |parents: &str, message: &str| {
        let commit = format!(
            "tree {tree}\n{parents}author A <a@b.c> 1 +0000\ncommitter C <c@d.e> 1 +0000\n\n{message}\n"
        );
        let args = ["hash-object", "-t", "commit", "-w", "--stdin"];
        id(&String::from_utf8(git(&args, &place.work(), commit.as_bytes())).unwrap())
    };
    let bomb = write("", &"x".repeat(300 * 1024 * 1024));
    let child = write(&format!("parent {bomb}\n"), "small");
    place.bring(bomb).await;
    let mut quarantine = Quarantine::begin(&place.repo).unwrap();
    let limits = PackLimits {
        max_memory: 200 * 1024 * 1024,
        ..PackLimits::default()
    };
    let pack = place.pack_of(&[child]);
    quarantine.receive_pack(&pack[..], &limits).await.unwrap();
    let error = quarantine
        .check_connected(&[child], PATIENCE)
        .await
        .unwrap_err();
    let costly = matches!(error, GitError::Pack(PackFault::TooCostly(_)));
    assert!(costly, "{error:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn git_ends_when_nobody_waits_for_it_any_more() {
    let place = Place::new();
    let commit = place.commit("a", "1");
    let pack = place.pack(&[commit], &[], &[]);
    let (mut sender, receiver) = tokio::io::duplex(1 << 16);
    tokio::io::AsyncWriteExt::write_all(&mut sender, &pack[..30])
        .await
        .unwrap();
    let mut quarantine = Quarantine::begin(&place.repo).unwrap();
    let limits = PackLimits::default();
    let mut receiving = Box::pin(quarantine.receive_pack(receiver, &limits));
    while !git_works_on(&place) {
        tokio::select! {
            biased;
            result = &mut receiving => panic!("{result:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    drop(receiving);
    drop(quarantine);
    let dropped = Instant::now();
    while git_works_on(&place) {
        assert!(dropped.elapsed() < PATIENCE);
        tokio::task::yield_now().await;
    }
    assert_eq!(
        files(place.repo.dir()),
        ["HEAD", "config", "objects/info/gate"]
    );
}

/// A process whose arguments name the repository; one that has ended has none.
#[cfg(target_os = "linux")]
pub fn git_works_on(place: &Place) -> bool {
    let dir = place.repo.dir().to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").unwrap();
    processes.flatten().any(|process| {
        let arguments = std::fs::read(process.path().join("cmdline"));
        arguments.is_ok_and(|text| String::from_utf8_lossy(&text).contains(&dir))
    })
}
