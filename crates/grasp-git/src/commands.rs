//! The head of a push: which refs shall go from where to where. Read here and by nobody else,
//! from chunks of any size; the pack that follows is not touched.

use std::collections::HashSet;

use bytes::{Bytes, BytesMut};
use grasp_core::git::{ObjectId, RefName};

use crate::pktline::{self, Packet, PacketError};
use crate::text::is_plain;

/// One line of a push. `None` is the null id: nothing before, or nothing after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub old: Option<ObjectId>,
    pub new: Option<ObjectId>,
    /// As it was sent, for the answer.
    pub name: String,
    /// None if it is not a name that can be hosted.
    pub target: Option<RefName>,
}

impl Command {
    /// Asks for nothing: from nothing to nothing, or from a value to itself.
    pub fn is_no_op(&self) -> bool {
        self.old == self.new
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub report_status: bool,
    pub report_status_v2: bool,
    pub side_band_64k: bool,
    pub atomic: bool,
    pub quiet: bool,
    pub delete_refs: bool,
    pub agent: Option<String>,
}

/// Everything before the pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushHead {
    /// Empty for a bare `0000`, with which git asks whether it may push at all: answered with an
    /// empty 200 if nothing follows, refused otherwise.
    pub commands: Vec<Command>,
    pub capabilities: Capabilities,
    /// Where the sender's own history is cut off. Whether that matters, the check of the objects
    /// shows: they must be complete here.
    pub shallow: Vec<ObjectId>,
    /// What was read beyond the head: the pack's beginning.
    pub rest: Bytes,
}

#[derive(Debug, Clone, Copy)]
pub struct CommandLimits {
    pub max_commands: usize,
    pub max_bytes: usize,
}

impl Default for CommandLimits {
    fn default() -> Self {
        Self {
            // As many as a state has refs: all of them are judged at once.
            max_commands: 10_000,
            // 10,000 commands of 400 bytes.
            max_bytes: 4 * 1024 * 1024,
        }
    }
}

/// Why a head is not read any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    Packet(#[from] PacketError),
    #[error("a line is not a command: {0}")]
    Malformed(String),
    #[error("{0} is named twice")]
    Duplicate(String),
    #[error("more than {0} commands: push fewer refs at once")]
    TooManyCommands(usize),
    #[error("more than {0} bytes of commands")]
    TooLarge(usize),
    #[error("signed pushes are not supported")]
    PushCertificate,
    #[error("push options are not supported")]
    PushOptions,
    #[error("object format {0} is not supported, only sha1")]
    ObjectFormat(String),
    #[error("the push ends within its commands")]
    Truncated,
}

/// Reads a head chunk by chunk.
#[derive(Debug)]
pub struct CommandReader {
    limits: CommandLimits,
    unread: BytesMut,
    read: usize,
    names: HashSet<String>,
    commands: Vec<Command>,
    capabilities: Capabilities,
    shallow: Vec<ObjectId>,
}

const MAX_SHOWN: usize = 100;
/// As long as the longest that can be hosted: beyond it a name cannot be right, and is not worth
/// an answer that repeats it.
const MAX_NAME: usize = 1_024;

impl CommandReader {
    pub fn new(limits: CommandLimits) -> Self {
        Self {
            limits,
            unread: BytesMut::new(),
            read: 0,
            names: HashSet::new(),
            commands: Vec::new(),
            capabilities: Capabilities::default(),
            shallow: Vec::new(),
        }
    }

    /// Takes the next chunk. The head once it is complete; nothing may be given after that.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<Option<PushHead>, Refusal> {
        self.unread.extend_from_slice(chunk);
        loop {
            let (line, taken) = match pktline::decode(&self.unread)? {
                None => return self.check_size(self.unread.len()).map(|()| None),
                Some((Packet::Flush, taken)) => {
                    let _ = self.unread.split_to(taken);
                    return Ok(Some(self.complete()));
                }
                Some((Packet::Data(_), taken)) => (self.unread.split_to(taken).freeze(), taken),
                Some(_) => return Err(malformed(b"a delimiter")),
            };
            self.read += taken;
            self.check_size(0)?;
            self.line(line.get(4..).unwrap_or_default())?;
        }
    }

    /// The sender is at its end, and the head is not complete.
    pub fn end(self) -> Refusal {
        Refusal::Truncated
    }

    fn complete(&mut self) -> PushHead {
        PushHead {
            commands: std::mem::take(&mut self.commands),
            capabilities: std::mem::take(&mut self.capabilities),
            shallow: std::mem::take(&mut self.shallow),
            rest: self.unread.split().freeze(),
        }
    }

    fn check_size(&self, more: usize) -> Result<(), Refusal> {
        match self.read + more > self.limits.max_bytes {
            true => Err(Refusal::TooLarge(self.limits.max_bytes)),
            false => Ok(()),
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if line.starts_with(b"push-cert") {
            return Err(Refusal::PushCertificate);
        }
        if let Some(id) = line.strip_prefix(b"shallow ") {
            let id = text(id).and_then(ObjectId::parse);
            self.shallow.push(id.ok_or_else(|| malformed(line))?);
            return self.check_count();
        }
        let mut parts = line.splitn(2, |byte| *byte == 0);
        let command = parts.next().unwrap_or_default();
        if let Some(capabilities) = parts.next() {
            if !self.commands.is_empty() {
                return Err(malformed(line));
            }
            self.capabilities = Capabilities::parse(capabilities)?;
        }
        let command = Command::parse(command).ok_or_else(|| malformed(line))?;
        if !self.names.insert(command.name.clone()) {
            return Err(Refusal::Duplicate(command.name));
        }
        self.commands.push(command);
        self.check_count()
    }

    fn check_count(&self) -> Result<(), Refusal> {
        let max = self.limits.max_commands;
        match self.commands.len() > max || self.shallow.len() > max {
            true => Err(Refusal::TooManyCommands(max)),
            false => Ok(()),
        }
    }
}

impl Command {
    /// `old new name`, one space each; a name may hold anything but NUL and control characters,
    /// and is not long, so that it can be repeated in an answer.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = text(line)?;
        let (old, rest) = line.split_once(' ')?;
        let (new, name) = rest.split_once(' ')?;
        if name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control) {
            return None;
        }
        Some(Self {
            old: id_or_null(old)?,
            new: id_or_null(new)?,
            name: name.to_owned(),
            target: RefName::parse(name),
        })
    }
}

impl Capabilities {
    fn parse(list: &[u8]) -> Result<Self, Refusal> {
        let list = text(list).ok_or_else(|| malformed(list))?;
        let mut found = Self::default();
        for word in list.split(' ').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "report-status" => found.report_status = true,
                "report-status-v2" => found.report_status_v2 = true,
                "side-band-64k" => found.side_band_64k = true,
                "atomic" => found.atomic = true,
                "quiet" => found.quiet = true,
                "delete-refs" => found.delete_refs = true,
                "agent" => found.agent = Some(shown(value.as_bytes())),
                "push-options" => return Err(Refusal::PushOptions),
                "push-cert" => return Err(Refusal::PushCertificate),
                "object-format" if value != "sha1" => {
                    return Err(Refusal::ObjectFormat(shown(value.as_bytes())));
                }
                // Not asked for by us, and without effect.
                _ => {}
            }
        }
        Ok(found)
    }
}

fn id_or_null(text: &str) -> Option<Option<ObjectId>> {
    let id = ObjectId::from_hex(text).ok()?;
    Some((!id.is_null()).then_some(id))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn malformed(line: &[u8]) -> Refusal {
    Refusal::Malformed(shown(line))
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let visible = text.chars().filter(|c| is_plain(*c));
    visible.take(MAX_SHOWN).collect()
}
