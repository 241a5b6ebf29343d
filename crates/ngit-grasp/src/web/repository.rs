//! A repository's page: what it is, who maintains it, what is in it, how to get it.

use askama::Template;
use grasp_core::RepoId;
use grasp_core::git::RefName;
use grasp_core::nip34::announcement::all_values;
use grasp_git::{GitError, Objects, Ref, RefSet, Repo};

use super::render;
use crate::hosting::overview::Overview;

/// Refs of each kind that a page shows.
const MAX_SHOWN: usize = 100;

#[derive(Template)]
#[template(path = "repository.html")]
struct Page<'a> {
    name: &'a str,
    description: &'a str,
    is_served: bool,
    clone_url: String,
    browse_url: String,
    web: Vec<&'a str>,
    maintainers: Vec<String>,
    head: &'a str,
    branches: Vec<Row>,
    tags: Vec<Row>,
    more: usize,
}

struct Row {
    name: String,
    commit: String,
    subject: String,
}

/// `http_url` is this server's, without a trailing slash.
pub fn repository(
    id: &RepoId,
    overview: &Overview,
    repo: &Repo,
    http_url: &str,
) -> Result<String, GitError> {
    let refs = repo.refs()?;
    let objects = repo.objects()?;
    let announcement = overview.announcement.as_deref();
    let text = |name: &str| announcement.and_then(|event| event.tag(name));
    let is_served = announcement.is_some();
    let web = announcement.map(|event| all_values(event, "web"));
    let page = Page {
        name: text("name")
            .filter(|name| !name.is_empty())
            .unwrap_or(id.identifier.as_str()),
        description: text("description").unwrap_or_default(),
        is_served,
        clone_url: clone_url(http_url, id),
        browse_url: format!(
            "https://gitworkshop.dev/{}/{}",
            id.owner.npub(),
            escaped(id.identifier.as_str())
        ),
        web: web
            .into_iter()
            .flatten()
            .filter(|url| is_link(url))
            .collect(),
        maintainers: overview.maintainers.iter().map(|key| key.npub()).collect(),
        head: refs.head.as_ref().map_or("", |head| short(head)),
        branches: rows(&refs, &objects, RefName::is_branch),
        tags: rows(&refs, &objects, RefName::is_tag),
        more: hidden(&refs),
    };
    Ok(render(&page))
}

/// The one address of a repository here.
pub fn clone_url(http_url: &str, id: &RepoId) -> String {
    let name = escaped(id.identifier.as_str());
    format!("{http_url}/{}/{name}.git", id.owner.npub())
}

fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// Nothing but the web: a `javascript:` link would run as us.
fn is_link(url: &str) -> bool {
    url.starts_with("https://") || url.starts_with("http://")
}

fn rows(refs: &RefSet, objects: &Objects, wanted: impl Fn(&RefName) -> bool) -> Vec<Row> {
    let wanted = refs.refs.iter().filter(|(name, _)| wanted(name));
    wanted
        .take(MAX_SHOWN)
        .map(|(name, at)| row(name, at, objects))
        .collect()
}

fn row(name: &RefName, at: &Ref, objects: &Objects) -> Row {
    let commit = at.peeled.unwrap_or(at.id);
    let summary = objects.commit_summary(&commit).ok().flatten();
    Row {
        name: short(name).to_owned(),
        commit: commit.to_string().chars().take(10).collect(),
        subject: summary.map(|summary| summary.subject).unwrap_or_default(),
    }
}

fn short(name: &RefName) -> &str {
    let name = name.as_str();
    name.strip_prefix("refs/heads/")
        .or_else(|| name.strip_prefix("refs/tags/"))
        .unwrap_or(name)
}

fn hidden(refs: &RefSet) -> usize {
    let count = |wanted: fn(&RefName) -> bool| refs.refs.keys().filter(|name| wanted(name)).count();
    let over = |count: usize| count.saturating_sub(MAX_SHOWN);
    over(count(RefName::is_branch)) + over(count(RefName::is_tag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use grasp_core::{Identifier, Pubkey};

    #[test]
    fn a_clone_url_is_one_that_we_take_for_ours() {
        let us = grasp_core::Service::of_url("https://git.example").unwrap();
        for name in ["a", "my repo", "a/b", "größe", "100%", "a?b#c"] {
            let id = RepoId::new(Pubkey([1; 32]), Identifier::parse(name).unwrap());
            let url = clone_url("https://git.example", &id);
            assert!(us.is_clone_url(&url, &id.owner, name), "{url}");
        }
    }
}
