//! Sums that are kept up against sums made anew, and whether anything waits without end. For the
//! simulator and the stories.

use super::items::Items;
use super::link::Link;
use super::peer::Peer;
use super::session::Session;
use super::{Phase, Sync, Timer};
use crate::ticket::RelayNo;

impl Sync {
    pub fn audit(&self) -> Result<(), String> {
        let trying = |peer: &&Peer| !matches!(peer.link, Link::Down { .. });
        if self.peers.values().filter(trying).count() != self.connected {
            return Err("connections are miscounted".to_owned());
        }
        self.targets.audit()?;
        self.downloads.audit()?;
        let mut leading = Items::default();
        let mut batches = 0;
        for (relay, peer) in &self.peers {
            self.audit_link(*relay)?;
            if let Some(session) = peer.session() {
                self.audit_session(*relay, peer, session)?;
                let leads = session.batches.values().map(|batch| &batch.leads);
                leads.for_each(|items| leading.add(items));
                batches += session.batches.len();
            }
        }
        if leading != self.leading {
            return Err("who leads is out of date".to_owned());
        }
        let reminded = self.agenda.has(Timer::Announcements);
        if self.phase == Phase::Running && self.sought.is_stale() && !reminded {
            return Err("announcements are stale and never compared".to_owned());
        }
        if batches != self.batches.len() {
            return Err("batches are miscounted".to_owned());
        }
        Ok(())
    }

    /// Every state has a deadline or an effect in flight.
    fn audit_link(&self, relay: RelayNo) -> Result<(), String> {
        let Some(known) = self.targets.relays.get(relay) else {
            return Err(format!("{relay:?} is nobody's"));
        };
        let reminded = self.agenda.has(Timer::Link(relay));
        if !reminded && !known.is_empty() && self.phase != Phase::Stopping {
            return Err(format!("{} is never looked at again", known.url));
        }
        Ok(())
    }

    fn audit_session(&self, relay: RelayNo, peer: &Peer, session: &Session) -> Result<(), String> {
        let Some(known) = self.targets.relays.get(relay) else {
            return Ok(());
        };
        let url = &known.url;
        let waits = session.subs.busy().next().is_some();
        let pauses = peer.paused.is_some() || peer.not_before.is_some();
        if (waits || pauses) && !self.agenda.has(Timer::Work(relay)) {
            return Err(format!("requests at {url} have no end"));
        }
        for (no, batch) in &session.batches {
            let of_batch = |batch| batch == Some(*no);
            let open = session.subs.busy();
            let open = open.filter(|(_, sub)| of_batch(sub.batch()));
            if open.count() != batch.running {
                return Err(format!("requests of {no:?} at {url} are miscounted"));
            }
            let idle = batch.is_asked() && self.downloads.open(*no) == 0;
            if idle {
                return Err(format!("{no:?} at {url} is over and not ended"));
            }
        }
        let idle = !waits;
        let work = !session.batches.is_empty() || !known.missing().is_empty();
        let elsewhere = known.missing().overlaps(&self.leading) || !self.downloads.is_empty();
        if idle && work && !pauses && !elsewhere && self.phase != Phase::Stopping {
            return Err(format!(
                "nothing is asked of {url} though something is missing: {:?}, {:?}, {:?}",
                known.missing(),
                session.batches,
                peer.capabilities,
            ));
        }
        Ok(())
    }
}
