//! One connection: requests with bodies of known length, answers in chunks.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::{GitFault, Open, Shared};
use crate::git::command;
use crate::pack::{self, Object};

/// Between two bytes of a drip.
const DROP: Duration = Duration::from_millis(20);
/// What one packet of a side band holds.
const BAND: usize = 65_515;
const ADVERT: &str = "application/x-git-upload-pack-advertisement";
const RESULT: &str = "application/x-git-upload-pack-result";

struct Request {
    method: String,
    path: String,
    query: String,
    protocol: String,
    body: Vec<u8>,
}

pub(super) async fn requests(stream: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await? {
        let line = format!("{} {}?{}", request.method, request.path, request.query);
        let _open = Open::new(shared, line);
        if shared.has(&GitFault::Tarpit) {
            // Until the other side has enough of it.
            let _ = stream.read_u8().await;
            return Ok(());
        }
        Answer {
            stream: &mut stream,
            shared,
        }
        .to(&request)
        .await?;
    }
    Ok(())
}

async fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let method = words.next().unwrap_or_default().to_owned();
    let target = words.next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        protocol: String::new(),
        body: Vec::new(),
    };
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            stream.read_exact(&mut request.body).await?;
            return Ok(Some(request));
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => request.body.resize(value.trim().parse().unwrap_or(0), 0),
            "git-protocol" => request.protocol = value.trim().to_owned(),
            _ => {}
        }
    }
}

struct Answer<'a> {
    stream: &'a mut BufReader<TcpStream>,
    shared: &'a Arc<Shared>,
}

impl Answer<'_> {
    async fn to(mut self, request: &Request) -> io::Result<()> {
        let status = self.shared.find(|fault| match fault {
            GitFault::Status(status) => Some((*status, String::new())),
            GitFault::Busy(Some(after)) => Some((429, format!("Retry-After: {after}\r\n"))),
            GitFault::Busy(None) => Some((429, String::new())),
            GitFault::MovedTo(base) if request.method == "GET" => {
                let location = format!("{base}/info/refs?{}", request.query);
                Some((302, format!("Location: {location}\r\n")))
            }
            GitFault::Renamed { from, to } if request.path.contains(from.as_str()) => {
                let location = format!("{to}/info/refs?{}", request.query);
                Some((302, format!("Location: {location}\r\n")))
            }
            _ => None,
        });
        if let Some((status, header)) = status {
            return self.status(status, &header).await;
        }
        if self.shared.has(&GitFault::Page) {
            return self.body("text/html", b"<!DOCTYPE html>").await;
        }
        let path = &request.path;
        match request.method.as_str() {
            "GET" => match path.strip_suffix("/info/refs") {
                Some(name) => self.refs(name, request).await,
                None => self.status(404, "").await,
            },
            _ => match path.strip_suffix("/git-upload-pack") {
                Some(name) => self.upload_pack(name, request).await,
                None => self.status(404, "").await,
            },
        }
    }

    async fn status(&mut self, status: u16, headers: &str) -> io::Result<()> {
        let head = format!("HTTP/1.1 {status} Said\r\n{headers}Content-Length: 0\r\n\r\n");
        self.stream.write_all(head.as_bytes()).await
    }

    async fn refs(mut self, name: &str, request: &Request) -> io::Result<()> {
        let protocol = self.protocol(request);
        let flag = "--http-backend-info-refs";
        let Some(refs) = self.git(name, &protocol, flag, &[]).await? else {
            return self.status(404, "").await;
        };
        let mut body = Vec::new();
        if !protocol.contains("version=2") {
            body.extend_from_slice(b"001e# service=git-upload-pack\n0000");
        }
        body.extend(refs);
        self.body(ADVERT, &body).await
    }

    async fn upload_pack(mut self, name: &str, request: &Request) -> io::Result<()> {
        let protocol = self.protocol(request);
        let Some(mut body) = self.git(name, &protocol, "", &request.body).await? else {
            return self.status(404, "").await;
        };
        if String::from_utf8_lossy(&request.body).contains("command=ls-refs") {
            let shown = self.shared.find(|fault| match fault {
                GitFault::Shows(id) => Some(format!("{id} refs/heads/shown\n")),
                _ => None,
            });
            let line = shown.map(|line| format!("{:04x}{line}", line.len() + 4));
            body.splice(..0, line.unwrap_or_default().into_bytes());
            return self.body(RESULT, &body).await;
        }
        self.shared.until_not(&GitFault::HoldsPacks).await;
        let Some(start) = pack_start(&body) else {
            return self.body(RESULT, &body).await;
        };
        if self.shared.has(&GitFault::TruncatedPack) {
            let middle = (start + body.len()) / 2;
            self.head(RESULT).await?;
            self.chunk(&body[..middle]).await?;
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if self.shared.has(&GitFault::HoldsHalves) {
            let (half, rest) = body.split_at((start + body.len()) / 2);
            self.head(RESULT).await?;
            self.chunk(half).await?;
            self.shared.until_not(&GitFault::HoldsHalves).await;
            self.chunk(rest).await?;
            return self.stream.write_all(b"0\r\n\r\n").await;
        }
        if self.shared.has(&GitFault::CorruptPack) {
            // Within the checksum, which is before the flush.
            let at = body.len() - 10;
            body[at] ^= 1;
        }
        if self.shared.has(&GitFault::WrongObjects) {
            body.truncate(start);
            body.extend(banded(&pack::pack(&[Object::Blob(b"other".to_vec())])));
            body.extend_from_slice(b"0000");
        }
        if self.shared.has(&GitFault::EndlessPack) {
            return self.endless(&body[..start]).await;
        }
        self.body(RESULT, &body).await
    }

    async fn endless(mut self, head: &[u8]) -> io::Result<()> {
        self.head(RESULT).await?;
        self.chunk(head).await?;
        self.chunk(&banded(&pack::beginning(u32::MAX / 4))).await?;
        let mut dice = fastrand::Rng::with_seed(7);
        let mut content = vec![0; 32 * 1024];
        loop {
            dice.fill(&mut content);
            self.chunk(&banded(&pack::blob(&content))).await?;
        }
    }

    /// `None` if there is no such repository.
    async fn git(
        &self,
        name: &str,
        protocol: &str,
        flag: &str,
        input: &[u8],
    ) -> io::Result<Option<Vec<u8>>> {
        let dir = self.shared.root.path().join(name.trim_start_matches('/'));
        if !dir.join("HEAD").exists() {
            return Ok(None);
        }
        let mut args = vec!["upload-pack", "--stateless-rpc", flag, "."];
        args.retain(|arg| !arg.is_empty());
        let mut child = Command::from(command(&dir, &args))
            .env("GIT_PROTOCOL", protocol)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().expect("a pipe");
        let mut stdout = child.stdout.take().expect("a pipe");
        let mut printed = Vec::new();
        let write = async move {
            // It may have heard enough.
            let _ = stdin.write_all(input).await;
        };
        let (read, ()) = tokio::join!(stdout.read_to_end(&mut printed), write);
        read?;
        child.wait().await?;
        Ok(Some(printed))
    }

    fn protocol(&self, request: &Request) -> String {
        match self.shared.has(&GitFault::OldProtocol) {
            true => String::new(),
            false => request.protocol.clone(),
        }
    }

    async fn body(&mut self, kind: &str, body: &[u8]) -> io::Result<()> {
        self.head(kind).await?;
        if self.shared.has(&GitFault::Drip) {
            for byte in body {
                self.chunk(&[*byte]).await?;
                tokio::time::sleep(DROP).await;
            }
        } else {
            for part in body.chunks(64 * 1024) {
                self.chunk(part).await?;
            }
        }
        self.stream.write_all(b"0\r\n\r\n").await
    }

    async fn head(&mut self, kind: &str) -> io::Result<()> {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        self.stream.write_all(head.as_bytes()).await
    }

    async fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
        framed.extend_from_slice(bytes);
        framed.extend_from_slice(b"\r\n");
        self.stream.write_all(&framed).await?;
        let sent = bytes.len() as u64;
        self.shared.see(|seen| seen.bytes += sent);
        Ok(())
    }
}

/// Where the first packet of the pack's band begins.
fn pack_start(body: &[u8]) -> Option<usize> {
    let found = body.windows(5).position(|part| part == b"\x01PACK")?;
    found.checked_sub(4)
}

fn banded(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in data.chunks(BAND) {
        out.extend(format!("{:04x}\x01", part.len() + 5).into_bytes());
        out.extend_from_slice(part);
    }
    out
}
