//! Pages of repositories cost work, and strangers and their robots ask for them: they have slots of
//! their own, apart from git's, and are kept for a moment.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{Response, StatusCode, header};
use axum::response::{Html, IntoResponse};
use grasp_core::shares::{Exceeded, NetworkShares, ShareLimits};
use grasp_core::{Network, RepoId};
use rustc_hash::FxHashMap;
use tokio::sync::OnceCell;

use crate::fair_slots::{FairSlots, Full, Permit};

/// Pages that are made at once. Each reads for about a second at most, so that a stranger waits for
/// two of another network, and git and relay have the other threads.
pub const SLOTS: usize = 8;
/// Those that wait for a slot; networks take turns.
const WAITING: usize = 64;
/// Being made or waiting.
const SHARES: ShareLimits = ShareLimits {
    in_all: (SLOTS + WAITING) as u64,
    per_network: PER_NETWORK,
};
pub const PER_NETWORK: u64 = 2;
/// How old a page may be that is shown.
const MAX_AGE: Duration = Duration::from_secs(2);
/// Of all pages that are kept; one has 300 KiB at most and 10 KiB mostly.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Also of those that are being made, or are for repositories that are not here.
const MAX_PAGES: usize = 4_096;
const RETRY_AFTER_SECS: &str = "2";

/// Why there is no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageError {
    NotFound,
    /// Too many wait.
    Busy,
    /// Those of this network are.
    BusyNetwork,
    TimedOut,
    Failed,
}

#[derive(Debug)]
struct Page {
    made: Instant,
    text: Bytes,
}

type Entry = Arc<OnceCell<Page>>;

pub struct Pages {
    slots: Arc<FairSlots>,
    shares: Arc<Mutex<NetworkShares>>,
    cache: Mutex<FxHashMap<RepoId, Entry>>,
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            slots: FairSlots::new(SLOTS, WAITING),
            shares: Arc::default(),
            cache: Mutex::default(),
        }
    }
}

/// One page may be made, until this is dropped.
pub struct PageSlot {
    _permit: Permit,
    _share: Share,
}

/// One page of a network is being made or waits.
struct Share {
    shares: Arc<Mutex<NetworkShares>>,
    network: Option<Network>,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.give_back(self.network, 1);
    }
}

impl Pages {
    /// The page as it was made a moment ago, or a new one. Of many who ask at once for the same,
    /// one makes it and the others wait for it.
    pub async fn get<F>(
        &self,
        repo: &RepoId,
        network: Option<Network>,
        make: impl FnOnce(PageSlot) -> F,
    ) -> Result<Bytes, PageError>
    where
        F: Future<Output = Result<String, PageError>>,
    {
        let entry = self.entry(repo);
        let made = entry.get_or_try_init(|| async {
            let text = Bytes::from(make(self.slot(network).await?).await?);
            let made = Instant::now();
            Ok(Page { made, text })
        });
        match made.await {
            Ok(page) => Ok(page.text.clone()),
            Err(error) => {
                self.forget(repo, &entry);
                Err(error)
            }
        }
    }

    /// Waits for its turn, in bounds.
    async fn slot(&self, network: Option<Network>) -> Result<PageSlot, PageError> {
        let share = self.share(network)?;
        let permit = self.slots.acquire(network).await;
        Ok(PageSlot {
            _permit: permit.map_err(|Full| PageError::Busy)?,
            _share: share,
        })
    }

    fn share(&self, network: Option<Network>) -> Result<Share, PageError> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = shares.take(network, 1, SHARES);
        taken.map_err(|exceeded| match exceeded {
            Exceeded::InAll => PageError::Busy,
            Exceeded::Network => PageError::BusyNetwork,
        })?;
        let shares = Arc::clone(&self.shares);
        Ok(Share { shares, network })
    }

    /// A page that is fresh or being made, or an empty place for one.
    fn entry(&self, repo: &RepoId) -> Entry {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = cache.get(repo).filter(|entry| is_fresh(entry)) {
            return Arc::clone(entry);
        }
        evict_oldest(&mut cache);
        let entry = Entry::default();
        cache.insert(repo.clone(), Arc::clone(&entry));
        entry
    }

    fn forget(&self, repo: &RepoId, entry: &Entry) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.get(repo).is_some_and(|kept| Arc::ptr_eq(kept, entry)) {
            cache.remove(repo);
        }
    }
}

fn is_fresh(entry: &Entry) -> bool {
    entry.get().is_none_or(|page| page.made.elapsed() < MAX_AGE)
}

/// A page is made a few times in a second at most, so that looking at all of them costs little.
fn evict_oldest(cache: &mut FxHashMap<RepoId, Entry>) {
    cache.retain(|_, entry| is_fresh(entry));
    let pages = cache.values().filter_map(|entry| entry.get());
    let bytes: usize = pages.map(|page| page.text.len()).sum();
    if bytes > MAX_BYTES || cache.len() >= MAX_PAGES {
        cache.clear();
    }
}

/// For the reader of a page that there is.
pub fn shown(page: Bytes) -> Response<Body> {
    Html(page).into_response()
}

impl PageError {
    /// For all but [`PageError::NotFound`], which has a page of its own.
    pub fn respond(self) -> Response<Body> {
        let text = match self {
            PageError::NotFound => return StatusCode::NOT_FOUND.into_response(),
            PageError::Failed => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            PageError::Busy => "too many pages are being made, try again in a moment\n",
            PageError::BusyNetwork => {
                "too many pages are being made for your address, try again in a moment\n"
            }
            PageError::TimedOut => "this page takes too long to make, try again later\n",
        };
        let retry = [(header::RETRY_AFTER, RETRY_AFTER_SECS)];
        (StatusCode::SERVICE_UNAVAILABLE, retry, text).into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use grasp_core::{Identifier, Pubkey};
    use tokio::sync::Notify;

    use super::*;

    fn repo(name: &str) -> RepoId {
        RepoId::new(Pubkey([7; 32]), Identifier::parse(name).unwrap())
    }

    fn network(n: u8) -> Option<Network> {
        Some(Network::of([192, 0, 2, n].into()))
    }

    #[tokio::test]
    async fn many_who_ask_for_one_page_have_it_made_once() {
        let (pages, made) = (Pages::default(), AtomicUsize::new(0));
        let get = |n| {
            let (made, pages) = (&made, &pages);
            async move {
                let make = |_slot| async {
                    made.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    Ok("page".to_owned())
                };
                pages.get(&repo("a"), network(n), make).await
            }
        };
        let all = futures_util::future::join_all((0..100).map(get)).await;
        assert!(all.iter().all(|page| page.as_deref() == Ok(b"page")));
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn pages_have_slots_in_all_and_per_network() {
        let (pages, gate) = (Arc::new(Pages::default()), Arc::new(Notify::new()));
        let ask = |name: String, from| {
            let (pages, gate) = (Arc::clone(&pages), Arc::clone(&gate));
            async move {
                let make = |slot| async move {
                    gate.notified().await;
                    drop(slot);
                    Ok(String::new())
                };
                pages.get(&repo(&name), network(from), make).await
            }
        };
        let mut made = tokio::task::JoinSet::new();
        for n in 0..SLOTS {
            made.spawn(ask(n.to_string(), (n / 2) as u8));
            tokio::task::yield_now().await;
        }
        let third = ask("other".to_owned(), 0).await;
        assert_eq!(third, Err(PageError::BusyNetwork));
        // Somebody else waits, and is served when one of them is done.
        made.spawn(ask("another".to_owned(), 99));
        tokio::task::yield_now().await;
        for n in 1..WAITING {
            made.spawn(ask(format!("w{n}"), 100 + (n / 2) as u8));
            tokio::task::yield_now().await;
        }
        let more = ask("one more".to_owned(), 200).await;
        assert_eq!(more, Err(PageError::Busy));
        while !made.is_empty() {
            gate.notify_waiters();
            tokio::task::yield_now().await;
            while let Some(done) = made.try_join_next() {
                assert!(done.unwrap().is_ok());
            }
        }
        assert_eq!(pages.shares.lock().unwrap().total(), 0);
    }

    #[tokio::test]
    async fn what_failed_is_not_kept_and_what_is_kept_is_bounded() {
        let pages = Pages::default();
        let page = |name: String, made: Result<String, PageError>| {
            let pages = &pages;
            async move { pages.get(&repo(&name), None, |_slot| async { made }).await }
        };
        let failed = page("a".to_owned(), Err(PageError::NotFound)).await;
        assert_eq!(failed, Err(PageError::NotFound));
        assert!(pages.cache.lock().unwrap().is_empty());
        let large = "x".repeat(MAX_BYTES / 8);
        for n in 0..100 {
            page(n.to_string(), Ok(large.clone())).await.unwrap();
        }
        assert!(pages.cache.lock().unwrap().len() <= 10);
    }
}
