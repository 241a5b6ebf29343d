//! The settings of sync, as the core wants them, and what they may not say together.

use std::time::Duration;

use grasp_core::backoff::Backoff;
use grasp_core::{Service, SyncLimits};

use super::{Config, Domain, out_of_order};
use crate::remote::guard::Reach;

/// The core hears of a connection that took too long from whoever dials, and only if that fails
/// as well from its own clock.
const PATIENCE: u32 = 3;

impl Config {
    /// Which addresses other servers may have.
    pub fn reach(&self) -> Reach {
        let host = |domain: &Domain| domain.host.trim_matches(['[', ']']).to_owned();
        Reach {
            allow_private: self.allow_private_addresses,
            deny: self.deny_networks.clone(),
            own_host: self.domain.as_ref().map(host),
        }
    }

    pub(super) fn sync_limits(&self) -> SyncLimits {
        SyncLimits {
            enabled: self.sync_enabled,
            batch_window: self.sync_batch_window,
            quiet: self.sync_quiet,
            tags_per_filter: self.sync_max_tags_per_filter,
            consolidate_at: self.sync_consolidate_filters,
            overlap: self.sync_reconnect_buffer,
            stale_after: self.sync_stale_after,
            backoff: Backoff {
                base: self.sync_base_backoff,
                max: self.sync_max_backoff,
            },
            dead_after: self.sync_dead_after,
            dead_retry: self.sync_dead_retry,
            full_min: self.sync_full_min,
            full_max: self.sync_full_max,
            empty_check: self.sync_disconnect_check,
            connect_timeout: self.sync_connect_timeout.saturating_mul(PATIENCE),
            request_timeout: self.sync_request_timeout,
            silence: self.sync_silence,
            refusal: Backoff {
                base: self.sync_refusal_retry,
                max: self.sync_max_refusal_retry,
            },
            reconcile_every: self.sync_reconcile_interval,
            negentropy: !self.sync_disable_negentropy,
            reconcile_items: self.sync_neg_window,
            page: self.sync_page,
            fetch_ids: self.sync_fetch_ids,
            relays_per_repository: self.sync_max_relays_per_repository,
            relays_per_owner: self.sync_max_relays_per_owner,
            relays: self.sync_max_relays_known,
            connections: self.sync_max_relays,
            roots: self.sync_max_roots,
            subscriptions: self.sync_subscriptions,
            filters: self.sync_filters,
            message_bytes: u32::try_from(self.sync_message_bytes.as_u64()).unwrap_or(u32::MAX),
            wants: self.sync_max_wanted,
            remembered: self.sync_remember_refused,
            relay_bytes_per_day: self.sync_relay_bytes_per_day.as_u64(),
            repository_bytes_per_day: self.sync_repository_bytes_per_day.as_u64(),
            key_bytes_per_day: self.sync_key_bytes_per_day.as_u64(),
            startup_delay: self.sync_startup_delay,
            batch_delay: self.sync_batch_delay,
            reconnect_delay: self.sync_reconnect_delay,
            lookback: Duration::from_secs(u64::from(self.sync_reconnect_lookback) * 24 * 60 * 60),
        }
    }

    /// One line each.
    pub(super) fn sync_contradictions(&self) -> Vec<String> {
        let seconds = |value: Duration| value.as_secs();
        let pairs = [
            [
                (
                    "NGIT_SYNC_BASE_BACKOFF_SECS",
                    seconds(self.sync_base_backoff),
                ),
                ("NGIT_SYNC_MAX_BACKOFF_SECS", seconds(self.sync_max_backoff)),
            ],
            [
                (
                    "NGIT_SYNC_REFUSAL_RETRY_SECS",
                    seconds(self.sync_refusal_retry),
                ),
                (
                    "NGIT_SYNC_MAX_REFUSAL_RETRY_SECS",
                    seconds(self.sync_max_refusal_retry),
                ),
            ],
            [
                ("NGIT_SYNC_FULL_MIN_SECS", seconds(self.sync_full_min)),
                ("NGIT_SYNC_FULL_MAX_SECS", seconds(self.sync_full_max)),
            ],
            [
                ("NGIT_SYNC_QUIET_MS", self.sync_quiet.as_millis() as u64),
                (
                    "NGIT_SYNC_BATCH_WINDOW_MS",
                    self.sync_batch_window.as_millis() as u64,
                ),
            ],
            [
                ("NGIT_SYNC_MAX_RELAYS", self.sync_max_relays as u64),
                (
                    "NGIT_SYNC_MAX_RELAYS_KNOWN",
                    self.sync_max_relays_known as u64,
                ),
            ],
        ];
        let ours = self.sync_bootstrap_relays.iter().filter(|url| {
            let bound = Service::of_url(&format!("ws://{}", self.bind_address));
            self.service().is_at(url) || bound.is_some_and(|bound| bound.is_at(url))
        });
        let ours = ours.map(|url| {
            format!("NGIT_SYNC_BOOTSTRAP_RELAY_URL: {url} is the address of this server itself")
        });
        out_of_order(pairs).chain(ours).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use super::super::{args, load};
    use super::*;

    fn read(env: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        let matches = clap::Command::new("test")
            .args(args())
            .get_matches_from(["test"]);
        let env = env
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let loaded = load(&matches, env, Path::new("/nonexistent/.env"));
        loaded
            .map(|loaded| loaded.config)
            .map_err(|errors| errors.lines)
    }

    /// E21.
    #[test]
    fn every_setting_reaches_the_core() {
        let config = read(&[
            ("NGIT_SYNC_ENABLED", "true"),
            ("NGIT_SYNC_BATCH_WINDOW_MS", "70"),
            ("NGIT_SYNC_QUIET_MS", "7"),
            ("NGIT_SYNC_CONNECT_TIMEOUT_SECS", "2"),
            ("NGIT_SYNC_DISABLE_NEGENTROPY", "yes"),
            ("NGIT_SYNC_RECONNECT_LOOKBACK_DAYS", "3"),
            (
                "NGIT_SYNC_BOOTSTRAP_RELAY_URL",
                "wss://a.example, ws://10.0.0.1:7777/",
            ),
        ]);
        let config = config.unwrap();
        let limits = config.sync_limits();
        assert!(limits.enabled && !limits.negentropy);
        assert_eq!(limits.batch_window, Duration::from_millis(70));
        assert_eq!(limits.quiet, Duration::from_millis(7));
        assert_eq!(limits.connect_timeout, Duration::from_secs(6));
        assert_eq!(limits.lookback, Duration::from_secs(3 * 86_400));
        let bootstrap: Vec<String> = config
            .policy()
            .bootstrap
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(bootstrap, ["wss://a.example", "ws://10.0.0.1:7777"]);
    }

    #[test]
    fn what_cannot_be_together_is_told_with_both_values() {
        let errors = read(&[
            ("NGIT_SYNC_BASE_BACKOFF_SECS", "7200"),
            ("NGIT_SYNC_FULL_MIN_SECS", "90001"),
            ("NGIT_SYNC_QUIET_MS", "5001"),
            ("NGIT_SYNC_MAX_RELAYS_KNOWN", "499"),
        ]);
        let expected = [
            "NGIT_SYNC_BASE_BACKOFF_SECS (7200) must not be more than NGIT_SYNC_MAX_BACKOFF_SECS (3600)",
            "NGIT_SYNC_FULL_MIN_SECS (90001) must not be more than NGIT_SYNC_FULL_MAX_SECS (90000)",
            "NGIT_SYNC_QUIET_MS (5001) must not be more than NGIT_SYNC_BATCH_WINDOW_MS (5000)",
            "NGIT_SYNC_MAX_RELAYS (500) must not be more than NGIT_SYNC_MAX_RELAYS_KNOWN (499)",
        ];
        assert_eq!(errors.unwrap_err(), expected);
    }

    #[test]
    fn our_own_address_is_no_bootstrap_relay_in_any_spelling() {
        for url in [
            "wss://git.example.com",
            "ws://GIT.example.com:443/path",
            "ws://127.0.0.1:7334",
        ] {
            let errors = read(&[
                ("NGIT_DOMAIN", "git.example.com"),
                ("NGIT_SYNC_BOOTSTRAP_RELAY_URL", url),
            ]);
            let errors = errors.unwrap_err();
            assert!(
                errors[0].ends_with("is the address of this server itself"),
                "{errors:?}"
            );
        }
    }
}
