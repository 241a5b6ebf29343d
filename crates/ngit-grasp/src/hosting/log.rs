//! Lines of the log that strangers cause by announcing, deleting and filling repositories: some for
//! each owner and matter, some more for all, then a count.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use grasp_core::{Pubkey, RepoId};

use crate::notes::ration::Ration;

#[derive(Debug)]
pub struct HostingLog(Mutex<Ration<&'static str, Pubkey>>);

impl Default for HostingLog {
    fn default() -> Self {
        Self(Mutex::new(Ration::new()))
    }
}

impl HostingLog {
    /// Whether there is a line left on this matter. Tells how many were left out before.
    pub fn has_line(&self, matter: &'static str, repo: &RepoId) -> bool {
        self.takes_line(matter, repo, Instant::now())
    }

    fn takes_line(&self, matter: &'static str, repo: &RepoId, now: Instant) -> bool {
        let mut ration = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for untold in ration.untold(now) {
            let (matter, count) = (untold.matter, untold.count);
            tracing::info!(matter, count, "more lines about repositories were left out");
        }
        ration.may_tell(matter, Some(&repo.owner), now)
    }
}

#[cfg(test)]
mod tests {
    use grasp_core::Identifier;

    use super::*;
    use crate::notes::ration::{ALL_LINES, LINES, PERIOD};

    #[test]
    fn one_owner_and_all_together_fill_no_log() {
        let (log, now) = (HostingLog::default(), Instant::now());
        let repo = |n: u8| RepoId::new(Pubkey([n; 32]), Identifier::parse("a").unwrap());
        let lines = |owner: u8, now| {
            let tries = 0..1_000;
            tries
                .filter(|_| log.takes_line("created", &repo(owner), now))
                .count()
        };
        assert_eq!(lines(0, now), LINES as usize);
        assert!(log.takes_line("retired", &repo(0), now), "another matter");
        let all: usize = (1..=200).map(|owner| lines(owner, now)).sum();
        assert_eq!(all, (ALL_LINES - LINES) as usize);
        assert_eq!(lines(0, now + PERIOD), LINES as usize);
    }
}
