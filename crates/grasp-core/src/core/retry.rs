//! What git or the disk has refused is asked again after a pause.

use std::collections::BTreeSet;
use std::time::Duration;

use super::checking::RootsCursor;
use super::{Change, Core, Errand, GitTask};
use crate::clock::Mono;
use crate::facts::Facts;
use crate::id::{EventId, Pubkey};
use crate::nip34::RepoId;

/// Pause before something is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// Retries of one turn; what else is due then comes in the next one, at once.
const AT_ONCE: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Again {
    /// Everything that waits for this repository, the repository itself first.
    Repo(RepoId),
    /// Which state it has.
    Record(RepoId),
    /// Whether its disk and the store agree.
    Check(RepoId),
    /// The next step of its check.
    CheckStep(RepoId),
    /// What else was served from a repository that is gone.
    CheckGone(RepoId, RootsCursor),
    /// A repository that should be gone, and its held announcement with it.
    Discard(Discard),
    /// A tip that should be gone.
    Tip(RepoId, EventId),
    /// A tip that should be there.
    SetTip(RepoId, EventId),
    /// Tips of an author whose events may have gone, from that one on.
    SweepTips(Pubkey, EventId),
    /// A held event whose turn had come.
    Event(EventId),
    /// The row of an event that is held no longer.
    Unhold(EventId),
    /// Lost data that was looked for in vain.
    Seek(RepoId),
}

impl Again {
    /// What it takes of one turn. A step of a longer job takes a turn of its own.
    fn cost(&self) -> usize {
        match self {
            Self::CheckStep(_) | Self::CheckGone(..) | Self::SweepTips(..) => AT_ONCE,
            _ => 1,
        }
    }
}

/// A repository on its way out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Discard {
    pub repo: RepoId,
    /// It was served once: put aside, not destroyed.
    pub retire: bool,
    /// Forgotten when the repository is gone, so that a crash leaves none without its event.
    pub unhold: Option<EventId>,
}

impl Discard {
    pub fn task(&self) -> GitTask {
        if self.retire {
            GitTask::Retire
        } else {
            GitTask::Remove
        }
    }
}

/// Each thing once, however often it failed.
#[derive(Debug, Default)]
pub struct Retries {
    due: BTreeSet<(Mono, Again)>,
    waiting: BTreeSet<Again>,
}

impl Retries {
    pub fn next(&self) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }

    fn add(&mut self, at: Mono, again: Again) {
        if self.waiting.insert(again.clone()) {
            self.due.insert((at, again));
        }
    }

    fn take(&mut self, now: Mono) -> Option<Again> {
        let (at, _) = self.due.first()?;
        if *at > now {
            return None;
        }
        let (_, again) = self.due.pop_first()?;
        self.waiting.remove(&again);
        Some(again)
    }
}

impl Core {
    pub(super) fn retry_later(&mut self, again: Again) {
        self.retry_after(RETRY, again);
    }

    pub(super) fn retry_after(&mut self, pause: Duration, again: Again) {
        self.retries.add(self.now.mono + pause, again);
    }

    pub(super) fn retry(&mut self, facts: &dyn Facts) {
        let mut left = AT_ONCE;
        while left > 0
            && let Some(again) = self.retries.take(self.now.mono)
        {
            left = left.saturating_sub(again.cost());
            match again {
                Again::Repo(repo) => {
                    if self.registry.is_hosted(&repo) {
                        self.create(&repo);
                    }
                }
                Again::Record(repo) => self.record(repo),
                Again::Check(repo) => self.check(repo),
                Again::CheckStep(repo) => self.check_step(&repo, facts),
                Again::CheckGone(repo, from) => self.check_gone(repo, from, facts),
                Again::Discard(discard) => self.discard(discard),
                Again::Tip(repo, id) => {
                    if !self.tips.is_at(&id, &repo) {
                        self.remove_tip(&repo, id);
                    }
                }
                Again::SetTip(repo, id) => self.set_tips_again(&repo, vec![id], facts),
                Again::SweepTips(author, from) => self.sweep_tips(author, from, facts),
                Again::Event(id) => {
                    self.reconsider(&id, facts);
                }
                Again::Unhold(id) => self.unhold(id),
                Again::Seek(repo) => self.seek_again(&repo, facts),
            }
        }
    }

    fn record(&mut self, repo: RepoId) {
        // A newer one may be on its way to the disk.
        if self.is_settling(&repo) {
            return self.retry_later(Again::Record(repo));
        }
        let applied = self.registry.applied(&repo);
        if let Some((rank, since)) = applied.zip(self.registry.refs_since(&repo)) {
            let applied = Change::Applied {
                repo: repo.clone(),
                rank,
                since,
            };
            self.commit(vec![applied], Errand::Recorded(repo));
        }
    }

    pub(super) fn on_recorded(&mut self, repo: RepoId, recorded: bool, facts: &dyn Facts) {
        if !recorded {
            return self.retry_later(Again::Record(repo));
        }
        if let Some(applied) = facts.applied(&repo) {
            self.registry
                .set_applied(&repo, applied.rank, applied.since);
        }
    }
}
