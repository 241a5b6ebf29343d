//! One fetch from beginning to end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use grasp_core::git::ObjectId;
use grasp_core::hunt::io::{FetchEnd, Fetched};
use tokio::time::{Instant, timeout};

use super::advert::{self, Advert, Named, Server};
use super::answer::{self, Answer, Ends};
use super::haves::haves;
use super::meter::{Counted, Stop, Watched};
use super::packets::{Packets, SideBand};
use super::request::{self, PackRequest};
use super::slices::Slices;
use super::transport::{ADVERT_TYPE, NoReply, Question, RESULT_TYPE, Reply, Transport, Version};
use super::{Extent, FetchLimits, Watch, tell_refused};
use crate::error::GitError;
use crate::files::off_the_loop;
use crate::quarantine::{PackLimits, Quarantine};
use crate::repo::Repo;

/// Packs that one fetch asks for. The first brings all that refs name; the others are for objects
/// that the server did not show, and for refs that it shows but does not have.
const MAX_PACKS: usize = 8;

pub(super) struct Run<'a, T, W> {
    pub repo: &'a Repo,
    extent: Extent<'a>,
    transport: &'a mut T,
    pub watch: &'a W,
    pub limits: &'a FetchLimits,
    began: Instant,
    bytes: Arc<AtomicU64>,
    packs: usize,
    got: Vec<ObjectId>,
    here: Vec<ObjectId>,
    lacking: Vec<ObjectId>,
}

/// What became of one question for a pack.
pub(super) enum Brought {
    All,
    /// Without this one the others may come, if it is said which.
    Refused(Option<ObjectId>),
    /// The server does not have all that these reach.
    Nothing,
}

/// A pack that begins.
pub(super) struct Coming<B> {
    pub ends: Ends,
    pub pack: SideBand<Counted<B>>,
}

/// The server does not have something, or does not give it; mostly it says which.
pub(super) struct Refused(pub Option<ObjectId>);

type Body<T> = Packets<Counted<<T as Transport>::Body>>;

impl<'a, T: Transport, W: Watch> Run<'a, T, W> {
    pub fn new(
        repo: &'a Repo,
        extent: Extent<'a>,
        transport: &'a mut T,
        watch: &'a W,
        limits: &'a FetchLimits,
    ) -> Self {
        Self {
            repo,
            extent,
            transport,
            watch,
            limits,
            began: Instant::now(),
            bytes: Arc::default(),
            packs: 0,
            got: Vec::new(),
            here: Vec::new(),
            lacking: Vec::new(),
        }
    }

    pub async fn carry_out(mut self, wants: &[ObjectId]) -> Fetched {
        let end = match self.bring_all(wants).await {
            Ok(()) => FetchEnd::Answered,
            Err(end) => end,
        };
        Fetched {
            got: self.got,
            here: self.here,
            lacking: self.lacking,
            bytes: self.bytes.load(Ordering::Relaxed),
            requests: self.transport.requests(),
            end,
            problem: None,
        }
    }

    async fn bring_all(&mut self, wants: &[ObjectId]) -> Result<(), FetchEnd> {
        let wants: BTreeSet<ObjectId> = wants.iter().copied().collect();
        let (here, missing) = self.look(wants.into_iter().collect()).await?;
        self.here = here;
        if missing.is_empty() {
            return Ok(());
        }
        let wanted = missing.iter().copied().collect();
        let patience = self.limits.patience;
        let discovered = timeout(patience, self.discover(&wanted)).await;
        let (server, named) = discovered.unwrap_or(Err(FetchEnd::TooSlow))?;
        let is_tip = |id: &ObjectId| {
            let peeled = server.version == Version::V2 && named.peeled.contains(id);
            named.tips.contains(id) || peeled
        };
        let (tips, others): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_tip);
        self.bring_tips(&server, tips).await?;
        self.bring_others(&server, others).await
    }

    /// What is here, and the rest. Where something is lost, a tip that is here proves nothing.
    async fn look(&self, wants: Vec<ObjectId>) -> Result<(Vec<ObjectId>, Vec<ObjectId>), FetchEnd> {
        if matches!(self.extent, Extent::Everything) {
            return Ok((Vec::new(), wants));
        }
        let repo = self.repo.clone();
        ours(move || {
            let objects = repo.objects()?;
            let (mut here, mut missing) = (Vec::new(), Vec::new());
            for id in wants {
                match objects.contains(&id)? {
                    true => here.push(id),
                    false => missing.push(id),
                }
            }
            Ok((here, missing))
        })
        .await
    }

    async fn discover(&mut self, wanted: &BTreeSet<ObjectId>) -> Result<(Server, Named), FetchEnd> {
        let limits = self.limits.advert;
        let mut packets = self.ask(Question::Advert, ADVERT_TYPE).await?;
        let advert = advert::read(&mut packets, wanted, limits).await?;
        packets.finish().await;
        match advert {
            Advert::V0(server, _) if !server.features.contains(&"side-band-64k") => {
                Err(FetchEnd::Unreachable)
            }
            Advert::V0(server, named) => Ok((server, named)),
            Advert::V2(server) => {
                let question = Question::UploadPack {
                    body: request::ls_refs(&server),
                    version: Version::V2,
                };
                let mut packets = self.ask(question, RESULT_TYPE).await?;
                let named = advert::read_refs(&mut packets, wanted, limits).await?;
                packets.finish().await;
                Ok((server, named))
            }
        }
    }

    /// All at once. A server that shows what it does not have says which, and is asked for the
    /// rest.
    async fn bring_tips(
        &mut self,
        server: &Server,
        mut tips: Vec<ObjectId>,
    ) -> Result<(), FetchEnd> {
        while !tips.is_empty() && self.packs < MAX_PACKS {
            match self.bring(server, &tips).await? {
                Brought::All => self.got.append(&mut tips),
                Brought::Nothing => self.lacking.append(&mut tips),
                Brought::Refused(which) => {
                    let place = tips.iter().position(|tip| Some(*tip) == which);
                    let place = place.ok_or(FetchEnd::Failed)?;
                    self.lacking.push(tips.remove(place));
                }
            }
        }
        Ok(())
    }

    /// One by one, because one that is not there would spoil the others. Whatever a server says
    /// against one of them, it does not have it for us.
    async fn bring_others(
        &mut self,
        server: &Server,
        others: Vec<ObjectId>,
    ) -> Result<(), FetchEnd> {
        if !server.any_id {
            self.lacking.extend(others);
            return Ok(());
        }
        // Some may have come with the first.
        let (came, others) = match self.packs {
            0 => (Vec::new(), others),
            _ => self.look(others).await?,
        };
        self.got.extend(came);
        for id in others {
            if self.packs >= MAX_PACKS {
                break;
            }
            match self.bring(server, &[id]).await? {
                Brought::All => self.got.push(id),
                Brought::Refused(_) | Brought::Nothing => self.lacking.push(id),
            }
        }
        Ok(())
    }

    async fn bring(&mut self, server: &Server, wants: &[ObjectId]) -> Result<Brought, FetchEnd> {
        self.packs += 1;
        let Extent::Missing(from, backing) = self.extent else {
            return self.bring_whole(server, wants).await;
        };
        let (repo, at) = (self.repo.clone(), from.clone());
        match ours(move || Slices::find(&repo, &at, backing)).await? {
            Some(slices) if server.slices => self.bring_slice(server, wants, slices).await,
            found => {
                let brought = self.bring_whole(server, wants).await;
                let cut = matches!(brought, Err(FetchEnd::Cut { .. }));
                if cut && found.is_none() && server.slices {
                    let (repo, at) = (self.repo.clone(), from.clone());
                    ours(move || Slices::begin(&repo, &at, backing)).await?;
                }
                brought
            }
        }
    }

    async fn bring_whole(
        &mut self,
        server: &Server,
        wants: &[ObjectId],
    ) -> Result<Brought, FetchEnd> {
        let request = PackRequest {
            wants: wants.to_vec(),
            haves: match self.extent {
                Extent::Missing(..) => self.haves(&[]).await?,
                Extent::Everything => self.got.clone(),
            },
            slice: None,
        };
        let coming = match self.begin(server, &request).await? {
            Err(Refused(which)) => return Ok(Brought::Refused(which)),
            // Its own history ends there.
            Ok(coming) if !coming.ends.shallow.is_empty() => return Ok(Brought::Nothing),
            Ok(coming) => coming,
        };
        let limits = self.pack_limits();
        let repo = self.repo.clone();
        let alone = matches!(self.extent, Extent::Everything) && self.got.is_empty();
        let begin = match alone {
            true => Quarantine::alone,
            false => Quarantine::begin,
        };
        let mut quarantine = ours(move || begin(&repo)).await?;
        let pack = self.watched(coming.pack);
        let received = quarantine.receive_pack(pack, &limits).await;
        self.watch.arrived();
        let deadline = limits.deadline;
        let connected = match (received, self.extent) {
            (Err(error), _) => Err(error),
            (Ok(_), Extent::Missing(..)) => quarantine.check_connected(wants, deadline).await,
            (Ok(_), Extent::Everything) => {
                let checked = quarantine.check_connected_to(&self.got, wants, deadline);
                checked.await
            }
        };
        tell_refused(self.watch, &connected);
        // Also a refused one: removing what it holds takes the disk its time.
        let migrated = ours(move || {
            connected?;
            quarantine.migrate()
        });
        migrated.await.map(|()| Brought::All)
    }

    /// Asks for a pack and reads up to its beginning.
    pub(super) async fn begin(
        &mut self,
        server: &Server,
        request: &PackRequest,
    ) -> Result<Result<Coming<T::Body>, Refused>, FetchEnd> {
        let question = Question::UploadPack {
            body: request.encode(server),
            version: server.version,
        };
        let left = self.limits.patience.min(self.time_left());
        let beginning = async {
            let mut packets = self.ask(question, RESULT_TYPE).await?;
            match answer::read(&mut packets, server.version).await? {
                Answer::Refused(which) => Ok(Err(Refused(which))),
                Answer::Pack { ends, first } => {
                    let first = packets.first_of_pack(first).await?;
                    let pack = packets.into_side_band(first);
                    Ok(Ok(Coming { ends, pack }))
                }
            }
        };
        let begun = timeout(left, beginning).await;
        begun.unwrap_or(Err(FetchEnd::TooSlow))
    }

    async fn ask(&mut self, question: Question, kind: &str) -> Result<Body<T>, FetchEnd> {
        let reply = self
            .transport
            .ask(question)
            .await
            .map_err(|none| match none {
                NoReply::Unreachable => FetchEnd::Unreachable,
                NoReply::Forbidden => FetchEnd::Forbidden,
                NoReply::TooSlow => FetchEnd::TooSlow,
            })?;
        judge(&reply, kind)?;
        let bytes = Arc::clone(&self.bytes);
        Ok(Packets::new(Counted::new(
            reply.body,
            bytes,
            with_frames(self.limits.max_bytes),
        )))
    }

    pub(super) async fn haves(&self, waiting: &[ObjectId]) -> Result<Vec<ObjectId>, FetchEnd> {
        let repo = self.repo.clone();
        let (waiting, brought) = (waiting.to_vec(), self.got.clone());
        ours(move || haves(&repo, &waiting, &brought)).await
    }

    pub(super) fn pack_limits(&self) -> PackLimits {
        let used = self.bytes.load(Ordering::Relaxed);
        let pack = self.limits.pack;
        PackLimits {
            max_bytes: pack
                .max_bytes
                .min(self.limits.max_bytes.saturating_sub(used)),
            deadline: pack.deadline.min(self.time_left()),
            ..pack
        }
    }

    fn time_left(&self) -> Duration {
        self.limits.deadline.saturating_sub(self.began.elapsed())
    }

    pub(super) fn watched<R>(&self, pack: R) -> Watched<'a, R, W> {
        Watched::new(pack, self.limits.pace, self.watch)
    }
}

fn judge<B>(reply: &Reply<B>, kind: &str) -> Result<(), FetchEnd> {
    match reply.status {
        // Also where files are served, and no git.
        200 if reply.content_type != kind => Err(FetchEnd::Unreachable),
        200 => Ok(()),
        401 | 403 | 404 | 410 => Err(FetchEnd::Absent),
        429 | 503 => Err(FetchEnd::Busy(reply.retry_after)),
        400.. => Err(FetchEnd::Failed),
        _ => Err(FetchEnd::Unreachable),
    }
}

/// Whose fault it is.
pub(super) fn end_of(error: &GitError) -> FetchEnd {
    match error {
        GitError::Body(error) => Stop::of(error).unwrap_or(FetchEnd::Spoiled),
        _ if error.is_no_space() => FetchEnd::DiskLow,
        // Another fetch from this server adds to what is kept of it.
        GitError::Busy(_) => FetchEnd::Stopped,
        _ if error.is_too_large() || error.is_timeout() => FetchEnd::Cut { kept: false },
        _ if error.is_client_fault() => FetchEnd::Spoiled,
        _ => FetchEnd::Ours,
    }
}

/// Work of our own on the disk.
pub(super) async fn ours<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, GitError> + Send + 'static,
) -> Result<R, FetchEnd> {
    off_the_loop(work).await.map_err(|error| end_of(&error))
}

/// What a pack of so many bytes may take on the wire, with frames and a word beside it.
fn with_frames(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 8).saturating_add(256 * 1024)
}
