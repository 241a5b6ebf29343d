//! The settings of the server: [`load`] reads and checks them, [`Config`] holds them,
//! [`Loaded::describe`] says where each came from. What settings there are stands in `settings`.

pub mod bounds;
pub mod file;
pub mod reference;

mod choice;
mod dotenv;
mod hunt;
mod net;
mod settings;
mod sources;
mod spec;
mod sync;
#[cfg(test)]
mod tests;
mod value;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use grasp_core::{Limits, Lists, Policy, Service};
use serde_json::json;

pub use self::choice::{AuthKey, DatabaseBackend, LogFilter};
pub use self::net::{Domain, ProxyNet};
pub use self::settings::{Config, specs};
pub use self::sources::{Source, args};
pub use self::spec::Spec;
pub use self::value::{ByteSize, Secret};

use self::sources::Layers;
#[cfg(test)]
pub use self::tests::from_env as for_tests;
use crate::identity;

/// Room for what surrounds an event in a message: its verb and a subscription id.
const ENVELOPE: ByteSize = ByteSize(1 << 10);
/// Sixteen random letters and digits are 95 bits: whoever guesses a thousand times a second needs
/// longer than there is.
const SHORTEST_TOKEN: usize = 16;

/// Everything that is wrong with the settings, one line each.
#[derive(Debug, thiserror::Error)]
#[error("{}", .lines.join("\n"))]
pub struct ConfigErrors {
    pub lines: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    /// Oddities that do not stop the start, one line each.
    pub warnings: Vec<String>,
    /// The settings file, if there is one.
    pub file: Option<PathBuf>,
    /// What that file sets and is no setting.
    strays: Vec<(String, Secret)>,
    /// In the order of [`specs`].
    sources: Vec<Source>,
}

/// One setting as it is in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The flag without its dashes.
    pub name: &'static str,
    pub env: &'static str,
    /// Empty when not set; secrets are masked.
    pub value: String,
    pub source: Source,
}

/// Reads the settings. `matches` are those of a command with the [`args`], `env` is the
/// environment of the process; a missing file at `dotenv_path` is an empty one.
pub fn load(
    matches: &ArgMatches,
    env: impl IntoIterator<Item = (OsString, OsString)>,
    dotenv_path: &Path,
) -> Result<Loaded, ConfigErrors> {
    load_without(&[], matches, env, dotenv_path)
}

/// As if nobody had given these variables.
pub fn load_without(
    forgotten: &[&str],
    matches: &ArgMatches,
    env: impl IntoIterator<Item = (OsString, OsString)>,
    dotenv_path: &Path,
) -> Result<Loaded, ConfigErrors> {
    let mut layers = Layers::gather(matches, env, dotenv_path);
    forgotten.iter().for_each(|env| layers.forget(env));
    let config = Config::read(&mut layers);
    let sources = specs().iter().map(|spec| layers.source(spec)).collect();
    let Layers {
        mut errors,
        warnings,
        file,
        strays,
        ..
    } = layers;
    errors.extend(config.iter().flat_map(Config::contradictions));
    match config {
        Some(config) if errors.is_empty() => Ok(Loaded {
            config,
            warnings,
            file,
            strays,
            sources,
        }),
        _ => Err(ConfigErrors { lines: errors }),
    }
}

impl Config {
    /// The public host, with a port if it needs one.
    pub fn domain(&self) -> String {
        self.public_domain().to_string()
    }

    /// Without a trailing slash, as announcements write it.
    pub fn public_ws_url(&self) -> String {
        self.public_url("ws")
    }

    /// Without a trailing slash.
    pub fn public_http_url(&self) -> String {
        self.public_url("http")
    }

    /// The rules as the operator wants them.
    pub fn policy(&self) -> Policy {
        Policy {
            service: self.service(),
            rule: self.maintainer_rule,
            lists: Lists {
                repositories: self.repository_whitelist.clone(),
                no_repositories: self.repository_blacklist.clone(),
                no_authors: self.event_blacklist.clone(),
            },
            takes_unrelated: self.accept_unrelated_events,
            bootstrap: self.sync_bootstrap_relays.clone(),
            limits: self.limits(),
        }
    }

    pub fn service(&self) -> Service {
        Service::of_host(&self.public_domain().host, self.public_domain().port)
    }

    pub fn limits(&self) -> Limits {
        Limits {
            message_bytes: self.max_message_bytes.as_usize(),
            event_bytes: self.max_event_bytes.as_usize(),
            content_bytes: self.max_content_bytes.as_usize(),
            tags: self.max_event_tags,
            tag_values: self.max_event_tags.saturating_mul(4),
            created_at_ahead: self.created_at_ahead,
            created_at_behind: self.created_at_behind,
            subscriptions: self.max_subscriptions,
            filters: self.max_filters,
            filter_values: self.max_filter_values,
            connection_values: self.max_connection_values,
            filter_values_total: self.max_filter_values_total,
            query_results: self.max_query_results,
            count_results: self.max_count_results,
            counts: self.max_counts,
            queries_at_once: self.max_queries_at_once,
            neg_sessions: self.max_neg_sessions,
            neg_items: self.max_neg_items,
            neg_items_total: self.max_neg_items_total,
            neg_frame_bytes: self.max_neg_frame_bytes.as_usize(),
            neg_idle: self.neg_idle,
            connections: self.max_connections,
            connections_per_ip: self.max_connections_per_ip,
            events_per_minute_per_ip: self.events_per_minute_per_ip,
            events_per_minute_per_key: self.events_per_minute_per_key,
            published_bytes_per_day_per_ip: self.event_bytes_per_day_per_ip.as_u64(),
            published_bytes_per_day_per_key: self.event_bytes_per_day_per_key.as_u64(),
            authenticated_keys: self.max_authenticated_keys,
            events_in_flight: self.max_events_in_flight,
            ingest_bytes: self.max_ingest_bytes.as_usize(),
            outbox_bytes: self.max_outbox_bytes.as_usize(),
            query_window_bytes: self.query_window_bytes.as_usize(),
            outbox_bytes_total: self.max_outbox_bytes_total.as_usize(),
            held_per_key: self.purgatory_max_per_key,
            held_bytes_per_key: self.purgatory_max_bytes_per_key.as_usize(),
            held_events: self.purgatory_max_events,
            held_bytes: self.purgatory_max_bytes.as_usize(),
            held_announcement_bytes: self.purgatory_max_announcement_bytes.as_usize(),
            remembered_announcements: self.purgatory_max_remembered,
            held_for: self.purgatory_expiry,
            tip_for: self.purgatory_tip_expiry,
            tips_per_repository: self.max_tips_per_repository,
            tips_per_author: self.max_tips_per_author,
            prune_every: self.prune_interval,
            header_timeout: self.header_timeout,
            http_idle: self.http_idle,
            http_body_bytes: self.max_http_body_bytes.as_usize(),
            ping_interval: self.ping_interval,
            websocket_idle: self.websocket_idle,
            write_timeout: self.write_timeout,
            sync: self.sync_limits(),
            hunt: self.hunt_limits(),
        }
    }

    pub fn retired_for(&self) -> Duration {
        Duration::from_secs(u64::from(self.retired_days) * 24 * 60 * 60)
    }

    /// A public server is reached through TLS, which a proxy in front of it provides.
    fn public_url(&self, plain_scheme: &str) -> String {
        let domain = self.public_domain();
        let secure = if domain.is_loopback() { "" } else { "s" };
        format!("{plain_scheme}{secure}://{domain}")
    }

    fn public_domain(&self) -> Domain {
        let local = || Domain {
            host: "localhost".into(),
            port: Some(self.bind_address.port()),
        };
        self.domain.clone().unwrap_or_else(local)
    }

    /// Values that are fine alone but not together, one line each.
    fn contradictions(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let event = self.max_event_bytes;
        // Where one of these is too small for the largest event, that event never gets through.
        let holders = [
            ("NGIT_MAX_MESSAGE_BYTES", self.max_message_bytes),
            ("NGIT_MAX_INGEST_BYTES", self.max_ingest_bytes),
            ("NGIT_MAX_OUTBOX_BYTES", self.max_outbox_bytes),
            ("NGIT_QUERY_WINDOW_BYTES", self.query_window_bytes),
        ];
        for (name, size) in holders {
            if event.0.saturating_add(ENVELOPE.0) > size.0 {
                lines.push(format!(
                    "NGIT_MAX_EVENT_BYTES ({event}) must be at least {ENVELOPE} less than \
                     {name} ({size})"
                ));
            }
        }
        if self.max_content_bytes > event {
            let content = self.max_content_bytes;
            lines.push(format!(
                "NGIT_MAX_CONTENT_BYTES ({content}) must not be more than \
                 NGIT_MAX_EVENT_BYTES ({event})"
            ));
        }
        if self.ping_interval >= self.websocket_idle {
            let (ping, idle) = (self.ping_interval.as_secs(), self.websocket_idle.as_secs());
            lines.push(format!(
                "NGIT_PING_INTERVAL_SECS ({ping}) must be less than \
                 NGIT_WEBSOCKET_IDLE_SECS ({idle})"
            ));
        }
        let key = self.relay_owner_nsec.as_ref().map(|key| key.reveal());
        if key.is_some_and(|key| identity::npub_of(key).is_none()) {
            let line = "NGIT_RELAY_OWNER_NSEC must be a secret key, an nsec or 64 hex characters";
            lines.push(line.to_owned());
        }
        let token = self.status_token.as_ref().map(|token| token.reveal());
        if token.is_some_and(|token| token.chars().count() < SHORTEST_TOKEN) {
            lines.push(format!(
                "NGIT_STATUS_TOKEN must have at least {SHORTEST_TOKEN} characters: anybody may guess"
            ));
        }
        lines.extend(self.sync_contradictions());
        lines.extend(self.hunt_contradictions());
        lines
    }
}

/// The names of two settings and their values, of which the first must not be more than the second.
type InOrder = [(&'static str, u64); 2];

/// One line for each pair that is not in order.
fn out_of_order(pairs: impl IntoIterator<Item = InOrder>) -> impl Iterator<Item = String> {
    let wrong = pairs
        .into_iter()
        .filter(|[(_, less), (_, more)]| less > more);
    wrong.map(|[(small, less), (large, more)]| {
        format!("{small} ({less}) must not be more than {large} ({more})")
    })
}

impl Loaded {
    /// Every setting as it is in effect, in the order of [`specs`].
    pub fn describe(&self) -> Vec<Row> {
        let values = self.config.shown();
        let rows = specs().iter().zip(values).zip(&self.sources);
        let row = |((spec, value), source): ((&'static Spec, String), &Source)| Row {
            name: &spec.flag,
            env: spec.env,
            value: if spec.env == "NGIT_DOMAIN" {
                self.config.domain()
            } else {
                value
            },
            source: source.clone(),
        };
        rows.map(row).collect()
    }
}

/// For people. The value comes last, because it alone has any length.
pub fn render_table(rows: &[Row]) -> String {
    let width = rows
        .iter()
        .map(|row| row.env.len())
        .max()
        .unwrap_or_default();
    let sources = rows.iter().map(|row| row.source.to_string().len());
    let wide = sources.max().unwrap_or_default().max(11);
    let mut table = format!("{:width$}  {:wide$}  VALUE\n", "SETTING", "SOURCE");
    for row in rows {
        let value = if row.value.is_empty() {
            "-"
        } else {
            &row.value
        };
        let value = value.replace(char::is_control, " ");
        let (env, source) = (row.env, &row.source);
        table.push_str(&format!("{env:width$}  {source:wide$}  {value}\n"));
    }
    table
}

/// For programs: a list in the order of the rows, with null for what is not set.
pub fn rows_as_json(rows: &[Row]) -> serde_json::Value {
    let row = |row: &Row| {
        json!({
            "name": row.name,
            "env": row.env,
            "value": Some(&row.value).filter(|value| !value.is_empty()),
            "source": row.source.to_string(),
        })
    };
    rows.iter().map(row).collect()
}
