//! `ngit-grasp repos` and `ngit-grasp check`: what is hosted and whether it is well. Both read
//! beside a running server; only `check --repair` needs it stopped.

mod events;
mod repair;

use std::fmt;
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use grasp_core::event::{Event, Kind};
use grasp_core::{EventId, RepoId, Restore};
use grasp_git::Problem;
use grasp_store::Store;
use indicatif::ProgressBar;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use serde_json::json;
use tokio::runtime::Runtime;

use self::events::{Damaged, Verified};
use crate::config::Config;
use crate::hosting::overview::Overview;
use crate::hosting::{Repositories, heads_and_tags};
use crate::owner;
use crate::transfer::{TransferError, bar, engine, look, say};

/// One look at one repository's objects.
const FSCK: Duration = Duration::from_secs(600);
/// How long a repair may take to settle everything.
const REPAIR: Duration = Duration::from_secs(3_600);

/// What the store says, read once.
struct Records {
    store: Store,
    repositories: Repositories,
    served: FxHashSet<RepoId>,
    held: FxHashMap<RepoId, usize>,
    held_in_all: usize,
    /// Events whose objects are gone.
    hidden: Vec<EventId>,
}

/// What is not served, and why.
impl fmt::Display for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events held for git data", self.held_in_all)?;
        match self.hidden.len() {
            0 => Ok(()),
            hidden => write!(f, ", {hidden} not served because theirs is gone"),
        }
    }
}

impl Records {
    fn read(config: &Config) -> Result<Self, TransferError> {
        let store = look(config)?;
        let mut records = Self {
            repositories: Repositories::new(config.git_data_path.clone()),
            served: FxHashSet::default(),
            held: FxHashMap::default(),
            held_in_all: 0,
            hidden: Vec::new(),
            store,
        };
        let (served, held) = (&mut records.served, &mut records.held);
        let (held_in_all, hidden) = (&mut records.held_in_all, &mut records.hidden);
        let us = config.service();
        records.store.kept(|restore| match restore {
            Restore::Announcement { event, .. } => {
                let read = grasp_core::nip34::Announcement::read(&event, &us);
                served.extend(read.ok().filter(|read| read.lists_us).map(|read| read.repo));
            }
            Restore::Applied { .. }
            | Restore::Repository(_)
            | Restore::Root { .. }
            | Restore::Relay(_)
            | Restore::Dismissed(_)
            // It has expired, and waits for nothing.
            | Restore::Held {
                remembered: true, ..
            } => {}
            Restore::Hidden(id) => hidden.push(id),
            Restore::Held { event, .. } => {
                *held_in_all += 1;
                if let Some(repo) = repo_of(&event) {
                    *held.entry(repo).or_default() += 1;
                }
            }
        })?;
        Ok(records)
    }

    /// On disk or announced.
    fn all(&self) -> Result<Vec<RepoId>, TransferError> {
        let found = self.repositories.list();
        let found = found.map_err(|source| TransferError::Io {
            path: self.repositories.root().to_owned(),
            source,
        })?;
        let mut all: Vec<RepoId> = found
            .into_iter()
            .chain(self.served.iter().cloned())
            .collect();
        all.sort();
        all.dedup();
        Ok(all)
    }
}

fn repo_of(event: &Event) -> Option<RepoId> {
    match event.kind {
        Kind::ANNOUNCEMENT | Kind::STATE => {
            let identifier = grasp_core::Identifier::parse(event.tag("d")?).ok()?;
            Some(RepoId::new(event.pubkey, identifier))
        }
        _ => event
            .tag_values("a")
            .filter_map(grasp_core::event::Address::parse)
            .find_map(|address| RepoId::of_address(&address)),
    }
}

/// One repository as it stands.
#[derive(Debug, Serialize)]
struct Row {
    repository: String,
    /// On disk; nothing where there is no repository.
    bytes: Option<u64>,
    refs: Option<usize>,
    /// Of its newest state.
    state_age_secs: Option<u64>,
    standing: &'static str,
    in_step: bool,
}

/// A line for each repository.
pub fn repos(config: &Config, as_json: bool) -> Result<(), TransferError> {
    owner::act_for(&[&config.relay_data_path, &config.git_data_path])?;
    let records = Records::read(config)?;
    let all = records.all()?;
    let rows = all.iter().map(|repo| row(&records, config, repo));
    let text = if as_json {
        let rows: Vec<Row> = rows.collect();
        let (held, hidden) = (records.held_in_all, records.hidden.len());
        let report = json!({ "repositories": rows, "held_events": held, "hidden_events": hidden });
        format!("{report:#}\n")
    } else {
        let head = format!(
            "{:>10}  {:>6}  {:>10}  {:9}  {:8}  REPOSITORY\n",
            "SIZE", "REFS", "STATE", "STANDING", "IN STEP"
        );
        let lines: String = rows.map(|row| line(&row)).collect();
        format!("{head}{lines}{} repositories, {records}\n", all.len())
    };
    print(&text)
}

fn print(text: &str) -> Result<(), TransferError> {
    let printed = io::stdout().write_all(text.as_bytes());
    printed.map_err(|source| TransferError::Io {
        path: "standard output".into(),
        source,
    })
}

fn row(records: &Records, config: &Config, repo: &RepoId) -> Row {
    let (us, rule) = (config.service(), config.maintainer_rule);
    let overview = Overview::of(repo, &records.store, &us, rule);
    let (served, held) = (&records.served, &records.held);
    let standing = match (served.contains(repo), held.contains_key(repo)) {
        (true, _) => "served",
        (false, true) => "held",
        (false, false) => "unknown",
    };
    let looked = records.repositories.open(repo).and_then(|opened| {
        let refs = opened.refs()?.ids();
        Ok((opened.size()?, refs))
    });
    let looked = looked.ok();
    Row {
        repository: repo.to_string(),
        bytes: looked.as_ref().map(|(size, _)| *size),
        refs: looked.as_ref().map(|(_, refs)| refs.len()),
        state_age_secs: overview.state.as_ref().map(|(event, _)| age(event)),
        standing,
        in_step: looked.is_some_and(|(_, refs)| overview.is_in_step(&heads_and_tags(&refs))),
    }
}

fn line(row: &Row) -> String {
    let none = || "-".to_owned();
    let size = row.bytes.map_or_else(none, human);
    let refs = row.refs.map_or_else(none, |count| count.to_string());
    let age = row.state_age_secs.map_or_else(none, span);
    let in_step = if row.in_step { "yes" } else { "NO" };
    let (standing, repo) = (row.standing, &row.repository);
    format!("{size:>10}  {refs:>6}  {age:>10}  {standing:9}  {in_step:8}  {repo}\n")
}

fn age(event: &Event) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    now.saturating_sub(event.created_at.0)
}

/// For people.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

pub(crate) fn human(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=9_999_999 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

/// Every event: id and signature. Every repository: objects, refs against the newest state, what
/// waits. True when all is well.
pub fn check(config: &Config, repair: bool, as_json: bool) -> Result<bool, TransferError> {
    owner::act_for(&[&config.relay_data_path, &config.git_data_path])?;
    let verified = verify(config, as_json)?;
    if !verified.is_readable() {
        // Whatever reads the store may come upon what cannot be read, and end there.
        return unreadable(&verified, as_json);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|source| TransferError::Io {
        path: "a runtime".into(),
        source,
    })?;
    if repair {
        mend(config)?;
    }
    if repair && config.hunt_enabled && bring_back(config, &runtime)? {
        mend(config)?;
    }
    let records = Records::read(config)?;
    let all = records.all()?;
    let problems = problems(&records, config, &all, &runtime, as_json);
    let troubled = problems.iter().filter(|found| !found.is_empty()).count();
    let ok = troubled == 0 && verified.damaged.is_empty();
    if as_json {
        let (held, hidden) = (records.held_in_all, records.hidden.len());
        let problems: Vec<_> = problems.into_iter().flatten().collect();
        let report = json!({
            "ok": ok, "repositories": all.len(), "troubled": troubled, "problems": problems,
            "events": verified.events, "damaged_events": verified.damaged,
            "held_events": held, "hidden_events": hidden,
        });
        print(&format!("{report:#}\n"))?;
        return Ok(ok);
    }
    say(&verified.to_string());
    say(&format!(
        "{} repositories checked, {troubled} with problems; {records}",
        all.len()
    ));
    Ok(ok)
}

/// Names what it finds at once: it may take a while.
fn verify(config: &Config, as_json: bool) -> Result<Verified, TransferError> {
    let tell = |bar: &ProgressBar, damaged: &Damaged| {
        if !as_json {
            bar.suspend(|| say(&damaged.to_string()));
        }
    };
    Verified::of(&look(config)?, tell)
}

fn unreadable(verified: &Verified, as_json: bool) -> Result<bool, TransferError> {
    if as_json {
        let report = json!({
            "ok": false, "events": verified.events, "damaged_events": verified.damaged,
        });
        print(&format!("{report:#}\n"))?;
    } else {
        say(&verified.to_string());
        say("the repositories were not checked, because events that they may need cannot be read");
    }
    Ok(false)
}

/// What is wrong with each of them.
fn problems(
    records: &Records,
    config: &Config,
    all: &[RepoId],
    runtime: &Runtime,
    as_json: bool,
) -> Vec<Vec<serde_json::Value>> {
    let bar = bar(all.len() as u64, "{bar:30} {pos}/{len} repositories {eta}");
    let look_at = |repo: &RepoId| {
        let found = runtime.block_on(findings(records, config, repo));
        bar.inc(1);
        let told = found.into_iter().map(|what| {
            if !as_json {
                bar.suspend(|| say(&format!("{repo}: {what}")));
            }
            json!({ "repository": repo.to_string(), "problem": what })
        });
        told.collect()
    };
    let problems = all.iter().map(look_at).collect();
    bar.finish_and_clear();
    problems
}

async fn findings(records: &Records, config: &Config, repo: &RepoId) -> Vec<String> {
    let mut found = Vec::new();
    let opened = match records.repositories.open(repo) {
        Ok(opened) => opened,
        Err(error) if error.is_not_found() => return vec!["announced, and not on disk".to_owned()],
        Err(error) => return vec![error.to_string()],
    };
    if !records.served.contains(repo) && !records.held.contains_key(repo) {
        found.push("on disk, and not announced".to_owned());
    }
    match opened.refs() {
        Ok(refs) => {
            let service = config.service();
            let rule = config.maintainer_rule;
            let overview = Overview::of(repo, &records.store, &service, rule);
            if !overview.is_in_step(&heads_and_tags(&refs.ids())) {
                found.push("its refs are not those of its state".to_owned());
            }
        }
        Err(error) => found.push(error.to_string()),
    }
    match opened.fsck_connectivity(FSCK).await {
        Ok(problems) => found.extend(problems.iter().map(describe)),
        Err(error) => found.push(error.to_string()),
    }
    found
}

fn describe(problem: &Problem) -> String {
    match problem {
        Problem::Missing { kind, id } => format!("{kind:?} {id} is missing"),
        Problem::Other(text) => text.clone(),
    }
}

/// True if something came that had been lost.
fn bring_back(config: &Config, runtime: &Runtime) -> Result<bool, TransferError> {
    let records = Records::read(config)?;
    runtime.block_on(repair::bring_back(&records, config))
}

/// What a start does, without serving: refs and store are brought in step, leftovers cleared.
fn mend(config: &Config) -> Result<(), TransferError> {
    let engine = engine(config)?;
    let spinner = ProgressBar::new_spinner().with_message("bringing refs and store in step");
    spinner.enable_steady_tick(Duration::from_millis(100));
    if !engine.settle(REPAIR) {
        say("not everything could be brought in step in time");
    }
    engine.stop();
    spinner.finish_and_clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use grasp_core::{Change, Timestamp};

    use super::*;
    use crate::config;

    #[test]
    fn what_is_only_kept_in_mind_is_not_held() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().to_str().unwrap();
        let env = [("NGIT_DOMAIN", "a.example"), ("NGIT_RELAY_DATA_PATH", data)];
        let env = env.map(|(name, value)| (name.into(), value.into()));
        let flags = clap::Command::new("test").args(config::args());
        let none = dir.path().join("none");
        let loaded = config::load(&flags.get_matches_from(["test"]), env, &none);
        let config = loaded.ok().unwrap().config;
        let author = testkit::Author::new(1);
        let hold = |name: &str, remembered| Change::Hold {
            event: Arc::new(author.event(30_617, 1, &[&["d", name]], "")),
            until: Timestamp(2),
            remembered,
        };
        let store = Store::open(dir.path()).unwrap();
        let changes = [hold("waits", false), hold("expired", true)];
        store.commit([&changes[..]]).unwrap();
        drop(store);
        let records = Records::read(&config).unwrap();
        assert_eq!((records.held_in_all, records.held.len()), (1, 1));
    }
}
