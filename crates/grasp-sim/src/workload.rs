//! What users of a general relay do: events that are good, and events that break a rule.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use grasp_core::{Event, Kind, Timestamp};

use crate::forge::{self, key};

/// What an event is meant to be, known to the model and not to the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    Good,
    Ephemeral,
    /// Good now, gone later.
    Expiring,
    FarAhead,
    Expired,
    Protected,
    AuthAsEvent,
    VanishElsewhere,
}

impl Intent {
    pub(crate) fn draw(rng: &mut Rng, mischief: u32) -> Self {
        const BAD: [Intent; 5] = [
            Intent::FarAhead,
            Intent::Expired,
            Intent::Protected,
            Intent::AuthAsEvent,
            Intent::VanishElsewhere,
        ];
        if rng.u32(0..100) < mischief {
            return *rng.choice(&BAD).unwrap_or(&Intent::FarAhead);
        }
        match rng.u32(0..10) {
            0 => Intent::Ephemeral,
            1 => Intent::Expiring,
            _ => Intent::Good,
        }
    }

    pub(crate) fn is_admitted(self) -> bool {
        matches!(self, Intent::Good | Intent::Ephemeral | Intent::Expiring)
    }
}

pub(crate) fn event(rng: &mut Rng, user: usize, intent: Intent, now: Timestamp) -> Arc<Event> {
    let mut created_at = now;
    let mut kind = 1;
    let mut tags: Vec<Vec<String>> = vec![vec!["nonce".to_owned(), rng.u64(..).to_string()]];
    let mut tag = |name: &str, value: String| tags.push(vec![name.to_owned(), value]);
    match intent {
        Intent::Good => {}
        Intent::Ephemeral => kind = 20_001,
        Intent::Expiring => tag(
            "expiration",
            (now.0 + rng.u64(1_000_000..2_000_000)).to_string(),
        ),
        Intent::FarAhead => created_at = now.saturating_add(Duration::from_secs(100_000)),
        Intent::Expired => tag("expiration", (now.0 - 1).to_string()),
        Intent::Protected => tag("-", String::new()),
        Intent::AuthAsEvent => kind = 22_242,
        Intent::VanishElsewhere => {
            kind = 62;
            tag("relay", "wss://elsewhere.example".to_owned());
        }
    }
    let user = u8::try_from(user + 1).unwrap_or(u8::MAX);
    forge::event(key(user), Kind(kind), created_at.0, tags)
}
