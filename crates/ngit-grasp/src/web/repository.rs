//! A repository's page: what it is, how it stands, who maintains it, what is in it, how to get it.

use askama::Template;
use grasp_core::RepoId;
use grasp_core::git::RefName;
use grasp_core::nip34::announcement::all_values;
use grasp_git::text::marked;
use grasp_git::{CommitSummary, GitError, Objects, Ref, RefSet, Repo};

use super::network::Look;
use super::render;
use super::words::{date, kind_words};
use crate::hosting::budget::ReadBudget;
use crate::hosting::conversation::{Completeness, Conversation};
use crate::hosting::overview::Overview;
use crate::inspect::span;
use crate::status::RepoSync;

/// Refs of each kind that a page shows.
const MAX_SHOWN: usize = 100;
/// Commits of the default branch.
const MAX_COMMITS: usize = 10;
/// Held events, and links that its announcement gives.
const MAX_HELD: usize = 10;
/// Characters of a name or a subject, and of a description: 210 rows of two and a few links are
/// 300 KiB at most, though each character be escaped.
const MAX_NAME: usize = 200;
const MAX_DESCRIPTION: usize = 2_000;
const MAX_LINKS: usize = 5;
/// The last second of the year 9999: an author's clock may be wrong.
const LAST_SECOND: u64 = 253_402_300_799;

#[derive(Template)]
#[template(path = "repository.html")]
struct Page<'a> {
    name: String,
    description: String,
    is_served: bool,
    clone_url: String,
    nostr_url: String,
    browse_url: String,
    web: Vec<&'a str>,
    maintainers: Vec<String>,
    head: String,
    branches: Vec<Row>,
    tags: Vec<Row>,
    more: usize,
    commits: Vec<Commit>,
    /// Some commits were not read, because that would take too long.
    cut: bool,
    issues: String,
    proposals: String,
    last_event: String,
    sync: Option<Standing>,
}

struct Row {
    name: String,
    commit: String,
    subject: String,
}

struct Commit {
    id: String,
    subject: String,
    author: String,
    date: String,
}

/// How it stands with other relays.
struct Standing {
    enabled: bool,
    held: Vec<(u64, &'static str)>,
    /// The first of them, in words.
    shown: Vec<(&'static str, String)>,
    hunted: bool,
    relays: Vec<RelayRow>,
    left_out: u32,
}

struct RelayRow {
    url: String,
    look: Look,
    read: u64,
    wanted: u64,
}

/// Everything that was found out about a repository.
pub struct Found<'a> {
    pub id: &'a RepoId,
    pub overview: &'a Overview,
    pub repo: &'a Repo,
    /// `None` if the store cannot say.
    pub conversation: Option<Conversation>,
    /// `None` if nobody could say in time.
    pub sync: Option<RepoSync>,
    /// Unix seconds.
    pub now: u64,
    /// What may be read of commits.
    pub objects: ReadBudget,
}

/// `http_url` is this server's, without a trailing slash, and `domain` its name.
pub fn repository(mut found: Found<'_>, http_url: &str, domain: &str) -> Result<String, GitError> {
    let Found {
        id, overview, repo, ..
    } = found;
    let refs = repo.refs()?;
    let objects = repo.objects()?;
    let announcement = overview.announcement.as_deref();
    let text = |name: &str| announcement.and_then(|event| event.tag(name));
    let web = announcement.map(|event| all_values(event, "web"));
    let talk = found.conversation;
    let (owner, name) = (id.owner.npub(), escaped(id.identifier.as_str()));
    let budget = &mut found.objects;
    let commits = commits(&refs, &objects, budget);
    let branches = rows(&refs, &objects, budget, RefName::is_branch);
    let tags = rows(&refs, &objects, budget, RefName::is_tag);
    let shown_name = text("name").filter(|name| !name.is_empty());
    let page = Page {
        name: shortened(
            shown_name.unwrap_or(id.identifier.as_str()),
            MAX_DESCRIPTION,
        ),
        description: shortened(text("description").unwrap_or_default(), MAX_DESCRIPTION),
        is_served: announcement.is_some(),
        clone_url: clone_url(http_url, id),
        nostr_url: format!("nostr://{owner}/{domain}/{name}"),
        browse_url: format!("https://gitworkshop.dev/{owner}/{name}"),
        web: web
            .into_iter()
            .flatten()
            .filter(|url| is_link(url) && url.len() <= MAX_DESCRIPTION)
            .take(MAX_LINKS)
            .collect(),
        maintainers: overview.maintainers.iter().map(|key| key.npub()).collect(),
        head: refs
            .head
            .as_ref()
            .map_or_else(String::new, |head| shortened(short(head), MAX_NAME)),
        branches,
        tags,
        more: hidden(&refs),
        commits,
        cut: found.objects.is_exceeded(),
        issues: counted(talk, |talk| talk.issues),
        proposals: counted(talk, |talk| talk.proposals),
        last_event: last_event(&found),
        sync: found.sync.map(standing),
    };
    Ok(render(&page))
}

const UNKNOWN: &str = "–";

fn counted(talk: Option<Conversation>, count: impl Fn(&Conversation) -> usize) -> String {
    let Some(talk) = talk else {
        return UNKNOWN.to_owned();
    };
    let count = count(&talk);
    match talk.completeness {
        Completeness::Whole => count.to_string(),
        Completeness::AtLeast => format!("{count} or more"),
        Completeness::About => format!("about {count}"),
    }
}

/// Of what names the repository, its announcement and its state.
fn last_event(found: &Found<'_>) -> String {
    let overview = found.overview;
    let own = [
        overview.announcement.as_ref().map(|event| event.created_at),
        overview.state.as_ref().map(|(event, _)| event.created_at),
        found.conversation.and_then(|talk| talk.last),
    ];
    let last = own.into_iter().flatten().max();
    last.map_or_else(
        || UNKNOWN.to_owned(),
        |last| format!("{} ago", span(found.now.saturating_sub(last.0))),
    )
}

fn standing(sync: RepoSync) -> Standing {
    let relays = sync.relays.into_iter().map(|relay| RelayRow {
        look: Look::of(relay.connected, relay.in_step, relay.health),
        url: relay.url,
        read: relay.read,
        wanted: relay.wanted,
    });
    let shown = sync.held.iter().take(MAX_HELD);
    Standing {
        enabled: sync.enabled,
        shown: shown
            .map(|(age, kind)| (kind_words(kind, 1), span(*age)))
            .collect(),
        held: sync.held,
        hunted: sync.hunted,
        relays: relays.collect(),
        left_out: sync.left_out,
    }
}

/// What a commit counts for, beside its text: it is found, and its deltas are applied.
const COMMIT_COST: usize = 4 * 1024;

fn commits(refs: &RefSet, objects: &Objects, budget: &mut ReadBudget) -> Vec<Commit> {
    let head = refs.head.as_ref().and_then(|head| refs.refs.get(head));
    let Some(tip) = head else {
        return Vec::new();
    };
    // What cannot be read is not shown; the branch itself is.
    let log = objects.log(&tip.id, MAX_COMMITS, |size| may_read(budget, size));
    let log = log.unwrap_or_default();
    let commit = |(id, summary): (_, CommitSummary)| Commit {
        id: abbreviated(&id),
        subject: shortened(&summary.subject, MAX_NAME),
        author: shortened(&summary.author, MAX_NAME),
        date: date(u64::try_from(summary.time).unwrap_or(0).min(LAST_SECOND)),
    };
    log.into_iter().map(commit).collect()
}

/// Whether a commit of this size may be read, for which it is charged at once.
fn may_read(budget: &mut ReadBudget, size: u64) -> bool {
    let may = budget.has_left();
    if may {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        budget.spend(size.saturating_add(COMMIT_COST));
    }
    may
}

fn abbreviated(id: &impl ToString) -> String {
    id.to_string().chars().take(10).collect()
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

fn rows(
    refs: &RefSet,
    objects: &Objects,
    budget: &mut ReadBudget,
    wanted: impl Fn(&RefName) -> bool,
) -> Vec<Row> {
    let wanted = refs.refs.iter().filter(|(name, _)| wanted(name));
    wanted
        .take(MAX_SHOWN)
        .map(|(name, at)| row(name, at, objects, budget))
        .collect()
}

/// Without its subject, if nothing more may be read.
fn row(name: &RefName, at: &Ref, objects: &Objects, budget: &mut ReadBudget) -> Row {
    let commit = at.peeled.unwrap_or(at.id);
    let summary = match budget.has_left() {
        true => objects.commit_summary(&commit, |size| may_read(budget, size)),
        false => Ok(None),
    };
    let summary = summary.ok().flatten();
    let subject = summary.map(|summary| summary.subject).unwrap_or_default();
    Row {
        name: shortened(short(name), MAX_NAME),
        commit: abbreviated(&commit),
        subject: shortened(&subject, MAX_NAME),
    }
}

/// The beginning of a text that may have any length and any characters.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", marked(text.get(..end).unwrap_or_default())),
        None => marked(text),
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
    fn a_strangers_text_is_shown_in_bounds_and_turns_nothing_around() {
        assert_eq!(shortened("grün", 4), "grün");
        assert_eq!(shortened("grüner", 4), "grün…");
        assert_eq!(shortened("a\u{202e}b\u{9b}", 4), "a\u{fffd}b\u{fffd}");
    }

    /// Ten commits with long messages, one after the other.
    fn with_long_messages(folder: &std::path::Path) -> (Repo, RefSet) {
        let (repo, _) = Repo::create(&folder.join("a.git")).unwrap();
        let git = |args: &[&str]| {
            let ran = std::process::Command::new("git")
                .arg("--git-dir")
                .arg(repo.dir())
                .args(args)
                .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "A")))
                .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "a@b.c")))
                .stdin(std::process::Stdio::null())
                .output()
                .unwrap();
            assert!(ran.status.success(), "{ran:?}");
            String::from_utf8(ran.stdout).unwrap().trim().to_owned()
        };
        let tree = git(&["mktree"]);
        let message = format!("Subject\n\n{}", "x".repeat(50_000));
        let mut tip = git(&["commit-tree", &tree, "-m", &message]);
        for _ in 1..10 {
            tip = git(&["commit-tree", &tree, "-p", &tip, "-m", &message]);
        }
        git(&["update-ref", "refs/heads/master", &tip]);
        let refs = repo.refs().unwrap();
        (repo, refs)
    }

    /// A page costs what the budget says, however large the commits are.
    #[test]
    fn large_commits_are_read_as_far_as_the_budget_goes() {
        let folder = tempfile::tempdir().unwrap();
        let (repo, refs) = with_long_messages(folder.path());
        let objects = repo.objects().unwrap();
        let later = std::time::Instant::now() + std::time::Duration::from_secs(3_600);
        let mut plenty = ReadBudget::new(10_000_000, later);
        assert_eq!(commits(&refs, &objects, &mut plenty).len(), 10);
        assert!(!plenty.is_exceeded());

        let mut scarce = ReadBudget::new(120_000, later);
        assert_eq!(commits(&refs, &objects, &mut scarce).len(), 3);
        assert!(scarce.is_exceeded());
        let rows = rows(&refs, &objects, &mut scarce, RefName::is_branch);
        let subjects: Vec<_> = rows.iter().map(|row| row.subject.as_str()).collect();
        assert_eq!(subjects, [""], "and not one more is read");
    }

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
