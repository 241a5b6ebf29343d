//! What a server says of itself, and which of the wanted objects its refs name.

use std::collections::BTreeSet;

use grasp_core::git::ObjectId;
use grasp_core::hunt::io::FetchEnd;
use tokio::io::AsyncRead;

use super::packets::{Line, Packets};
use super::transport::Version;

/// How much a list of refs may be.
#[derive(Debug, Clone, Copy)]
pub struct AdvertLimits {
    pub max_bytes: usize,
    pub max_refs: usize,
}

impl Default for AdvertLimits {
    fn default() -> Self {
        Self {
            // 200,000 refs of 160 bytes. Nothing of it is kept but the wanted ids.
            max_bytes: 32 * 1024 * 1024,
            max_refs: 200_000,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    pub version: Version,
    /// It gives also what no ref names.
    pub any_id: bool,
    /// It gives histories in slices.
    pub slices: bool,
    /// It wants to hear which hash is meant.
    pub object_format: bool,
    /// What is worth saying in a request of version 0.
    pub features: Vec<&'static str>,
}

/// Which of the wanted objects are there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Named {
    pub tips: BTreeSet<ObjectId>,
    /// What annotated tags stand for.
    pub peeled: BTreeSet<ObjectId>,
}

/// The answer to the first question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Advert {
    /// Its refs are asked for apart.
    V2(Server),
    V0(Server, Named),
}

const FEATURES: [&str; 4] = ["side-band-64k", "thin-pack", "ofs-delta", "no-progress"];

/// Counts what was read of a list.
struct Count {
    limits: AdvertLimits,
    bytes: usize,
    refs: usize,
}

impl Count {
    fn new(limits: AdvertLimits) -> Self {
        Self {
            limits,
            bytes: 0,
            refs: 0,
        }
    }

    fn line(&mut self, line: &Line) -> Result<(), FetchEnd> {
        self.bytes += line.text().len();
        self.refs += 1;
        match self.bytes > self.limits.max_bytes || self.refs > self.limits.max_refs {
            true => Err(FetchEnd::Cut { kept: false }),
            false => Ok(()),
        }
    }
}

/// Reads the answer to `info/refs`.
pub(super) async fn read(
    packets: &mut Packets<impl AsyncRead + Unpin>,
    wanted: &BTreeSet<ObjectId>,
    limits: AdvertLimits,
) -> Result<Advert, FetchEnd> {
    let mut line = packets.next().await?;
    if line.text() == b"# service=git-upload-pack" {
        line = packets.next().await?;
        if line == Line::Flush {
            line = packets.next().await?;
        }
    }
    refuse(&line)?;
    match line.text() {
        b"version 2" => read_v2(packets, limits).await.map(Advert::V2),
        b"version 1" => {
            let line = packets.next().await?;
            read_v0(packets, line, wanted, limits).await
        }
        _ => read_v0(packets, line, wanted, limits).await,
    }
}

async fn read_v2(
    packets: &mut Packets<impl AsyncRead + Unpin>,
    limits: AdvertLimits,
) -> Result<Server, FetchEnd> {
    let mut count = Count::new(limits);
    let (mut lists, mut fetches) = (false, false);
    let mut server = Server {
        version: Version::V2,
        any_id: true,
        slices: false,
        object_format: false,
        features: Vec::new(),
    };
    loop {
        let line = packets.next().await?;
        if line == Line::Flush {
            break;
        }
        count.line(&line)?;
        let (name, value) = pair(line.text());
        match name {
            b"ls-refs" => lists = true,
            b"fetch" => {
                fetches = true;
                server.slices = words(value).any(|word| word == b"shallow");
            }
            b"object-format" => server.object_format = is_sha1(value)?,
            _ => {}
        }
    }
    match lists && fetches {
        true => Ok(server),
        false => Err(FetchEnd::Unreachable),
    }
}

async fn read_v0(
    packets: &mut Packets<impl AsyncRead + Unpin>,
    first: Line,
    wanted: &BTreeSet<ObjectId>,
    limits: AdvertLimits,
) -> Result<Advert, FetchEnd> {
    let mut count = Count::new(limits);
    let mut named = Named::default();
    let mut parts = first.text().splitn(2, |byte| *byte == 0);
    named.see(parts.next().unwrap_or_default(), wanted);
    let server = server_v0(parts.next().unwrap_or_default())?;
    let mut line = first.clone();
    while line != Line::Flush {
        count.line(&line)?;
        line = packets.next().await?;
        refuse(&line)?;
        named.see(line.text(), wanted);
    }
    Ok(Advert::V0(server, named))
}

fn server_v0(capabilities: &[u8]) -> Result<Server, FetchEnd> {
    let mut server = Server {
        version: Version::V0,
        any_id: false,
        slices: false,
        object_format: false,
        features: Vec::new(),
    };
    for word in words(capabilities) {
        let (name, value) = pair(word);
        match name {
            b"allow-tip-sha1-in-want" | b"allow-reachable-sha1-in-want" => server.any_id = true,
            b"object-format" => server.object_format = is_sha1(value)?,
            _ => {
                let known = FEATURES.iter().find(|known| known.as_bytes() == name);
                server.features.extend(known);
            }
        }
    }
    Ok(server)
}

/// Reads the answer to `ls-refs`.
pub(super) async fn read_refs(
    packets: &mut Packets<impl AsyncRead + Unpin>,
    wanted: &BTreeSet<ObjectId>,
    limits: AdvertLimits,
) -> Result<Named, FetchEnd> {
    let mut count = Count::new(limits);
    let mut named = Named::default();
    loop {
        let line = packets.next().await?;
        if line == Line::Flush {
            return Ok(named);
        }
        refuse(&line)?;
        count.line(&line)?;
        let mut words = words(line.text());
        let tip = words.next().and_then(id);
        named.tips.extend(tip.filter(|id| wanted.contains(id)));
        let attributes = words.skip(1);
        let peeled = attributes.filter_map(|word| id(word.strip_prefix(b"peeled:")?));
        named.peeled.extend(peeled.filter(|id| wanted.contains(id)));
    }
}

impl Named {
    /// `<id> <name>`, with `^{}` at the end of the name for what a tag stands for.
    fn see(&mut self, line: &[u8], wanted: &BTreeSet<ObjectId>) {
        let mut words = words(line);
        let (first, name) = (words.next(), words.next().unwrap_or_default());
        let Some(id) = first.and_then(id).filter(|id| wanted.contains(id)) else {
            return;
        };
        match name.ends_with(b"^{}") {
            true => self.peeled.insert(id),
            false => self.tips.insert(id),
        };
    }
}

/// A server's own words instead of an answer.
fn refuse(line: &Line) -> Result<(), FetchEnd> {
    match line.text().starts_with(b"ERR ") {
        true => Err(FetchEnd::Failed),
        false => Ok(()),
    }
}

/// A repository of other ids has none of ours.
fn is_sha1(value: &[u8]) -> Result<bool, FetchEnd> {
    match value == b"sha1" {
        true => Ok(true),
        false => Err(FetchEnd::Absent),
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty())
}

fn pair(word: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = word.splitn(2, |byte| *byte == b'=');
    let name = parts.next().unwrap_or_default();
    (name, parts.next().unwrap_or_default())
}

fn id(word: &[u8]) -> Option<ObjectId> {
    std::str::from_utf8(word).ok().and_then(ObjectId::parse)
}
