#compdef ngit-grasp

autoload -U is-at-least

_ngit-grasp() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'--domain=[The public host name of this server, with a port if it is not the usual one. Repositories that name it in their announcement are hosted here. Without it the server is localhost with the port of the bind address. \[env\: NGIT_DOMAIN\]]:VALUE:_default' \
'--bind-address=[Where the server listens, for git, the relay and the web pages alike. An address without a host, such as \:7334, means every IPv4 interface. \[default\: 127.0.0.1\:7334\] \[env\: NGIT_BIND_ADDRESS\]]:VALUE:_default' \
'--relay-name=[The name shown in the relay information document and on the web pages. \[default\: ngit-grasp\] \[env\: NGIT_RELAY_NAME\]]:VALUE:_default' \
'--relay-description=[What this server is for, shown beside its name. \[default\: A GRASP server\: git repositories announced and authorised over Nostr\] \[env\: NGIT_RELAY_DESCRIPTION\]]:VALUE:_default' \
'--relay-contact=[How to reach the operator, shown in the relay information document\: an address such as mailto\:admin@example.com. \[env\: NGIT_RELAY_CONTACT\]]:VALUE:_default' \
'*--relay-owner-nsec=[]::VALUE:_default' \
'*--trusted-proxies=[Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front of this server and nothing else\: a listed peer can claim any client address. \[env\: NGIT_TRUSTED_PROXIES\]]:VALUE:_default' \
'--git-data-path=[The directory of the git repositories. \[default\: ./data/git\] \[env\: NGIT_GIT_DATA_PATH\]]:VALUE:_default' \
'--relay-data-path=[The directory of the event database and of the server'\''s own key. \[default\: ./data/relay\] \[env\: NGIT_RELAY_DATA_PATH\]]:VALUE:_default' \
'--database-backend=[Where events are kept. With memory they are gone when the server stops, which is meant for tests. \[default\: lmdb\] \[env\: NGIT_DATABASE_BACKEND\]]:VALUE:_default' \
'--maintainer-rule=[When a key that an announcement lists as maintainer has authority\: reciprocal means once its own announcement names a maintainer back, listed means at once. \[default\: reciprocal\] \[env\: NGIT_MAINTAINER_RULE\]]:VALUE:_default' \
'*--repository-whitelist=[If not empty, only these repositories are taken. An entry is an npub, an npub/identifier or an identifier. What is hosted already stays. \[env\: NGIT_REPOSITORY_WHITELIST\]]:VALUE:_default' \
'*--repository-blacklist=[Repositories that are not taken, in the same form. What is hosted already stays. \[env\: NGIT_REPOSITORY_BLACKLIST\]]:VALUE:_default' \
'*--event-blacklist=[Authors whose events are refused, as npubs. \[env\: NGIT_EVENT_BLACKLIST\]]:VALUE:_default' \
'--accept-unrelated-events=[Accept events that belong to no repository here, as a general relay does. \[default\: false\] \[env\: NGIT_ACCEPT_UNRELATED_EVENTS\]]::VALUE:_default' \
'--purgatory-expiry-secs=[How long an event waits for its git data before it is discarded. \[default\: 1800\] \[env\: NGIT_PURGATORY_EXPIRY_SECS\]]:VALUE:_default' \
'--purgatory-tip-expiry-secs=[How long the tip of a pull request waits for its event. \[default\: 1200\] \[env\: NGIT_PURGATORY_TIP_EXPIRY_SECS\]]:VALUE:_default' \
'--purgatory-max-events=[Events that wait for their git data. \[default\: 20000\] \[env\: NGIT_PURGATORY_MAX_EVENTS\]]:VALUE:_default' \
'--purgatory-max-per-key=[Events of one author that wait for their git data. \[default\: 500\] \[env\: NGIT_PURGATORY_MAX_PER_KEY\]]:VALUE:_default' \
'--purgatory-max-bytes=[The size of all events that wait for their git data. They are kept in memory too, where they take about three times as much. \[default\: 64MiB\] \[env\: NGIT_PURGATORY_MAX_BYTES\]]:VALUE:_default' \
'--max-push-bytes=[The largest pack of one push. \[default\: 2GiB\] \[env\: NGIT_MAX_PUSH_BYTES\]]:VALUE:_default' \
'--max-repository-bytes=[The size on disk from which a repository takes no more pushes. Pull requests, and what is fetched from other servers, fill four fifths of it at most, and what is pushed before its event three. \[default\: 5GiB\] \[env\: NGIT_MAX_REPOSITORY_BYTES\]]:VALUE:_default' \
'--min-free-bytes=[What stays free on the disk of the git data\: with less, pushes are refused, and nothing is fetched from other servers. \[default\: 512MiB\] \[env\: NGIT_MIN_FREE_BYTES\]]:VALUE:_default' \
'--git-concurrent=[Fetches and pushes worked on at once; more are told to come back. \[default\: 64\] \[env\: NGIT_GIT_CONCURRENT\]]:VALUE:_default' \
'--git-concurrent-per-repository=[Fetches and pushes of one repository worked on at once. \[default\: 32\] \[env\: NGIT_GIT_CONCURRENT_PER_REPOSITORY\]]:VALUE:_default' \
'--git-concurrent-per-ip=[Fetches and pushes of one address worked on at once. Loopback addresses and trusted proxies are exempt. \[default\: 16\] \[env\: NGIT_GIT_CONCURRENT_PER_IP\]]:VALUE:_default' \
'--git-timeout-secs=[The longest that one fetch or push may take. \[default\: 3600\] \[env\: NGIT_GIT_TIMEOUT_SECS\]]:VALUE:_default' \
'--git-idle-secs=[A git client that sends or takes in nothing for this long is disconnected. \[default\: 120\] \[env\: NGIT_GIT_IDLE_SECS\]]:VALUE:_default' \
'--prune-interval-secs=[How often a repository is looked through for objects that nobody needs; 0 is never. \[default\: 86400\] \[env\: NGIT_PRUNE_INTERVAL_SECS\]]:VALUE:_default' \
'--prune-grace-secs=[Objects that nobody needs stay for this long. \[default\: 172800\] \[env\: NGIT_PRUNE_GRACE_SECS\]]:VALUE:_default' \
'--retired-days=[Days for which a repository whose announcement is gone is kept aside. \[default\: 30\] \[env\: NGIT_RETIRED_DAYS\]]:VALUE:_default' \
'--retired-max-bytes=[The size of all repositories that are kept aside; beyond it, or beyond a thousand, the oldest go first. They are looked at once an hour. \[default\: 10GiB\] \[env\: NGIT_RETIRED_MAX_BYTES\]]:VALUE:_default' \
'--log-level=[How much is logged\: one level, or a level for each module. \[default\: info\] \[env\: NGIT_LOG_LEVEL\]]:VALUE:_default' \
'--metrics-enabled=[Serve counters for Prometheus at /metrics. \[default\: true\] \[env\: NGIT_METRICS_ENABLED\]]::VALUE:_default' \
'--status-enabled=[Tell at /api/status how sync and the hunt for git data stand, with the addresses of other relays and git servers. The command \`ngit-grasp status\` asks there, too. \[default\: true\] \[env\: NGIT_STATUS_ENABLED\]]::VALUE:_default' \
'--sync-enabled=[Fetch from other relays what belongs to the repositories here. \[default\: true\] \[env\: NGIT_SYNC_ENABLED\]]::VALUE:_default' \
'*--sync-bootstrap-relay-url=[Relays that are always connected and asked for announcements, whether a repository names them or not. They may be on a private network. \[env\: NGIT_SYNC_BOOTSTRAP_RELAY_URL\]]:VALUE:_default' \
'--allow-private-addresses=[Connect also to addresses that are not public, whoever names them. \[default\: false\] \[env\: NGIT_ALLOW_PRIVATE_ADDRESSES\]]::VALUE:_default' \
'--sync-auth=[Who this server is to a relay that asks\: service means a key of its own for this purpose, owner the server'\''s own identity, never that it does not say. \[default\: service\] \[env\: NGIT_SYNC_AUTH\]]:VALUE:_default' \
'--sync-disable-negentropy=[Do not compare sets of events (NIP-77), but read the history of every relay page by page. \[default\: false\] \[env\: NGIT_SYNC_DISABLE_NEGENTROPY\]]::VALUE:_default' \
'--sync-startup-delay-secs=[How long after the start other relays are left alone. \[default\: 0\] \[env\: NGIT_SYNC_STARTUP_DELAY_SECS\]]:VALUE:_default' \
'--sync-connect-timeout-secs=[How long the name of another relay may take to be looked up, and then a connection to it. \[default\: 10\] \[env\: NGIT_SYNC_CONNECT_TIMEOUT_SECS\]]:VALUE:_default' \
'--sync-request-timeout-secs=[A request to which a relay says nothing for this long has failed. \[default\: 30\] \[env\: NGIT_SYNC_REQUEST_TIMEOUT_SECS\]]:VALUE:_default' \
'--sync-silence-secs=[A connection on which nothing comes for this long, not even a pong, is given up. \[default\: 120\] \[env\: NGIT_SYNC_SILENCE_SECS\]]:VALUE:_default' \
'--sync-base-backoff-secs=[The first pause after a failed connection; each further failure doubles it. \[default\: 5\] \[env\: NGIT_SYNC_BASE_BACKOFF_SECS\]]:VALUE:_default' \
'--sync-max-backoff-secs=[The longest pause between two tries. \[default\: 3600\] \[env\: NGIT_SYNC_MAX_BACKOFF_SECS\]]:VALUE:_default' \
'--sync-dead-after-secs=[A relay that fails for this long counts as dead. \[default\: 86400\] \[env\: NGIT_SYNC_DEAD_AFTER_SECS\]]:VALUE:_default' \
'--sync-dead-retry-secs=[How often a dead relay is tried. \[default\: 86400\] \[env\: NGIT_SYNC_DEAD_RETRY_SECS\]]:VALUE:_default' \
'--sync-disconnect-check-interval-secs=[How often relays are left that no repository names any more. \[default\: 60\] \[env\: NGIT_SYNC_DISCONNECT_CHECK_INTERVAL_SECS\]]:VALUE:_default' \
'--sync-batch-window-ms=[News are gathered for at most this long before other relays are asked about them. \[default\: 5000\] \[env\: NGIT_SYNC_BATCH_WINDOW_MS\]]:VALUE:_default' \
'--sync-quiet-ms=[News are gathered no longer than until nothing came for this long. \[default\: 100\] \[env\: NGIT_SYNC_QUIET_MS\]]:VALUE:_default' \
'--sync-batch-delay-secs=[A pause between two batches of history from one relay. \[default\: 0\] \[env\: NGIT_SYNC_BATCH_DELAY_SECS\]]:VALUE:_default' \
'--sync-max-tags-per-filter=[Repositories, issues, patches and pull requests named in one filter. \[default\: 100\] \[env\: NGIT_SYNC_MAX_TAGS_PER_FILTER\]]:VALUE:_default' \
'--sync-consolidate-filters=[With more filters open on one relay, they are packed anew. \[default\: 70\] \[env\: NGIT_SYNC_CONSOLIDATE_FILTERS\]]:VALUE:_default' \
'--sync-reconnect-delay-secs=[A pause between a new connection and its first request. \[default\: 0\] \[env\: NGIT_SYNC_RECONNECT_DELAY_SECS\]]:VALUE:_default' \
'--sync-reconnect-buffer-secs=[How far back a subscription reaches beyond what was surely seen. \[default\: 900\] \[env\: NGIT_SYNC_RECONNECT_BUFFER_SECS\]]:VALUE:_default' \
'--sync-reconnect-lookback-days=[Days that a reconnect reaches back at least; 0 means to what was surely seen. \[default\: 0\] \[env\: NGIT_SYNC_RECONNECT_LOOKBACK_DAYS\]]:VALUE:_default' \
'--sync-stale-after-secs=[After a longer absence of a relay, everything is compared again. \[default\: 900\] \[env\: NGIT_SYNC_STALE_AFTER_SECS\]]:VALUE:_default' \
'--sync-full-min-secs=[Everything is compared again with each relay after a random time; this is the shortest. \[default\: 82800\] \[env\: NGIT_SYNC_FULL_MIN_SECS\]]:VALUE:_default' \
'--sync-full-max-secs=[The longest time until everything is compared again. \[default\: 90000\] \[env\: NGIT_SYNC_FULL_MAX_SECS\]]:VALUE:_default' \
'--sync-reconcile-interval-secs=[How often that is compared for which a relay has no live subscription. \[default\: 600\] \[env\: NGIT_SYNC_RECONCILE_INTERVAL_SECS\]]:VALUE:_default' \
'--sync-refusal-retry-secs=[What a relay refused is asked again after this long; each further refusal doubles it. \[default\: 30\] \[env\: NGIT_SYNC_REFUSAL_RETRY_SECS\]]:VALUE:_default' \
'--sync-max-refusal-retry-secs=[The longest pause before refused things are asked again. \[default\: 3600\] \[env\: NGIT_SYNC_MAX_REFUSAL_RETRY_SECS\]]:VALUE:_default' \
'--sync-page=[Events asked for in one page. \[default\: 500\] \[env\: NGIT_SYNC_PAGE\]]:VALUE:_default' \
'--sync-fetch-ids=[Missing events asked for in one request. \[default\: 250\] \[env\: NGIT_SYNC_FETCH_IDS\]]:VALUE:_default' \
'--sync-neg-window=[Events of this server in one comparison; larger sets are compared in parts. \[default\: 20000\] \[env\: NGIT_SYNC_NEG_WINDOW\]]:VALUE:_default' \
'--sync-max-relays=[Relays that are connected at once. \[default\: 500\] \[env\: NGIT_SYNC_MAX_RELAYS\]]:VALUE:_default' \
'--sync-max-relays-known=[Relays that are known at once, connected or not. \[default\: 2000\] \[env\: NGIT_SYNC_MAX_RELAYS_KNOWN\]]:VALUE:_default' \
'--sync-max-relays-per-repository=[Relays of one announcement that count. \[default\: 20\] \[env\: NGIT_SYNC_MAX_RELAYS_PER_REPOSITORY\]]:VALUE:_default' \
'--sync-max-relays-per-owner=[Relays that the repositories of one owner alone name. \[default\: 50\] \[env\: NGIT_SYNC_MAX_RELAYS_PER_OWNER\]]:VALUE:_default' \
'--sync-max-roots=[Issues, patches and pull requests that are watched, at about 310 bytes each. \[default\: 2000000\] \[env\: NGIT_SYNC_MAX_ROOTS\]]:VALUE:_default' \
'--sync-subscriptions=[Subscriptions on a relay that does not say how many it allows. \[default\: 20\] \[env\: NGIT_SYNC_SUBSCRIPTIONS\]]:VALUE:_default' \
'--sync-filters=[Filters in one subscription on a relay that does not say how many it allows. \[default\: 30\] \[env\: NGIT_SYNC_FILTERS\]]:VALUE:_default' \
'--sync-message-bytes=[The largest message to a relay that does not say how large it may be. \[default\: 120KiB\] \[env\: NGIT_SYNC_MESSAGE_BYTES\]]:VALUE:_default' \
'--sync-max-wanted=[Events that are known to be missing, at about 110 bytes each. \[default\: 200000\] \[env\: NGIT_SYNC_MAX_WANTED\]]:VALUE:_default' \
'--sync-remember-refused=[Events that were refused and are not fetched again, at about 120 bytes each. \[default\: 200000\] \[env\: NGIT_SYNC_REMEMBER_REFUSED\]]:VALUE:_default' \
'--hunt-enabled=[Fetch git data that events wait for from the other git servers that the repository names. \[default\: true\] \[env\: NGIT_HUNT_ENABLED\]]::VALUE:_default' \
'--hunt-user-delay-secs=[After an event that a client brings, a push is expected for this long before other servers are asked. \[default\: 180\] \[env\: NGIT_HUNT_USER_DELAY_SECS\]]:VALUE:_default' \
'--hunt-synced-delay-ms=[Events from other relays come in bursts\: this long after the first of a repository, other servers are asked for all of them. \[default\: 500\] \[env\: NGIT_HUNT_SYNCED_DELAY_MS\]]:VALUE:_default' \
'--hunt-base-backoff-secs=[The pause after the first attempt that left something missing; each further one doubles it. A new event begins anew. \[default\: 20\] \[env\: NGIT_HUNT_BASE_BACKOFF_SECS\]]:VALUE:_default' \
'--hunt-max-backoff-secs=[The longest pause between two attempts. \[default\: 120\] \[env\: NGIT_HUNT_MAX_BACKOFF_SECS\]]:VALUE:_default' \
'--sync-domain-concurrent=[Fetches from one domain at once. A domain is a host and its port. \[default\: 5\] \[env\: NGIT_SYNC_DOMAIN_CONCURRENT\]]:VALUE:_default' \
'--sync-domain-rate-limit=[Fetches from one domain in any 60 seconds. \[default\: 30\] \[env\: NGIT_SYNC_DOMAIN_RATE_LIMIT\]]:VALUE:_default' \
'*--sync-domain-overrides=[Domains with limits of their own\: how many at once, and how many in a minute. \[env\: NGIT_SYNC_DOMAIN_OVERRIDES\]]:VALUE:_default' \
'--hunt-concurrent=[Fetches at once, from all domains together. \[default\: 16\] \[env\: NGIT_HUNT_CONCURRENT\]]:VALUE:_default' \
'--hunt-hedge-ms=[When a server sends nothing for this long, the next one is asked beside it. \[default\: 5000\] \[env\: NGIT_HUNT_HEDGE_MS\]]:VALUE:_default' \
'--hunt-base-rest-secs=[How long a domain is left alone after its second failure in a row; each further one doubles it, a success ends it. \[default\: 30\] \[env\: NGIT_HUNT_BASE_REST_SECS\]]:VALUE:_default' \
'--hunt-max-rest-secs=[The longest that a domain is left alone. Longer than NGIT_PURGATORY_EXPIRY_SECS means that events expire before it is asked again. \[default\: 900\] \[env\: NGIT_HUNT_MAX_REST_SECS\]]:VALUE:_default' \
'--hunt-disk-pause-secs=[How long nothing is fetched when the disk has less than NGIT_MIN_FREE_BYTES left. \[default\: 60\] \[env\: NGIT_HUNT_DISK_PAUSE_SECS\]]:VALUE:_default' \
'--hunt-fetch-bytes=[What one fetch may bring. A larger history comes in several. \[default\: 256MiB\] \[env\: NGIT_HUNT_FETCH_BYTES\]]:VALUE:_default' \
'--hunt-fetch-timeout-secs=[The longest that one fetch may take. \[default\: 600\] \[env\: NGIT_HUNT_FETCH_TIMEOUT_SECS\]]:VALUE:_default' \
'--hunt-connect-timeout-secs=[How long another git server'\''s name may take to be looked up, and then a connection to it. \[default\: 10\] \[env\: NGIT_HUNT_CONNECT_TIMEOUT_SECS\]]:VALUE:_default' \
'--hunt-patience-secs=[How long a server may take to tell its refs, and then to begin with its pack. \[default\: 90\] \[env\: NGIT_HUNT_PATIENCE_SECS\]]:VALUE:_default' \
'--hunt-low-speed-bytes=[A server that brings less of a pack than this in NGIT_HUNT_LOW_SPEED_SECS is too slow, and the fetch ends; 0 means never. \[default\: 30KiB\] \[env\: NGIT_HUNT_LOW_SPEED_BYTES\]]:VALUE:_default' \
'--hunt-low-speed-secs=[The time in which NGIT_HUNT_LOW_SPEED_BYTES must come. \[default\: 30\] \[env\: NGIT_HUNT_LOW_SPEED_SECS\]]:VALUE:_default' \
'--hunt-max-owner-bytes=[The size on disk of all repositories of one owner from which nothing more is fetched for them; 0 means no limit. Each has its own in NGIT_MAX_REPOSITORY_BYTES. \[default\: 50GiB\] \[env\: NGIT_HUNT_MAX_OWNER_BYTES\]]:VALUE:_default' \
'*--hunt-trusted-domains=[Git servers that may be on a private network, as a host and its port. \[env\: NGIT_HUNT_TRUSTED_DOMAINS\]]:VALUE:_default' \
'--hunt-max-repositories=[Repositories that lack git data at once, at about 1.1 kB each. \[default\: 50000\] \[env\: NGIT_HUNT_MAX_REPOSITORIES\]]:VALUE:_default' \
'--hunt-max-domains=[Domains that are kept in mind, at about 0.7 kB each. \[default\: 10000\] \[env\: NGIT_HUNT_MAX_DOMAINS\]]:VALUE:_default' \
'--max-message-bytes=[The largest websocket message that is read. \[default\: 512KiB\] \[env\: NGIT_MAX_MESSAGE_BYTES\]]:VALUE:_default' \
'--max-event-bytes=[The largest event, as JSON. It must fit into a message with 1KiB to spare. \[default\: 256KiB\] \[env\: NGIT_MAX_EVENT_BYTES\]]:VALUE:_default' \
'--max-content-bytes=[The longest content of an event. \[default\: 192KiB\] \[env\: NGIT_MAX_CONTENT_BYTES\]]:VALUE:_default' \
'--max-event-tags=[The most tags of one event. A repository state has one tag for each branch and tag of the repository. \[default\: 2500\] \[env\: NGIT_MAX_EVENT_TAGS\]]:VALUE:_default' \
'--created-at-ahead-secs=[How far in the future an event may be dated. \[default\: 900\] \[env\: NGIT_CREATED_AT_AHEAD_SECS\]]:VALUE:_default' \
'--created-at-behind-secs=[How far in the past an event may be dated; 0 accepts any age. \[default\: 0\] \[env\: NGIT_CREATED_AT_BEHIND_SECS\]]:VALUE:_default' \
'--events-per-minute-per-ip=[Events accepted from one address in a minute; 0 means no limit. Loopback addresses and trusted proxies are exempt. \[default\: 600\] \[env\: NGIT_EVENTS_PER_MINUTE_PER_IP\]]:VALUE:_default' \
'--events-per-minute-per-key=[Events accepted from one author in a minute; 0 means no limit. \[default\: 600\] \[env\: NGIT_EVENTS_PER_MINUTE_PER_KEY\]]:VALUE:_default' \
'--max-subscriptions=[Open subscriptions of one connection. Other GRASP servers open about 70 at once when they sync from this one. \[default\: 256\] \[env\: NGIT_MAX_SUBSCRIPTIONS\]]:VALUE:_default' \
'--max-filters=[Filters in one subscription. \[default\: 64\] \[env\: NGIT_MAX_FILTERS\]]:VALUE:_default' \
'--max-filter-values=[Values in one filter, all its lists together. \[default\: 2000\] \[env\: NGIT_MAX_FILTER_VALUES\]]:VALUE:_default' \
'--max-connection-values=[Values in all open subscriptions of one connection. \[default\: 40000\] \[env\: NGIT_MAX_CONNECTION_VALUES\]]:VALUE:_default' \
'--max-query-results=[Stored events answered to one filter, and what a larger or missing limit becomes. \[default\: 500\] \[env\: NGIT_MAX_QUERY_RESULTS\]]:VALUE:_default' \
'--max-count-results=[Events that one COUNT counts; beyond it the answer says that it is approximate. \[default\: 1000000\] \[env\: NGIT_MAX_COUNT_RESULTS\]]:VALUE:_default' \
'--max-queries-at-once=[Queries, COUNTs and negentropy sessions of one connection that are worked on at once; further ones wait for their turn. \[default\: 4\] \[env\: NGIT_MAX_QUERIES_AT_ONCE\]]:VALUE:_default' \
'--max-neg-sessions=[Open negentropy sessions (NIP-77) of one connection. \[default\: 16\] \[env\: NGIT_MAX_NEG_SESSIONS\]]:VALUE:_default' \
'--max-neg-items=[Events in one negentropy session; a filter that matches more is refused. Each takes 40 bytes of memory. \[default\: 1000000\] \[env\: NGIT_MAX_NEG_ITEMS\]]:VALUE:_default' \
'--max-neg-items-total=[Events in all negentropy sessions of the server together, and in all COUNTs of several filters. \[default\: 4000000\] \[env\: NGIT_MAX_NEG_ITEMS_TOTAL\]]:VALUE:_default' \
'--max-neg-frame-bytes=[The largest negentropy message, before hex encoding doubles it. \[default\: 120KiB\] \[env\: NGIT_MAX_NEG_FRAME_BYTES\]]:VALUE:_default' \
'--neg-idle-secs=[A negentropy session that was not used for this long is closed. \[default\: 60\] \[env\: NGIT_NEG_IDLE_SECS\]]:VALUE:_default' \
'--max-connections=[Connections open at once. Each needs a file descriptor. \[default\: 1000\] \[env\: NGIT_MAX_CONNECTIONS\]]:VALUE:_default' \
'--max-connections-per-ip=[Connections open at once from one address. Loopback addresses and trusted proxies are exempt. \[default\: 64\] \[env\: NGIT_MAX_CONNECTIONS_PER_IP\]]:VALUE:_default' \
'--max-authenticated-keys=[Keys that one connection may prove to hold (NIP-42). \[default\: 32\] \[env\: NGIT_MAX_AUTHENTICATED_KEYS\]]:VALUE:_default' \
'--max-events-in-flight=[Events of one connection that wait for their answer; meanwhile no more are read. \[default\: 1000\] \[env\: NGIT_MAX_EVENTS_IN_FLIGHT\]]:VALUE:_default' \
'--max-ingest-bytes=[Memory for the events of all connections that wait for their answer. \[default\: 64MiB\] \[env\: NGIT_MAX_INGEST_BYTES\]]:VALUE:_default' \
'--max-outbox-bytes=[Live events that may wait for one slow reader before it is disconnected. \[default\: 4MiB\] \[env\: NGIT_MAX_OUTBOX_BYTES\]]:VALUE:_default' \
'--query-window-bytes=[Stored events on their way to one reader; a query pauses until there is room. \[default\: 1MiB\] \[env\: NGIT_QUERY_WINDOW_BYTES\]]:VALUE:_default' \
'--header-timeout-secs=[How long a client may take to send the head of an HTTP request. \[default\: 10\] \[env\: NGIT_HEADER_TIMEOUT_SECS\]]:VALUE:_default' \
'--http-idle-secs=[An HTTP connection without a request for this long is closed. \[default\: 75\] \[env\: NGIT_HTTP_IDLE_SECS\]]:VALUE:_default' \
'--max-http-body-bytes=[The largest body of an HTTP request, git pushes apart. \[default\: 1MiB\] \[env\: NGIT_MAX_HTTP_BODY_BYTES\]]:VALUE:_default' \
'--ping-interval-secs=[How often a quiet websocket is pinged. \[default\: 30\] \[env\: NGIT_PING_INTERVAL_SECS\]]:VALUE:_default' \
'--websocket-idle-secs=[A websocket from which nothing came for this long, not even a pong, is closed. It must be longer than the ping interval. \[default\: 90\] \[env\: NGIT_WEBSOCKET_IDLE_SECS\]]:VALUE:_default' \
'--write-timeout-secs=[A client that takes in nothing of what is sent for this long is disconnected. \[default\: 30\] \[env\: NGIT_WRITE_TIMEOUT_SECS\]]:VALUE:_default' \
'--env-file=[Read settings from this file, and not from .env in the working directory]:FILE:_files' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_ngit-grasp_commands" \
"*::: :->ngit-grasp" \
&& ret=0
    case $state in
    (ngit-grasp)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:ngit-grasp-command-$line[1]:"
        case $line[1] in
            (init)
_arguments "${_arguments_options[@]}" : \
'--domain=[The public host name of this server, with a port if it is not the usual one. Repositories that name it in their announcement are hosted here. Without it the server is localhost with the port of the bind address. \[env\: NGIT_DOMAIN\]]:VALUE:_default' \
'--bind-address=[Where the server listens, for git, the relay and the web pages alike. An address without a host, such as \:7334, means every IPv4 interface. \[default\: 127.0.0.1\:7334\] \[env\: NGIT_BIND_ADDRESS\]]:VALUE:_default' \
'--relay-name=[The name shown in the relay information document and on the web pages. \[default\: ngit-grasp\] \[env\: NGIT_RELAY_NAME\]]:VALUE:_default' \
'--relay-description=[What this server is for, shown beside its name. \[default\: A GRASP server\: git repositories announced and authorised over Nostr\] \[env\: NGIT_RELAY_DESCRIPTION\]]:VALUE:_default' \
'--relay-contact=[How to reach the operator, shown in the relay information document\: an address such as mailto\:admin@example.com. \[env\: NGIT_RELAY_CONTACT\]]:VALUE:_default' \
'*--relay-owner-nsec=[]::VALUE:_default' \
'*--trusted-proxies=[Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front of this server and nothing else\: a listed peer can claim any client address. \[env\: NGIT_TRUSTED_PROXIES\]]:VALUE:_default' \
'--git-data-path=[The directory of the git repositories. \[default\: ./data/git\] \[env\: NGIT_GIT_DATA_PATH\]]:VALUE:_default' \
'--relay-data-path=[The directory of the event database and of the server'\''s own key. \[default\: ./data/relay\] \[env\: NGIT_RELAY_DATA_PATH\]]:VALUE:_default' \
'--database-backend=[Where events are kept. With memory they are gone when the server stops, which is meant for tests. \[default\: lmdb\] \[env\: NGIT_DATABASE_BACKEND\]]:VALUE:_default' \
'--env-file=[Read settings from this file, and not from .env in the working directory]:FILE:_files' \
'--force[Write a file that is there anew\: its values stay, the old file is kept as FILE.old]' \
'--defaults[Ask nothing\: take flags, environment and defaults]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(doctor)
_arguments "${_arguments_options[@]}" : \
'--domain=[The public host name of this server, with a port if it is not the usual one. Repositories that name it in their announcement are hosted here. Without it the server is localhost with the port of the bind address. \[env\: NGIT_DOMAIN\]]:VALUE:_default' \
'--bind-address=[Where the server listens, for git, the relay and the web pages alike. An address without a host, such as \:7334, means every IPv4 interface. \[default\: 127.0.0.1\:7334\] \[env\: NGIT_BIND_ADDRESS\]]:VALUE:_default' \
'--relay-name=[The name shown in the relay information document and on the web pages. \[default\: ngit-grasp\] \[env\: NGIT_RELAY_NAME\]]:VALUE:_default' \
'--relay-description=[What this server is for, shown beside its name. \[default\: A GRASP server\: git repositories announced and authorised over Nostr\] \[env\: NGIT_RELAY_DESCRIPTION\]]:VALUE:_default' \
'--relay-contact=[How to reach the operator, shown in the relay information document\: an address such as mailto\:admin@example.com. \[env\: NGIT_RELAY_CONTACT\]]:VALUE:_default' \
'*--relay-owner-nsec=[]::VALUE:_default' \
'*--trusted-proxies=[Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front of this server and nothing else\: a listed peer can claim any client address. \[env\: NGIT_TRUSTED_PROXIES\]]:VALUE:_default' \
'--git-data-path=[The directory of the git repositories. \[default\: ./data/git\] \[env\: NGIT_GIT_DATA_PATH\]]:VALUE:_default' \
'--relay-data-path=[The directory of the event database and of the server'\''s own key. \[default\: ./data/relay\] \[env\: NGIT_RELAY_DATA_PATH\]]:VALUE:_default' \
'--database-backend=[Where events are kept. With memory they are gone when the server stops, which is meant for tests. \[default\: lmdb\] \[env\: NGIT_DATABASE_BACKEND\]]:VALUE:_default' \
'--env-file=[Read settings from this file, and not from .env in the working directory]:FILE:_files' \
'--json[Print JSON]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(config)
_arguments "${_arguments_options[@]}" : \
'--domain=[The public host name of this server, with a port if it is not the usual one. Repositories that name it in their announcement are hosted here. Without it the server is localhost with the port of the bind address. \[env\: NGIT_DOMAIN\]]:VALUE:_default' \
'--bind-address=[Where the server listens, for git, the relay and the web pages alike. An address without a host, such as \:7334, means every IPv4 interface. \[default\: 127.0.0.1\:7334\] \[env\: NGIT_BIND_ADDRESS\]]:VALUE:_default' \
'--relay-name=[The name shown in the relay information document and on the web pages. \[default\: ngit-grasp\] \[env\: NGIT_RELAY_NAME\]]:VALUE:_default' \
'--relay-description=[What this server is for, shown beside its name. \[default\: A GRASP server\: git repositories announced and authorised over Nostr\] \[env\: NGIT_RELAY_DESCRIPTION\]]:VALUE:_default' \
'--relay-contact=[How to reach the operator, shown in the relay information document\: an address such as mailto\:admin@example.com. \[env\: NGIT_RELAY_CONTACT\]]:VALUE:_default' \
'*--relay-owner-nsec=[]::VALUE:_default' \
'*--trusted-proxies=[Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front of this server and nothing else\: a listed peer can claim any client address. \[env\: NGIT_TRUSTED_PROXIES\]]:VALUE:_default' \
'--git-data-path=[The directory of the git repositories. \[default\: ./data/git\] \[env\: NGIT_GIT_DATA_PATH\]]:VALUE:_default' \
'--relay-data-path=[The directory of the event database and of the server'\''s own key. \[default\: ./data/relay\] \[env\: NGIT_RELAY_DATA_PATH\]]:VALUE:_default' \
'--database-backend=[Where events are kept. With memory they are gone when the server stops, which is meant for tests. \[default\: lmdb\] \[env\: NGIT_DATABASE_BACKEND\]]:VALUE:_default' \
'--env-file=[Read settings from this file, and not from .env in the working directory]:FILE:_files' \
'--json[Print JSON]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(repos)
_arguments "${_arguments_options[@]}" : \
'--domain=[The public host name of this server, with a port if it is not the usual one. Repositories that name it in their announcement are hosted here. Without it the server is localhost with the port of the bind address. \[env\: NGIT_DOMAIN\]]:VALUE:_default' \
'--bind-address=[Where the server listens, for git, the relay and the web pages alike. An address without a host, such as \:7334, means every IPv4 interface. \[default\: 127.0.0.1\:7334\] \[env\: NGIT_BIND_ADDRESS\]]:VALUE:_default' \
'--relay-name=[The name shown in the relay information document and on the web pages. \[default\: ngit-grasp\] \[env\: NGIT_RELAY_NAME\]]:VALUE:_default' \
'--relay-description=[What this server is for, shown beside its name. \[default\: A GRASP server\: git repositories announced and authorised over Nostr\] \[env\: NGIT_RELAY_DESCRIPTION\]]:VALUE:_default' \
'--relay-contact=[How to reach the operator, shown in the relay information document\: an address such as mailto\:admin@example.com. \[env\: NGIT_RELAY_CONTACT\]]:VALUE:_default' \
'*--relay-owner-nsec=[]::VALUE:_default' \
'*--trusted-proxies=[Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front of this server and nothing else\: a listed peer can claim any client address. \[env\: NGIT_TRUSTED_PROXIES\]]:VALUE:_default' \
'--git-data-path=[The directory of the git repositories. \[default\: ./data/git\] \[env\: NGIT_GIT_DATA_PATH\]]:VALUE:_default' \
'--relay-data-path=[The directory of the event database and of the server'\''s own key. \[default\: ./data/relay\] \[env\: NGIT_RELAY_DATA_PATH\]]:VALUE:_default' \
'--database-backend=[Where events are kept. With memory they are gone when the server stops, which is meant for tests. \[default\: lmdb\] \[env\: NGIT_DATABASE_BACKEND\]]:VALUE:_default' \
'--env-file=[Read settings from this file, and not from .env in the working directory]:FILE:_files' \
'--json[Print JSON]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(status)
_arguments "${_arguments_options[@]}" : \
'--domain=[The public host name of this server, with a port if it is not the usual one. Repositories that name it in their announcement are hosted here. Without it the server is localhost with the port of the bind address. \[env\: NGIT_DOMAIN\]]:VALUE:_default' \
'--bind-address=[Where the server listens, for git, the relay and the web pages alike. An address without a host, such as \:7334, means every IPv4 interface. \[default\: 127.0.0.1\:7334\] \[env\: NGIT_BIND_ADDRESS\]]:VALUE:_default' \
'--relay-name=[The name shown in the relay information document and on the web pages. \[default\: ngit-grasp\] \[env\: NGIT_RELAY_NAME\]]:VALUE:_default' \
'--relay-description=[What this server is for, shown beside its name. \[default\: A GRASP server\: git repositories announced and authorised over Nostr\] \[env\: NGIT_RELAY_DESCRIPTION\]]:VALUE:_default' \
'--relay-contact=[How to reach the operator, shown in the relay information document\: an address such as mailto\:admin@example.com. \[env\: NGIT_RELAY_CONTACT\]]:VALUE:_default' \
'*--relay-owner-nsec=[]::VALUE:_default' \
'*--trusted-proxies=[Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front of this server and nothing else\: a listed peer can claim any client address. \[env\: NGIT_TRUSTED_PROXIES\]]:VALUE:_default' \
'--git-data-path=[The directory of the git repositories. \[default\: ./data/git\] \[env\: NGIT_GIT_DATA_PATH\]]:VALUE:_default' \
'--relay-data-path=[The directory of the event database and of the server'\''s own key. \[default\: ./data/relay\] \[env\: NGIT_RELAY_DATA_PATH\]]:VALUE:_default' \
'--database-backend=[Where events are kept. With memory they are gone when the server stops, which is meant for tests. \[default\: lmdb\] \[env\: NGIT_DATABASE_BACKEND\]]:VALUE:_default' \
'--env-file=[Read settings from this file, and not from .env in the working directory]:FILE:_files' \
'--json[Print JSON]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(check)
_arguments "${_arguments_options[@]}" : \
'--domain=[The public host name of this server, with a port if it is not the usual one. Repositories that name it in their announcement are hosted here. Without it the server is localhost with the port of the bind address. \[env\: NGIT_DOMAIN\]]:VALUE:_default' \
'--bind-address=[Where the server listens, for git, the relay and the web pages alike. An address without a host, such as \:7334, means every IPv4 interface. \[default\: 127.0.0.1\:7334\] \[env\: NGIT_BIND_ADDRESS\]]:VALUE:_default' \
'--relay-name=[The name shown in the relay information document and on the web pages. \[default\: ngit-grasp\] \[env\: NGIT_RELAY_NAME\]]:VALUE:_default' \
'--relay-description=[What this server is for, shown beside its name. \[default\: A GRASP server\: git repositories announced and authorised over Nostr\] \[env\: NGIT_RELAY_DESCRIPTION\]]:VALUE:_default' \
'--relay-contact=[How to reach the operator, shown in the relay information document\: an address such as mailto\:admin@example.com. \[env\: NGIT_RELAY_CONTACT\]]:VALUE:_default' \
'*--relay-owner-nsec=[]::VALUE:_default' \
'*--trusted-proxies=[Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front of this server and nothing else\: a listed peer can claim any client address. \[env\: NGIT_TRUSTED_PROXIES\]]:VALUE:_default' \
'--git-data-path=[The directory of the git repositories. \[default\: ./data/git\] \[env\: NGIT_GIT_DATA_PATH\]]:VALUE:_default' \
'--relay-data-path=[The directory of the event database and of the server'\''s own key. \[default\: ./data/relay\] \[env\: NGIT_RELAY_DATA_PATH\]]:VALUE:_default' \
'--database-backend=[Where events are kept. With memory they are gone when the server stops, which is meant for tests. \[default\: lmdb\] \[env\: NGIT_DATABASE_BACKEND\]]:VALUE:_default' \
'--env-file=[Read settings from this file, and not from .env in the working directory]:FILE:_files' \
'--repair[First bring refs and store in step and clear what a crash left; the server must be stopped]' \
'--json[Print JSON]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(backup)
_arguments "${_arguments_options[@]}" : \
'--domain=[The public host name of this server, with a port if it is not the usual one. Repositories that name it in their announcement are hosted here. Without it the server is localhost with the port of the bind address. \[env\: NGIT_DOMAIN\]]:VALUE:_default' \
'--bind-address=[Where the server listens, for git, the relay and the web pages alike. An address without a host, such as \:7334, means every IPv4 interface. \[default\: 127.0.0.1\:7334\] \[env\: NGIT_BIND_ADDRESS\]]:VALUE:_default' \
'--relay-name=[The name shown in the relay information document and on the web pages. \[default\: ngit-grasp\] \[env\: NGIT_RELAY_NAME\]]:VALUE:_default' \
'--relay-description=[What this server is for, shown beside its name. \[default\: A GRASP server\: git repositories announced and authorised over Nostr\] \[env\: NGIT_RELAY_DESCRIPTION\]]:VALUE:_default' \
'--relay-contact=[How to reach the operator, shown in the relay information document\: an address such as mailto\:admin@example.com. \[env\: NGIT_RELAY_CONTACT\]]:VALUE:_default' \
'*--relay-owner-nsec=[]::VALUE:_default' \
'*--trusted-proxies=[Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front of this server and nothing else\: a listed peer can claim any client address. \[env\: NGIT_TRUSTED_PROXIES\]]:VALUE:_default' \
'--git-data-path=[The directory of the git repositories. \[default\: ./data/git\] \[env\: NGIT_GIT_DATA_PATH\]]:VALUE:_default' \
'--relay-data-path=[The directory of the event database and of the server'\''s own key. \[default\: ./data/relay\] \[env\: NGIT_RELAY_DATA_PATH\]]:VALUE:_default' \
'--database-backend=[Where events are kept. With memory they are gone when the server stops, which is meant for tests. \[default\: lmdb\] \[env\: NGIT_DATABASE_BACKEND\]]:VALUE:_default' \
'--env-file=[Read settings from this file, and not from .env in the working directory]:FILE:_files' \
'-h[Print help]' \
'--help[Print help]' \
':DIR -- A directory that does not exist yet or is empty:_files' \
&& ret=0
;;
(restore)
_arguments "${_arguments_options[@]}" : \
'--domain=[The public host name of this server, with a port if it is not the usual one. Repositories that name it in their announcement are hosted here. Without it the server is localhost with the port of the bind address. \[env\: NGIT_DOMAIN\]]:VALUE:_default' \
'--bind-address=[Where the server listens, for git, the relay and the web pages alike. An address without a host, such as \:7334, means every IPv4 interface. \[default\: 127.0.0.1\:7334\] \[env\: NGIT_BIND_ADDRESS\]]:VALUE:_default' \
'--relay-name=[The name shown in the relay information document and on the web pages. \[default\: ngit-grasp\] \[env\: NGIT_RELAY_NAME\]]:VALUE:_default' \
'--relay-description=[What this server is for, shown beside its name. \[default\: A GRASP server\: git repositories announced and authorised over Nostr\] \[env\: NGIT_RELAY_DESCRIPTION\]]:VALUE:_default' \
'--relay-contact=[How to reach the operator, shown in the relay information document\: an address such as mailto\:admin@example.com. \[env\: NGIT_RELAY_CONTACT\]]:VALUE:_default' \
'*--relay-owner-nsec=[]::VALUE:_default' \
'*--trusted-proxies=[Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front of this server and nothing else\: a listed peer can claim any client address. \[env\: NGIT_TRUSTED_PROXIES\]]:VALUE:_default' \
'--git-data-path=[The directory of the git repositories. \[default\: ./data/git\] \[env\: NGIT_GIT_DATA_PATH\]]:VALUE:_default' \
'--relay-data-path=[The directory of the event database and of the server'\''s own key. \[default\: ./data/relay\] \[env\: NGIT_RELAY_DATA_PATH\]]:VALUE:_default' \
'--database-backend=[Where events are kept. With memory they are gone when the server stops, which is meant for tests. \[default\: lmdb\] \[env\: NGIT_DATABASE_BACKEND\]]:VALUE:_default' \
'--env-file=[Read settings from this file, and not from .env in the working directory]:FILE:_files' \
'-h[Print help]' \
'--help[Print help]' \
':DIR -- A directory made by `ngit-grasp backup`:_files' \
&& ret=0
;;
(export)
_arguments "${_arguments_options[@]}" : \
'--domain=[The public host name of this server, with a port if it is not the usual one. Repositories that name it in their announcement are hosted here. Without it the server is localhost with the port of the bind address. \[env\: NGIT_DOMAIN\]]:VALUE:_default' \
'--bind-address=[Where the server listens, for git, the relay and the web pages alike. An address without a host, such as \:7334, means every IPv4 interface. \[default\: 127.0.0.1\:7334\] \[env\: NGIT_BIND_ADDRESS\]]:VALUE:_default' \
'--relay-name=[The name shown in the relay information document and on the web pages. \[default\: ngit-grasp\] \[env\: NGIT_RELAY_NAME\]]:VALUE:_default' \
'--relay-description=[What this server is for, shown beside its name. \[default\: A GRASP server\: git repositories announced and authorised over Nostr\] \[env\: NGIT_RELAY_DESCRIPTION\]]:VALUE:_default' \
'--relay-contact=[How to reach the operator, shown in the relay information document\: an address such as mailto\:admin@example.com. \[env\: NGIT_RELAY_CONTACT\]]:VALUE:_default' \
'*--relay-owner-nsec=[]::VALUE:_default' \
'*--trusted-proxies=[Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front of this server and nothing else\: a listed peer can claim any client address. \[env\: NGIT_TRUSTED_PROXIES\]]:VALUE:_default' \
'--git-data-path=[The directory of the git repositories. \[default\: ./data/git\] \[env\: NGIT_GIT_DATA_PATH\]]:VALUE:_default' \
'--relay-data-path=[The directory of the event database and of the server'\''s own key. \[default\: ./data/relay\] \[env\: NGIT_RELAY_DATA_PATH\]]:VALUE:_default' \
'--database-backend=[Where events are kept. With memory they are gone when the server stops, which is meant for tests. \[default\: lmdb\] \[env\: NGIT_DATABASE_BACKEND\]]:VALUE:_default' \
'--env-file=[Read settings from this file, and not from .env in the working directory]:FILE:_files' \
'-h[Print help]' \
'--help[Print help]' \
'::FILE -- Where to write; standard output if not given:_files' \
&& ret=0
;;
(import)
_arguments "${_arguments_options[@]}" : \
'--domain=[The public host name of this server, with a port if it is not the usual one. Repositories that name it in their announcement are hosted here. Without it the server is localhost with the port of the bind address. \[env\: NGIT_DOMAIN\]]:VALUE:_default' \
'--bind-address=[Where the server listens, for git, the relay and the web pages alike. An address without a host, such as \:7334, means every IPv4 interface. \[default\: 127.0.0.1\:7334\] \[env\: NGIT_BIND_ADDRESS\]]:VALUE:_default' \
'--relay-name=[The name shown in the relay information document and on the web pages. \[default\: ngit-grasp\] \[env\: NGIT_RELAY_NAME\]]:VALUE:_default' \
'--relay-description=[What this server is for, shown beside its name. \[default\: A GRASP server\: git repositories announced and authorised over Nostr\] \[env\: NGIT_RELAY_DESCRIPTION\]]:VALUE:_default' \
'--relay-contact=[How to reach the operator, shown in the relay information document\: an address such as mailto\:admin@example.com. \[env\: NGIT_RELAY_CONTACT\]]:VALUE:_default' \
'*--relay-owner-nsec=[]::VALUE:_default' \
'*--trusted-proxies=[Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front of this server and nothing else\: a listed peer can claim any client address. \[env\: NGIT_TRUSTED_PROXIES\]]:VALUE:_default' \
'--git-data-path=[The directory of the git repositories. \[default\: ./data/git\] \[env\: NGIT_GIT_DATA_PATH\]]:VALUE:_default' \
'--relay-data-path=[The directory of the event database and of the server'\''s own key. \[default\: ./data/relay\] \[env\: NGIT_RELAY_DATA_PATH\]]:VALUE:_default' \
'--database-backend=[Where events are kept. With memory they are gone when the server stops, which is meant for tests. \[default\: lmdb\] \[env\: NGIT_DATABASE_BACKEND\]]:VALUE:_default' \
'--env-file=[Read settings from this file, and not from .env in the working directory]:FILE:_files' \
'-h[Print help]' \
'--help[Print help]' \
'::FILE -- What to read; standard input if not given:_files' \
&& ret=0
;;
(completions)
_arguments "${_arguments_options[@]}" : \
'--domain=[The public host name of this server, with a port if it is not the usual one. Repositories that name it in their announcement are hosted here. Without it the server is localhost with the port of the bind address. \[env\: NGIT_DOMAIN\]]:VALUE:_default' \
'--bind-address=[Where the server listens, for git, the relay and the web pages alike. An address without a host, such as \:7334, means every IPv4 interface. \[default\: 127.0.0.1\:7334\] \[env\: NGIT_BIND_ADDRESS\]]:VALUE:_default' \
'--relay-name=[The name shown in the relay information document and on the web pages. \[default\: ngit-grasp\] \[env\: NGIT_RELAY_NAME\]]:VALUE:_default' \
'--relay-description=[What this server is for, shown beside its name. \[default\: A GRASP server\: git repositories announced and authorised over Nostr\] \[env\: NGIT_RELAY_DESCRIPTION\]]:VALUE:_default' \
'--relay-contact=[How to reach the operator, shown in the relay information document\: an address such as mailto\:admin@example.com. \[env\: NGIT_RELAY_CONTACT\]]:VALUE:_default' \
'*--relay-owner-nsec=[]::VALUE:_default' \
'*--trusted-proxies=[Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front of this server and nothing else\: a listed peer can claim any client address. \[env\: NGIT_TRUSTED_PROXIES\]]:VALUE:_default' \
'--git-data-path=[The directory of the git repositories. \[default\: ./data/git\] \[env\: NGIT_GIT_DATA_PATH\]]:VALUE:_default' \
'--relay-data-path=[The directory of the event database and of the server'\''s own key. \[default\: ./data/relay\] \[env\: NGIT_RELAY_DATA_PATH\]]:VALUE:_default' \
'--database-backend=[Where events are kept. With memory they are gone when the server stops, which is meant for tests. \[default\: lmdb\] \[env\: NGIT_DATABASE_BACKEND\]]:VALUE:_default' \
'--env-file=[Read settings from this file, and not from .env in the working directory]:FILE:_files' \
'-h[Print help]' \
'--help[Print help]' \
':SHELL -- bash, zsh or fish:(bash zsh fish)' \
&& ret=0
;;
(man)
_arguments "${_arguments_options[@]}" : \
'--domain=[The public host name of this server, with a port if it is not the usual one. Repositories that name it in their announcement are hosted here. Without it the server is localhost with the port of the bind address. \[env\: NGIT_DOMAIN\]]:VALUE:_default' \
'--bind-address=[Where the server listens, for git, the relay and the web pages alike. An address without a host, such as \:7334, means every IPv4 interface. \[default\: 127.0.0.1\:7334\] \[env\: NGIT_BIND_ADDRESS\]]:VALUE:_default' \
'--relay-name=[The name shown in the relay information document and on the web pages. \[default\: ngit-grasp\] \[env\: NGIT_RELAY_NAME\]]:VALUE:_default' \
'--relay-description=[What this server is for, shown beside its name. \[default\: A GRASP server\: git repositories announced and authorised over Nostr\] \[env\: NGIT_RELAY_DESCRIPTION\]]:VALUE:_default' \
'--relay-contact=[How to reach the operator, shown in the relay information document\: an address such as mailto\:admin@example.com. \[env\: NGIT_RELAY_CONTACT\]]:VALUE:_default' \
'*--relay-owner-nsec=[]::VALUE:_default' \
'*--trusted-proxies=[Reverse proxies whose X-Forwarded-For header is believed. List every proxy in front of this server and nothing else\: a listed peer can claim any client address. \[env\: NGIT_TRUSTED_PROXIES\]]:VALUE:_default' \
'--git-data-path=[The directory of the git repositories. \[default\: ./data/git\] \[env\: NGIT_GIT_DATA_PATH\]]:VALUE:_default' \
'--relay-data-path=[The directory of the event database and of the server'\''s own key. \[default\: ./data/relay\] \[env\: NGIT_RELAY_DATA_PATH\]]:VALUE:_default' \
'--database-backend=[Where events are kept. With memory they are gone when the server stops, which is meant for tests. \[default\: lmdb\] \[env\: NGIT_DATABASE_BACKEND\]]:VALUE:_default' \
'--env-file=[Read settings from this file, and not from .env in the working directory]:FILE:_files' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
":: :_ngit-grasp__subcmd__help_commands" \
"*::: :->help" \
&& ret=0

    case $state in
    (help)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:ngit-grasp-help-command-$line[1]:"
        case $line[1] in
            (init)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(doctor)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(config)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(repos)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(status)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(check)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(backup)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(restore)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(export)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(import)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(completions)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(man)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
        esac
    ;;
esac
}

(( $+functions[_ngit-grasp_commands] )) ||
_ngit-grasp_commands() {
    local commands; commands=(
'init:Write a commented settings file; asks for what matters if somebody is there to answer' \
'doctor:Look whether all is well around the server\: name, address, TLS, git, disk, clock, permissions' \
'config:Print every setting, its value and where it came from' \
'repos:List the repositories\: size, refs, age of the state, in step or not; the server may be running' \
'status:Ask the running server how sync stands\: every relay, its state, what is missing, what comes next' \
'check:Check every repository\: objects, refs against its state, held events; the server may be running' \
'backup:Copy events and owner key into a new directory; the server may be running' \
'restore:Put a backup where there are no events yet; the server must be stopped' \
'export:Write all events as JSON lines; the server may be running' \
'import:Read events from JSON lines and store the valid ones; the server must be stopped' \
'completions:Print a script that completes commands and settings in a shell' \
'man:Print the man page' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'ngit-grasp commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__backup_commands] )) ||
_ngit-grasp__subcmd__backup_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp backup commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__check_commands] )) ||
_ngit-grasp__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp check commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__completions_commands] )) ||
_ngit-grasp__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp completions commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__config_commands] )) ||
_ngit-grasp__subcmd__config_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp config commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__doctor_commands] )) ||
_ngit-grasp__subcmd__doctor_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp doctor commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__export_commands] )) ||
_ngit-grasp__subcmd__export_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp export commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help_commands] )) ||
_ngit-grasp__subcmd__help_commands() {
    local commands; commands=(
'init:Write a commented settings file; asks for what matters if somebody is there to answer' \
'doctor:Look whether all is well around the server\: name, address, TLS, git, disk, clock, permissions' \
'config:Print every setting, its value and where it came from' \
'repos:List the repositories\: size, refs, age of the state, in step or not; the server may be running' \
'status:Ask the running server how sync stands\: every relay, its state, what is missing, what comes next' \
'check:Check every repository\: objects, refs against its state, held events; the server may be running' \
'backup:Copy events and owner key into a new directory; the server may be running' \
'restore:Put a backup where there are no events yet; the server must be stopped' \
'export:Write all events as JSON lines; the server may be running' \
'import:Read events from JSON lines and store the valid ones; the server must be stopped' \
'completions:Print a script that completes commands and settings in a shell' \
'man:Print the man page' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'ngit-grasp help commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help__subcmd__backup_commands] )) ||
_ngit-grasp__subcmd__help__subcmd__backup_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp help backup commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help__subcmd__check_commands] )) ||
_ngit-grasp__subcmd__help__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp help check commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help__subcmd__completions_commands] )) ||
_ngit-grasp__subcmd__help__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp help completions commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help__subcmd__config_commands] )) ||
_ngit-grasp__subcmd__help__subcmd__config_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp help config commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help__subcmd__doctor_commands] )) ||
_ngit-grasp__subcmd__help__subcmd__doctor_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp help doctor commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help__subcmd__export_commands] )) ||
_ngit-grasp__subcmd__help__subcmd__export_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp help export commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help__subcmd__help_commands] )) ||
_ngit-grasp__subcmd__help__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp help help commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help__subcmd__import_commands] )) ||
_ngit-grasp__subcmd__help__subcmd__import_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp help import commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help__subcmd__init_commands] )) ||
_ngit-grasp__subcmd__help__subcmd__init_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp help init commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help__subcmd__man_commands] )) ||
_ngit-grasp__subcmd__help__subcmd__man_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp help man commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help__subcmd__repos_commands] )) ||
_ngit-grasp__subcmd__help__subcmd__repos_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp help repos commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help__subcmd__restore_commands] )) ||
_ngit-grasp__subcmd__help__subcmd__restore_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp help restore commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__help__subcmd__status_commands] )) ||
_ngit-grasp__subcmd__help__subcmd__status_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp help status commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__import_commands] )) ||
_ngit-grasp__subcmd__import_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp import commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__init_commands] )) ||
_ngit-grasp__subcmd__init_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp init commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__man_commands] )) ||
_ngit-grasp__subcmd__man_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp man commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__repos_commands] )) ||
_ngit-grasp__subcmd__repos_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp repos commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__restore_commands] )) ||
_ngit-grasp__subcmd__restore_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp restore commands' commands "$@"
}
(( $+functions[_ngit-grasp__subcmd__status_commands] )) ||
_ngit-grasp__subcmd__status_commands() {
    local commands; commands=()
    _describe -t commands 'ngit-grasp status commands' commands "$@"
}

if [ "$funcstack[1]" = "_ngit-grasp" ]; then
    _ngit-grasp "$@"
else
    compdef _ngit-grasp ngit-grasp
fi
