//! How much may be read for one page, in bytes and in time. What is beyond it is left out, and the
//! page says so.

use std::time::Instant;

#[derive(Debug)]
pub struct ReadBudget {
    left: u64,
    until: Instant,
    exceeded: bool,
}

impl ReadBudget {
    pub fn new(bytes: u64, until: Instant) -> Self {
        Self {
            left: bytes,
            until,
            exceeded: false,
        }
    }

    /// Whether one thing more may be read; its size is not known before.
    pub fn has_left(&mut self) -> bool {
        self.exceeded |= self.left == 0 || Instant::now() >= self.until;
        !self.exceeded
    }

    pub fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes as u64);
    }

    /// Whether something was left out.
    pub fn is_exceeded(&self) -> bool {
        self.exceeded
    }
}
