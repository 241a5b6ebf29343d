//! Who says what where: relay lists of announcements, the relays at which an event is posted, and
//! talk that goes on at other relays without us.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use grasp_core::event::Address;
use grasp_core::{Event, EventId, Kind, Pubkey, RepoId};

use crate::forge::{self, US, tag};
use crate::net::{place, spell};
use crate::people::{Deed, People};

/// Far enough ahead for any run.
const AGES: u64 = 400_000_000;
const HOUR: u64 = 3_600_000;

pub(crate) struct Crowd {
    rng: Rng,
    /// The relays of the world, by place.
    names: Vec<String>,
    /// Relays in one announcement, about.
    list: usize,
    favourites: BTreeMap<Pubkey, Vec<usize>>,
    /// Where the announcement of a repository says that its relays are.
    listed: BTreeMap<RepoId, Vec<usize>>,
    /// Which repository an event is about.
    about: BTreeMap<EventId, RepoId>,
    /// What may never be stored.
    pub(crate) forbidden: BTreeSet<EventId>,
}

/// Where an event is posted.
pub(crate) struct Places {
    pub(crate) us: bool,
    pub(crate) relays: BTreeSet<usize>,
}

impl Crowd {
    pub(crate) fn new(rng: Rng, names: Vec<String>, list: usize) -> Self {
        Self {
            rng,
            names,
            list,
            favourites: BTreeMap::new(),
            listed: BTreeMap::new(),
            about: BTreeMap::new(),
            forbidden: BTreeSet::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The relays that an announcement names besides us, in whatever spelling, with some
    /// nonsense.
    pub(crate) fn list(&mut self, repo: &RepoId) -> Vec<String> {
        if self.is_empty() {
            return Vec::new();
        }
        let rng = &mut self.rng;
        let known = self.favourites.contains_key(&repo.owner);
        if !known || rng.u8(0..4) == 0 {
            let many = rng.usize(0..=self.list.min(self.names.len()));
            let all: Vec<usize> = (0..self.names.len()).collect();
            let drawn = some_of(rng, all, many);
            self.favourites.insert(repo.owner, drawn);
        }
        let drawn = self
            .favourites
            .get(&repo.owner)
            .cloned()
            .unwrap_or_default();
        let mut urls = Vec::new();
        for relay in &drawn {
            let name = self.names.get(*relay).map_or("", String::as_str);
            urls.push(spell(rng, name));
            if rng.u8(0..6) == 0 {
                urls.push(spell(rng, name));
            }
        }
        if rng.u8(0..4) == 0 {
            urls.push(spell(rng, US));
            urls.push(format!("wss://{US}/other"));
            urls.push("wss://nobody.example".to_owned());
            urls.push("https://r0.example".to_owned());
            urls.push("wss://me@r0.example".to_owned());
        }
        self.listed.insert(repo.clone(), drawn);
        urls
    }

    /// Where people post it. What makes a repository comes to us most of the time.
    pub(crate) fn places(&mut self, event: &Event) -> Places {
        let mut relays = BTreeSet::new();
        if self.is_empty() {
            return Places { us: true, relays };
        }
        let makes = matches!(event.kind, Kind::ANNOUNCEMENT | Kind::STATE);
        let us = self.rng.u8(0..10) < if makes { 9 } else { 4 };
        if !us || self.rng.bool() {
            relays = self.somewhere(event);
        }
        Places { us, relays }
    }

    /// Relays of the repository that it is about, or others.
    pub(crate) fn somewhere(&mut self, event: &Event) -> BTreeSet<usize> {
        let listed = self.repo_of(event).and_then(|repo| self.listed.get(&repo));
        let mut from = listed.cloned().unwrap_or_default();
        if from.is_empty() || self.rng.u8(0..5) == 0 {
            from = (0..self.names.len()).collect();
        }
        let many = match self.rng.u8(0..6) {
            0 => from.len(),
            1 | 2 => 2,
            _ => 1,
        };
        let many = many.min(from.len());
        some_of(&mut self.rng, from, many).into_iter().collect()
    }

    fn repo_of(&mut self, event: &Event) -> Option<RepoId> {
        let own = event.address();
        let named = event.tag_values("a").chain(event.tag_values("A"));
        let named = named.filter_map(Address::parse);
        let repo = own.into_iter().chain(named).find_map(|address| {
            let d = forge::repo_of(address.pubkey, &address.d);
            d.filter(|repo| self.listed.contains_key(repo))
        });
        let through = || {
            let names = ["e", "E", "q"];
            let named = names.iter().flat_map(|name| event.tag_values(name));
            let mut named = named.filter_map(|id| EventId::from_hex(id).ok());
            named.find_map(|id| self.about.get(&id).cloned())
        };
        let repo = repo.or_else(through)?;
        self.about.insert(event.id, repo.clone());
        Some(repo)
    }
}

impl People {
    /// Something is said at other relays.
    pub(crate) fn gossip(&mut self, now: u64) -> Vec<(Duration, Deed)> {
        let mut rng = self.crowd.rng.fork();
        let (Some(me), Some(repo)) = (rng.choice(self.keys()), rng.choice(self.repos())) else {
            return Vec::new();
        };
        let signed = self.state_elsewhere(now);
        if !signed.is_empty() {
            return signed;
        }
        match rng.u8(0..10) {
            0..4 => self.thread(&mut rng, me, &repo, now),
            4 => self.burst(&mut rng, me, now),
            5 => {
                let then = now.saturating_sub(rng.u64(0..30_000_000));
                self.thread(&mut rng, me, &repo, then)
            }
            6 => self.for_two(&mut rng, me, &repo, now),
            7 => self.root_comes_late(&mut rng, me, &repo, now),
            8 => self.mischief_elsewhere(&mut rng, me, &repo, now),
            _ => self.deletion_elsewhere(&mut rng, me, now),
        }
    }

    fn say(&mut self, delay_millis: u64, event: Arc<Event>) -> (Duration, Deed) {
        self.has_signed(&event);
        (Duration::from_millis(delay_millis), Deed::Spread(event))
    }

    /// An issue and what is said about it, in any order.
    fn thread(
        &mut self,
        rng: &mut Rng,
        me: Pubkey,
        repo: &RepoId,
        at: u64,
    ) -> Vec<(Duration, Deed)> {
        let root = issue(me, at, &[repo]);
        let mut deeds = vec![self.say(rng.u64(0..5_000), Arc::clone(&root))];
        for n in 0..rng.u64(0..6) {
            let author = rng.choice(self.keys()).unwrap_or(me);
            let event = comment(author, at + n, &root.id, rng.bool());
            deeds.push(self.say(rng.u64(0..20_000), event));
        }
        deeds
    }

    /// More in one second than a page has.
    fn burst(&mut self, rng: &mut Rng, me: Pubkey, now: u64) -> Vec<(Duration, Deed)> {
        let Some(root) = self.pick(rng, |event| grasp_core::nip34::is_root(event.kind)) else {
            return Vec::new();
        };
        let together = rng.u64(0..10_000);
        let many = rng.u64(3..20);
        let nonces: Vec<u64> = (0..many).map(|_| rng.u64(..)).collect();
        let mut deeds = Vec::new();
        for nonce in nonces {
            let nonce = nonce.to_string();
            let tags = vec![tag(&["E", &root.id.to_string()]), tag(&["nonce", &nonce])];
            deeds.push(self.say(together, forge::event(me, Kind(1111), now, tags)));
        }
        deeds
    }

    fn for_two(
        &mut self,
        rng: &mut Rng,
        me: Pubkey,
        repo: &RepoId,
        now: u64,
    ) -> Vec<(Duration, Deed)> {
        let other = rng.choice(self.repos()).unwrap_or_else(|| repo.clone());
        let root = issue(me, now, &[repo, &other]);
        let reply = comment(me, now + 1, &root.id, true);
        vec![
            self.say(rng.u64(0..5_000), root),
            self.say(rng.u64(0..60_000), reply),
        ]
    }

    /// What is said about an issue that nobody shows us for hours.
    fn root_comes_late(
        &mut self,
        rng: &mut Rng,
        me: Pubkey,
        repo: &RepoId,
        now: u64,
    ) -> Vec<(Duration, Deed)> {
        let root = issue(me, now, &[repo]);
        let reply = comment(me, now + 1, &root.id, rng.bool());
        let answer = forge::about(me, 1111, now + 2, "q", &reply.id.to_string());
        vec![
            self.say(rng.u64(0..5_000), reply),
            self.say(rng.u64(0..5_000), answer),
            self.say(rng.u64(60_000..2 * HOUR), root),
        ]
    }

    /// Breaks a rule, so that it may never be stored.
    fn mischief_elsewhere(
        &mut self,
        rng: &mut Rng,
        me: Pubkey,
        repo: &RepoId,
        now: u64,
    ) -> Vec<(Duration, Deed)> {
        let address = forge::address(Kind::ANNOUNCEMENT, repo);
        let mut tags = vec![tag(&["a", &address])];
        let (mut at, mut kind) = (now, 1621);
        match rng.u8(0..4) {
            0 => tags.push(tag(&["-"])),
            // However the clock may be set.
            1 => tags.push(tag(&["expiration", &(now - 10_000).to_string()])),
            2 => at = now + AGES,
            _ => kind = 22_242,
        }
        let event = forge::event(me, Kind(kind), at, tags);
        self.crowd.forbidden.insert(event.id);
        vec![self.say(rng.u64(0..5_000), event)]
    }

    fn deletion_elsewhere(&mut self, rng: &mut Rng, me: Pubkey, now: u64) -> Vec<(Duration, Deed)> {
        let mine = |event: &Event| event.pubkey == me && event.kind == Kind(1621);
        let Some(victim) = self.pick(rng, mine) else {
            return Vec::new();
        };
        let event = forge::deletion(me, now, "e", &victim.id.to_string());
        vec![self.say(rng.u64(0..20_000), event)]
    }
}

fn some_of(rng: &mut Rng, mut all: Vec<usize>, many: usize) -> Vec<usize> {
    rng.shuffle(&mut all);
    all.truncate(many);
    all
}

fn issue(author: Pubkey, at: u64, repos: &[&RepoId]) -> Arc<Event> {
    let named = repos
        .iter()
        .map(|repo| forge::address(Kind::ANNOUNCEMENT, repo));
    let mut tags: Vec<Vec<String>> = named.map(|address| tag(&["a", &address])).collect();
    tags.push(tag(&["subject", "x"]));
    forge::event(author, Kind(1621), at, tags)
}

/// A comment names its root by `E`, one of older days by `e`.
fn comment(author: Pubkey, at: u64, root: &EventId, new: bool) -> Arc<Event> {
    let name = if new { "E" } else { "e" };
    forge::about(author, 1111, at, name, &root.to_string())
}

/// Whether an address means us, whatever the path.
pub(crate) fn is_us(place: &str) -> bool {
    place
        .strip_prefix(US)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The relays that an announcement names, ours left out.
pub(crate) fn relays_of(announcement: &Event) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    let values = grasp_core::nip34::announcement::all_values(announcement, "relays");
    for place in values.filter_map(place).filter(|place| !is_us(place)) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}
