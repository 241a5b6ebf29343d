//! Until when something in this process may read objects. Git's own processes have limits of processor
//! time; what is read here runs on a thread that others wait for.

use std::time::{Duration, Instant};

use crate::error::GitError;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    began: Instant,
    timeout: Duration,
}

impl Deadline {
    pub fn after(timeout: Duration) -> Self {
        Self {
            began: Instant::now(),
            timeout,
        }
    }

    pub fn has_passed(&self) -> bool {
        self.began.elapsed() >= self.timeout
    }

    /// Between two objects: what one of them may cost is bounded by itself.
    pub fn check(&self, step: &str) -> Result<(), GitError> {
        match self.has_passed() {
            true => Err(GitError::TimedOut {
                args: step.to_owned(),
                after: self.timeout,
            }),
            false => Ok(()),
        }
    }
}
