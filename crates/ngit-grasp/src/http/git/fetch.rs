//! A fetch: questions about refs are answered here, everything else by `git upload-pack`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use grasp_git::{GitError, LsRefs, Protocol, Repo, ServeLimits, Served, pktline, upload_pack};
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio::sync::mpsc;

use super::body::{self, Reader, UnknownEncoding};
use super::busy::{Busy, Turn};
use super::{GitSite, MAX_REQUEST, failed, git_response, off_the_loop, protocol};
use crate::metrics::{Metrics, SERVED};

const RESULT: &str = "application/x-git-upload-pack-result";
/// For a question about refs, however slowly it comes.
const QUESTION: Duration = Duration::from_secs(60);
/// A question about refs is far smaller: 1,024 prefixes of 60 bytes.
const MAX_QUESTION: usize = 256 * 1024;

impl GitSite {
    pub(super) async fn fetch(
        &self,
        repo: &Repo,
        turn: Turn,
        request: Request<Body>,
    ) -> Response<Body> {
        let protocol = protocol(request.headers());
        let (parts, body) = request.into_parts();
        let body = body::reader(&parts.headers, body, MAX_REQUEST, self.limits.patience);
        let mut body = match body {
            Ok(reader) => Awaited {
                reader,
                turn: turn.clone(),
            },
            Err(UnknownEncoding) => return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response(),
        };
        let question = tokio::select! {
            question = tokio::time::timeout(QUESTION, read_question(&mut body, protocol)) => question,
            () = turn.evicted() => {
                self.metrics.fetch("evicted");
                return Busy::Address.into_response();
            }
        };
        let late = |_| Err(io::ErrorKind::TimedOut.into());
        let beginning = match question.unwrap_or_else(late) {
            Ok(Question::LsRefs(asked)) => return self.answer_refs(repo, &turn, asked).await,
            Ok(Question::Other(beginning)) => beginning,
            Err(error) => {
                self.metrics.fetch("malformed");
                return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response();
            }
        };
        let limits = ServeLimits {
            deadline: self.limits.timeout,
            idle: self.limits.patience.idle,
            ..ServeLimits::default()
        };
        let request = std::io::Cursor::new(beginning).chain(body);
        match upload_pack(repo, protocol, Box::pin(request), &limits).await {
            Ok(served) => {
                let sending = Sending {
                    served,
                    metrics: Arc::clone(&self.metrics),
                    started: Instant::now(),
                    began: false,
                    ended: false,
                    turn,
                };
                git_response(RESULT, sending.into_body())
            }
            Err(error) => {
                self.metrics.fetch("failed");
                failed(&repo.dir().display(), &error)
            }
        }
    }

    async fn answer_refs(&self, repo: &Repo, turn: &Turn, asked: LsRefs) -> Response<Body> {
        let opened = repo.clone();
        match off_the_loop(turn, move || Ok(asked.answer(&opened.refs()?))).await {
            Ok(answer) => {
                self.metrics.fetch("refs");
                git_response(RESULT, Body::from(answer))
            }
            Err(error) => failed(&repo.dir().display(), &error),
        }
    }
}

/// A request on its way: whoever drips it is as slow as whoever does not read the answer.
struct Awaited {
    reader: Reader,
    turn: Turn,
}

impl AsyncRead for Awaited {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.reader).poll_read(cx, buffer);
        match read {
            Poll::Pending => self.turn.wait_for_client(),
            Poll::Ready(_) => self.turn.client_took(buffer.filled().len() - before),
        }
        read
    }
}

enum Question {
    LsRefs(LsRefs),
    /// What was read of it.
    Other(Bytes),
}

async fn read_question(body: &mut Awaited, protocol: Protocol) -> io::Result<Question> {
    let mut read = BytesMut::new();
    if protocol != Protocol::V2 {
        return Ok(Question::Other(read.freeze()));
    }
    let is_undecided = |read: &BytesMut| read.len() < 20 || LsRefs::is_asked(read);
    while is_undecided(&read) && read.len() < MAX_QUESTION {
        if body.read_buf(&mut read).await? == 0 {
            break;
        }
    }
    match LsRefs::parse(&read).map_err(io::Error::other)? {
        Some(asked) => Ok(Question::LsRefs(asked)),
        None => Ok(Question::Other(read.freeze())),
    }
}

/// The slot was needed for somebody who holds fewer, or whose line is quicker.
#[derive(Debug, thiserror::Error)]
#[error("made way for other readers, try again in a moment")]
struct Evicted;

/// The answer on its way. Dropping it, as happens when the client goes, ends the git process.
struct Sending {
    served: Served,
    metrics: Arc<Metrics>,
    started: Instant,
    /// Something of it is sent.
    began: bool,
    ended: bool,
    turn: Turn,
}

impl Sending {
    /// A task of its own passes it on, so that git ends when the slot is taken away, however long
    /// the reader takes over what it has.
    fn into_body(self) -> Body {
        let (chunks, mut taken) = mpsc::channel(1);
        tokio::spawn(self.send(chunks));
        Body::from_stream(stream::poll_fn(move |cx| taken.poll_recv(cx)))
    }

    async fn send(mut self, chunks: mpsc::Sender<io::Result<Bytes>>) {
        let evicted = self.turn.evicted();
        tokio::select! {
            () = self.send_all(&chunks) => return,
            () = evicted => self.end("evicted"),
        }
        drop(self);
        // What is not whole must not look so; the reader may be gone.
        let _ = chunks.send(Err(io::Error::other(Evicted))).await;
    }

    /// Until there is no more of it, or nobody who takes it.
    async fn send_all(&mut self, chunks: &mpsc::Sender<io::Result<Bytes>>) {
        loop {
            let chunk = tokio::select! {
                chunk = self.next() => chunk,
                () = chunks.closed() => return,
            };
            let Some(chunk) = chunk else {
                return;
            };
            let bytes = chunk.as_ref().map_or(0, Bytes::len);
            self.turn.wait_for_client();
            if chunks.send(chunk).await.is_err() {
                return;
            }
            self.turn.client_took(bytes);
        }
    }

    /// Ends only when all of it is sent: an answer that git did not finish must not look whole.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.ended {
            return None;
        }
        match self.served.chunk().await {
            Ok(Some(chunk)) => {
                self.began = true;
                self.metrics.git_bytes_out.inc_by(chunk.len() as u64);
                Some(Ok(chunk))
            }
            Ok(None) => {
                self.end(SERVED);
                None
            }
            // Git has told the client why, in the answer itself.
            Err(error @ GitError::Failed { .. }) => {
                tracing::debug!(%error, "a fetch was refused");
                self.end("refused");
                None
            }
            Err(GitError::Body(error)) => {
                tracing::debug!(%error, "the request of a fetch did not come");
                self.end("malformed");
                let mut line = BytesMut::new();
                pktline::put_text(
                    &mut line,
                    &format!("ERR the request ended early: {error}\n"),
                );
                let told = !self.began;
                told.then(|| Ok(line.freeze())).or(Some(Err(error)))
            }
            Err(error) => {
                tracing::warn!(%error, "a fetch failed");
                self.end("failed");
                Some(Err(io::Error::other(error)))
            }
        }
    }

    fn end(&mut self, result: &'static str) {
        self.ended = true;
        self.metrics.fetch(result);
        self.metrics
            .git("fetch", self.started.elapsed().as_secs_f64());
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.ended {
            self.end("aborted");
        }
    }
}
