//! What sync must have brought by the end, by set algebra over what the relays have, what is
//! stored and what the stored announcements say. Nothing of how sync works is used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use grasp_core::event::Address;
use grasp_core::nip34::{Rank, State, announcement::all_values, is_root};
use grasp_core::{Event, EventId, Facts as _, Kind, RepoId, Timestamp};

use crate::checkers::View;
use crate::crowd::{is_us, relays_of};
use crate::disk::Disk;
use crate::forge::{self, US};
use crate::net::{Net, Relay, place};

/// Further ahead than this nothing is taken.
const AHEAD: u64 = 15 * 60;

/// How much time there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    /// Hours without trouble: enough for relays that answer at once.
    Storm,
    /// A day more, in which everything is compared once.
    Day,
}

pub(crate) struct Expected<'a> {
    pub(crate) view: &'a View<'a>,
    pub(crate) net: &'a Net,
    pub(crate) forbidden: &'a BTreeSet<EventId>,
    pub(crate) now: Timestamp,
    pub(crate) since: Since,
    /// The storm ended then.
    pub(crate) calm_at: std::time::Duration,
    pub(crate) relays_per_repository: usize,
    pub(crate) bootstrap: usize,
    /// Whether we compare at all.
    pub(crate) compares: bool,
    /// So few events are remembered that some are forgotten that came too early, and not missed
    /// when their time has come.
    pub(crate) forgets: bool,
    /// So few events of a key may wait that they take turns, each for half an hour.
    pub(crate) take_turns: bool,
    /// Events that were to be held, whether or not the disk took them.
    pub(crate) waited: &'a BTreeSet<EventId>,
}

impl Expected<'_> {
    pub(crate) fn compare(&self) -> Result<(), String> {
        let disk = self.view.disk;
        if let Some(id) = self
            .forbidden
            .iter()
            .find(|id| disk.once_stored.contains_key(id))
        {
            return Err(format!("{id} is stored and should not be"));
        }
        let places = self.places();
        for (n, relay) in self.net.relays().iter().enumerate() {
            let none = Vec::new();
            let repos = places.get(&relay.name).unwrap_or(&none);
            let known = !repos.is_empty() || n < self.bootstrap;
            if known && self.counts(relay) {
                self.everything_came(relay, repos)?;
            }
        }
        Ok(())
    }

    fn counts(&self, relay: &Relay) -> bool {
        match self.since {
            _ if self.forgets => false,
            Since::Storm => relay.traits.is_prompt() && relay.away_until <= self.calm_at,
            Since::Day => relay.traits.is_honest(),
        }
    }

    /// The served repositories at each relay.
    fn places(&self) -> BTreeMap<String, Vec<RepoId>> {
        let mut places: BTreeMap<String, Vec<RepoId>> = BTreeMap::new();
        let stored = self.view.disk.stored();
        for event in stored.filter(|event| event.kind == Kind::ANNOUNCEMENT && lists_us(event)) {
            let Some(repo) = repo_of(event) else {
                continue;
            };
            for place in relays_of(event)
                .into_iter()
                .take(self.relays_per_repository)
            {
                places.entry(place).or_default().push(repo.clone());
            }
        }
        places
    }

    fn everything_came(&self, relay: &Relay, repos: &[RepoId]) -> Result<(), String> {
        let addresses = repos
            .iter()
            .map(|repo| forge::address(Kind::ANNOUNCEMENT, repo));
        let addresses: BTreeSet<String> = addresses.collect();
        let stored = self.view.disk.stored();
        let roots = stored.filter(|event| is_root(event.kind));
        let roots = roots.filter(|root| self.names(root, repos));
        let roots: BTreeSet<String> = roots.map(|root| root.id.to_string()).collect();
        let is_due = |event: &&Arc<Event>| {
            matches!(event.kind, Kind::ANNOUNCEMENT | Kind::STATE)
                || event.indexed_tags().any(|(letter, value)| match letter {
                    b'a' | b'A' => addresses.contains(value),
                    b'e' | b'E' => roots.contains(value),
                    b'q' => addresses.contains(value) || roots.contains(value),
                    _ => false,
                })
        };
        let due: Vec<&Arc<Event>> = relay.events().filter(is_due).collect();
        let later = |event: &Event| self.since == Since::Storm && relay.is_backdated(&event.id);
        for event in due.iter().filter(|event| !later(event)) {
            if !self.is_settled(event) && !self.is_hidden_by_others(event, &due, relay) {
                return Err(format!(
                    "{} (kind {}) is at {} and did not come: {:?}",
                    event.id, event.kind, relay.name, relay.traits
                ));
            }
        }
        Ok(())
    }

    /// A relay that gives so many events at most, and with which as many are not compared, cannot
    /// show what lies under them in one second.
    fn is_hidden_by_others(&self, event: &Event, due: &[&Arc<Event>], relay: &Relay) -> bool {
        let same = due.iter();
        let same = same.filter(|other| other.created_at == event.created_at);
        let same = same.count();
        let compared = self.compares && relay.traits.compares_so_many(same);
        !compared && relay.traits.cap.is_some_and(|cap| same >= cap)
    }

    /// It is for one of these repositories, or its own root is.
    fn names(&self, root: &Event, repos: &[RepoId]) -> bool {
        let direct = |event: &Event| {
            let named = event.tag_values("a").chain(event.tag_values("A"));
            let mut named = named.filter_map(Address::parse);
            named.any(|address| {
                RepoId::of_address(&address).is_some_and(|repo| repos.contains(&repo))
            })
        };
        let update_of = root.tag("E").or_else(|| root.tag("e"));
        let update_of = update_of.filter(|_| root.kind == Kind(1619));
        let update_of = update_of.and_then(|id| EventId::from_hex(id).ok());
        let above = update_of.and_then(|id| self.view.disk.event(&id));
        direct(root) || above.is_some_and(|above| above.kind == Kind(1618) && direct(&above))
    }

    /// It is here, or it was, or it may not be.
    fn is_settled(&self, event: &Arc<Event>) -> bool {
        let disk = self.view.disk;
        disk.is_stored(&event.id)
            || disk.foresee(event).is_some()
            || is_inadmissible(event, self.now)
            || self.needs_git(event) && (self.was_here(event) || self.take_turns)
    }

    fn needs_git(&self, event: &Event) -> bool {
        matches!(
            event.kind,
            Kind::ANNOUNCEMENT | Kind::STATE | Kind(1618 | 1619)
        )
    }

    /// It waited for its git data, or nobody here would let it wait.
    fn was_here(&self, event: &Event) -> bool {
        let (disk, registry) = (self.view.disk, self.view.core.registry());
        if self.waited.contains(&event.id) || disk.once_stored.contains_key(&event.id) {
            return true;
        }
        match event.kind {
            Kind::ANNOUNCEMENT => !lists_us(event) || has_newer(event, disk),
            Kind::STATE => State::read(event).map_or(true, |state| {
                let repos = registry.maintained_by(&state.author, &state.identifier);
                repos.is_empty()
            }),
            _ => {
                let mut hosted = registry.hosted().map(|(repo, _)| repo.clone());
                let hosted: Vec<RepoId> = hosted.by_ref().collect();
                !self.names(event, &hosted)
            }
        }
    }
}

fn is_inadmissible(event: &Event, now: Timestamp) -> bool {
    event.kind.is_ephemeral()
        || matches!(event.kind, Kind::AUTH | Kind::VANISH)
        || event.is_expired(now)
        || event.is_protected()
        || event.created_at.0 > now.0 + AHEAD
}

fn has_newer(event: &Event, disk: &Disk) -> bool {
    let newer =
        |other: &Event| other.address() == event.address() && Rank::of(other) > Rank::of(event);
    disk.once_held.values().any(|row| newer(&row.event))
        || disk.once_stored.values().any(|other| newer(other))
}

fn repo_of(announcement: &Event) -> Option<RepoId> {
    forge::repo_of(announcement.pubkey, announcement.tag("d")?)
}

fn lists_us(announcement: &Event) -> bool {
    let (npub, d) = (announcement.pubkey.npub(), announcement.tag("d"));
    let clone = format!("https://{US}/{npub}/{}.git", d.unwrap_or_default());
    let mut relays = all_values(announcement, "relays").filter_map(place);
    all_values(announcement, "clone").any(|url| url == clone)
        && relays.any(|place| is_us(&place) && !place.contains('/'))
}
