//! `ngit-grasp doctor`: looks at everything around the server that can be wrong, and says what to
//! do about it. It asks nobody but the server's own public address and bootstrap relays.

mod clock;
mod local;
mod outside;

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::config::{Config, Loaded};
use crate::identity;
use crate::owner;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub about: &'static str,
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do; empty if nothing.
    pub advice: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    /// It works, and something about it may surprise.
    Warn,
    Fail,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }

    /// Green, yellow, red.
    fn colour(self) -> &'static str {
        match self {
            Self::Ok => "\x1b[32m",
            Self::Warn => "\x1b[33m",
            Self::Fail => "\x1b[31m",
        }
    }
}

impl Finding {
    fn ok(about: &'static str, found: impl Into<String>) -> Self {
        Self {
            about,
            verdict: Verdict::Ok,
            found: found.into(),
            advice: String::new(),
        }
    }

    fn warn(about: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Warn,
            advice: advice.into(),
            ..Self::ok(about, found)
        }
    }

    fn fail(about: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Fail,
            ..Self::warn(about, found, advice)
        }
    }
}

/// Looks, prints, and is true when nothing failed.
pub fn doctor(loaded: &Loaded, as_json: bool) -> io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let findings = runtime.block_on(examine(loaded));
    // A name server that does not answer holds a thread: nobody waits for it.
    runtime.shutdown_background();
    let well = findings
        .iter()
        .all(|finding| finding.verdict != Verdict::Fail);
    let text = if as_json {
        let report = serde_json::json!({ "ok": well, "findings": findings });
        format!("{report:#}\n")
    } else {
        let coloured = io::stdout().is_terminal() && crate::cli::colours();
        render(&findings, coloured)
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(well)
}

async fn examine(loaded: &Loaded) -> Vec<Finding> {
    let config = &loaded.config;
    let us = our_npub(config);
    let mut findings = local::settings(loaded);
    findings.push(local::git());
    findings.extend(local::folders(config));
    findings.extend(local::disk(config));
    findings.push(local::open_files(config));
    findings.extend(outside::examine(config, us.as_deref()).await);
    findings
}

/// Who this server is, if it has been started once or was told.
fn our_npub(config: &Config) -> Option<String> {
    let secret = config.relay_owner_nsec.as_ref();
    match secret {
        Some(secret) => identity::npub_of(secret.reveal()),
        None => {
            let data = &config.relay_data_path;
            let known = owner::as_owner(&[data], || identity::known(data));
            known.ok().flatten()
        }
    }
}

/// A line for each, and what to do below it.
fn render(findings: &[Finding], coloured: bool) -> String {
    let width = findings.iter().map(|finding| finding.about.len()).max();
    let width = width.unwrap_or_default();
    let mut text = String::new();
    for finding in findings {
        let verdict = format!("{:4}", finding.verdict.word());
        let verdict = match coloured {
            true => format!("{}{verdict}\x1b[0m", finding.verdict.colour()),
            false => verdict,
        };
        text.push_str(&format!(
            "{verdict}  {:width$}  {}\n",
            finding.about, finding.found
        ));
        if !finding.advice.is_empty() {
            text.push_str(&format!("      {:width$}  → {}\n", "", finding.advice));
        }
    }
    let count = |verdict| findings.iter().filter(|of| of.verdict == verdict).count();
    text.push_str(&format!(
        "{} ok, {} to look at, {} failed\n",
        count(Verdict::Ok),
        count(Verdict::Warn),
        count(Verdict::Fail)
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_a_line_for_each_finding_and_what_to_do_below_it() {
        let findings = [
            Finding::ok("git", "version 2.47.3"),
            Finding::warn("open files", "256", "raise it"),
            Finding::fail("disk", "1 MB free", "free some"),
        ];
        let text = "ok    git         version 2.47.3\n\
                    warn  open files  256\n                  → raise it\n\
                    FAIL  disk        1 MB free\n                  → free some\n\
                    1 ok, 1 to look at, 1 failed\n";
        assert_eq!(render(&findings, false), text);
        assert!(render(&findings, true).contains("\x1b[31mFAIL\x1b[0m"));
    }
}
