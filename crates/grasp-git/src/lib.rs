//! The git side of the server: the `git` binary behind typed arguments and a scrubbed
//! environment. Nothing here knows nostr.

mod command;
mod error;

pub use command::{Git, Version};
pub use error::GitError;
