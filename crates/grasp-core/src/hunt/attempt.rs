//! One repository that lacks data: which servers are asked, in which order, for which objects.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Need;
use super::domain::Place;
use super::io::FetchEnd;
use super::queue::Phase;
use crate::clock::Mono;
use crate::clone_url::{CloneUrl, Domain};
use crate::git::ObjectId;
use crate::push::Backing;
use crate::ticket::FetchNo;

/// Servers of one repository that are asked in one attempt.
pub const MAX_SERVERS: usize = 32;
/// Of more servers so many are the best, and the others are drawn: strangers who name servers of
/// their own keep nobody's away for good.
const BEST: usize = MAX_SERVERS / 2;
/// Servers among which is chosen.
const MAX_NAMED: usize = 1_024;
/// Objects of one request, at 50 bytes each on the wire.
pub const MAX_WANTS: usize = 1_000;
/// How often in one attempt a server goes on where it was cut off.
pub const MAX_CUTS: u8 = 64;
/// Fetches of one repository at once: one, and one beside it when it is slow to begin.
pub const MAX_FLIGHTS: usize = 2;

#[derive(Debug)]
pub struct Quarry {
    pub phase: Phase,
    /// Attempts since the last event that left something missing.
    pub attempts: u32,
    /// An event that came during the attempt wants the next one then.
    pub sooner: Option<Mono>,
    pub since: Mono,
    pub servers: Vec<Server>,
    pub flights: Vec<FetchNo>,
    /// Its places in the queues of domains: one for each, however many servers wait there.
    pub places: Vec<(Domain, Place)>,
    /// What came since the attempt began; it need not be asked for while it is being looked at.
    pub found: BTreeSet<ObjectId>,
    /// Events that waited and objects that were missing when somebody looked last.
    pub events: u32,
    pub missing: u32,
    /// Pull requests were among them.
    pub has_tips: bool,
}

/// Objects of one request.
#[derive(Debug, PartialEq, Eq)]
pub struct Wants {
    pub rank: Rank,
    /// Sorted.
    pub objects: Vec<ObjectId>,
}

/// Whose objects come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    State,
    PullRequests,
}

impl Rank {
    pub fn backing(self) -> Backing {
        match self {
            Rank::State => Backing::State,
            Rank::PullRequests => Backing::PullRequests,
        }
    }
}

fn rank(backing: Backing) -> Rank {
    match backing {
        Backing::State => Rank::State,
        Backing::PullRequests | Backing::None => Rank::PullRequests,
    }
}

#[derive(Debug)]
pub struct Server {
    pub url: CloneUrl,
    pub ask: Ask,
    /// It was asked for everything up to this one in this attempt. Objects are asked for in order,
    /// those of states first.
    pub asked: Option<(Rank, ObjectId)>,
    pub cuts: u8,
    pub last: Option<Tried>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// It is to be asked in this attempt.
    Next,
    Asked(FetchNo),
    /// It waits in the queue of its domain.
    Queued,
    /// Not before the next attempt.
    Done,
}

/// How it went the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tried {
    pub at: Mono,
    pub end: FetchEnd,
    pub got: u32,
    pub lacking: u32,
}

impl Quarry {
    pub fn new(at: Mono, now: Mono) -> Self {
        Self {
            phase: Phase::Waiting(at),
            attempts: 0,
            sooner: None,
            since: now,
            servers: Vec::new(),
            flights: Vec::new(),
            places: Vec::new(),
            found: BTreeSet::new(),
            events: 0,
            missing: 0,
            has_tips: false,
        }
    }

    /// Takes up the servers of a new attempt. Those that are being asked, or wait for their
    /// domain, go on as they are.
    pub fn begin(&mut self, urls: Vec<CloneUrl>) {
        let before = std::mem::take(&mut self.servers).into_iter();
        let mut before: FxHashMap<CloneUrl, Server> =
            before.map(|server| (server.url.clone(), server)).collect();
        let taken_up = urls.into_iter().map(|url| match before.remove(&url) {
            Some(server) if server.is_pending() => server,
            server => Server {
                url,
                ask: Ask::Next,
                asked: None,
                cuts: 0,
                last: server.and_then(|server| server.last),
            },
        });
        self.servers = taken_up.collect();
        self.found.clear();
        self.phase = Phase::Trying;
    }

    /// Everything that is missing and not found yet, sorted, each once.
    pub fn look(&mut self, needs: &[Need]) -> Vec<ObjectId> {
        let objects = needs.iter().flat_map(|need| need.objects.iter().copied());
        let mut missing: Vec<ObjectId> = objects.filter(|id| !self.found.contains(id)).collect();
        missing.sort_unstable();
        missing.dedup();
        self.has_tips = needs.iter().any(|need| rank(need.backing) != Rank::State);
        self.events = u32::try_from(needs.len()).unwrap_or(u32::MAX);
        self.missing = u32::try_from(missing.len()).unwrap_or(u32::MAX);
        missing
    }

    /// What is to be asked of one server: the objects of those events that name it, as far as they
    /// have the same backing.
    pub fn wants(&self, server: &Server, needs: &[Need]) -> Wants {
        let named = needs
            .iter()
            .filter(|need| need.servers.contains(&server.url));
        let ranked = named.flat_map(|need| {
            let rank = rank(need.backing);
            need.objects.iter().map(move |id| (rank, *id))
        });
        let open = |(rank, id): &(Rank, ObjectId)| {
            server.asked < Some((*rank, *id)) && !self.found.contains(id)
        };
        let mut open: Vec<(Rank, ObjectId)> = ranked.filter(open).collect();
        open.sort_unstable();
        open.dedup();
        let first = open.first().map_or(Rank::State, |(rank, _)| *rank);
        let same = open.into_iter().filter(|(rank, _)| *rank == first);
        Wants {
            rank: first,
            objects: same.map(|(_, id)| id).take(MAX_WANTS).collect(),
        }
    }

    pub fn server_mut(&mut self, url: &CloneUrl) -> Option<&mut Server> {
        self.servers.iter_mut().find(|server| server.url == *url)
    }

    /// The first server that is to be asked in this attempt.
    pub fn next(&self) -> Option<&Server> {
        self.servers.iter().find(|server| server.ask == Ask::Next)
    }

    /// The first server that waits for this domain.
    pub fn queued(&self, domain: &Domain) -> Option<&Server> {
        let mut queued = self
            .servers
            .iter()
            .filter(|server| server.ask == Ask::Queued);
        queued.find(|server| server.url.domain() == domain)
    }

    pub fn place(&self, domain: &Domain) -> Option<Place> {
        let mut places = self.places.iter();
        places.find_map(|(at, place)| (at == domain).then_some(*place))
    }

    /// Places in queues of domains where nothing of it waits any more.
    pub fn take_idle_places(&mut self) -> Vec<(Domain, Place)> {
        let places = std::mem::take(&mut self.places).into_iter();
        let (kept, idle) = places.partition(|(domain, _)| self.queued(domain).is_some());
        self.places = kept;
        idle
    }
}

impl Server {
    fn is_pending(&self) -> bool {
        matches!(self.ask, Ask::Asked(_) | Ask::Queued)
    }
}

/// The servers of one attempt, the best first: who is asked or waits anyway, then as the events
/// name them, but those first that had the data the last time, and the ill ones last.
pub fn choose(
    needs: &[Need],
    quarry: &Quarry,
    is_known: impl Fn(&CloneUrl) -> bool,
    is_ill: impl Fn(&CloneUrl) -> bool,
    rng: &mut fastrand::Rng,
) -> Vec<CloneUrl> {
    let pending = quarry.servers.iter().filter(|server| server.is_pending());
    let pending: FxHashSet<&CloneUrl> = pending.map(|server| &server.url).collect();
    let mut urls = named(needs);
    urls.sort_by_cached_key(|url| (!pending.contains(url), is_ill(url), !is_known(url)));
    if urls.len() > MAX_SERVERS {
        if let Some(rest) = urls.get_mut(BEST.max(pending.len())..) {
            rng.shuffle(rest);
        }
        urls.truncate(MAX_SERVERS);
    }
    urls
}

/// Each server once: the first of every event, then the second of every event.
fn named(needs: &[Need]) -> Vec<CloneUrl> {
    let mut known: FxHashSet<&CloneUrl> = FxHashSet::default();
    let mut urls = Vec::new();
    let most = needs.iter().map(|need| need.servers.len()).max();
    for rank in 0..most.unwrap_or_default() {
        for url in needs.iter().filter_map(|need| need.servers.get(rank)) {
            if urls.len() < MAX_NAMED && known.insert(url) {
                urls.push(url.clone());
            }
        }
    }
    urls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::EventId;

    fn url(n: usize) -> CloneUrl {
        CloneUrl::parse(&format!("https://h{n}.example/r.git")).unwrap()
    }

    fn need(servers: impl IntoIterator<Item = usize>, objects: &[u8]) -> Need {
        Need {
            event: EventId([0; 32]),
            objects: objects.iter().map(|n| ObjectId([*n; 20])).collect(),
            backing: Backing::State,
            servers: servers.into_iter().map(url).collect(),
        }
    }

    fn chosen(needs: &[Need], seed: u64) -> Vec<CloneUrl> {
        let quarry = Quarry::new(Mono::default(), Mono::default());
        let mut rng = fastrand::Rng::with_seed(seed);
        choose(
            needs,
            &quarry,
            |at| *at == url(2),
            |at| *at == url(1),
            &mut rng,
        )
    }

    #[test]
    fn who_had_the_data_comes_first_and_the_ill_come_last() {
        let needs = [need([1, 2, 3], &[1]), need([4, 3], &[2])];
        assert_eq!(chosen(&needs, 1), [2, 4, 3, 1].map(url));
    }

    #[test]
    fn of_too_many_servers_every_one_is_asked_in_time() {
        let needs: Vec<Need> = (0..200).map(|n| need([n], &[1])).collect();
        let mut asked: FxHashSet<CloneUrl> = FxHashSet::default();
        for seed in 0..200 {
            let chosen = chosen(&needs, seed);
            assert_eq!(chosen.len(), MAX_SERVERS);
            asked.extend(chosen);
        }
        assert_eq!(asked.len(), 200);
    }

    #[test]
    fn a_server_is_asked_for_the_objects_of_events_that_name_it() {
        let needs = [need([1, 2], &[3, 1]), need([2], &[2, 1])];
        let mut quarry = Quarry::new(Mono::default(), Mono::default());
        quarry.begin(vec![url(1), url(2)]);
        let wants = |quarry: &Quarry, n: usize| quarry.wants(&quarry.servers[n], &needs).objects;
        assert_eq!(wants(&quarry, 0), [1, 3].map(|n| ObjectId([n; 20])));
        assert_eq!(wants(&quarry, 1), [1, 2, 3].map(|n| ObjectId([n; 20])));
        quarry.found.insert(ObjectId([2; 20]));
        quarry.servers[1].asked = Some((Rank::State, ObjectId([1; 20])));
        assert_eq!(wants(&quarry, 1), [ObjectId([3; 20])]);
        assert_eq!(quarry.look(&needs), [1, 3].map(|n| ObjectId([n; 20])));
    }

    #[test]
    fn states_come_first_and_apart() {
        let mut strangers = need([1], &[1, 2]);
        strangers.backing = Backing::PullRequests;
        let needs = [strangers, need([1], &[3, 2])];
        let mut quarry = Quarry::new(Mono::default(), Mono::default());
        quarry.begin(vec![url(1)]);
        let first = quarry.wants(&quarry.servers[0], &needs);
        assert_eq!(first.rank, Rank::State);
        assert_eq!(first.objects, [2, 3].map(|n| ObjectId([n; 20])));
        quarry.servers[0].asked = Some((Rank::State, ObjectId([3; 20])));
        quarry.found.insert(ObjectId([2; 20]));
        let second = quarry.wants(&quarry.servers[0], &needs);
        assert_eq!(second.rank, Rank::PullRequests);
        assert_eq!(second.objects, [ObjectId([1; 20])]);
    }
}
