//! The pages. Templates escape whatever they are given; no script, no asset from elsewhere.

mod repository;

use askama::Template;
use grasp_core::{Limits, Pubkey};

pub use self::repository::repository;
use crate::config::Config;

pub const STYLE: &str = include_str!("../../templates/style.css");

#[derive(Template)]
#[template(path = "landing.html")]
struct Landing<'a> {
    name: &'a str,
    description: &'a str,
    ws_url: String,
    http_url: String,
    npub: String,
    contact: &'a str,
    grasps: &'a [&'a str],
    nips: &'a [u16],
    acceptance: String,
    domain: String,
    metrics: bool,
    limits: &'a Limits,
    version: &'a str,
}

#[derive(Template)]
#[template(path = "not_found.html")]
struct NotFound;

/// What the relay information document says too.
pub struct Support<'a> {
    pub nips: &'a [u16],
    pub grasps: &'a [&'a str],
    pub acceptance: String,
}

pub fn landing(config: &Config, owner: Pubkey, limits: &Limits, support: Support<'_>) -> String {
    let page = Landing {
        name: &config.relay_name,
        description: &config.relay_description,
        ws_url: config.public_ws_url(),
        http_url: config.public_http_url(),
        npub: owner.npub(),
        contact: config.relay_contact.as_deref().unwrap_or_default(),
        grasps: support.grasps,
        nips: support.nips,
        acceptance: support.acceptance,
        domain: config.domain(),
        metrics: config.metrics_enabled,
        limits,
        version: env!("CARGO_PKG_VERSION"),
    };
    render(&page)
}

pub fn not_found() -> String {
    render(&NotFound)
}

fn render(page: &impl Template) -> String {
    page.render().unwrap_or_else(|error| {
        tracing::error!(%error, "a page could not be rendered");
        "this page could not be rendered".to_owned()
    })
}
