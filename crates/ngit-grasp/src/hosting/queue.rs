//! Work that waits for a thread: in order for each repository, in turn between owners, so that one
//! repository's slow task delays that repository alone. Repositories that were slow have a queue of
//! their own, and a part of the threads.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use grasp_core::{Pubkey, RepoId};

#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// Tasks that run at once and have not run long yet, without those of slow repositories.
    pub slots: usize,
    /// Tasks of slow repositories that run at once, however long.
    pub slow_slots: usize,
    /// Tasks on repositories of one owner that run at once, however long.
    pub per_owner: usize,
    /// A task that runs longer gives its slot back: another thread may go on with others, if there
    /// are more threads than slots.
    pub slow_after: Duration,
    /// A repository is slow once a task of it took this long,
    pub slow_task: Duration,
    /// and for this long after it.
    pub slow_for: Duration,
}

pub struct Queue<T> {
    limits: QueueLimits,
    state: Mutex<State<T>>,
    changed: Condvar,
}

/// The maps have keyed hashes: names of repositories are chosen by strangers.
struct State<T> {
    quick: Ready,
    slow: Ready,
    waiting: HashMap<RepoId, VecDeque<T>>,
    running: HashMap<RepoId, Running>,
    running_of: HashMap<Pubkey, usize>,
    /// Until when a repository counts as slow.
    slow_until: HashMap<RepoId, Instant>,
    closed: bool,
}

/// Repositories with waiting tasks of which none runs.
#[derive(Default)]
struct Ready {
    /// Owners with something that could be begun, the next one first.
    owners: VecDeque<Pubkey>,
    by_owner: HashMap<Pubkey, VecDeque<RepoId>>,
}

#[derive(Clone, Copy)]
struct Running {
    began: Instant,
    /// In a slot of the slow repositories.
    is_slow: bool,
}

/// Of slow repositories that are remembered; 200 bytes each.
const MAX_SLOW: usize = 10_000;

impl<T> Queue<T> {
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            state: Mutex::new(State {
                quick: Ready::default(),
                slow: Ready::default(),
                waiting: HashMap::new(),
                running: HashMap::new(),
                running_of: HashMap::new(),
                slow_until: HashMap::new(),
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
            state.make_ready(repo, Instant::now());
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
            if let Some(taken) = state.take(now, &self.limits) {
                return Some(taken);
            }
            if state.closed && state.waiting.is_empty() {
                return None;
            }
            // A slot may come free because a task becomes slow, of which nobody tells.
            let changed = &self.changed;
            state = match state.next_slow(now, self.limits.slow_after) {
                Some(wait) if !state.quick.owners.is_empty() => {
                    let waited = changed.wait_timeout(state, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                _ => changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    pub fn done(&self, repo: &RepoId) {
        self.lock().done(repo, Instant::now(), &self.limits);
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

impl Ready {
    fn add(&mut self, repo: RepoId) {
        let repos = self.by_owner.entry(repo.owner).or_default();
        if repos.is_empty() {
            self.owners.push_back(repo.owner);
        }
        repos.push_back(repo);
    }

    /// Of the next owner who may have one more, the next repository. Owners who may not are no more
    /// than there are threads.
    fn take(&mut self, may_run: impl Fn(&Pubkey) -> bool) -> Option<RepoId> {
        let at = self.owners.iter().position(may_run)?;
        let key = self.owners.remove(at)?;
        let repos = self.by_owner.get_mut(&key)?;
        let repo = repos.pop_front();
        match repos.is_empty() {
            true => drop(self.by_owner.remove(&key)),
            false => self.owners.push_back(key),
        }
        repo
    }
}

impl<T> State<T> {
    fn make_ready(&mut self, repo: RepoId, now: Instant) {
        let slow = self.slow_until.get(&repo);
        match slow.is_some_and(|until| now < *until) {
            true => self.slow.add(repo),
            false => self.quick.add(repo),
        }
    }

    /// Each kind has slots of its own, so that neither waits for the other.
    fn take(&mut self, now: Instant, limits: &QueueLimits) -> Option<(RepoId, T)> {
        let may_run = |key: &Pubkey| {
            let running = self.running_of.get(key).copied();
            running.unwrap_or(0) < limits.per_owner
        };
        let (mut repo, mut is_slow) = (None, false);
        if self.quick(now, limits.slow_after) < limits.slots {
            repo = self.quick.take(may_run);
        }
        if repo.is_none() && self.count_slow() < limits.slow_slots {
            (repo, is_slow) = (self.slow.take(may_run), true);
        }
        let repo = repo?;
        let waiting = self.waiting.get_mut(&repo)?;
        let task = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&repo);
        }
        *self.running_of.entry(repo.owner).or_default() += 1;
        let running = Running {
            began: now,
            is_slow,
        };
        self.running.insert(repo.clone(), running);
        Some((repo, task))
    }

    fn done(&mut self, repo: &RepoId, now: Instant, limits: &QueueLimits) {
        let Some(Running { began, .. }) = self.running.remove(repo) else {
            return;
        };
        if now.saturating_duration_since(began) >= limits.slow_task {
            self.remember_slow(repo, now, limits.slow_for);
        }
        if let Some(running) = self.running_of.get_mut(&repo.owner) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                self.running_of.remove(&repo.owner);
            }
        }
        if self.waiting.contains_key(repo) {
            self.make_ready(repo.clone(), now);
        }
    }

    fn remember_slow(&mut self, repo: &RepoId, now: Instant, slow_for: Duration) {
        if self.slow_until.len() >= MAX_SLOW {
            self.slow_until.retain(|_, until| now < *until);
        }
        let has_room = self.slow_until.len() < MAX_SLOW;
        if has_room || self.slow_until.contains_key(repo) {
            self.slow_until.insert(repo.clone(), now + slow_for);
        }
    }

    /// Tasks in slots of quick repositories that have not run long.
    fn quick(&self, now: Instant, slow_after: Duration) -> usize {
        let running = self.running.values().filter(|running| !running.is_slow);
        let ran = running.map(|running| now.saturating_duration_since(running.began));
        ran.filter(|ran| *ran < slow_after).count()
    }

    fn count_slow(&self) -> usize {
        let running = self.running.values();
        running.filter(|running| running.is_slow).count()
    }

    /// How long until the next running task gives its slot back.
    fn next_slow(&self, now: Instant, slow_after: Duration) -> Option<Duration> {
        let running = self.running.values().filter(|running| !running.is_slow);
        let ran = running.map(|running| now.saturating_duration_since(running.began));
        let left = ran.filter_map(|ran| slow_after.checked_sub(ran));
        left.filter(|left| !left.is_zero()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::Identifier;

    const LIMITS: QueueLimits = QueueLimits {
        slots: 2,
        slow_slots: 2,
        per_owner: 1,
        slow_after: Duration::from_secs(3_600),
        slow_task: Duration::from_secs(3_600),
        slow_for: Duration::from_secs(3_600),
    };

    fn repo(owner: u8, name: &str) -> RepoId {
        RepoId::new(Pubkey([owner; 32]), Identifier::parse(name).unwrap())
    }

    /// What could be begun now, without waiting.
    fn next(queue: &Queue<u32>) -> Option<u32> {
        let taken = queue.lock().take(Instant::now(), &queue.limits);
        taken.map(|taken| taken.1)
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
        let state = queue.lock();
        assert!(state.quick.by_owner.is_empty() && state.running_of.is_empty());
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

    /// Twenty owners of repositories that were slow once, and one of a quick one.
    #[test]
    fn slow_repositories_leave_threads_to_quick_ones() {
        let queue = |slow_for| {
            let queue = Queue::new(QueueLimits {
                slots: 4,
                slow_slots: 4,
                slow_task: Duration::ZERO,
                slow_for,
                ..LIMITS
            });
            for owner in 1..=20 {
                queue.add(repo(owner, "slow"), 0);
                assert_eq!(next(&queue), Some(0));
                queue.done(&repo(owner, "slow"));
            }
            for owner in 1..=20 {
                queue.add(repo(owner, "slow"), u32::from(owner));
            }
            queue
        };
        let slow = queue(Duration::from_secs(3_600));
        for owner in 1..=4 {
            assert_eq!(next(&slow), Some(owner));
        }
        assert_eq!(next(&slow), None, "that is their part of the threads");
        slow.add(repo(99, "quick"), 1_000);
        assert_eq!(next(&slow), Some(1_000));
        assert_eq!(next(&slow), None);
        slow.done(&repo(1, "slow"));
        assert_eq!(next(&slow), Some(5), "nor do they wait for ever");

        let forgiven = queue(Duration::ZERO);
        let begun = std::iter::from_fn(|| next(&forgiven)).count();
        assert_eq!(begun, 4, "as many as there are slots for quick ones");
        assert_eq!(forgiven.lock().count_slow(), 0);
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
