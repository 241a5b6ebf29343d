//! What happens here itself, gathered for a moment before other relays are asked about it: stored
//! events at the start and accepted ones later, all the same way.

use super::index::Stage;
use crate::clock::{Mono, Timestamp};
use crate::id::EventId;
use crate::limits::SyncLimits;
use crate::nip34::RepoId;
use crate::relay_url::RelayUrl;

/// More are not gathered: what is here is acted upon first.
const MAX_GATHERED: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A repository of ours, with its relays.
    Announced {
        repo: RepoId,
        relays: Vec<RelayUrl>,
        stage: Stage,
    },
    /// It is not ours any more.
    Gone(RepoId),
    /// An issue, a patch or a pull request of these repositories.
    Root {
        id: EventId,
        repos: Vec<RepoId>,
        at: Timestamp,
    },
}

/// The window begins with the first piece of news and is never reset; it ends early when nothing
/// more comes and no history is in flight that might bring more.
#[derive(Debug, Default)]
pub struct Gathered {
    news: Vec<News>,
    first: Option<Mono>,
    last: Mono,
    /// A repository left: it may come back at once, and must then be found new.
    leaving: bool,
}

impl Gathered {
    pub fn add(&mut self, news: News, now: Mono) {
        self.first.get_or_insert(now);
        self.last = now;
        self.leaving |= matches!(news, News::Gone(_));
        self.news.push(news);
    }

    /// When it is time to act; none when there is nothing to act upon.
    pub fn due(&self, history_in_flight: bool, limits: &SyncLimits) -> Option<Mono> {
        let first = self.first?;
        if self.news.len() >= MAX_GATHERED {
            return Some(first);
        }
        let latest = first + limits.batch_window;
        match history_in_flight {
            true => Some(latest),
            false => Some(latest.min(self.last + limits.quiet)),
        }
    }

    /// Not to be gathered any longer: somebody leaves.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    pub fn is_empty(&self) -> bool {
        self.news.is_empty()
    }

    pub fn take(&mut self) -> Vec<News> {
        self.first = None;
        self.leaving = false;
        std::mem::take(&mut self.news)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::id::Pubkey;
    use crate::nip34::Identifier;

    fn at(millis: u64) -> Mono {
        Mono(Duration::from_millis(millis))
    }

    fn news() -> News {
        let identifier = Identifier::parse("x").unwrap();
        News::Gone(RepoId::new(Pubkey([1; 32]), identifier))
    }

    /// E3.
    #[test]
    fn the_window_starts_with_the_first_event_and_is_never_reset() {
        let limits = SyncLimits::default();
        let mut gathered = Gathered::default();
        assert_eq!(gathered.due(false, &limits), None);
        for millis in (1_000..6_000).step_by(90) {
            gathered.add(news(), at(millis));
        }
        assert_eq!(gathered.due(false, &limits), Some(at(6_000)));
        assert_eq!(gathered.take().len(), 56);
        assert_eq!(gathered.due(false, &limits), None);
    }

    #[test]
    fn a_lone_event_is_acted_upon_after_100_ms() {
        let limits = SyncLimits::default();
        let mut gathered = Gathered::default();
        gathered.add(news(), at(1_000));
        assert_eq!(gathered.due(false, &limits), Some(at(1_100)));
        gathered.add(news(), at(1_050));
        assert_eq!(gathered.due(false, &limits), Some(at(1_150)));
    }

    #[test]
    fn history_in_flight_keeps_the_window_open() {
        let limits = SyncLimits::default();
        let mut gathered = Gathered::default();
        gathered.add(news(), at(1_000));
        assert_eq!(gathered.due(true, &limits), Some(at(6_000)));
    }
}
