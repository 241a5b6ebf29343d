//! What counts as ours when announcements and states are compared, though it is not stored: what
//! was dismissed, and what is held. One list for all relays, made anew when it must be.

use std::sync::Arc;
use std::time::Duration;

use super::{Here, Sync};
use crate::clock::{Mono, Now, Timestamp};
use crate::id::EventId;

/// A list that lacks the newest does no harm: a relay names those, and they are passed over. It is
/// 8 MB at most (200,000 x 40 bytes) and takes some milliseconds.
const FRESH: Duration = Duration::from_secs(10);

/// The list as it was made last.
#[derive(Debug)]
pub struct Aside {
    list: Arc<[(Timestamp, EventId)]>,
    made: Mono,
    /// What was wanted again before it was made: what is in the list is not asked for.
    wanted_again: (u64, u64),
}

impl Sync {
    pub(super) fn aside(&mut self, now: Now, here: &dyn Here) -> Arc<[(Timestamp, EventId)]> {
        let wanted_again = (self.memo.recalled(), here.released());
        if let Some(aside) = &self.aside
            && aside.wanted_again == wanted_again
            && now.mono < aside.made + FRESH
        {
            return Arc::clone(&aside.list);
        }
        let mut list = self.memo.aside(now.unix);
        list.extend(here.held_announcements());
        let list: Arc<[_]> = list.into();
        self.aside = Some(Aside {
            list: Arc::clone(&list),
            made: now.mono,
            wanted_again,
        });
        list
    }
}
