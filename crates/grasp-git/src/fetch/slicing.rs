//! The next slice of a large history, and the whole when nothing is missing any more.

use grasp_core::git::ObjectId;
use grasp_core::hunt::io::FetchEnd;

use super::advert::Server;
use super::request::{PackRequest, SliceRequest};
use super::run::{Brought, Coming, Refused, Run, end_of, ours};
use super::slices::Slices;
use super::transport::Transport;
use super::{Watch, tell_refused};
use crate::quarantine::Quarantine;

impl<T: Transport, W: Watch> Run<'_, T, W> {
    pub(super) async fn bring_slice(
        &mut self,
        server: &Server,
        wants: &[ObjectId],
        slices: Slices,
    ) -> Result<Brought, FetchEnd> {
        let request = PackRequest {
            wants: wants.to_vec(),
            haves: self.haves(slices.tips()).await?,
            slice: Some(SliceRequest {
                depth: slices.next_depth(),
                shallow: slices.shallow().to_vec(),
            }),
        };
        let coming = match self.begin(server, &request).await? {
            Err(Refused(which)) => return Ok(Brought::Refused(which)),
            Ok(coming) => coming,
        };
        let more = !coming.ends.shallow.is_empty();
        let (slices, new) = self.keep_slice(slices, wants, coming).await?;
        self.watch.arrived();
        let limits = self.limits.pack;
        if more && new {
            return Err(FetchEnd::Cut { kept: true });
        }
        match slices.are_whole(self.repo, wants, &limits).await {
            true => self.unite(slices, wants).await?,
            // A server that has no more to send would be asked for it without end.
            false if !new || slices.are_exhausted() => slices.give_up().await?,
            false => return Err(FetchEnd::Cut { kept: true }),
        }
        Ok(Brought::All)
    }

    /// Where the disk has no room for a copy, the slices wait.
    async fn unite(&self, slices: Slices, wants: &[ObjectId]) -> Result<(), FetchEnd> {
        let (slices, size) = ours(move || slices.size().map(|size| (slices, size))).await?;
        self.watch.copies(size)?;
        let limits = self.limits.pack;
        let united = slices.unite(self.repo, wants, size, &limits, self.watch);
        united.await
    }

    /// Whether it brought anything that was not there.
    async fn keep_slice(
        &mut self,
        mut slices: Slices,
        wants: &[ObjectId],
        coming: Coming<T::Body>,
    ) -> Result<(Slices, bool), FetchEnd> {
        let (repo, dir) = (self.repo.clone(), slices.dir().to_owned());
        let mut quarantine = ours(move || Quarantine::leaning_on(&repo, &dir)).await?;
        let Coming { ends, pack } = coming;
        let pack = self.watched(pack);
        let received = quarantine.receive_slice(pack, &self.pack_limits()).await;
        tell_refused(self.watch, &received);
        let (tips, max_bytes) = (wants.to_vec(), self.limits.max_bytes);
        let kept = ours(move || match received {
            Ok(received) => {
                let new = quarantine.move_packs_to(slices.dir())?;
                match slices.keep(&tips, &ends, received.bytes, max_bytes)? {
                    true => Ok(Ok((slices, new))),
                    false => Ok(Err(FetchEnd::Cut { kept: false })),
                }
            }
            Err(error) => match end_of(&error) {
                FetchEnd::Cut { .. } => Ok(Err(FetchEnd::Cut {
                    kept: slices.shrink()?,
                })),
                end => Ok(Err(end)),
            },
        });
        kept.await?
    }
}
