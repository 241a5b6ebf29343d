//! What is asked of a server, as it travels.

use bytes::{Bytes, BytesMut};
use grasp_core::git::ObjectId;

use super::advert::Server;
use super::transport::Version;
use crate::pktline::{put, put_flush, put_text};

/// Objects to send, and what they can lean on.
#[derive(Debug, Clone, Default)]
pub(super) struct PackRequest {
    pub wants: Vec<ObjectId>,
    pub haves: Vec<ObjectId>,
    pub slice: Option<SliceRequest>,
}

/// No more than so many commits deep.
#[derive(Debug, Clone, Default)]
pub(super) struct SliceRequest {
    pub depth: u32,
    /// Where what came so far ends.
    pub shallow: Vec<ObjectId>,
}

/// Where a state's and a pull request's objects are named. Large hosts have ten times as many
/// refs elsewhere.
const PREFIXES: [&str; 3] = ["refs/heads/", "refs/tags/", "refs/nostr/"];

/// The refs, with what their tags stand for.
pub(super) fn ls_refs(server: &Server) -> Bytes {
    let mut out = BytesMut::new();
    begin(&mut out, "command=ls-refs\n", server);
    put_text(&mut out, "peel\n");
    for prefix in PREFIXES {
        put_text(&mut out, &format!("ref-prefix {prefix}\n"));
    }
    put_flush(&mut out);
    out.freeze()
}

impl PackRequest {
    pub fn encode(&self, server: &Server) -> Bytes {
        let mut out = BytesMut::new();
        match server.version {
            Version::V2 => self.put_v2(&mut out, server),
            Version::V0 => self.put_v0(&mut out, server),
        }
        out.freeze()
    }

    fn put_v2(&self, out: &mut BytesMut, server: &Server) {
        begin(out, "command=fetch\n", server);
        for argument in ["thin-pack\n", "no-progress\n", "ofs-delta\n"] {
            put_text(out, argument);
        }
        for want in &self.wants {
            put_text(out, &format!("want {want}\n"));
        }
        if let Some(slice) = &self.slice {
            for id in &slice.shallow {
                put_text(out, &format!("shallow {id}\n"));
            }
            put_text(out, &format!("deepen {}\n", slice.depth));
        }
        self.put_haves(out);
        put_flush(out);
    }

    /// The first line says what we understand.
    fn put_v0(&self, out: &mut BytesMut, server: &Server) {
        let mut features = server.features.join(" ");
        if server.object_format {
            features.push_str(" object-format=sha1");
        }
        for (n, want) in self.wants.iter().enumerate() {
            match n {
                0 => put_text(out, &format!("want {want} {features}\n")),
                _ => put_text(out, &format!("want {want}\n")),
            }
        }
        put_flush(out);
        self.put_haves(out);
    }

    fn put_haves(&self, out: &mut BytesMut) {
        for have in &self.haves {
            put_text(out, &format!("have {have}\n"));
        }
        put_text(out, "done\n");
    }
}

fn begin(out: &mut BytesMut, command: &str, server: &Server) {
    put_text(out, command);
    if server.object_format {
        put(out, b"object-format=sha1");
    }
    out.extend_from_slice(b"0001");
}
