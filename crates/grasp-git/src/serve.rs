//! Fetches: one `git upload-pack` process per request, streamed in both directions and ended
//! with its whole group when nobody wants its answer any more.

use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use crate::advert::Protocol;
use crate::command::{GitCommand, Running};
use crate::error::GitError;
use crate::files::off_the_loop;
use crate::pktline;
use crate::quarantine::CpuLimit;
use crate::repo::Repo;
use crate::wants::{Scanned, WalkLimits, WantRefusal, Wants};

#[derive(Debug, Clone, Copy)]
pub struct ServeLimits {
    /// For the whole response.
    pub deadline: Duration,
    /// How long git waits for a client that neither sends nor reads.
    pub idle: Duration,
    /// Private memory of each process.
    pub max_memory: u64,
    /// Processor time of each process, in proportion to the size of the repository.
    pub cpu: CpuLimit,
    /// Above 0 its processes give way to others.
    pub niceness: i32,
    /// Of the check that refs reach what is asked for.
    pub walk: WalkLimits,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(3_600),
            idle: Duration::from_secs(60),
            max_memory: 4 * 1024 * 1024 * 1024,
            // A clone of 200 MB takes 2 s, and has a quarter of an hour.
            cpu: CpuLimit {
                base: Duration::from_secs(60),
                per_mib: Duration::from_secs(4),
            },
            niceness: 5,
            walk: WalkLimits::default(),
        }
    }
}

const SETTINGS: &[&str] = &[
    "uploadpack.allowFilter=true",
    "uploadpack.allowTipSHA1InWant=true",
    "uploadpack.allowReachableSHA1InWant=true",
    // What clients use. Of the others, `sparse:oid` reads a file that a stranger names and applies it
    // to every path, and `combine` asks each of thousands of filters about every object.
    "uploadpackfilter.allow=false",
    "uploadpackfilter.blob:none.allow=true",
    "uploadpackfilter.blob:limit.allow=true",
    "uploadpackfilter.object:type.allow=true",
    "uploadpackfilter.tree.allow=true",
    "uploadpackfilter.tree.maxDepth=16",
    // As a repack has it, which makes no deltas of larger ones: to look for them at each clone costs
    // four times the rest of it. Deltas that exist are sent as they are.
    "core.bigFileThreshold=16m",
    // Packs are reused, so that a second thread makes no clone quicker.
    "pack.threads=1",
    "pack.windowMemory=128m",
];

/// What a pipe holds.
const CHUNK: usize = 64 * 1024;

/// The response of `git upload-pack`: take [`Served::chunk`] after chunk, or read it to its end
/// and then ask [`Served::finish`].
pub struct Served {
    stdout: Option<ChildStdout>,
    request: Option<JoinHandle<Result<(), GitError>>>,
    running: Running,
    /// Why nothing is given, if the client has not been told.
    refused: Arc<Mutex<Option<WantRefusal>>>,
    deadline: Pin<Box<Sleep>>,
    after: Duration,
}

/// Starts the answer to the body of a `git-upload-pack` request.
pub async fn upload_pack(
    repo: &Repo,
    protocol: Protocol,
    body: impl AsyncRead + Send + Unpin + 'static,
    limits: &ServeLimits,
) -> Result<Served, GitError> {
    let measured = repo.clone();
    let size = off_the_loop(move || measured.size()).await?;
    let mut command = GitCommand::new("upload-pack", repo.dir())
        .settings(SETTINGS)
        .flag("--stateless-rpc")
        .flag("--strict")
        .number("--timeout=", limits.idle.as_secs().max(1))
        .directory()
        .memory(limits.max_memory)
        .cpu_seconds(limits.cpu.seconds(size))
        .priority(limits.niceness);
    command = match protocol {
        Protocol::V0 => command,
        Protocol::V1 => command.env("GIT_PROTOCOL", "version=1"),
        Protocol::V2 => command.env("GIT_PROTOCOL", "version=2"),
    };
    let mut running = command.spawn(Stdio::piped(), Stdio::piped())?;
    let stdin = running.take_stdin();
    let refused: Arc<Mutex<Option<WantRefusal>>> = Arc::default();
    let request = match protocol {
        Protocol::V2 => tokio::spawn(pass_checked(
            body,
            stdin,
            repo.clone(),
            limits.walk,
            Arc::clone(&refused),
        )),
        // Git checks what is asked for by itself.
        Protocol::V0 | Protocol::V1 => tokio::spawn(pass_on(body, stdin)),
    };
    Ok(Served {
        stdout: running.take_stdout(),
        request: Some(request),
        running,
        refused,
        deadline: Box::pin(tokio::time::sleep(limits.deadline)),
        after: limits.deadline,
    })
}

impl Served {
    /// The next part of the response. None at its end, and only if it is whole.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, GitError> {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        match self.read_buf(&mut chunk).await {
            Ok(0) => match self.take_refused() {
                Some(refusal) => Ok(Some(in_words(&refusal))),
                None => self.finish().await.map(|()| None),
            },
            Ok(_) => Ok(Some(chunk.freeze())),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => Err(self.timed_out()),
            Err(error) => Err(GitError::Spawn(error)),
        }
    }

    /// How it ended. An error here means that the response was not whole, or that git refused the
    /// request, which it then told the client in the response.
    pub async fn finish(&mut self) -> Result<(), GitError> {
        // A git that still writes must not wait for us.
        self.stdout = None;
        let timed_out = self.timed_out();
        let finished = tokio::select! {
            finished = self.running.finish() => finished?,
            () = &mut self.deadline => return Err(timed_out),
        };
        let request = self.request.take_if(|request| request.is_finished());
        if let Some(request) = request
            && let Ok(Err(error)) = request.await
        {
            return Err(error);
        }
        match finished.is_ok() {
            true => Ok(()),
            false => Err(finished.into_error()),
        }
    }

    fn take_refused(&self) -> Option<WantRefusal> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.take()
    }

    fn timed_out(&self) -> GitError {
        GitError::TimedOut {
            args: "upload-pack".to_owned(),
            after: self.after,
        }
    }
}

impl AsyncRead for Served {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.deadline.as_mut().poll(cx).is_ready() {
            self.stdout = None;
            return Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()));
        }
        let Some(stdout) = &mut self.stdout else {
            return Poll::Ready(Ok(()));
        };
        ready!(Pin::new(stdout).poll_read(cx, buffer))?;
        Poll::Ready(Ok(()))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(request) = &self.request {
            request.abort();
        }
    }
}

/// Git may leave before it has read everything, which is no fault of the sender.
async fn pass_on(
    mut body: impl AsyncRead + Unpin,
    stdin: Option<ChildStdin>,
) -> Result<(), GitError> {
    let Some(mut stdin) = stdin else {
        return Ok(());
    };
    let mut chunk = Vec::with_capacity(16 * 1024);
    while body.read_buf(&mut chunk).await.map_err(GitError::Body)? > 0 {
        if stdin.write_all(&chunk).await.is_err() {
            return Ok(());
        }
        chunk.clear();
    }
    Ok(())
}

/// The same for a request of protocol 2, whose end git does not see before it is clear that refs
/// reach everything it asks for.
async fn pass_checked(
    mut body: impl AsyncRead + Unpin,
    stdin: Option<ChildStdin>,
    repo: Repo,
    limits: WalkLimits,
    refused: Arc<Mutex<Option<WantRefusal>>>,
) -> Result<(), GitError> {
    let Some(mut stdin) = stdin else {
        return Ok(());
    };
    let refuse = |refusal: WantRefusal| {
        *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        Ok(())
    };
    let mut wants = Wants::default();
    let mut chunk = Vec::with_capacity(16 * 1024);
    while body.read_buf(&mut chunk).await.map_err(GitError::Body)? > 0 {
        let (pass, last) = match wants.scan(&chunk) {
            Scanned::More => (chunk.as_slice(), None),
            Scanned::Ends(at) => chunk
                .split_at_checked(at)
                .map_or((&[][..], None), |(all, _)| match all.split_last() {
                    Some((last, before)) => (before, Some(*last)),
                    None => (all, None),
                }),
            // Git says what it thinks of a request that breaks off.
            Scanned::Malformed => return Ok(()),
            Scanned::TooMany => return refuse(WantRefusal::TooMany),
        };
        if stdin.write_all(pass).await.is_err() {
            return Ok(());
        }
        if let Some(last) = last {
            if let Err(refusal) = wants.check(&repo, &limits).await {
                return refuse(refusal);
            }
            // Git may have left.
            let _ = stdin.write_all(&[last]).await;
            return Ok(());
        }
        chunk.clear();
    }
    Ok(())
}

/// As git says it.
fn in_words(refusal: &WantRefusal) -> Bytes {
    let mut packet = BytesMut::new();
    pktline::put_text(&mut packet, &format!("ERR upload-pack: {refusal}"));
    packet.freeze()
}
