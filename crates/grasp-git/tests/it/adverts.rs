//! Adverts and answers as the real git makes and understands them.

use bytes::BytesMut;
use grasp_git::pktline::{self, Packet};
use grasp_git::{
    GitError, LsRefs, LsRefsError, Protocol, ServeLimits, Service, advertise, upload_pack,
};
use tokio::io::AsyncReadExt;

use crate::http::Host;
use crate::support::{Place, git, git_output, name, noise, refs, text};

async fn filled() -> Place {
    let place = Place::new();
    let first = place.commit("a", "1");
    let second = place.commit("b", &"some text\n".repeat(1_000));
    place.run(&["tag", "-a", "v1", "-m", "v1"]);
    let tag = place.id("v1");
    place.bring(tag).await;
    let pull = format!("refs/nostr/{}", "ab".repeat(32));
    let all = refs(&[
        ("refs/heads/master", second),
        ("refs/heads/topic/x", first),
        ("refs/tags/light", first),
        ("refs/tags/v1", tag),
        (&pull, second),
    ]);
    place.repo.write_refs(&all).unwrap();
    place
}

fn packets(mut body: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some((packet, taken)) = pktline::decode(body).unwrap() {
        lines.push(match packet {
            Packet::Data(line) => String::from_utf8_lossy(line).into_owned(),
            other => format!("{other:?}"),
        });
        body = &body[taken..];
    }
    assert!(body.is_empty());
    lines
}

/// What git itself says with our settings, under our agent's name.
fn gits_own(place: &Place, service: &str, version: &str) -> Vec<String> {
    let output = std::process::Command::new("git")
        .args(["-c", "uploadpack.allowFilter=true"])
        .args(["-c", "uploadpack.allowTipSHA1InWant=true"])
        .args(["-c", "uploadpack.allowReachableSHA1InWant=true"])
        .args([service, "--http-backend-info-refs"])
        .arg(place.repo.dir())
        .env("GIT_PROTOCOL", version)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    packets(&output.stdout)
}

/// Without the agent, and capabilities in no order.
fn normal(lines: Vec<String>) -> Vec<String> {
    let line = |line: String| {
        let Some((start, list)) = line.split_once('\0') else {
            return line;
        };
        let mut words: Vec<_> = list.split_whitespace().collect();
        words.retain(|word| !word.starts_with("agent=") && *word != "report-status-v2");
        words.sort_unstable();
        format!("{start}\0{}\n", words.join(" "))
    };
    let lines = lines.into_iter().map(line);
    lines.filter(|line| !line.starts_with("agent=")).collect()
}

#[tokio::test]
async fn adverts_are_those_of_git() {
    for place in [filled().await, Place::new()] {
        let found = place.repo.refs().unwrap();
        for (service, command, version, protocol) in [
            (Service::UploadPack, "upload-pack", "", Protocol::V0),
            (
                Service::UploadPack,
                "upload-pack",
                "version=1",
                Protocol::V1,
            ),
            (
                Service::UploadPack,
                "upload-pack",
                "version=2",
                Protocol::V2,
            ),
            (Service::ReceivePack, "receive-pack", "", Protocol::V0),
            (
                Service::ReceivePack,
                "receive-pack",
                "version=1",
                Protocol::V1,
            ),
        ] {
            let mut ours = packets(&advertise(service, protocol, &found));
            if protocol != Protocol::V2 {
                assert_eq!(ours.remove(0), format!("# service={}\n", service.name()));
                assert_eq!(ours.remove(0), "Flush");
            }
            let gits = normal(gits_own(&place, command, version));
            assert_eq!(normal(ours), gits, "{command} {version}");
        }
    }
}

fn ls_refs(arguments: &[&str]) -> Vec<u8> {
    let mut body = BytesMut::new();
    for line in [
        "command=ls-refs\n",
        "agent=git/2.47.3\n",
        "object-format=sha1\n",
    ] {
        pktline::put_text(&mut body, line);
    }
    body.extend_from_slice(b"0001");
    for line in arguments {
        pktline::put_text(&mut body, line);
    }
    pktline::put_flush(&mut body);
    body.to_vec()
}

#[tokio::test]
async fn ls_refs_answers_as_git_does() {
    for place in [filled().await, Place::new()] {
        for arguments in [
            &[][..],
            &["peel\n", "symrefs\n", "unborn\n"],
            &["symrefs"],
            &["unborn"],
            &["peel\n", "ref-prefix refs/tags/\n", "ref-prefix HEAD\n"],
            &[
                "peel\n",
                "symrefs\n",
                "ref-prefix refs/heads/topic\n",
                "ref-prefix refs/heads/\n",
            ],
            &["ref-prefix refs/nothing"],
        ] {
            let body = ls_refs(arguments);
            let ours = LsRefs::parse(&body).unwrap().unwrap();
            let ours = ours.answer(&place.repo.refs().unwrap());
            let cursor = std::io::Cursor::new(body);
            let limits = ServeLimits::default();
            let mut served = upload_pack(&place.repo, Protocol::V2, cursor, &limits)
                .await
                .unwrap();
            let mut gits = Vec::new();
            served.read_to_end(&mut gits).await.unwrap();
            served.finish().await.unwrap();
            assert_eq!(packets(&ours), packets(&gits), "{arguments:?}");
        }
    }
}

#[test]
fn other_requests_are_left_to_git_and_broken_ones_refused() {
    assert_eq!(LsRefs::parse(b"0012command=fetch\n0000"), Ok(None));
    assert_eq!(LsRefs::parse(b""), Ok(None));
    let whole = ls_refs(&["peel\n"]);
    assert!(LsRefs::is_asked(&whole[..20]));
    for cut in 20..whole.len() {
        assert_eq!(
            LsRefs::parse(&whole[..cut]),
            Err(LsRefsError::Truncated),
            "{cut}"
        );
    }
    assert!(matches!(
        LsRefs::parse(&ls_refs(&["delete everything"])),
        Err(LsRefsError::Unknown(_))
    ));
    assert!(LsRefs::parse(b"0014command=ls-refs\n001aobject-format=sha256\n0000").is_err());
    let many: Vec<_> = (0..5_000)
        .map(|n| format!("ref-prefix refs/heads/{n}"))
        .collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let all = LsRefs::parse(&ls_refs(&many)).unwrap();
    assert_eq!(
        all,
        LsRefs::parse(&ls_refs(&[])).unwrap(),
        "too many are as none"
    );
}

/// Git on a thread of its own, so that the host can answer.
async fn client(place: &Place, args: &[&str]) -> (bool, String) {
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let dir = place.work();
    tokio::task::spawn_blocking(move || {
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let output = git_output(&args, &dir, &[]);
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        (output.status.success(), said)
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_git_clones_in_every_version_and_shape() {
    let place = filled().await;
    let host = Host::start(&place.repo).await;
    let expected = place.bare(&["for-each-ref", "--format=%(objectname) %(refname)"]);
    for version in ["0", "1", "2"] {
        let protocol = format!("protocol.version={version}");
        let (ok, said) = client(
            &place,
            &["-c", &protocol, "ls-remote", "--symref", &host.url],
        )
        .await;
        assert!(ok, "{said}");
        assert!(said.contains("ref: refs/heads/master\tHEAD"), "{said}");
        assert!(said.contains("refs/tags/v1^{}"), "{said}");
        for line in expected.lines() {
            assert!(said.contains(&line.replace(' ', "\t")), "{line}");
        }
        for shape in [
            "--depth=1",
            "--filter=blob:none",
            "--filter=tree:0",
            "--mirror",
        ] {
            let to = format!("../clone-{version}{shape}");
            let args = [
                "-c", &protocol, "clone", "-q", "--bare", shape, &host.url, &to,
            ];
            let (ok, said) = client(&place, &args).await;
            assert!(ok, "{version} {shape}: {said}");
        }
    }
    let single = place.id("HEAD:a").to_string();
    let fetch = [
        "-c",
        "protocol.version=0",
        "fetch",
        "-q",
        "--depth=1",
        &host.url,
        &single,
    ];
    let (ok, said) = client(&place, &fetch).await;
    assert!(ok, "a single object: {said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_git_clones_an_empty_repository() {
    let place = Place::new();
    place.repo.set_head(&name("refs/heads/trunk")).unwrap();
    let host = Host::start(&place.repo).await;
    for version in ["0", "1", "2"] {
        let protocol = format!("protocol.version={version}");
        let to = format!("../clone-{version}");
        let args = ["-c", &protocol, "clone", "-q", &host.url, &to];
        let (ok, said) = client(&place, &args).await;
        assert!(ok, "{said}");
    }
    let head = std::fs::read_to_string(place.path().join("clone-2/.git/HEAD")).unwrap();
    assert_eq!(head, "ref: refs/heads/trunk\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_git_pushes_and_prints_what_we_say() {
    let place = Place::new();
    let host = Host::start(&place.repo).await;
    let first = place.commit("a", "1");
    place.run(&["tag", "-a", "v1", "-m", "v1"]);
    let (ok, said) = client(&place, &["push", &host.url, "master", "v1"]).await;
    assert!(ok && said.contains("remote: hello from here"), "{said}");
    assert_eq!(place.repo.refs().unwrap().refs.len(), 2);

    place.run(&["commit", "-q", "--amend", "-m", "again"]);
    let args = [
        "push",
        "--atomic",
        &host.url,
        "+master",
        ":v1",
        "master:refs/heads/new",
    ];
    let (ok, said) = client(&place, &args).await;
    assert!(ok, "{said}");
    let now = place.repo.refs().unwrap().ids();
    let tip = place.id("HEAD");
    assert_ne!(tip, first);
    assert_eq!(
        now,
        refs(&[("refs/heads/master", tip), ("refs/heads/new", tip)])
    );

    let (ok, said) = client(&place, &["push", &host.url, "master:no", "master:yes"]).await;
    assert!(
        !ok && said.contains("[remote rejected] master -> no (not this one)"),
        "{said}"
    );
    assert!(
        said.contains("[remote rejected] master -> yes (not this one)"),
        "{said}"
    );
    assert_eq!(place.repo.refs().unwrap().refs.len(), 2);
}

#[tokio::test]
async fn what_git_refuses_is_an_error_and_nothing_hangs() {
    let place = filled().await;
    let limits = ServeLimits::default();
    let body = std::io::Cursor::new(b"0012garbage here\n0000".to_vec());
    let mut served = upload_pack(&place.repo, Protocol::V0, body, &limits)
        .await
        .unwrap();
    let mut response = Vec::new();
    served.read_to_end(&mut response).await.unwrap();
    let error = served.finish().await.unwrap_err();
    assert!(matches!(error, GitError::Failed { .. }), "{error:?}");

    // A client that says nothing is given up.
    let (_silent, body) = tokio::io::duplex(64);
    let limits = ServeLimits {
        deadline: std::time::Duration::from_millis(50),
        ..limits
    };
    let mut served = upload_pack(&place.repo, Protocol::V0, body, &limits)
        .await
        .unwrap();
    let error = served.read_to_end(&mut response).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!(served.finish().await.unwrap_err().is_timeout());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_client_that_goes_takes_git_and_its_children_along() {
    let place = Place::new();
    let tip = place.commit("a", &noise(3_000_000));
    place.bring(tip).await;
    place
        .repo
        .write_refs(&refs(&[("refs/heads/master", tip)]))
        .unwrap();
    let mut body = BytesMut::new();
    pktline::put_text(&mut body, &format!("want {tip} side-band-64k ofs-delta\n"));
    pktline::put_flush(&mut body);
    pktline::put_text(&mut body, "done\n");
    let body = std::io::Cursor::new(body.to_vec());
    let limits = ServeLimits::default();
    let mut served = upload_pack(&place.repo, Protocol::V0, body, &limits)
        .await
        .unwrap();
    let mut total = 0;
    while total < 100_000 {
        total += served.chunk().await.unwrap().unwrap().len();
    }
    // The pipe is full now: upload-pack and pack-objects both wait to write.
    assert!(working_in(place.repo.dir()) >= 1);
    drop(served);
    let gone = async {
        while working_in(place.repo.dir()) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, gone)
        .await
        .unwrap();
}

/// How many processes have this as their working directory, as git's children do here.
#[cfg(target_os = "linux")]
fn working_in(dir: &std::path::Path) -> usize {
    processes_in(dir).len()
}

#[cfg(target_os = "linux")]
fn processes_in(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let dir = dir.canonicalize().unwrap();
    let here = |entry: std::io::Result<std::fs::DirEntry>| {
        let process = entry.ok()?.path();
        let link = std::fs::read_link(process.join("cwd")).ok()?;
        (link == dir).then_some(process)
    };
    let processes = std::fs::read_dir("/proc").unwrap();
    processes.filter_map(here).collect()
}

/// Protocol 2, whole.
async fn ask_for(place: &Place, lines: &[String]) -> String {
    ask_within(place, lines, &ServeLimits::default()).await
}

async fn ask_within(place: &Place, lines: &[String], limits: &ServeLimits) -> String {
    let mut request = BytesMut::new();
    pktline::put_text(&mut request, "command=fetch\n");
    request.extend_from_slice(b"0001");
    for line in lines {
        pktline::put_text(&mut request, line);
    }
    pktline::put_text(&mut request, "done\n");
    pktline::put_flush(&mut request);
    let body = std::io::Cursor::new(request.freeze());
    let mut served = upload_pack(&place.repo, Protocol::V2, body, limits)
        .await
        .unwrap();
    let mut answer = Vec::new();
    // What is refused ends with an error as well.
    while let Ok(Some(chunk)) = served.chunk().await {
        answer.extend_from_slice(&chunk);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn what_no_ref_reaches_is_not_given_to_whoever_knows_its_name() {
    let place = filled().await;
    place.run(&["checkout", "-q", "-b", "stray"]);
    let stray = place.commit("c", "of nobody");
    let (blob, tree) = (place.id("stray:c"), place.id("stray^{tree}"));
    place.bring(stray).await;
    for id in [stray, blob, tree] {
        assert!(place.repo.objects().unwrap().contains(&id).unwrap());
        for want in [
            format!("want {id}\n"),
            format!("want {}", id.to_string().to_uppercase()),
        ] {
            let answer = ask_for(&place, &[want]).await;
            let refused = format!("ERR upload-pack: not our ref {id}");
            assert!(answer.contains(&refused), "{answer:?}");
        }
    }
    // Hidden behind what is given, and after haves.
    let lines = ["master", "stray"].map(|name| place.id(name));
    let lines = [
        format!("want {}\n", lines[0]),
        format!("have {}\n", "ab".repeat(20)),
        format!("want {}\n", lines[1]),
    ];
    let answer = ask_for(&place, &lines).await;
    assert!(
        answer.contains(&format!("not our ref {stray}")),
        "{answer:?}"
    );

    place
        .repo
        .write_refs(&refs(&[("refs/heads/stray", stray)]))
        .unwrap();
    let answer = ask_for(&place, &[format!("want {blob}\n")]).await;
    assert!(answer.contains("packfile"), "{answer:?}");
}

#[tokio::test]
async fn whatever_refs_reach_is_given_by_its_name() {
    let place = filled().await;
    let tip = place.commit("a", "new content of a");
    place.run(&["tag", "-a", "v2", "-m", "v2"]);
    place.run(&["tag", "-a", "v3", "-m", "v3", "v2"]);
    place.bring(place.id("v3")).await;
    let all = [("refs/heads/master", tip), ("refs/tags/v3", place.id("v3"))];
    place.repo.write_refs(&refs(&all)).unwrap();
    for revision in [
        "master",
        "master~1",
        "master~2",
        "master:a",
        "master~1:a",
        "master~2:a",
        "master^{tree}",
        "master~2^{tree}",
        "v3",
        "v2",
        "v2^{commit}",
    ] {
        let want = format!("want {}\n", place.id(revision));
        let answer = ask_for(&place, std::slice::from_ref(&want)).await;
        assert!(answer.contains("packfile"), "{revision}: {answer:?}");
        // As browsers ask for single objects.
        let lines = [
            "deepen 1\n".to_owned(),
            "filter blob:none\n".to_owned(),
            want,
        ];
        let answer = ask_for(&place, &lines).await;
        assert!(answer.contains("packfile"), "{revision}: {answer:?}");
    }
}

#[tokio::test]
async fn a_filter_that_reads_a_strangers_file_is_refused() {
    let place = filled().await;
    let want = format!("want {}\n", place.id("master"));
    let filter = format!("filter sparse:oid={}\n", place.id("master:a"));
    let answer = ask_for(&place, &[filter, want]).await;
    assert!(!answer.contains("packfile"), "{answer:?}");
}

#[tokio::test]
async fn filters_that_clients_use_are_taken_and_costly_ones_refused() {
    let place = filled().await;
    let want = format!("want {}\n", place.id("master"));
    for used in [
        "blob:none",
        "blob:limit=1m",
        "tree:0",
        "tree:16",
        "object:type=commit",
    ] {
        let lines = [format!("filter {used}\n"), want.clone()];
        let answer = ask_for(&place, &lines).await;
        assert!(answer.contains("packfile"), "{used}: {answer:?}");
    }
    // Each part of a combination is asked about every object.
    let many = vec!["blob:none"; 6_000].join("+");
    for refused in [
        "tree:17",
        "combine:blob:none+tree:1",
        &format!("combine:{many}"),
    ] {
        let lines = [format!("filter {refused}\n"), want.clone()];
        let answer = ask_for(&place, &lines).await;
        assert!(!answer.contains("packfile"), "{answer:?}");
        assert!(answer.contains("ERR"), "{answer:?}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_fetch_gives_way_and_has_processor_time_by_the_size_of_its_repository() {
    let place = Place::new();
    let tip = place.commit("a", &noise(3_000_000));
    place.bring(tip).await;
    let master = refs(&[("refs/heads/master", tip)]);
    place.repo.write_refs(&master).unwrap();
    let mut body = BytesMut::new();
    pktline::put_text(&mut body, &format!("want {tip} side-band-64k ofs-delta\n"));
    pktline::put_flush(&mut body);
    pktline::put_text(&mut body, "done\n");
    let body = std::io::Cursor::new(body.to_vec());
    let limits = ServeLimits::default();
    let mut served = upload_pack(&place.repo, Protocol::V0, body, &limits)
        .await
        .unwrap();
    let mut total = 0;
    while total < 100_000 {
        total += served.chunk().await.unwrap().unwrap().len();
    }
    let mebibytes = place.repo.size().unwrap().div_ceil(1 << 20);
    let running = processes_in(place.repo.dir());
    assert!(!running.is_empty());
    for process in running {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap();
        assert_eq!(stat.split(' ').nth(18), Some("5"), "{stat}");
        let limits = std::fs::read_to_string(process.join("limits")).unwrap();
        let cpu = limits.lines().find(|line| line.starts_with("Max cpu time"));
        let seconds = cpu.and_then(|cpu| cpu.split_whitespace().nth(3));
        let seconds: u64 = seconds.unwrap().parse().expect(&limits);
        assert!(
            (61..=60 + 4 * mebibytes).contains(&seconds),
            "{seconds} s for {mebibytes} MiB"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_told_in_time_is_not_given() {
    let place = filled().await;
    let tip = place.commit("a", "new content of a");
    place.bring(tip).await;
    let master = refs(&[("refs/heads/master", tip)]);
    place.repo.write_refs(&master).unwrap();
    let mut limits = ServeLimits::default();
    limits.walk.timeout = std::time::Duration::ZERO;
    for revision in ["master~1", "master:a", "master~1:a"] {
        let want = [format!("want {}\n", place.id(revision))];
        let answer = ask_within(&place, &want, &limits).await;
        assert!(!answer.contains("packfile"), "{revision}: {answer:?}");
        assert!(answer.contains("ERR"), "{revision}: {answer:?}");
        assert!(answer.contains("try again"), "{revision}: {answer:?}");
        let answer = ask_for(&place, &want).await;
        assert!(answer.contains("packfile"), "{revision}: {answer:?}");
    }
}

/// Git takes two seconds of processor time to walk over it.
const LONG: usize = 300_000;

#[cfg(target_os = "linux")]
#[tokio::test]
async fn of_a_history_that_is_too_large_files_are_given_and_tags_are_not() {
    let place = Place::new();
    let mut history = "blob\nmark :1\ndata 3\nold\nblob\nmark :2\ndata 3\nnew\n".to_owned();
    for n in 0..LONG {
        let file = match n {
            0 => "M 100644 :1 a\n",
            1 => "M 100644 :2 a\n",
            _ => "",
        };
        history.push_str(&format!(
            "commit refs/heads/master\ncommitter A <a@b.c> {n} +0000\ndata 1\nx\n{file}"
        ));
    }
    let dir = place.repo.dir();
    let bare = |args: &[&str], input: &str| text(&git(args, dir, input.as_bytes()));
    bare(&["fast-import", "--quiet"], &history);
    let old = bare(&["hash-object", "--stdin"], "old");
    let tag = format!("object {old}\ntype blob\ntag t\ntagger A <a@b.c> 1 +0000\n\n");
    let tag = bare(&["hash-object", "-t", "tag", "-w", "--stdin"], &tag);
    let mut limits = ServeLimits::default();
    limits.walk.cpu = std::time::Duration::from_secs(1);

    let given = format!("want {old}\n");
    // The second time it is known to be too large.
    for _ in 0..2 {
        let answer = ask_within(&place, std::slice::from_ref(&given), &limits).await;
        assert!(answer.contains("packfile"), "{answer:?}");
    }
    let both = [given, format!("want {tag}\n")];
    let answer = ask_within(&place, &both, &limits).await;
    let words = format!("too large to tell whether a ref reaches {tag}");
    assert!(answer.contains(&words), "{answer:?}");
}
