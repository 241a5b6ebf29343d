//! The connection to one relay, from the first attempt to the last. Every state has a
//! deadline, but that of a relay of which nothing is wanted.

use super::session::Session;
use crate::clock::Mono;
use crate::ticket::ConnNo;

#[derive(Debug)]
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
    Up(Box<Session>),
}

/// Why a relay is not connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    New,
    /// It failed, and waits for its next attempt.
    Failing,
    /// There are enough connections.
    NoRoom,
}

impl Why {
    pub fn label(self) -> &'static str {
        match self {
            Why::New => "not dialled yet",
            Why::Failing => "the last attempt failed",
            Why::NoRoom => "there are enough connections",
        }
    }
}

impl Link {
    pub fn conn(&self) -> Option<ConnNo> {
        match self {
            Link::Down { .. } => None,
            Link::Connecting { conn, .. } => Some(*conn),
            Link::Up(session) => Some(session.conn),
        }
    }

    pub fn is_up(&self) -> bool {
        matches!(self, Link::Up(_))
    }
}
