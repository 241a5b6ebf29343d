//! A push: its commands are read and shown to the core; if it may happen, its pack goes through a
//! quarantine into the repository; then the core moves the refs and says how it ended.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use futures_util::stream;
use grasp_core::git::{ObjectId, Refs};
use grasp_core::push::{self, Backing, Decision, PushRefusal};
use grasp_core::{Network, RepoId};
use grasp_git::{
    CommandLimits, CommandReader, GitError, PackLimits, PushHead, Quarantine, Repo, Report, pktline,
};
use tokio::io::AsyncReadExt as _;
use tokio::sync::{mpsc, oneshot};

use super::body::{self, Reader, TooSlow, UnknownEncoding};
use super::busy::{Busy, Turn};
use super::{GitSite, MAX_REQUEST, git_response, off_the_loop};
use crate::crash;
use crate::driver::{self, Awaited, PushReply, PushRequest};
use crate::hosting::heads_and_tags;
use crate::hosting::room::{Full, Room};

const RESULT: &str = "application/x-git-receive-pack-result";
/// For the list of commands, however slowly it comes: 20,000 of them are 4 MiB.
const HEAD: Duration = Duration::from_secs(60);
/// For so much of it, which is all of it for most: nobody has judged yet whether the push is worth
/// its slot.
const SHORT_HEAD: Duration = Duration::from_secs(20);
const SHORT_HEAD_BYTES: usize = 64 * 1024;
/// While the objects are checked, so that nothing on the way takes the silence for death.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Refs and store take milliseconds; a disk in trouble takes longer.
const RELEASE: Duration = Duration::from_secs(120);

impl GitSite {
    pub(super) async fn push(
        self: &Arc<Self>,
        id: RepoId,
        repo: Repo,
        turn: Turn,
        network: Option<Network>,
        request: Request<Body>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let most = MAX_REQUEST.saturating_add(self.limits.push_bytes);
        let mut body = match body::reader(&parts.headers, body, most, self.limits.patience) {
            Ok(body) => body,
            Err(UnknownEncoding) => return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response(),
        };
        let head = tokio::select! {
            head = read_head(&mut body) => head,
            () = turn.evicted() => Err(HeadError::Evicted),
        };
        let head = match head {
            Ok(head) => head,
            Err(HeadError::Evicted) => {
                self.metrics.push("busy");
                return Busy::Address.into_response();
            }
            Err(HeadError::Refused(refusal)) => {
                self.metrics.push("malformed");
                drop(turn);
                body::drain(body).await;
                return (StatusCode::BAD_REQUEST, format!("{refusal}\n")).into_response();
            }
            Err(HeadError::Lost(error)) => {
                self.metrics.push("lost");
                return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response();
            }
        };
        turn.received();
        if head.commands.is_empty() {
            drop(turn);
            return asked_only(&head, body).await;
        }
        let pushing = Pushing {
            site: Arc::clone(self),
            id,
            repo,
            network,
            head,
            body,
            turn,
        };
        pushing.respond()
    }
}

/// A bare `0000` asks whether it may push at all; git sends one before a large push.
async fn asked_only(head: &PushHead, mut body: Reader) -> Response<Body> {
    let more = body.read(&mut [0]).await.unwrap_or(0) > 0 || !head.rest.is_empty();
    if more {
        body::drain(body).await;
        return (StatusCode::BAD_REQUEST, "the list of refs is empty\n").into_response();
    }
    git_response(RESULT, Body::empty())
}

/// Why a push's objects were not taken.
#[derive(Debug, thiserror::Error)]
enum NotTaken {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Full(#[from] Full),
    #[error(transparent)]
    Busy(#[from] Busy),
}

/// Why the bytes of a push are not waited for any more.
#[derive(Debug, thiserror::Error)]
#[error("others with fewer pushes under way came first, try again in a moment")]
struct Evicted;

enum HeadError {
    Refused(grasp_git::Refusal),
    Lost(io::Error),
    /// Others hold fewer slots.
    Evicted,
}

async fn read_head(body: &mut Reader) -> Result<PushHead, HeadError> {
    let started = tokio::time::Instant::now();
    let mut reader = CommandReader::new(CommandLimits::default());
    let mut chunk = vec![0; 16 * 1024];
    let mut whole = 0;
    loop {
        let after = match whole < SHORT_HEAD_BYTES {
            true => SHORT_HEAD,
            false => HEAD,
        };
        let read = tokio::time::timeout_at(started + after, body.read(&mut chunk)).await;
        let late = |_| Err(io::ErrorKind::TimedOut.into());
        let read = read.unwrap_or_else(late).map_err(HeadError::Lost)?;
        if read == 0 {
            return Err(HeadError::Refused(reader.end()));
        }
        whole += read;
        let bytes = chunk.get(..read).unwrap_or_default();
        if let Some(head) = reader.feed(bytes).map_err(HeadError::Refused)? {
            return Ok(head);
        }
    }
}

/// One push under way.
struct Pushing {
    site: Arc<GitSite>,
    id: RepoId,
    repo: Repo,
    network: Option<Network>,
    head: PushHead,
    body: Reader,
    turn: Turn,
}

impl Pushing {
    /// The work goes on in a task of its own: once the objects are in, a client that goes away
    /// changes nothing any more.
    fn respond(self) -> Response<Body> {
        let (sender, receiver) = mpsc::channel::<Bytes>(4);
        tokio::spawn(async move {
            let started = Instant::now();
            let (site, id) = (Arc::clone(&self.site), self.id.clone());
            let metrics = Arc::clone(&site.metrics);
            let with_words = self.head.capabilities.side_band_64k;
            let mut work = std::pin::pin!(self.run());
            let report = loop {
                match tokio::time::timeout(KEEP_ALIVE, &mut work).await {
                    Ok(report) => break report,
                    Err(_) if with_words => drop(sender.try_send(pktline::keep_alive())),
                    Err(_) => {}
                }
            };
            metrics.git("push", started.elapsed().as_secs_f64());
            // Nobody is there to be told any more.
            let _ = sender.send(report).await;
            drop(sender);
            site.repositories.look_after(&id);
        });
        let chunks = stream::unfold(receiver, |mut receiver| async {
            let chunk = receiver.recv().await?;
            Some((Ok::<_, io::Error>(chunk), receiver))
        });
        git_response(RESULT, Body::from_stream(chunks))
    }

    async fn run(mut self) -> Bytes {
        let result = self.carry_out().await;
        let report = self.report(&result);
        body::drain(self.into_rest()).await;
        crash::before("report");
        report
    }

    /// Gives its place back before a refused rest is thrown away, and all that it read.
    fn into_rest(self) -> Reader {
        self.body
    }

    async fn carry_out(&mut self) -> Result<(), PushRefusal> {
        let commands = self.commands()?;
        let (reply, decided, reported) = replies(self.site.driver.clone());
        let present = self.present().await;
        let present = present.map_err(|error| self.failed(&error))?;
        self.site.driver.push(PushRequest {
            repo: self.id.clone(),
            commands,
            present,
            network: self.network,
            reply,
        });
        let gone = |_| PushRefusal::Failed;
        let (awaited, decision) = decided.await.map_err(gone)?;
        let wanted = match decision {
            Decision::Refuse(refusal) => return Err(refusal),
            Decision::KeepObjects(_) => Some(Backing::State),
            Decision::Take(plan) => plan.wants_objects().then(|| plan.backing()),
        };
        let taken = match wanted {
            Some(backing) => match self.turn.judged(backing) {
                Ok(()) => self.take_objects(backing).await,
                Err(busy) => Err(busy.into()),
            },
            None => Ok(()),
        };
        awaited.taken(taken.map_err(|error| self.explain(&error)));
        match tokio::time::timeout(RELEASE, reported).await {
            Ok(Ok(result)) => result,
            _ => Err(PushRefusal::Failed),
        }
    }

    fn commands(&self) -> Result<Vec<push::Command>, PushRefusal> {
        let command = |command: &grasp_git::Command| {
            let name = command.target.clone();
            let name = name.ok_or_else(|| PushRefusal::Namespace(command.name.clone()))?;
            let new = command.new;
            Ok(push::Command { name, new })
        };
        self.head.commands.iter().map(command).collect()
    }

    /// Borrows nothing: a body that is being read cannot be shared between threads.
    fn present(&self) -> impl Future<Output = Result<Refs, GitError>> + use<> {
        let repo = self.repo.clone();
        off_the_loop(&self.turn, move || Ok(heads_and_tags(&repo.refs()?.ids())))
    }

    /// After this the repository has every object that the commands name, with all that they need.
    async fn take_objects(&mut self, backing: Backing) -> Result<(), NotTaken> {
        let room = self.room(backing).await?;
        let limits = PackLimits {
            max_bytes: self.site.limits.push_bytes.min(room.left()),
            deadline: self.site.limits.timeout,
            niceness: niceness(backing),
            ..PackLimits::default()
        };
        let repo = self.repo.clone();
        let mut quarantine = off_the_loop(&self.turn, move || Quarantine::begin(&repo)).await?;
        let evicted = self.turn.evicted();
        let fill = self.fill(&mut quarantine, &room, &limits);
        let filled = tokio::select! {
            filled = in_time(limits.deadline, fill) => filled,
            () = evicted => Err(GitError::Body(io::Error::other(Evicted))),
        };
        let no_room = match &filled {
            Err(error)
                if error.is_too_large() && limits.max_bytes < self.site.limits.push_bytes =>
            {
                Some(room.too_little())
            }
            _ => room.full(),
        };
        // Also a refused one: removing what it holds takes the disk its time.
        let adopted = off_the_loop(&self.turn, move || {
            filled?;
            crash::before("adopt");
            let adopted = quarantine.migrate();
            crash::after("adopt");
            adopted
        });
        match (adopted.await, no_room) {
            (Ok(()), _) => room.keep(),
            (Err(_), Some(full)) => return Err(full.into()),
            (Err(error), None) => return Err(error.into()),
        }
        Ok(())
    }

    async fn fill(
        &mut self,
        quarantine: &mut Quarantine,
        room: &Room,
        limits: &PackLimits,
    ) -> Result<(), GitError> {
        let tips = self.head.commands.iter().filter_map(|command| command.new);
        let tips: Vec<ObjectId> = tips.collect();
        let rest = std::mem::take(&mut self.head.rest);
        let mut pack = io::Cursor::new(rest).chain(&mut self.body);
        let mut first = [0];
        // Only deletions, or nothing new: then no pack follows.
        if pack.read(&mut first).await.map_err(GitError::Body)? > 0 {
            let pack = room.count(io::Cursor::new(first).chain(pack));
            let received = quarantine.receive_pack(pack, limits).await?;
            self.site.metrics.git_bytes_in.inc_by(received.bytes);
        }
        self.turn.received();
        quarantine.check_connected(&tips, limits.deadline).await
    }

    /// Its part of what the repository may still grow by. Borrows nothing, as above.
    fn room(&self, backing: Backing) -> impl Future<Output = Result<Room, NotTaken>> + use<> {
        let (site, id) = (Arc::clone(&self.site), self.id.clone());
        let (repo, network) = (self.repo.clone(), self.network);
        let enter = off_the_loop(&self.turn, move || {
            Ok(site.rooms.enter(&id, repo.size()?, backing, network))
        });
        async move { Ok(enter.await??) }
    }

    fn explain(&self, why: &NotTaken) -> String {
        match why {
            NotTaken::Git(error) if error.is_no_space() => {
                self.failed(error);
                Full::Disk.to_string()
            }
            NotTaken::Git(GitError::Body(error)) if TooSlow::is_cause_of(error) => {
                format!("the push was {error}")
            }
            NotTaken::Git(GitError::Body(error)) if is_evicted(error) => error.to_string(),
            NotTaken::Git(error) if !error.is_client_fault() => {
                self.failed(error);
                "the server could not take them, try again later".to_owned()
            }
            _ => {
                tracing::info!(repo = %self.id, %why, "what was pushed is refused");
                why.to_string()
            }
        }
    }

    fn failed(&self, error: &GitError) -> PushRefusal {
        tracing::error!(repo = %self.id, %error, "a push failed");
        PushRefusal::Failed
    }

    fn report(&self, result: &Result<(), PushRefusal>) -> Bytes {
        let refused = result.as_ref().err().map(ToString::to_string);
        let unpack_error = match result {
            Err(PushRefusal::Objects(why)) => Some(why.as_str()),
            _ => None,
        };
        let names = self.head.commands.iter();
        let report = Report {
            unpack_error,
            refs: names.map(|command| command.name.as_str()).collect(),
            refused: refused.as_deref(),
            messages: refused.as_deref().into_iter().collect(),
        };
        report.encode(&self.head.capabilities)
    }
}

fn is_evicted(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Evicted>())
}

/// Where processors are scarce, every push makes way for the server itself, and what nobody has
/// signed for makes way for the rest.
fn niceness(backing: Backing) -> i32 {
    match backing {
        Backing::State => 5,
        Backing::PullRequests => 10,
        Backing::None => 15,
    }
}

async fn in_time<T>(
    after: Duration,
    work: impl Future<Output = Result<T, GitError>>,
) -> Result<T, GitError> {
    let late = |_| {
        let args = "push".to_owned();
        Err(GitError::TimedOut { args, after })
    };
    let done = tokio::time::timeout(after, work).await;
    done.unwrap_or_else(late)
}

type Decided = oneshot::Receiver<(Awaited, Decision)>;
type Reported = oneshot::Receiver<Result<(), PushRefusal>>;

fn replies(driver: driver::Handle) -> (PushReply, Decided, Reported) {
    let (decision, decided) = oneshot::channel();
    let (report, reported) = oneshot::channel();
    let reply = PushReply {
        decision: Some(decision),
        report,
        driver,
    };
    (reply, decided, reported)
}
