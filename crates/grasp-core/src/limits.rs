//! Every bound of the relay, with its arithmetic. All of them are settings; these are the
//! defaults. Beyond a bound there is a clear refusal, never a crash. What strangers share is in one
//! table, in `bounds`.

mod bounds;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::clone_url::Domain;
use crate::network::Network;
use crate::shares::ShareLimits;

pub use self::bounds::{Amount, Bound};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const GIB: u64 = 1024 * 1024 * 1024;

/// States of the store that the core keeps parsed, by the size of their refs. One of the longest that
/// an event may be (2,500 refs) takes 0.3 MB: 200 of these, or 60,000 of a usual repository.
pub const STATE_CACHE_BYTES: usize = 64 * MIB;

/// Filters of one connection that are filed under one value: one of each of its subscriptions. An
/// event meets the filters under its own values, so this times a hundred nanoseconds is what one
/// connection can make it cost for each of them.
pub const FILED_PER_CONNECTION: u32 = 256;
/// And of one network: 1,024 x 100 ns = 0.1 ms.
pub const FILED_PER_NETWORK: u32 = 1_024;
/// Tips of pull requests that were pushed before their event, about 300 bytes each: 6 MB.
pub const EARLY_TIPS: usize = 20_000;

#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// One websocket message. A REQ of 64 filters with 100 ids each is 430 KiB.
    pub message_bytes: usize,
    /// One event's JSON.
    pub event_bytes: usize,
    pub content_bytes: usize,
    /// Tags of one event. Each single-letter tag is one index row of about 80 bytes, and two where it
    /// names something (`a`, `e`, `q`), so one event costs at most 400 kB of index.
    pub tags: usize,
    /// In all tags of one event. Each takes 24 bytes of memory beside its text, however short it
    /// is: 10,000 are 240 kB.
    pub tag_values: usize,
    /// How far ahead of our clock an event may be dated.
    pub created_at_ahead: Duration,
    /// How old an event may be; zero means any age.
    pub created_at_behind: Duration,

    pub subscriptions: usize,
    pub filters: usize,
    /// Values in one filter, all its lists together. Each opens one cursor, an author one for each
    /// of its kinds: 1,000 cursors take about 1 ms to place.
    pub filter_values: usize,
    /// Values in all subscriptions and waiting COUNTs of one connection, at about 150 bytes each:
    /// 6 MB.
    pub connection_values: usize,
    /// And of all connections: 4,000,000 x 150 bytes = 600 MB. A network has a twenty-fifth, 24 MB,
    /// or what two connections may have.
    pub filter_values_total: usize,
    /// Events answered to one filter, and the value that an absent or larger `limit` becomes.
    pub query_results: usize,
    /// Events counted by one COUNT; beyond it the answer says `approximate`.
    pub count_results: usize,
    /// COUNTs of one connection that wait or are worked on; more are refused.
    pub counts: usize,

    /// Queries, COUNTs and NEG sessions that one connection has answered at once; further ones
    /// wait. Each holds at most one slice, about 1.3 MB.
    pub queries_at_once: usize,
    pub neg_sessions: usize,
    /// Events in one NEG session; 40 bytes each.
    pub neg_items: usize,
    /// Events in all NEG sessions and in all COUNTs of several filters: 4,000,000 x 40 bytes =
    /// 160 MB. A network has an eighth.
    pub neg_items_total: usize,
    /// One NEG-MSG payload before hex doubles it.
    pub neg_frame_bytes: usize,
    pub neg_idle: Duration,

    pub connections: usize,
    pub connections_per_ip: usize,
    pub events_per_minute_per_ip: u32,
    pub events_per_minute_per_key: u32,
    /// Of events that clients publish, with their rows in the indexes; zero is no limit.
    pub published_bytes_per_day_per_ip: u64,
    pub published_bytes_per_day_per_key: u64,
    /// Keys that one connection may prove to hold (NIP-42).
    pub authenticated_keys: usize,
    /// Events of one connection between arrival and answer; more are not read meanwhile.
    pub events_in_flight: usize,
    /// Bytes of all events between arrival and answer: the most memory that ingest takes. A
    /// network or another relay has a quarter, or what the largest event takes.
    pub ingest_bytes: usize,
    /// Live events waiting for one slow reader, before it is dropped: 1,000 connections times
    /// this is the worst case, but live events are shared between their readers.
    pub outbox_bytes: usize,
    /// Query results on their way to one reader; the query waits for room.
    pub query_window_bytes: usize,
    /// Live events and query results on their way to all readers: 256 MiB. A network has an eighth,
    /// 32 MiB, or what one connection may have. A query reads a slice when 256 KiB of it are free,
    /// which can bring a megabyte more: with 128 slices of one network at once 128 MiB, if every
    /// one is full of the largest events.
    pub outbox_bytes_total: usize,

    /// Events that wait for git data, of one author.
    pub held_per_key: usize,
    /// Their JSON: a sixteenth of everybody's.
    pub held_bytes_per_key: usize,
    /// A quarter of both is for maintainers of served repositories.
    pub held_events: usize,
    /// Their JSON; parsed they take about three times as much.
    pub held_bytes: usize,
    /// One announcement that waits: whoever announces has shown nothing yet.
    pub held_announcement_bytes: usize,
    /// Announcements that have expired and are kept in mind for a day, with a quarter as many bytes
    /// as what waits: 16 MiB, or 3.2 KiB each.
    pub remembered_announcements: usize,
    /// How long an event waits for its git data.
    pub held_for: Duration,
    /// How long the tip of a pull request waits for its event.
    pub tip_for: Duration,
    /// Tips of pull requests in one repository: each is 121 bytes of the list of refs that a fetch
    /// begins with, so 2.4 MB, and 117 bytes on disk. A quarter is for its maintainers.
    pub tips_per_repository: usize,
    /// Of one author who does not maintain it: a thirtieth of what strangers have.
    pub tips_per_author: usize,
    /// How often a repository is looked through for objects that nobody needs; zero is never.
    pub prune_every: Duration,

    pub header_timeout: Duration,
    pub http_idle: Duration,
    pub http_body_bytes: usize,
    pub ping_interval: Duration,
    /// A websocket that was silent for so long, pongs included, is dropped.
    pub websocket_idle: Duration,
    /// A write that made no progress for so long drops the connection.
    pub write_timeout: Duration,

    pub sync: SyncLimits,
    pub hunt: HuntLimits,
}

/// So many events, and the bytes of their JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    pub events: usize,
    pub bytes: usize,
}

impl Load {
    pub fn add(&mut self, bytes: usize) {
        self.events += 1;
        self.bytes += bytes;
    }

    pub fn remove(&mut self, bytes: usize) {
        self.events -= 1;
        self.bytes -= bytes;
    }

    /// With one more.
    #[must_use]
    pub fn with(mut self, bytes: usize) -> Self {
        self.add(bytes);
        self
    }

    pub fn fits(self, most: Load) -> bool {
        self.events <= most.events && self.bytes <= most.bytes
    }

    #[must_use]
    pub fn times(self, shares: u64) -> Self {
        let shares = usize::try_from(shares).unwrap_or(usize::MAX);
        Self {
            events: self.events.saturating_mul(shares),
            bytes: self.bytes.saturating_mul(shares),
        }
    }

    /// Without what is a part of it.
    #[must_use]
    pub fn without(self, part: Load) -> Self {
        Self {
            events: self.events.saturating_sub(part.events),
            bytes: self.bytes.saturating_sub(part.bytes),
        }
    }

    fn quarter(self) -> Self {
        Self {
            events: self.events / 4,
            bytes: self.bytes / 4,
        }
    }
}

impl Limits {
    /// What may wait for git data.
    pub fn held_of_all(&self) -> Load {
        Load {
            events: self.held_events,
            bytes: self.held_bytes,
        }
    }

    /// Of those who maintain no served repository.
    pub fn held_of_strangers(&self) -> Load {
        self.held_of_all().without(self.held_of_maintainers())
    }

    /// What is kept for maintainers of served repositories. They may have more of what is free.
    pub fn held_of_maintainers(&self) -> Load {
        self.held_of_all().quarter()
    }

    pub fn held_of_one(&self) -> Load {
        Load {
            events: self.held_per_key,
            bytes: self.held_bytes_per_key,
        }
    }

    /// Of one network, whatever keys it uses: a sixteenth, 1,250 events and 4 MiB.
    pub fn held_of_network(&self) -> Load {
        Load {
            events: self.held_events.div_ceil(16),
            bytes: self.held_bytes.div_ceil(16),
        }
    }

    /// What filters may name. A subscription that is replaced counts until the index has forgotten
    /// it, so that a network needs twice what a connection may have.
    pub fn filter_value_shares(&self) -> ShareLimits {
        let twice = self.connection_values.saturating_mul(2);
        ShareLimits {
            in_all: self.filter_values_total as u64,
            per_network: twice.max(self.filter_values_total / 25) as u64,
        }
    }

    pub fn neg_item_shares(&self) -> ShareLimits {
        let in_all = self.neg_items_total as u64;
        ShareLimits {
            in_all,
            per_network: (in_all / 8).max(1),
        }
    }

    /// Events in one NEG session of a network; who is not counted has no share to exceed.
    pub fn session_items(&self, network: Option<Network>) -> usize {
        let share = self.neg_item_shares().per_network;
        match network {
            Some(_) => self
                .neg_items
                .min(usize::try_from(share).unwrap_or(usize::MAX)),
            None => self.neg_items,
        }
    }

    /// In bytes. Parsed, an event takes twice its JSON.
    pub fn ingest_shares(&self) -> ShareLimits {
        let quarter = self.ingest_bytes / 4;
        let least = self.event_bytes.saturating_mul(2);
        ShareLimits {
            in_all: self.ingest_bytes as u64,
            per_network: quarter.max(least).min(self.ingest_bytes) as u64,
        }
    }

    pub fn outbox_shares(&self) -> ShareLimits {
        let one = self.outbox_bytes.saturating_add(self.query_window_bytes);
        let per_network = (self.outbox_bytes_total / 8).max(one);
        ShareLimits {
            in_all: self.outbox_bytes_total.max(per_network) as u64,
            per_network: per_network as u64,
        }
    }

    pub fn kept_in_mind(&self) -> Load {
        Load {
            events: self.remembered_announcements,
            bytes: self.held_bytes / 4,
        }
    }
}

/// Times and bounds of the sync with other relays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncLimits {
    pub enabled: bool,
    /// News are gathered for at most so long before other relays are asked about them.
    pub batch_window: Duration,
    /// And no longer than until nothing more came for so long, when no history is in flight.
    pub quiet: Duration,
    /// Values of one filter. More make filters that relays refuse.
    pub tags_per_filter: usize,
    /// With more filters open on one relay, they are packed anew.
    pub consolidate_at: usize,
    /// How far back a subscription reaches beyond what was surely seen: clocks differ, and relays
    /// store late.
    pub overlap: Duration,
    /// After a longer absence everything is compared again.
    pub stale_after: Duration,
    pub backoff: Backoff,
    /// After failing for so long a relay is dead, and tried once in `dead_retry`.
    pub dead_after: Duration,
    pub dead_retry: Duration,
    /// Everything is compared again after some time between these.
    pub full_min: Duration,
    pub full_max: Duration,
    /// How often relays are left that no repository names any more.
    pub empty_check: Duration,
    pub connect_timeout: Duration,
    /// A request without a word for so long has failed.
    pub request_timeout: Duration,
    /// A connection without a word for so long is down.
    pub silence: Duration,
    /// What a relay refused is asked again after so long, then with backoff.
    pub refusal: Backoff,
    /// How often what is not watched live is compared.
    pub reconcile_every: Duration,
    pub negentropy: bool,
    /// Events of ours in one comparison: 20,000 x 40 bytes, sealed in a millisecond.
    pub reconcile_items: u32,
    /// Events asked for in one page.
    pub page: u32,
    /// Ids asked for in one request.
    pub fetch_ids: usize,
    pub relays_per_repository: usize,
    /// Relays that only this owner's repositories name.
    pub relays_per_owner: usize,
    /// About 2 kB each: 4 MB.
    pub relays: usize,
    pub connections: usize,
    /// Issues, patches and pull requests that are watched, about 340 bytes each: 680 MB.
    /// Those of one owner's repositories take an eighth.
    pub roots: usize,
    /// What a relay that does not say allows us.
    pub subscriptions: u32,
    pub filters: u32,
    pub message_bytes: u32,
    /// Ids that are known to be missing, about 200 bytes each: 40 MB.
    pub wants: usize,
    /// Events that were refused for good, about 120 bytes each: 24 MB.
    pub remembered: usize,
    /// What is stored in a day of what one relay brings: a flood is noticed before it fills a disk.
    /// The largest history known has less than a gigabyte. Zero is no limit, here and below.
    pub relay_bytes_per_day: u64,
    /// The same for what names one repository.
    pub repository_bytes_per_day: u64,
    pub key_bytes_per_day: u64,
    /// How long after the start other relays are left alone.
    pub startup_delay: Duration,
    /// Between two batches of history from one relay.
    pub batch_delay: Duration,
    /// Between a new connection and its first request.
    pub reconnect_delay: Duration,
    /// How far back a reconnect reaches at least; zero means to what was surely seen.
    pub lookback: Duration,
}

impl Default for SyncLimits {
    fn default() -> Self {
        let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        Self {
            enabled: true,
            batch_window: Duration::from_secs(5),
            quiet: Duration::from_millis(100),
            tags_per_filter: 100,
            consolidate_at: 70,
            overlap: minutes(15),
            stale_after: minutes(15),
            backoff: Backoff {
                base: Duration::from_secs(5),
                max: hours(1),
            },
            dead_after: hours(24),
            dead_retry: hours(24),
            full_min: hours(23),
            full_max: hours(25),
            empty_check: minutes(1),
            connect_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(30),
            silence: minutes(2),
            refusal: Backoff {
                base: Duration::from_secs(30),
                max: hours(1),
            },
            reconcile_every: minutes(10),
            negentropy: true,
            reconcile_items: 20_000,
            page: 500,
            fetch_ids: 250,
            relays_per_repository: 20,
            relays_per_owner: 50,
            relays: 2_000,
            connections: 500,
            roots: 2_000_000,
            subscriptions: 20,
            filters: 30,
            message_bytes: 120 * 1024,
            wants: 200_000,
            remembered: 200_000,
            relay_bytes_per_day: 8 * GIB,
            repository_bytes_per_day: GIB,
            key_bytes_per_day: GIB / 2,
            startup_delay: Duration::ZERO,
            batch_delay: Duration::ZERO,
            reconnect_delay: Duration::ZERO,
            lookback: Duration::ZERO,
        }
    }
}

/// Times and bounds of the hunt for git data at other git servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HuntLimits {
    pub enabled: bool,
    /// After a user's event a push is expected for so long.
    pub user_delay: Duration,
    /// Events from other relays come in bursts, which end within so long.
    pub synced_delay: Duration,
    /// How long a repository waits after each attempt that left something missing.
    pub backoff: Backoff,
    pub domain: DomainLimits,
    /// Domains with limits of their own.
    pub domains: BTreeMap<Domain, DomainLimits>,
    /// Fetches at once, from all domains.
    pub fetches: usize,
    /// A server that sends nothing for so long has the next one asked beside it.
    pub hedge_after: Duration,
    /// How long a domain is left alone that failed twice in a row, and then each time. Half of the
    /// time for which an event is held, so that every event has each of its servers asked.
    pub rest: Backoff,
    /// How long everything is left alone when our disk is nearly full.
    pub disk_pause: Duration,
    /// Repositories that wait at once, with about 1.3 kB and four servers each, what was wrong with
    /// their packs included: 65 MB.
    pub repositories: usize,
    /// Domains that are kept in mind, with about 0.7 kB each: 7 MB.
    pub domains_known: usize,
}

/// What is asked of one host and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainLimits {
    /// Fetches at once; at least one.
    pub concurrent: u32,
    /// Fetches in any 60 seconds; at least one.
    pub per_minute: u32,
}

impl Default for DomainLimits {
    fn default() -> Self {
        Self {
            concurrent: 5,
            per_minute: 30,
        }
    }
}

impl Default for HuntLimits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            enabled: true,
            user_delay: seconds(180),
            synced_delay: Duration::from_millis(500),
            backoff: Backoff {
                base: seconds(20),
                max: seconds(120),
            },
            domain: DomainLimits::default(),
            domains: BTreeMap::new(),
            fetches: 16,
            hedge_after: seconds(5),
            rest: Backoff {
                base: seconds(30),
                max: seconds(15 * 60),
            },
            disk_pause: seconds(60),
            repositories: 50_000,
            domains_known: 10_000,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 512 * KIB,
            event_bytes: 256 * KIB,
            content_bytes: 192 * KIB,
            tags: 2_500,
            tag_values: 10_000,
            created_at_ahead: Duration::from_secs(15 * 60),
            created_at_behind: Duration::ZERO,
            subscriptions: 256,
            filters: 64,
            filter_values: 2_000,
            connection_values: 40_000,
            filter_values_total: 4_000_000,
            query_results: 500,
            count_results: 1_000_000,
            counts: 16,
            queries_at_once: 4,
            neg_sessions: 16,
            neg_items: 1_000_000,
            neg_items_total: 4_000_000,
            neg_frame_bytes: 120 * KIB,
            neg_idle: Duration::from_secs(60),
            connections: 1_000,
            connections_per_ip: 64,
            events_per_minute_per_ip: 600,
            published_bytes_per_day_per_ip: GIB,
            published_bytes_per_day_per_key: GIB,
            events_per_minute_per_key: 600,
            authenticated_keys: 32,
            events_in_flight: 1_000,
            ingest_bytes: 64 * MIB,
            outbox_bytes: 4 * MIB,
            query_window_bytes: MIB,
            outbox_bytes_total: 256 * MIB,
            held_per_key: 500,
            held_bytes_per_key: 4 * MIB,
            held_events: 20_000,
            held_bytes: 64 * MIB,
            held_announcement_bytes: 32 * KIB,
            remembered_announcements: 5_000,
            held_for: Duration::from_secs(30 * 60),
            tip_for: Duration::from_secs(20 * 60),
            tips_per_repository: 20_000,
            tips_per_author: 500,
            prune_every: Duration::from_secs(24 * 60 * 60),
            header_timeout: Duration::from_secs(10),
            http_idle: Duration::from_secs(75),
            http_body_bytes: MIB,
            ping_interval: Duration::from_secs(30),
            websocket_idle: Duration::from_secs(90),
            write_timeout: Duration::from_secs(30),
            sync: SyncLimits::default(),
            hunt: HuntLimits::default(),
        }
    }
}
