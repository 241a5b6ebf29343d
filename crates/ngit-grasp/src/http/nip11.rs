//! The relay information document: true to what is enforced.

use grasp_core::{Limits, Pubkey};
use serde_json::{Value, json};

use crate::config::Config;
use crate::relay::message::MAX_SUB_ID;

pub(super) const SUPPORTED_NIPS: &[u16] = &[1, 9, 11, 22, 34, 40, 42, 45, 62, 67, 70, 77];

pub(super) const SUPPORTED_GRASPS: &[&str] = &["GRASP-01", "GRASP-02"];

/// In words, from the settings that are enforced.
pub(super) fn acceptance(config: &Config) -> String {
    let mut text = format!(
        "Repositories whose announcement lists {} in clone and {} in relays",
        config.public_http_url(),
        config.public_ws_url()
    );
    if !config.repository_whitelist.is_empty() {
        text.push_str(", if they are on the operator's list");
    } else if !config.repository_blacklist.is_empty() {
        text.push_str(", unless the operator has excluded them");
    }
    text.push_str("; a repository is served once its state and git data are here");
    text
}

/// `instance` names the process: other names of it say the same.
pub(super) fn document(config: &Config, owner: Pubkey, instance: &str, limits: &Limits) -> Value {
    let mut document = json!({
        "name": config.relay_name,
        "description": config.relay_description,
        "pubkey": owner,
        "self": owner,
        "supported_nips": SUPPORTED_NIPS,
        "supported_grasps": SUPPORTED_GRASPS,
        "repo_acceptance_criteria": acceptance(config),
        "software": env!("CARGO_PKG_NAME"),
        "version": env!("CARGO_PKG_VERSION"),
        "instance": instance,
        "limitation": limitation(limits, !config.accept_unrelated_events),
    });
    let curated = !config.repository_whitelist.is_empty();
    if let (true, Some(fields)) = (curated, document.as_object_mut()) {
        let curation = "Only repositories on the operator's list are hosted";
        fields.insert("curation".to_owned(), json!(curation));
    }
    if let (Some(contact), Some(fields)) = (&config.relay_contact, document.as_object_mut()) {
        fields.insert("contact".to_owned(), json!(contact));
    }
    document
}

fn limitation(limits: &Limits, restricted_writes: bool) -> Value {
    let neg_share = limits.neg_item_shares().per_network;
    let neg_share = usize::try_from(neg_share).unwrap_or(usize::MAX);
    let mut limitation = json!({
        "max_message_length": limits.message_bytes,
        "max_event_length": limits.event_bytes,
        "max_subscriptions": limits.subscriptions,
        "max_filters": limits.filters,
        "max_filter_values": limits.filter_values,
        "max_connection_filter_values": limits.connection_values,
        "max_limit": limits.query_results,
        "default_limit": limits.query_results,
        "max_subid_length": MAX_SUB_ID,
        "max_event_tags": limits.tags,
        "max_content_length": limits.content_bytes,
        "max_neg_sessions": limits.neg_sessions,
        "max_neg_items": limits.neg_items.min(neg_share),
        "min_pow_difficulty": 0,
        "auth_required": false,
        "payment_required": false,
        "restricted_writes": restricted_writes,
        "created_at_upper_limit": limits.created_at_ahead.as_secs(),
    });
    if let (false, Some(fields)) = (
        limits.created_at_behind.is_zero(),
        limitation.as_object_mut(),
    ) {
        fields.insert(
            "created_at_lower_limit".to_owned(),
            json!(limits.created_at_behind.as_secs()),
        );
    }
    if let Some(fields) = limitation.as_object_mut() {
        for (name, rate) in [
            (
                "max_events_per_minute_per_ip",
                limits.events_per_minute_per_ip,
            ),
            (
                "max_events_per_minute_per_key",
                limits.events_per_minute_per_key,
            ),
        ] {
            if rate > 0 {
                fields.insert(name.to_owned(), json!(rate));
            }
        }
    }
    limitation
}
