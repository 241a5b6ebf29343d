//! Leaves out websocket messages that are larger than we take, and goes on with the next one. A
//! websocket library can only end the connection there, and one planted event at an honest relay
//! would cut us off from it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes read from the socket at once.
const BUFFER: usize = 8 * 1024;
/// Stands in for a message that was left out: an unsolicited pong asks for nothing and wakes the
/// reader.
const PONG: [u8; 2] = [0x8a, 0x00];
const HEAD_END: &[u8] = b"\r\n\r\n";

const FINAL: u8 = 0x80;
const OPCODE: u8 = 0x0f;
const CONTROL: u8 = 0x08;
const MASKED: u8 = 0x80;

/// Messages that were left out and that nobody has asked about yet.
#[derive(Debug, Clone, Default)]
pub struct Skipped(Arc<AtomicU32>);

impl Skipped {
    /// How many since this was asked last.
    pub fn take(&self) -> u32 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// The reading side of a connection to a server, from the answer to the upgrade on.
pub struct WithoutOversize<S> {
    inner: S,
    frames: Frames,
    input: Box<[u8; BUFFER]>,
    /// What of the input has not been looked at.
    unread: std::ops::Range<usize>,
    /// What passed and was not read yet.
    output: Vec<u8>,
    sent: usize,
}

impl<S> WithoutOversize<S> {
    pub fn new(inner: S, max_message: usize) -> (Self, Skipped) {
        let skipped = Skipped::default();
        let wire = Self {
            inner,
            frames: Frames::new(max_message, skipped.clone()),
            input: Box::new([0; BUFFER]),
            unread: 0..0,
            output: Vec::new(),
            sent: 0,
        };
        (wire, skipped)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WithoutOversize<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let waiting = this.output.get(this.sent..).unwrap_or_default();
            if !waiting.is_empty() {
                let taken = waiting.len().min(buffer.remaining());
                buffer.put_slice(waiting.get(..taken).unwrap_or_default());
                this.sent += taken;
                return Poll::Ready(Ok(()));
            }
            this.output.clear();
            this.sent = 0;
            if this.unread.is_empty() {
                let mut input = ReadBuf::new(&mut this.input[..]);
                ready!(Pin::new(&mut this.inner).poll_read(cx, &mut input))?;
                let read = input.filled().len();
                if read == 0 {
                    return Poll::Ready(Ok(()));
                }
                this.unread = 0..read;
            }
            // All of it at once: whoever reads counts small portions of a head as an attack.
            while !this.unread.is_empty() {
                let input = this.input.get(this.unread.clone()).unwrap_or_default();
                let used = this.frames.take(input, &mut this.output);
                this.unread.start += used;
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WithoutOversize<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

/// What the next bytes are.
#[derive(Debug)]
enum Stage {
    /// The answer to the upgrade; so many bytes of its end have come.
    Head(usize),
    FrameHead,
    Payload {
        left: u64,
        fate: Fate,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Pass,
    /// Part of a message whose size is not known yet.
    Hold,
    Skip,
}

/// Decides frame by frame which bytes pass.
#[derive(Debug)]
struct Frames {
    max_message: u64,
    stage: Stage,
    /// The head of the frame that is being read: 2 to 14 bytes.
    head: Vec<u8>,
    /// The frames of a message that comes in fragments, until it is whole.
    held: Vec<u8>,
    held_payload: u64,
    /// The rest of the message that comes in fragments is left out.
    skipping: bool,
    skipped: Skipped,
}

impl Frames {
    fn new(max_message: usize, skipped: Skipped) -> Self {
        Self {
            max_message: max_message as u64,
            stage: Stage::Head(0),
            head: Vec::new(),
            held: Vec::new(),
            held_payload: 0,
            skipping: false,
            skipped,
        }
    }

    /// Takes some of the input; how much of it. What passes is added to `out`.
    fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> usize {
        match &mut self.stage {
            Stage::Head(matched) => {
                let Some(byte) = input.first() else {
                    return 0;
                };
                out.push(*byte);
                *matched = match HEAD_END.get(*matched) {
                    Some(expected) if expected == byte => *matched + 1,
                    _ => usize::from(HEAD_END.first() == Some(byte)),
                };
                if *matched == HEAD_END.len() {
                    self.stage = Stage::FrameHead;
                }
                1
            }
            Stage::FrameHead => {
                let Some(byte) = input.first() else {
                    return 0;
                };
                self.head.push(*byte);
                if let Some(payload) = payload_len(&self.head) {
                    self.begin(payload, out);
                }
                1
            }
            Stage::Payload { left, fate } => {
                let taken = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
                let bytes = input.get(..taken).unwrap_or_default();
                match fate {
                    Fate::Pass => out.extend_from_slice(bytes),
                    Fate::Hold => self.held.extend_from_slice(bytes),
                    Fate::Skip => {}
                }
                *left -= taken as u64;
                if *left == 0 {
                    self.end_frame(out);
                }
                taken
            }
        }
    }

    /// The head of a frame is complete.
    fn begin(&mut self, payload: u64, out: &mut Vec<u8>) {
        let first = self.head.first().copied().unwrap_or_default();
        let (is_final, opcode) = (first & FINAL != 0, first & OPCODE);
        let fate = if opcode & CONTROL != 0 {
            Fate::Pass
        } else if opcode == 0 && self.skipping {
            Fate::Skip
        } else if is_final && opcode != 0 {
            match payload > self.max_message {
                true => Fate::Skip,
                false => Fate::Pass,
            }
        } else {
            self.held_payload = self.held_payload.saturating_add(payload);
            // Heads are held, too: a message in a million empty fragments is large as well.
            let held = (self.held.len() + self.head.len()) as u64;
            let held = held.saturating_add(payload);
            match self.held_payload > self.max_message || held > self.max_message * 2 {
                true => Fate::Skip,
                false => Fate::Hold,
            }
        };
        match fate {
            Fate::Pass => out.extend_from_slice(&self.head),
            Fate::Hold => self.held.extend_from_slice(&self.head),
            Fate::Skip => {
                // The fragments so far go with the rest.
                self.held = Vec::new();
                self.skipping = !is_final;
            }
        }
        self.stage = Stage::Payload {
            left: payload,
            fate,
        };
        if payload == 0 {
            self.end_frame(out);
        }
    }

    fn end_frame(&mut self, out: &mut Vec<u8>) {
        let first = self.head.first().copied().unwrap_or_default();
        let ends_message = first & FINAL != 0 && first & OPCODE & CONTROL == 0;
        if let Stage::Payload { fate, .. } = self.stage
            && ends_message
        {
            match fate {
                Fate::Pass => {}
                Fate::Hold => out.append(&mut self.held),
                Fate::Skip => {
                    out.extend_from_slice(&PONG);
                    self.skipped.0.fetch_add(1, Ordering::Relaxed);
                }
            }
            self.held = Vec::new();
            self.held_payload = 0;
            self.skipping = false;
        }
        self.head.clear();
        self.stage = Stage::FrameHead;
    }
}

/// The length of the payload, once the head is complete. Servers do not mask; where one does, the
/// websocket library refuses it.
fn payload_len(head: &[u8]) -> Option<u64> {
    let second = *head.get(1)?;
    let mask = if second & MASKED != 0 { 4 } else { 0 };
    let (length, end) = match second & !MASKED {
        126 => (number(head.get(2..4)?), 4),
        127 => (number(head.get(2..10)?), 10),
        short => (u64::from(short), 2),
    };
    (head.len() == end + mask).then_some(length)
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";
    const TEXT: u8 = 1;
    const MORE: u8 = 0;
    const PING: u8 = 9;

    fn frame(opcode: u8, is_final: bool, payload: usize) -> Vec<u8> {
        let mut frame = vec![opcode | if is_final { FINAL } else { 0 }];
        match payload {
            0..126 => frame.push(payload as u8),
            126..65_536 => {
                frame.push(126);
                frame.extend((payload as u16).to_be_bytes());
            }
            _ => {
                frame.push(127);
                frame.extend((payload as u64).to_be_bytes());
            }
        }
        frame.extend(vec![b'x'; payload]);
        frame
    }

    /// What passes of these frames, with the number of messages left out, however they are cut.
    fn passes(frames: &[Vec<u8>]) -> (Vec<u8>, u32) {
        let input = [ANSWER, &frames.concat()].concat();
        let mut results = Vec::new();
        for chunk in [1, 7, 4_096] {
            let skipped = Skipped::default();
            let mut filter = Frames::new(1_000, skipped.clone());
            let mut out = Vec::new();
            for mut part in input.chunks(chunk) {
                while !part.is_empty() {
                    let used = filter.take(part, &mut out);
                    part = &part[used..];
                }
            }
            results.push((out.split_off(ANSWER.len()), skipped.take()));
        }
        results.dedup();
        assert_eq!(results.len(), 1, "it does not matter how bytes come");
        results.remove(0)
    }

    #[test]
    fn what_fits_passes_as_it_is() {
        let frames = [
            frame(TEXT, true, 0),
            frame(TEXT, true, 125),
            frame(PING, true, 3),
            frame(TEXT, true, 1_000),
            frame(TEXT, false, 400),
            frame(PING, true, 0),
            frame(MORE, false, 0),
            frame(MORE, true, 600),
        ];
        let (out, skipped) = passes(&frames);
        assert_eq!((out.len(), skipped), (frames.concat().len(), 0));
    }

    #[test]
    fn a_message_that_is_too_large_is_left_out_and_the_next_one_passes() {
        let next = frame(TEXT, true, 10);
        let (out, skipped) = passes(&[frame(TEXT, true, 1_001), next.clone()]);
        assert_eq!((out, skipped), ([&PONG[..], &next].concat(), 1));
        let (out, skipped) = passes(&[frame(TEXT, true, 70_000), next.clone()]);
        assert_eq!((out, skipped), ([&PONG[..], &next].concat(), 1));
    }

    #[test]
    fn a_message_in_fragments_is_judged_as_a_whole() {
        let (ping, next) = (frame(PING, true, 2), frame(TEXT, true, 10));
        let fragments = [
            frame(TEXT, false, 500),
            frame(MORE, false, 500),
            ping.clone(),
            frame(MORE, false, 1),
            frame(MORE, false, 900),
            frame(MORE, true, 5),
            next.clone(),
        ];
        let (out, skipped) = passes(&fragments);
        assert_eq!((out, skipped), ([&ping[..], &PONG, &next].concat(), 1));
    }

    #[test]
    fn a_message_in_endless_empty_fragments_is_not_kept() {
        let skipped = Skipped::default();
        let mut filter = Frames::new(1_000, skipped.clone());
        let mut out = Vec::new();
        let fragments = [&b"\x01\x00"[..], &[0; 200_000]].concat();
        let mut input: &[u8] = &[ANSWER, &fragments].concat();
        while !input.is_empty() {
            let used = filter.take(input, &mut out);
            input = &input[used..];
            assert!(filter.held.len() <= 2_000);
        }
        assert_eq!(out, ANSWER);
    }

    #[tokio::test]
    async fn a_socket_is_read_through_it() {
        let next = frame(TEXT, true, 10);
        let input = [ANSWER, &frame(TEXT, true, 100_000), &next].concat();
        let (mut wire, skipped) = WithoutOversize::new(&input[..], 1_000);
        let mut out = Vec::new();
        wire.read_to_end(&mut out).await.unwrap();
        assert_eq!(out, [ANSWER, &PONG, &next].concat());
        assert_eq!((skipped.take(), skipped.take()), (1, 0));
    }
}
