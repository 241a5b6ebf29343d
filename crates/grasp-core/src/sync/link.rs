//! The connection to one relay, from the first attempt to the last. Every state but the last has
//! a deadline.

use crate::clock::{Mono, Timestamp};
use crate::ticket::ConnNo;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Down {
        /// Not before; none when nothing is wanted of it.
        retry: Option<Mono>,
        why: Why,
    },
    Connecting {
        conn: ConnNo,
        deadline: Mono,
    },
    Up(Session),
}

/// Why a relay is not connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    New,
    /// It failed, and waits for its next attempt.
    Failing,
    /// There are enough connections.
    NoRoom,
    /// No repository names it any more.
    Empty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    pub conn: ConnNo,
    pub since: Timestamp,
    /// The last word of it.
    pub heard: Mono,
}

impl Link {
    pub fn conn(&self) -> Option<ConnNo> {
        match self {
            Link::Down { .. } => None,
            Link::Connecting { conn, .. } | Link::Up(Session { conn, .. }) => Some(*conn),
        }
    }

    pub fn is_up(&self) -> bool {
        matches!(self, Link::Up(_))
    }
}
