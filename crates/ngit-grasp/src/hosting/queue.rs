//! Work that waits for a thread: in order for each repository, in turn between owners, so that one
//! repository's slow task delays that repository alone.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use grasp_core::{Pubkey, RepoId};

#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// Tasks that run at once and have not run long yet.
    pub slots: usize,
    /// Tasks on repositories of one owner that run at once, however long.
    pub per_owner: usize,
    /// A task that runs longer gives its slot back: another thread may go on with others, if there
    /// are more threads than slots.
    pub slow_after: Duration,
}

pub struct Queue<T> {
    limits: QueueLimits,
    state: Mutex<State<T>>,
    changed: Condvar,
}

/// The maps have keyed hashes: names of repositories are chosen by strangers.
struct State<T> {
    /// Owners with something that could be begun, the next one first.
    owners: VecDeque<Pubkey>,
    by_owner: HashMap<Pubkey, Owner>,
    waiting: HashMap<RepoId, VecDeque<T>>,
    running: HashMap<RepoId, Instant>,
    closed: bool,
}

#[derive(Default)]
struct Owner {
    /// Repositories with waiting tasks of which none runs.
    ready: VecDeque<RepoId>,
    running: usize,
}

impl<T> Queue<T> {
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            state: Mutex::new(State {
                owners: VecDeque::new(),
                by_owner: HashMap::new(),
                waiting: HashMap::new(),
                running: HashMap::new(),
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    pub fn add(&self, repo: RepoId, task: T) {
        let mut state = self.lock();
        let waiting = state.waiting.entry(repo.clone()).or_default();
        waiting.push_back(task);
        let is_first = waiting.len() == 1;
        if is_first && !state.running.contains_key(&repo) {
            state.make_ready(repo);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for a task. Until [`Queue::done`] no other of the same repository is given out. None
    /// when the queue is closed and empty.
    pub fn take(&self) -> Option<(RepoId, T)> {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            if state.quick(now, self.limits.slow_after) < self.limits.slots
                && let Some(taken) = state.take(now, self.limits.per_owner)
            {
                return Some(taken);
            }
            if state.closed && state.waiting.is_empty() {
                return None;
            }
            // A slot may come free because a task becomes slow, of which nobody tells.
            let changed = &self.changed;
            state = match state.next_slow(now, self.limits.slow_after) {
                Some(wait) if !state.owners.is_empty() => {
                    let waited = changed.wait_timeout(state, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                _ => changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    pub fn done(&self, repo: &RepoId) {
        self.lock().done(repo);
        self.changed.notify_all();
    }

    /// What waits is still given out.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn make_ready(&mut self, repo: RepoId) {
        let owner = self.by_owner.entry(repo.owner).or_default();
        if owner.ready.is_empty() {
            self.owners.push_back(repo.owner);
        }
        owner.ready.push_back(repo);
    }

    /// Of the next owner who may have one more, the next repository, the next task. Owners who may
    /// not are no more than there are threads.
    fn take(&mut self, now: Instant, per_owner: usize) -> Option<(RepoId, T)> {
        let may = |key: &Pubkey| {
            let owner = self.by_owner.get(key);
            owner.is_some_and(|owner| owner.running < per_owner)
        };
        let at = self.owners.iter().position(may)?;
        let key = self.owners.remove(at)?;
        let owner = self.by_owner.get_mut(&key)?;
        let repo = owner.ready.pop_front()?;
        owner.running += 1;
        if !owner.ready.is_empty() {
            self.owners.push_back(key);
        }
        let waiting = self.waiting.get_mut(&repo)?;
        let task = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&repo);
        }
        self.running.insert(repo.clone(), now);
        Some((repo, task))
    }

    fn done(&mut self, repo: &RepoId) {
        if self.running.remove(repo).is_none() {
            return;
        }
        if let Some(owner) = self.by_owner.get_mut(&repo.owner) {
            owner.running = owner.running.saturating_sub(1);
            if owner.running == 0 && owner.ready.is_empty() {
                self.by_owner.remove(&repo.owner);
            }
        }
        if self.waiting.contains_key(repo) {
            self.make_ready(repo.clone());
        }
    }

    fn quick(&self, now: Instant, slow_after: Duration) -> usize {
        let began = self.running.values();
        let quick = began.filter(|began| now.saturating_duration_since(**began) < slow_after);
        quick.count()
    }

    /// How long until the next running task counts as slow.
    fn next_slow(&self, now: Instant, slow_after: Duration) -> Option<Duration> {
        let ran = |began: &Instant| now.saturating_duration_since(*began);
        let left = self.running.values().map(ran);
        let left = left.filter_map(|ran| slow_after.checked_sub(ran));
        left.filter(|left| !left.is_zero()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::Identifier;

    const LIMITS: QueueLimits = QueueLimits {
        slots: 2,
        per_owner: 1,
        slow_after: Duration::from_secs(3_600),
    };

    fn repo(owner: u8, name: &str) -> RepoId {
        RepoId::new(Pubkey([owner; 32]), Identifier::parse(name).unwrap())
    }

    /// What could be begun now, without waiting.
    fn next(queue: &Queue<u32>) -> Option<u32> {
        let now = Instant::now();
        let mut state = queue.lock();
        if state.quick(now, queue.limits.slow_after) >= queue.limits.slots {
            return None;
        }
        state.take(now, queue.limits.per_owner).map(|taken| taken.1)
    }

    #[test]
    fn tasks_of_one_repository_are_done_in_order_and_one_at_a_time() {
        let queue = Queue::new(LIMITS);
        for n in 0..3 {
            queue.add(repo(1, "a"), n);
        }
        for n in 0..3 {
            assert_eq!(next(&queue), Some(n));
            assert_eq!(next(&queue), None, "the one before it still runs");
            queue.done(&repo(1, "a"));
        }
        assert_eq!(next(&queue), None);
        assert!(queue.lock().by_owner.is_empty());
    }

    #[test]
    fn a_slow_repository_delays_only_itself() {
        let queue = Queue::new(LIMITS);
        queue.add(repo(1, "slow"), 1);
        assert_eq!(next(&queue), Some(1));
        for n in 2..100 {
            queue.add(repo(1, "slow"), n);
            queue.add(repo(2, "quick"), 1_000 + n);
        }
        for n in 2..100 {
            assert_eq!(next(&queue), Some(1_000 + n));
            queue.done(&repo(2, "quick"));
        }
    }

    #[test]
    fn an_owner_of_many_repositories_has_a_part_of_the_threads_and_a_turn_like_others() {
        let queue = Queue::new(LIMITS);
        for n in 0..50 {
            queue.add(repo(1, &format!("r{n}")), n);
        }
        queue.add(repo(2, "a"), 1_000);
        assert_eq!(next(&queue), Some(0));
        assert_eq!(next(&queue), Some(1_000));
        queue.done(&repo(2, "a"));
        assert_eq!(next(&queue), None, "one of this owner's runs");
        queue.done(&repo(1, "r0"));
        assert_eq!(next(&queue), Some(1));
    }

    #[test]
    fn what_runs_long_keeps_nobody_else_from_a_thread() {
        let queue = Queue::new(QueueLimits {
            slow_after: Duration::ZERO,
            ..LIMITS
        });
        for owner in 1..10 {
            queue.add(repo(owner, "stuck"), u32::from(owner));
        }
        for owner in 1..10 {
            assert_eq!(next(&queue), Some(owner));
        }
    }

    #[test]
    fn what_waits_at_the_end_is_still_done() {
        let queue = Queue::new(LIMITS);
        queue.add(repo(1, "a"), 1);
        queue.add(repo(1, "a"), 2);
        queue.close();
        std::thread::scope(|scope| {
            let work = || {
                let mut done = Vec::new();
                while let Some((repo, task)) = queue.take() {
                    done.push(task);
                    queue.done(&repo);
                }
                done
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            let done = threads.into_iter().flat_map(|t| t.join().unwrap());
            let mut done: Vec<u32> = done.collect();
            done.sort_unstable();
            assert_eq!(done, [1, 2]);
        });
    }
}
