//! What we have of what we know exists: of each repository, issue, patch and pull request at each
//! relay that has it, was its history read to the end? A lost line and the daily comparison take
//! nothing away.

use grasp_core::sync::Health;
use grasp_core::sync::status::RelayStatus;
use serde::Serialize;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Histories that are here.
    pub have: u64,
    /// Histories that are wanted.
    pub known: u64,
}

impl Coverage {
    /// In all. What a dead relay keeps to itself is not known to exist.
    pub fn of(relays: &[RelayStatus]) -> Self {
        let alive = relays
            .iter()
            .filter(|relay| relay.health.health != Health::Dead);
        alive.map(Self::at).fold(Self::default(), |sum, one| Self {
            have: sum.have + one.have,
            known: sum.known + one.known,
        })
    }

    pub fn at(relay: &RelayStatus) -> Self {
        Self {
            have: relay.read,
            known: relay.live + relay.not_live,
        }
    }

    /// Rounded down: a hundred means all. `None` while nothing is wanted.
    pub fn per_cent(self) -> Option<u64> {
        (self.known > 0).then(|| self.have.saturating_mul(100) / self.known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_are_left_out_and_the_lost_keep_what_was_read() {
        use crate::status::snapshot::relay;
        let mut read = relay("wss://a.example");
        read.read = read.live + read.not_live;
        let mut dead = relay("wss://b.example");
        dead.health.health = Health::Dead;
        assert_eq!(Coverage::of(&[read, dead]).per_cent(), Some(100));
    }

    #[test]
    fn a_hundred_per_cent_means_all() {
        let per_cent = |have, known| Coverage { have, known }.per_cent();
        assert_eq!(per_cent(0, 0), None);
        assert_eq!(per_cent(0, 3), Some(0));
        assert_eq!(per_cent(99_999, 100_000), Some(99));
        assert_eq!(per_cent(3, 3), Some(100));
    }
}
