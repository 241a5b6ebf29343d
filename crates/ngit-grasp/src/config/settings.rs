//! Every setting, declared once: variable, field, type, default, range and help. The fields of
//! [`Config`], the flags, the error lines and `docs/configuration.md` all follow from the table.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use grasp_core::clone_url::Domain as GitDomain;
use grasp_core::{MaintainerRule, Pubkey, RelayUrl, RepoPattern};

use super::choice::{AuthKey, DatabaseBackend, LogFilter};
use super::net::{Domain, DomainOverrides, ProxyNet};
use super::sources::Layers;
use super::spec::{Spec, settings};
use super::value::{ByteSize, Rules, Secret, Setting as _};

/// Every setting, in the order of the table.
pub fn specs() -> &'static [Spec] {
    &SPECS
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const DAY: u64 = 24 * 60 * 60;
const YEAR: u64 = 365 * DAY;

settings! {
    "Service" {
        /// The public host name of this server, with a port if it is not the usual one.
        /// Repositories that name it in their announcement are hosted here. Without it the
        /// server is localhost with the port of the bind address.
        NGIT_DOMAIN => domain: Option<Domain> = "";

        /// Where the server listens, for git, the relay and the web pages alike. An address
        /// without a host, such as :7334, means every IPv4 interface.
        NGIT_BIND_ADDRESS => bind_address: SocketAddr = "127.0.0.1:7334";

        /// The name shown in the relay information document and on the web pages.
        NGIT_RELAY_NAME => relay_name: String = "ngit-grasp";

        /// What this server is for, shown beside its name.
        NGIT_RELAY_DESCRIPTION => relay_description: String
            = "A GRASP server: git repositories announced and authorised over Nostr";

        /// How to reach the operator, shown in the relay information document: an address
        /// such as mailto:admin@example.com.
        NGIT_RELAY_CONTACT => relay_contact: Option<String> = "";

        /// The secret key of this server's own identity. Without it the server makes a key on
        /// its first start and keeps it in a file in its data directory.
        NGIT_RELAY_OWNER_NSEC => relay_owner_nsec: Option<Secret> = "";

        /// Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front
        /// of this server and nothing else: a listed peer can claim any client address.
        NGIT_TRUSTED_PROXIES => trusted_proxies: Vec<ProxyNet> = "";
    }

    "Storage" {
        /// The directory of the git repositories.
        NGIT_GIT_DATA_PATH => git_data_path: PathBuf = "./data/git";

        /// The directory of the event database and of the server's own key.
        NGIT_RELAY_DATA_PATH => relay_data_path: PathBuf = "./data/relay";

        /// Where events are kept. With memory they are gone when the server stops, which is
        /// meant for tests.
        NGIT_DATABASE_BACKEND => database_backend: DatabaseBackend = "lmdb";
    }

    "Repositories" {
        /// When a key that an announcement lists as maintainer has authority: reciprocal means
        /// once its own announcement names a maintainer back, listed means at once.
        NGIT_MAINTAINER_RULE => maintainer_rule: MaintainerRule = "reciprocal";

        /// If not empty, only these repositories are taken. An entry is an npub, an
        /// npub/identifier or an identifier. What is hosted already stays.
        NGIT_REPOSITORY_WHITELIST => repository_whitelist: Vec<RepoPattern> = "";

        /// Repositories that are not taken, in the same form. What is hosted already stays.
        NGIT_REPOSITORY_BLACKLIST => repository_blacklist: Vec<RepoPattern> = "";

        /// Authors whose events are refused, as npubs.
        NGIT_EVENT_BLACKLIST => event_blacklist: Vec<Pubkey> = "";

        /// Accept events that belong to no repository here, as a general relay does.
        NGIT_ACCEPT_UNRELATED_EVENTS => accept_unrelated_events: bool = "false";

        /// How long an event waits for its git data before it is discarded.
        NGIT_PURGATORY_EXPIRY_SECS => purgatory_expiry: Duration = "1800" in 1..=30 * DAY;

        /// How long the tip of a pull request waits for its event.
        NGIT_PURGATORY_TIP_EXPIRY_SECS => purgatory_tip_expiry: Duration = "1200" in 1..=30 * DAY;

        /// Events that wait for their git data. A quarter of the room is for maintainers of
        /// repositories that are served.
        NGIT_PURGATORY_MAX_EVENTS => purgatory_max_events: usize = "20000" in 1..=10_000_000;

        /// Events of one author that wait for their git data.
        NGIT_PURGATORY_MAX_PER_KEY => purgatory_max_per_key: usize = "500" in 1..=1_000_000;

        /// The size of all events that wait for their git data. They are kept in memory too, where
        /// they take about three times as much.
        NGIT_PURGATORY_MAX_BYTES => purgatory_max_bytes: ByteSize = "64MiB" in MIB..=64 * GIB;

        /// The size of all events of one author that wait for their git data.
        NGIT_PURGATORY_MAX_BYTES_PER_KEY => purgatory_max_bytes_per_key: ByteSize = "4MiB" in MIB..=64 * GIB;

        /// The size of one announcement that waits for its git data.
        NGIT_PURGATORY_MAX_ANNOUNCEMENT_BYTES => purgatory_max_announcement_bytes: ByteSize
            = "32KiB" in KIB..=MIB;

        /// Announcements that expired without git data and are kept in mind for a day, in case that
        /// a state comes late. Of more, the oldest are forgotten.
        NGIT_PURGATORY_MAX_REMEMBERED => purgatory_max_remembered: usize = "5000" in 1..=10_000_000;
    }

    "Git" {
        /// The largest pack of one push.
        NGIT_MAX_PUSH_BYTES => max_push_bytes: ByteSize = "2GiB" in MIB..=1024 * GIB;

        /// The size on disk from which a repository takes no more pushes. Pull requests, and what
        /// is fetched from other servers, fill four fifths of it at most, and what is pushed before
        /// its event three.
        NGIT_MAX_REPOSITORY_BYTES => max_repository_bytes: ByteSize = "5GiB" in MIB..=1024 * GIB;

        /// Maximum pull requests and updates of them in one repository; further ones are refused. A
        /// quarter is for its maintainers.
        NGIT_MAX_TIPS_PER_REPOSITORY => max_tips_per_repository: usize = "20000" in 4..=1_000_000;

        /// The same of one author who does not maintain the repository.
        NGIT_MAX_TIPS_PER_AUTHOR => max_tips_per_author: usize = "500" in 1..=1_000_000;

        /// What stays free on each disk. With less on that of the git data, pushes are refused and
        /// nothing is fetched from other servers; with less on that of the events, only deletions and
        /// what maintainers publish about repositories that are served is stored.
        NGIT_MIN_FREE_BYTES => min_free_bytes: ByteSize = "512MiB" in 0..=1024 * 1024 * GIB;

        /// Maximum concurrent fetches and pushes; further ones get 503 with Retry-After. A quarter
        /// is left to pushes, and pushes that no maintainer has signed for have half at most.
        NGIT_GIT_CONCURRENT => git_concurrent: usize = "64" in 1..=10_000;

        /// Fetches and pushes of one repository worked on at once.
        NGIT_GIT_CONCURRENT_PER_REPOSITORY => git_concurrent_per_repository: usize
            = "32" in 1..=10_000;

        /// Fetches and pushes of one address worked on at once. Loopback addresses and trusted
        /// proxies are exempt.
        NGIT_GIT_CONCURRENT_PER_IP => git_concurrent_per_ip: usize = "16" in 1..=10_000;

        /// The longest that one fetch or push may take.
        NGIT_GIT_TIMEOUT_SECS => git_timeout: Duration = "3600" in 10..=7 * DAY;

        /// A git client that sends or takes in nothing for this long is disconnected; one that sends
        /// nothing already after NGIT_GIT_SLOW_GRACE_SECS, while there is a minimum pace.
        NGIT_GIT_IDLE_SECS => git_idle: Duration = "120" in 1..=DAY;

        /// The minimum pace of what a git client sends, in bytes per second, counted while the
        /// server waits for it; 0 is none. A slower push is refused.
        NGIT_GIT_MIN_PACE => git_min_pace: ByteSize = "4KiB" in 0..=GIB;

        /// A git client may stay below the minimum pace for this long.
        NGIT_GIT_SLOW_GRACE_SECS => git_slow_grace: Duration = "60" in 1..=DAY;

        /// How often a repository is looked through for objects that nobody needs; 0 is never.
        NGIT_PRUNE_INTERVAL_SECS => prune_interval: Duration = "86400" in 0..=365 * DAY;

        /// Objects that nobody needs stay for this long.
        NGIT_PRUNE_GRACE_SECS => prune_grace: Duration = "172800" in 0..=365 * DAY;

        /// Days for which a repository whose announcement is gone is kept aside.
        NGIT_RETIRED_DAYS => retired_days: u32 = "30" in 0..=36_500;

        /// The size of all repositories that are kept aside; beyond it, or beyond a thousand, the
        /// oldest go first. They are looked at once an hour.
        NGIT_RETIRED_MAX_BYTES => retired_max_bytes: ByteSize = "10GiB" in 0..=1024 * 1024 * GIB;
    }

    "Logging and metrics" {
        /// How much is logged: one level, or a level for each module.
        NGIT_LOG_LEVEL => log_level: LogFilter = "info";

        /// Serve counters for Prometheus at /metrics. Those that name other relays and git servers
        /// are shown to the operator alone, as at /status.
        NGIT_METRICS_ENABLED => metrics_enabled: bool = "true";

        /// Tell at /status and /api/status how the server stands: a summary to everybody, and to
        /// the operator all of it, with the addresses of other relays and git servers.
        NGIT_STATUS_ENABLED => status_enabled: bool = "true";

        /// What the operator shows at /status/details to see everything: the password that the
        /// browser asks for, with any user name, or a bearer token. At least 16 characters. Without
        /// it whoever asks from this machine sees everything, unless a proxy on it is trusted.
        NGIT_STATUS_TOKEN => status_token: Option<Secret> = "";
    }

    "Sync" {
        /// Fetch from other relays what belongs to the repositories here.
        NGIT_SYNC_ENABLED => sync_enabled: bool = "true";

        /// Relays that are always connected and asked for announcements, whether a repository
        /// names them or not. They may be on a private network.
        NGIT_SYNC_BOOTSTRAP_RELAY_URL => sync_bootstrap_relays: Vec<RelayUrl> = "";

        /// Connect also to addresses that are not public, to those of this machine and its
        /// networks and to what its public name leads to, whoever names them.
        NGIT_ALLOW_PRIVATE_ADDRESSES => allow_private_addresses: bool = "false";

        /// Addresses that are never connected to, whoever names them, also where private addresses
        /// are allowed.
        NGIT_DENY_NETWORKS => deny_networks: Vec<ProxyNet> = "";

        /// Who this server is to a relay that asks: service means a key of its own for this
        /// purpose, owner the server's own identity, never that it does not say.
        NGIT_SYNC_AUTH => sync_auth: AuthKey = "service";

        /// Do not compare sets of events (NIP-77), but read the history of every relay page by
        /// page.
        NGIT_SYNC_DISABLE_NEGENTROPY => sync_disable_negentropy: bool = "false";

        /// How long after the start other relays are left alone.
        NGIT_SYNC_STARTUP_DELAY_SECS => sync_startup_delay: Duration = "0" in 0..=DAY;

        /// How long the name of another relay may take to be looked up, and then a connection to it.
        NGIT_SYNC_CONNECT_TIMEOUT_SECS => sync_connect_timeout: Duration = "10" in 1..=600;

        /// A request to which a relay says nothing for this long has failed.
        NGIT_SYNC_REQUEST_TIMEOUT_SECS => sync_request_timeout: Duration = "30" in 1..=3_600;

        /// A connection on which nothing comes for this long, not even a pong, is given up.
        NGIT_SYNC_SILENCE_SECS => sync_silence: Duration = "120" in 2..=DAY;

        /// The first pause after a failed connection; each further failure doubles it.
        NGIT_SYNC_BASE_BACKOFF_SECS => sync_base_backoff: Duration = "5" in 1..=DAY;

        /// The longest pause between two tries.
        NGIT_SYNC_MAX_BACKOFF_SECS => sync_max_backoff: Duration = "3600" in 1..=30 * DAY;

        /// A relay that fails for this long counts as dead.
        NGIT_SYNC_DEAD_AFTER_SECS => sync_dead_after: Duration = "86400" in 1..=YEAR;

        /// How often a dead relay is tried.
        NGIT_SYNC_DEAD_RETRY_SECS => sync_dead_retry: Duration = "86400" in 1..=YEAR;

        /// How often relays are left that no repository names any more.
        NGIT_SYNC_DISCONNECT_CHECK_INTERVAL_SECS => sync_disconnect_check: Duration
            = "60" in 1..=DAY;

        /// News are gathered for at most this long before other relays are asked about them.
        NGIT_SYNC_BATCH_WINDOW_MS => sync_batch_window: Duration = "5000" in 1..=3_600_000;

        /// News are gathered no longer than until nothing came for this long.
        NGIT_SYNC_QUIET_MS => sync_quiet: Duration = "100" in 1..=3_600_000;

        /// A pause between two batches of history from one relay.
        NGIT_SYNC_BATCH_DELAY_SECS => sync_batch_delay: Duration = "0" in 0..=3_600;

        /// Repositories, issues, patches and pull requests named in one filter.
        NGIT_SYNC_MAX_TAGS_PER_FILTER => sync_max_tags_per_filter: usize = "100" in 1..=1_000;

        /// With more filters open on one relay, they are packed anew.
        NGIT_SYNC_CONSOLIDATE_FILTERS => sync_consolidate_filters: usize = "70" in 3..=10_000;

        /// A pause between a new connection and its first request.
        NGIT_SYNC_RECONNECT_DELAY_SECS => sync_reconnect_delay: Duration = "0" in 0..=3_600;

        /// How far back a subscription reaches beyond what was surely seen.
        NGIT_SYNC_RECONNECT_BUFFER_SECS => sync_reconnect_buffer: Duration = "900" in 0..=30 * DAY;

        /// Days that a reconnect reaches back at least; 0 means to what was surely seen.
        NGIT_SYNC_RECONNECT_LOOKBACK_DAYS => sync_reconnect_lookback: u32 = "0" in 0..=36_500;

        /// After a longer absence of a relay, everything is compared again.
        NGIT_SYNC_STALE_AFTER_SECS => sync_stale_after: Duration = "900" in 1..=YEAR;

        /// Everything is compared again with each relay after a random time; this is the shortest.
        NGIT_SYNC_FULL_MIN_SECS => sync_full_min: Duration = "82800" in 1..=YEAR;

        /// The longest time until everything is compared again.
        NGIT_SYNC_FULL_MAX_SECS => sync_full_max: Duration = "90000" in 1..=YEAR;

        /// How often that is compared for which a relay has no live subscription.
        NGIT_SYNC_RECONCILE_INTERVAL_SECS => sync_reconcile_interval: Duration
            = "600" in 1..=30 * DAY;

        /// What a relay refused is asked again after this long; each further refusal doubles it.
        NGIT_SYNC_REFUSAL_RETRY_SECS => sync_refusal_retry: Duration = "30" in 1..=60;

        /// The longest pause before refused things are asked again.
        NGIT_SYNC_MAX_REFUSAL_RETRY_SECS => sync_max_refusal_retry: Duration
            = "3600" in 1..=30 * DAY;

        /// Events asked for in one page.
        NGIT_SYNC_PAGE => sync_page: u32 = "500" in 1..=5_000;

        /// Missing events asked for in one request.
        NGIT_SYNC_FETCH_IDS => sync_fetch_ids: usize = "250" in 1..=1_000;

        /// Events of this server in one comparison; larger sets are compared in parts.
        NGIT_SYNC_NEG_WINDOW => sync_neg_window: u32 = "20000" in 10..=1_000_000;

        /// Relays that are connected at once.
        NGIT_SYNC_MAX_RELAYS => sync_max_relays: usize = "500" in 1..=10_000;

        /// Relays that are known at once, connected or not.
        NGIT_SYNC_MAX_RELAYS_KNOWN => sync_max_relays_known: usize = "2000" in 1..=100_000;

        /// Relays of one announcement that count.
        NGIT_SYNC_MAX_RELAYS_PER_REPOSITORY => sync_max_relays_per_repository: usize
            = "20" in 1..=1_000;

        /// Relays that the repositories of one owner alone name.
        NGIT_SYNC_MAX_RELAYS_PER_OWNER => sync_max_relays_per_owner: usize = "50" in 1..=10_000;

        /// Issues, patches and pull requests that are watched, at about 340 bytes each.
        NGIT_SYNC_MAX_ROOTS => sync_max_roots: usize = "2000000" in 1..=100_000_000;

        /// Bytes of events that are taken from one relay in a day, 1 KiB more for each event; 0 is no
        /// limit. Later ones are asked for again after some hours.
        NGIT_SYNC_RELAY_BYTES_PER_DAY => sync_relay_bytes_per_day: ByteSize = "8GiB" in 0..=1024 * GIB;

        /// The same for the events of one repository, from all relays together.
        NGIT_SYNC_REPOSITORY_BYTES_PER_DAY => sync_repository_bytes_per_day: ByteSize
            = "1GiB" in 0..=1024 * GIB;

        /// The same for the events of one key.
        NGIT_SYNC_KEY_BYTES_PER_DAY => sync_key_bytes_per_day: ByteSize = "512MiB" in 0..=1024 * GIB;

        /// Subscriptions on a relay that does not say how many it allows.
        NGIT_SYNC_SUBSCRIPTIONS => sync_subscriptions: u32 = "20" in 5..=1_000;

        /// Filters in one subscription on a relay that does not say how many it allows.
        NGIT_SYNC_FILTERS => sync_filters: u32 = "30" in 1..=200;

        /// The largest message to a relay that does not say how large it may be.
        NGIT_SYNC_MESSAGE_BYTES => sync_message_bytes: ByteSize = "120KiB" in 4 * KIB..=16 * MIB;

        /// Events that are known to be missing, at about 110 bytes each.
        NGIT_SYNC_MAX_WANTED => sync_max_wanted: usize = "200000" in 1_000..=100_000_000;

        /// Events that were refused and are not fetched again, at about 120 bytes each.
        NGIT_SYNC_REMEMBER_REFUSED => sync_remember_refused: usize = "200000" in 0..=100_000_000;
    }

    "Hunt" {
        /// Fetch git data that events wait for from the other git servers that the repository
        /// names.
        NGIT_HUNT_ENABLED => hunt_enabled: bool = "true";

        /// After an event that a client brings, a push is expected for this long before other
        /// servers are asked.
        NGIT_HUNT_USER_DELAY_SECS => hunt_user_delay: Duration = "180" in 0..=DAY;

        /// Events from other relays come in bursts: this long after the first of a repository,
        /// other servers are asked for all of them.
        NGIT_HUNT_SYNCED_DELAY_MS => hunt_synced_delay: Duration = "500" in 0..=3_600_000;

        /// The pause after the first attempt that left something missing; each further one
        /// doubles it. A new event begins anew.
        NGIT_HUNT_BASE_BACKOFF_SECS => hunt_base_backoff: Duration = "20" in 1..=DAY;

        /// The longest pause between two attempts.
        NGIT_HUNT_MAX_BACKOFF_SECS => hunt_max_backoff: Duration = "120" in 1..=30 * DAY;

        /// Fetches from one domain at once. A domain is a host and its port.
        NGIT_SYNC_DOMAIN_CONCURRENT => sync_domain_concurrent: u32 = "5" in 1..=1_000;

        /// Fetches from one domain in any 60 seconds.
        NGIT_SYNC_DOMAIN_RATE_LIMIT => sync_domain_rate_limit: u32 = "30" in 1..=10_000;

        /// Domains with limits of their own: how many at once, and how many in a minute.
        NGIT_SYNC_DOMAIN_OVERRIDES => sync_domain_overrides: DomainOverrides = "";

        /// Fetches at once, from all domains together.
        NGIT_HUNT_CONCURRENT => hunt_concurrent: usize = "16" in 1..=1_000;

        /// When a server sends nothing for this long, the next one is asked beside it.
        NGIT_HUNT_HEDGE_MS => hunt_hedge: Duration = "5000" in 1..=3_600_000;

        /// How long a domain is left alone after its second failure in a row; each further one
        /// doubles it, a success ends it.
        NGIT_HUNT_BASE_REST_SECS => hunt_base_rest: Duration = "30" in 1..=DAY;

        /// The longest that a domain is left alone. Longer than NGIT_PURGATORY_EXPIRY_SECS means
        /// that events expire before it is asked again.
        NGIT_HUNT_MAX_REST_SECS => hunt_max_rest: Duration = "900" in 1..=30 * DAY;

        /// How long nothing is fetched when the disk has less than NGIT_MIN_FREE_BYTES left.
        NGIT_HUNT_DISK_PAUSE_SECS => hunt_disk_pause: Duration = "60" in 1..=DAY;

        /// What one fetch may bring. A larger history comes in several.
        NGIT_HUNT_FETCH_BYTES => hunt_fetch_bytes: ByteSize = "256MiB" in MIB..=1024 * GIB;

        /// The longest that one fetch may take.
        NGIT_HUNT_FETCH_TIMEOUT_SECS => hunt_fetch_timeout: Duration = "600" in 1..=DAY;

        /// How long another git server's name may take to be looked up, and then a connection to it.
        NGIT_HUNT_CONNECT_TIMEOUT_SECS => hunt_connect_timeout: Duration = "10" in 1..=600;

        /// How long a server may take to tell its refs, and then to begin with its pack.
        NGIT_HUNT_PATIENCE_SECS => hunt_patience: Duration = "90" in 1..=3_600;

        /// A server that brings less of a pack than this in NGIT_HUNT_LOW_SPEED_SECS is too slow,
        /// and the fetch ends; 0 means never.
        NGIT_HUNT_LOW_SPEED_BYTES => hunt_low_speed_bytes: ByteSize = "30KiB" in 0..=GIB;

        /// The time in which NGIT_HUNT_LOW_SPEED_BYTES must come.
        NGIT_HUNT_LOW_SPEED_SECS => hunt_low_speed: Duration = "30" in 1..=3_600;

        /// The size on disk of all repositories of one owner from which nothing more is fetched
        /// for them; 0 means no limit. Each has its own in NGIT_MAX_REPOSITORY_BYTES.
        NGIT_HUNT_MAX_OWNER_BYTES => hunt_max_owner_bytes: ByteSize
            = "50GiB" in 0..=1024 * 1024 * GIB;

        /// Git servers that may be on a private network, as a host and its port.
        NGIT_HUNT_TRUSTED_DOMAINS => hunt_trusted_domains: Vec<GitDomain> = "";

        /// Repositories that lack git data at once, at about 1.3 kB each.
        NGIT_HUNT_MAX_REPOSITORIES => hunt_max_repositories: usize = "50000" in 1..=10_000_000;

        /// Domains that are kept in mind, at about 0.7 kB each.
        NGIT_HUNT_MAX_DOMAINS => hunt_max_domains: usize = "10000" in 100..=1_000_000;
    }

    "Events" {
        /// The largest websocket message that is read.
        NGIT_MAX_MESSAGE_BYTES => max_message_bytes: ByteSize = "512KiB" in 8 * KIB..=64 * MIB;

        /// The largest event, as JSON. It must fit into a message with 1KiB to spare.
        NGIT_MAX_EVENT_BYTES => max_event_bytes: ByteSize = "256KiB" in 4 * KIB..=32 * MIB;

        /// The longest content of an event.
        NGIT_MAX_CONTENT_BYTES => max_content_bytes: ByteSize = "192KiB" in KIB..=32 * MIB;

        /// The most tags of one event, with four values each on average. A repository state has one tag for each branch and tag
        /// of the repository; 10,000 of them, the most that a repository may have, need 20000
        /// here and 1000KiB in NGIT_MAX_EVENT_BYTES.
        NGIT_MAX_EVENT_TAGS => max_event_tags: usize = "2500" in 10..=100_000;

        /// How far in the future an event may be dated.
        NGIT_CREATED_AT_AHEAD_SECS => created_at_ahead: Duration = "900" in 0..=YEAR;

        /// How far in the past an event may be dated; 0 accepts any age.
        NGIT_CREATED_AT_BEHIND_SECS => created_at_behind: Duration = "0" in 0..=100 * YEAR;

        /// Events accepted from one address in a minute; 0 means no limit. Loopback addresses
        /// and trusted proxies are exempt.
        NGIT_EVENTS_PER_MINUTE_PER_IP => events_per_minute_per_ip: u32 = "600" in 0..=1_000_000;

        /// Events accepted from one author in a minute; 0 means no limit.
        NGIT_EVENTS_PER_MINUTE_PER_KEY => events_per_minute_per_key: u32 = "600" in 0..=1_000_000;

        /// Bytes of events, with their rows in the indexes, that are stored from one address in a
        /// day; 0 means no limit. Maintainers of the repositories that they write about are exempt.
        NGIT_EVENT_BYTES_PER_DAY_PER_IP => event_bytes_per_day_per_ip: ByteSize
            = "1GiB" in 0..=1024 * GIB;

        /// The same for one author.
        NGIT_EVENT_BYTES_PER_DAY_PER_KEY => event_bytes_per_day_per_key: ByteSize
            = "1GiB" in 0..=1024 * GIB;
    }

    "Queries" {
        /// Open subscriptions of one connection. Other GRASP servers open about 70 at once when
        /// they sync from this one.
        NGIT_MAX_SUBSCRIPTIONS => max_subscriptions: usize = "256" in 1..=10_000;

        /// Filters in one subscription.
        NGIT_MAX_FILTERS => max_filters: usize = "64" in 1..=1_000;

        /// Values in one filter, all its lists together.
        NGIT_MAX_FILTER_VALUES => max_filter_values: usize = "2000" in 1..=100_000;

        /// Values in all open subscriptions and waiting COUNTs of one connection.
        NGIT_MAX_CONNECTION_VALUES => max_connection_values: usize = "40000" in 1..=10_000_000;

        /// Values in all open subscriptions and waiting COUNTs of all connections, about 150 bytes
        /// each. One address has a twenty-fifth of them, or what two connections may have.
        NGIT_MAX_FILTER_VALUES_TOTAL => max_filter_values_total: usize = "4000000" in 1..=1_000_000_000;

        /// Stored events answered to one filter, and what a larger or missing limit becomes.
        NGIT_MAX_QUERY_RESULTS => max_query_results: usize = "500" in 1..=1_000_000;

        /// Events that one COUNT counts; beyond it the answer says that it is approximate.
        NGIT_MAX_COUNT_RESULTS => max_count_results: usize = "1000000" in 1..=100_000_000;

        /// COUNTs of one connection that wait for their answer; further ones are refused.
        NGIT_MAX_COUNTS => max_counts: usize = "16" in 1..=10_000;

        /// Queries, COUNTs and negentropy sessions of one connection that are worked on at once;
        /// further ones wait for their turn.
        NGIT_MAX_QUERIES_AT_ONCE => max_queries_at_once: usize = "4" in 1..=1_000;

        /// Open negentropy sessions (NIP-77) of one connection.
        NGIT_MAX_NEG_SESSIONS => max_neg_sessions: usize = "16" in 1..=1_000;

        /// Events in one negentropy session; a filter that matches more is refused. Each takes
        /// 40 bytes of memory.
        NGIT_MAX_NEG_ITEMS => max_neg_items: usize = "1000000" in 1..=100_000_000;

        /// Events in all negentropy sessions of the server together, and in all COUNTs of several
        /// filters. One address has an eighth.
        NGIT_MAX_NEG_ITEMS_TOTAL => max_neg_items_total: usize = "4000000" in 1..=1_000_000_000;

        /// The largest negentropy message, before hex encoding doubles it.
        NGIT_MAX_NEG_FRAME_BYTES => max_neg_frame_bytes: ByteSize = "120KiB" in 4 * KIB..=16 * MIB;

        /// A negentropy session that was not used for this long is closed.
        NGIT_NEG_IDLE_SECS => neg_idle: Duration = "60" in 1..=DAY;
    }

    "Connections" {
        /// Connections open at once. Each needs a file descriptor.
        NGIT_MAX_CONNECTIONS => max_connections: usize = "1000" in 1..=1_000_000;

        /// Connections open at once from one address. Loopback addresses and trusted proxies
        /// are exempt.
        NGIT_MAX_CONNECTIONS_PER_IP => max_connections_per_ip: usize = "64" in 1..=1_000_000;

        /// Keys that one connection may prove to hold (NIP-42).
        NGIT_MAX_AUTHENTICATED_KEYS => max_authenticated_keys: usize = "32" in 1..=10_000;

        /// Events of one connection that wait for their answer; meanwhile no more are read.
        NGIT_MAX_EVENTS_IN_FLIGHT => max_events_in_flight: usize = "1000" in 1..=100_000;

        /// Memory for the events of all connections that wait for their answer. One address, or
        /// one relay that is synced from, has a quarter.
        NGIT_MAX_INGEST_BYTES => max_ingest_bytes: ByteSize = "64MiB" in MIB..=64 * GIB;

        /// Live events that may wait for one slow reader before it is disconnected.
        NGIT_MAX_OUTBOX_BYTES => max_outbox_bytes: ByteSize = "4MiB" in 64 * KIB..=GIB;

        /// Stored events on their way to one reader; a query pauses until there is room.
        NGIT_QUERY_WINDOW_BYTES => query_window_bytes: ByteSize = "1MiB" in 16 * KIB..=GIB;

        /// Live and stored events on their way to all readers. One address has an eighth, beyond
        /// which its own queries wait; when all is used, the reader with most of it is disconnected.
        NGIT_MAX_OUTBOX_BYTES_TOTAL => max_outbox_bytes_total: ByteSize = "256MiB" in MIB..=1024 * GIB;

        /// How long a client may take to send the head of an HTTP request.
        NGIT_HEADER_TIMEOUT_SECS => header_timeout: Duration = "10" in 1..=3_600;

        /// An HTTP connection without a request for this long is closed.
        NGIT_HTTP_IDLE_SECS => http_idle: Duration = "75" in 1..=DAY;

        /// The largest body of an HTTP request, git pushes apart.
        NGIT_MAX_HTTP_BODY_BYTES => max_http_body_bytes: ByteSize = "1MiB" in KIB..=GIB;

        /// How often a quiet websocket is pinged.
        NGIT_PING_INTERVAL_SECS => ping_interval: Duration = "30" in 1..=DAY;

        /// A websocket from which nothing came for this long, not even a pong, is closed. It
        /// must be longer than the ping interval.
        NGIT_WEBSOCKET_IDLE_SECS => websocket_idle: Duration = "90" in 2..=DAY;

        /// A client that takes in nothing of what is sent for this long is disconnected.
        NGIT_WRITE_TIMEOUT_SECS => write_timeout: Duration = "30" in 1..=3_600;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::spec::PREFIX;
    use super::*;

    #[test]
    fn every_declaration_follows_the_pattern() {
        let mut names = HashSet::new();
        for spec in specs() {
            assert!(spec.env.starts_with(PREFIX), "{}", spec.env);
            assert!(names.insert(spec.env), "{} is declared twice", spec.env);
            assert!(spec.help.ends_with('.'), "{}: {}", spec.env, spec.help);
            assert!(!spec.help.contains("  "), "{}: {}", spec.env, spec.help);
        }
    }

    #[test]
    fn durations_say_their_unit_in_the_name() {
        for spec in specs() {
            let is_seconds = spec.expects.contains("of seconds");
            let is_milliseconds = spec.expects.contains("of milliseconds");
            assert_eq!(is_seconds, spec.env.ends_with("_SECS"), "{}", spec.env);
            assert_eq!(is_milliseconds, spec.env.ends_with("_MS"), "{}", spec.env);
        }
    }

    #[test]
    fn flags_are_the_names_in_kebab_case_without_the_prefix() {
        let flags: Vec<&str> = specs().iter().map(|spec| spec.flag.as_str()).collect();
        assert!(flags.contains(&"domain"));
        assert!(flags.contains(&"events-per-minute-per-ip"));
    }

    #[test]
    fn the_owner_key_and_the_operators_token_are_secrets_and_nothing_else_is() {
        let secrets: Vec<&str> = specs()
            .iter()
            .filter(|spec| spec.secret)
            .map(|spec| spec.env)
            .collect();
        assert_eq!(secrets, ["NGIT_RELAY_OWNER_NSEC", "NGIT_STATUS_TOKEN"]);
    }
}
