//! Bytes on their way in: counted, and not waited for without end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use grasp_core::hunt::io::FetchEnd;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::Watch;

/// Why reading ends before the bytes do. Travels inside of an `io::Error`.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("{0:?}")]
pub(super) struct Stop(pub FetchEnd);

impl Stop {
    pub fn error(end: FetchEnd) -> io::Error {
        io::Error::other(Self(end))
    }

    pub fn of(error: &io::Error) -> Option<FetchEnd> {
        let inner = error.get_ref()?.downcast_ref::<Self>()?;
        Some(inner.0)
    }
}

/// A server must bring so many bytes of a pack in so much time that we spend waiting for them.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub bytes: u64,
    pub window: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            // A modem of the last century.
            bytes: 30 * 1024,
            window: Duration::from_secs(30),
        }
    }
}

/// A body whose bytes are counted, whatever they are for, up to a bound.
pub(super) struct Counted<B> {
    body: B,
    total: Arc<AtomicU64>,
    most: u64,
}

impl<B> Counted<B> {
    pub fn new(body: B, total: Arc<AtomicU64>, most: u64) -> Self {
        Self { body, total, most }
    }
}

impl<B: AsyncRead + Unpin> AsyncRead for Counted<B> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.body).poll_read(cx, buffer))?;
        let read = (buffer.filled().len() - before) as u64;
        let total = self.total.fetch_add(read, Ordering::Relaxed) + read;
        match total > self.most {
            true => Poll::Ready(Err(Stop::error(FetchEnd::Cut { kept: false }))),
            false => Poll::Ready(Ok(())),
        }
    }
}

/// Ends with `TooSlow` where the pack falls behind the pace. Time in which nobody reads does not
/// count.
pub(super) struct Paced<R> {
    pack: R,
    pace: Pace,
    /// Of this window.
    bytes: u64,
    waited: Duration,
    waiting: Option<Instant>,
    alarm: Pin<Box<Sleep>>,
}

impl<R> Paced<R> {
    pub fn new(pack: R, pace: Pace) -> Self {
        Self {
            pack,
            pace,
            bytes: 0,
            waited: Duration::ZERO,
            waiting: None,
            alarm: Box::pin(tokio::time::sleep(pace.window)),
        }
    }

    /// False if the window that ends here brought too little.
    fn keeps_pace(&mut self) -> bool {
        let now = Instant::now();
        let since = self.waiting.take();
        self.waited += since.map_or(Duration::ZERO, |since| now - since);
        if self.waited < self.pace.window {
            return true;
        }
        let enough = self.bytes >= self.pace.bytes;
        (self.bytes, self.waited) = (0, Duration::ZERO);
        enough
    }

    /// True if there is nothing to wait for.
    fn set_alarm(&mut self, cx: &mut Context<'_>) -> bool {
        let now = Instant::now();
        self.waiting = Some(now);
        let left = self.pace.window.saturating_sub(self.waited);
        self.alarm.as_mut().reset(now + left);
        self.alarm.as_mut().poll(cx).is_ready()
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Paced<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.pack).poll_read(cx, buffer);
        self.bytes += (buffer.filled().len() - before) as u64;
        if !self.keeps_pace() {
            return Poll::Ready(Err(Stop::error(FetchEnd::TooSlow)));
        }
        if polled.is_pending() && self.set_alarm(cx) {
            cx.waker().wake_by_ref();
        }
        polled
    }
}

/// Tells of the bytes of a pack as they pass.
pub(super) struct Watched<'a, R, W> {
    pack: Paced<R>,
    watch: &'a W,
    flows: bool,
}

impl<'a, R, W> Watched<'a, R, W> {
    pub fn new(pack: R, pace: Pace, watch: &'a W) -> Self {
        Self {
            pack: Paced::new(pack, pace),
            watch,
            flows: false,
        }
    }
}

impl<R: AsyncRead + Unpin, W: Watch> AsyncRead for Watched<'_, R, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.pack).poll_read(cx, buffer))?;
        let read = (buffer.filled().len() - before) as u64;
        if read > 0 && !self.flows {
            self.flows = true;
            self.watch.flowing();
        }
        Poll::Ready(self.watch.took(read).map_err(Stop::error))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const PACE: Pace = Pace {
        bytes: 100,
        window: Duration::from_millis(50),
    };

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_falls_silent_is_not_waited_for() {
        let (mut sender, body) = tokio::io::duplex(1_000);
        let mut body = Paced::new(body, PACE);
        sender.write_all(&[7; 10]).await.unwrap();
        let mut found = Vec::new();
        let error = body.read_to_end(&mut found).await.unwrap_err();
        assert_eq!(Stop::of(&error), Some(FetchEnd::TooSlow));
        assert_eq!(found.len(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drip_is_too_slow_and_a_steady_flow_is_not() {
        for (bytes, end) in [(9, Some(FetchEnd::TooSlow)), (11, None)] {
            let (mut sender, body) = tokio::io::duplex(100);
            let mut body = Paced::new(body, PACE);
            let dripping = async move {
                let mut tick = tokio::time::interval(PACE.window / 10);
                for _ in 0..50 {
                    tick.tick().await;
                    if sender.write_all(&vec![7; bytes]).await.is_err() {
                        return;
                    }
                }
            };
            let mut found = Vec::new();
            let (read, ()) = tokio::join!(
                async {
                    let read = body.read_to_end(&mut found).await;
                    drop(body);
                    read
                },
                dripping
            );
            let ended = read.err().as_ref().and_then(Stop::of);
            assert_eq!(ended, end, "{bytes}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_reads_is_not_the_senders() {
        let (mut sender, body) = tokio::io::duplex(1_000);
        let mut body = Paced::new(body, PACE);
        let mut byte = [0];
        for _ in 0..3 {
            sender.write_all(&[7]).await.unwrap();
            tokio::time::advance(PACE.window).await;
            body.read_exact(&mut byte).await.unwrap();
        }
        drop(sender);
        assert_eq!(body.read(&mut byte).await.unwrap(), 0);
    }
}
