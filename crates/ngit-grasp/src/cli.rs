//! The command line: `ngit-grasp` serves, its subcommands look after the data.

mod command;
pub mod reference;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgMatches;

use self::command::ENV_FILE;
pub use self::command::command;
use crate::app;
use crate::config::{self, Config, ConfigErrors};
use crate::doctor::doctor;
use crate::init::{Dialogue, InitError, init};
use crate::inspect;
use crate::purge;
use crate::status;
use crate::transfer;

/// 2 is what clap and the shell use for a command that was misunderstood.
const EXIT_USAGE: u8 = 2;

pub fn main() -> ExitCode {
    match run(std::env::args_os()) {
        Ok(code) => code,
        // Whoever reads has seen enough, as `head` does.
        Err(error) if is_broken_pipe(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            let user = whoever_was_refused(error.as_ref());
            let _ = writeln!(io::stderr(), "ngit-grasp: {error}{user}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    is_caused_by(error, io::ErrorKind::BrokenPipe)
}

fn is_caused_by(error: &(dyn std::error::Error + 'static), kind: io::ErrorKind) -> bool {
    let chain = std::iter::successors(Some(error), |error| error.source());
    let mut causes = chain.filter_map(|error| error.downcast_ref::<io::Error>());
    causes.any(|error| error.kind() == kind)
}

/// A refused permission is a question of who asks.
fn whoever_was_refused(error: &(dyn std::error::Error + 'static)) -> String {
    match is_caused_by(error, io::ErrorKind::PermissionDenied) {
        true => format!(" (as user {})", crate::owner::acting()),
        false => String::new(),
    }
}

fn run(args: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let matches = command().get_matches_from(args);
    match matches.subcommand() {
        Some(("init", sub)) => return begin(&matches, sub),
        Some(("completions", sub)) => return complete(sub),
        Some(("man", _)) => {
            write_stdout(&reference::man())?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let file = settings_file(&matches);
    if matches.contains_id(ENV_FILE) && !file.exists() {
        let _ = writeln!(io::stderr(), "ngit-grasp: {} is not there", file.display());
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let loaded = match config::load(&matches, std::env::vars_os(), file) {
        Ok(loaded) => loaded,
        Err(errors) => return Ok(wrong_settings(&errors)),
    };
    if let Some(("config", sub)) = matches.subcommand() {
        let rows = loaded.describe();
        let text = if sub.get_flag("json") {
            format!("{:#}\n", config::rows_as_json(&rows))
        } else {
            config::render_table(&rows)
        };
        write_stdout(&text)?;
        warn(&loaded.warnings);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(("doctor", sub)) = matches.subcommand() {
        return Ok(outcome(doctor(&loaded, sub.get_flag("json"))?));
    }
    start_logging(&loaded.config);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    dispatch(&matches, loaded.config)
}

fn dispatch(matches: &ArgMatches, config: Config) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let path = |sub: &ArgMatches, name: &str| sub.get_one::<PathBuf>(name).cloned();
    match matches.subcommand() {
        None => app::run(config)?,
        Some(("backup", sub)) => {
            let dir = path(sub, "DIR").unwrap_or_default();
            transfer::backup(&config, &dir, sub.get_flag("json"))?
        }
        Some(("restore", sub)) => {
            let dir = path(sub, "DIR").unwrap_or_default();
            transfer::restore(&config, &dir, sub.get_flag("json"))?
        }
        Some(("export", sub)) => transfer::export(&config, path(sub, "FILE").as_deref())?,
        Some(("import", sub)) => {
            let file = path(sub, "FILE");
            let clean = transfer::import(&config, file.as_deref(), sub.get_flag("json"))?;
            return Ok(outcome(clean));
        }
        Some(("repos", sub)) => inspect::repos(&config, sub.get_flag("json"))?,
        Some(("status", sub)) => {
            return Ok(outcome(status::status(&config, sub.get_flag("json"))?));
        }
        Some(("check", sub)) => {
            let well = inspect::check(&config, sub.get_flag("repair"), sub.get_flag("json"))?;
            return Ok(outcome(well));
        }
        Some(("purge", sub)) => {
            purge::purge(&config, sub.get_flag("yes"), sub.get_flag("json"))?;
        }
        Some((other, _)) => return Err(format!("no such command: {other}").into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// `ngit-grasp init`: asks where somebody can answer.
fn begin(matches: &ArgMatches, sub: &ArgMatches) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let somebody = io::stdin().is_terminal() && io::stderr().is_terminal();
    let asks = somebody && !sub.get_flag("defaults");
    let (mut answers, mut questions) = (io::stdin().lock(), io::stderr());
    let dialogue = asks.then_some(Dialogue {
        answers: &mut answers,
        questions: &mut questions,
    });
    let file = settings_file(matches);
    let env = std::env::vars_os().collect();
    let written = match init(matches, env, file, sub.get_flag("force"), dialogue) {
        Ok(written) => written,
        Err(InitError::Settings(errors)) => return Ok(wrong_settings(&errors)),
        Err(error) => return Err(error.into()),
    };
    warn(&written.warnings);
    if let Some(old) = &written.old {
        transfer::say(&format!("The old file is kept as {}.", old.display()));
    }
    let with = match matches.contains_id(ENV_FILE) {
        true => format!("ngit-grasp --{ENV_FILE} {}", file.display()),
        false => "ngit-grasp".to_owned(),
    };
    transfer::say(&format!(
        "{} is written. `{with}` starts the server, `{with} doctor` looks whether all is well.",
        file.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// `ngit-grasp completions`: a script for the shell that was named.
fn complete(sub: &ArgMatches) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let shell = sub.get_one::<String>("SHELL").map(String::as_str);
    let shell = shell.and_then(reference::shell).ok_or("no such shell")?;
    io::stdout().write_all(&reference::completions(shell))?;
    Ok(ExitCode::SUCCESS)
}

fn settings_file(matches: &ArgMatches) -> &Path {
    let named = matches.get_one::<PathBuf>(ENV_FILE);
    named.map_or(Path::new(".env"), PathBuf::as_path)
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
}

fn wrong_settings(errors: &ConfigErrors) -> ExitCode {
    for line in &errors.lines {
        let _ = writeln!(io::stderr(), "ngit-grasp: {line}");
    }
    ExitCode::from(EXIT_USAGE)
}

/// What was looked at is well, or it is not.
fn outcome(well: bool) -> ExitCode {
    if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Colours are for terminals, and only for those who do not say otherwise (no-color.org).
pub(crate) fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn start_logging(config: &Config) {
    let filter = tracing_subscriber::EnvFilter::new(config.log_level.as_str());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal() && colours())
        .with_target(false)
        .with_writer(io::stderr)
        .init();
}

fn write_stdout(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes())
}
