//! What we say that we have, so that only the rest travels.

use std::collections::BTreeSet;
use std::time::Duration;

use grasp_core::git::ObjectId;

use crate::deadline::Deadline;
use crate::error::GitError;
use crate::objects::Objects;
use crate::repo::Repo;

/// 256 lines are 13 KB. A server that is ahead of us knows the tips; one that went another way
/// meets us at an ancestor, and what lies between two that are named travels twice at most.
const MAX_HAVES: usize = 256;
/// Of each kind.
const MAX_TIPS: usize = 64;
/// Commits that are read for it: some ten milliseconds, unless their deltas are made to be slow.
const MAX_STEPS: usize = 4_096;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Tips that wait elsewhere, those of HEAD, those that were just brought, those of refs; then
/// their ancestors, with ever longer gaps.
pub(super) fn haves(
    repo: &Repo,
    waiting: &[ObjectId],
    brought: &[ObjectId],
) -> Result<Vec<ObjectId>, GitError> {
    let objects = repo.objects()?;
    let refs = repo.refs()?;
    let of_refs = refs.refs.values();
    let of_refs = of_refs.map(|one| one.peeled.unwrap_or(one.id));
    let mut found = Found::default();
    for tip in waiting.iter().take(MAX_TIPS) {
        found.add(*tip);
    }
    let brought = brought.iter().copied();
    for tip in refs.head_id().into_iter().chain(brought).chain(of_refs) {
        if found.list.len() >= 2 * MAX_TIPS {
            break;
        }
        // A ref whose object is lost is nothing to build on.
        if objects.contains(&tip)? {
            found.add(tip);
        }
    }
    let mut steps = MAX_STEPS;
    let deadline = Deadline::after(TIMEOUT);
    for tip in found.list.clone() {
        found.walk(&objects, tip, &mut steps, &deadline)?;
    }
    Ok(found.list)
}

#[derive(Default)]
struct Found {
    list: Vec<ObjectId>,
    seen: BTreeSet<ObjectId>,
}

impl Found {
    fn add(&mut self, id: ObjectId) -> bool {
        let new = self.seen.insert(id);
        if new {
            self.list.push(id);
        }
        new
    }

    /// Along the first parents, naming the first, the second, the fourth and so on, until
    /// somebody was here before.
    fn walk(
        &mut self,
        objects: &Objects,
        tip: ObjectId,
        steps: &mut usize,
        deadline: &Deadline,
    ) -> Result<(), GitError> {
        let (mut at, mut distance, mut next) = (tip, 0_u32, 1_u32);
        while let Some(parent) = objects.first_parent(&at)? {
            *steps = steps.saturating_sub(1);
            // Fewer names than there could be make a fetch larger, not wrong.
            if *steps == 0 || self.list.len() >= MAX_HAVES || deadline.has_passed() {
                return Ok(());
            }
            at = parent;
            distance += 1;
            let new = if distance == next {
                next = next.saturating_mul(2);
                self.add(at)
            } else {
                self.seen.insert(at)
            };
            if !new {
                return Ok(());
            }
        }
        Ok(())
    }
}
