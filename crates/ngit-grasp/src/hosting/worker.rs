//! Threads that work on repositories, each on whatever waits. Tasks of one repository are carried
//! out one at a time, in the order in which the core asked for them.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use grasp_core::{Failed, GitDone, GitTask, Job, RepoId};
use grasp_git::GitError;

use super::queue::{Queue, QueueLimits};
use super::{Repositories, caretaker};
use crate::metrics::Metrics;
use crate::{crash, driver};

/// Tasks wait for the disk more than they compute, and take milliseconds. One that does not, as on
/// a disk that hangs, takes a thread and no slot; threads beyond the slots only wait.
const THREADS: usize = 16;
const QUEUE: QueueLimits = QueueLimits {
    slots: 4,
    // Whatever slow repositories do, twelve threads are left to the others.
    slow_slots: 4,
    per_owner: 3,
    slow_after: Duration::from_secs(5),
    slow_task: Duration::from_secs(1),
    slow_for: Duration::from_secs(600),
};

struct Order {
    job: Job,
    task: GitTask,
}

/// Unbounded in type; what waits in it is bounded by the events and pushes that it is for.
pub struct Handle {
    queue: Arc<Queue<Order>>,
    repositories: Arc<Repositories>,
    caretaker: caretaker::Handle,
}

impl Handle {
    pub fn perform(&self, job: Job, repo: RepoId, task: GitTask) {
        if let GitTask::PreparePrune(keep) = task {
            return self.caretaker.prepare(job, repo, keep);
        }
        if task == GitTask::Create {
            self.repositories.creating.begin(&repo);
        }
        self.queue.add(repo, Order { job, task });
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The threads end when the handle is gone.
pub fn start(
    repositories: &Arc<Repositories>,
    driver: &driver::Handle,
    metrics: &Arc<Metrics>,
) -> std::io::Result<(Handle, Vec<JoinHandle<()>>)> {
    let (caretaker, thread) = caretaker::start(repositories, driver)?;
    let handle = Handle {
        queue: Arc::new(Queue::new(QUEUE)),
        repositories: Arc::clone(repositories),
        caretaker,
    };
    let mut threads = vec![thread];
    for n in 0..THREADS {
        let worker = Worker {
            queue: Arc::clone(&handle.queue),
            repositories: Arc::clone(repositories),
            driver: driver.clone(),
            metrics: Arc::clone(metrics),
            desk: handle.caretaker.desk(metrics),
        };
        let thread = thread::Builder::new()
            .name(format!("git-{n}"))
            .spawn(move || worker.run())?;
        threads.push(thread);
    }
    Ok((handle, threads))
}

struct Worker {
    queue: Arc<Queue<Order>>,
    repositories: Arc<Repositories>,
    driver: driver::Handle,
    metrics: Arc<Metrics>,
    desk: caretaker::Desk,
}

impl Worker {
    fn run(self) {
        while let Some((repo, Order { job, task })) = self.queue.take() {
            let outcome = self.carry_out(&repo, &task);
            if task == GitTask::Create {
                self.repositories.creating.end(&repo);
            }
            // First, so that answers about one repository come in the order of its tasks.
            self.driver.git(job, outcome);
            self.queue.done(&repo);
        }
    }

    fn carry_out(&self, repo: &RepoId, task: &GitTask) -> Result<GitDone, Failed> {
        let (started, name) = (Instant::now(), name(task));
        crash::before(name);
        // A start looks at every repository before anything else happens to it.
        if *task == GitTask::Look {
            self.clear_leftovers(repo);
        }
        let outcome = self.perform(repo, task).map_err(|error| {
            if !error.is_busy() {
                if self.repositories.log.has_line("failed", repo) {
                    tracing::warn!(%repo, %error, task = name, "work on a repository failed");
                }
                self.metrics.git.failures.inc();
            }
            Failed
        });
        let took = started.elapsed();
        if took >= QUEUE.slow_after && self.repositories.log.has_line("slow", repo) {
            tracing::warn!(%repo, task = name, seconds = took.as_secs(), "work on a repository was slow");
        }
        self.metrics.git.task(name, took.as_secs_f64());
        crash::after(name);
        outcome
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

    /// Their refs are pipes into which nobody writes.
    #[test]
    fn repositories_that_do_not_answer_keep_no_others_from_a_thread() {
        let folder = tempfile::tempdir().unwrap();
        let repositories = Arc::new(Repositories::new(folder.path().to_owned()));
        let id = |owner: u8, name: &str| {
            RepoId::new(Pubkey([owner; 32]), Identifier::parse(name).unwrap())
        };
        let (driver, inbox) = driver::channel();
        let metrics = Arc::new(Metrics::new().unwrap());
        let (handle, threads) = start(&repositories, &driver, &metrics).unwrap();
        let mut pipes = Vec::new();
        for n in 0..20_u8 {
            let stuck = id(7, &format!("r{n}"));
            let (repo, _) = Repo::create(&repositories.dir(&stuck)).unwrap();
            let pipe = repo.dir().join("packed-refs");
            let _ = std::fs::remove_file(&pipe);
            let made = std::process::Command::new("mkfifo").arg(&pipe).status();
            assert!(made.unwrap().success());
            handle.perform(Job(u64::from(n)), stuck, GitTask::Look);
            pipes.push(pipe);
        }
        let others = id(8, "a");
        handle.perform(Job(100), others.clone(), GitTask::Create);
        let began = Instant::now();
        while repositories.open(&others).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20));
            thread::yield_now();
        }
        drop(handle);
        // Opened for both, so that whoever reads finds the other end.
        let open = |pipe| std::fs::File::options().read(true).write(true).open(pipe);
        let ends: Vec<_> = pipes.iter().map(open).collect();
        for pipe in &pipes {
            std::fs::remove_file(pipe).unwrap();
        }
        drop(ends);
        for thread in threads {
            thread.join().unwrap();
        }
        drop(inbox);
    }

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
