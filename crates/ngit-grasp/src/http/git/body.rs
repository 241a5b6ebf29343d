//! A request's body as bytes to read: unpacked if it is gzip, bounded either way, and never waited
//! for longer than a client may be silent or slow.

use std::io;
use std::num::NonZeroU64;
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

/// A body as its sender meant it.
pub struct Reader {
    encoded: Encoded,
    /// Bytes after unpacking that may still come.
    left: u64,
}

enum Encoded {
    Plain(BodyReader),
    Gzip(Box<GzipDecoder<BufReader<BodyReader>>>),
}

/// How long a client is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Without a byte.
    pub idle: Duration,
    /// Below the minimum pace.
    pub grace: Duration,
    /// The minimum pace; zero is none.
    pub bytes_per_second: u64,
}

/// A client that sends below the minimum pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too slow: less than {bytes_per_second} bytes a second")]
pub struct TooSlow {
    bytes_per_second: u64,
}

impl TooSlow {
    /// Whether reading failed for this reason.
    pub fn is_cause_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// At most `max` bytes after unpacking; beyond them reading fails.
pub fn reader(
    headers: &HeaderMap,
    body: Body,
    max: u64,
    patience: Patience,
) -> Result<Reader, UnknownEncoding> {
    let raw = BodyReader::new(body, patience);
    let encoding = headers
        .get(header::CONTENT_ENCODING)
        .map(|value| value.as_bytes().to_ascii_lowercase());
    let encoded = match encoding.as_deref() {
        None | Some(b"" | b"identity") => Encoded::Plain(raw),
        Some(b"gzip" | b"x-gzip") => Encoded::Gzip(Box::new(GzipDecoder::new(BufReader::new(raw)))),
        Some(_) => return Err(UnknownEncoding),
    };
    Ok(Reader { encoded, left: max })
}

/// What is thrown away for a client that found no place. Git sends no more than one MiB at once
/// before it has asked.
const MAX_DISCARDED: usize = 8 * 1024 * 1024;
const DISCARD: Duration = Duration::from_secs(10);

/// Reads some of a body that nobody wants, so that its sender hears why.
pub async fn discard(body: Body, patience: Patience) {
    let mut raw = BodyReader::new(body, patience);
    let _ = tokio::time::timeout(DISCARD, read_away(&mut raw, MAX_DISCARDED)).await;
}

/// What is thrown away of a refused push. Beyond it the connection is cut.
const MAX_DRAINED: usize = 256 * 1024 * 1024;
const DRAIN: Duration = Duration::from_secs(60);

/// Reads on and throws away, so that a client that is still sending hears the answer. Nothing is
/// unpacked for it: a few bytes of gzip would keep us busy.
pub async fn drain(reader: Reader) {
    let mut raw = match reader.encoded {
        Encoded::Plain(raw) => raw,
        Encoded::Gzip(unpacked) => unpacked.into_inner().into_inner(),
    };
    let _ = tokio::time::timeout(DRAIN, read_away(&mut raw, MAX_DRAINED)).await;
}

async fn read_away(reader: &mut (impl AsyncRead + Unpin), most: usize) {
    let mut chunk = vec![0; 64 * 1024];
    let mut gone = 0;
    while gone < most {
        match reader.read(&mut chunk).await {
            Ok(read) if read > 0 => gone += read,
            _ => return,
        }
        tokio::task::consume_budget().await;
    }
}

/// What a client has left of its grace. Waiting for it uses it up and its bytes win it back, so
/// that whoever keeps the pace may pause for as long as the grace is. Only time in which we could
/// have read is counted: our own slowness is not the client's.
struct Pace {
    patience: Patience,
    left: Duration,
    waiting_since: Option<Instant>,
}

impl Pace {
    fn new(patience: Patience) -> Self {
        Self {
            patience,
            left: patience.grace,
            waiting_since: None,
        }
    }

    fn came(&mut self, bytes: usize, now: Instant) {
        if let Some(since) = self.waiting_since.take() {
            self.left = self.left.saturating_sub(now - since);
        }
        let Some(rate) = NonZeroU64::new(self.patience.bytes_per_second) else {
            return;
        };
        let won = (bytes as u64).saturating_mul(1_000_000) / rate;
        let left = self.left.saturating_add(Duration::from_micros(won));
        self.left = left.min(self.patience.grace);
    }

    /// Nothing is there to be read; when to give up if it stays so, and whether by slowness.
    fn wait(&mut self, now: Instant) -> Instant {
        let since = *self.waiting_since.get_or_insert(now);
        let silent = since + self.patience.idle;
        match self.patience.bytes_per_second {
            0 => silent,
            _ => silent.min(since + self.left),
        }
    }

    /// Why to give up now.
    fn error(&self) -> io::Error {
        let bytes_per_second = self.patience.bytes_per_second;
        match self.left < self.patience.idle && bytes_per_second > 0 {
            true => io::Error::other(TooSlow { bytes_per_second }),
            false => io::ErrorKind::TimedOut.into(),
        }
    }
}

struct BodyReader {
    body: Body,
    chunk: Bytes,
    pace: Pace,
    end_of_patience: Pin<Box<Sleep>>,
}

impl BodyReader {
    fn new(body: Body, patience: Patience) -> Self {
        Self {
            body,
            chunk: Bytes::new(),
            pace: Pace::new(patience),
            end_of_patience: Box::pin(tokio::time::sleep(patience.idle)),
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
                        self.pace.came(data.len(), Instant::now());
                        self.chunk = data;
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(io::Error::other(error))),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    let deadline = self.pace.wait(Instant::now());
                    self.end_of_patience.as_mut().reset(deadline);
                    ready!(self.end_of_patience.as_mut().poll(cx));
                    return Poll::Ready(Err(self.pace.error()));
                }
            }
        }
        let most = self.chunk.len().min(buffer.remaining());
        buffer.put_slice(&self.chunk.split_to(most));
        Poll::Ready(Ok(()))
    }
}

/// Fails where `take` would pretend that all is read.
impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(match &mut self.encoded {
            Encoded::Plain(raw) => Pin::new(raw).poll_read(cx, buffer),
            Encoded::Gzip(unpacked) => Pin::new(unpacked).poll_read(cx, buffer),
        })?;
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

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        idle: Duration::from_secs(120),
        grace: Duration::from_secs(30),
        bytes_per_second: 1_000,
    };

    /// The seconds after which a client is given up that sends so many bytes every second.
    fn given_up_after(patience: Patience, bytes_each_second: usize) -> Option<u64> {
        let start = Instant::now();
        let mut pace = Pace::new(patience);
        (1..=3_600).find(|second| {
            let now = start + Duration::from_secs(*second);
            let deadline = pace.wait(now - Duration::from_secs(1));
            if bytes_each_second > 0 {
                pace.came(bytes_each_second, now);
            }
            deadline <= now
        })
    }

    #[test]
    fn whoever_keeps_the_pace_is_waited_for_and_whoever_does_not_is_given_up() {
        assert_eq!(given_up_after(PATIENCE, 1_000), None);
        assert_eq!(given_up_after(PATIENCE, 1), Some(31));
        assert_eq!(given_up_after(PATIENCE, 500), Some(59));
        assert_eq!(given_up_after(PATIENCE, 0), Some(30));
        let without_pace = Patience {
            bytes_per_second: 0,
            ..PATIENCE
        };
        assert_eq!(given_up_after(without_pace, 1), None);
        assert_eq!(given_up_after(without_pace, 0), Some(120));
    }

    #[test]
    fn time_in_which_we_do_not_read_is_not_the_clients() {
        let start = Instant::now();
        let mut pace = Pace::new(PATIENCE);
        let at = |seconds| start + Duration::from_secs(seconds);
        pace.wait(at(0));
        pace.came(10, at(1));
        // The disk takes a thousand seconds for what came.
        let deadline = pace.wait(at(1_000));
        assert!(deadline > at(1_028), "{:?}", deadline - start);
    }

    #[tokio::test]
    async fn what_is_thrown_away_is_not_unpacked() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};

        // The head of a gzip file, and then nothing that could be unpacked.
        let frames = (0..10).map(|n| match n {
            0 => Bytes::from_static(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]),
            _ => Bytes::from_static(&[0xff; 1_000]),
        });
        let sent = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&sent);
        let frames = frames.inspect(move |_| {
            counting.fetch_add(1, Ordering::Relaxed);
        });
        let body = Body::from_stream(futures_util::stream::iter(frames.map(Ok::<_, io::Error>)));
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
        let body = reader(&headers, body, u64::MAX, PATIENCE).ok().unwrap();
        drain(body).await;
        assert_eq!(sent.load(Ordering::Relaxed), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_fails_as_too_slow_and_a_silent_one_too() {
        for drips in [true, false] {
            let stream = futures_util::stream::unfold(0, move |n| async move {
                match n > 0 && !drips {
                    true => std::future::pending().await,
                    false => tokio::time::sleep(Duration::from_secs(1)).await,
                }
                Some((Ok::<_, io::Error>(Bytes::from_static(b"x")), n + 1))
            });
            let body = Body::from_stream(stream);
            let mut body = reader(&HeaderMap::new(), body, 1_000, PATIENCE).unwrap();
            let error = body.read_to_end(&mut Vec::new()).await.unwrap_err();
            assert!(TooSlow::is_cause_of(&error), "{error}");
        }
    }
}
