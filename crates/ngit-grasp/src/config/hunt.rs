//! The settings of the hunt, as the core and those who fetch want them, and what they may not say
//! together.

use std::time::Duration;

use grasp_core::backoff::Backoff;
use grasp_core::{DomainLimits, HuntLimits};
use grasp_git::PackLimits;
use grasp_git::fetch::{FetchLimits, Pace};

use super::{Config, out_of_order};
use crate::fetch;

/// Private memory of each git process of a fetch: sixteen at once fit a small server with swap, and
/// most need a tenth of it.
const FETCH_MEMORY: u64 = 512 * 1024 * 1024;

impl Config {
    pub(super) fn hunt_limits(&self) -> HuntLimits {
        HuntLimits {
            enabled: self.hunt_enabled,
            user_delay: self.hunt_user_delay,
            synced_delay: self.hunt_synced_delay,
            backoff: Backoff {
                base: self.hunt_base_backoff,
                max: self.hunt_max_backoff,
            },
            domain: DomainLimits {
                concurrent: self.sync_domain_concurrent,
                per_minute: self.sync_domain_rate_limit,
            },
            domains: self.sync_domain_overrides.limits(),
            fetches: self.hunt_concurrent,
            hedge_after: self.hunt_hedge,
            rest: Backoff {
                base: self.hunt_base_rest,
                max: self.hunt_max_rest,
            },
            disk_pause: self.hunt_disk_pause,
            repositories: self.hunt_max_repositories,
            domains_known: self.hunt_max_domains,
        }
    }

    /// How other git servers are reached, and what they may bring.
    pub fn fetch_options(&self) -> fetch::Options {
        let (max_bytes, deadline) = (self.hunt_fetch_bytes.as_u64(), self.hunt_fetch_timeout);
        // Also of a whole history that came in slices: no less than what is pushed.
        let pushed = PackLimits::default();
        let pack = PackLimits {
            max_bytes: max_bytes.max(pushed.max_bytes),
            deadline: deadline.max(pushed.deadline),
            max_memory: FETCH_MEMORY,
            ..pushed
        };
        let owner_bytes = self.hunt_max_owner_bytes.as_u64();
        fetch::Options {
            reach: self.reach(),
            trusted: self.hunt_trusted_domains.clone(),
            connect_timeout: self.hunt_connect_timeout,
            limits: FetchLimits {
                max_bytes,
                deadline,
                patience: self.hunt_patience,
                pace: Pace {
                    bytes: self.hunt_low_speed_bytes.as_u64(),
                    window: self.hunt_low_speed,
                },
                pack,
                ..FetchLimits::default()
            },
            max_owner_bytes: (owner_bytes > 0).then_some(owner_bytes),
        }
    }

    /// One line each.
    pub(super) fn hunt_contradictions(&self) -> Vec<String> {
        let seconds = |value: Duration| value.as_secs();
        let pairs = [
            [
                (
                    "NGIT_HUNT_BASE_BACKOFF_SECS",
                    seconds(self.hunt_base_backoff),
                ),
                ("NGIT_HUNT_MAX_BACKOFF_SECS", seconds(self.hunt_max_backoff)),
            ],
            [
                ("NGIT_HUNT_BASE_REST_SECS", seconds(self.hunt_base_rest)),
                ("NGIT_HUNT_MAX_REST_SECS", seconds(self.hunt_max_rest)),
            ],
        ];
        out_of_order(pairs).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use grasp_core::clone_url::Domain;

    use super::super::{args, load};
    use super::*;

    fn read(flags: &[&str], env: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        let matches = clap::Command::new("test")
            .args(args())
            .get_matches_from(["test"].iter().chain(flags));
        let env = env
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let loaded = load(&matches, env, Path::new("/nonexistent/.env"));
        loaded
            .map(|loaded| loaded.config)
            .map_err(|errors| errors.lines)
    }

    #[test]
    fn what_is_not_set_is_as_the_core_and_the_fetches_have_it() {
        let config = read(&[], &[]).unwrap();
        assert_eq!(config.hunt_limits(), HuntLimits::default());
        let (options, usual) = (config.fetch_options(), FetchLimits::default());
        assert_eq!(options.limits.max_bytes, usual.max_bytes);
        assert_eq!(options.limits.deadline, usual.deadline);
        assert_eq!(options.limits.patience, usual.patience);
        assert_eq!(options.limits.pace.bytes, usual.pace.bytes);
        assert_eq!(options.limits.pace.window, usual.pace.window);
        assert!(options.trusted.is_empty() && !options.reach.allow_private);
    }

    /// E21, G9.
    #[test]
    fn every_setting_reaches_the_core() {
        let config = read(
            &[
                "--sync-domain-concurrent",
                "7",
                "--sync-domain-rate-limit=9",
            ],
            &[
                ("NGIT_HUNT_ENABLED", "no"),
                ("NGIT_HUNT_USER_DELAY_SECS", "1"),
                ("NGIT_HUNT_SYNCED_DELAY_MS", "2"),
                ("NGIT_HUNT_BASE_BACKOFF_SECS", "3"),
                ("NGIT_HUNT_MAX_BACKOFF_SECS", "4"),
                ("NGIT_HUNT_CONCURRENT", "5"),
                ("NGIT_HUNT_HEDGE_MS", "6"),
                ("NGIT_HUNT_BASE_REST_SECS", "8"),
                ("NGIT_HUNT_MAX_REST_SECS", "10"),
                ("NGIT_HUNT_DISK_PAUSE_SECS", "11"),
                ("NGIT_HUNT_MAX_REPOSITORIES", "12"),
                ("NGIT_HUNT_MAX_DOMAINS", "130"),
                ("NGIT_SYNC_DOMAIN_OVERRIDES", "github.com:10,60"),
            ],
        );
        let seconds = Duration::from_secs;
        let github = Domain::parse("github.com").unwrap();
        let limits = |concurrent, per_minute| DomainLimits {
            concurrent,
            per_minute,
        };
        let expected = HuntLimits {
            enabled: false,
            user_delay: seconds(1),
            synced_delay: Duration::from_millis(2),
            backoff: Backoff {
                base: seconds(3),
                max: seconds(4),
            },
            domain: limits(7, 9),
            domains: [(github, limits(10, 60))].into(),
            fetches: 5,
            hedge_after: Duration::from_millis(6),
            rest: Backoff {
                base: seconds(8),
                max: seconds(10),
            },
            disk_pause: seconds(11),
            repositories: 12,
            domains_known: 130,
        };
        let config = config.unwrap();
        assert_eq!(config.policy().limits.hunt, expected);
    }

    #[test]
    fn every_setting_reaches_those_who_fetch() {
        let config = read(
            &["--hunt-trusted-domains", "git.lan:3000"],
            &[
                ("NGIT_HUNT_FETCH_BYTES", "3GiB"),
                ("NGIT_HUNT_FETCH_TIMEOUT_SECS", "7200"),
                ("NGIT_HUNT_CONNECT_TIMEOUT_SECS", "2"),
                ("NGIT_HUNT_PATIENCE_SECS", "3"),
                ("NGIT_HUNT_LOW_SPEED_BYTES", "4KiB"),
                ("NGIT_HUNT_LOW_SPEED_SECS", "5"),
                ("NGIT_HUNT_MAX_OWNER_BYTES", "0"),
                ("NGIT_ALLOW_PRIVATE_ADDRESSES", "true"),
            ],
        );
        let options = config.unwrap().fetch_options();
        let limits = options.limits;
        assert_eq!(limits.max_bytes, 3 << 30);
        assert_eq!(limits.pack.max_bytes, 3 << 30);
        assert_eq!(limits.deadline, Duration::from_secs(7_200));
        assert_eq!(limits.pack.deadline, Duration::from_secs(7_200));
        assert_eq!(options.connect_timeout, Duration::from_secs(2));
        assert_eq!(limits.patience, Duration::from_secs(3));
        assert_eq!(limits.pace.bytes, 4_096);
        assert_eq!(limits.pace.window, Duration::from_secs(5));
        assert_eq!(options.max_owner_bytes, None);
        assert!(options.reach.allow_private);
        let trusted = Domain::parse("git.lan:3000").unwrap();
        assert_eq!(options.trusted, [trusted]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_name_and_value() {
        let errors = read(
            &["--sync-domain-overrides", "github.com"],
            &[("NGIT_SYNC_DOMAIN_CONCURRENT", "0")],
        );
        let errors = errors.unwrap_err();
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors[0].contains("SYNC_DOMAIN_CONCURRENT") && errors[0].contains("\"0\""));
        assert!(
            errors[1].contains("sync-domain-overrides") && errors[1].contains("\"github.com\"")
        );
        let errors = read(
            &[],
            &[
                ("NGIT_HUNT_BASE_BACKOFF_SECS", "121"),
                ("NGIT_HUNT_MAX_REST_SECS", "29"),
            ],
        );
        let expected = [
            "NGIT_HUNT_BASE_BACKOFF_SECS (121) must not be more than NGIT_HUNT_MAX_BACKOFF_SECS (120)",
            "NGIT_HUNT_BASE_REST_SECS (30) must not be more than NGIT_HUNT_MAX_REST_SECS (29)",
        ];
        assert_eq!(errors.unwrap_err(), expected);
    }
}
