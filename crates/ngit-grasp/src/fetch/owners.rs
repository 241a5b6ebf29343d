//! What all repositories of one owner may take of the disk. To count it is a walk through all of
//! their files: it is counted anew after a while, and what fetches bring meanwhile is added.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use grasp_core::Pubkey;
use grasp_core::hunt::io::FetchEnd;
use grasp_git::GitError;
use rustc_hash::FxHashMap;

use crate::hosting::Repositories;

/// For how long a count is good enough.
pub(super) const RECOUNT: Duration = Duration::from_secs(60);

pub(super) struct Owners {
    /// Without it each repository only has its own bound.
    most: Option<u64>,
    recount: Duration,
    /// Those counted lately, and those with a fetch under way.
    known: Mutex<FxHashMap<Pubkey, Arc<Size>>>,
}

#[derive(Default)]
struct Size {
    bytes: AtomicU64,
    counted: Mutex<Option<Instant>>,
}

/// What one fetch takes. Unless it is kept, it is given back when it is dropped.
pub(super) struct Part {
    size: Arc<Size>,
    most: Option<u64>,
    taken: AtomicU64,
}

impl Owners {
    pub fn new(most: Option<u64>, recount: Duration) -> Self {
        Self {
            most,
            recount,
            known: Mutex::default(),
        }
    }

    /// Walks through files, if it is time to; `Full` if there is no room.
    pub fn enter(
        &self,
        owner: &Pubkey,
        repositories: &Repositories,
    ) -> Result<Result<Part, FetchEnd>, GitError> {
        let size = self.size_of(owner);
        if self.most.is_some() {
            self.count(&size, owner, repositories)?;
        }
        let part = Part {
            size,
            most: self.most,
            taken: AtomicU64::new(0),
        };
        let is_full = self.most.is_some_and(|most| part.all() >= most);
        Ok(if is_full {
            Err(FetchEnd::Full)
        } else {
            Ok(part)
        })
    }

    fn size_of(&self, owner: &Pubkey) -> Arc<Size> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, size| Arc::strong_count(size) > 1 || size.is_fresh(self.recount));
        Arc::clone(known.entry(*owner).or_default())
    }

    /// What is on its way is on the disk already, and counted with the rest.
    fn count(
        &self,
        size: &Size,
        owner: &Pubkey,
        repositories: &Repositories,
    ) -> Result<(), GitError> {
        let mut counted = size.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.is_none_or(|at| at.elapsed() >= self.recount) {
            let bytes = repositories.size_of_owner(owner)?;
            size.bytes.store(bytes, Ordering::Relaxed);
            *counted = Some(Instant::now());
        }
        Ok(())
    }
}

impl Size {
    fn is_fresh(&self, recount: Duration) -> bool {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.is_some_and(|at| at.elapsed() < recount)
    }
}

impl Part {
    fn all(&self) -> u64 {
        self.size.bytes.load(Ordering::Relaxed)
    }

    /// So many bytes more have come.
    pub fn take(&self, bytes: u64) -> Result<(), FetchEnd> {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        let all = self.size.bytes.fetch_add(bytes, Ordering::Relaxed);
        match self
            .most
            .is_some_and(|most| all.saturating_add(bytes) > most)
        {
            true => Err(FetchEnd::Full),
            false => Ok(()),
        }
    }

    /// Its bytes stay on the disk.
    pub fn keep(self) {
        self.taken.store(0, Ordering::Relaxed);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let (taken, order) = (*self.taken.get_mut(), Ordering::Relaxed);
        let less = |bytes: u64| Some(bytes.saturating_sub(taken));
        let _ = self.size.bytes.fetch_update(order, order, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::{Identifier, RepoId};
    use grasp_git::Repo;

    const OWNER: Pubkey = Pubkey([7; 32]);

    struct Home {
        _folder: tempfile::TempDir,
        repositories: Repositories,
        repo: Repo,
    }

    impl Home {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let repositories = Repositories::new(folder.path().to_owned());
            let id = RepoId::new(OWNER, Identifier::parse("a").unwrap());
            let (repo, _) = Repo::create(&repositories.dir(&id)).unwrap();
            Self {
                _folder: folder,
                repositories,
                repo,
            }
        }

        fn write(&self, bytes: usize) {
            let path = self.repo.dir().join("objects/pack/x.pack");
            std::fs::write(path, vec![0; bytes]).unwrap();
        }

        fn enter(&self, owners: &Owners) -> Result<Part, FetchEnd> {
            owners.enter(&OWNER, &self.repositories).unwrap()
        }
    }

    #[test]
    fn all_repositories_are_counted_once_in_a_while() {
        for (recount, end) in [
            (Duration::ZERO, Some(FetchEnd::Full)),
            (Duration::MAX, None),
        ] {
            let (home, owners) = (Home::new(), Owners::new(Some(10_000), recount));
            assert!(home.enter(&owners).is_ok());
            home.write(10_000);
            assert_eq!(home.enter(&owners).err(), end, "{recount:?}");
        }
    }

    #[test]
    fn fetches_under_way_share_what_is_left() {
        let (home, owners) = (Home::new(), Owners::new(Some(10_000), Duration::MAX));
        let (one, two) = (home.enter(&owners).unwrap(), home.enter(&owners).unwrap());
        assert_eq!(one.take(6_000), Ok(()));
        assert_eq!(two.take(6_000), Err(FetchEnd::Full));
        drop(two);
        assert!(home.enter(&owners).is_ok(), "given back");
        one.keep();
        let three = home.enter(&owners).unwrap();
        assert_eq!(three.take(4_000), Err(FetchEnd::Full), "kept");
    }

    #[test]
    fn without_a_bound_nothing_is_counted() {
        let (home, owners) = (Home::new(), Owners::new(None, Duration::ZERO));
        assert_eq!(home.enter(&owners).unwrap().take(u64::MAX), Ok(()));
    }

    #[test]
    fn owners_whose_count_is_old_are_forgotten() {
        let (home, owners) = (Home::new(), Owners::new(Some(10_000), Duration::ZERO));
        for n in 0..10 {
            let entered = owners.enter(&Pubkey([n; 32]), &home.repositories);
            drop(entered.unwrap());
        }
        assert_eq!(owners.known.lock().unwrap().len(), 1);
    }
}
