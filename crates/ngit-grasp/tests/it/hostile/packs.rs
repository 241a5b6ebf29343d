//! Packs and bodies.

use async_compression::tokio::bufread::GzipEncoder;
use testkit::{Author, Project, WorkTree, now, pack};
use tokio::io::AsyncReadExt as _;

use super::Target;
use crate::hosted::{
    NULL, commands, directory, grasp, hosted, leftovers, memory, next_state, path, pkt, post,
    served,
};
use crate::support::eventually;

#[tokio::test]
async fn a_bad_pack_moves_nothing_and_the_good_one_after_it_does() {
    let mut target = Target::new().await;
    let (tree, project) = (&target.tree, &target.project);
    let (next, state) = next_state(&mut target.client, project, tree, now()).await;
    let head = commands(&[(&target.first, &next, "refs/heads/main")]);
    let pack = target.tree.pack(&[&next, &format!("^{}", target.first)]);
    let mut flipped = pack.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x55;
    let empty = pack::pack(&[]);
    let count = |n: u32| [b"PACK\0\0\0\x02".as_slice(), &n.to_be_bytes()].concat();
    for (what, bytes) in [
        ("no pack at all", Vec::new()),
        ("garbage", b"this is not a pack, it is words".to_vec()),
        ("a cut header", pack[..7].to_vec()),
        ("half a pack", pack[..pack.len() / 2].to_vec()),
        (
            "a pack without its trailer",
            pack[..pack.len() - 20].to_vec(),
        ),
        (
            "a pack without its last byte",
            pack[..pack.len() - 1].to_vec(),
        ),
        ("a flipped byte", flipped),
        ("a byte too many", [pack.as_slice(), b"x"].concat()),
        ("two packs", [pack.as_slice(), &pack].concat()),
        (
            "a megabyte too many",
            [pack.clone(), vec![0; 1 << 20]].concat(),
        ),
        ("an empty pack", empty),
        ("an unknown version", b"PACK\0\0\0\x09\0\0\0\x01".to_vec()),
        ("four billion objects", count(u32::MAX)),
        (
            "another history's objects",
            WorkTree::new_with_commit().pack(&["main"]),
        ),
    ] {
        let reply = target.push(&[head.clone(), bytes].concat());
        assert_eq!(reply.status, 200, "{what}: {reply:?}");
        assert!(
            reply.body.contains("ng refs/heads/main"),
            "{what}: {reply:?}"
        );
        assert!(!reply.body.contains("unpack ok"), "{what}: {reply:?}");
        assert!(!served(&mut target.client, &state).await, "{what}");
        target.assert_unharmed(what);
    }
    let reply = target.push(&[head, pack].concat());
    assert!(reply.body.contains("ok refs/heads/main"), "{reply:?}");
    assert!(served(&mut target.client, &state).await);
    target.assert_at(&next, "the good pack");
}

#[tokio::test]
async fn a_delta_that_grows_without_end_is_stopped() {
    let mut target = Target::new().await;
    let (tree, project) = (&target.tree, &target.project);
    let (next, state) = next_state(&mut target.client, project, tree, now()).await;
    let head = commands(&[(&target.first, &next, "refs/heads/main")]);
    // 300 kB that say: copy these 64 kB a hundred thousand times.
    let bomb = pack::pack(&[
        pack::Object::Blob(vec![0; 0xffff]),
        pack::Object::Repeat { times: 100_000 },
    ]);
    let before = memory(&target.server, "VmRSS");
    let reply = target.push(&[head, bomb].concat());
    assert!(reply.body.contains("ng refs/heads/main"), "{reply:?}");
    assert!(reply.body.contains("too much memory"), "{reply:?}");
    let grown = memory(&target.server, "VmRSS").saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} kB");
    assert!(!served(&mut target.client, &state).await);
    target.assert_unharmed("a delta bomb");
}

async fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut encoder = GzipEncoder::new(bytes);
    encoder.read_to_end(&mut packed).await.unwrap();
    packed
}

const GZIP: &[(&str, &str)] = &[("Content-Encoding", "gzip")];

#[tokio::test]
async fn a_body_that_unpacks_to_much_more_costs_no_memory() {
    let server = grasp();
    let (project, tree) = (Project::new(&Author::new(1), "bombed"), WorkTree::new());
    let mut client = hosted(&server, &project, &tree).await;
    let first = tree.head();
    let path = path(&server, &project);
    let (fetch, push) = (
        format!("{path}/git-upload-pack"),
        format!("{path}/git-receive-pack"),
    );
    let (next, state) = next_state(&mut client, &project, &tree, now()).await;

    let zeros = gzip(&vec![0; 256 << 20]).await;
    let lines = pkt(&format!("want {first}\n")).repeat(2_000_000);
    let wants = gzip(&lines).await;
    let mut commands = commands(&[(&first, &next, "refs/heads/main")]);
    commands.extend(b"PACK\0\0\0\x02\0\0\0\x01");
    commands.extend(vec![0; 256 << 20]);
    let commands = gzip(&commands).await;
    let have =
        gzip(&pkt(&format!("{NULL} {first} refs/heads/{}", "x".repeat(900))).repeat(200_000)).await;
    let before = memory(&server, "VmRSS");
    for (path, body) in [
        (&fetch, &zeros),
        (&fetch, &wants),
        (&push, &zeros),
        (&push, &commands),
        (&push, &have),
    ] {
        let reply = post(server.addr(), path, GZIP, body);
        assert!(matches!(reply.status, 200 | 400 | 413), "{path}: {reply:?}");
        assert!(!reply.body.contains("ok refs/heads/main"), "{reply:?}");
        let version2 = [GZIP, &[("Git-Protocol", "version=2")]].concat();
        let reply = post(server.addr(), path, &version2, body);
        assert!(matches!(reply.status, 200 | 400 | 413), "{path}: {reply:?}");
    }
    let grown = memory(&server, "VmHWM").saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} kB");
    assert!(!served(&mut client, &state).await);
    assert_eq!(WorkTree::clone_of(&project.url(&server), &[]).head(), first);
    let none_left = || async { leftovers(&directory(&server, &project)).is_empty() };
    eventually("the quarantines go", none_left).await;
}

#[tokio::test]
async fn encodings_are_gzip_or_none() {
    let mut target = Target::new().await;
    let body = commands(&[(NULL, &target.first, "refs/heads/x")]);
    for encoding in ["br", "deflate", "zstd", "gzip, gzip", "gzip;q=1", "x"] {
        let headers = [("Content-Encoding", encoding)];
        for reply in [
            target.push_with(&headers, &body),
            target.fetch_with(&headers, &body),
        ] {
            assert_eq!(reply.status, 415, "{encoding}: {reply:?}");
            reply.assert_cors();
        }
    }
    let reply = target.push_with(GZIP, b"not gzip at all");
    assert_eq!(reply.status, 400, "{reply:?}");
    let reply = target.push_with(GZIP, &gzip(&body).await[..20]);
    assert_eq!(reply.status, 400, "{reply:?}");
    let (tree, project) = (&target.tree, &target.project);
    let (next, _) = next_state(&mut target.client, project, tree, now()).await;
    let mut body = commands(&[(&target.first, &next, "refs/heads/main")]);
    body.extend(target.tree.pack(&[&next]));
    for encoding in ["gzip", "x-gzip"] {
        let headers = [("Content-Encoding", encoding)];
        let reply = target.push_with(&headers, &gzip(&body).await);
        assert!(reply.body.contains("ok refs/heads/main"), "{reply:?}");
    }
    target.assert_at(&next, "encodings");
}
