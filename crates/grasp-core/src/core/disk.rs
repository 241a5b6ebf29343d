//! What an event may take of the disk: nothing from strangers when little is left, and a day's share
//! of what other relays bring and of what clients publish.

use super::Core;
use super::syncing::repository_named_by;
use crate::admit::{Origin, Refusal};
use crate::byte_quota::ByteQuota;
use crate::clock::Mono;
use crate::event::{Event, Kind};
use crate::facts::Facts;
use crate::id::Pubkey;
use crate::limits::{Limits, SyncLimits};
use crate::network::Network;
use crate::nip34::{Identifier, RepoId, Target, targets};
use crate::registry::Standing;
use crate::ticket::RelayNo;

/// Relays, repositories, networks and keys whose bytes are counted: 100,000 x 5 x about 100 bytes =
/// 50 MB.
const MAX_COUNTED: usize = 100_000;
/// A deletion that is taken while the disk is low names some fifty things.
const MAX_DELETION_BYTES: usize = 4 * 1024;
/// Repositories that an event names and that are looked at for one of its author's.
const MAX_NAMED: usize = 8;

/// Bytes that came by sync and were stored or held.
#[derive(Debug)]
pub struct SyncedBytes {
    relays: ByteQuota<RelayNo>,
    repositories: ByteQuota<RepoId>,
    keys: ByteQuota<Pubkey>,
}

impl SyncedBytes {
    pub fn new(limits: &SyncLimits) -> Self {
        Self {
            relays: ByteQuota::new(limits.relay_bytes_per_day, MAX_COUNTED),
            repositories: ByteQuota::new(limits.repository_bytes_per_day, MAX_COUNTED),
            keys: ByteQuota::new(limits.key_bytes_per_day, MAX_COUNTED),
        }
    }

    fn allows(&self, event: &Event, repo: Option<&RepoId>, relay: RelayNo, now: Mono) -> bool {
        let bytes = bytes_on_disk(event);
        self.relays.allows(&relay, bytes, now)
            && self.keys.allows(&event.pubkey, bytes, now)
            && repo.is_none_or(|repo| self.repositories.allows(repo, bytes, now))
    }

    fn spend(&mut self, event: &Event, repo: Option<RepoId>, relay: RelayNo, now: Mono) {
        let bytes = bytes_on_disk(event);
        self.relays.spend(relay, bytes, now);
        self.keys.spend(event.pubkey, bytes, now);
        if let Some(repo) = repo {
            self.repositories.spend(repo, bytes, now);
        }
    }
}

/// Who pays for an event that is stored or held, beside its author.
#[derive(Debug, Clone)]
pub enum Charge {
    /// Not even the author: the operator brought it, or it takes no room.
    Nobody,
    Synced(RelayNo, Option<RepoId>),
    Published(Option<Network>),
}

/// Bytes that clients published and that were stored or held.
#[derive(Debug)]
pub struct PublishedBytes {
    networks: ByteQuota<Network>,
    keys: ByteQuota<Pubkey>,
}

impl PublishedBytes {
    pub fn new(limits: &Limits) -> Self {
        Self {
            networks: ByteQuota::new(limits.published_bytes_per_day_per_ip, MAX_COUNTED),
            keys: ByteQuota::new(limits.published_bytes_per_day_per_key, MAX_COUNTED),
        }
    }

    fn allows(&self, event: &Event, network: Option<Network>, now: Mono) -> bool {
        let bytes = bytes_on_disk(event);
        let mut levels = of_levels(network, bytes);
        self.keys.allows(&event.pubkey, bytes, now)
            && levels.all(|(level, bytes)| self.networks.allows(&level, bytes, now))
    }

    fn spend(&mut self, event: &Event, network: Option<Network>, now: Mono) {
        let bytes = bytes_on_disk(event);
        self.keys.spend(event.pubkey, bytes, now);
        for (level, bytes) in of_levels(network, bytes) {
            self.networks.spend(level, bytes, now);
        }
    }
}

/// Wider networks have more shares, so that it is less for them.
fn of_levels(network: Option<Network>, bytes: usize) -> impl Iterator<Item = (Network, usize)> {
    let levels = network.into_iter().flat_map(Network::levels);
    levels.map(move |(level, shares)| {
        let shares = usize::try_from(shares).unwrap_or(1).max(1);
        (level, bytes / shares)
    })
}

/// With its rows in the indexes: a short tag takes more there than in the event.
fn bytes_on_disk(event: &Event) -> usize {
    const ROW: usize = 160;
    event.json().len() + event.indexed_tags().count() * ROW
}

/// What an announcement or a state is about.
fn own_repository(event: &Event) -> Option<RepoId> {
    let is_own = matches!(event.kind, Kind::ANNOUNCEMENT | Kind::STATE);
    let identifier = event.tag("d").filter(|_| is_own)?;
    let identifier = Identifier::parse(identifier).ok()?;
    Some(RepoId::new(event.pubkey, identifier))
}

impl Core {
    /// An event that would be stored or held: whether the disk is there for it, and who pays for it
    /// when it is. Nobody pays for what is refused after all: whoever replays the events of others
    /// must not use up their day.
    pub(super) fn check_disk(
        &self,
        event: &Event,
        origin: &Origin,
        facts: &dyn Facts,
    ) -> Result<Charge, Refusal> {
        if self.disk_low && !self.may_use_the_rest(event, facts) {
            return Err(Refusal::DiskFull);
        }
        let now = self.now.mono;
        match origin {
            _ if event.kind.is_ephemeral() => Ok(Charge::Nobody),
            Origin::Import => Ok(Charge::Nobody),
            Origin::Sync(delivery) => {
                // What strangers say of a repository must not keep its maintainers out.
                let repo = own_repository(event).or_else(|| repository_named_by(event));
                let repo = repo.filter(|_| !self.maintains_what_it_names(event));
                let allowed = self
                    .synced_bytes
                    .allows(event, repo.as_ref(), delivery.relay, now);
                let charge = Charge::Synced(delivery.relay, repo);
                allowed.then_some(charge).ok_or(Refusal::SyncQuota)
            }
            Origin::Client { network, .. } => {
                // Nor must others at the same address.
                let network = network.filter(|_| !self.maintains_what_it_names(event));
                let allowed = self.published_bytes.allows(event, network, now);
                let charge = Charge::Published(network);
                allowed.then_some(charge).ok_or(Refusal::PublishedQuota)
            }
        }
    }

    /// It is stored or held.
    pub(super) fn charge(&mut self, event: &Event, charge: Charge) {
        let now = self.now.mono;
        match charge {
            Charge::Nobody => {}
            Charge::Synced(relay, repo) => self.synced_bytes.spend(event, repo, relay, now),
            Charge::Published(network) => self.published_bytes.spend(event, network, now),
        }
    }

    /// Deletions make room, if they delete something; and who maintains what is served here goes on
    /// working.
    fn may_use_the_rest(&self, event: &Event, facts: &dyn Facts) -> bool {
        if event.kind.is_ephemeral() || self.maintains_what_it_names(event) {
            return true;
        }
        let is_small = event.json().len() <= MAX_DELETION_BYTES;
        match event.kind {
            Kind::DELETION => is_small && self.deletes_something(event, facts),
            Kind::VANISH => is_small,
            _ => false,
        }
    }

    fn deletes_something(&self, deletion: &Event, facts: &dyn Facts) -> bool {
        let own = |author: &Pubkey| *author == deletion.pubkey;
        targets(deletion)
            .take(MAX_NAMED)
            .any(|target| match target {
                Target::Event(id) => match self.purgatory.get(&id) {
                    Some(held) => own(&held.event.pubkey),
                    None => facts.author_of(&id).is_some_and(|author| own(&author)),
                },
                Target::Address(address) => {
                    own(&address.pubkey) && facts.rank_at(&address).is_some()
                }
            })
    }

    /// Its author maintains a served repository that it is about.
    fn maintains_what_it_names(&self, event: &Event) -> bool {
        let named = targets(event).filter_map(|target| match target {
            Target::Address(address) => RepoId::of_address(&address),
            Target::Event(_) => None,
        });
        let own = own_repository(event).into_iter();
        own.chain(named.take(MAX_NAMED)).any(|repo| {
            let maintained = self.registry.maintained_by(&event.pubkey, &repo.identifier);
            let mut maintained = maintained.iter();
            maintained.any(|repo| self.registry.hosting(repo) == Some(Standing::Served))
        })
    }
}
