//! Names of strangers, resolved. A name server that does not answer holds a thread for half a
//! minute: names are asked for in three queues, by how they behaved last, so that those that
//! never answer wait for each other and for nobody else.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use grasp_core::sync::io::End;
use rustc_hash::FxHashMap;
use tokio::sync::Semaphore;

/// Threads for names that answered at once when they were asked last, for those that nobody knows,
/// and for those that did not answer: 56 of the 512 that may wait for something.
const PROMPT: usize = 16;
const UNKNOWN: usize = 32;
const SLOW: usize = 8;
/// What takes longer is slow.
const PROMPTLY: Duration = Duration::from_secs(3);
/// Names that are remembered, about 100 bytes each: 400 kB. With more of them all are new again.
const NAMES: usize = 4_096;

/// How a name behaved when it was asked for last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Prompt,
    Unknown,
    Slow,
}

type Resolver = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

#[derive(Clone)]
pub struct LookUps {
    resolver: Arc<Resolver>,
    manners: Arc<Mutex<FxHashMap<String, Manner>>>,
    prompt: Arc<Semaphore>,
    unknown: Arc<Semaphore>,
    slow: Arc<Semaphore>,
}

impl LookUps {
    /// As this machine resolves names.
    pub fn new() -> Self {
        Self::by(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    pub(super) fn by(
        resolver: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            resolver: Arc::new(resolver),
            manners: Arc::default(),
            prompt: Arc::new(Semaphore::new(PROMPT)),
            unknown: Arc::new(Semaphore::new(UNKNOWN)),
            slow: Arc::new(Semaphore::new(SLOW)),
        }
    }

    /// All addresses of a name; never none.
    pub async fn find(&self, host: String, port: u16) -> Result<Vec<SocketAddr>, End> {
        let queue = match self.manner(&host) {
            Manner::Prompt => &self.prompt,
            Manner::Unknown => &self.unknown,
            Manner::Slow => &self.slow,
        };
        let turn = Arc::clone(queue).acquire_owned().await;
        let turn = turn.map_err(|_| End::Failed)?;
        let all = self.clone();
        let looked_up = tokio::task::spawn_blocking(move || {
            // Kept by the thread, not by whoever waits for it and may give up.
            let _turn = turn;
            all.ask(host, port)
        });
        match looked_up.await {
            Ok(Ok(found)) if !found.is_empty() => Ok(found),
            Ok(_) => Err(End::NoSuchHost),
            Err(_) => Err(End::Failed),
        }
    }

    fn ask(&self, host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
        let began = Instant::now();
        let found = (self.resolver)(&host, port);
        let manner = match &found {
            _ if began.elapsed() > PROMPTLY => Manner::Slow,
            Ok(_) => Manner::Prompt,
            // That it does not exist is an answer, but none to rely on.
            Err(_) => Manner::Unknown,
        };
        self.remember(host, manner);
        found
    }

    fn manner(&self, host: &str) -> Manner {
        let manners = self.manners.lock().unwrap_or_else(PoisonError::into_inner);
        manners.get(host).copied().unwrap_or(Manner::Unknown)
    }

    fn remember(&self, host: String, manner: Manner) {
        let mut manners = self.manners.lock().unwrap_or_else(PoisonError::into_inner);
        if manner == Manner::Unknown {
            manners.remove(&host);
            return;
        }
        if manners.len() >= NAMES && !manners.contains_key(&host) {
            manners.clear();
        }
        manners.insert(host, manner);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Names that begin with "dead" have a server that does not answer until the sender is gone.
    fn lookups() -> (LookUps, mpsc::Sender<()>) {
        let (dead, silence) = mpsc::channel::<()>();
        let silence = Mutex::new(silence);
        let lookups = LookUps::by(move |host, port| {
            if host.starts_with("dead") {
                let _ = silence.lock().unwrap().recv();
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            Ok(vec![SocketAddr::from(([192, 0, 2, 1], port))])
        });
        (lookups, dead)
    }

    fn find(lookups: &LookUps, host: String) -> tokio::task::JoinHandle<Result<usize, End>> {
        let lookups = lookups.clone();
        tokio::spawn(async move { lookups.find(host, 80).await.map(|found| found.len()) })
    }

    async fn found(lookups: &LookUps, host: &str) -> Result<usize, End> {
        let found = find(lookups, host.to_owned());
        timeout(PATIENCE, found).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn names_that_answer_wait_for_none_that_do_not() {
        let (lookups, dead) = lookups();
        assert_eq!(found(&lookups, "good.example").await, Ok(1));
        let waiting: Vec<_> = (0..2 * UNKNOWN)
            .map(|n| find(&lookups, format!("dead{n}.example")))
            .collect();
        while lookups.unknown.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(found(&lookups, "good.example").await, Ok(1));
        drop(dead);
        for ended in waiting {
            assert_eq!(ended.await.unwrap(), Err(End::NoSuchHost));
        }
    }

    #[tokio::test]
    async fn names_that_did_not_answer_wait_for_each_other() {
        let (lookups, dead) = lookups();
        let hosts: Vec<String> = (0..50).map(|n| format!("dead{n}.example")).collect();
        for host in &hosts {
            lookups.remember(host.clone(), Manner::Slow);
        }
        let waiting: Vec<_> = hosts.into_iter().map(|host| find(&lookups, host)).collect();
        while lookups.slow.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(found(&lookups, "new.example").await, Ok(1));
        assert_eq!(lookups.unknown.available_permits(), UNKNOWN);
        drop(dead);
        for ended in waiting {
            assert_eq!(ended.await.unwrap(), Err(End::NoSuchHost));
        }
    }

    #[test]
    fn as_many_names_are_remembered_as_there_is_room_for() {
        let (lookups, _dead) = lookups();
        for n in 0..3 * NAMES {
            lookups.remember(n.to_string(), Manner::Prompt);
        }
        assert!(lookups.manners.lock().unwrap().len() <= NAMES);
        let last = (3 * NAMES - 1).to_string();
        assert_eq!(lookups.manner(&last), Manner::Prompt);
        lookups.ask(last.clone(), 1).unwrap();
        assert_eq!(lookups.manner(&last), Manner::Prompt);
        lookups.remember(last.clone(), Manner::Unknown);
        assert_eq!(lookups.manner(&last), Manner::Unknown);
    }
}
