//! What comes before a pack.

use bytes::Bytes;
use grasp_core::git::ObjectId;
use grasp_core::hunt::io::FetchEnd;
use tokio::io::AsyncRead;

use super::packets::{Line, Packets};
use super::transport::Version;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// A pack follows, of which this is the first packet if it was read already.
    Pack { ends: Ends, first: Option<Bytes> },
    /// It does not have something, or does not give it; mostly it says which.
    Refused(Option<ObjectId>),
}

/// Where a history that is not whole ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub shallow: Vec<ObjectId>,
    /// Those that were ends, and are no longer.
    pub unshallow: Vec<ObjectId>,
}

/// Commits at which a history may end.
const MAX_ENDS: usize = 100_000;

/// Reads up to the pack.
pub(super) async fn read(
    packets: &mut Packets<impl AsyncRead + Unpin>,
    version: Version,
) -> Result<Answer, FetchEnd> {
    match version {
        Version::V2 => read_v2(packets).await,
        Version::V0 => read_v0(packets).await,
    }
}

async fn read_v2(packets: &mut Packets<impl AsyncRead + Unpin>) -> Result<Answer, FetchEnd> {
    let mut ends = Ends::default();
    loop {
        let line = packets.next().await?;
        if let Some(refused) = refusal(&line) {
            return Ok(Answer::Refused(refused));
        }
        match line.text() {
            b"packfile" => return Ok(Answer::Pack { ends, first: None }),
            b"shallow-info" => ends.read(packets).await?,
            b"acknowledgments" | b"wanted-refs" => skip(packets).await?,
            _ => return Err(FetchEnd::Spoiled),
        }
    }
}

/// `ACK` and `NAK` in whatever number, then the side band.
async fn read_v0(packets: &mut Packets<impl AsyncRead + Unpin>) -> Result<Answer, FetchEnd> {
    let mut ends = Ends::default();
    loop {
        let line = packets.next().await?;
        if let Some(refused) = refusal(&line) {
            return Ok(Answer::Refused(refused));
        }
        let text = line.text();
        if text.starts_with(b"ACK ") || text == b"NAK" || ends.line(text)? {
            continue;
        }
        return match line {
            Line::Data(first) => {
                let first = Some(first);
                Ok(Answer::Pack { ends, first })
            }
            _ => Err(FetchEnd::Spoiled),
        };
    }
}

impl Ends {
    async fn read(
        &mut self,
        packets: &mut Packets<impl AsyncRead + Unpin>,
    ) -> Result<(), FetchEnd> {
        loop {
            let line = packets.next().await?;
            if line == Line::Delimiter {
                return Ok(());
            }
            if !self.line(line.text())? {
                return Err(FetchEnd::Spoiled);
            }
        }
    }

    /// False if it is another line.
    fn line(&mut self, text: &[u8]) -> Result<bool, FetchEnd> {
        let of = |word: &str| {
            let id = std::str::from_utf8(text).ok()?.strip_prefix(word)?;
            ObjectId::parse(id)
        };
        let ends = match (of("shallow "), of("unshallow ")) {
            (Some(id), _) => {
                self.shallow.push(id);
                &self.shallow
            }
            (_, Some(id)) => {
                self.unshallow.push(id);
                &self.unshallow
            }
            (None, None) => return Ok(false),
        };
        match ends.len() > MAX_ENDS {
            true => Err(FetchEnd::Cut { kept: false }),
            false => Ok(true),
        }
    }
}

async fn skip(packets: &mut Packets<impl AsyncRead + Unpin>) -> Result<(), FetchEnd> {
    loop {
        match packets.next().await? {
            Line::Delimiter => return Ok(()),
            Line::Flush => return Err(FetchEnd::Spoiled),
            Line::Data(_) => {}
        }
    }
}

/// A server says in a line of its own why there is no pack. Git's words are `upload-pack: not our
/// ref <id>`; others have others.
fn refusal(line: &Line) -> Option<Option<ObjectId>> {
    let words = line.text().strip_prefix(b"ERR ")?;
    let words = String::from_utf8_lossy(words);
    let mut words = words.split(|c: char| !c.is_ascii_alphanumeric());
    Some(words.find_map(ObjectId::parse))
}
