//! How far a history in slices has come: the note that lies beside its packs.

use std::collections::BTreeSet;
use std::path::Path;

use grasp_core::git::ObjectId;

use super::answer::Ends;
use crate::error::GitError;
use crate::files;

pub(super) const PROGRESS: &str = "progress";
/// 100,000 ends and 10,000 tips of 50 bytes are 5.5 MB.
const MAX_NOTE: u64 = 8 * 1024 * 1024;
const MAX_TIPS: usize = 10_000;
/// Ends of a history: with more, no server is told where ours ends.
const MAX_ENDS: usize = 100_000;
/// A slice that is far smaller than one fetch may be tells little about the next.
const MAX_GROWTH: u64 = 8;
/// What git takes for the end of all history.
const MAX_DEPTH: u32 = 0x7fff_fffe;

/// Of one history from one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Progress {
    /// Commits from the tips.
    pub depth: u32,
    /// How many more the next slice has.
    pub step: u32,
    pub tips: Vec<ObjectId>,
    pub shallow: Vec<ObjectId>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            depth: 0,
            step: 1,
            tips: Vec::new(),
            shallow: Vec::new(),
        }
    }
}

impl Progress {
    /// Aims at half of what a fetch may bring.
    pub fn grow(&mut self, bytes: u64, max_bytes: u64) {
        let step = u64::from(self.step);
        let fitting = step.saturating_mul(max_bytes / 2) / bytes.max(1);
        let step = fitting.clamp(1, step * MAX_GROWTH);
        self.step = u32::try_from(step).unwrap_or(MAX_DEPTH).min(MAX_DEPTH);
    }

    /// False if the history ends in too many places.
    #[must_use]
    pub fn add(&mut self, tips: &[ObjectId], ends: &Ends) -> bool {
        self.tips.extend_from_slice(tips);
        self.tips.sort();
        self.tips.dedup();
        self.tips.truncate(MAX_TIPS);
        self.shallow.extend_from_slice(&ends.shallow);
        let gone: BTreeSet<_> = ends.unshallow.iter().collect();
        self.shallow.retain(|id| !gone.contains(id));
        self.shallow.sort();
        self.shallow.dedup();
        self.shallow.len() <= MAX_ENDS
    }

    pub fn write(&self, dir: &Path) -> Result<(), GitError> {
        let mut text = format!("depth {}\nstep {}\n", self.depth, self.step);
        for (word, ids) in [("tip", &self.tips), ("shallow", &self.shallow)] {
            for id in ids {
                text.push_str(&format!("{word} {id}\n"));
            }
        }
        files::replace(&dir.join(PROGRESS), text.as_bytes())
    }

    /// None if there is none, or it is not as [`Progress::write`] has it, or nobody can read it:
    /// then what lies beside it is of no use.
    pub fn read(dir: &Path) -> Option<Self> {
        let content = files::read_small(&dir.join(PROGRESS), MAX_NOTE);
        Self::parse(&content.ok()??)
    }

    pub fn next_depth(&self) -> u32 {
        self.depth.saturating_add(self.step).min(MAX_DEPTH)
    }

    /// Nothing is deeper.
    pub fn is_at_its_end(&self) -> bool {
        self.shallow.is_empty() || self.depth >= MAX_DEPTH
    }

    fn parse(content: &[u8]) -> Option<Self> {
        let mut progress = Self::default();
        for line in std::str::from_utf8(content).ok()?.lines() {
            let (word, value) = line.split_once(' ')?;
            match word {
                "depth" => progress.depth = value.parse().ok()?,
                "step" => progress.step = value.parse::<u32>().ok()?.max(1),
                "tip" => progress.tips.push(ObjectId::parse(value)?),
                "shallow" => progress.shallow.push(ObjectId::parse(value)?),
                _ => return None,
            }
        }
        Some(progress)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn id(n: u8) -> ObjectId {
        ObjectId([n; 20])
    }

    #[test]
    fn slices_grow_towards_half_of_what_may_come() {
        for (step, bytes, expected) in [
            (1, 0, 8),
            (10, 1, 80),
            (10, 500, 10),
            (10, 1_000, 5),
            (1, 999, 1),
            (100, 50, 800),
            (100, 250, 200),
            (MAX_DEPTH, 1, MAX_DEPTH),
        ] {
            let mut progress = Progress {
                step,
                ..Progress::default()
            };
            progress.grow(bytes, 1_000);
            assert_eq!(progress.step, expected, "{step} {bytes}");
        }
    }

    #[test]
    fn what_is_written_reads_back_and_junk_does_not() {
        let mut progress = Progress::default();
        let ends = Ends {
            shallow: vec![id(3), id(2)],
            unshallow: Vec::new(),
        };
        assert!(progress.add(&[id(1)], &ends));
        let ends = Ends {
            shallow: vec![id(4)],
            unshallow: vec![id(3)],
        };
        assert!(progress.add(&[id(1), id(5)], &ends));
        assert_eq!(progress.tips, [id(1), id(5)]);
        assert_eq!(progress.shallow, [id(2), id(4)]);
        let dir = tempfile::tempdir().unwrap();
        progress.write(dir.path()).unwrap();
        let content = fs::read(dir.path().join(PROGRESS)).unwrap();
        assert_eq!(Progress::parse(&content), Some(progress));
        for junk in ["depth", "depth x", "tip 00", "what 1", "\u{7f}"] {
            assert_eq!(Progress::parse(junk.as_bytes()), None, "{junk}");
        }
        assert_eq!(Progress::parse(b"\xff"), None);
    }

    #[test]
    fn a_history_that_ends_in_too_many_places_is_given_up() {
        let many = |from: u32, to: u32| Ends {
            shallow: (from..to).map(numbered).collect(),
            unshallow: Vec::new(),
        };
        let most = u32::try_from(MAX_ENDS).unwrap();
        let mut progress = Progress::default();
        assert!(progress.add(&[], &many(0, most)));
        let dir = tempfile::tempdir().unwrap();
        progress.write(dir.path()).unwrap();
        assert_eq!(Progress::read(dir.path()), Some(progress.clone()));
        assert!(!progress.add(&[], &many(most, most + 1)));
    }

    fn numbered(n: u32) -> ObjectId {
        let mut id = [7; 20];
        id[..4].copy_from_slice(&n.to_be_bytes());
        ObjectId(id)
    }

    #[test]
    fn a_note_that_is_far_too_large_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let note = fs::File::create(dir.path().join(PROGRESS)).unwrap();
        note.set_len(MAX_NOTE + 1).unwrap();
        assert_eq!(Progress::read(dir.path()), None);
    }
}
