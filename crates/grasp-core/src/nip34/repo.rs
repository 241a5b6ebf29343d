//! A repository's name: who announced it and under which identifier. Never the identifier alone.

use std::fmt;
use std::sync::Arc;

use crate::event::{Address, Kind};
use crate::id::Pubkey;

/// Longer ones do not fit a file name once encoded on every file system.
const MAX_IDENTIFIER: usize = 200;
/// What a file name may have, less `.git` and the suffix of a temporary sibling.
const MAX_DIRECTORY: usize = 240;

/// The `d` of an announcement: free text that is also one safe file name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identifier(Arc<str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentifierError {
    #[error("the d tag is missing or empty")]
    Empty,
    #[error("the identifier is longer than {MAX_IDENTIFIER} bytes")]
    TooLong,
    #[error("the identifier is . or .., which names no directory of its own")]
    Dots,
    #[error("the identifier contains a control character")]
    Control,
}

impl Identifier {
    pub fn parse(text: &str) -> Result<Self, IdentifierError> {
        if text.is_empty() {
            return Err(IdentifierError::Empty);
        }
        if text == "." || text == ".." {
            return Err(IdentifierError::Dots);
        }
        if text.chars().any(char::is_control) {
            return Err(IdentifierError::Control);
        }
        let identifier = Self(text.into());
        if text.len() > MAX_IDENTIFIER || identifier.directory().len() > MAX_DIRECTORY {
            return Err(IdentifierError::TooLong);
        }
        Ok(identifier)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name on disk, without `.git`. One to one: only the separator and the escape itself are
    /// escaped, so that what people read in a directory is what they announced.
    pub fn directory(&self) -> String {
        self.0
            .replace('%', "%25")
            .replace('/', "%2F")
            .replace('\\', "%5C")
    }

    /// The inverse of [`Identifier::directory`]; `None` for a name that it never makes.
    pub fn from_directory(name: &str) -> Option<Self> {
        let text = name
            .replace("%2F", "/")
            .replace("%5C", "\\")
            .replace("%25", "%");
        let identifier = Self::parse(&text).ok()?;
        (identifier.directory() == name).then_some(identifier)
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoId {
    pub owner: Pubkey,
    pub identifier: Identifier,
}

impl RepoId {
    pub fn new(owner: Pubkey, identifier: Identifier) -> Self {
        Self { owner, identifier }
    }

    /// The repository that an `a` tag's value names.
    pub fn of_address(address: &Address) -> Option<Self> {
        let identifier = Identifier::parse(&address.d).ok()?;
        (address.kind == Kind::ANNOUNCEMENT).then(|| Self::new(address.pubkey, identifier))
    }

    pub fn address(&self, kind: Kind) -> Address {
        Address {
            kind,
            pubkey: self.owner,
            d: self.identifier.as_str().to_owned(),
        }
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner.npub(), self.identifier)
    }
}

impl fmt::Debug for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:?}", self.owner, self.identifier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_free_text_that_is_one_file_name() {
        for good in [
            "a",
            "my repo",
            "emoji 🦀",
            "a:b",
            "...",
            "-x",
            "a/b",
            "100%",
            "x.git",
        ] {
            let identifier = Identifier::parse(good).unwrap();
            let directory = identifier.directory();
            assert!(!directory.contains('/'), "{directory}");
            assert_eq!(Identifier::from_directory(&directory), Some(identifier));
        }
        let long = "x".repeat(201);
        let slashes = "/".repeat(150);
        for bad in ["", ".", "..", "a\0b", "a\nb", &long, &slashes] {
            assert!(Identifier::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_second_name_on_disk_reaches_the_same_repository() {
        for strange in ["a%2fb", "a%b", "a%61", "..", ""] {
            assert_eq!(Identifier::from_directory(strange), None, "{strange}");
        }
        let tricky = Identifier::parse("a%2Fb").unwrap();
        assert_ne!(
            tricky.directory(),
            Identifier::parse("a/b").unwrap().directory()
        );
        assert_eq!(
            Identifier::from_directory(&tricky.directory()),
            Some(tricky)
        );
    }
}
