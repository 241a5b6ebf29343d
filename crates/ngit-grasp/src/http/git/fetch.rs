//! A fetch: questions about refs are answered here, everything else by `git upload-pack`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use grasp_git::{LsRefs, Protocol, Repo, ServeLimits, Served, upload_pack};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, ReadBuf};

use super::body::{self, Reader, UnknownEncoding};
use super::busy::Turn;
use super::{GitSite, MAX_REQUEST, failed, git_response, protocol};
use crate::metrics::Metrics;

const RESULT: &str = "application/x-git-upload-pack-result";
/// A question about refs is far smaller: 1,024 prefixes of 60 bytes.
const MAX_QUESTION: usize = 256 * 1024;
/// One read of what git sends.
const CHUNK: usize = 32 * 1024;

impl GitSite {
    pub(super) async fn fetch(
        &self,
        repo: &Repo,
        turn: Turn,
        request: Request<Body>,
    ) -> Response<Body> {
        let protocol = protocol(request.headers());
        let (parts, body) = request.into_parts();
        let body = body::reader(&parts.headers, body, MAX_REQUEST, self.limits.idle);
        let mut body = match body {
            Ok(body) => body,
            Err(UnknownEncoding) => return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response(),
        };
        let beginning = match read_question(&mut body, protocol).await {
            Ok(Question::LsRefs(asked)) => return self.answer_refs(repo, &asked),
            Ok(Question::Other(beginning)) => beginning,
            Err(error) => {
                self.metrics.fetch("malformed");
                return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response();
            }
        };
        let limits = ServeLimits {
            deadline: self.limits.timeout,
            idle: self.limits.idle,
            ..ServeLimits::default()
        };
        let request = std::io::Cursor::new(beginning).chain(body);
        match upload_pack(repo, protocol, Box::pin(request), &limits) {
            Ok(served) => {
                let sending = Sending {
                    served: Some(served),
                    metrics: Arc::clone(&self.metrics),
                    started: Instant::now(),
                    buffer: BytesMut::new(),
                    _turn: turn,
                };
                git_response(RESULT, Body::from_stream(sending))
            }
            Err(error) => {
                self.metrics.fetch("failed");
                failed(&repo.dir().display(), &error)
            }
        }
    }

    fn answer_refs(&self, repo: &Repo, asked: &LsRefs) -> Response<Body> {
        match repo.refs() {
            Ok(refs) => {
                self.metrics.fetch("refs");
                git_response(RESULT, Body::from(asked.answer(&refs)))
            }
            Err(error) => failed(&repo.dir().display(), &error),
        }
    }
}

enum Question {
    LsRefs(LsRefs),
    /// What was read of it.
    Other(Bytes),
}

async fn read_question(body: &mut Reader, protocol: Protocol) -> io::Result<Question> {
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

/// The answer on its way. Dropping it, as happens when the client goes, ends the git process.
struct Sending {
    served: Option<Served>,
    metrics: Arc<Metrics>,
    started: Instant,
    buffer: BytesMut,
    _turn: Turn,
}

impl Stream for Sending {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(served) = &mut this.served else {
            return Poll::Ready(None);
        };
        this.buffer.resize(CHUNK, 0);
        let mut read = ReadBuf::new(&mut this.buffer);
        let result = std::task::ready!(Pin::new(served).poll_read(cx, &mut read));
        let filled = read.filled().len();
        if let Err(error) = result {
            this.end("failed");
            return Poll::Ready(Some(Err(error)));
        }
        if filled == 0 {
            this.end("served");
            return Poll::Ready(None);
        }
        this.metrics.git_bytes_out.inc_by(filled as u64);
        Poll::Ready(Some(Ok(this.buffer.split_to(filled).freeze())))
    }
}

impl Sending {
    fn end(&mut self, result: &'static str) {
        self.served = None;
        self.metrics.fetch(result);
        self.metrics
            .git("fetch", self.started.elapsed().as_secs_f64());
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.served.is_some() {
            self.end("aborted");
        }
    }
}
