//! Questions to another git server: HTTP/1.1 through the one guard for every address. Nothing is
//! compressed, no cookies, no credentials. Only the first question may be led elsewhere, each step
//! is looked at anew, and all that follows goes where it ended.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, LOCATION, RETRY_AFTER,
    USER_AGENT,
};
use axum::http::{HeaderMap, HeaderName, Method, Request, Response};
use bytes::{Buf as _, Bytes};
use grasp_core::clone_url::CloneUrl;
use grasp_core::sync::io::End;
use grasp_git::fetch::{
    ADVERT_TYPE, NoReply, Question, REQUEST_TYPE, RESULT_TYPE, Reply, Transport, Version,
};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use url::Url;

use crate::remote::dial::Dialer;
use crate::remote::guard::{Guard, Target};

/// Servers that filter by client let git through.
const AGENT: &str = concat!("git/2.0 (ngit-grasp/", env!("CARGO_PKG_VERSION"), ")");
const MAX_REDIRECTS: usize = 3;
/// Of a response, and of what is read ahead of its body.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 100;
const ADVERT: &str = "/info/refs?service=git-upload-pack";
const UPLOAD_PACK: &str = "/git-upload-pack";
const GIT_PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");

/// What all questions share.
pub(super) struct Net {
    guard: Guard,
    dialer: Dialer,
    connect_timeout: Duration,
}

impl Net {
    pub fn new(guard: Guard, dialer: Dialer, connect_timeout: Duration) -> Self {
        Self {
            guard,
            dialer,
            connect_timeout,
        }
    }
}

/// The way to one repository.
pub(super) struct Web {
    net: Arc<Net>,
    /// Without a slash at its end.
    base: String,
    /// The operator named it, so that it may be anywhere; where it leads may not.
    trusted: bool,
    line: Option<Line>,
    /// Questions so far, each step that they were led on, and those that were put again.
    requests: u32,
}

/// An open connection. Ends when it is dropped.
struct Line {
    sender: SendRequest<Full<Bytes>>,
    address: SocketAddr,
    driving: AbortHandle,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

impl Web {
    pub fn new(net: Arc<Net>, url: &str, trusted: bool) -> Self {
        Self {
            net,
            base: url.trim_end_matches('/').to_owned(),
            trusted,
            line: None,
            requests: 0,
        }
    }

    async fn advert(&mut self) -> Result<Response<Incoming>, NoReply> {
        for _ in 0..=MAX_REDIRECTS {
            self.requests += 1;
            let target = self.target(ADVERT)?;
            let addresses = self.net.guard.resolve(&target, self.trusted);
            let addresses = timeout(self.net.connect_timeout, addresses).await;
            let addresses = addresses.unwrap_or(Err(End::TimedOut)).map_err(no_reply)?;
            self.connect(&target, &addresses).await?;
            let request = self.request(&target, Method::GET, ADVERT_TYPE);
            let request = request.header(GIT_PROTOCOL, "version=2");
            let request = request.body(Full::default());
            let response = self
                .send(request.map_err(|_| NoReply::Unreachable)?)
                .await?;
            match response.status().as_u16() {
                301 | 302 | 303 | 307 | 308 => {
                    self.base = self.led_to(response.headers())?;
                    self.trusted = false;
                }
                _ => return Ok(response),
            }
        }
        Err(NoReply::Unreachable)
    }

    async fn upload_pack(
        &mut self,
        body: Bytes,
        version: Version,
    ) -> Result<Response<Incoming>, NoReply> {
        let target = self.target(UPLOAD_PACK)?;
        let request = || {
            let request = self.request(&target, Method::POST, RESULT_TYPE);
            let request = request.header(CONTENT_TYPE, REQUEST_TYPE);
            let request = match version {
                Version::V2 => request.header(GIT_PROTOCOL, "version=2"),
                Version::V0 => request,
            };
            let request = request.body(Full::new(body.clone()));
            request.map_err(|_| NoReply::Unreachable)
        };
        let (first, second) = (request()?, request()?);
        self.requests += 1;
        // A server that keeps the connection open is asked on it, any other where it was found;
        // and one may close it just now.
        if self.is_open().await
            && let Ok(response) = self.send(first).await
        {
            return Ok(response);
        }
        self.requests += 1;
        let address = self.line.as_ref().map(|line| line.address);
        let address = address.ok_or(NoReply::Unreachable)?;
        self.connect(&target, &[address]).await?;
        self.send(second).await
    }

    async fn is_open(&mut self) -> bool {
        let Some(line) = self.line.as_mut() else {
            return false;
        };
        let ready = timeout(self.net.connect_timeout, line.sender.ready()).await;
        matches!(ready, Ok(Ok(())))
    }

    async fn connect(&mut self, target: &Target, addresses: &[SocketAddr]) -> Result<(), NoReply> {
        self.line = None;
        let connecting = async {
            let connected = self.net.dialer.connect(target, addresses).await;
            let (wire, address) = connected.map_err(no_reply)?;
            let opened = http1::Builder::new()
                .max_buf_size(MAX_HEAD)
                .max_headers(MAX_HEADERS)
                .handshake(TokioIo::new(wire))
                .await;
            let (sender, connection) = opened.map_err(|_| NoReply::Unreachable)?;
            Ok((sender, connection, address))
        };
        let connected = timeout(self.net.connect_timeout, connecting).await;
        let (sender, connection, address) = connected.unwrap_or(Err(NoReply::Unreachable))?;
        let driving = tokio::spawn(connection).abort_handle();
        self.line = Some(Line {
            sender,
            address,
            driving,
        });
        Ok(())
    }

    fn request(
        &self,
        target: &Target,
        method: Method,
        accept: &str,
    ) -> axum::http::request::Builder {
        Request::builder()
            .method(method)
            .uri(&target.path)
            .header(HOST, &target.authority)
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, accept)
            .header(ACCEPT_ENCODING, "identity")
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, NoReply> {
        let line = self.line.as_mut().ok_or(NoReply::Unreachable)?;
        let sent = line.sender.send_request(request).await;
        sent.map_err(|_| NoReply::Unreachable)
    }

    /// Where the repository is said to be, on the same host and port: another one has a budget of
    /// its own, and nobody shall send us there around it. Encryption is not given up on the way.
    fn led_to(&self, headers: &HeaderMap) -> Result<String, NoReply> {
        let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let here = Url::parse(&format!("{}{ADVERT}", self.base)).ok();
        let there = location.and_then(|location| here.as_ref()?.join(location).ok());
        let (Some(here), Some(there)) = (here, there) else {
            return Err(NoReply::Unreachable);
        };
        let may = there.scheme() == "https" || there.scheme() == here.scheme();
        let base = there.as_str().strip_suffix(ADVERT);
        let domain = |url: &str| CloneUrl::parse(url).map(|url| url.domain().clone());
        match base {
            Some(base) if may && domain(base) == domain(&self.base) => Ok(base.to_owned()),
            _ => Err(NoReply::Unreachable),
        }
    }

    fn target(&self, path: &str) -> Result<Target, NoReply> {
        Target::parse(&format!("{}{path}", self.base)).ok_or(NoReply::Unreachable)
    }
}

impl Transport for Web {
    type Body = Reader;

    fn requests(&self) -> u32 {
        self.requests
    }

    async fn ask(&mut self, question: Question) -> Result<Reply<Reader>, NoReply> {
        let response = match question {
            Question::Advert => self.advert().await?,
            Question::UploadPack { body, version } => self.upload_pack(body, version).await?,
        };
        let (head, body) = response.into_parts();
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
        if !matches!(text(CONTENT_ENCODING), None | Some("" | "identity")) {
            return Err(NoReply::Unreachable);
        }
        let content_type = text(CONTENT_TYPE).unwrap_or_default();
        let seconds = text(RETRY_AFTER).and_then(|seconds| seconds.trim().parse().ok());
        Ok(Reply {
            status: head.status.as_u16(),
            content_type: content_type
                .split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned(),
            retry_after: seconds.map(Duration::from_secs),
            body: Reader {
                body,
                chunk: Bytes::new(),
            },
        })
    }
}

/// A response's body as bytes to read.
pub(super) struct Reader {
    body: Incoming,
    chunk: Bytes,
}

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.chunk.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                Some(Ok(frame)) => self.chunk = frame.into_data().unwrap_or_default(),
            }
        }
        let count = self.chunk.len().min(buffer.remaining());
        buffer.put_slice(self.chunk.get(..count).unwrap_or_default());
        self.chunk.advance(count);
        Poll::Ready(Ok(()))
    }
}

fn no_reply(end: End) -> NoReply {
    match end {
        End::Blocked => NoReply::Forbidden,
        _ => NoReply::Unreachable,
    }
}
