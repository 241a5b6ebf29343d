_ngit__grasp() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="ngit__grasp"
                ;;
            ngit__grasp,backup)
                cmd="ngit__grasp__subcmd__backup"
                ;;
            ngit__grasp,check)
                cmd="ngit__grasp__subcmd__check"
                ;;
            ngit__grasp,completions)
                cmd="ngit__grasp__subcmd__completions"
                ;;
            ngit__grasp,config)
                cmd="ngit__grasp__subcmd__config"
                ;;
            ngit__grasp,doctor)
                cmd="ngit__grasp__subcmd__doctor"
                ;;
            ngit__grasp,export)
                cmd="ngit__grasp__subcmd__export"
                ;;
            ngit__grasp,help)
                cmd="ngit__grasp__subcmd__help"
                ;;
            ngit__grasp,import)
                cmd="ngit__grasp__subcmd__import"
                ;;
            ngit__grasp,init)
                cmd="ngit__grasp__subcmd__init"
                ;;
            ngit__grasp,man)
                cmd="ngit__grasp__subcmd__man"
                ;;
            ngit__grasp,repos)
                cmd="ngit__grasp__subcmd__repos"
                ;;
            ngit__grasp,restore)
                cmd="ngit__grasp__subcmd__restore"
                ;;
            ngit__grasp,status)
                cmd="ngit__grasp__subcmd__status"
                ;;
            ngit__grasp__subcmd__help,backup)
                cmd="ngit__grasp__subcmd__help__subcmd__backup"
                ;;
            ngit__grasp__subcmd__help,check)
                cmd="ngit__grasp__subcmd__help__subcmd__check"
                ;;
            ngit__grasp__subcmd__help,completions)
                cmd="ngit__grasp__subcmd__help__subcmd__completions"
                ;;
            ngit__grasp__subcmd__help,config)
                cmd="ngit__grasp__subcmd__help__subcmd__config"
                ;;
            ngit__grasp__subcmd__help,doctor)
                cmd="ngit__grasp__subcmd__help__subcmd__doctor"
                ;;
            ngit__grasp__subcmd__help,export)
                cmd="ngit__grasp__subcmd__help__subcmd__export"
                ;;
            ngit__grasp__subcmd__help,help)
                cmd="ngit__grasp__subcmd__help__subcmd__help"
                ;;
            ngit__grasp__subcmd__help,import)
                cmd="ngit__grasp__subcmd__help__subcmd__import"
                ;;
            ngit__grasp__subcmd__help,init)
                cmd="ngit__grasp__subcmd__help__subcmd__init"
                ;;
            ngit__grasp__subcmd__help,man)
                cmd="ngit__grasp__subcmd__help__subcmd__man"
                ;;
            ngit__grasp__subcmd__help,repos)
                cmd="ngit__grasp__subcmd__help__subcmd__repos"
                ;;
            ngit__grasp__subcmd__help,restore)
                cmd="ngit__grasp__subcmd__help__subcmd__restore"
                ;;
            ngit__grasp__subcmd__help,status)
                cmd="ngit__grasp__subcmd__help__subcmd__status"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        ngit__grasp)
            opts="-h -V --domain --bind-address --relay-name --relay-description --relay-contact --relay-owner-nsec --trusted-proxies --git-data-path --relay-data-path --database-backend --maintainer-rule --repository-whitelist --repository-blacklist --event-blacklist --accept-unrelated-events --purgatory-expiry-secs --purgatory-tip-expiry-secs --purgatory-max-events --purgatory-max-per-key --purgatory-max-bytes --max-push-bytes --max-repository-bytes --min-free-bytes --git-concurrent --git-concurrent-per-repository --git-concurrent-per-ip --git-timeout-secs --git-idle-secs --prune-interval-secs --prune-grace-secs --retired-days --retired-max-bytes --log-level --metrics-enabled --status-enabled --sync-enabled --sync-bootstrap-relay-url --allow-private-addresses --sync-auth --sync-disable-negentropy --sync-startup-delay-secs --sync-connect-timeout-secs --sync-request-timeout-secs --sync-silence-secs --sync-base-backoff-secs --sync-max-backoff-secs --sync-dead-after-secs --sync-dead-retry-secs --sync-disconnect-check-interval-secs --sync-batch-window-ms --sync-quiet-ms --sync-batch-delay-secs --sync-max-tags-per-filter --sync-consolidate-filters --sync-reconnect-delay-secs --sync-reconnect-buffer-secs --sync-reconnect-lookback-days --sync-stale-after-secs --sync-full-min-secs --sync-full-max-secs --sync-reconcile-interval-secs --sync-refusal-retry-secs --sync-max-refusal-retry-secs --sync-page --sync-fetch-ids --sync-neg-window --sync-max-relays --sync-max-relays-known --sync-max-relays-per-repository --sync-max-relays-per-owner --sync-max-roots --sync-subscriptions --sync-filters --sync-message-bytes --sync-max-wanted --sync-remember-refused --hunt-enabled --hunt-user-delay-secs --hunt-synced-delay-ms --hunt-base-backoff-secs --hunt-max-backoff-secs --sync-domain-concurrent --sync-domain-rate-limit --sync-domain-overrides --hunt-concurrent --hunt-hedge-ms --hunt-base-rest-secs --hunt-max-rest-secs --hunt-disk-pause-secs --hunt-fetch-bytes --hunt-fetch-timeout-secs --hunt-connect-timeout-secs --hunt-patience-secs --hunt-low-speed-bytes --hunt-low-speed-secs --hunt-max-owner-bytes --hunt-trusted-domains --hunt-max-repositories --hunt-max-domains --max-message-bytes --max-event-bytes --max-content-bytes --max-event-tags --created-at-ahead-secs --created-at-behind-secs --events-per-minute-per-ip --events-per-minute-per-key --max-subscriptions --max-filters --max-filter-values --max-connection-values --max-query-results --max-count-results --max-queries-at-once --max-neg-sessions --max-neg-items --max-neg-items-total --max-neg-frame-bytes --neg-idle-secs --max-connections --max-connections-per-ip --max-authenticated-keys --max-events-in-flight --max-ingest-bytes --max-outbox-bytes --query-window-bytes --header-timeout-secs --http-idle-secs --max-http-body-bytes --ping-interval-secs --websocket-idle-secs --write-timeout-secs --env-file --help --version init doctor config repos status check backup restore export import completions man help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --domain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-contact)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-owner-nsec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trusted-proxies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --database-backend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --maintainer-rule)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repository-whitelist)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --repository-blacklist)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --event-blacklist)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --accept-unrelated-events)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --purgatory-expiry-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --purgatory-tip-expiry-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --purgatory-max-events)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --purgatory-max-per-key)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --purgatory-max-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-push-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-repository-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --min-free-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-concurrent)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-concurrent-per-repository)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-concurrent-per-ip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-timeout-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-idle-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --prune-interval-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --prune-grace-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --retired-days)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --retired-max-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics-enabled)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --status-enabled)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-enabled)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-bootstrap-relay-url)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-private-addresses)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-auth)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-disable-negentropy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-startup-delay-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-connect-timeout-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-request-timeout-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-silence-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-base-backoff-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-max-backoff-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-dead-after-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-dead-retry-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-disconnect-check-interval-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-batch-window-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-quiet-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-batch-delay-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-max-tags-per-filter)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-consolidate-filters)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-reconnect-delay-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-reconnect-buffer-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-reconnect-lookback-days)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-stale-after-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-full-min-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-full-max-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-reconcile-interval-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-refusal-retry-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-max-refusal-retry-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-page)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-fetch-ids)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-neg-window)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-max-relays)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-max-relays-known)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-max-relays-per-repository)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-max-relays-per-owner)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-max-roots)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-subscriptions)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-filters)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-message-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-max-wanted)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-remember-refused)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-enabled)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-user-delay-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-synced-delay-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-base-backoff-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-max-backoff-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-domain-concurrent)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-domain-rate-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sync-domain-overrides)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-concurrent)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-hedge-ms)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-base-rest-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-max-rest-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-disk-pause-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-fetch-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-fetch-timeout-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-connect-timeout-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-patience-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-low-speed-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-low-speed-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-max-owner-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-trusted-domains)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-max-repositories)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hunt-max-domains)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-message-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-event-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-content-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-event-tags)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --created-at-ahead-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --created-at-behind-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --events-per-minute-per-ip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --events-per-minute-per-key)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-subscriptions)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-filters)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-filter-values)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-connection-values)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-query-results)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-count-results)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-queries-at-once)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-neg-sessions)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-neg-items)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-neg-items-total)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-neg-frame-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --neg-idle-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-connections-per-ip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-authenticated-keys)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-events-in-flight)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-ingest-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-outbox-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --query-window-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --header-timeout-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --http-idle-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-http-body-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ping-interval-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --websocket-idle-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --write-timeout-secs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__backup)
            opts="-h --domain --bind-address --relay-name --relay-description --relay-contact --relay-owner-nsec --trusted-proxies --git-data-path --relay-data-path --database-backend --env-file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --domain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-contact)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-owner-nsec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trusted-proxies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --database-backend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__check)
            opts="-h --repair --json --domain --bind-address --relay-name --relay-description --relay-contact --relay-owner-nsec --trusted-proxies --git-data-path --relay-data-path --database-backend --env-file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --domain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-contact)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-owner-nsec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trusted-proxies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --database-backend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__completions)
            opts="-h --domain --bind-address --relay-name --relay-description --relay-contact --relay-owner-nsec --trusted-proxies --git-data-path --relay-data-path --database-backend --env-file --help bash zsh fish"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --domain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-contact)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-owner-nsec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trusted-proxies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --database-backend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__config)
            opts="-h --json --domain --bind-address --relay-name --relay-description --relay-contact --relay-owner-nsec --trusted-proxies --git-data-path --relay-data-path --database-backend --env-file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --domain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-contact)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-owner-nsec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trusted-proxies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --database-backend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__doctor)
            opts="-h --json --domain --bind-address --relay-name --relay-description --relay-contact --relay-owner-nsec --trusted-proxies --git-data-path --relay-data-path --database-backend --env-file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --domain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-contact)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-owner-nsec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trusted-proxies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --database-backend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__export)
            opts="-h --domain --bind-address --relay-name --relay-description --relay-contact --relay-owner-nsec --trusted-proxies --git-data-path --relay-data-path --database-backend --env-file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --domain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-contact)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-owner-nsec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trusted-proxies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --database-backend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help)
            opts="init doctor config repos status check backup restore export import completions man help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help__subcmd__backup)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help__subcmd__check)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help__subcmd__completions)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help__subcmd__config)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help__subcmd__doctor)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help__subcmd__export)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help__subcmd__import)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help__subcmd__init)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help__subcmd__man)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help__subcmd__repos)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help__subcmd__restore)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__help__subcmd__status)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__import)
            opts="-h --domain --bind-address --relay-name --relay-description --relay-contact --relay-owner-nsec --trusted-proxies --git-data-path --relay-data-path --database-backend --env-file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --domain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-contact)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-owner-nsec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trusted-proxies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --database-backend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__init)
            opts="-h --force --defaults --domain --bind-address --relay-name --relay-description --relay-contact --relay-owner-nsec --trusted-proxies --git-data-path --relay-data-path --database-backend --env-file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --domain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-contact)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-owner-nsec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trusted-proxies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --database-backend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__man)
            opts="-h --domain --bind-address --relay-name --relay-description --relay-contact --relay-owner-nsec --trusted-proxies --git-data-path --relay-data-path --database-backend --env-file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --domain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-contact)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-owner-nsec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trusted-proxies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --database-backend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__repos)
            opts="-h --json --domain --bind-address --relay-name --relay-description --relay-contact --relay-owner-nsec --trusted-proxies --git-data-path --relay-data-path --database-backend --env-file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --domain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-contact)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-owner-nsec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trusted-proxies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --database-backend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__restore)
            opts="-h --domain --bind-address --relay-name --relay-description --relay-contact --relay-owner-nsec --trusted-proxies --git-data-path --relay-data-path --database-backend --env-file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --domain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-contact)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-owner-nsec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trusted-proxies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --database-backend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        ngit__subcmd__grasp__subcmd__status)
            opts="-h --json --domain --bind-address --relay-name --relay-description --relay-contact --relay-owner-nsec --trusted-proxies --git-data-path --relay-data-path --database-backend --env-file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --domain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-contact)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-owner-nsec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trusted-proxies)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --git-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --relay-data-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --database-backend)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _ngit__grasp -o nosort -o bashdefault -o default ngit-grasp
else
    complete -F _ngit__grasp -o bashdefault -o default ngit-grasp
fi
