//! Threads that work on repositories. All tasks of one repository go to the same thread, so that
//! they are carried out in the order in which the core asked for them.

use std::hash::{BuildHasher as _, BuildHasherDefault};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use grasp_core::{Failed, GitDone, GitTask, Job, RepoId};
use grasp_git::GitError;
use rustc_hash::FxHasher;

use super::{Repositories, caretaker};
use crate::metrics::Metrics;
use crate::{crash, driver};

/// They wait for the disk more than they compute.
const THREADS: usize = 4;

struct Order {
    job: Job,
    repo: RepoId,
    task: GitTask,
}

/// Unbounded in type; what waits in it is bounded by the events and pushes that it is for.
pub struct Handle {
    queues: Vec<Sender<Order>>,
    caretaker: caretaker::Handle,
}

impl Handle {
    pub fn perform(&self, job: Job, repo: RepoId, task: GitTask) {
        if let GitTask::PreparePrune(keep) = task {
            return self.caretaker.prepare(job, repo, keep);
        }
        let hash = BuildHasherDefault::<FxHasher>::default().hash_one(&repo);
        let queue = hash as usize % self.queues.len().max(1);
        if let Some(queue) = self.queues.get(queue) {
            // The workers outlive the driver, their only caller.
            let _ = queue.send(Order { job, repo, task });
        }
    }
}

/// The threads end when the handle is gone.
pub fn start(
    repositories: &Arc<Repositories>,
    driver: &driver::Handle,
    metrics: &Arc<Metrics>,
) -> std::io::Result<(Handle, Vec<JoinHandle<()>>)> {
    let (caretaker, thread) = caretaker::start(repositories, driver)?;
    let mut queues = Vec::new();
    let mut threads = vec![thread];
    for n in 0..THREADS {
        let (queue, orders) = unbounded();
        let worker = Worker {
            orders,
            repositories: Arc::clone(repositories),
            driver: driver.clone(),
            metrics: Arc::clone(metrics),
            desk: caretaker.desk(metrics),
        };
        let thread = thread::Builder::new()
            .name(format!("git-{n}"))
            .spawn(move || worker.run())?;
        queues.push(queue);
        threads.push(thread);
    }
    Ok((Handle { queues, caretaker }, threads))
}

struct Worker {
    orders: Receiver<Order>,
    repositories: Arc<Repositories>,
    driver: driver::Handle,
    metrics: Arc<Metrics>,
    desk: caretaker::Desk,
}

impl Worker {
    fn run(self) {
        for Order { job, repo, task } in &self.orders {
            let (started, name) = (Instant::now(), name(&task));
            crash::before(name);
            // A start looks at every repository before anything else happens to it.
            if task == GitTask::Look {
                self.clear_leftovers(&repo);
            }
            let outcome = self.perform(&repo, &task).map_err(|error| {
                if !error.is_busy() {
                    if self.repositories.log.has_line("failed", &repo) {
                        tracing::warn!(%repo, %error, task = name, "work on a repository failed");
                    }
                    self.metrics.git.failures.inc();
                }
                Failed
            });
            let took = started.elapsed().as_secs_f64();
            self.metrics.git.task(name, took);
            crash::after(name);
            self.driver.git(job, outcome);
        }
    }
}

impl Worker {
    /// What stays takes room and harms nobody: the look goes on.
    fn clear_leftovers(&self, repo: &RepoId) {
        match self.repositories.clear_leftovers(repo) {
            Ok(true) => self.metrics.git.leftovers.inc(),
            Ok(false) => {}
            // The look itself says so.
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(%repo, %error, "leftovers of a killed process stay");
                self.metrics.git.failures.inc();
            }
        }
    }

    fn perform(&self, repo: &RepoId, task: &GitTask) -> Result<GitDone, GitError> {
        match task {
            GitTask::Prune => self.desk.prune(repo).map(|()| GitDone::Done),
            GitTask::DropPrune => {
                self.desk.take(repo);
                Ok(GitDone::Done)
            }
            GitTask::Retire | GitTask::Remove | GitTask::RemoveEmpty => {
                // What is ready lies in the repository, and would be put aside with it.
                self.desk.take(repo);
                self.repositories.perform(repo, task)
            }
            task => self.repositories.perform(repo, task),
        }
    }
}

/// All that `name` says.
pub const NAMES: [&str; 12] = [
    "create",
    "remove",
    "remove_empty",
    "retire",
    "probe",
    "share",
    "apply",
    "set_tips",
    "look",
    "prepare_prune",
    "prune",
    "drop_prune",
];

fn name(task: &GitTask) -> &'static str {
    match task {
        GitTask::Create => "create",
        GitTask::Remove => "remove",
        GitTask::RemoveEmpty => "remove_empty",
        GitTask::Retire => "retire",
        GitTask::Probe(_) => "probe",
        GitTask::Share { .. } => "share",
        GitTask::Apply(_) => "apply",
        GitTask::SetTips(_) => "set_tips",
        GitTask::Look => "look",
        GitTask::PreparePrune(_) => "prepare_prune",
        GitTask::Prune => "prune",
        GitTask::DropPrune => "drop_prune",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::{Identifier, Pubkey};
    use grasp_git::Repo;

    #[test]
    fn leftovers_that_cannot_be_cleared_are_told_and_the_look_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let before = Repositories::new(folder.path().to_owned());
        let id = RepoId::new(Pubkey([7; 32]), Identifier::parse("a").unwrap());
        Repo::create(&before.dir(&id)).unwrap();
        std::fs::create_dir(before.dir(&id).join("no-file.lock")).unwrap();

        let repositories = Arc::new(Repositories::new(folder.path().to_owned()));
        let metrics = Arc::new(Metrics::new().unwrap());
        let (driver, inbox) = driver::channel();
        let (handle, threads) = start(&repositories, &driver, &metrics).unwrap();
        handle.perform(Job(1), id, GitTask::Look);
        drop(handle);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(metrics.git.failures.get(), 1);
        assert_eq!(metrics.git.leftovers.get(), 0);
        drop(inbox);
    }
}
