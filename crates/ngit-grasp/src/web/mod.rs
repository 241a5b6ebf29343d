//! The pages. Templates escape whatever they are given; no script, no asset from elsewhere.

use askama::Template;
use grasp_core::{Limits, Pubkey};

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
    nips: &'a [u16],
    limits: &'a Limits,
    version: &'a str,
}

#[derive(Template)]
#[template(path = "not_found.html")]
struct NotFound;

pub fn landing(config: &Config, owner: Pubkey, limits: &Limits, nips: &[u16]) -> String {
    let page = Landing {
        name: &config.relay_name,
        description: &config.relay_description,
        ws_url: config.public_ws_url(),
        http_url: config.public_http_url(),
        npub: owner.npub(),
        contact: config.relay_contact.as_deref().unwrap_or_default(),
        nips,
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
