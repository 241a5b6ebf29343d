//! A stream of pkt-lines, and the pack inside of one.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use grasp_core::hunt::io::FetchEnd;
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

use super::meter::Stop;
use crate::pktline::{self, Packet, PacketError};

/// More than one packet.
const BUFFER: usize = 128 * 1024;
/// The digits in front of each.
const LENGTH: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    Flush,
    Delimiter,
    Data(Bytes),
}

impl Line {
    /// Without its line's end. Packets that are no line have no text.
    pub fn text(&self) -> &[u8] {
        match self {
            Line::Data(data) => data.strip_suffix(b"\n").unwrap_or(data),
            _ => b"",
        }
    }
}

/// Line after line of a body.
pub(super) struct Packets<R> {
    source: R,
    unread: BytesMut,
}

impl<R: AsyncRead + Unpin> Packets<R> {
    pub fn new(source: R) -> Self {
        Self {
            source,
            unread: BytesMut::new(),
        }
    }

    /// A body that ends here, or in the middle of a packet, is not whole.
    pub async fn next(&mut self) -> Result<Line, FetchEnd> {
        loop {
            if let Some(line) = split(&mut self.unread).map_err(|_| FetchEnd::Spoiled)? {
                return Ok(line);
            }
            self.unread.reserve(BUFFER);
            match self.source.read_buf(&mut self.unread).await {
                Ok(0) => return Err(FetchEnd::Spoiled),
                Ok(_) => {}
                Err(error) => return Err(Stop::of(&error).unwrap_or(FetchEnd::Spoiled)),
            }
        }
    }

    /// Reads to the end of the body, so that the connection can be used again. More than a little
    /// is not worth it.
    pub async fn finish(mut self) {
        self.unread.clear();
        while self.unread.len() < BUFFER {
            self.unread.reserve(BUFFER);
            match self.source.read_buf(&mut self.unread).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Waits for the first bytes of a pack, which begin a side band; `first` is its first packet if
    /// it was read already. Meanwhile a server says that it is alive, or what it does.
    pub async fn first_of_pack(&mut self, mut first: Option<Bytes>) -> Result<Bytes, FetchEnd> {
        loop {
            let packet = match first.take() {
                Some(packet) => packet,
                None => match self.next().await? {
                    Line::Data(packet) => packet,
                    Line::Flush | Line::Delimiter => return Err(FetchEnd::Spoiled),
                },
            };
            match banded(packet) {
                Ok(Some(data)) if !data.is_empty() => return Ok(data),
                Ok(_) => {}
                Err(error) => return Err(Stop::of(&error).unwrap_or(FetchEnd::Spoiled)),
            }
        }
    }

    /// What follows are packets of a side band, after some bytes that have been read already.
    pub fn into_side_band(self, data: Bytes) -> SideBand<R> {
        SideBand {
            source: self.source,
            unread: self.unread,
            data,
            ended: false,
        }
    }
}

/// The next packet of a buffer, taken out of it.
fn split(unread: &mut BytesMut) -> Result<Option<Line>, PacketError> {
    let Some((packet, taken)) = pktline::decode(unread)? else {
        return Ok(None);
    };
    let line = match packet {
        Packet::Flush | Packet::ResponseEnd => Line::Flush,
        Packet::Delimiter => Line::Delimiter,
        Packet::Data(_) => {
            let mut whole = unread.split_to(taken).freeze();
            whole.advance(LENGTH);
            return Ok(Some(Line::Data(whole)));
        }
    };
    unread.advance(taken);
    Ok(Some(line))
}

/// What a packet has for the pack.
fn banded(mut packet: Bytes) -> io::Result<Option<Bytes>> {
    match packet.first() {
        Some(1) => {
            packet.advance(1);
            Ok(Some(packet))
        }
        Some(2) => Ok(None),
        Some(3) => Err(Stop::error(FetchEnd::Failed)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The bytes of band 1, up to the flush that ends them.
pub(super) struct SideBand<R> {
    source: R,
    unread: BytesMut,
    /// Of the packet that is being read.
    data: Bytes,
    ended: bool,
}

impl<R: AsyncRead + Unpin> SideBand<R> {
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unread.reserve(BUFFER);
        let reading = pin!(self.source.read_buf(&mut self.unread));
        match ready!(reading.poll(cx))? {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for SideBand<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if !self.data.is_empty() {
                let count = self.data.len().min(buffer.remaining());
                buffer.put_slice(&self.data.split_to(count));
                return Poll::Ready(Ok(()));
            }
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
            match split(&mut self.unread).map_err(invalid)? {
                Some(Line::Data(packet)) => self.data = banded(packet)?.unwrap_or_default(),
                Some(Line::Flush) => self.ended = true,
                Some(Line::Delimiter) => {
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
                None => ready!(self.poll_more(cx))?,
            }
        }
    }
}
