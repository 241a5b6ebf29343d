//! Protocol version 2's `ls-refs`, the question that every fetch begins with, answered without a
//! git process.

use bytes::{Bytes, BytesMut};

use crate::pktline::{self, Packet, PacketError};
use crate::refs::RefSet;
use crate::text::is_plain;

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LsRefs {
    peel: bool,
    symrefs: bool,
    unborn: bool,
    /// Empty: all refs.
    prefixes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LsRefsError {
    #[error("{0}")]
    Packet(#[from] PacketError),
    #[error("the request is not complete")]
    Truncated,
    #[error("an unknown line: {0}")]
    Unknown(String),
    #[error("object format {0} is not supported, only sha1")]
    ObjectFormat(String),
}

/// Beyond this many the client gets all refs and picks for itself, as git does it too.
const MAX_PREFIXES: usize = 1_024;
const COMMAND: &str = "command=ls-refs";

impl LsRefs {
    /// Whether a request begins like this one: 20 bytes are enough to tell. The others are for
    /// the git process.
    pub fn is_asked(beginning: &[u8]) -> bool {
        let Ok(Some((Packet::Data(line), _))) = pktline::decode(beginning) else {
            return false;
        };
        line.strip_suffix(b"\n").unwrap_or(line) == COMMAND.as_bytes()
    }

    /// Reads a whole request. None if it asks for something else.
    pub fn parse(body: &[u8]) -> Result<Option<Self>, LsRefsError> {
        if !Self::is_asked(body) {
            return Ok(None);
        }
        let mut asked = Self::default();
        let mut rest = body;
        let mut arguments = false;
        loop {
            let (packet, taken) = pktline::decode(rest)?.ok_or(LsRefsError::Truncated)?;
            rest = rest.get(taken..).unwrap_or_default();
            match packet {
                Packet::Data(line) if arguments => asked.argument(&text(line))?,
                Packet::Data(line) => capability(&text(line))?,
                Packet::Delimiter if !arguments => arguments = true,
                Packet::Flush => break,
                other => return Err(LsRefsError::Unknown(format!("{other:?}"))),
            }
        }
        if asked.prefixes.len() > MAX_PREFIXES {
            asked.prefixes.clear();
        }
        Ok(Some(asked))
    }

    /// The body of the response.
    pub fn answer(&self, refs: &RefSet) -> Bytes {
        let mut out = BytesMut::new();
        if self.wants("HEAD") {
            self.put_head(&mut out, refs);
        }
        for (name, one) in &refs.refs {
            if !self.wants(name.as_str()) {
                continue;
            }
            let mut line = format!("{} {name}", one.id);
            if let Some(peeled) = one.peeled.filter(|_| self.peel) {
                line.push_str(&format!(" peeled:{peeled}"));
            }
            line.push('\n');
            pktline::put_text(&mut out, &line);
        }
        pktline::put_flush(&mut out);
        out.freeze()
    }

    fn put_head(&self, out: &mut BytesMut, refs: &RefSet) {
        let Some(branch) = &refs.head else {
            return;
        };
        let symref = match self.symrefs {
            true => format!(" symref-target:{branch}"),
            false => String::new(),
        };
        match refs.head_id() {
            Some(id) => pktline::put_text(out, &format!("{id} HEAD{symref}\n")),
            // Git tells of a branch to come only to those who ask where HEAD points.
            None if self.unborn && self.symrefs => {
                pktline::put_text(out, &format!("unborn HEAD{symref}\n"))
            }
            None => {}
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }

    fn argument(&mut self, line: &str) -> Result<(), LsRefsError> {
        match line {
            "peel" => self.peel = true,
            "symrefs" => self.symrefs = true,
            "unborn" => self.unborn = true,
            _ => match line.strip_prefix("ref-prefix ") {
                // One more than is used tells that there were too many.
                Some(_) if self.prefixes.len() > MAX_PREFIXES => {}
                Some(prefix) => self.prefixes.push(prefix.to_owned()),
                None => return Err(unknown(line)),
            },
        }
        Ok(())
    }
}

fn capability(line: &str) -> Result<(), LsRefsError> {
    let (name, value) = line.split_once('=').unwrap_or((line, ""));
    match name {
        "command" if line == COMMAND => Ok(()),
        "agent" | "server-option" | "session-id" => Ok(()),
        "object-format" if value == "sha1" => Ok(()),
        "object-format" => Err(LsRefsError::ObjectFormat(value.chars().take(20).collect())),
        _ => Err(unknown(line)),
    }
}

/// A name that is not UTF-8 matches nothing here.
fn text(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    String::from_utf8_lossy(line).into_owned()
}

fn unknown(line: &str) -> LsRefsError {
    let visible = line.chars().filter(|c| is_plain(*c));
    LsRefsError::Unknown(visible.take(100).collect())
}
