//! The hands of the world: the disk and git, slow and unreliable, one thing after the other.

use std::collections::VecDeque;

use grasp_core::{Change, Failed, GitTask, Input, Job, RepoId, StoreOutcome};

use super::{Happening, LAG, World, Write};
use crate::checkers;

impl World<'_> {
    /// The disk makes one commit of whatever waits when it is free.
    pub(super) fn enqueue(&mut self, write: Write) {
        self.writes.push(write);
        if !self.writing {
            self.writing = true;
            let life = self.life;
            self.after_about(self.climate.slow_disk / 2, Happening::Write { life });
        }
    }

    pub(super) fn write(&mut self) -> Result<(), String> {
        let fails = !self.calm && self.rng.u32(0..1_000) < self.climate.full_disk;
        self.writing = false;
        for write in std::mem::take(&mut self.writes) {
            let input = match write {
                Write::Store(ticket, _) if fails => Input::Committed {
                    ticket,
                    outcome: StoreOutcome::Failed,
                },
                Write::Commit(job, _) if fails => Input::Written {
                    job,
                    outcomes: Err(Failed),
                },
                write => self.make_durable(write)?,
            };
            self.hear(input);
        }
        Ok(())
    }

    pub(super) fn make_durable(&mut self, write: Write) -> Result<Input, String> {
        let (changes, answer) = match write {
            Write::Store(ticket, event) => (vec![Change::Store(event)], Err(ticket)),
            Write::Commit(job, changes) => (changes, Ok(job)),
        };
        let before = self.disk.applied.clone();
        let outcomes = self.disk.commit(&changes);
        self.note(format_args!("written {changes:?}: {outcomes:?}"));
        let us = &self.policy.service;
        checkers::commit(&changes, &outcomes, &before, &self.view(), us)?;
        Ok(match answer {
            Ok(job) => Input::Written {
                job,
                outcomes: Ok(outcomes),
            },
            Err(ticket) => Input::Committed {
                ticket,
                outcome: outcomes.first().copied().unwrap_or(StoreOutcome::Failed),
            },
        })
    }

    /// Git works on one task of a repository after the other.
    pub(super) fn assign(&mut self, job: Job, repo: RepoId, task: GitTask) {
        let tasks = self.tasks.entry(repo.clone()).or_default();
        tasks.push_back((job, task));
        if tasks.len() == 1 {
            let life = self.life;
            self.after_about(self.climate.slow_git / 2, Happening::Work { life, repo });
        }
    }

    pub(super) fn work(&mut self, repo: &RepoId) -> Result<(), String> {
        let Some((job, task)) = self.tasks.get_mut(repo).and_then(VecDeque::pop_front) else {
            return Ok(());
        };
        let fails = !self.calm && self.rng.u32(0..1_000) < self.climate.broken_git;
        let outcome = if fails {
            Err(Failed)
        } else {
            self.git.perform(repo, &task)
        };
        self.note(format_args!("git {repo:?} {task:?}: {outcome:?}"));
        self.hear(Input::Git { job, outcome });
        if self.tasks.get(repo).is_some_and(|tasks| !tasks.is_empty()) {
            let (life, repo) = (self.life, repo.clone());
            self.after_about(self.climate.slow_git / 2, Happening::Work { life, repo });
        }
        Ok(())
    }

    fn hear(&mut self, input: Input) {
        let life = self.life;
        self.after(LAG, Happening::Hear { life, input });
    }
}
