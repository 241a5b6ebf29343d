//! What the rules know of git: object ids and ref names, parsed once at the edge, so that no
//! stranger's text ever reaches a command line or a path.

use std::collections::BTreeMap;
use std::fmt;

use crate::id::hex_bytes;

hex_bytes!(
    /// The SHA-1 name of a git object. The null id, which git uses for "nothing", is not one.
    ObjectId,
    20
);

impl ObjectId {
    /// Reads an id that must name an object.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_hex(text).ok().filter(|id| !id.is_null())
    }

    pub fn is_null(&self) -> bool {
        self.0 == [0; 20]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    Commit,
    Tree,
    Blob,
    Tag,
}

/// A full ref name that git accepts: `refs/heads/x`, `refs/tags/x`, `refs/nostr/<event id>`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(Box<str>);

/// What a repository's refs are: heads and tags, sorted by name.
pub type Refs = BTreeMap<RefName, ObjectId>;

const HEADS: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";
const NOSTR: &str = "refs/nostr/";
/// Longer names do not fit a file name with its lock's suffix on every system.
const MAX_LEN: usize = 1_024;
const MAX_COMPONENT: usize = 250;

impl RefName {
    /// The rules of `git check-ref-format`, and nothing but heads, tags and `refs/nostr/`.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = [HEADS, TAGS, NOSTR]
            .iter()
            .find_map(|space| text.strip_prefix(space))?;
        let nostr = text.starts_with(NOSTR);
        let good = text.len() <= MAX_LEN
            && is_well_formed(rest)
            && (!nostr || crate::id::EventId::from_hex(rest).is_ok());
        good.then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_branch(&self) -> bool {
        self.0.starts_with(HEADS)
    }

    pub fn is_tag(&self) -> bool {
        self.0.starts_with(TAGS)
    }

    /// Where the tip of a pull request is kept.
    pub fn nostr(event: &crate::id::EventId) -> Self {
        Self(format!("{NOSTR}{event}").into())
    }

    /// The event of a `refs/nostr/` name.
    pub fn event(&self) -> Option<crate::id::EventId> {
        let id = self.0.strip_prefix(NOSTR)?;
        crate::id::EventId::from_hex(id).ok()
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One name cannot be a branch and the folder of another: `a` beside `a/b`.
pub fn conflict(refs: &Refs) -> Option<(&RefName, &RefName)> {
    refs.keys().find_map(|name| {
        let parent = name
            .as_str()
            .match_indices('/')
            .filter_map(|(at, _)| name.as_str().get(..at))
            .find_map(|folder| refs.get_key_value(folder).map(|(name, _)| name))?;
        Some((parent, name))
    })
}

impl std::borrow::Borrow<str> for RefName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

fn is_well_formed(rest: &str) -> bool {
    let bad_byte = |byte: u8| byte <= b' ' || byte == 0x7f || b"~^:?*[\\".contains(&byte);
    let bad_component = |part: &str| {
        part.is_empty()
            || part.starts_with('.')
            || part.ends_with(".lock")
            || part.len() > MAX_COMPONENT
    };
    // Git takes controls beyond ASCII (C1), on which terminals act as well.
    !rest.bytes().any(bad_byte)
        && !rest.contains(char::is_control)
        && !rest.contains("..")
        && !rest.contains("@{")
        && !rest.ends_with('.')
        && !rest.split('/').any(bad_component)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ref_names_are_those_that_git_takes() {
        for good in [
            "refs/heads/main",
            "refs/heads/a/b",
            "refs/tags/v1.0",
            "refs/heads/-x",
            "refs/heads/@",
            "refs/heads/größe",
        ] {
            assert!(RefName::parse(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "HEAD",
            "main",
            "refs/heads/",
            "refs/heads",
            "refs/notes/x",
            "refs/heads/a..b",
            "refs/heads/a//b",
            "refs/heads/.a",
            "refs/heads/a/.b",
            "refs/heads/a.lock",
            "refs/heads/a.lock/b",
            "refs/heads/a.",
            "refs/heads/a/",
            "refs/heads/a b",
            "refs/heads/a\n",
            "refs/heads/a\u{7f}",
            "refs/heads/a\u{85}",
            "refs/heads/a\u{9b}2J",
            "refs/heads/a~1",
            "refs/heads/a^{}",
            "refs/heads/a:b",
            "refs/heads/a?",
            "refs/heads/a*",
            "refs/heads/[a",
            "refs/heads/a\\b",
            "refs/heads/a@{1}",
            "refs/heads/../../config",
            "refs/nostr/abc",
            "refs/nostr/ABCDEF0000000000000000000000000000000000000000000000000000000000",
        ] {
            assert!(RefName::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_name_beside_its_own_folder_is_a_conflict() {
        let refs = |names: &[&str]| -> Refs {
            let named = |name: &&str| (RefName::parse(name).unwrap(), ObjectId([1; 20]));
            names.iter().map(named).collect()
        };
        assert!(conflict(&refs(&["refs/heads/a", "refs/heads/a-b", "refs/heads/a/b"])).is_some());
        assert!(conflict(&refs(&["refs/heads/a", "refs/heads/ab", "refs/tags/a/b"])).is_none());
    }
}
