//! Paths and methods: what is not served is not reached.

use bech32::{Bech32, Hrp};

use super::Target;
use crate::hosted::post;
use crate::support::{author, exchange, get, head, request};

#[tokio::test]
async fn no_spelling_of_a_path_reaches_another_repository() {
    let target = Target::new().await;
    let npub = target.project.owner.npub();
    let hex = target.project.owner.pubkey().to_string();
    let hrp = Hrp::parse("nsec").unwrap();
    let nsec = bech32::encode::<Bech32>(hrp, &target.project.owner.pubkey().0).unwrap();
    let other = author().npub();
    let (upper, mixed) = (npub.to_uppercase(), npub.replace("npub1", "Npub1"));
    let long = "x".repeat(201);
    let very_long = "%2e".repeat(4_000);
    let spellings = [
        format!("/{other}/../{npub}/target.git"),
        format!("/{other}/%2e%2e/{npub}/target.git"),
        format!("/{other}/%2E%2E%2F{npub}%2Ftarget.git"),
        format!("/{other}/..%2f{npub}%2ftarget.git"),
        format!("/{other}/..%5c{npub}%5ctarget.git"),
        format!("/{other}/%252e%252e%252f{npub}%252ftarget.git"),
        format!("/{npub}/other.git/../target.git"),
        format!("/{npub}/./target.git"),
        format!("/{npub}/%2e/target.git"),
        format!("/{npub}/target.git%00"),
        format!("/{npub}/target%00.git"),
        format!("/{npub}/target%0a.git"),
        format!("/{npub}/target%ff.git"),
        format!("/{npub}/target%2.git"),
        format!("/{npub}/target%2Egit"),
        format!("/{npub}/target.git.git"),
        format!("/{npub}/target.git%2f"),
        format!("/{npub}/target.GIT"),
        format!("/{npub}/Target.git"),
        format!("/{npub}/target"),
        format!("/{npub}/target%20.git"),
        format!("/{npub}/target+.git"),
        format!("/{npub}/.git"),
        format!("/{npub}/..git"),
        format!("/{npub}/%2e%2e.git"),
        format!("/{npub}//target.git"),
        format!("//{npub}/target.git"),
        format!("/{npub}%2ftarget.git"),
        format!("/prs/{npub}/target.git"),
        format!("/.retired/{npub}/target.git"),
        format!("/{upper}/target.git"),
        format!("/{mixed}/target.git"),
        format!("/{hex}/target.git"),
        format!("/{nsec}/target.git"),
        format!("/nostr:{npub}/target.git"),
        format!("/{npub}%20/target.git"),
        format!("/{npub}/{long}.git"),
        format!("/{npub}/{very_long}.git"),
        format!("/{npub}/--upload-pack=touch.git"),
    ];
    for spelling in &spellings {
        for below in [
            "/info/refs?service=git-upload-pack",
            "/info/refs?service=git-receive-pack",
            "",
        ] {
            let reply = get(target.server.addr(), &format!("{spelling}{below}"));
            let refused = matches!(reply.status, 400 | 404 | 414);
            assert!(refused, "{spelling}{below}: {reply:?}");
            assert!(!reply.body.contains(&target.first), "{spelling}{below}");
        }
        let fetch = format!("{spelling}/git-upload-pack");
        let reply = post(target.server.addr(), &fetch, &[], b"0000");
        assert!(matches!(reply.status, 400 | 404 | 414), "{spelling}");
    }
    target.assert_unharmed("spellings");
}

#[tokio::test]
async fn only_the_smart_protocol_is_served() {
    let target = Target::new().await;
    let addr = target.server.addr();
    for below in [
        "/HEAD",
        "/config",
        "/description",
        "/packed-refs",
        "/objects/info/packs",
        "/objects/info/alternates",
        "/refs/heads/main",
        "/info/refs/",
        "/info//refs?service=git-upload-pack",
        "/info/refs%00?service=git-upload-pack",
        "/info/refs/../refs?service=git-upload-pack",
        "/git-upload-pack/",
        "/git-upload-archive",
    ] {
        let reply = get(addr, &format!("{}{below}", target.path));
        assert_eq!(reply.status, 404, "{below}: {reply:?}");
        reply.assert_cors();
        assert!(!reply.body.contains(&target.first), "{below}: {reply:?}");
    }
    for query in [
        "",
        "?",
        "?service=",
        "?service=git-upload-archive",
        "?service=--upload-pack",
        "?service=git-upload-pack%00",
        "?service=git-upload-pack/../git-receive-pack",
        "?service=upload-pack",
        "?SERVICE=git-upload-pack",
        "?xservice=git-upload-pack",
    ] {
        let reply = get(addr, &format!("{}/info/refs{query}", target.path));
        assert_eq!(reply.status, 403, "{query}: {reply:?}");
        reply.assert_cors();
    }
    let reply = get(
        addr,
        &format!("{}/info/refs?x=1&service=git-upload-pack", target.path),
    );
    assert!(
        reply.status == 200 && reply.body.contains(&target.first),
        "{reply:?}"
    );
    target.assert_unharmed("dumb requests");
}

#[tokio::test]
async fn each_endpoint_takes_its_methods_and_no_other() {
    let target = Target::new().await;
    let addr = target.server.addr();
    let refs = format!("{}/info/refs?service=git-upload-pack", target.path);
    let fetch = format!("{}/git-upload-pack", target.path);
    let push = format!("{}/git-receive-pack", target.path);
    for (method, path, status) in [
        ("HEAD", &refs, 200),
        ("GET", &refs, 200),
        ("POST", &refs, 405),
        ("PUT", &refs, 405),
        ("DELETE", &refs, 405),
        ("PROPFIND", &refs, 405),
        ("GET", &fetch, 405),
        ("HEAD", &fetch, 405),
        ("PUT", &fetch, 405),
        ("GET", &push, 405),
        ("DELETE", &push, 405),
        ("OPTIONS", &refs, 204),
        ("OPTIONS", &fetch, 204),
        ("OPTIONS", &push, 204),
        ("OPTIONS", &target.path, 204),
        ("HEAD", &target.path, 200),
    ] {
        let reply = request(addr, method, path, &[]);
        assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
        reply.assert_cors();
    }
    let reply = request(addr, "HEAD", &refs, &[]);
    let kind = "application/x-git-upload-pack-advertisement";
    assert_eq!(reply.header("content-type"), Some(kind));
    assert_eq!(reply.body, "");
    let absolute = head(
        "GET",
        &format!("http://git.test{refs}"),
        &[("Connection", "close")],
    );
    assert_eq!(exchange(addr, &absolute).status, 200);
    target.assert_unharmed("methods");
}

#[tokio::test]
async fn an_unknown_repository_is_not_found_whatever_is_asked() {
    let target = Target::new().await;
    let nobody = format!("/{}/nothing.git", target.project.owner.npub());
    let addr = target.server.addr();
    for below in [
        "",
        "/info/refs",
        "/info/refs?service=git-upload-pack",
        "/info/refs?service=git-receive-pack",
        "/HEAD",
    ] {
        let reply = get(addr, &format!("{nobody}{below}"));
        assert_eq!(reply.status, 404, "{below}: {reply:?}");
        reply.assert_cors();
    }
    for below in ["/git-upload-pack", "/git-receive-pack"] {
        let reply = post(addr, &format!("{nobody}{below}"), &[], b"0000");
        assert_eq!(reply.status, 404, "{below}: {reply:?}");
        reply.assert_cors();
    }
    let dir = target
        .server
        .data_dir()
        .join("git")
        .join(target.project.owner.npub());
    assert!(!dir.join("nothing.git").exists());
}
