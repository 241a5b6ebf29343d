//! What strangers write, read without harm.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use grasp_core::git::ObjectId;
use grasp_core::hunt::io::FetchEnd;
use proptest::prelude::*;
use tokio::io::AsyncReadExt as _;

use super::advert::{self, Advert, AdvertLimits, Named, Server};
use super::answer::{self, Answer, Ends};
use super::packets::Packets;
use super::request::{self, PackRequest, SliceRequest};
use super::transport::Version;
use crate::pktline;

const ONE: &str = "1111111111111111111111111111111111111111";
const TWO: &str = "2222222222222222222222222222222222222222";

fn id(text: &str) -> ObjectId {
    ObjectId::parse(text).unwrap()
}

fn wanted() -> BTreeSet<ObjectId> {
    [id(ONE), id(TWO)].into()
}

/// `0000` and `0001` stand for themselves.
fn packets(lines: &[&str]) -> Vec<u8> {
    let mut out = BytesMut::new();
    for line in lines {
        match *line {
            "0000" | "0001" => out.extend_from_slice(line.as_bytes()),
            line => pktline::put_text(&mut out, line),
        }
    }
    out.to_vec()
}

fn now<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

fn advert(body: &[u8]) -> Result<Advert, FetchEnd> {
    let mut packets = Packets::new(body);
    now(advert::read(
        &mut packets,
        &wanted(),
        AdvertLimits::default(),
    ))
}

fn refs(body: &[u8]) -> Result<Named, FetchEnd> {
    let mut packets = Packets::new(body);
    now(advert::read_refs(
        &mut packets,
        &wanted(),
        AdvertLimits::default(),
    ))
}

fn answered(body: &[u8], version: Version) -> Result<Answer, FetchEnd> {
    now(answer::read(&mut Packets::new(body), version))
}

fn v2() -> Server {
    Server {
        version: Version::V2,
        any_id: true,
        slices: true,
        object_format: true,
        features: Vec::new(),
    }
}

#[test]
fn an_advert_of_version_2_says_what_the_server_can() {
    let lines = [
        "version 2\n",
        "agent=git/2.47\n",
        "ls-refs=unborn\n",
        "fetch=shallow wait-for-done\n",
        "object-format=sha1\n",
        "0000",
    ];
    assert_eq!(advert(&packets(&lines)), Ok(Advert::V2(v2())));
    let with_service = ["# service=git-upload-pack\n", "0000"];
    let both = [&with_service[..], &lines].concat();
    assert_eq!(advert(&packets(&both)), Ok(Advert::V2(v2())));
    for (lines, end) in [
        (
            &["version 2\n", "ls-refs\n", "0000"][..],
            FetchEnd::Unreachable,
        ),
        (
            &["version 2\n", "object-format=sha256\n", "0000"],
            FetchEnd::Absent,
        ),
        (&["version 2\n", "fetch\n"], FetchEnd::Spoiled),
        (&["ERR no such thing\n"], FetchEnd::Failed),
    ] {
        assert_eq!(advert(&packets(lines)), Err(end), "{lines:?}");
    }
}

#[test]
fn an_advert_of_version_0_names_refs_and_what_tags_stand_for() {
    let first = format!("{ONE} HEAD\0side-band-64k multi_ack thin-pack allow-tip-sha1-in-want\n");
    let peeled = format!("{TWO} refs/tags/v1^{{}}\n");
    let other = format!("{} refs/heads/other\n", "3".repeat(40));
    let lines = [first.as_str(), other.as_str(), peeled.as_str(), "0000"];
    let Ok(Advert::V0(server, named)) = advert(&packets(&lines)) else {
        panic!("it is one");
    };
    assert_eq!(server.features, ["side-band-64k", "thin-pack"]);
    assert!(server.any_id && !server.slices);
    assert_eq!(named.tips, [id(ONE)].into());
    assert_eq!(named.peeled, [id(TWO)].into());
    let nothing = format!("{} capabilities^{{}}\0side-band-64k\n", "0".repeat(40));
    let Ok(Advert::V0(_, named)) = advert(&packets(&["version 1\n", &nothing, "0000"])) else {
        panic!("it is one");
    };
    assert_eq!(named, Named::default());
}

#[test]
fn a_list_of_refs_is_searched_for_what_is_wanted() {
    let tag = format!("{} refs/tags/v1 peeled:{TWO}\n", "3".repeat(40));
    let head = format!("{ONE} HEAD symref-target:refs/heads/main\n");
    let named = refs(&packets(&["unborn HEAD\n", &head, &tag, "junk\n", "0000"])).unwrap();
    assert_eq!(named.tips, [id(ONE)].into());
    assert_eq!(named.peeled, [id(TWO)].into());
}

#[test]
fn what_comes_before_a_pack_is_understood() {
    let shallow = format!("shallow {ONE}");
    let unshallow = format!("unshallow {TWO}");
    let lines = ["shallow-info\n", &shallow, &unshallow, "0001", "packfile\n"];
    let ends = Ends {
        shallow: vec![id(ONE)],
        unshallow: vec![id(TWO)],
    };
    let expected = Answer::Pack { ends, first: None };
    assert_eq!(answered(&packets(&lines), Version::V2), Ok(expected));
    for version in [Version::V0, Version::V2] {
        for (words, which) in [
            (
                format!("ERR upload-pack: not our ref {ONE}\n"),
                Some(id(ONE)),
            ),
            (format!("ERR want {ONE} not valid"), Some(id(ONE))),
            ("ERR not our ref what?".to_owned(), None),
        ] {
            let answer = answered(&packets(&[&words]), version);
            assert_eq!(answer, Ok(Answer::Refused(which)), "{words}");
        }
    }
    let ack = format!("ACK {ONE}\n");
    let answer = answered(&packets(&[&ack, "NAK\n", "\u{1}PACK"]), Version::V0);
    let first = Some("\u{1}PACK".into());
    let ends = Ends::default();
    assert_eq!(answer, Ok(Answer::Pack { ends, first }));
}

#[test]
fn requests_are_as_git_reads_them() {
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(
        text(request::ls_refs(&v2())),
        "0014command=ls-refs\n0016object-format=sha100010009peel\n\
         001bref-prefix refs/heads/\n001aref-prefix refs/tags/\n001bref-prefix refs/nostr/\n0000"
    );
    let request = PackRequest {
        wants: vec![id(ONE)],
        haves: vec![id(TWO)],
        slice: Some(SliceRequest {
            depth: 5,
            shallow: vec![id(TWO)],
        }),
    };
    let asked = text(request.encode(&v2()));
    let end =
        format!("0032want {ONE}\n0035shallow {TWO}\n000ddeepen 5\n0032have {TWO}\n0009done\n0000");
    assert!(asked.ends_with(&end), "{asked}");
    let v0 = Server {
        version: Version::V0,
        features: vec!["side-band-64k", "ofs-delta"],
        object_format: false,
        ..v2()
    };
    let request = PackRequest {
        slice: None,
        ..request
    };
    assert_eq!(
        text(request.encode(&v0)),
        format!("004awant {ONE} side-band-64k ofs-delta\n00000032have {TWO}\n0009done\n")
    );
}

proptest! {
    #[test]
    fn no_bytes_do_harm(junk in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = advert(&junk);
        let _ = refs(&junk);
        let _ = answered(&junk, Version::V0);
        let _ = answered(&junk, Version::V2);
    }

    #[test]
    fn no_lines_do_harm(lines in proptest::collection::vec(
        prop_oneof!["[ -~]{0,60}", "0000", "0001", "version [012]", "(un)?shallow 1{40}",
            "ERR .{0,50}", "packfile", "fetch=.{0,20}", "1{40} refs/.{0,20}"], 0..20)) {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let body = packets(&lines);
        let _ = advert(&body);
        let _ = refs(&body);
        let _ = answered(&body, Version::V0);
        let _ = answered(&body, Version::V2);
    }

    #[test]
    fn a_pack_comes_out_of_its_band_as_it_went_in(
        data in proptest::collection::vec(any::<u8>(), 0..150_000), cut in 0_usize..150_000,
    ) {
        let mut body = BytesMut::new();
        pktline::put_band(&mut body, pktline::Band::Progress, b"words");
        pktline::put_band(&mut body, pktline::Band::Data, &data);
        pktline::put_flush(&mut body);
        let read = |body: &[u8]| now(async {
            let mut band = Packets::new(body).into_side_band(Bytes::new());
            let mut out = Vec::new();
            band.read_to_end(&mut out).await.map(|_| out)
        });
        prop_assert_eq!(read(&body).unwrap(), data);
        let cut = cut.min(body.len() - 1);
        prop_assert!(read(&body[..cut]).is_err());
    }
}
