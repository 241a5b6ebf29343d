//! One GET, bounded in bytes and time. No redirects, nothing compressed.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, HOST, USER_AGENT};
use axum::http::{HeaderMap, Request};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::dial::Dialer;
use super::guard::Target;

const PATIENCE: Duration = Duration::from_secs(5);
const MAX_HEAD: usize = 16 * 1024;

/// What a server answered.
#[derive(Debug)]
pub struct Page {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// `None` if there is no answer, or one with a body longer than `most`.
pub async fn get(
    dialer: &Dialer,
    target: &Target,
    addresses: &[SocketAddr],
    accept: &str,
    most: usize,
) -> Option<Page> {
    timeout(PATIENCE, page(dialer, target, addresses, accept, most))
        .await
        .ok()?
}

async fn page(
    dialer: &Dialer,
    target: &Target,
    addresses: &[SocketAddr],
    accept: &str,
    most: usize,
) -> Option<Page> {
    let (wire, _) = dialer.connect(target, addresses).await.ok()?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(wire))
        .await
        .ok()?;
    let request = Request::get(&target.path)
        .header(HOST, &target.authority)
        .header(ACCEPT, accept)
        .header(ACCEPT_ENCODING, "identity")
        .header(CONNECTION, "close")
        .header(USER_AGENT, super::USER_AGENT)
        .body(Empty::<Bytes>::new())
        .ok()?;
    let answer = async {
        let response = sender.send_request(request).await.ok()?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, most).collect().await.ok()?;
        Some(Page {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.to_bytes(),
        })
    };
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        page = answer.as_mut() => page,
        // The bytes are read; the end of the connection may come before the end of the answer.
        _ = connection => answer.await,
    }
}
