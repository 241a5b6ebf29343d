//! The pages. Templates escape whatever they are given; no asset from elsewhere, and no script but
//! the one that keeps the status page up to date.

mod network;
mod repository;
mod status;
mod words;

use askama::Template;
use grasp_core::{Limits, Pubkey};

pub use self::repository::{Found, repository};
pub use self::status::{status_page, status_part};
use crate::config::Config;

pub const STYLE: &str = include_str!("../../templates/style.css");
pub const SCRIPT: &str = include_str!("../../templates/status.js");

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
    status: bool,
    limits: &'a Limits,
    version: &'a str,
}

#[derive(Template)]
#[template(path = "not_found.html")]
struct NotFound;

#[derive(Template)]
#[template(path = "not_told.html")]
struct NotTold;

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
        status: config.status_enabled,
        limits,
        version: env!("CARGO_PKG_VERSION"),
    };
    render(&page)
}

pub fn not_found() -> String {
    render(&NotFound)
}

/// To somebody who is not the operator.
pub fn not_told() -> String {
    render(&NotTold)
}

fn render(page: &impl Template) -> String {
    page.render().unwrap_or_else(|error| {
        tracing::error!(%error, "a page could not be rendered");
        "this page could not be rendered".to_owned()
    })
}
