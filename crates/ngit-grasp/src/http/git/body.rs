//! A request's body as bytes to read: unpacked if it is gzip, bounded either way, and never waited
//! for longer than a client may be silent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_compression::tokio::bufread::GzipDecoder;
use axum::body::Body;
use axum::http::header::{self, HeaderMap};
use bytes::Bytes;
use hyper::body::Body as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, BufReader, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A body in an encoding that is not known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownEncoding;

pub type Reader = Pin<Box<dyn AsyncRead + Send>>;

/// At most `max` bytes after unpacking; beyond them reading fails.
pub fn reader(
    headers: &HeaderMap,
    body: Body,
    max: u64,
    idle: Duration,
) -> Result<Reader, UnknownEncoding> {
    let raw = BodyReader::new(body, idle);
    let encoding = headers
        .get(header::CONTENT_ENCODING)
        .map(|value| value.as_bytes().to_ascii_lowercase());
    match encoding.as_deref() {
        None | Some(b"" | b"identity") => Ok(Box::pin(Bounded::new(raw, max))),
        Some(b"gzip" | b"x-gzip") => {
            let unpacked = GzipDecoder::new(BufReader::new(raw));
            Ok(Box::pin(Bounded::new(unpacked, max)))
        }
        Some(_) => Err(UnknownEncoding),
    }
}

/// What is thrown away for a client that found no place. Git sends no more than one MiB at once
/// before it has asked.
const MAX_DISCARDED: usize = 8 * 1024 * 1024;
const DISCARD: Duration = Duration::from_secs(10);

/// Reads some of a body that nobody wants, so that its sender hears why.
pub async fn discard(body: Body, idle: Duration) {
    let mut raw = BodyReader::new(body, idle);
    let _ = tokio::time::timeout(DISCARD, read_away(&mut raw, MAX_DISCARDED)).await;
}

/// What is thrown away of a refused push. Beyond it the connection is cut; a larger bound would
/// let a few bytes of gzip keep us unpacking.
const MAX_DRAINED: usize = 256 * 1024 * 1024;
const DRAIN: Duration = Duration::from_secs(60);

/// Reads on and throws away, so that a client that is still sending hears the answer.
pub async fn drain(reader: &mut Reader) {
    let _ = tokio::time::timeout(DRAIN, read_away(reader, MAX_DRAINED)).await;
}

async fn read_away(reader: &mut (impl AsyncRead + Unpin), most: usize) {
    let mut chunk = vec![0; 64 * 1024];
    let mut gone = 0;
    while gone < most {
        match reader.read(&mut chunk).await {
            Ok(read) if read > 0 => gone += read,
            _ => return,
        }
    }
}

struct BodyReader {
    body: Body,
    chunk: Bytes,
    idle: Duration,
    silence: Pin<Box<Sleep>>,
}

impl BodyReader {
    fn new(body: Body, idle: Duration) -> Self {
        Self {
            body,
            chunk: Bytes::new(),
            idle,
            silence: Box::pin(tokio::time::sleep(idle)),
        }
    }
}

impl AsyncRead for BodyReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.chunk.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.chunk = data;
                    }
                    let deadline = Instant::now() + self.idle;
                    self.silence.as_mut().reset(deadline);
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(io::Error::other(error))),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    ready!(self.silence.as_mut().poll(cx));
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
        }
        let most = self.chunk.len().min(buffer.remaining());
        buffer.put_slice(&self.chunk.split_to(most));
        Poll::Ready(Ok(()))
    }
}

/// Fails where `take` would pretend that all is read.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R> Bounded<R> {
    fn new(inner: R, max: u64) -> Self {
        Self { inner, left: max }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Bounded<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let read = (buffer.filled().len() - before) as u64;
        match self.left.checked_sub(read) {
            Some(left) => {
                self.left = left;
                Poll::Ready(Ok(()))
            }
            None => Poll::Ready(Err(io::Error::other("the body is too large"))),
        }
    }
}
