//! One repository that lacks data: which servers are asked, in which order, for which objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Need;
use super::domain::Place;
use super::flight::{Class, Flight};
use super::io::FetchEnd;
use super::queue::Phase;
use crate::clock::Mono;
use crate::clone_url::{CloneUrl, Domain};
use crate::git::ObjectId;
use crate::push::Backing;
use crate::ticket::FetchNo;

/// Servers of one repository that are asked in one attempt.
pub const MAX_SERVERS: usize = 32;
/// Of more servers so many are the best, and the others have their turns, one attempt after the
/// other: strangers who name servers of their own keep nobody's away for long.
const BEST: usize = MAX_SERVERS / 2;
/// Servers among which is chosen.
const MAX_NAMED: usize = 1_024;
/// Objects of one request, at 50 bytes each on the wire.
pub const MAX_WANTS: usize = 1_000;
/// How often in one attempt a server goes on where it was cut off.
pub const MAX_CUTS: u8 = 64;
/// Fetches of one repository at once.
pub const MAX_FLIGHTS: usize = 4;
/// Of these, how many may be for pull requests: one place is kept for a state.
pub const MAX_REQUESTS: usize = MAX_FLIGHTS - 1;
/// Fetches of one object at once: one, and one beside it when it is slow.
pub const MAX_BESIDE: usize = 2;
/// Objects that a server is known not to have before it has been asked for all of them, at 20
/// bytes each: 0.3 MB. With more it is asked again in the next attempt.
const MAX_LACKS: usize = 16_000;

#[derive(Debug)]
pub struct Quarry {
    pub phase: Phase,
    /// Whether the repository was served when somebody looked last.
    pub served: bool,
    /// Attempts since the last event that left something missing.
    pub attempts: u32,
    pub since: Mono,
    pub servers: Vec<Server>,
    /// Of more servers than one attempt asks, the last whose turn it was.
    pub turned: Option<CloneUrl>,
    pub flights: Vec<FetchNo>,
    /// Its places in the queues of domains: one for each, however many servers wait there.
    pub places: Vec<(Domain, Place)>,
    /// What came since the attempt began; it need not be asked for while it is being looked at.
    pub found: BTreeSet<ObjectId>,
    /// Objects that were fetched since its data is looked for.
    pub came: usize,
    /// Events that waited and objects that were missing when somebody looked last.
    pub events: u32,
    pub missing: u32,
}

/// Objects of one request.
#[derive(Debug, PartialEq, Eq)]
pub struct Wants {
    pub rank: Rank,
    /// Sorted.
    pub objects: Vec<ObjectId>,
    /// The same server is to be asked for these afterwards, sorted.
    pub after: Vec<ObjectId>,
    /// It may be asked for these, and for others that somebody else is about to bring.
    pub more: bool,
}

impl Wants {
    /// The first of them, as many as have the same rank and one request carries.
    fn of(mut ids: Vec<(Rank, ObjectId)>) -> Option<Self> {
        ids.sort_unstable();
        ids.dedup();
        let (rank, _) = *ids.first()?;
        let same = ids.iter().take_while(|(of, _)| *of == rank);
        let now = same.count().min(MAX_WANTS);
        let after = ids.split_off(now).into_iter().map(|(_, id)| id);
        let objects: Vec<ObjectId> = ids.into_iter().map(|(_, id)| id).collect();
        let mut after: Vec<ObjectId> = after
            .filter(|id| objects.binary_search(id).is_err())
            .collect();
        after.sort_unstable();
        after.dedup();
        Some(Self {
            rank,
            objects,
            more: !after.is_empty(),
            after,
        })
    }
}

/// What is to be asked of one server.
#[derive(Debug, PartialEq, Eq)]
pub enum Asking {
    Now(Wants),
    /// Others are about to bring all that it might have, or the repository has its fetches.
    Later,
    /// Those of its class have as many places as they may have.
    NoPlace(Class),
    Nothing,
}

/// What is under way for one repository.
pub struct Beside<'a>(pub Vec<&'a Flight>);

impl Beside<'_> {
    pub fn is_full(&self) -> bool {
        self.0.len() >= MAX_FLIGHTS
    }

    /// Nothing more may be begun for what has this rank.
    pub fn is_full_for(&self, rank: Rank) -> bool {
        let requests = self.0.iter().filter(|at| at.rank == Rank::PullRequests);
        self.is_full() || rank == Rank::PullRequests && requests.count() >= MAX_REQUESTS
    }

    /// Not too many are after this object, and none that may still bring it in good time. Pull
    /// requests keep no state waiting, whatever they are after.
    fn admits(&self, rank: Rank, id: &ObjectId) -> bool {
        if self.is_full_for(rank) {
            return false;
        }
        let flights = self.0.iter();
        let mut going = flights.filter(|flight| !flight.stopped && flight.rank <= rank);
        let same = going.clone().filter(|flight| flight.wants(id));
        let awaited = |flight: &&Flight| {
            flight.is_promising() && (flight.wants(id) || flight.is_followed_by(id))
        };
        same.count() < MAX_BESIDE && !going.any(awaited)
    }
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

impl Need {
    pub fn rank(&self) -> Rank {
        match self.backing {
            Backing::State => Rank::State,
            Backing::PullRequests | Backing::None => Rank::PullRequests,
        }
    }
}

#[derive(Debug)]
pub struct Server {
    pub url: CloneUrl,
    pub ask: Ask,
    /// What is under way is not all that it might have.
    pub more: bool,
    /// What it said in this attempt that it does not have.
    pub lacks: BTreeSet<ObjectId>,
    pub cuts: u8,
    /// It made way for others in this attempt, and is asked once more after them.
    pub again: bool,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    pub at: Mono,
    pub end: FetchEnd,
    pub got: u32,
    pub lacking: u32,
    pub problem: Option<Arc<str>>,
}

impl Quarry {
    pub fn new(at: Mono, now: Mono) -> Self {
        Self {
            phase: Phase::Waiting(at),
            served: false,
            attempts: 0,
            since: now,
            servers: Vec::new(),
            turned: None,
            flights: Vec::new(),
            places: Vec::new(),
            found: BTreeSet::new(),
            came: 0,
            events: 0,
            missing: 0,
        }
    }

    /// Takes up the servers of a new attempt. Those that are being asked, or wait for their
    /// domain, go on as they are.
    pub fn begin(&mut self, urls: Vec<CloneUrl>) {
        self.turned = urls.get(MAX_SERVERS - 1).cloned();
        let before = std::mem::take(&mut self.servers).into_iter();
        let mut before: FxHashMap<CloneUrl, Server> =
            before.map(|server| (server.url.clone(), server)).collect();
        let taken_up = urls.into_iter().map(|url| match before.remove(&url) {
            Some(server) if server.is_pending() => Server {
                more: true,
                ..server
            },
            server => Server {
                url,
                ask: Ask::Next,
                more: false,
                lacks: BTreeSet::new(),
                cuts: 0,
                again: false,
                last: server.and_then(|server| server.last),
            },
        });
        self.servers = taken_up.collect();
        self.phase = Phase::Trying { again: None };
    }

    /// Everything that is missing and not found yet, sorted, each once.
    pub fn look(&mut self, needs: &[Need]) -> Vec<ObjectId> {
        let objects = needs.iter().flat_map(|need| need.objects.iter().copied());
        let mut missing: Vec<ObjectId> = objects.filter(|id| !self.found.contains(id)).collect();
        missing.sort_unstable();
        missing.dedup();
        self.events = u32::try_from(needs.len()).unwrap_or(u32::MAX);
        self.missing = u32::try_from(missing.len()).unwrap_or(u32::MAX);
        missing
    }

    /// What is to be asked of one server: the objects of those events that name it, as far as they
    /// have the same backing, and nobody else is about to bring them.
    pub fn asking<'a>(
        &self,
        server: &Server,
        needs: impl IntoIterator<Item = &'a Need>,
        beside: &Beside<'_>,
    ) -> Asking {
        let needs = needs.into_iter();
        let named = needs.filter(|need| need.servers.contains(&server.url));
        let ranked = named.flat_map(|need| {
            let rank = need.rank();
            need.objects.iter().map(move |id| (rank, *id))
        });
        let open =
            |(_, id): &(Rank, ObjectId)| !server.lacks.contains(id) && !self.found.contains(id);
        let open: Vec<(Rank, ObjectId)> = ranked.filter(open).collect();
        let free = open.iter().filter(|(rank, id)| beside.admits(*rank, id));
        match Wants::of(free.copied().collect()) {
            _ if open.is_empty() => Asking::Nothing,
            None => Asking::Later,
            Some(wants) => Asking::Now(Wants {
                more: wants.objects.len() < open.len(),
                ..wants
            }),
        }
    }

    pub fn server(&self, url: &CloneUrl) -> Option<&Server> {
        self.servers.iter().find(|server| server.url == *url)
    }

    pub fn server_mut(&mut self, url: &CloneUrl) -> Option<&mut Server> {
        self.servers.iter_mut().find(|server| server.url == *url)
    }

    /// Servers that are to be asked in this attempt, in order.
    pub fn next(&self) -> impl Iterator<Item = &Server> {
        let servers = self.servers.iter();
        servers.filter(|server| server.ask == Ask::Next)
    }

    /// One that has not been asked in this attempt is to be.
    pub fn is_to_ask_others(&self) -> bool {
        self.next().any(|server| !server.again)
    }

    /// It is asked after all the others.
    pub fn put_last(&mut self, url: &CloneUrl) {
        let at = self.servers.iter().position(|server| server.url == *url);
        if let Some(at) = at {
            let server = self.servers.remove(at);
            self.servers.push(server);
        }
    }

    /// Servers that wait for this domain, in order.
    pub fn queued(&self, domain: &Domain) -> impl Iterator<Item = &Server> {
        let servers = self.servers.iter();
        servers.filter(move |server| server.ask == Ask::Queued && server.url.domain() == domain)
    }

    pub fn waits_for(&self, domain: &Domain) -> bool {
        self.queued(domain).next().is_some()
    }

    pub fn place(&self, domain: &Domain) -> Option<Place> {
        let mut places = self.places.iter();
        places.find_map(|(at, place)| (at == domain).then_some(*place))
    }

    /// Places in queues of domains where nothing of it waits any more.
    pub fn take_idle_places(&mut self) -> Vec<(Domain, Place)> {
        let places = std::mem::take(&mut self.places).into_iter();
        let (kept, idle) = places.partition(|(domain, _)| self.waits_for(domain));
        self.places = kept;
        idle
    }
}

impl Server {
    fn is_pending(&self) -> bool {
        matches!(self.ask, Ask::Asked(_) | Ask::Queued)
    }

    /// It is not asked again before the next attempt.
    pub fn be_done(&mut self) {
        self.ask = Ask::Done;
        self.lacks.clear();
    }

    /// Whether there is room to remember that.
    pub fn learn_lacks(&mut self, ids: impl Iterator<Item = ObjectId>) -> bool {
        self.lacks.extend(ids);
        self.lacks.len() <= MAX_LACKS
    }
}

/// The servers of one attempt, the best first: who is asked or waits anyway, then as the events
/// name them, but those first that had the data the last time, and the ill ones last.
pub fn choose(
    needs: &[Need],
    quarry: &Quarry,
    is_known: impl Fn(&CloneUrl) -> bool,
    is_ill: impl Fn(&CloneUrl) -> bool,
) -> Vec<CloneUrl> {
    let pending = quarry.servers.iter().filter(|server| server.is_pending());
    let pending: FxHashSet<&CloneUrl> = pending.map(|server| &server.url).collect();
    let mut urls = named(needs);
    urls.sort_by_cached_key(|url| (!pending.contains(url), is_ill(url), !is_known(url)));
    if urls.len() > MAX_SERVERS {
        let mut rest = urls.split_off(BEST.max(pending.len()).min(MAX_SERVERS));
        let had_its_turn = |url: &CloneUrl| quarry.turned.as_ref().is_some_and(|last| url <= last);
        rest.sort_by_cached_key(|url| (had_its_turn(url), url.clone()));
        urls.append(&mut rest);
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

    fn chosen(needs: &[Need], quarry: &Quarry) -> Vec<CloneUrl> {
        choose(needs, quarry, |at| *at == url(2), |at| *at == url(1))
    }

    fn quarry() -> Quarry {
        Quarry::new(Mono::default(), Mono::default())
    }

    #[test]
    fn who_had_the_data_comes_first_and_the_ill_come_last() {
        let needs = [need([1, 2, 3], &[1]), need([4, 3], &[2])];
        assert_eq!(chosen(&needs, &quarry()), [2, 4, 3, 1].map(url));
    }

    #[test]
    fn of_too_many_servers_every_one_is_asked_in_time() {
        let needs: Vec<Need> = (0..200).map(|n| need([n], &[1])).collect();
        let mut asked: FxHashSet<CloneUrl> = FxHashSet::default();
        let mut quarry = quarry();
        // 16 are the best, and the other 184 come in turns of 16.
        for _ in 0..12 {
            let chosen = chosen(&needs, &quarry);
            assert_eq!(chosen.len(), MAX_SERVERS);
            quarry.begin(chosen.clone());
            asked.extend(chosen);
        }
        assert_eq!(asked.len(), 200);
    }

    #[test]
    fn a_server_is_asked_for_the_objects_of_events_that_name_it() {
        let needs = [need([1, 2], &[3, 1]), need([2], &[2, 1])];
        let mut quarry = Quarry::new(Mono::default(), Mono::default());
        quarry.begin(vec![url(1), url(2)]);
        let wants = |quarry: &Quarry, n: usize| {
            objects(quarry.asking(&quarry.servers[n], &needs, &NOTHING))
        };
        assert_eq!(wants(&quarry, 0), [1, 3].map(|n| ObjectId([n; 20])));
        assert_eq!(wants(&quarry, 1), [1, 2, 3].map(|n| ObjectId([n; 20])));
        quarry.found.insert(ObjectId([2; 20]));
        quarry.servers[1].lacks.insert(ObjectId([1; 20]));
        assert_eq!(wants(&quarry, 1), [ObjectId([3; 20])]);
        assert_eq!(quarry.look(&needs), [1, 3].map(|n| ObjectId([n; 20])));
    }

    const NOTHING: Beside<'_> = Beside(Vec::new());

    fn objects(asking: Asking) -> Vec<ObjectId> {
        match asking {
            Asking::Now(wants) => wants.objects,
            Asking::Later | Asking::NoPlace(_) | Asking::Nothing => Vec::new(),
        }
    }

    #[test]
    fn states_come_first_and_apart() {
        let mut strangers = need([1], &[1, 2]);
        strangers.backing = Backing::PullRequests;
        let needs = [strangers, need([1], &[3, 2])];
        let mut quarry = Quarry::new(Mono::default(), Mono::default());
        quarry.begin(vec![url(1)]);
        let asking = |quarry: &Quarry| quarry.asking(&quarry.servers[0], &needs, &NOTHING);
        let (two, three) = (ObjectId([2; 20]), ObjectId([3; 20]));
        let first = Wants {
            rank: Rank::State,
            objects: vec![two, three],
            after: vec![ObjectId([1; 20])],
            more: true,
        };
        assert_eq!(asking(&quarry), Asking::Now(first));
        quarry.servers[0].lacks.insert(three);
        quarry.found.insert(two);
        let second = Wants {
            rank: Rank::PullRequests,
            objects: vec![ObjectId([1; 20])],
            after: Vec::new(),
            more: false,
        };
        assert_eq!(asking(&quarry), Asking::Now(second));
    }
}
