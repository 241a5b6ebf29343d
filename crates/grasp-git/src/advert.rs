//! `info/refs`: what is here and what we can do, told without a git process. What is promised for
//! fetching is what `git upload-pack --stateless-rpc` keeps.

use std::fmt::Write as _;

use bytes::{Bytes, BytesMut};

use crate::pktline;
use crate::refs::RefSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    UploadPack,
    ReceivePack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    #[default]
    V0,
    V1,
    V2,
}

const AGENT: &str = concat!("agent=ngit-grasp/", env!("CARGO_PKG_VERSION"));
const UPLOAD: &str = "multi_ack thin-pack side-band side-band-64k ofs-delta shallow deepen-since \
    deepen-not deepen-relative no-progress include-tag multi_ack_detailed allow-tip-sha1-in-want \
    allow-reachable-sha1-in-want no-done";
const RECEIVE: &str = "report-status delete-refs side-band-64k quiet atomic ofs-delta";
const NOTHING: &str = "0000000000000000000000000000000000000000 capabilities^{}";

impl Service {
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "git-upload-pack" => Some(Self::UploadPack),
            "git-receive-pack" => Some(Self::ReceivePack),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
        }
    }
}

impl Protocol {
    /// Reads a `Git-Protocol` header: the highest version named that is known, as git does.
    pub fn from_header(value: &str) -> Self {
        let versions = value.split(':').filter_map(|part| match part.trim() {
            "version=1" => Some(Self::V1),
            "version=2" => Some(Self::V2),
            _ => None,
        });
        versions.fold(Self::V0, |best, one| match (best, one) {
            (Self::V2, _) | (_, Self::V2) => Self::V2,
            _ => Self::V1,
        })
    }
}

/// The body of `info/refs?service=...`. Pushing knows no version 2 and falls back.
pub fn advertise(service: Service, protocol: Protocol, refs: &RefSet) -> Bytes {
    let mut out = BytesMut::with_capacity(256 + refs.refs.len() * 80);
    if service == Service::UploadPack && protocol == Protocol::V2 {
        put_v2(&mut out);
        return out.freeze();
    }
    pktline::put_text(&mut out, &format!("# service={}\n", service.name()));
    pktline::put_flush(&mut out);
    if protocol == Protocol::V1 {
        pktline::put_text(&mut out, "version 1\n");
    }
    match service {
        Service::UploadPack => put_upload(&mut out, refs),
        Service::ReceivePack => put_receive(&mut out, refs),
    }
    pktline::put_flush(&mut out);
    out.freeze()
}

fn put_v2(out: &mut BytesMut) {
    for line in [
        "version 2",
        AGENT,
        "ls-refs=unborn",
        "fetch=shallow wait-for-done filter",
        "server-option",
        "object-format=sha1",
    ] {
        pktline::put_text(out, &format!("{line}\n"));
    }
    pktline::put_flush(out);
}

fn put_upload(out: &mut BytesMut, refs: &RefSet) {
    let head = refs.head.as_ref().zip(refs.head_id());
    let symref = head.map_or(String::new(), |(name, _)| format!(" symref=HEAD:{name}"));
    let capabilities = format!("{UPLOAD}{symref} filter object-format=sha1 {AGENT}");
    let mut lines = Lines::new(out, &capabilities);
    if let Some((_, id)) = head {
        lines.put(format_args!("{id} HEAD"));
    }
    for (name, one) in &refs.refs {
        lines.put(format_args!("{} {name}", one.id));
        if let Some(peeled) = one.peeled {
            lines.put(format_args!("{peeled} {name}^{{}}"));
        }
    }
    lines.end();
}

fn put_receive(out: &mut BytesMut, refs: &RefSet) {
    let capabilities = format!("{RECEIVE} object-format=sha1 {AGENT}");
    let mut lines = Lines::new(out, &capabilities);
    for (name, one) in &refs.refs {
        lines.put(format_args!("{} {name}", one.id));
    }
    lines.end();
}

/// The first line carries the capabilities, whichever it is.
struct Lines<'a> {
    out: &'a mut BytesMut,
    capabilities: Option<&'a str>,
    line: String,
}

impl<'a> Lines<'a> {
    fn new(out: &'a mut BytesMut, capabilities: &'a str) -> Self {
        Self {
            out,
            capabilities: Some(capabilities),
            line: String::new(),
        }
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.line.clear();
        // Writing to a String does not fail.
        let _ = self.line.write_fmt(text);
        if let Some(capabilities) = self.capabilities.take() {
            self.line.push('\0');
            self.line.push_str(capabilities);
        }
        self.line.push('\n');
        pktline::put_text(self.out, &self.line);
    }

    fn end(mut self) {
        if self.capabilities.is_some() {
            self.put(format_args!("{NOTHING}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_is_the_highest_that_is_known() {
        for (header, expected) in [
            ("version=2", Protocol::V2),
            ("version=1", Protocol::V1),
            ("version=1:version=2", Protocol::V2),
            ("version=2:version=1:x=y", Protocol::V2),
            ("version=3", Protocol::V0),
            ("version=2;rm -rf", Protocol::V0),
            ("", Protocol::V0),
        ] {
            assert_eq!(Protocol::from_header(header), expected, "{header}");
        }
    }
}
